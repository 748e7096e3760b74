//go:build linux

package peer

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openclawos/ocipd/test/buildtest"
)

// helperSocket tells a copy of the test binary to connect there, report that with one byte, and
// wait for the end of its input.
const helperSocket = "PEER_TEST_HELPER_SOCKET"

// helperMount tells it to mount itself at that path first, in the mount namespace in which it was
// started, and to continue as the program at that path.
const helperMount = "PEER_TEST_HELPER_MOUNT"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperMount); path != "" {
		os.Exit(borrow(path))
	}
	if os.Getenv(helperSleeps) != "" {
		<-time.After(time.Minute)
		os.Exit(0)
	}
	if socket := os.Getenv(helperSocket); socket != "" {
		os.Exit(help(socket))
	}
	os.Exit(buildtest.Isolated(m).Run())
}

func borrow(path string) int {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	if err := unix.Mount(self, path, "", unix.MS_BIND, ""); err != nil {
		return 1
	}
	os.Unsetenv(helperMount)
	unix.Exec(path, []string{path}, os.Environ())
	return 1
}

func help(socket string) int {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return 1
	}
	defer c.Close()
	if os.Getenv(helperHides) != "" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return 1
		}
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return 1
	}
	if hand := os.Getenv(helperHands); hand != "" {
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			return 1
		}
		other := exec.Command("/bin/sh", "-c", "printf x >&3")
		other.ExtraFiles = []*os.File{f}
		if other.Run() != nil {
			return 1
		}
	}
	if become := os.Getenv(helperBecomes); become != "" {
		// The end of its input ends it.
		io.Copy(io.Discard, os.Stdin)
		unix.CloseOnExec(3)
		env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, helperSocket) })
		unix.Exec(become, []string{become, "60"}, append(env, helperSleeps+"=1"))
		return 1
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// Further tasks of the helper: hide itself, let another process write to its connection, execute
// another program, or be the program that was executed.
const (
	helperHides   = "PEER_TEST_HELPER_HIDES"
	helperHands   = "PEER_TEST_HELPER_HANDS"
	helperBecomes = "PEER_TEST_HELPER_BECOMES"
	helperSleeps  = "PEER_TEST_HELPER_SLEEPS"
)

// ways are the two ways to pin a process.
func ways() map[string]func(int) (int, error) {
	return map[string]func(int) (int, error){
		"pidfd":      peerPidfd,
		"start time": func(int) (int, error) { return -1, unix.ENOPROTOOPT },
	}
}

func listen(t testing.TB) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	// A helper that never connects fails the test instead of hanging it.
	if err := l.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return l
}

// connect returns the accepted end of a connection from this process.
func connect(t testing.TB, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return accept(t, l)
}

func accept(t testing.TB, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// child starts program as the helper and returns it with the accepted end of its connection. Stop
// ends it and waits for it.
func child(t *testing.T, program string) (pid int, s *net.UnixConn, stop func()) {
	t.Helper()
	return start(t, exec.Command(program))
}

func start(t *testing.T, cmd *exec.Cmd, extra ...string) (pid int, s *net.UnixConn, stop func()) {
	t.Helper()
	l := listen(t)
	// A binary built for the race detector waits a second at its end unless
	// told otherwise.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperSocket+"="+l.Addr().String())
	cmd.Env = append(cmd.Env, extra...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("helper: %v", err)
		}
	})
	t.Cleanup(stop)
	s = accept(t, l)
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, s, stop
}

// program copies the test binary to a path of its own.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "helper")
	buildtest.Executable(t, copied, data)
	return copied
}

func TestOwnProcess(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range ways() {
		t.Run(name, func(t *testing.T) {
			p, err := fromConn(connect(t, listen(t)), open)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if p.UID != uint32(os.Getuid()) || p.GID != uint32(os.Getgid()) || p.PID != int32(os.Getpid()) {
				t.Errorf("got uid %d, gid %d, pid %d", p.UID, p.GID, p.PID)
			}
			if !p.Alive() {
				t.Error("not alive")
			}
			if exe, err := p.Exe(); err != nil || exe != self {
				t.Errorf("Exe() = %q, %v, want %q", exe, err, self)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := p.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			if p.Alive() {
				t.Error("alive after Close")
			}
			if exe, err := p.Exe(); err != nil || exe != self {
				t.Errorf("after Close: Exe() = %q, %v, want %q", exe, err, self)
			}
		})
	}
}

func TestKernelGivesPidfd(t *testing.T) {
	p, err := FromConn(connect(t, listen(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.pidfd < 0 {
		t.Skip("this kernel has no SO_PEERPIDFD")
	}
	flags, err := unix.FcntlInt(uintptr(p.pidfd), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	if flags&unix.FD_CLOEXEC == 0 {
		t.Error("a program we start would inherit the pidfd")
	}
}

func TestChildThatExits(t *testing.T) {
	for name, open := range ways() {
		t.Run(name, func(t *testing.T) {
			exe := program(t)
			pid, s, stop := child(t, exe)
			known, err := fromConn(s, open)
			if err != nil {
				t.Fatal(err)
			}
			defer known.Close()
			unasked, err := fromConn(s, open)
			if err != nil {
				t.Fatal(err)
			}
			defer unasked.Close()
			if known.PID != int32(pid) || !known.Alive() {
				t.Errorf("got pid %d, alive %t, want %d, true", known.PID, known.Alive(), pid)
			}
			if got, err := known.Exe(); err != nil || got != exe {
				t.Errorf("Exe() = %q, %v, want %q", got, err, exe)
			}

			stop()

			if known.Alive() || unasked.Alive() {
				t.Error("alive after exit")
			}
			if got, err := unasked.Exe(); !errors.Is(err, ErrGone) {
				t.Errorf("Exe() = %q, %v, want ErrGone", got, err)
			}
			if got, err := known.Exe(); !errors.Is(err, ErrGone) {
				t.Errorf("resolved before: Exe() = %q, %v, want ErrGone", got, err)
			}
			if err := known.Present(); !errors.Is(err, ErrGone) {
				t.Errorf("Present() = %v, want ErrGone", err)
			}
			late, err := fromConn(s, open)
			if err != nil {
				t.Fatalf("after exit: %v", err)
			}
			defer late.Close()
			if late.PID != int32(pid) || late.Alive() {
				t.Errorf("after exit: got pid %d, alive %t, want %d, false", late.PID, late.Alive(), pid)
			}
			if got, err := late.Exe(); !errors.Is(err, ErrGone) {
				t.Errorf("after exit: Exe() = %q, %v, want ErrGone", got, err)
			}
		})
	}
}

func TestReplacedExecutable(t *testing.T) {
	tests := []struct {
		name    string
		replace func(exe string) error
	}{
		{"deleted", os.Remove},
		{"another in its place", func(exe string) error {
			if err := os.Remove(exe); err != nil {
				return err
			}
			return os.WriteFile(exe, []byte("#!/bin/sh\n"), 0o700)
		}},
		{"another in place of the marked name", func(exe string) error {
			if err := os.Remove(exe); err != nil {
				return err
			}
			return os.WriteFile(exe+deletedMark, nil, 0o700)
		}},
		{"kept by a hard link", func(exe string) error {
			if err := os.Link(exe, exe+".old"); err != nil {
				return err
			}
			return os.Remove(exe)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			exe := program(t)
			_, s, _ := child(t, exe)
			p, err := FromConn(s)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := tt.replace(exe); err != nil {
				t.Fatal(err)
			}
			got, err := p.Exe()
			if !errors.Is(err, ErrDeleted) || got != "" {
				t.Errorf("Exe() = %q, %v, want ErrDeleted", got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), exe+":") || strings.Contains(err.Error(), deletedMark)) {
				t.Errorf("error does not name %s: %v", exe, err)
			}
		})
	}
}

// TestBorrowedName runs one program at the path of another, by a mount that
// only the child sees.
func TestBorrowedName(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	attr := func() *syscall.SysProcAttr {
		if os.Getuid() == 0 {
			return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		}
		return &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = attr()
	if err := probe.Run(); err != nil {
		t.Skipf("no mount namespace here: %v", err)
	}
	cmd := exec.Command(program(t))
	cmd.SysProcAttr = attr()
	_, s, _ := start(t, cmd, helperMount+"="+victim)
	p, err := FromConn(s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if exe, err := p.Exe(); !errors.Is(err, ErrForeignMount) || exe != "" {
		t.Errorf("Exe() = %q, %v, want ErrForeignMount", exe, err)
	}
}

// TestReusedPID gives a peer another start time than the process of its pid has.
func TestReusedPID(t *testing.T) {
	p := &Peer{PID: int32(os.Getpid()), pidfd: -1, start: "1"}
	if p.Alive() {
		t.Error("alive, though another process has the pid")
	}
	if exe, err := p.Exe(); !errors.Is(err, ErrGone) {
		t.Errorf("Exe() = %q, %v, want ErrGone", exe, err)
	}
}

// TestRecycledPID ends a process that connected and makes the system give its pid to another
// program.
func TestRecycledPID(t *testing.T) {
	const last = "/proc/sys/kernel/ns_last_pid"
	for name, open := range ways() {
		t.Run(name, func(t *testing.T) {
			pid, s, stop := child(t, program(t))
			old, err := fromConn(s, open)
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			before, err := old.Ancestors()
			if err != nil || !strings.HasPrefix(before[0], strconv.Itoa(pid)+"@") {
				t.Fatalf("Ancestors() = %q, %v", before, err)
			}
			stop()
			// A start time is in ticks of 10 ms: the next tick differs.
			<-time.After(30 * time.Millisecond)
			exe := program(t)
			// Threads and other processes take pids too, so it takes several attempts.
			for range 200 {
				l := listen(t)
				next := exec.Command(exe)
				next.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperSocket+"="+l.Addr().String())
				in, err := next.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(last, []byte(strconv.Itoa(pid-1)), 0); err != nil {
					t.Skipf("pids cannot be chosen here: %v", err)
				}
				if err := next.Start(); err != nil {
					t.Fatal(err)
				}
				accepted := accept(t, l)
				if next.Process.Pid != pid {
					in.Close()
					_ = next.Wait()
					continue
				}
				defer func() {
					in.Close()
					_ = next.Wait()
				}()
				if old.Alive() {
					t.Error("alive, though another process has the pid")
				}
				if exe, err := old.Exe(); !errors.Is(err, ErrGone) {
					t.Errorf("Exe() = %q, %v, want ErrGone", exe, err)
				}
				if line, err := old.Ancestors(); !errors.Is(err, ErrGone) {
					t.Errorf("Ancestors() = %q, %v, want ErrGone", line, err)
				}
				fresh, err := fromConn(accepted, open)
				if err != nil {
					t.Fatal(err)
				}
				defer fresh.Close()
				if line, err := fresh.Ancestors(); err != nil || line[0] == before[0] {
					t.Errorf("the new process is called %q, %v, as the old one: %s", line, err, before[0])
				}
				return
			}
			t.Skip("the pid was not given out again in 200 tries")
		})
	}
}

func TestExeAfterClose(t *testing.T) {
	p, err := FromConn(connect(t, listen(t)))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if exe, err := p.Exe(); !errors.Is(err, ErrClosed) {
		t.Errorf("Exe() = %q, %v, want ErrClosed", exe, err)
	}
}

func TestFromConnErrors(t *testing.T) {
	l := listen(t)
	for _, gone := range []error{unix.ESRCH, unix.EINVAL, unix.ENODATA} {
		p, err := fromConn(connect(t, l), func(int) (int, error) { return -1, gone })
		if err != nil || p.Alive() {
			t.Errorf("%v: got %v, want a peer that is not alive", gone, err)
		}
	}
	if _, err := fromConn(connect(t, l), func(int) (int, error) { return -1, unix.EMFILE }); !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v, want EMFILE", err)
	}
	closed := connect(t, l)
	closed.Close()
	if _, err := FromConn(closed); err == nil || !strings.HasPrefix(err.Error(), "cannot read peer credentials") {
		t.Errorf("closed connection: got %v", err)
	}
}

// TestDescriptors counts this process's descriptors around 1,000 peers.
func TestDescriptors(t *testing.T) {
	const n = 1000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n+100 {
		t.Skipf("only %d descriptors allowed", limit.Cur)
	}
	s := connect(t, listen(t))
	before := buildtest.Open(t)
	peers := make([]*Peer, n)
	for i := range peers {
		p, err := FromConn(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Exe(); err != nil {
			t.Fatal(err)
		}
		peers[i] = p
	}
	if used := buildtest.Open(t).Since(before); used > n {
		t.Errorf("%d peers hold %d descriptors", n, used)
	}
	for _, p := range peers {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := buildtest.Open(t).Since(before); left != 0 {
		t.Errorf("%d descriptors left after Close", left)
	}
}

// TestConcurrentUse is for the race detector: Close during other calls.
func TestConcurrentUse(t *testing.T) {
	p, err := FromConn(connect(t, listen(t)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { p.Alive() })
		wg.Go(func() { p.Exe() })
	}
	wg.Go(func() { p.Close() })
	wg.Wait()
}

func TestParseStartTime(t *testing.T) {
	tail := " 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	tests := []struct {
		name, stat, want string
		gone             bool
	}{
		{"plain", "7 (sh) S" + tail, "4711", false},
		{"name with everything", "7 (a) Z (b\n c) R" + tail, "4711", false},
		{"zombie", "7 (sh) Z" + tail, "", true},
		{"dead", "7 (sh) X" + tail, "", true},
		{"short", "7 (sh) S 1 2", "", false},
		{"no name", "7 sh", "", false},
		{"empty", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStartTime(tt.stat)
			if got != tt.want || (err == nil) != (tt.want != "") || errors.Is(err, ErrGone) != tt.gone {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func BenchmarkFromConn(b *testing.B) {
	s := connect(b, listen(b))
	b.ReportAllocs()
	for b.Loop() {
		p, err := FromConn(s)
		if err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}

func BenchmarkExe(b *testing.B) {
	s := connect(b, listen(b))
	b.ReportAllocs()
	for b.Loop() {
		p, err := FromConn(s)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Exe(); err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}
