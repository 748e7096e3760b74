package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/keypath"
	"github.com/openclawos/ocipd/internal/place"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/openclawos/ocipd/internal/yamltext"
	"golang.org/x/sys/unix"
)

// contactsName is the directory file that is made where there is none, beside the
// configuration.
const contactsName = "contacts.jsonl"

// contactsHead begins it, so that a file without entries is not empty.
const contactsHead = "# Who is known to ocipd: an entry a line, see directory_file in the configuration. ocipd contacts writes here.\n"

// contactsFile is the directory file of a configuration while it is changed. It is
// locked, so that of two commands neither undoes what the other did.
type contactsFile struct {
	cfg   *config.Config
	path  string
	lock  *os.File
	lines []string
	// unnamed is set where the configuration does not name the file yet.
	unnamed bool
}

// openContacts reads the directory file that the running daemon reads, or would.
func (s *shell) openContacts(ctx context.Context) (*contactsFile, error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return nil, err
	}
	if cfg.File == "" {
		return nil, errors.New("cannot tell where contacts belong: there is no configuration; ocipd config init writes one")
	}
	var live api.Status
	switch err := s.Operate(ctx, "kernel.status", nil, &live); {
	case errors.Is(err, client.ErrNotRunning):
	case err != nil:
		return nil, err
	case live.ConfigFile != "" && !place.Same(live.ConfigFile, cfg.File):
		return nil, fmt.Errorf("cannot tell whose contacts are meant: the daemon reads %s, and this is %s; name it with --config", live.ConfigFile, cfg.File)
	}
	f := &contactsFile{cfg: cfg, path: cfg.DirectoryPath()}
	if f.path == "" {
		f.path, f.unnamed = filepath.Join(filepath.Dir(cfg.File), contactsName), true
	}
	// What a link leads to is written, and not the link.
	if target, err := filepath.EvalSymlinks(f.path); err == nil {
		f.path = target
	}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("cannot open the directory file: %w", err)
	}
	return f, nil
}

// open locks the file that is at the path, which may be another one by the time the
// lock is there.
func (f *contactsFile) open() error {
	for {
		lock, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			return errors.Join(err, lock.Close())
		}
		mine, err := lock.Stat()
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		if now, err := os.Stat(f.path); err != nil || !os.SameFile(mine, now) {
			_ = lock.Close()
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		if len(text) == 0 {
			text = []byte(contactsHead)
		}
		f.lock, f.lines = lock, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		return nil
	}
}

// close lets the next one at the file.
func (f *contactsFile) close() { _ = f.lock.Close() }

// attach adds a session to the first entry that fits, and returns it.
func (f *contactsFile) attach(session string, fits func(*config.Contact) bool) *config.Contact {
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

// detach takes a session out of its entry, and a person or a group that has no other
// out of the file.
func (f *contactsFile) detach(session string) bool {
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

// write puts the lines in the place of the file, once they were checked together
// with the configuration.
func (f *contactsFile) write(s *shell) error {
	text := []byte(strings.Join(f.lines, "\n") + "\n")
	trial, err := os.CreateTemp(filepath.Dir(f.path), ".ocipd-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	defer func() { _ = os.Remove(trial.Name()) }()
	mode := os.FileMode(0o600)
	if info, err := f.lock.Stat(); err == nil {
		mode = info.Mode().Perm()
	}
	_, err = trial.Write(text)
	if err = errors.Join(err, trial.Chmod(mode), trial.Sync(), trial.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	if _, err := s.LoadFile(f.cfg.File, map[string]any{"directory_file": cli.Absolute(trial.Name())}); err != nil {
		return renamed(err, cli.Absolute(trial.Name()), f.path)
	}
	if err := os.Rename(trial.Name(), f.path); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.path, err)
	}
	if !f.unnamed {
		return nil
	}
	return s.editConfig(f.cfg, func(text []byte) ([]byte, error) {
		return yamltext.Edit(text, keypath.Path{}.Key("directory_file"), contactsName)
	})
}

// renamed says of a file what was found in another one that was to take its place.
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

// keepContacts writes the file, and has a running daemon take it.
func (s *shell) keepContacts(ctx context.Context, f *contactsFile, noReload bool, did string) error {
	if err := f.write(s); err != nil {
		return err
	}
	where := f.path
	if f.unnamed {
		where += ", which " + f.cfg.File + " names from now on"
	}
	if _, err := fmt.Fprintf(s.Stdout, "%s (%s)\n", term.Printable(did), term.Printable(where)); err != nil || noReload {
		return err
	}
	return s.taken(ctx)
}

// taken waits until a running daemon has taken what was written.
func (s *shell) taken(ctx context.Context) error {
	var result api.PolicyReloadResult
	switch err := s.Operate(ctx, "policy.reload", nil, &result); {
	case errors.Is(err, client.ErrNotRunning):
		_, err := fmt.Fprintln(s.Stdout, "no daemon is running: the next one takes it")
		return err
	case err != nil:
		return fmt.Errorf("it is written, and the running daemon does not take it: %w", err)
	}
	_, err := fmt.Fprintln(s.Stdout, "the running daemon has taken it")
	return err
}

// editConfig changes the configuration's file as a whole or not at all, once it was
// seen that what comes of it is a configuration.
func (s *shell) editConfig(cfg *config.Config, edit func(text []byte) ([]byte, error)) error {
	path := cfg.File
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	text, err = edit(text)
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", cfg.File, err)
	}
	if _, err := config.Parse(cfg.File, text); err != nil {
		return fmt.Errorf("cannot edit %s: %w", cfg.File, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	_, err = cli.ReplaceFile(path, text, info.Mode().Perm())
	return err
}
