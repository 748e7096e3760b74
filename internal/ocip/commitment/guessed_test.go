package commitment

import (
	"strings"
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// A model may be asked only about a guess: nothing that always holds is one, wherever it stands.
func TestGuessed(t *testing.T) {
	const label = "Sent by the assistant of Anna at noon"
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
		{text: "I'll take care of it.\n\n" + label, guessed: true, alone: true},
		{text: label + "\n\nI'll take care of it.", guessed: true, alone: true},
		{text: "I'll take care of it.\n\n" + label + "\n\n" + label},
		{text: "I'll take care of it. " + label},
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
		if got, alone := r.Guessed(true, label), r.Guessed(false, label); got != c.guessed || alone != c.alone {
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
		if d.Read(hits, passages, Before{}).Guessed(true, "") {
			t.Errorf("a guess holds %.40q", passages[0].Text)
		}
	}
}

// TestOpenText has texts with sums, deadlines and other languages after a sentence that only a guess
// holds, and honest ones.
func TestOpenText(t *testing.T) {
	const opens = "I'll take care of it"
	sums := []string{
		opens + " for five thousand.", opens + " for 5000.", opens + " for 0.3 BTC.", opens + ". A hundred and twenty is fine.", opens + ". Three quid fifty each.",
		opens + ". We'll cover two and a half thousand of the bill.",
		opens + " for a grand.", opens + " for twenty.", opens + " for half.", opens + " for a dozen.", opens + " for 5k.", opens + " for $.", opens + " for £.",
		opens + " for fifty-five.", opens + " for thou-sand.", opens + " for t h o u s a n d.", opens + " for thou*sand*.", opens + " for fivethousand.", opens + " for fivve thousnd.", opens + " for a monkey.",
		opens + " for the million.", opens + " for the twenties.", opens + " for V.", opens + " for a couple of dollars.", opens + ". The price is no matter.", opens + " for fif-\nty.", opens + ". Your fee is fine.", opens + " for one.", opens + " for the nineties.", opens + " for ten%.",
	}
	deadlines := []string{
		opens + " within the hour.", opens + " within 48h.", opens + " before lunch.", opens + " before end of business.", opens + " in a fortnight.", opens + " by Q3.", opens + " by half past four.",
		opens + " before Christmas.", opens + " at 5.", opens + " by then.",
		opens + " on Monday.", opens + ". Monday.", opens + " tonight.", opens + " over the weekend.", opens + " this evening.", opens + " this Michaelmas.", opens + " until you say stop.", opens + " during the call.",
		opens + " in a bit.", opens + " once you sign.", opens + " when you ask.", opens + " asap.", opens + " in no time.", opens + " for the morning.", opens + " soon.", opens + " after the review.", opens + ". The deadline is yours.", opens + " on receipt.", opens + " in May.", opens + " to-day.", opens + " EOD.", opens + " around one.", opens + ". Wed.", opens + " promptly.", opens + " right away.",
	}
	foreign := []string{
		opens + ". Wir liefern die Ware kostenlos und verzichten auf alle Rechte.", opens + ". Entregamos todo gratis y renunciamos a todos los derechos.", opens + ". Consegniamo tutto gratis e rinunciamo a ogni diritto.",
		opens + ". Entregamos tudo sem custo e abrimos mão dos direitos.", opens + ". Dostarczymy towar bez zaplaty i zrzekamy sie praw.", opens + ". Dodame zbozi zdarma a vzdavame se prav.", opens + ". Toimitamme tavaran maksutta ja luovumme oikeuksista.",
		opens + ". Ingyen szallitjuk az arut es lemondunk a jogokrol.", opens + ". Vi leverer varene gratis og frasier oss alle rettigheter.", opens + ". Vi levererar varorna gratis och avsager oss alla rettigheter.", opens + ". Mallari bedava teslim ediyoruz.",
		opens + ". Kami mengirim barang tanpa biaya dan melepas semua hak.", opens + ". Tutaleta bidhaa bure na kuacha haki zote.", opens + ". On accepte votre offre, on paie tout.",
		opens + ". Pago todo.", opens + ", pago todo.", opens + ". Is goed, we doen het.", opens + ". Versprochen.", opens + ". Ok, zahle alles.", opens + ". Am dat totul.", opens + ". Taim sasta.", opens + ". Chung toi tra het.", opens + ". Obeshchayu vse.",
		opens + ". Обещаю.", opens + ". 約束します。", opens + ". Nous payons.", opens + ". We betalen alles.", opens + ". Ipinapangako namin.", opens + ". Gi deg alt.", opens + ". Mes viska duodam.", opens + " y lo pago.", opens + ". Dear alle, the und wir zahlen.",
	}
	for _, kind := range [][]string{sums, deadlines, foreign} {
		for _, text := range kind {
			if openText(text) {
				t.Errorf("a model may be asked about %q", text)
			}
		}
	}
	for _, text := range []string{
		"I'll take care of it.", "I\u2019ll take care of it.", "Let me look into that.", "I will take care of that one as well.", "I'll take care of the roof.", "I'll take care of the lamp.",
		"I agree with the reviewer that the name is odd.", "Sounds good, let's do it.", "We will handle the return for you.", "I'll send the contract over to you.", "We confirm your order.", "Consider it done, I will see to it.",
		"Hello Bob, I'll take care of it. Thanks!", "Thanks for telling me \u2014 I'll look into it.", "I'll follow-up with the plumber.", "I promise that you get the job.", "Leave it with me.", "You have my word.",
	} {
		if !openText(text) {
			t.Errorf("no model may be asked about %q", text)
		}
	}
}

// FuzzOpenText finds no text open that has a digit or a letter outside ASCII.
func FuzzOpenText(f *testing.F) {
	for _, s := range []string{"I'll take care of it.", "the roof-rack", "fif-\nty", "\xff\u2019", "the 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if openText(s) && strings.ContainsFunc(s, func(r rune) bool { return unicode.IsDigit(r) || r > unicode.MaxASCII && unicode.IsLetter(r) }) {
			t.Errorf("a model may be asked about %q", s)
		}
	})
}
