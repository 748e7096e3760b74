// Package mcpconnect connects a client that uses pipes to an MCP server over HTTP, so that
// a command can start a server that has an address.
//
// It passes messages of both sides unchanged, except for line ends within a message. It does
// not support server/discover: it speaks the protocols that begin a session. It follows no
// redirects and logs in nowhere; credentials come in the headers that it is given.
package mcpconnect

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Options are the inputs of a connection.
type Options struct {
	// URL is the server's address. Headers are sent with each request.
	URL     string
	Headers map[string]string
	In      io.Reader
	Out     io.Writer
	Log     *slog.Logger
}

const (
	// maxMessage bounds a message of either side.
	maxMessage = 32 << 20
	// noteTime bounds the delivery of a message that needs no answer, and byeTime the end
	// of the session.
	noteTime = 30 * time.Second
	byeTime  = 2 * time.Second
	// againAfter is the pause before an ended stream is resumed, unless the server sets
	// another one, and longest the longest such pause. For an answer, a stream that brings
	// nothing is resumed maxAgain times.
	againAfter = time.Second
	longest    = 30 * time.Second
	maxAgain   = 5
	// beginTime bounds the start of a session; all other messages wait for it.
	beginTime = time.Minute
	// maxOpen bounds the requests that await an answer.
	maxOpen = 256
	// tryTime bounds a trial, and maxPage the server's description of its logins.
	tryTime = 20 * time.Second
	maxPage = 1 << 20
)

type link struct {
	o    *Options
	http *http.Client

	out sync.Mutex // of the client's output

	mu sync.Mutex
	// session and version come from the server, and are "" before.
	session, version string
}

func newLink(o *Options) *link {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // a stream's news are of now
	return &link{o: o, http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Run serves the client until its input ends.
func Run(ctx context.Context, o *Options) error {
	l := newLink(o)
	defer l.http.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer func() {
		cancel()
		work.Wait()
		l.bye(context.WithoutCancel(ctx))
	}()
	open := make(chan struct{}, maxOpen)
	lines := bufio.NewScanner(o.In)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		m := read(line)
		switch {
		case m.Method == "server/discover" && m.asks():
			// A protocol without sessions uses headers of its own. On this error, a client
			// falls back to one with sessions.
			l.tell(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID))
		case m.Method == "initialize" || !m.asks():
			// Later messages depend on it.
			l.take(ctx, line, m)
		default:
			select {
			case open <- struct{}{}:
				work.Go(func() {
					defer func() { <-open }()
					l.take(ctx, line, m)
				})
			default:
				l.tell(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"ocipd: too many requests await an answer"}}`, m.ID))
			}
		}
		if m.Method == "notifications/initialized" {
			work.Go(func() { l.listen(ctx) })
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot read the client: %w", err)
	}
	return nil
}

// ErrLogin means that a server requires a login.
var ErrLogin = errors.New("the server wants a login")

// Try begins a session, has the server list its tools, and ends the session. A server that
// publishes where clients log in requires a login, unless a header already authenticates.
func Try(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	l := newLink(o)
	defer l.http.CloseIdleConnections()
	defer l.bye(context.WithoutCancel(ctx))
	if !slices.ContainsFunc(slices.Collect(maps.Keys(o.Headers)), isAuthorization) && l.login(ctx) {
		return ErrLogin
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"ocipd","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
	} {
		asked := read([]byte(line))
		var got message
		if err := l.ask(ctx, []byte(line), asked, func(m message, _ []byte) {
			if m.answers(asked) {
				got = m
			}
		}); err != nil {
			return err
		}
		if asked.asks() && got.Result == nil {
			return fmt.Errorf("the server refuses %s", asked.Method)
		}
	}
	return nil
}

func isAuthorization(header string) bool { return strings.EqualFold(header, "Authorization") }

// login reports whether the server publishes where clients log in, as in RFC 9728.
func (l *link) login(ctx context.Context) bool {
	u, err := url.Parse(l.o.URL)
	if err != nil {
		return false
	}
	const at = "/.well-known/oauth-protected-resource"
	for _, path := range []string{at + strings.TrimSuffix(u.Path, "/"), at} {
		page := url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), http.NoBody)
		if err != nil {
			return false
		}
		answer, err := l.http.Do(r)
		if err != nil {
			return false
		}
		var said struct {
			Servers []string `json:"authorization_servers"`
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxPage))
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode == http.StatusOK && json.Unmarshal(text, &said) == nil && len(said.Servers) > 0 {
			return true
		}
	}
	return false
}

// message holds the relevant members of a frame.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Result jsontext.Value `json:"result"`
}

// read parses a frame. An invalid frame counts as one that awaits no answer, and passes.
func read(line []byte) (m message) {
	if json.Unmarshal(line, &m) != nil || m.ID.Kind() == 'n' {
		m.ID = nil
	}
	return m
}

func (m *message) asks() bool { return m.Method != "" && m.ID != nil }

// answers reports whether m is the answer to another message. Strings have several spellings in JSON.
func (m *message) answers(to message) bool {
	if m.Method != "" || m.ID == nil || to.ID == nil {
		return false
	}
	if m.ID.Kind() != '"' || to.ID.Kind() != '"' {
		return bytes.Equal(m.ID, to.ID)
	}
	is, err := jsontext.AppendUnquote(nil, m.ID)
	want, wrong := jsontext.AppendUnquote(nil, to.ID)
	return err == nil && wrong == nil && bytes.Equal(is, want)
}

// take has the server answer a frame. If that fails, it answers with an error.
func (l *link) take(ctx context.Context, line []byte, m message) {
	whole := ctx
	if limit := noteTime; m.Method == "initialize" || !m.asks() {
		if m.asks() {
			limit = beginTime
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := l.ask(ctx, line, m, func(_ message, line []byte) { l.tell(line) })
	switch {
	case err == nil || whole.Err() != nil && m.asks():
	case m.asks():
		text, _ := jsontext.AppendQuote(nil, "ocipd: "+err.Error()) // it is made valid
		l.tell(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}`, m.ID, text))
	default:
		l.o.Log.Warn("the server has not taken a message", "error", err)
	}
}

// tell writes to the client.
func (l *link) tell(line []byte) {
	l.out.Lock()
	defer l.out.Unlock()
	_, _ = l.o.Out.Write(append(line, '\n')) // a client that does not read has ended, and the input ends too
}

// request makes a request with all headers.
func (l *link) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, l.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range l.o.Headers {
		r.Header.Set(name, value)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != "" {
		r.Header.Set("Mcp-Session-Id", l.session)
	}
	if l.version != "" {
		r.Header.Set("Mcp-Protocol-Version", l.version)
	}
	return r, nil
}

// ask sends a frame, and passes on the server's messages. If it returns nil, the server has
// answered a request.
func (l *link) ask(ctx context.Context, line []byte, m message, tell func(message, []byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := l.post(ctx, line)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it has been read as far as needed
	if err := problem(answer); err != nil {
		return err
	}
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" && m.Method == "initialize" {
		l.mu.Lock()
		l.session = id
		l.mu.Unlock()
	}
	answered := !m.asks()
	said := func(data []byte) {
		data = oneLine(data)
		got := read(data)
		if got.answers(m) && !answered {
			answered = true
			l.begun(m, got)
			// The server may leave the stream open after the answer, without further messages.
			time.AfterFunc(noteTime, cancel)
		}
		tell(got, data)
	}
	switch kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind {
	case "text/event-stream":
		s := stream{said: said}
		err := s.read(answer.Body)
		for n := 0; !answered && s.last != "" && n < maxAgain && ctx.Err() == nil; n++ {
			if err = s.pause(ctx); err == nil {
				_, err = l.follow(ctx, &s)
			}
		}
		if !answered {
			return errors.Join(errors.New("the server's stream ended without an answer"), err)
		}
	case "application/json":
		data, err := io.ReadAll(io.LimitReader(answer.Body, maxMessage+1))
		if err != nil {
			return err
		}
		if len(data) > maxMessage {
			return fmt.Errorf("the server's answer is longer than %d bytes", maxMessage)
		}
		if len(bytes.TrimSpace(data)) > 0 {
			said(data)
		}
	}
	if !answered {
		return errors.New("the server has not answered")
	}
	return nil
}

// post sends a message, and returns the server's response.
func (l *link) post(ctx context.Context, line []byte) (*http.Response, error) {
	r, err := l.request(ctx, http.MethodPost, line)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return l.http.Do(r)
}

// begun notes the version of the session.
func (l *link) begun(asked, got message) {
	var result struct {
		Version string `json:"protocolVersion"`
	}
	if asked.Method != "initialize" || json.Unmarshal(got.Result, &result) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = result.Version
}

// problem turns an answer's status into an error.
func problem(answer *http.Response) error {
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrLogin, status(answer))
	case answer.StatusCode == http.StatusNotFound && answer.Request.Header.Get("Mcp-Session-Id") != "":
		return errors.New("the server has ended the session: start it again")
	case answer.StatusCode/100 == 3:
		return fmt.Errorf("the server is elsewhere: %s", status(answer))
	case answer.StatusCode/100 != 2:
		return fmt.Errorf("the server says %s", status(answer))
	}
	return nil
}

// status describes an answer's status in fixed words, because a server's own text would
// reach people and their terminals.
func status(answer *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode)))
}

// oneLine puts a frame on one line. Line ends can only be between members.
func oneLine(data []byte) []byte {
	data = bytes.TrimSpace(data)
	return bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, data)
}

// listen receives the server's own messages, if it has a stream for them.
func (l *link) listen(ctx context.Context) {
	s := stream{said: func(data []byte) { l.tell(oneLine(data)) }}
	for {
		has, err := l.follow(ctx, &s)
		if !has && err == nil || s.pause(ctx) != nil {
			return
		}
	}
}

// follow reads the server's own stream, or resumes it, and reports whether there is one.
func (l *link) follow(ctx context.Context, s *stream) (has bool, err error) {
	r, err := l.request(ctx, http.MethodGet, nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	answer, err := l.http.Do(r)
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }() // it has been read as far as needed
	if answer.StatusCode/100 == 4 || problem(answer) == nil && !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return false, nil
	}
	if err := problem(answer); err != nil {
		return false, err
	}
	return true, s.read(answer.Body)
}

// bye ends the session.
func (l *link) bye(ctx context.Context) {
	l.mu.Lock()
	begun := l.session != ""
	l.mu.Unlock()
	if !begun {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, byeTime)
	defer cancel()
	r, err := l.request(ctx, http.MethodDelete, nil)
	if err != nil {
		return
	}
	if answer, err := l.http.Do(r); err == nil {
		_ = answer.Body.Close() // the answer changes nothing
	}
}

// stream reads events.
type stream struct {
	said func(data []byte)
	// last is the id of the last event, and retry the pause before the stream is resumed.
	last  string
	retry time.Duration
}

// read reads events until they end.
func (s *stream) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxMessage)
	lines.Split(eventLines)
	var data []byte
	has := false
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if has && len(bytes.TrimSpace(data)) > 0 {
				s.said(data)
			}
			data, has = nil, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if has {
				data = append(data, '\n')
			}
			if data, has = append(data, value...), true; len(data) > maxMessage {
				return fmt.Errorf("the server said something longer than %d bytes", maxMessage)
			}
		case "id":
			if !bytes.Contains(value, []byte{0}) {
				s.last = string(value)
			}
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				s.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return lines.Err()
}

// eventLines splits a stream of events into lines, which end in CR, LF or both.
func eventLines(data []byte, end bool) (advance int, line []byte, err error) {
	at := bytes.IndexAny(data, "\r\n")
	switch {
	case at < 0 && end && len(data) > 0:
		return len(data), data, nil
	case at < 0:
		return 0, nil, nil
	case data[at] == '\n':
		return at + 1, data[:at], nil
	case at+1 < len(data) && data[at+1] == '\n':
		return at + 2, data[:at], nil
	case at+1 == len(data) && !end:
		return 0, nil, nil // the other half may come
	}
	return at + 1, data[:at], nil
}

// pause waits before a stream is resumed.
func (s *stream) pause(ctx context.Context) error {
	wait := againAfter
	if s.retry > 0 {
		wait = min(s.retry, longest)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
