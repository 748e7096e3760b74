package mcpproxy

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// neverDone are JSON-RPC errors that precede any effect.
var neverDone = map[string]bool{"-32700": true, "-32600": true, "-32601": true, "-32602": true}

// observed inspects a message of the server. If instead is not nil,
// it makes the client's version of the line. A line that is held never passes.
func (p *proxy) observed(session string, resumed bool, line []byte) (instead func() []byte, held bool) {
	f, err := parseBody(line)
	if err == nil && f.doubtful() {
		err = fmt.Errorf("%w: it is not clear whose answer it is", toolmap.ErrFrame)
	}
	if err != nil {
		// A client that parses it differently could take it for an answer.
		lines, spoiled := p.calls.spoil(session, resumed, "the server said something that cannot be read: "+err.Error())
		if len(lines) > 0 {
			instead = func() []byte { return lines }
		}
		return instead, spoiled
	}
	if f.method != "" || f.id == nil {
		p.requests.note(session, &f)
		return nil, false
	}
	p.given.remembers(session, &f)
	at := key{session, f.key()}
	if p.calls.letBefore(at, line) {
		return nil, false
	}
	if again, kept := p.calls.insteadOf(at, resumed); kept {
		if again != nil {
			instead = func() []byte { return again }
		}
		return instead, true
	}
	open, o := p.requests.answersOpen(at, resumed), p.calls.take(at)
	if o == nil {
		return nil, !open
	}
	if o.seen != nil {
		o.seen(&f)
		return nil, o.own
	}
	if o.done != nil {
		o.done(outcomeOf(&f))
	}
	if o.in != nil {
		return func() []byte {
			said := o.in(&f, line)
			p.calls.inspected(at, line, said)
			return said
		}, true
	}
	return nil, o.own
}

// refusedCode is the code of a request that is refused, among those that JSON-RPC leaves to servers. invalidCode is
// JSON-RPC's for invalid params, with which servers refuse a state that they have not given.
const refusedCode, invalidCode = -32000, -32602

// errorLine answers a request with an error.
func errorLine(id jsontext.Value, code int, no *gatelink.Refusal) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s,"data":{"code":%s}}}`+"\n", id, code, api.String("ocipd: refused ("+no.Code+"): "+no.Reason), api.String(no.Code))
}

// outcomeOf derives the outcome of a call from its answer.
func outcomeOf(f *frame) (outcome, note string) {
	if f.failure != nil {
		said, _ := toolmap.Members(f.failure, 0)
		if code, ok := toolmap.Find(said, "code"); ok && neverDone[string(code.Value)] && f.result == nil {
			return api.OutcomeNotSent, "the server answered with an error"
		}
		return api.OutcomeUnknown, "the server answered with an error"
	}
	said, err := toolmap.Members(f.result, 0)
	if kind, _ := toolmap.Find(said, "resultType"); err != nil || later(said) || kind.Value != nil && string(kind.Value) != `"complete"` {
		return api.OutcomeUnknown, "the server has not said what became of it"
	}
	if failed, ok := toolmap.Find(said, "isError"); ok && failed.Value.Kind() == 't' {
		return api.OutcomeUnknown, "the tool says that it failed"
	}
	return api.OutcomeSent, ""
}

func malformedLine(why string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":%s}}`+"\n", api.String("ocipd: "+why))
}

// refuse answers a refused call.
func (p *proxy) refuse(c *toolCall, no *gatelink.Refusal) {
	p.o.Log.Warn("refused a call", "tool", c.tool, "code", no.Code, "reason", no.Reason)
	if c.method != "tools/call" {
		// Only the result of a tool can say that it is an error.
		c.via.tell(errorLine(c.id, refusedCode, no))
		return
	}
	c.answer(true, fmt.Sprintf("ocipd: refused (%s): %s. Nothing was sent, and the tool was not called. Do not retry it or do it another way; tell your user.", no.Code, no.Reason))
}

// answer answers a call with a text.
func (c *toolCall) answer(isError bool, text string) {
	c.via.tell(resultLine(c, isError, text))
}

func resultLine(c *toolCall, isError bool, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"isError":%t}}`+"\n", c.id, api.String(text), isError)
}

// alive tells the client that its call is alive.
func (c *toolCall) alive(n int) {
	if c.progress != nil {
		c.via.news(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"ocipd: a person has to approve this"}}`+"\n", c.progress, n))
	}
}
