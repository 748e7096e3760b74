package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/ids"
)

// Fields collects what is wrong with parameters.
type Fields []FieldError

// Add says of a field what is wrong with it.
func (f *Fields) Add(path, format string, args ...any) {
	*f = append(*f, FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Text demands a string that says something and is not endless.
func (f *Fields) Text(path, value string, limit int) {
	switch {
	case value == "":
		f.Add(path, "required")
	case len(value) > limit:
		f.Add(path, "longer than %d bytes", limit)
	}
}

// MaxName bounds a name, in bytes.
const MaxName = 256

// ID demands an id with its prefix.
func (f *Fields) ID(path, prefix, id string) {
	switch {
	case id == "":
		f.Add(path, "required")
	case !ids.Is(prefix, id):
		f.Add(path, "want %s and a UUID", prefix)
	}
}

// Maybe checks an id where there is one.
func (f *Fields) Maybe(path, prefix, id string) {
	if id != "" {
		f.ID(path, prefix, id)
	}
}

// OneOf demands a word of a list.
func (f *Fields) OneOf(path, value string, list []string) {
	switch {
	case value == "":
		f.Add(path, "required: one of %s", strings.Join(list, ", "))
	case !slices.Contains(list, value):
		f.Add(path, "%.64q is not one of %s", value, strings.Join(list, ", "))
	}
}
