package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"golang.org/x/sys/unix"
)

// Append opens a regular file to read and append, and makes it with a mode if it does not exist.
// The file must not be a link, must have one name, and must belong to this user or root. Append
// follows links above it only if this user or root made them. It does not follow one that appears
// meanwhile.
func Append(path string, mode fs.FileMode) (*os.File, error) {
	dir, name := filepath.Split(path)
	dir, err := fileowner.Unlinked(dir)
	if err != nil {
		return nil, err
	}
	f, err := open(unix.AT_FDCWD, filepath.Join(dir, name), unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS, mode)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: remove it, or name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	var info unix.Stat_t
	switch err = unix.Fstat(int(f.Fd()), &info); {
	case err != nil:
	case info.Nlink != 1:
		err = fmt.Errorf("%s has %d names (hard links), and another file would be written with it", path, info.Nlink)
	case info.Uid != 0 && info.Uid != uint32(os.Geteuid()):
		err = fmt.Errorf("%s belongs to user %d", path, info.Uid)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
