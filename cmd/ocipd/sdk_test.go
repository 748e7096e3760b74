package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// sdkVariable names a built checkout of the SDK's package, the folder with dist/app.mjs.
const sdkVariable = "OCIPD_SDK"

// told is a report of an app of the SDK to the test. One member is set.
type told struct {
	// Given is a message to the app's handler. Event is an event of the kernel or of the connection.
	Given, Event string
	Result       jsontext.Value
	Failed       string
}

// sdkApp is an app that continues by itself when its daemon ends and comes back.
type sdkApp struct {
	t    *testing.T
	name string
	// ask has the app call a method, and pause stops its whole process.
	ask           func(method string, params any)
	pause, goOn   func()
	hears         <-chan told
	given, events []string
}

// next reads the app's reports until one fits.
func (a *sdkApp) next(what string, fits func(told) bool) told {
	a.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case m, ok := <-a.hears:
			if !ok {
				a.t.Fatalf("%s ended before %s", a.name, what)
			}
			if m.Given != "" {
				a.given = append(a.given, m.Given)
			}
			if m.Event != "" {
				a.events = append(a.events, m.Event)
			}
			if fits(m) {
				return m
			}
		case <-deadline:
			a.t.Fatalf("%s: no %s; it was given %q and heard %q", a.name, what, a.given, a.events)
		}
	}
}

// call has the app call a method, and returns the answer.
func (a *sdkApp) call(method string, params, result any) {
	a.t.Helper()
	a.ask(method, params)
	m := a.next("answer to "+method, func(m told) bool { return m.Result != nil || m.Failed != "" })
	if m.Failed != "" {
		a.t.Fatalf("%s: %s: %s", a.name, method, m.Failed)
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		a.t.Fatal(err)
	}
}

// dispatch sends a message in a new exchange.
func (a *sdkApp) dispatch(content string) (result api.DispatchResult) {
	a.t.Helper()
	a.call("message.dispatch", map[string]any{
		"sessionKey": "chat:p", "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	return result
}

// wantGiven waits for a message, unless it came already.
func (a *sdkApp) wantGiven(content string) {
	a.t.Helper()
	if slices.ContainsFunc(a.given, func(given string) bool { return strings.HasPrefix(given, content) }) {
		return
	}
	a.next("message "+content, func(m told) bool { return strings.HasPrefix(m.Given, content) })
}

func (a *sdkApp) wantEvent(event string) {
	a.t.Helper()
	a.next("event "+event, func(m told) bool { return m.Event == event })
}

// lineApp speaks like an app of the SDK, line for line, as recorded of version 0.1.0: it
// registers and sets itself up once in its life. When its connection ends it connects again
// after a second and continues with its token, beginning with its next heartbeat or message.
type lineApp struct {
	t       *testing.T
	socket  string
	role    string
	lines   chan string
	tells   chan told
	paused  chan bool
	token   string
	counter int
}

func startLineApp(t *testing.T, socket, role string) *sdkApp {
	t.Helper()
	l := &lineApp{t: t, socket: socket, role: role, lines: make(chan string), tells: make(chan told, 64), paused: make(chan bool)}
	type request struct {
		method string
		params any
	}
	requests := make(chan request)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	conn := l.connect()
	l.setUp(conn)
	go func() {
		defer close(ended)
		heart := time.NewTicker(300 * time.Millisecond)
		defer heart.Stop()
		var again <-chan time.Time
		for {
			beat := heart.C
			asked := requests
			if conn == nil {
				beat, asked = nil, nil
			}
			select {
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
				return
			case pause := <-l.paused:
				for pause {
					select {
					case pause = <-l.paused:
					case <-ctx.Done():
						pause = false
					}
				}
			case <-beat:
				l.write(conn, "app.heartbeat", map[string]any{"status": map[string]any{"status": "healthy"}})
			case r := <-asked:
				l.write(conn, r.method, r.params)
			case line, ok := <-l.lines:
				if !ok {
					conn.Close()
					conn, l.lines = nil, nil
					l.tells <- told{Event: "disconnected"}
					again = time.After(time.Second)
					continue
				}
				l.take(line)
			case <-again:
				if conn = l.connect(); conn == nil {
					again = time.After(time.Second)
				}
			}
		}
	}()
	return &sdkApp{
		t: t, name: "@sdk/" + role, hears: l.tells,
		ask:   func(method string, params any) { requests <- request{method, params} },
		pause: func() { l.paused <- true }, goOn: func() { l.paused <- false },
	}
}

// connect returns nil if nothing listens.
func (l *lineApp) connect() net.Conn {
	conn, err := net.Dial("unix", l.socket)
	if err != nil {
		return nil
	}
	lines := make(chan string, 64)
	l.lines = lines
	go func() {
		defer close(lines)
		for r := bufio.NewReader(conn); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	return conn
}

// write sends one request. A failure shows as the end of the connection.
func (l *lineApp) write(conn net.Conn, method string, params any) (id string) {
	l.counter++
	id = fmt.Sprintf("00000000-0000-4000-8000-%012d", l.counter)
	text, err := json.Marshal(params)
	if err != nil {
		l.t.Error(err)
	}
	line := fmt.Sprintf(`{"id":%q,"type":"request","timestamp":%d,"method":%q,"params":%s`, id, time.Now().UnixMilli(), method, text)
	if l.token != "" {
		line += fmt.Sprintf(`,"token":%q`, l.token)
	}
	_, _ = io.WriteString(conn, line+"}\n")
	return id
}

// setUp makes the SDK's calls before an app counts as started.
func (l *lineApp) setUp(conn net.Conn) {
	l.t.Helper()
	const manifest = `{"manifest":{"id":"@sdk/%[1]s","name":"@sdk/%[1]s","version":"1.0.0","type":"app","main":"app.mjs","protocol":{"version":"1.0"},"capabilities":%[2]s}}`
	steps := []struct{ method, params string }{
		{"app.register", fmt.Sprintf(manifest, l.role, `{"hooks":{"subscribes":["message_received"]}}`)},
		{"hook.subscribe", `{"events":["message_received"]}`},
		{"app.ready", `{}`},
	}
	if l.role == "channel" {
		steps = []struct{ method, params string }{
			{"app.register", fmt.Sprintf(manifest, l.role, `{"channels":{"provides":["chat"]},"hooks":{"subscribes":["message_sending"]}}`)},
			{"capability.register", `{"type":"channel","config":{"channelId":"chat","id":"chat","meta":{"name":"@sdk/channel"}}}`},
			{"hook.subscribe", `{"events":["message_sending"]}`},
			{"app.ready", `{}`},
		}
	}
	for _, step := range steps {
		id := l.write(conn, step.method, jsontext.Value(step.params))
		for {
			line, ok := <-l.lines
			if !ok {
				l.t.Fatalf("the connection ended at %s", step.method)
			}
			m := l.parse(line)
			if m.RequestID != id {
				l.take(line)
				continue
			}
			if !m.Success {
				l.t.Fatalf("%s: %s", step.method, line)
			}
			if step.method == "app.register" {
				l.token = m.Result.Token
			}
			break
		}
	}
}

// sdkLine is the part of a line that the SDK reads.
type sdkLine struct {
	Type, RequestID, Event string
	Success                bool
	Result                 struct{ Token string }
	Payload                struct{ Data struct{ Content string } }
}

func (l *lineApp) parse(line string) (m sdkLine) {
	if err := json.Unmarshal([]byte(line), &m, json.MatchCaseInsensitiveNames(true)); err != nil {
		l.t.Errorf("%s: %v", line, err)
	}
	return m
}

func (l *lineApp) take(line string) {
	m := l.parse(line)
	switch {
	case m.Type == "response":
		var r struct {
			Result jsontext.Value `json:"result"`
			Error  jsontext.Value `json:"error"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			l.t.Errorf("%s: %v", line, err)
		}
		switch {
		case r.Error != nil:
			l.tells <- told{Failed: string(r.Error)}
		case !strings.Contains(line, `"serverTime"`):
			l.tells <- told{Result: r.Result}
		}
	case strings.HasPrefix(m.Event, "hook:"):
		l.tells <- told{Given: m.Payload.Data.Content}
	default:
		l.tells <- told{Event: m.Event}
	}
}

// startNodeApp runs the JavaScript of testdata/sdk on the real SDK.
func startNodeApp(t *testing.T, sdk, socket, role string) *sdkApp {
	t.Helper()
	cmd := exec.Command("node", filepath.Join("testdata", "sdk", "app.mjs"), sdk, role)
	cmd.Env = append(os.Environ(), "OPENCLAWOS_KERNEL_SOCKET="+socket)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hears, read := make(chan told, 64), make(chan struct{})
	go func() {
		defer close(read)
		defer close(hears)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var m told
			if err := json.Unmarshal(lines.Bytes(), &m, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			hears <- m
		}
	}()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGCONT)
		defer time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		for range hears {
		}
		<-read
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the app does not end in peace: %v", err)
		}
	})
	signal := func(s syscall.Signal) func() {
		return func() {
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
	}
	a := &sdkApp{
		t: t, name: "@sdk/" + role, hears: hears,
		ask: func(method string, params any) {
			line, err := json.Marshal(map[string]any{"method": method, "params": params})
			if err == nil {
				_, err = in.Write(append(line, '\n'))
			}
			if err != nil {
				t.Error(err)
			}
		},
		pause: signal(syscall.SIGSTOP), goOn: signal(syscall.SIGCONT),
	}
	a.wantEvent("started")
	return a
}

// TestRestartWithLinesOfSDK restarts the daemon under apps that send the same lines as the stock SDK.
func TestRestartWithLinesOfSDK(t *testing.T) {
	restartWithApps(t, startLineApp)
}

// TestRestartWithSDK does the same with the real SDK.
func TestRestartWithSDK(t *testing.T) {
	sdk := os.Getenv(sdkVariable)
	if sdk == "" {
		t.Skipf("%s does not name a built package of the SDK; see docs/reference/protocol/apps.md", sdkVariable)
	}
	if _, err := os.Stat(filepath.Join(sdk, "dist", "app.mjs")); err != nil {
		t.Fatalf("%s is no built package of the SDK: %v", sdkVariable, err)
	}
	restartWithApps(t, func(t *testing.T, socket, role string) *sdkApp { return startNodeApp(t, sdk, socket, role) })
}

func restartWithApps(t *testing.T, app func(t *testing.T, socket, role string) *sdkApp) {
	term := func(t *testing.T, cmd *exec.Cmd) {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the daemon does not end in peace: %v", err)
		}
	}
	kill := func(t *testing.T, cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	own := func(k *killTest) func(*testing.T) *exec.Cmd {
		return func(t *testing.T) *exec.Cmd { return k.start(t, "OCIPD_IPC_APPS_MAY_OPERATE=true") }
	}
	for _, tc := range []struct {
		name string
		end  func(*testing.T, *exec.Cmd)
		// start returns a function that starts the daemon.
		start func(*killTest) func(*testing.T) *exec.Cmd
	}{
		{"term", term, own},
		{"kill", kill, own},
		{"its sockets stay", term, func(k *killTest) func(*testing.T) *exec.Cmd { return k.passSockets(t) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k := newKillTest(t)
			const cfg = `
agents:
  - {id: alice, app: "@sdk/agent", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-p-1, user_id: p, org_unit: engineering, tenant_id: acme-corp, accepts: [internal], sessions: ["chat:p"]}
`
			if err := os.WriteFile(filepath.Join(k.dir, "ocipd.yaml"), []byte(cfg), 0o600); err != nil {
				t.Fatal(err)
			}
			k.restartUnder(t, app, tc.start(k), tc.end)
		})
	}
}

// restartUnder restarts the daemon twice: once with a message waiting for an app that was never
// there, once with one for an app that is not back yet, and all the while with a held one.
func (k *killTest) restartUnder(t *testing.T, app func(t *testing.T, socket, role string) *sdkApp, start func(*testing.T) *exec.Cmd, end func(*testing.T, *exec.Cmd)) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	daemon := start(t)
	alice := app(t, k.socket, "agent")
	if sent := alice.dispatch("before"); !sent.Queued || !sent.Waiting {
		t.Errorf("nobody is there to take it: %+v", sent)
	}
	held := alice.dispatch("I promise to send it")
	if !held.Held {
		t.Fatalf("not held: %+v", held)
	}

	end(t, daemon)
	alice.wantEvent("disconnected")
	daemon = start(t)
	k.wantReady(ctx, t, "@sdk/agent")
	chat := app(t, k.socket, "channel")
	chat.wantGiven("before")
	if sent := alice.dispatch("between"); !sent.Queued {
		t.Errorf("nothing takes it: %+v", sent)
	}
	chat.wantGiven("between")
	var brought api.QueueResult
	chat.call("agent.queue", map[string]any{"sessionKey": "chat:p", "text": "a person's words"}, &brought)
	alice.wantGiven("a person's words")
	k.wantTaken(ctx, t)

	chat.pause()
	end(t, daemon)
	alice.wantEvent("disconnected")
	daemon = start(t)
	k.wantReady(ctx, t, "@sdk/agent")
	if sent := alice.dispatch("after"); !sent.Queued || !sent.Waiting {
		t.Errorf("the channel is not back: %+v", sent)
	}
	chat.goOn()
	chat.wantGiven("after")
	k.wantReady(ctx, t, "@sdk/channel")

	// A person finds the message that was held before both restarts, and approves it.
	var list strings.Builder
	if code := run(ctx, []string{"--socket", k.socket, "approvals", "list", "--json"}, strings.NewReader(""), &list, t.Output(), nil); code != cli.ExitDone || !strings.Contains(list.String(), held.ApprovalID) {
		t.Fatalf("the list of held messages, exit code %d: %s", code, list.String())
	}
	operator, err := client.Dial(ctx, config.OperatorPath(k.socket))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	var shown api.Approval
	if err := operator.Call(ctx, "approval.get", map[string]any{"approvalId": held.ApprovalID}, &shown); err != nil {
		t.Fatal(err)
	}
	decision := map[string]any{"approvalId": held.ApprovalID, "decision": "approve", "digest": shown.Digest}
	if err := operator.Call(ctx, "approval.resolve", decision, nil); err != nil {
		t.Fatal(err)
	}
	if err := operator.Call(ctx, "approval.resolve", decision, nil); err == nil {
		t.Error("it was approved twice")
	}
	chat.wantGiven("I promise to send it")
	alice.wantEvent("approval:resolved")
	// The last message comes after all that could come twice.
	alice.dispatch("last")
	chat.wantGiven("last")
	chat.call("agent.queue", map[string]any{"sessionKey": "chat:p", "text": "last words"}, &brought)
	alice.wantGiven("last words")

	for _, want := range []struct {
		app   *sdkApp
		given []string
	}{
		{chat, []string{"before", "between", "after", "I promise to send it", "last"}},
		{alice, []string{"a person's words", "last words"}},
	} {
		var got []string
		for _, content := range want.app.given {
			first, _, _ := strings.Cut(content, "\n")
			got = append(got, first)
		}
		if !slices.Equal(got, want.given) {
			t.Errorf("%s was given %q, want %q", want.app.name, got, want.given)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(alice.events), func(e string) bool { return e != "approval:resolved" })); n != 1 {
		t.Errorf("the agent's app was told %d times of the decision", n)
	}
	got := make(map[string]int)
	var page api.AuditQueryResult
	if err := operator.Call(ctx, "audit.query", map[string]any{"filter": map[string]any{"actionType": audit.ActionAppLifecycle}}, &page); err != nil {
		t.Fatal(err)
	}
	for _, line := range page.Records {
		e, err := audit.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		got[e.AppID+" "+e.Event]++
	}
	for event, want := range map[string]int{"@sdk/agent registered": 1, "@sdk/agent resumed": 2, "@sdk/channel registered": 1, "@sdk/channel resumed": 1} {
		if got[event] != want {
			t.Errorf("on record is %v, want %d times %s", got, want, event)
		}
	}
	end(t, daemon)
}

// wantReady waits until an app is ready again.
func (k *killTest) wantReady(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	k.wantStatus(ctx, t, id+" to be back", func(s *api.Status) bool {
		return slices.ContainsFunc(s.Apps, func(a api.AppStatus) bool { return a.ID == id && a.Ready })
	})
}

// wantTaken waits until the receipts of all messages are durable: after a SIGKILL before
// that, they come again under the same dispatchId.
func (k *killTest) wantTaken(ctx context.Context, t *testing.T) {
	t.Helper()
	k.wantStatus(ctx, t, "messages to be taken", func(s *api.Status) bool { return len(s.Queues) == 0 })
}

func (k *killTest) wantStatus(ctx context.Context, t *testing.T, what string, is func(*api.Status) bool) {
	t.Helper()
	operator := k.operator(ctx, t)
	defer operator.Close()
	for {
		var status api.Status
		if err := operator.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if is(&status) {
			return
		}
	}
}

// passSockets listens in the daemon's place, like a service manager over restarts, and
// returns a function that starts it.
func (k *killTest) passSockets(t *testing.T) func(*testing.T) *exec.Cmd {
	if err := os.MkdirAll(filepath.Dir(k.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, path := range []string{k.socket, config.OperatorPath(k.socket)} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	starts := 0
	return func(t *testing.T) *exec.Cmd {
		t.Helper()
		// LISTEN_PID must be the daemon's own process.
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`,
			os.Args[0], "serve", "--config", filepath.Join(k.dir, "ocipd.yaml"))
		cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+k.dir, "OCIPD_IPC_APPS_MAY_OPERATE=true", "LISTEN_FDS=2", "LISTEN_FDNAMES=kernel:operator")
		cmd.ExtraFiles = files
		starts++
		dir := filepath.Join(k.dir, fmt.Sprint(starts))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		n := newNotices(t, dir)
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+n.path)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		n.until("READY=1")
		return cmd
	}
}
