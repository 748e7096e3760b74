package mcpproxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// parseRequest parses a request other than tools/call as a call of a tool with the method's
// name. The daemon decides about all of its params, and the request passes unchanged but for its metadata.
func parseRequest(line []byte, f *frame) (*toolCall, error) {
	c := &toolCall{frame: *f, line: line, tool: f.method, whole: true}
	if f.params.to == 0 {
		return c, nil
	}
	params := jsontext.Value(line[f.params.from:f.params.to])
	var err error
	if c.arguments, err = toolmap.Members(params, f.params.from); err != nil || !has(c.arguments, metaMember) {
		return c, err
	}
	kept, ok := filtered(params, func(m *toolmap.Member) (ok bool) {
		if ok = m.Name != metaMember; !ok {
			m.Value, ok = meta(m.Value)
		}
		return ok
	})
	if !ok || string(kept) == string(params) {
		return c, nil
	}
	c.line = f.withParams(kept)
	if c.frame, err = parseBody(c.line); err == nil {
		c.arguments, err = toolmap.Members(c.given(), c.params.from)
	}
	return c, err
}

// permit asks the daemon about a call of a tool that sends no message, and waits if a
// person has to decide. It calls asked before it waits. arguments are set if interceptors
// changed the call's.
func (p *proxy) permit(ctx context.Context, c *toolCall, m *toolmap.Map, asked func()) (arguments jsontext.Value, no *gatelink.Refusal) {
	if p.o.Link.Exempted() {
		return nil, nil
	}
	var over <-chan time.Time
	for {
		v, no := p.o.Link.Permit(p.ctx, ctx, p.question(c, m))
		if no != nil {
			return nil, no
		}
		if v.Allowed {
			return changed(c, v.Data)
		}
		asked()
		if over == nil {
			timer := time.NewTimer(p.o.Hold)
			defer timer.Stop()
			over = timer.C
		}
		switch err := p.awaitWord(ctx, c, v.ApprovalID, over); {
		case errors.Is(err, errOver):
			return nil, &gatelink.Refusal{Code: "HELD", Reason: "a person has to approve the call (ocipd approvals show " + v.ApprovalID + "); once that is done, the same call is let through. Do not call it again before your user says so"}
		case err != nil:
			p.withdraw(v.ApprovalID, "the call was given up")
			return nil, &gatelink.Refusal{Code: "CANCELLED", Reason: "the call was cancelled"}
		}
	}
}

// given are the original arguments, or all params of a request other than tools/call.
func (c *toolCall) given() jsontext.Value {
	if c.whole && c.params.to > 0 {
		return c.line[c.params.from:c.params.to]
	} else if m, ok := toolmap.Find(c.members, "arguments"); ok && m.Value.Kind() == '{' {
		return m.Value
	}
	return jsontext.Value("{}")
}

// question is the daemon's input for a call.
func (p *proxy) question(c *toolCall, m *toolmap.Map) api.Object {
	data := api.Object{"toolName": api.String(c.tool), "mcpServer": api.String(p.o.name()), "params": c.given(), "runtime": api.String("mcp-proxy"), "origin": api.String(p.origin(c.via.account()))}
	if c.answers != nil {
		data["inputResponses"] = c.answers
	}
	if id := c.odd(); id != nil {
		data["requestId"] = id
	}
	switch name := m.Shown(); {
	case name != "":
		data["map"] = api.String(name)
	default:
		data["map"] = api.String("none")
	}
	if saysText(p, c, m) {
		data["unmapped"] = jsontext.Value("true")
	}
	return data
}

// changed returns the arguments as interceptors changed them, or nil.
func changed(c *toolCall, data jsontext.Value) (jsontext.Value, *gatelink.Refusal) {
	if len(data) == 0 {
		return nil, nil
	}
	var now struct {
		Params  jsontext.Value `json:"params"`
		Answers jsontext.Value `json:"inputResponses"`
	}
	if err := json.Unmarshal(data, &now, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, gatelink.RefusedBy(err)
	}
	changed := !same(now.Params, c.given())
	switch {
	case !same(now.Answers, c.answers) || c.whole && changed:
		return nil, &gatelink.Refusal{Code: "UNCLEAR", Reason: "an interceptor changed what cannot be changed here"}
	case !changed:
		return nil, nil
	case now.Params.Kind() != '{':
		return nil, &gatelink.Refusal{Code: "UNCLEAR", Reason: "an interceptor made no object of the arguments"}
	}
	return now.Params, nil
}

// same reports whether two values are the same JSON.
func same(a, b jsontext.Value) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	a, b = a.Clone(), b.Clone()
	allow, exact := jsontext.AllowInvalidUTF8(true), jsontext.CanonicalizeRawInts(false)
	return a.Canonicalize(allow, exact) == nil && b.Canonicalize(allow, exact) == nil && string(a) == string(b)
}

// awaitWord waits until a person has decided about a call. Meanwhile it tells the client
// that the call is alive.
func (p *proxy) awaitWord(ctx context.Context, c *toolCall, id string, over <-chan time.Time) error {
	n := 0
	return p.await(ctx, over, c.via.left(), func() { n++; c.alive(n) }, func() bool {
		var now api.AgentApproval
		err := p.o.Link.Call(ctx, "agent.approval", map[string]string{"approval_id": id}, &now)
		return err == nil && now.Status != api.ApprovalPending
	})
}

// withdraw withdraws an approval request.
func (p *proxy) withdraw(id, why string) {
	if err := p.o.Link.Call(context.WithoutCancel(p.ctx), "agent.withdraw", &api.WithdrawParams{ApprovalID: id, Note: short(why)}, nil); err != nil {
		p.o.Log.Warn("cannot take back what waits", "approval", id, "error", err)
	}
}

// make passes an allowed call to the server.
func (p *proxy) make(c *toolCall, arguments jsontext.Value) {
	line := c.line
	if !c.whole {
		if _, ok := toolmap.Find(c.members, "arguments"); arguments == nil && ok {
			arguments = c.given()
		}
		line = c.with(arguments, c.answers)
	} else if c.more {
		line = c.anew(line)
	}
	p.requests.opens(c.named, c.id)
	if err := c.via.send(line); err != nil {
		p.refuse(c, &gatelink.Refusal{Code: "FAILED", Reason: "the MCP server is gone"})
	}
}

// undecidable refuses a message whose id makes its answer unrecognizable.
func undecidable(f *frame) *gatelink.Refusal {
	if f.plain() {
		return nil
	}
	return &gatelink.Refusal{Code: "MALFORMED", Reason: "the id of a call that is decided about is a whole number of at most 15 digits, or a short text of ASCII"}
}

// name is the server's name in its client's list, or else its map's.
func (o *Options) name() string {
	if o.Name != "" {
		return o.Name
	}
	return o.Map.Name
}

// origin distinguishes the server from others with its name, and its accounts from each
// other. A message that was approved for one is not sent through another.
func (p *proxy) origin(account string) string {
	if account == "" {
		return p.o.Origin
	}
	return fmt.Sprintf("%s, session %s", p.o.Origin, account)
}

// toolOf returns the tool of a call that sends messages, or nil. It refuses
// arguments that the server could read differently from the daemon.
func toolOf(c *toolCall, m *toolmap.Map) (t *toolmap.Tool, err error) {
	if !c.whole {
		if err = m.Allows(c.arguments); err == nil {
			t, err = m.ToolOf(c.tool, c.arguments)
		}
	}
	if err == nil {
		err = toolmap.Exactly(c.arguments)
	}
	return t, err
}

// passesUnasked reports whether neither a call nor its answer needs a decision.
func passesUnasked(p *proxy, c *toolCall) bool {
	m := p.mapped.Load()
	if m == nil || !p.o.Link.Exempted() {
		return false
	}
	used := p.calls.inUse(c.named)
	t, err := toolOf(c, m)
	return !used && (c.whole || m.ReadOf(c.tool) == nil) && t == nil && err == nil
}
