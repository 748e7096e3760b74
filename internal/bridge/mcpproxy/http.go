package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"golang.org/x/sync/semaphore"
)

const (
	// maxHeader bounds the header of a request, headerTime the time to read it, and
	// bodyTime the time to read the body.
	maxHeader  = 64 << 10
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	// maxRequests bounds the open requests, including streams.
	maxRequests = 256
	// idleTime bounds the wait of a connection for its next request.
	idleTime = 2 * time.Minute
)

// Path is the path at which the proxy serves a server. Only a holder of the agent's
// token can compute it, because any process of the machine can connect to the port.
func Path(token string, target *url.URL) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("ocipd mcp-proxy\n" + target.String()))
	return "/" + hex.EncodeToString(mac.Sum(nil))[:32]
}

// Target parses the address of a server.
func Target(given string) (*url.URL, error) {
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no address of a server over HTTP", given)
	}
	return u, nil
}

// Listen opens a port on a loopback address.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is no address of this machine alone, such as 127.0.0.1:7420", address)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// web serves the clients of a server over HTTP.
type web struct {
	*proxy
	target *url.URL
	path   string
	hosts  []string
	back   *httputil.ReverseProxy
	room   chan struct{}

	mu sync.Mutex
	// last are the latest headers of each account, which identify clients and their
	// sessions to the server; the most recent one is last.
	last []speaker
}

// speaker is a client that has used a server.
type speaker struct {
	account string
	header  http.Header
}

// Serve serves a server over HTTP at a path of the listener, until the context ends.
func Serve(ctx context.Context, o *Options, l net.Listener, target *url.URL, path string) error {
	w := &web{proxy: newProxy(ctx, o), target: target, path: path, room: make(chan struct{}, maxRequests)}
	w.spare, w.accounts, w.replays = w.again, w.known, true
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	for _, host := range []string{"127.0.0.1", "localhost", "::1", l.Addr().(*net.TCPAddr).IP.String()} {
		w.hosts = append(w.hosts, net.JoinHostPort(host, port))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// The proxy could not read compressed content. An automatic retry would send twice.
	transport.DisableCompression = true
	w.back = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			u := *target
			r.Out.URL, r.Out.Host = &u, ""
			r.Out.Header.Set("Accept-Encoding", "identity")
			// The server need not know the origin: ServeHTTP has checked it.
			r.Out.Header.Del("Origin")
		},
		Transport: transport, FlushInterval: -1, ModifyResponse: w.answers, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(rw http.ResponseWriter, r *http.Request, err error) {
			o.Log.Warn("cannot reach the MCP server", "error", err)
			var op *net.OpError
			if d, ok := r.Context().Value(dialogKey{}).(*dialog); ok && d.status == 0 && errors.As(err, &op) && op.Op == "dial" {
				d.status = notReached
			}
			http.Error(rw, "ocipd: cannot reach the MCP server", http.StatusBadGateway)
		},
	}
	server := &http.Server{
		Handler: w, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, ErrorLog: w.back.ErrorLog, BaseContext: func(net.Listener) context.Context { return w.ended },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	w.end()
	_ = server.Close() // after a failure, the listener is still open
	// When all the room is taken, no request can begin.
	for range cap(w.room) {
		w.room <- struct{}{}
	}
	w.loseAll()
	w.finish()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// ServeHTTP handles one request of a client.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	origin := r.Header.Get("Origin")
	switch {
	case !slices.Contains(w.hosts, r.Host):
		http.Error(rw, "ocipd: this address is not one of the proxy's", http.StatusForbidden)
		return
	case len(r.Header.Values("Origin")) > 0 && origin != "http://"+r.Host:
		http.Error(rw, "ocipd: pages of other sites may not ask", http.StatusForbidden)
		return
	case r.Header.Get("Upgrade") != "":
		http.Error(rw, "ocipd: no other protocols", http.StatusBadRequest)
		return
	case !hmac.Equal([]byte(r.URL.Path), []byte(w.path)) || r.URL.RawQuery != "":
		http.NotFound(rw, r)
		return
	}
	status, err := http.StatusBadRequest, oneIdentity(r.Header)
	if err == nil {
		status, err = passingHeaders(w.proxy, r.Header)
	}
	if err != nil {
		http.Error(rw, "ocipd: "+err.Error(), status)
		return
	}
	select {
	case w.room <- struct{}{}:
		defer func() { <-w.room }()
	default:
		http.Error(rw, "ocipd: too many requests are open", http.StatusServiceUnavailable)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodDelete:
		w.proxy.mu.Lock()
		forgot := w.forgot
		w.proxy.mu.Unlock()
		if forgot && resumes(r) {
			http.Error(rw, "ocipd: too much was withheld to go on with a stream", http.StatusBadRequest)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, sessionOf(r)))
		r.Body, r.ContentLength = http.NoBody, 0
		r.Header.Del("Content-Type")
		withoutRepeats(r.Header)
		w.back.ServeHTTP(rw, r)
	case http.MethodPost:
		w.post(rw, r)
	default:
		rw.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(rw, "ocipd: no such method", http.StatusMethodNotAllowed)
	}
}

func sessionOf(r *http.Request) string { return r.Header.Get(sessionHeader) }

// resumes reports whether a request resumes an earlier stream.
func resumes(r *http.Request) bool { return r.Header.Get(positionHeader) != "" }

// sessionKey is the context key of a request's session, and dialogKey that of its dialog.
type (
	sessionKey struct{}
	dialogKey  struct{}
)

// post handles a message of the client.
func (w *web) post(rw http.ResponseWriter, r *http.Request) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || r.Header.Get("Content-Encoding") != "" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		http.Error(rw, "ocipd: want application/json in UTF-8", http.StatusUnsupportedMediaType)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	// It fails only for connections without deadlines, which are not network connections.
	_ = http.NewResponseController(rw).SetReadDeadline(w.o.Now().Add(bodyTime))
	body, leave, err := take(r.Context(), w.said, http.MaxBytesReader(rw, r.Body, maxClientLine), maxClientLine, r.ContentLength)
	defer leave()
	if err != nil {
		http.Error(rw, "ocipd: the message cannot be read, or is too long", http.StatusRequestEntityTooLarge)
		return
	}
	_ = http.NewResponseController(rw).SetReadDeadline(time.Time{})
	d := &dialog{web: w, rw: rw, r: r, session: sessionOf(r), over: make(chan struct{}), work: make(chan func(), 1)}
	body = withoutHalves(body)
	f, err := parseBody(body)
	if err != nil {
		w.malformed(d, err.Error())
		return
	}
	if name := contradicts(w.proxy, r.Header, body); name != "" {
		w.o.Log.Warn("refused a message of the client", "reason", "its header "+name+" contradicts the body")
		d.reject(mismatchLine(f.id, name))
		return
	}
	w.spoke(d.account(), r.Header)
	if f.method == "initialize" && d.session == "" {
		w.forget("") // a server without sessions begins anew
	}
	if pass, learns := w.fromClient(body, &f, d.session, d); pass != nil {
		d.forward(pass)
		if learns != nil {
			w.forgo(learns)
		}
		return
	}
	if f.id == nil && strings.HasPrefix(f.method, "notifications/") {
		select {
		case <-d.over:
		default:
			rw.WriteHeader(http.StatusAccepted)
		}
		return
	}
	select {
	case pass := <-d.work:
		pass()
	case <-d.over:
	case <-r.Context().Done():
		d.leave()
	}
}

// take reads a frame, at most one byte more than the limit. Before it reads more than
// maxBeside, it acquires room, which leave releases. length is the known length, or negative.
func take(ctx context.Context, room *semaphore.Weighted, from io.Reader, limit int, length int64) (text []byte, leave func(), err error) {
	leave = func() {}
	text, err = io.ReadAll(io.LimitReader(from, maxBeside))
	if err != nil || len(text) < maxBeside {
		return text, leave, err
	}
	most := int64(limit)
	if length >= 0 {
		most = min(most, length)
	}
	if err := room.Acquire(ctx, most); err != nil {
		return nil, leave, err
	}
	rest, err := io.ReadAll(io.LimitReader(from, int64(limit+1-len(text))))
	text = append(text, rest...)
	held := min(most, int64(len(text)))
	room.Release(most - held)
	return text, func() { room.Release(held) }, err
}

// forward passes the server's answer directly to the client.
func (d *dialog) forward(body []byte) {
	d.back.ServeHTTP(d.rw, d.request(body))
}

// request is the client's request with another body, and the headers of that body.
func (d *dialog) request(body []byte) *http.Request {
	ctx := context.WithValue(context.WithValue(d.r.Context(), sessionKey{}, d.session), dialogKey{}, d)
	r := d.r.Clone(ctx)
	repeat(d.proxy, r.Header, body, false)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return r
}

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

// appendEvent writes a message as an event.
func appendEvent(b, message []byte) []byte {
	b = append(b, "event: message\n"...)
	for line := range bytes.Lines(bytes.TrimSpace(message)) {
		b = append(append(append(b, "data: "...), bytes.TrimRight(line, "\r\n")...), '\n')
	}
	return append(b, '\n')
}

// appendEvents writes each line as an event.
func appendEvents(b, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		b = appendEvent(b, line)
	}
	return b
}

// errLeft means that nobody waits for the answer any more.
var errLeft = errors.New("the client has gone")

// resumeTime is how long the proxy awaits an answer after its stream ended, because the
// client may resume the stream.
const resumeTime = 5 * time.Minute

func (d *dialog) pass(line []byte, o *observer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return errLeft
	}
	d.o = o
	d.watch(o)
	// The request's own goroutine answers it.
	d.work <- func() { d.answer(line) }
	return nil
}

// send passes a call to the server and its answer to the client.
func (d *dialog) send(line []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return errLeft
	}
	d.work <- func() { d.answer(line) }
	return nil
}

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

// unanswered settles a call whose HTTP answer has ended without an answer to it.
func (w *web) unanswered(o *observer, status int, resumes bool) {
	if !w.awaits(o) {
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
			w.lose(o, api.OutcomeUnknown, "the server has not answered")
		})
	case status == notReached:
		w.lose(o, api.OutcomeNotSent, "the server was not reached")
	case status >= 300 && status < 400, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		w.lose(o, api.OutcomeNotSent, why)
	default:
		w.lose(o, api.OutcomeUnknown, why)
	}
}

// eventWriter writes a server's answer into a stream that has already begun.
type eventWriter struct {
	d      *dialog
	header http.Header
	status int
	body   bytes.Buffer
}

func (e *eventWriter) Header() http.Header    { return e.header }
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

func isStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

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

// again makes a call of the proxy itself, in the session of a client.
func (w *web) again(line []byte, o *observer, account string) error {
	w.mu.Lock()
	i := slices.IndexFunc(w.last, func(c speaker) bool { return c.account == account })
	if i < 0 {
		w.mu.Unlock()
		return errors.New("no client is there")
	}
	last := w.last[i].header.Clone()
	w.mu.Unlock()
	repeat(w.proxy, last, line, true)
	o.key.session = last.Get(sessionHeader)
	last.Set("Accept", "application/json, text/event-stream")
	ctx, cancel := context.WithTimeout(context.WithValue(w.ctx, sessionKey{}, o.key.session), sendTime)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.String(), bytes.NewReader(line))
	if err != nil {
		cancel()
		return err
	}
	r.Header = last
	w.watch(o)
	w.background.Go(func() {
		defer cancel()
		rec := &discard{header: make(http.Header)}
		w.back.ServeHTTP(rec, r)
		w.unanswered(o, rec.status, false)
	})
	return nil
}

// discard is a response writer that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// answers inspects a server's response while the proxy awaits answers.
func (w *web) answers(r *http.Response) error {
	session, _ := r.Request.Context().Value(sessionKey{}).(string)
	resumed := resumes(r.Request)
	d, _ := r.Request.Context().Value(dialogKey{}).(*dialog)
	if d != nil {
		d.status, d.resumes = r.StatusCode, r.StatusCode == http.StatusOK && isStream(r.Header)
	}
	if r.Request.Method == http.MethodDelete && r.StatusCode < 300 {
		w.forget(session)
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
			_, _ = w.spoil(session, resumed, err.Error())
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
	if len(first) == maxBeside && !w.watches(resumed) {
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
		if _, spoiled := w.spoil(session, resumed, "the server said something that cannot be looked into"); spoiled {
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
	line, _ := w.insteadOf(d.o.key, false)
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
