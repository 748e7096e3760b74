package media

import (
	"strings"
	"unicode"
)

// decodeURL returns the bytes of a data: URL, from the text after its scheme. It accepts white space
// before the comma only if the bytes are in base64.
func decodeURL(rest string) ([]byte, bool) {
	about, body, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, false
	}
	const encoded = "base64"
	last := strings.TrimSpace(about)
	packed := len(last) >= len(encoded) && strings.EqualFold(last[len(last)-len(encoded):], encoded)
	if !packed && strings.ContainsFunc(about, unicode.IsSpace) {
		return nil, false
	}
	raw := percentDecoded(body)
	if packed {
		raw = base64Decoded(raw)
	}
	return raw, true
}

// shortestInline is the least length of a file in base64. Shorter texts are ids.
const shortestInline = 16

// decodeAll returns the bytes of a text that consists of base64 or hexadecimal digits, apart from
// white space and the word that names the encoding.
func decodeAll(s string) ([]byte, bool) {
	for _, word := range [...]string{"base64", "b64"} {
		if after, ok := cutFold(s, word); ok && after != "" && (after[0] == ':' || after[0] == ',') {
			s = after[1:]
			break
		}
	}
	b := make([]byte, 0, len(s))
	digits := true
	for _, c := range []byte(s) {
		switch {
		case c == ' ' || '\t' <= c && c <= '\r':
			continue
		case sextet(c) == noSextet && c != '=':
			return nil, false
		}
		digits = digits && hexDigit(c) < 16
		b = append(b, c)
	}
	if digits && len(b)%2 == 0 {
		for i := range len(b) / 2 {
			b[i] = hexDigit(b[2*i])<<4 | hexDigit(b[2*i+1])
		}
		return b[:len(b)/2], true
	}
	return base64Decoded(b), len(b) > 0
}

func percentDecoded(s string) []byte {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if high, low := hexDigit(s[i+1]), hexDigit(s[i+2]); high < 16 && low < 16 {
				c = high<<4 | low
				i += 2
			}
		}
		b = append(b, c)
	}
	return b
}

func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

const noSextet = 0xff

// sextet returns the value of a letter of base64, in both alphabets.
func sextet(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A'
	case 'a' <= c && c <= 'z':
		return c - 'a' + 26
	case '0' <= c && c <= '9':
		return c - '0' + 52
	case c == '+', c == '-':
		return 62
	case c == '/', c == '_':
		return 63
	}
	return noSextet
}

// base64Decoded decodes in place, like lenient decoders: it skips other characters, and padding may
// occur anywhere and begins anew.
func base64Decoded(b []byte) []byte {
	out := b[:0]
	var bits, held uint
	for _, c := range b {
		v := sextet(c)
		switch {
		case c == '=':
			bits, held = 0, 0
			continue
		case v == noSextet:
			continue
		}
		bits, held = bits<<6|uint(v), held+6
		if held >= 8 {
			held -= 8
			out = append(out, byte(bits>>held))
		}
	}
	return out
}
