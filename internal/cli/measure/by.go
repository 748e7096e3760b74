package measure

import (
	"cmp"
	"slices"
)

// Part reports on the texts with one value in a column of the file.
type Part struct {
	// Value is empty for texts without one.
	Value string `json:"value"`
	Texts int    `json:"texts"`
	Held  Share  `json:"held"`
	// Keyword, Cue and Both are the parts of the texts that only keywords, only other rules, or both
	// hold.
	Keyword Share `json:"keyword"`
	Cue     Share `json:"cue"`
	Both    Share `json:"both"`
	Strict  Match `json:"strict"`
}

// By reports on texts with findings by the value of a column, the most frequent first. The column is
// a member of the file's JSON whose value is a string.
func By(seen []Seen, column string) []Part {
	values := map[string][]Seen{}
	for i := range seen {
		value := seen[i].Columns[column]
		values[value] = append(values[value], seen[i])
	}
	parts := make([]Part, 0, len(values))
	for value, of := range values {
		r := Commitments(of)
		parts = append(parts, Part{value, r.Texts, r.Held, r.ByKeyword.Rate, r.ByCue.Rate, r.ByBoth.Rate, r.Strict})
	}
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Or(cmp.Compare(b.Texts, a.Texts), cmp.Compare(a.Value, b.Value)) })
	return parts
}

// HasColumn reports whether any text has a value in a column.
func HasColumn(texts []Text, column string) bool {
	return slices.ContainsFunc(texts, func(t Text) bool { return t.Columns[column] != "" })
}
