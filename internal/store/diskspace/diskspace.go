// Package diskspace watches the disk of a file that must keep growing, and says which changes may
// still be written to it. As the disk fills up, it allows less: first everything with a warning, then
// nothing new, then only changes that end something. At last it allows people's decisions and the
// end itself, on a reserve that is kept for them.
//
// A writer calls [Monitor.Take] before, and afterwards reports whether it wrote.
package diskspace

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

// Errors of [Monitor.Take].
var (
	// ErrLow means that the disk is nearly full: nothing new is accepted, and changes that end
	// something are still written.
	ErrLow = errors.New("the disk is nearly full")
	// ErrFull means that the disk is full.
	ErrFull = errors.New("the disk is full")
)

// Use is the purpose of a write.
type Use int

// The uses. Changes that begin something are refused first. Changes that end something are written
// as long as there is more than the reserve, and the last records always.
const (
	Begin Use = iota
	End
	Last
)

// Level says how full the disk is.
type Level string

// The levels, in order. From [Refuse] on, nothing new begins. [Full] means that a write found no
// space.
const (
	OK     Level = "ok"
	Warn   Level = "warn"
	Refuse Level = "refuse"
	Full   Level = "full"
)

// Disk is the state of the disk.
type Disk struct {
	Level Level
	// Free is how many bytes the daemon's user may still write, less those that the write-ahead log
	// will take in the file.
	Free int64
	// Reserve says whether the space for the last records is reserved.
	Reserve bool
}

// Options set the limits of a filling disk. The zero value sets none: only a full disk refuses.
type Options struct {
	// WarnFree and MinFree are the bytes that must be free for [OK] and
	// for anything new. Zero leaves out the level.
	WarnFree, MinFree int64
	// Reserve is the size in bytes of a file beside the growing one, which is deleted once for the
	// last records; zero keeps none.
	Reserve int64
	// Every is how often free space is checked; zero is 1 s.
	Every time.Duration
	// Free returns the free bytes; nil asks statfs(2) for the file's directory.
	Free func() (int64, error)
}

// On reports whether there are limits.
func (o *Options) On() bool { return o.WarnFree > 0 || o.MinFree > 0 || o.Reserve > 0 }

// leave returns the free space at which a level ends: an eighth more than its beginning, so that
// a disk at the limit does not change its level every second.
func leave(limit int64) int64 { return limit + limit/8 }

// Least is the free space that is needed after a write found none, if no limit is set.
const Least = 1 << 20

// Monitor watches the disk. Its methods are safe for concurrent use.
type Monitor struct {
	Options
	reserve string
	log     *zap.Logger

	now  atomic.Pointer[Disk]
	wake chan struct{}
	// file is the growing file, and size its future length, see [Monitor.Grown].
	file string
	size atomic.Int64
	// flying counts the bytes of current writes, and since those written after the last check of
	// the disk.
	flying, since atomic.Int64

	// mu makes a check and its consequences one step.
	mu sync.Mutex
	// blind is set while free space is unknown.
	blind bool
}

// New checks the disk of a file and makes the reserve.
func New(o Options, file string, log *zap.Logger) *Monitor {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Free == nil {
		dir := filepath.Dir(file)
		o.Free = func() (int64, error) { return freeBytes(dir) }
	}
	s := &Monitor{Options: o, file: file, reserve: file + ".reserve", log: log, wake: make(chan struct{}, 1)}
	info, err := os.Lstat(s.reserve)
	s.now.Store(&Disk{Level: OK, Reserve: err == nil && info.Mode().IsRegular() && info.Size() == o.Reserve && o.Reserve > 0})
	s.Look(false)
	return s
}

// freeBytes returns how many bytes an ordinary user may still write in a directory.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot tell the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Run checks regularly until the context ends, and records each change of the level.
func (s *Monitor) Run(ctx context.Context, record func(was, now Disk) error) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	told := Disk{Level: OK}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticker.C:
			s.Look(false)
		}
		now := *s.now.Load()
		if now.Level == told.Level {
			continue
		}
		s.say(&now)
		if err := record(told, now); err != nil {
			s.log.Error("cannot record how the disk is", zap.Error(err))
		}
		told = now
	}
}

func (s *Monitor) say(d *Disk) {
	fields := []zap.Field{zap.String("disk", string(d.Level)), zap.Int64("freeBytes", d.Free), zap.Bool("reserve", d.Reserve)}
	switch d.Level {
	case OK:
		s.log.Info("the disk has space again", fields...)
	case Warn:
		s.log.Warn("the disk is filling up", fields...)
	case Refuse:
		s.log.Error("the disk is nearly full: nothing new is taken up, what waits can still be ended", fields...)
	case Full:
		s.log.Error("the disk is full: nothing can be recorded, so nothing is let through", fields...)
	}
}

// Look checks the disk. Full says that a write has just found no space.
func (s *Monitor) Look(full bool) {
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
		was.Level = Full
	}
	d := Disk{Level: s.level(was.Level, free), Free: free, Reserve: was.Reserve}
	if s.Reserve > 0 && !d.Reserve && free >= s.Kept()+s.Reserve {
		if err := makeReserve(s.reserve, s.Reserve); err != nil {
			s.log.Error("cannot keep space for the last records", zap.Error(err))
		} else {
			d.Reserve, d.Free = true, free-s.Reserve
		}
	}
	s.now.Store(&d)
}

// Kept returns the space that must stay free, even if other programs fill the disk.
func (s *Monitor) Kept() int64 { return max(leave(s.MinFree), Least) }

// Grown sets the future length of the file, when everything in the write-ahead log is in it too.
func (s *Monitor) Grown(size int64) { s.size.Store(size) }

// growth returns how many bytes the file will still grow.
func (s *Monitor) growth() int64 {
	info, err := os.Stat(s.file)
	if err != nil {
		return 0
	}
	return max(0, s.size.Load()-info.Size())
}

// level returns the level that follows another at so much free space.
func (s *Monitor) level(was Level, free int64) Level {
	low := was == Refuse || was == Full
	switch {
	case was == Full && free < s.Kept():
		return Full
	case free < s.MinFree, low && free < leave(s.MinFree):
		return Refuse
	case free < s.WarnFree, was != OK && free < leave(s.WarnFree):
		return Warn
	}
	return OK
}

// Take counts so many bytes as taken, until they are written or given back. It refuses changes that
// begin something while the disk is nearly full or would become so, and changes that end something
// if only the reserve is left.
func (s *Monitor) Take(use Use, size int64) error {
	flying := s.flying.Add(size)
	if !s.On() || use == Last {
		return nil
	}
	d := s.now.Load()
	if s.suffices(use, d, flying+s.since.Load()) {
		return nil
	}
	if d.Level == OK || d.Level == Warn {
		// So many bytes were written or are about to be that the disk must be checked.
		s.Look(false)
		s.wakeUp()
		if d = s.now.Load(); s.suffices(use, d, flying) {
			return nil
		}
	}
	s.flying.Add(-size)
	if use == End {
		return fmt.Errorf("%w: what is left of the disk is kept for people's decisions and the daemon's end, until there is space", ErrFull)
	}
	return fmt.Errorf("%w: %d MiB are free, store.min_free_bytes asks for %d; nothing new is taken up until there is space",
		ErrLow, max(0, d.Free)>>20, s.MinFree>>20)
}

// suffices reports whether a write may go to a disk, besides so many bytes that are taken already.
func (s *Monitor) suffices(use Use, d *Disk, taken int64) bool {
	low := d.Level == Refuse || d.Level == Full
	switch {
	case use == End:
		// On a full disk the reserve may have been given up.
		return d.Level != Full || d.Reserve || s.Reserve == 0 || d.Free-taken >= s.Reserve
	case s.MinFree == 0:
		return true
	}
	return !low && d.Free-taken >= s.MinFree
}

// Written counts bytes as written, which the next check of the disk will see.
func (s *Monitor) Written(size int64) {
	s.since.Add(size)
	s.flying.Add(-size)
}

// GiveBack uncounts bytes that were not written.
func (s *Monitor) GiveBack(size int64) { s.flying.Add(-size) }

// Filled checks the disk right after a write that found no space.
func (s *Monitor) Filled() {
	if !s.On() {
		return
	}
	s.Look(true)
	s.wakeUp()
}

func (s *Monitor) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Release gives the reserve up, and reports whether there was one.
func (s *Monitor) Release() bool {
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

// MakeRoom gives the reserve up if there is not even enough space to open the file: people must be
// able to decide pending requests.
func (s *Monitor) MakeRoom() {
	if d := s.now.Load(); d.Free < Least && s.Release() {
		s.Look(false)
	}
}

// startBytes is less than the records of any start.
const startBytes = 64 << 10

// MayStart refuses a disk on which not even a start could be recorded.
func (s *Monitor) MayStart() error {
	if free, err := s.Free(); err == nil && free < startBytes {
		return s.Explain(ErrFull)
	}
	return nil
}

// Explain adds advice to a failure on a full disk.
func (s *Monitor) Explain(err error) error {
	free, failed := s.Free()
	if failed != nil || free >= Least {
		return err
	}
	dir := filepath.Dir(s.reserve)
	return fmt.Errorf("cannot start: the disk of %s is full (%d KiB are free, and opening the store takes up to %d KiB); free some space and start again: %w",
		dir, free>>10, Least>>10, err)
}

// makeReserve makes a file whose space is allocated.
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
	// A file system that cannot allocate space in advance allocates it for written data.
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

// Now returns the state of the disk at the last check.
func (s *Monitor) Now() Disk {
	if !s.On() {
		// No timer checks it.
		s.Look(false)
	}
	return *s.now.Load()
}
