package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// claudeCode keeps the servers of all projects in one file of its user. The .mcp.json of
// a project is shared with whoever works on it, and is not ours to change.
var claudeCode = &Runtime{
	Name: "claude-code", Title: "Claude Code", Program: "claude",
	Open: []string{"its own tools, such as Bash and WebFetch", "the .mcp.json of a project"},
	files: func(p *Place) []string {
		dir := p.Home
		if own := p.Getenv("CLAUDE_CONFIG_DIR"); own != "" {
			dir = own
		}
		return []string{filepath.Join(dir, ".claude.json")}
	},
	read: readClaude,
}

// readClaude finds mcpServers at the top, and in each of projects.
func readClaude(file string, text []byte) (list []entry, err error) {
	top, err := members(text, span{0, len(text)})
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON object: %w", file, err)
	}
	take := func(scope string, at span) error {
		servers, err := members(text, at)
		if err != nil {
			return fmt.Errorf("%s: mcpServers is no object: %w", file, err)
		}
		for _, s := range servers {
			e, err := readJSONServer(text, s)
			if err != nil {
				return fmt.Errorf("%s: mcpServers.%s: %w", file, s.name, err)
			}
			e.Scope = scope
			list = append(list, e)
		}
		return nil
	}
	for _, m := range top {
		switch m.name {
		case "mcpServers":
			if err := take("", m.at); err != nil {
				return nil, err
			}
		case "projects":
			projects, err := members(text, m.at)
			if err != nil {
				return nil, fmt.Errorf("%s: projects is no object: %w", file, err)
			}
			for _, project := range projects {
				settings, err := members(text, project.at)
				if err != nil {
					return nil, fmt.Errorf("%s: projects[%q] is no object: %w", file, project.name, err)
				}
				for _, s := range settings {
					if s.name != "mcpServers" {
						continue
					}
					if err := take(project.name, s.at); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return list, nil
}

func readJSONServer(text []byte, s member) (e entry, err error) {
	e.Name = s.name
	list, err := members(text, s.at)
	if err != nil {
		return e, fmt.Errorf("is no object: %w", err)
	}
	for _, m := range list {
		value := text[m.at.begin:m.at.end]
		switch m.name {
		case "command":
			err = json.Unmarshal(value, &e.Command)
			e.command = m.at
		case "args":
			err = json.Unmarshal(value, &e.Args)
			e.args = m.at
		case "url":
			err = json.Unmarshal(value, &e.URL)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if e.args == (span{}) {
		e.args = span{e.command.end, e.command.end}
	}
	e.write = writeJSON
	return e, nil
}

// writeJSON writes a command and its arguments. Bare is set where the arguments have no
// member yet.
func writeJSON(command string, args []string, bare bool) (string, string) {
	list := make([]byte, 0, 256)
	if bare {
		list = append(list, `, "args": `...)
	}
	list = append(list, '[')
	for i, arg := range args {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = appendJSON(list, arg)
	}
	return string(appendJSON(nil, command)), string(append(list, ']'))
}

func appendJSON(b []byte, text string) []byte {
	b, err := jsontext.AppendQuote(b, text)
	if err != nil {
		// A text that was read as JSON has no invalid bytes, and paths with such bytes are
		// refused before.
		panic("integrate: cannot write a text as JSON: " + err.Error())
	}
	return b
}

// member is a member of a JSON object, and where its value stands in the text.
type member struct {
	name string
	at   span
}

// members reads the members of the object that stands somewhere in a text. A name that
// stands twice is an error: programs differ in which they take.
func members(text []byte, at span) (list []member, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text[at.begin:at.end]))
	if kind := d.PeekKind(); kind != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("it is %s", kind)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		// The token is the decoder's own, and changes with the next one.
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.at.end = at.begin + int(d.InputOffset())
		m.at.begin = m.at.end - len(value)
		list = append(list, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind it")
	}
	return list, nil
}
