package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/bridge/console"
)

// heldConsole is a console whose sockets systemd-socket-activate holds.
type heldConsole struct {
	*killTest
	place   console.Place
	control string
	log     *bufio.Scanner
}

// newHeldConsole starts a daemon, and holds sockets for its console at addresses and at its socket for
// commands.
func newHeldConsole(t *testing.T, addresses func(console.Place) []string) *heldConsole {
	t.Helper()
	program, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("systemd-socket-activate is not here: it is in Debian's package systemd")
	}
	a := &heldConsole{killTest: newKillTest(t)}
	a.start(t)
	a.control = filepath.Join(filepath.Dir(a.socket), "console.sock")
	if a.place, err = console.OpenPlace(t.Context(), filepath.Join(a.dir, "openclawos", "console.json")); err != nil {
		t.Fatal(err)
	}
	listen := append(addresses(a.place), a.control)
	var args []string
	for _, at := range listen {
		args = append(args, "--listen="+at)
	}
	for _, e := range []string{asProgram + "=1", "XDG_STATE_HOME=" + a.dir} {
		args = append(args, "--setenv="+e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	args = append(args, os.Args[0])
	cmd := exec.CommandContext(ctx, program, append(args, a.args()...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	})
	a.log = bufio.NewScanner(log)
	for open := 0; open < len(listen); {
		if !a.log.Scan() {
			t.Fatalf("systemd-socket-activate does not listen at %q", listen)
		}
		if strings.HasPrefix(a.log.Text(), "Listening on ") {
			open++
		}
	}
	return a
}

func (a *heldConsole) args() []string {
	return []string{"console", "--print", "--config", filepath.Join(a.dir, "ocipd.yaml"), "--socket", a.socket}
}

// visit asks for the page at an address.
func (a *heldConsole) visit(t *testing.T, address string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
	defer way.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.place.Origin()+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: way}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// link has the command print a link of the console that runs.
func (a *heldConsole) link(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], a.args()...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+a.dir)
	out, err := cmd.CombinedOutput()
	if want := regexp.MustCompile(`it works once: ` + regexp.QuoteMeta(a.place.Origin()) + `/#\S{43}\n`); err != nil || !want.Match(out) || strings.Contains(string(out), "until you interrupt it") {
		t.Errorf("the command ends with %v and says\n%s", err, out)
	}
}

// A visit to the page starts a console whose sockets are held for it, at each of its addresses, and
// so does the command, which gets its link from it.
func TestConsoleIsStartedWhenNeeded(t *testing.T) {
	t.Run("by a visit", func(t *testing.T) {
		a := newHeldConsole(t, console.Place.Addresses)
		for _, address := range a.place.Addresses() {
			if status, text := a.visit(t, address); status != http.StatusOK || !strings.Contains(text, "<!doctype html>") {
				t.Errorf("at %s: %d\n%s", address, status, text)
			}
		}
		a.link(t)
	})
	t.Run("by the command", func(t *testing.T) {
		a := newHeldConsole(t, console.Place.Addresses)
		a.link(t)
		if status, text := a.visit(t, a.place.Addresses()[0]); status != http.StatusOK {
			t.Errorf("%d\n%s", status, text)
		}
	})
}

// The console serves at no address that is not its own, and at no part of its own.
func TestConsoleRefusesOtherSockets(t *testing.T) {
	for name, c := range map[string]struct {
		addresses func(console.Place) []string
		want      string
	}{
		"another address": {func(p console.Place) []string {
			return append(p.Addresses()[1:], strings.Replace(p.Addresses()[0], "127.0.0.1", "127.0.0.2", 1))
		}, "the passed socket 127.0.0.2:"},
		"no page": {func(console.Place) []string { return nil }, "the service manager passed no socket at 127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newHeldConsole(t, c.addresses)
			conn, err := new(net.Dialer).DialContext(t.Context(), "unix", a.control)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var said []string
			for a.log.Scan() {
				said = append(said, a.log.Text())
			}
			if all := strings.Join(said, "\n"); !strings.Contains(all, c.want) || !strings.Contains(all, "ocipd service install --console") {
				t.Errorf("it says\n%s", all)
			}
		})
	}
}
