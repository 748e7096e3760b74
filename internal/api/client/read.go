package client

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// receive hands out messages until there are no more. Refusal is the daemon's refusal of the whole
// connection.
func (c *Client) receive(lines *wire.LineReader) (refusal, err error) {
	for {
		line, err := lines.Next()
		if errors.Is(err, wire.ErrLineTooLong) {
			return nil, fmt.Errorf("it sent a line longer than %d bytes", c.opts.lineBytes)
		}
		if err != nil {
			return refusal, err
		}
		var in wire.Incoming
		if err := json.Unmarshal(line, &in); err != nil {
			return nil, fmt.Errorf("it sent what is not a message of the protocol: %w", err)
		}
		switch in.Type {
		case wire.TypeEvent:
			if !c.offer(&in) {
				return refusal, io.EOF
			}
		case wire.TypeResponse, wire.TypeStream:
			if in.RequestID == "" && in.Error != nil {
				refusal = in.Error
				continue
			}
			c.route(&in)
		}
		// Other types are for clients that know them.
	}
}

// offer gives an event to the caller. It reports false if the client closes while the caller is
// waited for.
func (c *Client) offer(in *wire.Incoming) bool {
	select {
	case c.events <- *in:
		return true
	default:
	}
	if c.opts.drop {
		c.dropped.Add(1)
		return true
	}
	select {
	case c.events <- *in:
		return true
	case <-c.closing:
		return false
	}
}

// route gives a message to the request it answers. One that nobody waits for
// any more is let go.
func (c *Client) route(in *wire.Incoming) {
	id, err := strconv.ParseUint(in.RequestID, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	r := c.pending[id]
	_, single := r.(*call)
	if single || in.Type == wire.TypeResponse && !in.Stream || in.Done {
		delete(c.pending, id)
	}
	c.mu.Unlock()
	if r != nil {
		r.take(in)
	}
}
