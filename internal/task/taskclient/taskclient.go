// Package taskclient is a connection to the daemon that acts by a grant, for programs that
// outlive a daemon: it attaches again where the daemon was started anew, and makes the call
// that was under way once more.
//
// The caller's duty: a call may be made twice. It reads, takes a request key, or has a key of its
// own.
package taskclient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

const (
	// awayTime is for how long it is waited for a daemon that is not there, and dialEvery
	// how often it is tried to connect meanwhile.
	awayTime  = 10 * time.Second
	dialEvery = 100 * time.Millisecond
	// maxTries is how often a call is made whose connection was lost.
	maxTries = 3
)

// Conn acts by one grant. Its methods may be called by several goroutines at once.
type Conn struct {
	dial  func(context.Context) (*client.Client, error)
	token string

	mu sync.Mutex
	c  *client.Client
	at taskapi.Attached
}

// New makes a connection, which connects with its first call.
func New(dial func(context.Context) (*client.Client, error), token string) *Conn {
	return &Conn{dial: dial, token: token}
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		return nil
	}
	return c.c.Close()
}

// Attached is the grant of the connection.
func (c *Conn) Attached(ctx context.Context) (taskapi.Attached, error) {
	if _, err := c.connected(ctx); err != nil {
		return taskapi.Attached{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, nil
}

// Call makes a call, once more where its connection was lost. A daemon that is away is
// waited for a while.
func (c *Conn) Call(ctx context.Context, method string, params, result any) (err error) {
	for range maxTries {
		var conn *client.Client
		if conn, err = c.connected(ctx); err != nil {
			return err
		}
		if err = conn.Call(ctx, method, params, result); !Away(err) {
			return err
		}
		c.drop(conn)
	}
	return err
}

// drop gives up a connection that was lost: it may not know yet that it has ended.
func (c *Conn) drop(conn *client.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == conn {
		_ = conn.Close()
		c.c = nil
	}
}

// Away reports whether an error says that no daemon is there, or that it went.
func Away(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return errors.Is(err, client.ErrNotRunning) || ok && e.Code == api.ConnectionClosed
}

// Code is the task's code of a refusal, "" where there is none.
func Code(err error) task.Code {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return ""
	}
	var details taskapi.Details
	if text, err := json.Marshal(e.Details); err != nil || json.Unmarshal(text, &details) != nil {
		return ""
	}
	return details.Task.Code
}

func (c *Conn) connected(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, awayTime)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil && c.c.Err() == nil {
		return c.c, nil
	}
	var away error
	for {
		conn, at, err := c.attach(ctx)
		if err == nil {
			if c.c != nil {
				_ = c.c.Close() // it is lost
			}
			c.c, c.at = conn, at
			return conn, nil
		}
		switch {
		case Away(err):
			away = err
		case away != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)):
			return nil, away // the last try was cut short by the time
		default:
			return nil, err
		}
		timer := time.NewTimer(dialEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

func (c *Conn) attach(ctx context.Context) (conn *client.Client, at taskapi.Attached, err error) {
	if conn, err = c.dial(ctx); err != nil {
		return nil, at, err
	}
	if err = conn.Call(ctx, "task.attach", &taskapi.AttachParams{Token: c.token}, &at); err != nil {
		_ = conn.Close() // it is of no use
		if errors.Is(err, context.DeadlineExceeded) {
			err = api.Errorf(api.ConnectionClosed, "the daemon does not answer")
		}
		return nil, at, err
	}
	return conn, at, nil
}
