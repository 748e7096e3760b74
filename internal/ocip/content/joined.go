package content

import (
	"bytes"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
)

// A receiver may read several texts as one: the lines of a text, the parts of a message that a proxy
// has put below each other, the strings of a list. A token that is cut between two of them, at any
// place, is found where they are joined.

// joint is a word that goes on over the border of two lines or strings.
type joint struct {
	text   []byte
	pieces []piece
}

// piece is the part of a joint that begins at an offset of it, and comes from a passage.
type piece struct{ at, passage, start int }

// joined adds the tokens that are cut between lines or between strings of one list.
func (p *pass) joined(found []Finding, passages []text.Passage) []Finding {
	if mutant.Off("joined-texts") {
		return found
	}
	var (
		lists map[string]*joint
		order []*joint
		own   joint
	)
	for i := range passages {
		if !strings.Contains(passages[i].Member, "[") {
			if strings.IndexByte(passages[i].Text, '\n') >= 0 {
				found = p.ended(p.next(found, &own, passages, i), &own, passages)
			}
			continue
		}
		name := unnumbered(passages[i].Member)
		j := lists[name]
		if j == nil {
			if j = new(joint); lists == nil {
				lists = make(map[string]*joint)
			}
			lists[name], order = j, append(order, j)
		}
		found = p.next(found, j, passages, i)
	}
	for _, j := range order {
		found = p.ended(found, j, passages)
	}
	return found
}

// unnumbered is a member's name without the indices of lists, so that all of one list have one name.
func unnumbered(member string) string {
	return strings.Join(strings.FieldsFunc(member, func(r rune) bool { return r >= '0' && r <= '9' }), "")
}

// next continues a joint with the lines of the next string.
func (p *pass) next(found []Finding, j *joint, passages []text.Passage, passage int) []Finding {
	s := passages[passage].Text
	for start := 0; start < len(s); {
		end := find(s, '\n', start)
		found = p.line(found, j, passages, passage, start, end)
		start = end + 1
	}
	return found
}

func (p *pass) line(found []Finding, j *joint, passages []text.Passage, passage, from, to int) []Finding {
	const blanks = space | newline
	s := passages[passage].Text
	for from < to && kindOf(s[from]).in(blanks) {
		from++
	}
	for to > from && kindOf(s[to-1]).in(blanks) {
		to--
	}
	head, tail := from, to
	for head < to && head-from < longestDisguised && !kindOf(s[head]).in(blanks) {
		head++
	}
	for tail > from && to-tail < longestDisguised && !kindOf(s[tail-1]).in(blanks) {
		tail--
	}
	switch {
	case from == to:
	case head == to && len(j.text)+to-from <= longestDisguised: // one word
		j.add(s, from, to, passage)
	default:
		j.add(s, from, head, passage)
		found = p.ended(found, j, passages)
		j.add(s, tail, to, passage)
	}
	return found
}

func (j *joint) add(s string, from, to, passage int) {
	j.pieces = append(j.pieces, piece{len(j.text), passage, from})
	j.text = append(j.text, s[from:to]...)
}

// ended adds the tokens that go over a border in a joint, and empties it.
func (p *pass) ended(found []Finding, j *joint, passages []text.Passage) []Finding {
	defer func() { j.text, j.pieces = j.text[:0], j.pieces[:0] }()
	if len(j.pieces) < 2 || !j.begins() {
		return found
	}
	first := len(found)
	found = p.builtin(found, string(j.text))
	return p.keep(found, first, func(f *Finding) bool {
		from, to := j.of(f.Start), j.of(f.End-1)
		if from == to || !slices.ContainsFunc(tokens, func(t issued) bool { return t.id == f.Rule }) {
			return false
		}
		begin := j.pieces[from]
		f.Member = passages[begin.passage].Member
		f.Start = begin.start + f.Start - begin.at
		if last := j.pieces[to]; last.passage == begin.passage {
			f.End = last.start + f.End - last.at
		} else {
			f.End = len(passages[begin.passage].Text)
		}
		return !slices.ContainsFunc(found[:first], func(w Finding) bool {
			return w.Rule == f.Rule && w.Member == f.Member && w.Start < f.End && f.Start < w.End
		})
	})
}

// begins reports whether something like a token begins before the last border. Every token has a
// digit.
func (j *joint) begins() bool {
	if !bytes.ContainsAny(j.text, "0123456789") {
		return false
	}
	for i := range min(j.pieces[len(j.pieces)-1].at, len(j.text)-shortestDisguised+1) {
		if turnedHeads[0].holds(j.text[i], j.text[i+1], j.text[i+2]) {
			return true
		}
	}
	return false
}

// of is the index of the piece that has the byte at an offset.
func (j *joint) of(offset int) int {
	i := len(j.pieces) - 1
	for j.pieces[i].at > offset {
		i--
	}
	return i
}
