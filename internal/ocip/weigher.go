package ocip

import (
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Weighed holds the findings in texts that are too long to keep: those of files.
type Weighed struct {
	// Attached is set if the message sends files or addresses along.
	Attached bool
	findings []content.Finding
	hits     []commitment.Hit
}

// A long text is checked in windows that overlap, so that no finding is cut in two. A window
// reports the findings that begin further than reach before its end. The next window, which repeats
// lead bytes, reports the rest.
const (
	window = 256 << 10
	reach  = 32 << 10
	lead   = 1 << 10
)

// Text holds the findings in one long text, in whatever message it occurs. It never changes.
type Text struct {
	found    Weighed
	extracts []Extract
	length   int
}

// Len returns the length of the text in bytes.
func (t *Text) Len() int { return t.length }

// Size returns approximately its memory in bytes.
func (t *Text) Size() int {
	const each = 128
	size := each * (1 + len(t.found.findings) + len(t.found.hits) + len(t.extracts))
	for i := range t.extracts {
		size += len(t.extracts[i].Text)
	}
	return size
}

// NamedText is a text and the name of its member. No two texts of a message have the same name.
type NamedText struct {
	Member string
	*Text
}

// Together combines the findings in several texts of one message, and the parts of them that people
// are shown. The limit on findings of one kind applies to all texts together.
func Together(texts []NamedText) (all Weighed, shown []Extract) {
	var (
		kinds  = kinds{}
		marked int
	)
	for _, t := range texts {
		member := ClipMember(t.Member)
		var marks []int
		take := func(kind string, start int) bool {
			taken, mark := kinds.take(kind, marked)
			if mark {
				marks = append(marks, start)
				marked++
			}
			return taken
		}
		for _, f := range t.found.findings {
			if f.Member = member; take(f.Rule, f.Start) {
				all.findings = append(all.findings, f)
			}
		}
		for _, h := range t.found.hits {
			if h.Member = member; take(kindOf(h), h.Start) {
				all.hits = append(all.hits, h)
			}
		}
		for _, e := range t.extracts {
			if e.At == 0 || slices.ContainsFunc(marks, func(at int) bool { return at >= e.At && at < e.At+len(e.Text) }) {
				e.Member = member
				shown = append(shown, e)
			}
		}
	}
	return all, shown
}

// kinds counts findings by their kind.
type kinds map[string]int

// take counts one finding. Taken is set if there is room for it: more of a kind than a detector
// finds in one text would say nothing new. Mark is set if its surroundings are shown: those of the
// first of each kind, and of others while a verdict has room for them.
func (k kinds) take(kind string, marked int) (taken, mark bool) {
	k[kind]++
	taken = k[kind] <= content.MaxPerRule
	return taken, taken && (k[kind] == 1 || marked < maxDetections)
}

func kindOf(h commitment.Hit) string { return h.Zone + " " + h.Name() }

// Weigher looks for secrets and commitments in one long text that is written to it in parts. It
// keeps only one window of it.
type Weigher struct {
	rules *Rules
	as    []text.Rendering
	buf   []byte
	// base is the offset of the window in the text.
	base int
	text Text
	// kinds counts the findings so far, and marked those that are shown. head is the number of
	// bytes kept of the text's beginning.
	kinds  kinds
	marked int
	head   int
}

// Weigher makes a Weigher for a text that the receiver's program renders. It keeps head bytes of
// the beginning, and the surroundings of findings.
func (r *Rules) Weigher(as []text.Rendering, head int) *Weigher {
	return &Weigher{rules: r, as: as, kinds: kinds{}, head: head}
}

// Write adds a part of the text.
func (w *Weigher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(w.buf) == window {
			w.look(false)
		}
		part := p[:min(len(p), window-len(w.buf))]
		if w.buf == nil && n < window {
			w.buf = slices.Grow(w.buf, n)
		}
		w.buf = append(w.buf, part...)
		p = p[len(part):]
	}
	return n, nil
}

// Found ends the text and returns its findings. Nothing may be written after that.
func (w *Weigher) Found() *Text {
	w.look(true)
	t := &w.text
	for i := range t.extracts {
		// The copy releases the window.
		t.extracts[i].Of, t.extracts[i].Text = t.length, strings.Clone(t.extracts[i].Text)
	}
	return t
}

// look checks the window, and leaves its end as the beginning of the next.
func (w *Weigher) look(last bool) {
	if len(w.buf) == 0 {
		return
	}
	from, to := 0, len(w.buf)
	if w.base > 0 {
		from = lead
	}
	if !last {
		to -= reach - lead
	}
	one := []Passage{{Text: string(w.buf), Prose: true}}
	var shown []span
	if w.base == 0 {
		shown = append(shown, span{0, w.head})
	}
	// take reports whether a finding is of this window and has room, and marks it.
	take := func(kind string, start, end int) bool {
		if start < from || start >= to {
			return false
		}
		taken, mark := w.kinds.take(kind, w.marked)
		if mark {
			w.marked++
			shown = append(shown, near(start, end))
		}
		return taken
	}
	if w.rules != nil && w.rules.Content != nil {
		for _, f := range w.rules.Content.Scan(one, w.as...) {
			if take(f.Rule, f.Start, f.End) {
				f.Start, f.End = f.Start+w.base, f.End+w.base
				w.text.found.findings = append(w.text.found.findings, f)
			}
		}
	}
	if w.rules != nil && w.rules.Commitments != nil {
		for _, h := range w.rules.Commitments.Scan(one, w.as...) {
			if take(kindOf(h), h.Start, h.End) {
				h.Start, h.End = h.Start+w.base, h.End+w.base
				w.text.found.hits = append(w.text.found.hits, h)
			}
		}
	}
	w.text.extracts = appendExtracts(w.text.extracts, "", one[0].Text, w.base, shown)
	if w.text.length = w.base + len(w.buf); last {
		return
	}
	w.base += len(w.buf) - reach
	w.buf = append(w.buf[:0], w.buf[len(w.buf)-reach:]...)
}
