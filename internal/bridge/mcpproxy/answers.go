package mcpproxy

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// spoil refuses the answers of a session that the proxy has to inspect first. It returns the
// lines that replace the server's message, and reports whether that message must not pass.
func (p *proxy) spoil(session string, resumed bool, why string) (lines []byte, spoiled bool) {
	var all []*observer
	p.mu.Lock()
	// A client need not mind of which session a stream is.
	spoiled = len(p.order)+len(p.deciding) > 0 || resumed && len(p.over)+len(p.observers) > 0
	for at, o := range p.observers {
		spoiled = spoiled || o.in != nil
		if at.session == session && o.in != nil {
			all = append(all, o)
			delete(p.observers, at)
			p.keepLocked(at, nil)
		}
	}
	p.mu.Unlock()
	for _, o := range all {
		line := o.spoiled(why)
		p.mu.Lock()
		p.keepLocked(o.key, line)
		p.mu.Unlock()
		lines = append(lines, line...)
	}
	return lines, spoiled
}

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
		lines, spoiled := p.spoil(session, resumed, "the server said something that cannot be read: "+err.Error())
		if len(lines) > 0 {
			instead = func() []byte { return lines }
		}
		return instead, spoiled
	}
	if f.method != "" || f.id == nil {
		note(p, session, &f)
		return nil, false
	}
	remembers(p, session, &f)
	at := key{session, f.key()}
	if p.letBefore(at, line) {
		return nil, false
	}
	if again, kept := p.insteadOf(at, resumed); kept {
		if again != nil {
			instead = func() []byte { return again }
		}
		return instead, true
	}
	open, o := answersOpen(p, at, resumed), p.take(at)
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
			// The client could ask the server to repeat the answer.
			p.mu.Lock()
			p.keepLocked(at, said)
			if bytes.Equal(said, line) {
				p.letLocked(at, line)
			}
			p.mu.Unlock()
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
