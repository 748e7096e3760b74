package text

import (
	digits "encoding/hex"
	"strings"
)

// Proquints returns four words of five letters for the first 64 bits of a digest "sha256:" and
// hexadecimal digits, for people who compare two screens. A digest of another form has none: the
// result is empty. A word stands for 16 bits, by turns a consonant (4 bits) and a vowel (2 bits)
// (D. S. Wilkerson, "A Proposal for Proquints", 2009).
func Proquints(digest string) string {
	const consonants, vowels = "bdfghjklmnprstvz", "aiou"
	written, ok := strings.CutPrefix(digest, "sha256:")
	sum, err := digits.DecodeString(written)
	if !ok || err != nil || len(sum) != 32 {
		return ""
	}
	var words []byte
	for i := 0; i < 8; i += 2 {
		if i > 0 {
			words = append(words, ' ')
		}
		n := uint16(sum[i])<<8 | uint16(sum[i+1])
		words = append(words, consonants[n>>12], vowels[n>>10&3], consonants[n>>6&15], vowels[n>>4&3], consonants[n&15])
	}
	return string(words)
}
