package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// ErrLow means that the disk is nearly full, so that nothing new is taken up;
// what ends something is still written. Nothing was written of the change.
var ErrLow = errors.New("the disk is nearly full")

// Rung is how far down the ladder of a filling disk the store is.
type Rung string

// The rungs, in order. On [DiskRefuse] and below only changes that drain are
// written, see [Change.Drains]. [DiskFull] means that a write found no space.
const (
	DiskOK     Rung = "ok"
	DiskWarn   Rung = "warn"
	DiskRefuse Rung = "refuse"
	DiskFull   Rung = "full"
)

// Disk is how the disk of the database is.
type Disk struct {
	Rung Rung
	// Free is how many bytes the daemon's user may still write, besides those that
	// what is in the write-ahead log will take.
	Free int64
	// Reserve says whether the space for the last records is kept.
	Reserve bool
}

// SpaceOptions say what a filling disk leads to. The zero value is no ladder:
// only a disk that is full refuses.
type SpaceOptions struct {
	// WarnFree and MinFree are the bytes that must be free for [DiskOK] and
	// for anything new. Zero leaves out the rung.
	WarnFree, MinFree int64
	// Reserve is the size in bytes of a file beside the database that is given
	// up once for the last records; zero keeps none.
	Reserve int64
	// Every is how often free space is looked at, 1 s where it is zero.
	Every time.Duration
	// Free returns the free bytes; statfs(2) of the database's directory where
	// it is nil.
	Free func() (int64, error)
	// Changed, where set, is called when the rung is another one, and returns
	// what is to be recorded of it.
	Changed func(was, now Disk) *Change
}

func (o *SpaceOptions) on() bool { return o.WarnFree > 0 || o.MinFree > 0 || o.Reserve > 0 }

// leave is what must be free for a rung to be left again: an eighth more than
// what it begins at, so that a disk at the border is not told of each second.
func leave(limit int64) int64 { return limit + limit/8 }

// leastAfterFull is what must be free after a write found no space, where no
// limit is set.
const leastAfterFull = 1 << 20

// space watches the disk.
type space struct {
	SpaceOptions
	reserve string
	log     *zap.Logger

	now  atomic.Pointer[Disk]
	wake chan struct{}
	// database is the file, and pages how many bytes it will have when all that is in
	// the write-ahead log is in it.
	database string
	pages    atomic.Int64
	// flying is what the changes take that are being written, and since what those
	// took that were written since the disk was looked at.
	flying, since atomic.Int64

	// mu makes a look and what follows from it one step.
	mu sync.Mutex
	// blind is set while free space cannot be told.
	blind bool
}

// newSpace looks at the disk and makes the reserve.
func newSpace(o SpaceOptions, database string, log *zap.Logger) *space {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Free == nil {
		dir := filepath.Dir(database)
		o.Free = func() (int64, error) { return freeBytes(dir) }
	}
	s := &space{SpaceOptions: o, database: database, reserve: database + ".reserve", log: log, wake: make(chan struct{}, 1)}
	info, err := os.Lstat(s.reserve)
	s.now.Store(&Disk{Rung: DiskOK, Reserve: err == nil && info.Mode().IsRegular() && info.Size() == o.Reserve && o.Reserve > 0})
	s.look(false)
	return s
}

// freeBytes is what an ordinary user may still write in a directory.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot tell the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// run looks every now and then until the context ends, and tells of changes.
func (s *space) run(ctx context.Context, commit func(*Change) (Receipt, error)) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	told := Disk{Rung: DiskOK}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticker.C:
			s.look(false)
		}
		now := *s.now.Load()
		if now.Rung == told.Rung {
			continue
		}
		s.say(&now)
		if s.Changed != nil {
			if _, err := commit(s.Changed(told, now)); err != nil {
				s.log.Error("cannot record how the disk is", zap.Error(err))
			}
		}
		told = now
	}
}

func (s *space) say(d *Disk) {
	fields := []zap.Field{zap.String("rung", string(d.Rung)), zap.Int64("freeBytes", d.Free), zap.Bool("reserve", d.Reserve)}
	switch d.Rung {
	case DiskOK:
		s.log.Info("the disk has space again", fields...)
	case DiskWarn:
		s.log.Warn("the disk is filling up", fields...)
	case DiskRefuse:
		s.log.Error("the disk is nearly full: nothing new is taken up, what waits can still be ended", fields...)
	case DiskFull:
		s.log.Error("the disk is full: nothing can be recorded, so nothing is let through", fields...)
	}
}

// look finds out how the disk is; full says that a write has just found no
// space.
func (s *space) look(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := *s.now.Load()
	s.since.Store(0)
	free, err := s.Free()
	if err != nil {
		if !s.blind {
			s.log.Error("cannot tell how full the disk is", zap.Error(err))
		}
		s.blind, free = true, was.Free
	} else {
		s.blind = false
		free -= s.growth()
	}
	if full {
		was.Rung = DiskFull
	}
	d := Disk{Rung: s.rung(was.Rung, free), Free: free, Reserve: was.Reserve}
	if s.Reserve > 0 && !d.Reserve && free >= max(leave(s.MinFree), leastAfterFull)+s.Reserve {
		if err := makeReserve(s.reserve, s.Reserve); err != nil {
			s.log.Error("cannot keep space for the last records", zap.Error(err))
		} else {
			d.Reserve, d.Free = true, free-s.Reserve
		}
	}
	s.now.Store(&d)
}

// growth is how much the database will take that it does not take yet: what is only
// in the write-ahead log.
func (s *space) growth() int64 {
	info, err := os.Stat(s.database)
	if err != nil {
		return 0
	}
	return max(0, s.pages.Load()-info.Size())
}

// rung is where the ladder leads from a rung with so much space.
func (s *space) rung(was Rung, free int64) Rung {
	low := was == DiskRefuse || was == DiskFull
	switch {
	case was == DiskFull && free < max(leave(s.MinFree), leastAfterFull):
		return DiskFull
	case free < s.MinFree, low && free < leave(s.MinFree):
		return DiskRefuse
	case free < s.WarnFree, was != DiskOK && free < leave(s.WarnFree):
		return DiskWarn
	}
	return DiskOK
}

// take counts what a change takes of the disk, until it is written or given back. It
// refuses one that begins something while the disk is nearly full, or would fill it,
// and one that ends something where nothing is left but what was the reserve.
func (s *space) take(c *Change, size int64) error {
	flying := s.flying.Add(size)
	if !s.on() || c.last() {
		return nil
	}
	d := s.now.Load()
	if s.suffices(c, d, flying+s.since.Load()) {
		return nil
	}
	if d.Rung == DiskOK || d.Rung == DiskWarn {
		// So much was written since, or is about to be, that it is time to look.
		s.look(false)
		s.poke()
		if d = s.now.Load(); s.suffices(c, d, flying) {
			return nil
		}
	}
	s.flying.Add(-size)
	if c.drains() {
		return fmt.Errorf("%w: what is left of the disk is kept for people's decisions and the daemon's end, until there is space", ErrFull)
	}
	return fmt.Errorf("%w: %d MiB are free, store.min_free_bytes asks for %d; nothing new is taken up until there is space",
		ErrLow, max(0, d.Free)>>20, s.MinFree>>20)
}

// suffices reports whether a change may be written to a disk, besides others that
// take so much.
func (s *space) suffices(c *Change, d *Disk, taken int64) bool {
	low := d.Rung == DiskRefuse || d.Rung == DiskFull
	switch {
	case c.drains():
		// On a disk that was full the reserve may have been given up.
		return d.Rung != DiskFull || d.Reserve || s.Reserve == 0 || d.Free-taken >= s.Reserve
	case s.MinFree == 0:
		return true
	}
	return !low && d.Free-taken >= s.MinFree
}

// written counts a change as one that the next look at the disk will see.
func (s *space) written(size int64) {
	s.since.Add(size)
	s.flying.Add(-size)
}

// giveBack uncounts a change that was not written.
func (s *space) giveBack(size int64) { s.flying.Add(-size) }

// full looks at once after a write that found no space.
func (s *space) full() {
	if !s.on() {
		return
	}
	s.look(true)
	s.poke()
}

func (s *space) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// release gives the reserve up, and reports whether there was one.
func (s *space) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := *s.now.Load()
	if !d.Reserve {
		return false
	}
	err := os.Remove(s.reserve)
	d.Reserve = false
	s.now.Store(&d)
	if err != nil {
		s.log.Error("cannot give up the space kept for the last records", zap.Error(err))
		return false
	}
	s.log.Warn("the space kept for the last records is in use", zap.Int64("bytes", s.Reserve))
	return true
}

// makeRoom gives the reserve up where there is not enough space to open a
// database at all: whoever decides about what waits must be able to.
func (s *space) makeRoom() {
	if d := s.now.Load(); d.Free < leastAfterFull && s.release() {
		s.look(false)
	}
}

// explain says of a failure on a full disk what to do about it.
func (s *space) explain(err error) error {
	free, failed := s.Free()
	if failed != nil || free >= leastAfterFull {
		return err
	}
	dir := filepath.Dir(s.reserve)
	return fmt.Errorf("cannot start: the disk of %s is full (%d KiB are free, and opening the store takes up to %d KiB); free some space and start again: %w",
		dir, free>>10, leastAfterFull>>10, err)
}

// makeReserve makes a file whose space is taken, not only promised.
func makeReserve(path string, size int64) (err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot make the reserve: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the reserve: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("cannot make the reserve: %w", err), os.Remove(path))
		}
	}()
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	// A file system that cannot set space aside takes it for what is written.
	block := make([]byte, 1<<20)
	for size > 0 {
		n := min(size, int64(len(block)))
		if _, err := f.Write(block[:n]); err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// Disk returns how the disk was when it was last looked at.
func (s *Store) Disk() Disk {
	if !s.space.on() {
		// Nobody looks by the clock.
		s.space.look(false)
	}
	return *s.space.now.Load()
}

// writeFull goes on with a batch that found no space: people's decisions and the
// daemon's end are tried once more, on the reserve where there still is one.
// Everything else fails.
func (s *Store) writeFull(batch []*pending, full error) {
	s.space.full()
	var last []*pending
	for _, p := range batch {
		if p.err = full; p.last() {
			last = append(last, p)
		}
	}
	if len(last) == 0 || !s.space.release() && len(last) == len(batch) {
		return
	}
	err := s.writeBatch(last)
	for _, p := range last {
		p.end(err)
	}
}
