package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrQuota means that too much waits already of what an app sent. Nothing was
// written of the change; it goes on when receivers have taken some of it.
var ErrQuota = errors.New("too much of what the app sent waits for its receivers")

// Quota bounds what may wait of one app's messages. Zero members take the defaults.
type Quota struct {
	Messages int
	Bytes    int64
}

// The defaults: more than any conversation leaves behind while a receiver is away,
// and little enough for a disk that holds hundreds of apps.
const (
	quotaMessages = 1 << 16
	quotaBytes    = 64 << 20
)

// Waiting is how much waits of one app's messages.
type Waiting struct {
	App      string
	Messages int
	Bytes    int64
}

// quotas counts what waits, by the app that sent it. Most of what is sent is taken
// soon, and nobody counts that down: what waits in truth is looked up when an app
// seems to have too much waiting.
type quotas struct {
	limit Quota
	clock func() time.Time
	// count asks the database.
	count func(context.Context) ([]Waiting, error)

	mu sync.Mutex
	// sent is what an app had waiting when that was looked up, and what it has sent
	// since; flying is what is being written.
	sent, flying map[string]Waiting
	counted      time.Time
}

// recountEvery is how often what waits is looked up at most.
const recountEvery = time.Second

// begin counts what an earlier process left waiting.
func (q *quotas) begin(ctx context.Context, limit Quota, clock func() time.Time, count func(context.Context) ([]Waiting, error)) error {
	q.limit = Quota{Messages: cmp.Or(limit.Messages, quotaMessages), Bytes: cmp.Or(limit.Bytes, quotaBytes)}
	q.clock, q.count, q.flying = clock, count, make(map[string]Waiting)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.recountLocked(ctx)
}

func (q *quotas) recountLocked(ctx context.Context) error {
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

// attribute enters into a change's messages which app they are from: the one that
// its records are about. It comes before anything is redacted in those.
func (p *pending) attribute() {
	if len(p.messages) == 0 {
		return
	}
	app := ""
	for i := 0; i < len(p.Records) && app == ""; i++ {
		app = p.Records[i].AppID
	}
	for _, m := range p.messages {
		m.App = cmp.Or(m.App, app)
	}
}

// take counts a change's messages, or refuses it whole. What ends something is
// counted and never refused: a person let it go.
func (q *quotas) take(ctx context.Context, p *pending) error {
	if len(p.messages) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range p.messages {
		if m.App == "" {
			continue
		}
		more := Waiting{Messages: 1, Bytes: int64(len(m.Body))}
		if !p.drains() && q.exceedsLocked(m.App, more) && q.clock().Sub(q.counted) >= recountEvery {
			if err := q.recountLocked(ctx); err != nil {
				q.giveBackLocked(p.messages[:i])
				return err
			}
		}
		if !p.drains() && q.exceedsLocked(m.App, more) {
			q.giveBackLocked(p.messages[:i])
			now := q.sent[m.App]
			return fmt.Errorf("%w: %d messages with %d KiB of app %s, limits %d and %d KiB",
				ErrQuota, now.Messages, now.Bytes>>10, m.App, q.limit.Messages, q.limit.Bytes>>10)
		}
		add(q.flying, m.App, more)
	}
	return nil
}

// exceedsLocked reports whether an app would have too much waiting.
func (q *quotas) exceedsLocked(app string, more Waiting) bool {
	sent, flying := q.sent[app], q.flying[app]
	return sent.Messages+flying.Messages+more.Messages > q.limit.Messages || sent.Bytes+flying.Bytes+more.Bytes > q.limit.Bytes
}

// giveBack uncounts messages that were not written.
func (q *quotas) giveBack(messages []*Message) {
	if len(messages) > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.giveBackLocked(messages)
	}
}

func (q *quotas) giveBackLocked(messages []*Message) {
	for _, m := range messages {
		if m.App != "" {
			add(q.flying, m.App, Waiting{Messages: -1, Bytes: -int64(len(m.Body))})
		}
	}
}

// written counts messages as some that are in the database.
func (q *quotas) written(messages []*Message) {
	if len(messages) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveBackLocked(messages)
	for _, m := range messages {
		if m.App != "" {
			add(q.sent, m.App, Waiting{Messages: 1, Bytes: int64(len(m.Body))})
		}
	}
}

// add changes what is counted for an app. One without any takes no memory.
func add(counts map[string]Waiting, app string, more Waiting) {
	w := counts[app]
	w.Messages, w.Bytes = w.Messages+more.Messages, w.Bytes+more.Bytes
	if w.Messages <= 0 {
		delete(counts, app)
		return
	}
	counts[app] = w
}
