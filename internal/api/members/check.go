package members

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/decimal"
	"github.com/openclawos/ocipd/internal/base/ids"
)

// ruled are parameters with rules between members.
type ruled interface{ Rules() api.Fields }

// CheckerOf returns a function that checks parameters of a type, given as a pointer: first the
// members in their order, then the rules between them. Only CheckerOf reads the tags.
func CheckerOf(t reflect.Type) func(params any) []api.FieldError {
	p := planOf(t)
	return func(params any) []api.FieldError {
		var f api.Fields
		if len(p) > 0 {
			p.check(reflect.ValueOf(params).Elem(), "", &f)
		}
		if r, ok := params.(ruled); ok {
			f = append(f, r.Rules()...)
		}
		return f
	}
}

// Check checks the parameters that a pointer to a struct gives. Use [CheckerOf] for repeated checks.
func Check(params any) []api.FieldError { return CheckerOf(reflect.TypeOf(params).Elem())(params) }

// plan lists the checks of a struct: of its members with bounds, and of members whose own members
// have bounds.
type plan []rule

// rule is the checks of one member.
type rule struct {
	Bounds
	name  string
	field int
	kind  kind
	// pointer is set if the value is behind a pointer.
	pointer bool
	// plain is set for a text with no bounds but its length and its form.
	plain bool
	// inner is the plan of a struct, or of a list's items that are structs; items is the rule of
	// other items.
	inner plan
	items *rule
}

// kind is how a member is checked.
type kind int

const (
	text kind = iota
	said
	number
	raw
	moment
	list
	dictionary
	structure
	other
)

// planOf makes the plan of a struct.
func planOf(t reflect.Type) (p plan) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		r := ruleOf(f.Type, Of(f))
		r.name, r.field = name, f.Index[0]
		if r.none() && r.inner == nil {
			continue
		}
		p = append(p, r)
	}
	return p
}

// ruleOf returns the rule of values of a type.
func ruleOf(t reflect.Type, b Bounds) rule {
	r := rule{Bounds: b, kind: other}
	if t.Kind() == reflect.Pointer {
		r.pointer, t = true, t.Elem()
	}
	switch {
	case t == reflect.TypeFor[jsontext.Value]():
		r.kind = raw
	case t == api.TextForm():
		r.kind = said
	case t == reflect.TypeFor[time.Time]():
		r.kind = moment
	case t.Kind() == reflect.String:
		r.kind, r.plain = text, b.Max > 0 && b.Prefix == "" && b.Words == nil && b.Keeps == 0
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		r.kind = number
	case t.Kind() == reflect.Map:
		r.kind = dictionary
	case t.Kind() == reflect.Struct:
		r.kind, r.inner = structure, planOf(t)
	case t.Kind() == reflect.Slice:
		r.kind = list
		if t.Elem().Kind() == reflect.Struct {
			r.inner = planOf(t.Elem())
		} else if b.Each != nil {
			items := ruleOf(t.Elem(), *b.Each)
			r.items = &items
		}
	}
	return r
}

// check checks a struct that stands at a path, "" or one that ends with a point.
func (p plan) check(v reflect.Value, at string, f *api.Fields) {
	for i := range p {
		r := &p[i]
		switch {
		case r.kind == text && !r.pointer: // most members are
			if s := v.Field(r.field).String(); s == "" {
				r.absent(at+r.name, r.Required || r.Nonempty, f)
			} else if !r.plain || len(s) > r.Max || r.Form != nil && !r.Form.fits(s) {
				r.text(s, at+r.name, f)
			}
		case r.name == "" && r.kind == structure:
			r.inner.check(v.Field(r.field), at, f)
		default:
			r.check(v.Field(r.field), at+r.name, f)
		}
	}
}

// check checks one value.
func (r *rule) check(v reflect.Value, path string, f *api.Fields) {
	given := false
	if r.pointer {
		if v.IsNil() {
			r.absent(path, r.Required, f)
			return
		}
		v, given = v.Elem(), true
	}
	switch r.kind {
	case text:
		if s := v.String(); s != "" {
			r.text(s, path, f)
		} else {
			r.absent(path, r.Required && !given || r.Nonempty, f)
		}
	case number:
		if n := v.Int(); n == 0 && r.Required && !given {
			f.Add(path, "required")
		} else if r.Ranged {
			r.number(n, path, f)
		}
	case raw:
		r.raw(v.Bytes(), path, f)
	case said, moment:
		r.absent(path, r.Required && !given && v.IsZero(), f)
	case list:
		r.list(v, path, f)
	case dictionary:
		r.absent(path, r.Required && v.IsNil(), f)
		r.size(v.Len(), "items", path, f)
	case structure:
		r.inner.check(v, path+".", f)
	case other:
	}
}

// absent says of a member that is not there, or empty, that it is required.
func (r *rule) absent(path string, wrong bool, f *api.Fields) {
	switch {
	case !wrong:
	case r.Words != nil:
		f.Add(path, "required: one of %s", strings.Join(r.Words, ", "))
	default:
		f.Add(path, "required")
	}
}

// text checks a text that is not empty.
func (r *rule) text(s, path string, f *api.Fields) {
	if r.size(len(s), "bytes", path, f); r.Prefix != "" && !ids.Is(r.Prefix, s) {
		f.Add(path, "want %s and a UUID", r.Prefix)
	}
	if r.Words != nil && !slices.Contains(r.Words, s) {
		f.Add(path, "%.64q is not one of %s", s, strings.Join(r.Words, ", "))
	}
	if r.Form != nil && !r.Form.fits(s) {
		r.misformed(s, path, f)
	}
}

func (r *rule) misformed(s, path string, f *api.Fields) {
	if strings.Contains(r.Form.problem, "%q") {
		f.Add(path, r.Form.problem, s)
	} else {
		f.Add(path, "%s", r.Form.problem)
	}
}

// number checks a number against its range.
func (r *rule) number(n int64, path string, f *api.Fields) {
	whole := r.Low != math.MinInt64 && r.High != math.MaxInt64
	switch {
	case n >= r.Low && n <= r.High:
	case whole:
		f.Add(path, "%d is not between %d and %d", n, r.Low, r.High)
	case n < r.Low:
		f.Add(path, "%d is less than %d", n, r.Low)
	default:
		f.Add(path, "%d is more than %d", n, r.High)
	}
}

// raw checks JSON that is kept as it came.
func (r *rule) raw(v jsontext.Value, path string, f *api.Fields) {
	switch {
	case len(v) == 0:
		r.absent(path, r.Required, f)
	case r.Object && v.Kind() != '{' && (!r.Null || v.Kind() != 'n'):
		f.Add(path, "not an object")
	}
	if r.Exact {
		if where, number, found := decimal.Inexact(v); found {
			f.Add(path+strings.ReplaceAll(where, "/", "."), "the number %.64s is another one in RFC 8785: write it as a string", number)
		}
	}
	r.size(len(v), "bytes", path, f)
}

// list checks a list and its items. Of one that is too long no items are checked, and of one
// that a task cannot keep those that it could.
func (r *rule) list(v reflect.Value, path string, f *api.Fields) {
	n := v.Len()
	if r.Required && v.IsNil() || r.Nonempty && n == 0 {
		f.Add(path, "required")
	}
	if r.size(n, "items", path, f); r.Max > 0 && n > r.Max {
		return
	}
	if r.Keeps > 0 {
		n = min(n, r.Keeps)
	}
	for i := range n {
		if r.inner != nil {
			r.inner.check(v.Index(i), path+"["+strconv.Itoa(i)+"].", f)
		} else if r.items != nil {
			r.items.check(v.Index(i), path+"["+strconv.Itoa(i)+"]", f)
		}
	}
}

// size checks how long something is.
func (r *rule) size(n int, unit, path string, f *api.Fields) {
	if r.Max > 0 && n > r.Max {
		if unit == "items" {
			f.Add(path, "more than %d items", r.Max)
		} else {
			f.Add(path, "longer than %d bytes", r.Max)
		}
	}
	if r.Keeps > 0 && n > r.Keeps {
		Keep(path, n, r.Keeps, unit, f)
	}
}

// limit is the details of an error about more than a task keeps.
type limit struct {
	Task struct {
		Code string `json:"code"`
	} `json:"task"`
}

// Keep refuses more of a member than a task may keep of it: that is no fault of its form, so
// the caller is told LIMIT.
func Keep(path string, have, most int, unit string, f *api.Fields) {
	if have <= most {
		return
	}
	what := fmt.Sprintf("more than %d %s", most, unit)
	var details limit
	details.Task.Code = "LIMIT"
	*f = append(*f, api.FieldError{Path: path, Message: what, Instead: &api.Error{Code: api.Conflict, Message: path + ": " + what, Details: details}})
}
