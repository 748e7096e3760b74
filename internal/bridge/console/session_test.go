package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
)

// A link works once and for a minute, its file is the user's alone and goes with it, and a session
// ends after its time.
func TestLink(t *testing.T) {
	w := begin(t, acme)
	told, err := Link(t.Context(), w.control)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(told.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file is %v, %v", info, err)
	}
	if text, err := os.ReadFile(told.File); err != nil || !bytes.Contains(text, []byte(told.Link)) {
		t.Errorf("the file leads to %q, %v", text, err)
	}
	_, code, _ := strings.Cut(told.Link, "#")
	r := w.request(begins, `{}`, code)
	of, _ := claimOf(r)
	status, body := w.send(r)
	var s struct {
		Person string `json:"person"`
	}
	if err := json.Unmarshal(body, &s); err != nil || status != http.StatusOK || s.Person != fmt.Sprint("uid:", os.Geteuid()) {
		t.Fatalf("%d %s", status, body)
	}
	if _, err := os.Stat(told.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	for range 2 {
		if status, body := w.post(begins, `{}`, code); status != http.StatusUnauthorized || !bytes.Contains(body, []byte("used before")) {
			t.Errorf("a second time: %d %s", status, body)
		}
	}
	if got := w.records("console_link_reused"); len(got) == 0 {
		t.Error("the second use is not on record")
	}
	late := w.code()
	w.clock.forward(linkTime)
	if status, body := w.post(begins, `{}`, late); status != http.StatusUnauthorized || !bytes.Contains(body, []byte("older than a minute")) {
		t.Errorf("late: %d %s", status, body)
	}
	key := of.session(code)
	w.call(key, "kernel.status", map[string]any{}, nil)
	w.clock.forward(sessionTime - linkTime)
	if status, _ := w.post("/call", `{"method":"kernel.status"}`, key); status != http.StatusUnauthorized {
		t.Errorf("after %s: %d", sessionTime, status)
	}
}

// A request has to be proven by the session's key, over its method, path, nonce and body, and once. The
// console proves in its answer that it has the key too. Neither the link's key nor the session's is sent.
func TestProof(t *testing.T) {
	w := begin(t, acme)
	by := func(key, text string) string {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(text))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	code, nonce := w.code(), "AAAAAAAAAAAAAAAAAAAAAA"
	send := func(path, header, body string) (status int, proof string) {
		t.Helper()
		r := w.request(path, body, "")
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		answer, err := w.browser().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, answer.Header.Get("Ocipd-Proof")
	}
	name := func(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }
	header := func(key, nonce, path, body string) string {
		return "Proof " + name(key) + "." + nonce + "." + by(key, "ocipd console request\x00POST\n"+path+"\n"+nonce+"\n"+body)
	}
	if status, proof := send(begins, header(code, nonce, begins, "{}"), "{}"); status != http.StatusOK || proof != by(code, "ocipd console answer\x00"+nonce) {
		t.Fatalf("the link: %d, proof %q", status, proof)
	}
	key := by(code, "ocipd console session\x00"+nonce)
	const call = `{"method":"kernel.status"}`
	good := header(key, nonce, "/call", call)
	if status, proof := send("/call", good, call); status != http.StatusOK || proof != by(key, "ocipd console answer\x00"+nonce) {
		t.Fatalf("a call: %d, proof %q", status, proof)
	}
	fresh := func(n byte) string { return base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{n}, 16)) }
	for what, tc := range map[string]struct{ path, header, body string }{
		"a repeat":                     {"/call", good, call},
		"another body":                 {"/call", header(key, fresh(1), "/call", `{}`), call},
		"another path":                 {"/call", header(key, fresh(2), "/health", call), call},
		"another target":               {"/call?x", header(key, fresh(3), "/call", call), call},
		"another key":                  {"/call", header(code, fresh(4), "/call", call), call},
		"the name of the session":      {"/call", "Proof " + name(key) + "." + fresh(5) + "." + by(name(key), "ocipd console request\x00POST\n/call\n"+fresh(5)+"\n"+call), call},
		"another nonce":                {"/call", strings.Replace(header(key, fresh(6), "/call", call), fresh(6), fresh(7), 1), call},
		"the proof of an answer":       {"/call", "Proof " + name(key) + "." + fresh(8) + "." + by(key, "ocipd console answer\x00"+fresh(8)), call},
		"a nonce written another way":  {"/call", header(key, "AAAAAAAAAAAAAAAAAAAAAB", "/call", call), call},
		"a short nonce":                {"/call", header(key, "AAAA", "/call", call), call},
		"no proof":                     {"/call", "Proof " + name(key) + "." + fresh(9) + ".", call},
		"no header":                    {"/call", "", call},
		"the key itself":               {"/call", "Bearer " + key, call},
		"the session's key for a link": {begins, header(key, fresh(10), begins, "{}"), "{}"},
	} {
		if status, proof := send(tc.path, tc.header, tc.body); status != http.StatusUnauthorized || proof != "" {
			t.Errorf("%s: %d, proof %q", what, status, proof)
		}
	}
	if len(w.records("console_session_refused")) == 0 {
		t.Error("no refusal is on record")
	}
	if status, _ := send("/prove", header(key, fresh(11), "/prove", "{}"), "{}"); status != http.StatusOK {
		t.Errorf("a proof alone: %d", status)
	}
	w.clock.forward(sessionTime)
	if status, proof := send("/prove", header(key, fresh(12), "/prove", "{}"), "{}"); status != http.StatusUnauthorized || proof != "" {
		t.Errorf("after the end: %d, proof %q", status, proof)
	}
}

// A session remembers its requests within bounds: with the last one it ends.
func TestProofsOfASession(t *testing.T) {
	s := sessions{now: time.Now}
	s.begin("key")
	c := claim{key: digestOf("key")}
	for n := range maxProofs {
		binary.LittleEndian.PutUint32(c.nonce[:], uint32(n))
		if !s.once(c) {
			t.Fatalf("request %d is refused", n)
		}
	}
	if s.once(c) {
		t.Error("a repeat is taken")
	}
	if _, _, ok := s.find(c.key); !ok {
		t.Error("a repeat ends the session")
	}
	c.nonce[15] = 1
	if s.once(c) {
		t.Error("a request beyond the bound is taken")
	}
	if _, _, ok := s.find(c.key); ok {
		t.Error("the session has not ended")
	}
}

// There is never a cookie, and every answer has the headers, whatever it is.
func TestCookieless(t *testing.T) {
	w := begin(t, acme)
	key := w.session()
	browser := w.browser()
	look := func(r *http.Request) {
		t.Helper()
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if len(answer.Header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s %s sets a cookie", r.Method, r.URL)
		}
		for name, value := range headers {
			if got := answer.Header.Values(name); len(got) != 1 || got[0] != value {
				t.Errorf("%s %s: %s is %q", r.Method, r.URL, name, got)
			}
		}
	}
	for _, path := range []string{"/session", "/prove", "/call", "/health", "/texts", "/decide", "/enrol", "/nothing"} {
		for _, by := range []string{key, "", "wrong"} {
			r := w.request(path, `{"method":"kernel.status"}`, by)
			r.Header.Set("Cookie", "session="+key)
			look(r)
			other := r.Clone(t.Context())
			other.Host = "evil.example"
			other.Body, other.ContentLength = nil, 0
			look(other)
		}
	}
	for _, path := range []string{"/", "/app.js", "/app.css", "/icon.svg", "/session", "/favicon.ico"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.place.Origin()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		look(r)
	}
	// A cookie opens nothing.
	r := w.request("/call", `{"method":"kernel.status"}`, "")
	r.Header.Set("Cookie", "key="+key+"; Authorization="+proof(key, http.MethodPost, "/call", `{"method":"kernel.status"}`))
	answer, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a cookie: %d", answer.StatusCode)
	}
}

// Bodies are read strictly and within bounds, and a fault is named.
func TestBodies(t *testing.T) {
	w := begin(t, acme)
	key := w.session()
	for _, tc := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/call", `{"method":"kernel.status","extra":1}`, 400, `"path":"extra"`},
		{"/call", `{"method":"kernel.status","method":"audit.query"}`, 400, `"path":"method"`},
		{"/call", `{"method":"audit.query","params":{"after":1}}`, 400, `after`},
		{"/call", `{"method":"audit.query","params":{"limit":1,"limit":2}}`, 400, `limit`},
		{"/call", `{"method":"audit.query","params":{"limit":5000}}`, 400, `limit`},
		{"/call", `{"method":7}`, 400, `"path":"method"`},
		{"/call", `{}`, 400, `"path":"method"`},
		{"/call", ``, 400, `INVALID_PARAMS`},
		{"/call", `{"method":"kernel.status"} {}`, 400, `INVALID_PARAMS`},
		{"/call", "{\"method\":\"kernel.\xff\"}", 400, `INVALID_PARAMS`},
		{"/call", `{"method":"sending.resume","params":{"agent":"it's"}}`, 403, `"command":"ocipd resume --agent 'it'\\''s'"`},
		{"/call", `{"method":"sending.resume"}`, 403, `"command":"ocipd resume"`},
		{"/call", `{"method":"sending.resume","params":{"channel":"telegram","note":"go on"}}`, 403, `"command":"ocipd resume --channel telegram --note 'go on'"`},
		{"/call", `{"method":"approval.resolve","params":{"approvalId":"x","decision":"deny","digest":"y"}}`, 403, `"command":"ocipd approvals deny x"`},
		{"/call", `{"method":"agent.start","params":{"agent":"it's"}}`, 403, `"command":"ocipd call agent.start '{\"agent\":\"it'\\''s\"}'"`},
		{"/call", `{"method":"approval.resolve","params":{}}`, 403, `FORBIDDEN`},
		{"/call", `{"method":"audit.tail"}`, 403, `FORBIDDEN`},
		{"/call", `{"method":"` + strings.Repeat("x", maxBody) + `"}`, 413, `1048576`},
		{"/decide", `{"approvalId":"x","decision":"approve"}`, 400, `digest`},
		{"/decide", `{"approvalId":"x","decision":"perhaps","digest":"x"}`, 400, `decision`},
		{"/texts", `{"approvalId":"x","decision":"approve","note":"` + strings.Repeat("x", 1025) + `"}`, 400, `note`},
		{"/texts", `{"approvalId":"none","decision":"approve"}`, 200, `NOT_FOUND`},
		{"/stream", `{"after":-1}`, 400, `"path":"after"`},
		{"/prove", `{"nonce":"AAAA"}`, 400, `"path":"nonce"`},
		{"/enrol", `{"code":"1","spki":"%%","credentialId":""}`, 400, `"path":"spki"`},
		{"/health", `[]`, 400, `INVALID_PARAMS`},
	} {
		if status, body := w.post(tc.path, tc.body, key); status != tc.status || !bytes.Contains(body, []byte(tc.want)) {
			t.Errorf("%s %.80s: %d %s, want %d %s", tc.path, tc.body, status, body, tc.status, tc.want)
		}
	}
}

// follow opens a stream and returns its lines.
func (w *world) follow(ctx context.Context, key, body string) <-chan map[string]any {
	w.Helper()
	answer, err := w.browser().Do(w.request("/stream", body, key).WithContext(ctx))
	if err != nil {
		w.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		w.Fatalf("the stream: %s", answer.Status)
	}
	lines := make(chan map[string]any, 1<<14)
	go func() {
		defer close(lines)
		defer answer.Body.Close()
		scanner := bufio.NewScanner(answer.Body)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			var one map[string]any
			if json.Unmarshal(scanner.Bytes(), &one) == nil {
				lines <- one
			}
		}
	}()
	return lines
}

// next is the next line of a kind.
func next(t *testing.T, lines <-chan map[string]any, kind string) map[string]any {
	t.Helper()
	for one := range lines {
		if one["kind"] == kind {
			return one
		}
	}
	t.Fatalf("the stream ended without %s", kind)
	return nil
}

// seq is the number of a record's line.
func seq(line map[string]any) int {
	record, _ := line["record"].(map[string]any)
	n, _ := record["seq"].(float64)
	return int(n)
}

// All pages are told the same; a page that comes later is told all that it has missed; and a daemon
// that goes and comes back is told of, with nothing lost.
func TestStream(t *testing.T) {
	w := begin(t, signing)
	key := w.session()
	w.hold("I promise the bridge by Friday")
	whole := w.follow(t.Context(), key, `{"after":0}`)
	last := 0
	for want := 1; want <= 8; want++ {
		if last = seq(next(t, whole, "record")); last != want {
			t.Fatalf("record %d, want %d", last, want)
		}
	}
	live := w.follow(t.Context(), key, `{}`)
	if one := next(t, live, "request"); one["why"] != "commitment" {
		t.Errorf("the request is %v", one)
	}
	next(t, live, "caught")
	id := w.hold("I promise the harbour by Friday")
	if a, _ := next(t, live, "request")["approval"].(map[string]any); a["approvalId"] != id {
		t.Errorf("told is %v", a)
	}
	w.stop()
	if one := next(t, live, "gone"); one["since"] == "" || one["because"] == "" {
		t.Errorf("gone is %v", one)
	}
	if status, body := w.post("/call", `{"method":"kernel.status"}`, key); status != http.StatusServiceUnavailable && status != http.StatusForbidden {
		t.Errorf("without a daemon: %d %s", status, body)
	}
	if status, body := w.post("/stream", `{}`, key); status != http.StatusServiceUnavailable {
		t.Errorf("without a daemon: %d %s", status, body)
	}
	w.start()
	next(t, live, "back")
	next(t, live, "status")
	next(t, live, "caught")
	w.hold("I promise the tower by Friday")
	before := last
	for before < last+3 {
		if n := seq(next(t, whole, "record")); n != before+1 {
			t.Fatalf("record %d comes after %d", n, before)
		}
		before++
	}
}

// A page that does not read is ended at its bound, and the others are not delayed.
func TestSlowPage(t *testing.T) {
	ended := false
	s := &stream{wake: make(chan struct{}, 1), end: func() { ended = true }}
	other := &stream{wake: make(chan struct{}, 1), end: func() { t.Error("a page that reads is ended") }}
	h := newHub(nil, nil)
	h.pages[s], h.pages[other] = true, true
	text := bytes.Repeat([]byte("x"), 1<<20)
	for range 5 {
		h.tell(text)
		batch, _ := other.take()
		other.wrote(len(batch))
	}
	if _, over := s.take(); !ended || !over {
		t.Error("a page that does not read is kept")
	}
	if s.waiting <= maxQueue || len(s.lines) > 0 {
		t.Errorf("%d bytes and %d lines are kept", s.waiting, len(s.lines))
	}
}

// failing is a listener that fails for a while.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return l.Listener.Accept()
}

// Commands that say nothing take all seats of the socket and no more: one more is told so, and there
// is room when one of them ends. The console goes on after errors of the system.
func TestManyCommands(t *testing.T) {
	w := begin(t, acme)
	var idle []net.Conn
	for range maxCommands {
		c, err := net.Dial("unix", w.control)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	if _, err := Link(t.Context(), w.control); err == nil || !strings.Contains(err.Error(), "answers 64 commands already") {
		t.Errorf("one more command: %v", err)
	}
	idle[0].Close()
	within(t, func() bool { _, err := Link(t.Context(), w.control); return err == nil })

	path := w.path("run/other.sock")
	l, err := ListenControl(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.console.serveControl(t.Context(), &failing{l, []error{syscall.EMFILE, syscall.ECONNABORTED}})
	}()
	if _, err := Link(t.Context(), path); err != nil {
		t.Errorf("after errors: %v", err)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}

// The address is made once, and a file that is none is refused.
func TestPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.json")
	first, err := OpenPlace(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := OpenPlace(t.Context(), path); err != nil || again != first {
		t.Errorf("again: %+v, %v; was %+v", again, err, first)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	pages, err := first.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, l := range pages {
			_ = l.Close()
		}
	}()
	if _, err := first.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "another program listens") {
		t.Errorf("a second console: %v", err)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add([]byte(`{"host":"0123456789abcdef.localhost","port":20000}`))
	f.Add([]byte(`{"host":"0123456789ABCDEF.localhost","port":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePlace(text)
		if err == nil && (len(p.Host) != 16+len(domain) || !strings.HasSuffix(p.Host, domain) || strings.Trim(p.Host[:16], "0123456789abcdef") != "" || p.Port == 0) {
			t.Errorf("%s is %+v", text, p)
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"approvalId":"x","decision":"approve","digest":"d","assertion":{"credentialId":"AAAA"}}`))
	f.Add([]byte(`{"method":"x","method":"y"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if p, no := parse[made](body); no == nil && (p.ApprovalID == "" || len(p.Note) > api.MaxNote) {
			t.Errorf("%q is %+v", body, p)
		} else if no != nil && (no.status != http.StatusBadRequest || no.Message == "") {
			t.Errorf("%q is refused as %+v", body, no)
		}
		_, _ = parse[called](body)
	})
}

func FuzzPasskeys(f *testing.F) {
	f.Add([]byte(`{"passkeys":[{"credentialId":"AAAA","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHeTqnIGE7lMXhdVhxQsZ3kP0bV3rbN4y3Pnc0gwLZSM"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p passkeys
		if parsePasskeys(text, &p) != nil {
			return
		}
		for _, k := range p.Passkeys {
			if _, err := p.find(k.CredentialID); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
