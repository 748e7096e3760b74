package ocip

import "github.com/openclawos/ocipd/internal/base/text"

// Passage is one string of a message: its content, without a member, or another string with its
// path. Detectors look for secrets in every passage, and for commitments only in prose.
type Passage = text.Passage

// together returns a message's content and its other strings as one list.
func together(content string, others []Passage) []Passage {
	all := make([]Passage, 0, 1+len(others))
	all = append(all, Passage{Text: content, Prose: true})
	return append(all, others...)
}
