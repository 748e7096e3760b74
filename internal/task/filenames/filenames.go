// Package filenames finds the files that a command names: in its arguments, behind an option or
// in the midst of a text, and in its variables. The daemon shows a person what it finds, and
// the runner looks again before the command begins, by the same rules.
package filenames

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/place"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"golang.org/x/sys/unix"
)

const (
	// maxPath is the longest name that the kernel opens, in bytes.
	maxPath = unix.PathMax - 1
	// blanks make a text of a word, and ends are the characters that end a name in a text or a list
	// of names.
	blanks = " \t\r\n"
	ends   = blanks + ":;,|&<>()'\"`"
)

// streams are the names of the streams that the runner gives each command.
var streams = []string{
	"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
}

// Place is the place of a command: its workspace and its folder, without links (see
// [plainfile.Folder]).
type Place struct{ Workspace, Folder string }

// File is something that a command names besides its inputs.
type File struct {
	task.Named
	// Sure is set if the name leads into the workspace or the folder without a link, so that the
	// file can be examined.
	Sure bool
	// Whole is set if the name begins where an argument or the value of an option begins, or the
	// word has no blank and no part of a path stands before the name. Files that the command opens
	// by any other name, in the midst of a text, are not known.
	Whole bool
}

// Replaced says of each input which words of a command name it, so that a copy's name takes
// their place. Of a word it is the longest end that names an input.
func (p Place) Replaced(c *task.Action, inputs []task.Input) {
	for i := 1; i < len(c.Argv); i++ {
		for _, from := range starts(c.Argv[i]) {
			path, err := plainfile.Lead(p.Folder, c.Argv[i][from:], nil)
			if err != nil && !errors.Is(err, fs.ErrNotExist) || path == "" {
				continue
			}
			if at := slices.IndexFunc(inputs, func(in task.Input) bool { return p.of(&in) == path }); at >= 0 {
				inputs[at].Argv = append(inputs[at].Argv, task.Word{Index: i, From: from})
				break
			}
		}
	}
}

// of is the place of an input, "" if it is not known.
func (p Place) of(in *task.Input) string {
	path, err := plainfile.Lead(p.Workspace, strings.TrimPrefix(in.URI, "file://"), nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// Besides finds what a command names in its workspace and its folder besides its inputs: by
// each end of each of its words and of its variables' values, and by each part of them up to
// a character at which names end. Words that a copy's name takes the place of name nothing.
func (p Place) Besides(c *task.Action, inputs []task.Input) []File {
	s := &search{Place: p, copied: make(map[string]bool), found: make(map[task.Named]int)}
	replaced := make(map[int]int)
	for i := range inputs {
		if path := p.of(&inputs[i]); path != "" {
			s.copied[path] = true
		}
		for _, w := range inputs[i].Argv {
			replaced[w.Index] = w.From
		}
	}
	for i := 1; i < len(c.Argv); i++ {
		word := c.Argv[i]
		if from, ok := replaced[i]; ok {
			s.word(word, from)
		} else {
			s.word(word, len(word))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		s.word(c.Env[name], len(c.Env[name]))
	}
	return s.list
}

// starts are the places in a word, other than a text, at which a name may begin: at its beginning,
// behind the first "=", behind an option of one letter, and behind an "@" at any of these.
func starts(word string) []int {
	list := []int{0}
	if len(word) > 2 && word[0] == '-' && word[1] != '-' {
		list = append(list, 2)
	}
	if at := strings.IndexByte(word, '='); at >= 0 {
		list = append(list, at+1)
	}
	for _, at := range slices.Clone(list) {
		if strings.HasPrefix(word[at:], "@") {
			list = append(list, at+1)
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(at int) bool { return at >= len(word) })
}

type search struct {
	Place
	// copied are the paths of inputs. The description of an input tells how the command finds it.
	copied map[string]bool
	list   []File
	found  map[task.Named]int
}

// word looks at the names in a word that begin before a place in it. The text after a "/", or after
// dots behind it, belongs to a name if that path exists. Otherwise it is a name in the midst of a
// text.
func (s *search) word(word string, before int) {
	begins, text, end, covered := starts(word), strings.ContainsAny(word, blanks), -1, 0
	for from := range before {
		tail := strings.HasSuffix(strings.TrimRight(word[:from], "."), "/")
		if tail && from < covered {
			continue
		}
		begin := slices.Contains(begins, from)
		part, whole := begin || from > 0 && strings.IndexByte(ends, word[from-1]) >= 0, begin || !text && !tail
		if s.name(word[from:], part, whole) {
			covered = len(word)
		}
		if end < from {
			if end = strings.IndexAny(word[from:], ends); end >= 0 {
				end += from
			} else {
				end = len(word)
			}
		}
		if end > from && end < len(word) && s.name(word[from:end], part, whole) {
			covered = max(covered, end)
		}
	}
}

// name looks where a name leads, and reports whether anything is there. One that is a part by
// itself counts also where it is of the workspace or the folder as such, as "." is.
func (s *search) name(name string, part, whole bool) bool {
	if len(name) > maxPath || !s.begins(name) || slices.Contains(streams, name) {
		return false
	}
	var entered, linked, links bool
	roots := []string{s.Workspace, s.Folder}
	path, err := plainfile.Lead(s.Folder, name, func(step place.Step) {
		link := step.Info.Mode().Type() == fs.ModeSymlink
		links = links || link
		if _, root := plainfile.Beneath(step.Path, roots...); root != "" && root != step.Path {
			entered, linked = true, linked || link
		}
	})
	_, root := plainfile.Beneath(path, roots...)
	f := File{Whole: whole, Sure: err == nil && root != "" && !linked && (entered || part)}
	switch {
	case f.Sure && !links:
		f.Path = path
	case f.Sure, errors.Is(err, plainfile.ErrOwn), entered && (err == nil || linked || !gone(err)):
		f.Path, f.Leads = plainfile.Joined(s.Folder, name), path
	default:
		return err == nil
	}
	if f.Sure && s.copied[path] {
		return true
	}
	if at, ok := s.found[f.Named]; ok {
		s.list[at].Whole = s.list[at].Whole || whole
		return true
	}
	s.found[f.Named] = len(s.list)
	s.list = append(s.list, f)
	return true
}

// begins reports whether the first part of a name is there. Most candidates are no names, and this
// check is quick.
func (s *search) begins(name string) bool {
	dir, rest := s.Folder, strings.TrimLeft(name, "/")
	if rest != name {
		dir = ""
	}
	first, _, _ := strings.Cut(rest, "/")
	if first == "" || first == "." || first == ".." {
		return true
	}
	_, err := os.Lstat(dir + "/" + first)
	return err == nil || !gone(err)
}

// gone reports whether nothing is there, or can be by such a name.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// Key is the compared part of a named file: its path and its target.
func Key(n task.Named) task.Named { return task.Named{Path: n.Path, Leads: n.Leads} }

// In is the name of a file that is [File.Sure] relative to a folder, if the file is in it.
func (f *File) In(folder string) (name string, ok bool) {
	name, root := plainfile.Beneath(cmp.Or(f.Leads, f.Path), folder)
	return name, root != "" && f.Sure
}
