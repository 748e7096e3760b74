package approval

import (
	"context"
	"errors"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
)

// watchers are the streams of people who watch.
type watchers struct {
	mu  sync.Mutex
	set map[*watcher]struct{}
}

// watcher is the stream of one person who watches. Unsent changes are kept as ids, so that a slow
// reader costs little and gets the newest state.
type watcher struct {
	mu      sync.Mutex
	changed []string
	known   map[string]bool
	wake    chan struct{}
}

func (w *watcher) tell(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known[id] {
		w.known[id] = true
		w.changed = append(w.changed, id)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.changed
	w.changed = nil
	clear(w.known)
	return ids
}

// tell wakes the watchers.
func (l *watchers) tell(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.set {
		w.tell(id)
	}
}

// join adds a watcher until leave is called.
func (l *watchers) join() (w *watcher, leave func()) {
	w = &watcher{known: make(map[string]bool), wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set[w] = struct{}{}
	return w, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.set, w)
	}
}

// Watch sends the pending requests, and then each new or changed one, until the context ends.
func (q *Requests) Watch(ctx context.Context, s api.Stream) error {
	w, leave := q.watchers.join()
	defer leave()
	if err := q.sendPending(ctx, s); err != nil {
		return err
	}
	return q.follow(ctx, w, func(r *Request) error { return s.Send(ctx, api.ApprovalNews{Approval: &r.ApprovalSummary}) })
}

// WatchOf tells an agent that one of its requests is new or has changed, without details, until the
// context ends.
func (q *Requests) WatchOf(ctx context.Context, own func(*Request) bool, s api.Stream) error {
	w, leave := q.watchers.join()
	defer leave()
	if err := s.Send(ctx, api.AgentNews{Caught: true}); err != nil {
		return err
	}
	return q.follow(ctx, w, func(r *Request) error {
		if !own(r) {
			return nil
		}
		return s.Send(ctx, api.AgentNews{ApprovalID: r.ApprovalID, Status: r.State})
	})
}

// follow hands over a watcher's changes. It leaves out a request whose row somebody else has changed or
// deleted: the store has that on record, and the row may be another tenant's.
func (q *Requests) follow(ctx context.Context, w *watcher, take func(*Request) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		for _, id := range w.take() {
			r, err := q.Get(ctx, id)
			if err != nil {
				if _, altered := errors.AsType[*store.AlteredError](err); altered || api.AsError(err).Code == api.NotFound {
					continue
				}
				return err
			}
			if err := take(r); err != nil {
				return err
			}
		}
	}
}

// watchPage is the number of requests that are read at a time when a stream begins.
const watchPage = 500

func (q *Requests) sendPending(ctx context.Context, s api.Stream) error {
	var left store.Left
	after := ""
	for {
		page, _, err := q.summaries(ctx, store.ApprovalFilter{State: api.ApprovalPending, After: after}, watchPage, &left)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.Send(ctx, api.ApprovalNews{Caught: true, Altered: left.Names})
		}
		for i := range page {
			if err := s.Send(ctx, api.ApprovalNews{Approval: &page[i]}); err != nil {
				return err
			}
		}
		after = page[len(page)-1].ApprovalID
	}
}
