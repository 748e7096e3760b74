// Package durable writes small files such as keys, cursors and manifests. After a crash, a file has
// either the old content or the new one. After a successful write, the new content is durable.
//
// The caller names a directory that only its own user can write to, and writes one file from one
// place at a time.
package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Replace replaces a file, or creates it. It first writes the new content under path with the
// suffix part. A crash may leave that file behind.
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

// Create makes a new file, in place of an earlier one of that name, without following a link. The
// content is durable, and the name is after [SyncDir]. If Create fails, it leaves nothing behind.
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
	// The mode must not depend on the umask.
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Owned gives a file the owner and the group of the file that it replaces, if this user may do so:
// a file that an administrator changes stays legible to its owner.
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

// Rewrite is [Replace] for a file that exists. It keeps the file's mode and owner.
func Rewrite(path, part string, content []byte) error {
	like, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replace(path, part, like.Mode().Perm(), like, content)
}

// ErrNoFile reports that a name belongs to something other than a regular file.
var ErrNoFile = errors.New("it is no file")

// Open opens a regular file for reading. It opens nothing else: a pipe would keep its reader
// waiting for ever.
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

// ReadUpTo reads a whole file as [Open] opens it. A file with more than that many bytes is an
// error.
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

// SyncDir makes the names in a directory durable. Some file systems cannot do that, and answer
// EINVAL. SyncDir ignores this, since the file system offers nothing better.
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

// Lock takes the exclusive lock of an open file or directory, which ends when that is closed. It waits for
// another holder until the context ends; then the file stays open until the process ends, which is soon.
func Lock(ctx context.Context, f *os.File) error {
	taken := make(chan error, 1)
	go func() { taken <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-taken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
