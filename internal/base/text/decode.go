package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Encoded is a stretch of a text that holds another text, in base64 or in
// hexadecimal digits.
type Encoded struct {
	Start, End int
	Text       string
}

// minEncoded is the least length of such a stretch: "Ym9vaw==".
const minEncoded = 8

// minWrapped is the least length of a line that continues on the next one.
const minWrapped = 32

// sextets gives the six bits of a character in the alphabets of base64, plus one. For any other
// character it is zero.
var sextets = func() (table [256]byte) {
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		table[c] = byte(i) + 1
	}
	table['-'], table['_'] = table['+'], table['/']
	return table
}()

// Decode finds encoded texts in a text: base64 of either alphabet, also over several lines, and
// hexadecimal digits. The decoded bytes must be text themselves. It decodes once, in time linear in
// the text.
func Decode(s string) []Encoded {
	var found []Encoded
	for from, at := 0, minEncoded-1; at < len(s); at += minEncoded {
		if sextets[s[at]] == 0 {
			if s[at] != '=' {
				continue
			}
			for range 2 {
				if at > from && s[at] == '=' {
					at--
				}
			}
			if sextets[s[at]] == 0 {
				at += 2
				continue
			}
		}
		// Most runs are words, and their ends are near.
		start, end := at, at
		for start > from && sextets[s[start-1]] != 0 {
			start--
		}
		for end < len(s) && sextets[s[end]] != 0 {
			end++
		}
		if end-start+2 < minEncoded {
			at = end - 1
			continue
		}
		end, wrapped := encodedEnd(s, start, end)
		from, at = end, end-1
		if end-start < minEncoded || !begins(s[start:end]) {
			continue
		}
		run := s[start:end]
		if wrapped {
			run = strings.Map(func(r rune) rune {
				if r == '\n' || r == '\r' {
					return -1
				}
				return r
			}, run)
		}
		if decoded, ok := decode(run); ok {
			found = append(found, Encoded{Start: start, End: end, Text: decoded})
		}
	}
	return found
}

// Encodes reports whether the run of base64 characters around a place could be another text, as
// [Decode] finds it. It also returns the end of the run.
func Encodes(s string, at int) (end int, could bool) {
	start, end := at, at
	for start > 0 && sextets[s[start-1]] != 0 {
		start--
	}
	for end < len(s) && sextets[s[end]] != 0 {
		end++
	}
	return end, end-start+2 >= minEncoded && begins(s[start:end])
}

// encodedEnd returns the end of a run whose first line is from start to end. It includes all lines
// and the padding.
func encodedEnd(s string, start, end int) (last int, wrapped bool) {
	for line := start; end < len(s); {
		if sextets[s[end]] != 0 {
			end++
			continue
		}
		next := end
		if strings.HasPrefix(s[next:], "\r") {
			next++
		}
		if !strings.HasPrefix(s[next:], "\n") || end-line < minWrapped || next+1 == len(s) || sextets[s[next+1]] == 0 {
			break
		}
		wrapped, line, end = true, next+1, next+1
	}
	for range 2 {
		if end < len(s) && s[end] == '=' {
			end++
		}
	}
	return end, wrapped
}

// begins rules out most runs by their first bytes, which would not be text.
func begins(run string) bool {
	var head [24]byte
	if n := unhex(head[:], trimHex(run)); n > 0 && plain(head[:n]) {
		return true
	}
	first := (sextets[run[0]]-1)<<2 | (sextets[run[1]]-1)>>4
	if unplain(first) || !utf8.RuneStart(first) && len(run)*3/4 < len(head) {
		return false // this holds for most words
	}
	n := unbase64(head[:], run)
	return n > 0 && plain(head[:n]) && (n == len(head) || utf8.Valid(head[:n]))
}

func plain(b []byte) bool { return !slices.ContainsFunc(b, unplain) }

func unplain(c byte) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f }

func trimHex(run string) string {
	if len(run) > 2 && run[0] == '0' && run[1]|0x20 == 'x' {
		return run[2:]
	}
	return run
}

// decode reads a run in hexadecimal digits, or else in base64.
func decode(run string) (string, bool) {
	b := make([]byte, len(run)*3/4+1)
	if digits := trimHex(run); len(digits)%2 == 0 {
		if n := unhex(b, digits); n == len(digits)/2 && readable(b[:n]) {
			return string(b[:n]), true
		}
	}
	if n := unbase64(b, run); n > 0 && readable(b[:n]) {
		return string(b[:n]), true
	}
	return "", false
}

// readable reports whether bytes are text for people.
func readable(b []byte) bool { return plain(b) && utf8.Valid(b) }

// unhex decodes digits into b, as many as it has room for. It returns the number of bytes, or 0 if
// there is another character among the digits.
func unhex(b []byte, digits string) int {
	n := 0
	for ; n < len(b) && 2*n+1 < len(digits); n++ {
		value, ok := hexDigits(digits, 2*n, 2)
		if !ok {
			return 0
		}
		b[n] = byte(value)
	}
	return n
}

// unbase64 decodes base64 into b, as much as it has room for. It returns the number of bytes, or 0
// if the run is not base64.
func unbase64(b []byte, run string) int {
	n, bits, held := 0, 0, uint(0)
	for i := range len(run) {
		sextet := sextets[run[i]]
		if sextet == 0 {
			break // padding
		}
		held = held<<6 | uint(sextet-1)
		if bits += 6; bits >= 8 {
			if n == len(b) {
				return n
			}
			bits -= 8
			b[n] = byte(held >> bits)
			n++
		}
	}
	if bits == 6 {
		return 0 // a single character of a group
	}
	return n
}
