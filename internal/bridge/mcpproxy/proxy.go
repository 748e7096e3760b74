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
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
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

	calls *pendingCalls
	// mine has an owned for each approval request of this session, by its id.
	mine sync.Map
	// says is the server's description of itself, given its texts that clients may repeat, and requests the open
	// requests of both sides.
	says     *says
	given    given
	requests requests

	mu sync.Mutex
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
		calls: newPendingCalls(o.Now), says: new(says),
		said: semaphore.NewWeighted(maxHeld), waiting: semaphore.NewWeighted(maxHeld), heard: semaphore.NewWeighted(maxHeld),
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
		p.requests.opens(key{session, f.key()}, f.id)
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
		p.calls.decided(c.named)
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
	free, full := p.calls.decides(c.named, cancel, func() bool { return p.waiting.TryAcquire(long) })
	switch {
	case !free:
		p.malformed(c.via, "the id of a call is in use")
	case full:
		p.refuse(c, &gatelink.Refusal{Code: "TOO_MANY_HELD", Reason: "too many calls are decided about"})
	}
	return free && !full
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
			waits.wait(ctx)
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
	params, err := toolmap.Members(line[f.params.from:f.params.to], 0)
	of, ok := toolmap.Find(params, "requestId")
	return err == nil && ok && p.calls.cancel(key{session, keyOf(of.Value)})
}

func (o *observer) lost(outcome, why string) {
	if o.done != nil {
		o.done(outcome, why)
	}
	if o.spoiled != nil {
		o.tell(o.spoiled(why))
	}
}

// malformed answers an ambiguous message.
func (p *proxy) malformed(via route, why string) {
	p.o.Log.Warn("refused a message of the client", "reason", why)
	via.reject(malformedLine(why))
}
