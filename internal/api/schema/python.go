package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

const pythonHead = `"""%s: types made by "ocipd protocol python".

Dictionaries with the members of the protocol. A member that is optional can be absent; Python has no
type for that before 3.11, so each type has its required members in a base class.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union
`

// Python writes the definitions of a published schema as types for Python 3.9 and later. The maps of
// methods and events are left out: its types cannot depend on the name of a method.
func Python(s *jsonschema.Schema) []byte {
	w := &pythonTypes{}
	fmt.Fprintf(w, pythonHead, s.Title)
	var late strings.Builder // aliases are evaluated where they stand
	for _, name := range slices.Sorted(maps.Keys(s.Defs)) {
		def := s.Defs[name]
		switch {
		case name == defMethods || name == defEvents:
		case def.Type != "object" || def.AnyOf != nil || len(def.Properties) == 0:
			fmt.Fprintf(&late, "\n%s = %s\n", name, w.typeOf(def))
		case slices.ContainsFunc(def.PropertyOrder, reserved):
			fmt.Fprintf(&late, "\n%s = TypedDict(%s, {\n", name, literal(name))
			for _, member := range def.PropertyOrder {
				fmt.Fprintf(&late, "    %s: %s,\n", literal(member), literal(w.typeOf(def.Properties[member])))
			}
			late.WriteString("}, total=False)\n")
		default:
			w.class(name, def)
		}
	}
	return []byte(w.String() + late.String())
}

// pythonTypes are the text so far.
type pythonTypes struct{ strings.Builder }

// reserved reports whether a name cannot be that of a member of a class.
func reserved(name string) bool {
	return !identifier.MatchString(name) || slices.Contains([]string{"from", "in", "is", "class", "def", "pass", "global", "import", "as", "and", "or", "not"}, name)
}

// class writes an object. Its optional members stand in a class of their own if it has both kinds.
func (w *pythonTypes) class(name string, s *jsonschema.Schema) {
	var must, may []string
	for _, member := range s.PropertyOrder {
		if slices.Contains(s.Required, member) {
			must = append(must, member)
		} else {
			may = append(may, member)
		}
	}
	base := "TypedDict"
	if len(must) > 0 && len(may) > 0 {
		base = "_" + name
		w.members(base, "TypedDict", "", must, s)
	}
	switch {
	case len(may) == 0:
		w.members(name, "TypedDict", s.Description, must, s)
	default:
		w.members(name, base+", total=False", s.Description, may, s)
	}
}

func (w *pythonTypes) members(name, base, about string, members []string, s *jsonschema.Schema) {
	fmt.Fprintf(w, "\n\nclass %s(%s):\n", name, base)
	if about = strings.TrimSpace(about); about != "" {
		fmt.Fprintf(w, "    \"\"\"%s\"\"\"\n\n", about)
	}
	for _, member := range members {
		if about := strings.TrimSpace(s.Properties[member].Description); about != "" {
			fmt.Fprintf(w, "    # %s\n", strings.ReplaceAll(about, "\n", " "))
		}
		fmt.Fprintf(w, "    %s: %s\n", member, w.typeOf(s.Properties[member]))
	}
}

// typeOf is the type that a schema has in Python. Names of types are quoted: they may come later.
func (w *pythonTypes) typeOf(s *jsonschema.Schema) string {
	switch {
	case strings.Contains(s.Ref, "/properties/"):
		return "Any"
	case s.Ref != "":
		return "'" + strings.TrimPrefix(s.Ref, "#/$defs/") + "'"
	case s.Extra[keyOf] != nil:
		return "str"
	case s.Const != nil:
		return pythonLiteral([]any{*s.Const})
	case s.Enum != nil:
		return pythonLiteral(s.Enum)
	case s.AnyOf != nil && len(s.Properties) == 0:
		kinds := make([]string, len(s.AnyOf))
		for i, one := range s.AnyOf {
			kinds[i] = w.typeOf(one)
		}
		return "Union[" + strings.Join(kinds, ", ") + "]"
	}
	switch s.Type {
	case "boolean":
		return "bool"
	case "string":
		return "str"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "null":
		return "None"
	case "array":
		return "List[" + w.typeOf(s.Items) + "]"
	case "object":
		if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
			return "Dict[str, " + w.typeOf(s.AdditionalProperties) + "]"
		}
		return "Dict[str, Any]"
	}
	return "Any"
}

// pythonLiteral is the type of some values.
func pythonLiteral(values []any) string {
	words := make([]string, len(values))
	for i, value := range values {
		switch value {
		case true:
			words[i] = "True"
		case false:
			words[i] = "False"
		default:
			words[i] = literal(value)
		}
	}
	return "Literal[" + strings.Join(words, ", ") + "]"
}
