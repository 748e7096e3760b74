package a2aproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// cardPaths are the places of agent cards, of the present version first.
var cardPaths = []string{"/.well-known/agent-card.json", "/.well-known/agent.json"}

func hostOf(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// ServeHTTP handles one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if why := p.stranger(r); why != "" {
		http.Error(w, "ocipd: "+why, http.StatusForbidden)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), p.o.Public.Path)
	if !ok || rest == "" {
		http.NotFound(w, r)
		return
	}
	if slices.Contains(cardPaths, rest) {
		if r.Method != http.MethodGet {
			http.Error(w, "ocipd: a card is only read", http.StatusMethodNotAllowed)
			return
		}
		if p.enter(w, r) {
			defer p.exit(r)
			p.serveCard(w, r)
		}
		return
	}
	tag, path, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if path != "" {
		path = "/" + path
	}
	c, err := p.theCard(r.Context(), false)
	if err != nil {
		http.Error(w, "ocipd: "+err.Error(), http.StatusBadGateway)
		return
	}
	at := c.face(tag, "")
	if at == nil {
		http.NotFound(w, r)
		return
	}
	p.accept(w, r, c, at, path)
}

// enter takes room for a request that was read, unless too many are open, or too many of its peer. A
// client that sends slowly takes none.
func (p *Proxy) enter(w http.ResponseWriter, r *http.Request) bool {
	if p.open.take(sharer(p, r), 1) {
		select {
		case p.room <- struct{}{}:
			return true
		default:
		}
	}
	p.open.take(sharer(p, r), -1)
	http.Error(w, "ocipd: too many requests are open", http.StatusServiceUnavailable)
	return false
}

func (p *Proxy) exit(r *http.Request) {
	<-p.room
	p.open.take(sharer(p, r), -1)
}

// sharer is the peer whose share a request takes.
func sharer(p *Proxy, r *http.Request) string {
	if !p.o.Incoming {
		return own
	}
	return p.sessionOf(r, nil)
}

// stranger says why a request does not come from a client that may speak to the proxy. On the
// outgoing side that is a program of this machine, and no page of a site.
func (p *Proxy) stranger(r *http.Request) string {
	switch {
	case r.Header.Get("Upgrade") != "":
		return "no other protocols"
	case p.o.Incoming:
		return ""
	case !slices.Contains(p.hosts, r.Host):
		return "this address is not one of the proxy's"
	case len(r.Header.Values("Origin")) > 0 && r.Header.Get("Origin") != "http://"+r.Host:
		return "pages of other sites may not ask"
	}
	return ""
}

// accept reads a request, and handles it.
func (p *Proxy) accept(w http.ResponseWriter, r *http.Request, c *card, at *face, path string) {
	load := &load{all: p.loads, peer: sharer(p, r)}
	defer load.free()
	body, ok := p.read(w, r, load)
	if !ok || !p.enter(w, r) {
		return
	}
	defer p.exit(r)
	q := &request{}
	var err error
	switch {
	case r.Header.Get("Content-Encoding") != "" || len(body) > 0 && !isJSON(r.Header):
		err = fmt.Errorf("%w: the body is to be application/json or application/a2a+json, without an encoding", errMalformed)
	case at.binding == httpJSON:
		q, err = parseREST(r.Method, path, r.URL.RawQuery, body)
	case r.Method != http.MethodPost || path != "" || r.URL.RawQuery != "":
		err = fmt.Errorf("%w: JSON-RPC is a POST to the interface's address", errMalformed)
	default:
		q, err = parseRPC(body)
	}
	if q == nil {
		q = &request{}
	}
	q.load, q.at, q.session = load, at, p.sessionOf(r, c)
	if err == nil {
		q.header, err = headers(r.Header, c.keys)
	}
	if err != nil {
		p.o.Log.Info("refused a request", "from", r.RemoteAddr, "error", err)
		p.fail(w, q, malformed(err))
		return
	}
	q.given = q.sum(p.o.Incoming)
	p.handle(w, r, q)
}

// read reads the body of a request in a bounded time, or answers why it cannot.
func (p *Proxy) read(w http.ResponseWriter, r *http.Request, load *load) (body []byte, ok bool) {
	if err := http.NewResponseController(w).SetReadDeadline(p.o.Now().Add(bodyTime)); err != nil {
		http.Error(w, "ocipd: cannot bound the time of a request", http.StatusInternalServerError)
		return nil, false
	}
	body, err := load.read(http.MaxBytesReader(w, r.Body, maxBody), maxBody)
	if errors.Is(err, errBusy) {
		http.Error(w, "ocipd: the request cannot be read: "+err.Error(), http.StatusServiceUnavailable)
		return nil, false
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("ocipd: the request cannot be read, or has more than %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return nil, false
	}
	// If the connection is gone, so is the client.
	return body, http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil
}

func malformed(err error) *gatelink.Refusal {
	code := "MALFORMED"
	if errors.Is(err, errNoMethod) {
		code = "METHOD_NOT_FOUND"
	}
	return &gatelink.Refusal{Code: code, Reason: err.Error()}
}

// handle has a request decided, passes it, and has the answer decided.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request, q *request) {
	if p.joined(w, r, q) {
		return
	}
	var d *decided
	no := p.takeHook(q)
	if no == nil {
		d, no = p.admit(r.Context(), q)
	}
	if no == nil {
		if no = p.placeHook(r.Context(), q); no != nil && d != nil {
			p.report(d, api.OutcomeNotSent, no.Reason)
		}
	}
	if no != nil {
		p.fail(w, q, no)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	resp, no := p.forward(ctx, q, d)
	if no != nil {
		p.fail(w, q, no)
		return
	}
	defer resp.Body.Close()
	if q.method.stream && isStream(resp.Header) {
		p.pump(ctx, cancel, w, q, resp)
		return
	}
	doc, shape, no := p.unary(q, resp)
	restore := func() {}
	if no == nil {
		restore, no = p.ownHooks(q, doc)
	}
	if no == nil {
		no = p.decideAnswer(ctx, q, shape, doc)
	}
	if no != nil {
		p.fail(w, q, no)
		return
	}
	if restore(); shape != errShape {
		p.forgetHook(q)
	}
	p.pass(w, q, resp, doc, shape)
}

// admit has a request decided. It returns what the daemon allowed of the agent's own.
func (p *Proxy) admit(ctx context.Context, q *request) (*decided, *gatelink.Refusal) {
	never := func([32]byte) bool { return false }
	s, err := say(q.method.name, q.method.params, q.params, true, never, p.own(q.session))
	switch {
	case err != nil:
		return nil, malformed(err)
	case q.method.decided == asMessage && q.params.get("message") == nil:
		return nil, malformed(fmt.Errorf("%w: there is no message", errMalformed))
	case !p.o.Incoming && s.envelope != nil:
		return nil, malformed(fmt.Errorf("the metadata has %s: only ocipd writes that", Extension))
	}
	if p.o.Incoming {
		if q.method.decided == asCall && !s.fresh {
			return nil, nil
		}
		got, no := p.inward(ctx, q.session, q.method.name, s)
		if no == nil {
			q.exchange = exchangeOf(got)
			p.remember(q.session, s.digests)
			p.learn(q.session, q.method.params, q.params)
			if err := s.settle(q.method.params, q.params, got); err != nil {
				return nil, malformed(err)
			}
		}
		return nil, no
	}
	if q.method.decided == asCall {
		if no := p.permit(ctx, q); no != nil || !s.fresh {
			return nil, no
		}
	}
	return p.send(ctx, q, s)
}

// send has a message of the agent decided, and puts the decided one in its place.
func (p *Proxy) send(ctx context.Context, q *request, s *said) (*decided, *gatelink.Refusal) {
	d, held, no := p.outward(ctx, q.session, q.method.name, s, p.exchangeFor(q), p.o.Origin)
	if held != "" {
		d, no = p.waitFor(ctx, q, held)
	}
	if no != nil {
		return nil, no
	}
	m, params, err := d.request()
	if err == nil && m.name != q.method.name {
		err = errors.New("the method is not the one that was decided")
	}
	if err != nil {
		p.report(d, api.OutcomeNotSent, err.Error())
		return nil, gatelink.RefusedBy(err)
	}
	q.params, q.exchange = params, exchangeOf(d.Metadata)
	if message := params.get("message"); message != nil {
		sent := message.clone()
		takeEnvelope(sent)
		p.remember(q.session, [][32]byte{sent.digest()})
		q.header.Set("A2A-Extensions", strings.Join(append(q.header.Values("A2A-Extensions"), Extension), ", "))
	}
	p.learn(q.session, q.method.params, params)
	return d, nil
}

// waitFor waits for a person, at most for the hold time. Then the message is sent later.
func (p *Proxy) waitFor(ctx context.Context, q *request, id string) (*decided, *gatelink.Refusal) {
	p.mu.Lock()
	p.waits[id] = true
	p.mu.Unlock()
	over := time.NewTimer(p.o.Hold)
	defer over.Stop()
	err := p.await(ctx, id, over.C)
	switch {
	case err == nil:
		defer p.waitsNoMore(id)
		return p.redeem(ctx, id)
	case errors.Is(err, errOver):
		p.keep(q, &late{approval: id, done: make(chan struct{})}, p.o.Now())
		p.waitsNoMore(id)
		p.o.Link.Wake()
		return nil, heldBy(id)
	}
	if p.ended.Err() == nil {
		p.withdraw(id, "the client has given up the request")
	}
	p.waitsNoMore(id)
	return nil, &gatelink.Refusal{Code: "CANCELLED", Reason: "the request was given up"}
}

func (p *memory) waitsNoMore(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, id)
}

// exchangeFor says which exchange a message continues: that of its conversation or task. A
// message of neither begins one.
func (p *memory) exchangeFor(q *request) api.Object {
	message := q.params.get("message")
	p.mu.Lock()
	defer p.mu.Unlock()
	begins := true
	for _, name := range []string{"taskId", "contextId"} {
		id := message.get(name)
		if id == nil || id.text == "" {
			continue
		}
		begins = false
		if known := p.exchanges.get(idKey{q.session, id.text}); known != "" {
			return api.Object{"id": api.String(known)}
		}
	}
	if begins && q.method.decided == asMessage {
		return api.Object{"new": []byte("true"), "ownTurn": []byte("true")}
	}
	return nil
}

// exchangeOf is the id of a decided message's exchange.
func exchangeOf(metadata api.Object) string {
	n, err := parse(metadata["exchange"])
	if err != nil {
		return "" // there is none with a counterparty that is no agent
	}
	if id := n.get("id"); id != nil {
		return id.text
	}
	return ""
}

// belongsTo notes the exchange of a conversation and a task that an answer names.
func (p *memory) belongsTo(q *request, ids ...*node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if id == nil || id.text == "" || len(id.text) > maxPlain || q.exchange == "" {
			continue
		}
		p.exchanges.put(q.session, idKey{q.session, id.text}, q.exchange)
	}
}
