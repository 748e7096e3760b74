package place

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
	// Dir is the directory that has the name, by a path without links, and Path
	// the name's own.
	Dir, Path string
	// Info is of the name itself, also where that is a link.
	Info fs.FileInfo
	// Last is set for what the way leads to.
	Last bool
}

// maxLinks bounds the symbolic links on the way to a file, as the kernel does.
const maxLinks = 40

// Walk visits each name on the way to a file, from the root, as the kernel goes:
// through each link, and back by ".." from where that leads, not from where it
// lies. It ends with the first error, of visit or of a look, and with ELOOP after
// 40 links.
func Walk(path string, visit func(Step) error) error {
	_, err := follow(path, visit)
	return err
}

// follow is Walk, and returns where the way leads, by a path without links.
func follow(path string, visit func(Step) error) (at string, err error) {
	// Abs would take the name before each ".." away, and that may be a link.
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

// Follow is [Walk] from a directory on, whose own path is absolute and has no links. It
// returns where the way leads, by a path without links. If a name is not there, the error
// is [fs.ErrNotExist], and the path is the one at which it would be made: "" where the way
// goes back by ".." from what is not there.
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

// names are those in a path, in order.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
