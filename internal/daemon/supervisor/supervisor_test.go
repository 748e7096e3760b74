package supervisor

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
)

// manager is a service manager that records its messages.
type manager struct {
	t      *testing.T
	socket *net.UnixConn
}

func listen(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, socket}
}

// hear returns the lines of the next message.
func (m *manager) hear() []string {
	m.t.Helper()
	buf := make([]byte, 4096)
	if err := m.socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.socket.Read(buf)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Split(string(buf[:n]), "\n")
}

func (m *manager) want(lines ...string) {
	m.t.Helper()
	if got := m.hear(); strings.Join(got, "\n") != strings.Join(lines, "\n") {
		m.t.Errorf("heard %q, want %q", got, lines)
	}
}

func TestWords(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s := New(zap.NewNop())
	if s.Patience() != 30*time.Second {
		t.Errorf("patience is %s", s.Patience())
	}
	if _, ok := os.LookupEnv("WATCHDOG_USEC"); ok {
		t.Error("a child would take the watchdog for its own")
	}
	s.Ready("serving")
	m.want("READY=1", "STATUS=serving")
	s.Status("a\nREADY=1\r\n b\xff")
	m.want("STATUS=a READY=1 b\ufffd")
	s.Alive()
	m.want("WATCHDOG=1")
	s.Broken("latched")
	m.want("WATCHDOG=trigger", "STATUS=latched")
	s.Stopping("")
	m.want("STOPPING=1", "STATUS=")

	s.Reloading()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	got := m.hear()
	usec, err := strconv.ParseInt(strings.TrimPrefix(got[len(got)-1], "MONOTONIC_USEC="), 10, 64)
	if len(got) != 3 || got[0] != "RELOADING=1" || err != nil || usec <= 0 || usec > now.Nano()/1000 || usec < now.Nano()/1000-10e6 {
		t.Errorf("heard %q, %v", got, err)
	}

	s.Status(strings.Repeat("ö", 2*maxStatus))
	if got := m.hear()[0]; len(got) > maxStatus+len("STATUS=") || !utf8.ValidString(got) || !strings.HasSuffix(got, "ö…") {
		t.Errorf("a long status is %d bytes: %q", len(got), got)
	}
}

// Without a watchdog nobody would restart the daemon, so it does not ask.
func TestBrokenWithoutWatchdog(t *testing.T) {
	m := listen(t)
	for _, vars := range [][2]string{{"", ""}, {"soon", ""}, {"30000000", "1"}, {"-5", ""}} {
		t.Setenv("WATCHDOG_USEC", vars[0])
		t.Setenv("WATCHDOG_PID", vars[1])
		s := New(zap.NewNop())
		if s.Patience() != 0 {
			t.Errorf("%q: patience is %s", vars, s.Patience())
		}
		s.Broken("latched")
		m.want("STATUS=latched")
	}
}

// Without a service manager, nothing is done and nothing is logged.
func TestNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	core, logs := observer.New(zap.DebugLevel)
	for _, s := range []*Manager{nil, New(zap.New(core))} {
		s.Ready("x")
		s.Status("x")
		s.Reloading()
		s.Alive()
		s.Broken("x")
		s.Stopping("x")
		if s.Patience() != 0 {
			t.Error("nobody waits")
		}
	}
	if logs.Len() > 0 {
		t.Errorf("logged %v", logs.All())
	}
	// A service manager that is gone is logged once.
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	New(zap.New(core)).Alive()
	if logs.Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}

// Sockets passed to another process are not this one's.
func TestFilesOfAnother(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "2")
	t.Setenv("LISTEN_FDNAMES", "kernel:operator")
	if files := Files(); len(files) > 0 {
		t.Errorf("took %v", files)
	}
	if _, ok := os.LookupEnv("LISTEN_FDS"); ok {
		t.Error("a child would take the files for its own")
	}
}
