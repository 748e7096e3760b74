// Package fileintegrity notices that the files of an SQLite database were taken away,
// replaced or cut under the process that has them open. An open file goes on taking
// writes and fsyncs when its name is gone, so a commit alone shows nothing.
//
// It looks at names and never opens the files: closing any descriptor of them would
// drop SQLite's locks (POSIX advisory locks belong to the process). Whoever writes
// looks before a transaction and after it.
package fileintegrity

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// LostError says that a file is no longer what it was: what is
// written now is written where nobody will find it.
type LostError struct {
	// What is lost ("the database"), the Path it is known by, and How.
	What, Path, How string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s %s %s under the running daemon", e.What, e.Path, e.How)
}

// Watch knows the files of one database as they were last seen. Its methods are safe
// for concurrent use.
type Watch struct {
	// dir is the directory of the write-ahead log, for shorter look-ups.
	dir int

	// mu makes looking and remembering one step: deliveries look too.
	mu   sync.Mutex
	main watched
	// log is the write-ahead log. Its index is in memory: see store.openAlone.
	log watched
}

// solid reports whether a file system takes space for what is written as it is,
// so that a file in which everything was written has no holes.
func solid(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// watched is one file as it was last seen.
type watched struct {
	what, path string
	dir        int
	name       string
	dev, inode uint64
	size       uint64
	// shrinksTo is the size down to which the file may shrink. SQLite shortens the
	// log to journal_size_limit, and the database only as [Watch.Shrinks] says.
	shrinksTo uint64
	// solid marks a file without holes. One that was cut and then written on
	// behind where its end had been is as long as ever, and has one.
	solid bool
}

// New remembers the files of a database that was just opened. LogLimit is the size
// that SQLite cuts the write-ahead log back to, its journal_size_limit.
func New(path string, logLimit uint64) (*Watch, error) {
	// SQLite keeps the log beside the file that a link leads to.
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot watch the store: %w", err)
	}
	dir, err := unix.Open(filepath.Dir(target), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the store's directory: %w", err)
	}
	w := &Watch{
		dir:  dir,
		main: watched{what: "the database", path: path, dir: unix.AT_FDCWD, name: path},
		log: watched{
			what: "the database's write-ahead log", path: target + "-wal", dir: dir, name: filepath.Base(target) + "-wal",
			shrinksTo: logLimit, solid: solid(dir),
		},
	}
	for _, f := range []*watched{&w.main, &w.log} {
		if err := f.remember(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error {
	if w == nil {
		return nil
	}
	if err := unix.Close(w.dir); err != nil {
		return fmt.Errorf("cannot close the store's directory: %w", err)
	}
	return nil
}

// Check reports the first file that is lost. It is two system calls that read names,
// no input or output.
func (w *Watch) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.check()
}

func (w *Watch) check() error {
	if err := w.main.check(); err != nil {
		return err
	}
	return w.log.check()
}

// Shrinks says to how many bytes the database is about to be made shorter by its own
// process. It may be, once.
func (w *Watch) Shrinks(to uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.main.shrinksTo = to
}

// Rewrites has both files changed in whatever way by their own process. Nobody looks
// meanwhile, and what they are afterwards is what they are to be.
func (w *Watch) Rewrites(change func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	w.main.size, w.main.shrinksTo, w.log.size = 0, 0, 0
	return w.check()
}

// look asks for what the watch compares and nothing more. Above all it does not
// ask for times: a file whose time of change was asked for gets another one by its
// next write, and that write's fsync then has the inode to journal besides the
// data (Linux 6.13, multigrain timestamps), a tenth of a commit.
func (f *watched) look() (st unix.Statx_t, err error) {
	const compared = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_SIZE | unix.STATX_BLOCKS
	err = unix.Statx(f.dir, f.name, unix.AT_STATX_SYNC_AS_STAT, compared, &st)
	return st, err
}

func (f *watched) remember() error {
	st, err := f.look()
	if err != nil {
		return fmt.Errorf("cannot watch %s %s: %w", f.what, f.path, err)
	}
	f.dev, f.inode, f.size = device(&st), st.Ino, st.Size
	return nil
}

func device(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

func holed(st *unix.Statx_t) bool { return st.Blocks*512 < st.Size }

// settling bounds how long a file may look as if it had a hole.
const settling = 100 * time.Millisecond

// staysHoled looks until a file has no hole, and reports true where it keeps it. A
// look beside a write can see the new length before the blocks that were taken for
// it: ext4 shows that once in some thousand looks, for up to a tenth of a
// millisecond, or as long as the writer is kept off its processor. What was cut
// stays as it is.
func (f *watched) staysHoled() bool {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(settling)
	defer limit.Stop()
	for {
		if st, err := f.look(); err != nil || !holed(&st) {
			// Another reason is found by the next look.
			return false
		}
		select {
		case <-again.C:
		case <-limit.C:
			return true
		}
	}
}

func (f *watched) check() error {
	st, err := f.look()
	var how string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		how = "is gone"
	case err != nil:
		how = fmt.Sprintf("cannot be looked at (%v)", err)
	case device(&st) != f.dev || st.Ino != f.inode:
		how = "was replaced"
	case st.Size < f.size && (f.shrinksTo == 0 || st.Size < min(f.size, f.shrinksTo)):
		how = fmt.Sprintf("was cut from %d to %d bytes", f.size, st.Size)
	case f.solid && holed(&st) && f.staysHoled():
		how = "was cut, and written on"
	case st.Mode&unix.S_IWUSR == 0:
		how = "was made read-only"
	default:
		f.size = st.Size
		return nil
	}
	return &LostError{What: f.what, Path: f.path, How: how}
}
