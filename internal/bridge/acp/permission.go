package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

const (
	// serverName is the name of the agent's MCP server.
	serverName = "ocipd"
	// maxAsking bounds the permission requests in progress at once. Further ones wait.
	maxAsking = 8
	// usualKind is the kind of a tool call without one.
	usualKind = "other"
)

// answer handles the agent's requests: only those for permission.
func (b *bridge) answer(live context.Context) sdk.MethodHandler {
	turns := make(chan struct{}, maxAsking)
	return func(ctx context.Context, method string, params json.RawMessage) (any, *sdk.RequestError) {
		if method != sdk.ClientMethodSessionRequestPermission {
			return nil, sdk.NewMethodNotFound(method)
		}
		var asked struct {
			Call    toolCall       `json:"toolCall"`
			Options jsontext.Value `json:"options"`
		}
		var options []sdk.PermissionOption
		if tolerant(params, &asked) != nil || json.Unmarshal(asked.Options, &options) != nil {
			return nil, sdk.NewInvalidParams(map[string]any{"error": "want toolCall and options"})
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(live, cancel)()
		b.told.asks(1, b.o.Now())
		defer func() { b.told.asks(-1, b.o.Now()) }()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return choose(nil, ""), nil
		}
		return b.permit(ctx, b.told.call(&asked.Call), asked.Options, options), nil
	}
}

// permit has the daemon's policy, or a person, decide about a tool call.
func (b *bridge) permit(ctx context.Context, c toolCall, raw jsontext.Value, options []sdk.PermissionOption) sdk.RequestPermissionResponse {
	title := cmp.Or(c.Title, c.Kind, usualKind)
	refuse := func(format string, args ...any) sdk.RequestPermissionResponse {
		b.o.Say("refused: %.200s: "+format, append([]any{title}, args...)...)
		return choose(options, sdk.PermissionOptionKindRejectOnce)
	}
	if c.long() {
		// A person cannot approve a call that is too long to be shown.
		return refuse("what it would do is longer than %d bytes", task.MaxArgvBytes)
	}
	p := taskapi.AskPermissionParams{
		Ref: taskapi.Ref{TaskID: b.id}, AttemptID: b.attemptID(),
		ToolCall: taskapi.ToolCall{Kind: cut(cmp.Or(c.Kind, usualKind), 64), Title: cut(title, task.MaxText), Input: c.shown(), InWorkspace: b.within(&c), Server: b.server(&c)},
	}
	if len(c.ID) <= api.MaxName {
		p.ToolCall.ID = c.ID
	}
	if len(raw) <= task.MaxPayloadBytes {
		p.Options = raw
	}
	b.o.Say("asked: %.200s (%s)", title, p.ToolCall.Kind)
	var said taskapi.Permission
	err := b.o.Daemon.Call(ctx, "task.ask_permission", &p, &said)
	switch {
	case ctx.Err() != nil || over(err):
		return choose(nil, "")
	case err != nil:
		return refuse("%v", err)
	case said.Decision != "allow":
		return refuse("%s", cmp.Or(said.Reason, "it was denied"))
	}
	b.o.Say("allowed: %.200s", title)
	return choose(options, sdk.PermissionOptionKindAllowOnce)
}

// choose selects an option by its kind. It never selects a kind that permits more than
// this one call. Without a suitable option, it answers that the call is cancelled.
func choose(options []sdk.PermissionOption, kind sdk.PermissionOptionKind) sdk.RequestPermissionResponse {
	for i := range options {
		if options[i].Kind == kind {
			return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(options[i].OptionId)}
		}
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}
}

// shown is the part of a tool call that a person sees: its input, or else its content.
func (c *toolCall) shown() jsontext.Value {
	if given(c.Input) {
		return c.Input
	}
	if given(c.Content) {
		return c.Content
	}
	return nil
}

// server returns the name of the tool's MCP server. It recognizes only ocipd's own server.
func (b *bridge) server(c *toolCall) string {
	if slices.Contains([]string{"execute", "edit", "delete", "move", "fetch"}, c.Kind) {
		return ""
	}
	var input struct {
		Server string `json:"server"`
		Tool   string `json:"tool"`
	}
	_ = tolerant(c.Input, &input) // only an object names a server
	tool, ok := strings.CutPrefix(c.Meta.Claude.Tool, "mcp__"+serverName+"__")
	if input.Server == serverName {
		tool, ok = input.Tool, true
	}
	if ok && slices.Contains(b.o.Attached.Tools, tool) {
		return serverName
	}
	return ""
}

// within reports whether all paths that a tool call names are in the workspace. A call
// that names none is outside, unless it is of the kind think.
func (b *bridge) within(c *toolCall) bool {
	var paths []string
	for _, l := range c.Locations {
		paths = append(paths, l.Path)
	}
	var content []location
	_ = tolerant(c.Content, &content) // only a list names files
	for _, l := range content {
		if l.Path != "" {
			paths = append(paths, l.Path)
		}
	}
	var input map[string]jsontext.Value
	_ = tolerant(c.Input, &input) // only an object names files
	for name, value := range input {
		var text string
		if namesFile(name) && tolerant(value, &text) == nil && text != "" {
			paths = append(paths, text)
		}
	}
	for _, p := range paths {
		if !inside(b.dir, p) {
			return false
		}
	}
	return len(paths) > 0 || c.Kind == string(sdk.ToolKindThink)
}

// namesFile reports whether a member of an input names a file or a folder.
func namesFile(member string) bool {
	member = strings.ToLower(member)
	for _, end := range []string{"path", "file", "filename", "dir", "directory", "cwd", "folder", "root"} {
		if strings.HasSuffix(member, end) {
			return true
		}
	}
	return false
}

// inside reports whether a path leads below a folder, after following symbolic links.
// For a path that does not exist, it checks the folder that would hold it.
func inside(dir, path string) bool {
	if strings.Contains(path, "://") || len(path) >= len(fileScheme) && strings.EqualFold(path[:len(fileScheme)], fileScheme) {
		u, err := url.Parse(path)
		if err != nil || u.Scheme+":" != fileScheme || u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Fragment != "" {
			return false
		}
		path = u.Path
	}
	if strings.HasPrefix(path, "~") || strings.ContainsRune(path, 0) {
		return false
	}
	leads, err := plainfile.Lead(dir, path, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, in := plainfile.Beneath(leads, dir)
	return in != ""
}

// fileScheme begins the URL of a file.
const fileScheme = "file:"
