package logreader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
)

// Left is the log of a daemon that does not run: its database, or the mirror of it.
type Left interface {
	// Query returns up to limit records between two, newest first, and the number at which to
	// continue. It reads every record, and a page may be short.
	Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error)
	// EachLine visits every record after a number, oldest first.
	EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error
	Close() error
}

// OpenLeft opens the log of a daemon that does not run, and returns its file. An empty name is
// skipped. If there is no log at all, the error is [fs.ErrNotExist].
func OpenLeft(ctx context.Context, database, mirrored string) (left Left, from string, err error) {
	if database != "" {
		reader, err := store.OpenReader(ctx, database)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return reader, database, err
		}
	}
	if mirrored == "" {
		return nil, "", fs.ErrNotExist
	}
	f, err := durable.Open(mirrored)
	if err != nil {
		return nil, "", fmt.Errorf("cannot read the audit mirror: %w", err)
	}
	return &copied{path: mirrored, segments: true}, mirrored, f.Close()
}

// OpenPath opens a copy of a log from any source: a database, a directory with a mirror's files, or
// one file of a mirror.
func OpenPath(ctx context.Context, path string, socket Socket) (Left, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	if info.IsDir() {
		return &copied{path: path, segments: true}, nil
	}
	f, err := durable.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	head := make([]byte, len(sqliteHead))
	_, err = io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // too short for a database
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	if string(head) == sqliteHead {
		return OpenWhole(ctx, path, socket)
	}
	return &copied{path: path}, nil
}

// sqliteHead is the beginning of each database.
//
// Source: SQLite, Database File Format, 1.3.
const sqliteHead = "SQLite format 3\x00"

// copied is a file of a mirror, or a mirror with its segments, without a database.
type copied struct {
	path     string
	segments bool
}

// Close does nothing: files are open only while they are read.
func (*copied) Close() error { return nil }

// EachLine reads the files from their beginning. It leaves out a last line that a crash left
// incomplete: the database has it, and the next start completes the mirror.
func (f *copied) EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	var before audit.Head
	var ended error
	walk := mirror.WalkFile
	if f.segments {
		walk = func(path string, visit func(line []byte) error) error { return mirror.Walk(path, 0, visit) }
	}
	err := walk(f.path, func(line []byte) error {
		if ended = ctx.Err(); ended != nil {
			return ended
		}
		if before.Seq == 0 {
			// The first line gives the start of the file.
			if e, err := audit.Parse(line); err == nil && e.Seq > 0 {
				before = audit.Head{Seq: e.Seq - 1, Hash: e.Prev}
			}
		}
		head, err := before.Check(line)
		switch before = head; {
		case err != nil:
			ended = fmt.Errorf("cannot read the audit log %s: %w; ocipd audit verify says more", f.path, err)
		case head.Seq > after:
			ended = visit(head.Seq, line)
		}
		return ended
	})
	switch {
	case ended != nil:
		return ended
	case errors.Is(err, mirror.ErrTorn):
		return nil
	}
	return err
}

// Query reads all of it and keeps the last matches.
func (f *copied) Query(ctx context.Context, filter audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	kept := lastLines{limit: limit}
	err = f.EachLine(ctx, after, func(seq uint64, line []byte) error {
		if (before == 0 || seq < before) && filter.Match(line) {
			kept.add(line)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	lines = kept.ordered()
	slices.Reverse(lines)
	if kept.dropped && len(lines) > 0 {
		head, err := audit.HeadOf(lines[len(lines)-1])
		if err != nil {
			return nil, 0, err
		}
		next = head.Seq
	}
	return lines, next, nil
}

// lastLines keeps the last lines that it receives.
type lastLines struct {
	limit   int
	ring    [][]byte
	next    int
	dropped bool
}

func (l *lastLines) add(line []byte) {
	switch {
	case l.limit == 0:
		l.dropped = true
	case len(l.ring) < l.limit:
		l.ring = append(l.ring, bytes.Clone(line))
	default:
		l.dropped = true
		l.ring[l.next] = append(l.ring[l.next][:0], line...)
		l.next = (l.next + 1) % l.limit
	}
}

// ordered returns the lines, oldest first.
func (l *lastLines) ordered() [][]byte {
	return append(l.ring[l.next:len(l.ring):len(l.ring)], l.ring[:l.next]...)
}

// Search asks a daemon, or its log on disk, for the records that match a filter, newest first.
type Search struct {
	// Page is the number of records for one question.
	Page int
	ask  func(ctx context.Context, before uint64, limit int) (lines [][]byte, next uint64, err error)
	io.Closer
}

// leftPage is the number of records that are read at once from a log on disk. A mirror is read
// whole for each page.
const leftPage = 100_000

// SearchLeft searches the log of a daemon that does not run.
func SearchLeft(left Left, filter audit.Filter) *Search {
	return &Search{Page: leftPage, Closer: left, ask: func(ctx context.Context, before uint64, limit int) ([][]byte, uint64, error) {
		return left.Query(ctx, filter, 0, before, limit)
	}}
}

// SearchDaemon searches the log of a running daemon. Wait bounds the time for each answer.
func SearchDaemon(c *client.Client, filter audit.Filter, wait time.Duration) *Search {
	return &Search{Page: api.MaxPage, Closer: c, ask: func(ctx context.Context, before uint64, limit int) ([][]byte, uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return (&live{c}).Query(ctx, filter, 0, before, min(limit, api.MaxPage))
	}}
}

// Most asks until there are limit records, or no more. Next is the number at which to continue,
// zero if nothing more can match.
func (q *Search) Most(ctx context.Context, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	for limit > 0 {
		page, next, err := q.ask(ctx, before, limit-len(lines))
		if err != nil {
			return nil, 0, err
		}
		if lines = append(lines, page...); next == 0 || len(lines) >= limit {
			return lines, next, nil
		}
		before = next
	}
	return nil, 0, nil
}

// Pages visits the pages of all records, newest first.
func (q *Search) Pages(ctx context.Context, before uint64, visit func(lines [][]byte) error) error {
	for {
		lines, next, err := q.Most(ctx, before, q.Page)
		if err == nil {
			err = visit(lines)
		}
		if before = next; err != nil || next == 0 {
			return err
		}
	}
}

// errCounted ends a walk at the end of the period.
var errCounted = errors.New("the rest is later")

// Count counts the records of a period. Like a daemon, it does not begin before the first record.
func Count(ctx context.Context, left Left, since, until time.Time, bucket time.Duration) (*audit.Stats, error) {
	var tally *audit.Tally
	err := left.EachLine(ctx, 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		if err != nil {
			return err
		}
		if tally == nil {
			if since.Before(e.Time) {
				since = e.Time
			}
			tally = audit.NewTally(since, until, bucket)
		}
		if !e.Time.Before(tally.Until()) {
			return errCounted
		}
		tally.Add(&e)
		return nil
	})
	if err != nil && !errors.Is(err, errCounted) {
		return nil, err
	}
	if tally == nil {
		tally = audit.NewTally(since, until, bucket)
	}
	stats := tally.Stats()
	return &stats, nil
}
