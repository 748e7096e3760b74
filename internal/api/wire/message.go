package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
)

// Request is a message from an app (protocol, IPCRequest). Token is the token that the SDK sends
// with every request after app.register.
type Request struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Timestamp float64        `json:"timestamp"`
	Method    string         `json:"method"`
	Params    jsontext.Value `json:"params,omitzero"`
	Token     string         `json:"token,omitzero"`
	// Signature is a person's, over the call of an operator's method.
	Signature string `json:"signature,omitzero"`
	// Behalf is the process for which a program of the operator calls, as pid@start.
	Behalf string `json:"behalf,omitzero"`

	// mended is how many halves of characters were replaced in the line.
	mended int
	// oddNumbers is set if a number of the line is longer than usual or has an exponent, so that
	// those of the parameters are looked at.
	oddNumbers bool
}

// Incoming is any message from the kernel: a response, an event or a chunk of a
// stream, told apart by Type.
type Incoming struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Timestamp int64  `json:"timestamp"`
	RequestID string `json:"requestId,omitzero"`
	Success   bool   `json:"success,omitzero"`
	// Stream is set in a response that chunks follow.
	Stream  bool           `json:"stream,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   *api.Error     `json:"error,omitempty"`
	Event   string         `json:"event,omitzero"`
	Payload jsontext.Value `json:"payload,omitzero"`
	Chunk   jsontext.Value `json:"chunk,omitzero"`
	Done    bool           `json:"done,omitzero"`
}

// Mended is how many halves of characters [ParseRequest] replaced in the line.
func (r *Request) Mended() int { return r.mended }

// Message types of the protocol.
const (
	TypeRequest  = "request"
	TypeResponse = "response"
	TypeEvent    = "event"
	TypeStream   = "stream"
)

const (
	// MaxDepth bounds how deep a message may nest.
	MaxDepth = 64
	// maxID bounds a request id, in bytes.
	maxID = 256
	// maxNumber bounds a number in parameters, in characters. Some readers fail at
	// numbers of thousands of digits, and none needs more than a few dozen.
	maxNumber = 64
)

// ParseRequest reads one line strictly: a single JSON object in UTF-8, no key
// twice, nothing behind it, nested at most [MaxDepth] deep. Unknown members are
// ignored. On an error, which is always INVALID_REQUEST, the request holds its
// id where that could be read.
//
// One thing is mended: half of a character, such as "\ud83d" alone, the rest of a JavaScript text
// that was cut inside an emoji. It becomes U+FFFD, but not in the request's id.
func ParseRequest(line []byte) (Request, error) {
	r, ok := parseUsual(line)
	if !ok {
		var err error
		if r, err = parseAny(line); err != nil {
			return r, err
		}
	}
	switch {
	case r.ID == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: id is missing")
	case len(r.ID) > maxID:
		return Request{}, api.Errorf(api.InvalidRequest, "cannot read the request: id is longer than %d bytes", maxID)
	case r.Type == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: type is missing")
	case r.Type != TypeRequest:
		return r, api.Errorf(api.InvalidRequest, "cannot take a message of type %q from an app, want %q", r.Type, TypeRequest)
	case r.Method == "":
		return r, api.Errorf(api.InvalidRequest, "cannot read the request: method is missing")
	}
	return r, nil
}

// parseAny reads any line, by the JSON library.
func parseAny(line []byte) (Request, error) {
	var r Request
	deepest, odd := survey(line)
	if deepest > MaxDepth {
		return Request{ID: SalvageID(line)}, api.Errorf(api.InvalidRequest, "cannot read the request: nested deeper than %d", MaxDepth)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		mended, n := mendSurrogates(line)
		if n == 0 || json.Unmarshal(mended, &r) != nil || strings.ContainsRune(r.ID, utf8.RuneError) {
			return Request{ID: SalvageID(line)}, api.Errorf(api.InvalidRequest, "cannot read the request: %s", jsonProblem(err, "the line"))
		}
		r.mended = n
	}
	r.oddNumbers = odd
	return r, nil
}

// survey returns how deep a line nests, without trusting it to be JSON, and
// whether it has a number that [Request.CheckNumbers] may refuse.
func survey(line []byte) (deepest int, odd bool) {
	level := 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			i += 1 + stringEnd(line[i+1:])
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		case c >= '0' && c <= '9':
			n := numberEnd(line[i:])
			odd = odd || n > maxNumber || bytes.ContainsAny(line[i:i+n], "eE")
			i += n - 1
		}
	}
	return deepest, odd
}

// stringEnd returns the place of the quote that ends a string, or the length of a text without one.
func stringEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return len(b)
		}
		at := from + i
		slashes := 0
		for slashes < at && b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		from = at + 1
	}
}

// numberEnd returns where the characters of a number end.
func numberEnd(b []byte) int {
	for i, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-' {
			return i
		}
	}
	return len(b)
}

// CheckNumbers refuses parameters with a number that not every reader can hold: one
// of too many characters, or beyond what a double-precision number can be.
func (r *Request) CheckNumbers() error {
	if !r.oddNumbers {
		return nil
	}
	return checkNumbers(r.Params)
}

func checkNumbers(params jsontext.Value) error {
	d := jsontext.NewDecoder(bytes.NewReader(params), jsontext.AllowDuplicateNames(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil // the end: the text was found to be JSON before
		}
		if token.Kind() != '0' {
			continue
		}
		text, problem := token.String(), ""
		if len(text) > maxNumber {
			problem = fmt.Sprintf("a number of %d characters, limit %d", len(text), maxNumber)
		} else if _, err := strconv.ParseFloat(text, 64); err != nil {
			problem = "a number beyond what a double-precision number can be"
		}
		if problem != "" {
			return api.Invalid([]api.FieldError{{Path: cmp.Or(dotted(d.StackPointer()), "params"), Message: problem}})
		}
	}
}

// mendSurrogates returns the line with U+FFFD in the place of every escape that is
// half of a character, and how many there were.
func mendSurrogates(line []byte) (mended []byte, n int) {
	const escape = len(`\uXXXX`)
	mended = line
	for i := 0; i+escape <= len(line); {
		switch {
		case line[i] != '\\':
			i++
		case line[i+1] != 'u':
			i += 2
		default:
			unit, ok := escapedUnit(line[i:])
			if !ok {
				i += 2
				break
			}
			if utf16.IsSurrogate(unit) {
				if low, ok := escapedUnit(line[i+escape:]); ok && utf16.DecodeRune(unit, low) != utf8.RuneError {
					i += 2 * escape
					break
				}
				if n == 0 {
					mended = bytes.Clone(line)
				}
				copy(mended[i:], `\ufffd`)
				n++
			}
			i += escape
		}
	}
	return mended, n
}

// escapedUnit reads the escape that a text begins with.
func escapedUnit(b []byte) (unit rune, ok bool) {
	if len(b) < len(`\uXXXX`) || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

// SalvageID finds the id of a request that could not be read as a whole, so
// that its sender can tell which one failed.
func SalvageID(line []byte) string {
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

// jsonProblem describes the fault of a JSON text for its sender. Root is the name of the whole
// text.
func jsonProblem(err error, root string) string {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Sprintf("%v at byte %d", syntax.Err, syntax.ByteOffset)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return unknownMember(semantic.JSONPointer)
		}
		where := cmp.Or(fieldPath(semantic), root)
		return fmt.Sprintf("%s is a %s where something else belongs", where, kindName(semantic.JSONKind))
	}
	return err.Error()
}

// unknownMember names a member that nothing reads, and the object that it stands in.
func unknownMember(at jsontext.Pointer) string {
	in := ""
	if parent := dotted(at.Parent()); parent != "" {
		in = " in " + parent
	}
	return fmt.Sprintf("there is no member %.64q%s", at.LastToken(), in)
}

// fieldPath names the field that has the wrong type, empty if it is the text as a whole.
func fieldPath(e *json.SemanticError) string {
	return dotted(e.JSONPointer)
}

// dotted is a place in a JSON text as errors name it.
func dotted(p jsontext.Pointer) string {
	return strings.Join(slices.Collect(p.Tokens()), ".")
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

// DecoderOf makes what reads a method's parameters, which [ParseRequest] has found to be strict
// JSON already. Absent and null parameters are an empty object. If strict is set, a member that the
// method does not have is refused by its name.
func DecoderOf[P any]() func(raw jsontext.Value, strict bool) (*P, error) {
	check := members.CheckerOf(reflect.TypeFor[P]())
	return func(raw jsontext.Value, strict bool) (*P, error) {
		p := new(P)
		if len(raw) > 0 && raw.Kind() != 'n' {
			if err := json.Unmarshal(raw, p, jsontext.AllowDuplicateNames(!strict), json.RejectUnknownMembers(strict), jsontext.AllowInvalidUTF8(true)); err != nil {
				path := "params"
				if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
					path = cmp.Or(fieldPath(semantic), path)
				}
				problem := jsonProblem(err, path)
				return nil, &api.Error{Code: api.InvalidParams, Message: "cannot read params: " + problem,
					Details: []api.FieldError{{Path: path, Message: problem}}}
			}
		}
		if err := api.Invalid(check(p)); err != nil {
			return nil, err
		}
		return p, nil
	}
}
