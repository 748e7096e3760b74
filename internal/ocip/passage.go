package ocip

import "github.com/openclawos/ocipd/internal/base/text"

// Passage is one string of a message: its content, with no member, or another one
// with the path it stands at. Secrets are looked for in every passage, commitments
// in prose alone.
type Passage = text.Passage

// together returns a message's content and its other strings as one list.
func together(content string, others []Passage) []Passage {
	all := make([]Passage, 0, 1+len(others))
	all = append(all, Passage{Text: content, Prose: true})
	return append(all, others...)
}
