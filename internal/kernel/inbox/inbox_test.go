package inbox

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// process is the peer of a running process.
type process struct {
	api.Peer

	name string
}

func (*process) Present() error             { return nil }
func (p *process) Process() (string, error) { return p.name, nil }

// connection is a context that counts the functions for its end.
type connection struct {
	context.Context

	done    chan struct{}
	pending map[int]func()
	next    int
}

func connected(t *testing.T) *connection {
	return &connection{Context: t.Context(), done: make(chan struct{}), pending: make(map[int]func())}
}

func (c *connection) Done() <-chan struct{} { return c.done }
func (c *connection) Value(any) any         { return nil }

func (c *connection) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

func (c *connection) AfterFunc(f func()) (stop func() bool) {
	n := c.next
	c.next++
	c.pending[n] = f
	return func() bool {
		_, was := c.pending[n]
		delete(c.pending, n)
		return was
	}
}

func (c *connection) ends() {
	close(c.done)
	for _, f := range c.pending {
		f()
	}
	synctest.Wait()
}

// However often connections of one process read in turn, only the last reader's end is awaited.
func TestReadersInTurn(t *testing.T) { synctest.Test(t, readersInTurn) }

func readersInTurn(t *testing.T) {
	i := New(Options{Outbox: outbox.New(t.Context(), &outbox.Options{})})
	agent := &directory.Agent{Agent: ocip.Agent{ID: "ann"}}
	one, other := connected(t), connected(t)
	readers := map[*connection]*Reader{}
	for _, c := range []*connection{one, other} {
		readers[c] = &Reader{Inboxes: i, agent: agent, peer: &process{name: "p1"}}
	}
	for range 100 {
		for _, c := range []*connection{one, one, other} {
			if err := readers[c].enter(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := fmt.Sprint(len(one.pending), len(other.pending)); n != "0 1" {
		t.Errorf("at their ends is to be done: %s", n)
	}
	one.ends()
	if !i.Has("ann") {
		t.Error("it is not read by who read last")
	}
	stranger := &Reader{Inboxes: i, agent: agent, peer: &process{name: "p2"}}
	third := connected(t)
	if err := stranger.enter(third); err == nil {
		t.Error("another process reads beside it")
	}
	other.ends()
	if i.Has("ann") {
		t.Error("it is read by who has gone")
	}
	if err := stranger.enter(third); err != nil {
		t.Error(err)
	}
}
