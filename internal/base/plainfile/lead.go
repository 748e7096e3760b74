package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"golang.org/x/sys/unix"
)

// ErrOwn reports that a name leads through a path with a different target in each process, such as
// /proc/self/cwd or /dev/fd/3. Only the process that opens it can resolve it.
var ErrOwn = errors.New("the name means another file in each process")

// Lead resolves a name in a folder to a path without links. It does this like the kernel when it
// opens the name: it goes through each link, and resolves ".." from the link's target. Code that
// decides about a name which somebody else will open must call it, and must not shorten the name
// before. The folder's own path has no links.
//
// Visit, if it is set, is called with each name on the way. If a name does not exist, the error is
// [fs.ErrNotExist], and the path is the place at which the name would be made, or "".
func Lead(folder, name string, visit func(fileowner.Step)) (string, error) {
	if name == "" || !filepath.IsAbs(folder) && !filepath.IsAbs(name) {
		return "", &fs.PathError{Op: "follow", Path: name, Err: unix.ENOENT}
	}
	return fileowner.Follow(folder, name, func(s fileowner.Step) error {
		if own(s) {
			return fmt.Errorf("%s: %w", s.Path, ErrOwn)
		}
		if visit != nil {
			visit(s)
		}
		return nil
	})
}

// own reports whether a name is in the folder of a process.
func own(s fileowner.Step) bool {
	name := filepath.Base(s.Path)
	if name != "self" && name != "thread-self" && strings.Trim(name, "0123456789") != "" {
		return false
	}
	var system unix.Statfs_t
	return unix.Statfs(s.Dir, &system) == nil && system.Type == unix.PROC_SUPER_MAGIC
}
