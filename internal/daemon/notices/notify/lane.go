package notify

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
)

// MoreID is the ID of the notice that stands for the merged ones.
const MoreID = "more"

const (
	// maxMerged bounds the remembered ids of merged notices; more are only counted.
	maxMerged = 1024
	// maxWithdrawn bounds the ids that wait to be withdrawn: as many as a desktop can
	// withdraw at all.
	maxWithdrawn = maxShown
)

// lane is the queue of one notifier and its goroutine.
type lane struct {
	to    Notifier
	limit int // of waiting, at least 2
	log   *zap.Logger
	wake  chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	waiting []entry // oldest first; the newest may stand for several
	// withdrawn are ids to withdraw first. Queued notices with these ids were dropped.
	withdrawn []string
	merging   bool // logged, until the queue is empty
	closed    bool
}

// entry is a notice, or several merged into one.
type entry struct {
	notice Notice // of merged ones the urgency alone
	merged int    // 0 for a notice as it is
	// ids are the ids of merged notices, at most maxMerged.
	ids map[string]struct{}
}

func newLane(to Notifier, limit int, log *zap.Logger) *lane {
	return &lane{to: to, limit: limit, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// add queues a cleaned notice. It replaces a queued one with the same ID. In a full queue
// it is merged with the newest one.
func (l *lane) add(n Notice) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	defer l.wakeUp()
	if n.ID != "" {
		for i := range l.waiting {
			if e := &l.waiting[i]; e.merged == 0 && e.notice.ID == n.ID {
				e.notice = n
				return nil
			}
		}
	}
	if len(l.waiting) < l.limit {
		l.waiting = append(l.waiting, entry{notice: n})
		return nil
	}
	if !l.merging {
		l.merging = true
		l.log.Warn("too many notices at once: the newest are merged", zap.Int("queue", l.limit))
	}
	last := &l.waiting[len(l.waiting)-1]
	if last.merged == 0 {
		first := last.notice
		*last = entry{ids: make(map[string]struct{})}
		last.merge(first)
	}
	last.merge(n)
	return nil
}

func (e *entry) merge(n Notice) {
	if urgencyRank(n.Urgency) > urgencyRank(e.notice.Urgency) {
		e.notice.Urgency = n.Urgency
	}
	if _, known := e.ids[n.ID]; known && n.ID != "" {
		return
	}
	e.merged++
	if n.ID != "" && len(e.ids) < maxMerged {
		e.ids[n.ID] = struct{}{}
	}
}

func urgencyRank(urgency string) int { return slices.Index([]string{Low, Normal, Critical}, urgency) }

// told is the notice to send.
func (e *entry) told() Notice {
	if e.merged == 0 {
		return e.notice
	}
	return Notice{
		ID:      MoreID,
		Title:   fmt.Sprintf("and %d more", e.merged),
		Body:    "Too many notices came at once to show each of them.",
		Urgency: e.notice.Urgency,
		Fields:  map[string]string{"more": fmt.Sprint(e.merged)},
	}
}

// withdraw takes a notice out of the queue and, if the notifier can, off the screen. The id
// is not empty.
func (l *lane) withdraw(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(e entry) bool { return e.merged == 0 && e.notice.ID == id })
	for i := range l.waiting {
		e := &l.waiting[i]
		if _, ok := e.ids[id]; ok {
			delete(e.ids, id)
			if e.merged--; e.merged == 0 {
				l.waiting = slices.Delete(l.waiting, i, i+1)
			}
			break
		}
	}
	if _, ok := l.to.(Withdrawer); !ok || slices.Contains(l.withdrawn, id) {
		return nil
	}
	if len(l.withdrawn) == maxWithdrawn {
		l.log.Warn("too many notices to withdraw at once: one stays", zap.String("notice", l.withdrawn[0]))
		l.withdrawn = slices.Delete(l.withdrawn, 0, 1)
	}
	l.withdrawn = append(l.withdrawn, id)
	l.wakeUp()
	return nil
}

// shut takes nothing more. Queued notices are still sent.
func (l *lane) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeUp()
}

func (l *lane) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends queued notices until the lane is shut and empty or the context ends.
func (l *lane) run(ctx context.Context) {
	defer close(l.done)
	for {
		act, over := l.next(ctx)
		switch {
		case over:
			return
		case act == nil:
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		if err := act(); err != nil {
			l.log.Debug("a notifier failed", zap.Error(err))
		}
	}
}

// next takes the next action from the queue, or nil.
func (l *lane) next(ctx context.Context) (act func() error, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		if left := len(l.waiting); left > 0 {
			l.log.Warn("notices were not told before the end", zap.Int("count", left))
		}
		return nil, true
	case len(l.withdrawn) > 0:
		id := l.withdrawn[0]
		l.withdrawn = slices.Delete(l.withdrawn, 0, 1)
		w, _ := l.to.(Withdrawer)
		return func() error { return w.Withdraw(ctx, id) }, false
	case len(l.waiting) > 0:
		n := l.waiting[0].told()
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.merging = l.merging && len(l.waiting) > 0
		return func() error { return l.to.Notify(ctx, n) }, false
	}
	return nil, l.closed
}
