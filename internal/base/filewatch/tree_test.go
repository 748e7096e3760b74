package filewatch

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// content is the state of a tree in these tests: name and text of each file that ends in .rego,
// except names that begin with a dot.
func content(root string) string {
	info, err := os.Stat(root)
	if err != nil {
		return "absent"
	}
	if !info.IsDir() {
		data, _ := os.ReadFile(root)
		return string(data)
	}
	var parts []string
	fsys := os.DirFS(root)
	_ = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(name) == ".rego" && !strings.HasPrefix(entry.Name(), "."):
			data, err := fs.ReadFile(fsys, name)
			if err != nil {
				data = []byte("absent")
			}
			parts = append(parts, name+"="+string(data))
		}
		return nil
	})
	return strings.Join(parts, " ")
}

func watchTree(t *testing.T, path string) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	w := &watched{t: t, ctx: ctx, seen: make(chan string, 100)}
	watcher, err := Start(ctx, path, func() string { return content(path) }, func() { w.seen <- content(path) })
	must(t, err)
	t.Cleanup(watcher.Close)
	return w
}

func turn(t *testing.T, link, target string) {
	t.Helper()
	must(t, os.Symlink(target, link+".new"))
	must(t, os.Rename(link+".new", link))
}

func TestWatchTreeFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, dir, "a.rego", "0")
	w := watchTree(t, dir)

	write(t, dir, "a.rego", "1")
	w.next("a.rego=1")
	write(t, dir, "b.rego", "1")
	w.next("a.rego=1 b.rego=1")
	must(t, os.Rename(at("b.rego"), at("c.rego")))
	w.next("a.rego=1 c.rego=1")
	// A file outside the content makes no call.
	write(t, dir, "README", "x")
	write(t, dir, ".hidden/a.rego", "x")
	must(t, os.Rename(write(t, dir, ".a.rego.swp", "2"), at("a.rego")))
	w.next("a.rego=2 c.rego=1")
	must(t, os.Remove(at("c.rego")))
	w.next("a.rego=2")
}

func TestWatchTreeFolders(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, dir, "root.rego", "0")
	w := watchTree(t, dir)

	// Folders that appear as a whole, and edits deep inside them.
	write(t, dir, "x/y/z/a.rego", "1")
	w.next("root.rego=0 x/y/z/a.rego=1")
	write(t, dir, "x/y/z/a.rego", "2")
	w.next("root.rego=0 x/y/z/a.rego=2")

	// A renamed folder is watched under its new name.
	must(t, os.Rename(at("x"), at("v")))
	w.next("root.rego=0 v/y/z/a.rego=2")
	write(t, dir, "v/y/z/a.rego", "3")
	w.next("root.rego=0 v/y/z/a.rego=3")

	// Two folders that swap their names are both still watched.
	write(t, dir, "w/y/z/a.rego", "4")
	w.next("root.rego=0 v/y/z/a.rego=3 w/y/z/a.rego=4")
	must(t, os.Rename(at("v"), at(".v")))
	must(t, os.Rename(at("w"), at("v")))
	must(t, os.Rename(at(".v"), at("w")))
	w.next("root.rego=0 v/y/z/a.rego=4 w/y/z/a.rego=3")
	write(t, dir, "v/y/z/a.rego", "5")
	w.next("root.rego=0 v/y/z/a.rego=5 w/y/z/a.rego=3")
	write(t, dir, "w/y/z/a.rego", "6")
	w.next("root.rego=0 v/y/z/a.rego=5 w/y/z/a.rego=6")

	// A removed folder is no longer watched.
	must(t, os.RemoveAll(at("v")))
	w.next("root.rego=0 w/y/z/a.rego=6")
	elsewhere := filepath.Join(t.TempDir(), "w")
	must(t, os.Rename(at("w"), elsewhere))
	w.next("root.rego=0")
	write(t, elsewhere, "y/z/a.rego", "not ours")
	write(t, dir, "root.rego", "1")
	w.next("root.rego=1")
}

// A folder with files that link through a link which is turned, as Kubernetes
// mounts a ConfigMap.
func TestWatchTreeOfLinks(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	write(t, dir, "mount/..1/a.rego", "1")
	write(t, dir, "mount/..2/a.rego", "2")
	must(t, os.Symlink("..1", filepath.Join(mount, "..data")))
	must(t, os.Symlink("..data/a.rego", filepath.Join(mount, "a.rego")))
	w := watchTree(t, mount)
	turn(t, filepath.Join(mount, "..data"), "..2")
	w.next("a.rego=2")
	must(t, os.RemoveAll(filepath.Join(mount, "..1")))
	write(t, dir, "mount/..2/a.rego", "2b")
	w.next("a.rego=2b")

	// A file elsewhere, written in place.
	elsewhere := write(t, dir, "far/away.rego", "3")
	turn(t, filepath.Join(mount, "a.rego"), elsewhere)
	w.next("a.rego=3")
	write(t, dir, "far/away.rego", "4")
	w.next("a.rego=4")
	turn(t, filepath.Join(mount, "a.rego"), "a.rego")
	w.next("a.rego=absent")
}

func TestWatchTreeThatIsALink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "v1/sub/a.rego", "1")
	write(t, dir, "v2/sub/a.rego", "2")
	link := filepath.Join(dir, "current")
	must(t, os.Symlink("v1", link))
	w := watchTree(t, link)
	turn(t, link, "v2")
	w.next("sub/a.rego=2")
	write(t, dir, "v2/sub/a.rego", "3")
	w.next("sub/a.rego=3")
	write(t, dir, "v1/sub/a.rego", "not ours")

	// It is removed, and appears as a file and then as a folder again.
	must(t, os.Remove(link))
	w.next("absent")
	write(t, dir, "current", "file")
	w.next("file")
	write(t, dir, "current", "file again")
	w.next("file again")
	must(t, os.Remove(link))
	w.next("absent")
	write(t, dir, "current/sub/a.rego", "4")
	w.next("sub/a.rego=4")
}

func TestWatchTreeNeverMissesTheLastState(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.rego", "start")
	const last = "last/sub/a.rego=end"
	reached := make(chan struct{})
	watcher, err := Start(t.Context(), dir, func() string { return content(dir) }, func() {
		if content(dir) == last {
			close(reached)
		}
	})
	must(t, err)
	defer watcher.Close()
	// Folders appear, move and go while they are being armed.
	must(t, os.Remove(filepath.Join(dir, "a.rego")))
	before := "0"
	write(t, dir, before+"/sub/a.rego", "middle")
	for n := range 1000 {
		next := fmt.Sprint(n + 1)
		must(t, os.Rename(filepath.Join(dir, before), filepath.Join(dir, next)))
		write(t, dir, "gone/sub/a.rego", "middle")
		must(t, os.Rename(filepath.Join(dir, "gone"), filepath.Join(dir, "going")))
		must(t, os.RemoveAll(filepath.Join(dir, "going")))
		before = next
	}
	must(t, os.Rename(filepath.Join(dir, before), filepath.Join(dir, "last")))
	write(t, dir, "last/sub/a.rego", "end")
	select {
	case <-reached:
	case <-time.After(30 * time.Second): // since the last edit
		t.Fatal("the last state was not seen")
	}
}

func TestWatchTreeIsBounded(t *testing.T) {
	dir := t.TempDir()
	w := watchTree(t, dir)
	for n := range maxDirectories {
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(n)), 0o700))
	}
	write(t, dir, "0/a.rego", "1")
	w.next("0/a.rego=1")

	// Now that the tree is too large, a new watch is refused and the old one tries again every
	// second.
	_, err := Start(t.Context(), dir, func() string { return "" }, func() {})
	if err == nil || !strings.Contains(err.Error(), "cannot watch "+dir+": more than 1024 directories") {
		t.Errorf("got %v", err)
	}
	write(t, dir, fmt.Sprintf("%d/a.rego", maxDirectories-1), "2")
	w.next(fmt.Sprintf("0/a.rego=1 %d/a.rego=2", maxDirectories-1))
}
