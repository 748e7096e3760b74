package daemon_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	protocol "github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// patience bounds every wait of these tests. Only a fault takes that long.
const patience = 20 * time.Second

// acme is a company with two agents in this daemon, colleagues elsewhere, and
// strangers.
const acme = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal, max_rounds: 3}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {instance_id: agent-carol-1, user_id: carol, org_unit: marketing, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:carol"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public], sessions: ["telegram:eve"]}
  - {kind: person, user_id: alice, sessions: ["telegram:alice"]}
routes:
  - {session: "telegram:*", agent: alice}
`

// harness is a running daemon with its own folder.
type harness struct {
	t      testing.TB
	dir    string
	daemon *daemon.Daemon
	// strict excludes processes of apps from the operator socket.
	strict bool
	// logger, if set, is the daemon's logger. passed are a service manager's sockets.
	logger *zap.Logger
	passed []*os.File
	// flags are further values from the command line; nil unsets one.
	flags map[string]any
	// said, if set, keeps callers' messages.
	said *said
	// process is [daemon.Options.Process].
	process *daemon.Process
	// gates, unless nil, is the daemon's input about gates in files.
	gates func() map[string][]string
}

// build starts a daemon over a directory that survives its stop.
func build(t testing.TB, yaml string) *harness {
	t.Helper()
	h := plot(t, yaml)
	h.start()
	t.Cleanup(h.stop)
	return h
}

// plot is a folder for a daemon that is not started.
func plot(t testing.TB, yaml string) *harness {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	h.configure(yaml)
	return h
}

func (h *harness) configure(yaml string) {
	h.t.Helper()
	if err := os.WriteFile(h.path("ocipd.yaml"), []byte(yaml), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) path(name string) string { return filepath.Join(h.dir, name) }

func (h *harness) start() {
	h.t.Helper()
	if err := h.tryStart(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) tryStart() error {
	d, err := h.make()
	if err != nil {
		return err
	}
	if err := d.Start(h.t.Context()); err != nil {
		return err
	}
	h.daemon = d
	return nil
}

// make makes a daemon without starting it.
func (h *harness) make() (*daemon.Daemon, error) {
	flags := map[string]any{
		"ipc.socket": h.path("run/kernel.sock"), "store.url": h.path("state/ocipd.db"),
		// In most tests apps and operators are one process.
		"ipc.apps_may_operate": !h.strict, "approvals.notify.desktop": false,
		// Most tests send more to a stranger than a person would.
		"ocip.unknown.max_messages": 1000000,
		// On a busy machine a policy exceeds its usual limit, and denies.
		"policy.timeout": patience,
	}
	maps.Copy(flags, h.flags)
	cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml"), Flags: flags})
	if err != nil {
		return nil, err
	}
	log := h.logger
	if log == nil {
		log = zap.NewNop()
	}
	d, err := daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: log, Passed: h.passed, Process: h.process, Gates: h.gates})
	if err == nil {
		d.AwaitWitnesses(patience)
	}
	return d, err
}

// observe keeps the daemon's log from here on.
func (h *harness) observe() *observer.ObservedLogs {
	core, logged := observer.New(zap.DebugLevel)
	h.logger = zap.New(core)
	return logged
}

func (h *harness) stop() {
	h.t.Helper()
	if h.daemon == nil {
		return
	}
	if err := h.daemon.Stop(); err != nil {
		h.t.Error(err)
	}
	h.daemon = nil
	h.complete()
}

// ofTests are events of records that tests write themselves.
var ofTests = []string{"", "many", "note", "rows"}

// complete reports records of events that are in no table, and recorded signatures without
// the signed text.
func (h *harness) complete() {
	h.t.Helper()
	text, err := os.ReadFile(h.path("state/audit.jsonl"))
	if err != nil {
		return // the test has taken it away
	}
	for line := range strings.Lines(string(text)) {
		r, err := audit.Parse([]byte(line))
		if err != nil {
			continue // the test has written there
		}
		if !audit.KnownEvent(r.ActionType, r.Event) && !slices.Contains(ofTests, r.Event) {
			h.t.Errorf("record %d is of the event %q of %s, which is in no table: see audit.Events", r.Seq, r.Event, r.ActionType)
		}
		if _, signed := r.Details["signature"]; signed && r.Details["signedText"] == nil {
			h.t.Errorf("record %d, %s %s, has a signature and not what is signed", r.Seq, r.ActionType, r.Event)
		}
	}
}

// app is a registered app over the real socket.
type app struct {
	*client.Client
	t    testing.TB
	id   string
	said *said
}

// connect dials the socket without registering.
func (h *harness) connect(opts ...client.Option) *app {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), h.path("run/kernel.sock"), opts...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return &app{Client: c, t: h.t, said: h.said}
}

func manifest(id string, c api.Capabilities) *api.Manifest {
	return &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "dist/index.js",
		Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c,
	}
}

// register connects and registers.
func (h *harness) register(id string, c api.Capabilities, opts ...client.Option) *app {
	h.t.Helper()
	a := h.connect(opts...)
	a.id = id
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if _, err := a.Register(ctx, manifest(id, c)); err != nil {
		h.t.Fatal(err)
	}
	return a
}

// agent is an app that speaks for an agent, ready.
func (h *harness) agent(id string) *app {
	h.t.Helper()
	a := h.register(id, api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received", "agent_starting", "agent_completed"}}})
	a.must("app.ready", nil, nil)
	return a
}

// channel is an app that owns channels, set up as the SDK does.
func (h *harness) channel(id string, channels ...string) *app {
	h.t.Helper()
	return h.channelApp(id, channels)
}

// channelApp is channel for a client with options.
func (h *harness) channelApp(id string, channels []string, opts ...client.Option) *app {
	h.t.Helper()
	a := h.register(id, api.Capabilities{Channels: api.Provides{Provides: channels}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending"}}}, opts...)
	for _, channel := range channels {
		var granted api.CapabilityResult
		a.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": channel}}, &granted)
		if !granted.Granted {
			h.t.Fatalf("channel %s is not granted: %s", channel, granted.Reason)
		}
	}
	a.must("hook.subscribe", map[string]any{"events": []string{"message_sending"}}, nil)
	a.must("app.ready", nil, nil)
	return a
}

func (a *app) call(method string, params, result any) error {
	a.said.calls(method, params)
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.Call(ctx, method, params, result)
}

// must makes a call that must succeed.
func (a *app) must(method string, params, result any) {
	a.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	if err := a.call(method, params, result); err != nil {
		a.t.Fatalf("%s by %s: %v", method, a.id, err)
	}
}

// refuse makes a call that must fail with a code, and returns the error.
func (a *app) refuse(code api.Code, method string, params any) *api.Error {
	a.t.Helper()
	err := a.call(method, params, nil)
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != code {
		a.t.Fatalf("%s by %s: got %v, want %s", method, a.id, err, code)
	}
	return failure
}

// ocipCode returns details.ocip.code of an error.
func ocipCode(t testing.TB, e *api.Error) string {
	t.Helper()
	var details struct {
		OCIP struct {
			Code string `json:"code"`
		} `json:"ocip"`
	}
	raw, err := json.Marshal(e.Details)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &details); err != nil {
		t.Fatal(err)
	}
	return details.OCIP.Code
}

// held sends a message that must be held, with a code.
func (a *app) held(code ocip.Code, session, content string, metadata map[string]any) api.DispatchResult {
	a.t.Helper()
	result := a.dispatch(session, content, metadata)
	if !result.Held || !result.Queued || result.Waiting || result.ApprovalID == "" || result.OCIP == nil || result.OCIP.Code != code {
		a.t.Fatalf("%s is not held for %s: %+v %+v", content, code, result, result.OCIP)
	}
	return result
}

// dispatch sends a message that must be allowed.
func (a *app) dispatch(session, content string, metadata map[string]any) api.DispatchResult {
	a.t.Helper()
	var result api.DispatchResult
	a.must("message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": metadata}, &result)
	return result
}

// next returns the next event with a name, and drops others in between.
func (a *app) next(event string) protocol.Incoming {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	for {
		in, err := a.Next(ctx)
		if err != nil {
			a.t.Fatalf("%s waits for %s: %v", a.id, event, err)
		}
		if in.Event == event {
			return in
		}
	}
}

// delivered is a hook event about a message in an app's form.
type delivered struct {
	api.HookEvent
	Content    string
	SessionKey string `json:"sessionKey"`
	ReplyTo    string `json:"replyTo"`
	RunID      string `json:"runId"`
	ChannelID  string `json:"channelId"`
	Target     string `json:"target"`
	DispatchID string `json:"dispatchId"`
	Metadata   api.Object
}

func (a *app) message(event string) delivered {
	a.t.Helper()
	in := a.next(event)
	var d delivered
	a.decode(in.Payload, &d.HookEvent)
	a.decode(d.Data, &d)
	return d
}

func (a *app) decode(raw []byte, into any) {
	a.t.Helper()
	if err := json.Unmarshal(raw, into, json.MatchCaseInsensitiveNames(true)); err != nil {
		a.t.Fatalf("%s: %v", raw, err)
	}
}

// operator calls a method on the operator socket.
func (h *harness) operator(method string, params, result any) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(ctx, method, params, result); err != nil {
		h.t.Fatalf("%s: %v", method, err)
	}
}

// nextOf returns the next chunk of a stream.
func nextOf(t testing.TB, s *client.Stream) (jsontext.Value, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Next(ctx)
}

// records returns the newest records that a filter selects, oldest first.
func (h *harness) records(f audit.Filter) []audit.Entry {
	h.t.Helper()
	var page api.AuditQueryResult
	h.operator("audit.query", map[string]any{"filter": f, "limit": 1000}, &page)
	entries := make([]audit.Entry, len(page.Records))
	for i, line := range page.Records {
		e, err := audit.Parse(line)
		if err != nil {
			h.t.Fatal(err)
		}
		entries[len(entries)-1-i] = e
	}
	// A test's own reading of requests is recorded too, and few tests want those records.
	return slices.DeleteFunc(entries, func(e audit.Entry) bool { return e.Event == "held_text_read" && f.Like.Event != e.Event })
}

// verify checks the whole mirror.
func (h *harness) verify() audit.Head {
	h.t.Helper()
	f, err := os.Open(h.path("state/audit.jsonl"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	var v audit.Verifier
	if _, err := v.ReadFrom(f); err != nil {
		h.t.Fatal(err)
	}
	return v.Head()
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not contain %q", text, part)
		}
	}
}
