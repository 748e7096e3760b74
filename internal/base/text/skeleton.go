package text

import (
	_ "embed"
	"maps"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

//go:embed confusables.txt
var confusables string

// prototypes maps a character to the text that it looks like. It is read once a process, for the
// first skeleton.
var prototypes = sync.OnceValue(func() map[rune]string {
	table := make(map[rune]string, 7000)
	for line := range strings.Lines(confusables) {
		from, to, found := strings.Cut(strings.TrimSpace(line), ";")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		var looks strings.Builder
		for one := range strings.FieldsSeq(to) {
			looks.WriteRune(hex(one))
		}
		table[hex(from)] = looks.String()
	}
	// No reader distinguishes a capital from a small letter here, so small capitals look like
	// either.
	maps.Copy(table, map[rune]string{
		'ʙ': "b", 'ɢ': "g", 'ʜ': "h", 'ɪ': "i", 'ʟ': "l", 'ɴ': "n", 'ʀ': "r", 'ʏ': "y", 'ᴀ': "a", 'ᴅ': "d", 'ᴇ': "e",
		'ꜰ': "f", 'ᴊ': "j", 'ᴋ': "k", 'ĸ': "k", 'ᴍ': "m", 'ᴘ': "p", 'ꞯ': "q", 'ᴛ': "t", 'ꜱ': "s",
	})
	return table
})

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

func hex(digits string) rune {
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 21)
	if err != nil {
		return unicode.ReplacementChar
	}
	return rune(n)
}

// Skeleton removes from a text all distinctions that a reader does not see: two texts with one
// skeleton look alike. It is the skeleton of Unicode Technical Standard 39, and goes further. It
// ignores the case of letters, and whether they are full-width, round or raised; i and l are one
// (as I and l are in most type); invisible characters are left out; every blank is a space, and
// there is none at the ends.
//
// A skeleton is for comparing and is no text.
func Skeleton(s string) string {
	if !ascii(s) {
		return skeleton(s)
	}
	table := plainSkeletons()
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := range len(s) {
		b.WriteString(table[s[i]])
	}
	return strings.Trim(b.String(), " ")
}

// plainSkeletons are the skeletons of the characters of ASCII, each computed for itself. The
// skeleton of an ASCII text is the sequence of its characters' skeletons.
var plainSkeletons = sync.OnceValue(func() *[utf8.RuneSelf]string {
	table := new([utf8.RuneSelf]string)
	for c := range table {
		table[c] = skeleton(string(rune(c)))
	}
	table[' '] = " "
	return table
})

// skeleton is Skeleton for any text.
func skeleton(s string) string {
	s = appearance(s)
	// Two rounds are enough for all but a few characters whose look-alike is a capital with
	// look-alikes of its own.
	for range 4 {
		next := appearance(Fold(s, CaseUnicode))
		if next == s {
			break
		}
		s = next
	}
	return s
}

// appearance replaces each character by the text that it looks like.
func appearance(s string) string {
	if !ascii(s) {
		// Invisible characters go first, since they would keep marks from their order.
		s = norm.NFKD.String(strings.Map(shown, s))
	}
	table := prototypes()
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if r = shown(r); r < 0 {
			continue
		}
		looks, found := table[r]
		if !found {
			looks = string(r)
		}
		for _, r := range looks {
			if r == 'i' {
				r = 'l'
			}
			b.WriteRune(r)
		}
	}
	s = strings.Trim(b.String(), " ")
	if !ascii(s) {
		s = norm.NFKD.String(s)
	}
	return s
}

// shown replaces every blank by a space, and drops characters that do not show.
func shown(r rune) rune {
	switch {
	case unicode.Is(unicode.Zs, r):
		return ' '
	case !Shows(r):
		return -1
	}
	return r
}
