package console

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// passedFile is a copy of a socket, as a service manager passes it.
func passedFile(t *testing.T, network, address string) *os.File {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The console takes the sockets of its own address alone, each once, and all of them.
func TestTakePassed(t *testing.T) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	place, err := newPlace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(dir, "console.sock")
	type open func(t *testing.T) []*os.File
	own := func(t *testing.T) (files []*os.File) {
		for _, address := range place.Addresses() {
			files = append(files, passedFile(t, "tcp", address))
		}
		return files
	}
	commands := func(t *testing.T) *os.File { return passedFile(t, "unix", control) }
	for name, c := range map[string]struct {
		open open
		want string
		mode os.FileMode
	}{
		"own": {func(t *testing.T) []*os.File { return append(own(t), commands(t)) }, "", 0o700},
		"another port": {func(t *testing.T) []*os.File {
			return append(own(t), commands(t), passedFile(t, "tcp", "127.0.0.1:0"))
		}, "is none of the console's", 0o700},
		"another socket for commands": {func(t *testing.T) []*os.File {
			return append(own(t), passedFile(t, "unix", filepath.Join(dir, "kernel.sock")))
		}, "kernel.sock is none of the console's", 0o700},
		"no socket for commands": {own, "passed no socket at " + control, 0o700},
		"no ports":               {func(t *testing.T) []*os.File { return []*os.File{commands(t)} }, "passed no socket at 127.0.0.1:", 0o700},
		"every address": {func(t *testing.T) []*os.File {
			_, port, _ := net.SplitHostPort(place.Addresses()[0])
			return []*os.File{passedFile(t, "tcp4", "0.0.0.0:"+port), commands(t)}
		}, "the passed socket 0.0.0.0:", 0o700},
		"twice": {func(t *testing.T) []*os.File {
			f := commands(t)
			raw, err := f.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var again *os.File
			if err := raw.Control(func(fd uintptr) { again = duplicate(t, fd) }); err != nil {
				t.Fatal(err)
			}
			return append(own(t), f, again)
		}, "or is there twice", 0o700},
		"no socket at all": {func(t *testing.T) []*os.File {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			return append(own(t), commands(t), f)
		}, "it is no socket", 0o700},
		"a directory of others": {func(t *testing.T) []*os.File { return append(own(t), commands(t)) }, "it has to be your own", 0o755},
	} {
		t.Run(name, func(t *testing.T) {
			files := c.open(t)
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			pages, listener, err := place.TakePassed(files, control)
			for _, f := range files {
				if f.Close() == nil {
					t.Errorf("the file %s stays open", f.Name())
				}
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || pages != nil || listener != nil {
					t.Errorf("it ends with %v", err)
				}
				return
			}
			if err != nil || len(pages) != len(place.Addresses()) || listener == nil {
				t.Fatalf("%v, %v, %v", pages, listener, err)
			}
			if info, err := os.Stat(control); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the socket for commands: %v, %v", info, err)
			}
			for _, l := range append(pages, listener) {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			// The service manager keeps the socket when the console ends.
			if _, err := os.Lstat(control); err != nil {
				t.Error(err)
			}
		})
	}
}

func duplicate(t *testing.T, fd uintptr) *os.File {
	t.Helper()
	again, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(again), "again")
}
