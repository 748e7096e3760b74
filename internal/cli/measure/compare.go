package measure

import "github.com/openclawos/ocipd/internal/ocip/content"

// Comparison is the effect of another set of rules on the same texts.
type Comparison struct {
	Now   Report `json:"now"`
	Other Report `json:"other"`
	// Freed are the texts that only the present rules hold. Caught are those that only the
	// others hold.
	Freed  Difference `json:"freed"`
	Caught Difference `json:"caught"`
	// Raised are the texts that the other rules raise to a higher level, and Lowered to a lower one.
	Raised  Difference `json:"raised"`
	Lowered Difference `json:"lowered"`
}

// Same reports whether both sets of rules treat all texts alike.
func (c *Comparison) Same() bool {
	return c.Freed.Texts+c.Caught.Texts+c.Raised.Texts+c.Lowered.Texts == 0
}

// Difference lists texts that the two sets treat differently.
type Difference struct {
	Texts   int `json:"texts"`
	Strict  int `json:"strict"`
	Lenient int `json:"lenient"`
	// Quotes name the rules that hold or raise the text: the present rules for freed and
	// lowered texts, and the others for caught and raised ones.
	Quotes []DifferentQuote `json:"quotes"`
}

// DifferentQuote is a text with its label.
type DifferentQuote struct {
	Quote
	Commitment bool `json:"commitment"`
	// Level is the level under the other rules, if it differs.
	Level string `json:"level,omitzero"`
}

func (d *Difference) add(s *Seen, rules []string, level string) {
	d.Texts++
	if s.Commitment {
		d.Strict++
	}
	if s.Lenient {
		d.Lenient++
	}
	d.Quotes = append(d.Quotes, DifferentQuote{Quote{ID: s.ID, Rules: rules, Text: s.Text.Text}, s.Commitment, level})
}

// Compare compares the findings of two sets of rules in the same texts.
func Compare(now, other []Seen) Comparison {
	c := Comparison{Now: Commitments(now), Other: Commitments(other)}
	for _, d := range []*Difference{&c.Freed, &c.Caught, &c.Raised, &c.Lowered} {
		d.Quotes = []DifferentQuote{}
	}
	for i := range now {
		was, is := &now[i], &other[i]
		switch {
		case was.Held && !is.Held:
			c.Freed.add(was, was.Names, "")
		case is.Held && !was.Held:
			c.Caught.add(is, is.Names, "")
		}
		switch higher := content.Highest([]content.Finding{{Level: was.Level}, {Level: is.Level}}); {
		case was.Level == is.Level:
		case higher == is.Level:
			c.Raised.add(is, is.Findings, is.Level)
		default:
			c.Lowered.add(was, was.Findings, is.Level)
		}
	}
	return c
}
