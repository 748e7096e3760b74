package ipc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

// onTaken is the fate of a message that may always be written.
type onTaken func()

func (onTaken) Stays() bool { return true }
func (f onTaken) Taken()    { f() }

// text is somebody's text, and message such a text that comes again.
type (
	text    struct{ gone atomic.Bool }
	message struct {
		text
		name string
	}
)

func (f *text) Stays() bool { return !f.gone.Load() }
func (*message) Taken()     {}

// An app that has stopped reading loses the messages that are queued for it as soon as one of them
// may not be written any more: they are taken back, whole lines and no others. What is not a
// message stays, in its order, except an observer's text that may not be written. Nothing is taken
// back if everything may still be written.
func TestRecall(t *testing.T) {
	for _, size := range []int{10, 3000, pieceBytes} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ours, theirs := pair(t)
			q, _ := newQueue(ours, 1<<30, time.Now)
			body := []byte(`"` + strings.Repeat("é", size/2) + `"`)
			q.event("s", 1, "stuck", []byte(`"`+strings.Repeat("x", 1<<20)+`"`), nil)
			q.flushSoon()
			var want []string
			var messages []*message
			var observed []*text
			for n := range 40 {
				m, o := &message{name: fmt.Sprint("message", n)}, new(text)
				messages, observed = append(messages, m), append(observed, o)
				q.event("s", 1, m.name, body, m)
				q.event("s", 1, fmt.Sprint("observed", n), body, o)
				q.response(fmt.Sprint("r", n), 1, "r", "answer", nil)
				if n%3 != 0 {
					want = append(want, fmt.Sprint("observed", n))
				}
				want = append(want, fmt.Sprint("r", n))
			}
			if back, ended := q.recall(); ended || len(back) > 0 {
				t.Fatalf("%d messages were taken back, which may all be written", len(back))
			}
			for n, o := range observed {
				o.gone.Store(n%3 == 0)
			}
			messages[7].gone.Store(true)
			back, _ := q.recall()
			if len(back) != len(messages) {
				t.Fatalf("%d messages of %d were taken back", len(back), len(messages))
			}
			for n, m := range back {
				if m != gate.Recallable(messages[n]) {
					t.Fatalf("message %d was taken back as %v", n, m)
				}
			}
			taken := make(chan struct{})
			q.event("s", 1, "after", []byte("{}"), onTaken(func() { close(taken) }))
			want = append(want, "after")
			q.flushSoon()
			lines := bufio.NewScanner(theirs)
			lines.Buffer(nil, 2<<20)
			if !lines.Scan() || !strings.Contains(lines.Text(), `"stuck"`) || len(lines.Text()) < 1<<20 {
				t.Fatal("the line that was half written did not come whole", lines.Err())
			}
			for _, name := range want {
				if !lines.Scan() || !strings.Contains(lines.Text(), `"`+name+`"`) {
					t.Fatalf("want %s, got %.200s, %v", name, lines.Text(), lines.Err())
				}
			}
			wait(t, taken, "a message behind those that were taken back does not count as taken")
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.held.Load() != 0 || q.loose.Load() != 0 || q.waiting != 0 || q.queued != q.written || len(q.acks) != 0 {
				t.Errorf("left: %d bytes, loose %d, waiting %d, queued %d, written %d, %d followed", q.held.Load(), q.loose.Load(), q.waiting, q.queued, q.written, len(q.acks))
			}
		})
	}
}

// If a message that may not be written any more is half written, or if such a text is in an answer,
// the connection ends there, and the other end gets no more of it.
func TestRecallEndsTheConnection(t *testing.T) {
	for name, put := range map[string]func(*outQueue, *text){
		"half written": func(q *outQueue, _ *text) {
			m := new(message)
			q.event("s", 1, "half", []byte(`"`+strings.Repeat("x", 1<<20)+`"`), m)
			q.flushSoon()
			q.awaitWrite()
			m.gone.Store(true)
		},
		"an answer": func(q *outQueue, gone *text) {
			q.event("s", 1, "stuck", []byte(`"`+strings.Repeat("x", 1<<20)+`"`), nil)
			q.answer("a", 1, "r", struct {
				*text
				Answer string
			}{gone, "secret"}, nil)
			q.flushSoon()
			gone.gone.Store(true)
		},
		"while the connection drains": func(q *outQueue, _ *text) {
			m := new(message)
			q.event("s", 1, "half", []byte(`"`+strings.Repeat("x", 1<<20)+`"`), m)
			q.event("s", 1, "secret", []byte("{}"), m)
			go q.drain(patience)
			q.awaitWrite()
			m.gone.Store(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			q, e := newQueue(ours, 1<<30, time.Now)
			put(q, new(text))
			if back, ended := q.recall(); !ended || len(back) > 0 {
				t.Errorf("%d messages were taken back, ended %t", len(back), ended)
			}
			if err := <-e.errors; !errors.Is(err, errTakenBack) {
				t.Errorf("the connection ends by %v", err)
			}
			ours.Close()
			got, err := io.ReadAll(theirs)
			if err != nil || strings.Contains(string(got), "\n") || strings.Contains(string(got), "secret") {
				t.Errorf("%d bytes were read, with %q at the end, %v", len(got), got[max(0, len(got)-50):], err)
			}
		})
	}
}

// awaitWrite waits until part of the queue is in the socket and the writer can write no more.
func (q *outQueue) awaitWrite() {
	for {
		q.mu.Lock()
		begun := q.writer == writerBusy
		q.mu.Unlock()
		if n, _ := q.unread(); begun && n > 0 {
			return
		}
	}
}
