package a2aproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// forward sends a decided request to the other side, once, and returns the beginning of the
// answer. It reports what became of a decided message.
func (p *Proxy) forward(ctx context.Context, q *request, d *decided) (*http.Response, *gatelink.Refusal) {
	// An id of the client's choice could say something.
	q.sent = strconv.AppendInt(nil, p.next.Add(1), 10)
	verb, address, body := q.target()
	// The address is at the host that the user named, and the ids in its path are plain.
	r, err := http.NewRequestWithContext(ctx, verb, address, bytes.NewReader(body)) //nolint:gosec // see above
	if err == nil {
		r.GetBody = nil // a repetition would send twice
		r.Header = q.header.Clone()
		r.Header.Set("Accept-Encoding", "identity")
		r.Header.Set("User-Agent", "ocipd")
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		var resp *http.Response
		if resp, err = p.client.Do(r); err == nil { //nolint:gosec // see above
			if d != nil {
				p.report(d, outcomeOf(resp.StatusCode), fmt.Sprintf("the peer answered with status %d", resp.StatusCode))
			}
			return resp, nil
		}
	}
	outcome, reason := api.OutcomeUnknown, "the peer has not answered"
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		outcome, reason = api.OutcomeNotSent, "the peer cannot be reached"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		reason = fmt.Sprintf("the peer has not answered within %s", p.o.Wait)
	}
	if d != nil {
		p.report(d, outcome, reason)
	}
	p.o.Log.Warn("a request has no answer", "peer", q.session, "reason", reason, "error", err)
	return nil, &gatelink.Refusal{Code: "PEER_UNREACHABLE", Reason: reason}
}

// outcomeOf derives the outcome of a message from the status of its answer.
func outcomeOf(status int) string {
	switch {
	case status < 300:
		return api.OutcomeSent
	case status >= 400 && status < 500:
		return api.OutcomeNotSent
	}
	return api.OutcomeUnknown
}

func isStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

func bad(format string, args ...any) *gatelink.Refusal {
	return &gatelink.Refusal{Code: "PEER_ANSWER", Reason: fmt.Sprintf(format, args...)}
}

// unary reads an answer that is no stream.
func (p *Proxy) unary(q *request, resp *http.Response) (*node, *shape, *gatelink.Refusal) {
	timer := time.AfterFunc(p.o.Wait, func() { _ = resp.Body.Close() })
	body, err := q.load.read(resp.Body, maxBody)
	slow := !timer.Stop()
	switch {
	case slow:
		return nil, nil, bad("the answer was not there within %s", p.o.Wait)
	case errors.Is(err, errBusy):
		return nil, nil, bad("the answer cannot be read: %v", err)
	case err != nil:
		return nil, nil, bad("the answer broke off")
	case len(body) > maxBody:
		return nil, nil, bad("the answer has more than %d bytes", maxBody)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, nil, bad("the peer redirects to another address, and that is not followed")
	case resp.Header.Get("Content-Encoding") != "" && resp.Header.Get("Content-Encoding") != "identity":
		return nil, nil, bad("the answer is compressed, which was not asked for")
	case len(body) == 0 && resp.StatusCode < 300 && q.at.binding == httpJSON:
		return nil, anyShape, nil
	case !isJSON(resp.Header):
		return nil, nil, bad("the answer with status %d is no JSON", resp.StatusCode)
	}
	doc, err := parse(body)
	if err != nil {
		return nil, nil, bad("the answer cannot be read: %v", err)
	}
	if q.at.binding == jsonRPC {
		return resultOf(q, doc)
	}
	if resp.StatusCode >= 300 {
		return doc, errShape, nil
	}
	return doc, q.method.result, nil
}

// resultOf takes the result or error out of an answer of JSON-RPC.
func resultOf(q *request, doc *node) (*node, *shape, *gatelink.Refusal) {
	for _, name := range doc.names {
		if name != "jsonrpc" && name != "id" && name != "result" && name != "error" {
			return nil, nil, bad("the answer has the member %.200q, which JSON-RPC does not have", name)
		}
	}
	id, version := doc.get("id"), doc.get("jsonrpc")
	result, failure := doc.get("result"), doc.get("error")
	if failure != nil && failure.kind == 'n' {
		failure = nil
	}
	switch {
	case version == nil || version.text != "2.0":
		return nil, nil, bad("the answer is none of JSON-RPC 2.0")
	case (id == nil || id.kind == 'n') && failure != nil:
		return failure, errShape, nil // it could not read the request
	case id == nil || string(id.raw) != string(q.sent):
		return nil, nil, bad("the answer is to another request")
	case failure != nil && result == nil:
		return failure, errShape, nil
	case failure != nil || result == nil:
		return nil, nil, bad("the answer has not one of result and error")
	}
	return result, q.method.result, nil
}

// decideAnswer has an answer decided. On the incoming side it is the agent's, and gets its
// decided texts and its envelope.
func (p *Proxy) decideAnswer(ctx context.Context, q *request, of *shape, doc *node) *gatelink.Refusal {
	if doc == nil {
		return nil
	}
	of = of.of(doc)
	if p.o.Incoming {
		d, no := p.answerOf(ctx, q, of, doc)
		if d != nil {
			p.report(d, api.OutcomeSent, "")
		}
		return no
	}
	s, err := say(q.method.name, of, doc, false, p.decidedBefore(q.session), p.passes(q.session))
	if err != nil {
		return bad("the answer cannot be decided: %v", err)
	}
	var got api.Object
	if s.fresh {
		var no *gatelink.Refusal
		if got, no = p.inward(ctx, q.session, q.method.name, s); no != nil {
			p.o.Log.Warn("withheld an answer", "peer", q.session, "code", no.Code, "reason", no.Reason)
			return no
		}
		p.remember(q.session, s.digests)
	}
	if err := s.settle(of, doc, got); err != nil {
		return bad("the answer cannot be decided: %v", err)
	}
	p.learn(q.session, of, doc)
	p.note(q, of, doc)
	return nil
}

// note remembers which exchange the tasks and conversations of an answer belong to.
func (p *memory) note(q *request, of *shape, doc *node) {
	_ = (&visitor{leaf: func(string, leaf, *node) error { return nil }, open: func(_ string, n *node) {
		p.belongsTo(q, n.get("contextId"), n.get("taskId"), n.get("id"))
	}}).walk("", of, doc) // it was walked before
}

// answerOf has an answer of the agent decided. It returns the decision, if there was one.
func (p *Proxy) answerOf(ctx context.Context, q *request, of *shape, doc *node) (*decided, *gatelink.Refusal) {
	strip := &visitor{leaf: func(string, leaf, *node) error { return nil }, open: func(_ string, n *node) { takeEnvelope(n) }}
	if err := strip.walk("", of, doc); err != nil {
		return nil, bad("the agent's answer cannot be decided: %v", err)
	}
	known := p.decidedBefore(q.session)
	s, err := say(q.method.name, of, doc, false, known, p.passes(q.session))
	if err != nil {
		return nil, bad("the agent's answer cannot be decided: %v", err)
	}
	if !s.fresh {
		return nil, nil
	}
	exchange := api.Object{}
	if q.exchange != "" {
		exchange["id"] = api.String(q.exchange)
	}
	sum := sha256.Sum256(append([]byte(q.session+"\n"+s.content+"\n"), s.rest.write(nil)...))
	d, no := p.answerDecided(ctx, q, s, exchange, sum, doc)
	if no != nil {
		return nil, no
	}
	if err := d.into(of, doc, s, known); err != nil {
		p.report(d, api.OutcomeNotSent, err.Error())
		return nil, gatelink.RefusedBy(err)
	}
	p.remember(q.session, s.digests)
	p.learn(q.session, of, doc)
	p.note(q, of, doc)
	return d, nil
}

// answerDecided asks about an answer of the agent, or takes what was approved since.
func (p *Proxy) answerDecided(ctx context.Context, q *request, s *said, exchange api.Object, sum [sha256.Size]byte, doc *node) (*decided, *gatelink.Refusal) {
	p.mu.Lock()
	id := p.held.get(sum)
	p.mu.Unlock()
	if id == "" {
		d, held, no := p.outward(ctx, q.session, q.method.name, s, exchange, p.o.Origin+" (answer)")
		if held == "" {
			return d, no
		}
		id = held
		p.mu.Lock()
		p.held.put(q.session, sum, id)
		p.mu.Unlock()
	}
	over := time.NewTimer(p.o.Hold)
	defer over.Stop()
	if err := p.await(ctx, id, over.C); err != nil {
		switch {
		case q.method == notification:
			// Nobody asks for it again.
			p.withdraw(id, "the notification has waited too long")
			p.mu.Lock()
			p.held.forget(q.session, sum)
			p.mu.Unlock()
		case q.method.decided == asMessage:
			l := &late{approval: id, done: make(chan struct{})}
			l.end(doc.clone(), nil)
			p.keep(q, l, p.o.Now())
		}
		return nil, heldBy(id)
	}
	p.mu.Lock()
	p.held.forget(q.session, sum)
	p.mu.Unlock()
	return p.redeem(ctx, id)
}

// into puts the decided texts and the envelope into an answer.
func (d *decided) into(of *shape, doc *node, s *said, known func([sha256.Size]byte) bool) error {
	if string(d.call.Params) != string(s.rest.write(nil)) || len(d.files) != len(s.files) {
		return toolmap.Unclear("the answer was changed in what has no text")
	}
	for i, f := range d.files {
		if f.text != s.files[i].text {
			return toolmap.Unclear("a file was rewritten")
		}
	}
	if s.whole {
		before, after, ok := strings.Cut(d.Content.Inspect(), s.content)
		if rest := strings.TrimSpace(before + after); !ok || rest != "" && rest != d.label() {
			return toolmap.Unclear("the text was rewritten, and the answer has none")
		}
	} else {
		texts, err := spread(d.Content.Inspect(), d.label(), s.sizes, s.glued, d.call.Sum)
		if err != nil {
			return err
		}
		inner := &visitor{leaf: func(_ string, l leaf, n *node) error {
			if l == aText && n.kind == '"' && len(texts) > 0 {
				*n, texts = *textNode(texts[0]), texts[1:]
			}
			return nil
		}}
		v := *inner
		v.unit = func(of *shape, unit *node) bool {
			if !known(unit.digest()) {
				_ = inner.walk(of.name, of, unit) // it was walked before
			}
			return false
		}
		if err := v.walk("", of, doc); err != nil {
			return err
		}
	}
	if len(s.places) == 0 {
		return nil
	}
	place := s.places[0]
	return annotate(place, d.Metadata, place.get("messageId") != nil)
}

// pass gives the client an answer, with the other side's status.
func (p *Proxy) pass(w http.ResponseWriter, q *request, resp *http.Response, doc *node, of *shape) {
	if challenge := resp.Header.Get("WWW-Authenticate"); challenge != "" && len(challenge) <= 1024 {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if doc == nil {
		w.WriteHeader(resp.StatusCode)
		return
	}
	if of != errShape && q.method.name == "GetExtendedAgentCard" {
		doc = p.rewritten(doc)
	}
	switch {
	case q.at.binding == httpJSON:
		reply(w, q, resp.StatusCode, doc.write(nil))
	case of == errShape:
		reply(w, q, resp.StatusCode, wrapped(q, "error", doc))
	default:
		reply(w, q, resp.StatusCode, wrapped(q, "result", doc))
	}
}

// give answers a client whose answer was kept.
func (p *Proxy) give(w http.ResponseWriter, q *request, doc *node) {
	events := []*node{doc}
	if list := doc.get("events"); list != nil {
		events = list.kids
	}
	if !q.method.stream {
		p.pass(w, q, &http.Response{StatusCode: http.StatusOK}, doc, q.method.result)
		return
	}
	s := &pumping{p: p, w: w, q: q}
	for _, doc := range events {
		s.write(&event{doc: doc})
	}
}

// wrapped writes an answer of JSON-RPC.
func wrapped(q *request, name string, doc *node) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), q.id...)
	b = append(appendText(append(b, ','), name), ':')
	return append(doc.write(b), '}')
}

func reply(w http.ResponseWriter, q *request, status int, body []byte) {
	kind := "application/json"
	if q.at != nil && q.at.binding == httpJSON {
		kind = "application/a2a+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = bytes.NewReader(body).WriteTo(w) // the client may be gone
}
