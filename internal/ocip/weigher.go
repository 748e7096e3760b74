package ocip

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/text"
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

// Weigher looks for secrets and commitments in long texts, one after another, which
// are written to it in parts. It keeps no more of them than a window.
type Weigher struct {
	rules  *Rules
	as     []text.Rendering
	member string
	buf    []byte
	// base is where the window begins in its text.
	base   int
	found  Weighed
	counts map[string]int
}

// Weigher makes one for texts that the receiver's program renders.
func (r *Rules) Weigher(as []text.Rendering) *Weigher {
	return &Weigher{rules: r, as: as, counts: map[string]int{}}
}

// Begin begins a text, which is named by a member.
func (w *Weigher) Begin(member string) {
	w.look(true)
	w.member = member
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

// Found ends the last text and returns what was found in all.
func (w *Weigher) Found() Weighed {
	w.look(true)
	return w.found
}

// look looks at the window, and leaves its end as the beginning of the next.
func (w *Weigher) look(last bool) {
	if len(w.buf) == 0 || w.rules == nil {
		w.buf, w.base = w.buf[:0], 0
		return
	}
	from, to := 0, len(w.buf)
	if w.base > 0 {
		from = lead
	}
	if !last {
		to -= reach - lead
	}
	one := []Passage{{Member: w.member, Text: string(w.buf), Prose: true}}
	if w.rules.Content != nil {
		for _, f := range w.rules.Content.Scan(one, w.as...) {
			if f.Start >= from && f.Start < to && w.few(f.Rule) {
				f.Start, f.End = f.Start+w.base, f.End+w.base
				w.found.findings = append(w.found.findings, f)
			}
		}
	}
	if w.rules.Commitments != nil {
		for _, h := range w.rules.Commitments.Scan(one, w.as...) {
			if h.Start >= from && h.Start < to && w.few(h.Zone+" "+h.Name()) {
				h.Start, h.End = h.Start+w.base, h.End+w.base
				w.found.hits = append(w.found.hits, h)
			}
		}
	}
	if last {
		w.buf, w.base = w.buf[:0], 0
		return
	}
	w.base += len(w.buf) - reach
	w.buf = append(w.buf[:0], w.buf[len(w.buf)-reach:]...)
}

// few reports whether there is room for one more of a kind. More of them than a
// detector finds in one text would say nothing new.
func (w *Weigher) few(kind string) bool {
	w.counts[kind]++
	return w.counts[kind] <= content.MaxPerRule
}
