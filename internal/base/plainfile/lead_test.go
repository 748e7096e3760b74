package plainfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/openclawos/ocipd/internal/base/plainfile"
	"golang.org/x/sys/unix"
)

// Lead returns the file that the kernel opens by the name.
func TestLead(t *testing.T) {
	above, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(above, "dir")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o700), os.MkdirAll(filepath.Join(above, "other/deep"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "sub/file", "../other/file", "../file"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": "sub/deep", "out": above + "/other/deep", "twice": "link/../file", "loop": "loop", "nowhere": "missing", "self": "/proc/self/cwd"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"file", "./file", ".//file", dir + "/file", "sub/../file", "link/../file", "out/../file", "link/../../out/../file", "twice", "../file", ".", "..", "sub/", "link/.", "/..", "/",
		"loop", "missing", "missing/../file", "file/../file", "file/file", "nowhere", "nowhere/../file", "",
	} {
		// The kernel's answer.
		var want string
		folder, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fd, opened := unix.Openat(folder, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if opened == nil {
			if want, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(fd)
		}
		_ = unix.Close(folder)
		got, err := plainfile.Lead(dir, name, nil)
		if (err == nil) != (opened == nil) || err == nil && got != want || err != nil && !errors.Is(err, opened) {
			t.Errorf("%q leads to %q (%v), and the kernel finds %q (%v)", name, got, err, want, opened)
		}
	}
	for name, want := range map[string]string{"missing/in/there": dir + "/missing/in/there", "nowhere": dir + "/missing", "out/new": above + "/other/deep/new", "missing/../file": "", "": ""} {
		if got, err := plainfile.Lead(dir, name, nil); got != want || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q would be made at %q (%v), want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"self/file", "/proc/self/cwd/file", "/proc/thread-self/root", "/dev/fd/0", "/proc/1/cwd", "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"} {
		if got, err := plainfile.Lead(dir, name, nil); !errors.Is(err, plainfile.ErrOwn) {
			t.Errorf("%q leads to %q (%v)", name, got, err)
		}
	}
}
