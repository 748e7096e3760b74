package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	ipc "github.com/openclawos/ocipd/internal/api/client"
)

// Stream is an answer in chunks, such as those of config.watch, agent.watch and task.watch. It is read
// to its end or closed. Chunks that wait for the caller count with the events that wait for handlers:
// beyond the bound nothing is read from the connection. A stream ends with its connection, with
// [ConnectionClosed], and is not opened again by itself.
type Stream struct {
	session *session
	inner   *ipc.Stream
	// The backlog's lock guards these. err is the reason of the end.
	queue  []json.RawMessage
	err    error
	closed bool
}

// Stream asks for an answer in chunks. A refusal is the error of the first [Stream.Next]. A method that
// answers once gives that answer as the only chunk.
func (s *session) Stream(ctx context.Context, method string, params any) (*Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := conn.Stream(ctx, method, params)
	if err != nil {
		return nil, errorOf(err)
	}
	st := &Stream{session: s, inner: inner}
	go st.fill()
	return st, nil
}

// fill puts chunks into the queue as they come and there is room.
func (st *Stream) fill() {
	b := st.session.backlog
	for {
		chunk, err := st.inner.Next(st.session.life)
		if st.session.life.Err() != nil {
			err = &Error{Code: ConnectionClosed, Message: "the client is closed"}
		}
		b.mu.Lock()
		for err == nil && !st.closed && !b.closed && b.full() {
			b.changed.Wait()
		}
		if err == nil && !st.closed {
			st.queue = append(st.queue, json.RawMessage(chunk))
			b.waiting++
		}
		st.err = errorOf(err)
		ended := err != nil || st.closed
		b.changed.Broadcast()
		b.mu.Unlock()
		if ended {
			return
		}
	}
}

// Next waits for the next chunk and decodes it into chunk, which may be nil. The error is [io.EOF] after
// the last chunk and after [Stream.Close], and an [*Error] if the daemon refused or the connection ended.
func (st *Stream) Next(ctx context.Context, chunk any) error {
	b := st.session.backlog
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})
	defer stop()
	b.mu.Lock()
	for len(st.queue) == 0 && st.err == nil && !st.closed && ctx.Err() == nil {
		b.changed.Wait()
	}
	var raw json.RawMessage
	err := st.err
	switch {
	case st.closed:
		err = io.EOF
	case len(st.queue) > 0:
		raw, err = st.queue[0], nil
		st.queue = st.queue[1:]
		b.waiting--
		b.changed.Broadcast()
	case err == nil:
		err = ctx.Err()
	}
	b.mu.Unlock()
	if err != nil || chunk == nil {
		return err
	}
	return json.Unmarshal(raw, chunk)
}

// Close ends the stream: chunks that were not taken are dropped, and the daemon sends no more. It is
// safe after the end, and more than once.
func (st *Stream) Close() error {
	b := st.session.backlog
	b.mu.Lock()
	over := st.closed || st.err != nil
	b.waiting -= len(st.queue)
	st.closed, st.queue = true, nil
	b.changed.Broadcast()
	b.mu.Unlock()
	if over {
		return nil
	}
	b.calling(1)
	defer b.calling(-1)
	ctx, cancel := context.WithTimeout(st.session.life, st.session.options.Timeout)
	defer cancel()
	err := errorOf(st.inner.Cancel(ctx))
	if Is(err, ConnectionClosed) || errors.Is(err, context.Canceled) {
		return nil // it ended with the connection
	}
	return err
}
