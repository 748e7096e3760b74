package describe

import (
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Writer takes a description, part by part. A terminal draws the parts ([term.Page]), and other
// programs get them as they are ([Parts]). The texts may be foreign: a Writer shows the characters
// in them that do not show by their names.
type Writer interface {
	// Title writes a title of the whole description.
	Title(text string)
	// Heading begins a section.
	Heading(text string)
	// Say writes words of the program, behind an indent.
	Say(indent string, c term.Colour, text string)
	// Fact writes a name and its value, and Tinted writes it in a colour.
	Fact(name, value string)
	Tinted(name string, c term.Colour, value string)
	// Item names the subject of the next parts.
	Item(text string)
	// Quote writes a text with its own lines, and points at the spans.
	Quote(content string, spans ...term.Span)
	// Code writes a long name of something, which people copy or compare.
	Code(name, value string)
	// Line writes lines of the program, here only empty ones.
	Line(parts ...string)
}

// Text describes requests.
type Text struct{ Writer }

// The kinds of parts.
const (
	PartTitle   = "title"
	PartHeading = "heading"
	PartFact    = "fact"
	PartSay     = "say"
	PartItem    = "item"
	PartQuote   = "quote"
	PartCode    = "code"
)

// The tones of parts.
const (
	ToneStrong = "strong"
	ToneWarn   = "warn"
	ToneBad    = "bad"
	ToneGood   = "good"
	ToneDim    = "dim"
)

// Part is one part of a description, for a program that draws it. Texts may be foreign, except those
// of a say, which are the words of ocipd.
type Part struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitzero"`
	Text string `json:"text"`
	Tone string `json:"tone,omitzero"`
	// Marks point into a quote.
	Marks []Mark `json:"marks,omitempty"`
}

// Mark is a part of a quote, in bytes of UTF-8, and the finding there.
type Mark struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Label string `json:"label"`
}

// Parts is a [Writer] that keeps the parts.
type Parts struct{ List []Part }

func (p *Parts) add(part Part) { p.List = append(p.List, part) }

// Title adds a title.
func (p *Parts) Title(text string) { p.add(Part{Kind: PartTitle, Text: text, Tone: ToneStrong}) }

// Heading adds a heading.
func (p *Parts) Heading(text string) { p.add(Part{Kind: PartHeading, Text: text}) }

// Say adds words of the program.
func (p *Parts) Say(_ string, c term.Colour, text string) {
	p.add(Part{Kind: PartSay, Text: text, Tone: toneOf(c)})
}

// Fact adds a fact.
func (p *Parts) Fact(name, value string) { p.Tinted(name, term.NoColour, value) }

// Tinted adds a fact in a tone.
func (p *Parts) Tinted(name string, c term.Colour, value string) {
	p.add(Part{Kind: PartFact, Name: name, Text: value, Tone: toneOf(c)})
}

// Item adds the subject of the next parts.
func (p *Parts) Item(text string) { p.add(Part{Kind: PartItem, Text: text, Tone: ToneWarn}) }

// Quote adds a quote.
func (p *Parts) Quote(content string, spans ...term.Span) {
	part := Part{Kind: PartQuote, Text: content}
	for _, s := range spans {
		if 0 <= s.Start && s.Start < s.End && s.End <= len(content) {
			part.Marks = append(part.Marks, Mark(s))
		}
	}
	p.add(part)
}

// Code adds a long name.
func (p *Parts) Code(name, value string) { p.add(Part{Kind: PartCode, Name: name, Text: value}) }

// Line adds nothing: a page has its own distances.
func (p *Parts) Line(...string) {}

func toneOf(c term.Colour) string {
	switch c { //nolint:exhaustive // the others are no tone
	case term.Bold:
		return ToneStrong
	case term.Yellow:
		return ToneWarn
	case term.Red:
		return ToneBad
	case term.Green:
		return ToneGood
	case term.Dim:
		return ToneDim
	}
	return ""
}

// Shown is everything that a program shows of a request besides the request itself.
type Shown struct {
	Parts []Part `json:"parts"`
	// Title names the agent that asks, its user and the receiver.
	Title string `json:"title"`
	// Why is [Why], and Words are the four words that stand for the digest.
	Why   string `json:"why"`
	Words string `json:"words,omitzero"`
	// Decisions are those that people can take about it now, and Does has the effect of each.
	Decisions []string          `json:"decisions"`
	Does      map[string]string `json:"does"`
	// Instead names the other decisions, for a request that cannot be approved.
	Instead string `json:"instead"`
}

// Show describes a request for a program that draws it.
func Show(a *api.Approval, now time.Time) *Shown {
	var parts Parts
	(&Text{&parts}).Request(a, now, true)
	s := &Shown{Parts: parts.List, Title: Whose(a), Why: Why(&a.ApprovalSummary), Words: text.Proquints(a.Digest), Does: WordsOf(a.Kind).Does, Instead: WordsOf(a.Kind).Instead}
	switch {
	case a.State == api.ApprovalPending:
		s.Decisions = api.DecisionsOf(a.Kind)
	case CanTakeBack(a):
		s.Decisions = []string{api.DecideDeny}
	}
	return s
}
