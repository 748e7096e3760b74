package outbox

import (
	"context"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/store"
)

// Page is what a reader is given of a queue that no app takes. What it holds stays in
// the queue until [Outbox.Pass].
type Page struct {
	Messages []*Delivery
	// Cursor passes them.
	Cursor Cursor
	// More is set where others wait behind them.
	More bool
}

// Cursor is how far a reader of a queue has come: it had the messages up to the record
// Seq, but for those that were kept back from it by a pause. What is newer than Newest it
// did not have, also where the log was set back and counts anew.
type Cursor struct {
	Seq      uint64
	Newest   string
	KeptBack []string
}

// passes reports whether the reader has had a message.
func (c Cursor) passes(seq uint64, id string) bool {
	return seq <= c.Seq && id <= c.Newest && !slices.Contains(c.KeptBack, id)
}

// maxKeptBack bounds how many a cursor can name.
const maxKeptBack = 32

// Full reports whether no further message can be left out.
func (c Cursor) Full() bool { return len(c.KeptBack) >= maxKeptBack }

// Read returns the oldest messages of a queue that no app takes, up to a number of them
// and about so many bytes. What a pause keeps back is left out.
func (o *Outbox) Read(ctx context.Context, queue string, limit, size int) (Page, error) {
	var p Page
	var keptBack []string
	for after, read := int64(0), 0; ; {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return p, err
		}
		due, err := o.due(queue, page)
		if err != nil {
			return p, err
		}
		for i, m := range page {
			after = m.ID
			d := due[i]
			switch {
			case d == nil || o.dropped.has(d.MessageID):
				continue
			case o.keptBack(d) != "":
				if keptBack = append(keptBack, m.DispatchID); (Cursor{KeptBack: keptBack}).Full() {
					return p, nil
				}
				continue
			case len(p.Messages) == limit || read > 0 && read+len(d.Data) > size:
				p.More = true
				return p, nil
			}
			read += len(d.Data)
			p.Messages = append(p.Messages, d)
			p.Cursor = Cursor{Seq: m.RecordSeq, Newest: max(p.Cursor.Newest, m.DispatchID), KeptBack: slices.Clone(keptBack)}
		}
	}
}

// Pass takes out of a queue what its reader has had, up to a cursor, each on the record
// that a function makes. What a cursor passes may be gone: passed before, or expired
// meanwhile. It returns what it took out. The caller sees to it that one cursor is passed at a time.
func (o *Outbox) Pass(ctx context.Context, queue string, to Cursor, record func(*Delivery) *audit.Record) ([]*Delivery, error) {
	change, had := &store.Change{Drains: true}, []*Delivery{}
	var taken store.Taken
	for after, more := int64(0), true; more; {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil {
			return nil, err
		}
		more = len(page) > 0
		// Nothing was read that is not to be delivered: it is taken out as that.
		due, err := o.due(queue, page)
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
			if d == nil || !to.passes(m.RecordSeq, m.DispatchID) || o.dropped.has(m.MessageID) || o.keptBack(d) != "" {
				// What is paused by now stays, whatever the cursor says, and comes again.
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
	for range had {
		o.metrics.Delivery(metrics.Handed)
	}
	return had, nil
}

// Arrival returns a channel that is closed when a message begins to wait in a queue that
// no app takes.
func (o *Outbox) Arrival(queue string) (came <-chan struct{}, leave func()) {
	return o.arrivals.watch(queue)
}

// arrivals are those who wait for a message.
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
	for c := range a.waiting[queue] {
		close(c)
	}
	delete(a.waiting, queue)
}
