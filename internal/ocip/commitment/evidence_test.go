package commitment

import (
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// A message that no other rule holds is held if its words together make a commitment.
func TestEvidence(t *testing.T) {
	d := detector(t, Options{Families: map[string]Mode{Evidence: Enforce}})
	for s, want := range map[string]string{
		"The last two are put away under your name. Enjoy your day!": "The last two are put away under your name",
		"Thanks. Your seats are now in row 4.":                       "Your seats are now in row 4",
		"The train leaves at nine from platform 2.":                  "",
		"The search gave 12 results, the first is from 2019.":        "",
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
			t.Errorf("%q: found %q, want %q", s, got, want)
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

// The fast weighing gives the sum of the clues' weights.
func FuzzEvidence(f *testing.F) {
	for _, seed := range []string{
		"", "Sold. It's yours for 60.", "You’ll have it by Friday!", "Is it? \"Yes.\" Well…", "a\n\nb\nc", "On the 4th at 10:30, 5k, $5, 7 €, 3.5 m", "Écoute, ÉTÉ 'tis it's'", "l I i 1", "abcdefgh abcdefghi ABCDEFGHIJKLMNOPQ",
		"> We give you our word on it.\nno", "May june MON. Tue", "\xff\xfe. \x80a!", "one two three four five six seven eight nine ten eleven twelve thirteen",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	d := detector(f, Options{Families: map[string]Mode{Evidence: Enforce}})
	weights := Weights()
	f.Fuzz(func(t *testing.T, text string, asked bool) {
		var want []Hit
		for _, s := range Sentences(text, asked) {
			sum := 0
			for _, clue := range s.Clues {
				sum += weights[clue]
			}
			if zone := (&zoner{text: text}).at(s.Start); sum >= EvidenceBound && zone == ZoneBody {
				want = append(want, Hit{Rule: Evidence, Start: s.Start, End: s.End})
				break
			}
		}
		g := gathering{d: d}
		g.weigh(text, asked)
		if len(g.kept) != len(want) || len(want) > 0 && g.kept[0] != want[0] {
			t.Errorf("%q: found %+v, want %+v", text, g.kept, want)
		}
	})
}
