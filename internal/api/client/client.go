// Package client speaks the kernel protocol to a running daemon: for the
// commands, the benchmarks, the tests and, inside, the public package client. It is the only Go
// client of it.
//
// [Dial] connects to one socket. [Client.Call] asks for one answer and [Client.Stream] for many;
// both may be used by many goroutines at once, and requests then share writes. [Client.Register]
// makes the connection an app's, and its token goes with every later request. An error of the
// daemon comes back as [*api.Error]; so does the end of the connection, with the code
// CONNECTION_CLOSED.
//
// One goroutine reads the socket and hands out what it reads in order, in bounded memory. The
// caller therefore takes its events ([Client.Next]) and the chunks of its streams ([Stream.Next])
// as they come, or says that it does not want them ([WithDropEvents], [Stream.Cancel]): events that
// nobody takes fill its buffer, and then nothing more is read, answers included. The daemon ends a
// connection that stays unread for long.
//
// The caller closes the client when done.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// ErrNotRunning means that no daemon listens on the socket.
var ErrNotRunning = errors.New("is it running? start it with: ocipd serve")

// Defaults of the options.
const (
	defaultEvents    = 256
	defaultLineBytes = 16 << 20
)

const (
	// maxWaiting is how many bytes of requests wait for the socket before the
	// next one has to.
	maxWaiting = 256 << 10
	// keepBuffer is the largest write buffer kept for the next write.
	keepBuffer = 64 << 10
	// readBuffer is read at a time.
	readBuffer = 32 << 10
	// lastWords bounds how long a daemon that takes no more requests is
	// listened to.
	lastWords = 5 * time.Second
)

type options struct {
	token     string
	events    int
	drop      bool
	lineBytes int
}

// Option changes how a client behaves.
type Option func(*options)

// WithToken sends the token of an earlier registration from the first request
// on, so that [Client.Register] takes the app over from a connection that the
// daemon still believes in.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithEventBuffer sets how many events wait for the caller, 256 by default.
func WithEventBuffer(n int) Option { return func(o *options) { o.events = max(1, n) } }

// WithDropEvents drops events that find the buffer full instead of waiting for
// the caller. [Client.Dropped] counts them.
func WithDropEvents() Option { return func(o *options) { o.drop = true } }

// WithMaxLine bounds one line from the daemon, 16 MiB by default. A longer one
// ends the connection.
func WithMaxLine(n int) Option { return func(o *options) { o.lineBytes = max(1, n) } }

// Client is one connection to the daemon. Its methods are safe for concurrent
// use.
type Client struct {
	path string
	conn net.Conn
	opts options

	events  chan wire.Incoming
	dropped atomic.Uint64
	// calls keeps the records of answered calls for the next ones.
	calls sync.Pool
	// wake tells the writer that something waits.
	wake chan struct{}
	// closing is closed by Close, so that nobody waits for the caller any
	// more; ended when the reader is through.
	closing chan struct{}
	ended   chan struct{}
	once    sync.Once
	tasks   sync.WaitGroup

	mu sync.Mutex
	// err is why no more requests are taken.
	err     error
	lastID  uint64
	pending map[uint64]receiver
	// token is the quoted token, nil before there is one.
	token []byte
	// waiting are the requests for the next write.
	waiting []byte
	// sunk is closed when waiting sinks; nil while nobody waits for that.
	sunk chan struct{}

	// spare is the buffer of the last write, for the writer alone.
	spare []byte
}

// receiver takes what the daemon sends for one request. The reader alone calls
// it, in order, and nothing more after the last.
type receiver interface {
	take(in *wire.Incoming)
	fail(err error)
}

// Dial connects to the daemon's socket at path. If no daemon listens, the error is [ErrNotRunning].
// A server of another user than root and the own one is refused where others could have put its
// socket.
func Dial(ctx context.Context, path string, opts ...Option) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		if err := vouched(path, conn.(*net.UnixConn)); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot trust the daemon at %s: %w", path, err), conn.Close())
		}
		return newClient(path, conn, opts...), nil
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("cannot reach the daemon at %s: %w", path, ErrNotRunning)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot reach the daemon at %s: the socket belongs to another user", path)
	case errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("cannot reach the daemon at %s: a socket's path has at most 107 bytes", path)
	}
	return nil, fmt.Errorf("cannot reach the daemon at %s: %w", path, cause(err))
}

// cause strips what net says of the addresses, which the message has already.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

func newClient(path string, conn net.Conn, opts ...Option) *Client {
	c := &Client{
		path: path, conn: conn,
		opts:    options{events: defaultEvents, lineBytes: defaultLineBytes},
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		pending: make(map[uint64]receiver),
	}
	for _, set := range opts {
		set(&c.opts)
	}
	c.setToken(c.opts.token)
	c.calls.New = func() any { return &call{answer: make(chan answer, 1)} }
	c.events = make(chan wire.Incoming, c.opts.events)
	c.tasks.Go(c.write)
	c.tasks.Go(c.read)
	return c
}

// Close ends the connection. Open calls fail; events that were read and not taken can still be
// taken.
func (c *Client) Close() error {
	c.stop(c.closed(""))
	var err error
	c.once.Do(func() {
		close(c.closing)
		err = c.conn.Close()
	})
	c.tasks.Wait()
	return err
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.ended }

// Err says why the connection ended, nil while it lasts.
func (c *Client) Err() error {
	select {
	case <-c.ended:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	default:
		return nil
	}
}

// closed is the error of a connection that is over.
func (c *Client) closed(why string) *api.Error {
	if why == "" {
		return api.Errorf(api.ConnectionClosed, "the connection to the daemon at %s is closed", c.path)
	}
	return api.Errorf(api.ConnectionClosed, "the connection to the daemon at %s was lost: %s", c.path, why)
}

// stop takes no more requests. The first reason stands.
func (c *Client) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.sink()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Register makes the connection an app's and keeps its token for every further
// request.
func (c *Client) Register(ctx context.Context, m *api.Manifest) (api.RegisterResult, error) {
	var result api.RegisterResult
	if err := c.Call(ctx, "app.register", api.RegisterParams{Manifest: m}, &result); err != nil {
		return api.RegisterResult{}, err
	}
	c.setToken(result.Token)
	return result, nil
}

func (c *Client) setToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.token, c.token = token, nil
	if token != "" {
		c.token = api.String(token)
	}
}

// Token returns the app's token, empty before there is one. It is good for
// [WithToken].
func (c *Client) Token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.token
}

// Events returns the channel of events, for callers that select. It is closed
// when the connection has ended and every event was taken.
func (c *Client) Events() <-chan wire.Incoming { return c.events }

// Next returns the next event. At the end of the connection it returns
// [Client.Err].
func (c *Client) Next(ctx context.Context) (wire.Incoming, error) {
	select {
	case e, ok := <-c.events:
		if !ok {
			return wire.Incoming{}, c.Err()
		}
		return e, nil
	case <-ctx.Done():
		return wire.Incoming{}, ctx.Err()
	}
}

// Dropped returns how many events were dropped ([WithDropEvents]).
func (c *Client) Dropped() uint64 { return c.dropped.Load() }

// answer is how a call ended.
type answer struct {
	result jsontext.Value
	err    error
}

// call waits for one answer.
type call struct{ answer chan answer }

func (c *call) take(in *wire.Incoming) {
	if in.Type == wire.TypeStream || in.Stream {
		c.answer <- answer{err: errStreams}
		return
	}
	c.answer <- answer{result: in.Result, err: failure(in)}
}

func (c *call) fail(err error) { c.answer <- answer{err: err} }

// errStreams means that a call was answered in chunks.
var errStreams = errors.New("it answers in a stream")

// failure is the error in a response, nil if it is a success.
func failure(in *wire.Incoming) error {
	switch {
	case in.Success:
		return nil
	case in.Error == nil:
		return api.Errorf(api.UnknownError, "the daemon answered with a failure and no error")
	}
	return in.Error
}

// Call asks for one answer and decodes it into result, which may be nil. Nil params are an empty
// object. An error from the daemon is an [*api.Error]. A call whose context ends is forgotten: the
// daemon still carries it out.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.CallSigned(ctx, method, params, "", result)
}

// CallSigned is [Client.Call] with a person's armored signature over [api.SignedCall], "" for
// none.
func (c *Client) CallSigned(ctx context.Context, method string, params any, signature string, result any) error {
	return c.CallFor(ctx, "", method, params, signature, result)
}

// CallFor is [Client.CallSigned] on behalf of a process, named as pid@start, "" for none. The daemon
// applies the rule of the operator socket to that process too, and names it on record.
func (c *Client) CallFor(ctx context.Context, behalf, method string, params any, signature string, result any) error {
	r, _ := c.calls.Get().(*call)
	id, err := c.send(ctx, method, params, signature, behalf, r)
	if err != nil {
		return err
	}
	var a answer
	select {
	case a = <-r.answer:
	case <-ctx.Done():
		c.forget(id)
		return ctx.Err()
	}
	c.calls.Put(r)
	if errors.Is(a.err, errStreams) {
		c.cancelLater(id)
		return fmt.Errorf("cannot call %s: %w", method, errStreams)
	}
	if a.err != nil || result == nil {
		return a.err
	}
	if err := json.Unmarshal(a.result, result); err != nil {
		return fmt.Errorf("cannot read the answer of %s: %w", method, err)
	}
	return nil
}

// Tell makes a call without waiting for its answer, which is lost.
func (c *Client) Tell(ctx context.Context, method string, params any) error {
	_, err := c.send(ctx, method, params, "", "", nil)
	return err
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// emptyParams is the parameters of a method without any.
const emptyParams = "{}"

// send queues a request and says under which id its answers come. It waits
// while too much waits already.
func (c *Client) send(ctx context.Context, method string, params any, signature, behalf string, r receiver) (uint64, error) {
	encoded := []byte(emptyParams)
	if params != nil {
		var err error
		if encoded, err = json.Marshal(params, jsontext.AllowInvalidUTF8(true)); err != nil {
			return 0, fmt.Errorf("cannot write the params of %s: %w", method, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.waiting) > maxWaiting {
		if err := c.waitSunk(ctx); err != nil {
			return 0, err
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.queue(method, encoded, signature, behalf, r), nil
}

// waitSunk waits until the writer took what waits. It is called with the lock
// and gives it up meanwhile.
func (c *Client) waitSunk(ctx context.Context) error {
	if c.sunk == nil {
		c.sunk = make(chan struct{})
	}
	sunk := c.sunk
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-sunk:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sink tells whoever waits in waitSunk. It is called with the lock.
func (c *Client) sink() {
	if c.sunk != nil {
		close(c.sunk)
		c.sunk = nil
	}
}

// queue writes a request behind those that wait. It is called with the lock,
// so that ids and lines are in one order.
func (c *Client) queue(method string, params []byte, signature, behalf string, r receiver) uint64 {
	c.lastID++
	if r != nil {
		c.pending[c.lastID] = r
	}
	c.waiting = wire.AppendRequest(c.waiting, c.lastID, time.Now().UnixMilli(), method, params, c.token, signature, behalf)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.lastID
}

// cancelLater asks the daemon to end a stream and waits for nothing.
func (c *Client) cancelLater(id uint64) {
	params, err := json.Marshal(api.CancelParams{RequestID: requestID(id)})
	if err != nil {
		return // a string always encodes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.queue("stream.cancel", params, "", "", nil)
	}
}

func requestID(id uint64) string { return strconv.FormatUint(id, 10) }

// write is the one writer: everything that came while it wrote goes out in its
// next write.
func (c *Client) write() {
	for range c.wake {
		for {
			c.mu.Lock()
			if c.err != nil {
				c.mu.Unlock()
				return
			}
			lines := c.waiting
			c.waiting = c.spare[:0]
			c.sink()
			c.mu.Unlock()
			if len(lines) == 0 {
				c.spare = lines
				break
			}
			if _, err := c.conn.Write(lines); err != nil {
				// The daemon takes no more, but may have said why: the reader ends open calls and
				// later ones with that error.
				_ = c.conn.SetReadDeadline(time.Now().Add(lastWords))
				return
			}
			if cap(lines) > keepBuffer {
				lines = nil
			}
			c.spare = lines
		}
	}
}

// read hands out what the daemon sends until the connection ends.
func (c *Client) read() {
	refusal, err := c.receive(wire.NewLineReader(c.conn, c.opts.lineBytes, readBuffer))
	switch {
	case refusal != nil:
		c.stop(refusal)
	case errors.Is(err, io.EOF):
		c.stop(c.closed("the daemon ended it"))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.stop(c.closed("it takes no more requests"))
	default:
		c.stop(c.closed(cause(err).Error()))
	}
	c.mu.Lock()
	left := c.pending
	c.pending = make(map[uint64]receiver)
	err = c.err
	c.mu.Unlock()
	c.once.Do(func() {
		close(c.closing)
		// It is over whether or not it can be closed.
		_ = c.conn.Close()
	})
	// A call that fails with the connection finds that it has ended: see [Client.Err].
	close(c.ended)
	for _, r := range left {
		r.fail(err)
	}
	close(c.events)
}
