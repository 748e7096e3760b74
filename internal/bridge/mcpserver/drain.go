package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainTime bounds the wait for the last answers: the wait for the daemon and for its answer.
const drainTime = callTime + callTime/4

// draining is a transport whose input ends only once every call that was read is answered, or
// after a time. The SDK cancels the calls in progress when the input ends, and a script that pipes
// its calls closes the input right after the last one.
type draining struct {
	mcp.Transport
	within time.Duration
}

func (d *draining) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := d.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &drained{Connection: c, within: d.within, closed: make(chan struct{}), answered: make(chan struct{}, 1)}, nil
}

// drained is a connection that counts its calls without an answer.
type drained struct {
	mcp.Connection
	within time.Duration
	once   sync.Once
	closed chan struct{}
	// answered is signalled when the count goes down.
	answered chan struct{}
	mu       sync.Mutex
	open     int
}

// Read returns the end of the input, or another error of it, only after the wait.
func (d *drained) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := d.Connection.Read(ctx)
	if err != nil {
		d.drain(ctx)
		return m, err
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		d.count(1)
	}
	return m, nil
}

func (d *drained) Write(ctx context.Context, m jsonrpc.Message) error {
	err := d.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		d.count(-1)
		select {
		case d.answered <- struct{}{}:
		default:
		}
	}
	return err
}

func (d *drained) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Connection.Close()
}

// count adds to the calls without an answer, and returns their number.
func (d *drained) count(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
	return d.open
}

func (d *drained) drain(ctx context.Context) {
	timer := time.NewTimer(d.within)
	defer timer.Stop()
	for d.count(0) > 0 {
		select {
		case <-d.answered:
		case <-d.closed:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		}
	}
}
