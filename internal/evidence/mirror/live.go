package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// live is the file that is written to. Only the loop uses its fields, except id.
type live struct {
	file *os.File
	size int64
	// begun is the size up to which the system was told to write the file to the disk.
	begun int64
	// base is the record before the first line, and since the time of that line.
	base  uint64
	since time.Time
	// rotateFrom is the time from which a failed rotation may be tried again.
	rotateFrom time.Time
	// told is set while the caller knows of a loss that could not be repaired.
	told bool
	buf  []byte
	// id identifies the file under the name. It is nil while the file changes.
	id atomic.Pointer[identity]
}

// identity distinguishes one file from another. As long as the file is open, no other gets its
// number.
type identity struct {
	dev, ino uint64
	// size is the length of the complete writes.
	size atomic.Int64
	// lost is the reason that there is no such file.
	lost string
}

const ownerWrite = 0o200

// compare checks the file under a name and describes the problem, or returns "". It takes one
// system call.
func (id *identity) compare(path string) (problem string, now unix.Stat_t) {
	if id.lost != "" {
		return id.lost, now
	}
	written := id.size.Load()
	err := unix.Lstat(path, &now)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "was removed", now
	case err != nil:
		return "cannot be inspected: " + err.Error(), now
	case now.Dev != id.dev || now.Ino != id.ino:
		return "was replaced", now
	case now.Size < written:
		return fmt.Sprintf("was truncated from %d to %d bytes", written, now.Size), now
	case now.Mode&ownerWrite == 0:
		return "was made read-only", now
	}
	return "", now
}

// Check returns an error if the live file was removed, replaced, truncated or made read-only since
// it was opened. It takes one system call, may be called from anywhere, and fails until the mirror
// has restored the file. A mirror that lags, for example because the disk is full, is no such
// error.
func (m *Mirror) Check() error {
	for {
		id := m.live.id.Load()
		if id == nil {
			return nil
		}
		problem, _ := id.compare(m.layout.live)
		if problem == "" {
			return nil
		}
		// The mirror's own renames must not count as somebody else's.
		if m.live.id.Load() == id {
			m.alarm()
			return fmt.Errorf("the audit mirror %s %s", m.layout.live, problem)
		}
	}
}

// resolve returns the whole path of a mirror's live file. The name must be the file's only one, and
// no link: otherwise the mirror would write to somebody's file elsewhere.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot use the audit mirror: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("cannot make the audit mirror's directory: %w", err)
	}
	var info unix.Stat_t
	switch err := unix.Lstat(path, &info); {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", fmt.Errorf("cannot use the audit mirror %s: %w", path, err)
	case info.Mode&unix.S_IFMT == unix.S_IFLNK:
		return "", fmt.Errorf("cannot use the audit mirror %s: it is a symbolic link; remove it, or name the file itself in audit.mirror", path)
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("cannot use the audit mirror %s: it is not a regular file", path)
	case info.Nlink != 1:
		return "", fmt.Errorf("cannot use the audit mirror %s: it has %d names (hard links), and another file would be written with it; remove this one, and it is written anew from the database", path, info.Nlink)
	}
	return path, nil
}

// takeUp opens the live file after its last whole line, or makes it. The tail is the last record in
// segments.
func (m *Mirror) takeUp(ctx context.Context, tail uint64) error {
	f, err := os.OpenFile(m.layout.live, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the audit mirror: %w", err)
	}
	found, err := m.read(ctx, f, tail)
	if foreign, ok := errors.AsType[*unsound](err); ok {
		if err := f.Close(); err != nil {
			return fmt.Errorf("cannot close the audit mirror: %w", err)
		}
		if _, err := setAside(m.o, m.layout.live, foreign.cause); err != nil {
			return err
		}
		return m.takeUp(ctx, tail)
	}
	if err == nil {
		err = f.Truncate(found.size)
	}
	var info unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &info)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot open the audit mirror: %w", err), f.Close())
	}
	m.live.file, m.live.size, m.live.begun, m.live.base, m.live.since = f, found.size, found.size, found.base, found.since
	m.have.Store(found.have)
	m.live.publish(&info)
	if found.base > tail {
		m.enqueue(span{tail + 1, found.base})
	}
	return nil
}

// publish sets the file that is under the name from now on.
func (l *live) publish(info *unix.Stat_t) {
	id := &identity{dev: info.Dev, ino: info.Ino}
	id.size.Store(l.size)
	l.id.Store(id)
}

// content describes the records in a live file.
type content struct {
	size       int64
	base, have uint64
	since      time.Time
}

// read returns the content of a file. An [*unsound] error says why it does not belong to this
// mirror.
func (m *Mirror) read(ctx context.Context, f *os.File, tail uint64) (content, error) {
	c := content{base: tail, have: tail}
	foreign := func(format string, args ...any) (content, error) {
		return c, &unsound{f.Name(), fmt.Errorf(format, args...)}
	}
	line, size, err := lastLine(f)
	if err != nil {
		return c, err
	}
	if line == nil {
		ours, err := begins(ctx, m.o.Source, f, tail)
		if err == nil && !ours {
			return foreign("it is no part of the record that belongs there")
		}
		return c, err
	}
	last, err := audit.HeadOf(line)
	if err != nil {
		return foreign("its last line is %w", err)
	}
	stored, err := stored(ctx, m.o.Source, last.Seq)
	if err != nil {
		return c, err
	}
	same := bytes.Equal(stored, line)
	r := newLineReader()
	if err := r.open(io.NewSectionReader(f, 0, size), false); err != nil {
		return c, err
	}
	if line, err = r.next(); err != nil {
		return c, err
	}
	first, err := audit.Parse(line)
	if err == nil && !same && stored == nil {
		same, err = m.goesOn(ctx, first.Prev, last)
		if err != nil {
			return c, err
		}
	}
	switch {
	case err != nil:
		return foreign("its first line is %w", err)
	case !same:
		return foreign("its last line is not record %d of the database", last.Seq)
	case first.Seq > last.Seq:
		return foreign("it begins with record %d and ends with record %d", first.Seq, last.Seq)
	case first.Seq <= tail:
		return foreign("it begins with record %d, which a segment holds", first.Seq)
	}
	return content{size: size, base: first.Seq - 1, have: last.Seq, since: first.Time}, nil
}

// lastLine returns the last line with a newline, and its end. A crash left the text after it
// incomplete.
func lastLine(f *os.File) (line []byte, size int64, err error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	block := make([]byte, 64<<10)
	for start := end; start > 0 && size == 0; {
		n := min(int64(len(block)), start)
		start -= n
		if _, err := f.ReadAt(block[:n], start); err != nil {
			return nil, 0, err
		}
		size = start + int64(bytes.LastIndexByte(block[:n], '\n')) + 1
		if size == start {
			size = 0
		}
	}
	if size == 0 {
		return nil, 0, nil
	}
	line = make([]byte, min(size-1, lineBuffer))
	if _, err := f.ReadAt(line, size-1-int64(len(line))); err != nil {
		return nil, 0, err
	}
	return line[bytes.LastIndexByte(line, '\n')+1:], size, nil
}

// setAside renames a file that does not belong to the mirror. It may be somebody's evidence.
func setAside(o *Options, path string, why error) (aside string, err error) {
	for at := o.Clock().UnixNano(); ; at++ {
		aside = path + ".foreign-" + strconv.FormatInt(at, 10)
		switch err := rename(path, aside); {
		case err == nil:
			o.Log.Error("a file of the audit mirror does not belong to this database: set aside",
				zap.String("file", path), zap.String("as", aside), zap.NamedError("because", why))
			return aside, nil
		case !errors.Is(err, fs.ErrExist):
			return "", fmt.Errorf("cannot set %s aside: %w", path, err)
		}
	}
}

// rename is os.Rename, but never replaces a file.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS):
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	// Not every file system can do this in one step.
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: errors.Join(err, fs.ErrExist)}
	}
	return os.Rename(from, to)
}

// write appends whole lines, and rotates if they would not fit.
func (m *Mirror) write(lines [][]byte, upTo uint64) error {
	seq := upTo - uint64(len(lines))
	l := &m.live
	l.buf = l.buf[:0]
	for _, line := range lines {
		held := l.size + int64(len(l.buf))
		if m.o.RotateBytes > 0 && held > 0 && held+int64(len(line))+1 > m.o.RotateBytes && !m.o.Clock().Before(l.rotateFrom) {
			if err := m.append(seq); err != nil {
				return err
			}
			if m.rotate() {
				held = 0
			} else if l.file == nil {
				return nil
			}
		}
		if held == 0 {
			first, err := audit.HeadOf(line)
			if err != nil {
				return err
			}
			l.since = first.Time
		}
		l.buf = append(append(l.buf, line...), '\n')
		seq++
	}
	return m.append(seq)
}

// append writes the buffer. If a write fails halfway, it truncates the file to its last whole line.
func (m *Mirror) append(last uint64) error {
	l := &m.live
	if len(l.buf) == 0 {
		return nil
	}
	if _, err := l.file.Write(l.buf); err != nil {
		err = fmt.Errorf("cannot write the audit mirror: %w", err)
		cut := l.file.Truncate(l.size)
		// Only a write shows that a file system or a file was made read-only.
		switch {
		case errors.Is(err, unix.EROFS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			l.lose("was made read-only")
		case cut != nil:
			err = errors.Join(err, cut, l.close())
		}
		return err
	}
	l.size += int64(len(l.buf))
	l.buf = l.buf[:0]
	l.beginWriting()
	l.id.Load().size.Store(l.size)
	m.have.Store(last)
	return nil
}

// writeEvery is the number of bytes after which the system is told to write them to the disk.
const writeEvery = 1 << 20

// beginWriting has the system write the file to the disk bit by bit, and waits for nothing. Otherwise
// the sync of a rotation would write the whole file at once, and commits would wait for the disk
// meanwhile. A failure leaves it to that sync.
func (l *live) beginWriting() {
	if l.size-l.begun < writeEvery {
		return
	}
	_ = unix.SyncFileRange(int(l.file.Fd()), l.begun, l.size-l.begun, unix.SYNC_FILE_RANGE_WRITE)
	l.begun = l.size
}

// lose notes that there is no file to write to, whatever file has the name.
func (l *live) lose(why string) {
	l.id.Store(&identity{lost: why})
}

func (l *live) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return fmt.Errorf("cannot close the audit mirror: %w", err)
	}
	return nil
}

// restore checks the live file before a write. If the file is not as it was written, restore makes
// it again from the database.
func (m *Mirror) restore(ctx context.Context) error {
	l := &m.live
	problem, now := l.id.Load().compare(m.layout.live)
	alien := false
	switch {
	case problem == "" && l.file == nil:
		// An earlier write failed so badly that the file was given up.
		return m.takeUp(ctx, l.base)
	case problem == "" && now.Size > l.size:
		problem, alien = fmt.Sprintf("was written to by somebody else, %d bytes", now.Size-l.size), true
	case problem == "":
		return nil
	}
	if !l.told {
		m.log.Error("the audit mirror is not what was written", zap.String("file", m.layout.live), zap.String("problem", problem))
	}
	outcome, err := m.remake(ctx, problem, alien)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("it %s and cannot be restored: %w", problem, err)
		outcome = err.Error()
	} else {
		outcome = fmt.Sprintf("it %s; %s", problem, outcome)
	}
	if err == nil || !l.told {
		m.log.Warn("the audit mirror was lost", zap.String("outcome", outcome))
		if m.o.Lost != nil {
			m.o.Lost(outcome)
		}
	}
	l.told = err != nil
	return err
}

// remake repairs the live file and describes the repair.
func (m *Mirror) remake(ctx context.Context, problem string, alien bool) (done string, err error) {
	l := &m.live
	// From here on Check fails until there is a file again, even if the next one gets the same
	// number.
	l.lose(problem)
	var now unix.Stat_t
	switch err := unix.Lstat(m.layout.live, &now); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		if err := os.MkdirAll(m.layout.dir, 0o700); err != nil {
			return "", fmt.Errorf("cannot make the audit mirror's directory: %w", err)
		}
		done = "it was made anew and is written from the database"
	case err != nil:
		return "", fmt.Errorf("cannot inspect the audit mirror: %w", err)
	case l.owns(&now) && !alien:
		if err := l.file.Chmod(fs.FileMode(now.Mode&0o777 | 0o600)); err != nil {
			return "", fmt.Errorf("cannot make the audit mirror writable: %w", err)
		}
		done = "the missing records are written from the database"
	default:
		aside, err := setAside(m.o, m.layout.live, errors.New("it "+problem))
		if err != nil {
			return "", err
		}
		done = fmt.Sprintf("the file that was there is kept as %s, and a new one is written from the database", filepath.Base(aside))
	}
	if err := l.close(); err != nil {
		return "", err
	}
	if err := m.takeUp(ctx, l.base); err != nil {
		return "", err
	}
	return done, m.keepManifest()
}

// owns reports whether the file under the name is the open file.
func (l *live) owns(now *unix.Stat_t) bool {
	var ours unix.Stat_t
	return l.file != nil && unix.Fstat(int(l.file.Fd()), &ours) == nil && now.Dev == ours.Dev && now.Ino == ours.Ino
}
