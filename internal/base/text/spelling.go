package text

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Canonical returns nil for a text in the one spelling that ids, addresses and session keys have:
// composed (Unicode's normal form C), with every character visible, and no blank at either end. For
// any other text, the error names the character and its position.
func Canonical(s string) error {
	if i := hidden(s); i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("byte %d (0x%02X) is no UTF-8", i, s[i])
		}
		return fmt.Errorf("U+%04X at byte %d does not show as what it is", r, i)
	}
	if first, _ := utf8.DecodeRuneInString(s); isBlank(first) {
		return fmt.Errorf("begins with a blank (U+%04X at byte 0)", first)
	}
	if last, size := utf8.DecodeLastRuneInString(s); isBlank(last) {
		return fmt.Errorf("ends with a blank (U+%04X at byte %d)", last, len(s)-size)
	}
	if ascii(s) || norm.NFC.IsNormalString(s) {
		return nil
	}
	return decomposed(s)
}

func isBlank(r rune) bool { return r == ' ' || r == '\u3000' }

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// decomposed names the first character of a text that its composed form does not have.
func decomposed(s string) error {
	composed := norm.NFC.String(s)
	for i, r := range s {
		if !strings.HasPrefix(composed[min(i, len(composed)):], string(r)) {
			want, _ := utf8.DecodeRuneInString(composed[min(i, len(composed)):])
			if i >= len(composed) {
				return fmt.Errorf("U+%04X at byte %d is not in Unicode's composed form (NFC)", r, i)
			}
			return fmt.Errorf("U+%04X at byte %d is not in Unicode's composed form (NFC), which has U+%04X there", r, i, want)
		}
	}
	return errors.New("is not in Unicode's composed form (NFC)")
}

// Case is the rule by which a network treats capital letters as small ones.
type Case string

// The rules. The empty one is CaseNone.
const (
	// CaseNone keeps all letters distinct.
	CaseNone Case = "none"
	// CaseASCII folds the letters from A to Z.
	CaseASCII Case = "ascii"
	// CaseRFC1459 folds them and the four signs that IRC networks treat as capitals: []\~ for {}|^.
	CaseRFC1459 Case = "rfc1459"
	// CaseUnicode folds the letters of all scripts.
	CaseUnicode Case = "unicode"
)

// Cases lists the rules.
func Cases() []Case { return []Case{CaseNone, CaseASCII, CaseRFC1459, CaseUnicode} }

// Fold returns the text composed, and in small letters by the rule: two texts that the network
// takes for one are equal after folding.
func Fold(s string, c Case) string {
	if c == CaseUnicode && !ascii(s) {
		// Folding can decompose a letter, and composing can make a capital of a folded one, so each
		// is done before and after the other.
		folder := cases.Fold()
		s = norm.NFC.String(s)
		for range 3 {
			next := norm.NFC.String(strings.Map(cherokee, folder.String(s)))
			if next == s {
				break
			}
			s = next
		}
		return s
	}
	if !ascii(s) {
		s = norm.NFC.String(s)
	}
	switch c {
	case CaseASCII, CaseUnicode:
		return strings.Map(smallASCII, s)
	case CaseRFC1459:
		return strings.Map(smallRFC1459, s)
	case CaseNone:
	}
	return s
}

// cherokee replaces the small letters of the Cherokee script by its capitals, as Unicode folds
// them. The library does it for some of them, and undoes it the next time.
func cherokee(r rune) rune {
	switch {
	case '\uab70' <= r && r <= '\uabbf':
		return r - '\uab70' + '\u13a0'
	case '\u13f8' <= r && r <= '\u13fd':
		return r - 8
	}
	return r
}

func smallASCII(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

func smallRFC1459(r rune) rune {
	switch r {
	case '[':
		return '{'
	case ']':
		return '}'
	case '\\':
		return '|'
	case '~':
		return '^'
	}
	return smallASCII(r)
}
