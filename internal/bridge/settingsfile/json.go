// Package settingsfile changes single members in the settings of other programs, in JSON
// and in TOML. Everything around a change stays byte for byte: comments, order and spaces.
// The package also reports where a text differs from the entered values.
//
// The caller must enter well-formed values, and must write the file completely or not at all.
package settingsfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON is one item in a JSON file: a member of an object, or an element of an array.
// Everything around it stays unchanged.
type JSON struct {
	// Path are the members that lead from the top to the object or the array.
	Path []string
	// Name is the member's name, or "" for an element.
	Name string
	// Ours identifies our element. A member is identified by its name.
	Ours func(value jsontext.Value) bool
	// Value is the JSON value.
	Value string
}

// String describes the item with its place, for people.
func (i *JSON) String() string {
	if i.Value == "" {
		return i.place()
	}
	return i.place() + ": " + i.Value
}

// place is the path to the item.
func (i *JSON) place() string {
	if i.Name == "" {
		return strings.Join(i.Path, ".")
	}
	return strings.Join(append(slices.Clip(i.Path), i.Name), ".")
}

// part is a member or an element with its position.
type part struct {
	name  string
	from  int
	value span
}

// Item is one entry in a text.
type Item interface {
	// Strays lists the differences between a text and the entered item, each with its place
	// and the fault. The list is empty if the text contains the item as entered. An error
	// means that the text cannot be read.
	Strays(text []byte) ([]string, error)
	// Add enters the item into a text that lacks it, and Strip removes it.
	Add(text []byte) ([]byte, error)
	Strip(text []byte) ([]byte, error)
	// String describes the item with its place, for people.
	String() string
}

type span struct{ begin, end int }

// parts returns the members of an object or the elements of an array.
func parts(text []byte, at span) (list []part, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text[at.begin:at.end]))
	open, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	kind := open.Kind()
	if kind != '{' && kind != '[' {
		return nil, fmt.Errorf("it is %s", kind)
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		var p part
		p.from = -1
		if kind == '{' {
			raw, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			name, err := jsontext.AppendUnquote(nil, raw)
			if err != nil {
				return nil, err
			}
			p.name, p.from = string(name), at.begin+int(d.InputOffset())-len(raw)
		}
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		p.value.end = at.begin + int(d.InputOffset())
		p.value.begin = p.value.end - len(raw)
		if p.from < 0 {
			p.from = p.value.begin
		}
		list = append(list, p)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind it")
	}
	return list, nil
}

// trimmed is the position of a text's value.
func trimmed(text []byte) span {
	return span{len(text) - len(bytes.TrimLeft(text, " \t\r\n")), len(bytes.TrimRight(text, " \t\r\n"))}
}

// walk follows the path as far as it exists. met are the positions on the way, the top
// first, and left is the rest of the path.
func (i *JSON) walk(text []byte) (met []span, left []string, err error) {
	met = []span{trimmed(text)}
	for n, name := range i.Path {
		list, err := parts(text, met[n])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.Join(i.Path[:n], "."), err)
		}
		at := slices.IndexFunc(list, func(p part) bool { return p.name == name })
		if at < 0 {
			return met, i.Path[n:], nil
		}
		met = append(met, list[at].value)
	}
	return met, nil, nil
}

// find returns the index of our part in a list.
func (i *JSON) find(text []byte, list []part) (at int) {
	return slices.IndexFunc(list, func(p part) bool {
		if i.Name != "" {
			return p.name == i.Name
		}
		return i.Ours(text[p.value.begin:p.value.end])
	})
}

// Strays implements [Item]. The item must be there exactly once and as entered; the order
// of its members does not matter.
func (i *JSON) Strays(text []byte) ([]string, error) {
	place := i.place()
	missing := []string{place + " is missing"}
	if i.Name == "" {
		missing[0] = "the entry in " + place + " is missing"
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return missing, nil
	}
	met, left, err := i.walk(text)
	if err != nil || len(left) > 0 {
		return missing, err
	}
	list, err := parts(text, met[len(met)-1])
	if err != nil {
		return nil, err
	}
	at := i.find(text, list)
	switch {
	case at < 0:
		return missing, nil
	case i.find(text, list[at+1:]) >= 0:
		return []string{place + " is there twice"}, nil
	case i.Name == "":
		place = fmt.Sprintf("%s[%d]", place, at)
	}
	return Differences(place, valueOf(text, list[at]), jsontext.Value(i.Value)), nil
}

// Add enters the item after all others in its place.
func (i *JSON) Add(text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	met, left, err := i.walk(text)
	if err != nil {
		return nil, err
	}
	words := i.Value
	if i.Name != "" {
		words = quote(i.Name) + ": " + words
	}
	if len(left) > 0 {
		begin, end := "[", "]"
		if i.Name != "" {
			begin, end = "{", "}"
		}
		words = begin + words + end
		for n, name := range slices.Backward(left) {
			words = quote(name) + ": " + words
			if n > 0 {
				words = "{" + words + "}"
			}
		}
	}
	into, open := met[len(met)-1], byte('{')
	if len(left) == 0 && i.Name == "" {
		open = '['
	}
	list, err := parts(text, into)
	if err != nil {
		return nil, err
	}
	if text[into.begin] != open {
		return nil, fmt.Errorf("%s: it does not begin with %c", strings.Join(i.Path[:len(i.Path)-len(left)], "."), open)
	}
	at := into.begin + 1
	if len(list) > 0 {
		at, words = list[len(list)-1].value.end, ", "+words
	}
	return slices.Concat(text[:at], []byte(words), text[at:]), nil
}

// Strip removes our items, and containers that are empty without them.
func (i *JSON) Strip(text []byte) ([]byte, error) {
	return i.strip(text, func(text []byte) []byte { return text })
}

// strip removes our items from a text. plain returns the text as JSON, with the same positions.
func (i *JSON) strip(text []byte, plain func([]byte) []byte) ([]byte, error) {
	for len(bytes.TrimSpace(text)) > 0 {
		pure := plain(text)
		met, left, err := i.walk(pure)
		if err != nil || len(left) > 0 {
			return text, err
		}
		list, err := parts(pure, met[len(met)-1])
		if err != nil {
			return nil, err
		}
		at := i.find(pure, list)
		if at < 0 {
			return text, nil
		}
		// Remove a container that holds nothing else.
		for n := len(met) - 2; len(list) == 1 && n >= 0; n-- {
			if list, err = parts(pure, met[n]); err != nil {
				return nil, err
			}
			at = slices.IndexFunc(list, func(p part) bool { return p.name == i.Path[n] })
		}
		text = cut(text, list, at)
	}
	return text, nil
}

// cut removes one of several parts, with its comma.
func cut(text []byte, list []part, at int) []byte {
	begin, end := list[at].from, list[at].value.end
	switch {
	case at > 0:
		begin = list[at-1].value.end
	case len(list) > 1:
		end = list[1].from
	}
	return slices.Concat(text[:begin], text[end:])
}

// Find returns our element of its array. It is an error if there is none.
func (i *JSON) Find(text []byte) (jsontext.Value, error) {
	met, left, err := i.walk(text)
	if err != nil || len(left) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%s is missing", i.place()))
	}
	list, err := parts(text, met[len(met)-1])
	if err != nil {
		return nil, err
	}
	at := i.find(text, list)
	if at < 0 {
		return nil, fmt.Errorf("the entry in %s is missing", i.place())
	}
	return valueOf(text, list[at]), nil
}

// At is the index of our element in its array, or -1.
func (i *JSON) At(text []byte) (int, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return -1, nil
	}
	met, left, err := i.walk(text)
	if err != nil || len(left) > 0 {
		return -1, err
	}
	list, err := parts(text, met[len(met)-1])
	return i.find(text, list), err
}

// Index is the index of our element in its array, or the index that it would get.
func (i *JSON) Index(text []byte) (int, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return 0, nil
	}
	met, left, err := i.walk(text)
	if err != nil || len(left) > 0 {
		return 0, err
	}
	list, err := parts(text, met[len(met)-1])
	if err != nil {
		return 0, err
	}
	if strays, err := i.Strays(text); err == nil && len(strays) == 0 {
		return i.find(text, list), nil
	}
	n := 0
	for _, p := range list {
		if !i.Ours(text[p.value.begin:p.value.end]) {
			n++
		}
	}
	return n, nil
}

// Differences lists the members in which a JSON value differs from the entered one.
func Differences(place string, is, want jsontext.Value) (list []string) {
	if is.Kind() != want.Kind() || is.Kind() != '{' && is.Kind() != '[' {
		if a, b := canonical(is), canonical(want); a != b {
			return []string{fmt.Sprintf("%s is %s, and %s was entered", place, Short(a), Short(b))}
		}
		return nil
	}
	have, err := parts(is, span{0, len(is)})
	asked, err2 := parts(want, span{0, len(want)})
	switch {
	case err != nil || err2 != nil:
		return []string{place + " cannot be read"}
	case is.Kind() == '[' && len(have) != len(asked):
		return []string{fmt.Sprintf("%s has %d elements, and %d were entered", place, len(have), len(asked))}
	case is.Kind() == '[':
		for i := range have {
			list = append(list, Differences(fmt.Sprintf("%s[%d]", place, i), valueOf(is, have[i]), valueOf(want, asked[i]))...)
		}
		return list
	}
	for _, a := range asked {
		at := slices.IndexFunc(have, func(h part) bool { return h.name == a.name })
		if at < 0 {
			list = append(list, place+"."+a.name+" is missing")
			continue
		}
		list = append(list, Differences(place+"."+a.name, valueOf(is, have[at]), valueOf(want, a))...)
	}
	for _, h := range have {
		if !slices.ContainsFunc(asked, func(a part) bool { return a.name == h.name }) {
			list = append(list, place+"."+h.name+" was not entered")
		}
	}
	return list
}

func valueOf(text jsontext.Value, p part) jsontext.Value { return text[p.value.begin:p.value.end] }

func canonical(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Canonicalize() // if that fails, the text is compared as it is
	return string(v)
}

// maxShown bounds the shown bytes of a value.
const maxShown = 80

// Short shortens a text to display it.
func Short(text string) string {
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}

// quote encodes a text as JSON. Invalid bytes become U+FFFD.
func quote(text string) string {
	b, _ := jsontext.AppendQuote(nil, text)
	return string(b)
}
