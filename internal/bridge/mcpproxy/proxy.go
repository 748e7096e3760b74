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
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"golang.org/x/sync/semaphore"
)

// Options is what a proxy is given from outside.
type Options struct {
	// Map is the server's by its command line, or, where it is Given, by the user's word.
	Map   *toolmap.Map
	Given bool
	// Name is the server's in its client's list, "" where nobody says, and Origin tells it from
	// others of its name.
	Name, Origin string
	Link         *Link
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
	// finding is held while the map of the server is looked for, which is mapped then.
	finding sync.Mutex
	mapped  atomic.Pointer[toolmap.Map]
	// spare makes a call of the proxy's own, by an account, of what nobody waits for, and reports
	// whether it could. Accounts are those by which it can.
	spare    func(line []byte, o *observer, account string) error
	accounts func() []string

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
	// says is what the server says of itself.
	says says
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
	// pass has the server answer it, and the answer looked at, and send has it answer what was decided.
	pass(line []byte, o *observer) error
	send(line []byte, repeats bool) error
	// repeated are the arguments that the request's header repeats, by the header's name: they go
	// along where send is told that they repeat what is sent.
	repeated() map[string]string
	// account tells the principal for whom the server acts from others, "" where there is one.
	account() string
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
	// seen is told of the answer, which passes.
	seen func(f *frame)
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

// fromClient takes one message of the client's, and reports whether it passes as it is. Learns, where
// it does, looks at the server's answer.
func (p *proxy) fromClient(line []byte, f *frame, session string, via route) (ok bool, learns *observer) {
	switch {
	case f.method == "notifications/initialized":
		p.ready.Do(p.begin)
	case f.method == "notifications/cancelled":
		return !p.cancelled(line, f, session), nil
	case passes(f):
		return true, p.listen(line, f, session)
	case f.method != "tools/call" && toolmap.Bare(f.method) == toolmap.Bare("tools/call"):
		p.malformed(via, fmt.Sprintf("the method %q is not tools/call", f.method))
		return false, nil
	default:
		p.ready.Do(p.begin)
		p.call(line, f, session, via)
		return false, nil
	}
	return true, nil
}

// call has a call decided beside the client's other messages.
func (p *proxy) call(line []byte, f *frame, session string, via route) {
	read := parseCall
	if f.method != "tools/call" {
		read = parseRequest
	}
	c, err := read(line, f)
	switch {
	case !f.answerable():
		if err == nil {
			err = errNoID
		}
		p.malformed(via, err.Error())
		return
	case err != nil:
		p.refuse(&toolCall{frame: *f, via: via}, &refusal{"MALFORMED", err.Error()})
		return
	}
	c.via, c.named = via, key{session, f.key()}
	if no := undecidable(f); no != nil {
		p.refuse(c, no)
		return
	}
	if passesUnasked(p, c) {
		p.make(c, nil)
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	if !p.reserve(c, int64(max(0, len(line)-maxBeside)), cancel) {
		cancel()
		return
	}
	context.AfterFunc(ctx, func() { p.waiting.Release(int64(max(0, len(line)-maxBeside))) })
	over := func() {
		p.mu.Lock()
		delete(p.deciding, c.named)
		p.mu.Unlock()
		cancel()
	}
	p.asking.Add(1)
	asked := sync.OnceFunc(p.asking.Done)
	p.background.Go(func() {
		defer asked()
		p.decide(ctx, c, asked, over)
	})
}

// errNoID is why a request that is decided about is refused.
var errNoID = errors.New("a call that is decided about needs an id")

// reserve takes a place among the calls that are decided about, or answers the call.
func (p *proxy) reserve(c *toolCall, long int64, cancel context.CancelFunc) bool {
	p.mu.Lock()
	twice := inUse(p, c.named)
	full := len(p.deciding) >= maxOpen || len(p.observers) >= maxWatched
	if !twice && !full {
		if full = !p.waiting.TryAcquire(long); !full {
			p.deciding[c.named] = cancel
		}
	}
	p.mu.Unlock()
	switch {
	case twice:
		p.malformed(c.via, "the id of a call is in use")
	case full:
		p.refuse(c, &refusal{"TOO_MANY_HELD", "too many calls are decided about"})
	}
	return !twice && !full
}

// decide has a call decided: as a message, where its tool sends one, and else as the call that it is.
// It calls asked before it waits for a person, and over once nothing is under way any more.
func (p *proxy) decide(ctx context.Context, c *toolCall, asked, over func()) {
	refuse := func(no *refusal) {
		over()
		p.refuse(c, no)
	}
	m := p.theMap()
	t, err := toolOf(c, m)
	if err != nil {
		refuse(refusedBy(err))
		return
	}
	if t != nil {
		defer over()
		waits := p.gate(ctx, c, m, t)
		asked()
		if waits != nil {
			p.wait(ctx, waits)
		}
		return
	}
	arguments, no := p.permit(ctx, c, m, asked)
	read, reads := m.Reads[c.tool]
	switch {
	case ctx.Err() != nil:
		over()
	case no != nil:
		refuse(no)
	case reads && !c.whole:
		p.bring(ctx, c, m, &read, arguments, over)
	default:
		over()
		p.make(c, arguments)
	}
}

// cancelled gives up a call that is not the server's yet.
func (p *proxy) cancelled(line []byte, f *frame, session string) bool {
	if f.params.to == 0 {
		return false
	}
	params, err := toolmap.Members(line[f.params.from:f.params.to], 0)
	if err != nil {
		return false
	}
	of, ok := toolmap.Find(params, "requestId")
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := key{session, keyOf(of.Value)}
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
	for len(p.order) > 0 {
		if oldest := p.kept[p.order[0]]; p.replays && !oldest.let || p.o.Now().Sub(oldest.since) <= keptTime {
			break
		}
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

// take ends the watch for an answer. One that is decided about is withheld until that is done, whoever
// says it again.
func (p *proxy) take(at key) *observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.observers[at]
	delete(p.observers, at)
	if o != nil && o.in != nil {
		p.keepLocked(at, nil)
	}
	return o
}

// forgo ends the watch for an answer that has not come with its request's.
func (p *proxy) forgo(o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observers[o.key] == o {
		delete(p.observers, o.key)
	}
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
	// let is set for an answer that the client has: the same passes again, where it goes on with a
	// stream, and no other.
	let bool
	sum [sha256.Size]byte
}

func (p *proxy) keepLocked(at key, instead []byte) {
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
	p.kept[at] = keptAnswer{instead: instead, since: p.o.Now()}
}

// letLocked notes that an answer passes.
func (p *proxy) letLocked(at key, line []byte) {
	g, ok := p.kept[at]
	if !ok {
		return
	}
	g.instead, g.let, g.sum = nil, true, sha256.Sum256(bytes.TrimSpace(line))
	p.kept[at] = g
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

// letBefore reports whether a line is an answer that has passed, to the byte.
func (p *proxy) letBefore(at key, line []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, kept := p.kept[at]
	return kept && g.let && g.sum == sha256.Sum256(bytes.TrimSpace(line))
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

// observed looks at a line of the server while answers are awaited. If instead is not nil, it
// makes the line that the client gets in its place. A line that is held never passes.
func (p *proxy) observed(session string, resumed bool, line []byte) (instead func() []byte, held bool) {
	f, err := parseBody(line)
	if err == nil && f.doubtful() {
		err = fmt.Errorf("%w: it is not clear whose answer it is", toolmap.ErrFrame)
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
	if p.letBefore(at, line) {
		return nil, false
	}
	if again, kept := p.insteadOf(at, resumed); kept {
		if again != nil {
			instead = func() []byte { return again }
		}
		return instead, true
	}
	o := p.take(at)
	if o == nil {
		return nil, false
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
			// The server may say it again, and the client ask for that.
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

// outcomeOf is what an answer says of what was to be sent.
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
	p.answer(c, true, fmt.Sprintf("ocipd: refused (%s): %s. Nothing was sent, and the tool was not called. Do not retry it or do it another way; tell your user.", no.code, no.reason))
}

// answer answers a call in words.
func (p *proxy) answer(c *toolCall, isError bool, text string) {
	c.via.tell(resultLine(c, isError, text))
}

func resultLine(c *toolCall, isError bool, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"isError":%t}}`+"\n", c.id, api.String(text), isError)
}

// progress tells the client that its call is alive.
func (p *proxy) progress(c *toolCall, n int) {
	if c.progress != nil {
		c.via.news(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"ocipd: a person has to approve this"}}`+"\n", c.progress, n))
	}
}
