package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// other is a user that is nobody's.
const other = 65534

// listenAs listens as another user, as one thread can.
func listenAs(t *testing.T, uid int, path string) {
	t.Helper()
	listening := make(chan error)
	go func() {
		// The thread ends with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			listening <- errno
			return
		}
		l, err := net.Listen("unix", path)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		listening <- err
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
}

// A client says nothing to whoever put a socket where the daemon's would be, and
// speaks to a daemon of another user where nobody else can have put it.
func TestWhoListens(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	for _, tc := range []struct {
		name string
		// The directory above the socket's, whose the socket's own is, and who listens.
		above      os.FileMode
		owner, uid int
		trusted    bool
	}{
		{"in a place for all", 0o777 | os.ModeSticky, other, other, false},
		{"in a place for all without protection", 0o777, 0, other, false},
		{"in a directory of a group", 0o771, other, other, false},
		{"in a place of its own", 0o711, other, other, true},
		{"of root", 0o777 | os.ModeSticky, other, 0, true},
		{"let in by root in a place for all", 0o777 | os.ModeSticky, 0, other, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Not below a directory that the test's own is private in.
			top, err := os.MkdirTemp("", "ocipd")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(top) })
			if err := os.Chmod(top, 0o711); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(top, "above", "openclawos")
			if err := os.MkdirAll(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(top, "above"), tc.above); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, tc.owner, tc.owner); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "kernel.sock")
			if tc.owner != tc.uid && tc.uid != 0 {
				// Root gives the place to whoever listens, and keeps it.
				if err := os.Chmod(dir, 0o1777); err != nil {
					t.Fatal(err)
				}
			}
			listenAs(t, tc.uid, path)
			if tc.owner != tc.uid && tc.uid != 0 {
				if err := os.Chmod(dir, 0o711); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Dial(t.Context(), path)
			if c != nil {
				c.Close()
			}
			switch {
			case tc.trusted && err != nil:
				t.Error(err)
			case !tc.trusted && (err == nil || !strings.Contains(err.Error(), "user 65534 listens there")):
				t.Errorf("trusted: %v", err)
			}
		})
	}
}

// Where links lead counts as well as where they lie, whoever made them.
func TestWhoListensBehindLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	for _, tc := range []struct {
		name string
		// links are made below the test's directory, in which "safe" is a directory
		// of the server's in one of root's, "open" one in a place for all.
		links [][2]string
		// of is whose the links are.
		of      int
		dial    string
		trusted bool
	}{
		{"no link", nil, 0, "safe/run/kernel.sock", true},
		{"to a place for all", [][2]string{{"TOP/open/run", "link"}}, 0, "link/kernel.sock", false},
		{"to a place for all, from where it lies", [][2]string{{"../open/run", "safe/link"}}, 0, "safe/link/kernel.sock", false},
		{"the socket itself", [][2]string{{"TOP/open/run/kernel.sock", "kernel.sock"}}, 0, "kernel.sock", false},
		{"by way of another link", [][2]string{{"TOP/open/run", "second"}, {"second", "link"}}, 0, "link/kernel.sock", false},
		{"back from a place for all", [][2]string{{"TOP/open/run", "link"}}, 0, "link/../run/kernel.sock", false},
		{"to a safe place", [][2]string{{"TOP/safe/run", "link"}}, 0, "link/kernel.sock", true},
		{"the socket itself, to a safe place", [][2]string{{"safe/run/kernel.sock", "kernel.sock"}}, 0, "kernel.sock", true},
		{"of root in a place for all", [][2]string{{"TOP/safe/run", "open/link"}}, 0, "open/link/kernel.sock", true},
		{"of another in a place for all", [][2]string{{"TOP/safe/run", "open/link"}}, other - 1, "open/link/kernel.sock", false},
		{"through a place for all", [][2]string{{"TOP/safe/run", "open/link"}, {"open/link", "link"}}, other - 1, "link/kernel.sock", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top, err := os.MkdirTemp("", "ocipd")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(top) })
			if err := os.Chmod(top, 0o711); err != nil {
				t.Fatal(err)
			}
			for dir, mode := range map[string]os.FileMode{"safe": 0o711, "open": 0o777 | os.ModeSticky} {
				run := filepath.Join(top, dir, "run")
				if err := errors.Join(os.MkdirAll(run, 0o711), os.Chmod(filepath.Join(top, dir), mode), os.Chown(run, other, other)); err != nil {
					t.Fatal(err)
				}
				listenAs(t, other, filepath.Join(run, "kernel.sock"))
			}
			for _, link := range tc.links {
				at := filepath.Join(top, link[1])
				if err := errors.Join(os.Symlink(strings.Replace(link[0], "TOP", top, 1), at), os.Lchown(at, tc.of, tc.of)); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Dial(t.Context(), top+"/"+tc.dial)
			if c != nil {
				c.Close()
			}
			switch {
			case tc.trusted && err != nil:
				t.Error(err)
			case !tc.trusted && (err == nil || !strings.Contains(err.Error(), "others than you and root can put a socket below "+filepath.Join(top, "open"))):
				t.Errorf("trusted: %v", err)
			}
		})
	}
}
