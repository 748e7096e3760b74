package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Records are the records in a database. It is safe for concurrent use.
type Records struct{ db *db.Reader }

// LastSeq returns the number of the last record, zero if there is none.
func (r Records) LastSeq(ctx context.Context) (uint64, error) {
	return r.seqOf(ctx, `SELECT coalesce(max(seq), 0) FROM records`)
}

// FirstSeq returns the number of the first record that was not removed, zero if there is none.
func (r Records) FirstSeq(ctx context.Context) (uint64, error) {
	return r.seqOf(ctx, `SELECT coalesce(min(seq), 0) FROM records`)
}

// seqOf returns the single number of a query.
func (r Records) seqOf(ctx context.Context, query string) (uint64, error) {
	seq, err := db.Row(ctx, r.db, "the audit log", query, nil, db.ScanInt)
	return uint64(seq), err
}

const selectLine = `SELECT line FROM records WHERE seq = ?`

// Line returns one record's line, or [db.ErrNotFound].
func (r Records) Line(ctx context.Context, seq uint64) ([]byte, error) {
	line, err := db.Row(ctx, r.db, "the audit log", selectLine, []any{int64(min(seq, math.MaxInt64))}, db.ScanBytes)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return nil, fmt.Errorf("audit record %d: %w", seq, err)
	}
	if err == nil {
		_, _, err = audit.Sealed(seq, line)
	}
	return line, err
}

// A page bounds one query, in records and, except for a longer last record, in bytes. With pages,
// no reader holds a snapshot that would keep the write-ahead log from being reused. The connection
// is free again before the caller looks at a page, so a slow caller blocks nobody.
const (
	pageLines = 512
	pageBytes = 1 << 20
)

type page struct {
	seqs  []uint64
	lines [][]byte
	// room is the memory for the next line. It doubles when it is full, so that a page of a few
	// lines is small and a reused page is allocated once.
	room []byte
	// last is the number of the last checked line, zero before the first. link is the hash that the
	// next neighbour must name, or going back, must have.
	last uint64
	link audit.Hash
}

var errPageFull = errors.New("the page is full")

const (
	oldestFirst = `SELECT seq, line FROM records WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?`
	newestFirst = `SELECT seq, line FROM records WHERE seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?`
)

// read fills the page with records between two, both exclusive.
func (p *page) read(ctx context.Context, r Records, query string, after, before uint64) error {
	p.seqs, p.lines, p.room, p.last, p.link = p.seqs[:0], p.lines[:0], p.room[:0], 0, audit.Hash{}
	size := 0
	err := r.db.Scan(ctx, func(conn *sqlite.Conn) error {
		err := sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: []any{int64(min(after, math.MaxInt64)), int64(min(before, math.MaxInt64)), pageLines},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				line := p.take(stmt.ColumnLen(1))
				stmt.ColumnBytes(1, line)
				p.seqs, p.lines = append(p.seqs, uint64(stmt.ColumnInt64(0))), append(p.lines, line)
				if size += len(line); size >= pageBytes {
					return errPageFull
				}
				return nil
			},
		})
		if errors.Is(err, errPageFull) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read the audit log: %w", err)
	}
	return nil
}

// take returns so many bytes of the page's memory.
func (p *page) take(n int) []byte {
	start := len(p.room)
	if cap(p.room)-start < n {
		p.room, start = make([]byte, 0, max(n, 2*cap(p.room), 16<<10)), 0
	}
	p.room = p.room[:start+n]
	return p.room[start : start+n : start+n]
}

// check returns a line, if it is the sealed one: no caller gets a changed line. Lines are checked
// in their order, each with its neighbour.
func (p *page) check(i int) ([]byte, error) {
	line, seq := p.lines[i], p.seqs[i]
	head, prev, err := audit.Sealed(seq, line)
	if err != nil {
		return nil, err
	}
	apart := &audit.Fault{Seq: seq, Problem: "it and the record beside it do not name each other: one of the two was changed"}
	switch p.last {
	case seq - 1: // oldest first
		if prev != p.link {
			return nil, apart
		}
		p.link = head.Hash
	case seq + 1: // newest first
		if head.Hash != p.link {
			return nil, apart
		}
		p.link = prev
	default:
		p.link = head.Hash
		if i+1 < len(p.seqs) && p.seqs[i+1] < seq {
			p.link = prev
		}
	}
	p.last = seq
	return line, nil
}

// LinesAfter returns a page of records after seq, oldest first, and the number of the last one, or
// seq if there is none.
func (r Records) LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error) {
	var p page
	if err := p.read(ctx, r, oldestFirst, seq, math.MaxInt64); err != nil {
		return nil, seq, err
	}
	for i := range p.seqs {
		line, err := p.check(i)
		if err != nil && i == 0 {
			return nil, seq, err
		}
		if err != nil {
			break // the ones before it are good
		}
		lines, seq = append(lines, line), p.seqs[i]
	}
	return lines, seq, nil
}

// EachLine calls visit for every record after seq, oldest first, up to the last one at the time of
// its call. The line is valid during the visit only. An error of visit ends the walk and is
// returned unchanged.
func (r Records) EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	return r.each(ctx, after, (*page).check, visit)
}

// EachStored is [Records.EachLine] for a verifier: the lines are as they are in the file,
// unchecked.
func (r Records) EachStored(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	return r.each(ctx, after, func(p *page, i int) ([]byte, error) { return p.lines[i], nil }, visit)
}

func (r Records) each(ctx context.Context, after uint64, get func(p *page, i int) ([]byte, error), visit func(seq uint64, line []byte) error) error {
	if after == 0 {
		if err := r.noStrayRecords(ctx); err != nil {
			return err
		}
	}
	last, err := r.LastSeq(ctx)
	if err != nil {
		return err
	}
	var p page
	for after < last {
		if err := p.read(ctx, r, oldestFirst, after, last+1); err != nil {
			return err
		}
		if len(p.seqs) == 0 {
			return nil
		}
		for i, seq := range p.seqs {
			line, err := get(&p, i)
			if err != nil {
				return err
			}
			if err := visit(seq, line); err != nil {
				return err
			}
		}
		after = p.seqs[len(p.seqs)-1]
	}
	return nil
}

// scanRecords bounds the records that one [Records.Query] examines.
const scanRecords = 1 << 16

// Query returns up to limit records between two, both exclusive, that a filter selects, newest
// first, and the number to give as before to continue, zero if nothing more can match. Zero for
// before is the end of the log. It examines each record, but at most 65536 of them: a page may be
// short, or empty, and have more behind it.
func (r Records) Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	if limit < 1 {
		return nil, 0, nil
	}
	last, err := r.LastSeq(ctx)
	if err != nil {
		return nil, 0, err
	}
	if !f.Until.IsZero() {
		if last, err = r.SeqAt(ctx, f.Until); err != nil {
			return nil, 0, err
		}
	}
	if before == 0 || before > last {
		before = last + 1
	}
	if !f.Since.IsZero() {
		first, err := r.SeqAt(ctx, f.Since)
		if err != nil {
			return nil, 0, err
		}
		after = max(after, first)
	}
	var p page
	for seen := 0; before > after+1; seen += len(p.seqs) {
		if seen >= scanRecords {
			return lines, before, nil
		}
		if err := p.read(ctx, r, newestFirst, after, before); err != nil {
			return nil, 0, err
		}
		if len(p.seqs) == 0 {
			break
		}
		for i := range p.seqs {
			before = p.seqs[i]
			line, err := p.check(i)
			if err != nil {
				return nil, 0, err
			}
			if !f.Match(line) {
				continue
			}
			if lines = append(lines, bytes.Clone(line)); len(lines) == limit {
				if before <= after+1 {
					before = 0
				}
				return lines, before, nil
			}
		}
	}
	return lines, 0, nil
}

// Lines returns the lines of some records in the given order, nil for one that is not there.
func (r Records) Lines(ctx context.Context, seqs []uint64) (lines [][]byte, err error) {
	err = r.db.Scan(ctx, func(conn *sqlite.Conn) error {
		for i, seq := range seqs {
			if err := db.Collect(conn, &lines, selectLine, []any{int64(min(seq, math.MaxInt64))}, db.ScanBytes); err != nil {
				return err
			}
			if len(lines) == i {
				lines = append(lines, nil)
			} else if _, _, err := audit.Sealed(seq, lines[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	return lines, nil
}

// SeqAt returns the number of the last record before a time. Records are ordered by time, so a few
// look-ups find it however long the log is.
func (r Records) SeqAt(ctx context.Context, at time.Time) (uint64, error) {
	first, err := r.FirstSeq(ctx)
	if err != nil {
		return 0, err
	}
	high, err := r.LastSeq(ctx)
	if err != nil {
		return 0, err
	}
	low := max(first, 1) - 1
	for low < high {
		middle := low + (high-low+1)/2
		line, err := r.Line(ctx, middle)
		if err != nil {
			return 0, err
		}
		head, err := audit.HeadOf(line)
		if err != nil {
			return 0, fmt.Errorf("cannot read audit record %d: %w", middle, err)
		}
		if head.Time.Before(at) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}

// noStrayRecords reports a record under an impossible number: nothing reads it, but a listing of
// the table shows it.
func (r Records) noStrayRecords(ctx context.Context) error {
	first, err := db.Row(ctx, r.db, "the audit log", `SELECT coalesce(min(seq), 1) FROM records`, nil, db.ScanInt)
	if err == nil && first <= 0 {
		err = &audit.Fault{Problem: fmt.Sprintf("a row has the number %d, which is no record's", first)}
	}
	return err
}

// tailCheck is the number of records at the chain's end that every start checks.
const tailCheck = 256

// verifyTail checks the last records.
func (r Records) verifyTail(ctx context.Context, tombstone audit.Tombstone, last uint64) (audit.Head, error) {
	head := tombstone.Head
	if last > head.Seq+tailCheck {
		from := last - tailCheck
		line, err := r.Line(ctx, from)
		if err != nil {
			return head, fmt.Errorf("record %d: %w", from, err)
		}
		if head, err = audit.HeadOf(line); err != nil {
			return head, fmt.Errorf("record %d: %w", from, err)
		}
	}
	err := r.EachStored(ctx, head.Seq, func(_ uint64, line []byte) (err error) {
		head, err = head.Check(line)
		return err
	})
	return head, err
}

// Verify reads the whole log and compares it with a proof; the tombstone is the log's own. If it
// finds a [*audit.Fault], the report says how far the log is good.
func (r Records) Verify(ctx context.Context, p audit.Proof) (audit.Report, error) {
	tombstone, err := r.Tombstone(ctx)
	switch {
	case err == nil:
		p.Tombstone = &tombstone
	case !errors.Is(err, db.ErrNotFound):
		return audit.Report{}, err
	}
	v, err := audit.NewVerifier(p)
	if err != nil {
		return audit.Report{Retired: tombstone.Head.Seq}, err
	}
	if err := r.EachStored(ctx, tombstone.Head.Seq, func(_ uint64, line []byte) error { return v.Add(line) }); err != nil {
		return audit.Report{Head: v.Head(), Retired: tombstone.Head.Seq}, err
	}
	return v.Finish()
}

// Misplaced counts the rows of records before the first possible number.
func (r Records) Misplaced(ctx context.Context) (uint64, error) {
	return r.seqOf(ctx, `SELECT count(*) FROM records WHERE seq < 1`)
}
