// Package commandfiles finds the files that a command names: in its arguments, behind an option or
// in the midst of a text, and in its variables. It also finds those that the kernel and the dynamic
// loader run with the command's program. The daemon shows a person what it finds, and the runner
// looks again before the command begins, by the same rules.
package commandfiles

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/fileowner"
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
	// Sure is set if the name leads into the workspace or the folder without a link, or elsewhere
	// without a link that others than root can change, so that the file can be examined.
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
// a character at which names end. Elsewhere it finds files and folders that others than root can
// change, by names that stand by themselves. Words that a copy's name takes the place of name
// nothing. It also finds what a command seems to name and that is not there.
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
	env := slices.Sorted(maps.Keys(c.Env))
	for _, name := range env {
		s.word(c.Env[name], len(c.Env[name]))
	}
	s.absent(c, env)
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
		part = part || word[from] == '/' && letters(word[:from])
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

// letters reports whether a word begins with options of one letter.
func letters(begin string) bool {
	const all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return len(begin) > 1 && begin[0] == '-' && strings.Trim(begin[1:], all) == ""
}

// way is the way from a name to a file, or to the place at which it would be.
type way struct {
	path string
	err  error
	// within is set at a path in the workspace or the folder, or of one of the two. entered is set if
	// the way leads into one of them, and linked if it does so by a link in there.
	within, entered, linked bool
	// links is set with any link on the way, and loose with one that others than root can change.
	links, loose bool
}

// follow looks where a name leads.
func (s *search) follow(name string) (w way) {
	roots := []string{s.Workspace, s.Folder}
	w.path, w.err = plainfile.Lead(s.Folder, name, func(step fileowner.Step) {
		link := step.Info.Mode().Type() == fs.ModeSymlink
		w.links, w.loose = w.links || link, w.loose || link && !fileowner.Roots(step.Dir)
		if _, root := plainfile.Beneath(step.Path, roots...); root != "" && root != step.Path {
			w.entered, w.linked = true, w.linked || link
		}
	})
	_, root := plainfile.Beneath(w.path, roots...)
	w.within = root != ""
	return w
}

// name looks where a name leads, and reports whether anything is there. One that is a part by
// itself counts also where it is of the workspace or the folder as such, as "." is, and elsewhere.
func (s *search) name(name string, part, whole bool) bool {
	if len(name) > maxPath || !s.begins(name) || slices.Contains(streams, name) {
		return false
	}
	w, full := s.follow(name), plainfile.Joined(s.Folder, name)
	f := File{Whole: whole, Sure: w.err == nil && w.within && !w.linked && (w.entered || part)}
	away := w.err == nil && part && !w.within && !w.entered && loose(full, w.path)
	f.Sure = f.Sure || away && !w.loose
	switch {
	case f.Sure && !w.links:
		f.Path = w.path
	case f.Sure, away, errors.Is(w.err, plainfile.ErrOwn), w.entered && (w.err == nil || w.linked || !gone(w.err)):
		f.Path, f.Leads = full, w.path
	default:
		return w.err == nil
	}
	s.add(f)
	return true
}

// add adds a file that is no input.
func (s *search) add(f File) {
	if f.Sure && s.copied[f.At()] {
		return
	}
	if at, ok := s.found[f.Named]; ok {
		s.list[at].Whole = s.list[at].Whole || f.Whole
		return
	}
	s.found[f.Named] = len(s.list)
	s.list = append(s.list, f)
}

// loose reports whether others than root can change a file or a folder, or have its name lead elsewhere.
func loose(name, path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeDevice == 0 && !fileowner.Roots(name)
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

// At is the path of a file without links.
func (f *File) At() string { return cmp.Or(f.Leads, f.Path) }

// In is the name of a file relative to a folder, if the file is in it.
func (f *File) In(folder string) (name string, ok bool) {
	name, root := plainfile.Beneath(f.At(), folder)
	return name, root != ""
}
