package measure

import "github.com/openclawos/ocipd/internal/ocip/content"

// Comparison is what another set of rules does with the same texts.
type Comparison struct {
	Now   Report `json:"now"`
	Other Report `json:"other"`
	// Freed are the texts that the present rules hold and the others let pass,
	// Caught those that only the others hold.
	Freed  Difference `json:"freed"`
	Caught Difference `json:"caught"`
	// Raised are the texts that the others raise to a higher level than the present
	// rules do, Lowered those that they raise to a lower one.
	Raised  Difference `json:"raised"`
	Lowered Difference `json:"lowered"`
}

// Same reports whether the two treat all texts alike.
func (c *Comparison) Same() bool {
	return c.Freed.Texts+c.Caught.Texts+c.Raised.Texts+c.Lowered.Texts == 0
}

// Difference is a list of texts that the two do not treat alike.
type Difference struct {
	Texts   int `json:"texts"`
	Strict  int `json:"strict"`
	Lenient int `json:"lenient"`
	// Quotes name the rules that hold the text, or raise it: of the present rules where
	// it is freed or lowered, and of the others where it is caught or raised.
	Quotes []DifferentQuote `json:"quotes"`
}

// DifferentQuote is a text with its label.
type DifferentQuote struct {
	Quote
	Commitment bool `json:"commitment"`
	// Level is what the others raise a text to that they do not raise alike.
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

// Compare compares what two sets of rules made of the same texts.
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
