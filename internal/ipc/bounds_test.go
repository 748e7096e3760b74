package ipc

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

func TestConnectionsWithin(t *testing.T) {
	for _, tc := range []struct {
		configured  int
		descriptors uint64
		want        int
	}{
		{4096, 524288, 4096}, {4096, 1 << 63, 4096}, {4096, 8576, 4096}, {4096, 8575, 4095}, {4096, 1024, 320}, {100, 1024, 100}, {4096, 60, 1}, {4096, 0, 1},
	} {
		if got := connectionsWithin(tc.configured, tc.descriptors); got != tc.want {
			t.Errorf("%d connections with %d descriptors: got %d, want %d", tc.configured, tc.descriptors, got, tc.want)
		}
	}
}

// A start with too few descriptors is refused: the error names the limit, the needed number and the
// remedy.
func TestDescriptorsThatAreTooFew(t *testing.T) {
	for _, tc := range []struct {
		configured         int
		descriptors, needs uint64
	}{{4096, 400, 0}, {4096, 399, 400}, {4096, 60, 400}, {2, 388, 0}, {2, 387, 388}, {4096, 1 << 63, 0}} {
		err := enough(tc.configured, tc.descriptors)
		if tc.needs == 0 {
			if err != nil {
				t.Errorf("%d connections with %d descriptors: %v", tc.configured, tc.descriptors, err)
			}
			continue
		}
		for _, want := range []string{fmt.Sprintf("limit of %d ", tc.descriptors), fmt.Sprintf("ulimit -n %d ", tc.needs), fmt.Sprintf("LimitNOFILE=%d in the", tc.needs), fmt.Sprintf("need %d;", tc.needs)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d connections with %d descriptors: %v, want %q", tc.configured, tc.descriptors, err, want)
			}
		}
	}
}

// harness is a server whose clients are accessible in the order of their connections.
type harness struct {
	*Server
	path  string
	links chan api.Link
	mu    sync.Mutex
	came  []*fakeClient
}

func bounded(t *testing.T, l Limits) *harness {
	h := &harness{links: make(chan api.Link, 1000)}
	k := &fakeKernel{}
	k.connect = func(_ api.Peer, l api.Link) (Client, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		c := &fakeClient{kernel: k, link: l}
		h.came = append(h.came, c)
		h.links <- l
		return c, nil
	}
	h.Server, h.path = serve(t, k, func(o *Options) {
		o.Limits = Limits{
			LineBytes: 4096, QueueBytes: l.QueueBytes, TotalQueueBytes: l.TotalQueueBytes, InFlight: 100, Connections: max(l.Connections, 8),
			ProcessConnections: l.ProcessConnections, UserConnections: l.UserConnections,
		}
	})
	return h
}

// join connects and returns the connection with the kernel's side of it.
func (h *harness) join(t *testing.T) (*plug, api.Link) {
	p := dial(t, h.path)
	return p, <-h.links
}

// registers marks all connections so far as registered.
func (h *harness) registers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.came {
		c.registered.Store(true)
	}
}

// cut checks that a connection was ended because all together have too much, and reads to its end.
// The last words come only to a client that reads within a second.
func (p *plug) cut(link api.Link) {
	p.t.Helper()
	if !link.(*conn).out.wasCut() {
		p.t.Error("a connection was ended, and not for the bytes of all")
	}
	_, _ = io.Copy(io.Discard, p.lines)
}

// The unread bytes of all readers together are bounded: observers that do not read are ended, and a
// connection with deliveries stays, although more waits for it than
// for any of them.
func TestObserversAreCutFirst(t *testing.T) {
	const total = 4 << 20
	h := bounded(t, Limits{QueueBytes: 1 << 20, TotalQueueBytes: 2 * total})
	owner, deliveries := h.join(t)
	payload := []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	sent := 0
	for ; h.Queued() < 900<<10; sent++ {
		if !deliveries.Put(gate.Notice("delivery", payload), onTaken(func() {})) {
			t.Fatal("a delivery was not taken")
		}
		deliveries.Flush()
	}
	var observers []*plug
	var links []api.Link
	for range 7 {
		p, link := h.join(t)
		observers, links = append(observers, p), append(links, link)
	}
	ended := make(map[int]bool)
	// No observer reaches the limit of its own queue, even if the operating system takes nothing yet.
	for range 9 {
		for i, link := range links {
			if !link.Put(gate.Notice("observed", payload), nil) {
				ended[i] = true
			}
			link.Flush()
			// The last observer exceeds the limit by exactly its own bytes.
			const frameBytes = 192 // the approximate size of a frame besides its payload
			if n := h.Queued(); n > total+int64(len(payload))+frameBytes {
				t.Fatalf("%d bytes are queued, limit %d", n, total)
			}
		}
	}
	if len(ended) == 0 || len(ended) == len(links) {
		t.Errorf("%d of %d observers were ended", len(ended), len(links))
	}
	for i, p := range observers {
		if ended[i] {
			p.cut(links[i])
		}
	}
	for n := range sent {
		if in := owner.next(); in.Event != "delivery" {
			t.Fatalf("delivery %d: got %+v", n, in)
		}
	}
	owner.alive()
	for i, p := range observers {
		if !ended[i] {
			p.Close()
		}
	}
	owner.Close()
	for h.Connections() > 0 {
		owner.pause()
	}
	if n := h.Queued(); n != 0 {
		t.Errorf("%d bytes count as queued, for nobody", n)
	}
}

// If nobody observes, the connection with most waiting bytes is ended.
func TestTheLongestQueueIsCut(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 2 << 20, TotalQueueBytes: 4 << 20})
	payload := []byte(`"` + strings.Repeat("x", 64<<10) + `"`)
	short, few := h.join(t)
	for range 8 {
		few.Put(gate.Notice("few", payload), onTaken(func() {}))
		few.Flush()
	}
	long, many := h.join(t)
	for many.Put(gate.Notice("many", payload), onTaken(func() {})) {
		many.Flush()
	}
	long.cut(many)
	for range 8 {
		if in := short.next(); in.Event != "few" {
			t.Fatalf("got %+v", in)
		}
	}
	short.alive()
}

// A connection without waiting bytes is not ended for others.
func TestNobodyIsCutForNothing(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 1 << 20, TotalQueueBytes: 2 << 20})
	p, link := h.join(t)
	p.alive()
	h.all.mu.Lock()
	for c := range h.all.conns {
		c.process.queued.Add(2 << 20) // of connections that are ending
	}
	h.all.mu.Unlock()
	link.Flush()
	p.alive()
	p.alive()
}

// The count of queued bytes is right, whatever the order of writers, readers and ends.
func TestQueuedIsCountedRight(t *testing.T) {
	h := bounded(t, Limits{Connections: 40, QueueBytes: 64 << 10, TotalQueueBytes: 512 << 10})
	var all sync.WaitGroup
	for n := range 16 {
		p, link := h.join(t)
		all.Go(func() {
			for i := range 400 {
				var taken gate.Fate
				if i%3 == 0 {
					taken = onTaken(func() {})
				}
				link.Put(gate.Notice("e"+strconv.Itoa(i), []byte(`"`+strings.Repeat("é", i)+`"`)), taken)
				if i%5 == 0 {
					link.Flush()
				}
			}
			link.Flush()
		})
		all.Go(func() {
			// At most 300 of the 400 lines: a reader who waits for more would wait forever.
			lines := bufio.NewReader(p)
			for i := 0; n%4 != 0 && i < 20*n; i++ {
				if _, err := lines.ReadString('\n'); err != nil {
					break
				}
			}
			p.Close()
		})
	}
	all.Wait()
	for h.Connections() > 0 {
		<-time.After(time.Millisecond)
	}
	if n := h.Queued(); n != 0 {
		t.Errorf("%d bytes count as queued, for nobody", n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if len(h.all.processes) > 0 || len(h.all.users) > 0 || h.all.faces[faceApp] != 0 {
		t.Errorf("left: %d processes, users %v, connections %v", len(h.all.processes), h.all.users, h.all.faces)
	}
}

// One process takes only its own connections' places: at its limit the connection that waits
// longest without registering is ended, or else the new one is refused.
func TestConnectionsOfOneProcess(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 64 << 10, ProcessConnections: 3})
	first, _ := h.join(t)
	first.alive()
	h.registers()
	var more []*plug
	for range 4 {
		p, _ := h.join(t)
		p.alive()
		more = append(more, p)
	}
	for _, p := range more[:2] {
		p.ended()
	}
	first.alive()
	h.registers()
	refused := dial(t, h.path)
	if e := refused.answers("", api.ConnectionClosed).Error; !strings.Contains(e.Message, "max_connections_per_process") {
		t.Errorf("it is told %q", e.Message)
	}
	refused.ended()
	more[3].alive()
}

func TestConnectionsOfOneUser(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 64 << 10, UserConnections: 1})
	first, _ := h.join(t)
	first.alive()
	h.registers()
	refused := dial(t, h.path)
	refused.answers("", api.ConnectionClosed)
	refused.ended()
	first.Close()
	for h.Connections() > 0 {
		first.pause()
	}
	second, _ := h.join(t)
	second.alive()
}

// An operator can always connect, however many connections apps have and other clients hold on the
// operator socket without using them.
func TestOperatorsAlwaysGetIn(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 64 << 10})
	for range h.all.limits.Load().Connections {
		p, _ := h.join(t)
		p.alive()
	}
	h.registers()
	dial(t, h.path).answers("", api.ConnectionClosed)
	operator := strings.TrimSuffix(h.path, "k") + "o"
	for n := range 3 * operatorConnections {
		p := dial(t, operator)
		p.send("1", "stream.cancel", `{"requestId":"none"}`)
		p.answers("1", api.NotFound)
		if n%16 == 0 {
			h.all.mu.Lock()
			if held := h.all.faces[faceOperator]; held > operatorConnections {
				t.Errorf("%d connections of operators", held)
			}
			h.all.mu.Unlock()
		}
	}
}

// A connection of an operator that is in use stays while others of the process are idle.
func TestAnOperatorAtWorkIsNotPushedOut(t *testing.T) {
	h := bounded(t, Limits{QueueBytes: 64 << 10})
	operator := strings.TrimSuffix(h.path, "k") + "o"
	busy, idle := dial(t, operator), dial(t, operator)
	for h.Connections() < 2 {
		busy.pause()
	}
	h.all.mu.Lock()
	var first, second *conn
	for c := range h.all.conns {
		if first == nil || c.since.Before(first.since) {
			first, second = c, first
		} else {
			second = c
		}
	}
	h.all.mu.Unlock()
	first.mu.Lock()
	first.trackLocked("at work", nil)
	first.mu.Unlock()
	if comesBefore(first, second) || !comesBefore(second, first) {
		t.Error("the one at work gives way")
	}
	first.idle.Done()
	idle.Close()
}

// The memory of the requests in flight of one process is bounded over its connections: new ones
// wait until there is room, and then run. A connection that ends while it waits is not kept.
func TestInFlightOfOneProcess(t *testing.T) {
	const cost, conns, each = 1 << 20, 20, 9
	s := &Server{}
	s.all.limits.Store(&Limits{InFlight: 100})
	p := &process{}
	p.room.L = &p.mu
	join := func() *conn {
		c := &conn{server: s, process: p}
		c.room.L = &c.mu
		return c
	}
	var running, most atomic.Int64
	var all sync.WaitGroup
	for range conns {
		c := join()
		all.Go(func() {
			for n := range each {
				id := strconv.Itoa(n)
				if !c.enter(id, cost) {
					t.Error("it is not taken")
				}
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				all.Go(func() {
					<-time.After(time.Millisecond)
					running.Add(-1)
					c.leave(id, cost)
					c.idle.Done()
				})
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > maxInFlightOfProcess/cost || n < maxInFlightOfProcess/cost/4 {
		t.Errorf("%d requests of %d bytes were in flight", n, cost)
	}
	// A single request may exceed the room for all.
	large, waits := join(), join()
	if !large.enter("large", 2*maxInFlightOfProcess) || !waits.crowded(cost) {
		t.Error("a large one is not taken, or leaves room")
	}
	taken := make(chan bool)
	go func() { taken <- waits.enter("waits", cost) }()
	waits.to(stateDraining)
	if <-taken {
		t.Error("a connection that ends takes a request")
	}
	large.leave("large", 2*maxInFlightOfProcess)
	if n := p.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes are left in flight", n)
	}
}

// Unfinished lines are bounded over all connections. A connection that finishes its lines goes on,
// and their memory is given back.
func TestUnfinishedLinesAreBounded(t *testing.T) {
	const line = 6 << 20 // 16 of them are more than the bound for short ones
	s, path := serve(t, &fakeKernel{}, func(o *Options) { o.Limits.Connections, o.Limits.LineBytes = 100, line })
	unfinished := func() int {
		s.all.linesMu.Lock()
		defer s.all.linesMu.Unlock()
		return s.all.lines
	}
	honest := dial(t, path)
	half := strings.Repeat("x", line-1000)
	var all []*plug
	for range 24 {
		p := dial(t, path)
		all = append(all, p)
		if _, err := p.Write([]byte(half)); err != nil {
			continue // it was ended meanwhile
		}
		honest.alive()
		if n := unfinished(); n > leastLines*line {
			t.Fatalf("unfinished lines take %d bytes", n)
		}
	}
	honest.send(strings.Repeat("i", 200), "app.heartbeat", `{"pad":"`+half[:line-2000]+`"}`)
	honest.answers(strings.Repeat("i", 200), "")
	if n := s.Connections(); n < leastLines-1 || n > leastLines+1 {
		t.Errorf("%d of %d connections are left", n, len(all)+1)
	}
	for _, p := range all {
		p.Close()
	}
	honest.Close()
	for s.Connections() > 0 || unfinished() != 0 {
		honest.pause()
	}
}

// Small requests count for their goroutines, and streams of all connections of a process have a
// limit of their own.
func TestManySmallRequestsAndStreamsOfOneProcess(t *testing.T) {
	s := &Server{}
	s.all.limits.Store(&Limits{InFlight: 1 << 20})
	p := &process{}
	p.room.L = &p.mu
	c := &conn{server: s, process: p}
	c.room.L = &c.mu
	taken := 0
	for ; !c.crowded(1); taken++ {
		if !c.enter(strconv.Itoa(taken), 1) {
			t.Fatal("a request is not taken")
		}
	}
	if most := maxInFlightOfProcess / requestBytes; taken > most || taken < most/2 {
		t.Errorf("%d requests of one byte are in flight at once", taken)
	}
	for n := range taken {
		c.leave(strconv.Itoa(n), 1)
	}
	streams := 0
	for {
		c := &conn{server: s, process: p}
		c.room.L = &c.mu
		var err error
		for n := range maxStreams {
			if err = c.enterStream(strconv.Itoa(n), func() {}); err != nil {
				break
			}
			streams++
		}
		if err != nil {
			if api.AsError(err).Code != api.Conflict || streams != maxStreamsOfProcess || p.streams.Load() != maxStreamsOfProcess {
				t.Errorf("%v after %d streams", err, streams)
			}
			break
		}
	}
	if n := p.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes are left in flight", n)
	}
}
