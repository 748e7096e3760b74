package mcpproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	looks "github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"go.yaml.in/yaml/v3"
)

// startTime bounds the listing of a server's tools.
const startTime = time.Minute

// Explain lists the tools of a server with the way that each is decided about, and writes
// the map in use. It uses m if given is set, or else the map for the server's description
// of itself, or else m.
func Explain(ctx context.Context, m *toolmap.Map, given bool, target *url.URL, command, env []string, stderr io.Writer, version string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var way mcp.Transport
	if target != nil {
		way = &mcp.StreamableClientTransport{Endpoint: target.String()}
	} else {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env, cmd.Stderr = env, stderr
		way = &mcp.CommandTransport{Command: cmd}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "ocipd", Version: version}, nil).Connect(ctx, way, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot talk to the MCP server: %w", err)
	}
	defer session.Close()
	tools := make(map[string][]string)
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("cannot list the tools of the MCP server: %w", err)
		}
		tools[tool.Name] = argumentNames(tool.InputSchema)
	}
	if !given {
		found, err := toolmap.Server(session.InitializeResult().ServerInfo.Name, tools)
		if err != nil {
			return nil, err
		}
		if found != nil && !m.Known() {
			m = found.Claim(m)
		}
	}
	shown, why := shownOf(m, tools)
	var b bytes.Buffer
	width := 0
	for name := range why {
		width = max(width, len(name))
	}
	if m.Known() {
		fmt.Fprintf(&b, "# The map %s is in force.\n", oneWord(m.Name))
		if m.Claimed() {
			fmt.Fprintf(&b, "# Only the server itself says that it is this one. With tools: enforce, a person is asked\n# about what a server without a map would be asked about; --map %s confirms it.\n", oneWord(m.Name))
		}
	} else {
		fmt.Fprintf(&b, "# No map is for this server: what its tools send is guessed.\n")
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(&b, "# %-*s  %s\n", width, oneWord(name), why[name])
	}
	if len(shown.Tools) == 0 {
		fmt.Fprintf(&b, "# No tool looks as if it sent messages.\n")
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&shown); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// shownOf returns a map with the known tools of a server, and why each is in it.
func shownOf(m *toolmap.Map, tools map[string][]string) (shown toolmap.Map, why map[string]string) {
	shown, why = *m, make(map[string]string)
	shown.Tools, shown.Reads, shown.Calls = maps.Clone(m.Tools), maps.Clone(m.Reads), slices.Clone(m.Calls)
	shown.Servers, shown.Packages, shown.Programs, shown.Images, shown.Hosts = nil, nil, nil, nil, nil
	for name, arguments := range tools {
		guess := toolmap.GuessAll(arguments)
		_, sends := m.Tools[name]
		reads := m.ReadOf(name) != nil
		switch {
		case sends:
			why[name] = "decided about as a message, by the map"
		case reads && m.Knows(name):
			why[name] = "decided about as a call, and so are its results, by the map"
		case m.Knows(name) && (guess == nil || !m.Claimed()):
			why[name] = "decided about as a call, by the map"
		case guess != nil:
			why[name] = "decided about as a message, by a guess"
			if shown.Tools == nil {
				shown.Tools = make(map[string]toolmap.Tool)
			}
			shown.Tools[name] = *guess
		case reads:
			why[name] = "decided about as a call, and so are its results, in no map"
		default:
			why[name] = "decided about as a call, in no map"
			shown.Calls = append(shown.Calls, name)
		}
	}
	slices.Sort(shown.Calls)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(m.Tools)), slices.Collect(maps.Keys(m.Reads))) {
		if why[name] == "" {
			why[name] = "in the map, and not a tool of this server"
		}
	}
	return shown, why
}

// oneWord makes a server's names safe to print: one line, without control characters.
func oneWord(name string) string {
	return strings.Map(func(r rune) rune {
		if !looks.Shows(r) {
			return '?'
		}
		return r
	}, name)
}

// argumentNames returns the members of a tool's input.
func argumentNames(schema any) (names []string) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}
