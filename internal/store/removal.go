package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/diskspace"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// What is removed is to be gone from the files. SQLite overwrites deleted rows and
// freed pages with zeros (secure_delete); this file sees to the three places where
// their bytes can be left: what a page keeps of rows that were moved to another one,
// the write-ahead log, and the end of a file that is longer than what is in it.
//
// All of it is done in small steps between commits, by [Store.Clean].

// cleanPages is how many pages one step gives back or looks at, and cleanPause what is
// left to commits before the next: so few that nobody waits for a step.
const (
	cleanPages = 128
	cleanPause = 20 * time.Millisecond
)

// residual are the tables whose rows are moved between pages while they are there, and
// hold what people or apps said.
var residual = [...]string{"approvals", "outbox", "exchanges"}

// findRemoved finds out whether an earlier process has left anything to clean.
func (s *Store) findRemoved(conn *sqlite.Conn) error {
	free, err := queryInt(conn, "PRAGMA freelist_count")
	s.removed.Or(removedTexts)
	if free > 0 {
		s.removed.Or(removedPages)
	}
	return err
}

// exclusively runs a task with the writing connection, between two transactions.
func (s *Store) exclusively(task func(*writer) error) error {
	p := &pending{Change: &Change{}, task: task, done: make(chan struct{})}
	lead, err := s.queue.join(p)
	if err != nil {
		return err
	}
	s.finish(p, lead)
	return p.err
}

// runTask is [Store.writeBatch] for a task.
func (s *Store) runTask(p *pending) error {
	if cause := s.Latched(); cause != nil {
		return fmt.Errorf("%w: %w", ErrLatched, cause)
	}
	if err := s.noticeLoss(s.watch.Check()); err != nil {
		return err
	}
	if err := p.task(s.writer); err != nil {
		return s.judge(err)
	}
	return s.noticeLoss(s.watch.Check())
}

// Clean takes what was removed out of the files, where something was since it was last
// called, and makes the database file shorter by what is free in it. It goes on where
// it was stopped when it is called again.
func (s *Store) Clean(ctx context.Context) error {
	removed := s.removed.Swap(0)
	err := s.clean(ctx, removed)
	if err != nil {
		s.removed.Or(removed)
	}
	return err
}

// What was removed: texts are in rows that may have been moved, and pages are free.
const (
	removedTexts = 1 << iota
	removedPages
)

func (s *Store) clean(ctx context.Context, removed uint32) error {
	if removed&removedTexts != 0 {
		for _, table := range residual {
			if table == "exchanges" && removed&removedPages == 0 {
				// It is long, and loses rows by retention alone.
				continue
			}
			if err := s.wipe(ctx, table); err != nil {
				return err
			}
		}
	}
	if removed&removedPages != 0 {
		if err := s.inSteps(ctx, s.giveBack); err != nil {
			return err
		}
	}
	if removed != 0 {
		return s.exclusively(s.emptyLog)
	}
	return nil
}

// inSteps takes steps until one says that it was the last.
func (s *Store) inSteps(ctx context.Context, step func(*writer) (more bool, err error)) error {
	pause := time.NewTicker(cleanPause)
	defer pause.Stop()
	for {
		more := false
		if err := s.exclusively(func(w *writer) (err error) { more, err = step(w); return err }); err != nil || !more {
			return err
		}
		select {
		case <-pause.C:
		case <-s.closing.Done():
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveBack moves pages from the end of the file into its gaps, and cuts it by as many
// with the next checkpoint.
func (s *Store) giveBack(w *writer) (more bool, err error) {
	free, err := queryInt(w.conn, "PRAGMA freelist_count")
	if err != nil || free == 0 {
		return false, err
	}
	pages, err := queryInt(w.conn, "PRAGMA page_count")
	if err != nil {
		return false, err
	}
	n := min(free, cleanPages)
	// Pages of SQLite's own map go with those that they are of.
	s.watch.Shrinks(uint64(max(0, pages-n-n/64-2)) * uint64(w.pageSize))
	if err := sqlitex.ExecuteTransient(w.conn, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", n), nil); err != nil {
		return false, fmt.Errorf("cannot give free space of the store back: %w", err)
	}
	after, err := queryInt(w.conn, "PRAGMA page_count")
	if w.grown != nil {
		w.grown(int64(after) * w.pageSize)
	}
	return free > n && after < pages, err
}

// emptyLog brings all of the write-ahead log into the file and cuts it to nothing.
// Where somebody still reads what is in it, it stays for the next time.
func (s *Store) emptyLog(w *writer) error {
	// Most of the work is done while deliveries may look at the files.
	if err := sqlitex.ExecuteTransient(w.conn, "PRAGMA wal_checkpoint(PASSIVE)", nil); err != nil {
		return fmt.Errorf("cannot empty the write-ahead log: %w", err)
	}
	busy := 0
	err := s.watch.Rewrites(func() error {
		return sqlitex.ExecuteTransient(w.conn, "PRAGMA wal_checkpoint(TRUNCATE)", &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			busy = stmt.ColumnInt(0)
			return nil
		}})
	})
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		busy, err = 1, nil
	}
	if err != nil {
		return fmt.Errorf("cannot empty the write-ahead log: %w", err)
	}
	if busy != 0 {
		s.removed.Or(removedTexts)
	}
	return nil
}

// wipe overwrites with zeros what the pages of a table and its indexes hold beside
// their rows. SQLite leaves there what it has moved to another page.
func (s *Store) wipe(ctx context.Context, table string) error {
	names, err := rows(ctx, &s.reader, "the names of the store", `SELECT name FROM sqlite_schema WHERE tbl_name = ? AND rootpage > 0`, []any{table}, scanText)
	if err != nil {
		return err
	}
	var pages []int64
	for _, name := range names {
		more, err := rows(ctx, &s.reader, "the pages of the store", `SELECT pageno FROM dbstat WHERE name = ? AND pagetype IN ('leaf', 'internal')`, []any{name}, scanInt)
		if err != nil {
			return err
		}
		pages = append(pages, more...)
	}
	return s.inSteps(ctx, func(w *writer) (more bool, err error) {
		n := min(len(pages), cleanPages)
		err = w.wipePages(pages[:n])
		pages = pages[n:]
		return len(pages) > 0, err
	})
}

// wipePages wipes those of the pages that hold such a thing. One that is something else
// by now is wiped as what it is.
func (w *writer) wipePages(pages []int64) (err error) {
	defer sqlitex.Save(w.conn)(&err)
	for _, no := range pages {
		var page []byte
		err := sqlitex.Execute(w.conn, `SELECT data FROM sqlite_dbpage WHERE pgno = ?`, &sqlitex.ExecOptions{Args: []any{no}, ResultFunc: func(stmt *sqlite.Stmt) error {
			page = columnBytes(stmt, 0)
			return nil
		}})
		if err == nil && wipeGap(page, no == 1) {
			err = sqlitex.Execute(w.conn, `UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?`, &sqlitex.ExecOptions{Args: []any{page, no}})
		}
		if err != nil {
			return fmt.Errorf("cannot wipe page %d of the store: %w", no, err)
		}
	}
	return nil
}

// wipeGap overwrites the unused part of a page of a tree, between the list of its cells
// and the first of them, and reports whether there was anything in it.
//
// Source: https://www.sqlite.org/fileformat2.html, section 1.6.
func wipeGap(page []byte, first bool) (found bool) {
	header := 0
	if first {
		header = 100
	}
	if len(page) < header+12 {
		return false
	}
	size := 8
	switch page[header] {
	case 2, 5:
		size = 12
	case 10, 13:
	default:
		return false
	}
	from := header + size + 2*int(binary.BigEndian.Uint16(page[header+3:]))
	to := int(binary.BigEndian.Uint16(page[header+5:]))
	if to == 0 {
		to = 1 << 16
	}
	if from > to || to > len(page) {
		return false
	}
	for i := range page[from:to] {
		found = found || page[from+i] != 0
	}
	clear(page[from:to])
	return found
}

// removeExchanges takes away the exchanges that have ended and were not touched since
// a moment, a few at a time.
func (s *Store) removeExchanges(ctx context.Context, before time.Time) error {
	after := int64(0)
	return s.inSteps(ctx, func(w *writer) (more bool, err error) {
		defer sqlitex.Save(w.conn)(&err)
		last, err := w.scalar("exchanges", `SELECT coalesce(max(rowid), 0) FROM (SELECT rowid FROM exchanges WHERE rowid > ? ORDER BY rowid LIMIT ?)`, number(after), number(4*cleanPages))
		if err != nil || last == 0 {
			return false, err
		}
		const old = `rowid > ? AND rowid <= ? AND outcome <> 'in_progress' AND json_extract(state, '$.updatedAt') < ?`
		within := []value{number(after), number(last), number(before.UnixMilli())}
		if err := w.exec("that exchanges are removed", `DELETE FROM current_exchanges WHERE (exchange_id, agent) IN (SELECT id, agent FROM exchanges WHERE `+old+`)`, within...); err != nil {
			return false, err
		}
		err = w.exec("that exchanges are removed", `DELETE FROM exchanges WHERE `+old, within...)
		after = last
		return true, err
	})
}

// autoVacuum is SQLite's name for a database whose pages can be moved, so that the file
// can be made shorter.
const autoVacuum = 2

// makeMovable writes a database of before all over once, so that from then on it can
// be made shorter step by step. It says first what that takes.
func (s *Store) makeMovable(ctx context.Context, conn *sqlite.Conn) error {
	mode, err := queryInt(conn, "PRAGMA auto_vacuum")
	if err != nil || mode == autoVacuum {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("cannot write the store anew, which lets it give back the space of what is removed: %w", err)
	}
	size, err := databaseSize(conn)
	if err != nil {
		return fail(err)
	}
	free, err := s.space.Free()
	if err != nil {
		return fail(err)
	}
	s.log.Info("writing the database anew, once, so that removed records give their space back",
		zap.Int64("bytes", size), zap.Int64("bytesOfDiskMeanwhile", anewRoom(size)), zap.Duration("about", anewTime(size)))
	if free < anewRoom(size)+diskspace.Least {
		s.log.Warn("the database is not written anew, and does not get shorter by what is removed, until there is room for it at a start",
			zap.Int64("bytesFree", free), zap.Int64("bytesNeeded", anewRoom(size)+diskspace.Least))
		return nil
	}
	conn.SetInterrupt(ctx.Done())
	defer conn.SetInterrupt(nil)
	for _, statement := range []string{
		// What it sorts goes to the disk that was just looked at.
		"PRAGMA temp_store=FILE", fmt.Sprintf("PRAGMA temp_store_directory='%s'", strings.ReplaceAll(filepath.Dir(s.path), "'", "''")),
		fmt.Sprintf("PRAGMA auto_vacuum=%d", autoVacuum), "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)",
		"PRAGMA temp_store_directory=''", "PRAGMA temp_store=MEMORY",
	} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return fail(errors.Join(ctx.Err(), err))
		}
	}
	return nil
}

// anewRoom is what writing a database anew takes of the disk: once beside it, and once
// in the write-ahead log.
func anewRoom(size int64) int64 { return 2*size + size/8 }

// anewTime is about how long it takes.
func anewTime(size int64) time.Duration {
	const bytesASecond = 40 << 20
	return (time.Duration(size/bytesASecond) + 1) * time.Second
}
