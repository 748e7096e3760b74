package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// webServer is an MCP server over HTTP that records its requests.
type webServer struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	last http.Header
	// later is the content of GET streams, and stream the answer to a call named stream.
	later chan string
	// info is a further part of its description of itself.
	info string
}

const streamed = ": hello\r\nevent: message\r\nid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\r\ndata:  \"params\":{}}\r\n\r\n" +
	"id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"TEXT\"}]}}\n\n"

func newWebServer(t *testing.T) *webServer {
	w := &webServer{later: make(chan string, 1)}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *webServer) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.got, w.last = append(w.got, r.Method+" "+string(body)), r.Header.Clone()
	w.mu.Unlock()
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &m)
	say := strings.NewReplacer("ID", string(m.ID), "TEXT", "done")
	switch {
	case r.Method == http.MethodGet:
		rw.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(rw).Flush()
		select {
		case text := <-w.later:
			fmt.Fprint(rw, text)
		case <-r.Context().Done():
		}
	case r.Method == http.MethodDelete:
		rw.WriteHeader(http.StatusNoContent)
	case m.Method == "initialize":
		rw.Header().Set("Mcp-Session-Id", "s1")
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprintf(rw, `{ "jsonrpc":"2.0","id":%s, "result":{"capabilities":{"x":1.50}%s}}`, m.ID, w.info)
	case m.ID == nil:
		rw.WriteHeader(http.StatusAccepted)
	case m.Params.Name == "move":
		http.Redirect(rw, r, "/elsewhere", http.StatusTemporaryRedirect)
	case m.Params.Name == "history" && strings.Contains(string(body), "resume"):
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "id: 7\ndata:\n\n")
	case strings.Contains(string(body), "stream"):
		rw.Header().Set("Content-Type", "Text/Event-Stream")
		fmt.Fprint(rw, say.Replace(streamed))
	case m.Params.Name == "big":
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"x":%q}}`, m.ID, strings.Repeat("x", 20<<20))
	default:
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, m.ID)
	}
}

func (w *webServer) calls() (got []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.got {
		if strings.Contains(line, "tools/call") {
			got = append(got, line)
		}
	}
	return got
}

// webTrial is a proxy in front of such a server.
type webTrial struct {
	*proxyTrial
	server *webServer
	at     string
}

func newWebTrial(t *testing.T, args ...string) *webTrial {
	t.Helper()
	return newWebTrialOf(t, newProxyTrial(t), args...)
}

func newWebTrialOf(t *testing.T, p *proxyTrial, args ...string) *webTrial {
	t.Helper()
	w := &webTrial{proxyTrial: p, server: newWebServer(t)}
	command := []string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--map", filepath.Join(p.dir, "chat.yaml"), "--listen", "127.0.0.1:0", "--url", w.server.URL + "/mcp"}
	s := p.open(append(command, args...), asProgram+"=1")
	t.Cleanup(func() { _ = s.cmd.Process.Signal(os.Interrupt) })
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w.at = strings.TrimSpace(line)
	return w
}

func (w *webTrial) ask(method, body string, edit func(*http.Request)) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.at, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s1")
	r.Header.Set("Authorization", "Bearer x")
	if edit != nil {
		edit(r)
	}
	got, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = got.Body.Close() })
	return got
}

func (w *webTrial) post(body string) (text string) {
	w.t.Helper()
	got := w.ask(http.MethodPost, body, nil)
	said, err := io.ReadAll(got.Body)
	if err != nil {
		w.t.Fatalf("%s is answered %q, %v", body, said, err)
	}
	return string(said)
}

// If the peer speaks another protocol the command ends with an error, and if that is unclear it warns.
func TestProxyOverHTTPWantsMCP(t *testing.T) {
	t.Parallel()
	p := newProxyTrial(t)
	var status atomic.Int32
	peer := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n := status.Load(); n != 0 {
			rw.WriteHeader(int(n))
			return
		}
		// Like an A2A server, which knows message/send and no initialize.
		var m struct{ ID json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&m)
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
	}))
	t.Cleanup(peer.Close)
	run := func() (said string, err error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--listen", "127.0.0.1:0", "--url", peer.URL)
		cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+p.dir, "GORACE=atexit_sleep_ms=0")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err == nil {
			said = line // it serves
			_ = cmd.Process.Signal(os.Interrupt)
		}
		err = cmd.Wait()
		return said + stderr.String(), err
	}
	if said, err := run(); err == nil || !strings.Contains(said, "does not speak MCP") || strings.Contains(said, "http://127.0.0.1:0/") {
		t.Errorf("before an A2A server: %s, %v", said, err)
	}
	for _, n := range []int32{403, 503} {
		status.Store(n)
		if said, _ := run(); !strings.HasPrefix(said, "http://") || !strings.Contains(said, "it is not known whether the server speaks MCP") {
			t.Errorf("before one that answers %d: %s", n, said)
		}
	}
}

// The map of a server over HTTP is found by the server's description of itself, with an
// address and with a command: its messages go to the map's recipients.
func TestProxyFindsMapsOverHTTP(t *testing.T) {
	p := newProxyTrial(t)
	server := newWebServer(t)
	server.info = `,"protocolVersion":"2025-06-18","serverInfo":{"name":"github-mcp-server","version":"1"}`
	const begin = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	comment := call(1, "add_issue_comment", `{"owner":"Acme","repo":"widgets","issue_number":12,"body":"Hello"}`)
	proxy := []string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket}
	decided := func(way string, n int) {
		t.Helper()
		found := p.records(audit.Record{ActionType: audit.ActionExchange})
		if len(found) != n || len(server.calls()) != n {
			t.Fatalf("%s: on record are %+v, and the server got %s", way, found, server.calls())
		}
		if r := found[n-1]; r.SessionKey != "github:acme/widgets#12" || r.Details["map"] != "github" {
			t.Errorf("%s: on record is %+v", way, r)
		}
	}
	w := &webTrial{proxyTrial: p, server: server}
	s := p.open(append(proxy, "--listen", "127.0.0.1:0", "--url", server.URL+"/mcp"), asProgram+"=1")
	t.Cleanup(func() { _ = s.cmd.Process.Signal(os.Interrupt) })
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w.at = strings.TrimSpace(line)
	w.post(begin)
	w.post(comment)
	decided("--url", 1)
	s = p.open(append(proxy, "--", os.Args[0], "mcp-connect", "--url", server.URL+"/mcp", "gh"), asProgram+"=1")
	s.say(begin + "\n")
	s.answer("0")
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + comment)
	if text, isError := s.answer("1"); isError {
		t.Errorf("mcp-connect: answered %q", text)
	}
	decided("mcp-connect", 2)
}

// A server over HTTP works through the proxy as without it, except for decisions.
func TestProxyOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWebTrial(t)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`, "{\n \"jsonrpc\":\"2.0\",\r\n\"id\":12345678901234567890,\"method\":\"tools/list\"}",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, strings.TrimSpace(call(1, "search", `{"query":"stream"}`)), strings.TrimSpace(call(2, "big", `{}`)),
	} {
		direct, err := http.Post(w.server.URL+"/mcp", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(direct.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = direct.Body.Close()
		got := w.ask(http.MethodPost, body, nil)
		is, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(want, is) || got.StatusCode != direct.StatusCode || got.Header.Get("Mcp-Session-Id") != direct.Header.Get("Mcp-Session-Id") || got.Header.Get("Content-Type") != direct.Header.Get("Content-Type") {
			t.Errorf("%.80s is answered %v %.200q, %v, and without the proxy %v %.200q", body, got.Status, is, err, direct.Status, want)
		}
	}
	if w.server.last.Get("Authorization") != "Bearer x" || w.server.last.Get("Mcp-Session-Id") != "s1" {
		t.Errorf("the server got %v", w.server.last)
	}
	if got := w.ask(http.MethodDelete, "", nil); got.StatusCode != http.StatusNoContent {
		t.Errorf("a session ends with %s", got.Status)
	}
	before := len(w.server.calls())
	for text, says := range map[string]string{
		call(3, "send_message", `{"to":"dave","text":"Hello"}`):  `"text":"done"`,
		call(4, "send_message", `{"to":"dave","text":"stream"}`): "id: 2\ndata: {",
		call(5, "send_message", `{"to":"eve","text":"Hello"}`):   "CROSS_ENTERPRISE_BLOCKED",
		call(6, "history", `{"channel":"dave"}`):                 `"text":"done"`,
		call(7, "history", `{"channel":"eve"}`):                  "withheld (CROSS_ENTERPRISE_BLOCKED)",
		call(8, "history", `{"channel":"eve","as":"stream"}`):    "withheld (CROSS_ENTERPRISE_BLOCKED)",
		call(9, "history", `{"channel":"dave","as":"stream"}`):   strings.NewReplacer("ID", "9", "TEXT", "done").Replace(streamed),
		call(10, "move", `{}`):                                   "cannot reach",
	} {
		if got := w.post(text); !strings.Contains(got, says) {
			t.Errorf("%s is answered %q", text, got)
		}
	}
	if got := w.server.calls()[before:]; len(got) != 7 || strings.Contains(strings.Join(got, ""), `"to":"eve"`) || !strings.Contains(strings.Join(got, ""), `Hello\n\nSent by ann's assistant`) {
		t.Errorf("the server got %s", got)
	}
	// An answer that is missing in one stream comes in the next.
	listening := w.ask(http.MethodGet, "", nil)
	if got := w.post(call(11, "history", `{"channel":"eve","as":"resume"}`)); got != "id: 7\ndata:\n\n" {
		t.Errorf("answered %q", got)
	}
	w.server.later <- strings.NewReplacer("ID", "1.1e1", "TEXT", "secret").Replace(streamed)
	if got, err := io.ReadAll(listening.Body); err != nil || strings.Contains(string(got), "secret") || !strings.Contains(string(got), "withheld") || !strings.Contains(string(got), ": hello") {
		t.Errorf("the stream says %q, %v", got, err)
	}
}

// Only the client gets through, and a message that two readers could read differently is refused.
func TestProxyOverHTTPRefuses(t *testing.T) {
	t.Parallel()
	w := newWebTrial(t)
	at, err := url.Parse(w.at)
	if err != nil {
		t.Fatal(err)
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for what, tc := range map[string]struct {
		method, body string
		edit         func(*http.Request)
		status       int
	}{
		"nothing":                {http.MethodPost, ping, nil, 200},
		"another host":           {http.MethodPost, ping, func(r *http.Request) { r.Host = "example.com" }, 403},
		"another port":           {http.MethodPost, ping, func(r *http.Request) { r.Host = "127.0.0.1:1" }, 403},
		"by name":                {http.MethodPost, ping, func(r *http.Request) { r.Host = "localhost:" + at.Port() }, 200},
		"another site":           {http.MethodPost, ping, header("Origin", "https://example.com"), 403},
		"a file":                 {http.MethodPost, ping, header("Origin", "null"), 403},
		"no site":                {http.MethodPost, ping, header("Origin", ""), 403},
		"its own":                {http.MethodPost, ping, header("Origin", "http://"+at.Host), 200},
		"another path":           {http.MethodPost, ping, func(r *http.Request) { r.URL.Path = "/mcp" }, 404},
		"a query":                {http.MethodPost, ping, func(r *http.Request) { r.URL.RawQuery = "a=b" }, 404},
		"another protocol":       {http.MethodGet, "", func(r *http.Request) { r.Header.Set("Connection", "Upgrade"); r.Header.Set("Upgrade", "websocket") }, 400},
		"another method":         {http.MethodPut, ping, nil, 405},
		"a preflight":            {http.MethodOptions, "", nil, 405},
		"another type":           {http.MethodPost, ping, header("Content-Type", "text/plain"), 415},
		"another charset":        {http.MethodPost, ping, header("Content-Type", "application/json; charset=utf-16"), 415},
		"compressed":             {http.MethodPost, ping, header("Content-Encoding", "gzip"), 415},
		"a batch":                {http.MethodPost, "[" + ping + "]", nil, 400},
		"two":                    {http.MethodPost, ping + ping, nil, 400},
		"nothing said":           {http.MethodPost, "", nil, 400},
		"members twice":          {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400},
		"another case":           {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, nil, 400},
		"no id":                  {http.MethodPost, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"send_message","arguments":{"to":"dave","text":"x"}}}`, nil, 400},
		"a byte order mark":      {http.MethodPost, "\ufeff" + ping, nil, 400},
		"no UTF-8":               {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping","x":"` + "\xff" + `"}`, nil, 400},
		"a tool by another name": {http.MethodPost, strings.TrimSpace(call(1, "Send-Message", `{"to":"dave","text":"x"}`)), nil, 200},
	} {
		got := w.ask(tc.method, tc.body, tc.edit)
		if got.StatusCode != tc.status {
			t.Errorf("%s is answered %s", what, got.Status)
		}
	}
	if got := w.server.calls(); len(got) != 0 {
		t.Errorf("the server got %s", got)
	}
	if got := w.ask(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping","x":"`+strings.Repeat("x", 33<<20)+`"}`, nil); got.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a long message is answered %s", got.Status)
	}
}

// A call that waits for a person stays open with progress messages, and a message that is
// approved after its client has gone is sent all the same, once.
func TestProxyOverHTTPHolds(t *testing.T) {
	t.Parallel()
	w := newWebTrial(t)
	const promise = `{"to":"dave","text":"I promise to do it by Friday"}`
	for id, kind := range []string{"json", "stream"} {
		got := w.ask(http.MethodPost, call(id+1, "send_message", strings.Replace(promise, "Friday", "Friday "+kind, 1)), func(r *http.Request) {
			r.Header.Set("Mcp-Name", "send_message")
			r.Header.Set("Mcp-Param-Text", "I promise")
			r.Header["Mcp_Param_Text"] = []string{"I promise"}
		})
		r := bufio.NewReader(got.Body)
		for _, want := range []string{"event: message", fmt.Sprintf(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d`, id+1)} {
			if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
				t.Fatalf("news are %q, %v", line, err)
			}
		}
		w.decide("approve", w.waiting())
		rest, err := io.ReadAll(r)
		if err != nil || !strings.Contains(string(rest), fmt.Sprintf(`"id":%d,"result":{"content":[{"type":"text","text":"done"}]}`, id+1)) {
			t.Errorf("answered %q, %v", rest, err)
		}
		if w.server.last.Get("Mcp-Param-Text") != "" || w.server.last.Get("Mcp_Param_Text") != "" || w.server.last.Get("Mcp-Name") == "" {
			t.Errorf("the server got the header %v", w.server.last)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.at, strings.NewReader(call(3, "send_message", promise)))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", "s2")
		if got, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_ = got.Body.Close()
		}
	}()
	id := w.waiting()
	leave()
	<-gone
	w.decide("approve", id)
	w.until("the message is sent", func() bool { return len(w.server.calls()) == 3 })
	w.until("the record", func() bool { return len(w.events(audit.Record{Event: "delivered"})) == 3 })
	if got := w.server.calls()[2]; !strings.Contains(got, `by Friday\n\nSent by`) || w.server.last.Get("Mcp-Session-Id") != "s2" {
		t.Errorf("the server got %s with %v", got, w.server.last)
	}
}

// A message approved for one session of a client, and one account there, is sent in no
// other: not by another client of the same proxy, not by one with another identity, and not
// after the session has ended.
func TestProxyOverHTTPCrossesNothing(t *testing.T) {
	t.Parallel()
	w := newWebTrial(t, "--hold", "1ms")
	as := func(session, account string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Mcp-Session-Id")
			if session != "" {
				r.Header.Set("Mcp-Session-Id", session)
			}
			r.Header.Set("Authorization", "Bearer "+account)
		}
	}
	say := func(method, body string, edit func(*http.Request)) string {
		said, err := io.ReadAll(w.ask(method, body, edit).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	id, sent := 0, 0
	others := map[string]func(*http.Request){
		"another session of the same account": as("s2", "x"), "another account in the session's name": as("s1", "y"), "another one in both": as("s3", "y"), "a client without a session": as("", "x"),
	}
	for _, ends := range []bool{false, true} {
		name := map[bool]string{false: "a session that goes on", true: "a session that has ended"}[ends]
		id++
		text := fmt.Sprintf("I promise to do it by Friday %d", id)
		if said := say(http.MethodPost, call(id, "send_message", fmt.Sprintf(`{"to":"dave","text":%q}`, text)), as("s1", "x")); !strings.Contains(said, "HELD") {
			t.Fatalf("%s: answered %q", name, said)
		}
		if ends {
			say(http.MethodDelete, "", as("s1", "x"))
		}
		for _, other := range others {
			id++
			if said := say(http.MethodPost, call(id, "send_message", `{"to":"dave","text":"Hello"}`), other); !strings.Contains(said, "done") {
				t.Fatalf("%s: another client is answered %q", name, said)
			}
			sent++
		}
		w.decide("approve", w.waiting())
		if !ends {
			sent++
			w.until("it is sent", func() bool { return len(w.server.calls()) == sent })
			if h := w.server.last; h.Get("Mcp-Session-Id") != "s1" || h.Get("Authorization") != "Bearer x" {
				t.Errorf("%s: it was sent with %v", name, h)
			}
			continue
		}
		// The proxy checks when one of its own requests is approved, and claims only that one.
		id++
		say(http.MethodPost, call(id, "send_message", `{"to":"dave","text":"I promise to pay on Monday"}`), as("s2", "x"))
		w.decide("approve", w.waiting())
		sent++
		w.until("the other one is sent", func() bool { return len(w.server.calls()) == sent })
		if got := w.server.calls(); strings.Contains(got[len(got)-1], "Friday") || len(w.events(audit.Record{Event: "redeemed"})) != sent-2*len(others) {
			t.Errorf("%s: it was sent: %s", name, got[len(got)-1])
		}
	}
}

// A tool call that a person approved for one session is asked about again in another, and
// allowed in its own.
func TestProxyOverHTTPCallsCrossNothing(t *testing.T) {
	t.Parallel()
	w := newWebTrialOf(t, newProxyTrialOf(t, enforcing(t)), "--hold", "1ms", "--name", "chat")
	say := func(id int, session, account string) string {
		said, err := io.ReadAll(w.ask(http.MethodPost, call(id, "deploy", `{}`), func(r *http.Request) {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Authorization", "Bearer "+account)
		}).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	if said := say(1, "s1", "x"); !strings.Contains(said, "HELD") {
		t.Fatalf("answered %q", said)
	}
	w.decide("approve", w.waiting())
	for id, other := range [][2]string{{"s2", "x"}, {"s1", "y"}} {
		if said := say(id+2, other[0], other[1]); !strings.Contains(said, "HELD") || len(w.server.calls()) != 0 {
			t.Errorf("in session %s of %s it is answered %q", other[0], other[1], said)
		}
	}
	if said := say(5, "s1", "x"); !strings.Contains(said, "done") || len(w.server.calls()) != 1 {
		t.Errorf("in its own session it is answered %q", said)
	}
}
