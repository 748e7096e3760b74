package commitment

import (
	"slices"
	"strings"
	"testing"

	textpkg "github.com/openclawos/ocipd/internal/base/text"
)

func weighed(t testing.TB, d *Detector, content string, before Before) *Weighed {
	t.Helper()
	p := []textpkg.Passage{{Text: content, Prose: true}}
	return d.Read(d.ScanAfter(before, p), p, before).Keywords()
}

// TestWeigh has messages that only keywords hold, with the reason that weighs most.
func TestWeigh(t *testing.T) {
	d := detector(t, Options{})
	for _, tt := range []struct {
		content string
		binds   bool
		why     string
	}{
		{"We agree to the terms.", true, `the sender does it: "agree" in the first person`},
		{"I can confirm the room for you.", true, `the sender does it: "confirm" in the first person`},
		{"Agreed.", true, `the sender does it: "agree" in the first person`},
		{"Confirmed, see below", true, `the sender does it: "confirm" in the first person`},
		{"Your dog is booked.", true, `"book" is a decision for the reader`},
		{"Please book the early train.", true, `"book" is asked for`},
		{"Approve it", true, `"approve" is asked for`},
		{"The works council agrees to the new plan.", true, `nothing speaks against "agree"`},
		{"The company guarantees the delivery.", true, `nothing speaks against "guarantee"`},
		{"We're committed to the plan.", true, `the sender does it: "commit" in the first person`},
		{"The meeting is on Monday.", true, `a date is beside "meeting"`},

		{"The meeting room has a lamp.", false, `"meeting" is the name of a thing`},
		{"See commit 9f3c2e1 for the change.", false, `"commit" is the name of a thing`},
		{"Call book_slot and read it.", false, `"book" is part of a name`},
		{"Then pleaseConfirm is called.", false, `"confirm" is part of a name`},
		{"Read schedule.go first.", false, `"schedule" is part of a name`},
		{"It prints `reserve` twice.", false, `"reserve" is in code`},
		{"> We promise it.\n\nWho said so?", false, `"promise" is in a quotation`},
		{"It went well.\n-- \nAnn, booking office", false, `"book" is in a signature`},
		{"The label says \"book now\" in red.", false, `"book" is quoted`},
		{"# Deadline\n\nThe text is below.", false, `"deadline" is in a heading`},
		{"**Schedule**\n\nThe text is below.", false, `"schedule" is in a heading`},
		{"Do you want to confirm it?", false, `"confirm" means to check something`},
		{"Did she promise it?", false, `the sentence with "promise" asks`},
		{"We did not agree to it.", false, `the sentence with "agree" denies`},
		{"Let me confirm the cause.", false, `"confirm" means to check something`},
		{"I confirmed that the test passes.", false, `"confirm" means to check something`},
		{"Our headmaster has promised to be brief.", false, `the sentence tells what somebody else did: "promise"`},
		{"He agreed.", false, `somebody else than the sender does it: "agree"`},
		{"It always allocates a new list.", false, `somebody else than the sender does it: "allocate"`},
		{"{\"status\": \"confirmed\"}", false, `"confirm" is quoted`},
	} {
		w := weighed(t, d, tt.content, Before{})
		if w == nil {
			t.Errorf("%q: something else than a keyword holds it, or nothing", tt.content)
			continue
		}
		if w.Binds != tt.binds || !slices.Contains(w.Reasons, tt.why) {
			t.Errorf("%q: binds %v: %q, want %v: %q", tt.content, w.Binds, w.Reasons, tt.binds, tt.why)
		}
		if len(w.Keywords) == 0 || len(w.Reasons) > MaxReasons {
			t.Errorf("%q: %+v", tt.content, w)
		}
	}
	for _, content := range []string{"hello", "I'll send it by Friday.", "We agree. I'll send it by Friday.", "I'll search the logs."} {
		if w := weighed(t, d, content, Before{}); w != nil {
			t.Errorf("%q was weighed: %+v", content, w)
		}
	}
	// In shadow, a family holds nothing.
	shadowed := detector(t, Options{Families: map[string]Mode{FirstPersonFuture: Shadow}})
	if w := weighed(t, shadowed, "I'll send it. The meeting room is free.", Before{}); w == nil || w.Binds {
		t.Errorf("weighed %+v", w)
	}
}

// TestNeverWeighedAway has what a person must see whatever else the sentence says. Each text goes
// without the part in question.
func TestNeverWeighedAway(t *testing.T) {
	d := detector(t, Options{})
	for name, tt := range map[string]struct {
		content, without string
		before           Before
	}{
		"a date after its month":  {"I have the book, March 12.", "I have the book.", Before{}},
		"a sum":                   {"The meeting costs $500.", "The meeting costs nothing.", Before{}},
		"a sum in words":          {"The book is 40 euros.", "The book is new.", Before{}},
		"a sum after the sign":    {"The agreement is over €2,000.", "The agreement is over there.", Before{}},
		"a date and I":            {"I have the book on 12 March.", "I have the book.", Before{}},
		"a weekday and we":        {"We have the approval on Friday.", "We have the approval.", Before{}},
		"a clock and we":          {"We are in the meeting room at 9:30.", "We are in the meeting room.", Before{}},
		"a deadline":              {"The approval is due on Tuesday.", "The approval is here.", Before{}},
		"by a date":               {"The assignment is open by 2026-03-01.", "The assignment is open.", Before{}},
		"the word deadline":       {"The deadline is 30 September.", "The deadline is unknown.", Before{}},
		"an appointment":          {"The meeting is on Monday.", "The meeting is over.", Before{}},
		"an answer":               {"The meeting room is fine.", "", Before{Asked: true}},
		"zero width":              {"The meet\u200bing room has a lamp.", "The meeting room has a lamp.", Before{}},
		"zero width elsewhere":    {"The meeting room h\u200bas a lamp.", "The meeting room has a lamp.", Before{}},
		"Cyrillic":                {"The m\u0435\u0435ting room has a lamp.", "", Before{}},
		"Cyrillic elsewhere":      {"The meeting r\u043e\u043em has a lamp.", "", Before{}},
		"full width":              {"The \uff4d\uff45\uff45\uff54\uff49\uff4e\uff47 room has a lamp.", "", Before{}},
		"spaced out":              {"The m e e t i n g room has a lamp.", "", Before{}},
		"bold inside":             {"The mee**ting** room has a lamp.", "", Before{}},
		"digits for letters":      {"The b00k has a page.", "The book has a page.", Before{}},
		"backwards":               {"The gniteem room has a lamp.", "", Before{}},
		"base64":                  {"The word is SSBwcm9taXNlIGl0IHRvIHlvdSBub3c= here.", "", Before{}},
		"an escape":               {`{"a": "\u0062ook"}`, `{"a": "book"}`, Before{}},
		"two messages":            {"mise it", "", Before{Tail: "they pro"}},
		"a control character":     {"The meeting room\x02 has a lamp.", "The meeting room has a lamp.", Before{}},
		"a combining character":   {"The meeting ro\u0301om has a lamp.", "The meeting room has a lamp.", Before{}},
		"German":                  {"Ich habe das Meeting auf der Liste.", "", Before{}},
		"French":                  {"Je suis dans le meeting avec vous.", "", Before{}},
		"Spanish":                 {"El meeting no es para ti, gracias.", "", Before{}},
		"Russian":                 {"Наш meeting в зале.", "", Before{}},
		"Japanese":                {"この meeting です。", "", Before{}},
		"an unlisted script":      {"meeting ห้อง", "", Before{}},
		"one of several keywords": {"The meeting room has a lamp. We agree to it.", "The meeting room has a lamp.", Before{}},
	} {
		t.Run(name, func(t *testing.T) {
			if w := weighed(t, d, tt.content, tt.before); w != nil && (!w.Binds || len(w.Reasons) == 0) || w == nil && !Judge(d.Detect(tt.content)).RequiresHuman {
				t.Errorf("%q goes: %+v", tt.content, w)
			}
			if tt.without == "" {
				return
			}
			if w := weighed(t, d, tt.without, Before{}); w == nil || w.Binds {
				t.Errorf("%q is held: %+v", tt.without, w)
			}
		})
	}
	// A text that cannot be found is not weighed away, nor is an offset outside it.
	for _, h := range []Hit{{Rule: RuleKeyword, Keyword: "book", End: 4, Member: "elsewhere"}, {Rule: RuleKeyword, Keyword: "book", Start: 2, End: 90}, {Rule: RuleKeyword, Keyword: "book", Start: -1, End: 3}} {
		if w := d.Read([]Hit{h}, []textpkg.Passage{{Text: "book", Prose: true}}, Before{}).Keywords(); w == nil || !w.Binds {
			t.Errorf("%+v: %+v", h, w)
		}
	}
}

// TestWeighTime checks that a text of keywords alone is weighed in little time, however long.
func TestWeighTime(t *testing.T) {
	d := detector(t, Options{})
	for _, content := range []string{strings.Repeat("book ", 1<<16), strings.Repeat("the book of the meeting, ", 1<<14), "book" + strings.Repeat(" 1", 1<<17)} {
		if w := weighed(t, d, content, Before{}); w == nil || len(w.Reasons) > MaxReasons {
			t.Errorf("%.20q: %+v", content, w)
		}
	}
}

// FuzzWeigh checks that weighing never fails, and that a disguise or a sum is never weighed away.
func FuzzWeigh(f *testing.F) {
	for _, s := range []string{"The meeting room has a lamp.", "# Book\n\n`book` \"book\" > book", "Agreed – on 12/5 at 9:30, €5", "a\x80b book\u2019s", "the book\nof the meeting"} {
		f.Add(s)
	}
	d := detector(f, Options{})
	f.Fuzz(func(t *testing.T, s string) {
		w := weighed(t, d, s, Before{})
		result := Judge(d.Detect(s))
		if (w != nil) && !result.RequiresHuman {
			t.Fatalf("%q holds nothing and was weighed: %+v", s, w)
		}
		if w == nil {
			return
		}
		if !slices.Equal(w.Keywords, result.DetectedKeywords) || len(w.Reasons) == 0 || len(w.Reasons) > MaxReasons {
			t.Fatalf("%q: %+v", s, w)
		}
		if more := weighed(t, d, s+"\n\nWe pro\u200bmise it.", Before{}); more == nil || !more.Binds {
			t.Fatalf("%q with a disguised promise goes: %+v", s, more)
		}
		if again := weighed(t, d, s, Before{Asked: true}); again != nil && !again.Binds {
			t.Fatalf("%q goes as an answer", s)
		}
	})
}
