package config

import (
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/yamltext"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
)

// Running says where a running daemon and its files are. The daemon leaves it in
// the runtime directory, for who looks for the daemon while its configuration file
// is broken.
type Running struct {
	// Config is the configuration file.
	Config string `json:"config"`
	// Places are paths by the keys of the configuration that set them.
	Places map[string]string `json:"places"`
}

// Leave writes the file of a daemon into a directory, for its user alone, and
// holds a lock on it for as long as the process lives: a file without is what a
// daemon left that was killed. The file is removed by the function that is
// returned. The caller must have its sockets to itself.
func (r *Running) Leave(dir string) (remove func() error, err error) {
	fail := func(err error) (func() error, error) {
		return nil, fmt.Errorf("cannot leave word where the daemon is: %w", err)
	}
	whole := Running{Places: map[string]string{}}
	if whole.Config, err = filepath.Abs(r.Config); err != nil {
		return fail(err)
	}
	for key, path := range r.Places {
		if whole.Places[key], err = filepath.Abs(path); err != nil {
			return fail(err)
		}
	}
	line, err := json.Marshal(whole, json.Deterministic(true))
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	// One for each socket, so that a daemon replaces what its predecessor left.
	name := fnv.New64a()
	_, _ = name.Write([]byte(whole.Places[socketKey])) // a hash takes everything
	path := filepath.Join(dir, fmt.Sprintf("%016x.json", name.Sum64()))
	// Made under another name, so that it is never there in part, or without lock.
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(line)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fail(errors.Join(err, os.Remove(f.Name()), f.Close()))
	}
	return func() error { return errors.Join(os.Remove(path), f.Close()) }, nil
}

// runningWith returns the daemons that run with a configuration file.
func runningWith(dir, file string) (found []*Running) {
	entries, _ := os.ReadDir(dir) // a directory that is not there has none
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue // a daemon is making it
		}
		if r := readRunning(filepath.Join(dir, entry.Name())); r != nil && r.Config == file {
			found = append(found, r)
		}
	}
	return found
}

// readRunning reads what a daemon left. It is nil where no daemon of this user
// that lives did.
func readRunning(path string) *Running {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != uint32(os.Geteuid()) {
		return nil
	}
	if !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return nil // whoever left it lives no more
	}
	r := &Running{}
	if json.UnmarshalRead(io.LimitReader(f, yamltext.MaxBytes), r) != nil {
		return nil
	}
	for key := range Default().places() {
		if !filepath.IsAbs(r.Places[key]) {
			return nil // a place that is not there would be the default one
		}
	}
	return r
}
