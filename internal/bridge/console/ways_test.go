package console

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// dimension is one thing in which requests differ: its values, and whether each is good.
type dimension []struct {
	value string
	good  bool
}

// TestConsoleWaysIn makes requests in every combination of name, page, site and proof, over each
// path, and holds the status of each; and from every kind of process.
func TestConsoleWaysIn(t *testing.T) {
	w := begin(t, acme)
	key := w.session()
	host, origin := w.place.Authority(), w.place.Origin()
	_, port, _ := net.SplitHostPort(host)
	hosts := dimension{{host, true}, {"", false}, {"localhost:" + port, false}, {"127.0.0.1:" + port, false}, {"evil.example:" + port, false}, {w.place.Host, false}, {strings.ToUpper(host), false}}
	origins := dimension{{origin, true}, {"", false}, {"null", false}, {"http://evil.example", false}, {"https://" + host, false}, {"http://" + w.place.Host + ":1", false}}
	sites := dimension{{"same-origin", true}, {"", true}, {"none", false}, {"same-site", false}, {"cross-site", false}, {"strange", false}}
	proofs := dimension{{key, true}, {"", false}, {"another", false}}
	paths := []struct {
		method, path, body string
		status             int  // if all is good
		file               bool // a file of the page, which needs no proof
	}{
		{"GET", "/", "", http.StatusOK, true},
		{"GET", "/app.js", "", http.StatusOK, true},
		{"POST", "/session", `{}`, http.StatusUnauthorized, false},
		{"POST", "/prove", `{}`, http.StatusOK, false},
		{"POST", "/call", `{"method":"kernel.status"}`, http.StatusOK, false},
		{"POST", "/texts", `{}`, http.StatusBadRequest, false},
		{"POST", "/decide", `{}`, http.StatusBadRequest, false},
		{"POST", "/enrol", `{}`, http.StatusBadRequest, false},
		{"POST", "/health", `{}`, http.StatusOK, false},
		{"POST", "/stream", `{}`, http.StatusOK, false},
	}
	n := 0
	for _, p := range paths {
		for _, h := range hosts {
			for _, o := range origins {
				for _, s := range sites {
					for _, b := range proofs {
						want := p.status
						switch {
						case h.value == "":
							want = http.StatusBadRequest // no request of HTTP/1.1
						case !h.good:
							want = http.StatusMisdirectedRequest
						case !o.good && (o.value != "" || p.method == "POST"), !s.good && (s.value != "none" || p.method == "POST"):
							want = http.StatusForbidden
						case !b.good && !p.file:
							want = http.StatusUnauthorized
						}
						headers := map[string]string{"Origin": o.value, "Sec-Fetch-Site": s.value}
						if b.value != "" {
							headers["Authorization"] = proof(b.value, p.method, p.path, p.body)
						}
						request := asking{w.address(), bytesOf(p.method, p.path, h.value, headers, p.body)}
						if status, err := request.send(); err != nil || status != want {
							t.Errorf("%s: status %d, want %d, %v", request.Text, status, want, err)
						}
						n++
					}
				}
			}
		}
	}
	t.Logf("%d requests", n)
	for _, event := range []string{"host_refused", "origin_refused", "session_refused"} {
		if len(w.records("console_"+event))+len(w.records(event)) == 0 {
			t.Errorf("%s is not on record", event)
		}
	}
}

// Framed and visiting requests for the page itself: a person's file may lead to it, and nothing may
// show it.
func TestFetchMetadata(t *testing.T) {
	w := begin(t, acme)
	for _, tc := range []struct {
		path, site, mode, dest string
		want                   int
	}{
		{"/", "none", "navigate", "document", 200},
		{"/", "cross-site", "navigate", "document", 200},
		{"/", "cross-site", "navigate", "iframe", 403},
		{"/", "same-origin", "navigate", "iframe", 403},
		{"/", "same-origin", "navigate", "frame", 403},
		{"/", "cross-site", "no-cors", "object", 403},
		{"/", "cross-site", "no-cors", "embed", 403},
		{"/", "cross-site", "cors", "empty", 403},
		{"/", "cross-site", "no-cors", "document", 403},
		{"/", "same-site", "navigate", "document", 403},
		{"/app.js", "cross-site", "navigate", "document", 403},
		{"/app.js", "cross-site", "no-cors", "script", 403},
		{"/app.js", "same-origin", "no-cors", "script", 200},
		{"/nothing", "none", "navigate", "document", 404},
		{"/index.html.bak", "none", "navigate", "document", 404},
	} {
		request := asking{w.address(), bytesOf("GET", tc.path, w.place.Authority(), map[string]string{"Sec-Fetch-Site": tc.site, "Sec-Fetch-Mode": tc.mode, "Sec-Fetch-Dest": tc.dest}, "")}
		if got, err := request.send(); err != nil || got != tc.want {
			t.Errorf("%+v: %d, %v", tc, got, err)
		}
	}
	for _, method := range []string{"HEAD", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		request := asking{w.address(), bytesOf(method, "/call", w.place.Authority(), map[string]string{"Origin": w.place.Origin()}, "")}
		if got, err := request.send(); err != nil || got != http.StatusMethodNotAllowed && got != http.StatusMisdirectedRequest && got != http.StatusNotFound {
			t.Errorf("%s: %d, %v", method, got, err)
		}
	}
}

// Each kind of process gets what it may get, on each path, and a refusal is on record.
func TestPeers(t *testing.T) {
	w := begin(t, acme)
	key := w.session()
	bodies := map[string]string{"/session": `{}`, "/prove": `{}`, "/call": `{"method":"kernel.status"}`, "/texts": `{}`, "/decide": `{}`, "/enrol": `{}`, "/stream": `{}`, "/health": `{}`}
	// Each request has a proof of its own.
	request := func(path string) asking {
		if path == "/" {
			return asking{w.address(), bytesOf("GET", "/", w.place.Authority(), nil, "")}
		}
		headers := map[string]string{"Origin": w.place.Origin(), "Sec-Fetch-Site": "same-origin", "Authorization": proof(key, "POST", path, bodies[path])}
		return asking{w.address(), bytesOf("POST", path, w.place.Authority(), headers, bodies[path])}
	}
	good := map[string]int{"/session": 401, "/prove": 200, "/call": 200, "/texts": 400, "/decide": 400, "/enrol": 400, "/stream": 200, "/health": 200, "/": 200}
	for _, tc := range []struct {
		part string
		may  bool
	}{{asks, true}, {anApp, false}, {appsChild, false}, {detached, true}, {otherUser, false}} {
		t.Run(tc.part, func(t *testing.T) {
			if tc.part == otherUser && os.Geteuid() != 0 {
				t.Skip("only root can be another user")
			}
			a := w.asker(tc.part)
			a.t = t
			before := len(w.records("console_refused"))
			for path, want := range good {
				if !tc.may {
					want = http.StatusForbidden
				}
				if got := a.status(request(path)); got != want {
					t.Errorf("%s: status %d, want %d", path, got, want)
				}
			}
			got := w.records("console_refused")[:len(w.records("console_refused"))-before]
			if tc.may && len(got) > 0 || !tc.may && len(got) == 0 {
				t.Errorf("%d refusals are on record", len(got))
			}
			for _, r := range got {
				if name, _ := r.Details["process"].(string); tc.part != otherUser && !strings.HasPrefix(name, fmt.Sprint(a.pid, "@")) {
					t.Errorf("on record is %q, and asked has process %d", name, a.pid)
				}
			}
		})
	}
}

// A connection that a process that may ask shares with an app is refused, and one whose process is
// gone.
func TestSharedAndGone(t *testing.T) {
	w := begin(t, acme)
	const body = `{"method":"kernel.status"}`
	request := bytesOf("POST", "/call", w.place.Authority(), map[string]string{"Origin": w.place.Origin(), "Authorization": proof(w.session(), "POST", "/call", body)}, body)
	c, err := net.Dial("tcp", w.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	w.asker(anApp, file)
	file.Close()
	if status := ask(t, c, request); status != http.StatusForbidden {
		t.Errorf("shared with an app: status %d", status)
	}
	if got := w.records("console_refused"); len(got) != 1 {
		t.Errorf("%d refusals are on record", len(got))
	}

	// The answer of the console is the only trace of a process that has gone.
	gone, err := net.Dial("tcp", w.address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Write(request); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	within(t, func() bool {
		return strings.Contains(w.log.String(), "no process holds the other end") || strings.Contains(w.log.String(), "another user")
	})
}

// Another user who holds as many connections as the system gives keeps no browser out.
func TestSeats(t *testing.T) {
	var s seats
	conns := make([]net.Conn, maxConnections+maxForeign)
	for i := range conns {
		conns[i], _ = net.Pipe()
		if !s.take(conns[i], i >= maxForeign) {
			t.Fatalf("there is no seat for connection %d", i)
		}
	}
	more, _ := net.Pipe()
	if s.take(more, true) || s.take(more, false) {
		t.Error("a connection beyond the limit has a seat")
	}
	s.leave(more)
	s.leave(conns[0])
	if s.take(more, true) || !s.take(more, false) {
		t.Error("a seat of others does not go to others alone")
	}
	s.leave(conns[maxForeign])
	if other, _ := net.Pipe(); s.take(other, false) || !s.take(other, true) {
		t.Error("a seat of this user does not go to this user alone")
	}

	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	w := begin(t, acme)
	key := w.session()
	w.asker(fills)
	w.call(key, "kernel.status", map[string]any{}, nil)
}
