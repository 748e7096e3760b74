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

// remote is a server over HTTP of which a command can take the place: the program speaks to
// it by pipes, and the proxy stands before that.
type remote struct {
	url string
	// headers are sent with each request, as JSON has them, and bearer is the variable of a
	// token, "" for none.
	headers map[string]string
	bearer  string
}

// HeadersVariable is the variable in which a server's headers stand, one a line: it is for
// the eyes of its user, as command lines are not.
const HeadersVariable = "OCIPD_HEADERS"

const (
	connectCommand = "mcp-connect"
	urlFlag        = "--url"
	bearerFlag     = "--bearer"
)

// headerLines are headers as the variable has them.
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

// command is the one that takes the place of a server.
func (m *remote) command(p *Place, name string) (string, []string) {
	args := []string{connectCommand, urlFlag, m.url}
	if m.bearer != "" {
		args = append(args, bearerFlag, m.bearer)
	}
	return p.Self, append(args, name)
}

// remoteOf reads such a command, nil where it is another one.
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

// reached reports whether a server takes a client without a login, and why not. It is asked
// once.
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

// started reports whether a server is started by a command, or will be.
func (p *Place) started(s *Server) bool {
	return s.Command != "" || s.remote != nil && p.reached(s.remote) == nil
}

// piece is a part of a text, and what takes its place.
type piece struct {
	at   span
	text string
}

// swap puts pieces into a text, in which all behind them may have changed already.
func swap(text []byte, pieces []piece) []byte {
	slices.SortFunc(pieces, func(a, b piece) int { return b.at.begin - a.at.begin })
	for _, one := range pieces {
		text = slices.Concat(text[:one.at.begin], []byte(one.text), text[one.at.end:])
	}
	return text
}

// jsonRemote reads a server over HTTP, nil where it has something that a command has no place
// for.
func jsonRemote(raw []byte) *remote {
	var s struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	if json.Unmarshal(raw, &s, json.RejectUnknownMembers(true)) != nil || s.Type != "http" || strings.Contains(s.URL, "${") || strings.Contains(s.URL, "?") {
		return nil // all users see command lines, and what stands behind a question mark can be a key
	}
	for name, value := range s.Headers {
		// Claude Code may put a variable in, and a line is a header.
		if name == "" || strings.Contains(value, "${") || strings.ContainsAny(name+value, "\r\n") || strings.Contains(name, ": ") {
			return nil
		}
	}
	return &remote{url: s.URL, headers: s.Headers}
}

// asCommand is a server of JSON as one that is started by a command.
func (m *remote) asCommand(command string, args []string) string {
	first, list := writeJSON(command, args, false)
	text := `{"type": "stdio", "command": ` + first + `, "args": ` + list
	if len(m.headers) > 0 {
		text += `, "env": {"` + HeadersVariable + `": ` + string(appendJSON(nil, headerLines(m.headers))) + `}`
	}
	return text + "}"
}

// asAddress is a server of JSON as it was: as the text has it that is kept, if it is the same
// one, and else as Claude Code would write it.
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
