// Package quota bounds one app's messages that wait for their receivers.
//
// Most messages are taken soon, and the counts are not reduced for that: if an app seems to have
// too many waiting, the package looks up the actual number.
package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrExceeded means that too many of an app's messages wait already. It ends when receivers have
// taken some of them.
var ErrExceeded = errors.New("too much of what the app sent waits for its receivers")

// Limit bounds one app's waiting messages. Zero members take the defaults.
type Limit struct {
	Messages int
	Bytes    int64
}

// The defaults: more than any conversation leaves while a receiver is away, and small enough for a
// disk that holds hundreds of apps.
const (
	defaultMessages = 1 << 16
	defaultBytes    = 64 << 20
)

// Waiting is the backlog of one app's messages.
type Waiting struct {
	App      string
	Messages int
	Bytes    int64
}

// Message is one message to be queued, of an app, or "" for none.
type Message struct {
	App   string
	Bytes int
}

// Counts are the backlogs by sending app. Its methods are safe for concurrent use.
type Counts struct {
	limit Limit
	clock func() time.Time
	// count asks the database.
	count func(context.Context) ([]Waiting, error)

	mu sync.Mutex
	// sent is an app's backlog at the last look-up plus the messages that it has sent since; flying
	// is the part that is being written.
	sent, flying map[string]Waiting
	counted      time.Time
}

// RecountEvery is the shortest time between two look-ups.
const RecountEvery = time.Second

// Begin counts the backlog from earlier processes. It asks count for it, now and later.
func (q *Counts) Begin(ctx context.Context, limit Limit, clock func() time.Time, count func(context.Context) ([]Waiting, error)) error {
	q.limit = Limit{Messages: cmp.Or(limit.Messages, defaultMessages), Bytes: cmp.Or(limit.Bytes, defaultBytes)}
	q.clock, q.count, q.flying = clock, count, make(map[string]Waiting)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.recountLocked(ctx)
}

func (q *Counts) recountLocked(ctx context.Context) error {
	q.counted = q.clock()
	found, err := q.count(ctx)
	if err != nil {
		return err
	}
	q.sent = make(map[string]Waiting, len(found))
	for _, w := range found {
		q.sent[w.App] = w
	}
	return nil
}

// Take counts messages, or refuses all of them. Messages that end something are counted and never
// refused: a person released them.
func (q *Counts) Take(ctx context.Context, ends bool, messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range messages {
		if m.App == "" {
			continue
		}
		more := Waiting{Messages: 1, Bytes: int64(m.Bytes)}
		if !ends && q.exceedsLocked(m.App, more) && q.clock().Sub(q.counted) >= RecountEvery {
			if err := q.recountLocked(ctx); err != nil {
				q.giveBackLocked(messages[:i])
				return err
			}
		}
		if !ends && q.exceedsLocked(m.App, more) {
			q.giveBackLocked(messages[:i])
			now := q.sent[m.App]
			return fmt.Errorf("%w: %d messages with %d KiB of app %s, limits %d and %d KiB",
				ErrExceeded, now.Messages, now.Bytes>>10, m.App, q.limit.Messages, q.limit.Bytes>>10)
		}
		add(q.flying, m.App, more)
	}
	return nil
}

// exceedsLocked reports whether an app would exceed its limit.
func (q *Counts) exceedsLocked(app string, more Waiting) bool {
	sent, flying := q.sent[app], q.flying[app]
	return sent.Messages+flying.Messages+more.Messages > q.limit.Messages || sent.Bytes+flying.Bytes+more.Bytes > q.limit.Bytes
}

// GiveBack uncounts messages that were not written.
func (q *Counts) GiveBack(messages []Message) {
	if len(messages) > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.giveBackLocked(messages)
	}
}

func (q *Counts) giveBackLocked(messages []Message) {
	for _, m := range messages {
		if m.App != "" {
			add(q.flying, m.App, Waiting{Messages: -1, Bytes: -int64(m.Bytes)})
		}
	}
}

// Written counts messages as queued.
func (q *Counts) Written(messages []Message) {
	if len(messages) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveBackLocked(messages)
	for _, m := range messages {
		if m.App != "" {
			add(q.sent, m.App, Waiting{Messages: 1, Bytes: int64(m.Bytes)})
		}
	}
}

// add changes the counts of an app. An app without any takes no memory.
func add(counts map[string]Waiting, app string, more Waiting) {
	w := counts[app]
	w.Messages, w.Bytes = w.Messages+more.Messages, w.Bytes+more.Bytes
	if w.Messages <= 0 {
		delete(counts, app)
		return
	}
	counts[app] = w
}
