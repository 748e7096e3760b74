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

	"github.com/openclawos/ocipd/internal/cli/measure"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// lesson is a text that the weights of evidence are learnt from.
type lesson struct {
	sentences  []commitment.Sentence
	commitment bool
	exchange   string
}

// How the weights are learnt: a logistic regression in which the sentence that weighs
// most speaks for its text, by steps that grow shorter for clues that stand often.
const (
	rounds = 8    // of which the later half is averaged
	step   = 0.15 // the first step of a clue
	shrink = 0.01 // what each step takes off a weight
	rare   = 2    // clues of fewer texts are left out
	light  = 10   // so are those that weigh less, in hundredths
	parts  = 10   // of the texts, each of which is judged by what the others teach
)

type weights map[string]float64

func (w weights) heaviest(sentences []commitment.Sentence) (weight float64, at int) {
	weight, at = math.Inf(-1), -1
	for i := range sentences {
		sum := 0.
		for _, clue := range sentences[i].Clues {
			sum += w[clue]
		}
		if sum > weight {
			weight, at = sum, i
		}
	}
	return weight, at
}

func learn(lessons []lesson) weights {
	texts := map[string]int{}
	for i := range lessons {
		seen := map[string]bool{}
		for _, s := range lessons[i].sentences {
			for _, clue := range s.Clues {
				if !seen[clue] {
					seen[clue] = true
					texts[clue]++
				}
			}
		}
	}
	w, steps := weights{}, weights{}
	const bias = "(any)"
	w[bias] = -2
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	mean := weights{}
	for round := range rounds {
		for _, i := range order.Perm(len(lessons)) {
			weight, at := w.heaviest(lessons[i].sentences)
			if at < 0 {
				continue
			}
			wrong := 1 / (1 + math.Exp(-weight))
			if lessons[i].commitment {
				wrong--
			}
			for _, clue := range lessons[i].sentences[at].Clues {
				if texts[clue] < rare {
					continue
				}
				by := wrong
				if clue != bias {
					by += shrink * w[clue]
				}
				steps[clue] += by * by
				w[clue] -= step * by / math.Sqrt(steps[clue]+0.1)
			}
		}
		if round >= rounds/2 {
			for clue, weight := range w {
				mean[clue] += weight / (rounds - rounds/2)
			}
		}
	}
	for clue, weight := range mean {
		if math.Round(math.Abs(weight)*100) < light {
			delete(mean, clue)
		}
	}
	return mean
}

// lessonsOf are the English texts of the half that rules are tuned on, and those that
// were written as lessons alone.
func lessonsOf(dir string, texts []measure.Text) ([]lesson, error) {
	var all []lesson
	asked := map[string]bool{}
	for i := range texts {
		t := &texts[i]
		asked[t.ID] = commitment.Asks(t.Text)
		if t.Half != halfTune || t.Lang != "en" {
			continue
		}
		all = append(all, lesson{commitment.Sentences(t.Text, asked[t.Answers]), t.Commitment, t.Exchange})
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
		all = append(all, lesson{commitment.Sentences(text, answers), label == "yes", text})
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
	for _, clue := range slices.Sorted(maps.Keys(w)) {
		fmt.Fprintf(&table, "%d\t%s\n", int(math.Round(w[clue]*100)), clue)
	}
	return table.Bytes()
}

// curve prints what holding more by evidence finds: for the half that the weights were
// learnt from each part as the other parts would judge it, for the other half as it is.
func curve(dir string, out io.Writer) error {
	texts, err := readTexts(filepath.Join(dir, "texts"))
	if err != nil {
		return err
	}
	plain, err := commitment.New(commitment.Options{Families: map[string]commitment.Mode{commitment.Evidence: commitment.Off}})
	if err != nil {
		return err
	}
	rules := measure.Rules{Commitments: plain}
	lessons, err := lessonsOf(dir, texts)
	if err != nil {
		return err
	}
	by := make([]weights, parts)
	for part := range parts {
		by[part] = learn(slices.DeleteFunc(slices.Clone(lessons), func(l lesson) bool { return partOf(l.exchange) == part }))
	}
	kept := weights{}
	for clue, weight := range commitment.Weights() {
		kept[clue] = float64(weight) / 100
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
		weight, _ := w.heaviest(commitment.Sentences(t.Text, asked[t.Answers]))
		p := point{weight: weight * 100, held: s.Held, keyword: s.Keyword, commitment: t.Commitment}
		points[t.Half] = append(points[t.Half], p)
		if t.Kind == "agents" {
			points[t.Half+", agents"] = append(points[t.Half+", agents"], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(points)) {
		fmt.Fprintf(out, "%s\n%8s %16s %16s %16s %16s\n", name, "bound", "held", "by cues alone", "of them strict", "recall")
		for _, bound := range []float64{math.Inf(1), 200, 150, 100, 80, 60, 40, 20, 0, -20, -40, -80, -120} {
			var n, held, cues, right, commitments, found int
			for _, p := range points[name] {
				cue := !p.keyword && (p.held || p.weight >= bound)
				n++
				held += one(p.keyword || cue)
				cues += one(cue)
				right += one(cue && p.commitment)
				commitments += one(p.commitment)
				found += one(p.commitment && (p.keyword || cue))
			}
			fmt.Fprintf(out, "%8.0f %16v %16v %16v %16v\n", bound, measure.ShareOf(held, n), measure.ShareOf(cues, n), measure.ShareOf(right, cues), measure.ShareOf(found, commitments))
		}
	}
	return nil
}

type point struct {
	weight                    float64
	held, keyword, commitment bool
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func partOf(exchange string) int { return int(sha256.Sum256([]byte(exchange))[1]) % parts }
