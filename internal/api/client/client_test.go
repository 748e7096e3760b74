package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// fake is the daemon's end of one connection.
type fake struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Scanner
}

// request reads the next request the way the daemon does. It reports false at
// the end of the connection.
func (f *fake) request() (wire.Request, bool) {
	if !f.in.Scan() {
		return wire.Request{}, false
	}
	r, err := wire.ParseRequest(f.in.Bytes())
	if err != nil {
		f.t.Errorf("the client sent %s: %v", f.in.Bytes(), err)
	}
	r.Params = r.Params.Clone()
	return r, true
}

func (f *fake) say(lines ...string) {
	// A client that is gone does not listen.
	_, _ = io.WriteString(f.conn, strings.Join(lines, "\n")+"\n")
}

func response(id, result string) string {
	return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":%s}`, id, result)
}

func refusal(id, code, message string) string {
	return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":false,"error":{"code":%q,"message":%q,"details":{"field":["a"]}}}`, id, code, message)
}

func event(name string, n int) string {
	return fmt.Sprintf(`{"id":"e%d","type":"event","timestamp":1,"event":%q,"payload":{"n":%d}}`, n, name, n)
}

func chunk(id, value string, done bool) string {
	return fmt.Sprintf(`{"id":"c","type":"stream","timestamp":1,"requestId":%q,"chunk":%s,"done":%t}`, id, value, done)
}

// serve answers one connection on a real socket and returns a client of it.
func serve(t testing.TB, script func(*fake), opts ...Option) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		f := &fake{t: t, conn: conn, in: bufio.NewScanner(conn)}
		f.in.Buffer(nil, 8<<20)
		script(f)
	})
	c, err := Dial(t.Context(), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		l.Close()
		tasks.Wait()
	})
	return c
}

// each answers every request with what reply returns.
func each(reply func(wire.Request) []string) func(*fake) {
	return func(f *fake) {
		for {
			r, ok := f.request()
			if !ok {
				return
			}
			f.say(reply(r)...)
		}
	}
}

func wantCode(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got error %v, want one with code %s", err, code)
	}
	return e
}

func TestCall(t *testing.T) {
	c := serve(t, each(func(r wire.Request) []string {
		switch r.Method {
		case "echo":
			return []string{response(r.ID, string(r.Params))}
		case "quoted \"name\"\n":
			return []string{"", response(r.ID, "null")}
		}
		return []string{refusal(r.ID, "NOT_FOUND", "no such thing")}
	}))
	for _, test := range []struct {
		params any
		want   string
	}{
		{nil, "{}"},
		{map[string]int{"a": 1}, `{"a":1}`},
		{jsontext.Value("{\n \"a\" : [1,\n2] }"), `{"a":[1,2]}`},
		{struct{ S string }{"line\nbreak"}, `{"S":"line\nbreak"}`},
	} {
		var got jsontext.Value
		if err := c.Call(t.Context(), "echo", test.params, &got); err != nil {
			t.Fatal(err)
		}
		if string(got) != test.want {
			t.Errorf("%v came back as %s, want %s", test.params, got, test.want)
		}
	}
	if err := c.Call(t.Context(), "quoted \"name\"\n", nil, nil); err != nil {
		t.Error(err)
	}
	e := wantCode(t, c.Call(t.Context(), "other", nil, nil), api.NotFound)
	if details, err := json.Marshal(e.Details); err != nil || string(details) != `{"field":["a"]}` || e.Message != "no such thing" {
		t.Errorf("got %+v with details %s (%v)", e, details, err)
	}
	var number int
	if err := c.Call(t.Context(), "echo", nil, &number); err == nil || !strings.HasPrefix(err.Error(), "cannot read the answer of echo: ") {
		t.Errorf("an object in place of a number gives %v", err)
	}
	if err := c.Call(t.Context(), "echo", func() {}, nil); err == nil || !strings.HasPrefix(err.Error(), "cannot write the params of echo: ") {
		t.Errorf("params that are no JSON give %v", err)
	}
}

func TestRegisterAddsToken(t *testing.T) {
	var mu sync.Mutex
	var tokens []string
	c := serve(t, each(func(r wire.Request) []string {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, r.Method+":"+r.Token)
		return []string{response(r.ID, `{"appId":"@acme/x","token":"new \"one\"","protocolVersion":"1.0"}`)}
	}), WithToken("old"))
	if c.Token() != "old" {
		t.Errorf("token is %q", c.Token())
	}
	got, err := c.Register(t.Context(), &api.Manifest{ID: "@acme/x"})
	if err != nil {
		t.Fatal(err)
	}
	if got.AppID != "@acme/x" || c.Token() != `new "one"` {
		t.Errorf("registered as %+v, token is %q", got, c.Token())
	}
	if err := c.Call(t.Context(), "app.ready", nil, nil); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"app.register:old", `app.ready:new "one"`}; !slices.Equal(tokens, want) {
		t.Errorf("sent %q, want %q", tokens, want)
	}
}

// TestPipelined has every request under way before any is answered, and the
// answers in the wrong order.
func TestPipelined(t *testing.T) {
	const callers = 200
	c := serve(t, func(f *fake) {
		var held []wire.Request
		ids := map[string]bool{}
		for range callers {
			r, ok := f.request()
			if !ok {
				t.Error("the connection ended early")
				return
			}
			if ids[r.ID] {
				t.Errorf("id %q twice", r.ID)
			}
			ids[r.ID] = true
			held = append(held, r)
		}
		for _, r := range slices.Backward(held) {
			f.say(response(r.ID, string(r.Params)))
		}
		f.request()
	})
	var tasks sync.WaitGroup
	for n := range callers {
		tasks.Go(func() {
			var got int
			if err := c.Call(t.Context(), "echo", n, &got); err != nil || got != n {
				t.Errorf("call %d got %d, %v", n, got, err)
			}
		})
	}
	tasks.Wait()
}

func TestCallForgotten(t *testing.T) {
	asked := make(chan struct{})
	forgotten := make(chan struct{})
	c := serve(t, func(f *fake) {
		late, _ := f.request()
		close(asked)
		<-forgotten
		f.say(response(late.ID, "1"))
		each(func(r wire.Request) []string { return []string{response(r.ID, "2")} })(f)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := c.Call(ctx, "slow", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(forgotten)
	var got int
	if err := c.Call(t.Context(), "quick", nil, &got); err != nil || got != 2 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestCallAnsweredInStream(t *testing.T) {
	cancelled := make(chan string, 1)
	c := serve(t, each(func(r wire.Request) []string {
		if r.Method == "stream.cancel" {
			cancelled <- string(r.Params)
			return []string{response(r.ID, `{"ok":true}`), chunk("1", "null", true)}
		}
		return []string{chunk(r.ID, "1", false), chunk(r.ID, "2", false)}
	}))
	if err := c.Call(t.Context(), "tail", nil, nil); err == nil || err.Error() != "cannot call tail: it answers in a stream" {
		t.Errorf("got %v", err)
	}
	if got := <-cancelled; got != `{"requestId":"1"}` {
		t.Errorf("cancelled %s", got)
	}
}

// TestEventsKeepOrder has far more events than the buffer holds in front of an
// answer: they come in order, and the answer after them.
func TestEventsKeepOrder(t *testing.T) {
	const count = 500
	c := serve(t, each(func(r wire.Request) []string {
		var lines []string
		for n := range count {
			lines = append(lines, event("hook:test", n))
		}
		return append(lines, response(r.ID, "true"))
	}), WithEventBuffer(2))
	answered := make(chan error, 1)
	go func() { answered <- c.Call(t.Context(), "go", nil, nil) }()
	for n := range count {
		e, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`{"n":%d}`, n); e.Event != "hook:test" || string(e.Payload) != want {
			t.Fatalf("got %s %s, want %s", e.Event, e.Payload, want)
		}
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEventsDropped(t *testing.T) {
	c := serve(t, each(func(r wire.Request) []string {
		return []string{event("a", 1), event("b", 2), event("c", 3), response(r.ID, "true")}
	}), WithEventBuffer(1), WithDropEvents())
	if err := c.Call(t.Context(), "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	if c.Dropped() != 2 {
		t.Errorf("dropped %d, want 2", c.Dropped())
	}
	if e := <-c.Events(); e.Event != "a" {
		t.Errorf("kept %q", e.Event)
	}
}

func collect(t *testing.T, s *Stream) ([]string, error) {
	t.Helper()
	var got []string
	for {
		v, err := s.Next(t.Context())
		if err != nil {
			return got, err
		}
		got = append(got, string(v))
	}
}

func TestStream(t *testing.T) {
	c := serve(t, each(func(r wire.Request) []string {
		var lines []string
		for n := range 3 * streamBuffer {
			lines = append(lines, chunk(r.ID, fmt.Sprint(n), false))
		}
		switch r.Method {
		case "ends":
			return append(lines, chunk(r.ID, "null", true))
		case "ends.full":
			return append(lines, chunk(r.ID, `{"last":true}`, true))
		case "fails":
			return append(lines, refusal(r.ID, "INTERNAL_ERROR", "broken"))
		}
		return []string{response(r.ID, `"once"`)}
	}))
	for method, last := range map[string]string{"ends": "191", "ends.full": `{"last":true}`, "fails": "191", "once": `"once"`} {
		s, err := c.Stream(t.Context(), method, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := collect(t, s)
		if method == "fails" {
			wantCode(t, err, api.InternalError)
		} else if !errors.Is(err, io.EOF) {
			t.Errorf("%s ended with %v", method, err)
		}
		if len(got) == 0 || got[len(got)-1] != last {
			t.Errorf("%s gave %q", method, got)
		}
		if _, again := s.Next(t.Context()); !errors.Is(again, err) {
			t.Errorf("%s ended with %v, and then with %v", method, err, again)
		}
	}
}

// TestStreamCancelled cancels a stream that nobody reads and that would block
// the answer of its own cancellation.
// A stream that begins with an answer is a stream: the answer is none of its chunks,
// and a call does not take it for all there is.
func TestStreamThatBeginsWithAnAnswer(t *testing.T) {
	cancelled := make(chan string, 1)
	c := serve(t, each(func(r wire.Request) []string {
		opening := strings.TrimSuffix(response(r.ID, `{"watching":true}`), "}") + `,"stream":true}`
		switch r.Method {
		case "stream.cancel":
			cancelled <- string(r.Params)
			return []string{response(r.ID, `{"ok":true}`)}
		case "fails":
			return []string{opening, refusal(r.ID, "INTERNAL_ERROR", "broken")}
		}
		return []string{opening, chunk(r.ID, "1", false), chunk(r.ID, "null", true)}
	}))
	for method, want := range map[string]string{"watch": "1", "fails": ""} {
		s, err := c.Stream(t.Context(), method, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := s.Next(t.Context()); string(text) != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %s, %v", method, text, err)
		}
		if _, err := s.Next(t.Context()); method == "watch" && !errors.Is(err, io.EOF) {
			t.Errorf("it ends with %v", err)
		}
	}
	if err := c.Call(t.Context(), "watch", nil, nil); !errors.Is(err, errStreams) {
		t.Errorf("a call is answered %v", err)
	}
	if id := <-cancelled; id != `{"requestId":"3"}` {
		t.Errorf("cancelled is %s", id)
	}
}

func TestStreamCancelled(t *testing.T) {
	c := serve(t, each(func(r wire.Request) []string {
		if r.Method == "stream.cancel" {
			return []string{chunk("1", "null", true), response(r.ID, `{"ok":true}`)}
		}
		if r.Method == "ping" {
			return []string{response(r.ID, "1")}
		}
		var lines []string
		for n := range 3 * streamBuffer {
			lines = append(lines, chunk(r.ID, fmt.Sprint(n), false))
		}
		return lines
	}))
	s, err := c.Stream(t.Context(), "tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := c.Call(t.Context(), "ping", nil, nil); err != nil {
		t.Error(err)
	}
}

func TestStreamCancelledTooLate(t *testing.T) {
	c := serve(t, each(func(r wire.Request) []string {
		if r.Method == "stream.cancel" {
			return []string{refusal(r.ID, "NOT_FOUND", "no stream")}
		}
		return []string{chunk(r.ID, "null", true)}
	}))
	s, err := c.Stream(t.Context(), "tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestConnectionLost(t *testing.T) {
	c := serve(t, func(f *fake) {
		f.request()
		f.request()
		f.say(event("last", 1))
	})
	s, err := c.Stream(t.Context(), "tail", nil)
	if err != nil {
		t.Fatal(err)
	}
	e := wantCode(t, c.Call(t.Context(), "wait", nil, nil), api.ConnectionClosed)
	if !strings.Contains(e.Message, "was lost: the daemon ended it") {
		t.Errorf("got %q", e.Message)
	}
	_, err = s.Next(t.Context())
	wantCode(t, err, api.ConnectionClosed)
	if got, err := c.Next(t.Context()); err != nil || got.Event != "last" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = c.Next(t.Context())
	wantCode(t, err, api.ConnectionClosed)
	<-c.Done()
	wantCode(t, c.Err(), api.ConnectionClosed)
	wantCode(t, c.Call(t.Context(), "more", nil, nil), api.ConnectionClosed)
	_, err = c.Stream(t.Context(), "more", nil)
	wantCode(t, err, api.ConnectionClosed)
}

// TestTurnedAway is how the daemon answers somebody it will not serve.
// A caller whose answer is lost sees at once that the connection has ended: the MCP proxy then reports
// that nothing was sent.
func TestLostCallKnowsWhy(t *testing.T) {
	for range 200 {
		c := serve(t, func(f *fake) { f.request() })
		wantCode(t, c.Call(t.Context(), "wait", nil, nil), api.ConnectionClosed)
		wantCode(t, c.Err(), api.ConnectionClosed)
	}
}

func TestTurnedAway(t *testing.T) {
	c := serve(t, func(f *fake) { f.say(refusal("", "FORBIDDEN", "user 7 may not connect")) })
	e := wantCode(t, c.Call(t.Context(), "kernel.status", nil, nil), api.Forbidden)
	if e.Message != "user 7 may not connect" {
		t.Errorf("got %q", e.Message)
	}
}

func TestWhatIsNotTheProtocol(t *testing.T) {
	for name, line := range map[string]string{
		"garbage":    `hello`,
		"trailing":   response("1", "1") + "{}",
		"twice":      `{"id":"1","id":"2"}`,
		"wrong type": `{"id":1}`,
		"long":       response("1", `"`+strings.Repeat("x", 1<<16)+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, each(func(wire.Request) []string { return []string{line} }), WithMaxLine(1<<16))
			wantCode(t, c.Call(t.Context(), "go", nil, nil), api.ConnectionClosed)
		})
	}
}

func TestLongLines(t *testing.T) {
	text := strings.Repeat("x", 3<<20)
	c := serve(t, each(func(r wire.Request) []string {
		return []string{event("long", len(text)), "", "\r", response(r.ID, string(r.Params)), `{"id":"1","type":"novelty"}`, response("other", "1"), response("77", "1")}
	}))
	for range 3 {
		var got string
		if err := c.Call(t.Context(), "echo", text, &got); err != nil || got != text {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
}

func TestNotRunning(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, path := range []string{dead, filepath.Join(dir, "none.sock"), filepath.Join(dead, "below.sock")} {
		_, err := Dial(t.Context(), path)
		if want := "cannot reach the daemon at " + path + ": is it running? start it with: ocipd serve"; !errors.Is(err, ErrNotRunning) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	if _, err := Dial(t.Context(), long); err == nil || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "107 bytes") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, dead); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestCloseWakesEverybody closes a client whose reader waits for the caller.
func TestCloseWakesEverybody(t *testing.T) {
	for name, blocked := range map[string]func(id string) string{
		"event":  func(string) string { return event("e", 1) },
		"stream": func(id string) string { return chunk(id, "1", false) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			c := serve(t, func(f *fake) {
				r, _ := f.request()
				f.request()
				for range 2 * streamBuffer {
					f.say(blocked(r.ID))
				}
				close(asked)
				f.request()
			}, WithEventBuffer(1))
			if _, err := c.Stream(t.Context(), "tail", nil); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "wait", nil, nil) }()
			<-asked
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			wantCode(t, <-failed, api.ConnectionClosed)
			if err := c.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
		})
	}
}

// TestUnreadRequests floods a daemon that reads nothing: callers wait, and
// leave with their context.
func TestUnreadRequests(t *testing.T) {
	done := make(chan struct{})
	c := serve(t, func(*fake) { <-done })
	defer close(done)
	ctx, cancel := context.WithCancel(t.Context())
	text := strings.Repeat("x", maxWaiting)
	var tasks sync.WaitGroup
	for range 20 {
		tasks.Go(func() {
			if err := c.Call(ctx, "flood", text, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	// Somebody waits for room: then the buffer is full and nothing was lost.
	for {
		c.mu.Lock()
		full := c.sunk != nil && len(c.waiting) > maxWaiting
		held := len(c.waiting)
		c.mu.Unlock()
		if held > 2*maxWaiting+1024 {
			t.Errorf("%d bytes wait", held)
		}
		if full {
			break
		}
	}
	cancel()
	tasks.Wait()
}

func BenchmarkCall(b *testing.B) {
	for _, parallel := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", parallel), func(b *testing.B) {
			c := serve(b, func(f *fake) {
				out := bufio.NewWriter(f.conn)
				for f.in.Scan() {
					line := f.in.Text()
					id, _, _ := strings.Cut(line[len(`{"id":"`):], `"`)
					fmt.Fprintf(out, `{"id":"s","type":"response","timestamp":1,"requestId":"%s","success":true,"result":{"ok":true}}`+"\n", id)
					out.Flush()
				}
			})
			b.ReportAllocs()
			b.SetParallelism(parallel)
			b.RunParallel(func(pb *testing.PB) {
				var ok api.OK
				for pb.Next() {
					if err := c.Call(b.Context(), "app.heartbeat", nil, &ok); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
