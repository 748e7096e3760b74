// Package fileowner checks whether a file is its owner's alone: whether others can change its content,
// whether data written to it also goes elsewhere, and whether a file can be made at all. It only
// looks, and changes nothing.
//
// The caller checks before it opens a file, and decides what to do about the result.
package fileowner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Single refuses a file with several names, and anything that is no file: a write would change
// somebody's file elsewhere.
func Single(what, path string) error {
	var info unix.Stat_t
	switch err := unix.Lstat(path, &info); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot look at %s %s: %w", what, path, err)
	case info.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("cannot use %s %s: it is a symbolic link, and its target would be written to; remove it, or put the file itself there", what, path)
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("cannot use %s %s: it is no plain file; move it away", what, path)
	case info.Nlink > 1:
		return fmt.Errorf("cannot use %s %s: it has %d names (hard links), and another file would be written with it; if it is the daemon's, make it a file of its own "+
			"(cp -p it to another name, and mv that over it), else remove it", what, path, info.Nlink)
	}
	return nil
}

// Writable refuses a directory in which no file can be made. If the directory does not exist, its
// user will make it, so the one above it counts.
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
