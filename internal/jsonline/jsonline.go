// Package jsonline writes JSON objects member by member, behind what a buffer
// holds already: the same bytes that the JSON library makes, without looking up
// what a type is made of. It is for what is written for every message; all else
// is encoded by the library.
//
// A caller opens an object with '{', adds its members in the order they shall
// have, and closes it with '}'. Names are the caller's own and are written as
// they are; texts are quoted, and what is not UTF-8 in them is replaced.
package jsonline

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Key begins a member: a comma where it is not the object's first, its name and
// a colon. The caller appends the value.
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
	b, _ = jsontext.AppendQuote(b, text) // fails for what is not UTF-8, and replaces it
	return b
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

// TextIfAny is [Text] for a member that is left out where it is empty.
func TextIfAny(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return Text(b, name, value)
}

// IntIfAny is [Int] for a member that is left out where it is zero.
func IntIfAny[N int | int64 | uint64](b []byte, name string, value N) []byte {
	if value == 0 {
		return b
	}
	return Int(b, name, value)
}

// BoolIfTrue is [Bool] for a member that is left out where it is false.
func BoolIfTrue(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return Bool(b, name, value)
}
