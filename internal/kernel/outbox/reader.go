package outbox

import (
	"context"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Page is a reader's page of a queue without an app. Its messages stay in the queue until
// [Outbox.Pass].
type Page struct {
	Messages []*Delivery
	// Cursor passes the messages.
	Cursor Cursor
	// More is set if others wait behind them.
	More bool

	handed []handing
}

// Stays reports whether all messages of the page may still be handed to the reader.
func (p *Page) Stays() bool {
	for i := range p.handed {
		if !p.handed[i].Stays() {
			return false
		}
	}
	return true
}

// Cursor is a reader's position in a queue: it had the messages up to the record Seq, except those
// that a pause kept back. It had no message newer than Newest. That holds even if the log was reset
// and its numbers began again.
type Cursor struct {
	Seq      uint64
	Newest   string
	KeptBack []string
}

// passes reports whether the reader has had a message.
func (c Cursor) passes(seq uint64, id string) bool {
	return seq <= c.Seq && id <= c.Newest && !slices.Contains(c.KeptBack, id)
}

// maxKeptBack bounds the kept-back messages of a cursor.
const maxKeptBack = 32

// Full reports whether the cursor can name no further kept-back message.
func (c Cursor) Full() bool { return len(c.KeptBack) >= maxKeptBack }

// Read returns the oldest messages of a queue without an app, up to a number of them and about so
// many bytes. It leaves out messages that a pause keeps back, and those for a different agent than
// the reader's: the id may have passed to another agent while the reader waited.
func (o *Outbox) Read(ctx context.Context, queue, reader string, limit, size int) (Page, error) {
	var p Page
	var keptBack []string
	for after, read := int64(0), 0; ; {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return p, err
		}
		due, err := o.due(nil, page)
		for i, d := range due {
			m := page[i]
			after = m.ID
			switch {
			case d == nil, d.For != "" && d.For != reader:
				continue
			case o.keptBack(d):
				if keptBack = append(keptBack, m.DispatchID); (Cursor{KeptBack: keptBack}).Full() {
					return p, nil
				}
				continue
			case len(p.Messages) == limit || read > 0 && read+d.letter.Size() > size:
				p.More = true
				return p, nil
			case !o.give(m.MessageID):
				continue
			}
			read += d.letter.Size()
			p.Messages = append(p.Messages, d)
			p.handed = append(p.handed, newHanding(o, d))
			p.Cursor = Cursor{Seq: m.RecordSeq, Newest: max(p.Cursor.Newest, m.DispatchID), KeptBack: slices.Clone(keptBack)}
		}
		if err != nil && len(p.Messages) == 0 {
			return p, err
		}
		if err != nil {
			p.More = true
			return p, nil
		}
	}
}

// give notes that a reader gets a message, and returns false if a person drops it. Both sides write
// their own mark before they read the other's.
func (o *Outbox) give(id store.MessageID) bool {
	o.given.add(id)
	if o.dropped.has(id) {
		o.given.remove(id)
		return false
	}
	return true
}

// Left notes that the reader of a queue is gone: messages that it did not pass may be dropped.
func (o *Outbox) Left(queue string) { o.given.left(queue) }

// given lists the messages that readers got and have not passed. It does not cover the time before
// the daemon started.
type given struct {
	mu     sync.Mutex
	queues map[string]*givenOf
}

// givenOf is the part of one queue. Read is set while its reader is connected.
type givenOf struct {
	ids  map[int64]struct{}
	read bool
}

func (g *given) add(id store.MessageID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queues[id.Queue]
	if q == nil {
		if g.queues == nil {
			g.queues = make(map[string]*givenOf)
		}
		q = &givenOf{ids: make(map[int64]struct{})}
		g.queues[id.Queue] = q
	}
	q.ids[id.ID], q.read = struct{}{}, true
}

func (g *given) remove(ids ...store.MessageID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		if q := g.queues[id.Queue]; q != nil {
			if delete(q.ids, id.ID); len(q.ids) == 0 {
				delete(g.queues, id.Queue)
			}
		}
	}
}

// has reports whether a reader was given a message.
func (g *given) has(id store.MessageID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hasLocked(id)
}

func (g *given) hasLocked(id store.MessageID) bool {
	q := g.queues[id.Queue]
	if q == nil {
		return false
	}
	_, ok := q.ids[id.ID]
	return ok
}

// held reports whether a connected reader was given a message.
func (g *given) held(id store.MessageID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hasLocked(id) && g.queues[id.Queue].read
}

func (g *given) left(queue string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.queues[queue]; q != nil {
		q.read = false
	}
}

func (g *given) forget(queue string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.queues, queue)
}

// Pass removes from a queue the messages that its reader had, up to a cursor, each with the record
// that a function makes. Messages may be gone already: passed before, or expired. It returns the
// removed ones. The caller passes one cursor at a time.
func (o *Outbox) Pass(ctx context.Context, queue string, to Cursor, record func(*Delivery) *audit.Record) ([]*Delivery, error) {
	change, had := &store.Change{Drains: true}, []*Delivery{}
	var taken store.Taken
	for after, more := int64(0), true; more; {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil {
			return nil, err
		}
		more = len(page) > 0
		// The reader did not get undeliverable messages: due removes those with their own records.
		due, err := o.due(nil, page)
		if err != nil {
			return nil, err
		}
		for i, m := range page {
			if m.RecordSeq > to.Seq {
				more = false
				break
			}
			after = m.ID
			d := due[i]
			if d == nil || !to.passes(m.RecordSeq, m.DispatchID) || o.keptBack(d) {
				// Messages that are paused or dropped by now stay, even if the cursor passes them, and come
				// again.
				continue
			}
			change.Records = append(change.Records, record(d))
			change.Add(store.EndedRun(d.RunID))
			had = append(had, d)
			taken = append(taken, m.MessageID)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	change.Add(taken)
	if _, err := o.host.Commit(change); err != nil {
		return nil, err
	}
	o.given.remove(taken...)
	for range had {
		o.metrics.Delivery(metrics.Handed)
	}
	return had, nil
}

// Arrival returns a channel that is closed when a message begins to wait in a queue without an app,
// or when a pause may have ended.
func (o *Outbox) Arrival(queue string) (came <-chan struct{}, leave func()) {
	return o.arrivals.watch(queue)
}

// arrivals are the readers that wait for a message.
type arrivals struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}

func (a *arrivals) watch(queue string) (came <-chan struct{}, leave func()) {
	c := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = make(map[string]map[chan struct{}]struct{})
	}
	if a.waiting[queue] == nil {
		a.waiting[queue] = make(map[chan struct{}]struct{})
	}
	a.waiting[queue][c] = struct{}{}
	return c, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waiting[queue], c); len(a.waiting[queue]) == 0 {
			delete(a.waiting, queue)
		}
	}
}

func (a *arrivals) tell(queue string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tellLocked(queue)
}

// tellAll wakes all waiting readers.
func (a *arrivals) tellAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for queue := range a.waiting {
		a.tellLocked(queue)
	}
}

func (a *arrivals) tellLocked(queue string) {
	if kind, _ := directory.Split(queue); kind == hostKind && queue != AnyHost {
		a.tellLocked(AnyHost)
	}
	for c := range a.waiting[queue] {
		close(c)
	}
	delete(a.waiting, queue)
}
