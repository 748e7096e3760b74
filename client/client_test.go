package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// fakeDaemon answers requests on a socket of its own.
type fakeDaemon struct {
	path string
	// after is how many requests a connection answers before it is ended, 0 for no limit.
	after int
	// events are sent after app.ready.
	events []string

	mu sync.Mutex
	// asked counts the calls of each method, and results are those of hook.result.
	asked   map[string]int
	results []answered
}

// answered is a call of hook.result.
type answered struct {
	EventID string  `json:"eventId"`
	Result  receipt `json:"result"`
}

type receipt struct {
	Delivered bool   `json:"delivered"`
	Error     string `json:"error"`
}

func serveFake(t *testing.T, d *fakeDaemon) *fakeDaemon {
	t.Helper()
	d.path, d.asked = filepath.Join(t.TempDir(), "k"), map[string]int{}
	listener, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { d.answer(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	return d
}

func (d *fakeDaemon) answer(conn net.Conn) {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer conn.Close()
	var writing sync.Mutex
	say := func(line string) {
		writing.Lock()
		defer writing.Unlock()
		fmt.Fprintln(conn, line)
	}
	lines := bufio.NewScanner(conn)
	for n := 1; lines.Scan(); n++ {
		var request struct {
			ID     string          `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &request) != nil {
			return
		}
		result := `{"ok":true}`
		d.mu.Lock()
		d.asked[request.Method]++
		switch request.Method {
		case "app.register":
			result = `{"appId":"@x/y","token":"t","protocolVersion":"1.0"}`
		case "capability.register":
			result = `{"capabilityId":"c","granted":true}`
		case "hook.result":
			var of answered
			_ = json.Unmarshal(request.Params, &of) // it is compared
			d.results = append(d.results, of)
		}
		d.mu.Unlock()
		say(fmt.Sprintf(`{"id":"1","type":"response","timestamp":1,"requestId":%q,"success":true,"result":%s}`, request.ID, result))
		if request.Method == "app.ready" {
			conns.Go(func() {
				for _, e := range d.events {
					say(e)
				}
			})
		}
		if n == d.after {
			return
		}
	}
}

// message is an event with a message for the channel chat.
func message(n int, dispatch string) string {
	return fmt.Sprintf(`{"id":"%d","type":"event","timestamp":1,"event":"hook:message_sending","payload":{"eventId":"e%d","hookName":"message_sending",`+
		`"data":{"channelId":"chat","target":"dave","content":"%d","dispatchId":%q},"context":{"timestamp":1,"auditId":"a"}}}`, n, n, n, dispatch)
}

// TestCallsOverReconnections has many calls at once meet connections that end: each call that may be
// repeated gets its answer, and the app registers once.
func TestCallsOverReconnections(t *testing.T) {
	d := serveFake(t, &fakeDaemon{after: 20})
	app, err := Register(t.Context(), &AppOptions{ID: "@x/y", Options: Options{Socket: d.path, Retry: firstPause}})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for range 10 {
				err := app.Call(t.Context(), "session.get", map[string]any{"key": "chat:dave"}, nil)
				// Three connections in a row may end under a call.
				if err != nil && !Is(err, ConnectionClosed) {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked["app.register"] != 1 || d.asked["app.heartbeat"] == 0 || d.asked["session.get"] < 80 {
		t.Errorf("the daemon was asked %v", d.asked)
	}
}

// TestRepetitionIsNotSent sends a message twice under one id, and ten thousand others, more than wait
// for a handler: each comes once, in order, and each event is answered.
func TestRepetitionIsNotSent(t *testing.T) {
	const many = 10_000
	d := &fakeDaemon{events: []string{message(0, "d0"), message(1, "d0")}}
	for n := 2; n < many; n++ {
		d.events = append(d.events, message(n, fmt.Sprint("d", n)))
	}
	serveFake(t, d)
	var sent []string
	last := make(chan bool)
	app, err := Register(t.Context(), &AppOptions{
		ID: "@x/y", Options: Options{Socket: d.path},
		Channels: map[string]func(context.Context, *Message) error{"chat": func(_ context.Context, m *Message) error {
			sent = append(sent, m.Content)
			if m.Content == "2" {
				return errors.New("nobody is there")
			}
			if m.Content == fmt.Sprint(many-1) {
				close(last)
			}
			return nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-last
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if len(sent) != many-1 || sent[0] != "0" || sent[1] != "2" {
		t.Errorf("%d messages were sent, the first ones are %q", len(sent), sent[:min(3, len(sent))])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, want := range []answered{{"e0", receipt{Delivered: true}}, {"e1", receipt{Delivered: true}}, {"e2", receipt{Error: "nobody is there"}}} {
		if got := d.results[i]; got != want {
			t.Errorf("answer %d is %+v, want %+v", i, got, want)
		}
	}
}

// TestToSign refuses names that a text to sign could hold in two ways.
func TestToSign(t *testing.T) {
	for _, name := range []string{`a"b`, `a\b`, "a\nb", "ä"} {
		if text, err := (&Grant{GrantID: name}).ToSign(); err == nil {
			t.Errorf("%q is in %q", name, text)
		}
	}
}
