package ipc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
	"golang.org/x/sys/unix"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// moment is how long a test watches for an event that must not happen.
const moment = 5 * ackInterval

// pair returns the two ends of a Unix socket.
func pair(t testing.TB) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	ours, theirs = end(fds[0]), end(fds[1])
	if err := theirs.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// ended reports how a queue ended.
type ended struct {
	errors    chan error
	overflows atomic.Int32
}

func newQueue(socket *net.UnixConn, limit int, now func() time.Time) (*outQueue, *ended) {
	e := &ended{errors: make(chan error, 1)}
	return newOutQueue(socket, limit, true, now, func(err error) { e.errors <- err }, func() []byte {
		e.overflows.Add(1)
		words := wire.AppendEvent(nil, "last", 1, "kernel:lagging", []byte("{}"))
		return wire.AppendResponse(words, "last", 1, "r1", nil, api.Errorf(api.ConnectionClosed, "not read"))
	}), e
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal(what)
	}
}

// unhappened fails if something happens within a moment.
func unhappened(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
		t.Fatal(what)
	case <-time.After(moment):
	}
}

func event(n int) string { return "event" + strconv.Itoa(n) }

// Frames of one caller keep their order, and no two are mixed, however many callers there are and
// however the writing begins.
func TestOutQueueOrder(t *testing.T) {
	const callers, frames = 8, 300
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 1<<30, time.Now)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range frames {
				if !q.event(strconv.Itoa(caller), int64(n), event(n), []byte(`"`+strings.Repeat("x", n)+`"`), nil) {
					t.Error("an event was not taken")
				}
				if n%3 == 0 {
					q.flush()
				} else {
					q.flushSoon()
				}
			}
		})
	}
	go func() {
		all.Wait()
		q.drain(patience)
		ours.Close()
	}()
	next := make(map[string]int)
	lines := bufio.NewReader(theirs)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		in := oneLine(t, line)
		if want := event(next[in.ID]); in.Event != want {
			t.Fatalf("caller %s: got %s, want %s", in.ID, in.Event, want)
		}
		next[in.ID]++
	}
	for caller := range callers {
		if n := next[strconv.Itoa(caller)]; n != frames {
			t.Errorf("caller %d: %d frames of %d arrived", caller, n, frames)
		}
	}
}

// A reader that comes back too late finds whole frames, then the last words, then the end, even if
// a frame was half written.
func TestOutQueueOverflow(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first int
	}{
		{"behind whole frames", 10},
		{"behind a torn frame", 4 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, theirs := pair(t)
			late := make(chan struct{})
			var looks atomic.Int32
			q, end := newQueue(ours, 8<<10, func() time.Time {
				if looks.Add(1) == 1 {
					// The stuck write is given up at once, so that the frame stays torn until the
					// reader is back.
					defer close(late)
					return time.Now().Add(-lastWords)
				}
				return time.Now()
			})
			q.event("first", 1, "first", []byte(`"`+strings.Repeat("x", tc.first)+`"`), nil)
			q.flushSoon()
			lines := bufio.NewReader(theirs)
			if _, err := lines.Peek(1); err != nil {
				t.Fatal(err)
			}
			taken := make(chan struct{}, 100)
			for n := 0; q.event("s", 1, event(n), []byte(`"`+strings.Repeat("y", 1000)+`"`), onTaken(func() { taken <- struct{}{} })); n++ {
				if n > 10 {
					t.Fatal("the queue takes more than its limit")
				}
			}
			wait(t, late, "nobody gave up the write")
			if q.event("s", 1, "later", []byte("{}"), nil) {
				t.Error("an event was taken after the overflow")
			}
			if err := q.room(t.Context()); !errors.Is(err, errEnded) {
				t.Errorf("room after the overflow: %v", err)
			}
			go func() {
				<-end.errors
				ours.Close()
			}()
			var got []wire.Incoming
			for {
				line, err := lines.ReadBytes('\n')
				if errors.Is(err, io.EOF) && len(line) == 0 {
					break
				}
				if err != nil || bytes.Contains(line[1:], []byte(`{"id"`)) {
					t.Fatalf("%d bytes, and no whole frame: %v", len(line), err)
				}
				got = append(got, oneLine(t, line))
			}
			if n := len(got); n < 3 || got[0].Event != "first" || got[n-2].Event != "kernel:lagging" ||
				got[n-1].Error == nil || got[n-1].Error.Code != api.ConnectionClosed {
				t.Fatalf("%d frames arrived: %+v", len(got), got[max(0, len(got)-3):])
			}
			if n := end.overflows.Load(); n != 1 {
				t.Errorf("%d overflows, want 1", n)
			}
			unhappened(t, taken, "an event that was dropped counts as taken")
		})
	}
}

// One frame larger than the limit passes if nothing else waits.
func TestOutQueueTakesOneLargeFrame(t *testing.T) {
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 100, time.Now)
	if !q.event("s", 1, "large", []byte(`"`+strings.Repeat("x", 1<<20)+`"`), nil) {
		t.Fatal("not taken")
	}
	q.flushSoon()
	line, err := bufio.NewReader(theirs).ReadBytes('\n')
	if err != nil || oneLine(t, line).Event != "large" {
		t.Errorf("got %d bytes, %v", len(line), err)
	}
}

func TestOutQueueAcksWhatWasRead(t *testing.T) {
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 1<<20, time.Now)
	first, second := make(chan struct{}), make(chan struct{})
	q.event("s", 1, "first", []byte("{}"), onTaken(func() { close(first) }))
	q.flush()
	unhappened(t, first, "an event that nobody has read counts as taken")
	lines := bufio.NewReader(theirs)
	if _, err := lines.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	wait(t, first, "an event that was read does not count as taken")
	q.event("s", 1, "second", []byte("{}"), onTaken(func() { close(second) }))
	q.flush()
	unhappened(t, second, "an event that nobody has read counts as taken")
	if _, err := lines.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	wait(t, second, "an event that was read does not count as taken")
}

// The Go runtime signals its own threads at any time. A look at the socket during such a signal
// says nothing about the other end.
func TestOutQueueUnderSignals(t *testing.T) {
	ours, _ := pair(t)
	q, _ := newQueue(ours, 1<<20, time.Now)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, thread, done := os.Getpid(), unix.Gettid(), make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Tgkill(pid, thread, unix.SIGURG)
			}
		}
	})
	defer signals.Wait()
	defer close(done)
	for range 20000 {
		if _, alive := q.unread(); !alive {
			t.Fatal("a connection whose other end is there counts as dead")
		}
	}
}

// A process that dies takes its unread bytes with it, and then the socket holds nothing unread any
// more. That is no reading.
func TestOutQueueDoesNotAckTheDead(t *testing.T) {
	for range 20 {
		ours, theirs := pair(t)
		q, _ := newQueue(ours, 1<<20, time.Now)
		taken := make(chan struct{})
		q.event("s", 1, "event", []byte("{}"), onTaken(func() { close(taken) }))
		q.flush()
		dead := make(chan struct{})
		go func() {
			defer close(dead)
			theirs.Close()
		}()
		for range 50 {
			q.check()
		}
		<-dead
		q.check()
		select {
		case <-taken:
			t.Fatal("an event that died unread counts as taken")
		default:
		}
		q.mu.Lock()
		if len(q.acks) != 0 {
			t.Error("the queue still waits for the dead")
		}
		q.mu.Unlock()
	}
}

// An event that is sent during a look at the socket is not covered by the look.
func TestOutQueueAckRace(t *testing.T) {
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 1<<20, time.Now)
	lines := bufio.NewReader(theirs)
	for n := range 3000 {
		var read, early atomic.Bool
		taken := make(chan struct{})
		var both sync.WaitGroup
		for range 4 {
			both.Go(q.check)
		}
		both.Go(func() {
			q.event("s", int64(n), "event", []byte("{}"), onTaken(func() {
				early.Store(!read.Load())
				close(taken)
			}))
			q.flush()
		})
		both.Wait()
		q.check()
		// Everything taken from now on has been read.
		read.Store(true)
		if _, err := lines.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
		q.check()
		wait(t, taken, "an event that was read does not count as taken")
		if early.Load() {
			t.Fatalf("round %d: an event counts as taken before it was read", n)
		}
	}
}

func TestOutQueueDrain(t *testing.T) {
	ours, theirs := pair(t)
	q, _ := newQueue(ours, 1<<20, time.Now)
	taken := make(chan struct{})
	q.event("s", 1, "last", []byte("{}"), onTaken(func() { close(taken) }))
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		q.drain(patience)
	}()
	unhappened(t, drained, "the queue is drained before the event was read")
	if q.event("s", 1, "later", []byte("{}"), nil) {
		t.Error("a draining queue takes an event")
	}
	if line, err := bufio.NewReader(theirs).ReadBytes('\n'); err != nil || oneLine(t, line).Event != "last" {
		t.Fatalf("got %q, %v", line, err)
	}
	wait(t, drained, "the queue is not drained after the event was read")
	wait(t, taken, "the event does not count as taken")
}

// Draining into a reader that does not read ends at the limit, whether the bytes are stuck before
// the socket or in it.
func TestOutQueueDrainIsBounded(t *testing.T) {
	for _, size := range []int{10, 4 << 20} {
		ours, _ := pair(t)
		q, _ := newQueue(ours, 1<<20, time.Now)
		q.event("s", 1, "event", []byte(`"`+strings.Repeat("x", size)+`"`), onTaken(func() { t.Error("taken") }))
		began := time.Now()
		q.drain(moment)
		if took := time.Since(began); took > patience/4 {
			t.Errorf("%d bytes: draining took %s", size, took)
		}
	}
}

func TestOutQueueRoom(t *testing.T) {
	const limit = 8 << 10
	ours, theirs := pair(t)
	q, _ := newQueue(ours, limit, time.Now)
	if q.crowded() || q.room(t.Context()) != nil {
		t.Fatal("an empty queue has no room")
	}
	q.event("s", 1, "event", []byte(`"`+strings.Repeat("x", limit/2)+`"`), nil)
	if !q.crowded() {
		t.Fatal("half a queue is not crowded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() { waiting <- q.room(ctx) }()
	select {
	case err := <-waiting:
		t.Fatalf("room in a crowded queue: %v", err)
	case <-time.After(moment):
	}
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("room after its context has ended: %v", err)
	}
	go func() { waiting <- q.room(t.Context()) }()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	q.flush()
	if err := <-waiting; err != nil {
		t.Errorf("room after the queue was written: %v", err)
	}
	q.event("s", 1, "event", []byte(`"`+strings.Repeat("x", limit/2)+`"`), nil)
	go func() { waiting <- q.room(t.Context()) }()
	q.close()
	if err := <-waiting; !errors.Is(err, errEnded) {
		t.Errorf("room after the end: %v", err)
	}
}

// The other end goes while a write is stuck: the queue ends once, with the
// cause.
func TestOutQueueWriteError(t *testing.T) {
	ours, theirs := pair(t)
	q, end := newQueue(ours, 1<<20, time.Now)
	q.event("s", 1, "event", []byte(`"`+strings.Repeat("x", 4<<20)+`"`), onTaken(func() { t.Error("taken") }))
	q.flushSoon()
	theirs.Close()
	select {
	case err := <-end.errors:
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the cause is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the queue does not end")
	}
	if q.event("s", 1, "later", nil, nil) {
		t.Error("a dead queue takes an event")
	}
	q.drain(patience) // comes back at once
	if n := end.overflows.Load(); n != 0 {
		t.Errorf("%d overflows", n)
	}
}

// An answer counts as written once any byte of it is in the socket: a client that reads the
// important part and closes has it. An answer that waits behind it was not written.
func TestOutQueueHalfAnAnswer(t *testing.T) {
	for name, ends := range map[string]func(q *outQueue, theirs *net.UnixConn){
		"the other end closes":          func(_ *outQueue, theirs *net.UnixConn) { theirs.Close() },
		"it is cut for what all have":   func(q *outQueue, _ *net.UnixConn) { q.cut() },
		"the connection ends meanwhile": func(q *outQueue, _ *net.UnixConn) { q.close() },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			q, _ := newQueue(ours, 64<<20, time.Now)
			lost := make(map[string]bool)
			answer := func(id string) {
				q.answer(id, 1, id, strings.Repeat("x", 4<<20), func(written bool) { lost[id] = written })
			}
			answer("first")
			q.flushSoon()
			if _, err := io.ReadFull(theirs, make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			answer("behind")
			ends(q, theirs)
			ours.Close()
			q.mu.Lock()
			for q.writer != writerIdle {
				changed := q.waitChange()
				q.mu.Unlock()
				<-changed
				q.mu.Lock()
			}
			q.mu.Unlock()
			q.close()
			q.lose(false)
			if first, told := lost["first"]; !told || !first {
				t.Errorf("half of it was read: told %t, written %t", told, first)
			}
			if behind, told := lost["behind"]; !told || behind {
				t.Errorf("nothing of it was: told %t, written %t", told, behind)
			}
		})
	}
}

// Connections share memory, and no byte of one reaches another: bursts are queued, again and again,
// on several at a time.
func TestPiecesAreHandedOn(t *testing.T) {
	const queues, bursts, frames = 4, 20, 150
	room := new(pieces)
	var all sync.WaitGroup
	for queue := range queues {
		ours, theirs := pair(t)
		q, _ := newQueue(ours, 1<<30, time.Now)
		q.pieces = room
		payload := []byte(`"` + strings.Repeat(string(rune('a'+queue)), 1500) + `"`)
		all.Go(func() {
			lines := bufio.NewReader(theirs)
			for burst := range bursts {
				for n := range frames {
					q.event(strconv.Itoa(queue), int64(burst), event(n), payload, nil)
				}
				q.flushSoon()
				for n := range frames {
					line, err := lines.ReadBytes('\n')
					if err != nil {
						t.Error(err)
						return
					}
					if want := wire.AppendEvent(nil, strconv.Itoa(queue), int64(burst), event(n), payload); !bytes.Equal(line, want) {
						t.Errorf("queue %d, burst %d: got %.80q, want %.80q", queue, burst, line, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if made := testing.AllocsPerRun(100, func() { room.put(room.get()) }); made > 1 {
		t.Errorf("%.0f allocations to hand a piece on", made)
	}
}
