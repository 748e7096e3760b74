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
	looks "github.com/openclawos/ocipd/internal/text"
	"go.yaml.in/yaml/v3"
)

// startTime is how long a server has to list its tools.
const startTime = time.Minute

// Explain lists the tools of a server and what is decided about, and writes the map that
// says so.
func Explain(ctx context.Context, m *Map, target *url.URL, command, env []string, stderr io.Writer, version string) ([]byte, error) {
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
	shown := *m
	shown.Tools, shown.Packages = make(map[string]Tool), nil
	why := make(map[string]string)
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("cannot list the tools of the MCP server: %w", err)
		}
		t, mapped := m.Tools[tool.Name]
		_, reads := m.Reads[tool.Name]
		guess := Guess(argumentNames(tool.InputSchema))
		switch {
		case mapped:
			shown.Tools[tool.Name], why[tool.Name] = t, "decided about, by the map"
		case reads:
			why[tool.Name] = "its results are decided about, by the map"
		case guess != nil:
			shown.Tools[tool.Name], why[tool.Name] = *guess, "decided about, by a guess"
		default:
			why[tool.Name] = "passes"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Reads)) {
		if why[name] == "" {
			why[name] = "in the map, and not a tool of this server"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		if why[name] == "" {
			shown.Tools[name], why[name] = m.Tools[name], "in the map, and not a tool of this server"
		}
	}
	var b bytes.Buffer
	width := 0
	for name := range why {
		width = max(width, len(name))
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

// oneWord keeps a server's names to one line, on which they steer no terminal.
func oneWord(name string) string {
	return strings.Map(func(r rune) rune {
		if !looks.Shows(r) {
			return '?'
		}
		return r
	}, name)
}

// argumentNames are the members of a tool's input.
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
