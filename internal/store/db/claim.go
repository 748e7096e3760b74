package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse means that another process has claimed the database.
	ErrInUse = errors.New("cannot start: another daemon is using the database")
	// ErrRunning means that a running daemon has claimed the database; ask it instead.
	ErrRunning = errors.New("a daemon is using the database")
)

// File is a database's file that this process has claimed: until it is closed, no other process
// opens it with this package.
type File struct {
	// Made says that there was no file, or an empty one.
	Made bool

	path string
	file *os.File
	// ours says that this process made the file.
	ours bool
}

// Claim claims the file of a database with the schema, and makes it if there is none. It refuses
// the file of another program or of a newer daemon without changing it.
func (s *Schema) Claim(path string) (*File, error) {
	if err := s.refuseForeign(path); err != nil {
		return nil, err
	}
	file, made, ours, err := claimFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{Made: made, path: path, file: file, ours: ours}
	if !made {
		if f.Made, err = s.blank(path); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Abandon gives the file up. If this process made it, it is still empty: Abandon removes it, and
// the write-ahead log too if SQLite has opened it. An empty file that was there before stays.
func (f *File) Abandon(opened bool) error {
	var err error
	if f.ours {
		err = removeIfThere(f.path)
		if opened {
			err = errors.Join(err, removeIfThere(f.path+"-wal"))
		}
	}
	return errors.Join(err, f.Close())
}

// Close gives the file up, after all its connections are closed.
func (f *File) Close() error { return f.file.Close() }

// claimFile takes the file for this process alone: two processes that write one log would fork it,
// whatever SQLite's own locks allow. Made says that the file is empty. This is checked after the
// claim: the process that made the file may have ended, or lost it to another, before that. Ours
// says that this call made the file. The lock belongs to the file, whatever its name, and ends with
// the process. It is separate from SQLite's locks, which are lost when any descriptor of the file
// is closed: so this one is closed last.
func claimFile(path string) (f *os.File, made, ours bool, err error) {
	for {
		// SQLite makes files by the umask; evidence is for its owner alone.
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if ours = err == nil; errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		}
		if err != nil {
			return nil, false, false, fmt.Errorf("cannot open the store: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s", ErrInUse, path)
		} else if err != nil {
			err = fmt.Errorf("cannot lock the store: %w", err)
		}
		var info, named fs.FileInfo
		if err == nil {
			info, err = f.Stat()
		}
		if err == nil {
			named, err = os.Stat(path)
		}
		switch {
		case err == nil && os.SameFile(info, named):
			return f, info.Size() == 0, ours, nil
		case err == nil, errors.Is(err, fs.ErrNotExist):
			// Another process had made the file and has given it up.
			if err := f.Close(); err != nil {
				return nil, false, false, fmt.Errorf("cannot open the store: %w", err)
			}
		default:
			return nil, false, false, errors.Join(err, f.Close())
		}
	}
}

// unclaimed returns [ErrRunning] if a store has the file, see [Schema.Claim].
func unclaimed(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	// Closing the file releases the lock at once.
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("cannot read %s: %w", path, ErrRunning)
	} else if err != nil {
		// No daemon runs on a file system without such locks.
		err = nil
	}
	return errors.Join(err, f.Close())
}
