package ocip

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Extract is a part of one of a message's texts, other than its content, that people are shown: the
// beginning of the text, or the surroundings of a finding.
type Extract struct {
	// Member is the name of the text, At the offset of the part in it, and Of the length of the
	// text, in bytes.
	Member string
	At, Of int
	Text   string
}

// Bounds of extracts, in bytes.
const (
	// around is the length shown on each side of a finding, and longest that of the finding itself.
	around, longest = 120, 512
	// beginning is the length shown of the beginning of a string with a finding.
	beginning = 2 << 10
)

// telling is the finding in a message's content that says most about why it is held for its words,
// or nil.
func (v *Verdict) telling() (most *Detection) {
	if v.Guess().Likelihood == "" {
		return nil
	}
	var names []string
	of := map[string]*Detection{}
	for i := range v.Detections {
		d := &v.Detections[i]
		if name, words := strings.CutPrefix(d.Rule, "commitment."); words && !d.Shadow && d.Member == "" && of[name] == nil {
			names, of[name] = append(names, name), d
		}
	}
	return of[commitment.Telling(names)]
}

// Says returns the line of a message by which people recognize it in a list: the words for which it
// is held, in their sentence, or its first line besides the label.
func (v *Verdict) Says(content, label string) string {
	d := v.telling()
	if d == nil || d.Start < 0 || d.Start > len(content) {
		return Summarize(content, label)
	}
	// The sentence or the line, and not much more before the words.
	from := max(0, d.Start-SummaryRunes/2)
	for from < d.Start && !utf8.RuneStart(content[from]) {
		from++
	}
	cut := from > 0
	if at := strings.LastIndexAny(content[from:d.Start], ".!?\n"); at >= 0 {
		from, cut = from+at+1, false
	}
	line := Summarize(content[from:], label)
	if cut {
		line = "… " + line
	}
	return line
}

// ClipMember bounds the name of a member for records. Two different members keep two names: a
// digest ends a name that is cut.
func ClipMember(name string) string {
	if len(name) <= maxProblem {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxProblem-2*len(sum)], "") + "…" + hex.EncodeToString(sum[:])
}

// span is a part of a text.
type span struct{ start, end int }

// near returns the part of a text that shows a finding.
func near(start, end int) span {
	return span{start - around, min(end, start+longest) + around}
}

// appendExtracts adds the parts of a text that spans name, in their order, each byte once. The text
// begins at offset base of the member.
func appendExtracts(list []Extract, member, text string, base int, spans []span) []Extract {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for _, s := range spans {
		start, end := max(0, s.start), min(len(text), s.end)
		var last *Extract
		if n := len(list); n > 0 && list[n-1].Member == member {
			last = &list[n-1]
			start = max(start, last.At+len(last.Text)-base)
		}
		for start > 0 && start < end && !utf8.RuneStart(text[start]) {
			start--
		}
		for end < len(text) && end > start && !utf8.RuneStart(text[end]) {
			end--
		}
		switch {
		case start >= end:
		case last != nil && last.At+len(last.Text) == base+start:
			last.Text += text[start:end]
		default:
			list = append(list, Extract{Member: member, At: base + start, Text: text[start:end]})
		}
	}
	return list
}

// Extracts returns the parts of a message's strings, other than its content, that show a finding.
func Extracts(found []Detection, passages []Passage) (list []Extract) {
	for _, p := range passages {
		member := ClipMember(p.Member)
		var spans []span
		for _, d := range found {
			if member != "" && d.Member == member && d.End > d.Start {
				spans = append(spans, near(d.Start, d.End))
			}
		}
		if len(spans) == 0 {
			continue
		}
		first := len(list)
		list = appendExtracts(list, member, p.Text, 0, append(spans, span{0, beginning}))
		for i := range list[first:] {
			list[first+i].Of = len(p.Text)
		}
	}
	return list
}
