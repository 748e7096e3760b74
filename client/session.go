package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	ipc "github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// Defaults and bounds of connections.
const (
	defaultTimeout = 30 * time.Second
	defaultRetry   = 5 * time.Second
	firstPause     = 50 * time.Millisecond
	defaultLine    = 16 << 20
	// mostAttempts bounds the repetitions of a call whose connection ends: its answer may be the cause.
	mostAttempts = 3
	// heartbeat keeps an app from being shown as unhealthy (health.unhealthy_after, 90 seconds).
	heartbeat = 30 * time.Second
)

// Options are those of every connection. The zero value is good.
type Options struct {
	// Socket is the path of the daemon's socket: [DefaultSocket] for apps and agents, and
	// operator.sock beside it for [Operate].
	Socket string
	// Timeout bounds each call, with the wait for a connection: 30 seconds by default.
	Timeout time.Duration
	// Retry is the longest pause between two attempts to connect again: 5 seconds by default. The
	// first pause has 50 milliseconds, and each later one is twice as long, less a random part.
	Retry time.Duration
	// MaxLine bounds a line of the daemon in bytes: 16 MiB by default. A longer one ends the connection.
	MaxLine int
	// Connection, if set, is told nil when the connection is there again, and otherwise the cause of
	// its end or of a failed attempt. It must not block.
	Connection func(err error)
}

// DefaultSocket is the path of the socket for apps: OPENCLAWOS_KERNEL_SOCKET, or
// openclawos/kernel.sock in XDG_RUNTIME_DIR, or kernel.sock in /tmp/openclawos-UID.
func DefaultSocket() string {
	if path := os.Getenv("OPENCLAWOS_KERNEL_SOCKET"); path != "" {
		return path
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "openclawos", "kernel.sock")
	}
	return fmt.Sprintf("/tmp/openclawos-%d/kernel.sock", os.Getuid())
}

// session is a connection that is made again when it ends.
type session struct {
	options Options
	// greet makes a new connection the caller's. Take gets each event, in order. Either may be nil.
	greet func(ctx context.Context, conn *ipc.Client) error
	take  func(conn *ipc.Client, e *wire.Incoming)
	// backlog has the events that wait for the handlers of an app, and counts the chunks of streams.
	backlog *backlog
	// token is that of the app, for the next connection.
	token string

	life   context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// over is set when the next end of the connection is the last one.
	over atomic.Bool

	mu sync.Mutex
	// conn is nil while there is none, and there is closed when there is one.
	conn  *ipc.Client
	there chan struct{}
}

// open connects for the first time.
func (s *session) open(ctx context.Context) error {
	s.life, s.cancel = context.WithCancel(context.Background())
	s.there = make(chan struct{})
	if s.backlog == nil {
		s.backlog = newBacklog()
	}
	if s.options.Timeout <= 0 {
		s.options.Timeout = defaultTimeout
	}
	if s.options.Retry <= 0 {
		s.options.Retry = defaultRetry
	}
	if s.options.MaxLine <= 0 {
		s.options.MaxLine = defaultLine
	}
	conn, err := s.connect(ctx)
	if err != nil {
		s.cancel()
		return err
	}
	s.tasks.Go(func() { s.run(conn) })
	return nil
}

// connect makes one connection, with its greeting, and says that it is there.
func (s *session) connect(ctx context.Context) (*ipc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	conn, err := ipc.Dial(ctx, s.options.Socket, ipc.WithToken(s.token), ipc.WithMaxLine(s.options.MaxLine))
	if errors.Is(err, ipc.ErrNotRunning) {
		return nil, fmt.Errorf("ocipd does not answer on %s (%w); start it: ocipd serve", s.options.Socket, ErrNotRunning)
	}
	if err != nil {
		return nil, err
	}
	if s.greet != nil {
		if err := s.greet(ctx, conn); err != nil {
			return nil, errors.Join(errorOf(err), conn.Close())
		}
	}
	s.token = conn.Token()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	close(s.there)
	return conn, nil
}

// run hands out events, and connects again, until the session is closed.
func (s *session) run(conn *ipc.Client) {
	for {
		s.pump(conn)
		err := errorOf(errors.Join(conn.Err(), conn.Close()))
		s.lost(conn)
		for pause := firstPause; ; pause = min(2*pause, s.options.Retry) {
			if s.over.Load() || s.life.Err() != nil {
				return
			}
			s.tell(err)
			select {
			case <-s.life.Done():
				return
			case <-time.After(pause - rand.N(pause/2)): //nolint:gosec // apps must not connect all at once
			}
			if conn, err = s.connect(s.life); err == nil {
				s.tell(nil)
				break
			}
		}
	}
}

// pump hands out events until the connection ends. Beats of an app go along.
func (s *session) pump(conn *ipc.Client) {
	beats := time.NewTicker(heartbeat)
	defer beats.Stop()
	for {
		select {
		case e, more := <-conn.Events():
			if !more {
				return
			}
			if s.take != nil {
				s.take(conn, &e)
			}
		case <-beats.C:
			if s.token != "" {
				go s.beat(conn)
			}
		case <-s.life.Done():
			return
		}
	}
}

// beat says that the app lives. A connection on which that fails ends, and is made again.
func (s *session) beat(conn *ipc.Client) {
	ctx, cancel := context.WithTimeout(s.life, s.options.Timeout)
	defer cancel()
	if conn.Call(ctx, "app.heartbeat", nil, nil) != nil {
		_ = conn.Close() // it is made again
	}
}

func (s *session) tell(err error) {
	if s.options.Connection != nil && s.life.Err() == nil {
		s.options.Connection(err)
	}
}

// lost has calls wait for the connection after one that has ended.
func (s *session) lost(conn *ipc.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn, s.there = nil, make(chan struct{})
	}
}

// connection waits for one.
func (s *session) connection(ctx context.Context) (*ipc.Client, error) {
	for {
		s.mu.Lock()
		conn, there := s.conn, s.there
		s.mu.Unlock()
		if conn != nil {
			if conn.Err() == nil {
				return conn, nil
			}
			s.lost(conn)
			continue
		}
		select {
		case <-there:
		case <-ctx.Done():
			return nil, &Error{Code: ConnectionClosed, Message: "there is no connection to the daemon at " + s.options.Socket}
		case <-s.life.Done():
			return nil, &Error{Code: ConnectionClosed, Message: "the client is closed"}
		}
	}
}

// repeatable reports whether a call has no second effect if it is repeated.
func repeatable(method string) bool {
	switch method {
	case "app.heartbeat", "session.get", "session.list", "config.get", "exchange.get", "exchange.list", "approval.get", "approval.redeemable",
		"agent.read", "agent.contacts", "agent.exchange", "agent.approval", "agent.redeemable", "kernel.describe", "kernel.status", "approval.list", "grant.list":
		return true
	}
	return false
}

// Call calls a method of the protocol by its name, and decodes its result into result, which may be
// nil. Nil params are an empty object. An error of the daemon is an [*Error]. A method that answers in
// chunks is for Stream.
func (s *session) Call(ctx context.Context, method string, params, result any) error {
	return s.call(ctx, method, params, result, repeatable(method))
}

func (s *session) call(ctx context.Context, method string, params, result any, repeat bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	s.backlog.calling(1)
	defer s.backlog.calling(-1)
	for attempt := 1; ; attempt++ {
		conn, err := s.connection(ctx)
		if err != nil {
			return err
		}
		err = errorOf(conn.Call(ctx, method, params, result))
		if !repeat || attempt == mostAttempts || !Is(err, ConnectionClosed) {
			return err
		}
		select { // a daemon that ends answers so too
		case <-conn.Done():
		case <-ctx.Done():
			return err
		}
	}
}

// Close ends the connection. Calls under way fail, and handlers under way are waited for.
func (s *session) Close() error {
	s.cancel()
	s.backlog.close()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	var err error
	if conn != nil {
		err = conn.Close()
	}
	s.tasks.Wait()
	return err
}
