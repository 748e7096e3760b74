package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ipc"
)

// Message types that come from the daemon.
const (
	typeResponse = "response"
	typeEvent    = "event"
	typeStream   = "stream"
)

// lines reads lines in bounded memory.
type lines struct {
	source *bufio.Reader
	limit  int
	// long holds a line that is longer than the source's buffer.
	long []byte
}

func newLines(source io.Reader, limit int) *lines {
	return &lines{source: bufio.NewReaderSize(source, 32<<10), limit: limit}
}

// next returns the next line that is not empty, valid until the next call. A
// last line without its newline is not a line: it was torn.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.source.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			l.long = append(l.long[:0], line...)
			for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= l.limit {
				line, err = l.source.ReadSlice('\n')
				l.long = append(l.long, line...)
			}
			line = l.long
			if cap(l.long) > keepBuffer {
				l.long = nil
			}
		}
		switch {
		case len(line) > l.limit+1:
			return nil, fmt.Errorf("it sent a line longer than %d bytes", l.limit)
		case err != nil:
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// receive hands out messages until there are no more. Refusal is what the
// daemon said of the connection as a whole, such as why it will not serve it.
func (c *Client) receive(l *lines) (refusal, err error) {
	for {
		line, err := l.next()
		if err != nil {
			return refusal, err
		}
		var in ipc.Incoming
		if err := json.Unmarshal(line, &in); err != nil {
			return nil, fmt.Errorf("it sent what is not a message of the protocol: %w", err)
		}
		switch in.Type {
		case typeEvent:
			if !c.offer(&in) {
				return refusal, io.EOF
			}
		case typeResponse, typeStream:
			if in.RequestID == "" && in.Error != nil {
				refusal = in.Error
				continue
			}
			c.route(&in)
		}
		// Other types are for clients that know them.
	}
}

// offer gives an event to the caller. It reports false where the client closes
// while the caller is waited for.
func (c *Client) offer(in *ipc.Incoming) bool {
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
func (c *Client) route(in *ipc.Incoming) {
	id, err := strconv.ParseUint(in.RequestID, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	r := c.pending[id]
	_, single := r.(*call)
	if single || in.Type == typeResponse && !in.Stream || in.Done {
		delete(c.pending, id)
	}
	c.mu.Unlock()
	if r != nil {
		r.take(in)
	}
}
