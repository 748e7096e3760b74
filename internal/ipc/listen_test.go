package ipc

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// shortDir returns a directory for sockets with a path short enough for their addresses.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A claim is refused if somebody else could interfere, and says why.
func TestClaimRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		// prepare makes the place and returns the socket's path in it.
		prepare func(t *testing.T, dir string) string
		says    string
	}{
		{"a directory that is a symlink", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
			must(t, os.Symlink("real", filepath.Join(dir, "run")))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "it is a symbolic link"},
		{"a symlink to nowhere", func(t *testing.T, dir string) string {
			must(t, os.Symlink("nowhere", filepath.Join(dir, "run")))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "socket directory"},
		{"a foreign directory", func(t *testing.T, dir string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			must(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
			must(t, os.Chown(filepath.Join(dir, "run"), 65534, 65534))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "it belongs to another user"},
		{"a directory the group can write to", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
			must(t, os.Chmod(filepath.Join(dir, "run"), 0o770))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "others can write to it (mode 0770)"},
		{"a directory that all can write to", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
			must(t, os.Chmod(filepath.Join(dir, "run"), 0o777|os.ModeSticky))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "others can write to it (mode 0777)"},
		{"a file in place of the directory", func(t *testing.T, dir string) string {
			must(t, os.WriteFile(filepath.Join(dir, "run"), nil, 0o600))
			return filepath.Join(dir, "run", "kernel.sock")
		}, "socket directory"},
		{"a path that is too long", func(t *testing.T, dir string) string {
			return filepath.Join(dir, strings.Repeat("x", maxSocketPath), "kernel.sock")
		}, "longer than 107 bytes"},
		{"a file in place of the socket", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			must(t, os.WriteFile(path, []byte("precious"), 0o600))
			return path
		}, "something that is no socket is there"},
		{"a symlink in place of the socket", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			must(t, os.Symlink("elsewhere", path))
			return path
		}, "something that is no socket is there"},
		{"a symlink in place of the lock", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			must(t, os.Symlink("elsewhere", path+".lock"))
			return path
		}, "cannot open the lock file"},
		{"a hard link to another file in place of the socket", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			must(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("precious"), 0o600))
			must(t, os.Link(filepath.Join(dir, "precious"), path))
			return path
		}, "something that is no socket is there"},
		{"a hard link to somebody's live socket", func(t *testing.T, dir string) string {
			l, err := net.Listen("unix", filepath.Join(dir, "theirs"))
			must(t, err)
			t.Cleanup(func() { l.Close() })
			path := filepath.Join(dir, "kernel.sock")
			must(t, os.Link(filepath.Join(dir, "theirs"), path))
			return path
		}, "a daemon is already running"},
		{"a symlink that another user planted where all can write, as in /tmp", func(t *testing.T, dir string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can plant something as another user")
			}
			must(t, os.Chmod(dir, 0o777|os.ModeSticky))
			must(t, os.Mkdir(filepath.Join(dir, "ours"), 0o700))
			must(t, os.Symlink("ours", filepath.Join(dir, "openclawos")))
			must(t, os.Lchown(filepath.Join(dir, "openclawos"), 65534, 65534))
			return filepath.Join(dir, "openclawos", "kernel.sock")
		}, "it is a symbolic link"},
		{"a directory that another user made where all can write, as in /tmp", func(t *testing.T, dir string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can plant something as another user")
			}
			must(t, os.Chmod(dir, 0o777|os.ModeSticky))
			must(t, os.Mkdir(filepath.Join(dir, "openclawos"), 0o700))
			must(t, os.Chown(filepath.Join(dir, "openclawos"), 65534, 65534))
			return filepath.Join(dir, "openclawos", "kernel.sock")
		}, "it belongs to another user"},
		{"a daemon that answers and has no lock", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			l, err := net.Listen("unix", path)
			must(t, err)
			t.Cleanup(func() { l.Close() })
			return path
		}, "a daemon is already running"},
		{"a daemon that has the lock and does not answer yet", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kernel.sock")
			c, err := ClaimSockets(path)
			must(t, err)
			t.Cleanup(func() { must(t, c.Release()) })
			return path
		}, "is already running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := tc.prepare(t, shortDir(t))
			before, _ := os.Lstat(path)
			c, err := ClaimSockets(path)
			if err == nil {
				t.Fatal("the claim succeeded", c.Release())
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %q, want it to say %q", err, tc.says)
			}
			if after, _ := os.Lstat(path); before != nil && (after == nil || !os.SameFile(before, after)) {
				t.Error("what was there is there no more")
			}
		})
	}
}

// The lock file is emptied when it is taken, so another file that was linked in its place must not
// be mistaken for it.
func TestLockEmptiesNothingElse(t *testing.T) {
	dir := shortDir(t)
	path, precious := filepath.Join(dir, "kernel.sock"), filepath.Join(dir, "precious")
	must(t, os.WriteFile(precious, []byte("precious"), 0o600))
	must(t, os.Link(precious, path+".lock"))
	c, err := ClaimSockets(path)
	if err == nil {
		t.Error("the claim succeeded", c.Release())
	} else if !strings.Contains(err.Error(), "has another name too") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// The second of two sockets is checked like the first.
func TestClaimRefusesTheSecondSocket(t *testing.T) {
	dir := shortDir(t)
	kernel, operator := filepath.Join(dir, "kernel.sock"), filepath.Join(dir, "operator.sock")
	l, err := net.Listen("unix", operator)
	must(t, err)
	if _, err := ClaimSockets(kernel, operator); err == nil || !strings.Contains(err.Error(), operator) {
		t.Fatalf("got %v", err)
	}
	must(t, l.Close())
	// A failed claim has released the lock.
	c, err := ClaimSockets(kernel, operator)
	must(t, err)
	must(t, c.Release())
}

func TestListen(t *testing.T) {
	path := filepath.Join(shortDir(t), "new", "run", "kernel.sock")
	c, err := ClaimSockets(path)
	must(t, err)
	l, err := c.Listen(path, 0o600)
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %04o", info.Mode().Perm())
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		info, err := os.Stat(dir)
		must(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %04o", dir, info.Mode().Perm())
		}
	}
	must(t, l.Close())
	must(t, c.Release())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	// The lock file stays, and blocks nobody.
	again, err := ClaimSockets(path)
	must(t, err)
	must(t, again.Release())
}

// A socket that its daemon left behind is replaced.
func TestListenReplacesADeadSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "kernel.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	must(t, dead.Close())
	if _, err := net.Dial("unix", path); err == nil {
		t.Fatal("the socket is not dead")
	}
	c, err := ClaimSockets(path)
	must(t, err)
	l, err := c.Listen(path, 0o600)
	must(t, err)
	conn, err := net.Dial("unix", path)
	must(t, err)
	must(t, conn.Close())
	must(t, l.Close())
	must(t, c.Release())
}

// Of daemons that start at once, exactly one gets the sockets.
func TestClaimRace(t *testing.T) {
	for range 30 {
		path := filepath.Join(shortDir(t), "kernel.sock")
		var won atomic.Int32
		var all sync.WaitGroup
		claims := make(chan *Claim, 8)
		start := make(chan struct{})
		for range cap(claims) {
			all.Go(func() {
				<-start
				c, err := ClaimSockets(path)
				switch {
				case err == nil:
					won.Add(1)
					claims <- c
				case !strings.Contains(err.Error(), "already running"):
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d claims succeeded", won.Load())
		}
		must(t, (<-claims).Release())
	}
}

// The lock belongs to the process alone: its child processes do not inherit it.
func TestClaimIsNotInherited(t *testing.T) {
	c, err := ClaimSockets(filepath.Join(shortDir(t), "kernel.sock"))
	must(t, err)
	defer func() { must(t, c.Release()) }()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, c.lock.Fd(), syscall.F_GETFD, 0)
	if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, errno)
	}
}
