//go:build linux

package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
)

// newCommand makes a notifier that runs a shell script with arguments.
func newCommand(t *testing.T, timeout time.Duration, script string, args ...string) (*Command, *observer.ObservedLogs) {
	t.Helper()
	log, logs := logged()
	c, err := NewCommand(CommandOptions{
		Argv: append([]string{"/bin/sh", "-c", script, "hook"}, args...), Timeout: timeout, Log: log,
		Getenv: func(name string) string {
			return map[string]string{
				"PATH": os.Getenv("PATH"), "HOME": "/home/alice", "LANG": "", "OCIPD_STORE_URL": "secret", "SSH_AUTH_SOCK": "/secret",
			}[name]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, logs
}

// fifo makes a named pipe and returns its path.
func fifo(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// holders reads a named pipe: the first channel gets its first line, and the other is
// closed when no process holds it open for writing any more.
func holders(t *testing.T, path string) (line <-chan string, gone <-chan struct{}) {
	t.Helper()
	lines, over := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(over)
		f, err := os.Open(path) // waits for a writer
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		buf := make([]byte, 100)
		n, _ := f.Read(buf)
		lines <- string(buf[:n])
		io.Copy(io.Discard, f)
	}()
	return lines, over
}

func TestNewCommand(t *testing.T) {
	for _, tt := range []struct {
		argv  []string
		fault string
	}{
		{nil, "it has no program"},
		{[]string{""}, "absolute path"},
		{[]string{"mail", "-s", "x"}, `"mail": want the absolute path`},
		{[]string{"./mail"}, "absolute path"},
		{[]string{"/bin/mail", "a\x00b"}, "argument 1 holds a NUL"},
		{[]string{"/nonexistent/mail"}, ""},
	} {
		_, err := NewCommand(CommandOptions{Argv: tt.argv, Getenv: func(string) string { return "" }, Log: zap.NewNop()})
		if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
			t.Errorf("%q: %v, want %q", tt.argv, err, tt.fault)
		}
	}
}

func TestCommandInput(t *testing.T) {
	dir := t.TempDir()
	c, logs := newCommand(t, patience, `cat >"$1/in"; cat /proc/$$/environ >"$1/env"; cat /proc/$$/stat >"$1/stat"; pwd >"$1/pwd"; ( : </dev/tty ) 2>/dev/null && : >"$1/tty"; exit 0`, dir)
	n := Notice{
		ID: "a-1", Title: "Approval\n\x1b[31m\u202e$(reboot)", Body: "line \"1\"\n\x00line 2", Urgency: "odd",
		Fields: map[string]string{"agentId": "alice\nOCIPD_EVIL=1", "round_2": "`id`", "PATH=x": "no"},
	}
	if err := c.Notify(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string { return readFile(t, filepath.Join(dir, name)) }
	var got any
	if err := json.Unmarshal([]byte(read("in")), &got); err != nil {
		t.Error(err)
	}
	want := map[string]any{
		"id": "a-1", "title": "Approval $(reboot)", "body": "line \"1\"\nline 2", "urgency": "normal",
		"fields": map[string]any{"agentId": "alice OCIPD_EVIL=1", "round_2": "`id`"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("standard input %v, want %v", got, want)
	}
	if in := read("in"); strings.Count(in, "\n") != 1 || !strings.HasSuffix(in, "\n") {
		t.Errorf("standard input is not one line: %q", in)
	}
	env := strings.Split(strings.TrimRight(read("env"), "\x00"), "\x00")
	slices.Sort(env)
	wantEnv := []string{
		"HOME=/home/alice", "OCIPD_NOTICE_BODY=line \"1\"\nline 2", "OCIPD_NOTICE_FIELD_AGENTID=alice OCIPD_EVIL=1",
		"OCIPD_NOTICE_FIELD_ROUND_2=`id`", "OCIPD_NOTICE_ID=a-1", "OCIPD_NOTICE_TITLE=Approval $(reboot)",
		"OCIPD_NOTICE_URGENCY=normal", "PATH=" + os.Getenv("PATH"),
	}
	if !slices.Equal(env, wantEnv) {
		t.Errorf("environment %q, want %q", env, wantEnv)
	}
	stat := strings.Fields(read("stat"))
	if pid, group, session := stat[0], stat[4], stat[5]; group != pid || session != pid {
		t.Errorf("process %s is in group %s and session %s", pid, group, session)
	}
	if pwd := read("pwd"); pwd != "/\n" {
		t.Errorf("runs in %q", pwd)
	}
	if _, err := os.Stat(filepath.Join(dir, "tty")); err == nil {
		t.Error("has a terminal")
	}
	if all := logs.All(); len(all) != 1 || all[0].Level != zapcore.InfoLevel || all[0].ContextMap()["status"] != int64(0) || all[0].ContextMap()["notice"] != "a-1" {
		t.Errorf("logged: %s", said(logs))
	}
	if strings.Contains(said(logs), "reboot") || strings.Contains(said(logs), "alice") {
		t.Errorf("content in the log: %s", said(logs))
	}
}

func TestCommandFails(t *testing.T) {
	n := Notice{ID: "a-1", Title: "Pay Bob", Body: "wire 40000\nIBAN77", Fields: map[string]string{"agent": "alice"}}
	for _, tt := range []struct {
		name, script string
		err          string
		log          map[string]any
	}{
		{"status", `printf 'mail: \033[31mno route\n' >&2; exit 3`, "exit status 3", map[string]any{"status": int64(3), "output": "mail: no route"}},
		{"quotes the notice", `cat; env | grep OCIPD; exit 1`, "exit status 1", map[string]any{"status": int64(1)}},
		{"signal", `kill -TERM $$`, "signal: terminated", map[string]any{"status": int64(-1), "signal": "terminated"}},
		{"reads nothing", `exec <&-; exit 4`, "exit status 4", map[string]any{"status": int64(4), "output": ""}},
		{"not found", `exec /nonexistent/mail`, "exit status 127", map[string]any{"status": int64(127)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, logs := newCommand(t, patience, tt.script)
			err := c.Notify(t.Context(), n)
			if err == nil || err.Error() != `cannot notify by the command "/bin/sh": `+tt.err {
				t.Errorf("got %v, want %s", err, tt.err)
			}
			all := logs.All()
			if len(all) != 1 || all[0].Level != zapcore.WarnLevel {
				t.Fatalf("logged: %s", said(logs))
			}
			for key, want := range tt.log {
				if got := all[0].ContextMap()[key]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("logged %s %v, want %v", key, got, want)
				}
			}
			for _, word := range []string{"Pay", "Bob", "wire", "40000", "IBAN77", "alice"} {
				if strings.Contains(said(logs), word) {
					t.Errorf("%q in the log: %s", word, said(logs))
				}
			}
		})
	}

	log, logs := logged()
	c, err := NewCommand(CommandOptions{Argv: []string{"/nonexistent/mail"}, Getenv: func(string) string { return "" }, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Notify(t.Context(), n); !errors.Is(err, os.ErrNotExist) || logs.Len() != 1 {
		t.Errorf("got %v; logged: %s", err, said(logs))
	}
}

// A program that hangs is killed with its children, at the limit, at the end of
// the caller's context and at Close alike.
func TestCommandHangs(t *testing.T) {
	const script = `exec 9>"$1"; sleep 1000 & (trap '' TERM HUP; sleep 1000) & echo ready >&9; sleep 1000`
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		end     func(cancel func(), c *Command)
		want    error
		text    string
	}{
		{"limit", time.Second, func(func(), *Command) {}, nil, "still running after 1s"},
		{"context", time.Hour, func(cancel func(), _ *Command) { cancel() }, context.Canceled, ""},
		{"close", time.Hour, func(_ func(), c *Command) { c.Close() }, ErrClosed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := fifo(t, t.TempDir(), "held")
			ready, gone := holders(t, path)
			c, logs := newCommand(t, tt.timeout, script, path)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- c.Notify(ctx, Notice{ID: "a"}) }()
			if got := receive(t, ready, "the program"); got != "ready\n" {
				t.Fatalf("got %q", got)
			}
			tt.end(cancel, c)
			err := receive(t, result, "the end of Notify")
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v", err)
			}
			receive(t, gone, "the end of the children")
			if all := logs.All(); len(all) != 1 || all[0].ContextMap()["signal"] != "killed" {
				t.Errorf("logged: %s", said(logs))
			}
		})
	}
}

// Remaining processes of its group end with a program.
func TestCommandLeavesChildren(t *testing.T) {
	path := fifo(t, t.TempDir(), "held")
	ready, gone := holders(t, path)
	c, _ := newCommand(t, time.Hour, `exec 9>"$1"; sleep 1000 & echo ready >&9; exit 0`, path)
	if err := c.Notify(soon(t), Notice{ID: "a"}); err != nil {
		t.Error(err)
	}
	receive(t, ready, "the program")
	receive(t, gone, "the end of the children")
}

// A process that left the group and keeps the pipes open delays nobody.
func TestCommandChildLeavesGroup(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	told, hold := fifo(t, dir, "told"), fifo(t, dir, "hold")
	c, _ := newCommand(t, time.Hour, `"$1" leave-group "$2" "$3" & read x <"$2"; exit 0`, self, told, hold)
	if err := c.Notify(soon(t), Notice{ID: "a"}); err != nil {
		t.Error(err)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		f, err := os.OpenFile(hold, os.O_WRONLY, 0) // waits for the process that left
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
	}()
	receive(t, opened, "the process that left")
}

func TestCommandFloods(t *testing.T) {
	c, logs := newCommand(t, patience, `head -c 30000000 /dev/zero | tr '\0' 'x' >&2; echo; echo the end; exit 3`)
	if err := c.Notify(t.Context(), Notice{ID: "a"}); err == nil {
		t.Error("no error")
	}
	fields := logs.All()[0].ContextMap()
	if fields["output_bytes"] != int64(30000009) || fields["output"] != "the end" {
		t.Errorf("logged: %.3000s", said(logs))
	}

	path := fifo(t, t.TempDir(), "held")
	ready, gone := holders(t, path)
	c, logs = newCommand(t, time.Second, `exec 9>"$1"; echo ready >&9; yes 'a flood'`, path)
	if err := c.Notify(soon(t), Notice{ID: "a"}); err == nil || !strings.Contains(err.Error(), "still running after 1s") {
		t.Errorf("got %v", err)
	}
	receive(t, ready, "the program")
	receive(t, gone, "the end of the flood")
	if out, _ := logs.All()[0].ContextMap()["output"].(string); len(out) == 0 || len(out) > maxOutput {
		t.Errorf("%d bytes of output in the log", len(out))
	}
}

func TestCommandOneAtATime(t *testing.T) {
	dir := t.TempDir()
	hold := fifo(t, dir, "hold")
	c, _ := newCommand(t, patience, `mkdir "$1/lock" || exit 9; [ "$OCIPD_NOTICE_ID" != first ] || read x <"$1/hold"; rmdir "$1/lock"`, dir)
	results := make(chan error, 4)
	go func() { results <- c.Notify(t.Context(), Notice{ID: "first"}) }()
	w, err := os.OpenFile(hold, os.O_WRONLY, 0) // waits for the first run
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		go func() { results <- c.Notify(t.Context(), Notice{ID: "later"}) }()
	}
	// A caller need not wait for its turn.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Notify(ctx, Notice{ID: "hurry"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.Close()
	for range 4 {
		if err := receive(t, results, "a run"); err != nil {
			t.Error(err)
		}
	}
	c.Close()
	c.Close()
	if err := c.Notify(t.Context(), Notice{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
