package audit

import (
	"bytes"
	"cmp"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Filter selects records. An empty member selects all.
type Filter struct {
	// Since and Until bound the time, Until exclusive.
	Since, Until time.Time
	// Like holds the texts ([Members]) that a record must have. Those of [Filters] are in the
	// filter's JSON, and are found without reading every record.
	Like Record
	// Text must be contained in the reason, in any case.
	Text string
}

// Fold returns a reason, or a text to search in reasons, in the form for comparison.
func Fold(reason string) string { return strings.ToLower(reason) }

// Named returns the filter with the instance ids of agents in place of their names. Instance returns the
// instance id of an agent by its name, "" if no agent has it.
func (f Filter) Named(instance func(name string) string) Filter {
	for _, id := range []*string{&f.Like.AgentID, &f.Like.Counterparty.InstanceID} {
		*id = cmp.Or(instance(*id), *id)
	}
	return f
}

// Match reports whether a line is selected. It searches the bytes for the filter's values first,
// since most lines lack them and need no decoding.
func (f *Filter) Match(line []byte) bool {
	for _, want := range f.Wants() {
		quoted, err := json.Marshal(want)
		if err != nil || !bytes.Contains(line, quoted) && !bytes.Contains(line, text.EscapeJSON(quoted, 0)) {
			return false
		}
	}
	if f.Text != "" && (!bytes.Contains(line, []byte(`"policyReason":"`)) || !utf8.ValidString(f.Text)) {
		return false
	}
	e, err := Parse(line)
	if err != nil {
		return false
	}
	for m, want := range f.Wants() {
		if want != *m.Of(&e.Record) {
			return false
		}
	}
	if f.Text != "" && !strings.Contains(Fold(e.PolicyReason), Fold(f.Text)) {
		return false
	}
	return (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || e.Time.Before(f.Until))
}

// Wants yields the members that a record must have, and their values.
func (f *Filter) Wants() func(yield func(*Member, string) bool) {
	return func(yield func(*Member, string) bool) {
		list := Members()
		for i := range list {
			if want := *list[i].Of(&f.Like); want != "" && !yield(&list[i], want) {
				return
			}
		}
	}
}

// Unbounded reports whether the filter selects every record.
func (f *Filter) Unbounded() bool {
	for range f.Wants() {
		return false
	}
	return f.Since.IsZero() && f.Until.IsZero() && f.Text == ""
}

// IsZero reports whether the filter is omitted in JSON.
func (f Filter) IsZero() bool { return f.Unbounded() }

// FilterForm returns the type with a filter's form in JSON: times as in RFC 3339, the text, and
// members by their names in filters.
func FilterForm() reflect.Type { return filterForm() }

var filterForm = sync.OnceValue(func() reflect.Type {
	field := func(goName, name string, t reflect.Type) reflect.StructField {
		return reflect.StructField{Name: goName, Type: t, Tag: reflect.StructTag(`json:"` + name + `,omitzero"`)}
	}
	at, word := reflect.TypeFor[time.Time](), reflect.TypeFor[string]()
	fields := []reflect.StructField{field("Since", "since", at), field("Until", "until", at), field("Text", "text", word)}
	for _, m := range Filters() {
		fields = append(fields, field(strings.ToUpper(m.Filter[:1])+m.Filter[1:], m.Filter, word))
	}
	return reflect.StructOf(fields)
})

// each visits the members of the filter with their places in the form.
func (f *Filter) each(form reflect.Value, visit func(own, in reflect.Value)) {
	own := []any{&f.Since, &f.Until, &f.Text}
	for _, m := range Filters() {
		own = append(own, m.Of(&f.Like))
	}
	for i, p := range own {
		visit(reflect.ValueOf(p).Elem(), form.Field(i))
	}
}

// MarshalJSONTo writes the form.
func (f Filter) MarshalJSONTo(enc *jsontext.Encoder) error {
	form := reflect.New(FilterForm()).Elem()
	f.each(form, func(own, in reflect.Value) { in.Set(own) })
	return json.MarshalEncode(enc, form.Interface())
}

// UnmarshalJSONFrom reads the form.
func (f *Filter) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	form := reflect.New(FilterForm())
	if err := json.UnmarshalDecode(dec, form.Interface()); err != nil {
		return err
	}
	f.each(form.Elem(), func(own, in reflect.Value) { own.Set(in) })
	return nil
}
