package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watched is a watch whose calls each deliver the content that they saw.
type watched struct {
	t    *testing.T
	ctx  context.Context
	seen chan string
}

func watch(t *testing.T, file string) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	w := &watched{t: t, ctx: ctx, seen: make(chan string, 100)}
	watcher, err := Start(ctx, file, printOf(file), func() {
		data, err := os.ReadFile(file)
		if err != nil {
			data = []byte("absent")
		}
		w.seen <- string(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	return w
}

// next waits for one call, which must have seen the content. If an edit caused a second call, that
// call would be the next one here, so a series of these also counts calls. A call may come while
// [write] has emptied a file, and not filled it yet: that one does not count.
func (w *watched) next(want string) {
	w.t.Helper()
	for {
		select {
		case got := <-w.seen:
			switch {
			case got == want:
				return
			case got != "" && !strings.HasSuffix(got, "=") && !strings.Contains(got, "= "):
				w.t.Fatalf("a call saw %q, want %q", got, want)
			}
		case <-w.ctx.Done():
			w.t.Fatalf("no call for %q", want)
		}
	}
}

// until waits for a call that sees a content, whatever the calls before it saw.
func (w *watched) until(want string) {
	w.t.Helper()
	for {
		select {
		case got := <-w.seen:
			if got == want {
				return
			}
		case <-w.ctx.Done():
			w.t.Fatalf("no call for %q", want)
		}
	}
}

func printOf(file string) func() string { return func() string { return Fingerprint(file) } }

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchWritesInPlace(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "ocipd.yaml", "0")
	w := watch(t, file)
	for range 20 {
		write(t, dir, "ocipd.yaml", "half")
		write(t, dir, "ocipd.yaml", "")
	}
	write(t, dir, "ocipd.yaml", "1")
	// A machine that pauses between two writes shows the state between them.
	w.until("1")
	write(t, dir, "other.yaml", "x")
	write(t, dir, "ocipd.yaml", "1")
	write(t, dir, "ocipd.yaml", "2")
	w.next("2")
}

func TestWatchRenames(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "ocipd.yaml", "0")
	w := watch(t, file)
	for _, text := range []string{"1", "2"} {
		must(t, os.Rename(file, file+"~"))
		must(t, os.Rename(write(t, dir, ".new", text), file))
		w.next(text)
	}
	must(t, os.Remove(file))
	w.next("absent")
	write(t, dir, "ocipd.yaml", "3")
	w.next("3")
}

func TestWatchSymlinks(t *testing.T) {
	dir := t.TempDir()
	// The way Kubernetes mounts a ConfigMap.
	write(t, dir, "mount/..1/ocipd.yaml", "1")
	write(t, dir, "mount/..2/ocipd.yaml", "2")
	file := filepath.Join(dir, "mount", "ocipd.yaml")
	must(t, os.Symlink("..1", filepath.Join(dir, "mount", "..data")))
	must(t, os.Symlink("..data/ocipd.yaml", file))
	w := watch(t, file)
	turn := func(link, target string) {
		t.Helper()
		must(t, os.Symlink(target, link+".new"))
		must(t, os.Rename(link+".new", link))
	}
	turn(filepath.Join(dir, "mount", "..data"), "..2")
	w.next("2")
	must(t, os.RemoveAll(filepath.Join(dir, "mount", "..1")))
	write(t, dir, "mount/..2/ocipd.yaml", "2b")
	w.next("2b")

	// A file elsewhere, by an absolute link, written in place.
	elsewhere := write(t, dir, "far/away.yaml", "3")
	turn(file, elsewhere)
	w.next("3")
	write(t, dir, "far/away.yaml", "4")
	w.next("4")
	turn(file, "ocipd.yaml")
	w.next("absent")
	turn(file, "../far/away.yaml")
	w.next("4")
}

func TestWatchThroughALinkedDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "v1/ocipd.yaml", "1")
	write(t, dir, "v2/ocipd.yaml", "2")
	link := filepath.Join(dir, "current")
	must(t, os.Symlink("v1", link))
	w := watch(t, filepath.Join(link, "ocipd.yaml"))
	must(t, os.Symlink("v2", link+".new"))
	must(t, os.Rename(link+".new", link))
	w.next("2")
	write(t, dir, "v2/ocipd.yaml", "3")
	w.next("3")
}

func TestWatchWhatDoesNotExistYet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "b", "ocipd.yaml")
	w := watch(t, file)
	write(t, dir, "a/b/ocipd.yaml", "1")
	w.next("1")
	must(t, os.RemoveAll(filepath.Join(dir, "a")))
	w.next("absent")
	write(t, dir, "a/b/ocipd.yaml", "2")
	w.next("2")

	// A directory that moves away takes its watch with it.
	must(t, os.Rename(filepath.Join(dir, "a", "b"), filepath.Join(dir, "a", "old")))
	w.next("absent")
	write(t, dir, "a/b/ocipd.yaml", "3")
	w.next("3")
	write(t, dir, "a/old/ocipd.yaml", "not ours")
	write(t, dir, "a/b/ocipd.yaml", "4")
	w.next("4")
}

func TestWatchNeverMissesTheLastState(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "ocipd.yaml", "start")
	// Edits happen while calls run, faster than they are gathered.
	reached := make(chan struct{})
	watcher, err := Start(t.Context(), file, printOf(file), func() {
		if data, _ := os.ReadFile(file); string(data) == "end" {
			close(reached)
		}
	})
	must(t, err)
	defer watcher.Close()
	for range 5000 {
		write(t, dir, "ocipd.yaml", "middle")
	}
	write(t, dir, "ocipd.yaml", "end")
	select {
	case <-reached:
	case <-time.After(20 * time.Second): // since the last edit
		t.Fatal("the last state was not seen")
	}
}

func TestWatchEnds(t *testing.T) {
	file := write(t, t.TempDir(), "ocipd.yaml", "0")

	ctx, cancel := context.WithCancel(t.Context())
	byContext, err := Start(ctx, file, printOf(file), func() {})
	must(t, err)
	cancel()
	select {
	case <-byContext.done:
	case <-time.After(10 * time.Second):
		t.Fatal("the watch outlived its context")
	}
	byContext.Close()

	// Close waits for the running call.
	began, release := make(chan struct{}), make(chan struct{})
	returned := false
	byClose, err := Start(t.Context(), file, printOf(file), func() {
		close(began)
		<-release
		returned = true
	})
	must(t, err)
	write(t, filepath.Dir(file), "ocipd.yaml", "1")
	select {
	case <-began:
	case <-time.After(10 * time.Second):
		t.Fatal("no call")
	}
	close(release)
	byClose.Close()
	byClose.Close()
	if !returned {
		t.Error("Close did not wait")
	}
}
