package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
)

// until is an output that reports when it has received some texts.
type until struct {
	text bytes.Buffer
	seen map[string]func()
}

func (u *until) Write(p []byte) (int, error) {
	u.text.Write(p)
	for want, seen := range u.seen {
		if strings.Contains(u.text.String(), want) {
			seen()
		}
	}
	return len(p), nil
}

// TestFollow runs a daemon and follows its log: a record is shown as soon as it is made, an
// interrupt is a good end, and the daemon's end ends it with advice.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// One process is the daemon, an app and the operator here.
	env := []string{"HOME=" + dir, "OCIPD_IPC_APPS_MAY_OPERATE=true"}
	ocipd := func(ctx context.Context, stdout *until, args ...string) (code int, stderr string) {
		var errs bytes.Buffer
		code = run(ctx, append([]string{"--socket", filepath.Join(dir, "kernel.sock")}, args...), strings.NewReader(""), stdout, &errs, env)
		return code, errs.String()
	}
	quiet := func() *until { return &until{} }

	serving, stop := context.WithCancel(t.Context())
	defer stop()
	var daemon, follower sync.WaitGroup
	daemon.Go(func() {
		if code, said := ocipd(serving, quiet(), "serve", "--log-level", "error"); code != cli.ExitDone {
			t.Errorf("serve exits %d: %s", code, said)
		}
	})
	if code, said := ocipd(t.Context(), quiet(), "status", "--wait", "20s"); code != cli.ExitDone {
		t.Fatalf("status exits %d: %s", code, said)
	}

	following, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	begun := make(chan struct{})
	once := sync.OnceFunc(func() { close(begun) })
	follower.Go(func() {
		out := &until{seen: map[string]func(){"daemon_started": once, "app_lifecycle registered": interrupt}}
		if code, said := ocipd(following, out, "audit", "tail", "-f"); code != cli.ExitDone {
			t.Errorf("an interrupted tail exits %d: %s", code, said)
		}
	})
	<-begun
	if code, said := ocipd(t.Context(), quiet(), "call", "session.list"); code != cli.ExitDone {
		t.Errorf("call exits %d: %s", code, said)
	}
	follower.Wait()

	again := make(chan struct{})
	follower.Go(func() {
		out := &until{seen: map[string]func(){"daemon_started": sync.OnceFunc(func() { close(again) })}}
		code, said := ocipd(t.Context(), out, "audit", "tail", "-f", "--json")
		if code != cli.ExitFailed || !strings.Contains(said, "--after ") {
			t.Errorf("a tail that lost its daemon exits %d: %s", code, said)
		}
	})
	<-again
	stop()
	daemon.Wait()
	follower.Wait()
}
