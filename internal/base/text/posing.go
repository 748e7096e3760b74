package text

import (
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Posing returns the positions in a text, in bytes, of characters that read as others of ASCII.
// They count in a word that also has letters of ASCII, or that reads as ASCII altogether. They do
// not count in words of another script that has such letters among its own.
func Posing(s string) []int {
	if ascii(s) {
		return nil
	}
	var found, word []int
	plain, foreign := false, false
	end := func() {
		if plain || !foreign {
			found = append(found, word...)
		}
		word, plain, foreign = nil, false, false
	}
	for at, r := range s {
		switch {
		case !unicode.In(r, unicode.L, unicode.N, unicode.M):
			end()
		case r <= unicode.MaxASCII:
			plain = true
		case poses(r):
			word = append(word, at)
		default:
			foreign = true
		}
	}
	end()
	return found
}

// poses reports whether a character reads as one of ASCII. A letter that is only folded
// to some, such as ß, does not.
func poses(r rune) bool {
	one := string(r)
	looks := Skeleton(one)
	return looks != "" && ascii(looks) && (len(looks) == 1 || ascii(norm.NFKD.String(one)))
}
