// Package fileintegrity notices that the files of an SQLite database were taken away, replaced or
// cut under the process that has them open. An open file goes on taking writes and fsyncs when its
// name is gone, so a commit alone shows nothing.
//
// It looks at names and never opens the files: closing any descriptor of them would drop SQLite's
// locks (POSIX advisory locks belong to the process). A writer checks before a transaction and
// after it.
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

// LostError says that a file is no longer the same: new data would be written to a file that nobody
// can find.
type LostError struct {
	// What names the lost file ("the database"), Path is its path, and How describes the loss.
	What, Path, How string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s %s %s under the running daemon", e.What, e.Path, e.How)
}

// Watch remembers the files of one database at the last check. Its methods are safe for concurrent
// use.
type Watch struct {
	// dir is the directory of the write-ahead log, for shorter look-ups.
	dir int

	// mu makes checking and remembering one step: deliveries check too.
	mu   sync.Mutex
	main watched
	// log is the write-ahead log. Its index is in memory: see db.openAlone.
	log watched
}

// solid reports whether a file system allocates space for all written data, so that a file that was
// fully written has no holes.
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

// watched is one file at the last check.
type watched struct {
	what, path string
	dir        int
	name       string
	dev, inode uint64
	size       uint64
	// shrinksTo is the size down to which the file may shrink. SQLite shortens the
	// log to journal_size_limit, and the database only as [Watch.Shrinks] says.
	shrinksTo uint64
	// solid marks a file without holes. If it was cut and then written on beyond its former end,
	// its length is the same, and it has a hole.
	solid bool
}

// New remembers the files of a database that was just opened. LogLimit is the size
// that SQLite cuts the write-ahead log back to, its journal_size_limit.
func New(path string, logLimit uint64) (*Watch, error) {
	// SQLite keeps the log beside the target of a symbolic link.
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

// Check reports the first lost file. It makes two system calls that read names, without input or
// output.
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

// Shrinks announces that the database's own process is about to shorten it to so many bytes. It may
// do so once.
func (w *Watch) Shrinks(to uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.main.shrinksTo = to
}

// Rewrites calls a function that changes both files in any way. No check runs meanwhile, and their
// new state becomes the expected one.
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

// look asks for the compared properties and nothing more. Above all it does not ask for times:
// after a query for its time of change, a file gets another one by its next write, and that write's
// fsync then must journal the inode besides the data (Linux 6.13, multigrain timestamps), a tenth
// of a commit.
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

// settling bounds how long a file may seem to have a hole.
const settling = 100 * time.Millisecond

// staysHoled checks until a file has no hole, and returns true if it keeps it. A check beside a
// write can see the new length before the new blocks: ext4 shows that once in some thousand checks,
// for up to a tenth of a millisecond, or as long as the writer gets no processor. A file that was
// cut keeps its hole.
func (f *watched) staysHoled() bool {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(settling)
	defer limit.Stop()
	for {
		if st, err := f.look(); err != nil || !holed(&st) {
			// The next check finds any other loss.
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
