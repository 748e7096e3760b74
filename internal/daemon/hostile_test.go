package daemon_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
)

const (
	hostileLine  = 64 << 10
	hostileQueue = 256 << 10
	hostileConns = 300
	// bearable bounds an honest client's wait for one answer while others misbehave. It is
	// generous, because these tests also run on slow machines.
	bearable = 5 * time.Second
	// mostMemory bounds the growth of the process because of one hostile client, including
	// the test's own part.
	mostMemory = 64 << 20
)

var hostileConfig = acme + busy + fmt.Sprintf(`
ipc: {max_line_bytes: %d, max_queue_bytes: %d, max_connections: %d}
`, hostileLine, hostileQueue, hostileConns)

// busy permits more messages to strangers than a person would send.
const busy = `
ocip: {disclosure: none, unknown: {max_messages: 1000000}}
`

// honest is a client that works normally all the while.
type honest struct {
	t      *testing.T
	rounds atomic.Int64
	worst  atomic.Int64
	stop   chan struct{}
	done   chan struct{}
}

// work starts an app that sends heartbeats and messages, and the channel that gets its
// messages. Each call must be answered in time, and each message must arrive once and in order.
func (h *harness) work(t *testing.T) *honest {
	t.Helper()
	w := &honest{t: t, stop: make(chan struct{}), done: make(chan struct{})}
	alice, calm := h.agent("@acme/alice"), h.channel("@acme/calm", "calm")
	go func() {
		defer close(w.done)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			began := time.Now()
			if err := w.round(alice, calm); err != nil {
				t.Errorf("an honest client is disturbed in round %d: %v", w.rounds.Load(), err)
				return
			}
			w.worst.Store(max(w.worst.Load(), int64(time.Since(began))))
			w.rounds.Add(1)
		}
	}()
	return w
}

func (w *honest) round(alice, calm *app) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), bearable)
	defer cancel()
	if err := alice.Call(ctx, "app.heartbeat", nil, nil); err != nil {
		return err
	}
	var sent api.DispatchResult
	if err := alice.Call(ctx, "message.dispatch", map[string]any{"sessionKey": "calm:1", "content": "hello"}, &sent); err != nil {
		return err
	}
	for {
		in, err := calm.Next(ctx)
		if err != nil {
			return err
		}
		if in.Event != "hook:message_sending" {
			continue
		}
		var got delivered
		if err := json.Unmarshal(in.Payload, &got.HookEvent); err != nil {
			return err
		}
		if err := json.Unmarshal(got.Data, &got, json.MatchCaseInsensitiveNames(true)); err != nil {
			return err
		}
		if got.DispatchID != sent.DispatchID {
			return fmt.Errorf("message %s arrived, want %s", got.DispatchID, sent.DispatchID)
		}
		return nil
	}
}

// goesOn waits until the honest client has worked a few more rounds.
func (w *honest) goesOn(t *testing.T) {
	t.Helper()
	for target := w.rounds.Load() + 3; w.rounds.Load() < target; breathe() {
		select {
		case <-w.done:
			t.Fatal("the honest client has stopped")
		default:
		}
	}
}

func (w *honest) end() {
	close(w.stop)
	<-w.done
	if worst := time.Duration(w.worst.Load()); worst > bearable {
		w.t.Errorf("an honest client waited %s", worst)
	}
}

// breathe lets others run.
func breathe() { <-time.After(time.Millisecond) }

// heap returns the memory in use, without garbage.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// flood writes lines from a source until the end or until the connection ends, and counts them.
func flood(conn net.Conn, n int, line func(int) string) (*atomic.Int64, <-chan struct{}) {
	written, closed := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(closed)
		for i := range n {
			if _, err := io.WriteString(conn, line(i)); err != nil {
				return
			}
			written.Add(1)
		}
	}()
	return written, closed
}

// stalls waits until a flood is complete or makes no more progress.
func stalls(written *atomic.Int64, done <-chan struct{}) {
	for last := int64(-1); last != written.Load(); {
		last = written.Load()
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Whatever one client does, the others notice nothing of it.
func TestHostileClients(t *testing.T) {
	h := build(t, hostileConfig)
	worker := h.work(t)
	defer worker.end()
	for _, tc := range []struct {
		name   string
		attack func(t *testing.T, h *harness)
	}{
		{"garbage", attackGarbage},
		{"ten megabytes and no newline", attackEndlessLine},
		{"thousands of heartbeats and no reading", attackHeartbeats},
		{"thousands of messages and no reading", attackDispatches},
		{"half a line and silence", attackHalfALine},
		{"gone in the middle of a request", attackMidRequest},
		{"lines around the limit", attackLimits},
		{"a slow reader with a backlog", attackSlowOwner},
		{"many idle connections", attackIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := heap()
			mine := *h
			mine.t = t
			worker.goesOn(t)
			tc.attack(t, &mine)
			worker.goesOn(t)
			if grown := heap() - before; grown > mostMemory {
				t.Errorf("the process has grown by %d MB", grown>>20)
			}
		})
	}
}

func attackGarbage(t *testing.T, h *harness) {
	var all sync.WaitGroup
	for n := range 4 {
		w := h.dialWire("kernel.sock")
		garbage := make([]byte, 128<<10)
		random := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		if n%2 == 1 {
			// Half of them look like JSON.
			const like = "{}[]\":,\\u0n1te\n"
			for i := range garbage {
				garbage[i] = like[int(garbage[i])%len(like)]
			}
		}
		all.Go(func() {
			_, _ = w.conn.Write(garbage)
			_, _ = io.WriteString(w.conn, "\n"+w.request("end", "app.heartbeat", "{}")+"\n")
		})
		for {
			m := w.read()
			if m.RequestID == "end" {
				w.failed(m, api.AppNotRegistered)
				break
			}
			w.failed(m, api.InvalidRequest)
		}
	}
	all.Wait()
}

func attackEndlessLine(t *testing.T, h *harness) {
	before := heap()
	w := h.dialWire("kernel.sock")
	piece := strings.Repeat("x", 64<<10)
	for range 10 << 20 / len(piece) {
		w.write(piece)
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("a line without an end takes %d KB", grown>>10)
	}
	w.failed(w.read(), api.InvalidRequest)
	w.write("\n")
	w.deny(api.AppNotRegistered, "app.heartbeat", "{}")
}

func attackHeartbeats(t *testing.T, h *harness) {
	// More than twice the capacity of its queue and the socket.
	const n = 8000
	before := heap()
	w := h.registered("@evil/beats", `{}`)
	status := `{"status":{"x":"` + strings.Repeat("x", 200) + `"}}`
	written, done := flood(w.conn, n, func(i int) string { return w.request("b"+strconv.Itoa(i), "app.heartbeat", status) + "\n" })
	stalls(written, done)
	if grown := heap() - before; grown > mostMemory/4 {
		t.Errorf("%d heartbeats take %d KB", written.Load(), grown>>10)
	}
	// Now the client reads every answer, in order, or the last words.
	for i := range n {
		m := w.read()
		if m.Event == "kernel:lagging" {
			w.ended()
			break
		}
		if want := "b" + strconv.Itoa(i); m.RequestID != want || !m.Success {
			t.Fatalf("got %s, want the answer to %s", m.line, want)
		}
	}
	w.conn.Close()
	<-done
}

func attackDispatches(t *testing.T, h *harness) {
	const n = 4000
	before := heap()
	w := h.registered("@acme/bob", `{}`)
	written, done := flood(w.conn, n, func(i int) string {
		return w.request("d"+strconv.Itoa(i), "message.dispatch", fmt.Sprintf(`{"sessionKey":"sink:%d","content":"message %d"}`, i%200, i)) + "\n"
	})
	stalls(written, done)
	if grown := heap() - before; grown > mostMemory {
		t.Errorf("%d messages take %d KB", written.Load(), grown>>10)
	}
	answered, lagging := 0, false
	for answered < n && !lagging {
		m := w.read()
		switch {
		case m.Event == "kernel:lagging":
			lagging = true
		case m.Event != "":
		case m.Success:
			answered++
		default:
			t.Fatalf("got %s", m.line)
		}
	}
	if lagging {
		w.ended()
		for _, m := range w.aside {
			w.failed(m, api.ConnectionClosed)
		}
	}
	w.conn.Close()
	<-done
	// Every answered message is on disk.
	var status api.Status
	h.operator("kernel.status", map[string]any{}, &status)
	for _, q := range status.Queues {
		if q.Name == "channel:sink" && q.Waiting < answered {
			t.Errorf("%d messages were answered, %d are there", answered, q.Waiting)
		}
	}
	t.Logf("%d requests written, %d answered, lagging: %v", written.Load(), answered, lagging)
}

func attackHalfALine(t *testing.T, h *harness) {
	var silent []*wire
	for range 50 {
		w := h.dialWire("kernel.sock")
		w.write(seedRegister[:100])
		silent = append(silent, w)
	}
	for i, w := range silent {
		switch i % 3 {
		case 0:
			w.write(seedRegister[100:] + "\n")
			if m := w.read(); m.RequestID != "a1b2c3" || !m.Success && m.Error.Code != api.Conflict {
				t.Errorf("got %s", m.line)
			}
		case 1:
			w.conn.Close()
		}
	}
}

func attackMidRequest(t *testing.T, h *harness) {
	for n := range 100 {
		w := h.dialWire("kernel.sock")
		id := fmt.Sprintf("@evil/app%d", n)
		w.write(w.request("1", "app.register", wireManifest(id, `{}`)) + "\n")
		if n%2 == 0 {
			// Another app's end may be reported first.
			m := w.wait(func(m *message) bool { return m.RequestID == "1" })
			var result api.RegisterResult
			if err := json.Unmarshal(m.Result, &result); err != nil {
				t.Fatal(err)
			}
			w.token = result.Token
			for _, r := range []struct{ method, params string }{
				{"session.list", `{}`}, {"config.watch", `{}`}, {"message.dispatch", `{"sessionKey":"calm:2","content":"x"}`}, {"app.shutdown", `{}`},
			} {
				w.write(w.request(r.method, r.method, r.params) + "\n")
			}
			w.write(`{"id":"half`)
		}
		w.conn.Close()
	}
	// All of their resources are released.
	var status api.Status
	for {
		h.operator("kernel.status", map[string]any{}, &status)
		left := 0
		for _, a := range status.Apps {
			if strings.HasPrefix(a.ID, "@evil/app") {
				left++
			}
		}
		if left == 0 && status.Connections < 60 {
			return
		}
		breathe()
	}
}

func attackLimits(t *testing.T, h *harness) {
	var all sync.WaitGroup
	for n := range 4 {
		w := h.registered(fmt.Sprintf("@evil/long%d", n), `{}`)
		all.Go(func() {
			for round := range 6 {
				for _, over := range []int{-1, 0, 1} {
					id := fmt.Sprintf("r%d.%d", round, over)
					line := w.request(id, "app.heartbeat", `{"pad":""}`)
					pad := strings.Repeat("x", hostileLine+over-len(line))
					line = strings.Replace(line, `"pad":"`, `"pad":"`+pad, 1)
					if round%2 == 1 {
						line += "\r"
					}
					// In pieces, so that the lines of all interleave.
					for line += "\n"; line != ""; {
						size := min(len(line), 1+rand.IntN(20_000))
						if _, err := io.WriteString(w.conn, line[:size]); err != nil {
							t.Error(err)
							return
						}
						line = line[size:]
					}
				}
			}
		})
		all.Go(func() {
			for i := range 18 {
				round, over := i/3, i%3-1
				answer, err := w.lines.ReadString('\n')
				if err != nil {
					t.Error(err)
					return
				}
				m := parse(t, answer)
				if m.RequestID != fmt.Sprintf("r%d.%d", round, over) || m.Success != (over < 1) || !m.Success && m.Error.Code != api.InvalidRequest {
					t.Errorf("a line of limit%+d: got %s", over, m.line)
				}
			}
		})
	}
	all.Wait()
}

// If the owner of a channel does not read, its messages wait on disk. When it reads again they all
// come, in order; if its connection was given up in between, some come again, under the same id.
func attackSlowOwner(t *testing.T, h *harness) {
	const sessions, each = 8, 80
	owner := func() *wire {
		w := h.registered("@evil/slow", `{"channels":{"provides":["slow"]}}`)
		w.grant("capability.register", `{"type":"channel","config":{"id":"slow"}}`)
		w.grant("app.ready", "{}")
		return w
	}
	w := owner()
	bob := h.agent("@acme/bob")
	text := strings.Repeat("long ", 400)
	var mu sync.Mutex
	ids := make(map[string]string)
	var all sync.WaitGroup
	for session := range sessions {
		all.Go(func() {
			for n := range each {
				var sent api.DispatchResult
				key := fmt.Sprintf("slow:%d", session)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				err := bob.Call(ctx, "message.dispatch", map[string]any{"sessionKey": key, "content": fmt.Sprintf("%d %s", n, text)}, &sent)
				cancel()
				if err != nil {
					t.Errorf("%s, message %d: %v", key, n, err)
					return
				}
				mu.Lock()
				ids[sent.DispatchID] = fmt.Sprintf("%s %d", key, n)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(ids) != sessions*each {
		t.Fatalf("%d messages were sent", len(ids))
	}
	next, again := make(map[string]int), 0
	seen := make(map[string]bool)
	for len(seen) < len(ids) {
		line, err := w.lines.ReadString('\n')
		if err != nil {
			t.Logf("connected again after %d messages", len(seen))
			w = owner()
			continue
		}
		m := parse(t, line)
		if m.Event != "hook:message_sending" {
			continue
		}
		var event delivered
		if err := json.Unmarshal(m.Payload, &event.HookEvent); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(event.Data, &event, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if seen[event.DispatchID] {
			again++
			continue
		}
		seen[event.DispatchID] = true
		number, _, _ := strings.Cut(event.Content, " ")
		key := "slow:" + event.Target
		if got, want := key+" "+number, ids[event.DispatchID]; got != want || number != strconv.Itoa(next[key]) {
			t.Fatalf("got %s as %s, want number %d", got, want, next[key])
		}
		next[key]++
	}
	t.Logf("%d messages came again", again)
	// Read messages are out of the store.
	for {
		var status api.Status
		h.operator("kernel.status", map[string]any{}, &status)
		waiting := 0
		for _, q := range status.Queues {
			if q.Name == "channel:slow" {
				waiting = q.Waiting
			}
		}
		if waiting == 0 {
			break
		}
		breathe()
	}
}

func attackIdle(t *testing.T, h *harness) {
	survivor := h.registered("@acme/survivor", `{}`)
	// More are always open than the limit permits; the displaced ones are closed.
	var idle []net.Conn
	for range 7 * hostileConns {
		c, err := net.Dial("unix", h.path("run/kernel.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if idle = append(idle, c); len(idle) > 2*hostileConns {
			idle[0].Close()
			idle = idle[1:]
		}
	}
	survivor.alive()
	// While connections of the flood are still being accepted, a newcomer can be the one
	// that has waited longest; it gets in by trying again.
	var err error
	for range 20 {
		late := h.connect()
		if _, err = late.Register(t.Context(), manifest("@acme/late", api.Capabilities{})); err == nil {
			// It may have been displaced just before it registered.
			if err = late.call("app.heartbeat", map[string]any{}, nil); err == nil {
				break
			}
		}
	}
	if err != nil {
		t.Errorf("a newcomer does not get in: %v", err)
	}
	var status api.Status
	h.operator("kernel.status", map[string]any{}, &status)
	if status.Connections > hostileConns {
		t.Errorf("%d connections are open", status.Connections)
	}
	for _, c := range idle {
		c.Close()
	}
}
