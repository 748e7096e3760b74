// Package configfile changes the files of a configuration: its own, and its directory file. It
// writes a file completely or not at all, after checking that the result is a valid configuration.
package configfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"golang.org/x/sys/unix"
)

// DirectoryName is the name of a new directory file, beside the configuration.
const DirectoryName = "contacts.jsonl"

// DirectoryHead is its first line, so that a file without entries is not empty.
const DirectoryHead = "# Who is known to ocipd: an entry a line, see directory_file in the configuration. ocipd contacts writes here.\n"

// Directory is the directory file of a configuration during a change. It is locked, so that
// two commands cannot undo each other's changes.
type Directory struct {
	Config *config.Config
	Path   string
	// Unnamed is set if the configuration does not name the file yet.
	Unnamed bool

	lock  *os.File
	lines []string
}

// OpenDirectory opens the directory file of a configuration from a file.
func OpenDirectory(cfg *config.Config) (*Directory, error) {
	f := &Directory{Config: cfg, Path: cfg.DirectoryPath()}
	if f.Path == "" {
		f.Path, f.Unnamed = filepath.Join(filepath.Dir(cfg.File), DirectoryName), true
	}
	// Write the target of a link, not the link.
	if target, err := filepath.EvalSymlinks(f.Path); err == nil {
		f.Path = target
	}
	lock, text, err := open(f.Path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("cannot open the directory file: %w", err)
	}
	if len(text) == 0 {
		text = []byte(DirectoryHead)
	}
	f.lock, f.lines = lock, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	return f, nil
}

// open reads the file at a path and locks it until it is closed. Another file may take its place
// before the lock is held, so it checks. It does not block on something other than a file.
func open(path string, flags int) (lock *os.File, text []byte, err error) {
	for {
		lock, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, nil, err
		}
		mine, err := lock.Stat()
		if err == nil && !mine.Mode().IsRegular() {
			err = fmt.Errorf("%s: %w", path, durable.ErrNoFile)
		}
		if err == nil {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			return nil, nil, errors.Join(err, lock.Close())
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(mine, now) {
			_ = lock.Close()
			continue
		}
		if text, err = io.ReadAll(lock); err != nil {
			return nil, nil, errors.Join(err, lock.Close())
		}
		return lock, text, nil
	}
}

// Close releases the lock.
func (f *Directory) Close() { _ = f.lock.Close() }

// Add adds an entry.
func (f *Directory) Add(c *config.Contact) { f.lines = append(f.lines, string(c.Line())) }

// Attach adds a session to the first entry for which fits is true, and returns the entry.
func (f *Directory) Attach(session string, fits func(*config.Contact) bool) *config.Contact {
	for i, line := range f.lines {
		c, ok := entryOf(line)
		if !ok || !fits(&c) {
			continue
		}
		if !slices.Contains(c.Sessions, session) {
			c.Sessions = append(c.Sessions, session)
			f.lines[i] = string(c.Line())
		}
		return &c
	}
	return nil
}

// Detach removes a session from its entry, and removes a person or a group without another session.
func (f *Directory) Detach(session string) bool {
	for i, line := range f.lines {
		c, ok := entryOf(line)
		if !ok || !slices.Contains(c.Sessions, session) {
			continue
		}
		c.Sessions = slices.DeleteFunc(c.Sessions, func(s string) bool { return s == session })
		if len(c.Sessions) == 0 && c.Kind != "agent" {
			f.lines = slices.Delete(f.lines, i, i+1)
		} else {
			f.lines[i] = string(c.Line())
		}
		return true
	}
	return false
}

func entryOf(line string) (config.Contact, bool) {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return config.Contact{}, false
	}
	c, err := config.ParseEntry([]byte(line))
	return c, err == nil
}

// Write replaces the file by the lines, after load has checked them together with the
// configuration; its flags are further values by key.
func (f *Directory) Write(load func(file string, flags map[string]any) (*config.Config, error)) error {
	text := []byte(strings.Join(f.lines, "\n") + "\n")
	trial, err := os.CreateTemp(filepath.Dir(f.Path), ".ocipd-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	defer func() { _ = os.Remove(trial.Name()) }()
	like, err := f.lock.Stat()
	if err == nil {
		_, err = trial.Write(text)
		err = errors.Join(err, durable.Owned(trial, like), trial.Chmod(like.Mode().Perm()))
	}
	if err = errors.Join(err, trial.Sync(), trial.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	absolute, err := filepath.Abs(trial.Name())
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	if _, err := load(f.Config.File, map[string]any{"directory_file": absolute}); err != nil {
		return renamed(err, absolute, f.Path)
	}
	if err := errors.Join(os.Rename(trial.Name(), f.Path), durable.SyncDir(filepath.Dir(f.Path))); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	if !f.Unnamed {
		return nil
	}
	return Edit(f.Config, func(text []byte) ([]byte, error) {
		return yamltext.Edit(text, keypath.Path{}.Key("directory_file"), DirectoryName)
	})
}

// renamed changes the file name in errors about a temporary file.
func renamed(err error, from, to string) error {
	problems, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for _, p := range problems {
		if p.File == from {
			p.File = to
		}
		p.Message = strings.ReplaceAll(p.Message, from, to)
	}
	return problems
}
