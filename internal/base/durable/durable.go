// Package durable writes small files so that a crash leaves the old content or
// the new one, and nothing between, and so that what was written is there
// afterwards: keys, cursors, manifests.
//
// The caller names a directory that only its own user can write to, and writes
// one file from one place at a time.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Replace puts a file in the place of what had its name. While it is being
// written it is called path with part behind, which a crash may leave.
func Replace(path, part string, mode fs.FileMode, content []byte) error {
	return replace(path, part, mode, nil, content)
}

func replace(path, part string, mode fs.FileMode, like fs.FileInfo, content []byte) error {
	if err := create(path+part, mode, like, content); err != nil {
		return err
	}
	if err := os.Rename(path+part, path); err != nil {
		return errors.Join(err, os.Remove(path+part))
	}
	return SyncDir(filepath.Dir(path))
}

// Create makes a new file in the place of what had its name, without following
// a link, and its content durable; its name is so after [SyncDir]. Where it fails
// nothing is left behind.
func Create(path string, mode fs.FileMode, content []byte) error {
	return create(path, mode, nil, content)
}

func create(path string, mode fs.FileMode, like fs.FileInfo, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if like != nil {
		err = errors.Join(err, Owned(f, like))
	}
	// The mode is what it says whatever the umask is.
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Owned gives a file the owner and the group of another that it takes the place of, where this
// user may: what an administrator changes stays legible to whom it belongs.
func Owned(f *os.File, like fs.FileInfo) error {
	was, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	err := f.Chown(int(was.Uid), int(was.Gid))
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

// Rewrite is [Replace] of a file that is there, and keeps its mode and its owner.
func Rewrite(path, part string, content []byte) error {
	like, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replace(path, part, like.Mode().Perm(), like, content)
}

// ErrNoFile means that something else has the name of a file.
var ErrNoFile = errors.New("it is no file")

// Open opens a file for reading. Whatever else has its name is not opened: a pipe
// would keep its reader waiting for ever.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, ErrNoFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a file as [Open] opens it.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	return text, errors.Join(err, f.Close())
}

// ReadUpTo reads a file as [Open] opens it, as a whole, or not at all where it has more than
// so many bytes.
func ReadUpTo(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, errors.Join(err, f.Close())
}

// SyncDir makes the names in a directory durable. Some file systems cannot, and
// say so by EINVAL: there a name is as durable as it gets.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, fs.ErrInvalid) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
