package a2aproxy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// late is a request whose answer comes after its call: its message waits for a person, or its
// answer does. The same request is answered with the answer.
type late struct {
	approval, session string
	// done is closed when the answer is there, or no is why there is none.
	done chan struct{}
	over sync.Once
	doc  *node
	no   *gatelink.Refusal
	at   time.Time
}

// lateTime bounds how long an answer is kept for the same request, and maxLate how many are.
const (
	lateTime = time.Hour
	maxLate  = 256
)

// sum identifies a request by everything that it says.
func (q *request) sum(incoming bool) [sha256.Size]byte {
	name := q.method.name
	if q.method.decided == asMessage && !incoming {
		// The peer's late answer is a single one in any case.
		name = "message"
	}
	return sha256.Sum256(append([]byte(q.session+"\n"+name+"\n"), q.params.write(nil)...))
}

// keep has a request answered later.
func (p *memory) keep(q *request, l *late, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for sum, other := range p.late.values {
		if now.Sub(other.at) > lateTime {
			p.late.forget(other.session, sum)
		}
	}
	l.session, l.at = q.session, now
	p.late.put(q.session, q.given, l)
}

// joined answers a request that is the same as an earlier one whose answer is late.
func (p *Proxy) joined(w http.ResponseWriter, r *http.Request, q *request) bool {
	p.mu.Lock()
	l := p.late.get(q.given)
	p.mu.Unlock()
	if l == nil {
		return false
	}
	over := time.NewTimer(p.o.Hold)
	defer over.Stop()
	select {
	case <-l.done:
	case <-over.C:
		p.fail(w, q, heldBy(l.approval))
		return true
	case <-r.Context().Done():
		return true
	}
	if l.no != nil {
		p.mu.Lock()
		p.late.forget(q.session, q.given)
		p.mu.Unlock()
		p.fail(w, q, l.no)
		return true
	}
	p.mu.Lock()
	if p.o.Incoming {
		p.late.forget(q.session, q.given)
	}
	p.mu.Unlock()
	doc := l.doc.clone()
	if p.o.Incoming {
		// The agent's answer is there, and a person may not have decided about it yet.
		of := q.method.result
		if doc.get("events") != nil {
			of = streamShape
		}
		if no := p.decideAnswer(r.Context(), q, of, doc); no != nil {
			p.fail(w, q, no)
			return true
		}
	}
	p.give(w, q, doc)
	return true
}

// end gives a late request its answer, or the reason why there is none.
func (l *late) end(doc *node, no *gatelink.Refusal) {
	l.over.Do(func() {
		l.doc, l.no = doc, no
		close(l.done)
	})
}

// release sends approved messages of this agent and peer.
func (p *Proxy) release() {
	p.o.Link.Release(p.ended, func(r *api.Redeemable) gatelink.Claim {
		p.mu.Lock()
		waits := p.waits[r.ApprovalID]
		p.mu.Unlock()
		return gatelink.Claim{Ours: r.Origin == p.o.Origin && !waits, Own: p.lateOf(r.ApprovalID) != nil, Send: func() bool {
			p.work.Go(func() { p.sendApproved(r.ApprovalID) })
			return true
		}}
	}, p.settleLate)
}

// lateOf is the late request that waits for an approval.
func (p *memory) lateOf(id string) *late {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.late.values {
		if l.approval == id {
			return l
		}
	}
	return nil
}

// settleLate ends late requests that a person has refused.
func (p *Proxy) settleLate() {
	p.mu.Lock()
	all := make([]*late, 0, len(p.late.values))
	for _, l := range p.late.values {
		select {
		case <-l.done:
		default:
			all = append(all, l)
		}
	}
	p.mu.Unlock()
	for _, l := range all {
		now := p.approval(p.ended, l.approval)
		if now == nil || now.Status == api.ApprovalPending || now.Status == api.ApprovalApproved || now.Status == api.ApprovalTakenOver {
			continue
		}
		l.end(nil, &gatelink.Refusal{Code: now.Code, Reason: "a person has decided: " + now.Status})
	}
}

// sendApproved claims an approved message and sends it in a call of the proxy itself.
func (p *Proxy) sendApproved(id string) {
	l := p.lateOf(id)
	if l == nil {
		l = &late{done: make(chan struct{})}
	}
	d, no := p.redeem(p.ended, id)
	if no != nil {
		p.o.Log.Warn("cannot take what was approved", "approval", id, "reason", no.Reason)
		l.end(nil, no)
		return
	}
	l.end(p.again(d))
}

// again sends a decided message, and returns the peer's answer as decided.
func (p *Proxy) again(d *decided) (*node, *gatelink.Refusal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ended), p.o.Wait)
	defer cancel()
	m, params, err := d.request()
	var c *card
	if err == nil {
		c, err = p.theCard(ctx, false)
	}
	if err == nil && d.SessionKey != p.called(c) {
		err = fmt.Errorf("the message was decided for %s, and the peer is %s by now", d.SessionKey, p.called(c))
	}
	if err != nil {
		p.report(d, api.OutcomeNotSent, err.Error())
		return nil, gatelink.RefusedBy(err)
	}
	if configuration := params.get("configuration"); configuration != nil {
		// Its webhook was that of an earlier proxy or call.
		configuration.remove("taskPushNotificationConfig")
		configuration.remove("pushNotificationConfig")
	}
	switch {
	case m.stream && m.decided == asMessage:
		m = named("SendMessage")
	case m.stream:
		m = named("GetTask")
	}
	face := c.face("", jsonRPC)
	if face == nil {
		face = c.faces[0]
	}
	load := &load{all: p.loads}
	defer load.free()
	q := &request{load: load, method: m, name: face.nameOf(m), params: params, id: []byte(`"` + p.o.NewID() + `"`), at: face, session: d.SessionKey, header: make(http.Header), verb: m.verb}
	q.header.Set("A2A-Version", face.version)
	resp, no := p.forward(ctx, q, d)
	if no != nil {
		return nil, no
	}
	defer resp.Body.Close()
	doc, shape, no := p.unary(q, resp)
	if no == nil && shape == errShape {
		no = &gatelink.Refusal{Code: "PEER_ERROR", Reason: "the peer answered with an error"}
	}
	if no == nil {
		no = p.decideAnswer(ctx, q, shape, doc)
	}
	return doc, no
}
