package client

import "sync"

// Bounds of the events and chunks that wait for the caller: the first one holds while no call waits for its
// answer, which stands behind them on the connection.
const (
	mostWaiting  = 4096
	mostWithCall = 16 * mostWaiting
)

// backlog has the work that waits for each kind of handler.
type backlog struct {
	mu      sync.Mutex
	changed sync.Cond
	lanes   map[string][]work
	// waiting counts the work of all lanes and the chunks of all streams, and calls those that wait for an
	// answer.
	waiting, calls int
	closed         bool
}

// work is an event that waits for its handler.
type work struct {
	handle func()
	// void reports whether the daemon sends the event anew, because its connection has ended. It may be
	// nil.
	void func() bool
}

func newBacklog() *backlog {
	b := &backlog{lanes: map[string][]work{}}
	b.changed.L = &b.mu
	return b
}

// put adds work to a lane once there is room. It drops the work of a closed backlog.
func (b *backlog) put(lane string, w work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && b.full() {
		b.changed.Wait()
	}
	b.waiting++
	b.lanes[lane] = append(b.lanes[lane], w)
	b.changed.Broadcast()
}

// full reports whether nothing more may wait.
func (b *backlog) full() bool {
	return b.waiting >= mostWaiting && (b.calls == 0 || b.waiting >= mostWithCall)
}

// run does the work of a lane, piece by piece, until the backlog is closed. Work that it has not begun by
// then is left.
func (b *backlog) run(lane string) {
	for {
		b.mu.Lock()
		for !b.closed && len(b.lanes[lane]) == 0 {
			b.changed.Wait()
		}
		if b.closed {
			b.mu.Unlock()
			return
		}
		w := b.lanes[lane][0]
		b.lanes[lane] = b.lanes[lane][1:]
		b.waiting--
		b.changed.Broadcast()
		b.mu.Unlock()
		if w.void == nil || !w.void() {
			w.handle()
		}
	}
}

// calling counts a call that begins, or one that has its answer.
func (b *backlog) calling(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls += n
	b.changed.Broadcast()
}

func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
}
