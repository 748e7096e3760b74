package a2aproxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// card is the card of the target, with its interfaces that the proxy serves.
type card struct {
	doc   *node
	faces []*face
	// keys are the headers that hold API keys.
	keys []string
	// proven is set if the card's signature is by the peer's key.
	proven bool
	at     time.Time
}

// face is one interface.
type face struct {
	tag     string
	url     *url.URL
	binding string
	version string
}

// maxCard bounds a card, and cardTime how long one is used before it is read again.
const (
	maxCard  = 1 << 20
	cardTime = 5 * time.Minute
)

// nameOf is the method's name in the interface's version.
func (f *face) nameOf(m *method) string {
	if strings.HasPrefix(f.version, "0.") && m.old != "" {
		return m.old
	}
	return m.name
}

// face finds an interface by its tag or by its binding.
func (c *card) face(tag, binding string) *face {
	for _, f := range c.faces {
		if f.tag == tag || tag == "" && f.binding == binding {
			return f
		}
	}
	return nil
}

// theCard returns the target's card, and reads it if there is none, if it is old, or if fresh
// is set.
func (p *Proxy) theCard(ctx context.Context, fresh bool) (*card, error) {
	p.mu.Lock()
	c := p.card
	p.mu.Unlock()
	if c != nil && !fresh && p.o.Now().Sub(c.at) < cardTime {
		return c, nil
	}
	next, err := p.readCard(ctx)
	if err != nil {
		if c != nil && !fresh {
			return c, nil // its interfaces are likely to be the same
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.card; c != nil && !next.proven && c.proven {
		p.o.Log.Warn("the peer's card is not signed by its key any more: the peer is a stranger")
	}
	p.card = next
	return next, nil
}

// readCard reads the target's card.
func (p *Proxy) readCard(ctx context.Context) (*card, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Wait)
	defer cancel()
	load := &load{all: p.loads}
	defer load.free()
	var last error
	for _, path := range cardPaths {
		u := *p.o.Target
		u.Path = strings.TrimSuffix(u.Path, "/") + path
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept-Encoding", "identity")
		r.Header.Set("A2A-Version", "1.0")
		resp, err := p.client.Do(r)
		if err != nil {
			return nil, fmt.Errorf("cannot read the agent card: %w", err)
		}
		body, err := load.read(resp.Body, maxCard)
		err = errors.Join(err, resp.Body.Close())
		switch {
		case err != nil:
			last = fmt.Errorf("cannot read the agent card: %w", err)
		case resp.StatusCode != http.StatusOK:
			last = fmt.Errorf("the agent card at %s has status %d", u.Path, resp.StatusCode)
		case len(body) > maxCard:
			return nil, fmt.Errorf("the agent card has more than %d bytes", maxCard)
		default:
			return p.parseCard(body)
		}
	}
	return nil, last
}

// parseCard reads a card. It keeps the interfaces that stand at the same host, and speak a
// binding that is decided.
func (p *Proxy) parseCard(body []byte) (*card, error) {
	doc, err := parse(body)
	if err != nil || doc.kind != '{' {
		return nil, fmt.Errorf("the agent card cannot be read: %w", errors.Join(err, errMalformed))
	}
	c := &card{doc: doc, at: p.o.Now()}
	var left []string
	for _, one := range interfaces(doc) {
		f, why := p.faceOf(one)
		if why != "" {
			left = append(left, why)
			continue
		}
		c.faces = append(c.faces, f)
	}
	if len(c.faces) == 0 {
		return nil, fmt.Errorf("the agent card has no interface that can be decided: %s", strings.Join(left, "; "))
	}
	for _, why := range left {
		p.o.Log.Info("left out an interface of the agent card", "why", why)
	}
	if schemes := doc.get("securitySchemes"); schemes != nil && schemes.kind == '{' {
		for _, s := range schemes.kids {
			if key := s.get("apiKeySecurityScheme"); key != nil {
				s = key
			}
			where, name := s.get("location"), s.get("name")
			if where == nil {
				where = s.get("in")
			}
			if where != nil && where.text == "header" && name != nil && isKeyHeader(name.text) {
				c.keys = append(c.keys, name.text)
			}
		}
	}
	if p.o.PeerKey != nil {
		if err := p.o.PeerKey.verify(doc); err != nil {
			p.o.Log.Warn("the agent card is not signed by the peer's key: the peer is a stranger", "error", err)
		} else {
			c.proven = true
		}
	}
	return c, nil
}

// isKeyHeader reports whether a header may hold an API key: it is none of HTTP's own.
func isKeyHeader(name string) bool {
	return isPlain(name) && !strings.ContainsAny(name, ":/*") && !slices.Contains([]string{
		"host", "connection", "content-length", "content-type", "transfer-encoding", "accept-encoding", "upgrade", "te", "trailer", "expect",
	}, strings.ToLower(name))
}

// interfaces are the interfaces of a card, in either version. Each node is the object that
// has the address.
func interfaces(doc *node) (all []*node) {
	if list := doc.get("supportedInterfaces"); list != nil && list.kind == '[' {
		all = append(all, list.kids...)
	}
	if doc.get("url") != nil {
		all = append(all, doc)
	}
	if list := doc.get("additionalInterfaces"); list != nil && list.kind == '[' {
		all = append(all, list.kids...)
	}
	return all
}

func textOf(n *node, names ...string) string {
	for _, name := range names {
		if m := n.get(name); m != nil && m.text != "" {
			return m.text
		}
	}
	return ""
}

// faceOf reads an interface, or says why it is left out.
func (p *Proxy) faceOf(n *node) (f *face, why string) {
	f = &face{binding: textOf(n, "protocolBinding", "transport", "preferredTransport"), version: textOf(n, "protocolVersion")}
	given := textOf(n, "url")
	if f.binding == "" {
		f.binding = jsonRPC
	}
	if f.version == "" {
		f.version = "0.3"
	}
	u, err := url.Parse(given)
	switch {
	case f.binding == gRPC:
		return nil, "GRPC is not decided"
	case f.binding != jsonRPC && f.binding != httpJSON:
		return nil, fmt.Sprintf("the binding %.50q is not decided", f.binding)
	case f.binding == httpJSON && strings.HasPrefix(f.version, "0."):
		return nil, "HTTP+JSON of version 0.3 is not decided"
	case !strings.HasPrefix(f.version, "0.") && !strings.HasPrefix(f.version, "1."):
		return nil, fmt.Sprintf("the version %.50q is not decided", f.version)
	case err != nil || u.Scheme != p.o.Target.Scheme || !sameHost(u, p.o.Target) || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Sprintf("%.200q is not at %s://%s, which the proxy was given", given, p.o.Target.Scheme, p.o.Target.Host)
	}
	sum := sha256.Sum256([]byte(f.binding + "\n" + given))
	f.url, f.tag = u, hex.EncodeToString(sum[:6])
	return f, ""
}

// sameHost reports whether two addresses are of one host and port.
func sameHost(a, b *url.URL) bool { return addressOf(a) == addressOf(b) }

// addressOf is the host of an address, with its port unless that is the scheme's own.
func addressOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// rewritten is a card whose addresses lead through the proxy, in a copy. Signatures do not
// hold for it, and are left out.
func (p *Proxy) rewritten(doc *node) *node {
	doc = doc.clone()
	drop := func(name string) {
		list := doc.get(name)
		if list == nil || list.kind != '[' {
			return
		}
		list.kids = slices.DeleteFunc(list.kids, func(n *node) bool {
			f, _ := p.faceOf(n)
			if f != nil {
				n.set("url", textNode(p.place(f)))
			}
			return f == nil
		})
	}
	drop("supportedInterfaces")
	drop("additionalInterfaces")
	if doc.get("url") != nil {
		if f, _ := p.faceOf(doc); f != nil {
			doc.set("url", textNode(p.place(f)))
		} else {
			doc.remove("url")
			doc.remove("preferredTransport")
		}
	}
	doc.remove("signatures")
	capabilities := doc.get("capabilities")
	if capabilities == nil || capabilities.kind != '{' {
		capabilities = objectNode()
		doc.set("capabilities", capabilities)
	}
	if p.o.Push == nil && capabilities.get("pushNotifications") != nil {
		off, _ := parse([]byte("false")) // it is JSON
		capabilities.set("pushNotifications", off)
	}
	if p.o.Incoming {
		declare(capabilities)
	}
	return doc
}

// place is the address at which the proxy serves an interface.
func (p *Proxy) place(f *face) string {
	u := *p.o.Public
	u.Path += "/" + f.tag
	return u.String()
}

// declare puts the extension into a card's capabilities.
func declare(capabilities *node) {
	list := capabilities.get("extensions")
	if list == nil || list.kind != '[' {
		list = &node{kind: '['}
		capabilities.set("extensions", list)
	}
	list.kids = slices.DeleteFunc(list.kids, func(n *node) bool { return textOf(n, "uri") == Extension })
	one := objectNode()
	one.set("uri", textNode(Extension))
	one.set("description", textNode("OCIP envelopes in the metadata of messages, tasks and events, by ocipd"))
	list.kids = append(list.kids, one)
}

// serveCard gives a client the target's card. On the outgoing side it is the peer's word to
// the agent, and decided like that.
func (p *Proxy) serveCard(w http.ResponseWriter, r *http.Request) {
	c, err := p.theCard(r.Context(), true)
	if err != nil {
		http.Error(w, "ocipd: "+err.Error(), http.StatusBadGateway)
		return
	}
	q := &request{method: named("GetExtendedAgentCard"), at: &face{binding: httpJSON}, session: p.sessionOf(r, c)}
	q.given = sha256.Sum256(nil)
	doc := p.rewritten(c.doc)
	body := doc.write(nil)
	if no := p.decideCard(r.Context(), q, doc); no != nil {
		p.fail(w, q, no)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the client may be gone
}

// decideCard has a card decided: a peer's as its word to the agent, once for each card, and
// the agent's own as a call of a tool.
func (p *Proxy) decideCard(ctx context.Context, q *request, doc *node) *gatelink.Refusal {
	if p.o.Incoming {
		q.params = doc
		return p.permit(ctx, q)
	}
	sum := [][sha256.Size]byte{sha256.Sum256(doc.write(nil))}
	if p.decidedBefore(q.session)(sum[0]) {
		return nil
	}
	s, err := say("AgentCard", anyShape, doc, false, p.decidedBefore(q.session), p.passes(q.session))
	if err != nil {
		return bad("the agent card cannot be decided: %v", err)
	}
	if _, no := p.inward(ctx, q.session, "AgentCard", s); no != nil {
		return no
	}
	p.remember(q.session, sum)
	return nil
}
