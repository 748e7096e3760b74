package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
)

const (
	// packAgain is the wait after a failed compression.
	packAgain = 10 * time.Second
	// Compression leaves the processor to a busy daemon: it begins when fewer than busyRecords were
	// written between two looks, or after busyLooks.
	look        = 200 * time.Millisecond
	busyRecords = 100
	busyLooks   = 300
)

// pack compresses pending segments until the mirror is closed.
func (m *Mirror) pack() {
	for {
		select {
		case <-m.kick:
		case <-m.closing.Done():
			return
		}
		for {
			r, ok := m.nextPending()
			if !ok {
				break
			}
			err := m.calm()
			if err == nil {
				err = m.settle(m.closing, r)
			}
			if m.closing.Err() != nil {
				return
			}
			m.note("cannot compress a segment of the audit mirror", &m.packing, err)
			again := packAgain
			if m.o.eager {
				again = retryAfter
			}
			if err != nil && !m.pause(again) {
				return
			}
		}
	}
}

func (ss *segments) nextPending() (span, bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.pending) == 0 {
		return span{}, false
	}
	return ss.pending[0], true
}

// pause waits, and reports whether the mirror is still open.
func (m *Mirror) pause(d time.Duration) bool {
	wait, cancel := context.WithTimeout(m.closing, d)
	defer cancel()
	<-wait.Done()
	return m.closing.Err() == nil
}

// calm waits while the log grows fast.
func (m *Mirror) calm() error {
	for range busyLooks {
		before := m.o.Source.Head().Seq
		if m.o.eager {
			break
		}
		if !m.pause(look) {
			return m.closing.Err()
		}
		if m.o.Source.Head().Seq-before < busyRecords {
			break
		}
	}
	return nil
}

// settle takes a pending span one step further. It writes a missing segment from the database,
// compresses an uncompressed one, lists a compressed one, and sets a wrong one aside.
func (ss *segments) settle(ctx context.Context, r span) error {
	plain, packed := ss.layout.path(ss.layout.plain(r)), ss.layout.path(ss.layout.packed(r))
	_, noPlain := os.Lstat(plain)
	_, noPacked := os.Lstat(packed)
	for _, err := range []error{noPlain, noPacked} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot inspect a segment: %w", err)
		}
	}
	if noPacked == nil {
		done, err := ss.adopt(ctx, r, packed)
		switch {
		case err != nil:
			return err
		case done:
			return ss.dropPlain(r)
		case noPlain != nil:
			return nil
		}
	}
	if noPlain != nil {
		return ss.rebuild(ctx, r)
	}
	return ss.compress(ctx, r, plain, packed)
}

// adopt lists a correct compressed segment, and sets a wrong one aside.
func (ss *segments) adopt(ctx context.Context, r span, packed string) (bool, error) {
	s, err := ss.inspect(ctx, r, packed, true)
	var bad *unsound
	switch {
	case errors.As(err, &bad):
		ss.fault("a compressed segment is not what it should be: %v", bad)
		_, err := setAside(ss.o, packed, bad.cause)
		return false, err
	case err != nil:
		return false, err
	}
	return true, ss.add(s)
}

// inspect reads a segment's file as a whole, and compares it with its name, the segment before it
// and the database.
func (ss *segments) inspect(ctx context.Context, r span, path string, packed bool) (Segment, error) {
	s, err := examine(ctx, path, packed)
	if err != nil {
		return s, err
	}
	s.File = ss.layout.packed(r)
	if s.span() != r {
		return s, &unsound{path, fmt.Errorf("it holds the records %d to %d", s.First, s.Last)}
	}
	ss.mu.Lock()
	segments := ss.listed
	ss.mu.Unlock()
	for i := range segments {
		if p := &segments[i]; p.Last+1 == s.First && p.Hash != s.Prev {
			return s, &unsound{path, fmt.Errorf("it follows the hash %s, and record %d has %s", s.Prev, p.Last, p.Hash)}
		}
	}
	verdict, err := ss.compare(ctx, &s)
	if verdict != nil {
		return s, &unsound{path, verdict}
	}
	return s, err
}

// dropPlain removes the uncompressed file of a listed segment.
func (ss *segments) dropPlain(r span) error {
	if err := os.Remove(ss.layout.path(ss.layout.plain(r))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove a segment that is compressed: %w", err)
	}
	ss.o.step("plain segment removed")
	ss.settled(r)
	return syncDir(ss.layout.dir)
}

// compress makes the compressed file of a segment, reads it back and lists it.
func (ss *segments) compress(ctx context.Context, r span, plain, packed string) error {
	if err := squeeze(ctx, plain, packed+temporaryExt); err != nil {
		return errors.Join(err, remove(packed+temporaryExt))
	}
	ss.o.step("segment compressed")
	s, err := ss.inspect(ctx, r, packed+temporaryExt, true)
	if bad, ok := errors.AsType[*unsound](err); ok {
		// Either the uncompressed file is wrong too, or the compressed one was not written
		// correctly.
		return errors.Join(remove(packed+temporaryExt), ss.judge(ctx, r, plain, bad))
	}
	if err != nil {
		return errors.Join(err, remove(packed+temporaryExt))
	}
	ss.o.step("segment verified")
	if err := os.Rename(packed+temporaryExt, packed); err != nil {
		return fmt.Errorf("cannot rename a compressed segment: %w", err)
	}
	ss.o.step("compressed segment renamed")
	if err := syncDir(ss.layout.dir); err != nil {
		return err
	}
	if err := ss.add(s); err != nil {
		return err
	}
	ss.o.Log.Info("a segment of the audit mirror is complete", zap.String("file", s.File), zap.Uint64("first", s.First), zap.Uint64("last", s.Last),
		zap.Int64("bytes", s.Bytes), zap.Int64("compressed", s.PackedBytes))
	return ss.dropPlain(r)
}

// judge checks an uncompressed segment whose compressed form is wrong.
func (ss *segments) judge(ctx context.Context, r span, plain string, bad *unsound) error {
	_, err := ss.inspect(ctx, r, plain, false)
	var worse *unsound
	switch {
	case err == nil:
		return fmt.Errorf("the compressed segment did not read back as it was written: %w", bad.cause)
	case !errors.As(err, &worse):
		return err
	}
	ss.fault("a segment is not what was written: %v; it is written again from the database", worse)
	_, err = setAside(ss.o, plain, worse.cause)
	return err
}

// createNew makes a file, in place of one that a crash may have left.
func createNew(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// squeeze compresses a file into another and syncs it.
func squeeze(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot compress a segment: %w", err)
	}
	defer in.Close()
	out, err := createNew(to)
	if err != nil {
		return fmt.Errorf("cannot compress a segment: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = fmt.Errorf("cannot compress a segment: %w", err)
		}
	}()
	encoder, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	if _, err := io.Copy(encoder, &interruptible{in, ctx}); err != nil {
		return errors.Join(err, encoder.Close())
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	return out.Sync()
}

// packWindow is the window of the compression, in bytes.
const packWindow = 1 << 20

// interruptible ends with its context.
type interruptible struct {
	from io.Reader
	ctx  context.Context
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.from.Read(p)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove an unfinished file: %w", err)
	}
	return nil
}

// rebuild writes a missing segment from the database, up to the size of one segment.
func (ss *segments) rebuild(ctx context.Context, r span) error {
	unfinished := ss.layout.path(ss.layout.plain(r)) + temporaryExt
	last, err := export(ctx, ss.o, r, unfinished)
	if err != nil {
		return errors.Join(err, remove(unfinished))
	}
	if last < r.first {
		ss.fault("the segment of the records %d to %d is missing, and the database does not have them", r.first, r.last)
		ss.settled(r)
		return remove(unfinished)
	}
	ss.fault("the segment of the records %d to %d was missing, and is written from the database", r.first, last)
	ss.o.step("segment rebuilt")
	whole := span{r.first, last}
	plain := ss.layout.path(ss.layout.plain(whole))
	if err := rename(unfinished, plain); err != nil {
		return fmt.Errorf("cannot name a segment: %w", err)
	}
	ss.o.step("rebuilt segment named")
	s, err := ss.inspect(ctx, whole, plain, false)
	if bad, ok := errors.AsType[*unsound](err); ok {
		// Writing it again would not help: the database itself is damaged.
		ss.fault("records of the database do not hold together: %v", bad)
		ss.settled(r)
		return nil
	}
	if err != nil {
		return err
	}
	if s.Last < r.last {
		ss.settled(r, whole, span{s.Last + 1, r.last})
	}
	return syncDir(filepath.Dir(plain))
}
