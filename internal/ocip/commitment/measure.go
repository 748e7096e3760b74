package commitment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Example is one text that a person has judged.
type Example struct {
	Text string `json:"text"`
	// Commitment says that the text should be held.
	Commitment bool `json:"commitment"`
}

// Report says how well a detector agrees with labelled examples. A ratio with
// nothing below its line is 0.
type Report struct {
	Examples    int `json:"examples"`
	Commitments int `json:"commitments"`
	// Held counts the texts that would wait for a person.
	Held           int `json:"held"`
	TruePositives  int `json:"truePositives"`
	FalsePositives int `json:"falsePositives"`
	FalseNegatives int `json:"falseNegatives"`

	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	// HoldRate is the share of all texts that would wait.
	HoldRate float64 `json:"holdRate"`
	// Parts are the keywords and families, most texts first. A text counts
	// once for each of them; shadowed families are here too, so that one can
	// be judged before it is enforced.
	Parts []Part `json:"parts"`
}

// Part is what one keyword or family contributes.
type Part struct {
	Name      string  `json:"name"`
	Texts     int     `json:"texts"`
	Right     int     `json:"right"`
	Precision float64 `json:"precision"`
}

// Measure runs the detector over labelled examples.
func (d *Detector) Measure(labelled []Example) Report {
	r := Report{Examples: len(labelled), Parts: []Part{}}
	parts := map[string]*Part{}
	for _, e := range labelled {
		hits := d.Detect(e.Text)
		held := Judge(hits).RequiresHuman
		if e.Commitment {
			r.Commitments++
		}
		switch {
		case held && e.Commitment:
			r.TruePositives++
		case held:
			r.FalsePositives++
		case e.Commitment:
			r.FalseNegatives++
		}
		var names []string
		for _, h := range hits {
			names = insert(names, h.Name())
		}
		for _, name := range names {
			if parts[name] == nil {
				parts[name] = &Part{Name: name}
			}
			parts[name].Texts++
			if e.Commitment {
				parts[name].Right++
			}
		}
	}
	r.Held = r.TruePositives + r.FalsePositives
	r.Precision = ratio(r.TruePositives, r.Held)
	r.Recall = ratio(r.TruePositives, r.Commitments)
	r.HoldRate = ratio(r.Held, r.Examples)
	for _, p := range parts {
		p.Precision = ratio(p.Right, p.Texts)
		r.Parts = append(r.Parts, *p)
	}
	slices.SortFunc(r.Parts, func(a, b Part) int {
		if a.Texts != b.Texts {
			return b.Texts - a.Texts
		}
		return strings.Compare(a.Name, b.Name)
	})
	return r
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// maxExample bounds a line of examples in bytes.
const maxExample = 1 << 20

// ReadExamples reads labelled examples, one a line: either a JSON object
// {"text": …, "commitment": true} or a label, a tab and the text. Labels are
// true, yes, 1, commitment and false, no, 0, none, in any case. Empty lines
// and lines that begin with # are passed over. An error names the line.
func ReadExamples(from io.Reader) ([]Example, error) {
	var examples []Example
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxExample)
	number := 0
	for lines.Scan() {
		number++
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e, err := readExample(line)
		if err != nil {
			return nil, fmt.Errorf("cannot read example on line %d: %w", number, err)
		}
		examples = append(examples, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read example on line %d: %w", number+1, err)
	}
	return examples, nil
}

func readExample(line string) (Example, error) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		var e struct {
			Text       *string `json:"text"`
			Commitment *bool   `json:"commitment"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return Example{}, err
		}
		if e.Text == nil || e.Commitment == nil {
			return Example{}, errors.New(`want both "text" and "commitment"`)
		}
		return Example{Text: *e.Text, Commitment: *e.Commitment}, nil
	}
	label, text, found := strings.Cut(line, "\t")
	if !found {
		return Example{}, errors.New("want a JSON object, or a label, a tab and the text")
	}
	switch strings.ToLower(strings.TrimSpace(label)) {
	case "true", "yes", "1", "commitment":
		return Example{Text: text, Commitment: true}, nil
	case "false", "no", "0", "none":
		return Example{Text: text}, nil
	}
	return Example{}, fmt.Errorf("unknown label %q, want true or false", label)
}
