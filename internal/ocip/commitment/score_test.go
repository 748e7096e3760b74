package commitment

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

func scoreOf(d *Detector, hits []Hit, content string, asked bool) Score {
	return d.Read(hits, []text.Passage{{Text: content, Prose: true}}, Before{Asked: asked}).Score()
}

// The score orders messages: a promise to the reader is likelier than a word alone, and each has its
// reasons and words.
func TestScore(t *testing.T) {
	d := detector(t, Options{})
	score := func(content string) Score { return scoreOf(d, d.Detect(content), content, false) }
	for content, want := range map[string]struct {
		likelihood Likelihood
		reason     string
	}{
		"I'll send it to you by Friday.":    {High, FirstPersonFuture},
		"Deal, I promise you 90 euros.":     {High, Acceptance},
		"Ich liefere Ihnen das am Freitag.": {High, German},
		"We talked about the promise.":      {Medium, `"promise" is the name of a thing`},
		"Let me confirm whether the file exists. The parser reads it line by line, and the test fails in line 12.": {Low, `"confirm" means to check something`},
		`{"schedule": 1}`: {Low, "its words"},
	} {
		s := score(content)
		if s.Likelihood() != want.likelihood || !slices.Contains(s.Reasons, want.reason) {
			t.Errorf("%q: %d points, %s %q, want %s %q", content, s.Points, s.Likelihood(), s.Reasons, want.likelihood, want.reason)
		}
		if len(s.Reasons) > MaxReasons || len(s.Words) > MaxWords || s.Chance() < 1 || s.Chance() > 99 {
			t.Errorf("%q: %+v, chance %d", content, s, s.Chance())
		}
	}
	if a, b := score("I'll send it to you by Friday."), score("We talked about the promise."); a.Chance() <= b.Chance() || !slices.Contains(a.Words, "to you") {
		t.Errorf("%+v is no likelier than %+v", a, b)
	}
	// An answer to a question is likelier.
	if asked := scoreOf(d, nil, "Yes, Tuesday.", true); asked.Points <= score("Yes, Tuesday.").Points || !slices.Contains(asked.Reasons, "it answers a question that asks for a yes") {
		t.Errorf("asked: %+v", asked)
	}
	// A hit outside the content has no meaning for it, and the empty text has words.
	for _, h := range []Hit{
		{Rule: RuleKeyword, Keyword: "promise", Start: 2, End: 90}, {Rule: RuleKeyword, Keyword: "promise", Start: -1, End: 9},
		{Rule: RuleKeyword, Keyword: "promise", Start: 9, End: 2}, {Rule: RuleKeyword, Keyword: "promise", Member: "caption", Start: 2, End: 9},
	} {
		scoreOf(d, []Hit{h}, "I promise", false)
		scoreOf(d, []Hit{h}, "", false)
	}
}

// A bargain that was struck is listed before every next step that is held for a word in it.
func TestBargainsStandAboveNextSteps(t *testing.T) {
	d := detector(t, Options{})
	least, most := Score{Points: math.MaxInt}, Score{Points: math.MinInt}
	for _, content := range []string{
		"Let's agree on 48 ZUP.", "We agree on 48 ZUP for 2 X.", "I accept your offer of 48 ZUP.", "Deal: 48 ZUP for 2 X.", "I agree to 50 ZUP.", "Agreed.",
		"Agreed, 48 it is.", "OK, we have an agreement: 48 ZUP.", "It's a deal.", "I am willing to agree to the trade of 5 X for 48 ZUP.",
	} {
		if s := scoreOf(d, d.Detect(content), content, false); s.Points < least.Points {
			least = s
		}
	}
	for _, content := range []string{
		"Let me check the schedule.", "Let me confirm whether the file exists.", "Let me confirm that the test passes first.", "Let me verify the booking page loads.",
		"I'll check the schedule module.", "Let me look at how the agreement parser works.", "Now let me confirm the fix works.",
	} {
		if s := scoreOf(d, d.Detect(content), content, false); s.Points > most.Points {
			most = s
		}
	}
	if least.Points <= most.Points {
		t.Errorf("the least likely bargain has %+v, the likeliest next step %+v", least, most)
	}
}

// The words of a text have their place in it.
func TestWords(t *testing.T) {
	var got []string
	const content = "On Monday, 10:30 I’ll pay 5k."
	Words(content, func(gram string, start, end int) {
		if got = append(got, gram); !strings.Contains(gram, " ") && gram != wordTo && plainWord(content[start:end]) != gram && content[start:end] != gram {
			t.Errorf("%q is %q", gram, content[start:end])
		}
	})
	want := []string{
		"on", "<from> on", "#day", "on #day", ",", "#day ,", "#", ", #", ":", "# :", "#", ": #", "i'll", "# i'll", "pay", "i'll pay", "#k", "pay #k", ".", "#k .", "<to>", ". <to>",
	}
	if !slices.Equal(got, want) {
		t.Errorf("words %q, want %q", got, want)
	}
}

// Scoring is linear in a text of any kind, and reads no more than its beginning.
func TestScoreOfLongTexts(t *testing.T) {
	d := detector(t, Options{})
	for _, unit := range []string{"I promise it. ", "a", ".", "\n", "\xff", "é ", "```\n", "> ", "confirm "} {
		content := strings.Repeat(unit, 1<<20/len(unit))
		words := 0
		Words(content, func(string, int, int) { words++ })
		if words > 2*maxScored+2 {
			t.Errorf("%q: %d words", unit, words)
		}
		if s := scoreOf(d, d.Detect(content), content, true); s.Chance() == 0 {
			t.Errorf("%q: %+v", unit, s)
		}
	}
}

// A message that no other rule holds is held if its words together make a commitment.
func TestEvidence(t *testing.T) {
	d := detector(t, Options{Families: map[string]Mode{Evidence: Enforce}})
	for s, want := range map[string]string{
		"Your seats are now in row 4.":                               "Your seats are now in row 4.",
		"The last two are put away under your name. Enjoy your day!": "The last two are put away under your name.",
		"The train leaves at nine from platform 2.":                  "",
		"The search gave 12 results, the first is old.":              "",
		"Are your seats now in row 4?":                               "",
		"```\nYour seats are now in row 4.\n```":                     "",
		"> Your seats are now in row 4.":                             "",
		`{"note": "Your seats are now in row 4."}`:                   "",
	} {
		hits := d.Detect(s)
		got := ""
		if at := slices.IndexFunc(hits, func(h Hit) bool { return h.Rule == Evidence && !h.Shadow }); at >= 0 {
			got = s[hits[at].Start:hits[at].End]
		}
		if got != want {
			t.Errorf("%q: found %q, want %q (%+v)", s, got, want, scoreOf(d, nil, s, false))
		}
	}
	// If another rule holds the message, nothing is weighed: approvals given beforehand keep their
	// meaning.
	for _, h := range d.Detect("I promise: your seats are now in row 4.") {
		if h.Rule == Evidence {
			t.Errorf("found %+v beside a keyword", h)
		}
	}
	const said = "Your seats are now in row 4."
	for mode, held := range map[Mode]bool{Enforce: true, Shadow: false, Off: false} {
		hits := detector(t, Options{Families: map[string]Mode{Evidence: mode}}).Detect(said)
		if Judge(hits).RequiresHuman != held || mode == Off && len(hits) > 0 || mode == Shadow && len(hits) != 1 {
			t.Errorf("%s: found %+v", mode, hits)
		}
	}
	// Only the sender's words to the reader count, and not a note beside them.
	if hits := d.Scan([]text.Passage{{Member: "metadata.note", Text: said, Prose: true}}); len(hits) > 0 {
		t.Errorf("found %+v in a note", hits)
	}
}

// A finding that says much about a message is told before one that says little.
func TestTelling(t *testing.T) {
	if most := Telling([]string{NextStep, "confirm", Derived, FirstPersonFuture, Acceptance}); most != Acceptance {
		t.Errorf("%q is told", most)
	}
	if most := Telling([]string{NextStep, "confirm"}); most != "confirm" {
		t.Errorf("%q is told", most)
	}
}
