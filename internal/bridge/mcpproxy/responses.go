package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// answers inspects a server's response while the proxy awaits answers.
func (w *web) answers(r *http.Response) error {
	session, _ := r.Request.Context().Value(sessionKey{}).(string)
	resumed := resumes(r.Request)
	d, _ := r.Request.Context().Value(dialogKey{}).(*dialog)
	if d != nil {
		d.status, d.resumes = r.StatusCode, r.StatusCode == http.StatusOK && isStream(r.Header)
	}
	if r.Request.Method == http.MethodDelete && r.StatusCode < 300 {
		w.calls.forget(session)
		w.leaves(session)
	}
	givesHeaders(w.proxy, r.Header)
	// A client would follow these past the proxy.
	elsewhere := r.Header.Get("Location")
	for _, name := range []string{"Alt-Svc", "Location", "Refresh"} {
		r.Header.Del(name)
	}
	switch {
	case r.StatusCode < 200, r.StatusCode >= 300 && r.StatusCode < 400:
		return fmt.Errorf("the server says %s, to %q: if that is where it is, name it so", r.Status, elsewhere)
	case r.StatusCode >= 400 && (d == nil || d.o == nil || d.o.in == nil):
		return nil
	case r.StatusCode < 300 && isNothing(r):
		return nothing(r)
	}
	if err := legibleHeader(r); err != nil {
		if d != nil && d.o != nil && d.o.in != nil {
			_, _ = w.calls.spoil(session, resumed, err.Error())
			return w.notice(r, d)
		}
		return err
	}
	if isStream(r.Header) {
		// The length may change.
		r.Header.Del("Content-Length")
		r.ContentLength = -1
		r.Body = &events{w: w, ctx: r.Request.Context(), session: session, resumed: resumed, from: r.Body, r: bufio.NewReaderSize(r.Body, maxBeside)}
		return nil
	}
	return w.message(r, d, session, resumed)
}

// message inspects an answer that is one message.
func (w *web) message(r *http.Response, d *dialog, session string, resumed bool) error {
	first, err := io.ReadAll(io.LimitReader(r.Body, maxBeside))
	if err != nil {
		return err
	}
	from := io.MultiReader(bytes.NewReader(first), r.Body)
	long := &longBody{Closer: r.Body, from: from, passage: passage{p: w.proxy, session: session, resumed: resumed}}
	if len(first) == maxBeside && !w.calls.watches(resumed) {
		r.Body = long
		return nil
	}
	text := first
	if len(first) == maxBeside {
		var leave func()
		text, leave, err = take(r.Request.Context(), w.heard, from, maxHeldLine, r.ContentLength)
		// The room is taken until the client has the answer.
		context.AfterFunc(r.Request.Context(), leave)
		if err != nil {
			return err
		}
	}
	if len(text) > maxHeldLine {
		if _, spoiled := w.calls.spoil(session, resumed, "the server said something that cannot be looked into"); spoiled {
			return w.notice(r, d)
		}
		long.from = io.MultiReader(bytes.NewReader(text), r.Body)
		r.Body = long
		return nil
	}
	if err := r.Body.Close(); err != nil {
		return err
	}
	var instead func() []byte
	held := false
	if len(bytes.TrimSpace(text)) > 0 {
		instead, held = w.observed(session, resumed, text)
		if f, err := parseBody(text); (err != nil || f.doubtful()) && held {
			return w.notice(r, d)
		}
	}
	if instead != nil {
		text = instead()
	} else if held {
		text = nil
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// notice answers a call whose answer cannot be inspected. Other waiting calls get it instead of theirs.
func (w *web) notice(r *http.Response, d *dialog) error {
	if d == nil || d.o == nil {
		return errors.New("its answer cannot be looked into")
	}
	line, _ := w.calls.insteadOf(d.o.key, false)
	if line == nil {
		return errors.New("its answer cannot be looked into")
	}
	_ = r.Body.Close()
	r.Header.Del("Content-Encoding")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", strconv.Itoa(len(line)))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(line)), int64(len(line))
	return nil
}

// unanswered settles a call whose HTTP answer has ended without an answer to it.
func (w *web) unanswered(o *observer, status int, resumes bool) {
	if !w.calls.awaits(o) {
		return
	}
	why := fmt.Sprintf("the server answered with HTTP status %d", status)
	switch {
	case resumes:
		w.background.Go(func() {
			again := time.NewTimer(resumeTime)
			defer again.Stop()
			select {
			case <-again.C:
			case <-w.ended.Done():
			}
			w.calls.lose(o, api.OutcomeUnknown, "the server has not answered")
		})
	case status == notReached:
		w.calls.lose(o, api.OutcomeNotSent, "the server was not reached")
	case status >= 300 && status < 400, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		w.calls.lose(o, api.OutcomeNotSent, why)
	default:
		w.calls.lose(o, api.OutcomeUnknown, why)
	}
}

// resumeTime is how long the proxy awaits an answer after its stream ended, because the
// client may resume the stream.
const resumeTime = 5 * time.Minute

// isNothing reports whether an answer says nothing to its client: it is empty, or only acknowledges.
func isNothing(r *http.Response) bool {
	return r.ContentLength == 0 || r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusAccepted || r.Request.Method == http.MethodDelete
}

// nothing takes the body out of an answer that says nothing.
func nothing(r *http.Response) error {
	err := r.Body.Close()
	r.Body, r.ContentLength = http.NoBody, 0
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	return err
}

// legibleHeader reports why an answer cannot be read as JSON or as a stream of events in UTF-8, as
// every client has to read it: one that is read in another way could be another one.
func legibleHeader(r *http.Response) error {
	for _, encoding := range r.Header.Values("Content-Encoding") {
		if !strings.EqualFold(encoding, "identity") {
			return fmt.Errorf("the server encodes its answer as %q", encoding)
		}
	}
	said := r.Header.Values("Content-Type")
	kind, params, err := mime.ParseMediaType(strings.Join(said, ","))
	charset, more := params["charset"]
	switch {
	case err != nil, kind != "application/json" && kind != "text/event-stream", len(params) > 1, len(params) == 1 && !more,
		more && !strings.EqualFold(charset, "utf-8"), kind == "application/json" && r.Request.Method == http.MethodGet:
		if r.StatusCode >= 400 {
			return nil // it is read as it is, and nothing else is made of it
		}
		return fmt.Errorf("the server answers with the type %q", said)
	}
	return nil
}

// longBody is an answer that is longer than is held and passes while it is read.
type longBody struct {
	io.Closer
	from io.Reader
	passage
	ready []byte
	err   error
	room  [32 << 10]byte
}

func (l *longBody) Read(b []byte) (int, error) {
	for len(l.ready) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		n, err := l.from.Read(l.room[:])
		pass, _, cut := l.next(l.room[:n])
		if l.ready = pass; !cut && errors.Is(err, io.EOF) {
			var rest []byte
			rest, _, cut = l.end()
			l.ready = append(bytes.Clone(pass), rest...)
		}
		if l.err = err; cut {
			l.ready, l.err = nil, errCut
		}
	}
	n := copy(b, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

// errCut means that the rest of an answer does not pass.
var errCut = errors.New("the answer could be one that is awaited, and had begun before")
