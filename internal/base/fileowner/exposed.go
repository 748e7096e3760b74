package fileowner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Exposure is a file, a link or a directory by which a user other than this one and root can change
// the content that is read.
type Exposure struct {
	Path string
	// Mode is the mode as for chmod(1).
	Mode uint32
	// Owner is set if the owner is the other user, and nil if the mode lets others write.
	Owner *uint32
}

// String describes the problem, without the path.
func (e *Exposure) String() string {
	switch {
	case e.Owner != nil:
		return fmt.Sprintf("belongs to user %d", *e.Owner)
	case e.Mode&0o002 != 0:
		return fmt.Sprintf("can be written by everybody (mode %04o)", e.Mode)
	}
	return fmt.Sprintf("can be written by its group (mode %04o)", e.Mode)
}

// Exposed inspects a file, the directories above it and the links on the way. It returns all of
// them by which others can change the content that is read. Others may write to a directory with
// the sticky bit, since they cannot replace this user's files there. The administrator decides
// which group may write to a directory that root owns.
func Exposed(path string) (list []Exposure, err error) {
	seen := map[string]bool{}
	err = Walk(path, func(s Step) error {
		if e := exposure(s.Path, s.Info); e != nil && !seen[s.Path] {
			list = append(list, *e)
		}
		seen[s.Path] = true
		return nil
	})
	return list, err
}

// exposure returns the problem with one step of the way, or nil.
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

// Unlinked returns the path of a directory without links. It refuses a path with a link that a user
// other than this one and root could have made.
func Unlinked(dir string) (string, error) {
	return follow(dir, func(s Step) error {
		if s.Info.Mode().Type() != fs.ModeSymlink {
			return nil
		}
		above, err := os.Lstat(s.Dir)
		if err != nil {
			return err
		}
		for _, e := range []*Exposure{exposure(s.Path, s.Info), exposure(s.Dir, above)} {
			if e != nil {
				return fmt.Errorf("%s is a symbolic link that others could have made: %s %s; name its target", s.Path, e.Path, e)
			}
		}
		return nil
	})
}

// errOthers ends a walk.
var errOthers = errors.New("others than root can change it")

// Roots reports whether root alone can change the content read from a file: root owns the file, the
// directories above it and the links on the way, and nobody else may write to them. A directory
// with the sticky bit may be writable: nobody can replace root's files there.
func Roots(path string) bool {
	return Walk(path, func(s Step) error {
		stat, ok := s.Info.Sys().(*syscall.Stat_t)
		sticky := s.Info.IsDir() && !s.Last && s.Info.Mode()&fs.ModeSticky != 0
		link := s.Info.Mode().Type() == fs.ModeSymlink
		if !ok || stat.Uid != 0 || !link && !sticky && stat.Mode&0o022 != 0 {
			return errOthers
		}
		return nil
	}) == nil
}
