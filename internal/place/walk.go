package place

import (
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
	// Abs would take the name before each ".." away, and that may be a link.
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		path = here + "/" + path
	}
	at, links := "/", 0
	for rest := names(path); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		link := info.Mode().Type() == fs.ModeSymlink
		if err := visit(Step{Dir: at, Path: next, Info: info, Last: len(rest) == 0 && !link}); err != nil {
			return err
		}
		if !link {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(names(target), rest...)
	}
	return nil
}

// names are those in a path, in order.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
