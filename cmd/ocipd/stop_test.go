package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
)

// TestTermUnderLoad stops the running daemon in order again and again while apps send. No
// acknowledged message is lost, and each stop exits with 0.
func TestTermUnderLoad(t *testing.T) {
	k := newKillTest(t)
	for round := range 6 {
		k.work(t, k.start(t), 30+41*round, func(cmd *exec.Cmd) {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the daemon does not end in peace: %v", err)
			}
		})
		k.wantEnded(t)
	}
	k.settle(t)
	k.judge(t)
}

// wantEnded checks that the database is closed and the end of the daemon is recorded.
func (k *killTest) wantEnded(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(k.dir, "openclawos", "ocipd.db-*")); err != nil || len(left) > 0 {
		t.Errorf("the database is not closed: %q is left, %v", left, err)
	}
	log, err := os.ReadFile(filepath.Join(k.dir, "openclawos", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))
	// A signed checkpoint may come after it.
	for _, line := range lines[max(0, len(lines)-2):] {
		if e, err := audit.Parse(line); err == nil && e.Event == "daemon_stopped" {
			return
		}
	}
	t.Errorf("the end is not on record; the log ends with %s", lines[len(lines)-1])
}

// A second TERM ends the waiting: requests in flight stay unanswered, and the store is closed as usual.
func TestSecondTerm(t *testing.T) {
	k := newKillTest(t)
	cfg := filepath.Join(k.dir, "ocipd.yaml")
	text, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg, append(text, "drain_timeout: 1h\nhooks: {answer: 1h, apps: {\"@kill/silent\": {required: true}}}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	// It answers nothing, so that a message waits for it.
	silent, err := k.app(ctx, "@kill/silent", api.Capabilities{Hooks: api.HookDeclaration{Intercepts: []string{"message_sending"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for method, params := range map[string]map[string]any{
		"capability.register": {"type": "hook", "config": map[string]any{"event": "message_sending", "intercept": true}},
		"hook.subscribe":      {"events": []string{"message_sending"}},
	} {
		if err := silent.Call(ctx, method, params, nil); err != nil {
			t.Fatal(method, err)
		}
	}
	if err := silent.Call(ctx, "app.ready", map[string]any{}, nil); err != nil {
		t.Fatal(err)
	}
	sender, err := k.app(ctx, "@kill/a0", api.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	message := map[string]any{"sessionKey": "chat:p0", "content": "hello"}
	waiting := make(chan error, 1)
	go func() { waiting <- sender.Call(ctx, "message.dispatch", message, nil) }()
	for {
		in, err := silent.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if in.Event == "hook:message_sending" {
			break
		}
	}

	term := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term()
	// Meanwhile nothing new begins, and callers are told so.
	for {
		err := sender.Call(ctx, "session.list", map[string]any{}, nil)
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Code == api.ConnectionClosed {
			break
		}
		if err != nil {
			t.Fatalf("while it drains: %v", err)
		}
	}
	select {
	case err := <-waiting:
		t.Fatalf("the message did not wait: %v", err)
	default:
	}
	term()
	asked := time.Now()
	exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	if !ok || exit.ExitCode() != cli.ExitFailed {
		t.Errorf("the daemon ends with %v, want %d", exit, cli.ExitFailed)
	}
	if took := time.Since(asked); took > 20*time.Second {
		t.Errorf("at once took %s", took)
	}
	if err := <-waiting; err == nil {
		t.Error("the message in flight was answered")
	}
	k.wantEnded(t)

	// The next daemon continues from here.
	again := k.start(t)
	if err := again.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
}

// TestHangupUnderLoad reloads again and again while apps send: no connection is lost, no
// request fails, and the changes are in force.
func TestHangupUnderLoad(t *testing.T) {
	const reloads = 12
	k := newKillTest(t)
	cfg := filepath.Join(k.dir, "ocipd.yaml")
	text, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	operator := k.operator(ctx, t)
	defer operator.Close()
	var wg sync.WaitGroup
	receiving, endReceiving := context.WithCancel(ctx)
	wg.Go(func() { k.receive(receiving, t) })
	var done atomic.Bool
	for i := range senders {
		wg.Go(func() {
			app, err := k.app(ctx, fmt.Sprintf("@kill/a%d", i), api.Capabilities{})
			if err != nil {
				t.Error(err)
				return
			}
			defer app.Close()
			for !done.Load() {
				var result api.DispatchResult
				err := app.Call(ctx, "message.dispatch", map[string]any{
					"sessionKey": fmt.Sprintf("chat:p%d", i), "content": "hello", "metadata": map[string]any{"exchange": map[string]any{"new": true}},
				}, &result)
				if err != nil {
					t.Errorf("sender %d, while it is reloaded: %v", i, err)
					return
				}
				k.mu.Lock()
				k.acknowledged[i] = append(k.acknowledged[i], result.DispatchID)
				k.mu.Unlock()
			}
		})
	}
	watching, err := k.app(ctx, "@kill/watching", api.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	status := func() (s api.Status) {
		t.Helper()
		if err := operator.Call(ctx, "kernel.status", map[string]any{}, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for n := range reloads {
		// Each time another policy's data, and another section for an app. The watch of
		// files is off for the policy, so only the hangup reloads it.
		types := []string{"information_query", "information_query, meeting_scheduling"}[n%2]
		changed := fmt.Sprintf("%s\npolicy: {watch: false, data: {allowed_exchange_types: [%s]}}\napps: {\"@kill/watching\": {n: round-%d}}\n", text, types, n)
		if err := os.WriteFile(cfg+"~", []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		before := status().Policy.Revision
		if err := os.Rename(cfg+"~", cfg); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for status().Policy.Revision == before {
			if p := status().Policy; p.Refusal != "" {
				t.Fatal(p.Refusal)
			}
		}
		var got struct {
			Value any `json:"value"`
		}
		if err := watching.Call(ctx, "config.get", map[string]any{"path": "apps"}, &got); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprint(got.Value), fmt.Sprintf("round-%d]", n)) {
			t.Errorf("reload %d: the app sees %v", n, got.Value)
		}
	}
	done.Store(true)
	endReceiving()
	wg.Wait()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	k.settle(t)
	k.judge(t)
	log, err := os.ReadFile(filepath.Join(k.dir, "openclawos", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	onRecord := 0
	for line := range bytes.Lines(log) {
		if e, err := audit.Parse(bytes.TrimSpace(line)); err == nil && e.ActionType == audit.ActionPolicyChange && e.Details["by"] == "signal" {
			onRecord++
		}
	}
	if onRecord != reloads {
		t.Errorf("%d reloads are on record, want %d", onRecord, reloads)
	}
}
