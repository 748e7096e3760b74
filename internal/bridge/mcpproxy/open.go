package mcpproxy

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// maxAsked bounds the requests of the client, and of the server, that are remembered until they are
// answered.
const maxAsked = 16 << 10

// question is a request of the server to its client.
type question struct {
	id     jsontext.Value
	method string
}

// opens notes that the server gets a request, which it may answer.
func opens(p *proxy, at key, id jsontext.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.says.open == nil {
		p.says.open = make(map[key]opened)
	}
	put(p.says.open, at, opened{id.Clone(), p.says.open[at].n + 1})
}

// opened is the newest id of requests that the server has got, as it got it, and their number.
type opened struct {
	id jsontext.Value
	n  int
}

// put sets a member of a map that holds at most maxAsked.
func put[V any](m map[key]V, at key, value V) {
	if _, again := m[at]; !again && len(m) >= maxAsked {
		for one := range m {
			delete(m, one)
			break
		}
	}
	m[at] = value
}

// answersOpen reports whether an answer is one to a request that the server has got, and has not
// answered. On a resumed stream it may have.
func answersOpen(p *proxy, at key, resumed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.says.open[at]
	if o.n--; o.n > 0 {
		p.says.open[at] = o
	} else {
		delete(p.says.open, at)
	}
	return o.n >= 0 || resumed
}

// note remembers a request of the server, which the client may answer.
func note(p *proxy, session string, f *frame) {
	if !f.answerable() || len(f.method) > maxID || len(f.id) > maxID {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.says.questions == nil {
		p.says.questions = make(map[key]question)
	}
	put(p.says.questions, key{session, f.key()}, question{bytes.Clone(f.id), f.method})
}

// answered finds the request of the server that an answer of the client is to. The server may have made
// it before the session had its name.
func answered(p *proxy, session string, f *frame) (q question, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range []key{{session, f.key()}, {"", f.key()}} {
		if q, ok = p.says.questions[at]; ok {
			delete(p.says.questions, at)
			return q, true
		}
	}
	return q, false
}

// reply has the daemon decide about the client's answer to a request of the server, as about a call of
// a tool that has the request's name. The server gets the answer written anew, or that there is none.
func (c *toolCall) reply(p *proxy, f *frame, session string) {
	said := f.result
	if f.failure != nil {
		said = f.failure
	}
	if said.Kind() != '{' || !f.answerable() {
		p.malformed(c.via, "it is neither a request nor an answer")
		return
	}
	q, ok := answered(p, session, f)
	if !ok {
		p.malformed(c.via, "it answers nothing that the server has asked")
		return
	}
	begin := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":`, q.id)
	c.tool, c.whole, c.id, c.named.session = q.method, true, q.id, session
	c.line = append(append([]byte(begin), said...), "}\n"...)
	c.params = span{len(begin), len(begin) + len(said)}
	say := func(line []byte) {
		if err := c.via.send(line); err != nil {
			p.o.Log.Warn("cannot answer the MCP server", "error", err)
		}
	}
	if f.failure != nil {
		say(failureLine(q.id, said))
		return
	}
	p.asking.Add(1)
	asked := sync.OnceFunc(p.asking.Done)
	p.background.Go(func() {
		defer asked()
		var no *gatelink.Refusal
		var err error
		if c.arguments, err = toolmap.Members(said, 0); err == nil {
			err = toolmap.Exactly(c.arguments)
		}
		switch {
		case err != nil:
			no = &gatelink.Refusal{Code: "MALFORMED", Reason: err.Error()}
		case len(c.arguments) > 0:
			_, no = p.permit(p.ended, c, p.o.Map, asked)
		}
		if no == nil {
			say(c.line)
			return
		}
		p.o.Log.Warn("refused an answer of the client", "request", c.tool, "code", no.Code, "reason", no.Reason)
		say(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%s}}`+"\n", q.id, api.String("ocipd: refused ("+no.Code+")")))
	})
}

// failures are the errors of a client that the server learns of by their codes: JSON-RPC's, and that of a
// refused sampling.
var failures = map[string]string{"-32700": "parse error", "-32600": "invalid request", "-32601": "method not found", "-32602": "invalid params", "-32603": "internal error", "-1": "rejected"}

// failureLine tells the server of an error by its code alone. The words of the client are not decided about.
func failureLine(id, said jsontext.Value) []byte {
	list, _ := toolmap.Members(said, 0)
	code, _ := toolmap.Find(list, "code")
	number := string(code.Value)
	if failures[number] == "" {
		number = "-32603"
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":%s}}`+"\n", id, number, api.String(failures[number]))
}

// anew is a message of the client written from the members that the protocol has.
func (f *frame) anew(line []byte) []byte {
	b := []byte(`{"jsonrpc":"2.0"`)
	if f.id != nil {
		b = fmt.Appendf(b, `,"id":%s`, f.id)
	}
	b = fmt.Appendf(b, `,"method":%s`, api.String(f.method))
	if f.params.to > 0 {
		b = fmt.Appendf(b, `,"params":%s`, line[f.params.from:f.params.to])
	}
	return append(b, "}\n"...)
}

// outOfForm reports why a message of the client is none of the protocol's.
func outOfForm(f *frame) string {
	switch {
	case f.method != "" && (f.result != nil || f.failure != nil):
		return "it is a request and an answer"
	case f.id != nil && strings.HasPrefix(f.method, "notifications/"):
		return "a notification has no id"
	case f.method != "tools/call" && toolmap.Bare(f.method) == toolmap.Bare("tools/call"):
		return fmt.Sprintf("the method %q is not tools/call", f.method)
	}
	return ""
}
