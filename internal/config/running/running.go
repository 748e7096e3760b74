// Package running lets a daemon publish where it and its files are, and finds published
// daemons, for commands that look for a daemon while its configuration file is broken.
package running

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
)

// Socket is the key of the apps' socket, which is different for each daemon.
const Socket = "ipc.socket"

// maxBytes is more than any daemon writes.
const maxBytes = 1 << 20

// Daemon gives the places of a running daemon and its files.
type Daemon struct {
	// Config is the configuration file.
	Config string `json:"config"`
	// Places are paths by the keys of the configuration that set them.
	Places map[string]string `json:"places"`
}

// Leave writes a daemon's place file into a directory, for its user alone, and holds a lock
// on it for the life of the process: a file without a lock is from a killed daemon. The
// returned function removes the file. The caller must own its sockets exclusively.
func (r *Daemon) Leave(dir string) (remove func() error, err error) {
	fail := func(err error) (func() error, error) {
		return nil, fmt.Errorf("cannot leave word where the daemon is: %w", err)
	}
	whole := Daemon{Places: map[string]string{}}
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
	// One for each socket, so that a daemon replaces its predecessor's file.
	name := fnv.New64a()
	_, _ = name.Write([]byte(whole.Places[Socket])) // a hash takes everything
	path := filepath.Join(dir, fmt.Sprintf("%016x.json", name.Sum64()))
	// Created under another name, so that it never appears incomplete or without the lock.
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

// With returns the daemons that run with a configuration file and publish the places of all keys.
func With(dir, file string, keys []string) (found []*Daemon) {
	entries, _ := os.ReadDir(dir) // a directory that is not there has none
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue // a daemon is making it
		}
		if r := read(filepath.Join(dir, entry.Name()), keys); r != nil && r.Config == file {
			found = append(found, r)
		}
	}
	return found
}

// read reads a place file. It returns nil unless a living daemon of this user left it.
func read(path string, keys []string) *Daemon {
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
		return nil // the daemon is gone
	}
	r := &Daemon{}
	if json.UnmarshalRead(io.LimitReader(f, maxBytes), r) != nil {
		return nil
	}
	for _, key := range keys {
		if !filepath.IsAbs(r.Places[key]) {
			return nil // a place that is not there would be the default one
		}
	}
	return r
}
