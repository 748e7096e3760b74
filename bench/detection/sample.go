package main

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // names texts and guards nothing
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/cli/measure"
)

// The person who labels other people's texts reads a sample of them: as many held as
// passing ones, in an order that says nothing of either. The labels are kept here by
// the SHA-1 of a text, with the number of messages of its corpus that it represents;
// the texts are not kept.

// longestSampled is how long a text may be, in bytes, to be read by a person.
const longestSampled = 8000

// sampled is a text as its labeller gets it.
type sampled struct {
	ID     string `json:"id"`
	Corpus string `json:"corpus"`
	From   string `json:"from,omitzero"`
	// Answers is the text before it, of the other side.
	Answers string `json:"answers,omitzero"`
	Text    string `json:"text"`
}

// label is the judgement that is kept for a text.
type label struct {
	weight          float64
	strict, lenient bool
}

func idOf(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // names a text and guards nothing
	return hex.EncodeToString(sum[:8])
}

func nameOf(argument string) string {
	_, path, _ := strings.Cut(argument, "=")
	return filepath.Base(path)
}

// frame returns the texts from which a sample is taken: the different texts of a half of a
// corpus that a person can read.
func frame(rules measure.Rules, argument, half string) (c *collection, seen []measure.Seen, err error) {
	if c, err = readCorpus(argument); err != nil {
		return nil, nil, err
	}
	return c, where(rules.Look(c.texts, nil), func(s *measure.Seen) bool {
		return (half == "" || s.Half == half) && !c.again[s.ID] && len(s.Text.Text) <= longestSampled
	}), nil
}

// writeSample writes, of each corpus, as many held messages as sizes says and as many that
// pass, as JSON lines into file, and the number of messages that each represents into file.tsv.
func writeSample(file, sizes, half string, arguments []string) error {
	counts := strings.Split(sizes, ",")
	if len(counts) != len(arguments) {
		return fmt.Errorf("cannot take samples of %d sizes from %d corpora: want a size for each", len(counts), len(arguments))
	}
	rules, err := defaults(false)
	if err != nil {
		return err
	}
	var sample []sampled
	var weights []string
	for i, argument := range arguments {
		size, err := strconv.Atoi(counts[i])
		if err != nil || size < 1 {
			return fmt.Errorf("cannot take a sample of %q texts: want a number above 0", counts[i])
		}
		c, seen, err := frame(rules, argument, half)
		if err != nil {
			return err
		}
		for _, held := range []bool{true, false} {
			some := where(seen, func(s *measure.Seen) bool { return s.Held == held })
			slices.SortFunc(some, func(a, b measure.Seen) int { return strings.Compare(idOf(a.Text.Text), idOf(b.Text.Text)) })
			taken := some[:min(size, len(some))]
			for j := range taken {
				t := taken[j].Text
				one := sampled{ID: idOf(t.Text), Corpus: nameOf(argument), From: t.From, Text: t.Text}
				if at, err := strconv.Atoi(t.Answers); err == nil {
					one.Answers = c.texts[at-1].Text
				}
				sample = append(sample, one)
				weights = append(weights, fmt.Sprintf("%s\t%.3f\n", one.ID, float64(len(some))/float64(len(taken))))
			}
		}
	}
	slices.SortFunc(sample, func(a, b sampled) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(weights)
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, one := range sample {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(file+".tsv", []byte(strings.Join(weights, "")), 0o600)
}

// readLabels reads lines of an id, the number of messages that it represents, and both labels
// as 0 or 1.
func readLabels(file string) (map[string]label, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	labels := map[string]label{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var id string
		var weight float64
		var strict, lenient int
		if _, err := fmt.Sscanf(lines.Text(), "%s\t%g\t%d\t%d", &id, &weight, &strict, &lenient); err != nil {
			return nil, fmt.Errorf("%s:%d: want an id, a weight and two labels: %w", file, n, err)
		}
		labels[id] = label{weight: weight, strict: strict == 1, lenient: lenient == 1 || strict == 1}
	}
	return labels, lines.Err()
}

// runLabelled measures on the texts that have labels.
func runLabelled(file string, arguments []string, weigh bool, out io.Writer) error {
	rules, err := defaults(weigh)
	if err != nil {
		return err
	}
	labels, err := readLabels(file)
	if err != nil {
		return err
	}
	const head, row = "%-24s %5s %15s %16s %16s %16s\n", "%-24s %5d %15v %16v %16v %16s\n"
	fmt.Fprintf(out, head, "", "texts", "held", "precision", "recall", "recall, weighed")
	line := func(name string, seen []measure.Seen) {
		r := measure.Commitments(seen)
		fmt.Fprintf(out, row, name, r.Texts, r.Held, r.Strict.Precision, r.Strict.Recall, weighed(seen, labels))
		if r.Order > 0 {
			fmt.Fprintf(out, "  order of the held: area under the curve %.3f\n", r.Order)
		}
		if cues := r.ByCue; cues.Rate.Part > 0 {
			fmt.Fprintf(out, "  by cues alone %d, of them strict %v, lenient %v\n", cues.Rate.Part, cues.Strict, cues.Lenient)
		}
	}
	var all []measure.Seen
	found := map[string]bool{}
	for _, argument := range arguments {
		_, seen, err := frame(rules, argument, "")
		if err != nil {
			return err
		}
		seen = where(seen, func(s *measure.Seen) bool {
			id := idOf(s.Text.Text)
			l, there := labels[id]
			there = there && !found[id]
			if there {
				found[id] = true
				s.Commitment, s.Lenient = l.strict, l.lenient
			}
			return there
		})
		line(nameOf(argument), seen)
		all = append(all, seen...)
	}
	line("all", all)
	if missing := len(labels) - len(found); missing > 0 {
		fmt.Fprintf(out, "%d labelled texts are not in these corpora\n", missing)
	}
	return nil
}

// weighed is the share of the commitments that is held, each text counted as often
// as it stands for messages, with bounds at 95 % from samples drawn of the sample.
func weighed(seen []measure.Seen, labels map[string]label) string {
	recall := func(at func(i int) int) (float64, bool) {
		var held, whole float64
		for i := range seen {
			s := &seen[at(i)]
			if w := labels[idOf(s.Text.Text)].weight; s.Commitment {
				whole += w
				if s.Held {
					held += w
				}
			}
		}
		return held / whole, whole > 0
	}
	value, found := recall(func(i int) int { return i })
	if !found {
		return "-"
	}
	draw := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same bounds each time
	var values []float64
	for range 2000 {
		if v, found := recall(func(int) int { return draw.IntN(len(seen)) }); found {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return fmt.Sprintf("%.1f [%.0f-%.0f]", 100*value, 100*values[len(values)/40], 100*values[len(values)-1-len(values)/40])
}
