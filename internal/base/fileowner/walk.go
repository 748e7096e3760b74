package fileowner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Step is one name on the way to a file.
type Step struct {
	// Dir is the directory that has the name, by a path without links. Path is the path of the name
	// itself.
	Dir, Path string
	// Info describes the name itself, even if it is a link.
	Info fs.FileInfo
	// Last is set for the target of the way.
	Last bool
}

// maxLinks bounds the symbolic links on the way to a file, as the kernel does.
const maxLinks = 40

// Walk visits each name on the way to a file, from the root. Like the kernel it goes through each
// link, and resolves ".." from the link's target, not from the link's own directory. It ends with
// the first error of visit or of the file system, and with ELOOP after 40 links.
func Walk(path string, visit func(Step) error) error {
	_, err := follow(path, visit)
	return err
}

// follow is Walk, and returns the target by a path without links.
func follow(path string, visit func(Step) error) (at string, err error) {
	// Abs would remove the name before each "..", and that name may be a link.
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return "", err
		}
		path = here + "/" + path
	}
	if at, err = Follow("/", path, visit); err != nil {
		return "", err
	}
	return at, nil
}

// Follow is [Walk] from a directory whose own path is absolute and has no links. It returns the
// target by a path without links. If a name does not exist, the error is [fs.ErrNotExist], and the
// path is the place at which the name would be made, or "" if a ".." follows the missing name.
func Follow(dir, path string, visit func(Step) error) (at string, err error) {
	at = dir
	if filepath.IsAbs(path) {
		at = "/"
	}
	links := 0
	var name string
	for rest, more := path, true; more; {
		if name, rest, more = strings.Cut(rest, "/"); name == "" || name == "." {
			continue
		}
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && !slices.Contains(names(rest), "..") {
				return filepath.Join(next, rest), err
			}
			return "", err
		}
		link := info.Mode().Type() == fs.ModeSymlink
		if err := visit(Step{Dir: at, Path: next, Info: info, Last: len(names(rest)) == 0 && !link}); err != nil {
			return "", err
		}
		if !link {
			if !info.IsDir() && rest != "" {
				return "", &fs.PathError{Op: "follow", Path: path, Err: unix.ENOTDIR}
			}
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest, more = target+"/"+rest, true
	}
	return at, nil
}

// names returns the names in a path, in order.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
