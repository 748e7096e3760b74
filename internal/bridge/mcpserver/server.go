// Package mcpserver is an MCP server over stdio. Its tools are the methods that one grant
// of a running ocipd permits: tasks, and the messages of an agent that has no app.
//
// The server is a client of the daemon's socket and decides nothing. It lists the tools that
// the daemon named when it attached. It fills in the caller, and the task if the grant names
// one, and returns the daemon's answers unchanged. After a restart of the daemon it
// reconnects and repeats calls in progress under the same key, so that nothing is done twice.
//
// The caller must not write to the standard output that it passes.
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

// Options are the inputs of a server.
type Options struct {
	// Dial connects to the daemon's kernel socket.
	Dial func(context.Context) (*client.Client, error)
	// Token is the grant's token. Role, if set, is the role that the grant must have.
	Token string
	Role  task.Role
	// Without are tools of the grant that the client does not see.
	Without []string
	Version string
	In      io.ReadCloser
	Out     io.WriteCloser
	Log     *slog.Logger
	NewID   func() string
}

// callTime bounds the wait for an answer.
const callTime = time.Minute

// Serve answers until the input or the context ends.
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
	err = mcpServer.Run(ctx, &draining{Transport: &mcp.IOTransport{Reader: o.In, Writer: o.Out}, within: drainTime})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// whose names the holder of a grant.
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
	// at is the grant when the server first attached.
	at taskapi.Attached
}

// call makes a call. Every call can be repeated safely: it reads, has a request key, or has
// a key of its own.
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

// arguments parses a client's arguments: an object without duplicate members.
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

// unsaid reports whether a member is empty. Models fill in members that they mean to leave
// out, and the call still needs a key.
func unsaid(member jsontext.Value) bool {
	text, ok := api.Text(member)
	return len(member) == 0 || member.Kind() == 'n' || ok && text == ""
}

// toolUse is the client's name for the model's tool call. The client keeps it when it
// repeats the call.
const toolUse = "claudecode/toolUseId"

// key is the request key for a call without one: the same for a repeated call of this
// client, or else a fresh one.
func (s *server) key(t *tool, p *mcp.CallToolParamsRaw) string {
	id, ok := p.Meta[toolUse].(string)
	if !ok || id == "" {
		return "mcp-" + s.o.NewID()
	}
	sum := sha256.Sum256([]byte(s.nonce + "\n" + id + "\n" + t.name + "\n" + string(p.Arguments)))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// failure describes a refusal to the client.
type failure struct {
	Code     api.Code  `json:"code"`
	TaskCode task.Code `json:"task_code,omitzero"`
	OCIPCode string    `json:"ocip_code,omitzero"`
	Message  string    `json:"message"`
	Next     string    `json:"next"`
	// RequestKey is the key of a call that may have been done although the caller gave no
	// key. A call repeated with it is done only once.
	RequestKey string `json:"request_key,omitzero"`
	Details    any    `json:"details,omitzero"`
}

// failed is the answer to a failed call, with the key that the server chose.
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
