package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"golang.org/x/sys/unix"
)

// LostError says that a file of the store is no longer what it was: what is
// written now is written where nobody will find it.
type LostError struct {
	// What is lost ("the database"), the Path it is known by, and How.
	What, Path, How string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s %s %s under the running daemon", e.What, e.Path, e.How)
}

// watch notices that the database was taken away under the daemon. An open file
// goes on taking writes and fsyncs when its name is gone, so a commit alone
// shows nothing. It looks at names and never opens the files: closing any
// descriptor of them would drop SQLite's locks (POSIX advisory locks belong to
// the process).
type watch struct {
	// dir is the directory of the two companions, for shorter look-ups.
	dir int

	// mu makes looking and remembering one step: deliveries look too.
	mu   sync.Mutex
	main watched
	// log and index are the write-ahead log and its shared memory.
	log, index watched
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
	// shrinksTo is the size down to which the file may shrink. SQLite never
	// shortens the database (there is no VACUUM) nor the index, and the log
	// only to journal_size_limit.
	shrinksTo uint64
	// solid marks a file without holes. One that was cut and then written on
	// behind where its end had been is as long as ever, and has one.
	solid bool
}

// walLimit is the size that SQLite cuts the write-ahead log back to.
const walLimit = 64 << 20

// newWatch remembers the files of a database that was just opened.
func newWatch(path string) (*watch, error) {
	// SQLite keeps the companions beside the file that a link leads to.
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
	beside := func(what, suffix string) watched {
		return watched{what: what, path: target + suffix, dir: dir, name: filepath.Base(target) + suffix}
	}
	w := &watch{
		dir:  dir,
		main: watched{what: "the database", path: path, dir: unix.AT_FDCWD, name: path},
		log:  beside("the database's write-ahead log", "-wal"), index: beside("the database's shared memory", "-shm"),
	}
	w.log.shrinksTo, w.log.solid = walLimit, solid(dir)
	for _, f := range []*watched{&w.main, &w.log, &w.index} {
		if err := f.remember(); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *watch) close() error {
	if w == nil {
		return nil
	}
	if err := unix.Close(w.dir); err != nil {
		return fmt.Errorf("cannot close the store's directory: %w", err)
	}
	return nil
}

// check reports the first file that is lost. It is a few system calls that read
// names, no input or output.
func (w *watch) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.main.check(); err != nil {
		return err
	}
	if err := w.log.check(); err != nil {
		return err
	}
	return w.index.check()
}

// glance is check without the index, for before a transaction, where nothing is
// lost yet.
func (w *watch) glance() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.main.check(); err != nil {
		return err
	}
	return w.log.check()
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

// noticeLoss closes the store where one of its files is lost.
func (s *Store) noticeLoss(err error) error {
	if err == nil {
		return nil
	}
	s.latch(err)
	return fmt.Errorf("%w: %w", ErrLatched, err)
}

// UnreadableError means that a query failed in a store that is closed for writing:
// what is needed for a decision cannot be read any more.
type UnreadableError struct {
	// Closed is why the store was closed, Cause why the query failed.
	Closed, Cause error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: %v: %v", ErrLatched, e.Closed, e.Cause)
}

// Unwrap makes [ErrLatched] and the causes known.
func (e *UnreadableError) Unwrap() []error { return []error{ErrLatched, e.Closed, e.Cause} }

// OCIP returns the code of the protocol and the reason, which names the file that
// is lost, where one is.
func (e *UnreadableError) OCIP() (code ocip.Code, reason string) {
	why := "the audit store failed and is closed until the daemon is restarted"
	if lost, ok := errors.AsType[*LostError](e.Closed); ok {
		why = lost.Error() + "; nothing more is let through until the daemon is restarted"
	}
	return ocip.AuditWriteFailed, "cannot read what was recorded, so nothing was done: " + why
}

// readFailed looks at the files after a query that failed as on a broken disk: a
// file that was taken away is seen by whoever reads first, and the next commit may
// be long in coming.
func (s *Store) readFailed(err error) error {
	_ = s.noticeLoss(s.watch.check())
	if cause := s.Latched(); cause != nil {
		return &UnreadableError{Closed: cause, Cause: err}
	}
	return err
}

// mayWrite looks right before a batch goes to the disk, so that nothing is
// written where nobody will find it.
func (s *Store) mayWrite(batch []*pending) error {
	if err := s.noticeLoss(s.watch.glance()); err != nil {
		return err
	}
	if err := s.copies(batch); err != nil {
		return fmt.Errorf("%w: %w", ErrMirrorLost, err)
	}
	return nil
}

// copyPatience bounds how long a release waits for a copy of the log that was
// lost during the transaction and may be mended.
const copyPatience = 2 * time.Second

// mayRelease looks after a transaction. A copy of the log that is lost by now is
// waited for. What stays lost closes the store: the changes are in the database
// and their callers fail, so what the daemon remembers no longer agrees with
// what it has stored.
func (s *Store) mayRelease(batch []*pending) error {
	err := s.copies(batch)
	if err != nil {
		err = s.awaitCopies(batch)
	}
	if err == nil {
		err = s.watch.check()
	}
	return s.noticeLoss(err)
}

func (s *Store) awaitCopies(batch []*pending) error {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(copyPatience)
	defer limit.Stop()
	for {
		err := s.copies(batch)
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

// copies asks whether the copies of the log are there, where that matters.
func (s *Store) copies(batch []*pending) error {
	if s.alive == nil || !slices.ContainsFunc(batch, func(p *pending) bool { return p.refused == nil && p.releases() }) {
		return nil
	}
	return s.alive()
}

// headMark begins the line of the latch's mark that says where the log ended.
const headMark = "head "

// mark writes down why the store was closed and the last record that anything
// was released on. It is best effort: where the disk is gone, the next start
// fails by itself.
func (s *Store) mark(cause error) error {
	f, err := os.OpenFile(s.latchFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	head := s.Head()
	_, err = fmt.Fprintf(f, "%s\n%s%d %s\n", strings.ReplaceAll(cause.Error(), "\n", "; "), headMark, head.Seq, head.Hash)
	return errors.Join(err, f.Sync(), f.Close())
}

// matchMark compares the log with what a latched store had noted of it: a log
// that was cut or replaced meanwhile has records missing that things were
// released on, however sound it is in itself.
func (s *Store) matchMark(ctx context.Context, last uint64) error {
	text, err := os.ReadFile(s.latchFile())
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
		// The disk may have taken no more than half of the mark.
		return nil
	}
	missing := fmt.Sprintf("ends at record %d", last)
	if last >= noted.seq {
		line, err := s.Line(ctx, noted.seq)
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
		"or remove %s to go on without the records that are missing", noted.seq, missing, s.latchFile())
}
