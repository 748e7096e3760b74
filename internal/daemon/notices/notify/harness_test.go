package notify

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// patience bounds the wait for something that should come at once.
const patience = 20 * time.Second

// TestMain lets a copy of the test binary be another program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "notification-service":
			os.Exit(beService())
		case "leave-group":
			os.Exit(leaveGroup(os.Args[2], os.Args[3]))
		}
	}
	os.Exit(buildtest.Isolated(m).Run())
}

// beService is a notification service that a bus has started. It ends with the
// bus.
func beService() int {
	conn, err := dbus.Connect(os.Getenv("DBUS_STARTER_ADDRESS"))
	if err != nil {
		return 1
	}
	s := &service{conn: conn, calls: make(chan call, 100)}
	if err := s.serve(); err != nil {
		return 1
	}
	<-conn.Context().Done()
	return 0
}

// leaveGroup moves into its own session, reports that at one path, and ends when the other one does.
func leaveGroup(told, hold string) int {
	if _, err := syscall.Setsid(); err != nil {
		return 1
	}
	if err := os.WriteFile(told, []byte("away\n"), 0o600); err != nil {
		return 1
	}
	if _, err := os.ReadFile(hold); err != nil {
		return 1
	}
	return 0
}

// receive takes the next value, and fails the test if none comes.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("did not see %s", what)
		panic("not reached")
	}
}

// logged is a log that a test reads.
func logged() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	return zap.New(core), logs
}

// said formats the whole log, including values.
func said(logs *observer.ObservedLogs) string {
	var b strings.Builder
	for _, e := range logs.All() {
		fmt.Fprintln(&b, e.Level, e.Message, e.ContextMap())
	}
	return b.String()
}

// daemon is a dbus-daemon.
type daemon struct {
	process *os.Process
	stop    func()
}

// startBus starts a session bus at a path and waits until it listens. It is
// stopped at the end of the test.
func startBus(t *testing.T, socket, services string) *daemon {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	config := filepath.Join(t.TempDir(), "bus.conf")
	err = os.WriteFile(config, fmt.Appendf(nil, `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <servicedir>%s</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`, dbus.EscapeBusAddressValue(socket), services), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--nofork", "--nopidfile", "--print-address=1", "--config-file="+config)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon printed %q, then %v", line, err)
	}
	return &daemon{cmd.Process, stop}
}

// call is a call to a service.
type call struct {
	method   string
	app      string
	replaces uint32
	icon     string
	title    string
	body     string
	actions  []string
	urgency  any
	expires  int32
	// The id that Notify returned, or that CloseNotification names.
	id uint32
}

// service is a notification service like that of a desktop.
type service struct {
	conn  *dbus.Conn
	calls chan call
	// hold, if set, delays an answer.
	hold chan struct{}

	mu     sync.Mutex
	last   uint32
	refuse *dbus.Error // the answer, if set
}

// methods are the methods of org.freedesktop.Notifications.
type methods struct{ *service }

// startService puts a notification service on a bus.
func startService(t *testing.T, socket string, change func(*service)) *service {
	t.Helper()
	conn, err := dbus.Connect("unix:path=" + dbus.EscapeBusAddressValue(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &service{conn: conn, calls: make(chan call, 100)}
	if change != nil {
		change(s)
	}
	if err := s.serve(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) serve() error {
	if err := s.conn.Export(methods{s}, servicePath, serviceName); err != nil {
		return err
	}
	reply, err := s.conn.RequestName(serviceName, dbus.NameFlagDoNotQueue)
	if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
		err = fmt.Errorf("the name is taken: %v", reply)
	}
	return err
}

func (m methods) Notify(app string, replaces uint32, icon, title, body string, actions []string, hints map[string]dbus.Variant, expires int32) (uint32, *dbus.Error) {
	id := m.give(replaces)
	m.calls <- call{"Notify", app, replaces, icon, title, body, actions, hints["urgency"].Value(), expires, id}
	if m.hold != nil {
		<-m.hold
	}
	return id, m.refusal()
}

func (m methods) CloseNotification(id uint32) *dbus.Error {
	m.calls <- call{method: "CloseNotification", id: id}
	return m.refusal()
}

// give returns the id of a notification.
func (s *service) give(replaces uint32) uint32 {
	if replaces != 0 {
		return replaces
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

func (s *service) refusal() *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse
}

// newDesktop makes a desktop notifier whose environment names a socket.
func newDesktop(t *testing.T, socket string, timeout time.Duration) (*Desktop, *observer.ObservedLogs) {
	t.Helper()
	log, logs := logged()
	d := NewDesktop(DesktopOptions{Timeout: timeout, Log: log, Getenv: func(name string) string {
		if name == "DBUS_SESSION_BUS_ADDRESS" {
			return "unix:path=" + dbus.EscapeBusAddressValue(socket)
		}
		return ""
	}})
	t.Cleanup(d.Close)
	return d, logs
}

// soon is a context that ends if something hangs.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
