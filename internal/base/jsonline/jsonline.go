// Package jsonline writes JSON objects member by member, at the end of a buffer. It writes the same
// bytes as the JSON library, but does not look up the structure of a type. It is for objects that
// the daemon writes for every message, if the library would take more than 1 % of the CPU time of a
// dispatch longer, 0.7 µs: an envelope 1.6 against 0.65 µs, the state of an exchange 2.0 against
// 0.7, a message 3.0 against 1.5, the subject of a hook event about 0.65 against 0.1 (twice), a
// causal chain 0.75 against 0.3 (twice); together 6 of about 70 µs. A frame contains finished JSON,
// which the library would read once more. The library encodes everything else.
//
// A caller opens an object with '{', adds its members in their order, and closes it with '}'. Names
// are the caller's own and are written as they are. Texts are quoted, and invalid UTF-8 in them is
// replaced.
package jsonline

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Key begins a member: a comma unless it is the object's first, its name and a colon. The caller
// appends the value.
func Key(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// Quote appends a text as a JSON string.
func Quote(b []byte, text string) []byte {
	start := len(b)
	b = append(slices.Grow(b, len(text)+len(`"\n\n"`)), '"')
	for rest := text; ; {
		n := PlainLength(rest)
		b = append(b, rest[:n]...)
		if n == len(rest) {
			return append(b, '"')
		}
		switch c := rest[n]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b, _ = jsontext.AppendQuote(b[:start], text) // fails for invalid UTF-8, and replaces it
			return b
		}
		rest = rest[n+1:]
	}
}

// Plain reports whether a text is the same inside a JSON string: it is ASCII without quotes,
// escapes and controls.
func Plain[T string | []byte](text T) bool { return PlainLength(text) == len(text) }

// PlainLength returns the number of bytes at the beginning of a text that are [Plain]. It checks
// eight bytes at a time.
func PlainLength[T string | []byte](text T) int {
	const every, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(text); i += 8 {
		part := text[i : i+8]
		w := uint64(part[0]) | uint64(part[1])<<8 | uint64(part[2])<<16 | uint64(part[3])<<24 |
			uint64(part[4])<<32 | uint64(part[5])<<40 | uint64(part[6])<<48 | uint64(part[7])<<56
		control, escape, quote := (w-' '*every)&^w, (w^'\\'*every-every)&^(w^'\\'*every), (w^'"'*every-every)&^(w^'"'*every)
		// The lowest marked byte is one that is not plain. A borrow can also mark plain bytes above
		// it.
		if found := (w | control | escape | quote) & high; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '\\' || c == '"' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// Text appends a member that is a string.
func Text(b []byte, name, value string) []byte { return Quote(Key(b, name), value) }

// Int appends a member that is a whole number.
func Int[N int | int64 | uint64](b []byte, name string, value N) []byte {
	b = Key(b, name)
	if value < 0 {
		return strconv.AppendInt(b, int64(value), 10)
	}
	return strconv.AppendUint(b, uint64(value), 10)
}

// Bool appends a member that is true or false.
func Bool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(Key(b, name), value)
}

// TextIfAny is [Text] for a member that is left out if it is empty.
func TextIfAny(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return Text(b, name, value)
}

// BoolIfTrue is [Bool] for a member that is left out if it is false.
func BoolIfTrue(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return Bool(b, name, value)
}

// ASCII escapes all characters beyond ASCII in the JSON text that begins at an index of the buffer,
// as \uXXXX, in pairs above the first plane. The text means the same: outside its strings, JSON is
// always ASCII. Bytes that are no UTF-8 become the escape of the replacement character.
//
// It is for readers that decode a stream piece by piece: no piece can end in the middle of a
// character. For a text that is ASCII already, it costs one scan.
func ASCII(b []byte, from int) []byte {
	first, more := toEscape(b, from)
	if more == 0 {
		return b
	}
	// The rest of the text moves to the end of the buffer and is read from there: the writes never
	// overtake the reads.
	end := len(b)
	b = slices.Grow(b, more)[:end+more]
	rest := b[first+more:]
	copy(rest, b[first:end])
	for write := first; len(rest) > 0; {
		if rest[0] < utf8.RuneSelf {
			b[write] = rest[0]
			write, rest = write+1, rest[1:]
			continue
		}
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		if r >= firstOfPairs {
			putEscape(b[write:], 0xD800+(r-firstOfPairs)>>10)
			write += escapeBytes
			r = 0xDC00 + (r-firstOfPairs)&0x3FF
		}
		putEscape(b[write:], r)
		write += escapeBytes
	}
	return b
}

const (
	// firstOfPairs is the first character that needs two escapes.
	firstOfPairs = 0x10000
	escapeBytes  = len(`\uXXXX`)
)

// toEscape finds the first byte that is not ASCII, and counts the bytes that the escapes add.
func toEscape(b []byte, from int) (first, more int) {
	i := from
	// Eight bytes at a time: nearly every line takes only this path.
	for ; i+8 <= len(b) && binary.NativeEndian.Uint64(b[i:])&0x8080808080808080 == 0; i += 8 {
	}
	for ; i < len(b) && b[i] < utf8.RuneSelf; i++ {
	}
	first = i
	for i < len(b) {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		more += escapeBytes - size
		if r >= firstOfPairs {
			more += escapeBytes
		}
		i += size
	}
	return first, more
}

func putEscape(b []byte, unit rune) {
	const hex = "0123456789abcdef"
	_ = b[5]
	b[0], b[1] = '\\', 'u'
	b[2], b[3], b[4], b[5] = hex[unit>>12&0xF], hex[unit>>8&0xF], hex[unit>>4&0xF], hex[unit&0xF]
}
