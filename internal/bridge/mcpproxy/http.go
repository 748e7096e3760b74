package mcpproxy

import (
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
	"strings"
	"sync"
	"time"

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

// Serve serves a server over HTTP at a path of the listener, until the context ends.
func Serve(ctx context.Context, o *Options, l net.Listener, target *url.URL, path string) error {
	w := &web{proxy: newProxy(ctx, o), target: target, path: path, room: make(chan struct{}, maxRequests)}
	w.spare, w.accounts, w.calls.replays = w.again, w.known, true
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
	w.calls.loseAll()
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
		if w.calls.forgetful() && resumes(r) {
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
		w.calls.forget("") // a server without sessions begins anew
	}
	if pass, learns := w.fromClient(body, &f, d.session, d); pass != nil {
		w.back.ServeHTTP(rw, d.request(pass)) // the server's answer goes directly to the client
		if learns != nil {
			w.calls.forgo(learns)
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
