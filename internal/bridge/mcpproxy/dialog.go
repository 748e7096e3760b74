package mcpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// dialog is one message of a client with its answer.
type dialog struct {
	*web
	rw      http.ResponseWriter
	r       *http.Request
	session string
	// over is closed when the proxy has answered by itself. Else work has a function to answer.
	over chan struct{}
	work chan func()

	mu sync.Mutex
	// done is set when the answer is complete, or nobody waits for it. streams is set when
	// the answer has begun as a stream.
	done, streams bool
	// o observes the server's answer, status is its HTTP status, and resumes marks a resumable stream.
	o       *observer
	status  int
	resumes bool
}

// notReached is the status of a request that the server did not get.
const notReached = -1

// errLeft means that nobody waits for the answer any more.
var errLeft = errors.New("the client has gone")

// request is the client's request with another body, and the headers of that body.
func (d *dialog) request(body []byte) *http.Request {
	ctx := context.WithValue(context.WithValue(d.r.Context(), sessionKey{}, d.session), dialogKey{}, d)
	r := d.r.Clone(ctx)
	repeat(d.proxy, r.Header, body, false)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return r
}

func (d *dialog) left() <-chan struct{} { return d.r.Context().Done() }

func (d *dialog) tell(line []byte) { d.say(line, http.StatusOK, true) }

func (d *dialog) reject(line []byte) { d.say(line, http.StatusBadRequest, true) }

func (d *dialog) news(line []byte) {
	if strings.Contains(d.r.Header.Get("Accept"), "text/event-stream") {
		d.say(line, http.StatusOK, false)
	}
}

// say writes a message of the proxy itself.
func (d *dialog) say(line []byte, status int, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return
	}
	switch {
	case d.streams || !last:
		d.streamLocked()
		_, _ = d.rw.Write(appendEvent(nil, line))
		_ = http.NewResponseController(d.rw).Flush()
	default:
		d.rw.Header().Set("Content-Type", "application/json")
		d.rw.WriteHeader(status)
		_, _ = d.rw.Write(line)
	}
	if last {
		d.done = true
		close(d.over)
	}
}

func (d *dialog) streamLocked() {
	if !d.streams {
		d.streams = true
		d.rw.Header().Set("Content-Type", "text/event-stream")
		d.rw.Header().Set("Cache-Control", "no-cache")
		d.rw.WriteHeader(http.StatusOK)
	}
}

func (d *dialog) pass(line []byte, o *observer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return errLeft
	}
	if o != nil {
		d.o = o
		d.calls.watch(o)
	}
	// The request's own goroutine answers it.
	d.work <- func() { d.answer(line) }
	return nil
}

func (d *dialog) send(line []byte) error { return d.pass(line, nil) }

// answer passes the call to the server, and the answer to the client.
func (d *dialog) answer(line []byte) {
	defer func() {
		d.mu.Lock()
		d.done = true
		d.mu.Unlock()
		if d.o != nil {
			d.unanswered(d.o, d.status, d.resumes)
		}
	}()
	r := d.request(line)
	if !d.streams {
		d.back.ServeHTTP(d.rw, r)
		return
	}
	e := &eventWriter{d: d, header: make(http.Header)}
	d.back.ServeHTTP(e, r)
	e.end()
}

// leave ends a dialog after its client has gone.
func (d *dialog) leave() {
	d.mu.Lock()
	d.done = true
	o := d.o
	d.mu.Unlock()
	if o != nil {
		d.unanswered(o, notReached, false)
	}
}

// eventWriter writes a server's answer into a stream that has already begun.
type eventWriter struct {
	d      *dialog
	header http.Header
	status int
	body   bytes.Buffer
}

func (e *eventWriter) Header() http.Header { return e.header }

func (e *eventWriter) WriteHeader(status int) { e.status = status }

func (e *eventWriter) stream() bool {
	return isStream(e.header) && (e.status == 0 || e.status == http.StatusOK)
}

func (e *eventWriter) Write(b []byte) (int, error) {
	switch {
	case e.stream():
		e.d.mu.Lock()
		defer e.d.mu.Unlock()
		return e.d.rw.Write(b)
	case e.body.Len()+len(b) > maxHeldLine:
		return 0, errors.New("the answer is too long for a stream")
	}
	return e.body.Write(b)
}

func (e *eventWriter) Flush() { _ = http.NewResponseController(e.d.rw).Flush() }

func (e *eventWriter) end() {
	if e.stream() {
		return
	}
	message := e.body.Bytes()
	if e.status >= 300 || len(bytes.TrimSpace(message)) == 0 {
		message = malformedLine(fmt.Sprintf("the MCP server answered with HTTP status %d", e.status))
	}
	e.d.say(message, http.StatusOK, true)
}
