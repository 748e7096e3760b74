package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
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

// Exposed looks at a file, the directories above it and the links on the way, and
// returns all by which others can change what is read. In a directory with the
// sticky bit nobody can replace what is ours, so it may be written by others; and
// which group may write a directory of root's is the administrator's choice.
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

// Unlinked returns the path of a directory without links. It refuses one with a link on
// the way that another user than this one and root can have made.
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
				return fmt.Errorf("%s is a symbolic link that others can have made: %s %s; name the directory that it leads to", s.Path, e.Path, e)
			}
		}
		return nil
	})
}

// errOthers ends a walk.
var errOthers = errors.New("others than root can change it")

// Roots reports whether root alone can change what is read of a file: the file, the
// directories above it and the links on the way are root's, and nobody else may write to
// them. In a directory with the sticky bit nobody can replace what is root's.
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
