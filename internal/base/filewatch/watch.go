// Package filewatch reports changes behind a path: of a file, or of a folder and everything below
// it. The caller describes a state. The package reads contents only for [Fingerprint].
//
// Use: [Start], and [Watcher.Close] at the end.
package filewatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is the time without events after which an edit counts as done.
	quiet = 50 * time.Millisecond
	// patience bounds the wait for quiet, so that a busy directory does not
	// hide an edit for ever.
	patience = 500 * time.Millisecond
	// retry is the time after which the watcher again tries directories that it could not watch.
	retry = time.Second
	// maxSymlinks is how many links the kernel would follow.
	maxSymlinks = 40
	// maxDirectories bounds the directories that one watch takes of the machine's.
	maxDirectories = 1024
	// maxLooks bounds how often the watcher lists directories in a row because they keep changing.
	maxLooks = 100
)

// errRestless means that a tree changed as fast as the watcher listed it.
var errRestless = errors.New("its directories keep changing")

// Watcher sees the edits of one file, or of a folder and all below it.
type Watcher struct {
	path string
	// state distinguishes contents.
	state func() string
	// events are the events of the armed directories. Each pump takes the events of one library
	// watcher.
	events *fsnotify.Watcher
	armed  []string
	pumps  sync.WaitGroup
	// news signals an event since the last read. moved is set if the event was more than a write.
	news   chan struct{}
	moved  atomic.Bool
	cancel context.CancelFunc
	done   chan struct{}
}

// Start calls onChange after the content at a path has changed, come or gone. The path is a file,
// or a folder. Of a folder everything below it counts, at any depth, except names that begin with a
// dot. Start sees writes in place, an editor's rename, symlinks that were turned (also those on the
// way to the path, as Kubernetes mounts have them), and a file or directory that does not exist
// yet. It follows symlinks to files wherever they lead, but does not enter folders that are
// symlinks, unless path is one. It gathers events for about 50 ms, half a second at most, so that
// one edit is one call. It never misses the last state.
//
// state reads the content at the path and describes it in a text, such as [Fingerprint] of a file:
// equal texts mean equal contents. The goroutine that calls onChange calls it too, and Start calls
// it once before it returns. The caller thus decides the meaning of a folder: which of its files
// count, and how large they may be. Start refuses folders with more than 1024 directories to watch.
// If a folder grows to that later, the watcher tries again every second.
//
// The watch holds from the moment Start returns, so load the content after it. One goroutine calls
// onChange, never twice at a time. The watch ends with ctx or [Watcher.Close].
func Start(ctx context.Context, name string, state func() string, onChange func()) (*Watcher, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", name, err)
	}
	w := &Watcher{path: path, state: state, news: make(chan struct{}, 1), done: make(chan struct{})}
	if err := w.arm(); err != nil {
		w.release()
		return nil, fmt.Errorf("cannot watch %s: %w", name, err)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx, w.state(), onChange)
	return w, nil
}

// Close ends the watch and waits until onChange has returned and everything is
// released. It must not be called by onChange. A second call does nothing.
func (w *Watcher) Close() {
	w.cancel()
	<-w.done
}

// release ends the goroutines that take events, if there are any.
func (w *Watcher) release() {
	if w.events != nil {
		_ = w.events.Close()
	}
	w.pumps.Wait()
}

// pump takes events as they come. The library may hold its lock while it reports an error, and
// [Watcher.watch] needs that lock. It ends when the library's watcher is closed.
func (w *Watcher) pump(of *fsnotify.Watcher) {
	for events, errs := of.Events, of.Errors; events != nil || errs != nil; {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 {
				w.moved.Store(true)
			}
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			// The error may stand for lost events, so it counts as all of them.
			w.moved.Store(true)
		}
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

func (w *Watcher) run(ctx context.Context, last string, onChange func()) {
	defer close(w.done)
	defer w.release()
	defer w.cancel()

	var blind error
	for w.gather(ctx, blind != nil) {
		blind = w.arm()
		// The directories are armed first, so that a change after this read is an event.
		if now := w.state(); now != last {
			last = now
			onChange()
		}
	}
}

// gather waits for an event and then for the end of its edit. After a failure to arm it waits no
// longer than retry. It returns false once the watch is over.
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
		case <-w.news:
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(patience)
		}
	}
}

// arm watches exactly the directories that [Watcher.directories] names, and lists them again until
// nothing moved in between. After an event other than a write it watches all of them anew: the
// library knows directories by names, and confuses renamed ones.
func (w *Watcher) arm() (err error) {
	moved := w.moved.Swap(false)
	defer func() {
		if err != nil {
			w.moved.Store(true)
		}
	}()
	for range maxLooks {
		want, err := w.directories()
		if err != nil {
			return err
		}
		if !moved && slices.Equal(want, w.armed) {
			return nil
		}
		err = w.watch(want)
		// A directory may have gone between the listing and the watch.
		if moved = errors.Is(err, fs.ErrNotExist); err != nil && !moved {
			return err
		}
	}
	return errRestless
}

// watch replaces the watched directories by these. If it fails, the earlier ones stay watched.
func (w *Watcher) watch(dirs []string) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	w.pumps.Go(func() { w.pump(events) })
	for _, dir := range dirs {
		if err := events.Add(dir); err != nil {
			_ = events.Close()
			return err
		}
	}
	if w.events != nil {
		_ = w.events.Close()
	}
	w.events, w.armed = events, dirs
	return nil
}

// directories lists, sorted, the directories that show a change of the content behind the path:
// those on the way to it and, for a folder, those below it and on the way to the targets of its
// symlinks.
func (w *Watcher) directories() ([]string, error) {
	dirs := make(map[string]bool)
	note := func(list []string) {
		for _, dir := range list {
			dirs[dir] = true
		}
	}
	list, folder := way(w.path)
	note(list)
	if folder != "" {
		// A directory that cannot be read cannot be watched either. The directory above shows when
		// it becomes readable.
		_ = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
			case len(dirs) > maxDirectories:
				return fs.SkipAll
			case name != folder && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case entry.IsDir():
				dirs[name] = true
			case entry.Type()&fs.ModeSymlink != 0:
				list, _ := way(name)
				note(list)
			}
			return nil
		})
	}
	if len(dirs) > maxDirectories {
		return nil, fmt.Errorf("more than %d directories to watch", maxDirectories)
	}
	return slices.Sorted(maps.Keys(dirs)), nil
}

// way lists the directories that decide where the path leads: the one of each symlink on the way,
// and the one of the file, or the last one that exists. If the path is a directory, folder is that
// directory without symlinks, and is listed.
func way(path string) (dirs []string, folder string) {
	at, links, arrives := "/", 0, true
	steps := strings.Split(path, "/")
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
			steps, arrives = nil, false
		case info.Mode()&os.ModeSymlink != 0 && links < maxSymlinks:
			links++
			dirs = append(dirs, at)
			target, err := os.Readlink(next)
			if err != nil {
				target, steps, arrives = "", nil, false
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			steps = append(strings.Split(target, "/"), steps...)
			continue
		case info.IsDir():
			at = next
		default:
			steps, arrives = nil, false
		}
	}
	dirs = append(dirs, at)
	if arrives {
		folder = at
	}
	return dirs, folder
}

// maxBytes bounds the part of a file that counts.
const maxBytes = 64<<20 + 1

// Fingerprint distinguishes contents of a file by its first 64 MiB. Two different read errors also
// have different fingerprints.
func Fingerprint(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	if !info.Mode().IsRegular() {
		return info.Mode().String()
	}
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxBytes)); err != nil {
		return err.Error()
	}
	return string(sum.Sum(nil))
}
