package mcpproxy

import (
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

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
	q, ok := p.requests.answered(session, f)
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
		c.arguments, err = exactly(said, 0)
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
