package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/base/place"
	"golang.org/x/sys/unix"
)

// ErrOwn says that a name leads through what each process has of its own, such as
// /proc/self/cwd or /dev/fd/3: only the process that opens it finds where.
var ErrOwn = errors.New("each process finds something else there")

// Lead is where a name leads in a folder, by a path without links. It goes as the kernel
// does when it opens the name: through each link, and back by ".." from where that leads.
// Whoever decides about a name that somebody else will open asks here, and takes nothing out
// of the name before. The folder's own path has no links.
//
// Visit, if it is set, is told each name on the way. If a name is not there, the error is
// [fs.ErrNotExist], and the path is the one at which it would be made, or "".
func Lead(folder, name string, visit func(place.Step)) (string, error) {
	if name == "" || !filepath.IsAbs(folder) && !filepath.IsAbs(name) {
		return "", &fs.PathError{Op: "follow", Path: name, Err: unix.ENOENT}
	}
	return place.Follow(folder, name, func(s place.Step) error {
		if own(s) {
			return fmt.Errorf("%s: %w", s.Path, ErrOwn)
		}
		if visit != nil {
			visit(s)
		}
		return nil
	})
}

// own reports whether a name is of the folder of a process.
func own(s place.Step) bool {
	name := filepath.Base(s.Path)
	if name != "self" && name != "thread-self" && strings.Trim(name, "0123456789") != "" {
		return false
	}
	var system unix.Statfs_t
	return unix.Statfs(s.Dir, &system) == nil && system.Type == unix.PROC_SUPER_MAGIC
}
