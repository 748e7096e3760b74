package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/diskspace"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Deleted data must be gone from the files. internal/store/db knows how; this file does it in small
// steps between commits, by [Store.Clean].

// cleanPages is the number of pages that one step gives back or checks, and cleanPause the time for
// commits before the next: no commit waits long for a step.
const (
	cleanPages = 128
	cleanPause = 20 * time.Millisecond
)

// residual are the tables whose rows are moved between pages during their life, and contain texts
// of people or apps.
var residual = [...]string{"approvals", "outbox", "releases", "exchanges"}

// cleaning removes deleted data from the files.
type cleaning struct {
	db      *db.Reader
	health  *health
	between func(task func(*writer) error) error
	closing context.Context
	// removed says which data were deleted and not yet cleaned from the files.
	removed atomic.Uint32
}

// findRemoved checks whether an earlier process has left anything to clean.
func (c *cleaning) findRemoved(w *db.Writer) error {
	free, err := w.Free()
	c.removed.Or(removedTexts)
	if free > 0 {
		c.removed.Or(removedPages)
	}
	return err
}

// exclusively runs a task with the writing connection, between two transactions.
func (cs *commits) exclusively(task func(*writer) error) error {
	p := &pending{Change: &Change{}, task: task, done: make(chan struct{})}
	lead, err := cs.queue.join(p)
	if err != nil {
		return err
	}
	cs.finish(p, lead)
	return p.err
}

// runTask is [Store.writeBatch] for a task.
func (cs *commits) runTask(p *pending) error {
	if cause := cs.health.closed(); cause != nil {
		return fmt.Errorf("%w: %w", ErrLatched, cause)
	}
	if err := cs.health.noticeLoss(cs.health.files.Check()); err != nil {
		return err
	}
	if err := p.task(cs.writer); err != nil {
		return cs.judge(err)
	}
	return cs.health.noticeLoss(cs.health.files.Check())
}

// Clean removes deleted data from the files, if anything was deleted since its last call, and
// shortens the database file by its free space. A call continues an interrupted one.
func (s *Store) Clean(ctx context.Context) error {
	removed := s.cleaning.removed.Swap(0)
	err := s.cleaning.clean(ctx, removed)
	if err != nil {
		s.cleaning.removed.Or(removed)
	}
	return err
}

// The kinds of deleted data: texts in rows that may have been moved, and free pages.
const (
	removedTexts = 1 << iota
	removedPages
)

func (c *cleaning) clean(ctx context.Context, removed uint32) error {
	if removed&removedTexts != 0 {
		for _, table := range residual {
			if table == "exchanges" && removed&removedPages == 0 {
				// It is long, and loses rows by retention alone.
				continue
			}
			if err := c.wipe(ctx, table); err != nil {
				return err
			}
		}
	}
	if removed&removedPages != 0 {
		if err := c.inSteps(ctx, c.giveBack); err != nil {
			return err
		}
	}
	if removed != 0 {
		return c.between(c.emptyLog)
	}
	return nil
}

// inSteps takes steps until one says that it was the last.
func (c *cleaning) inSteps(ctx context.Context, step func(*writer) (more bool, err error)) error {
	pause := time.NewTicker(cleanPause)
	defer pause.Stop()
	for {
		more := false
		if err := c.between(func(w *writer) (err error) { more, err = step(w); return err }); err != nil || !more {
			return err
		}
		select {
		case <-pause.C:
		case <-c.closing.Done():
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveBack moves pages from the end of the file into its gaps, and shortens it by as many with the
// next checkpoint.
func (c *cleaning) giveBack(w *writer) (more bool, err error) {
	free, err := w.Free()
	if err != nil || free == 0 {
		return false, err
	}
	pages, err := w.Pages()
	if err != nil {
		return false, err
	}
	n := min(free, cleanPages)
	// Pages of SQLite's own map go with the pages that they describe.
	c.health.files.Shrinks(uint64(max(0, pages-n-n/64-2)) * uint64(w.pageSize))
	if err := w.GiveBack(n); err != nil {
		return false, err
	}
	after, err := w.Pages()
	if w.grown != nil {
		w.grown(int64(after) * w.pageSize)
	}
	return free > n && after < pages, err
}

// emptyLog empties the write-ahead log, or leaves it for the next time if somebody still reads it.
func (c *cleaning) emptyLog(w *writer) error {
	busy, err := w.EmptyLog(c.health.files.Rewrites)
	if busy {
		c.removed.Or(removedTexts)
	}
	return err
}

// wipe overwrites the bytes of a table's pages and of its indexes that are beside their rows.
func (c *cleaning) wipe(ctx context.Context, table string) error {
	pages, err := c.db.PagesOf(ctx, table)
	if err != nil {
		return err
	}
	return c.inSteps(ctx, func(w *writer) (more bool, err error) {
		n := min(len(pages), cleanPages)
		err = w.Wipe(pages[:n])
		pages = pages[n:]
		return len(pages) > 0, err
	})
}

// removeExchanges deletes the exchanges that have ended and were not touched since a time, a few at
// a time.
func (c *cleaning) removeExchanges(ctx context.Context, before time.Time) error {
	after := int64(0)
	return c.inSteps(ctx, func(w *writer) (more bool, err error) {
		defer sqlitex.Save(w.Conn)(&err)
		last, err := w.Scalar("exchanges", `SELECT coalesce(max(rowid), 0) FROM (SELECT rowid FROM main.exchanges WHERE rowid > ? ORDER BY rowid LIMIT ?)`, db.Int(after), db.Int(4*cleanPages))
		if err != nil || last == 0 {
			return false, err
		}
		const old = `rowid > ? AND rowid <= ? AND outcome <> 'in_progress' AND iif(json_valid(state), json_extract(state, '$.updatedAt'), NULL) < ?`
		within := []db.Value{db.Int(after), db.Int(last), db.Int(before.UnixMilli())}
		if err := w.Exec("that exchanges are removed", `DELETE FROM main.current_exchanges WHERE (exchange_id, agent) IN (SELECT id, agent FROM main.exchanges WHERE `+old+`)`, within...); err != nil {
			return false, err
		}
		err = w.Exec("that exchanges are removed", `DELETE FROM main.exchanges WHERE `+old, within...)
		after = last
		return true, err
	})
}

// makeMovable rewrites an older database once, so that it can be shortened step by step from then
// on. It first logs the cost.
func makeMovable(ctx context.Context, w *db.Writer, path string, space *diskspace.Monitor, log *zap.Logger) error {
	movable, err := w.Movable()
	if err != nil || movable {
		return err
	}
	size, err := db.Size(w.Conn)
	if err != nil {
		return err
	}
	free, err := space.Free()
	if err == nil {
		log.Info("writing the database anew, once, so that removed records give their space back",
			zap.Int64("bytes", size), zap.Int64("bytesOfDiskMeanwhile", anewRoom(size)), zap.Duration("about", anewTime(size)))
		if free < anewRoom(size)+diskspace.Least {
			log.Warn("the database is not written anew, and does not get shorter by what is removed, until there is room for it at a start",
				zap.Int64("bytesFree", free), zap.Int64("bytesNeeded", anewRoom(size)+diskspace.Least))
			return nil
		}
		err = w.MakeMovable(ctx, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write the store anew, which lets it give back the space of what is removed: %w", err)
	}
	return nil
}

// anewRoom returns the disk space for rewriting a database: once beside it, and once in the
// write-ahead log.
func anewRoom(size int64) int64 { return 2*size + size/8 }

// anewTime returns about how long that takes.
func anewTime(size int64) time.Duration {
	const bytesASecond = 40 << 20
	return (time.Duration(size/bytesASecond) + 1) * time.Second
}
