package task

import (
	"strings"
	"testing"
)

// The look whether any word is there misses none that the expression finds.
func FuzzFinder(f *testing.F) {
	for _, l := range languages {
		for _, list := range []string{l.vague, l.open} {
			for word := range strings.SplitSeq(list, ",") {
				f.Add("It " + word + ", so they say")
				f.Add("IT " + strings.ToUpper(word))
			}
		}
	}
	f.Add("??? and TODO: x")
	f.Fuzz(func(t *testing.T, text string) {
		text = canonical(text)
		for _, finder := range []*finder{&known().vague, &known().open} {
			if got, want := finder.find(text), finder.expression.FindString(text); got != want {
				t.Errorf("%q: found %q, the expression %q", text, got, want)
			}
		}
	})
}
