package commitment

import (
	"strings"
	"unicode/utf8"
)

// set is a list of words in lower case.
type set map[string]struct{}

// setOf makes one of words with blanks between them.
func setOf(words string) set {
	s := set{}
	for word := range strings.FieldsSeq(words) {
		s[word] = struct{}{}
	}
	return s
}

// has reports whether a word that was read is one of them.
func (s set) has(w *word) bool {
	_, in := s[string(w.letters[:w.n])]
	return in
}

// holds reports whether a word is one of them, whatever the case.
func (s set) holds(word string) bool {
	var lower [maxWord]byte
	if len(word) > len(lower) {
		return false
	}
	for i := range len(word) {
		c := word[i]
		if c >= utf8.RuneSelf {
			_, in := s[strings.ToLower(word)]
			return in
		}
		if capital(c) {
			c |= 0x20
		}
		lower[i] = c
	}
	_, in := s[string(lower[:len(word)])]
	return in
}
