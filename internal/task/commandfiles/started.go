package commandfiles

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"golang.org/x/sys/unix"
)

// Path is the PATH of a command without one of its own.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const (
	// maxFirstLine bounds the line in which a script names its interpreter, as in the kernel.
	maxFirstLine = 256
	// maxDynamic bounds the table in which an ELF file names its libraries, and each text of it.
	maxDynamic = 64 << 10
)

// folderTags are of folders with libraries, and libraryTags of libraries.
var (
	folderTags  = []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH}
	libraryTags = []elf.DynTag{elf.DT_NEEDED, elf.DT_AUDIT, elf.DT_DEPAUDIT, elf.DT_FILTER, elf.DT_AUXILIARY}
)

// others is why a file or a folder may not take part in a start.
const others = "which others than root can change or make"

// Sealed reports whether a program runs from a sealed copy in memory, since its user can change it.
func Sealed(path string) bool { return os.Geteuid() == 0 || !fileowner.Roots(path) }

// Planned are the variables of a command that are known before it runs. PATH is missing if it is the
// runner's.
func Planned(c *task.Action) map[string]string {
	env := map[string]string{"PATH": Path}
	for _, name := range c.EnvFrom {
		delete(env, name)
	}
	maps.Copy(env, c.Env)
	return env
}

// start is the start of a program by the kernel and the dynamic loader.
type start struct {
	Place
	env  map[string]string
	seen map[string]bool
}

// Start refuses a program if the kernel or the dynamic loader would run a file that others than
// root can change. An approval covers none of these: the words of a script's first line, the program
// that env finds by PATH, an ELF file's loader and libraries, and the files and folders of variables
// that begin with LD_. F is the program's content, and env are its variables.
func (p Place) Start(f io.ReaderAt, path string, env map[string]string) error {
	s := &start{Place: p, env: env, seen: make(map[string]bool)}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := s.variable(name, env[name]); err != nil {
			return fmt.Errorf("the variable %s names %w", name, err)
		}
	}
	origin := filepath.Dir(path)
	if Sealed(path) {
		origin = ""
	}
	return s.content(f, origin)
}

// variable checks a variable of the dynamic loader.
func (s *start) variable(name, value string) error {
	if !strings.HasPrefix(name, "LD_") || value == "" {
		return nil
	}
	if name == "LD_LIBRARY_PATH" {
		for dir := range strings.SplitSeq(strings.ReplaceAll(value, ";", ":"), ":") {
			if !rootsFolder(dir) {
				return fmt.Errorf("the folder %q, %s", dir, others)
			}
		}
		return nil
	}
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(blanks+":;", r) }) {
		if err := s.library(word, nil); err != nil {
			return err
		}
	}
	return nil
}

// rootsFolder reports whether root alone can put files into a folder, or make it.
func rootsFolder(dir string) bool {
	if !filepath.IsAbs(dir) || strings.Contains(dir, "$") {
		return false
	}
	path, err := plainfile.Lead("/", dir, nil)
	if err == nil || path != filepath.Clean(dir) {
		return fileowner.Roots(dir)
	}
	for errors.Is(err, fs.ErrNotExist) {
		path = filepath.Dir(path)
		_, err = os.Lstat(path)
	}
	return err == nil && fileowner.Roots(path)
}

// file checks a file that takes part in a start by its absolute name.
func (s *start) file(name string) error {
	if !filepath.IsAbs(name) || !fileowner.Roots(name) {
		return fmt.Errorf("%q, %s", name, others)
	}
	path, err := plainfile.Lead("/", name, nil)
	if err != nil {
		return fmt.Errorf("%q, %w", name, err)
	}
	if s.seen[path] {
		return nil
	}
	s.seen[path] = true
	f, err := plainfile.Open(path)
	if errors.Is(err, plainfile.ErrNotRegular) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q, which cannot be looked at: %w", name, err)
	}
	defer f.Close()
	if err := s.content(f, filepath.Dir(path)); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

// content checks what the beginning or the tables of a file name. Origin is the file's folder, and
// "" in memory.
func (s *start) content(f io.ReaderAt, origin string) error {
	begin := make([]byte, maxFirstLine)
	n, err := f.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch begin = begin[:n]; {
	case bytes.HasPrefix(begin, []byte("#!")):
		return s.script(string(begin[2:]))
	case bytes.HasPrefix(begin, []byte(elf.ELFMAG)):
		return s.elf(f, origin)
	}
	return nil
}

const instead = ": name the interpreter as the program, and the script as its argument"

// script checks the first line of a script.
func (s *start) script(begin string) error {
	line, _, whole := strings.Cut(begin, "\n")
	if !whole && len(begin) == maxFirstLine-2 || strings.Contains(line, "\x00") {
		return fmt.Errorf("it is a script, and its first line is longer than %d bytes, or has a zero byte", maxFirstLine)
	}
	// The system ends the name at these two characters alone.
	blank := func(r rune) bool { return r == ' ' || r == '\t' }
	line = strings.TrimFunc(line, blank)
	name, rest := line, ""
	if at := strings.IndexFunc(line, blank); at >= 0 {
		name, rest = line[:at], strings.TrimLeftFunc(line[at:], blank)
	}
	if name == "" {
		return errors.New("it is a script, and its first line names no interpreter")
	}
	if err := s.file(name); err != nil {
		return fmt.Errorf("it is a script for %w%s", err, instead)
	}
	var err error
	if filepath.Base(name) == "env" {
		err = s.throughEnv(rest)
	} else {
		words := strings.Fields(rest)
		if rest != "" && rest[0] != '-' {
			words = []string{rest} // the system passes it as one argument
		}
		err = s.words(words)
	}
	if err != nil {
		return fmt.Errorf("it is a script, and its first line names %w%s", err, instead)
	}
	return nil
}

// throughEnv checks what env runs for the rest of a first line.
func (s *start) throughEnv(rest string) error {
	words := []string{rest}
	if split, ok := strings.CutPrefix(rest, "-S"); ok {
		words = strings.Fields(split)
	}
	if len(words) == 0 || words[0] == "" || words[0][0] == '-' || strings.Contains(words[0], "=") || strings.ContainsAny(rest, "\\\"'$#") {
		return fmt.Errorf("env with %q, and only names are read there", rest)
	}
	if err := s.found(words[0]); err != nil {
		return err
	}
	return s.words(words[1:])
}

// found checks the program that env finds by a name.
func (s *start) found(name string) error {
	if strings.Contains(name, "/") {
		return s.file(plainfile.Joined(s.Folder, name))
	}
	list, ok := s.env["PATH"]
	if !ok {
		return nil // the runner knows it
	}
	for dir := range strings.SplitSeq(list, ":") {
		if !rootsFolder(dir) {
			return fmt.Errorf("%q of the folder %q in PATH, %s", name, dir, others)
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return s.file(path)
		}
	}
	return fmt.Errorf("%q, which is in no folder of PATH", name)
}

// words checks the arguments of an interpreter. One that is no option is taken for a file, also if
// none is there yet.
func (s *start) words(list []string) error {
	for _, word := range list {
		if word[0] != '-' {
			if err := s.file(plainfile.Joined(s.Folder, word)); err != nil {
				return fmt.Errorf("the file %w", err)
			}
			continue
		}
		for _, file := range s.Besides(&task.Action{Argv: []string{"", word}}, nil) {
			return fmt.Errorf("the file %q, %s", file.Path, others)
		}
		for _, from := range starts(word)[1:] {
			if name := word[from:]; strings.Contains(name, "/") && !rootsFolder(plainfile.Joined(s.Folder, name)) {
				return fmt.Errorf("the file %q, %s", name, others)
			}
		}
	}
	return nil
}

// elf checks the loader and the libraries that an ELF file names.
func (s *start) elf(f io.ReaderAt, origin string) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("it is no ELF program: %w", err)
	}
	for _, part := range e.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		// The system starts this program in place of the file, and opens it by its name.
		name, err := io.ReadAll(io.LimitReader(part.Open(), unix.PathMax))
		if err != nil {
			return fmt.Errorf("it is no ELF program: %w", err)
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		if err := s.file(string(name)); err != nil {
			return fmt.Errorf("it is started by the program %w", err)
		}
	}
	texts, err := dynamic(e)
	if err != nil {
		return fmt.Errorf("it is no ELF program: %w", err)
	}
	var dirs []string
	for _, tag := range folderTags {
		for _, text := range texts[tag] {
			for dir := range strings.SplitSeq(text, ":") {
				at, err := s.of(dir, origin)
				if err == nil && !rootsFolder(at) {
					err = fmt.Errorf("it loads libraries from the folder %q, %s", dir, others)
				}
				if err != nil {
					return fmt.Errorf("%w (%s)", err, tag)
				}
				dirs = append(dirs, at)
			}
		}
	}
	for _, tag := range libraryTags {
		for _, text := range texts[tag] {
			for name := range strings.SplitSeq(text, ":") {
				at, err := s.of(name, origin)
				if err == nil {
					err = s.library(at, dirs)
				}
				if err != nil {
					return fmt.Errorf("it loads the library %w (%s)", err, tag)
				}
			}
		}
	}
	return nil
}

// of is a name in an ELF file, with the file's folder in place of $ORIGIN.
func (s *start) of(name, origin string) (string, error) {
	if !strings.Contains(name, "$ORIGIN") && !strings.Contains(name, "${ORIGIN}") {
		return name, nil
	}
	if origin == "" {
		return "", fmt.Errorf("%sit does not find its libraries in %q", FromMemory, name)
	}
	return strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin).Replace(name), nil
}

// FromMemory begins the reason why a copy would not behave like its program.
const FromMemory = "it would be run from memory, since others than root can change it, and there "

// library checks a library. One without a "/" in its name is looked for in folders, and then in the
// system's.
func (s *start) library(name string, dirs []string) error {
	if strings.Contains(name, "/") || strings.Contains(name, "$") {
		return s.file(name)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return s.file(path)
		}
	}
	return nil
}

// dynamic is the table of texts for the dynamic loader. It is found as the loader does it, and not
// by the sections, which a program need not have.
func dynamic(e *elf.File) (map[elf.DynTag][]string, error) {
	texts := make(map[elf.DynTag][]string)
	at := slices.IndexFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_DYNAMIC })
	if at < 0 {
		return texts, nil
	}
	table, err := io.ReadAll(io.LimitReader(e.Progs[at].Open(), maxDynamic))
	if err != nil {
		return nil, err
	}
	type entry struct {
		tag   elf.DynTag
		value uint64
	}
	var entries []entry
	var strtab uint64
	size := 16
	if e.Class == elf.ELFCLASS32 {
		size = 8
	}
	for ; len(table) >= size; table = table[size:] {
		var one entry
		if e.Class == elf.ELFCLASS32 {
			one = entry{elf.DynTag(e.ByteOrder.Uint32(table)), uint64(e.ByteOrder.Uint32(table[4:]))}
		} else {
			one = entry{elf.DynTag(e.ByteOrder.Uint64(table)), e.ByteOrder.Uint64(table[8:])}
		}
		if one.tag == elf.DT_NULL {
			break
		}
		if one.tag == elf.DT_STRTAB {
			strtab = one.value
		}
		entries = append(entries, one)
	}
	for _, one := range entries {
		if !slices.Contains(folderTags, one.tag) && !slices.Contains(libraryTags, one.tag) {
			continue
		}
		text, err := textAt(e, strtab+one.value)
		if err != nil {
			return nil, err
		}
		texts[one.tag] = append(texts[one.tag], text)
	}
	return texts, nil
}

// textAt is the text at an address in a loaded file.
func textAt(e *elf.File, address uint64) (string, error) {
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		from := address - p.Vaddr
		text := make([]byte, min(maxDynamic, p.Filesz-from))
		if _, err := p.ReadAt(text, int64(from)); err != nil {
			return "", err
		}
		if text, _, ok := bytes.Cut(text, []byte{0}); ok {
			return string(text), nil
		}
	}
	return "", errors.New("a text of its table of libraries is not in it")
}
