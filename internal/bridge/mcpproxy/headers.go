package mcpproxy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// A client repeats the method, the name and some arguments of its request in headers, and a server may read
// these instead of the body. The daemon decides about the body, so the proxy refuses a request whose headers
// contradict it, and replaces the client's headers by its own, of the body that the server gets.
const (
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	paramHeader   = "Mcp-Param-"
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	// repeatingSince is the first version of the protocol with such headers.
	repeatingSince = "2026-07-28"
	// annotation is the member of an argument's schema that names its header.
	annotation = "x-mcp-header"
)

// repeats reports whether a header repeats something of a message, or would be taken for one of the protocol's
// by a server that ignores signs, as CGI makes Mcp-Name of Mcp_Name.
func repeats(name string) bool {
	if len(name) < 3 || !strings.EqualFold(name[:3], "mcp") {
		return false
	}
	switch bare := toolmap.Bare(name); bare {
	case toolmap.Bare(methodHeader), toolmap.Bare(nameHeader):
		return true
	case toolmap.Bare(versionHeader), toolmap.Bare(sessionHeader):
		return name != versionHeader && name != sessionHeader
	default:
		return strings.HasPrefix(bare, toolmap.Bare(paramHeader))
	}
}

// withoutRepeats takes these headers out, and returns their names.
func withoutRepeats(h http.Header) (names []string) {
	for name := range h {
		if repeats(name) {
			delete(h, name)
			names = append(names, name)
		}
	}
	return names
}

// repeated is a header that repeats something of a message, with its plain value. With absent, the message lacks
// the argument, and no value is right.
type repeated struct {
	header, value string
	absent        bool
}

// repeatedOf lists the headers that repeat something of a message.
func repeatedOf(p *proxy, line []byte) (all []repeated) {
	f, err := parseBody(line)
	if err != nil || f.method == "" {
		return nil
	}
	all = append(all, repeated{header: methodHeader, value: f.method})
	named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[f.method]
	if named == "" || f.params.to == 0 {
		return all
	}
	params, err := toolmap.Members(line[f.params.from:f.params.to], 0)
	if err != nil {
		return all
	}
	of, _ := toolmap.Find(params, named)
	name, ok := toolmap.Text(of.Value)
	if !ok {
		return all
	}
	all = append(all, repeated{header: nameHeader, value: name})
	if f.method != "tools/call" {
		return all
	}
	p.says.mu.Lock()
	list := p.says.headers[name]
	p.says.mu.Unlock()
	given, _ := toolmap.Find(params, "arguments")
	for _, one := range list {
		value, ok := one.in(given.Value)
		all = append(all, repeated{paramHeader + one.header, value, !ok})
	}
	return all
}

// repeat replaces the headers that repeat something of a message by the proxy's own. A header that was
// missing stays so, unless the proxy makes the request.
func repeat(p *proxy, h http.Header, line []byte, makes bool) {
	had := withoutRepeats(h)
	if makes && h.Get(versionHeader) < repeatingSince || !makes && len(had) == 0 {
		return
	}
	for _, one := range repeatedOf(p, line) {
		if !one.absent && (makes || slices.Contains(had, http.CanonicalHeaderKey(one.header))) {
			h.Set(one.header, inHeader(one.value))
		}
	}
}

// contradicts names a header that says something else than the message, or "". The protocol has servers refuse
// such requests since its first version with these headers.
func contradicts(p *proxy, h http.Header, line []byte) string {
	if h.Get(versionHeader) < repeatingSince {
		return ""
	}
	for _, one := range repeatedOf(p, line) {
		for _, said := range h.Values(one.header) {
			if text, ok := ofHeader(said); one.absent || !ok || text != one.value {
				return one.header
			}
		}
	}
	return ""
}

// mismatchLine answers such a request, with the code that the protocol has for it.
func mismatchLine(id jsontext.Value, header string) []byte {
	if id == nil {
		id = jsontext.Value("null")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%s}}`+"\n", id, api.String("ocipd: the header "+header+" does not match the body"))
}

// The parts of a header's value around an encoded text.
const encodedFrom, encodedTo = "=?base64?", "?="

// ofHeader reads the value of a header, as inHeader writes it.
func ofHeader(value string) (text string, ok bool) {
	value = strings.Trim(value, " \t")
	inner, opens := strings.CutPrefix(value, encodedFrom)
	inner, closes := strings.CutSuffix(inner, encodedTo)
	if !opens || !closes {
		return value, true
	}
	decoded, err := base64.StdEncoding.DecodeString(inner)
	return string(decoded), err == nil
}

// inHeader writes a text as the value of a header, encoded unless it is plain.
func inHeader(text string) string {
	foreign := strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if foreign || strings.TrimSpace(text) != text || strings.HasPrefix(text, encodedFrom) && strings.HasSuffix(text, encodedTo) {
		return encodedFrom + base64.StdEncoding.EncodeToString([]byte(text)) + encodedTo
	}
	return text
}

// annotated is an argument that a header repeats: the names of members that lead to it, and the header's end.
type annotated struct {
	path   []string
	header string
}

// in returns the argument's value in a call's arguments. Only texts, whole numbers and truth values have one.
func (a *annotated) in(arguments jsontext.Value) (string, bool) {
	at := arguments
	for _, name := range a.path {
		if at.Kind() != '{' {
			return "", false
		}
		list, err := toolmap.Members(at, 0)
		if err != nil {
			return "", false
		}
		m, _ := toolmap.Find(list, name)
		at = m.Value
	}
	switch at.Kind() {
	case '"':
		return toolmap.Text(at)
	case '0':
		n, err := strconv.ParseFloat(string(at), 64)
		if err != nil || n != float64(int64(n)) || n > toolmap.Exact || n < -toolmap.Exact {
			return "", false
		}
		return strconv.FormatInt(int64(n), 10), true
	case 't', 'f':
		return string(at), true
	}
	return "", false
}

// maxDepth bounds how deep the proxy looks for annotated arguments, and maxAnnotated how many a tool has.
const (
	maxDepth     = 8
	maxAnnotated = 64
)

// annotatedIn lists the arguments of a tool's schema that headers repeat.
func annotatedIn(properties map[string]jsontext.Value, path []string) (list []annotated) {
	for name, schema := range properties {
		if len(path) >= maxDepth || len(list) >= maxAnnotated || !strings.Contains(string(schema), annotation) {
			continue
		}
		var said struct {
			Header     jsontext.Value            `json:"x-mcp-header"`
			Properties map[string]jsontext.Value `json:"properties"`
		}
		if json.Unmarshal(schema, &said, jsontext.AllowInvalidUTF8(true)) != nil {
			continue
		}
		here := append(append([]string{}, path...), name)
		if header, ok := toolmap.Text(said.Header); ok && isToken(header) {
			list = append(list, annotated{path: here, header: header})
		}
		list = append(list, annotatedIn(said.Properties, here)...)
	}
	return list
}

// isToken reports whether a text can be part of a header's name.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
