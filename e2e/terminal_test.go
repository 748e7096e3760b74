//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a program at a terminal of its own.
type terminal struct {
	t   *testing.T
	tty *os.File

	mu     sync.Mutex
	screen bytes.Buffer
}

// sit starts a program at a terminal.
func (r *trial) sit(env []string, name string, args ...string) *terminal {
	r.t.Helper()
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	fd := int(tty.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 160})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(r.node, name), args...)
	cmd.Env, cmd.Dir = append(env, "TERM=xterm-256color"), r.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	_ = side.Close()
	s := &terminal{t: r.t, tty: tty}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(s, tty)
	}()
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = tty.Close()
		<-read
		if r.t.Failed() {
			r.t.Logf("the screen:\n%s", s.shown())
		}
	})
	return s
}

// Write takes what the program writes.
func (s *terminal) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(b)
}

func (s *terminal) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

// keys presses keys.
func (s *terminal) keys(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Somebody sits at Claude Code: a call that a person has to approve waits for that and goes
// on, and with the daemon stopped a call is refused.
func TestClaudeCodeAtATerminal(t *testing.T) {
	r := beginTools(t)
	r.write("c/.claude.json", fmt.Sprintf(`{"hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": {"approved": ["none"]}, "projects": {%q: {"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}}}`, r.dir))
	r.write("c/settings.json", `{"permissions": {"allow": ["Bash"]}}`)
	r.integrate(r.claudeEnv("c", nil), "claude-code", "--agent", "ann")
	made, all := r.at("made"), []step{shell("touch " + r.at("made")), shell("git status")}
	api := newStandIn(t, claudeModel)
	var model atomic.Pointer[standIn]
	model.Store(api)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { model.Load().Config.Handler.ServeHTTP(w, q) }))
	t.Cleanup(front.Close)
	s := r.sit(r.claudeEnv("c", &standIn{Server: front}), "claude")
	// goOn has the model make its next call.
	goOn := func(steps int) {
		t.Helper()
		api = newStandIn(t, claudeModel, all[:steps]...)
		model.Store(api)
		r.eventually("the prompt", func() bool { return strings.Contains(s.shown(), "❯") })
		s.keys("continue")
		// A line's end that comes with what was typed is taken for a part of it.
		r.eventually("the model's call", func() bool {
			s.keys("\r")
			_, calls := api.outcome()
			return calls == steps
		})
	}
	told := func(calls int) string {
		t.Helper()
		r.eventually("what the model is told", func() bool { results, _ := api.outcome(); return len(results) == calls })
		results, _ := api.outcome()
		return results[calls-1]
	}
	goOn(1)
	r.eventually("the request", func() bool { return strings.Contains(r.operate("approvals", "list", "--json"), made) })
	if results, _ := api.outcome(); len(results) > 0 {
		t.Errorf("it did not wait: %q", results)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("it was done before a person had approved it")
	}
	r.approveOne()
	said := told(1)
	if _, err := os.Stat(made); err != nil {
		t.Errorf("what a person has approved was not done: %s", said)
	}
	r.stopped()
	goOn(2)
	if said := told(2); strings.Contains(said, "not a git repository") || !strings.Contains(said, "could not be decided") {
		t.Errorf("without a daemon: %s", said)
	}
}
