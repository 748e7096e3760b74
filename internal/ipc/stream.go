package ipc

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// stream opens a streaming method and runs it beside the reader. It takes its place before it
// opens: an open stream is always fed, and so ended by its feed.
func (c *conn) stream(r *wire.Request, m *Method, params any) {
	ctx, cancel := context.WithCancel(c.ctx)
	var feed Feed
	err := c.enterStream(r.ID, cancel)
	if err == nil {
		if feed, err = c.open(ctx, m, params); err != nil {
			c.leaveStream(r.ID)
			c.idle.Done()
		}
	}
	if m.answered(err) != nil {
		cancel()
		c.fail(r.ID, err)
		return
	}
	id := r.ID
	if m.opening != nil {
		c.out.opening(c.server.newID(), c.server.now().UnixMilli(), id, m.opening)
	}
	go func() {
		defer c.idle.Done()
		defer cancel()
		s := &stream{conn: c, requestID: id}
		err := c.feed(ctx, m, feed, s)
		c.leaveStream(id)
		if err != nil && ctx.Err() == nil {
			c.fail(id, err)
		} else {
			s.end()
		}
		c.out.flush()
	}()
}

// open opens a stream.
func (c *conn) open(ctx context.Context, m *Method, params any) (feed Feed, err error) {
	defer c.rescue(m, &err)
	return m.open(ctx, c, params)
}

// feed runs a stream to its end.
func (c *conn) feed(ctx context.Context, m *Method, feed Feed, s *stream) (err error) {
	defer c.rescue(m, &err)
	return feed(ctx, s)
}

func (c *conn) cancelStream(requestID string) (api.OK, error) {
	c.mu.Lock()
	cancel, ok := c.inFlight[requestID]
	c.mu.Unlock()
	if !ok || cancel == nil {
		return api.OK{}, api.Errorf(api.NotFound, "no stream %q on this connection", requestID)
	}
	cancel()
	return api.OK{OK: true}, nil
}

// enterStream puts a stream into flight. Unlike [conn.enter] it never waits: a stream ends only at
// a client's request, which nobody would read meanwhile.
func (c *conn) enterStream(id string, cancel context.CancelFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != stateOpen:
		return errClosing
	case c.streams >= maxStreams:
		return api.Errorf(api.Conflict, "the connection has its limit of %d streams; end one with stream.cancel", maxStreams)
	case c.process.streams.Add(1) > maxStreamsOfProcess:
		c.process.streams.Add(-1)
		return api.Errorf(api.Conflict, "process %d has its limit of %d streams; end one with stream.cancel", c.process.key.pid, maxStreamsOfProcess)
	}
	c.trackLocked(id, cancel)
	c.streams++
	return nil
}

func (c *conn) leaveStream(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, id)
	c.streams--
	c.process.streams.Add(-1)
}

// endStreams ends every stream, since streams do not end by themselves.
func (c *conn) endStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cancel := range c.inFlight {
		if cancel != nil {
			cancel()
		}
	}
}

// stream sends the chunks of one answer.
type stream struct {
	conn      *conn
	requestID string
}

// Send queues each chunk as soon as there is room, and writes them together.
func (s *stream) Send(ctx context.Context, chunks ...any) error {
	out := s.conn.out
	defer out.flush()
	for _, chunk := range chunks {
		if out.crowded() {
			out.flush() // only a write makes room
		}
		if err := out.room(ctx); err != nil {
			return err
		}
		encoded, err := wire.Encode(chunk)
		if err != nil {
			return api.Errorf(api.InternalError, "cannot encode a chunk: %v", err)
		}
		out.chunk(s.conn.server.newID(), s.conn.server.now().UnixMilli(), s.requestID, encoded, false)
	}
	return nil
}

func (s *stream) end() {
	s.conn.out.chunk(s.conn.server.newID(), s.conn.server.now().UnixMilli(), s.requestID, []byte("null"), true)
}
