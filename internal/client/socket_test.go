package client

import (
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
