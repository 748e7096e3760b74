package ipc

import (
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/peer"
	"golang.org/x/sys/unix"
)

// watched is a result of which somebody wants to know if nobody is known to have taken it.
type watched interface{ OnLost() func(written bool) }

// ack is a frame that somebody follows, from start to end. Fate is nil if the frame has nobody's
// text. If it is an [gate.Recallable], it is told once the other end has read everything up to end.
// Lost, if set, is called if the other end is not known to have read that.
type ack struct {
	start, end int64
	fate       gate.Fate
	lost       func(written bool)
	// answer is set if the frame answers a request.
	answer bool
}

// delivered returns the fate of a message, nil if the frame is none.
func (a *ack) delivered() gate.Recallable {
	d, _ := a.fate.(gate.Recallable)
	return d
}

// miss is an answer that the other end is not known to have read. written says whether any of it
// was in the socket: a client that closes with half a line unread can have read the half that
// matters.
type miss struct {
	lost    func(written bool)
	written bool
}

// ackInterval is how often the daemon checks whether a connection has read its pending deliveries.
const ackInterval = 20 * time.Millisecond

// missLocked gives up on answers that were not read so far.
func (q *outQueue) missLocked() {
	for _, a := range q.acks {
		if a.lost != nil {
			q.missed = append(q.missed, miss{a.lost, a.start < q.begun})
		}
	}
	q.acks = nil
}

// lose reports the answers that the other end is not known to have read, once the queue is closed.
// readAll is set if the other end closed the connection and left nothing unread.
func (q *outQueue) lose(readAll bool) {
	q.mu.Lock()
	missed := q.missed
	q.missed = nil
	q.mu.Unlock()
	for _, m := range missed {
		if !m.written || !readAll {
			m.lost(m.written)
		}
	}
}

// forgetWritten forgets the frames that are written and need no answer to whether they were read.
// The caller holds the lock.
func (q *outQueue) forgetWritten() {
	q.acks = slices.DeleteFunc(q.acks, func(a ack) bool { return a.end <= q.written && a.lost == nil && a.delivered() == nil })
}

// checkSoon schedules a check whether the other end has read its events. The caller holds the lock.
func (q *outQueue) checkSoon() {
	if q.checking || len(q.acks) == 0 || q.dead {
		return
	}
	q.checking = true
	time.AfterFunc(ackInterval, func() {
		q.mu.Lock()
		q.checking = false
		q.mu.Unlock()
		q.check()
	})
}

// check calls the acks whose events the other end has read. It counts the kernel's buffer
// generously, so an event never counts as read too early.
func (q *outQueue) check() {
	// Frames that are written after this are not covered, however soon they are read.
	q.mu.Lock()
	written := q.written
	q.mu.Unlock()
	unread, alive := q.unread()
	q.mu.Lock()
	n := 0
	if alive {
		for n < len(q.acks) && q.acks[n].end <= written-unread {
			n++
		}
	}
	taken := append([]ack(nil), q.acks[:n]...)
	q.acks = q.acks[:copy(q.acks, q.acks[n:])]
	if !alive {
		// Answers that were not read by now never will be.
		q.missLocked()
	}
	q.checkSoon()
	if len(q.acks) == 0 {
		q.wakeWaiting()
	}
	q.mu.Unlock()
	for _, a := range taken {
		if d := a.delivered(); d != nil {
			d.Taken()
		}
	}
}

// there reports whether the other end can still read.
func (q *outQueue) there() bool {
	raw, err := q.socket.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	err = raw.Control(func(fd uintptr) {
		events, err := peer.Poll(int(fd), 0)
		there = err != nil || events&(unix.POLLHUP|unix.POLLERR) == 0
	})
	return there && err == nil
}

// unread asks the operating system how much the other end has not read, and whether it is still
// there. The order matters: a process that dies takes its unread data with it, and by then it no
// longer counts as there.
func (q *outQueue) unread() (n int64, alive bool) {
	raw, err := q.socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		held, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err != nil {
			return
		}
		events, err := peer.Poll(int(fd), unix.POLLRDHUP)
		n, alive = int64(held), err == nil && events&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) == 0
	})
	return n, alive && err == nil
}
