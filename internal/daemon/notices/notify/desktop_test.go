package notify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

func TestDesktopShows(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a bus,;%41")
	startBus(t, socket, t.TempDir())
	s := startService(t, socket, nil)
	d, logs := newDesktop(t, socket, patience)
	tests := []struct {
		name   string
		notice Notice
		want   call
	}{
		{"plain", Notice{ID: "a", Title: "Approval", Body: "Alice waits.", Urgency: Critical},
			call{title: "Approval", body: "Alice waits.", urgency: byte(2), expires: 0, id: 1}},
		{"unknown urgency", Notice{ID: "b", Title: "x", Urgency: "CRITICAL!"},
			call{title: "x", urgency: byte(1), expires: -1, id: 2}},
		{"low, no title", Notice{ID: "c", Body: "x", Urgency: Low},
			call{title: "ocipd", body: "x", urgency: byte(0), expires: -1, id: 3}},
		{"hostile", Notice{ID: "d", Title: "a\nb\x1b]0;x\a\u202e<b>", Body: "<b>x</b>&amp;<a href='http://evil.example'>\x00\x1b[31m\n\xffy\u2066</a>"},
			call{title: "a b<b>", body: "&lt;b&gt;x&lt;/b&gt;&amp;amp;&lt;a href='http://evil.example'&gt;\n\ufffdy&lt;/a&gt;", urgency: byte(1), expires: -1, id: 4}},
		{"long", Notice{ID: "e", Title: strings.Repeat("t", 1<<20), Body: strings.Repeat("<", 1<<20)},
			call{title: strings.Repeat("t", maxTitle-1) + "…", body: strings.Repeat("&lt;", maxBody-1) + "…", urgency: byte(1), expires: -1, id: 5}},
		{"again", Notice{ID: "a", Title: "Approval", Body: "Alice still waits."},
			call{title: "Approval", body: "Alice still waits.", replaces: 1, urgency: byte(1), expires: -1, id: 1}},
		{"without an id", Notice{Title: "x"}, call{title: "x", urgency: byte(1), expires: -1, id: 6}},
		{"without an id again", Notice{Title: "x"}, call{title: "x", urgency: byte(1), expires: -1, id: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := d.Notify(t.Context(), tt.notice); err != nil {
				t.Fatal(err)
			}
			tt.want.method, tt.want.app, tt.want.actions = "Notify", "ocipd", []string{}
			got := receive(t, s.calls, "a notification")
			if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}

	// Withdrawn: a shown notice, once; nothing else.
	for _, id := range []string{"unknown", "", "b", "b", "a"} {
		if err := d.Withdraw(t.Context(), id); err != nil {
			t.Errorf("withdraw %q: %v", id, err)
		}
	}
	for _, want := range []uint32{2, 1} {
		if got := receive(t, s.calls, "a withdrawal"); got.method != "CloseNotification" || got.id != want {
			t.Errorf("got %+v, want notification %d closed", got, want)
		}
	}
	// A withdrawn notice begins anew.
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, s.calls, "a notification"); got.method != "Notify" || got.replaces != 0 {
		t.Errorf("got %+v, want a new notification", got)
	}
	if logs.Len() != 0 {
		t.Errorf("logged: %s", said(logs))
	}
	d.Close()
	d.Close()
	if err := d.Notify(t.Context(), Notice{ID: "a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := d.Withdraw(t.Context(), "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestDesktopAtRuntimeDir(t *testing.T) {
	dir := t.TempDir()
	startBus(t, filepath.Join(dir, "bus"), t.TempDir())
	s := startService(t, filepath.Join(dir, "bus"), nil)
	log, _ := logged()
	d := NewDesktop(DesktopOptions{Log: log, Getenv: func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": dir}[name]
	}})
	defer d.Close()
	if err := d.Notify(soon(t), Notice{Title: "x"}); err != nil {
		t.Fatal(err)
	}
	receive(t, s.calls, "a notification")
}

func TestDesktopWithoutBus(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	// If a bus were launched, a file would appear.
	bin, launched := t.TempDir(), filepath.Join(t.TempDir(), "launched")
	for _, name := range []string{"dbus-launch", "dbus-daemon", "dbus-run-session"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n: >"+launched+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	// Only the given environment counts, not the daemon's own.
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")

	for name, env := range map[string]map[string]string{
		"nothing":        nil,
		"autolaunch":     {"DBUS_SESSION_BUS_ADDRESS": "autolaunch:", "DISPLAY": ":0"},
		"no such socket": {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"},
		"dead socket":    {"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + dead},
		"empty runtime":  {"XDG_RUNTIME_DIR": t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			log, logs := logged()
			d := NewDesktop(DesktopOptions{Log: log, Getenv: func(name string) string { return env[name] }})
			defer d.Close()
			if err := d.Notify(soon(t), Notice{ID: "a", Title: "x"}); !errors.Is(err, ErrNoDesktop) {
				t.Errorf("got %v, want %v", err, ErrNoDesktop)
			}
			if err := d.Withdraw(soon(t), "a"); err != nil {
				t.Errorf("withdraw: %v", err)
			}
			if all := logs.All(); len(all) != 1 || all[0].Level.String() != "debug" {
				t.Errorf("logged: %s", said(logs))
			}
		})
	}
	if _, err := os.Stat(launched); err == nil {
		t.Error("a bus was launched")
	}

	log, logs := logged()
	d := NewDesktop(DesktopOptions{Log: log, Getenv: func(string) string { return "unix:path=bus" }})
	defer d.Close()
	if err := d.Notify(soon(t), Notice{ID: "a", Title: "x"}); err == nil || errors.Is(err, ErrNoDesktop) {
		t.Errorf("got %v, want an unusable address", err)
	}
	if !strings.Contains(said(logs), "no name of a socket") {
		t.Errorf("logged: %s", said(logs))
	}
}

func TestDesktopWithoutService(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, t.TempDir())
	d, _ := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); !errors.Is(err, ErrNoDesktop) {
		t.Errorf("got %v, want %v", err, ErrNoDesktop)
	}
	// It comes later, as at login.
	s := startService(t, socket, nil)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); err != nil {
		t.Error(err)
	}
	receive(t, s.calls, "a notification")
}

func TestDesktopServiceIsActivated(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	services := t.TempDir()
	file := fmt.Sprintf("[D-BUS Service]\nName=%s\nExec=%s notification-service\n", serviceName, self)
	if err := os.WriteFile(filepath.Join(services, serviceName+".service"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, services)
	d, logs := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Withdraw(t.Context(), "a"); err != nil || logs.Len() != 0 {
		t.Errorf("withdraw: %v; logged: %s", err, said(logs))
	}
}

// The service ends and another replaces it: the other gets no ids of the first.
func TestDesktopServiceRestarts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, t.TempDir())
	d, _ := newDesktop(t, socket, patience)
	first := startService(t, socket, nil)
	for _, id := range []string{"a", "b"} {
		if err := d.Notify(t.Context(), Notice{ID: id, Title: id}); err != nil {
			t.Fatal(err)
		}
		receive(t, first.calls, "a notification")
	}
	gone := watchName(t, socket)
	first.conn.Close()
	receive(t, gone, "the end of the service")

	second := startService(t, socket, nil)
	if err := d.Withdraw(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := d.Notify(t.Context(), Notice{ID: "b", Title: "b"}); err != nil {
		t.Error(err)
	}
	if got := receive(t, second.calls, "a notification"); got.method != "Notify" || got.replaces != 0 {
		t.Errorf("got %+v, want a new notification", got)
	}
}

// watchName reports when the notification service loses its name.
func watchName(t *testing.T, socket string) <-chan *dbus.Signal {
	t.Helper()
	conn, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	signals := make(chan *dbus.Signal, 10)
	if err := conn.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, serviceName), dbus.WithMatchArg(2, "")); err != nil {
		t.Fatal(err)
	}
	conn.Signal(signals)
	return signals
}

// The bus ends and another one starts in the same place, where unique names and ids begin anew.
func TestDesktopBusReturns(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	first := startBus(t, socket, t.TempDir())
	s := startService(t, socket, nil)
	d, _ := newDesktop(t, socket, patience)
	for _, id := range []string{"a", "b"} {
		if err := d.Notify(t.Context(), Notice{ID: id, Title: id}); err != nil {
			t.Fatal(err)
		}
		receive(t, s.calls, "a notification")
	}
	before := s.conn.Names()[0]

	first.stop()
	if err := d.Notify(t.Context(), Notice{ID: "c", Title: "c"}); !errors.Is(err, ErrNoDesktop) {
		t.Errorf("without a bus: %v", err)
	}
	startBus(t, socket, t.TempDir())
	s = startService(t, socket, nil)
	if after := s.conn.Names()[0]; after != before {
		t.Fatalf("the service is %s, was %s: the test shows nothing", after, before)
	}
	if err := d.Withdraw(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := d.Notify(t.Context(), Notice{ID: "b", Title: "b"}); err != nil {
		t.Error(err)
	}
	if got := receive(t, s.calls, "a notification"); got.method != "Notify" || got.title != "b" || got.replaces != 0 {
		t.Errorf("got %+v, want a new notification", got)
	}
}

// The same, without a call in between.
func TestDesktopBusReturnsUnnoticed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	first := startBus(t, socket, t.TempDir())
	startService(t, socket, nil)
	d, _ := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "a"}); err != nil {
		t.Fatal(err)
	}
	first.stop()
	startBus(t, socket, t.TempDir())
	s := startService(t, socket, nil)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "a"}); err != nil {
		t.Error(err)
	}
	if got := receive(t, s.calls, "a notification"); got.replaces != 0 {
		t.Errorf("got %+v, want a new notification", got)
	}
}

// A bus that hangs takes no longer than the limit, and is used again when it continues.
func TestDesktopBusStandsStill(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	bus := startBus(t, socket, t.TempDir())
	s := startService(t, socket, nil)
	d, logs := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "a"}); err != nil {
		t.Fatal(err)
	}
	receive(t, s.calls, "a notification")
	d.timeout = 300 * time.Millisecond
	if err := bus.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := d.Notify(soon(t), Notice{ID: "secret-id", Title: "secret"}); err == nil || !strings.Contains(err.Error(), "no answer within 300ms") {
		t.Error(err)
	}
	if err := d.Withdraw(soon(t), "a"); err == nil {
		t.Error("withdrawn over a bus that stands still")
	}
	if err := bus.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The same bus: shown notices are still known.
	d.timeout = patience
	if err := d.Withdraw(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	for {
		// A call from before the stop may come first.
		if got := receive(t, s.calls, "the withdrawal"); got.method == "CloseNotification" {
			break
		}
	}
	if strings.Contains(strings.ReplaceAll(said(logs), "secret-id", ""), "secret") {
		t.Errorf("logged: %s", said(logs))
	}
}

func TestDesktopServiceHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, t.TempDir())
	hold := make(chan struct{})
	s := startService(t, socket, func(s *service) { s.hold = hold })
	defer close(hold)

	d, _ := newDesktop(t, socket, 200*time.Millisecond)
	if err := d.Notify(soon(t), Notice{Title: "x"}); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("got %v", err)
	}
	receive(t, s.calls, "a notification")

	// Close does not wait for it, nor does a caller that waits for its turn.
	d, _ = newDesktop(t, socket, time.Hour)
	results := make(chan error, 2)
	go func() { results <- d.Notify(t.Context(), Notice{Title: "x"}) }()
	receive(t, s.calls, "a notification")
	go func() { results <- d.Notify(t.Context(), Notice{Title: "y"}) }()
	d.Close()
	for range 2 {
		if err := receive(t, results, "the end of Notify"); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
	}
}

// A socket that accepts connections and stays silent.
func TestDesktopMuteBus(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, _ := newDesktop(t, socket, 200*time.Millisecond)
	if err := d.Notify(soon(t), Notice{Title: "x"}); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("got %v", err)
	}
}

// A service's answer may quote the notice.
func TestDesktopServiceRefuses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, t.TempDir())
	s := startService(t, socket, nil)
	d, logs := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); err != nil {
		t.Fatal(err)
	}
	receive(t, s.calls, "a notification")
	s.mu.Lock()
	s.refuse = dbus.NewError("org.example.Full", []any{"cannot show: secret words"})
	s.mu.Unlock()

	err := d.Notify(t.Context(), Notice{ID: "b", Title: "secret words"})
	if err == nil || !strings.Contains(err.Error(), "org.example.Full") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(said(logs), "org.example.Full") || strings.Contains(said(logs), "secret") {
		t.Errorf("logged: %s", said(logs))
	}
	// Closing a notice that is gone is no error.
	if err := d.Withdraw(t.Context(), "a"); err != nil {
		t.Errorf("withdraw: %v", err)
	}
}

func TestDesktopOddAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	startBus(t, socket, t.TempDir())
	conn, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	calls := make(chan struct{}, 10)
	err = conn.ExportMethodTable(map[string]any{
		"Notify": func(string, uint32, string, string, string, []string, map[string]dbus.Variant, int32) (string, *dbus.Error) {
			calls <- struct{}{}
			return "one", nil
		},
	}, servicePath, serviceName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(serviceName, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	d, _ := newDesktop(t, socket, patience)
	if err := d.Notify(t.Context(), Notice{ID: "a", Title: "x"}); err == nil || !strings.Contains(err.Error(), "uint32") {
		t.Errorf("got %v", err)
	}
	if len(calls) != 1 {
		t.Errorf("asked %d times", len(calls))
	}
}
