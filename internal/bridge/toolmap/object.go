package toolmap

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of an object: its name, its value, and the value's position in the line.
type Member struct {
	Name     string
	Value    jsontext.Value
	From, To int
}

// ErrFrame means that a message can be read in more than one way.
var ErrFrame = errors.New("not a JSON-RPC message that can be told apart")

// Exact is the largest integer up to which doubles represent every integer.
const Exact = 1<<53 - 1

// Members parses an object strictly: nothing after it, and no duplicate names. The values still
// point into the object. The offsets are those of a line in which the object begins at base.
func Members(object []byte, base int) (list []Member, err error) {
	// An escaped half of a character is the client's affair; invalid bytes are not.
	if !utf8.Valid(object) {
		return nil, fmt.Errorf("%w: it is not UTF-8", ErrFrame)
	}
	// A buffer is parsed in place; an answer may be long.
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, fmt.Errorf("%w: it is no object", ErrFrame)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		m := Member{Name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		end := int(d.InputOffset())
		m.Value = jsontext.Value(object[end-len(value) : end : end])
		m.From, m.To = base+end-len(value), base+end
		list = append(list, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something stands behind it", ErrFrame)
	}
	return list, nil
}

// folded normalizes a name for readers that ignore case or the characters that join words.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// Bare reduces a name to its letters and digits, for readers that ignore everything else.
func Bare(name string) string {
	if b, ok := bareASCII(name); ok {
		return b
	}
	return folded(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name))
}

// bareASCII is [Bare] of a name that has only ASCII, as nearly all have.
func bareASCII(name string) (bare string, ok bool) {
	b := make([]byte, 0, len(name))
	for _, c := range []byte(name) {
		switch {
		case c >= utf8.RuneSelf:
			return "", false
		case 'a' <= c && c <= 'z':
			b = append(b, c-'a'+'A')
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			b = append(b, c)
		}
	}
	return string(b), true
}

// Exactly refuses members that a lenient reader could confuse with one of the names or with
// each other.
func Exactly(list []Member, names ...string) error {
	seen := make(map[string]string, len(list))
	for _, m := range list {
		f := cmp.Or(Bare(m.Name), m.Name)
		if before, twice := seen[f]; twice {
			return fmt.Errorf("%w: %q and %q differ in case or signs alone", ErrFrame, before, m.Name)
		}
		seen[f] = m.Name
		if slices.Contains(names, m.Name) {
			continue
		}
		for _, name := range names {
			if f == Bare(name) {
				return fmt.Errorf("%w: %q is not %q", ErrFrame, m.Name, name)
			}
		}
	}
	return nil
}

// Find finds a member by its name.
func Find(list []Member, name string) (m Member, ok bool) {
	i := slices.IndexFunc(list, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return m, false
	}
	return list[i], true
}

// Text reads a string. Half a character becomes U+FFFD, and is passed on as such.
func Text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	// The value is valid JSON; the only possible error is half a character.
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b), true
}
