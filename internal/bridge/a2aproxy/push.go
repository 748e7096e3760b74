package a2aproxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// Push makes push notifications pass the proxy. The other side is given an address of the proxy
// in place of the client's webhook, and never sees the webhook or what authenticates there.
type Push struct {
	// Listener takes the notifications. Public is its address for the other side.
	Listener Listener
	Public   *url.URL
	// Webhooks are the addresses to which notifications may go: these and those below them. A
	// client cannot make the proxy call any other host.
	Webhooks []Webhook
}

// Webhook is an address for notifications, and the addresses below it.
type Webhook struct {
	*url.URL
	// Peer is the one calling peer whose address it is, such as "peer.example". If it is empty, a
	// peer that calls has to be of the webhook's host.
	Peer string
}

// ParseWebhook reads [PEER=]URL. A URL on another machine needs https.
func ParseWebhook(given string) (w Webhook, err error) {
	address := given
	if peer, rest, ok := strings.Cut(given, "="); ok && !strings.Contains(peer, "/") {
		if w.Peer, address = strings.ToLower(strings.TrimPrefix(peer, Channel+":")), rest; w.Peer == "" {
			return w, fmt.Errorf("%q names no peer before its =", given)
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return w, fmt.Errorf("%q is no address of a webhook", given)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return w, fmt.Errorf("%q is to begin with https://, since it is on another machine", given)
	}
	w.URL = u
	return w, nil
}

// isOf reports whether the webhook is one of a calling peer. A notification is decided for one session,
// and must not reach another one.
func (w *Webhook) isOf(session string) bool {
	peer := strings.TrimPrefix(session, Channel+":")
	if w.Peer != "" {
		return peer == w.Peer
	}
	return strings.EqualFold(w.Hostname(), strings.TrimPrefix(peer, unverified))
}

const (
	// maxHooks bounds the webhooks of one session. A new one takes the place of its oldest.
	maxHooks = 256
	// maxSecret bounds a webhook's address, and what authenticates there.
	maxSecret = 2048
)

// create registers a webhook. The other side reports about a task to it.
const create = "CreateTaskPushNotificationConfig"

// notification is one report of the other side. It is no method that a client calls.
var notification = &method{name: "PushNotification", decided: asCall, result: answerShape}

// hook is the webhook of a client.
type hook struct {
	session string
	url     string
	// id and task are those of the configuration, once the other side has answered.
	id, task string
	// header authenticates at the webhook.
	header http.Header
	// taken are the members that the other side does not get.
	taken *node
}

// addHook gives a webhook an address that nobody can guess.
func (p *memory) addHook(h *hook) (name string) {
	if len(p.hooks.of[h.session]) >= maxHooks {
		p.hooks.forgetOldest(h.session)
	}
	name = rand.Text()
	p.hooks.put(h.session, name, h)
	return name
}

// configOf is the object in a request that has a webhook, or nil.
func configOf(m *method, params *node) *node {
	in := params
	if m.decided == asMessage {
		in = params.get("configuration")
	} else if m.name != create {
		return nil
	}
	for _, name := range []string{"taskPushNotificationConfig", "pushNotificationConfig"} {
		if c := in.get(name); c != nil && c.kind == '{' {
			return c
		}
	}
	if m.name == create {
		return params
	}
	return nil
}

// takeHook takes the client's webhook out of a request, if there is one.
func (p *Proxy) takeHook(q *request) *gatelink.Refusal {
	c := configOf(q.method, q.params)
	switch {
	case p.o.Push == nil && q.method.name == create:
		return &gatelink.Refusal{Code: "NOT_DECIDED", Reason: q.name + " is refused: " + noPush}
	case p.o.Push == nil || c == nil:
		return nil // a configuration inside a message is refused by its form
	}
	h := &hook{session: q.session, url: textOf(c, "url"), header: make(http.Header), taken: objectNode()}
	if why := p.o.Push.forbids(q.session, p.o.Incoming, h.url); why != "" {
		return &gatelink.Refusal{Code: "WEBHOOK_REFUSED", Reason: why}
	}
	if err := h.authenticate(c.get("token"), c.get("authentication")); err != nil {
		return malformed(err)
	}
	for _, name := range []string{"url", "token", "authentication"} {
		if n := c.get(name); n != nil {
			h.taken.set(name, n)
			c.remove(name)
		}
	}
	q.hook = h
	return nil
}

// forbids says why no notification of a session may go to an address. Calls is set for a session of a
// peer that calls.
func (o *Push) forbids(session string, calls bool, given string) string {
	u, err := url.Parse(given)
	// Two programs could read any other address as one of different hosts or places.
	if err != nil || given == "" || len(given) > maxSecret || u.String() != given || u.User != nil || u.Fragment != "" || u.RawPath != "" ||
		!plainPath(u.Path) || strings.ContainsFunc(u.RawQuery, unicode.IsControl) {
		return fmt.Sprintf("%.200q is no plain address of a webhook", given)
	}
	for i := range o.Webhooks {
		allowed := &o.Webhooks[i]
		base := strings.TrimSuffix(allowed.Path, "/")
		if (!calls || allowed.isOf(session)) && u.Scheme == allowed.Scheme && sameHost(u, allowed.URL) && (strings.TrimSuffix(u.Path, "/") == base || strings.HasPrefix(u.Path, base+"/")) {
			return ""
		}
	}
	if calls {
		return fmt.Sprintf("the webhook %.200q is not at or below an address of --webhook for this peer, which is on its own host or given as %s=URL", given, strings.TrimPrefix(session, Channel+":"))
	}
	return fmt.Sprintf("the webhook %.200q is not at or below an address of --webhook", given)
}

// plainPath reports whether every server reads a decoded path as the same place. Some take a backslash
// for a slash, drop what follows a semicolon in a segment before they resolve it, or end it at a
// zero byte; a segment may be encoded twice.
func plainPath(p string) bool {
	for {
		if strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || r == '\\' }) || p != "" && p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/") {
			return false
		}
		for segment := range strings.SplitSeq(p, "/") {
			if name, _, _ := strings.Cut(segment, ";"); segment != name && (name == "" || name == "." || name == "..") {
				return false
			}
		}
		again, err := url.PathUnescape(p)
		if err != nil || again == p {
			return true
		}
		p = again
	}
}

// authenticate takes what authenticates at the webhook, in either version.
func (h *hook) authenticate(token, authentication *node) error {
	set := func(header, value string) error {
		if value == "" {
			return nil
		}
		if len(value) > maxSecret || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%w: the webhook's token or credentials", errMalformed)
		}
		h.header.Set(header, value)
		return nil
	}
	if token != nil && token.kind != '"' && token.kind != 'n' || authentication != nil && authentication.kind != '{' && authentication.kind != 'n' {
		return fmt.Errorf("%w: the webhook's token or authentication", errMalformed)
	}
	scheme := textOf(authentication, "scheme")
	if list := authentication.get("schemes"); scheme == "" && list != nil && len(list.kids) > 0 {
		scheme = list.kids[0].text
	}
	if credentials := textOf(authentication, "credentials"); scheme != "" && credentials != "" {
		if err := set("Authorization", scheme+" "+credentials); err != nil {
			return err
		}
	}
	if token == nil {
		return nil
	}
	return set("X-A2A-Notification-Token", token.text)
}

// placeHook puts an address of the proxy in the place of the webhook. The agent's registration of
// a webhook is decided as a call of a tool, also inside a message.
func (p *Proxy) placeHook(ctx context.Context, q *request) *gatelink.Refusal {
	if q.hook == nil {
		return nil
	}
	if !p.o.Incoming && q.method.decided == asMessage {
		if no := p.permit(ctx, &request{method: named(create), session: q.session, params: objectNode(), hook: q.hook}); no != nil {
			return no
		}
	}
	c := configOf(q.method, q.params)
	if c == nil {
		return bad("the configuration of the webhook was not decided")
	}
	p.mu.Lock()
	name := p.addHook(q.hook)
	p.mu.Unlock()
	q.hook.task = textOf(q.params, "taskId")
	c.set("url", textNode(p.o.Push.Public.String()+"/"+name))
	return nil
}

// withHook are the params of a request as a policy sees them, with the webhook's address.
func (q *request) withHook() *node {
	if q.hook == nil {
		return q.params
	}
	params := q.params.clone()
	params.set("url", textNode(q.hook.url))
	return params
}

// ownHooks takes the proxy's addresses out of an answer about webhooks. The function that it
// returns puts the client's own in their places.
func (p *Proxy) ownHooks(q *request, doc *node) (restore func(), no *gatelink.Refusal) {
	if p.o.Push == nil || doc == nil || q.method.params != pushShape {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hooksOf(q.session, p.o.Push.Public.String()+"/", doc)
}

func (p *memory) hooksOf(session, prefix string, doc *node) (restore func(), no *gatelink.Refusal) {
	restore = func() {}
	if name, ok := strings.CutPrefix(textOf(doc, "url"), prefix); ok {
		doc.remove("url")
		one := p.hooks.get(name)
		switch {
		case one == nil: // of an earlier proxy
		case one.session != session:
			return nil, bad("the answer has a webhook of another client")
		default:
			one.id, one.task = textOf(doc, "id"), cmp.Or(textOf(doc, "taskId"), one.task)
			restore = func() {
				for i, name := range one.taken.names {
					doc.set(name, one.taken.kids[i].clone())
				}
			}
		}
	}
	for _, kid := range doc.kids {
		inner, no := p.hooksOf(session, prefix, kid)
		if no != nil {
			return nil, no
		}
		outer := restore
		restore = func() { outer(); inner() }
	}
	return restore, nil
}

// forgetHook forgets the webhook that a request has deleted.
func (p *memory) forgetHook(q *request) {
	if q.method.name != "DeleteTaskPushNotificationConfig" {
		return
	}
	id, task := textOf(q.params, "pushNotificationConfigId", "id"), textOf(q.params, "taskId", "id")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Clone(p.hooks.of[q.session]) {
		if h := p.hooks.get(name); h.id == id && h.task == task && id != "" {
			p.hooks.forget(q.session, name)
		}
	}
}

// notifier takes notifications of the other side. It has each one decided, and gives it to the
// client's webhook.
type notifier struct{ *Proxy }

func (p notifier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.EscapedPath(), strings.TrimSuffix(p.o.Push.Public.Path, "/")+"/")
	p.mu.Lock()
	h := p.hooks.get(name)
	p.mu.Unlock()
	if !ok || h == nil {
		http.NotFound(w, r) // the proxy may have started since; the client registers again
		return
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Encoding") != "" || !isJSON(r.Header) {
		http.Error(w, "ocipd: a notification is a POST of application/json or application/a2a+json, without an encoding", http.StatusUnsupportedMediaType)
		return
	}
	load := &load{all: p.loads}
	defer load.free()
	body, ok := p.read(w, r, load)
	if !ok {
		return
	}
	if !p.enter(w, r) {
		return
	}
	defer p.exit(r)
	// The sender may stop waiting while a person decides.
	ctx, cancel := context.WithTimeout(p.ended, p.o.Hold+p.o.Wait)
	defer cancel()
	if no := p.notified(ctx, h, load, r.Header.Get("Content-Type"), body); no != nil {
		p.o.Log.Warn("withheld a push notification", "peer", h.session, "code", no.Code, "reason", no.Reason)
		status := http.StatusForbidden
		if no.Code == "PEER_UNREACHABLE" {
			status = http.StatusBadGateway
		}
		text := "ocipd: refused (" + no.Code + ")"
		if p.o.Incoming {
			text += ": " + no.Reason
		}
		http.Error(w, text, status)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// notified has a notification decided and passes it.
func (p notifier) notified(ctx context.Context, h *hook, load *load, kind string, body []byte) *gatelink.Refusal {
	doc, err := parse(body)
	if err != nil {
		return bad("the notification cannot be read: %v", err)
	}
	q := &request{method: notification, name: notification.name, params: objectNode(), at: &face{binding: httpJSON}, session: h.session, load: load}
	of := answerShape.of(doc)
	if !p.o.Incoming {
		c, err := p.theCard(ctx, false)
		if err != nil {
			return bad("%v", err)
		}
		q.session = p.called(c)
		if no := p.decideAnswer(ctx, q, of, doc); no != nil {
			return no
		}
		_, no := p.notify(ctx, h, kind, doc)
		return no
	}
	if appends(doc.get("artifactUpdate")) || appends(doc) {
		// A secret could pass in pieces.
		return bad("the notification appends to an artifact; the client reads the whole with GetTask")
	}
	q.exchange = p.exchangeOfAnswer(q.session, of, doc)
	d, no := p.answerOf(ctx, q, of, doc)
	if no != nil {
		return no
	}
	outcome, no := p.notify(ctx, h, kind, doc)
	if d != nil && no != nil {
		p.report(d, outcome, no.Reason)
	} else if d != nil {
		p.report(d, outcome, "")
	}
	return no
}

// appends reports whether an update holds a later piece of an artifact.
func appends(update *node) bool {
	more := update.get("append")
	return more != nil && more.kind == 't'
}

// exchangeOfAnswer is the exchange of the task or conversation that an answer names.
func (p *memory) exchangeOfAnswer(session string, of *shape, doc *node) (found string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = (&visitor{leaf: func(_ string, l leaf, n *node) error {
		if l == anID && found == "" && n.text != "" {
			found = p.exchanges.get(idKey{session, n.text})
		}
		return nil
	}}).walk("", of, doc) // one that cannot be walked is refused when it is decided
	return found
}

// notify gives a decided notification to a webhook, once.
func (p notifier) notify(ctx context.Context, h *hook, kind string, doc *node) (outcome string, no *gatelink.Refusal) {
	unreachable := func(outcome, reason string) (string, *gatelink.Refusal) {
		return outcome, &gatelink.Refusal{Code: "PEER_UNREACHABLE", Reason: reason}
	}
	// The address is at or below one that the user named.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(doc.write(nil))) //nolint:gosec // see above
	if err != nil {
		return unreachable(api.OutcomeNotSent, "the webhook's address cannot be used")
	}
	r.GetBody = nil // a repetition would send twice
	r.Header = h.header.Clone()
	r.Header.Set("Content-Type", kind)
	r.Header.Set("User-Agent", "ocipd")
	resp, err := p.webhooks.Do(r) //nolint:gosec // see above
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unreachable(api.OutcomeNotSent, "the webhook cannot be reached")
	} else if err != nil {
		return unreachable(api.OutcomeUnknown, "the webhook has not answered")
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHeader)) // so that the connection serves again
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return unreachable(outcomeOf(resp.StatusCode), fmt.Sprintf("the webhook answered with status %d", resp.StatusCode))
	}
	return api.OutcomeSent, nil
}
