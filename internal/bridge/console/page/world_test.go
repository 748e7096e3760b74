package page_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/bridge/console/page"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
)

// patience bounds every wait of these tests. Only a fault takes that long.
const patience = 30 * time.Second

// acme is a company with agents of this daemon, colleagues elsewhere, and strangers.
const acme = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal, max_rounds: 3}
  - {id: planner, app: "@acme/planner", instance_id: agent-planner-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: confidential, max_rounds: 6}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public], sessions: ["telegram:eve"]}
  - {kind: person, user_id: alice, sessions: ["telegram:alice"]}
routes:
  - {session: "telegram:*", agent: alice}
`

// world is a daemon with its apps, the process behind the page, and a browser.
type world struct {
	testing.TB
	dir    string
	daemon *daemon.Daemon
	// start starts the daemon anew, after it was stopped.
	start  func()
	server *httptest.Server
	// link is an address that begins a session.
	link func() string
	// answer, if set, replaces the result of a method before the page gets it.
	answer func(method string, result jsontext.Value) jsontext.Value
	// made, if set, answers a call in place of the daemon, unless it returns nil.
	made func(method string, params jsontext.Value) any
	// instead, if set, answers a request as another program would.
	instead func(http.ResponseWriter, *http.Request) bool
	// pushed are lines for the stream besides those of the daemon.
	pushed chan any

	browser context.Context
	mu      sync.Mutex
	// keys are those of the sessions, by their names.
	keys map[string]string
	// faults are what no page may have: reports of its policy, errors, dialogs, other hosts.
	faults []string
}

func begin(t testing.TB, yaml string) *world {
	t.Helper()
	return beginIn(t, func(string) string { return yaml })
}

// beginIn starts a daemon whose configuration is made for its folder.
func beginIn(t testing.TB, made func(dir string) string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a browser may still write there
	w := &world{TB: t, dir: dir, pushed: make(chan any, 1<<16), keys: map[string]string{}}
	if err := os.WriteFile(w.path("ocipd.yaml"), []byte(made(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: w.path("ocipd.yaml"), Flags: map[string]any{
		"ipc.socket": w.path("run/kernel.sock"), "store.url": w.path("state/ocipd.db"),
		// The apps, the person and the process are one process here.
		"ipc.apps_may_operate": true, "approvals.notify.desktop": false, "policy.timeout": patience,
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.start = func() {
		t.Helper()
		if w.daemon, err = daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: zap.NewNop()}); err != nil {
			t.Fatal(err)
		}
		if err := w.daemon.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	t.Cleanup(func() {
		if err := w.daemon.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.server = httptest.NewServer(w)
	w.link = func() string { return w.server.URL + "/#code" }
	t.Cleanup(func() { w.server.CloseClientConnections(); w.server.Close() })
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// operator is a connection of the person's.
func (w *world) operator(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, w.path("run/operator.sock"))
}

// ask makes a call as the person.
func (w *world) ask(method string, params, result any) {
	w.Helper()
	c, err := w.operator(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(w.Context(), method, params, result); err != nil {
		w.Fatalf("%s: %v", method, err)
	}
}

// app is an app of the world.
type app struct {
	*client.Client
	w *world
}

func (w *world) app(id string, c api.Capabilities) *app {
	w.Helper()
	conn, err := client.Dial(w.Context(), w.path("run/kernel.sock"), client.WithDropEvents())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	if _, err := conn.Register(w.Context(), &api.Manifest{ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "dist/index.js", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c}); err != nil {
		w.Fatal(err)
	}
	return &app{conn, w}
}

func (a *app) must(method string, params any) {
	a.w.Helper()
	if err := a.Call(a.w.Context(), method, params, nil); err != nil {
		a.w.Fatalf("%s: %v", method, err)
	}
}

// say sends a message, and returns the answer whatever was decided.
func (a *app) say(session, content string) api.DispatchResult {
	a.w.Helper()
	var result api.DispatchResult
	err := a.Call(a.w.Context(), "message.dispatch", map[string]any{"sessionKey": session, "content": content}, &result)
	if failure, ok := errors.AsType[*api.Error](err); err != nil && !ok {
		a.w.Fatalf("message.dispatch: %v", failure)
	}
	return result
}

// people make the apps of the world, and let them say something of every kind.
func (w *world) people() (alice *app) {
	w.Helper()
	telegram := w.app("@acme/telegram", api.Capabilities{Channels: api.Provides{Provides: []string{"telegram"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending"}}})
	telegram.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}})
	telegram.must("hook.subscribe", map[string]any{"events": []string{"message_sending"}})
	telegram.must("app.ready", map[string]any{})
	hooks := api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received", "agent_starting", "agent_completed"}}}
	alice = w.app("@acme/alice", hooks)
	alice.must("app.ready", map[string]any{})
	bob := w.app("@acme/bob", hooks)
	bob.must("app.ready", map[string]any{})
	planner := w.app("@acme/planner", hooks)
	planner.must("app.ready", map[string]any{})
	alice.say("telegram:alice", "The build is green again; the nightly run took 14 minutes.")
	alice.say("telegram:eve", "Here is the plan for the quarter.")
	alice.say("telegram:dave", "I promise the review by Friday.\nPay to \u202eEVE\u202c first, and confirm with <script>alert(1)</script>.\n\nThe rest of the schedule is as we discussed: builder finishes the migration on Wednesday, ops takes the snapshot at 18:00, and nobody merges before the gate is green. If that slips by more than a day I will tell you by Thursday noon.")
	planner.say("agent:bob:main", "Can you take the migration this week?")
	planner.say("telegram:dave", "Deal. I agree to 1 million\u200b for the licence, payable in two parts.")
	bob.say("agent:alice:main", "What is the state of the snapshot?")
	return alice
}

// tasks are two tasks, one with an effect on the world.
func (w *world) tasks() {
	w.Helper()
	const spec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"
	w.ask("task.create", map[string]any{"title": "Export invoices as CSV", "spec_markdown": spec, "workspace": "export", "initial_phase": "spec_review", "effects": []any{
		map[string]any{"idempotency_key": "deploy", "side_effect_kind": "deployment", "requested_action": "Deploy the export to production.", "params": map[string]any{"to": "production"}},
	}}, nil)
	w.ask("task.create", map[string]any{"title": "Draft the release notes", "spec_markdown": spec, "workspace": "notes", "initial_phase": "spec_draft"}, nil)
}

// headers are those of every answer of the process.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
}

// ServeHTTP is the process behind the page, without its guards: it passes calls to the daemon.
func (w *world) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	for name, value := range headers {
		out.Header().Set(name, value)
	}
	if w.instead != nil && w.instead(out, in) {
		return
	}
	if in.Method == http.MethodGet {
		name := strings.TrimPrefix(in.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		content, kind, ok := page.File(name)
		if !ok {
			http.NotFound(out, in)
			return
		}
		out.Header().Set("Content-Type", kind)
		_, _ = out.Write(content)
		return
	}
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return
	}
	out.Header().Set("Content-Type", "application/json")
	if !w.prove(out, in) {
		out.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch in.URL.Path {
	case "/session":
		_, _ = io.WriteString(out, `{"person":"uid:1000"}`)
	case "/prove":
		put(out, map[string]any{})
	case "/health":
		_, _ = io.WriteString(out, `{"result":[{"check":"notices","health":"warn","text":"nobody is told when a request waits","advice":"set approvals.notify.command, then: ocipd config reload"},{"check":"socket","health":"pass","text":"the operator socket answers"}]}`)
	case "/call":
		w.relay(in.Context(), out, body)
	case "/stream":
		w.stream(in.Context(), out, body)
	case "/texts", "/decide":
		w.decide(in.Context(), out, in.URL.Path, body)
	default:
		http.NotFound(out, in)
	}
}

// sum is a proof by a key, as the page makes it.
func sum(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// prove has the answer to a request prove that it knows the request's key, as the process does. The link
// has the key "code", of which each page makes that of its session.
func (w *world) prove(out http.ResponseWriter, in *http.Request) bool {
	parts := strings.Split(strings.TrimPrefix(in.Header.Get("Authorization"), "Proof "), ".")
	if len(parts) != 3 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.keys[parts[0]]
	if in.URL.Path == "/session" {
		key = "code"
		session := sum(key, "ocipd console session\x00"+parts[1])
		name := sha256.Sum256([]byte(session))
		w.keys[hex.EncodeToString(name[:])] = session
	}
	out.Header().Set("Ocipd-Proof", sum(key, "ocipd console answer\x00"+parts[1]))
	return key != ""
}

func put(out http.ResponseWriter, v any) {
	_ = json.MarshalWrite(out, v)
}

func fault(out http.ResponseWriter, err error) {
	failure, ok := errors.AsType[*api.Error](err)
	if !ok {
		failure = &api.Error{Code: api.InternalError, Message: err.Error()}
	}
	put(out, map[string]any{"error": failure})
}

func (w *world) relay(ctx context.Context, out http.ResponseWriter, body []byte) {
	var call struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal(body, &call); err != nil {
		fault(out, err)
		return
	}
	if w.made != nil {
		if result := w.made(call.Method, call.Params); result != nil {
			put(out, map[string]any{"result": result})
			return
		}
	}
	c, err := w.operator(ctx)
	if err != nil {
		fault(out, err)
		return
	}
	defer c.Close()
	var result jsontext.Value
	if err := c.Call(ctx, call.Method, call.Params, &result); err != nil {
		fault(out, err)
		return
	}
	if w.answer != nil {
		result = w.answer(call.Method, result)
	}
	said := map[string]any{"result": result}
	if call.Method == "approval.get" {
		var a api.Approval
		if err := json.Unmarshal(result, &a); err != nil {
			fault(out, err)
			return
		}
		said["shown"] = describe.Show(&a, time.Now())
	}
	put(out, said)
}

// asked is a request's row on the stream.
func asked(a *api.ApprovalSummary) map[string]any {
	return map[string]any{"kind": "request", "approval": a, "why": describe.Why(a), "rank": describe.Rank(a), "like": describe.Like(a)}
}

func (w *world) stream(ctx context.Context, out http.ResponseWriter, body []byte) {
	var p struct {
		After uint64 `json:"after"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		fault(out, err)
		return
	}
	c, err := w.operator(ctx)
	if err != nil {
		fault(out, err)
		return
	}
	defer c.Close()
	lines := make(chan any)
	send := func(v any) error {
		select {
		case lines <- v:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var status jsontext.Value
	if c.Call(ctx, "kernel.status", nil, &status) == nil {
		go func() { _ = send(map[string]any{"kind": "status", "status": status}) }()
	}
	go func() {
		_ = c.Each(ctx, "audit.tail", &api.AuditTailParams{After: &p.After, Follow: true}, func(chunk jsontext.Value) error {
			return send(map[string]any{"kind": "record", "record": chunk.Clone()})
		})
	}()
	go func() {
		_ = c.Each(ctx, "approval.watch", nil, func(chunk jsontext.Value) error {
			var news api.ApprovalNews
			if err := json.Unmarshal(chunk, &news); err != nil {
				return err
			}
			if news.Caught {
				return send(map[string]any{"kind": "caught"})
			}
			return send(asked(news.Approval))
		})
	}()
	for {
		var v any
		select {
		case <-ctx.Done():
			return
		case v = <-lines:
		case v = <-w.pushed:
		}
		put(out, v)
		_, _ = io.WriteString(out, "\n")
		if len(w.pushed) == 0 {
			out.(http.Flusher).Flush()
		}
	}
}

func (w *world) decide(ctx context.Context, out http.ResponseWriter, path string, body []byte) {
	var p api.ApprovalResolveParams
	if err := json.Unmarshal(body, &p); err != nil {
		fault(out, err)
		return
	}
	c, err := w.operator(ctx)
	if err != nil {
		fault(out, err)
		return
	}
	defer c.Close()
	var a api.Approval
	if err := c.Call(ctx, "approval.get", &api.ApprovalParams{ApprovalID: p.ApprovalID}, &a); err != nil {
		fault(out, err)
		return
	}
	if path == "/texts" {
		text, err := a.TextToSign(p.Decision, p.Content, p.Note, p.Exchange)
		if err != nil {
			fault(out, err)
			return
		}
		put(out, map[string]any{"text": text, "click": true, "credentials": []string{}, "command": "ocipd approvals " + p.Decision + " " + p.ApprovalID})
		return
	}
	var result api.ApprovalResolveResult
	if err := c.Call(ctx, "approval.resolve", &p, &result); err != nil {
		fault(out, err)
		return
	}
	put(out, map[string]any{"result": result, "said": describe.Decided(a.Kind, result)})
}

// browse opens the page in Chromium, in a size and a colour scheme.
func (w *world) browse(width, height int64, scheme, hash string) {
	w.Helper()
	if w.browser == nil {
		binary, err := exec.LookPath("chromium")
		if err != nil {
			w.Skip("chromium is not installed")
		}
		opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(binary), chromedp.NoSandbox, chromedp.UserDataDir(w.path("browser")), chromedp.Flag("force-color-profile", "srgb"), chromedp.Env("HOME="+w.dir, "TMPDIR="+w.dir))
		ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
		w.Cleanup(stop)
		w.browser, stop = chromedp.NewContext(ctx)
		w.Cleanup(stop)
		w.watch()
	}
	w.size(width, height, 1)
	w.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
	w.do(chromedp.Navigate("about:blank"), chromedp.Navigate(w.link()))
	w.until(`document.querySelector("header.top .live:not(.gone)")?.textContent === "live"`)
	if hash != "" {
		w.visit(hash)
	}
}

// size gives the window a size, in pixels of the page, of which each has so many pixels of the screen.
func (w *world) size(width, height int64, scale float64) {
	w.Helper()
	w.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: scale, Mobile: width < 600})
		return err
	}))
}

// visit goes to a screen.
func (w *world) visit(hash string) {
	w.Helper()
	w.do(chromedp.Evaluate[chromedp.Void](`location.hash = ` + quote(hash) + `; undefined`))
}

// watch keeps what no page may have.
func (w *world) watch() {
	w.Helper()
	if err := chromedp.Listen(w.browser, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			w.found(ev.ExceptionDetails.Text + " " + thrown(ev.ExceptionDetails.Exception))
		}
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) found(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, what)
}

func (w *world) do(steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.browser, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.Fatal(err)
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// until waits for an expression to be true.
func (w *world) until(expression string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.browser, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("!!("+expression+")"))
	for err != nil && strings.Contains(err.Error(), "Cannot find context") { // the page before it went away
		_, err = chromedp.Run(ctx, chromedp.Poll[bool]("!!("+expression+")"))
	}
	if err != nil {
		shown, _ := chromedp.Run(w.browser, chromedp.Evaluate[string](`document.body.innerText.slice(-1500)`))
		w.Fatalf("waits for %s: %v\n%s\n%s", expression, err, shown, strings.Join(w.faults, "\n"))
	}
}

// eval is the value of an expression of the page.
func eval[T any](w *world, expression string) T {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.browser, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.Fatalf("%s: %v", expression, err)
	}
	return v
}

// picture keeps a screenshot, if CONSOLE_PICTURES names a folder.
func (w *world) picture(name string) {
	w.Helper()
	dir := os.Getenv("CONSOLE_PICTURES")
	if dir == "" {
		return
	}
	image, err := chromedp.Run(w.browser, chromedp.CaptureScreenshot())
	if err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), image, 0o600); err != nil {
		w.Fatal(err)
	}
}

// click presses what a selector finds first.
func click(selector string) chromedp.Action[chromedp.Void] { return chromedp.Click(selector) }

func decode(from jsontext.Value, into any) error { return json.Unmarshal(from, into) }

func encode(v any) jsontext.Value {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// thrown is what an exception says.
func thrown(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return o.Description
}
