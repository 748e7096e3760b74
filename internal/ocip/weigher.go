package ocip

import (
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Weighed is what was found in texts that are too long to be kept: those of files.
type Weighed struct {
	findings []content.Finding
	hits     []commitment.Hit
}

// A long text is looked at in windows. Each begins before the last one's end, so that
// nothing is cut in two: what begins further than reach before a window's end is
// found there, and anything else in the next, which has lead bytes before it.
const (
	window = 256 << 10
	reach  = 32 << 10
	lead   = 1 << 10
)

// Text is what was found in one long text, wherever it stands. It never changes.
type Text struct {
	found    Weighed
	extracts []Extract
	length   int
}

// Len is how long the text is, in bytes.
func (t *Text) Len() int { return t.length }

// Size is about how much memory it takes, in bytes.
func (t *Text) Size() int {
	const each = 128
	size := each * (1 + len(t.found.findings) + len(t.found.hits) + len(t.extracts))
	for i := range t.extracts {
		size += len(t.extracts[i].Text)
	}
	return size
}

// NamedText is a text and the member that names it. No two texts of a message have the
// same name.
type NamedText struct {
	Member string
	*Text
}

// Together is what was found in several texts of one message, and the parts of them that
// people are shown. Of all texts together it has no more of a kind than of one.
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

// take counts one, while so many are shown. It reports whether there is room for it, since
// more of a kind than a detector finds in one text would say nothing new, and whether its
// surroundings are shown: of the first of each kind, and of others while a verdict has
// room for them.
func (k kinds) take(kind string, marked int) (taken, mark bool) {
	k[kind]++
	taken = k[kind] <= content.MaxPerRule
	return taken, taken && (k[kind] == 1 || marked < maxDetections)
}

func kindOf(h commitment.Hit) string { return h.Zone + " " + h.Name() }

// Weigher looks for secrets and commitments in one long text, which is written to it in
// parts. It keeps no more of it than a window.
type Weigher struct {
	rules *Rules
	as    []text.Rendering
	buf   []byte
	// base is where the window begins in the text.
	base int
	text Text
	// kinds are those found, and marked is how many findings are shown. Of the text's
	// beginning head bytes are kept.
	kinds  kinds
	marked int
	head   int
}

// Weigher makes one for a text that the receiver's program renders. It keeps head bytes of
// its beginning, and the surroundings of what it finds.
func (r *Rules) Weigher(as []text.Rendering, head int) *Weigher {
	return &Weigher{rules: r, as: as, kinds: kinds{}, head: head}
}

// Write takes a part of the text.
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

// Found ends the text and returns what was found in it. Nothing is written after that.
func (w *Weigher) Found() *Text {
	w.look(true)
	t := &w.text
	for i := range t.extracts {
		// The window that it was cut from is not kept.
		t.extracts[i].Of, t.extracts[i].Text = t.length, strings.Clone(t.extracts[i].Text)
	}
	return t
}

// look looks at the window, and leaves its end as the beginning of the next.
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
