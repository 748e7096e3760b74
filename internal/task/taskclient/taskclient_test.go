package taskclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// daemon answers each connection by the next script: the lines to the calls behind task.attach, ""
// for a connection that is cut there.
type daemon struct {
	t       *testing.T
	path    string
	mu      sync.Mutex
	scripts [][]string
	calls   []string
}

func (d *daemon) listen() (stop func()) {
	d.t.Helper()
	l, err := net.Listen("unix", d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.serve(conn) })
		}
	})
	return func() {
		_ = l.Close()
		all.Wait()
	}
}

func (d *daemon) next() (script []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.scripts) > 0 {
		script, d.scripts = d.scripts[0], d.scripts[1:]
	}
	return script
}

func (d *daemon) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, " ")
}

func (d *daemon) serve(conn net.Conn) {
	defer conn.Close()
	script := d.next()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		q, err := wire.ParseRequest(lines.Bytes())
		if err != nil {
			d.t.Errorf("it was sent %s: %v", lines.Bytes(), err)
			return
		}
		d.mu.Lock()
		d.calls = append(d.calls, q.Method)
		d.mu.Unlock()
		answer := `"success":true,"result":{"actor":"builder","role":"executor"}`
		if len(script) == 0 && q.Method != "task.attach" {
			return
		}
		if q.Method != "task.attach" || len(script) > 0 && strings.Contains(script[0], "UNAUTHORIZED") {
			if answer, script = script[0], script[1:]; answer == "" {
				return
			}
		}
		// A client that is gone does not listen.
		_, _ = io.WriteString(conn, fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,%s}`, q.ID, answer)+"\n")
	}
}

const (
	good = `"success":true,"result":{"n":1}`
	busy = `"success":false,"error":{"code":"CONFLICT","message":"no","details":{"task":{"code":"GUARD_FAILED"}}}`
	over = `"success":false,"error":{"code":"UNAUTHORIZED","message":"it has ended"}`
)

func begin(t *testing.T, scripts ...[]string) (*daemon, *Conn) {
	t.Helper()
	d := &daemon{t: t, path: filepath.Join(t.TempDir(), "s"), scripts: scripts}
	t.Cleanup(d.listen())
	c := New(func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, d.path) }, "ocg_1")
	t.Cleanup(func() { _ = c.Close() })
	return d, c
}

// A call is made once, and once more for each connection that was lost under it.
func TestCall(t *testing.T) {
	tests := []struct {
		name    string
		scripts [][]string
		calls   string
		code    task.Code
		away    bool
	}{
		{"answered", [][]string{{good}}, "task.attach m", "", false},
		{"refused", [][]string{{busy}}, "task.attach m", task.GuardFailed, false},
		{"lost, then answered", [][]string{{""}, {good}}, "task.attach m task.attach m", "", false},
		{"lost each time", [][]string{{""}, {""}, {""}, {good}}, "task.attach m task.attach m task.attach m", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, c := begin(t, tt.scripts...)
			var result struct {
				N int `json:"n"`
			}
			err := c.Call(t.Context(), "m", map[string]any{}, &result)
			if got := d.called(); got != tt.calls || Code(err) != tt.code || Away(err) != tt.away || (err == nil) != (result.N == 1) {
				t.Errorf("%s: %v, %+v", got, err, result)
			}
		})
	}
}

// A grant that has ended is told at once, and a daemon that comes late is waited for.
func TestAttached(t *testing.T) {
	d, c := begin(t, []string{over})
	if _, err := c.Attached(t.Context()); !strings.Contains(fmt.Sprint(err), "it has ended") || Away(err) || d.called() != "task.attach" {
		t.Errorf("%v after %v", err, d.called())
	}
	at, err := c.Attached(t.Context())
	if err != nil || at.Actor != "builder" || at.Role != task.Executor {
		t.Errorf("%+v, %v", at, err)
	}

	late := &daemon{t: t, path: filepath.Join(t.TempDir(), "s"), scripts: [][]string{{good}}}
	tried := make(chan struct{}, 1000)
	c = New(func(ctx context.Context) (*client.Client, error) {
		tried <- struct{}{}
		return client.Dial(ctx, late.path)
	}, "ocg_1")
	defer c.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.Call(t.Context(), "m", map[string]any{}, nil) }()
	<-tried
	<-tried
	defer late.listen()()
	if err := <-ended; err != nil {
		t.Errorf("a daemon that came late: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A daemon that does not come is waited for as long as the caller does.
func TestAway(t *testing.T) {
	c := New(func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, filepath.Join(t.TempDir(), "none"))
	}, "ocg_1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*dialEvery)
	defer cancel()
	begun := time.Now()
	if err := c.Call(ctx, "m", nil, nil); !Away(err) || time.Since(begun) > awayTime/2 {
		t.Errorf("it ends with %v after %s", err, time.Since(begun))
	}
	if err := c.Close(); err != nil {
		t.Errorf("nothing was open: %v", err)
	}
}

func TestCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want task.Code
	}{
		{nil, ""},
		{errors.New("other"), ""},
		{api.Errorf(api.Forbidden, "no"), ""},
		{&api.Error{Code: api.Conflict, Details: "text"}, ""},
		{&api.Error{Code: api.Conflict, Details: taskapi.Details{Task: taskapi.Error{Code: task.LeaseLost}}}, task.LeaseLost},
		{fmt.Errorf("wrapped: %w", &api.Error{Code: api.Conflict, Details: map[string]any{"task": map[string]any{"code": "CLAIMED"}}}), task.Claimed},
	} {
		if got := Code(tt.err); got != tt.want {
			t.Errorf("%v: %q", tt.err, got)
		}
	}
}
