package commitment

import (
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// A model may be asked only about a guess: nothing that always holds is one, wherever it stands.
func TestGuessed(t *testing.T) {
	for _, c := range []struct {
		text    string
		before  Before
		guessed bool // if keywords are weighed
		alone   bool // if they are not
	}{
		{text: "I'll take care of it.", guessed: true, alone: true},
		{text: "I agree with the reviewer that the name is odd.", guessed: true},
		{text: "We will confirm whether the build is green.", guessed: false}, // a cue and a keyword
		{text: "I'll take care of it by Friday."},
		{text: "I'll take care of it. On Friday."},
		{text: "I'll take care of it. 5,000 EUR, as you said."},
		{text: "Deal. That is 5000 dollars then."},
		{text: "I agree. 300 €."},
		{text: "I will pay you 500 dollars."},
		{text: "I'll take care of it.", before: Before{Asked: true}},
		{text: "take care of it.", before: Before{Tail: "I'll"}},
		{text: "I’ll take care of it.", guessed: true, alone: true},
		{text: "I\u200b'll take care of it."},
		{text: "I a\u0261ree with the reviewer that the name is odd."},
		{text: "Ich kümmere mich darum."},
		{text: "The page loads."},
	} {
		d, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		passages := []text.Passage{{Text: c.text, Prose: true}}
		hits := d.ScanAfter(c.before, passages)
		r := d.Read(hits, passages, c.before)
		if got, alone := r.Guessed(true), r.Guessed(false); got != c.guessed || alone != c.alone {
			t.Errorf("%q after %+v: guessed %t and without weighing %t, want %t and %t; hits %+v", c.text, c.before, got, alone, c.guessed, c.alone, hits)
		}
	}
}

// A hit in another string than the content, or in a long one, is no guess.
func TestGuessedContentAlone(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	long := make([]byte, maxScored)
	for i := range long {
		long[i] = " a"[i%2]
	}
	for _, passages := range [][]text.Passage{
		{{Text: "Hello.", Prose: true}, {Member: "subject", Text: "I'll take care of it.", Prose: true}},
		{{Text: "I'll take care of it. " + string(long), Prose: true}},
	} {
		hits := d.Scan(passages)
		if len(hits) == 0 {
			t.Fatalf("nothing holds %.40q", passages[0].Text)
		}
		if d.Read(hits, passages, Before{}).Guessed(true) {
			t.Errorf("a guess holds %.40q", passages[0].Text)
		}
	}
}
