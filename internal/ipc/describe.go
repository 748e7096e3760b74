package ipc

import (
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// describe lists the methods served on a socket, with the schemas of what they
// take and give, derived from the very types that decode and encode them.
func (s *Server) describe(f face) (api.Description, error) {
	d := api.Description{ProtocolVersion: api.ProtocolVersion, Version: s.version}
	for i := range s.methods {
		m := &s.methods[i]
		if !m.served(f) {
			continue
		}
		params, err := schema(m.Params, m.strict(f))
		if err != nil {
			return d, fmt.Errorf("cannot describe the params of %s: %w", m.Name, err)
		}
		result, err := schema(m.Result, false)
		if err != nil {
			return d, fmt.Errorf("cannot describe the result of %s: %w", m.Name, err)
		}
		described := api.MethodDescription{Name: m.Name, Access: string(m.Access), Stream: m.Pace == Streaming, Params: params, Result: result}
		if m.opening != nil {
			if described.Opening, err = schema(reflect.TypeOf(m.opening), false); err != nil {
				return d, fmt.Errorf("cannot describe the first answer of %s: %w", m.Name, err)
			}
		}
		d.Methods = append(d.Methods, described)
	}
	return d, nil
}

func (m *Method) served(f face) bool {
	return m.Access == AccessAny || m.Access == AccessTask || (m.Access == AccessOperator) == (f == faceOperator)
}

func schema(t reflect.Type, strict bool) (*jsonschema.Schema, error) {
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[jsontext.Value](): {},
		reflect.TypeFor[ocip.Time]():      {Type: "string", Format: "date-time"},
		api.TextForm():                    {Type: "string"},
	}
	filter, form := api.FilterForm()
	var err error
	if known[filter], err = jsonschema.ForType(form, nil); err != nil {
		return nil, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	if !strict {
		open(s)
	}
	return s, nil
}

// open lets unknown members pass, as methods of apps do, and results of a later version.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 || s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
}
