package measure

// Comparison is what another set of rules does with the same texts.
type Comparison struct {
	Now   Report `json:"now"`
	Other Report `json:"other"`
	// Freed are the texts that the present rules hold and the others let pass,
	// Caught those that only the others hold.
	Freed  Difference `json:"freed"`
	Caught Difference `json:"caught"`
}

// Difference is a list of texts that the two do not treat alike.
type Difference struct {
	Texts   int `json:"texts"`
	Strict  int `json:"strict"`
	Lenient int `json:"lenient"`
	// Quotes name the rules that hold the text: of the present rules where it is
	// freed, and of the others where it is caught.
	Quotes []DifferentQuote `json:"quotes"`
}

// DifferentQuote is a text with its label.
type DifferentQuote struct {
	Quote
	Commitment bool `json:"commitment"`
}

// Compare compares what two sets of rules made of the same texts.
func Compare(now, other []Seen) Comparison {
	c := Comparison{Now: Commitments(now), Other: Commitments(other)}
	c.Freed.Quotes, c.Caught.Quotes = []DifferentQuote{}, []DifferentQuote{}
	for i := range now {
		d, s := &c.Freed, &now[i]
		switch {
		case now[i].Held == other[i].Held:
			continue
		case other[i].Held:
			d, s = &c.Caught, &other[i]
		}
		d.Texts++
		if s.Commitment {
			d.Strict++
		}
		if s.Lenient {
			d.Lenient++
		}
		d.Quotes = append(d.Quotes, DifferentQuote{Quote{ID: s.ID, Rules: s.Names, Text: s.Text.Text}, s.Commitment})
	}
	return c
}
