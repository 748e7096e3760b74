package a2aproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// event is one event of a stream.
type event struct {
	// failed is set for an event of the type error.
	failed bool
	// doc is its content, without the frame of JSON-RPC, and of its form.
	doc *node
	of  *shape
}

// streamShape is a stream that is decided as a whole.
var streamShape = &shape{name: "stream", lists: map[string]*shape{"events": answerShape}}

// pumping is a stream on its way to the client.
type pumping struct {
	p *Proxy
	w http.ResponseWriter
	q *request
	// back are events that are held back: a stream is decided as a whole once it holds
	// something that is one message. size is their length.
	back []*event
	size int
	// begun is set once the client has the beginning of the stream.
	begun bool
}

// pump passes a stream, event by event. An agent's own stream, and one with an envelope, is a
// single message: its events are held back, and decided when the stream ends.
func (p *Proxy) pump(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter, q *request, resp *http.Response) {
	s := &pumping{p: p, w: w, q: q}
	silent := time.AfterFunc(p.o.Wait, cancel)
	defer silent.Stop()
	r := bufio.NewReaderSize(&counting{q.load, resp.Body}, 64<<10)
	for {
		mine := q.load.mine
		data, failed, err := nextEvent(r)
		if !silent.Reset(p.o.Wait) && err != nil {
			err = fmt.Errorf("the stream was silent for %s", p.o.Wait)
		}
		if err != nil {
			s.end(ctx, err)
			return
		}
		e, no := s.read(data, failed)
		if no == nil {
			no = s.take(ctx, e, len(data))
		}
		if no != nil {
			s.fail(no)
			return
		}
		if len(s.back) == 0 {
			q.load.back(mine)
		}
	}
}

// errLong means that an event or a stream has too many bytes.
var errLong = fmt.Errorf("an event has more than %d bytes", maxBody)

// nextEvent reads an event. Only the protocol's own fields count: data, and the type error.
func nextEvent(r *bufio.Reader) (data []byte, failed bool, err error) {
	size, has := 0, false
	for {
		line, err := longLine(r, maxBody-size)
		if size += len(line); err != nil {
			return nil, false, err
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if bytes.ContainsRune(line, '\r') {
			return nil, false, fmt.Errorf("%w: a line that some programs read as several", errMalformed)
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && has:
			return data, failed, nil
		case len(line) == 0, len(name) == 0:
		case string(name) == "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case string(name) == "event":
			if failed = string(value) == "error"; !failed && string(value) != "message" {
				return nil, false, fmt.Errorf("%w: an event of the type %.50q", errMalformed, value)
			}
		}
	}
}

// longLine reads a line of at most most bytes.
func longLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > most {
			return nil, errLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// read parses an event.
func (s *pumping) read(data []byte, failed bool) (*event, *gatelink.Refusal) {
	if err := s.q.load.values(data); err != nil {
		return nil, bad("an event cannot be read: %v", err)
	}
	doc, err := parse(data)
	if err != nil {
		return nil, bad("an event cannot be read: %v", err)
	}
	e := &event{failed: failed, doc: doc, of: s.q.method.result}
	if s.q.at.binding == jsonRPC {
		var no *gatelink.Refusal
		if e.doc, e.of, no = resultOf(s.q, doc); no != nil {
			return nil, no
		}
		e.failed = e.failed || e.of == errShape
	}
	if e.failed {
		e.of = errShape
	}
	return e, nil
}

// take has an event decided and passes it, or holds it back.
func (s *pumping) take(ctx context.Context, e *event, size int) *gatelink.Refusal {
	if len(s.back) == 0 {
		said, err := say(s.q.method.name, e.of, e.doc, false, s.p.decidedBefore(s.q.session), s.p.passes(s.q.session))
		if err != nil {
			return bad("an event cannot be decided: %v", err)
		}
		if e.failed || !said.fresh || !s.p.o.Incoming && said.envelope == nil {
			if no := s.p.decideAnswer(ctx, s.q, e.of, e.doc); no != nil {
				return no
			}
			s.write(e)
			return nil
		}
	}
	if s.size += size; s.size > maxBody {
		return bad("the stream has more than %d bytes", maxBody)
	}
	s.back = append(s.back, e)
	return nil
}

// end decides what was held back, and ends the stream.
func (s *pumping) end(ctx context.Context, err error) {
	if len(s.back) > 0 {
		whole := &node{kind: '['}
		for _, e := range s.back {
			if !e.failed {
				whole.kids = append(whole.kids, e.doc)
			}
		}
		doc := objectNode()
		doc.set("events", whole)
		no := s.p.decideAnswer(context.WithoutCancel(ctx), s.q, streamShape, doc)
		for _, e := range s.back {
			if no == nil && e.failed {
				no = s.p.decideAnswer(context.WithoutCancel(ctx), s.q, e.of, e.doc)
			}
		}
		if no != nil {
			s.fail(no)
			return
		}
		for _, e := range s.back {
			s.write(e)
		}
	}
	if !errors.Is(err, io.EOF) {
		s.fail(bad("the stream broke off: %v", err))
	} else if !s.begun {
		s.begin()
	}
}

func (s *pumping) begin() {
	if !s.begun {
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.WriteHeader(http.StatusOK)
		s.begun = true
	}
}

// write gives the client an event.
func (s *pumping) write(e *event) {
	body := e.doc.write(nil)
	if s.q.at.binding == jsonRPC {
		name := "result"
		if e.failed {
			name = "error"
		}
		body = wrapped(s.q, name, e.doc)
	}
	s.send(body, e.failed)
}

func (s *pumping) send(body []byte, failed bool) {
	s.begin()
	var b strings.Builder
	if failed {
		b.WriteString("event: error\n")
	}
	b.WriteString("data: ")
	b.Write(body)
	b.WriteString("\n\n")
	_, _ = io.WriteString(s.w, b.String())      // the client may be gone
	_ = http.NewResponseController(s.w).Flush() // likewise
}

// fail ends a stream with an error.
func (s *pumping) fail(no *gatelink.Refusal) {
	if !s.begun {
		s.p.fail(s.w, s.q, no)
		return
	}
	_, body := refusal(s.q, no)
	s.send(body, true)
}
