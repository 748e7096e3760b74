// Package mcpproxy stands between an MCP client and the stdio server behind it. What sends
// messages is decided by ocipd before the server gets it; everything else passes as the
// bytes that it is.
//
// It decides nothing: it finds out what a call of a tool says to whom, by a map, and asks
// the daemon about each recipient. A call whose text or recipients it cannot tell, a frame
// that two readers could read differently, and a daemon that does not answer are refusals.
//
// The caller's duty: nothing else writes to the output that it hands in.
package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/openclawos/ocipd/internal/api"
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
	// maxClientLine bounds what a client may say in one line, and maxHeldLine an answer that is
	// looked into. Any other line of the server passes, however long.
	maxClientLine = 32 << 20
	maxHeldLine   = 32 << 20
	// maxOpen bounds the calls that are decided about at a time.
	maxOpen = 64
	// endTime is how long the server has to end once its input has.
	endTime = 5 * time.Second
)

// proxy is one session.
type proxy struct {
	o *Options
	// ctx is the session's, and ended is done when the client has gone.
	ctx   context.Context
	ended context.Context
	end   context.CancelFunc

	in  sync.Mutex // of the server's input
	srv io.Writer
	out sync.Mutex // of the client's

	// asking are calls that are decided about, and background is all that runs beside.
	asking, background sync.WaitGroup

	ready sync.Once

	mu sync.Mutex
	// deciding are the calls under way, by id, observers those whose answers are looked at,
	// and mine what this session asked for and waits for.
	deciding  map[string]context.CancelFunc
	observers map[string]*observer
	mine      map[string]owned
}

// observer is told what the server answered to a call. One that swallows is the proxy's own:
// the client is not told.
type observer struct {
	swallow bool
	done    func(outcome, note string)
}

// Run serves a client until it ends, or the server does.
func Run(ctx context.Context, o *Options) error {
	p := &proxy{
		o: o, ctx: ctx,
		deciding: make(map[string]context.CancelFunc), observers: make(map[string]*observer), mine: make(map[string]owned),
	}
	p.ended, p.end = context.WithCancel(ctx)
	defer p.end()
	cmd := exec.CommandContext(ctx, o.Command[0], o.Command[1:]...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = o.Env, o.Stderr, endTime
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the MCP server: %w", err)
	}
	p.srv = in
	read := make(chan error, 1)
	go func() {
		err := p.fromClient()
		// What was asked for before the end is decided, and waits for nobody.
		p.asking.Wait()
		p.end()
		read <- err
		p.in.Lock()
		defer p.in.Unlock()
		_ = in.Close()
	}()
	err = p.fromServer(out)
	p.end()
	kill := time.AfterFunc(endTime, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer kill.Stop()
	ended := cmd.Wait()
	p.loseAll()
	p.background.Wait()
	select {
	case clientErr := <-read:
		err = errors.Join(clientErr, err)
	default:
		// The server has ended before its client.
		if ended != nil && ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("the MCP server has ended: %w", ended))
		}
	}
	return err
}

// lineOf reads a line of at most so many bytes with its end. A longer one is left out, and
// reported.
func lineOf(r *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if !tooLong {
			if tooLong = len(line)+len(piece) > limit; tooLong {
				line = nil
			} else {
				line = append(line, piece...)
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// fromClient takes what the client says.
func (p *proxy) fromClient() error {
	r := bufio.NewReaderSize(p.o.In, 64<<10)
	for {
		line, tooLong, err := lineOf(r, maxClientLine)
		if tooLong {
			p.malformed(fmt.Sprintf("the message is longer than %d bytes", maxClientLine))
		} else if len(line) > 0 {
			if err := p.fromClientLine(line); err != nil {
				return nil // the server is gone, and its end says so
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

func (p *proxy) fromClientLine(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return p.toServer(line)
	}
	f, err := parse(line)
	if err != nil {
		p.malformed(err.Error())
		return nil
	}
	switch f.method {
	case "tools/call":
		p.ready.Do(p.begin)
		return p.call(line, &f)
	case "notifications/initialized":
		p.ready.Do(p.begin)
	case "notifications/cancelled":
		if p.cancelled(line, &f) {
			return nil
		}
	}
	return p.toServer(line)
}

// begin begins what goes on beside the client's messages, once the server takes calls.
func (p *proxy) begin() {
	p.background.Go(func() { p.o.Link.follow(p.ended) })
	p.background.Go(p.release)
}

// call passes a call, or has it decided beside the client's other messages.
func (p *proxy) call(line []byte, f *frame) error {
	c, err := parseCall(line, f)
	if err != nil {
		if !f.answerable() {
			p.malformed(err.Error())
			return nil
		}
		p.refuse(&toolCall{frame: *f}, &refusal{"MALFORMED", err.Error()})
		return nil
	}
	t, err := p.o.Map.toolOf(c)
	switch {
	case err != nil && f.answerable():
		p.refuse(c, refusedBy(err))
		return nil
	case err == nil && t == nil:
		return p.toServer(line)
	case !f.answerable():
		p.malformed("a call that sends a message needs an id")
		return nil
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.mu.Lock()
	_, twice := p.deciding[c.key()]
	full := len(p.deciding) >= maxOpen
	if !twice && !full {
		p.deciding[c.key()] = cancel
	}
	p.mu.Unlock()
	if twice || full {
		cancel()
		if twice {
			p.malformed("the id of a call is in use")
		} else {
			p.refuse(c, &refusal{"TOO_MANY_HELD", "too many calls wait for a person"})
		}
		return nil
	}
	p.asking.Add(1)
	p.background.Go(func() {
		waits := p.gate(ctx, c, t)
		p.asking.Done()
		if waits != nil {
			p.wait(ctx, waits)
		}
		p.mu.Lock()
		delete(p.deciding, c.key())
		p.mu.Unlock()
		cancel()
	})
	return nil
}

// cancelled gives up a call that is not the server's yet.
func (p *proxy) cancelled(line []byte, f *frame) bool {
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
	cancel := p.deciding[string(of.value)]
	if cancel == nil || p.observers[string(of.value)] != nil {
		return false
	}
	cancel()
	return true
}

// fromServer takes what the server says. While no answer is waited for it passes unread,
// whatever its length.
func (p *proxy) fromServer(out io.Reader) error {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		// An answer comes after what it answers, so who waits for it waits by now.
		line, err := r.ReadSlice('\n')
		more := errors.Is(err, bufio.ErrBufferFull)
		if p.watches() {
			line = bytes.Clone(line)
			for more && len(line) <= maxHeldLine {
				var piece []byte
				piece, err = r.ReadSlice('\n')
				line = append(line, piece...)
				more = errors.Is(err, bufio.ErrBufferFull)
			}
			if !more && len(line) > 0 && p.observed(line) {
				line = nil
			}
		}
		p.out.Lock()
		p.write(line)
		for more {
			line, err = r.ReadSlice('\n')
			p.write(line)
			more = errors.Is(err, bufio.ErrBufferFull)
		}
		p.out.Unlock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// write writes to the client. One that does not read any more has ended, and so does its
// input.
func (p *proxy) write(b []byte) {
	if len(b) > 0 {
		if _, err := p.o.Out.Write(b); err != nil {
			p.end()
		}
	}
}

func (p *proxy) toClient(line []byte) {
	p.out.Lock()
	defer p.out.Unlock()
	p.write(line)
}

func (p *proxy) toServer(line []byte) error {
	p.in.Lock()
	defer p.in.Unlock()
	_, err := p.srv.Write(line)
	return err
}

func (p *proxy) watches() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.observers) > 0
}

func (p *proxy) watch(id string, o *observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observers[id] = o
}

func (p *proxy) unwatch(id string) *observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.observers[id]
	delete(p.observers, id)
	return o
}

// lose reports that nobody knows what became of a call.
func (p *proxy) lose(id, why string) {
	if o := p.unwatch(id); o != nil {
		o.done(api.OutcomeUnknown, why)
	}
}

func (p *proxy) loseAll() {
	p.mu.Lock()
	all := p.observers
	p.observers = make(map[string]*observer)
	p.mu.Unlock()
	for _, o := range all {
		o.done(api.OutcomeUnknown, "the server ended before it answered")
	}
}

// owned says how an approval request is this session's.
type owned int

const (
	ownNot owned = iota
	// ownWaits is one whose call is open, which sends it.
	ownWaits
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

// observed looks whether a line answers a call that is waited for, and whether the client
// is not to see it.
func (p *proxy) observed(line []byte) (swallow bool) {
	f, err := parse(line)
	if err != nil || f.method != "" || f.id == nil {
		return false
	}
	o := p.unwatch(f.key())
	if o == nil {
		return false
	}
	outcome, note := api.OutcomeSent, ""
	said, _ := members(f.result, 0)
	if f.failed {
		outcome, note = api.OutcomeUnknown, "the server answered with an error"
		if code, ok := find(said, "code"); ok && neverDone[string(code.value)] {
			outcome = api.OutcomeNotSent
		}
	} else if failed, ok := find(said, "isError"); ok && failed.value.Kind() == 't' {
		outcome, note = api.OutcomeUnknown, "the tool says that it failed"
	}
	// The client is not to wait for the record.
	p.background.Go(func() { o.done(outcome, note) })
	return o.swallow
}

// malformed answers what cannot be told apart.
func (p *proxy) malformed(why string) {
	p.o.Log.Warn("refused a message of the client", "reason", why)
	p.toClient(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":%s}}`+"\n", api.String("ocipd: "+why)))
}

// refuse answers a call that is not made.
func (p *proxy) refuse(c *toolCall, no *refusal) {
	p.o.Log.Warn("refused a call", "tool", c.tool, "code", no.code, "reason", no.reason)
	p.answer(c, true, fmt.Sprintf("ocipd: refused (%s): %s. Nothing was sent. Do not retry it or send it another way; tell your user.", no.code, no.reason))
}

// answer answers a call in words.
func (p *proxy) answer(c *toolCall, isError bool, text string) {
	p.toClient(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"isError":%t}}`+"\n", c.id, api.String(text), isError))
}

// progress tells the client that its call is alive.
func (p *proxy) progress(a *asked, n int) {
	if a.call.progress != nil {
		p.toClient(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"ocipd: a person has to approve this message"}}`+"\n", a.call.progress, n))
	}
}
