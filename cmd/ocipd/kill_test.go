package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
)

const (
	// kills is how often the daemon is killed, and senders the number of apps that send meanwhile.
	kills   = 15
	senders = 4
)

// TestKillUnderLoad kills the running daemon again and again, without warning and at random
// points, while apps send and one receives. Every acknowledged message must be recorded and
// must arrive, in the order of acknowledgement; every arrived message must be recorded.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	for round := range kills {
		// Each round ends at another point: after a number of acknowledgements.
		k.round(t, 20+37*round%200)
	}
	k.settle(t)
	k.judge(t)
	k.rowsAgree(t)
}

// rowsAgree checks that the daemon's rows agree with its log, by the program and by a
// verifier with only the page. The daemon has stopped in order.
func (k *killTest) rowsAgree(t *testing.T) {
	t.Helper()
	command := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--config", filepath.Join(k.dir, "ocipd.yaml"), "--socket", k.socket}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+k.dir, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %v, %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	command("audit", "verify")
	python, err := exec.LookPath("python3")
	if err != nil {
		return
	}
	state := filepath.Join(k.dir, "openclawos")
	out, err := exec.CommandContext(t.Context(), python, "-I", "../../docs/verify.py", command("audit", "key", "show"), state, "--database", filepath.Join(state, "ocipd.db"), "--row-key", filepath.Join(state, "keys", "rows.json")).CombinedOutput()
	if err != nil {
		t.Errorf("verify.py: %v, %s", err, out)
	}
}

type killTest struct {
	dir, socket string
	mu          sync.Mutex
	// acknowledged holds each sender's acknowledged messages, in order.
	acknowledged [senders][]string
	// arrived holds the channel's messages, in order of first arrival.
	arrived []string
	seen    map[string]int
}

func newKillTest(t *testing.T) *killTest {
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var cfg strings.Builder
	// The test is app and operator in one.
	cfg.WriteString("ipc: {apps_may_operate: true}\nagents:\n")
	for i := range senders {
		fmt.Fprintf(&cfg, "  - {id: a%d, app: \"@kill/a%d\", instance_id: agent-a%d, user_id: u%d, org_unit: eng, tenant_id: acme}\n", i, i, i, i)
	}
	cfg.WriteString("directory:\n")
	for i := range senders {
		fmt.Fprintf(&cfg, "  - {instance_id: agent-p%d, user_id: p%d, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: [\"chat:p%d\"]}\n", i, i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "ocipd.yaml"), []byte(cfg.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock"), seen: make(map[string]int)}
}

// start runs the program and returns when it answers.
func (k *killTest) start(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--config", filepath.Join(k.dir, "ocipd.yaml"), "--socket", k.socket)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+k.dir), env...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), `"ready"`) {
			return cmd
		}
	}
	t.Fatalf("the daemon does not start: %s", strings.Join(said, "\n"))
	return nil
}

func (k *killTest) app(ctx context.Context, id string, c api.Capabilities) (*client.Client, error) {
	app, err := client.Dial(ctx, k.socket)
	if err != nil {
		return nil, err
	}
	_, err = app.Register(ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c,
	})
	return app, err
}

// receive takes messages for the channel until the connection ends.
func (k *killTest) receive(ctx context.Context, t *testing.T) {
	app, err := k.app(ctx, "@kill/chat", api.Capabilities{Channels: api.Provides{Provides: []string{"chat"}}})
	if err != nil {
		return
	}
	defer app.Close()
	// The daemon may be killed before it answers these and after a delivery: messages read
	// by then were received.
	_ = app.Call(ctx, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "chat"}}, nil)
	_ = app.Call(ctx, "app.ready", map[string]any{}, nil)
	for {
		in, err := app.Next(ctx)
		if err != nil {
			return
		}
		if in.Event != "hook:message_sending" {
			continue
		}
		var e api.HookEvent
		var m api.Message
		if err := errors.Join(json.Unmarshal(in.Payload, &e), json.Unmarshal(e.Data, &m)); err != nil {
			t.Error(err)
			return
		}
		k.mu.Lock()
		if k.seen[m.DispatchID]++; k.seen[m.DispatchID] == 1 {
			k.arrived = append(k.arrived, m.DispatchID)
		}
		k.mu.Unlock()
	}
}

// round lets everybody work until a number of messages is acknowledged, and then kills the daemon.
func (k *killTest) round(t *testing.T, after int) {
	t.Helper()
	k.work(t, k.start(t), after, func(cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	})
}

// work lets everybody work until a number of messages is acknowledged, and continues until
// the daemon has ended.
func (k *killTest) work(t *testing.T, cmd *exec.Cmd, after int, end func(*exec.Cmd)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	enough := make(chan struct{})
	var once sync.Once
	n := 0
	wg.Go(func() { k.receive(ctx, t) })
	for i := range senders {
		wg.Go(func() {
			app, err := k.app(ctx, fmt.Sprintf("@kill/a%d", i), api.Capabilities{})
			if err != nil {
				return
			}
			defer app.Close()
			for {
				var result api.DispatchResult
				err := app.Call(ctx, "message.dispatch", map[string]any{
					"sessionKey": fmt.Sprintf("chat:p%d", i), "content": "hello", "metadata": map[string]any{"exchange": map[string]any{"new": true}},
				}, &result)
				if err != nil {
					return
				}
				k.mu.Lock()
				k.acknowledged[i] = append(k.acknowledged[i], result.DispatchID)
				if n++; n >= after {
					once.Do(func() { close(enough) })
				}
				k.mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-ctx.Done():
		t.Error("the daemon acknowledges nothing")
	}
	end(cmd)
	wg.Wait()
}

// operator connects as a person, and returns when the daemon has admitted it.
func (k *killTest) operator(ctx context.Context, t *testing.T) *client.Client {
	t.Helper()
	operator, err := client.Dial(ctx, config.OperatorPath(k.socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Call(ctx, "kernel.status", map[string]any{}, nil); err != nil {
		t.Fatal(err)
	}
	return operator
}

// settle lets the waiting messages be delivered, and stops the daemon in order.
func (k *killTest) settle(t *testing.T) {
	t.Helper()
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	operator := k.operator(ctx, t)
	defer operator.Close()
	received := make(chan struct{})
	go func() {
		defer close(received)
		k.receive(ctx, t)
	}()
	for {
		var status api.Status
		if err := operator.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
			t.Fatal(err)
		}
		if len(status.Queues) == 0 {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the daemon does not end in peace: %v", err)
	}
	<-received
}

func (k *killTest) judge(t *testing.T) {
	t.Helper()
	log, err := os.Open(filepath.Join(k.dir, "openclawos", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var v audit.Verifier
	recorded := make(map[string]bool)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if err := v.Add(lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		if e, err := audit.Parse(lines.Bytes()); err == nil && e.Side == audit.SideSender && e.PolicyResult == "allow" {
			recorded[e.DispatchID] = true
		}
	}
	total := 0
	for i := range senders {
		next := 0
		for _, id := range k.acknowledged[i] {
			total++
			if !recorded[id] {
				t.Errorf("%s was acknowledged and is not on record", id)
			}
			if k.seen[id] == 0 {
				t.Errorf("%s was acknowledged and did not arrive", id)
			}
		}
		for _, id := range k.arrived {
			if next < len(k.acknowledged[i]) && id == k.acknowledged[i][next] {
				next++
			}
		}
		if next != len(k.acknowledged[i]) {
			t.Errorf("sender %d: only %d of %d messages arrived in order", i, next, len(k.acknowledged[i]))
		}
	}
	again := 0
	for id, n := range k.seen {
		if !recorded[id] {
			t.Errorf("%s arrived and is not on record", id)
		}
		if n > 1 {
			again++
		}
	}
	t.Logf("%d messages acknowledged, %d arrived, %d of them again under the same id; %d records verified",
		total, len(k.arrived), again, v.Head().Seq)
}
