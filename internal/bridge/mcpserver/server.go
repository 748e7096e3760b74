// Package mcpserver is an MCP server over stdio whose tools are what one grant of a running
// ocipd lets its holder call: tasks, and the messages of an agent that has no app.
//
// It is a client of the daemon's socket and decides nothing. What a tool may do is the
// grant's: the server lists the tools that the daemon named when it attached, writes who
// calls and for which task where the grant says so, and gives the daemon's answer on as it
// is. It connects again where the daemon restarts, and what was under way then is asked
// again under the same key, so that nothing is done twice.
//
// The caller's duty: nothing else writes to the standard output that it hands in.
package mcpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// Options is what a server is given from outside.
type Options struct {
	// Dial connects to the daemon's kernel socket.
	Dial func(context.Context) (*client.Client, error)
	// Token is the grant's, and Role, where set, the role that it must be for.
	Token string
	Role  task.Role
	// Without are tools that the client is not shown, though the grant has them.
	Without []string
	Version string
	In      io.ReadCloser
	Out     io.WriteCloser
	Log     *slog.Logger
	NewID   func() string
}

// callTime is for how long an answer is waited for.
const callTime = time.Minute

// Serve answers until the input ends or the context does.
func Serve(ctx context.Context, o *Options) error {
	s := &server{o: o, nonce: o.NewID(), daemon: taskclient.New(o.Dial, o.Token)}
	defer s.daemon.Close()
	var err error
	if s.at, err = s.daemon.Attached(ctx); err != nil {
		return err
	}
	if o.Role != "" && s.at.Role != o.Role {
		return fmt.Errorf("cannot serve the tools of a %s: the token is for %s", o.Role, whose(&s.at))
	}
	s.at.Tools = slices.DeleteFunc(s.at.Tools, func(name string) bool { return slices.Contains(o.Without, name) })
	mcpServer := mcp.NewServer(&mcp.Implementation{Name: "ocipd", Title: "ocipd", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions(&s.at), Logger: o.Log, Capabilities: &mcp.ServerCapabilities{},
	})
	for _, t := range toolsOf(&s.at) {
		described, err := t.describe(&s.at)
		if err != nil {
			return err
		}
		mcpServer.AddTool(described, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.use(ctx, &t, r.Params), nil
		})
	}
	err = mcpServer.Run(ctx, &mcp.IOTransport{Reader: o.In, Writer: o.Out})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// whose names who a grant is for.
func whose(at *taskapi.Attached) string {
	if at.Actor == "" {
		return "agent " + at.Agent
	}
	return fmt.Sprintf("%s, a %s", at.Actor, at.Role)
}

// server is one MCP server.
type server struct {
	o      *Options
	nonce  string
	daemon *taskclient.Conn
	// at is what the grant was when the server attached first.
	at taskapi.Attached
}

// call makes a call. All that is called may be called twice: it reads, has a request key,
// or a key of its own.
func (s *server) call(ctx context.Context, method string, params any) (raw jsontext.Value, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err = s.daemon.Call(ctx, method, params, &raw); errors.Is(err, context.DeadlineExceeded) {
		err = api.Errorf(api.Timeout, "the daemon has not answered within %s", callTime)
	}
	return raw, err
}

// use answers a call of a tool.
func (s *server) use(ctx context.Context, t *tool, p *mcp.CallToolParamsRaw) *mcp.CallToolResult {
	args, err := arguments(p.Arguments)
	if err != nil {
		return failed(err, "")
	}
	t.fill(args, &s.at)
	key := ""
	if t.keyed() && unsaid(args["request_key"]) {
		key = s.key(t, p)
		args["request_key"] = api.String(key)
	}
	raw, err := s.call(ctx, t.method, args)
	if err != nil {
		s.o.Log.Warn("a call was refused", "tool", t.name, "error", err)
		return failed(err, key)
	}
	if t.after != nil {
		raw = t.after(raw)
	}
	return &mcp.CallToolResult{StructuredContent: raw, Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}
}

// arguments reads what a client gives a tool: an object, each member once.
func arguments(raw []byte) (api.Object, error) {
	args := make(api.Object)
	if len(raw) == 0 {
		return args, nil
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, api.Errorf(api.InvalidParams, "cannot read the arguments: they are an object with each member once")
	}
	if args == nil { // null
		return make(api.Object), nil
	}
	return args, nil
}

// unsaid reports whether a member says nothing, as models fill in what they leave out: what
// is called has to have a key all the same.
func unsaid(member jsontext.Value) bool {
	text, ok := api.Text(member)
	return len(member) == 0 || member.Kind() == 'n' || ok && text == ""
}

// toolUse is where a client names the model's call of a tool, which it keeps when it makes
// the call again.
const toolUse = "claudecode/toolUseId"

// key is the request key of a call that has none: the same for the same call of this
// server's client, and else a fresh one.
func (s *server) key(t *tool, p *mcp.CallToolParamsRaw) string {
	id, ok := p.Meta[toolUse].(string)
	if !ok || id == "" {
		return "mcp-" + s.o.NewID()
	}
	sum := sha256.Sum256([]byte(s.nonce + "\n" + id + "\n" + t.name + "\n" + string(p.Arguments)))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// failure is what a client is told of a refusal.
type failure struct {
	Code     api.Code  `json:"code"`
	TaskCode task.Code `json:"task_code,omitzero"`
	OCIPCode string    `json:"ocip_code,omitzero"`
	Message  string    `json:"message"`
	Next     string    `json:"next"`
	// RequestKey is what the call had for a key, where its caller gave none and it may have
	// been done: called again with it, it is done once.
	RequestKey string `json:"request_key,omitzero"`
	Details    any    `json:"details,omitzero"`
}

// failed is the answer to a call that failed, with the key that the server has given it.
func failed(err error, key string) *mcp.CallToolResult {
	e, ok := errors.AsType[*api.Error](err)
	switch {
	case errors.Is(err, client.ErrNotRunning):
		e = api.Errorf(api.ConnectionClosed, "%v", err)
	case !ok:
		e = api.Errorf(api.UnknownError, "%v", err)
	}
	f := failure{Code: e.Code, Message: e.Message, Details: e.Details}
	switch e.Code {
	case api.Timeout, api.ConnectionClosed, api.UnknownError:
		f.RequestKey = key
	default:
	}
	var details struct {
		taskapi.Details
		OCIP struct {
			Code string `json:"code"`
		} `json:"ocip"`
	}
	if text, err := json.Marshal(e.Details); err == nil && json.Unmarshal(text, &details) == nil {
		f.TaskCode, f.OCIPCode = details.Task.Code, details.OCIP.Code
	}
	f.Next = cmp.Or(ocipAdvice()[f.OCIPCode], taskAdvice()[f.TaskCode], codeAdvice()[f.Code])
	text, err := json.Marshal(&f)
	if err != nil {
		text = []byte(`{"code":"UNKNOWN_ERROR","message":"the error cannot be shown","next":"Tell your user."}`)
	}
	return &mcp.CallToolResult{IsError: true, StructuredContent: jsontext.Value(text), Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
}
