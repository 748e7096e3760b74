package daemon_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestLogsHoldNoMessages runs a busy session in which all confidential content has a mark,
// and reads the whole log, including debug messages: it contains no mark, and no token.
func TestLogsHoldNoMessages(t *testing.T) {
	const mark = "XYZZY"
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	valid := acme + "channels: {telegram: {botToken: " + mark + "-bot}}\naudit: {sinks: [{name: siem, type: otlp, endpoint: \"http://127.0.0.1:9/v1/logs\", headers: {Authorization: " + mark + "-header}}]}\n"
	h.configure(valid)
	core, logged := observer.New(zapcore.DebugLevel)
	cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml"), Flags: map[string]any{
		"ipc.socket": h.path("run/kernel.sock"), "store.url": h.path("state/ocipd.db"), "ipc.apps_may_operate": true, "approvals.notify.desktop": false,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if h.daemon, err = daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: zap.New(core)}); err != nil {
		t.Fatal(err)
	}
	if err := h.daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)

	telegram := h.channel("@acme/telegram", "telegram")
	alice := h.connect()
	registered, err := alice.Register(t.Context(), manifest("@acme/alice", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}, Intercepts: []string{"message_sending"}}}))
	if err != nil {
		t.Fatal(err)
	}
	alice.id = "@acme/alice"
	alice.must("app.ready", map[string]any{"status": map[string]any{"note": mark + "-status"}}, nil)
	bob := h.agent("@acme/bob")
	text := func(n int) string { return fmt.Sprintf("%s-text-%d", mark, n) }
	metadata := map[string]any{"note": mark + "-metadata", "secret": mark + "-secret"}

	// Allowed, to a channel, to an agent and in from outside.
	for n, key := range []string{"telegram:dave", "agent:bob:main", "telegram:alice"} {
		alice.must("message.dispatch", map[string]any{"sessionKey": key, "content": text(n), "metadata": metadata}, nil)
	}
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": text(3), "metadata": metadata}, nil)
	// Held, refused by each kind of rule, malformed and forged.
	alice.must("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "I agree and commit to " + text(4), "metadata": metadata}, nil)
	for n, p := range []map[string]any{
		{"sessionKey": "telegram:eve", "content": text(5), "metadata": metadata},
		{"sessionKey": "telegram:carol", "content": text(6), "metadata": metadata},
		{"sessionKey": "telegram:dave", "content": "password: hunter2" + text(7) + " AKIAIOSFODNN7SAMPLED", "metadata": map[string]any{"exchange": map[string]any{"classification": "restricted"}}},
		{"sessionKey": "agent:alice:" + mark, "content": text(8)},
	} {
		if err := alice.call("message.dispatch", p, nil); err == nil {
			t.Errorf("message %d is let through", n)
		}
	}
	if err := telegram.call("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": text(9), "metadata": map[string]any{"ocip": map[string]any{"x": mark}}}, nil); err == nil {
		t.Error("a malformed envelope is let through")
	}
	if err := bob.call("hook.result", map[string]any{"eventId": mark, "result": map[string]any{"content": mark}}, nil); err == nil {
		t.Error("an answer to nothing is taken")
	}
	raw, err := net.Dial("unix", h.path("run/kernel.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for _, line := range []string{
		`{"id":"1","type":"message.dispatch","token":"` + mark + `-token","params":{"content":"` + mark + `"}}`,
		`{"id":"2", ` + mark, `{"id":"3","id":"` + mark + `"}`, mark + "\xff", `{"id":"4","type":"` + mark + `"}`, strings.Repeat(mark, 100_000),
	} {
		if _, err := fmt.Fprintln(raw, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answers, some := 0, make([]byte, 4096)
	for answers < 6 {
		n, err := raw.Read(some)
		if err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		answers += strings.Count(string(some[:n]), "\n")
	}
	// A configuration with an error beside secrets; then the store's end.
	h.configure(valid + "apps: {\"@acme/alice\": {password: " + mark + "-password}}\nno_such_key: 1\n")
	if err := h.daemon.Reload(t.Context()); err == nil {
		t.Error("a wrong configuration is taken")
	}
	// A message that cannot be recorded is logged too.
	if err := os.Remove(h.path("state/ocipd.db")); err != nil {
		t.Fatal(err)
	}
	if err := alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": text(10), "metadata": metadata}, nil); err == nil {
		t.Error("a message is let through without a database")
	}
	// The daemon that lost its database reports that at its end.
	_ = h.daemon.Stop()
	h.daemon = nil

	entries := logged.All()
	if len(entries) < 5 {
		t.Fatalf("only %d entries were logged", len(entries))
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	seen := map[zapcore.Level]int{}
	for _, e := range entries {
		line, err := encoder.EncodeEntry(e.Entry, e.Context)
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Level]++
		for _, secret := range []string{mark, "hunter2", "AKIAIOSFODNN7SAMPLED", registered.Token} {
			if strings.Contains(line.String(), secret) {
				t.Errorf("the log holds %q: %s", secret, line)
			}
		}
	}
	if seen[zapcore.ErrorLevel] == 0 || seen[zapcore.InfoLevel] == 0 {
		t.Errorf("the session was not as busy as meant: %v", seen)
	}
}
