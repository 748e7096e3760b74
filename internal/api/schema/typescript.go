package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// TypeScript writes the definitions of a published schema as TypeScript declarations.
func TypeScript(s *jsonschema.Schema) []byte {
	w := &declarations{}
	fmt.Fprintf(w, "// %s: declarations made by `ocipd protocol types`.\n", s.Title)
	for _, name := range slices.Sorted(maps.Keys(s.Defs)) {
		def := s.Defs[name]
		w.WriteString("\n")
		w.comment("", def)
		if def.Type == "object" && def.AnyOf == nil && len(def.Properties) > 0 {
			fmt.Fprintf(w, "export interface %s %s\n", name, w.typeOf(def, ""))
		} else {
			fmt.Fprintf(w, "export type %s = %s;\n", name, w.typeOf(def, ""))
		}
	}
	return []byte(w.String())
}

// declarations are the text so far.
type declarations struct{ strings.Builder }

// comment writes what is said of a type or a member.
func (w *declarations) comment(indent string, s *jsonschema.Schema) {
	if about := strings.TrimSpace(s.Description); about != "" {
		fmt.Fprintf(w, "%s/** %s */\n", indent, strings.ReplaceAll(about, "*/", "* /"))
	}
}

// identifier is a name that needs no quotes.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// typeOf is the type that a schema has in TypeScript.
func (w *declarations) typeOf(s *jsonschema.Schema, indent string) string {
	switch {
	case s.Ref != "":
		return w.path(s.Ref)
	case s.Extra[keyOf] != nil:
		return fmt.Sprintf("keyof %s", s.Extra[keyOf])
	case s.Const != nil:
		return literal(*s.Const)
	case s.Enum != nil:
		words := make([]string, len(s.Enum))
		for i, word := range s.Enum {
			words[i] = literal(word)
		}
		return strings.Join(words, " | ")
	case s.Type == "object" && len(s.Properties) > 0:
		return w.object(s, indent)
	case s.AnyOf != nil:
		return w.join(s.AnyOf, " | ", indent)
	case s.AllOf != nil:
		return w.join(s.AllOf, " & ", indent)
	}
	switch s.Type {
	case "boolean", "string":
		return s.Type
	case "integer", "number":
		return "number"
	case "null":
		return "null"
	case "array":
		if item := w.typeOf(s.Items, indent); identifier.MatchString(item) {
			return item + "[]"
		}
		return "Array<" + w.typeOf(s.Items, indent) + ">"
	case "object":
		if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
			return "Record<string, never>"
		}
		if s.AdditionalProperties != nil {
			return "Record<string, " + w.typeOf(s.AdditionalProperties, indent) + ">"
		}
		return "Record<string, unknown>"
	}
	return "unknown"
}

// join writes several types with an operator between them.
func (w *declarations) join(list []*jsonschema.Schema, operator, indent string) string {
	var kinds []string
	for _, one := range list {
		kinds = append(kinds, w.typeOf(one, indent))
	}
	return strings.Join(kinds, operator)
}

// object is the type of an object with the members of a schema.
func (w *declarations) object(s *jsonschema.Schema, indent string) string {
	inner := &declarations{}
	inner.WriteString("{\n")
	for _, name := range s.PropertyOrder {
		member, optional := s.Properties[name], "?"
		if slices.Contains(s.Required, name) {
			optional = ""
		}
		inner.comment(indent+"  ", member)
		key := name
		if !identifier.MatchString(name) {
			key = literal(name)
		}
		fmt.Fprintf(inner, "%s  %s%s: %s;\n", indent, key, optional, w.typeOf(member, indent+"  "))
	}
	if s.Extra["x-stream"] == true {
		fmt.Fprintf(inner, "%s  stream: true;\n", indent)
	}
	return inner.String() + indent + "}"
}

// path is the target of a reference: a definition, or a member of one.
func (w *declarations) path(ref string) string {
	steps := strings.Split(strings.TrimPrefix(ref, "#/$defs/"), "/properties/")
	for i, step := range steps[1:] {
		steps[i+1] = "[" + literal(step) + "]"
	}
	return strings.Join(steps, "")
}

// literal is a value as TypeScript writes it.
func literal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "never"
	}
	return string(text)
}
