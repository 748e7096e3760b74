package mcpproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

const (
	// maxOpen bounds the calls under decision, and maxWatched the calls whose answers are awaited.
	maxOpen    = 64
	maxWatched = 1024
	// maxKept bounds the calls with withheld answers, and maxAgain the length of a substitute.
	// keptTime is how long a server that does not replay can still answer such a call.
	maxKept  = 4096
	maxAgain = 4096
	keptTime = 5 * time.Minute
)

// pendingCalls is the table of the calls that are decided about, whose answers are awaited, or whose answers are
// withheld from the client.
type pendingCalls struct {
	// replays is set if a server can send its messages again.
	replays bool
	now     func() time.Time

	mu sync.Mutex
	// deciding are the calls under decision, and observers the calls whose answers are inspected.
	deciding  map[key]context.CancelFunc
	observers map[key]*observer
	// kept are the calls whose answers are withheld from the client, order is their order, and
	// over has the ids of those in ended sessions. forgot is set after there were too many.
	kept   map[key]keptAnswer
	order  []key
	over   map[string]struct{}
	forgot bool
}

func newPendingCalls(now func() time.Time) *pendingCalls {
	return &pendingCalls{now: now, deciding: make(map[key]context.CancelFunc), observers: make(map[key]*observer), kept: make(map[key]keptAnswer), over: make(map[string]struct{})}
}

// decides adds a call under decision. It returns false if the call's key is in use, and full if there is no room.
func (p *pendingCalls) decides(at key, cancel context.CancelFunc, room func() bool) (free, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inUseLocked(at) {
		return false, false
	}
	if len(p.deciding) >= maxOpen || len(p.observers) >= maxWatched || !room() {
		return true, true
	}
	p.deciding[at] = cancel
	return true, false
}

// decided removes a call under decision.
func (p *pendingCalls) decided(at key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.deciding, at)
}

// inUse reports whether a call's key is in progress, or its answer is withheld.
func (p *pendingCalls) inUse(at key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inUseLocked(at)
}

func (p *pendingCalls) inUseLocked(at key) bool {
	_, deciding := p.deciding[at]
	_, kept := p.kept[at]
	return deciding || kept || p.observers[at] != nil
}

// cancel gives up a call. It returns false if the server has the call already.
func (p *pendingCalls) cancel(at key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel, o := p.deciding[at], p.observers[at]
	if cancel == nil || o != nil && o.in == nil {
		return false
	}
	cancel()
	if o != nil {
		// The server has the call already. Nobody gets its answer.
		delete(p.deciding, at)
		delete(p.observers, at)
		p.keepLocked(at, nil)
	}
	return o == nil
}

// listen adds an observer if the key of its call is free and there is room.
func (p *pendingCalls) listen(o *observer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := !p.inUseLocked(o.key) && len(p.observers) < maxWatched/2
	if free {
		p.observers[o.key] = o
	}
	return free
}

// forgetful reports whether too many answers were withheld to remember them all.
func (p *pendingCalls) forgetful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forgot
}

// keep notes that the answer to a call is withheld, with its substitute.
func (p *pendingCalls) keep(at key, instead []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepLocked(at, instead)
}

// inspected keeps the client's version of an answer, because the client could ask the server to repeat the answer.
func (p *pendingCalls) inspected(at key, line, said []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepLocked(at, said)
	if bytes.Equal(said, line) {
		p.letLocked(at, line)
	}
}

// watches reports whether the server's messages must be inspected. On a resumed stream,
// that includes answers withheld in an ended session.
func (p *pendingCalls) watches(resumed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 {
		if oldest := p.kept[p.order[0]]; p.replays && !oldest.let || p.now().Sub(oldest.since) <= keptTime {
			break
		}
		p.forgetOldestLocked()
	}
	return len(p.observers)+len(p.kept)+len(p.deciding) > 0 || resumed && len(p.over) > 0
}

func (p *pendingCalls) watch(o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observers[o.key] = o
}

func (p *pendingCalls) unwatch(at key) *observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.observers[at]
	delete(p.observers, at)
	return o
}

// take ends the watch for an answer. An answer under decision is withheld until the
// decision, even if the server repeats it.
func (p *pendingCalls) take(at key) *observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.observers[at]
	delete(p.observers, at)
	if o != nil && o.in != nil {
		p.keepLocked(at, nil)
	}
	return o
}

// forgo ends the watch for an answer that did not come with its request's response.
func (p *pendingCalls) forgo(o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observers[o.key] == o {
		delete(p.observers, o.key)
	}
}

// awaits reports whether an answer is still awaited.
func (p *pendingCalls) awaits(o *observer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observers[o.key] == o
}

// lose reports the outcome of a call whose answer will not come.
func (p *pendingCalls) lose(o *observer, outcome, why string) {
	p.mu.Lock()
	awaited := p.observers[o.key] == o
	if awaited {
		delete(p.observers, o.key)
		if o.in != nil {
			p.keepLocked(o.key, nil)
		}
	}
	p.mu.Unlock()
	if awaited {
		o.lost(outcome, why)
	}
}

func (p *pendingCalls) loseAll() {
	p.mu.Lock()
	all := p.observers
	p.observers = make(map[key]*observer)
	p.mu.Unlock()
	for _, o := range all {
		o.lost(api.OutcomeUnknown, "the server ended before it answered")
	}
}

// keptAnswer is the substitute for an answer, or nil for none.
type keptAnswer struct {
	instead []byte
	since   time.Time
	// let is set if the client has the answer. On a resumed stream, only the identical
	// answer passes again.
	let bool
	sum [sha256.Size]byte
}

func (p *pendingCalls) keepLocked(at key, instead []byte) {
	if len(instead) > maxAgain {
		instead = nil
	}
	if _, again := p.kept[at]; !again {
		if len(p.order) >= maxKept {
			p.forgot = p.forgot || !p.kept[p.order[0]].let
			p.forgetOldestLocked()
		}
		p.order = append(p.order, at)
	}
	p.kept[at] = keptAnswer{instead: instead, since: p.now()}
}

// letLocked notes that an answer has passed.
func (p *pendingCalls) letLocked(at key, line []byte) {
	g, ok := p.kept[at]
	if !ok {
		return
	}
	g.instead, g.let, g.sum = nil, true, sha256.Sum256(bytes.TrimSpace(line))
	p.kept[at] = g
}

func (p *pendingCalls) forgetOldestLocked() {
	delete(p.kept, p.order[0])
	p.order = slices.Delete(p.order, 0, 1)
}

// forget ends a session. The server cannot repeat its answers, except on a resumed stream,
// and the client could resume it under any session.
func (p *pendingCalls) forget(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.kept, func(at key, _ keptAnswer) bool { return at.session == session })
	p.order = slices.DeleteFunc(p.order, func(at key) bool {
		if at.session != session {
			return false
		}
		if p.over[at.id] = struct{}{}; len(p.over) > maxKept {
			p.forgot = true
			clear(p.over)
		}
		return true
	})
}

// elsewhereLocked reports whether a call with an id is under inspection or has a withheld
// answer, in any session.
func (p *pendingCalls) elsewhereLocked(id string) bool {
	if _, over := p.over[id]; over {
		return true
	}
	for at := range p.kept {
		if at.id == id {
			return true
		}
	}
	for at, o := range p.observers {
		if at.id == id && o.in != nil {
			return true
		}
	}
	return false
}

// insteadOf returns the substitute for an answer. On a resumed stream, an answer that was
// withheld in another session has none.
func (p *pendingCalls) insteadOf(at key, resumed bool) (instead []byte, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, kept := p.kept[at]
	// No answer is one to a call that the server has not got.
	early := p.deciding[at] != nil && p.observers[at] == nil
	return g.instead, kept || early || resumed && p.observers[at] == nil && p.elsewhereLocked(at.id)
}

// letBefore reports whether a line is byte for byte an answer that has passed.
func (p *pendingCalls) letBefore(at key, line []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, kept := p.kept[at]
	return kept && g.let && g.sum == sha256.Sum256(bytes.TrimSpace(line))
}

// spoil refuses the answers of a session that the proxy has to inspect first. It returns the
// lines that replace the server's message, and reports whether that message must not pass.
func (p *pendingCalls) spoil(session string, resumed bool, why string) (lines []byte, spoiled bool) {
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
		p.keep(o.key, line)
		lines = append(lines, line...)
	}
	return lines, spoiled
}
