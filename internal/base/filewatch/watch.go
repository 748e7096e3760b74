// Package filewatch says when what a path leads to has become something else: a file,
// or a folder and all below it. It reads nothing of it but what [Fingerprint] is
// asked for: what a state is, its caller says.
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
	// quiet is how long nothing may happen before an edit counts as done.
	quiet = 50 * time.Millisecond
	// patience bounds the wait for quiet, so that a busy directory does not
	// hide an edit for ever.
	patience = 500 * time.Millisecond
	// retry is when directories that could not be watched are tried again.
	retry = time.Second
	// maxSymlinks is how many links the kernel would follow.
	maxSymlinks = 40
	// maxDirectories bounds what one watch takes of the machine.
	maxDirectories = 1024
	// maxLooks is how often directories that keep changing are looked at in a
	// row.
	maxLooks = 100
)

// errRestless means that a tree changed as fast as it was looked at.
var errRestless = errors.New("its directories do not hold still")

// Watcher sees the edits of one file, or of a folder and all below it.
type Watcher struct {
	path string
	// state tells contents apart.
	state func() string
	// events are those of the directories armed. Each pump takes the events
	// of one library watcher.
	events *fsnotify.Watcher
	armed  []string
	pumps  sync.WaitGroup
	// news says that something happened since it was last taken, and moved
	// that it was more than a write.
	news   chan struct{}
	moved  atomic.Bool
	cancel context.CancelFunc
	done   chan struct{}
}

// Start calls onChange after what is at a path has become something else, came or
// went. The path is a file, or a folder of which all that is below counts, whatever
// the depth, but for names that begin with a dot. It sees writes in place, an
// editor's rename, symlinks that were turned (also those the path is reached
// through, as Kubernetes mounts have them), and a file or directory that does not
// exist yet. Symlinks to files are followed wherever they lead; folders that are
// symlinks are not entered, unless path is one. Events are gathered for about
// 50 ms, half a second at most, so that one edit is one call; the last state is
// never missed.
//
// state reads what is at the path and says in text what it is, such as
// [Fingerprint] of a file: equal texts are equal contents. It is called from the
// goroutine that calls onChange, and once before Start returns. What a folder
// means, which of its files count and how large they may be, is thus up to the
// caller. Folders with more than 1024 directories to watch are refused, or tried
// again every second if they grow to that.
//
// The watch holds from the moment Start returns, so load what is there after it.
// onChange is called from one goroutine, never twice at a time. The watch ends
// with ctx or [Watcher.Close].
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

// release ends what takes events, if there is any.
func (w *Watcher) release() {
	if w.events != nil {
		_ = w.events.Close()
	}
	w.pumps.Wait()
}

// pump takes events as they come, because the library may hold its lock while
// it reports an error, and [Watcher.watch] needs that lock. It ends when the
// library's watcher is closed.
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
			// It may stand for events that were lost, so it counts as all of
			// them.
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
		// Armed first: what changes after the state was read is an event.
		if now := w.state(); now != last {
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
		case <-w.news:
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(patience)
		}
	}
}

// arm watches exactly the directories that [Watcher.directories] names, and
// looks again until nothing moved in between. After more than a write all of
// them are watched anew: the library knows directories by names, and confuses
// those that were renamed.
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
		// One may have gone between the look and the watch.
		if moved = errors.Is(err, fs.ErrNotExist); err != nil && !moved {
			return err
		}
	}
	return errRestless
}

// watch watches these directories in place of those before, which stay watched
// where it fails.
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

// directories lists, sorted, where something must happen before the path can
// lead to other content: the directories on the way to it, and of a folder
// those below it and on the way to what its symlinks mean.
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
		// What cannot be looked into cannot be watched either; that it becomes
		// readable is seen from the directory above.
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

// way lists the directories in which the path could be led elsewhere: that of
// each symlink on the way, and that of the file, or the last one that exists.
// Where the path is a directory, folder is that directory without symlinks, and
// is listed.
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

// maxBytes is how much of a file counts.
const maxBytes = 64<<20 + 1

// Fingerprint tells contents of a file apart, by its first 64 MiB. Two ways of being
// unreadable are also two.
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
