package place

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exposure is a file, a link or a directory by which a user other than this one
// and root can change what is read.
type Exposure struct {
	Path string
	// Mode is as chmod(1) has it.
	Mode uint32
	// Owner is set where the owner is the other user, and not where the mode lets
	// others write.
	Owner *uint32
}

// String says what is wrong, without the path.
func (e *Exposure) String() string {
	switch {
	case e.Owner != nil:
		return fmt.Sprintf("belongs to user %d", *e.Owner)
	case e.Mode&0o002 != 0:
		return fmt.Sprintf("can be written by everybody (mode %04o)", e.Mode)
	}
	return fmt.Sprintf("can be written by its group (mode %04o)", e.Mode)
}

// maxLinks bounds the symbolic links on the way to a file, as the kernel does.
const maxLinks = 40

// Exposed looks at a file, the directories above it and the links on the way, and
// returns all by which others can change what is read. In a directory with the
// sticky bit nobody can replace what is ours, so it may be written by others; and
// which group may write a directory of root's is the administrator's choice.
func Exposed(path string) (list []Exposure, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for range maxLinks {
		end, link := 0, ""
		for link == "" && end < len(path) {
			if next := strings.IndexByte(path[end+1:], filepath.Separator); next >= 0 {
				end += 1 + next
			} else {
				end = len(path)
			}
			at := path[:end]
			info, err := os.Lstat(at)
			if err != nil {
				return list, err
			}
			if e := exposure(at, info); e != nil && !seen[at] {
				list = append(list, *e)
			}
			seen[at] = true
			if info.Mode().Type() == fs.ModeSymlink {
				if link, err = os.Readlink(at); err != nil {
					return list, err
				}
				if !filepath.IsAbs(link) {
					link = filepath.Join(filepath.Dir(at), link)
				}
			}
		}
		if link == "" {
			return list, nil
		}
		path = filepath.Join(link, path[end:])
	}
	return list, &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
}

// exposure is what is wrong with one step of the way, nil where nothing is.
func exposure(path string, info fs.FileInfo) *Exposure {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	e := &Exposure{Path: path, Mode: stat.Mode & 0o7777}
	if stat.Uid != 0 && stat.Uid != uint32(os.Geteuid()) {
		e.Owner = &stat.Uid
		return e
	}
	open := stat.Mode & 0o022
	switch {
	case info.Mode().Type() == fs.ModeSymlink, info.IsDir() && info.Mode()&fs.ModeSticky != 0:
		// A link has no mode of its own.
		return nil
	case info.IsDir() && stat.Uid == 0:
		open &= 0o002
	}
	if open == 0 {
		return nil
	}
	return e
}
