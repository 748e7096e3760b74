package index

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Stats counts the records of a period, which is widened to whole minutes, in buckets of a length;
// see [audit.Stats]. Zero for since is the first record, zero for until is now, and with zero for
// the bucket, Stats chooses a length.
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
	have, err := x.count(ctx, tally, first.Seq)
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
	if err := x.countLines(ctx, tally, max(after, have), x.log.Head().Seq); err != nil {
		return audit.Stats{}, err
	}
	return tally.Stats(), nil
}

// count adds the counts from the index of a log that begins with a record, and returns the last
// counted record. It reads the records of ranges that are only partly within the period.
func (x *Index) count(ctx context.Context, t *audit.Tally, first uint64) (have uint64, err error) {
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() {
		return 0, nil
	}
	since, until := t.Since().Unix()/60, t.Until().Unix()/60
	var parts []span
	err = x.file.read(ctx, func(conn *sqlite.Conn) error {
		last, err := queryInt(conn, `SELECT coalesce(max(last), 0) FROM ranges`)
		if err != nil {
			return err
		}
		// While lost ranges are made again, the ranges after them do not count.
		missing, err := queryInt(conn, fmt.Sprintf(`SELECT coalesce(max(last) - sum(records) - min(%d, min(last - records)), 0) FROM ranges`, first-1))
		if err != nil || missing != 0 {
			return err
		}
		have = uint64(last)
		shard, sums := uint64(0), []int(nil)
		err = sqlitex.Execute(conn, `SELECT range, records, last, counts FROM ranges WHERE last_minute >= ? AND first_minute < ? ORDER BY range`, &sqlitex.ExecOptions{
			Args: []any{since, until},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				r := span{number: uint64(stmt.ColumnInt64(0)), records: uint64(stmt.ColumnInt64(1)), last: uint64(stmt.ColumnInt64(2))}
				if r.counts, err = decodeCounts(columnBytes(stmt, 3), r.records); err != nil {
					return err
				}
				if first, last := r.bounds(); first < since || last >= until {
					parts = append(parts, r)
					return nil
				}
				if of := r.number / shardRanges; of != shard {
					if err := addSubjects(conn, t, shard, sums); err != nil {
						return err
					}
					shard, sums = of, nil
				}
				sums = r.addTo(t, sums)
				return nil
			},
		})
		if err != nil {
			return err
		}
		return addSubjects(conn, t, shard, sums)
	})
	for i := 0; i < len(parts) && err == nil; i++ {
		err = ofLog(x.countLines(ctx, t, parts[i].last-parts[i].records, parts[i].last))
	}
	return have, err
}

// addTo adds the minutes to a tally, and the subjects to sums.
func (c *counts) addTo(t *audit.Tally, sums []int) []int {
	for _, m := range c.minutes {
		for i, n := range m.n {
			if n > 0 {
				t.AddAt(time.Unix(m.minute*60, 0).UTC(), results()[i], n)
			}
		}
	}
	for len(sums) < len(c.subjects) {
		sums = append(sums, 0)
	}
	for i, n := range c.subjects {
		sums[i] += n
	}
	return sums
}

// addSubjects adds the sums of a shard's subjects to a tally.
func addSubjects(conn *sqlite.Conn, t *audit.Tally, shard uint64, sums []int) error {
	if len(sums) == 0 {
		return nil
	}
	list, err := subjectsOf(conn, shard)
	if err != nil {
		return err
	}
	if len(list) < len(sums) {
		return errDamaged
	}
	for i, n := range sums {
		if n > 0 {
			t.AddFor(list[i], n)
		}
	}
	return nil
}

// countLines adds the records after one up to another, if they are within the tally's period.
func (x *Index) countLines(ctx context.Context, t *audit.Tally, after, last uint64) error {
	for after < last {
		lines, upTo, err := x.log.LinesAfter(ctx, after)
		if err != nil || len(lines) == 0 {
			return err
		}
		for i, line := range lines {
			e, err := audit.Parse(line)
			if err != nil {
				continue // it is no record
			}
			if upTo-uint64(len(lines)-1-i) > last || !e.Time.Before(t.Until()) {
				return nil
			}
			t.Add(&e)
		}
		after = upTo
	}
	return nil
}
