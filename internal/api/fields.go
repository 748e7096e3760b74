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

// Limits on names, in bytes. They bound what one app can make the kernel keep.
const (
	MaxName = 256
	MaxList = 256
)

// Names demands a list of names that is not endless.
func (f *Fields) Names(path string, values []string) {
	if len(values) > MaxList {
		f.Add(path, "more than %d items", MaxList)
		return
	}
	for i, v := range values {
		f.Text(fmt.Sprintf("%s[%d]", path, i), v, MaxName)
	}
}

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

// UpTo refuses a text that is endless.
func (f *Fields) UpTo(path, value string, limit int) {
	if len(value) > limit {
		f.Add(path, "longer than %d bytes", limit)
	}
}
