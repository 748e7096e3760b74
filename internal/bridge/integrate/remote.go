package integrate

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// remote is a server over HTTP that a command can replace: `ocipd mcp-connect` speaks to
// the server, and the proxy stands in front of it.
type remote struct {
	url string
	// headers are sent with each request, in JSON's form. bearer is the variable of a token, or "".
	headers map[string]string
	bearer  string
}

// HeadersVariable holds a server's headers, one a line. Unlike a command line, only the
// user can read it.
const HeadersVariable = "OCIPD_HEADERS"

const (
	connectCommand = "mcp-connect"
	urlFlag        = "--url"
	bearerFlag     = "--bearer"
)

// headerLines encodes headers for the variable.
func headerLines(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// ReadHeaders reads headers, one a line.
func ReadHeaders(lines string) (map[string]string, error) {
	headers := make(map[string]string)
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		switch {
		case line == "":
		case !ok || name == "":
			return nil, errors.New("a line is no header") // which it may hold a secret of
		default:
			headers[name] = value
		}
	}
	return headers, nil
}

// command is the command that replaces the server.
func (m *remote) command(p *Place, name string) (string, []string) {
	args := []string{connectCommand, urlFlag, m.url}
	if m.bearer != "" {
		args = append(args, bearerFlag, m.bearer)
	}
	return p.Self, append(args, name)
}

// remoteOf parses such a command, and returns nil for any other.
func remoteOf(p *Place, command string, args []string) *remote {
	if command != p.Self && filepath.Base(command) != "ocipd" || len(args) < 4 || args[0] != connectCommand || args[1] != urlFlag {
		return nil
	}
	m := &remote{url: args[2]}
	if len(args) == 6 && args[3] == bearerFlag {
		m.bearer = args[4]
	}
	return m
}

// reached returns an error if a server does not accept a client without a login. It asks
// each server once.
func (p *Place) reached(m *remote) error {
	if m == nil || p.Reach == nil {
		return errors.New("nobody has looked whether it takes a client without a login")
	}
	key := m.url + "\n" + m.bearer + "\n" + headerLines(m.headers)
	err, known := p.answers[key]
	if !known {
		headers := make(map[string]string)
		maps.Copy(headers, m.headers)
		if m.bearer != "" {
			headers["Authorization"] = "Bearer " + p.Getenv(m.bearer)
		}
		if p.answers == nil {
			p.answers = make(map[string]error)
		}
		err = p.Reach(m.url, headers)
		p.answers[key] = err
	}
	return err
}

// started reports whether a command starts a server, now or after the change.
func (p *Place) started(s *Server) bool {
	return s.Command != "" && (s.Agent != "" || !s.direct) || s.remote != nil && p.reached(s.remote) == nil
}

// piece is a part of a text with its replacement.
type piece struct {
	at   span
	text string
}

// swap replaces pieces of a text, in which everything after them may have changed already.
func swap(text []byte, pieces []piece) []byte {
	slices.SortFunc(pieces, func(a, b piece) int { return b.at.begin - a.at.begin })
	for _, one := range pieces {
		text = slices.Concat(text[:one.at.begin], []byte(one.text), text[one.at.end:])
	}
	return text
}

// jsonRemote reads a server over HTTP, and returns nil if a command cannot express it.
func jsonRemote(raw []byte) *remote {
	var s struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	if json.Unmarshal(raw, &s, json.RejectUnknownMembers(true)) != nil || s.Type != "http" || strings.Contains(s.URL, "${") || strings.Contains(s.URL, "?") {
		return nil // all users see command lines, and a query can contain a key
	}
	for name, value := range s.Headers {
		// Claude Code may expand a variable in a value, and each header must fit on a line.
		if name == "" || strings.Contains(value, "${") || strings.ContainsAny(name+value, "\r\n") || strings.Contains(name, ": ") {
			return nil
		}
	}
	return &remote{url: s.URL, headers: s.Headers}
}

// asCommand is the JSON of the server as a command.
func (m *remote) asCommand(command string, args []string) string {
	first, list := writeJSON(command, args, false)
	text := `{"type": "stdio", "command": ` + first + `, "args": ` + list
	if len(m.headers) > 0 {
		text += `, "env": {"` + HeadersVariable + `": ` + string(appendJSON(nil, headerLines(m.headers))) + `}`
	}
	return text + "}"
}

// asAddress is the JSON of the original server. It uses the original text if that is the
// same server, or else the form that Claude Code would write.
func (m *remote) asAddress(kept []entry, e *entry) string {
	for i := range kept {
		if k := &kept[i]; k.Name == e.Name && k.Scope == e.Scope && k.remote != nil && k.remote.url == m.url && maps.Equal(k.remote.headers, m.headers) {
			return k.raw
		}
	}
	text := `{"type": "http", "url": ` + string(appendJSON(nil, m.url))
	if len(m.headers) > 0 {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(m.headers)) {
			list = append(list, fmt.Sprintf("%s: %s", appendJSON(nil, name), appendJSON(nil, m.headers[name])))
		}
		text += `, "headers": {` + strings.Join(list, ", ") + "}"
	}
	return text + "}"
}
