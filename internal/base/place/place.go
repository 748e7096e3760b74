// Package place tells of a file whether it is its owner's alone: who else can
// change what is read of it, whether what is written to it goes anywhere else, and
// whether a file can be made at all. It looks, and touches nothing.
//
// The caller looks before it opens a file, and says what to do with what was
// found.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Single refuses what is not a file of one name: what is written to it would be
// written to somebody's file elsewhere.
func Single(what, path string) error {
	var info unix.Stat_t
	switch err := unix.Lstat(path, &info); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot look at %s %s: %w", what, path, err)
	case info.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("cannot use %s %s: it is a symbolic link, and what it leads to would be written to; remove it, or put the file itself there", what, path)
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("cannot use %s %s: it is no plain file; move it away", what, path)
	case info.Nlink > 1:
		return fmt.Errorf("cannot use %s %s: it has %d names (hard links), and another file would be written with it; if it is the daemon's, make it a file of its own "+
			"(cp -p it to another name, and mv that over it), else remove it", what, path, info.Nlink)
	}
	return nil
}

// Writable refuses a directory in which no file can be made. One that is not there
// is made by whoever needs it, so the one above it counts.
func Writable(dir, key string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", key, err)
	}
	err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	for errors.Is(err, fs.ErrNotExist) && dir != "/" {
		dir = filepath.Dir(dir)
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("cannot write to the directory %s: its file system is mounted read-only; mount it read-write, or name another place in %s", dir, key)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("cannot write to the directory %s: the daemon's user may not; give it to that user (chown, chmod u+rwx), or name another place in %s", dir, key)
	}
	return fmt.Errorf("cannot write to the directory %s: %w", dir, err)
}

// Same reports whether two paths lead to one file.
func Same(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
