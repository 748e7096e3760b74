package ipc

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openclawos/ocipd/test/buildtest"
)

// passed opens a socket as a service manager does, and returns the file that it
// would pass. The socket stays when the daemon's copies are closed.
func passed(t *testing.T, name, path string, mode fs.FileMode) *os.File {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	if filepath.IsAbs(path) {
		must(t, os.Chmod(path, mode))
	}
	return named(t, l, name)
}

// named returns the file of a socket under a name of its own.
func named(t *testing.T, socket interface{ File() (*os.File, error) }, name string) *os.File {
	t.Helper()
	dup, err := socket.File()
	must(t, err)
	fd, err := unix.FcntlInt(dup.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	must(t, dup.Close())
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTakePassed(t *testing.T) {
	for _, tc := range []struct {
		name             string
		first, second    string
		kernel, operator string
		swapped          bool
	}{
		{"by the names of the files", "kernel", "operator", "a.sock", "b.sock", false},
		{"by the names of the sockets", "ocipd.socket", "ocipd.socket", "kernel.sock", "operator.sock", false},
		{"in the other order", "LISTEN_FD_3", "LISTEN_FD_4", "kernel.sock", "operator.sock", true},
		{"a name before a path", "kernel", "operator", "operator.sock", "kernel.sock", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := shortDir(t)
			kernel, operator := filepath.Join(dir, tc.kernel), filepath.Join(dir, tc.operator)
			files := []*os.File{passed(t, tc.first, kernel, 0o600), passed(t, tc.second, operator, 0o600)}
			if tc.swapped {
				files[0], files[1] = files[1], files[0]
			}
			p, err := TakePassed(files)
			must(t, err)
			if p.Apps.Addr().String() != kernel || p.Operators.Addr().String() != operator {
				t.Errorf("apps at %s, operators at %s", p.Apps.Addr(), p.Operators.Addr())
			}
			for _, f := range files {
				if err := f.Close(); err == nil {
					t.Error("a file is still open")
				}
			}
			claim, err := p.Claim(0o600)
			must(t, err)
			if _, err := p.Claim(0o600); err == nil || !strings.Contains(err.Error(), "is already running on") {
				t.Errorf("claimed twice: %v", err)
			}
			conn, err := net.Dial("unix", kernel)
			must(t, err)
			defer conn.Close()
			must(t, p.Apps.SetDeadline(time.Now().Add(patience)))
			accepted, err := p.Apps.Accept()
			must(t, err)
			must(t, accepted.Close())
			// The daemon ends; its service manager listens on.
			must(t, p.Close())
			must(t, claim.Release())
			again, err := net.Dial("unix", operator)
			must(t, err)
			must(t, again.Close())
		})
	}
	if p, err := TakePassed(nil); p != nil || err != nil {
		t.Errorf("nothing passed: %v, %v", p, err)
	}
}

func TestTakePassedRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files func(t *testing.T, dir string) []*os.File
		says  string
	}{
		{"one alone", func(t *testing.T, dir string) []*os.File {
			return []*os.File{passed(t, "kernel", filepath.Join(dir, "k"), 0o600)}
		}, "both are needed"},
		{"one twice", func(t *testing.T, dir string) []*os.File {
			return []*os.File{passed(t, "kernel", filepath.Join(dir, "k"), 0o600), passed(t, "x", filepath.Join(dir, "kernel.sock"), 0o600)}
		}, "are both the kernel socket"},
		{"a stranger", func(t *testing.T, dir string) []*os.File {
			return []*os.File{passed(t, "http", filepath.Join(dir, "web.sock"), 0o600)}
		}, "cannot tell what the passed socket"},
		{"a file", func(t *testing.T, dir string) []*os.File {
			f, err := os.CreateTemp(dir, "")
			must(t, err)
			return []*os.File{f}
		}, "it is no socket"},
		{"a TCP socket", func(t *testing.T, _ string) []*os.File {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { l.Close() })
			return []*os.File{named(t, l.(*net.TCPListener), "kernel")}
		}, "it is no Unix stream socket"},
		{"a datagram socket", func(t *testing.T, dir string) []*os.File {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "k"), Net: "unixgram"})
			must(t, err)
			t.Cleanup(func() { c.Close() })
			return []*os.File{named(t, c, "kernel")}
		}, "it is no stream socket"},
		{"a connection", func(t *testing.T, dir string) []*os.File {
			path := filepath.Join(dir, "k")
			passed(t, "kernel", path, 0o600)
			c, err := net.Dial("unix", path)
			must(t, err)
			t.Cleanup(func() { c.Close() })
			return []*os.File{named(t, c.(*net.UnixConn), "kernel")}
		}, "Accept=yes cannot start this program"},
		{"one without a path", func(t *testing.T, _ string) []*os.File {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + t.Name(), Net: "unix"})
			must(t, err)
			t.Cleanup(func() { l.Close() })
			return []*os.File{named(t, l, "kernel")}
		}, "it has no path"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := tc.files(t, shortDir(t))
			before := buildtest.Open(t)
			p, err := TakePassed(files)
			if p != nil || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, %v; want it to say %q", p, err, tc.says)
			}
			after := buildtest.Open(t)
			if more, closed := after.Since(before), before.Since(after); more > 0 || closed < len(files) {
				t.Errorf("%d more descriptors are open, and %d of %d are closed", more, closed, len(files))
			}
		})
	}
}

func TestPassedClaimRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		mode    fs.FileMode
		says    string
	}{
		{"apps' socket open to others", func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "kernel.sock"), 0o666)) }, 0o600, "others can connect to it (mode 0666); set SocketMode=0600"},
		{"operators' socket open to others", func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "operator.sock"), 0o660)) }, 0o666, "others can connect to it (mode 0660)"},
		{"a directory others can write to", func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o777)) }, 0o600, "others can write to it"},
		{"a socket that is gone", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "operator.sock"))) }, 0o600, "cannot use the passed socket"},
		{"a file in its place", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "operator.sock")))
			must(t, os.WriteFile(filepath.Join(dir, "operator.sock"), nil, 0o600))
		}, 0o600, "something that is no socket is there"},
		{"a foreign socket", func(t *testing.T, dir string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a socket away")
			}
			must(t, os.Chown(filepath.Join(dir, "kernel.sock"), 65534, 65534))
		}, 0o600, "it belongs to another user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(shortDir(t), "run")
			p, err := TakePassed([]*os.File{passed(t, "", filepath.Join(dir, "kernel.sock"), 0o600), passed(t, "", filepath.Join(dir, "operator.sock"), 0o600)})
			must(t, err)
			defer p.Close()
			tc.prepare(t, dir)
			if _, err := p.Claim(tc.mode); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
		})
	}
}
