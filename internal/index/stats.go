package index

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func minuteTime(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// Stats counts the records of a time, which is widened to whole minutes, in
// buckets of a length; see [audit.Stats]. Zero for since is the first record,
// zero for until is now, and zero for the bucket has a length chosen.
func (x *Index) Stats(ctx context.Context, since, until time.Time, bucket time.Duration) (audit.Stats, error) {
	if until.IsZero() {
		until = x.now()
	}
	lines, _, err := x.log.LinesAfter(ctx, 0)
	if err != nil {
		return audit.Stats{}, err
	}
	if len(lines) == 0 {
		if since.IsZero() {
			since = until
		}
		return audit.NewTally(since, until, bucket).Stats(), nil
	}
	first, err := audit.HeadOf(lines[0])
	if err != nil {
		return audit.Stats{}, err
	}
	if since.Before(first.Time) {
		since = first.Time
	}
	tally := audit.NewTally(since, until, bucket)
	have, err := x.count(ctx, tally)
	if err != nil {
		if !x.blame(ctx, err) {
			return audit.Stats{}, err
		}
		tally, have = audit.NewTally(since, until, bucket), 0
	}
	after, err := x.log.SeqAt(ctx, tally.Since())
	if err != nil {
		return audit.Stats{}, err
	}
	if err := x.countLines(ctx, tally, max(after, have)); err != nil {
		return audit.Stats{}, err
	}
	return tally.Stats(), nil
}

// count adds what is indexed, and returns the last record of it.
func (x *Index) count(ctx context.Context, t *audit.Tally) (uint64, error) {
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() {
		return 0, nil
	}
	x.mu.RLock()
	have, block := x.have, x.cur.block
	// The lists are copied by being added up.
	numbers := countsOf(append([]audit.Subject(nil), x.cur.list...), x.cur.events)
	x.mu.RUnlock()
	numbers.addTo(t)
	var buffer []byte
	return have, x.file.read(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, `SELECT block, counts FROM blocks WHERE block < ? AND last_minute >= ? AND first_minute < ?`, &sqlitex.ExecOptions{
			Args: []any{int64(block), t.Since().Unix() / 60, t.Until().Unix() / 60},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				numbers, err := decodeCounts(uint64(stmt.ColumnInt64(0)), blob(stmt, &buffer))
				if err == nil {
					numbers.addTo(t)
				}
				return err
			},
		})
	})
}

// countLines adds the records after one, up to the end of the tally's time.
func (x *Index) countLines(ctx context.Context, t *audit.Tally, after uint64) error {
	for {
		lines, upTo, err := x.log.LinesAfter(ctx, after)
		if err != nil || len(lines) == 0 {
			return err
		}
		for _, line := range lines {
			e, err := audit.Parse(line)
			if err != nil {
				continue // it has nothing to be counted by
			}
			if !e.Time.Before(t.Until()) {
				return nil
			}
			t.Add(&e)
		}
		after = upTo
	}
}
