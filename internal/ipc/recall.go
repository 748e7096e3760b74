package ipc

import (
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// recall is [api.Line.Recall]. Only one is under way at a time.
func (q *outQueue) recall() (back []gate.Recallable, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// After an overflow, the queue has forgotten which frame its last write ends.
	unknown := q.ending && len(q.acks) == 0 && q.writer != writerIdle
	forbidden := func(a ack) bool { return a.end > q.written && a.fate != nil && !a.fate.Stays() }
	if q.dead || !unknown && !slices.ContainsFunc(q.acks, forbidden) {
		return nil, q.dead
	}
	if !q.ending {
		q.halt()
	}
	whole := false
	if !q.ending {
		back, whole = q.takeBack()
	}
	if !whole {
		q.deadline(0)
		q.die(errTakenBack)
	}
	if q.writer == writerHalted {
		q.writer = writerIdle
	}
	q.wakeWaiting()
	q.begin()
	return back, !whole
}

// halt stops the writer where it is. The caller holds the lock, which halt releases while it waits.
func (q *outQueue) halt() {
	if q.writer == writerIdle {
		q.writer = writerHalted
		return
	}
	q.writer = writerHalts
	q.deadline(0)
	for q.writer != writerHalted {
		wait := q.waitChange()
		q.mu.Unlock()
		<-wait
		q.mu.Lock()
	}
	if !q.ending {
		_ = q.socket.SetWriteDeadline(time.Time{}) // it has no effect on a closed socket
	}
}

// rest ends the writing. The caller holds the lock.
func (q *outQueue) rest() {
	switch q.writer {
	case writerBusy:
		q.writer = writerIdle
	case writerHalts:
		q.writer = writerHalted
	case writerIdle, writerHalted:
	}
	q.wakeWaiting()
}

// putBack puts the rest of a piece back in front of the queue. The caller holds the lock.
func (q *outQueue) putBack(p piece, written int) {
	loose := min(p.loose, int64(written))
	q.hold(-int64(written), -loose)
	p.frames, p.loose = p.frames[written:], p.loose-loose
	q.filled = slices.Insert(q.filled, 0, p)
	q.waiting += len(p.frames)
}

// takeBack takes all messages out of the queue, and of the other frames those that may not be
// written any more. It is not whole if such a frame is half written, or an answer. The caller holds
// the lock, and nothing is being written.
func (q *outQueue) takeBack() (back []gate.Recallable, whole bool) {
	var out []ack
	for _, a := range q.acks {
		message := a.delivered()
		half := a.start < q.written
		switch {
		case a.end <= q.written || a.fate == nil:
		case message != nil && !half:
			back, out = append(back, message), append(out, a)
		case a.fate.Stays():
		case half || a.answer:
			return nil, false
		default:
			out = append(out, a)
		}
	}
	q.remove(out)
	return back, true
}

// remove takes frames out of the queue that are not written. Those behind them move up. The caller
// holds the lock.
func (q *outQueue) remove(frames []ack) {
	at, left := q.written, frames
	for i := range len(q.filled) + 1 {
		p := &q.filling
		if i < len(q.filled) {
			p = &q.filled[i]
		}
		begin := at
		at += int64(len(p.frames))
		kept, from := p.frames[:0], int64(0)
		for ; len(left) > 0 && left[0].end <= at; left = left[1:] {
			gone := left[0]
			kept = append(kept, p.frames[from:gone.start-begin]...)
			from = gone.end - begin
			loose := int64(0)
			if gone.delivered() == nil {
				loose = gone.end - gone.start
			}
			p.loose -= loose
			q.hold(gone.start-gone.end, -loose)
		}
		p.frames = append(kept, p.frames[from:]...)
	}
	var moved int64
	acks := q.acks[:0]
	for _, a := range q.acks {
		if len(frames) > 0 && a.start == frames[0].start {
			moved += a.end - a.start
			frames = frames[1:]
			continue
		}
		a.start, a.end = a.start-moved, a.end-moved
		acks = append(acks, a)
	}
	clear(q.acks[len(acks):])
	q.acks = acks
	q.queued -= moved
	q.waiting -= int(moved)
}
