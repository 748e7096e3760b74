package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli/measure"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// lesson is a text that the weights are learnt from: its clues, and how much each counts.
type lesson struct {
	names      []string
	counts     []float64
	commitment bool
	exchange   string
}

// How the weights are learnt: a logistic regression by steps that grow shorter for clues that stand
// often. They were chosen by cross-validation on the half tune and the lessons, and which clues there are
// with a look at the figures of other texts too (ADR 0044).
const (
	rounds = 20   // of which the later half is averaged
	step   = 0.3  // the first step of a clue
	shrink = 1e-4 // what each step takes off a weight
	words  = 1.5  // how much the words of a text count beside the clues of the rules
	rare   = 2    // clues of fewer texts are left out
	light  = 20   // so are those that weigh less, in hundredths
	parts  = 10   // of the texts, each of which is judged by what the others teach
)

// ofRules reports whether a clue is one of the rules, and no words.
func ofRules(name string) bool { return len(name) > 1 && name[0] == '(' && name[1] != ' ' }

type weights map[string]float64

// of is the score of a text.
func (w weights) of(l *lesson) (sum float64) {
	for i, name := range l.names {
		sum += w[name] * l.counts[i]
	}
	return sum
}

func learn(lessons []lesson) weights {
	texts := map[string]int{}
	for i := range lessons {
		for _, name := range lessons[i].names {
			texts[name]++
		}
	}
	w, steps, mean := weights{}, weights{}, weights{}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for round := range rounds {
		for _, i := range order.Perm(len(lessons)) {
			l := &lessons[i]
			wrong := 1 / (1 + math.Exp(-w.of(l)))
			if l.commitment {
				wrong--
			}
			for k, name := range l.names {
				if texts[name] < rare {
					continue
				}
				by := wrong*l.counts[k] + shrink*w[name]
				steps[name] += by * by
				w[name] -= step * by / math.Sqrt(steps[name]+0.1)
			}
		}
		if round >= rounds/2 {
			for name, weight := range w {
				mean[name] += weight / (rounds - rounds/2)
			}
		}
	}
	for name := range mean {
		if !ofRules(name) {
			mean[name] *= words
		}
		if math.Abs(mean[name])*100 < light {
			delete(mean, name)
		}
	}
	return mean
}

// lessonOf is what a text teaches. The words of a long one count no more than those of a short one.
func lessonOf(d *commitment.Detector, t *measure.Text, before commitment.Before) lesson {
	passages := []text.Passage{{Text: t.Text, Prose: true}}
	read := d.Read(d.ScanAfter(before, passages), passages, before)
	l := lesson{commitment: t.Commitment, exchange: t.Exchange, names: read.Clues()}
	for range l.names {
		l.counts = append(l.counts, 1)
	}
	grams, n := map[string]float64{}, 0.
	commitment.Words(t.Text, func(gram string, _, _ int) {
		grams[gram]++
		n++
	})
	for _, gram := range slices.Sorted(maps.Keys(grams)) {
		l.names, l.counts = append(l.names, gram), append(l.counts, words*grams[gram]/math.Sqrt(n))
	}
	return l
}

// lessonsOf are the texts of the half that rules are tuned on, and those that were written as
// lessons alone.
func lessonsOf(dir string, texts []measure.Text) ([]lesson, error) {
	d, err := commitment.New(commitment.Options{})
	if err != nil {
		return nil, err
	}
	var all []lesson
	asked := map[string]bool{}
	for i := range texts {
		t := &texts[i]
		asked[t.ID] = commitment.Asks(t.Text)
		if t.Half == halfTune {
			all = append(all, lessonOf(d, t, commitment.Before{Asked: asked[t.Answers]}))
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "lessons.tsv"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		label, text, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		label, answers := strings.CutSuffix(label, "?")
		if !ok || !slices.Contains([]string{"yes", "weak", "no"}, label) {
			return nil, fmt.Errorf("cannot read the lesson %q: want yes, weak or no, a tab and a text", line)
		}
		all = append(all, lessonOf(d, &measure.Text{Text: text, Commitment: label == "yes", Exchange: text}, commitment.Before{Asked: answers}))
	}
	return all, nil
}

// train writes the weights that the texts teach.
func train(dir, file string, out io.Writer) error {
	texts, err := readTexts(filepath.Join(dir, "texts"))
	if err != nil {
		return err
	}
	lessons, err := lessonsOf(dir, texts)
	if err != nil {
		return err
	}
	table := learn(lessons).table()
	fmt.Fprintf(out, "%d texts, %d weights\n", len(lessons), bytes.Count(table, []byte("\n")))
	return os.WriteFile(file, table, 0o644) //nolint:gosec // weights that everybody may read
}

// table is how weights are kept.
func (w weights) table() []byte {
	var table bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(w)) {
		fmt.Fprintf(&table, "%d\t%s\n", int(math.Round(w[name]*100)), name)
	}
	return table.Bytes()
}

// curve prints what holding more by the score finds: for the half that the weights were learnt from
// each part as the other parts would judge it, for the other half as it is.
func curve(dir string, out io.Writer) error {
	texts, err := readTexts(filepath.Join(dir, "texts"))
	if err != nil {
		return err
	}
	rules, err := defaults(false)
	if err != nil {
		return err
	}
	lessons, err := lessonsOf(dir, texts)
	if err != nil {
		return err
	}
	by := make([]weights, parts)
	for part := range parts {
		by[part] = learn(slices.DeleteFunc(slices.Clone(lessons), func(l lesson) bool { return partOf(l.exchange) == part }))
	}
	kept := weights{}
	for name, weight := range commitment.Weights() {
		kept[name] = float64(weight) / 100
	}
	asked := map[string]bool{}
	points := map[string][]point{}
	for i, s := range rules.Look(texts, nil) {
		t := &texts[i]
		asked[t.ID] = commitment.Asks(t.Text)
		w := kept
		if t.Half == halfTune {
			w = by[partOf(t.Exchange)]
		}
		l := lessonOf(rules.Commitments, t, commitment.Before{Asked: asked[t.Answers]})
		// The words count already as much as they do beside the rules.
		for k, name := range l.names {
			if !ofRules(name) {
				l.counts[k] /= words
			}
		}
		points[t.Half] = append(points[t.Half], point{weight: w.of(&l) * 100, held: s.Held, keyword: s.Keyword && !s.Cue, commitment: t.Commitment})
	}
	for _, name := range slices.Sorted(maps.Keys(points)) {
		fmt.Fprintf(out, "%s: area under the curve, held %.3f\n%8s %16s %16s %16s %16s\n", name, areaOf(points[name]), "bound", "no rule", "of them strict", "keywords alone", "of them strict")
		for _, bound := range []float64{200, 150, 100, 50, 0, -50, -100, -150, -200, -250, -300} {
			var free, right, keyword, rightly int
			for _, p := range points[name] {
				if p.weight < bound {
					continue
				}
				free, right = free+one(!p.held), right+one(!p.held && p.commitment)
				keyword, rightly = keyword+one(p.keyword), rightly+one(p.keyword && p.commitment)
			}
			n := len(points[name])
			fmt.Fprintf(out, "%8.0f %16v %16v %16v %16v\n", bound, measure.ShareOf(free, n), measure.ShareOf(right, free), measure.ShareOf(keyword, n), measure.ShareOf(rightly, keyword))
		}
	}
	return nil
}

type point struct {
	weight                    float64
	held, keyword, commitment bool
}

// areaOf is the share of pairs of held texts, one a commitment and one not, in which the commitment
// weighs more.
func areaOf(points []point) float64 {
	var seen []measure.Seen
	for _, p := range points {
		seen = append(seen, measure.Seen{Text: &measure.Text{Commitment: p.commitment}, Held: p.held, Points: int(math.Round(p.weight))})
	}
	return measure.Commitments(seen).Order
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func partOf(exchange string) int { return int(sha256.Sum256([]byte(exchange))[1]) % parts }
