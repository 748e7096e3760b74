package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// streamBuffer is how many chunks wait for the caller.
const streamBuffer = 64

// Stream is an answer in chunks. The caller reads it to its end or cancels it.
type Stream struct {
	client *Client
	id     uint64
	chunks chan jsontext.Value
	// err is why the stream ended. The reader sets it before it closes chunks.
	err error
	// stopped is closed when the caller wants no more.
	stopped chan struct{}
	once    sync.Once
}

// Stream asks for an answer in chunks. A method that answers once gives that
// answer as the only chunk; an answer that a stream begins with is none of them.
func (c *Client) Stream(ctx context.Context, method string, params any) (*Stream, error) {
	s := &Stream{client: c, chunks: make(chan jsontext.Value, streamBuffer), stopped: make(chan struct{})}
	id, err := c.send(ctx, method, params, "", "", s)
	if err != nil {
		return nil, err
	}
	s.id = id
	return s, nil
}

// Each visits the chunks of an answer to its end. An error of visit ends it.
func (c *Client) Each(ctx context.Context, method string, params any, visit func(chunk jsontext.Value) error) error {
	s, err := c.Stream(ctx, method, params)
	if err != nil {
		return err
	}
	for {
		chunk, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(chunk)
		}
		if err != nil {
			return err
		}
	}
}

// Next returns the next chunk. At the stream's end it returns [io.EOF], or the
// [*api.Error] that ended it.
func (s *Stream) Next(ctx context.Context) (jsontext.Value, error) {
	select {
	case <-s.stopped:
		return nil, io.EOF
	default:
	}
	select {
	case chunk, ok := <-s.chunks:
		if !ok {
			return nil, s.err
		}
		return chunk, nil
	case <-s.stopped:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cancel ends the stream: chunks that were not taken are dropped, and the
// daemon is asked to send no more. A stream that is at its end already is left
// alone.
func (s *Stream) Cancel(ctx context.Context) error {
	s.once.Do(func() { close(s.stopped) })
	err := s.client.Call(ctx, "stream.cancel", api.CancelParams{RequestID: requestID(s.id)}, nil)
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.NotFound {
		return nil
	}
	return err
}

func (s *Stream) take(in *wire.Incoming) {
	if in.Type == wire.TypeResponse && in.Stream {
		return // that it has begun; the chunks follow
	}
	if in.Type == wire.TypeResponse {
		err := failure(in)
		if err == nil {
			s.push(in.Result)
			err = io.EOF
		}
		s.fail(err)
		return
	}
	// The last chunk is usually empty, but need not be.
	if !in.Done || (len(in.Chunk) > 0 && in.Chunk.Kind() != 'n') {
		s.push(in.Chunk)
	}
	if in.Done {
		s.fail(io.EOF)
	}
}

func (s *Stream) fail(err error) {
	s.err = err
	close(s.chunks)
}

// push waits for the caller to take chunks.
func (s *Stream) push(chunk jsontext.Value) {
	select {
	case s.chunks <- chunk:
	case <-s.stopped:
	case <-s.client.closing:
	}
}
