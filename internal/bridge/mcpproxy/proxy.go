// Package mcpproxy stands between an MCP client and its server. ocipd decides about calls
// that send messages before the server gets them, and about other people's content in
// results before the client does. Everything else passes byte for byte.
//
// The proxy decides nothing. A map tells it the text and the recipients of a tool call, and it
// asks the daemon about each recipient. It refuses a call if the text or the recipients are
// unclear, if two readers could parse the frame differently, or if the daemon does not answer.
//
// The caller must not write to the output that it passes.
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"golang.org/x/sync/semaphore"
)

// Options are the inputs of a proxy.
type Options struct {
	// Map is the map for the server's command line. If Given is set, the user chose it.
	Map   *toolmap.Map
	Given bool
	// Name is the server's name in its client's list, or "". Origin distinguishes it from
	// others with that name.
	Name, Origin string
	Link         *gatelink.Link
	// Command is the server's command, and Env its environment.
	Command []string
	Env     []string
	In      io.Reader
	Out     io.Writer
	Stderr  io.Writer
	// Hold is how long a call stays open for a person.
	Hold time.Duration
	Log  *slog.Logger
	// NewID makes ids for calls of the proxy itself.
	NewID func() string
	Now   func() time.Time
}

const (
	// maxClientLine bounds a message of the client, and maxHeldLine an answer that the
	// proxy inspects. Other messages of the server may have any length.
	maxClientLine = 32 << 20
	maxHeldLine   = 32 << 20
	// maxBeside bounds an answer that the proxy inspects while it reads the next ones.
	// During longer ones, the server waits.
	maxBeside = 64 << 10
	// maxHeld bounds the memory for frames longer than maxBeside, separately for messages
	// of clients, calls under decision, and answers. Further frames wait.
	maxHeld = 128 << 20
	// maxOpen bounds the calls under decision, and maxWatched the calls whose answers are awaited.
	maxOpen    = 64
	maxWatched = 1024
	// maxKept bounds the calls with withheld answers, and maxAgain the length of a substitute.
	// keptTime is how long a server that does not replay can still answer such a call.
	maxKept  = 4096
	maxAgain = 4096
	keptTime = 5 * time.Minute
)

// proxy is the part that all transports share.
type proxy struct {
	o *Options
	// ctx is the proxy's context. ended is done when nothing new may begin.
	ctx   context.Context
	ended context.Context
	end   context.CancelFunc

	// asking are the calls under decision, and background is all work in progress.
	asking     sync.WaitGroup
	background crew

	ready sync.Once
	// finding is held during the search for the server's map, which is then in mapped.
	finding sync.Mutex
	mapped  atomic.Pointer[toolmap.Map]
	// spare makes a call of the proxy itself, through an account. It fails if that is
	// impossible. accounts lists the accounts that it can use.
	spare    func(line []byte, o *observer, account string) error
	accounts func() []string

	mu sync.Mutex
	// deciding are the calls under decision, observers the calls whose answers are
	// inspected, and mine the approval requests of this session.
	deciding  map[key]context.CancelFunc
	observers map[key]*observer
	// kept are the calls whose answers are withheld from the client, order is their order, and
	// over has the ids of those in ended sessions. forgot is set after there were too many.
	kept   map[key]keptAnswer
	order  []key
	over   map[string]struct{}
	forgot bool
	// replays is set if a server can send its messages again.
	replays bool
	mine    map[string]owned
	// says is the server's description of itself.
	says says
	// closed is set when the proxy takes no more messages of the client.
	closed bool

	// said, waiting and heard bound the memory for clients' messages, calls under decision,
	// and the server's answers.
	said, waiting, heard *semaphore.Weighted
}

// key identifies a call: by its session, if there are several, and its id.
type key struct{ session, id string }

// route leads from one call back to its client and on to the server.
type route interface {
	// tell sends the client the answer, news an earlier message, and reject an error for a
	// message that is not a call.
	tell(line []byte)
	news(line []byte)
	reject(line []byte)
	// pass sends a call to the server and observes the answer. send only sends it.
	pass(line []byte, o *observer) error
	send(line []byte) error
	// account distinguishes the principals for whom the server acts; "" if there is only one.
	account() string
	// left is closed when the client of the call is gone. It is nil if the proxy ends then anyway.
	left() <-chan struct{}
}

// observer inspects the server's answer to a call.
type observer struct {
	key key
	// own is set for a call of the proxy itself. The client does not get the answer.
	own bool
	// done receives the outcome of the call.
	done func(outcome, note string)
	// seen receives the answer, which passes.
	seen func(f *frame)
	// in returns the client's version of the answer.
	in func(f *frame, line []byte) []byte
	// spoiled returns the substitute for an answer that cannot be inspected. tell sends it
	// if no answer is being written.
	spoiled func(why string) []byte
	tell    func(line []byte)
}

func newProxy(ctx context.Context, o *Options) *proxy {
	p := &proxy{
		o: o, ctx: ctx, background: crew{jobs: make(chan func())},
		deciding: make(map[key]context.CancelFunc), observers: make(map[key]*observer), mine: make(map[string]owned), kept: make(map[key]keptAnswer),
		over: make(map[string]struct{}), said: semaphore.NewWeighted(maxHeld), waiting: semaphore.NewWeighted(maxHeld), heard: semaphore.NewWeighted(maxHeld),
	}
	p.ended, p.end = context.WithCancel(ctx)
	return p
}

// enter begins work for the client, which ends with background.Done. It returns false if
// nothing may begin any more.
func (p *proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.background.Add(1)
	}
	return !p.closed
}

// finish waits for all work in progress.
func (p *proxy) finish() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.background.Wait()
}

// begin starts the background work when the server takes calls.
func (p *proxy) begin() {
	p.background.Go(func() { p.o.Link.Follow(p.ended) })
	p.background.Go(p.release)
}

// fromClient handles a message of the client, and returns what of it passes at once, nil for nothing.
// If it passes, learns, if not nil, observes the server's answer.
func (p *proxy) fromClient(line []byte, f *frame, session string, via route) (pass []byte, learns *observer) {
	if why := outOfForm(f); why != "" {
		p.malformed(via, why)
		return nil, nil
	}
	switch f.method {
	case "":
		p.ready.Do(p.begin)
		(&toolCall{via: via}).reply(p, f, session)
		return nil, nil
	case "notifications/initialized":
		p.ready.Do(p.begin)
	case "notifications/cancelled":
		if p.cancelled(line, f, session) {
			return nil, nil
		}
	}
	if passes(f) {
		pass, _ = around(p, line, f, session)
	}
	switch {
	case pass == nil && strings.HasPrefix(f.method, "notifications/"):
		p.o.Log.Warn("dropped a notification of the client, which is none that the proxy knows", "method", short(f.method))
		return nil, nil
	case pass == nil:
		p.ready.Do(p.begin)
		p.call(line, f, session, via)
		return nil, nil
	case f.answerable():
		learns = p.listen(pass, f, session)
		opens(p, key{session, f.key()}, f.id)
	}
	if line = pass; f.more {
		line = f.anew(line)
	}
	return line, learns
}

// call has a call decided while the client's other messages continue.
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
		p.refuse(&toolCall{frame: *f, via: via}, &gatelink.Refusal{Code: "MALFORMED", Reason: err.Error()})
		return
	}
	c.via, c.named = via, key{session, f.key()}
	if no := undecidable(f); no != nil {
		p.refuse(c, no)
		return
	}
	if no := foreign(p, c); no != nil {
		p.o.Log.Warn("refused a call", "tool", c.tool, "code", no.Code, "reason", no.Reason)
		via.tell(errorLine(c.id, invalidCode, no))
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
	p.background.work(p.ended, func() {
		defer asked()
		p.decide(ctx, c, asked, over)
	})
}

// errNoID is why a request without a usable id is refused.
var errNoID = errors.New("a call that is decided about needs an id")

// reserve takes a place among the calls under decision, or answers the call.
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
		p.refuse(c, &gatelink.Refusal{Code: "TOO_MANY_HELD", Reason: "too many calls are decided about"})
	}
	return !twice && !full
}

// decide has a call decided: as a message if its tool sends one, as a tool call otherwise or if the
// tool acts too. It calls asked before it waits for a person, and over when the decision is made.
func (p *proxy) decide(ctx context.Context, c *toolCall, asked, over func()) {
	refuse := func(no *gatelink.Refusal) {
		over()
		p.refuse(c, no)
	}
	m := p.theMap()
	t, err := toolOf(c, m)
	if err != nil {
		refuse(gatelink.RefusedBy(err))
		return
	}
	var arguments jsontext.Value
	var no *gatelink.Refusal
	if t == nil || t.Acts {
		arguments, no = p.permit(ctx, c, m, asked)
	}
	if t != nil && arguments != nil {
		no = &gatelink.Refusal{Code: "UNCLEAR", Reason: "an interceptor of tool calls changed the texts of a message"}
	}
	if t != nil && no == nil && ctx.Err() == nil {
		defer over()
		waits := p.gate(ctx, c, m, t)
		asked()
		if waits != nil {
			p.wait(ctx, waits)
		}
		return
	}
	read := m.ReadOf(c.tool)
	switch {
	case ctx.Err() != nil:
		over()
	case no != nil:
		refuse(no)
	case read != nil && !c.whole:
		p.bring(ctx, c, m, read, arguments, over)
	default:
		over()
		p.make(c, arguments)
	}
}

// cancelled gives up a call that the server has not got yet.
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
		// The server has the call already. Nobody gets its answer.
		delete(p.deciding, at)
		delete(p.observers, at)
		p.keepLocked(at, nil)
	}
	return o == nil
}

// watches reports whether the server's messages must be inspected. On a resumed stream,
// that includes answers withheld in an ended session.
func (p *proxy) watches(resumed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 {
		if oldest := p.kept[p.order[0]]; p.replays && !oldest.let || p.o.Now().Sub(oldest.since) <= keptTime {
			break
		}
		p.forgetOldestLocked()
	}
	return len(p.observers)+len(p.kept)+len(p.deciding) > 0 || resumed && len(p.over) > 0
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

// take ends the watch for an answer. An answer under decision is withheld until the
// decision, even if the server repeats it.
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

// forgo ends the watch for an answer that did not come with its request's response.
func (p *proxy) forgo(o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observers[o.key] == o {
		delete(p.observers, o.key)
	}
}

// awaits reports whether an answer is still awaited.
func (p *proxy) awaits(o *observer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observers[o.key] == o
}

// lose reports the outcome of a call whose answer will not come.
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

// keptAnswer is the substitute for an answer, or nil for none.
type keptAnswer struct {
	instead []byte
	since   time.Time
	// let is set if the client has the answer. On a resumed stream, only the identical
	// answer passes again.
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

// letLocked notes that an answer has passed.
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

// forget ends a session. The server cannot repeat its answers, except on a resumed stream,
// and the client could resume it under any session.
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

// elsewhereLocked reports whether a call with an id is under inspection or has a withheld
// answer, in any session.
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

// insteadOf returns the substitute for an answer. On a resumed stream, an answer that was
// withheld in another session has none.
func (p *proxy) insteadOf(at key, resumed bool) (instead []byte, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, kept := p.kept[at]
	// No answer is one to a call that the server has not got.
	early := p.deciding[at] != nil && p.observers[at] == nil
	return g.instead, kept || early || resumed && p.observers[at] == nil && p.elsewhereLocked(at.id)
}

// letBefore reports whether a line is byte for byte an answer that has passed.
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

// owned says how an approval request belongs to this session.
type owned int

const (
	// ownWaits marks a request whose call is open and sends the message.
	ownWaits owned = iota + 1
	// ownAnswered marks a request whose call was answered.
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

// malformed answers an ambiguous message.
func (p *proxy) malformed(via route, why string) {
	p.o.Log.Warn("refused a message of the client", "reason", why)
	via.reject(malformedLine(why))
}

func malformedLine(why string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":%s}}`+"\n", api.String("ocipd: "+why))
}

// refuse answers a refused call.
func (p *proxy) refuse(c *toolCall, no *gatelink.Refusal) {
	p.o.Log.Warn("refused a call", "tool", c.tool, "code", no.Code, "reason", no.Reason)
	if c.method != "tools/call" {
		// Only the result of a tool can say that it is an error.
		c.via.tell(errorLine(c.id, refusedCode, no))
		return
	}
	p.answer(c, true, fmt.Sprintf("ocipd: refused (%s): %s. Nothing was sent, and the tool was not called. Do not retry it or do it another way; tell your user.", no.Code, no.Reason))
}

// answer answers a call with a text.
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
