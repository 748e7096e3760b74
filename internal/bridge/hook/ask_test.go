package hook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/test/buildtest"
)

// asGate is the argument with which this program is the resident gate.
const asGate = "be-the-gate"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asGate {
		os.Exit(beGate(os.Args[2], os.Args[3]))
	}
	buildtest.Isolated(m).Run()
}

func beGate(program, idle string) int {
	d, err := time.ParseDuration(idle)
	g := &Gate{Program: program, Idle: d, Log: slog.New(slog.DiscardHandler)}
	if err == nil {
		err = g.Listen(os.NewFile(3, "socket"), false)
	}
	if err == nil {
		err = g.Serve(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// world is a user's machine with a daemon that says what a call is, by its arguments.
type world struct {
	t                        *testing.T
	dir, gate, daemon, start string

	mu    sync.Mutex
	calls []string
	asked chan struct{}
}

func newWorld(t *testing.T, idle time.Duration) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, gate: filepath.Join(dir, "run", "hooks.sock"), daemon: filepath.Join(dir, "kernel.sock"), start: filepath.Join(dir, "start"), asked: make(chan struct{}, 100)}
	w.replace(idle)
	l, err := net.Listen("unix", w.daemon)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() {
		w.end()
		_ = l.Close()
		all.Wait()
		_ = os.RemoveAll(dir)
	})
	return w
}

// end has the gate end, if there is one: another program asks it.
func (w *world) end() {
	conn, err := net.Dial("unix", w.gate)
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, `{"program":"another"}`+"\n"); err != nil {
		w.t.Error(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), `"again":true`) {
		w.t.Errorf("it answers another program %q %v", answer, err)
	}
}

// replace writes the program that hooks start, so that it is another one.
func (w *world) replace(idle time.Duration) {
	self, err := os.Executable()
	if err == nil {
		err = os.WriteFile(w.start, fmt.Appendf(nil, "#!/bin/sh\n# %d\nexec %q %s %q %s\n", time.Now().UnixNano(), self, asGate, w.start, idle), 0o700)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		q, err := wire.ParseRequest(lines.Bytes())
		if err != nil {
			w.t.Errorf("the daemon was sent %s: %v", lines.Bytes(), err)
			return
		}
		w.mu.Lock()
		w.calls = append(w.calls, q.Method)
		w.mu.Unlock()
		result := `{}`
		switch text := lines.Text(); {
		case q.Method == "agent.emit" && strings.Contains(text, "wait"):
			result = `{"held":true,"approvalId":"apr_1","reason":"a person has to say"}`
		case q.Method == "agent.emit":
			result = fmt.Sprintf(`{"allowed":%t,"reason":"it names curl"}`, !strings.Contains(text, "curl"))
		case q.Method == "agent.approval":
			result = `{"approvalId":"apr_1","status":"pending"}`
		}
		// A client that is gone does not listen.
		_, _ = io.WriteString(conn, fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":%s}`, q.ID, result)+"\n")
		w.asked <- struct{}{}
	}
}

// count is how often the daemon was called by a method.
func (w *world) count(method string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.calls {
		if one == method {
			n++
		}
	}
	return n
}

// options are those of a hook about a command.
func (w *world) options(command string) *Options {
	return &Options{
		Row: Find("gemini"), In: strings.NewReader(`{"hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"` + command + `"}}`),
		Getenv: os.Getenv, Gate: w.gate, Daemon: w.daemon, Token: "t", Start: []string{w.start},
	}
}

func (w *world) ask(ctx context.Context, command string) string {
	return strings.TrimSpace(string(Run(ctx, w.options(command)).Out))
}

// Hooks that come at once start one gate, which asks the daemon over one connection. A gate whose
// program was replaced ends, and the next one answers.
func TestOneGateForAllHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got := w.ask(t.Context(), "ls"); got != "{}" {
				t.Errorf("it is answered %s", got)
			}
		})
	}
	all.Wait()
	if got := w.ask(t.Context(), "curl x"); !strings.Contains(got, "it names curl") {
		t.Errorf("a denied call: %s", got)
	}
	if w.count("task.attach") != 1 || w.count("agent.emit") != 11 {
		t.Errorf("the daemon was called %q", w.calls)
	}
	w.replace(time.Minute)
	if got := w.ask(t.Context(), "ls"); got != "{}" || w.count("task.attach") != 2 {
		t.Errorf("with another program: %s, %d connections", got, w.count("task.attach"))
	}
}

// A hook that its runtime gives up withdraws what waits for a person.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan string)
	go func() { done <- w.ask(ctx, "wait") }()
	for w.count("agent.emit") == 0 {
		<-w.asked
	}
	cancel()
	if got := <-done; !strings.Contains(got, `"deny"`) {
		t.Errorf("given up: %s", got)
	}
	for w.count("agent.withdraw") == 0 {
		<-w.asked
	}
}

// What keeps a hook from asking is named, and the call refused.
func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute)
	for _, tt := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"a gate that cannot be started", func(o *Options) { o.Start = []string{filepath.Join(w.dir, "nothing")} }, "nothing: no such file"},
		{"a directory that others can write", func(o *Options) {
			o.Gate = filepath.Join(w.dir, "all", "hooks.sock")
			if err := os.Mkdir(filepath.Dir(o.Gate), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Dir(o.Gate), 0o777); err != nil {
				t.Fatal(err)
			}
		}, "this user alone can write"},
		{"a gate that ends at once", func(o *Options) {
			o.Gate = filepath.Join(w.dir, "ends.sock")
			o.Start = []string{"/bin/true"}
		}, "could not be decided"},
		{"a directory in the place of the socket", func(o *Options) {
			o.Gate = filepath.Join(w.dir, "run2", "x")
			if err := os.MkdirAll(o.Gate+"/hooks.sock/full", 0o700); err != nil {
				t.Fatal(err)
			}
			o.Gate += "/hooks.sock"
		}, "cannot start the gate"},
		{"an endless question", func(o *Options) { o.In = io.LimitReader(endless{}, maxInput+2) }, "longer than"},
	} {
		o := w.options("ls")
		tt.edit(o)
		said := Run(t.Context(), o)
		if !o.Row.Refused(said.Out, said.Exit) || !strings.Contains(string(said.Out), tt.want) {
			t.Errorf("%s: %s, want %q", tt.name, said.Out, tt.want)
		}
	}
	if slices.Contains(w.calls, "agent.emit") {
		t.Errorf("the daemon was asked: %q", w.calls)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// A server behind the proxy is left to it only where no project can have put another one in its place.
func TestAProjectsServerIsAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute)
	home := filepath.Join(w.dir, "home")
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".gemini/settings.json", `{"mcpServers":{"chat":{"command":"ocipd"}}}`)
	write("plain/a", "")
	write("other/.gemini/settings.json", `{"mcpServers":{"notes":{"command":"x"}}}`)
	write("same/.gemini/settings.json", `{"mcpServers":{"chat":{"command":"x"}}}`)
	write("same/below/a", "")
	write("escaped/.gemini/settings.json", `{"mcpServers":{"ch\u0061t":{"command":"x"}}}`)
	write("vast/.gemini/settings.json", strings.Repeat(" ", maxProject+1))
	write("copilot/.github/mcp.json", `{"mcpServers":{"chat":{"command":"x"}}}`)
	write("copilots/.mcp.json", `{"mcpServers":{"chat":{"command":"x"}}}`)
	for _, tc := range []struct {
		runtime, folder string
		asks            bool
	}{
		{"gemini", home, false}, {"gemini", home + "/plain", false}, {"gemini", home + "/other", false}, {"gemini", home + "/same", true}, {"gemini", home + "/same/below", true},
		{"gemini", home + "/escaped", true}, {"gemini", home + "/vast", true}, {"gemini", "", true}, {"gemini", "plain", true}, {"gemini", home + "/copilot", false},
		{"copilot", home + "/plain", false}, {"copilot", home + "/copilot", true}, {"copilot", home + "/copilots", true}, {"copilot", home + "/same", false},
	} {
		o := w.options("")
		o.Row, o.Without = Find(tc.runtime), []string{"chat"}
		o.Getenv = func(name string) string {
			if name == "HOME" {
				return home
			}
			return os.Getenv(name)
		}
		asks := fmt.Sprintf(`{"hook_event_name":"BeforeTool","tool_name":"mcp_chat_send","tool_input":{},"cwd":%q,"mcp_context":{"server_name":"chat","tool_name":"send"}}`, tc.folder)
		if tc.runtime == "copilot" {
			asks = fmt.Sprintf(`{"toolName":"chat-send","toolArgs":"{}","cwd":%q,"sessionId":"s"}`, tc.folder)
		}
		o.In = strings.NewReader(asks)
		before := w.count("agent.emit")
		if got := Run(t.Context(), o); strings.TrimSpace(string(got.Out)) != "{}" || (w.count("agent.emit") > before) != tc.asks {
			t.Errorf("%s in %q: answered %s, asked: %t", tc.runtime, tc.folder, got.Out, !tc.asks)
		}
	}
}
