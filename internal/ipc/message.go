package ipc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/jsonline"
)

// Request is a message from an app (protocol, IPCRequest). Token is what the
// SDK sends on every request after app.register.
type Request struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Timestamp float64        `json:"timestamp"`
	Method    string         `json:"method"`
	Params    jsontext.Value `json:"params,omitzero"`
	Token     string         `json:"token,omitzero"`
}

// Incoming is any message from the kernel: a response, an event or a chunk of a
// stream, told apart by Type.
type Incoming struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Timestamp int64          `json:"timestamp"`
	RequestID string         `json:"requestId,omitzero"`
	Success   bool           `json:"success,omitzero"`
	Result    jsontext.Value `json:"result,omitzero"`
	Error     *api.Error     `json:"error,omitempty"`
	Event     string         `json:"event,omitzero"`
	Payload   jsontext.Value `json:"payload,omitzero"`
	Chunk     jsontext.Value `json:"chunk,omitzero"`
	Done      bool           `json:"done,omitzero"`
}

// Message types of the protocol.
const (
	typeRequest  = "request"
	typeResponse = "response"
	typeEvent    = "event"
	typeStream   = "stream"
)

const (
	// MaxDepth bounds how deep a message may nest.
	MaxDepth = 64
	// maxID bounds a request id, in bytes.
	maxID = 256
)

// ParseRequest reads one line strictly: a single JSON object in UTF-8, no key
// twice, nothing behind it, nested at most [MaxDepth] deep. Unknown members are
// ignored. On an error, which is always INVALID_REQUEST, the request holds its
// id where that could be read.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if depth(line) > MaxDepth {
		return Request{ID: salvageID(line)}, api.Errorf(api.InvalidRequest, "cannot read the request: nested deeper than %d", MaxDepth)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{ID: salvageID(line)}, api.Errorf(api.InvalidRequest, "cannot read the request: %s", jsonProblem(err, "the line"))
	}
	switch {
	case r.ID == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: id is missing")
	case len(r.ID) > maxID:
		return Request{}, api.Errorf(api.InvalidRequest, "cannot read the request: id is longer than %d bytes", maxID)
	case r.Type == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: type is missing")
	case r.Type != typeRequest:
		return r, api.Errorf(api.InvalidRequest, "cannot take a message of type %q from an app, want %q", r.Type, typeRequest)
	case r.Method == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: method is missing")
	}
	return r, nil
}

// depth returns how deep a line nests, without trusting it to be JSON.
func depth(line []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			inString = !inString
		case '\\':
			if inString {
				i++
			}
		case '{', '[':
			if !inString {
				level++
				deepest = max(deepest, level)
			}
		case '}', ']':
			if !inString {
				level--
			}
		}
	}
	return deepest
}

// salvageID finds the id of a request that could not be read as a whole, so
// that its sender can tell which one failed.
func salvageID(line []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return ""
		}
		if name.String() != "id" {
			if d.SkipValue() != nil {
				return ""
			}
			continue
		}
		if d.PeekKind() != '"' {
			return ""
		}
		id, err := d.ReadToken()
		if err != nil || len(id.String()) > maxID {
			return ""
		}
		return id.String()
	}
	return ""
}

// jsonProblem says what is wrong with a JSON text in words for its sender. Root
// is what the text as a whole is called.
func jsonProblem(err error, root string) string {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Sprintf("%v at byte %d", syntax.Err, syntax.ByteOffset)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		where := cmp.Or(fieldPath(semantic), root)
		return fmt.Sprintf("%s is a %s where something else belongs", where, kindName(semantic.JSONKind))
	}
	return err.Error()
}

// fieldPath names the field that has the wrong type, empty where it is the text
// as a whole.
func fieldPath(e *json.SemanticError) string {
	return strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	case '[':
		return "list"
	}
	return "value"
}

// validator is what parameters know of their own fields.
type validator interface{ Validate() []api.FieldError }

// decodeParams reads a method's parameters, which [ParseRequest] has found to be
// strict JSON already. Absent and null parameters are an empty object.
func decodeParams[P any](raw jsontext.Value) (*P, error) {
	p := new(P)
	if len(raw) > 0 && raw.Kind() != 'n' {
		if err := json.Unmarshal(raw, p, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
			path := "params"
			if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
				path = cmp.Or(fieldPath(semantic), path)
			}
			problem := jsonProblem(err, path)
			return nil, &api.Error{Code: api.InvalidParams, Message: "cannot read params: " + problem,
				Details: []api.FieldError{{Path: path, Message: problem}}}
		}
	}
	if v, ok := any(p).(validator); ok {
		if err := api.Invalid(v.Validate()); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// The frames below are written by hand, member by member in the order of the
// protocol's examples, since they are the hottest path of the daemon. Every
// string goes through the JSON library's quoting.

func appendHead(b []byte, id, kind string, now int64) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, id...)
	b = append(b, `","type":"`...)
	b = append(b, kind...)
	b = append(b, `","timestamp":`...)
	return strconv.AppendInt(b, now, 10)
}

// appendResponse writes an answer. A result that knows how to write itself does
// so: what is stored as JSON is not read again.
func appendResponse(b []byte, id string, now int64, requestID string, result any, failure *api.Error) []byte {
	b = appendHead(b, id, typeResponse, now)
	b = jsonline.Text(b, "requestId", requestID)
	if written, ok := result.(interface{ Append([]byte) []byte }); ok && failure == nil {
		b = jsonline.Key(jsonline.Bool(b, "success", true), "result")
		return append(written.Append(b), '}', '\n')
	}
	if failure == nil {
		encoded, err := json.Marshal(result)
		if err == nil {
			b = jsonline.Key(jsonline.Bool(b, "success", true), "result")
			b = append(b, encoded...)
			return append(b, '}', '\n')
		}
		failure = api.Errorf(api.InternalError, "cannot encode the result: %v", err)
	}
	// A message can name a file, and a file's name need not be UTF-8.
	encoded, err := json.Marshal(failure, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		encoded = []byte(`{"code":"INTERNAL_ERROR","message":"cannot encode the error"}`)
	}
	b = jsonline.Key(jsonline.Bool(b, "success", false), "error")
	b = append(b, encoded...)
	return append(b, '}', '\n')
}

// headBytes is about what a frame takes besides its payload.
const headBytes = 192

func appendEvent(b []byte, id string, now int64, event string, payload []byte) []byte {
	b = appendHead(slices.Grow(b, len(payload)+headBytes), id, typeEvent, now)
	b = jsonline.Text(b, "event", event)
	b = append(jsonline.Key(b, "payload"), payload...)
	return append(b, '}', '\n')
}

func appendChunk(b []byte, id string, now int64, requestID string, chunk []byte, done bool) []byte {
	b = appendHead(b, id, typeStream, now)
	b = jsonline.Text(b, "requestId", requestID)
	b = append(jsonline.Key(b, "chunk"), chunk...)
	b = jsonline.Bool(b, "done", done)
	return append(b, '}', '\n')
}
