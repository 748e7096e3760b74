// Package toolgate is an MCP server over stdio that answers the hooks of an agent's
// runtime: may this tool be called? The runtime starts it once for a session and asks it
// about every call. So there is one connection to the daemon, and one record for each call.
//
// The gate is a client of the daemon's socket and decides nothing. It refuses a call that
// cannot be decided. A runtime whose hooks fail closed takes a tool error as a refusal;
// other runtimes get an explicit refusal.
//
// The caller must not write to the standard output that it passes.
package toolgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// Tool is the tool that hooks call.
const Tool = "decide"

// Name is the gate's name among a runtime's MCP servers.
const Name = "ocipd-gate"

// Options are the inputs of a gate.
type Options struct {
	// Dial connects to the daemon's kernel socket.
	Dial func(context.Context) (*client.Client, error)
	// Token is the token of a grant of the agent.
	Token string
	// Runtime names the runtime that asks.
	Runtime string
	// Without are MCP servers whose calls are decided elsewhere: by name, or by list and
	// name, such as user:slack.
	Without []string
	// Prompts, unless nil, are the servers whose prompts the gate answers. It leaves the
	// others to the user.
	Prompts []string
	// Defers is set if the runtime ends when a person has to decide, and asks again later.
	// Otherwise the call waits, at most for Hold.
	Defers  bool
	Hold    time.Duration
	Version string
	In      io.ReadCloser
	Out     io.WriteCloser
	Log     *slog.Logger
}

// Serve answers until the input or the context ends. It starts even without a daemon, and
// then refuses calls until there is one.
func Serve(ctx context.Context, o *Options) error {
	g := &gate{o: o, daemon: taskclient.New(o.Dial, o.Token)}
	defer g.daemon.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: Name, Title: "ocipd", Version: o.Version}, &mcp.ServerOptions{
		Instructions: "The runtime asks this server about calls of tools. Its tool is of no use to you.", Logger: o.Log, Capabilities: &mcp.ServerCapabilities{},
	})
	members := make(map[string]any)
	for _, name := range []string{"event", "tool", "input", "cwd", "session", "call", "source"} {
		members[name] = map[string]any{}
	}
	server.AddTool(&mcp.Tool{
		Name: Tool, Description: "Used by the runtime before it calls a tool. Do not call it.",
		InputSchema: map[string]any{"type": "object", "properties": members},
	}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return g.use(ctx, r.Params.Arguments), nil
	})
	err := server.Run(ctx, &mcp.IOTransport{Reader: o.In, Writer: o.Out})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

type gate struct {
	o      *Options
	daemon *taskclient.Conn

	mu sync.Mutex
	// let are the allowed calls that were not made yet, with the time. The runtime may ask
	// for permission for the same call right afterwards, which is decided already.
	let map[string]time.Time
}

// letTime bounds the time in which a runtime may ask again about an allowed call.
const letTime = time.Minute

// remember notes that a call was allowed.
func (g *gate) remember(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(g.let, func(_ string, at time.Time) bool { return now.Sub(at) > letTime })
	if g.let == nil {
		g.let = make(map[string]time.Time)
	}
	g.let[key] = now
}

// decided reports whether a call was allowed a moment ago, and forgets it.
func (g *gate) decided(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.let[key]
	delete(g.let, key)
	return ok && time.Since(at) <= letTime
}

// key identifies a call in the questions of all events.
func (q *question) key() string {
	input := q.Input.Clone()
	if input.Canonicalize() != nil {
		input = q.Input
	}
	return q.Session + "\n" + q.Folder + "\n" + q.Tool + "\n" + string(input)
}

// question is a hook's question.
type question struct {
	Event   string         `json:"event"`
	Tool    string         `json:"tool"`
	Input   jsontext.Value `json:"input"`
	Folder  string         `json:"cwd"`
	Session string         `json:"session"`
	Call    string         `json:"call"`
	// Source is the runtime's list that contains the tool's MCP server.
	Source string `json:"source"`
}

// Events of hooks.
const (
	before     = "PreToolUse"
	permission = "PermissionRequest"
)

// read parses a hook's question. A runtime may give the tool's input as a string of JSON.
func read(raw []byte) (*question, error) {
	q := new(question)
	if err := json.Unmarshal(raw, q); err != nil {
		return nil, fmt.Errorf("cannot read the hook's question: %w", err)
	}
	if text, ok := api.Text(q.Input); ok {
		q.Input = jsontext.Value(cmp.Or(text, "{}"))
	}
	switch {
	case q.Event != before && q.Event != permission:
		return nil, fmt.Errorf("cannot answer hooks of %q", q.Event)
	case q.Tool == "":
		return nil, errors.New("the hook's question names no tool")
	case !q.Input.IsValid() || q.Input.Kind() != '{':
		return nil, errors.New("the tool's input is no JSON object")
	}
	return q, nil
}

// mcpPrefix begins a runtime's names of tools of MCP servers, and parting separates the server from
// the tool.
const (
	mcpPrefix = "mcp__"
	parting   = "__"
)

// server returns the MCP server of a tool, and the tool's name there. The name can be
// ambiguous: see [question.sure].
func (q *question) server() (server, tool string) {
	rest, ok := strings.CutPrefix(q.Tool, mcpPrefix)
	if !ok {
		return "", q.Tool
	}
	server, tool, ok = strings.Cut(rest, parting)
	if !ok {
		return "", q.Tool
	}
	return server, tool
}

// sure reports whether the name of a tool identifies its server. mcp__gh___push can be
// _push of the server gh, or push of gh_, gh. or gh!, which runtimes write alike.
func (q *question) sure() bool {
	server, tool := q.server()
	return server != "" && tool != "" && !strings.HasPrefix(tool, "_") && !strings.Contains(tool, parting)
}

// among reports whether a list names the server of a tool: by its name, or by its list and name.
// No runtime has a colon in the name of a list.
func (q *question) among(servers []string) bool {
	server, _ := q.server()
	return slices.ContainsFunc(servers, func(one string) bool {
		source, name, ok := strings.Cut(one, ":")
		return ok && source == q.Source && name == server || !ok && one == server
	})
}

// data is the daemon's input for the call. No map describes the tools of a server that is not
// behind the proxy.
func (q *question) data(runtime string) api.Object {
	server, tool := q.server()
	data := api.Object{"toolName": api.String(tool), "params": q.Input, "runtime": api.String(runtime)}
	for name, text := range map[string]string{"mcpServer": server, "cwd": q.Folder, "session": q.Session, "toolCallId": q.Call} {
		if text != "" {
			data[name] = api.String(text)
		}
	}
	if strings.HasPrefix(q.Tool, mcpPrefix) {
		arguments, err := toolmap.Members(q.Input, 0)
		if err != nil || new(toolmap.Map).Shows(tool, arguments) {
			data["unmapped"] = jsontext.Value("true")
		}
	}
	return data
}

// use answers a call of the tool.
func (g *gate) use(ctx context.Context, raw []byte) *mcp.CallToolResult {
	q, err := read(raw)
	if err != nil {
		return failed(err)
	}
	server, _ := q.server()
	switch {
	case server == Name || server == strings.ReplaceAll(Name, "-", "_"): // as Codex writes it
		return answer(q, "deny", "ocipd: this tool is for the runtime alone")
	case server == Canary:
		return g.canary(ctx, q)
	case q.Event == before && q.sure() && q.among(g.o.Without):
		return answer(q, "allow", "")
	case q.Event == permission && g.o.Prompts != nil && !slices.Contains(g.o.Prompts, server):
		return text("{}", false)
	case q.Event == permission && g.decided(q.key()):
		return answer(q, "allow", "")
	}
	data := q.data(g.o.Runtime)
	for until := time.Now().Add(g.o.Hold); ; {
		got, err := g.ask(ctx, api.ToolExecuting, data.Append(nil), "")
		switch {
		case err != nil:
			g.o.Log.Warn("a tool call was not decided", "tool", q.Tool, "error", err)
			return answer(q, "deny", "ocipd: "+q.Tool+" was not called, since it could not be decided: "+err.Error())
		case got.Allowed && string(got.Data) != "" && changed(got.Data, q.Input):
			return answer(q, "deny", "ocipd: an interceptor changed what "+q.Tool+" is called with, which is not possible here")
		case got.Allowed:
			if q.Event == before {
				g.remember(q.key())
			}
			return answer(q, "allow", "")
		case !got.Held:
			return answer(q, "deny", "ocipd: "+q.Tool+" was not called. "+got.Reason+". Do not retry.")
		case g.o.Defers && q.Event == before:
			return answer(q, "defer", "HELD "+got.ApprovalID+": "+got.Reason)
		}
		if err := g.wait(ctx, got.ApprovalID, until); err != nil {
			return answer(q, "deny", "HELD "+got.ApprovalID+"\nocipd: "+q.Tool+" was not called: a person has to approve it: ocipd approvals show "+got.ApprovalID+
				". Once it is approved, the same call is let through. Do not call it again before your user says so.")
		}
	}
}

// changed reports whether interceptors changed the input.
func changed(data, input jsontext.Value) bool {
	var now struct {
		Params jsontext.Value `json:"params"`
	}
	if json.Unmarshal(data, &now) != nil {
		return true
	}
	a, b := now.Params, input.Clone()
	return a.Canonicalize() != nil || b.Canonicalize() != nil || string(a) != string(b)
}

// callTime bounds the wait for an answer, and pollEvery is the interval of questions for a
// person's decision.
const (
	callTime  = 30 * time.Second
	pollEvery = time.Second
)

func (g *gate) ask(ctx context.Context, hook api.Hook, data []byte, key string) (got api.EmitResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err = g.daemon.Call(ctx, "agent.emit", emission(hook, data, key), &got)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the daemon has not answered within %s", callTime)
	}
	return got, err
}

var errWaits = errors.New("nobody has decided yet")

// wait returns when a person has decided.
func (g *gate) wait(ctx context.Context, id string, until time.Time) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for time.Now().Before(until) {
		select {
		case <-ctx.Done():
			// The call was given up, so nobody needs to decide about it.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
			defer cancel()
			return errors.Join(ctx.Err(), errWaits, g.daemon.Call(ctx, "agent.withdraw", &api.WithdrawParams{ApprovalID: id, Note: "the call was given up"}, nil))
		case <-poll.C:
		}
		var now api.AgentApproval
		if err := g.daemon.Call(ctx, "agent.approval", map[string]string{"approval_id": id}, &now); err == nil && now.Status != api.ApprovalPending {
			return nil
		}
	}
	return errWaits
}

// answer is the answer to a hook. If nothing speaks against a call, the answer is empty, so that the
// runtime's own rules and its user still decide. A request for permission needs an explicit grant.
func answer(q *question, decision, reason string) *mcp.CallToolResult {
	said := map[string]any{"hookEventName": q.Event}
	switch {
	case q.Event == permission && decision == "allow":
		said["decision"] = map[string]any{"behavior": "allow"}
	case q.Event == permission:
		said["decision"] = map[string]any{"behavior": "deny", "message": reason}
	case decision == "allow":
		return text("{}", false)
	default:
		said["permissionDecision"], said["permissionDecisionReason"] = decision, reason
	}
	line, err := json.Marshal(map[string]any{"hookSpecificOutput": said}, json.Deterministic(true))
	if err != nil {
		return failed(err)
	}
	return text(string(line), false)
}

func failed(err error) *mcp.CallToolResult { return text("ocipd: "+err.Error(), true) }

func text(line string, isError bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: line}}, IsError: isError}
}
