// Package plainfile opens files at places where others can put something else meanwhile: a
// regular file, by no link, or nothing. Nothing is waited for, also not at a pipe or a
// device.
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

// ErrNotRegular says that something else stands there.
var ErrNotRegular = errors.New("it is no regular file")

// Open opens a regular file, which is no link itself.
func Open(path string) (*os.File, error) {
	return open(unix.AT_FDCWD, path, unix.O_NOFOLLOW, unix.RESOLVE_NO_MAGICLINKS, 0)
}

// OpenBeneath opens a regular file beneath a folder, by no link.
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

// In is what a name is called from a folder on, if it begins with the folder's own name.
// Nothing in it is taken away before it is opened: ".." behind a link leads elsewhere.
func In(folder, name string) (string, bool) {
	if !filepath.IsAbs(name) {
		return name, true
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(folder, "/")+"/")
	return strings.TrimLeft(rest, "/"), ok && filepath.IsAbs(folder)
}

// Joined is a name as it stands in a folder, and "" if neither says where that is. Unlike
// [filepath.Join] it takes no ".." away.
func Joined(folder, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	if name == "" || !filepath.IsAbs(folder) {
		return ""
	}
	return strings.TrimSuffix(folder, "/") + "/" + name
}

// Beneath is what a path is called from the first of some folders on that it is in, and which
// one that is. It is "" where it is in none. The path and the folders have no links and no
// "..": [Lead] says them.
func Beneath(path string, folders ...string) (name, folder string) {
	for _, folder := range folders {
		if name, err := filepath.Rel(folder, path); path != "" && filepath.IsAbs(folder) && err == nil && filepath.IsLocal(name) {
			return name, folder
		}
	}
	return "", ""
}

// Folder is where a command begins that says one, or none, in a workspace: by its real name,
// where there is such a folder, so that a person sees where a link leads and the runner finds
// it changed. It is "" where nobody says.
func Folder(workspace, name string) string {
	dir := Joined(workspace, cmp.Or(name, "."))
	if found, _ := Lead("/", dir, nil); found != "" {
		return found
	}
	return dir
}
