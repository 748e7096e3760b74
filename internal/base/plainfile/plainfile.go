// Package plainfile opens regular files in directories where others can swap them meanwhile. It
// follows no link, and opens nothing else. It never waits, not even at a pipe or a device.
package plainfile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular reports that the name belongs to something other than a regular file.
var ErrNotRegular = errors.New("it is no regular file")

// Open opens a regular file, not through a link of that name.
func Open(path string) (*os.File, error) {
	return open(unix.AT_FDCWD, path, unix.O_NOFOLLOW, unix.RESOLVE_NO_MAGICLINKS, 0)
}

// OpenBeneath opens a regular file beneath a folder, through no link.
func OpenBeneath(folder, name string) (*os.File, error) {
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: folder, Err: err}
	}
	defer unix.Close(dir) //nolint:errcheck // nothing was written
	return open(dir, name, 0, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS, 0)
}

func open(dir int, name string, flags, resolve uint64, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY | flags, Mode: uint64(mode.Perm()), Resolve: resolve,
	})
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

// SHA256 returns the digest of a file's content, in hex. It reads as many bytes as the file has at
// the start: a file that grows might never end.
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

// In returns a name relative to a folder, if it begins with the folder's own name. It keeps every
// element of the name: a ".." behind a link leads elsewhere.
func In(folder, name string) (string, bool) {
	if !filepath.IsAbs(name) {
		return name, true
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(folder, "/")+"/")
	return strings.TrimLeft(rest, "/"), ok && filepath.IsAbs(folder)
}

// Joined joins a folder and a name, and returns "" if the result is not absolute. Unlike
// [filepath.Join] it keeps every "..".
func Joined(folder, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if name == "" || !filepath.IsAbs(folder) {
		return ""
	}
	return strings.TrimSuffix(folder, "/") + "/" + name
}

// Beneath returns a path relative to the first of the folders that contains it, and that folder, or
// "". The path and the folders have no links and no "..": [Lead] returns such paths.
func Beneath(path string, folders ...string) (name, folder string) {
	for _, folder := range folders {
		if name, err := filepath.Rel(folder, path); path != "" && filepath.IsAbs(folder) && err == nil && filepath.IsLocal(name) {
			return name, folder
		}
	}
	return "", ""
}

// Folder returns the folder in which a command runs that names one, or none, in a workspace. If the
// folder exists, it returns the real name, so that a person sees the target of a link and the
// runner notices a change. It returns "" if neither is given.
func Folder(workspace, name string) string {
	dir := Joined(workspace, cmp.Or(name, "."))
	if found, _ := Lead("/", dir, nil); found != "" {
		return found
	}
	return dir
}
