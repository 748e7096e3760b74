package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// notices is a service manager's end of sd_notify(3).
type notices struct {
	t      *testing.T
	path   string
	socket *net.UnixConn
}

func newNotices(t *testing.T, dir string) *notices {
	t.Helper()
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &notices{t, path, socket}
}

// next returns the next message.
func (n *notices) next() string {
	n.t.Helper()
	if err := n.socket.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	text := make([]byte, 8192)
	size, err := n.socket.Read(text)
	if err != nil {
		n.t.Fatalf("the daemon tells nothing: %v", err)
	}
	return string(text[:size])
}

// until reads until a message has a line.
func (n *notices) until(line string) string {
	n.t.Helper()
	for {
		text := n.next()
		if slices.Contains(strings.Split(text, "\n"), line) {
			return text
		}
	}
}

// TestNotify checks the daemon's messages to a service manager from start to stop.
func TestNotify(t *testing.T) {
	k := newKillTest(t)
	n := newNotices(t, k.dir)
	const patience = 3 * time.Second
	cmd := k.start(t, "NOTIFY_SOCKET="+n.path, fmt.Sprintf("WATCHDOG_USEC=%d", patience.Microseconds()))
	ready := n.until("READY=1")
	if !regexp.MustCompile(`(?m)^STATUS=serving, policy sha256:[0-9a-f]+$`).MatchString(ready) {
		t.Errorf("ready: %q", ready)
	}
	// After READY, every connection gets an answer.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	operator, err := client.Dial(ctx, config.OperatorPath(k.socket))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	var status api.Status
	if err := operator.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
		t.Fatal(err)
	}

	// The interval is tested with a fake clock, in internal/daemon/watchdog.
	for range 4 {
		n.until("WATCHDOG=1")
	}

	hangup := func() (reloading, ready string) {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		return n.until("RELOADING=1"), n.until("READY=1")
	}
	reloading, ready := hangup()
	if !regexp.MustCompile(`(?m)^MONOTONIC_USEC=[1-9][0-9]*$`).MatchString(reloading) || !strings.Contains(ready, "\nSTATUS=serving, policy ") {
		t.Errorf("reloading %q, ready %q", reloading, ready)
	}
	cfg := filepath.Join(k.dir, "ocipd.yaml")
	good, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg, append(slices.Clip(good), "polcy: {}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ready := hangup(); !strings.Contains(ready, "the last reload was refused at ") || !strings.Contains(ready, `unknown key "polcy"`) {
		t.Errorf("a bad configuration: %q", ready)
	}
	if err := os.WriteFile(cfg, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ready := hangup(); strings.Contains(ready, "refused") {
		t.Errorf("a good one again: %q", ready)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.until("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A store that needs a restart asks for one.
func TestNotifyBroken(t *testing.T) {
	k := newKillTest(t)
	n := newNotices(t, k.dir)
	cmd := k.start(t, "NOTIFY_SOCKET="+n.path, "WATCHDOG_USEC=3000000")
	n.until("WATCHDOG=1")
	database := filepath.Join(k.dir, "openclawos", "ocipd.db")
	if err := os.Rename(database, database+".away"); err != nil {
		t.Fatal(err)
	}
	if broken := n.until("WATCHDOG=trigger"); !strings.Contains(broken, "STATUS=the store is closed for writing") {
		t.Errorf("told %q", broken)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// activated is a daemon that starts at a connection to existing sockets.
type activated struct {
	*killTest
	cmd *exec.Cmd
	// said is its log. Read it after the process has ended.
	said bytes.Buffer
}

// activate lets systemd's own tool listen, and returns before the daemon runs.
func activate(t *testing.T, k *killTest, args, env []string) *activated {
	t.Helper()
	tool, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("systemd-socket-activate is not here: it is in Debian's package systemd")
	}
	run := filepath.Dir(k.socket)
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	line := []string{tool, "--listen=" + k.socket, "--listen=" + config.OperatorPath(k.socket)}
	for _, variable := range append([]string{asProgram + "=1", "XDG_STATE_HOME=" + k.dir, "HOME=" + k.dir, "GORACE=" + os.Getenv("GORACE")}, env...) {
		line = append(line, "--setenv="+variable)
	}
	line = append(append(line, args...), os.Args[0], "serve", "--config", filepath.Join(k.dir, "ocipd.yaml"))
	a := &activated{killTest: k, cmd: exec.CommandContext(t.Context(), line[0], line[1:]...)}
	a.cmd.Stderr = &a.said
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if a.cmd.ProcessState == nil {
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
	})
	return a
}

// status asks the daemon, which starts it.
func (a *activated) status(t *testing.T) api.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := config.OperatorPath(a.socket)
	appears(ctx, t, path)
	operator, err := client.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	var status api.Status
	if err := operator.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
		_ = a.cmd.Wait()
		t.Fatal(err, a.said.String())
	}
	return status
}

func (a *activated) term(t *testing.T) {
	t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("it does not end in peace: %v\n%s", err, a.said.String())
	}
}

// TestSocketActivation starts the daemon by a first connection, which is answered, with its
// sockets identified by the names of the files and by their paths.
func TestSocketActivation(t *testing.T) {
	for _, args := range [][]string{nil, {"--fdname=kernel:operator"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			k := newKillTest(t)
			n := newNotices(t, k.dir)
			a := activate(t, k, args, []string{"NOTIFY_SOCKET=" + n.path})
			if s := a.status(t); s.Socket != k.socket || s.PID != a.cmd.Process.Pid {
				t.Errorf("it answers at %s, as process %d", s.Socket, s.PID)
			}
			n.until("READY=1")
			app, err := k.app(t.Context(), "@kill/a0", api.Capabilities{})
			if err != nil {
				t.Fatal(err)
			}
			defer app.Close()
			a.term(t)
			for _, path := range []string{k.socket, config.OperatorPath(k.socket)} {
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("what is the service manager's is gone: %v", err)
				}
			}
		})
	}
}

// A configured socket has precedence over passed ones, unless it is one of them.
func TestSocketActivationGivesWay(t *testing.T) {
	k := newKillTest(t)
	same := activate(t, k, nil, []string{"OPENCLAWOS_KERNEL_SOCKET=" + k.socket})
	if s := same.status(t); s.Socket != k.socket {
		t.Errorf("it answers at %s", s.Socket)
	}
	same.term(t)

	other := newKillTest(t)
	elsewhere := filepath.Join(other.dir, "own", "kernel.sock")
	n := newNotices(t, other.dir)
	a := activate(t, other, nil, []string{"OPENCLAWOS_KERNEL_SOCKET=" + elsewhere, "NOTIFY_SOCKET=" + n.path})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	appears(ctx, t, other.socket)
	first, err := net.Dial("unix", other.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	n.until("READY=1")
	own := &activated{killTest: &killTest{socket: elsewhere}, cmd: a.cmd}
	if s := own.status(t); s.Socket != elsewhere || s.UnusedSocket != other.socket {
		t.Errorf("it answers at %s, and says that %q is unused", s.Socket, s.UnusedSocket)
	}
	a.term(t)
	if !strings.Contains(a.said.String(), "another one is configured") {
		t.Errorf("it does not say that what was passed is not used: %s", a.said.String())
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its own socket is left: %v", err)
	}
}

// appears waits for a socket that listens.
func appears(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if listens, err := os.ReadFile("/proc/net/unix"); err == nil && regexp.MustCompile(`00010000 0001 01 +[0-9]+ `+regexp.QuoteMeta(path)+`\n`).Match(listens) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nothing listens on %s", path)
		}
	}
}

// Sockets to which others can connect are refused, with advice.
func TestSocketActivationRefusesOpenSockets(t *testing.T) {
	k := newKillTest(t)
	a := activate(t, k, nil, nil)
	path := config.OperatorPath(k.socket)
	appears(t.Context(), t, path)
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exit, ok := errors.AsType[*exec.ExitError](a.cmd.Wait())
	if !ok || exit.ExitCode() != cli.ExitFailed || !strings.Contains(a.said.String(), "others can connect to it (mode 0660); set SocketMode=0600") {
		t.Errorf("it ends with %v: %s", exit, a.said.String())
	}
}
