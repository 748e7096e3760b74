// Package mcpproxy stands between an MCP client and the server behind it. What sends
// messages is decided by ocipd before the server gets it, what tools bring in of others'
// before the client does; everything else passes as the bytes that it is.
//
// It decides nothing: it finds out what a call of a tool says to whom, by a map, and asks
// the daemon about each recipient. A call whose text or recipients it cannot tell, a frame
// that two readers could read differently, and a daemon that does not answer are refusals.
//
// The caller's duty: nothing else writes to the output that it hands in.
package mcpproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"golang.org/x/sync/semaphore"
)

// Options is what a proxy is given from outside.
type Options struct {
	Map  *Map
	Link *Link
	// Command is the server's, and Env its environment.
	Command []string
	Env     []string
	In      io.Reader
	Out     io.Writer
	Stderr  io.Writer
	// Hold is how long a call is kept open for a person.
	Hold time.Duration
	Log  *slog.Logger
	// NewID makes ids of calls of the proxy's own.
	NewID func() string
	Now   func() time.Time
}

const (
	// maxClientLine bounds what a client may say at once, and maxHeldLine an answer that is
	// looked into. Anything else that the server says passes, however long.
	maxClientLine = 32 << 20
	maxHeldLine   = 32 << 20
	// maxBeside bounds an answer that is looked into while the next ones are read: longer ones
	// have the server wait.
	maxBeside = 64 << 10
	// maxHeld bounds the bytes of frames longer than maxBeside that are held at a time: of what
	// clients say, of calls that are decided about, and of answers, each by itself. Who has more
	// waits.
	maxHeld = 128 << 20
	// maxOpen bounds the calls that are decided about at a time, and maxWatched those whose
	// answers are awaited.
	maxOpen    = 64
	maxWatched = 1024
	// maxKept bounds the calls whose answers are kept from the client, maxAgain the length of
	// what is said in place of one, and keptTime how long a server that says nothing twice can
	// still answer one.
	maxKept  = 4096
	maxAgain = 4096
	keptTime = 5 * time.Minute
)

// proxy is what is common to all ways to a server.
type proxy struct {
	o *Options
	// ctx is the proxy's, and ended is done when nothing more is begun.
	ctx   context.Context
	ended context.Context
	end   context.CancelFunc

	// asking are calls that are decided about, and background is all that is under way.
	asking, background sync.WaitGroup

	ready sync.Once
	// spare makes a call of the proxy's own of what nobody waits for, and reports whether it
	// could.
	spare func(line []byte, o *observer) error

	mu sync.Mutex
	// deciding are the calls under way, observers those whose answers are looked at, and mine
	// the requests that this session has asked for.
	deciding  map[key]context.CancelFunc
	observers map[key]*observer
	// kept are the calls whose answers as the server gives them are not for the client, order
	// is theirs, and over has the ids of those whose sessions have ended. Forgot is set once
	// there were too many.
	kept   map[key]keptAnswer
	order  []key
	over   map[string]struct{}
	forgot bool
	// replays is set where a server can say again what it has said.
	replays bool
	mine    map[string]owned
	// closed is set when nothing of the client's is taken any more.
	closed bool

	// said, waiting and heard bound the memory of what clients say, of calls that are decided
	// about, and of what the server answers.
	said, waiting, heard *semaphore.Weighted
}

// key names a call: its session, where there are several, and its id.
type key struct{ session, id string }

// route is the way of one call: back to its client, and on to the server.
type route interface {
	// tell sends the client the answer, news what goes before it, and reject that there is
	// none: it was no call.
	tell(line []byte)
	news(line []byte)
	reject(line []byte)
	// pass has the server answer it.
	pass(line []byte, o *observer) error
	// left is closed when there is nobody left to be answered, nil where that is the end of all.
	left() <-chan struct{}
}

// observer looks at what the server answers to a call.
type observer struct {
	key key
	// own calls are the proxy's: the client is not told of the answer.
	own bool
	// done is told what became of what was sent.
	done func(outcome, note string)
	// in makes of the answer what the client gets.
	in func(f *frame, line []byte) []byte
	// spoiled is what the client gets in place of an answer that cannot be looked at, and tell
	// tells it where no answer is being written.
	spoiled func(why string) []byte
	tell    func(line []byte)
}

func newProxy(ctx context.Context, o *Options) *proxy {
	p := &proxy{
		o: o, ctx: ctx,
		deciding: make(map[key]context.CancelFunc), observers: make(map[key]*observer), mine: make(map[string]owned), kept: make(map[key]keptAnswer),
		over: make(map[string]struct{}), said: semaphore.NewWeighted(maxHeld), waiting: semaphore.NewWeighted(maxHeld), heard: semaphore.NewWeighted(maxHeld),
	}
	p.ended, p.end = context.WithCancel(ctx)
	return p
}

// enter begins something of the client's, which ends with background.Done, and reports whether
// that may begin still.
func (p *proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.background.Add(1)
	}
	return !p.closed
}

// finish waits for all that has begun.
func (p *proxy) finish() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.background.Wait()
}

// begin begins what goes on beside the client's messages, once the server takes calls.
func (p *proxy) begin() {
	p.background.Go(func() { p.o.Link.follow(p.ended) })
	p.background.Go(p.release)
}

// fromClient takes one message of the client's, and reports whether it passes as it is.
func (p *proxy) fromClient(line []byte, f *frame, session string, via route) (passes bool) {
	switch f.method {
	case "tools/call":
		p.ready.Do(p.begin)
		return p.call(line, f, session, via)
	case "notifications/initialized":
		p.ready.Do(p.begin)
	case "notifications/cancelled":
		return !p.cancelled(line, f, session)
	default:
		if bare(f.method) == bare("tools/call") {
			p.malformed(via, fmt.Sprintf("the method %q is not tools/call", f.method))
			return false
		}
	}
	return true
}

// call has a call decided beside the client's other messages, or reports that it passes.
func (p *proxy) call(line []byte, f *frame, session string, via route) (passes bool) {
	c, err := parseCall(line, f)
	if err != nil {
		if !f.answerable() {
			p.malformed(via, err.Error())
			return false
		}
		p.refuse(&toolCall{frame: *f, via: via}, &refusal{"MALFORMED", err.Error()})
		return false
	}
	c.via, c.named = via, key{session, f.key()}
	read, reads := p.o.Map.Reads[c.tool]
	t, err := p.o.Map.toolOf(c)
	switch {
	case err != nil && f.answerable():
		p.refuse(c, refusedBy(err))
		return false
	case err == nil && t == nil && !reads:
		return true
	case !f.answerable():
		p.malformed(via, "a call that is decided about needs an id")
		return false
	case !f.plain():
		p.refuse(c, &refusal{"MALFORMED", "the id of a call that is decided about is a whole number of at most 15 digits, or a short text of ASCII"})
		return false
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.mu.Lock()
	_, twice := p.deciding[c.named]
	_, gone := p.kept[c.named]
	twice = twice || gone || p.observers[c.named] != nil
	full := len(p.deciding) >= maxOpen || len(p.observers) >= maxWatched
	long := int64(max(0, len(line)-maxBeside))
	if !twice && !full {
		if full = !p.waiting.TryAcquire(long); !full {
			p.deciding[c.named] = cancel
		}
	}
	p.mu.Unlock()
	switch {
	case twice:
		cancel()
		p.malformed(via, "the id of a call is in use")
		return false
	case full:
		cancel()
		p.refuse(c, &refusal{"TOO_MANY_HELD", "too many calls are decided about"})
		return false
	}
	context.AfterFunc(ctx, func() { p.waiting.Release(long) })
	over := func() {
		p.mu.Lock()
		delete(p.deciding, c.named)
		p.mu.Unlock()
		cancel()
	}
	if t == nil {
		p.bring(ctx, c, &read, over)
		return false
	}
	p.asking.Add(1)
	p.background.Go(func() {
		defer over()
		waits := p.gate(ctx, c, t)
		p.asking.Done()
		if waits != nil {
			p.wait(ctx, waits)
		}
	})
	return false
}

// cancelled gives up a call that is not the server's yet.
func (p *proxy) cancelled(line []byte, f *frame, session string) bool {
	if f.params.to == 0 {
		return false
	}
	params, err := members(line[f.params.from:f.params.to], 0)
	if err != nil {
		return false
	}
	of, ok := find(params, "requestId")
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := key{session, keyOf(of.value)}
	cancel, o := p.deciding[at], p.observers[at]
	if cancel == nil || o != nil && o.in == nil {
		return false
	}
	cancel()
	if o != nil {
		// The server has it. What it answers all the same is for nobody.
		delete(p.deciding, at)
		delete(p.observers, at)
		p.keepLocked(at, nil)
	}
	return o == nil
}

// watches reports whether what the server says is to be looked at: on a stream that goes on
// with an earlier one also for what was withheld in a session that is over.
func (p *proxy) watches(resumed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.replays && len(p.order) > 0 && p.o.Now().Sub(p.kept[p.order[0]].since) > keptTime {
		p.forgetOldestLocked()
	}
	return len(p.observers)+len(p.kept) > 0 || resumed && len(p.over) > 0
}

func (p *proxy) watch(o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observers[o.key] = o
}

func (p *proxy) unwatch(at key) *observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.observers[at]
	delete(p.observers, at)
	return o
}

// awaits reports whether an answer has not come.
func (p *proxy) awaits(o *observer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observers[o.key] == o
}

// lose says what is known of a call whose answer does not come.
func (p *proxy) lose(o *observer, outcome, why string) {
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

func (o *observer) lost(outcome, why string) {
	if o.done != nil {
		o.done(outcome, why)
	}
	if o.spoiled != nil {
		o.tell(o.spoiled(why))
	}
}

// keptAnswer is what the client gets in place of an answer, nil for nothing.
type keptAnswer struct {
	instead []byte
	since   time.Time
}

func (p *proxy) keepLocked(at key, instead []byte) {
	if len(instead) > maxAgain {
		instead = nil
	}
	if _, again := p.kept[at]; !again {
		if len(p.order) >= maxKept {
			p.forgot = true
			p.forgetOldestLocked()
		}
		p.order = append(p.order, at)
	}
	p.kept[at] = keptAnswer{instead, p.o.Now()}
}

func (p *proxy) forgetOldestLocked() {
	delete(p.kept, p.order[0])
	p.order = slices.Delete(p.order, 0, 1)
}

// forget ends a session: nothing of it is said again, unless somebody goes on with one of its
// streams. Which session that is then, says who asks.
func (p *proxy) forget(session string) {
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

// elsewhereLocked reports whether an id is that of a call whose answer is withheld, or looked at, in
// whatever session.
func (p *proxy) elsewhereLocked(id string) bool {
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

// insteadOf is what the client gets in place of an answer. On a stream that goes on with an
// earlier one, what was withheld in another session is for nobody.
func (p *proxy) insteadOf(at key, resumed bool) (instead []byte, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, kept := p.kept[at]
	return g.instead, kept || resumed && p.observers[at] == nil && p.elsewhereLocked(at.id)
}

func (p *proxy) loseAll() {
	p.mu.Lock()
	all := p.observers
	p.observers = make(map[key]*observer)
	p.mu.Unlock()
	for _, o := range all {
		o.lost(api.OutcomeUnknown, "the server ended before it answered")
	}
}

// spoil refuses the answers of a session that are to be looked at before the client has
// them, and reports whether something came that must not pass because it cannot be looked
// at. Whoever writes what the server says writes the lines in its place.
func (p *proxy) spoil(session string, resumed bool, why string) (lines []byte, spoiled bool) {
	var all []*observer
	p.mu.Lock()
	for at, o := range p.observers {
		if at.session == session && o.in != nil {
			all = append(all, o)
			delete(p.observers, at)
			p.keepLocked(at, nil)
		}
	}
	spoiled = slices.ContainsFunc(p.order, func(at key) bool { return resumed || at.session == session }) || resumed && len(p.over)+len(p.observers) > 0
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

// owned says how an approval request is this session's.
type owned int

const (
	// ownWaits is one whose call is open, which sends it.
	ownWaits owned = iota + 1
	// ownAnswered is one whose call was answered.
	ownAnswered
)

func (p *proxy) own(id string, how owned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mine[id] = how
}

func (p *proxy) disown(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mine, id)
}

func (p *proxy) owns(id string) owned {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mine[id]
}

// neverDone are errors of JSON-RPC that come before anything is done.
var neverDone = map[string]bool{"-32700": true, "-32600": true, "-32601": true, "-32602": true}

// observed looks at what the server says while answers are awaited. What the client gets in
// its place is made by instead, where that is not nil; what is held passes in no case.
func (p *proxy) observed(session string, resumed bool, line []byte) (instead func() []byte, held bool) {
	f, err := parseBody(line)
	if err == nil && f.doubtful() {
		err = fmt.Errorf("%w: it is not clear whose answer it is", errFrame)
	}
	if err != nil {
		// Whoever reads it in another way could take it for an answer.
		lines, spoiled := p.spoil(session, resumed, "the server said something that cannot be read: "+err.Error())
		if len(lines) > 0 {
			instead = func() []byte { return lines }
		}
		return instead, spoiled
	}
	if f.method != "" || f.id == nil {
		return nil, false
	}
	at := key{session, f.key()}
	if again, kept := p.insteadOf(at, resumed); kept {
		if again != nil {
			instead = func() []byte { return again }
		}
		return instead, true
	}
	o := p.unwatch(at)
	if o == nil {
		return nil, false
	}
	if o.done != nil {
		o.done(outcomeOf(&f))
	}
	if o.in != nil {
		return func() []byte {
			said := o.in(&f, line)
			if !bytes.Equal(said, line) {
				// The server may say it again, and the client ask for that.
				p.mu.Lock()
				p.keepLocked(at, said)
				p.mu.Unlock()
			}
			return said
		}, true
	}
	return nil, o.own
}

// outcomeOf is what an answer says of what was to be sent.
func outcomeOf(f *frame) (outcome, note string) {
	if f.failure != nil {
		said, _ := members(f.failure, 0)
		if code, ok := find(said, "code"); ok && neverDone[string(code.value)] && f.result == nil {
			return api.OutcomeNotSent, "the server answered with an error"
		}
		return api.OutcomeUnknown, "the server answered with an error"
	}
	said, err := members(f.result, 0)
	if kind, _ := find(said, "resultType"); err != nil || later(said) || kind.value != nil && string(kind.value) != `"complete"` {
		return api.OutcomeUnknown, "the server has not said what became of it"
	}
	if failed, ok := find(said, "isError"); ok && failed.value.Kind() == 't' {
		return api.OutcomeUnknown, "the tool says that it failed"
	}
	return api.OutcomeSent, ""
}

// malformed answers what cannot be told apart.
func (p *proxy) malformed(via route, why string) {
	p.o.Log.Warn("refused a message of the client", "reason", why)
	via.reject(malformedLine(why))
}

func malformedLine(why string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":%s}}`+"\n", api.String("ocipd: "+why))
}

// refuse answers a call that is not made.
func (p *proxy) refuse(c *toolCall, no *refusal) {
	p.o.Log.Warn("refused a call", "tool", c.tool, "code", no.code, "reason", no.reason)
	p.answer(c, true, fmt.Sprintf("ocipd: refused (%s): %s. Nothing was sent. Do not retry it or send it another way; tell your user.", no.code, no.reason))
}

// answer answers a call in words.
func (p *proxy) answer(c *toolCall, isError bool, text string) {
	c.via.tell(resultLine(c, isError, text))
}

func resultLine(c *toolCall, isError bool, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"isError":%t}}`+"\n", c.id, api.String(text), isError)
}

// progress tells the client that its call is alive.
func (p *proxy) progress(a *asked, n int) {
	if a.call.progress != nil {
		a.call.via.news(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"ocipd: a person has to approve this message"}}`+"\n", a.call.progress, n))
	}
}
