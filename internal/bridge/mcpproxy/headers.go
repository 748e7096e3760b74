package mcpproxy

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// A client repeats the method, the name and some arguments of its request in headers, and a server may read
// these instead of the body. The daemon decides about the body, so the proxy takes the client's headers out
// and writes its own, of the body that the server gets.
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

// withoutRepeats takes these headers out, and reports whether there were any.
func withoutRepeats(h http.Header) (any bool) {
	for name := range h {
		if repeats(name) {
			delete(h, name)
			any = true
		}
	}
	return any
}

// repeat replaces the headers that repeat something of a message by the proxy's own.
func repeat(p *proxy, h http.Header, line []byte) {
	if any := withoutRepeats(h); !any && h.Get(versionHeader) < repeatingSince {
		return
	}
	f, err := parseBody(line)
	if err != nil || f.method == "" {
		return
	}
	h.Set(methodHeader, inHeader(f.method))
	named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[f.method]
	if named == "" || f.params.to == 0 {
		return
	}
	params, err := toolmap.Members(line[f.params.from:f.params.to], 0)
	if err != nil {
		return
	}
	of, _ := toolmap.Find(params, named)
	name, ok := toolmap.Text(of.Value)
	if !ok {
		return
	}
	h.Set(nameHeader, inHeader(name))
	if f.method != "tools/call" {
		return
	}
	p.mu.Lock()
	list := p.says.headers[name]
	p.mu.Unlock()
	given, _ := toolmap.Find(params, "arguments")
	for _, one := range list {
		if value, ok := one.in(given.Value); ok {
			h.Set(paramHeader+one.header, inHeader(value))
		}
	}
}

// inHeader writes a text as the value of a header, encoded unless it is plain.
func inHeader(text string) string {
	const begins, ends = "=?base64?", "?="
	foreign := strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if foreign || strings.TrimSpace(text) != text || strings.HasPrefix(text, begins) && strings.HasSuffix(text, ends) {
		return begins + base64.StdEncoding.EncodeToString([]byte(text)) + ends
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
