package schema

import (
	"encoding"
	"fmt"
	"math"
	"path"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

// use is one use of a type.
type use struct {
	// params is set for parameters: a member that is left out has its zero value there.
	// In a result, a member is always there unless its tag lets it be left out.
	params bool
	// strict is set if the daemon refuses members that it does not know.
	strict bool
}

// uses are all uses of a type.
type uses struct{ params, result, lenient bool }

// maker makes schemas of types.
type maker struct {
	// defs are the definitions by name; nil to write each type where it is used.
	defs map[string]*jsonschema.Schema
	// uses are the uses of each type, and names maps names to types.
	uses  map[reflect.Type]*uses
	names map[string]reflect.Type
}

// Of makes the schema of a type, which has no references.
func Of(t reflect.Type, params, strict bool) (*jsonschema.Schema, error) {
	return new(maker).of(t, use{params: params, strict: strict})
}

// of makes the schema of a type.
func (m *maker) of(t reflect.Type, in use) (*jsonschema.Schema, error) {
	if t.Kind() == reflect.Pointer {
		return m.of(t.Elem(), in)
	}
	if form := replaced(t); form != nil {
		return m.of(form, in)
	}
	if s := known(t); s != nil {
		return s, nil
	}
	s := new(jsonschema.Schema)
	var err error
	switch kind := t.Kind(); kind {
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.Type = "integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s.Type, s.Minimum = "integer", new(float64)
	case reflect.Float32, reflect.Float64:
		s.Type = "number"
	case reflect.String:
		s.Type = "string"
	case reflect.Interface: // anything
	case reflect.Map:
		s.Type = "object"
		s.AdditionalProperties, err = m.of(t.Elem(), in)
	case reflect.Slice, reflect.Array:
		s.Type = "array"
		s.Items, err = m.of(t.Elem(), in)
	case reflect.Struct:
		if m.defs != nil && t.Name() != "" {
			return m.refer(t, in)
		}
		return m.object(t, in)
	default:
		return nil, fmt.Errorf("no schema for %s", t)
	}
	return s, err
}

// known is the schema of a type that writes itself, nil if it does not.
func known(t reflect.Type) *jsonschema.Schema {
	switch {
	case t == reflect.TypeFor[jsontext.Value](), t == reflect.TypeFor[gate.Sealed]():
		return &jsonschema.Schema{}
	case t == api.TextForm():
		return &jsonschema.Schema{Type: "string"}
	case t == reflect.TypeFor[[]byte]():
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	case t.Kind() != reflect.String && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		if t.Name() == "Time" {
			return &jsonschema.Schema{Type: "string", Format: "date-time"}
		}
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// replaced is the type whose form another one has in JSON, nil if that is its own.
func replaced(t reflect.Type) reflect.Type {
	if filter, form := api.FilterForm(); t == filter {
		return form
	}
	if t.PkgPath() == reflect.TypeFor[gate.Sealed]().PkgPath() && strings.HasPrefix(t.Name(), "Shown[") {
		return t.Field(0).Type
	}
	return nil
}

// object makes the schema of a struct.
func (m *maker) object(t reflect.Type, in use) (*jsonschema.Schema, error) {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	if in.params && in.strict {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	return s, m.members(s, t, in)
}

// members adds the members of a struct, and those of structs that are embedded in it.
func (m *maker) members(s *jsonschema.Schema, t reflect.Type, in use) error {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			before, inner := s.Required, f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if err := m.members(s, inner, in); err != nil {
				return err
			}
			if inner != f.Type { // it is there as a whole or not at all
				s.Required = before
			}
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		member, err := m.of(f.Type, in)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b, required := members.Of(f), !strings.HasPrefix(options, "omit")
		switch {
		case in.params:
			required = b.Required || b.Nonempty && f.Type.Kind() == reflect.Slice
			if bound(member, &b); f.Type.Kind() == reflect.Pointer && !b.Nonempty {
				member.MinLength = nil
			}
		case required && f.Type.Kind() == reflect.Pointer:
			member = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{member, {Type: "null"}}}
		}
		member.Description = b.Doc
		if required {
			s.Required = append(s.Required, name)
		}
		s.Properties[name] = member
		s.PropertyOrder = append(s.PropertyOrder, name)
	}
	return nil
}

// maxBytes is in the schema of a text, or of JSON, that is bounded in bytes. The maxLength beside
// it is in characters, of which there are never more.
const maxBytes = "x-maxBytes"

// bound adds the bounds of a member.
func bound(s *jsonschema.Schema, b *members.Bounds) {
	most := b.Max + b.Keeps
	switch {
	case most > 0 && s.Type == "array":
		s.MaxItems = &most
	case most > 0 && s.Type == "object" && s.AdditionalProperties != nil:
		s.MaxProperties = &most
	case most > 0:
		s.Extra = map[string]any{maxBytes: most}
		if s.Type == "string" {
			s.MaxLength = &most
		}
	}
	if b.Object {
		s.Type = "object"
	}
	if b.Ranged {
		if low := float64(b.Low); b.Low != math.MinInt64 {
			s.Minimum = &low
		}
		if high := float64(b.High); b.High != math.MaxInt64 {
			s.Maximum = &high
		}
	}
	for _, word := range b.Words {
		s.Enum = append(s.Enum, word)
	}
	switch {
	case b.Prefix != "":
		s.Pattern = "^" + b.Prefix + "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
	case b.Form != nil:
		s.Pattern = b.Form.Pattern
	case (b.Required || b.Nonempty) && s.Type == "string" && b.Words == nil && s.Format == "":
		s.MinLength = new(1)
	case b.Nonempty && s.Type == "array":
		s.MinItems = new(1)
	}
	if b.Each != nil && s.Items != nil {
		bound(s.Items, b.Each)
	}
}

// refer makes a reference to the definition of a type, and notes what it is part of. A type
// of parameters that is in results too has one definition for each.
func (m *maker) refer(t reflect.Type, in use) (*jsonschema.Schema, error) {
	all := m.uses[t]
	if all == nil {
		all = new(uses)
		m.uses[t] = all
	}
	all.params, all.result = all.params || in.params, all.result || !in.params
	all.lenient = all.lenient || in.params && !in.strict
	name := nameOf(t)
	if in.params && all.result {
		name += "Input"
	}
	if other := m.names[name]; other != nil && other != t {
		return nil, fmt.Errorf("%s and %s are both %s", other, t, name)
	}
	m.names[name] = t
	ref := &jsonschema.Schema{Ref: reference(name)}
	if m.defs[name] != nil {
		return ref, nil
	}
	m.defs[name] = ref // for what refers to itself
	def, err := m.object(t, use{params: in.params, strict: in.params && !all.lenient})
	m.defs[name] = def
	return ref, err
}

// reference is the address of a definition, with further steps behind it.
func reference(steps ...string) string {
	for i, s := range steps {
		steps[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
	}
	return "#/$defs/" + strings.Join(steps, "/")
}

// nameOf names the definition of a type.
func nameOf(t reflect.Type) string {
	name, _, generic := strings.Cut(t.Name(), "[")
	if generic {
		name = strings.TrimSuffix(name, "Of")
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	switch path.Base(t.PkgPath()) {
	case "api":
		if name == "Error" {
			return "ProtocolError" // every language has an Error of its own
		}
	case "task":
		name = "Task" + strings.TrimPrefix(name, "Task")
	case "taskapi":
		if !strings.HasPrefix(name, "Runner") {
			name = "Task" + strings.TrimPrefix(name, "Task")
		}
	case "audit":
		name = "Audit" + strings.TrimPrefix(name, "Audit")
	}
	return name
}
