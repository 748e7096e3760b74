package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/fileintegrity"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
)

// health is whether the store may write and release: its files and the copies of the log are there, and
// nothing has closed it.
type health struct {
	path   string
	logger *zap.Logger
	log    *logstore.Log
	files  *fileintegrity.Watch
	alive  func() error
	// unreadable is [Options.Unreadable].
	unreadable func(*UnreadableError) error
	latched    atomic.Pointer[error]
}

// latchFile marks a store that must be verified before it is used again.
func (h *health) latchFile() string { return h.path + ".latched" }

// latch closes the store for writing.
func (h *health) latch(cause error) {
	if !h.latched.CompareAndSwap(nil, &cause) {
		return
	}
	h.logger.Error("the store is closed for writing", zap.Error(cause))
	if err := h.mark(cause); err != nil {
		h.logger.Error("cannot mark the store as latched", zap.Error(err))
	}
}

// closed returns the error that closed the store for writing, or nil.
func (h *health) closed() error {
	if cause := h.latched.Load(); cause != nil {
		return *cause
	}
	return nil
}

// noticeLoss closes the store if one of its files is lost.
func (h *health) noticeLoss(err error) error {
	if err == nil {
		return nil
	}
	h.latch(err)
	return fmt.Errorf("%w: %w", ErrLatched, err)
}

// UnreadableError means that a query failed in a store that is closed for writing: data for a
// decision cannot be read any more.
type UnreadableError struct {
	// Closed is why the store was closed, Cause why the query failed.
	Closed, Cause error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: %v: %v", ErrLatched, e.Closed, e.Cause)
}

// Unwrap makes [ErrLatched] and the causes known.
func (e *UnreadableError) Unwrap() []error { return []error{ErrLatched, e.Closed, e.Cause} }

// readFailed checks the files after a query that failed as on a broken disk: the first reader may
// notice a missing file long before the next commit.
func (h *health) readFailed(err error) error {
	_ = h.noticeLoss(h.files.Check())
	if cause := h.closed(); cause != nil {
		unreadable := &UnreadableError{Closed: cause, Cause: err}
		if h.unreadable != nil {
			return h.unreadable(unreadable)
		}
		return unreadable
	}
	return err
}

// mayWrite checks right before a batch goes to the disk, so that nothing is written to a file that
// nobody can find.
func (h *health) mayWrite(batch []*pending) error {
	if err := h.noticeLoss(h.files.Check()); err != nil {
		return err
	}
	if err := h.copies(batch); err != nil {
		return fmt.Errorf("%w: %w", ErrMirrorLost, err)
	}
	return nil
}

// copyPatience bounds how long a release waits for a copy of the log that was lost during the
// transaction and may be restored.
const copyPatience = 2 * time.Second

// mayRelease checks after a transaction. It waits for a copy of the log that is lost by now. If it
// stays lost, the store closes: the changes are in the database and their callers fail, so the
// daemon's memory no longer agrees with the store.
func (h *health) mayRelease(batch []*pending) error {
	err := h.copies(batch)
	if err != nil {
		err = h.awaitCopies(batch)
	}
	if err == nil {
		err = h.files.Check()
	}
	return h.noticeLoss(err)
}

func (h *health) awaitCopies(batch []*pending) error {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(copyPatience)
	defer limit.Stop()
	for {
		err := h.copies(batch)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-limit.C:
			return err
		}
	}
}

// copies checks that the copies of the log are there, if that matters.
func (h *health) copies(batch []*pending) error {
	if h.alive == nil || !slices.ContainsFunc(batch, func(p *pending) bool { return p.refused == nil && p.releases() }) {
		return nil
	}
	return h.alive()
}

// headMark begins the line of the latch's mark with the end of the log.
const headMark = "head "

// mark writes down why the store was closed and the last record on which anything was released. It
// is best effort: if the disk is gone, the next start fails by itself.
func (h *health) mark(cause error) error {
	f, err := os.OpenFile(h.latchFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	head := h.log.Head()
	_, err = fmt.Fprintf(f, "%s\n%s%d %s\n", strings.ReplaceAll(cause.Error(), "\n", "; "), headMark, head.Seq, head.Hash)
	return errors.Join(err, f.Sync(), f.Close())
}

// CheckLog is [logstore.Log.CheckAll]. If it finds a fault, the next start verifies every record,
// and makes the tiles of the Merkle tree again if the records are good.
func (s *Store) CheckLog(ctx context.Context, rest func(context.Context) error) error {
	err := s.CheckAll(ctx, rest)
	if _, damaged := errors.AsType[*audit.Fault](err); damaged {
		err = errors.Join(err, s.health.mark(err))
	}
	return err
}

// matchMark compares the log with a latched store's mark: a log that was cut or replaced meanwhile
// lacks records on which something was released, even if it is sound in itself.
func (h *health) matchMark(ctx context.Context) error {
	text, err := os.ReadFile(h.latchFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read why the store was closed: %w", err)
	}
	var noted struct {
		seq  uint64
		hash string
	}
	found := false
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, headMark); ok {
			n, _ := fmt.Sscan(rest, &noted.seq, &noted.hash)
			found = n == 2
		}
	}
	if !found || noted.seq == 0 {
		// The disk may have taken only part of the mark.
		return nil
	}
	missing := fmt.Sprintf("ends at record %d", h.log.Head().Seq)
	if h.log.Head().Seq >= noted.seq {
		line, err := h.log.Line(ctx, noted.seq)
		if err != nil {
			return err
		}
		head, err := audit.HeadOf(line)
		if err != nil {
			return fmt.Errorf("cannot read audit record %d: %w", noted.seq, err)
		}
		if head.Hash.String() == noted.hash {
			return nil
		}
		missing = "has another record there"
	}
	return fmt.Errorf("cannot start: the store was closed at record %d, and the database %s; put the right file back, "+
		"or remove %s to go on without the records that are missing", noted.seq, missing, h.latchFile())
}
