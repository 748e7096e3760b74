package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"zombiezen.com/go/sqlite"
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

// quotas counts what waits, by the app that sent it. A change counts from when it
// is taken up to when its messages are taken out, or it fails.
type quotas struct {
	limit Quota
	mu    sync.Mutex
	used  map[string]Waiting
}

// loadQuotas counts what an earlier process left waiting.
func (s *Store) loadQuotas(ctx context.Context, limit Quota) error {
	s.quotas.limit = Quota{Messages: cmp.Or(limit.Messages, quotaMessages), Bytes: cmp.Or(limit.Bytes, quotaBytes)}
	s.quotas.used = make(map[string]Waiting)
	found, err := rows(ctx, &s.reader, "the outbox", `SELECT app, count(*), sum(octet_length(message)) FROM outbox WHERE app <> '' GROUP BY app`, nil,
		func(stmt *sqlite.Stmt) (Waiting, error) {
			return Waiting{App: stmt.ColumnText(0), Messages: stmt.ColumnInt(1), Bytes: stmt.ColumnInt64(2)}, nil
		})
	for _, w := range found {
		s.quotas.used[w.App] = w
	}
	return err
}

// Waiting returns how much waits of an app's messages.
func (s *Store) Waiting(app string) Waiting {
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	w := s.quotas.used[app]
	w.App = app
	return w
}

// attribute enters into a change's messages which app they are from: the one that
// its records are about. It comes before anything is redacted in those.
func (c *Change) attribute() {
	if len(c.Outbox) == 0 {
		return
	}
	app := ""
	for i := 0; i < len(c.Records) && app == ""; i++ {
		app = c.Records[i].AppID
	}
	for _, m := range c.Outbox {
		m.App = cmp.Or(m.App, app)
	}
}

// take counts a change's messages, or refuses it whole. What ends something is
// counted and never refused: a person let it go.
func (q *quotas) take(c *Change) error {
	if len(c.Outbox) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range c.Outbox {
		if m.App == "" {
			continue
		}
		now := q.used[m.App]
		if !c.drains() && (now.Messages >= q.limit.Messages || now.Bytes+int64(len(m.Body)) > q.limit.Bytes) {
			for _, before := range c.Outbox[:i] {
				q.add(before.App, -1, -int64(len(before.Body)))
			}
			return fmt.Errorf("%w: %d messages with %d KiB of app %s, limits %d and %d KiB",
				ErrQuota, now.Messages, now.Bytes>>10, m.App, q.limit.Messages, q.limit.Bytes>>10)
		}
		q.add(m.App, 1, int64(len(m.Body)))
	}
	return nil
}

// giveBack uncounts a change that was not written.
func (q *quotas) giveBack(c *Change) {
	if len(c.Outbox) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range c.Outbox {
		if m.App != "" {
			q.add(m.App, -1, -int64(len(m.Body)))
		}
	}
}

// gone uncounts what was taken out of the outbox.
func (q *quotas) gone(taken map[string]Waiting) {
	if len(taken) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for app, w := range taken {
		q.add(app, -w.Messages, -w.Bytes)
	}
}

// add is called with the lock. An app of which nothing waits takes no memory.
func (q *quotas) add(app string, messages int, bytes int64) {
	w := q.used[app]
	w.Messages, w.Bytes = w.Messages+messages, w.Bytes+bytes
	if w.Messages <= 0 {
		delete(q.used, app)
		return
	}
	q.used[app] = w
}
