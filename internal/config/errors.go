package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
)

// maxErrors bounds how many problems are listed; a file with more is another
// kind of file.
const maxErrors = 50

// Error is one thing wrong with the configuration.
type Error struct {
	// File is the file, or the variable or flag that brought the value: Line
	// is then 0.
	File string
	// Line and Column count from 1, 0 where they are not known.
	Line, Column int
	// Key is the key as a [keypath.Path], empty where the file as a whole is wrong.
	Key string
	// Message says what is wrong and what would be right. Like Key it holds no
	// value that [Config.Redacted] masks.
	Message string
	// Nearest is what was probably meant, empty if nothing comes close.
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

// Errors is everything found wrong, at most 50 problems, in the order of the
// file.
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

// origin is where a value came from.
type origin struct {
	name         string
	line, column int
}

// problems collects errors and knows where each key came from.
type problems struct {
	file    string
	origins map[string]origin
	// listed is the directory file, whose places are not in origins.
	listed *listing
	list   Errors
}

// full reports whether no more problems are listed.
func (p *problems) full() bool { return len(p.list) == maxErrors }

// report adds a problem. A key is reported once: what follows from the first
// problem with it is noise.
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

// add reports a problem of one key, at the key's own place or the nearest place
// around it.
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

// bad reports a value that does not do, with the key in front.
func (p *problems) bad(key keypath.Path, format string, args ...any) {
	if p.full() {
		return
	}
	p.add(key, "", "%s: %s", masked(key), fmt.Sprintf(format, args...))
}

// Fault is something wrong with a key's value that shows only when the value is
// used, at the place the value came from.
func (c *Config) Fault(key string, why error) *Error {
	p := &problems{file: c.File, origins: c.origins, listed: c.listed}
	at, err := keypath.Compile(key)
	if err != nil {
		at = keypath.Path{}.Key(key)
	}
	p.add(at, "", "%v", why)
	return p.list[0]
}

// err returns what was found in the order of the file, then variables and
// flags. It is nil if all is well.
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
