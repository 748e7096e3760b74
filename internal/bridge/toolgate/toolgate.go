// Package toolgate answers the hooks of an agent's runtime: may this tool be called? It is an
// MCP server over stdio, which the runtime starts once for a session and asks about every call,
// or a [Gate] that another server asks. So there is one connection to the daemon, and one record
// for each call.
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
	g := New(o)
	defer g.Close()
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

// Gate decides calls of tools over one connection to the daemon. Its methods may be called by
// several goroutines at once.
type Gate struct {
	o      *Options
	daemon *taskclient.Conn

	mu sync.Mutex
	// let are the allowed calls that were not made yet, with the time. The runtime may ask
	// for permission for the same call right afterwards, which is decided already.
	let map[string]time.Time
}

// New returns a gate, which connects to the daemon with its first question. It uses neither In
// nor Out.
func New(o *Options) *Gate { return &Gate{o: o, daemon: taskclient.New(o.Dial, o.Token)} }

// Close ends the connection to the daemon.
func (g *Gate) Close() { _ = g.daemon.Close() }

// letTime bounds the time in which a runtime may ask again about an allowed call.
const letTime = time.Minute

// remember notes that a call was allowed.
func (g *Gate) remember(key string) {
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
func (g *Gate) decided(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.let[key]
	delete(g.let, key)
	return ok && time.Since(at) <= letTime
}

// key identifies a call in the questions of all events.
func (q *Question) key() string {
	input, err := canonical(q.Input)
	if err != nil {
		input = string(q.Input)
	}
	return q.Session + "\n" + q.Folder + "\n" + q.Tool + "\n" + input
}

// Question is a hook's question. Texts other than Event and Tool may be empty.
type Question struct {
	// Event is [Before] or [Permission].
	Event string `json:"event"`
	// Tool is the runtime's name of the tool.
	Tool string `json:"tool"`
	// Input is a JSON object with the tool's arguments.
	Input   jsontext.Value `json:"input"`
	Folder  string         `json:"cwd"`
	Session string         `json:"session"`
	Call    string         `json:"call"`
	// Source is the runtime's list that contains the tool's MCP server.
	Source string `json:"source"`
	// Server and Name are the tool's MCP server and its name there, from a runtime that gives
	// both. From other runtimes they are in Tool.
	Server string `json:"-"`
	Name   string `json:"-"`
	// Unsure is set if Server could be another server. Foreign is set for a tool of a server that
	// the runtime does not name.
	Unsure  bool `json:"-"`
	Foreign bool `json:"-"`
}

// Events of hooks: before a call, and at a request for permission. A runtime can ask twice about a
// call; the second question of a call that was allowed is not put to the daemon.
const (
	Before     = "PreToolUse"
	Permission = "PermissionRequest"
)

// Verdict is the answer to a question.
type Verdict struct {
	// Decision is [Allow], [Deny], [Defer], or [Leave] for a question that the gate leaves to
	// the runtime's user.
	Decision string
	// Reason says why, unless the call is allowed.
	Reason string
}

// Decisions. Defer ends the runtime's turn until a person has decided.
const (
	Allow = "allow"
	Deny  = "deny"
	Defer = "defer"
	Leave = "leave"
)

// read parses a hook's question. A runtime may give the tool's input as a string of JSON.
func read(raw []byte) (*Question, error) {
	q := new(Question)
	if err := json.Unmarshal(raw, q); err != nil {
		return nil, fmt.Errorf("cannot read the hook's question: %w", err)
	}
	return q, q.Check()
}

// Check completes a question, or says what it lacks. A runtime may give the tool's input as a
// string of JSON.
func (q *Question) Check() error {
	if text, ok := api.Text(q.Input); ok {
		q.Input = jsontext.Value(cmp.Or(text, "{}"))
	}
	switch {
	case q.Event != Before && q.Event != Permission:
		return fmt.Errorf("cannot answer hooks of %q", q.Event)
	case q.Tool == "":
		return errors.New("the hook's question names no tool")
	case !q.Input.IsValid() || q.Input.Kind() != '{':
		return errors.New("the tool's input is no JSON object")
	}
	return nil
}

// mcpPrefix begins a runtime's names of tools of MCP servers, and parting separates the server from
// the tool.
const (
	mcpPrefix = "mcp__"
	parting   = "__"
)

// server returns the MCP server of a tool, and the tool's name there. The name can be
// ambiguous: see [Question.sure].
func (q *Question) server() (server, tool string) {
	if q.Server != "" {
		return q.Server, q.Name
	}
	rest, ok := strings.CutPrefix(q.Tool, mcpPrefix)
	if !ok {
		return "", q.Tool
	}
	server, tool, ok = strings.Cut(rest, parting)
	if !ok || server == "" {
		return "", q.Tool // without its beginning it could be a tool of the runtime
	}
	return server, tool
}

// sure reports whether the name of a tool identifies its server. mcp__gh___push can be
// _push of the server gh, or push of gh_, gh. or gh!, which runtimes write alike.
func (q *Question) sure() bool {
	if q.Server != "" {
		return q.Name != "" && !q.Unsure
	}
	server, tool := q.server()
	return server != "" && tool != "" && !strings.HasPrefix(tool, "_") && !strings.Contains(tool, parting)
}

// among reports whether a list names the server of a tool: by its name, or by its list and name.
// No runtime has a colon in the name of a list.
func (q *Question) among(servers []string) bool {
	server, _ := q.server()
	return slices.ContainsFunc(servers, func(one string) bool {
		source, name, ok := strings.Cut(one, ":")
		return ok && source == q.Source && name == server || !ok && one == server
	})
}

// reading is an MCP server with its tool, as which a tool's name can be read.
type reading struct{ server, tool string }

// maxReadings bounds the readings of a name.
const maxReadings = 8

// readings are all readings of a tool's name. A policy can have a rule for each of the servers.
func (q *Question) readings() (list []reading, err error) {
	rest, ok := strings.CutPrefix(q.Tool, mcpPrefix)
	for i := range len(rest) {
		if ok && q.Server == "" && i > 0 && strings.HasPrefix(rest[i:], parting) && i+len(parting) < len(rest) {
			list = append(list, reading{rest[:i], rest[i+len(parting):]})
		}
	}
	switch {
	case len(list) == 0:
		server, tool := q.server()
		list = []reading{{server, tool}}
	case len(list) > maxReadings:
		err = fmt.Errorf("its name can be that of a tool of %d servers", len(list))
	}
	return list, err
}

// data is the daemon's input for the call. No map describes the tools of a server that is not
// behind the proxy.
func (q *Question) data(runtime string, as reading) api.Object {
	server, tool := as.server, as.tool
	data := api.Object{"toolName": api.String(tool), "params": q.Input, "runtime": api.String(runtime)}
	for name, text := range map[string]string{"mcpServer": server, "cwd": q.Folder, "session": q.Session, "toolCallId": q.Call} {
		if text != "" {
			data[name] = api.String(text)
		}
	}
	if q.Server != "" || q.Foreign || strings.HasPrefix(q.Tool, mcpPrefix) {
		arguments, err := toolmap.Members(q.Input, 0)
		if err != nil || new(toolmap.Map).Shows(tool, arguments) {
			data["unmapped"] = jsontext.Value("true")
		}
	}
	return data
}

// use answers a call of the tool.
func (g *Gate) use(ctx context.Context, raw []byte) *mcp.CallToolResult {
	q, err := read(raw)
	if err != nil {
		return failed(err)
	}
	return answer(q, g.Decide(ctx, q))
}

func deny(reason string) Verdict { return Verdict{Deny, reason} }

// Decide answers a question that [Question.Check] has let pass. It waits for a person at most for
// the gate's Hold; if ctx ends meanwhile, it withdraws the question.
func (g *Gate) Decide(ctx context.Context, q *Question) Verdict {
	server, _ := q.server()
	switch {
	case server == Name || server == strings.ReplaceAll(Name, "-", "_"): // as Codex writes it
		return deny("ocipd: this tool is for the runtime alone")
	case q.Canary():
		return g.canary(ctx, q)
	case q.Event == Before && q.sure() && q.among(g.o.Without):
		return Verdict{Decision: Allow}
	case q.Event == Permission && g.o.Prompts != nil && !slices.Contains(g.o.Prompts, server):
		return Verdict{Decision: Leave}
	case q.Event == Permission && g.decided(q.key()):
		return Verdict{Decision: Allow}
	}
	readings, err := q.readings()
	if err != nil {
		return deny("ocipd: " + q.Tool + " was not called: " + err.Error())
	}
	for _, as := range readings {
		if v := g.decide(ctx, q, q.data(g.o.Runtime, as).Append(nil)); v.Decision != Allow {
			return v
		}
	}
	if q.Event == Before {
		g.remember(q.key())
	}
	return Verdict{Decision: Allow}
}

// decide answers a question by the daemon's decision about its data.
func (g *Gate) decide(ctx context.Context, q *Question, data []byte) Verdict {
	for until := time.Now().Add(g.o.Hold); ; {
		got, err := g.ask(ctx, api.ToolExecuting, data, "")
		switch {
		case err != nil:
			g.o.Log.Warn("a tool call was not decided", "tool", q.Tool, "error", err)
			return deny("ocipd: " + q.Tool + " was not called, since it could not be decided: " + err.Error())
		case got.Allowed && string(got.Data) != "" && changed(got.Data, q.Input):
			return deny("ocipd: an interceptor changed what " + q.Tool + " is called with, which is not possible here")
		case got.Allowed:
			return Verdict{Decision: Allow}
		case !got.Held:
			return deny("ocipd: " + q.Tool + " was not called. " + got.Reason + ". Do not retry.")
		case g.o.Defers && q.Event == Before:
			return Verdict{Defer, "HELD " + got.ApprovalID + ": " + got.Reason}
		}
		if err := g.wait(ctx, got.ApprovalID, until); err != nil {
			return deny("HELD " + got.ApprovalID + "\nocipd: " + q.Tool + " was not called: a person has to approve it: ocipd approvals show " + got.ApprovalID +
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
	a, failed := canonical(now.Params)
	b, err := canonical(input)
	return failed != nil || err != nil || a != b
}

// canonical writes a value in the one form for comparisons. Whole numbers keep their digits, because programs read
// them differently beyond 2^53.
func canonical(v jsontext.Value) (string, error) {
	v = v.Clone()
	err := v.Canonicalize(jsontext.CanonicalizeRawInts(false))
	return string(v), err
}

// callTime bounds the wait for an answer, and pollEvery is the interval of questions for a
// person's decision.
const (
	callTime  = 30 * time.Second
	pollEvery = time.Second
)

// ask puts a question to the daemon. If ctx ends before the answer, and a person would have to
// decide, the question is withdrawn once the answer is there.
func (g *Gate) ask(ctx context.Context, hook api.Hook, data []byte, key string) (api.EmitResult, error) {
	type result struct {
		got api.EmitResult
		err error
	}
	answered := make(chan result, 1)
	whole := context.WithoutCancel(ctx)
	go func() {
		ctx, cancel := context.WithTimeout(whole, callTime)
		defer cancel()
		var r result
		r.err = g.daemon.Call(ctx, "agent.emit", emission(hook, data, key), &r.got)
		if errors.Is(r.err, context.DeadlineExceeded) {
			r.err = fmt.Errorf("the daemon has not answered within %s", callTime)
		}
		answered <- r
	}()
	select {
	case r := <-answered:
		return r.got, r.err
	case <-ctx.Done():
		go func() {
			if r := <-answered; r.err == nil && r.got.Held {
				_ = g.withdraw(whole, r.got.ApprovalID) // if that fails, a person decides about it without effect
			}
		}()
		return api.EmitResult{}, ctx.Err()
	}
}

// withdraw takes a question back about which nobody has decided.
func (g *Gate) withdraw(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return g.daemon.Call(ctx, "agent.withdraw", &api.WithdrawParams{ApprovalID: id, Note: "the call was given up"}, nil)
}

var errWaits = errors.New("nobody has decided yet")

// wait returns when a person has decided.
func (g *Gate) wait(ctx context.Context, id string, until time.Time) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for time.Now().Before(until) {
		select {
		case <-ctx.Done():
			// The call was given up, so nobody needs to decide about it.
			return errors.Join(ctx.Err(), errWaits, g.withdraw(context.WithoutCancel(ctx), id))
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
func answer(q *Question, v Verdict) *mcp.CallToolResult {
	said := map[string]any{"hookEventName": q.Event}
	switch {
	case v.Decision == Leave, v.Decision == Allow && q.Event == Before:
		return text("{}", false)
	case q.Event == Permission && v.Decision == Allow:
		said["decision"] = map[string]any{"behavior": Allow}
	case q.Event == Permission:
		said["decision"] = map[string]any{"behavior": Deny, "message": v.Reason}
	default:
		said["permissionDecision"], said["permissionDecisionReason"] = v.Decision, v.Reason
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
