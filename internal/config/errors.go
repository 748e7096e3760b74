package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
)

// maxErrors bounds the listed problems; a file with more is probably not a configuration.
const maxErrors = 50

// Error is one fault of the configuration.
type Error struct {
	// File is the file, or the variable or flag of the value: Line is then 0.
	File string
	// Line and Column count from 1, and are 0 if unknown.
	Line, Column int
	// Key is the key as a [keypath.Path], empty for a fault of the whole file.
	Key string
	// Message names the fault and the correct form. Like Key it holds no value that
	// [Config.Redacted] masks.
	Message string
	// Nearest is the probably intended word, or "".
	Nearest string
}

// Error returns one line such as
//
//	ocipd.yaml:12:3: unknown key "agnets": did you mean "agents"?
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ":%d", e.Column)
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Nearest != "" {
		fmt.Fprintf(&b, ": did you mean %q?", e.Nearest)
	}
	return b.String()
}

// Errors are all faults, at most 50, in the order of the file.
type Errors []*Error

// Error returns one line a problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each [Error].
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// origin is the origin of a value.
type origin struct {
	name         string
	line, column int
}

// problems collects faults and knows the origin of each key.
type problems struct {
	file    string
	origins map[string]origin
	// listed is the directory file, whose positions are not in origins.
	listed *listing
	list   Errors
}

// full reports whether the list is full.
func (p *problems) full() bool { return len(p.list) == maxErrors }

// report adds a fault, once for each key: further faults of a key usually follow from the first.
func (p *problems) report(at origin, key keypath.Path, nearest, message string) {
	if p.full() {
		return
	}
	text := masked(key)
	if slices.ContainsFunc(p.list, func(e *Error) bool { return text != "" && e.Key == text }) {
		return
	}
	p.list = append(p.list, &Error{
		File: at.name, Line: at.line, Column: at.column,
		Key: text, Message: mask.Scrub(message), Nearest: nearest,
	})
}

// add reports a fault of one key, at its position or the nearest enclosing one.
func (p *problems) add(key keypath.Path, nearest, format string, args ...any) {
	if p.full() {
		return
	}
	at := origin{name: p.file}
	for i := len(key); i > 0; i-- {
		o, ok := p.origins[key[:i].String()]
		if !ok {
			o, ok = p.listed.find(key[:i])
		}
		if ok {
			at = o
			break
		}
	}
	p.report(at, key, nearest, fmt.Sprintf(format, args...))
}

// bad reports an invalid value, with the key in front.
func (p *problems) bad(key keypath.Path, format string, args ...any) {
	if p.full() {
		return
	}
	p.add(key, "", "%s: %s", masked(key), fmt.Sprintf(format, args...))
}

// Fault is a fault of a key's value that shows only when the value is used, at the value's origin.
func (c *Config) Fault(key string, why error) *Error {
	p := &problems{file: c.File, origins: c.origins, listed: c.listed}
	at, err := keypath.Compile(key)
	if err != nil {
		at = keypath.Path{}.Key(key)
	}
	p.add(at, "", "%v", why)
	return p.list[0]
}

// err returns the faults in the order of the file, then those of variables and flags. It is
// nil if there are none.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(min(1, b.Line), min(1, a.Line)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return p.list
}
