package ipc

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/hangup"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"go.uber.org/zap"
)

// face is the socket a connection came through.
type face uint8

const (
	faceApp face = iota
	faceOperator
)

// name is the socket's name in the metrics.
func (f face) name() string {
	if f == faceOperator {
		return metrics.SocketOperators
	}
	return metrics.SocketApps
}

// state is a connection's stage of life. It only moves forward.
type state uint8

const (
	// stateOpen: requests are taken.
	stateOpen state = iota
	// stateDraining: no more requests; those in flight are answered.
	stateDraining
	// stateLagging: the other end did not read; last words, then the end.
	stateLagging
	// stateClosed: nothing more is read or written.
	stateClosed
)

// conn is one connection. The reader goroutine owns lines; everything else is
// shared and guarded by mu.
type conn struct {
	server *Server
	face   face
	socket *net.UnixConn
	client Client
	peer   api.Peer
	// tasks is the connection's part in tasks.
	tasks TaskSession
	// heard reads the socket, and notices writes by another process.
	heard io.Reader
	out   *outQueue
	unacknowledged
	// process counts the resources of the connection's process. It is set when the connection is
	// added.
	process *process
	// line is the memory of the line that is being read, in bytes, negative if the connection ends
	// for it. The server's lock of lines guards it.
	line int
	// ctx ends with the connection.
	ctx    context.Context
	cancel context.CancelFunc
	since  time.Time

	mu    sync.Mutex
	state state
	// inFlight maps the ids of unanswered requests to the cancel functions of those that are
	// streams.
	inFlight map[string]context.CancelFunc
	// orders holds the end of the last request of each order key.
	orders map[string]chan struct{}
	// load is the cost of the requests in flight; room signals that it has dropped. Streams are
	// counted separately.
	load    load
	streams int
	// nonce is the nonce for the connection's next signed call, "" if none is prepared.
	nonce string
	room  sync.Cond
	// idle is added to under mu while the connection is open, so that a waiter that has moved the
	// state on waits for all requests.
	idle sync.WaitGroup
}

type load struct{ requests, bytes int }

// maxInFlightBytes bounds the parameters of one connection's requests in flight, besides the bound
// on their number.
const maxInFlightBytes = 4 << 20

// maxStreams bounds the streams of one connection.
const maxStreams = 64

// lastWords bounds how long a closing connection waits for its reader.
const lastWords = time.Second

// errClosing answers requests that an ending connection does not carry out.
var errClosing error = &api.Error{Code: api.ConnectionClosed, Message: "the connection is closing; nothing new is begun on it"}

func newConn(s *Server, f face, socket *net.UnixConn, peer api.Peer) *conn {
	c := &conn{server: s, face: f, socket: socket, peer: peer, since: s.now()}
	c.ctx, c.cancel = context.WithCancel(hangup.With(api.WithThere(s.ctx, func() bool { return c.out.there() }), socket))
	c.room.L = &c.mu
	// The stock SDK decodes each read of its socket separately, so a character that two reads share
	// is lost there. Operators get the exact bytes of records.
	c.out = newOutQueue(socket, s.all.limits.Load().QueueBytes, f == faceApp, s.now, c.onWriteError, c.onOverflow)
	c.out.charge, c.out.relieve, c.out.pieces = func(bytes int64) { s.all.charge(c.process, bytes) }, func() { s.all.relieve(c.process) }, &s.pieces
	return c
}

// takes reports whether requests are taken.
func (c *conn) takes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == stateOpen
}

// reads reports whether lines are still taken. A connection that drains reads on, since a request
// in flight may need the app's answers.
func (c *conn) reads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state <= stateDraining
}

// to moves the connection forward. It returns false if it is already there or further.
func (c *conn) to(next state) bool {
	c.mu.Lock()
	moved := c.state < next
	if moved {
		c.state = next
		c.room.Broadcast()
	}
	c.mu.Unlock()
	if moved {
		c.process.wake()
	}
	return moved
}

// busy reports whether something is in flight.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight) > 0
}

// lineBuffer is the memory for lines that an idle connection keeps.
const lineBuffer = 2 << 10

// serve reads the connection to its end.
func (c *conn) serve() {
	// Closing a socket with unread data signals an error to the other end.
	readAll := false
	defer func() { c.finish(readAll) }()
	longest := c.server.all.limits.Load().line(c.face)
	lines := wire.NewLineReader(c.heard, longest, lineBuffer)
	lines.Charge = func(bytes int) { c.server.all.chargeLine(c, bytes) }
	defer lines.Release()
	for c.reads() {
		line, err := lines.Next()
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			c.server.metrics.Refused(metrics.TooLong)
			c.fail(wire.SalvageID(line), api.Errorf(api.InvalidRequest,
				"cannot read the request: line longer than ipc.max_line_bytes, which is %d", longest))
		case err != nil:
			readAll = errors.Is(err, io.EOF)
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && c.takes() {
				c.server.log.Debug("connection lost", zap.Error(err))
			}
			return
		default:
			c.handle(line)
		}
		// Collect the answers while more requests are already here, and write them at once.
		if !lines.Buffered() {
			c.out.flush()
		}
	}
	c.out.flush()
}

// finish is the one end of every connection.
func (c *conn) finish(readAll bool) {
	c.to(stateDraining)
	c.cancel()
	c.idle.Wait()
	c.out.drain(lastWords)
	c.to(stateClosed)
	c.out.close()
	c.out.lose(readAll)
	if err := c.socket.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.server.log.Debug("cannot close a connection", zap.Error(err))
	}
	if c.client != nil {
		c.client.Gone()
	}
	c.server.all.remove(c)
}

// handle takes one line from request to answer, or starts the goroutine that will answer it.
func (c *conn) handle(line []byte) {
	r, err := wire.ParseRequest(line)
	if err != nil {
		c.server.metrics.Refused(metrics.Malformed)
		c.fail(r.ID, err)
		return
	}
	m, known := c.server.table[c.face][r.Method]
	if !known {
		// A method of the other socket is known, and the error names that socket.
		m, known = c.server.table[faceOperator-c.face][r.Method]
	}
	if !known {
		c.server.metrics.Refused(metrics.UnknownMethod)
		c.fail(r.ID, api.Errorf(api.MethodNotFound, "unknown method %q; kernel.describe lists the methods", r.Method))
		return
	}
	if m.Pace != Quick && !c.takes() {
		c.fail(r.ID, errClosing)
		return
	}
	if c.pending(r.ID) {
		c.fail(r.ID, api.Errorf(api.Conflict, "request id %q is still in flight on this connection", r.ID))
		return
	}
	if err := m.admit(c, &r); err != nil {
		c.server.metrics.Refused(metrics.NotAdmitted)
		c.fail(r.ID, err)
		return
	}
	if err := m.takesMembers(c, &r); err != nil {
		c.fail(r.ID, m.answered(err))
		return
	}
	params, err := m.read(c.face, &r)
	if err != nil {
		c.fail(r.ID, m.answered(err))
		return
	}
	switch m.Pace {
	case Quick:
		result, _, err := c.call(&r, m, params)
		c.respond(r.ID, result, m.answered(err))
	case Patient:
		c.begin(&r, m, params, len(line))
	case Streaming:
		c.stream(&r, m, params)
	}
}

// respond queues the answer of a method.
func (c *conn) respond(requestID string, result any, err error) {
	if err != nil {
		c.fail(requestID, err)
		return
	}
	var lost func(written bool)
	if w, ok := result.(watched); ok {
		lost = w.OnLost()
	}
	c.out.answer(c.server.newID(), c.server.now().UnixMilli(), requestID, result, lost)
}

// call runs a method.
func (c *conn) call(r *wire.Request, m *Method, params any) (result any, after api.AfterReply, err error) {
	defer c.rescue(m, &err)
	ctx := c.ctx
	if c.face == faceOperator && (r.Behalf != "" || m.Signing == api.Signed) {
		if ctx, err = callerOf(ctx, c, r, m); err != nil {
			return nil, nil, err
		}
	}
	return m.call(ctx, c, r, params)
}

// rescue is deferred in the goroutine of a request. A panic there becomes that request's
// INTERNAL_ERROR and does not affect other requests.
func (c *conn) rescue(m *Method, err *error) {
	if p := recover(); p != nil {
		c.server.log.Error("a method panicked", zap.String("method", m.Name), zap.Any("panic", p), zap.StackSkip("stack", 2))
		*err = api.Errorf(api.InternalError, "%s failed inside the kernel; its log has the cause", m.Name)
	}
}

// fail queues an error answer.
func (c *conn) fail(requestID string, err error) {
	if c.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errClosing
	}
	failure := api.AsError(err)
	if (failure.Code == api.UnknownError || failure.Code == api.InternalError) && !unrecorded(failure) {
		c.server.log.Error("a request failed inside the kernel", zap.Error(err))
	}
	c.out.response(c.server.newID(), c.server.now().UnixMilli(), requestID, nil, failure)
}

// begin runs a patient method beside the reader. It waits while the connection has too much in
// flight, so that a client that floods slows itself.
func (c *conn) begin(r *wire.Request, m *Method, params any, cost int) {
	if c.crowded(cost) {
		c.out.flush()
	}
	if !c.enter(r.ID, cost) {
		c.fail(r.ID, errClosing)
		return
	}
	before, done := c.queueUp(m, params)
	request := *r
	c.server.crew.run(func() {
		defer c.idle.Done()
		if before != nil {
			<-before
		}
		result, after, err := c.call(&request, m, params)
		// Free the id before the answer: a client that has read it may use the id again.
		others := c.leave(request.ID, cost)
		c.respond(request.ID, result, m.answered(err))
		done()
		if others {
			// Requests that arrived together are often decided together: write all answers at once.
			runtime.Gosched()
		}
		c.out.flush()
		if after != nil && err == nil {
			after()
		}
	})
}

// queueUp puts a request behind the last one with the same order key.
func (c *conn) queueUp(m *Method, params any) (before chan struct{}, done func()) {
	if !m.ordered {
		return nil, func() {}
	}
	key, mine := params.(api.Ordered).OrderKey(), make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orders == nil {
		c.orders = make(map[string]chan struct{})
	}
	before = c.orders[key]
	c.orders[key] = mine
	return before, func() {
		close(mine)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.orders[key] == mine {
			delete(c.orders, key)
		}
	}
}

// pending reports whether a request with this id is not answered yet.
func (c *conn) pending(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.inFlight[id]
	return ok
}

// crowded reports whether a request of this cost must wait.
func (c *conn) crowded(cost int) bool {
	c.mu.Lock()
	full := c.full(cost)
	c.mu.Unlock()
	return full || c.process.crowded(cost)
}

func (c *conn) full(cost int) bool {
	return c.load.requests >= c.server.all.limits.Load().InFlight ||
		(c.load.requests > 0 && c.load.bytes+cost > maxInFlightBytes)
}

// enter puts a request into flight, and returns false if the connection ended meanwhile.
func (c *conn) enter(id string, cost int) bool {
	c.mu.Lock()
	for c.state == stateOpen && c.full(cost) {
		c.room.Wait()
	}
	c.mu.Unlock()
	// Only the connection's reader enters requests, so there is still room.
	if !c.process.admit(c, cost) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stateOpen {
		c.process.leave(cost)
		return false
	}
	c.trackLocked(id, nil)
	c.load.requests++
	c.load.bytes += cost
	return true
}

// trackLocked puts a request into flight.
func (c *conn) trackLocked(id string, cancel context.CancelFunc) {
	if c.inFlight == nil {
		c.inFlight = make(map[string]context.CancelFunc)
	}
	c.inFlight[id] = cancel
	c.idle.Add(1)
}

// leave takes a request out of flight, and reports whether others remain.
func (c *conn) leave(id string, cost int) (others bool) {
	c.mu.Lock()
	delete(c.inFlight, id)
	c.load.requests--
	c.load.bytes -= cost
	others = c.load.requests > 0
	c.room.Signal()
	c.mu.Unlock()
	c.process.leave(cost)
	return others
}

// onWriteError ends a connection whose other end is gone, or that a message was taken back from.
func (c *conn) onWriteError(why error) {
	if c.to(stateClosed) && errors.Is(why, errTakenBack) {
		uid, _, pid := c.peer.Credentials()
		c.server.metrics.Ended(metrics.TakenBack)
		c.server.log.Warn("a connection was to get a text that may not be sent any more: closing it", zap.Int32("pid", pid), zap.Uint32("uid", uid), zap.String("reason", metrics.TakenBack))
	}
	c.hangUp()
}

// onOverflow ends a connection whose other end does not read. It drops the queue, and the last
// words say so.
func (c *conn) onOverflow() []byte {
	if !c.to(stateLagging) {
		return nil
	}
	uid, _, pid := c.peer.Credentials()
	reason := metrics.NotRead
	if c.out.wasCut() {
		reason = metrics.NotReadOfAll
	}
	c.server.metrics.Ended(reason)
	c.server.log.Warn("a connection does not read: closing it", zap.Int32("pid", pid), zap.Uint32("uid", uid), zap.String("reason", reason))
	now := c.server.now().UnixMilli()
	words := wire.AppendEvent(nil, c.server.newID(), now, api.KernelLagging,
		[]byte(`{"reason":"the connection did not read what was sent to it; what was queued is dropped"}`))
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.inFlight {
		words = wire.AppendResponse(words, c.server.newID(), now, id, nil,
			api.Errorf(api.ConnectionClosed, "the connection was closed because it did not read"))
	}
	return words
}

// hangUp wakes the reader, which then finishes the connection.
func (c *conn) hangUp() {
	c.cancel()
	if err := c.socket.CloseRead(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.server.log.Debug("cannot stop reading a connection", zap.Error(err))
	}
}

// Put queues an event (api.Line).
func (c *conn) Put(e gate.Event, fate gate.Fate) bool {
	id := c.server.newID()
	return c.out.event(id, c.server.now().UnixMilli(), e.Name(), e.Payload(), c.follow(id, fate))
}

// Flush has the queue written (api.Link).
func (c *conn) Flush() { c.out.flushSoon() }

// Room waits for room in the queue (api.Link).
func (c *conn) Room(ctx context.Context) error { return c.out.room(ctx) }

// Crowded reports whether Room would wait (api.Link).
func (c *conn) Crowded() bool { return c.out.crowded() }

// Close ends the connection gracefully (api.Link).
func (c *conn) Close(within time.Duration) {
	if !c.refuse() {
		return
	}
	go func() {
		idle := make(chan struct{})
		go func() { c.idle.Wait(); close(idle) }()
		limit := time.NewTimer(within)
		defer limit.Stop()
		select {
		case <-idle:
		case <-limit.C:
		}
		c.part(within)
	}()
}

// refuse stops taking requests. It returns false if the connection is ending already.
func (c *conn) refuse() bool {
	if !c.to(stateDraining) {
		return false
	}
	c.endStreams()
	return true
}

// unanswered returns how many requests are in flight, without streams.
func (c *conn) unanswered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load.requests
}

// part writes the rest of the queue, and ends the connection.
func (c *conn) part(within time.Duration) {
	c.out.drain(min(lastWords, max(within, lastWords/10)))
	c.hangUp()
}
