package ipc

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// description is the encoded answer of kernel.describe on one socket.
type description []byte

// Append writes it into an answer (wire.Written).
func (d description) Append(b []byte) []byte { return append(b, d...) }

// descriptions makes the answer of each socket at most once. It takes many milliseconds, is always
// the same, and every process that may connect can ask for it as often as it likes.
func (s *Server) descriptions() map[face]func() (description, error) {
	all := make(map[face]func() (description, error))
	for _, f := range []face{faceApp, faceOperator} {
		all[f] = sync.OnceValues(func() (description, error) {
			d, err := s.describe(f)
			if err != nil {
				return nil, err
			}
			return wire.Encode(d)
		})
	}
	return all
}

// describe lists the methods served on a socket, with the schemas of what they
// take and give, derived from the very types that decode and encode them.
func (s *Server) describe(f face) (api.Description, error) {
	d := api.Description{ProtocolVersion: api.ProtocolVersion, Version: s.version}
	for _, m := range described(s.methods, f) {
		params, err := schema.Of(m.Params, true, m.Strict)
		if err != nil {
			return d, fmt.Errorf("cannot describe the params of %s: %w", m.Name, err)
		}
		result, err := schema.Of(m.Result, false, false)
		if err != nil {
			return d, fmt.Errorf("cannot describe the result of %s: %w", m.Name, err)
		}
		entry := api.MethodDescription{Name: m.Name, Access: m.Access, Stream: m.Streams(), Params: params, Result: result}
		if m.Opening != nil {
			if entry.Opening, err = schema.Of(m.Opening, false, false); err != nil {
				return d, fmt.Errorf("cannot describe the first answer of %s: %w", m.Name, err)
			}
		}
		d.Methods = append(d.Methods, entry)
	}
	return d, nil
}

func (m *Method) served(f face) bool {
	return m.Access == AccessAny || m.Access == AccessTask || (m.Access == AccessOperator) == (f == faceOperator)
}

// described returns the methods of some sockets.
func described(methods []Method, on ...face) (list []schema.Method) {
	for i := range methods {
		m := &methods[i]
		served := slices.DeleteFunc(slices.Clone(on), func(f face) bool { return !m.served(f) })
		if len(served) == 0 {
			continue
		}
		d := schema.Method{Name: m.Name, Access: string(m.Access), Pace: string(m.Pace), Signing: m.Signing, Strict: true, Params: m.Params, Result: m.Result, Errors: m.Errors}
		for _, f := range served {
			d.Strict = d.Strict && m.strict(f)
		}
		if m.opening != nil {
			d.Opening = reflect.TypeOf(m.opening)
		}
		list = append(list, d)
	}
	return list
}

// DescribeFor lists the methods of the sockets of apps, of operators, or of both.
func DescribeFor(methods []Method, apps, operators bool) []schema.Method {
	var on []face
	if apps {
		on = append(on, faceApp)
	}
	if operators {
		on = append(on, faceOperator)
	}
	return described(methods, on...)
}
