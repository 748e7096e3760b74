// Package plainfile opens files at places where others can put something else meanwhile: a
// regular file, by no link, or nothing. Nothing is waited for, also not at a pipe or a
// device.
package plainfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that something else stands there.
var ErrNotRegular = errors.New("it is no regular file")

// Open opens a regular file, which is no link itself.
func Open(path string) (*os.File, error) {
	return open(unix.AT_FDCWD, path, unix.O_NOFOLLOW, unix.RESOLVE_NO_MAGICLINKS)
}

// OpenBeneath opens a regular file beneath a folder, by no link.
func OpenBeneath(folder, name string) (*os.File, error) {
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: folder, Err: err}
	}
	defer unix.Close(dir) //nolint:errcheck // nothing was written
	return open(dir, name, 0, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

func open(dir int, name string, flags, resolve uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY | flags, Resolve: resolve})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}

// SHA256 is the digest in hex of what a file has in it, as large as it is when it is begun:
// one that grows has no end.
func SHA256(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, info.Size())); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
