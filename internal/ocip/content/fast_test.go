package content

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// FuzzFast compares the fast checks with a check of each byte.
func FuzzFast(f *testing.F) {
	for _, one := range families() {
		f.Add(filler(one.text, 40))
		f.Add("x" + one.text)
	}
	for _, seed := range []string{"", "0", "0|", "x0|", "xx0|", "pin", "xpin", "a 5, ＡＫＩＡ 会议安排，密码 パスワード", "\xe4\xb8", "\xc3", "1|secret", "-----BEGIN"} {
		f.Add(seed)
	}
	anchors := builtin()
	words := make([]string, len(anchors))
	for i, a := range anchors {
		words[i] = a.text
	}
	x := newIndex(words)
	f.Fuzz(func(t *testing.T, s string) {
		has := traitsOf(s)
		for trait, is := range map[traits]bool{
			traitOdd: odd(s) < len(s), traitDigit: nextDigit(s, 0) < len(s), traitPerson: strings.ContainsAny(s, "@+"), traitEscape: strings.ContainsAny(s, escapeSigns),
		} {
			if has&trait != 0 != is {
				t.Errorf("%q has the trait %d: %t", s, trait, !is)
			}
		}
		if quick, slow := look(s, has), look(s, has|traitOdd); quick.text != slow.text || !slices.Equal(quick.segments, slow.segments) || traitsOf(quick.text)&^quick.has != 0 {
			t.Errorf("%q is seen as %+v, want %+v", s, quick, slow)
		}
		if shown := text.See(s, text.RenderPlain); shown.Changed() && !look(s, has).unshown {
			t.Errorf("%q is seen as if all of it showed", s)
		}
		for i := range len(s) {
			if n := text.Usual(s, i); n > 0 {
				r, size := utf8.DecodeRuneInString(s[i:])
				if _, other := fold(r); other || n != size || r == utf8.RuneError {
					t.Errorf("%q has a usual letter of %d bytes at %d", s, n, i)
				}
			}
		}
		if len(s) > 1<<10 {
			return // the plain search takes long
		}
		type place struct{ at, word int }
		var got, want []place
		x.each(s, func(word, end int) { got = append(got, place{end - len(words[word]), word}) })
		for i := range len(s) {
			for word := range words {
				if hasFold(s, i, words[word]) {
					want = append(want, place{i, word})
				}
			}
		}
		if !slices.IsSortedFunc(got, func(a, b place) int { return a.at - b.at }) {
			t.Errorf("%q: the words are found in the order %v", s, got)
		}
		for _, list := range [][]place{got, want} {
			slices.SortFunc(list, func(a, b place) int {
				if a.at != b.at {
					return a.at - b.at
				}
				return a.word - b.word
			})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has the words %v, want %v", s, got, want)
		}
	})
}
