package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing may happen before an edit counts as done.
	quiet = 50 * time.Millisecond
	// patience bounds the wait for quiet, so that a busy directory does not
	// hide an edit for ever.
	patience = 500 * time.Millisecond
	// retry is when directories that could not be watched are tried again.
	retry = time.Second
	// maxSymlinks is how many links the kernel would follow.
	maxSymlinks = 40
)

// Watcher sees the edits of one file.
type Watcher struct {
	file   string
	events *fsnotify.Watcher
	cancel context.CancelFunc
	done   chan struct{}
}

// Watch calls onChange after the content of a file has become another one, or
// the file came or went. It sees writes in place, an editor's rename, symlinks
// that were turned (also those the file's directory is reached through, as
// Kubernetes mounts have them), and a file or directory that does not exist
// yet. Events are gathered for about 50 ms, half a second at most, so that one
// edit is one call; the last state is never missed.
//
// The watch holds from the moment Watch returns, so load the file after it.
// onChange is called from one goroutine, never twice at a time. The watch ends
// with ctx or [Watcher.Close].
func Watch(ctx context.Context, file string, onChange func()) (*Watcher, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", file, err)
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", file, err)
	}
	w := &Watcher{file: path, events: events, done: make(chan struct{})}
	if err := w.arm(); err != nil {
		_ = events.Close()
		return nil, fmt.Errorf("cannot watch %s: %w", file, err)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx, fingerprint(path), onChange)
	return w, nil
}

// Close ends the watch and waits until onChange has returned and everything is
// released. It must not be called by onChange. A second call does nothing.
func (w *Watcher) Close() {
	w.cancel()
	<-w.done
}

func (w *Watcher) run(ctx context.Context, last string, onChange func()) {
	defer close(w.done)
	defer w.events.Close()
	defer w.cancel()

	var blind error
	for w.gather(ctx, blind != nil) {
		blind = w.arm()
		// Armed first: what changes after the fingerprint is an event.
		if now := fingerprint(w.file); now != last {
			last = now
			onChange()
		}
	}
}

// gather waits for an event and then for the edit it belongs to, after a failure
// to arm no longer than retry. It is false once the watch is over.
func (w *Watcher) gather(ctx context.Context, again bool) bool {
	var settled, late <-chan time.Time
	if again {
		settled = time.After(retry)
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-settled:
			return ctx.Err() == nil
		case <-late:
			return ctx.Err() == nil
		case <-w.events.Events:
		case err := <-w.events.Errors:
			// It may stand for events that were lost, so it counts as one.
			_ = err
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(patience)
		}
	}
}

// arm watches exactly the directories that [Watcher.directories] names, and
// looks again until nothing moved in between.
func (w *Watcher) arm() error {
	var armed []string
	for {
		want := w.directories()
		if slices.Equal(want, armed) {
			break
		}
		armed = want
		for _, dir := range want {
			err := w.events.Add(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				// It went between the look and the watch: look again.
				armed = nil
			case err != nil:
				return err
			}
		}
	}
	for _, dir := range w.events.WatchList() {
		if !slices.Contains(armed, dir) {
			_ = w.events.Remove(dir)
		}
	}
	return nil
}

// directories lists where something must happen before the path can lead to
// other content: the directory of each symlink on the way, and that of the
// file, or the last one that exists.
func (w *Watcher) directories() []string {
	var dirs []string
	at, links := "/", 0
	steps := strings.Split(w.file, "/")
	for len(steps) > 0 {
		step := steps[0]
		steps = steps[1:]
		next := filepath.Join(at, step)
		if next == at {
			continue
		}
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			steps = nil
		case info.Mode()&os.ModeSymlink != 0 && links < maxSymlinks:
			links++
			dirs = append(dirs, at)
			target, err := os.Readlink(next)
			if err != nil {
				steps = nil
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			steps = append(strings.Split(target, "/"), steps...)
			continue
		case info.IsDir():
			at = next
		default:
			steps = nil
		}
	}
	dirs = append(dirs, at)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// fingerprint tells contents apart. Two ways of being unreadable are also two.
func fingerprint(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	if !info.Mode().IsRegular() {
		return info.Mode().String()
	}
	data, err := read(file)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(data)
	return string(sum[:])
}
