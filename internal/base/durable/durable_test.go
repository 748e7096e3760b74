package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	info, err := os.Lstat(path)
	must(t, err)
	if string(got) != content || info.Mode() != mode {
		t.Errorf("%s holds %q, mode %s, want %q, %s", path, got, info.Mode(), content, mode)
	}
}

func TestReplace(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	must(t, Replace(path, ".part", 0o600, []byte("first")))
	want(t, path, "first", 0o600)
	// The remains of a crash do not disturb.
	must(t, os.WriteFile(path+".part", []byte("half"), 0o600))
	must(t, Replace(path, ".part", 0o644, []byte("second")))
	want(t, path, "second", 0o644)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestFollowsNoLink plants a link to somebody's file under both names.
func TestFollowsNoLink(t *testing.T) {
	for _, link := range []func(from, to string) error{os.Symlink, os.Link} {
		dir := t.TempDir()
		precious, path := filepath.Join(dir, "precious"), filepath.Join(dir, "key")
		must(t, os.WriteFile(precious, []byte("precious"), 0o640))
		must(t, link(precious, path))
		must(t, link(precious, path+".part"))
		must(t, Replace(path, ".part", 0o600, []byte("mine")))
		want(t, precious, "precious", 0o640)
		want(t, path, "mine", 0o600)
	}
}

func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	must(t, os.MkdirAll(filepath.Join(path, "below"), 0o700))
	if err := Replace(path, ".part", 0o600, []byte("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := os.Lstat(path + ".part"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if err := Replace(filepath.Join(dir, "nowhere", "key"), ".part", 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written nowhere: %v", err)
	}
	if err := SyncDir(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("synced nowhere: %v", err)
	}
}
