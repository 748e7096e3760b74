package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonItem is one thing of ours in a file of JSON: a member of an object, or an element of
// an array. Whatever stands around it stays as it is.
type jsonItem struct {
	// path are the members that lead to the object or the array from the top.
	path []string
	// name is the member's, "" for an element.
	name string
	// ours reports whether an element is ours. A member is by its name.
	ours func(value jsontext.Value) bool
	// value is what stands there.
	value string
}

// String is the item with its place, for people.
func (i *jsonItem) String() string {
	place := strings.Join(i.path, ".")
	if i.name != "" {
		place += "." + i.name
	}
	return place + ": " + i.value
}

// part is a member or an element, and where it begins.
type part struct {
	name  string
	from  int
	value span
}

// parts reads what an object or an array holds.
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

// trimmed is where the value of a text stands.
func trimmed(text []byte) span {
	return span{len(text) - len(bytes.TrimLeft(text, " \t\r\n")), len(bytes.TrimRight(text, " \t\r\n"))}
}

// walk goes down the path as far as it is there: spans are those of what it met, the top
// first, and left is the rest of the path.
func (i *jsonItem) walk(text []byte) (met []span, left []string, err error) {
	met = []span{trimmed(text)}
	for n, name := range i.path {
		list, err := parts(text, met[n])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.Join(i.path[:n], "."), err)
		}
		at := slices.IndexFunc(list, func(p part) bool { return p.name == name })
		if at < 0 {
			return met, i.path[n:], nil
		}
		met = append(met, list[at].value)
	}
	return met, nil, nil
}

// find returns those of ours in a list.
func (i *jsonItem) find(text []byte, list []part) (at int) {
	return slices.IndexFunc(list, func(p part) bool {
		if i.name != "" {
			return p.name == i.name
		}
		return i.ours(text[p.value.begin:p.value.end])
	})
}

// isThere reports whether the item is there, once, as it should be.
func (i *jsonItem) isThere(text []byte) (bool, error) {
	met, left, err := i.walk(text)
	if err != nil || len(left) > 0 {
		return false, err
	}
	list, err := parts(text, met[len(met)-1])
	if err != nil {
		return false, err
	}
	at := i.find(text, list)
	if at < 0 || i.find(text, list[at+1:]) >= 0 {
		return false, nil
	}
	value := list[at].value
	is, want := jsontext.Value(bytes.Clone(text[value.begin:value.end])), jsontext.Value(i.value)
	return is.Canonicalize() == nil && want.Canonicalize() == nil && bytes.Equal(is, want), nil
}

// add enters the item behind all others of its place.
func (i *jsonItem) add(text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	met, left, err := i.walk(text)
	if err != nil {
		return nil, err
	}
	words := i.value
	if i.name != "" {
		words = string(appendJSON(nil, i.name)) + ": " + words
	}
	if len(left) > 0 {
		begin, end := "[", "]"
		if i.name != "" {
			begin, end = "{", "}"
		}
		words = begin + words + end
		for n, name := range slices.Backward(left) {
			words = string(appendJSON(nil, name)) + ": " + words
			if n > 0 {
				words = "{" + words + "}"
			}
		}
	}
	into, open := met[len(met)-1], byte('{')
	if len(left) == 0 && i.name == "" {
		open = '['
	}
	list, err := parts(text, into)
	if err != nil {
		return nil, err
	}
	if text[into.begin] != open {
		return nil, fmt.Errorf("%s: it does not begin with %c", strings.Join(i.path[:len(i.path)-len(left)], "."), open)
	}
	at := into.begin + 1
	if len(list) > 0 {
		at, words = list[len(list)-1].value.end, ", "+words
	}
	return slices.Concat(text[:at], []byte(words), text[at:]), nil
}

// strip takes out what is ours, and what has nothing in it without that.
func (i *jsonItem) strip(text []byte) ([]byte, error) {
	for len(bytes.TrimSpace(text)) > 0 {
		met, left, err := i.walk(text)
		if err != nil || len(left) > 0 {
			return text, err
		}
		list, err := parts(text, met[len(met)-1])
		if err != nil {
			return nil, err
		}
		at := i.find(text, list)
		if at < 0 {
			return text, nil
		}
		// What holds nothing else goes along.
		for n := len(met) - 2; len(list) == 1 && n >= 0; n-- {
			if list, err = parts(text, met[n]); err != nil {
				return nil, err
			}
			at = slices.IndexFunc(list, func(p part) bool { return p.name == i.path[n] })
		}
		text = cut(text, list, at)
	}
	return text, nil
}

// cut takes one of several out, with the comma that parts it from the others.
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
