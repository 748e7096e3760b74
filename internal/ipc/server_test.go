package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
)

// fakeKernel is a kernel with the functions that a test sets. All others panic, which is a test of
// its own.
type fakeKernel struct {
	connect func(api.Peer, api.Link) (Client, error)
	gone    atomic.Int32
}

func (k *fakeKernel) Connect(p api.Peer, l api.Link) (Client, error) {
	if k.connect != nil {
		return k.connect(p, l)
	}
	return &fakeClient{kernel: k, link: l}, nil
}

func (k *fakeKernel) Admit(api.Peer) error { return nil }

type fakeClient struct {
	kernel     *fakeKernel
	link       api.Link
	registered atomic.Bool

	heartbeat func(context.Context) error
	session   func(context.Context, string) error
	watch     func(context.Context) (Feed, error)
}

func (c *fakeClient) Authorize(string) error { return nil }
func (c *fakeClient) Registered() bool       { return c.registered.Load() }
func (c *fakeClient) Gone()                  { c.kernel.gone.Add(1) }

func (c *fakeClient) Heartbeat(ctx context.Context, _ *api.HeartbeatParams) (api.HeartbeatResult, error) {
	if c.heartbeat != nil {
		return api.HeartbeatResult{}, c.heartbeat(ctx)
	}
	return api.HeartbeatResult{OK: true}, nil
}

func (c *fakeClient) Session(ctx context.Context, p *api.SessionGetParams) (api.SessionResult, error) {
	if c.session != nil {
		return api.SessionResult{}, c.session(ctx, p.Key)
	}
	return api.SessionResult{}, nil
}

func (c *fakeClient) Ready(context.Context, *api.ReadyParams) (api.OK, error) {
	panic("ready")
}

func (c *fakeClient) Shutdown(context.Context, *api.ShutdownParams) (api.OK, error) {
	c.link.Close(patience)
	return api.OK{OK: true}, nil
}

func (c *fakeClient) WatchConfig(ctx context.Context, _ *api.ConfigWatchParams) (Feed, error) {
	return c.watch(ctx)
}

// fakeMethods are the methods that the fake has.
func fakeMethods() []Method {
	return []Method{
		App("app.heartbeat", Quick, (*fakeClient).Heartbeat),
		App("app.ready", Quick, (*fakeClient).Ready),
		App("app.shutdown", Patient, (*fakeClient).Shutdown),
		App("session.get", Patient, (*fakeClient).Session),
		AppStream[api.ConfigChange]("config.watch", api.Watching{Watching: true}, (*fakeClient).WatchConfig),
		Cancel("stream.cancel"),
		Describe("kernel.describe"),
	}
}

// serve runs a server over a fake kernel, and returns it with its socket.
func serve(t testing.TB, k *fakeKernel, change ...func(*Options)) (*Server, string) {
	t.Helper()
	dir := shortDir(t)
	path, operator := filepath.Join(dir, "k"), filepath.Join(dir, "o")
	claim, err := ClaimSockets(path, operator)
	must(t, err)
	apps, err := claim.Listen(path, 0o600)
	must(t, err)
	operators, err := claim.Listen(operator, 0o600)
	must(t, err)
	var ids atomic.Int64
	o := Options{
		Methods: fakeMethods(), Connect: k.Connect, Admit: k.Admit, Limits: Limits{LineBytes: 4096, QueueBytes: 64 << 10, InFlight: 4, Connections: 8},
		AllowUID: func(uint32, bool) bool { return true }, Now: time.Now, NewID: func() string { return "s" + strconv.FormatInt(ids.Add(1), 10) },
		Version: "test", Log: zap.NewNop(), Apps: apps, Operators: operators,
	}
	for _, f := range change {
		f(&o)
	}
	s := NewServer(o)
	s.Serve()
	t.Cleanup(func() {
		s.Close(0)
		must(t, claim.Release())
	})
	return s, path
}

// plug is a raw connection to a server.
type plug struct {
	t testing.TB
	*net.UnixConn
	lines *bufio.Reader
}

func dial(t testing.TB, path string) *plug {
	t.Helper()
	c, err := net.Dial("unix", path)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &plug{t: t, UnixConn: c.(*net.UnixConn), lines: bufio.NewReader(c)}
}

func (p *plug) send(id, method, params string) {
	p.t.Helper()
	_, err := fmt.Fprintf(p, `{"id":%q,"type":"request","timestamp":1,"method":%q,"params":%s}`+"\n", id, method, params)
	must(p.t, err)
}

// next reads one message.
func (p *plug) next() wire.Incoming {
	p.t.Helper()
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	in, ok := p.read(line)
	if !ok {
		p.t.Fatalf("%q is no message", line)
	}
	return in
}

func (p *plug) read(line []byte) (in wire.Incoming, ok bool) {
	t, isTest := p.t.(*testing.T)
	if !isTest {
		return in, false
	}
	return oneLine(t, line), true
}

// answers reads the answer to a request, and fails if it belongs to another.
func (p *plug) answers(id string, code api.Code) wire.Incoming {
	p.t.Helper()
	in := p.next()
	switch {
	case in.Type != wire.TypeResponse || in.RequestID != id:
		p.t.Fatalf("got %+v, want the answer to %q", in, id)
	case in.Success != (code == "") || !in.Success && in.Error.Code != code:
		p.t.Fatalf("request %q: got %+v (%v), want code %q", id, in, in.Error, code)
	}
	return in
}

// watches opens a config.watch and reads its first answer.
func (p *plug) watches(id string) {
	p.t.Helper()
	p.send(id, "config.watch", "{}")
	if in := p.answers(id, ""); !in.Stream || string(in.Result) != `{"watching":true}` {
		p.t.Fatalf("a watch begins with %+v", in)
	}
}

// alive checks that the connection still answers.
func (p *plug) alive() {
	p.t.Helper()
	p.send("alive", "app.heartbeat", "{}")
	p.answers("alive", "")
}

// ended checks that nothing more comes.
func (p *plug) ended() {
	p.t.Helper()
	if line, err := p.lines.ReadBytes('\n'); len(line) > 0 || err == nil {
		p.t.Fatalf("got %q, want the end", line)
	}
}

// with connects to a server whose only client the test prepares.
func with(t *testing.T, prepare func(*fakeClient), change ...func(*Options)) (*plug, *fakeKernel, *Server) {
	t.Helper()
	k := &fakeKernel{}
	k.connect = func(_ api.Peer, l api.Link) (Client, error) {
		c := &fakeClient{kernel: k, link: l}
		prepare(c)
		return c, nil
	}
	s, path := serve(t, k, change...)
	return dial(t, path), k, s
}

// An error without a code is UNKNOWN_ERROR, and its text is not sent.
func TestUnknownError(t *testing.T) {
	p, _, _ := with(t, func(c *fakeClient) {
		c.heartbeat = func(context.Context) error { return errors.New("the password is swordfish") }
		c.session = func(context.Context, string) error { return fmt.Errorf("deep inside: %w", errors.New("swordfish")) }
	})
	for _, method := range []string{"app.heartbeat", "session.get"} {
		p.send("1", method, `{"key":"a:b"}`)
		if e := p.answers("1", api.UnknownError).Error; strings.Contains(e.Message, "swordfish") || e.Message == "" {
			t.Errorf("%s: the message is %q", method, e.Message)
		}
	}
}

// A code survives being wrapped.
func TestWrappedError(t *testing.T) {
	p, _, _ := with(t, func(c *fakeClient) {
		c.heartbeat = func(context.Context) error {
			return fmt.Errorf("while beating: %w", api.Errorf(api.Timeout, "too late"))
		}
	})
	p.send("1", "app.heartbeat", "{}")
	if e := p.answers("1", api.Timeout).Error; e.Message != "too late" {
		t.Errorf("the message is %q", e.Message)
	}
}

// A panic is one request's INTERNAL_ERROR, in any place: in a quick method, in one that runs beside
// the reader, while a stream is opened and while it runs. Everything else goes on.
func TestPanic(t *testing.T) {
	var opened atomic.Int32
	p, k, _ := with(t, func(c *fakeClient) {
		c.heartbeat = nil
		c.session = func(context.Context, string) error { panic("session") }
		c.watch = func(context.Context) (Feed, error) {
			if opened.Add(1) == 1 {
				panic("open")
			}
			return func(context.Context, api.Stream) error { panic("feed") }, nil
		}
	})
	for i, request := range []struct{ method, params string }{
		{"app.ready", "{}"},
		{"session.get", `{"key":"a:b"}`},
		{"config.watch", "{}"},
		{"config.watch", "{}"},
	} {
		id := strconv.Itoa(i)
		p.send(id, request.method, request.params)
		if i == 3 {
			p.answers(id, "") // it has begun
		}
		if e := p.answers(id, api.InternalError).Error; !strings.Contains(e.Message, request.method) {
			t.Errorf("%s: the message is %q", request.method, e.Message)
		}
		p.alive()
	}
	// The request that panicked is no longer in flight.
	p.send("1", "session.get", `{"key":"a:b"}`)
	p.answers("1", api.InternalError)
	if k.gone.Load() != 0 {
		t.Error("the connection ended")
	}
}

// A request's id is free again as soon as its answer has been read.
func TestRequestIDIsFreeOnceAnswered(t *testing.T) {
	p, _, _ := with(t, func(c *fakeClient) {
		// Events flush the queue from another goroutine, at any moment.
		c.session = func(context.Context, string) error {
			go c.link.Put(gate.Notice("tick", []byte("{}")), nil)
			return nil
		}
	})
	for n := range 2000 {
		p.send("same", "session.get", `{"key":"a:b"}`)
		for {
			in := p.next()
			if in.Type == wire.TypeEvent {
				continue
			}
			if !in.Success {
				t.Fatalf("round %d: %v", n, in.Error)
			}
			break
		}
	}
}

func TestDuplicateIDInFlight(t *testing.T) {
	release := make(chan struct{})
	p, _, _ := with(t, func(c *fakeClient) {
		c.session = func(ctx context.Context, _ string) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.watch = func(ctx context.Context) (Feed, error) {
			return func(ctx context.Context, _ api.Stream) error { <-ctx.Done(); return ctx.Err() }, nil
		}
	})
	p.send("1", "session.get", `{"key":"a:b"}`)
	p.send("1", "app.heartbeat", "{}")
	p.answers("1", api.Conflict)
	p.watches("2")
	p.send("2", "config.watch", "{}")
	p.answers("2", api.Conflict)
	p.send("3", "stream.cancel", `{"requestId":"1"}`)
	p.answers("3", api.NotFound)
	close(release)
	p.answers("1", "")
}

// A client that floods slows only itself; its answers flow meanwhile.
func TestInFlightIsBounded(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{}, 100)
	p, _, s := with(t, func(c *fakeClient) {
		c.session = func(context.Context, string) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-release
			running.Add(-1)
			return nil
		}
	})
	for n := range 20 {
		p.send(strconv.Itoa(n), "session.get", fmt.Sprintf(`{"key":"a:%d"}`, n))
		release <- struct{}{}
	}
	for range 20 {
		if in := p.next(); !in.Success {
			t.Fatal(in.Error)
		}
	}
	if n := int(most.Load()); n > s.all.limits.Load().InFlight {
		t.Errorf("%d requests ran at once", n)
	}
}

// Streams do not take the places of requests: a connection with its limit of streams still answers,
// and can end them.
func TestStreamsAreBounded(t *testing.T) {
	var opened atomic.Int32
	p, _, _ := with(t, func(c *fakeClient) {
		c.watch = func(context.Context) (Feed, error) {
			opened.Add(1)
			return func(ctx context.Context, _ api.Stream) error { <-ctx.Done(); return ctx.Err() }, nil
		}
	})
	for n := range maxStreams {
		p.watches("s" + strconv.Itoa(n))
	}
	p.send("over", "config.watch", "{}")
	p.answers("over", api.Conflict)
	if n := opened.Load(); n != maxStreams {
		t.Errorf("%d streams were opened, %d have a feed to end them", n, maxStreams)
	}
	p.send("q", "session.get", `{"key":"a:b"}`)
	p.answers("q", "")
	p.send("c", "stream.cancel", `{"requestId":"s0"}`)
	done := false
	for range 2 { // in either order
		in := p.next()
		if in.Type == wire.TypeStream {
			done = in.Done && in.RequestID == "s0" && string(in.Chunk) == "null"
		}
	}
	if !done {
		t.Error("the stream is not done")
	}
	p.watches("again")
	p.alive()
}

// Events that the kernel sends to a new connection reach it before its first request: an app
// resumes without a request.
func TestEventsBeforeTheFirstRequest(t *testing.T) {
	k := &fakeKernel{}
	k.connect = func(_ api.Peer, l api.Link) (Client, error) {
		if !l.Put(gate.Notice("hook:message_received", []byte(`{"n":1}`)), nil) {
			t.Error("a connection that begins takes no event")
		}
		l.Flush()
		return &fakeClient{kernel: k, link: l}, nil
	}
	_, path := serve(t, k)
	p := dial(t, path)
	if in := p.next(); in.Event != "hook:message_received" {
		t.Errorf("got %+v", in)
	}
	p.alive()
}

// A reader that decodes each read of its socket separately, as the stock SDK does, gets every
// character of every message, in any script and anywhere in the JSON.
func TestNoCharacterIsCut(t *testing.T) {
	var sent []string
	links := make(chan api.Link, 1)
	p, _, _ := with(t, func(c *fakeClient) { links <- c.link }, func(o *Options) { o.Limits.QueueBytes = 64 << 20 })
	link := <-links
	scripts := []string{
		"締め切りは明日", "Привет, как дела?", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "안녕하세요", "Γειά σου", "ÀÉÎõü ß ÿ", "𐍈𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "🤝🏽👩‍👩‍👧‍👦🇨🇭", "plain", "\u2028\u0085\u00a0",
	}
	for n := range 10_000 {
		text := strconv.Itoa(n) + " " + strings.Repeat(scripts[n%len(scripts)]+" ", 1+n%7)
		if n%1000 == 0 {
			text = strings.Repeat(text, 1+100_000/len(text))
		}
		sent = append(sent, text)
		// The member's name is the text, too, and neither was quoted as ASCII.
		quoted, err := jsontext.AppendQuote(nil, text)
		must(t, err)
		payload := slices.Concat([]byte("{"), quoted, []byte(":"), quoted, []byte("}"))
		if !link.Put(gate.Notice("e", payload), nil) {
			t.Fatal("not queued")
		}
	}
	link.Flush()
	var decoded strings.Builder
	read := make([]byte, 64<<10)
	for lines := 0; lines < len(sent); {
		n, err := p.Read(read)
		must(t, err)
		piece := strings.ToValidUTF8(string(read[:n]), "\ufffd")
		lines += strings.Count(piece, "\n")
		decoded.WriteString(piece)
	}
	n := 0
	for line := range strings.Lines(decoded.String()) {
		var in struct {
			Payload map[string]string `json:"payload"`
		}
		must(t, json.Unmarshal([]byte(line), &in))
		if in.Payload[sent[n]] != sent[n] {
			t.Fatalf("message %d was changed: %.200s", n, line)
		}
		n++
	}
}

// What is sent at once may be more than the queue holds: it waits for the reader.
func TestStreamSendsMoreThanTheQueueHolds(t *testing.T) {
	count := make(chan int, 1)
	p, _, s := with(t, func(c *fakeClient) {
		c.watch = func(context.Context) (Feed, error) {
			return func(ctx context.Context, s api.Stream) error {
				chunks := make([]any, <-count)
				for i := range chunks {
					chunks[i] = strings.Repeat("x", 1000)
				}
				return s.Send(ctx, chunks...)
			}, nil
		}
	})
	n := 3 * s.all.limits.Load().QueueBytes / 1000
	count <- n
	p.watches("1")
	for i := range n {
		if in := p.next(); in.Type != wire.TypeStream || in.Done || len(in.Chunk) != 1002 {
			t.Fatalf("chunk %d is %+v", i, in)
		}
	}
	if in := p.next(); in.Type != wire.TypeStream || !in.Done {
		t.Errorf("its end is %+v", in)
	}
	p.alive()
}

// A stream that fails returns an error instead of ending normally.
func TestStreamThatFails(t *testing.T) {
	p, _, _ := with(t, func(c *fakeClient) {
		c.watch = func(context.Context) (Feed, error) {
			return func(ctx context.Context, s api.Stream) error {
				if err := s.Send(ctx, map[string]int{"n": 1}); err != nil {
					return err
				}
				if err := s.Send(ctx, func() {}); api.AsError(err).Code != api.InternalError {
					t.Errorf("a chunk that is no JSON: %v", err)
				}
				return api.Errorf(api.NotFound, "nothing more")
			}, nil
		}
	})
	p.watches("1")
	if in := p.next(); in.Type != wire.TypeStream || in.Done || string(in.Chunk) != `{"n":1}` {
		t.Errorf("got %+v", in)
	}
	p.answers("1", api.NotFound)
	p.alive()
}

// A graceful end answers requests, ends the streams and then hangs up, immediately and not by a
// timeout.
func TestShutdownEndsStreams(t *testing.T) {
	p, k, _ := with(t, func(c *fakeClient) {
		c.watch = func(context.Context) (Feed, error) {
			return func(ctx context.Context, _ api.Stream) error { <-ctx.Done(); return ctx.Err() }, nil
		}
	})
	began := time.Now()
	p.watches("w")
	p.send("s", "app.shutdown", "{}")
	var done, answered bool
	for range 2 {
		in := p.next()
		done = done || in.Type == wire.TypeStream && in.RequestID == "w" && in.Done
		answered = answered || in.RequestID == "s" && in.Success
	}
	if !done || !answered {
		t.Errorf("done: %v, answered: %v", done, answered)
	}
	p.ended()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %s", took)
	}
	for k.gone.Load() == 0 {
		p.pause()
	}
}

// pause lets other goroutines run.
func (p *plug) pause() { <-time.After(time.Millisecond) }

// While a connection drains, no new request begins, and waiting requests get an error.
func TestDrainingConnection(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	p, _, s := with(t, func(c *fakeClient) {
		c.session = func(ctx context.Context, _ string) error {
			entered <- struct{}{}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for n := range s.all.limits.Load().InFlight {
		p.send(strconv.Itoa(n), "session.get", `{"key":"a:b"}`)
		<-entered
	}
	p.send("waits", "session.get", `{"key":"a:b"}`)
	p.send("late", "session.get", `{"key":"a:b"}`)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close(patience)
	}()
	p.answers("waits", api.ConnectionClosed)
	p.answers("late", api.ConnectionClosed)
	p.alive()
	close(release)
	for range s.all.limits.Load().InFlight {
		if in := p.next(); !in.Success {
			t.Errorf("%s: %v", in.RequestID, in.Error)
		}
	}
	p.ended()
	wait(t, closed, "the server does not close")
}

// A client that hangs up during a request causes no error of the kernel. The request's context
// ends, and the kernel is told once, at the end.
func TestClientThatLeavesMidRequest(t *testing.T) {
	told := make(chan error, 1)
	p, k, s := with(t, func(c *fakeClient) {
		c.session = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			if k := c.kernel.gone.Load(); k != 0 {
				t.Error("the connection is gone before its request is through")
			}
			told <- ctx.Err()
			return ctx.Err()
		}
	})
	p.send("1", "session.get", `{"key":"a:b"}`)
	p.alive()
	// Half closed: the answer can still be read.
	must(t, p.CloseWrite())
	p.answers("1", api.ConnectionClosed)
	p.ended()
	if err := <-told; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for s.Connections() > 0 {
		p.pause()
	}
	if n := k.gone.Load(); n != 1 {
		t.Errorf("the kernel was told %d times", n)
	}
}

// A client that does not read gets whole frames, the last words, and an answer for each request in
// flight.
func TestLaggingConnection(t *testing.T) {
	entered := make(chan struct{}, 1)
	links := make(chan api.Link, 1)
	p, k, s := with(t, func(c *fakeClient) {
		c.session = func(ctx context.Context, _ string) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		links <- c.link
	})
	p.send("r1", "session.get", `{"key":"a:b"}`)
	<-entered
	var taken atomic.Int32
	link := <-links
	payload := []byte(`"` + strings.Repeat("x", 3000) + `"`)
	sent := 0
	for link.Put(gate.Notice("e"+strconv.Itoa(sent), payload), onTaken(func() { taken.Add(1) })) {
		if sent++; sent > 10_000 {
			t.Fatal("the queue is unbounded")
		}
	}
	if link.Put(gate.Notice("more", payload), nil) || !errors.Is(link.Room(t.Context()), errEnded) {
		t.Error("a lagging connection takes more")
	}
	var words []wire.Incoming
	for n := 0; ; n++ {
		in := p.next()
		if in.Event != "e"+strconv.Itoa(n) {
			words = append(words, in)
			break
		}
	}
	words = append(words, p.next())
	if words[0].Event != "kernel:lagging" || words[1].RequestID != "r1" || words[1].Error == nil || words[1].Error.Code != api.ConnectionClosed {
		t.Errorf("the last words are %+v", words)
	}
	p.ended()
	for s.Connections() > 0 {
		p.pause()
	}
	if k.gone.Load() != 1 {
		t.Error("the kernel was not told")
	}
}

func TestForeignUserIsRefused(t *testing.T) {
	s, path := serve(t, &fakeKernel{}, func(o *Options) { o.AllowUID = func(uint32, bool) bool { return false } })
	p := dial(t, path)
	p.answers("", api.Forbidden)
	p.ended()
	if s.Connections() != 0 {
		t.Error("the connection counts")
	}
}

func TestKernelThatRefusesAConnection(t *testing.T) {
	_, path := serve(t, &fakeKernel{connect: func(api.Peer, api.Link) (Client, error) {
		return nil, api.Errorf(api.Unauthorized, "not you")
	}})
	p := dial(t, path)
	p.answers("", api.Unauthorized)
	p.ended()
}

// At the limit the connection that has waited longest without registering is ended. If all are
// registered, the new one is refused.
func TestConnectionLimit(t *testing.T) {
	k := &fakeKernel{}
	var mu sync.Mutex
	var clients []*fakeClient
	k.connect = func(_ api.Peer, l api.Link) (Client, error) {
		mu.Lock()
		defer mu.Unlock()
		c := &fakeClient{kernel: k, link: l}
		clients = append(clients, c)
		return c, nil
	}
	s, path := serve(t, k)
	var plugs []*plug
	for range s.all.limits.Load().Connections {
		p := dial(t, path)
		p.alive()
		plugs = append(plugs, p)
	}
	mu.Lock()
	clients[0].registered.Store(true)
	mu.Unlock()
	// Many more come and go at once.
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = c.Write([]byte("{}\n"))
		})
	}
	all.Wait()
	plugs[0].alive()
	if _, err := plugs[1].lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest is still there: %v", err)
	}
	for _, p := range plugs[1:] {
		p.Close()
	}
	for int(k.gone.Load()) < s.all.limits.Load().Connections-1+50 || s.Connections() > 1 {
		plugs[0].pause()
	}
	for range s.all.limits.Load().Connections - 1 {
		dial(t, path).alive()
	}
	mu.Lock()
	for _, c := range clients {
		c.registered.Store(true)
	}
	mu.Unlock()
	p := dial(t, path)
	p.answers("", api.ConnectionClosed)
	p.ended()
	plugs[0].alive()
}

// fakeTasks is a connection's part in tasks.
type fakeTasks struct{ attached atomic.Bool }

func (f *fakeTasks) Attached() bool { return f.attached.Load() }

func (f *fakeTasks) Admit(ctx context.Context, _ string, _ bool) (context.Context, error) {
	return ctx, nil
}

// A connection that attached with a grant has a place like an app's, at the limits of all, of a
// process and of a user. When the grant ends, the connection can lose its place.
func TestAttachedConnectionsStay(t *testing.T) {
	for name, limits := range map[string]Limits{
		"of all": {Connections: 3}, "of a process": {Connections: 9, ProcessConnections: 3}, "of a user": {Connections: 9, UserConnections: 3},
	} {
		t.Run(name, func(t *testing.T) {
			parts := make(chan *fakeTasks, 20)
			_, path := serve(t, &fakeKernel{}, func(o *Options) {
				limits.LineBytes, limits.QueueBytes, limits.InFlight = o.Limits.LineBytes, o.Limits.QueueBytes, o.Limits.InFlight
				o.Limits = limits
				o.Tasks = func(api.Peer, Client) TaskSession {
					f := new(fakeTasks)
					parts <- f
					return f
				}
			})
			actor := dial(t, path)
			actor.alive()
			part := <-parts
			part.attached.Store(true)
			for range 6 {
				dial(t, path).alive()
			}
			actor.alive()
			part.attached.Store(false)
			dial(t, path).alive()
			actor.ended()
		})
	}
}

// The resources of a connection are given back, even if it was refused.
func TestConnectionsLeaveNothing(t *testing.T) {
	_, path := serve(t, &fakeKernel{connect: func(api.Peer, api.Link) (Client, error) {
		return nil, api.Errorf(api.Unauthorized, "not you")
	}}, func(o *Options) { o.Limits.Connections = 1 })
	before := buildtest.Open(t)
	for range 200 {
		p := dial(t, path)
		_, _ = io.Copy(io.Discard, p)
		p.Close()
	}
	// The last few may not be closed yet.
	if more := buildtest.Open(t).Since(before); more > 5 {
		t.Errorf("%d more descriptors are open", more)
	}
}

// A server that closes ends every connection, even one that does not read and one whose request
// does not end.
func TestServerClose(t *testing.T) {
	entered := make(chan struct{}, 1)
	p, _, s := with(t, func(c *fakeClient) {
		c.session = func(ctx context.Context, _ string) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	p.send("1", "session.get", `{"key":"a:b"}`)
	<-entered
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, want := range []int{1, 0} {
			if left := s.Close(time.Millisecond); left != want {
				t.Errorf("%d requests are left, want %d", left, want)
			}
		}
	}()
	wait(t, closed, "the server does not close")
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// An aborted server waits for no answer, whatever its limit.
func TestServerAbort(t *testing.T) {
	for _, when := range []string{"before", "while"} {
		entered := make(chan struct{}, 1)
		p, _, s := with(t, func(c *fakeClient) {
			c.session = func(ctx context.Context, _ string) error {
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
		})
		p.send("1", "session.get", `{"key":"a:b"}`)
		<-entered
		if when == "before" {
			s.Abort()
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if left := s.Close(time.Hour); left != 1 {
				t.Errorf("%s: %d requests are left, want 1", when, left)
			}
		}()
		if when == "while" {
			// No new request begins meanwhile, and its caller is told.
			for !draining(s) {
				p.alive()
			}
			p.send("2", "session.get", `{"key":"a:b"}`)
			p.answers("2", api.ConnectionClosed)
			s.Abort()
			s.Abort()
		}
		wait(t, closed, when+": the server does not close")
	}
}

// A request on one connection may wait for an answer on another: that one is not ended before.
func TestServerCloseWaitsForAll(t *testing.T) {
	entered, said := make(chan struct{}), make(chan struct{})
	k := &fakeKernel{}
	k.connect = func(_ api.Peer, l api.Link) (Client, error) {
		return &fakeClient{
			kernel: k, link: l,
			session: func(ctx context.Context, _ string) error {
				close(entered)
				select {
				case <-said:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			heartbeat: func(context.Context) error {
				close(said)
				return nil
			},
		}, nil
	}
	s, path := serve(t, k)
	asks, answers := dial(t, path), dial(t, path)
	asks.send("1", "session.get", `{"key":"a:b"}`)
	<-entered
	// Both are served.
	for s.Connections() < 2 {
		asks.pause()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close(patience)
	}()
	for !draining(s) {
		asks.pause()
	}
	answers.send("2", "app.heartbeat", `{}`)
	if in := asks.next(); in.RequestID != "1" || in.Error != nil {
		t.Errorf("who waits is told %+v", in)
	}
	wait(t, closed, "the server does not close")
}

// draining reports whether every connection of a server has stopped taking requests.
func draining(s *Server) bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	for c := range s.all.conns {
		if c.takes() {
			return false
		}
	}
	return true
}

// A call's follow-up runs once its answer is written, and not if the call failed.
func TestAfterReply(t *testing.T) {
	answered, after := make(chan struct{}), make(chan bool, 2)
	send := func(_ *fakeClient, _ context.Context, p *api.SessionGetParams) (api.OK, api.AfterReply, error) {
		var err error
		if p.Key == "fails:x" {
			err = api.Errorf(api.Forbidden, "no")
		}
		return api.OK{OK: true}, func() {
			select {
			case <-answered:
				after <- true
			case <-time.After(patience):
				after <- false
			}
		}, err
	}
	p, _, _ := with(t, func(*fakeClient) {}, func(o *Options) {
		o.Methods = append(o.Methods, AppThen("message.send", send))
	})
	p.send("1", "message.send", `{"key":"fails:x"}`)
	p.answers("1", api.Forbidden)
	p.send("2", "message.send", `{"key":"a:b"}`)
	p.answers("2", "")
	close(answered)
	if !<-after {
		t.Error("it was done before the answer was read")
	}
	p.alive()
	if len(after) > 0 {
		t.Error("it was done for a call that failed")
	}
}
