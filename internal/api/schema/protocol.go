package schema

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Method is a method as it is described on one socket.
type Method struct {
	Name, Access, Pace string
	Signing            api.Signing
	// Strict is set if the daemon refuses parameters that the method does not have.
	Strict bool
	// Result is the type of a chunk if the method streams, and Opening, unless it is nil,
	// that of the answer before the first chunk.
	Params, Result, Opening reflect.Type
	// Errors are the method's own codes. Roles are the permitted roles, "" if they do not matter.
	Errors []api.Code
	Roles  string
}

// Streams reports whether the method answers in chunks.
func (m *Method) Streams() bool { return m.Pace == "streaming" }

// The definitions of the published schema that are no types.
const (
	defMethods = "Methods"
	defEvents  = "Events"
	defCode    = "ErrorCode"
	defVerdict = "VerdictCode"
)

// keyOf is in the schema of a text that is the name of a member of a definition.
const keyOf = "x-keyOf"

// Protocol is the published schema: the four forms of a message, and definitions of the
// methods, the events and every type in them. A name that has a method for apps and one for
// operators is described as either.
func Protocol(methods []Method) (*jsonschema.Schema, error) {
	m := &maker{uses: map[reflect.Type]*uses{}, names: map[string]reflect.Type{}}
	// The uses of a type are known once all types have been seen.
	for range 2 {
		m.defs = map[string]*jsonschema.Schema{}
		if err := m.methods(methods); err != nil {
			return nil, err
		}
		if err := m.events(); err != nil {
			return nil, err
		}
	}
	failure, err := m.of(reflect.TypeFor[api.Error](), use{})
	if err != nil {
		return nil, err
	}
	m.defs["ProtocolError"].Properties["code"] = &jsonschema.Schema{Ref: reference(defCode)}
	m.defs[defCode] = wordsOf(api.Codes(), "The codes of errors.")
	m.defs[defVerdict] = wordsOf(ocip.Codes(), "The codes of verdicts, in details.ocip of an error and in the member ocip of a result.")
	m.defs["RequestMessage"] = m.request()
	m.defs["ResponseMessage"] = response(failure)
	m.defs["EventMessage"] = m.event()
	m.defs["StreamMessage"] = chunk()
	forms := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", ID: "urn:openclawos:kernel-protocol:" + api.ProtocolVersion,
		Title:       "OpenClawOS kernel protocol " + api.ProtocolVersion,
		Description: "One line on a socket of ocipd: a request of a client, or a response, an event or a stream chunk of the daemon.",
		Defs:        m.defs, Extra: map[string]any{"x-protocolVersion": api.ProtocolVersion},
	}
	for _, form := range []string{"RequestMessage", "ResponseMessage", "EventMessage", "StreamMessage"} {
		forms.AnyOf = append(forms.AnyOf, &jsonschema.Schema{Ref: reference(form)})
	}
	return forms, nil
}

// methods defines the object that has a member for each method.
func (m *maker) methods(methods []Method) error {
	all := &jsonschema.Schema{Type: "object", Description: "The methods: what each takes and gives.", Properties: map[string]*jsonschema.Schema{}}
	for i := range methods {
		row := &methods[i]
		one, err := m.method(row)
		if err != nil {
			return fmt.Errorf("cannot describe %s: %w", row.Name, err)
		}
		was := all.Properties[row.Name]
		if was == nil {
			all.Properties[row.Name] = one
			all.PropertyOrder = append(all.PropertyOrder, row.Name)
			all.Required = all.PropertyOrder
			continue
		}
		for name, member := range one.Properties {
			was.Properties[name] = either(was.Properties[name], member)
		}
		was.Extra["x-access"] = append(was.Extra["x-access"].([]string), row.Access)
		if row.Signing != "" {
			was.Extra["x-signing"] = row.Signing
		}
		was.Extra["x-errors"] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(was.Extra["x-errors"].([]api.Code), row.Errors))))
	}
	m.defs[defMethods] = all
	return nil
}

// method is an object with the params and the result of a method.
func (m *maker) method(row *Method) (*jsonschema.Schema, error) {
	params, err := m.of(row.Params, use{params: true, strict: row.Strict})
	if err != nil {
		return nil, err
	}
	if row.Strict && m.uses[row.Params].lenient {
		params.UnevaluatedProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	result, err := m.of(row.Result, use{})
	if err != nil {
		return nil, err
	}
	s := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{"params": params, "result": result}, PropertyOrder: []string{"params", "result"},
		Extra: map[string]any{"x-access": []string{row.Access}, "x-pace": row.Pace, "x-stream": row.Streams(), "x-errors": append([]api.Code{}, row.Errors...)},
	}
	if row.Signing != "" {
		s.Extra["x-signing"] = row.Signing
	}
	if row.Opening != nil {
		if s.Properties["opening"], err = m.of(row.Opening, use{}); err != nil {
			return nil, err
		}
		s.PropertyOrder = append(s.PropertyOrder, "opening")
	}
	s.Required = s.PropertyOrder
	return s, nil
}

// either is one schema or the other.
func either(a, b *jsonschema.Schema) *jsonschema.Schema {
	if a == nil || reflect.DeepEqual(a, b) {
		return b
	}
	if a.Ref == b.Ref && a.Ref != "" {
		return &jsonschema.Schema{Ref: a.Ref} // the one that takes further members takes all
	}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{a, b}}
}

// appEvent is the payload of the events about an app.
type appEvent struct {
	AppID      string `json:"appId"`
	LastSeenAt int64  `json:"lastSeenAt"`
	Timestamp  int64  `json:"timestamp"`
}

// laggingEvent is the payload of [api.KernelLagging].
type laggingEvent struct {
	Reason string `json:"reason"`
}

// payloads are the types of the payloads of events besides hooks.
func payloads() map[string]reflect.Type {
	about := reflect.TypeFor[appEvent]()
	return map[string]reflect.Type{
		api.AppUnhealthy: about, api.AppHealthy: about, api.AppLeft: about, api.AppLost: about,
		api.KernelLagging: reflect.TypeFor[laggingEvent](), api.KernelResumed: reflect.TypeFor[api.Empty](),
		api.ApprovalEvent:     reflect.TypeFor[api.ApprovalOutcome](),
		fleetapi.ReceiptEvent: reflect.TypeFor[fleetapi.MessageReceipt](),
	}
}

// events defines the object that has a member for each event: its payload.
func (m *maker) events() error {
	all := &jsonschema.Schema{Type: "object", Description: "The events: the payload of each.", Properties: map[string]*jsonschema.Schema{}}
	names := api.Events()
	for _, name := range slices.Sorted(maps.Keys(hookEvents())) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		s, err := m.payload(name)
		if err != nil {
			return fmt.Errorf("cannot describe the event %s: %w", name, err)
		}
		all.Properties[name] = s
		all.PropertyOrder = append(all.PropertyOrder, name)
	}
	all.Required = all.PropertyOrder
	m.defs[defEvents] = all
	return nil
}

// hookEvents maps the names of the events of hooks to the hooks: one for each name that an app
// can subscribe with.
func hookEvents() map[string]api.Hook {
	names := make(map[string]api.Hook)
	for _, hook := range api.Hooks() {
		names["hook:"+string(hook)] = hook
		if alias := hook.Alias(); alias != "" {
			names["hook:"+alias] = hook
		}
	}
	return names
}

// payload is the schema of the payload of an event. The events of hooks have a common form, and
// data of their own.
func (m *maker) payload(event string) (*jsonschema.Schema, error) {
	hook, ok := hookEvents()[event]
	if !ok {
		return m.of(payloads()[event], use{})
	}
	form, err := m.of(reflect.TypeFor[api.HookEvent](), use{})
	if err != nil {
		return nil, err
	}
	data, err := m.of(hook.Data(), use{})
	if err != nil {
		return nil, err
	}
	if hook.Open() {
		data = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{data, {Type: "object"}}}
	}
	return &jsonschema.Schema{AllOf: []*jsonschema.Schema{form, {
		Type: "object", Properties: map[string]*jsonschema.Schema{"data": data}, PropertyOrder: []string{"data"}, Required: []string{"data"},
	}}}, nil
}

// line begins the form of a message: its members, of which the first ones are in each.
func line(kind, about string, members ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Description: about, PropertyOrder: append([]string{"id", "type", "timestamp"}, members...),
		Properties: map[string]*jsonschema.Schema{
			"id": {Type: "string", MinLength: new(1), MaxLength: new(256)}, "type": constant(kind),
			"timestamp": {Type: "number", Description: "Unix milliseconds."},
		},
		Required: []string{"id", "type"},
	}
	for _, name := range members {
		s.Properties[name] = &jsonschema.Schema{Type: "string"}
	}
	return s
}

// request is the form of a request, the params by the method.
func (m *maker) request() *jsonschema.Schema {
	s := line("request", "A request. Every app's request after app.register has its token.", "method", "params", "token", "signature")
	s.Required = append(s.Required, "method")
	s.Properties["params"] = &jsonschema.Schema{Description: "The method's parameters. None is {}."}
	names := m.defs[defMethods].PropertyOrder
	s.Properties["method"] = wordsOf(names, "")
	s.Properties["method"].Extra = map[string]any{keyOf: defMethods}
	for _, name := range names {
		then := &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"params": {Ref: reference(defMethods, "properties", name, "properties", "params")}}}
		if len(m.required(m.defs[defMethods].Properties[name].Properties["params"])) > 0 {
			then.Required = []string{"params"}
		}
		s.AllOf = append(s.AllOf, named("method", name, then))
	}
	return s
}

// required are the members that a schema demands, or one that it refers to.
func (m *maker) required(s *jsonschema.Schema) []string {
	for name, def := range m.defs {
		if s.Ref == reference(name) {
			return def.Required
		}
	}
	if len(s.AnyOf) > 0 {
		return m.required(s.AnyOf[0])
	}
	return s.Required
}

// response is the form of a response: a success with a result, or a failure with an error.
func response(failure *jsonschema.Schema) *jsonschema.Schema {
	s := line("response", "The answer to a request. The result is that of the request's method.", "requestId", "success", "result", "error", "stream")
	s.Required = append(s.Required, "timestamp", "requestId", "success")
	s.Properties["success"], s.Properties["result"], s.Properties["error"] = &jsonschema.Schema{Type: "boolean"}, &jsonschema.Schema{}, failure
	s.Properties["stream"] = &jsonschema.Schema{Type: "boolean", Description: "Set if chunks follow under the same requestId."}
	s.AnyOf = []*jsonschema.Schema{
		{Properties: map[string]*jsonschema.Schema{"success": constant(true)}, Required: []string{"result"}},
		{Properties: map[string]*jsonschema.Schema{"success": constant(false)}, Required: []string{"error"}},
	}
	return s
}

// event is the form of an event, the payload by its name.
func (m *maker) event() *jsonschema.Schema {
	s := line("event", "Something that the daemon tells an app by itself.", "event", "payload")
	s.Required = append(s.Required, "timestamp", "event", "payload")
	s.Properties["payload"] = &jsonschema.Schema{}
	names := m.defs[defEvents].PropertyOrder
	s.Properties["event"] = wordsOf(names, "")
	s.Properties["event"].Extra = map[string]any{keyOf: defEvents}
	for _, name := range names {
		s.AllOf = append(s.AllOf, named("event", name, &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"payload": {Ref: reference(defEvents, "properties", name)}}}))
	}
	return s
}

// chunk is the form of one part of a streaming answer.
func chunk() *jsonschema.Schema {
	s := line("stream", "A chunk of a streaming answer. The last one is null and has done set.", "requestId", "chunk", "done")
	s.Required = append(s.Required, "timestamp", "requestId", "chunk", "done")
	s.Properties["chunk"], s.Properties["done"] = &jsonschema.Schema{}, &jsonschema.Schema{Type: "boolean"}
	return s
}

// named is a schema that holds where a member has a value.
func named(member, value string, then *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{
		If:   &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{member: constant(value)}, Required: []string{member}},
		Then: then,
	}
}

func constant(value any) *jsonschema.Schema { return &jsonschema.Schema{Const: &value} }

// wordsOf is a text that is one of a list.
func wordsOf[S ~string](list []S, about string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: about}
	for _, word := range list {
		if !slices.Contains(s.Enum, any(string(word))) {
			s.Enum = append(s.Enum, string(word))
		}
	}
	return s
}
