package ipc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// outQueue holds the frames for one connection. Adding a frame only copies it. One goroutine at a
// time writes, so that frames keep their order and a slow reader costs only its own connection.
type outQueue struct {
	socket *net.UnixConn
	limit  int
	// ascii escapes everything that is not ASCII.
	ascii bool
	now   func() time.Time
	// onError is called once if the other end is gone; onOverflow once if it does not read, and
	// returns the last words.
	onError    func(error)
	onOverflow func() []byte
	// charge, if set, counts the queued bytes together with those of other connections. relieve is
	// called after growth, without the lock.
	charge  func(bytes int64)
	relieve func()
	// held counts the bytes that wait or are being written, and loose the part of it that is no
	// delivery.
	held, loose atomic.Int64

	mu sync.Mutex
	backlog
	writer writer
	// wasOverAll is set if the queue was ended because all connections together had too much.
	wasOverAll bool
	// queued and written count bytes from the connection's beginning. begun is the end of the bytes
	// that may be in the socket: those that are being written, and after a failed write those that
	// it took, including part of a frame.
	queued, written, begun int64
	acks                   []ack
	checking               bool
	// missed are answers that the other end is not known to have read, among those with a lost
	// function.
	missed []miss
	// last are the last words; once set, nothing is added.
	last   []byte
	ending bool
	dead   bool
	// changed is closed when the queue shrinks or ends, to wake waiting goroutines.
	changed chan struct{}
}

// writer is the state of a queue's writer. It halts for [outQueue.recall].
type writer uint8

const (
	writerIdle writer = iota
	writerBusy
	writerHalts
	writerHalted
)

// errEnded means that the connection is over.
var errEnded = errors.New("the connection has ended")

// errTakenBack means that the connection is over because a text that may not be sent any more was half
// written, or in an answer.
var errTakenBack = errors.New("a text was taken back")

func newOutQueue(socket *net.UnixConn, limit int, ascii bool, now func() time.Time, onError func(error), onOverflow func() []byte) *outQueue {
	return &outQueue{socket: socket, limit: limit, ascii: ascii, now: now, onError: onError, onOverflow: onOverflow}
}

// spelled encodes the lines from an index of a buffer on as their reader needs them. Every queued
// line goes through it.
func (q *outQueue) spelled(b []byte, from int) []byte {
	if !q.ascii {
		return b
	}
	return jsonline.ASCII(b, from)
}

func (q *outQueue) response(id string, now int64, requestID string, result any, failure *api.Error) {
	q.add(ack{}, func(b []byte) []byte { return wire.AppendResponse(b, id, now, requestID, result, failure) })
}

// answer queues the response of a method that succeeded. lost, if set, is called if the other end
// is not known to have read it.
func (q *outQueue) answer(id string, now int64, requestID string, result any, lost func(written bool)) {
	fate, _ := result.(gate.Fate)
	q.add(ack{lost: lost, fate: fate, answer: true}, func(b []byte) []byte { return wire.AppendResponse(b, id, now, requestID, result, nil) })
}

func (q *outQueue) opening(id string, now int64, requestID string, result any) {
	q.add(ack{}, func(b []byte) []byte { return wire.AppendOpening(b, id, now, requestID, result) })
}

func (q *outQueue) event(id string, now int64, event string, payload []byte, fate gate.Fate) bool {
	return q.add(ack{fate: fate}, func(b []byte) []byte { return wire.AppendEvent(b, id, now, event, payload) })
}

func (q *outQueue) chunk(id string, now int64, requestID string, chunk []byte, done bool) {
	q.add(ack{}, func(b []byte) []byte { return wire.AppendChunk(b, id, now, requestID, chunk, done) })
}

// add queues a frame. It returns false if the connection is ending, or ends because of it.
func (q *outQueue) add(a ack, frame func([]byte) []byte) bool {
	q.mu.Lock()
	if q.ending {
		if a.lost != nil {
			q.missed = append(q.missed, miss{a.lost, false})
		}
		q.mu.Unlock()
		return false
	}
	if !a.answer && a.fate != nil && a.delivered() == nil && !a.fate.Stays() {
		// The rules changed since the caller asked, and a recall has come before the event.
		q.mu.Unlock()
		return true
	}
	before := q.makeRoom()
	q.filling.frames = q.spelled(frame(q.filling.frames), before)
	size := int64(len(q.filling.frames) - before)
	q.lastFrame = int(size)
	if q.waiting += int(size); q.waiting > q.limit && q.waiting > int(size) {
		if a.lost != nil {
			q.missed = append(q.missed, miss{a.lost, false})
		}
		q.overflow()
		return false
	}
	a.start = q.queued
	q.queued += size
	if a.end = q.queued; a.fate != nil || a.lost != nil {
		q.acks = append(q.acks, a)
	}
	if a.delivered() != nil {
		q.hold(size, 0)
	} else {
		q.filling.loose += size
		q.hold(size, size)
	}
	q.mu.Unlock()
	if q.relieve != nil {
		q.relieve()
	}
	return true
}

// hold counts bytes that are queued, or no longer are. The caller holds the lock.
func (q *outQueue) hold(bytes, loose int64) {
	q.held.Add(bytes)
	q.loose.Add(loose)
	if q.charge != nil {
		q.charge(bytes)
	}
}

// letGo drops the queue, including the frame that is being written: that write is about to fail.
// The caller holds the lock.
func (q *outQueue) letGo() {
	q.missLocked()
	q.last = nil
	q.backlog = backlog{pieces: q.pieces, lastFrame: q.lastFrame}
	q.hold(-q.held.Load(), -q.loose.Load())
}

// cut ends the queue because all connections together have too much. It returns false if nothing is
// queued here.
func (q *outQueue) cut() bool {
	q.mu.Lock()
	if q.held.Load() == 0 {
		q.mu.Unlock()
		return false
	}
	q.wasOverAll = true
	if q.ending {
		// It is draining, and had its time.
		q.die(errEnded)
		q.mu.Unlock()
		return true
	}
	q.overflow()
	return true
}

// wasCut reports whether the queue was ended by [outQueue.cut].
func (q *outQueue) wasCut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.wasOverAll
}

// worse reports whether a queue is to be ended before another: first one that observes without
// reading, then the longer one.
func worse(q, other *outQueue) bool {
	mine, theirs := q.loose.Load(), other.loose.Load()
	if mine < observing && theirs < observing {
		return q.held.Load() > other.held.Load()
	}
	return mine > theirs
}

// overflow drops the queue and ends the connection. The caller holds the lock, which overflow
// releases.
func (q *outQueue) overflow() {
	q.ending = true
	q.letGo()
	q.wakeWaiting()
	q.mu.Unlock()
	words := q.spelled(q.onOverflow(), 0)
	q.mu.Lock()
	q.last = words
	// A stuck write returns at once and finds the last words. Its own deadline for them comes
	// later, since it takes the lock first.
	q.deadline(0)
	q.mu.Unlock()
	q.flushSoon()
}

func (q *outQueue) deadline(after time.Duration) {
	// A deadline on a closed socket has no effect.
	_ = q.socket.SetWriteDeadline(q.now().Add(after))
}

// flush writes the queue, unless another goroutine is writing it.
func (q *outQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writer != writerIdle || q.dead || (q.waiting == 0 && q.last == nil) {
		return
	}
	q.writer = writerBusy
	q.write()
}

// flushSoon is flush for a caller that must not wait for a socket.
func (q *outQueue) flushSoon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin()
}

// begin is flushSoon for a caller that holds the lock.
func (q *outQueue) begin() {
	if q.writer != writerIdle || q.dead || (q.waiting == 0 && q.last == nil) {
		return
	}
	q.writer = writerBusy
	go func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.write()
	}()
}

// write is the one writer. The caller holds the lock, which write releases while it writes.
func (q *outQueue) write() {
	defer q.rest()
	for !q.dead && q.writer == writerBusy && (q.waiting > 0 || q.last != nil) {
		if q.last != nil {
			q.writeLast(nil)
			return
		}
		first := q.take()
		frames := first.frames
		q.begun += int64(len(frames))
		q.mu.Unlock()
		n, err := q.socket.Write(frames)
		q.mu.Lock()
		q.written += int64(n)
		q.begun = q.written
		q.forgetWritten()
		if q.writer == writerHalts && !q.ending && errors.Is(err, os.ErrDeadlineExceeded) {
			q.putBack(first, n)
			return
		}
		if !q.dead && q.held.Load() > 0 { // otherwise it was dropped
			q.hold(-int64(len(frames)), -first.loose)
		}
		if err != nil {
			if q.last != nil {
				q.writeLast(torn(frames, n))
				return
			}
			q.rest()
			q.die(err)
			return
		}
		q.reuse(frames)
		q.wakeWaiting()
		q.checkSoon()
	}
}

// torn returns the rest of a frame that was written half way.
func torn(frames []byte, n int) []byte {
	if n == 0 || n >= len(frames) || frames[n-1] == '\n' {
		return nil
	}
	rest := frames[n:]
	return rest[:bytes.IndexByte(rest, '\n')+1]
}

// writeLast writes the last words after a complete frame, and ends the writing.
func (q *outQueue) writeLast(rest []byte) {
	words := append(bytes.Clone(rest), q.last...)
	q.last = nil
	q.mu.Unlock()
	q.deadline(lastWords)
	_, err := q.socket.Write(words)
	q.mu.Lock()
	if err == nil {
		err = errEnded
	}
	q.die(err)
}

// die ends the queue. The caller holds the lock.
func (q *outQueue) die(err error) {
	if q.dead {
		return
	}
	q.dead, q.ending = true, true
	q.letGo()
	q.wakeWaiting()
	q.mu.Unlock()
	q.onError(err)
	q.mu.Lock()
}

// close ends the queue without last words.
func (q *outQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead, q.ending = true, true
	q.letGo()
	q.wakeWaiting()
}

// drain writes the queue and takes no more, for at most this long. It also gives the other end that
// long to read, so that a delivery at the last moment need not be repeated.
func (q *outQueue) drain(limit time.Duration) {
	q.mu.Lock()
	if q.ending = true; !q.dead { // otherwise a write that is under way fails
		q.deadline(limit)
	}
	q.mu.Unlock()
	q.flush()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	q.mu.Lock()
	for !q.dead && (q.writer != writerIdle || len(q.acks) > 0) && ctx.Err() == nil {
		wait := q.waitChange()
		q.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		q.mu.Lock()
	}
	q.mu.Unlock()
	q.flush()
}

// ample is the part of the limit up to which streams and backlogs fill the queue. The rest is for
// frames that cannot wait.
func (q *outQueue) ample() int { return q.limit / 2 }

func (q *outQueue) crowded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting >= q.ample()
}

// room waits until the queue is no longer crowded.
func (q *outQueue) room(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.ending {
			return errEnded
		}
		if q.waiting < q.ample() {
			return ctx.Err()
		}
		wait := q.waitChange()
		q.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (q *outQueue) waitChange() <-chan struct{} {
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}

func (q *outQueue) wakeWaiting() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}
