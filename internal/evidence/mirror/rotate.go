package mirror

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// rotationDue returns the time at which the live file is old enough, or zero if age does not rotate
// it.
func (m *Mirror) rotationDue() time.Time {
	l := &m.live
	if m.o.RotateAge == 0 || l.size == 0 || l.file == nil {
		return time.Time{}
	}
	due := l.since.Add(m.o.RotateAge)
	if due.Before(l.rotateFrom) {
		due = l.rotateFrom
	}
	return due
}

// rotate makes the live file a segment and begins another. If that fails, the live file is used
// further for a while.
func (m *Mirror) rotate() bool {
	err := m.rotateFile()
	m.note("cannot rotate the audit mirror", &m.rotating, err)
	if err != nil {
		m.live.rotateFrom = m.o.Clock().Add(rotateAgain)
	}
	return err == nil
}

func (m *Mirror) rotateFile() error {
	l, step := &m.live, m.o.step
	r := span{l.base + 1, m.Mirrored()}
	plain := m.layout.path(m.layout.plain(r))
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("cannot sync the live file: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &info); err != nil {
		return fmt.Errorf("cannot inspect the live file: %w", err)
	}
	step("live file synced")
	old := l.id.Swap(nil)
	if err := rename(m.layout.live, plain); err != nil {
		l.id.Store(old)
		return fmt.Errorf("cannot rename the live file: %w", err)
	}
	step("live file renamed")
	next, err := createLike(m.layout.live, &info)
	if err != nil {
		err = fmt.Errorf("cannot begin a live file: %w", err)
		if back := rename(plain, m.layout.live); back != nil {
			l.lose("could not be made again when it was rotated")
			l.base, l.size = r.last, 0
			m.enqueue(r)
			return errors.Join(err, back, l.close())
		}
		l.id.Store(old)
		return err
	}
	step("live file made")
	before := l.file
	l.file, l.size, l.begun, l.base, l.since = next, 0, 0, r.last, time.Time{}
	l.publish(&info)
	m.enqueue(r)
	return errors.Join(before.Close(), syncDir(m.layout.dir))
}

// createLike makes a file with the permissions of another. It replaces that one's description by
// the new file's.
func createLike(path string, info *unix.Stat_t) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err = f.Chmod(fs.FileMode(info.Mode & 0o777)); err == nil {
		err = unix.Fstat(int(f.Fd()), info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}
