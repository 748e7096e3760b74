package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// stream reads a stream of events while the answers to the ids are awaited, whose texts
// must not pass.
func stream(t *testing.T, text string, ids ...string) string {
	t.Helper()
	w := &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
	w.requests.opens(key{"s", "4"}, jsontext.Value("4"))
	for _, id := range ids {
		w.calls.watch(&observer{key: key{"s", id}, in: func(*frame, []byte) []byte { return []byte("withheld\n") }, tell: func([]byte) {}, spoiled: func(string) []byte { return nil }})
	}
	e := &events{w: w, ctx: context.Background(), session: "s", r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 16)}
	got, err := io.ReadAll(e)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return string(got)
}

func TestEvents(t *testing.T) {
	const long = "data: 0123456789 0123456789 0123456789\n"
	for _, text := range []string{
		"", "\n", "data: x", "data: x\n\n", ": c\r\n\r\ndata: a\rdata: b\r\r", "\ufeffdata: x\n\n", long + long + "\n" + long, "id: 1\ndata:\n\n",
		`data: {"jsonrpc":"2.0","id":4,"result":{}}` + "\n\n",
	} {
		if got := stream(t, text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	const answer = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"secret"}]}}`
	for _, text := range []string{
		"data: " + answer + "\n\n", "data:" + answer + "\r\n\r\n", "\ufeffdata: " + answer + "\n\n", "data: " + answer, "data: x\r\rdata: " + answer + "\r\r",
		"id: 1\ndata: " + strings.Replace(answer, ",", ",\ndata: ", 2) + "\n\n", "data: " + strings.Replace(answer, "3", "3.0", 1) + "\n\n",
		"data: " + strings.Replace(answer, "3", "0.3e1", 1) + "\n\n", "data: " + strings.Replace(answer, `"id":3`, `"id":3,"id":4`, 1) + "\n\n",
		"data: " + strings.Replace(answer, `"id"`, `"ID"`, 1) + "\n\n", "data: [" + answer + "]\n\n", "data: " + strings.Replace(answer, `"id"`, `"\u0069d"`, 1) + "\n\n",
		"event: message\nretry: 3\n" + "data: " + answer + "\n\n" + "data: " + answer + "\n\n",
	} {
		// A second answer reaches nobody, because clients accept one.
		got := stream(t, text, "3")
		if n := strings.Count(text, "secret") - 1; strings.Count(got, "secret") > n {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got := stream(t, "id: 1\ndata: "+answer+"\n\ndata: y\n\n", "3", "4"); got != "id: 1\nevent: message\ndata: withheld\n\n" && !strings.Contains(got, "data: withheld") {
		t.Errorf("it becomes %q", got)
	}
}

// A reader that parses a stream as browsers do finds no awaited answer in it. If no answer
// is awaited, it finds everything.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n\n"))
	f.Add([]byte(": c\r\rdata: {\"id\":3,\rdata: \"result\":{}}\r\n\r\n"))
	f.Add([]byte("\ufeffdata:{\"id\":3e0,\"result\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, watched := range []bool{false, true} {
			w := &web{proxy: newProxy(context.Background(), &Options{Now: time.Now})}
			o := &observer{key: key{"s", "3"}, in: func(*frame, []byte) []byte { return nil }, tell: func([]byte) {}, spoiled: func(string) []byte { return nil }}
			if watched {
				w.calls.watch(o)
			}
			e := &events{w: w, ctx: context.Background(), session: "s", r: bufio.NewReaderSize(bytes.NewReader(text), 16)}
			got, err := io.ReadAll(e)
			if err != nil {
				t.Fatal(err)
			}
			if !watched {
				if !bytes.Equal(got, text) && !frameIn(text, "") {
					t.Fatalf("%q becomes %q", text, got)
				}
				continue
			}
			if w.calls.awaits(o) && bytes.Contains(got, []byte(`"id":3,"result"`)) && frameIn(got, "3") {
				t.Fatalf("%q becomes %q", text, got)
			}
		}
	})
}

// frameIn reports whether a reader of events finds an answer, to one id or to any.
func frameIn(text []byte, id string) bool {
	all := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(text), "\ufeff"))
	for event := range strings.SplitSeq(all, "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if value, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		f, err := parseBody([]byte(strings.Join(data, "\n")))
		if err == nil && f.method == "" && f.id != nil && (id == "" || f.key() == id) {
			return true
		}
	}
	return false
}

func TestKeyOf(t *testing.T) {
	for _, same := range [][]string{{"3", "3.0", "30e-1", "0.3e1"}, {`"a"`, `"\u0061"`}, {"0", "-0", "0.0"}, {"12345678901234567890", `"12345678901234567890"`}, {"12345678901234567891"},
		{"3", `"3"`, `" 3\n"`, `"+3"`, `"0x3"`, `"0b11"`, `"003"`, `"3e0"`, `"3_"`}, {"0", `""`, `" "`}, {`"a3"`}, {`"1-2"`},
	} {
		for _, id := range same {
			if got, want := keyOf([]byte(id)), keyOf([]byte(same[0])); got != want {
				t.Errorf("%s is %s, and %s is %s", id, got, same[0], want)
			}
		}
	}
	if keyOf([]byte("3")) == keyOf([]byte(`"a3"`)) || keyOf([]byte("12345678901234567890")) == keyOf([]byte("12345678901234567891")) {
		t.Error("ids that differ are the same")
	}
}

// Nothing that a client could take for the awaited answer passes uninspected.
func TestAnswersInDisguise(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"id":3,"result":"secret"}`, `{"id":"3","result":"secret"}`, `{"id":" 0x3","result":"secret"}`, `{"id":"\uff13","result":"secret"}`, `{"id":[3],"result":"secret"}`,
		`{"id":null,"result":"secret"}`, `{"result":"secret"}`, `{"id":true,"error":{"message":"secret"}}`, `{"id":9,"method":"x","result":"secret"}`, `{"id":9,"method":"x","error":{"message":"secret"}}`,
		`{"id":3,"id":9,"result":"secret"}`, `{"ID":3,"id":9,"result":"secret"}`, `[{"id":3,"result":"secret"}]`, "\ufeff" + `{"id":3,"result":"secret"}`,
	} {
		var out bytes.Buffer
		s := &stdio{proxy: newProxy(t.Context(), &Options{Out: &out, Now: time.Now})}
		s.calls.watch(&observer{
			key: key{"", "3"}, tell: s.tell,
			in:      func(*frame, []byte) []byte { return []byte("withheld\n") },
			spoiled: func(string) []byte { return []byte("withheld\n") },
		})
		if err := s.readServer(strings.NewReader(line + "\n")); err != nil {
			t.Fatal(err)
		}
		s.finish()
		if out.String() != "withheld\n" {
			t.Errorf("%s becomes %q", line, out.String())
		}
	}
}

// A server with many long answers waits until they are inspected.
func TestLongAnswersWait(t *testing.T) {
	t.Parallel()
	const calls, length = 16, 4 << 20
	s := &stdio{proxy: newProxy(t.Context(), &Options{Out: io.Discard, Now: time.Now})}
	var lines []io.Reader
	var inside, most atomic.Int32
	for id := range calls {
		s.calls.watch(&observer{key: key{"", strconv.Itoa(id)}, in: func(*frame, []byte) []byte {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			return nil
		}})
		lines = append(lines, strings.NewReader(fmt.Sprintf(`{"id":%d,"result":"`, id)), io.LimitReader(endless{}, length), strings.NewReader("\"}\n"))
	}
	if err := s.readServer(io.MultiReader(lines...)); err != nil {
		t.Fatal(err)
	}
	if inside.Load() != 0 || most.Load() != 1 {
		t.Errorf("%d answers are looked into at a time, %d still", most.Load(), inside.Load())
	}
}

// A withheld answer stays withheld when it is repeated on any stream of the session, and
// the client gets the substitute in the format of that stream.
func TestWithheldStaysWithheld(t *testing.T) {
	t.Parallel()
	const answer = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"secret"}]}}`
	long := "data: " + strings.Replace(answer, "secret", "secret"+strings.Repeat("x", maxHeldLine), 1) + "\n\n"
	for name, first := range map[string]string{"too long": long, "unreadable": "data: [" + answer + "]\n\n", "refused": "data: " + answer + "\n\n"} {
		w := &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
		w.calls.replays = true
		const notice = `{"jsonrpc":"2.0","id":3,"result":{"isError":true}}`
		told := 0
		w.calls.watch(&observer{
			key: key{"s", "3"}, tell: func([]byte) { told++ },
			in:      func(*frame, []byte) []byte { return []byte(notice + "\n") },
			spoiled: func(string) []byte { return []byte(notice + "\n") },
		})
		read := func(text string) string {
			got, err := io.ReadAll(&events{w: w, ctx: t.Context(), session: "s", r: bufio.NewReaderSize(strings.NewReader(text), 64<<10)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return string(got)
		}
		if got := read(first); got != "event: message\ndata: "+notice+"\n\n" || told != 0 {
			t.Errorf("%s: it becomes %.200q, and %d answers go another way", name, got, told)
		}
		for _, again := range []string{first, "data: " + answer + "\n\n"} {
			if got := read("id: 1\n" + again); strings.Contains(got, "secret") {
				t.Errorf("%s: said again it becomes %.200q", name, got)
			}
		}
		w.calls.forget("s")
		if w.calls.watches(false) {
			t.Errorf("%s: the session has ended, and something is awaited", name)
		}
	}
}

// An answer that is not a stream is replaced as a whole.
func TestWithheldAnswerIsWhole(t *testing.T) {
	t.Parallel()
	const notice = `{"jsonrpc":"2.0","id":3,"result":{"isError":true}}`
	w := &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
	o := &observer{
		key: key{"s", "3"}, tell: func([]byte) { t.Error("it is answered another way") },
		in:      func(*frame, []byte) []byte { return nil },
		spoiled: func(string) []byte { return []byte(notice) },
	}
	w.calls.watch(o)
	d := &dialog{web: w, r: httptest.NewRequest(http.MethodPost, "/", nil), session: "s", o: o}
	r := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: d.request(nil), ContentLength: -1, Body: io.NopCloser(strings.NewReader("[1]"))}
	if err := w.answers(r); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != notice {
		t.Errorf("answered %q, %v", got, err)
	}
	// So is a failure, because clients show its text.
	for _, body := range []string{"secret", `{"id":3,"error":{"message":"secret"}}`, `{"id":null,"error":{"message":"secret"}}`} {
		w := &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
		o := *o
		o.in = func(*frame, []byte) []byte { return []byte(notice) }
		w.calls.watch(&o)
		d := &dialog{web: w, r: httptest.NewRequest(http.MethodPost, "/", nil), session: "s", o: &o}
		r := &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Request: d.request(nil), Body: io.NopCloser(strings.NewReader(body))}
		if err := w.answers(r); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != notice || r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is answered %q, %v", body, got, err)
		}
	}
}

// Cancelled reads that the server never answers use up no room, and are not answered late.
func TestCancelledReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(0, 0)
		p := newProxy(t.Context(), &Options{Now: func() time.Time { return now }})
		for n := range 2 * maxKept {
			id := strconv.Itoa(n)
			at := key{"", id}
			_, p.calls.deciding[at] = context.WithCancel(t.Context())
			p.calls.watch(&observer{key: at, in: func(_ *frame, line []byte) []byte { return line }})
			line := []byte(`{"method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
			f, err := parseBody(line)
			if err != nil {
				t.Fatal(err)
			}
			p.cancelled(line, &f, "")
		}
		if len(p.calls.observers)+len(p.calls.deciding) != 0 || len(p.calls.kept) != maxKept {
			t.Errorf("%d are awaited, %d decided about, %d kept", len(p.calls.observers), len(p.calls.deciding), len(p.calls.kept))
		}
		if instead, held := p.observed("", false, []byte(`{"id":8191,"result":{}}`)); instead != nil || !held {
			t.Error("a cancelled call is answered")
		}
		now = now.Add(keptTime + time.Second)
		if p.calls.watches(false) {
			t.Error("something is awaited for ever")
		}
	})
}

// All strings of an answer are read, and an unreadable answer does not pass.
func TestTextsOf(t *testing.T) {
	t.Parallel()
	const no = "-"
	for answer, want := range map[string]string{
		`"result":{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"x:1","text":"b"}}],"structuredContent":{"c":1}}`:                    "a/x:1/b/c",
		`"result":{"content":[{"type":"resource_link","uri":"x:1","name":"n","title":"t","description":"d","icons":[{"src":"s"}]}]}`:                               "x:1/n/t/d/s",
		`"result":{"content":[{"type":"text","text":"","annotations":{"note":"a"},"_meta":{"b":["c",{"d":"e"}]}}],"isError":true,"_meta":{"f":{"g":"h"}},"i":"j"}`: "note: a/b/c/d: e/f/g: h/i: j",
		`"result":{"structuredContent":{"from":"\u0064ave","name":["x","",null,1,true]}}`:                                                                          "from: dave/x",
		`"result":{"content":[{"type":"text","text":""}],"resultType":"complete","task":null}`:                                                                     "",
		`"result":{"resultType":"input_required","inputRequests":{"q":{"method":"m"}}}`:                                                                            "input_required/inputRequests/q/method: m",
		`"error":{"code":-32000,"message":"a","data":{"b":"c","d":["e"]}}`:                                                                                         "a/b: c/d/e",
		`"error":null,"result":{"content":[{"type":"text","text":"a"}]}`:                                                                                           "a",
		`"error":{"message":"a"},"result":{"content":[{"type":"text","text":"b"}]},"c":"d"`:                                                                        "a/b/c: d",
		`"result":"a"`:   "a",
		`"result":["a"]`: "a",
		`"x":{"id":"a","jsonrpc":"b","type":"c"}`:                                        "x/a/b/c",
		`"result":{"content":[{"type":"image","data":"AA=="}]}`:                          no,
		`"result":{"content":[{"type":"text","text":"a","Type":"image"}]}`:               no,
		`"result":{"content":[{"type":"resource","resource":{"blob":"AA=="}}]}`:          no,
		`"result":{"content":[{"type":"resource","resource":{"text":"a","BLOB":"AA"}}]}`: no,
		`"result":{"content":[{"text":"a"}]}`:                                            no,
		`"result":{"content":"a"}`:                                                       no,
		`"result":{"content":[],"Content":[{"type":"image"}]}`:                           no,
		`"result":{"task":{"taskId":"1"}}`:                                               no,
		`"result":{"resultType":"task","taskId":"1"}`:                                    no,
	} {
		line := []byte(`{"jsonrpc":"2.0","id":"1",` + answer + `}`)
		f, err := parseBody(line)
		if err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		got, err := textsOf(&f, line)
		if got = strings.ReplaceAll(got, between, "/"); err != nil {
			got = no
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", answer, got, err, want)
		}
	}
}

// Every string of an answer is among its texts, wherever it is.
func FuzzTextsOf(f *testing.F) {
	for _, answer := range []string{
		`"result":{"content":[{"type":"text","text":"abcd"}],"_meta":{"efgh":["ijkl"]}}`, `"error":{"message":"abcd","data":"efgh"}`, `"result":{"structuredContent":{"a":{"name":"abcd"}}}`,
	} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		line := []byte(`{"id":1,` + answer + `}`)
		parsed, err := parseBody(line)
		if err != nil {
			return
		}
		all, err := textsOf(&parsed, line)
		if err != nil {
			return
		}
		var has func(v any)
		has = func(v any) {
			switch v := v.(type) {
			case string:
				if !strings.Contains(all, v) && !slices.Contains([]string{"text", "resource", "resource_link", "complete"}, v) {
					t.Fatalf("%s: %q is not in %q", line, v, all)
				}
			case []any:
				for _, one := range v {
					has(one)
				}
			case map[string]any:
				for name, one := range v {
					if !own[name] {
						has(name)
					}
					has(one)
				}
			}
		}
		var frame map[string]any
		if err := json.Unmarshal(line, &frame, jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Fatal(err)
		}
		delete(frame, "jsonrpc")
		has(frame)
	})
}

// logger receives log messages.
type logger func(string)

func (l logger) Write(b []byte) (int, error) {
	l(string(b))
	return len(b), nil
}

// brittle is a listener that fails on request.
type brittle struct {
	net.Listener
	fails chan struct{}
}

func (b *brittle) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	select {
	case <-b.fails:
		return nil, errors.Join(err, errors.New("it failed"))
	default:
		return c, err
	}
}

// The end of a server waits for all work in progress, whatever the reason.
func TestServeWaitsForItsHandlers(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		reached := make(chan struct{})
		behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// A server notices that its client is gone after it has read the request.
			_, _ = io.Copy(io.Discard, r.Body)
			close(reached)
			<-r.Context().Done()
		}))
		t.Cleanup(behind.Close)
		target, err := url.Parse(behind.URL)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := &brittle{inner, make(chan struct{})}
		served, inside := make(chan error, 1), make(chan struct{})
		o := &Options{Map: &toolmap.Map{}, Now: time.Now, Log: slog.New(slog.NewTextHandler(logger(func(string) {
			// A handler has reported that the server cannot be reached, but has not returned yet.
			close(inside)
			select {
			case err := <-served:
				t.Errorf("it has ended with %v while a request is answered", err)
				served <- err
			case <-time.After(50 * time.Millisecond):
			}
		}), nil))}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { served <- Serve(ctx, o, l, target, "/p") }()
		go func() {
			r, err := http.Post("http://"+l.Addr().String()+"/p", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			if err == nil {
				_ = r.Body.Close()
			}
		}()
		<-reached
		if fails {
			close(l.fails)
			_ = inner.Close()
		} else {
			cancel()
		}
		<-inside
		if err := <-served; (err != nil) != fails {
			t.Errorf("it ended with %v", err)
		}
	}
}

// Clients are distinguished by their session and their identity towards the server, and not
// by headers that differ between requests.
func TestAccounts(t *testing.T) {
	t.Parallel()
	of := func(headers ...string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		return (&dialog{web: &web{path: "/p"}, r: r, session: sessionOf(r)}).account()
	}
	told := []string{
		of(), of("Mcp-Session-Id", "a"), of("Mcp-Session-Id", "b"), of("Mcp-Session-Id", "a", "Authorization", "x"), of("Mcp-Session-Id", "a", "Authorization", "y"), of("Authorization", "x"),
		of("X-Api-Key", "x"), of("X-Api-Key", "y"), of("Cookie", "x"), of("X-Api-Key", "x", "Cookie", "x"), of("Authorization", "x", "Authorization", "y"), of("Tenant", "a"),
		// A server may look at no session, and a client may invent one.
		of("Mcp-Session-Id", "a", "X-Api-Key", "x"), of("Mcp-Session-Id", "a", "X-Api-Key", "y"), of("Mcp-Session-Id", "a", "Cookie", "x"),
		of("Mcp-Tenant", "a"), of("X-Request-User", "a"), of("Accept-Tenant", "a"), of("Content-Owner", "a"), of("Sec-User", "a"), of("X-Correlation-User", "a"),
	}
	if slices.Sort(told); len(slices.Compact(slices.Clone(told))) != len(told) {
		t.Errorf("two are the same: %q", told)
	}
	for _, same := range [][2]string{
		{of("X-Api-Key", "x"), of("X-Api-Key", "x", "Accept", "a", "Content-Type", "b", "Mcp-Method", "c", "Mcp-Param-Text", "d", "Traceparent", "e", "Idempotency-Key", "f", "User-Agent", "g")},
		{of("Mcp-Session-Id", "a", "Authorization", "x"), of("Mcp-Session-Id", "a", "Authorization", "x", "X-Request-Id", "1", "Traceparent", "2")},
		{of(), of("Accept", "a", "User-Agent", "b")},
	} {
		if same[0] != same[1] {
			t.Errorf("one client is two: %q", same)
		}
	}
	if of() != "" {
		t.Error("who shows nothing is somebody")
	}
}

// A client whose identity the server could read in two ways is refused.
func TestOneIdentity(t *testing.T) {
	t.Parallel()
	reached := 0
	address := served(t, withDaemon(t, nil), func(rw http.ResponseWriter, _ *http.Request) {
		reached++
		rw.WriteHeader(http.StatusAccepted)
	})
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for name, header := range map[string]http.Header{
			"two keys": {"X-Api-Key": {"a", "b"}}, "two sessions": {"Mcp-Session-Id": {"a", "b"}}, "a key of the connection": {"X-Api-Key": {"a"}, "Connection": {"keep-alive, X-Api-Key"}},
			"a session of the connection": {"Mcp-Session-Id": {"a"}, "Connection": {"mcp-session-id"}}, "two places to resume": {"Last-Event-Id": {"", "1"}},
		} {
			r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header
			r.Header.Set("Content-Type", "application/json")
			got, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = got.Body.Close()
			if got.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with %s: %s", method, name, got.Status)
			}
		}
	}
	if reached > 0 {
		t.Errorf("the server got %d requests", reached)
	}
}

// Nothing in an answer leads the client past the proxy: no event of the older transport, and no header.
func TestNoAnswerLeadsElsewhere(t *testing.T) {
	t.Parallel()
	space := strings.Repeat(" ", 3*maxBeside)
	for _, text := range []string{
		"event: endpoint\ndata: http://elsewhere.example/mcp\n\n", "data: http://elsewhere.example/mcp\r\nevent:endpoint\r\n\r\n", "\ufeffevent: endpoint\rdata: http://elsewhere.example/mcp\r\r",
		"event: endpoint\ndata: http://elsewhere.example/mcp" + space + "\n\n", "data: " + space + "http://elsewhere.example/mcp\nevent:  endpoint \n\n", "\ufeffevent: endpoint\ndata: http://elsewhere.example/mcp" + space + "\n\n",
	} {
		got := stream(t, text)
		// An event counts once it has ended.
		for event := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(got), "\n\n") {
			if strings.Contains(event, "endpoint") && strings.Contains(event, "elsewhere") && len(event) < len(got) {
				t.Errorf("%.60q becomes %.60q", text, got)
			}
		}
	}
	const rest = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n\n"
	if got := stream(t, "event: endpoint\ndata: /elsewhere\n\n"+rest); got != rest {
		t.Errorf("the client has %q, want %q", got, rest)
	}
	address := served(t, withDaemon(t, nil), func(rw http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Alt-Svc", "Location", "Refresh"} {
			rw.Header().Set(name, "elsewhere")
		}
		rw.Header().Set("Content-Type", "application/json")
		switch body, _ := io.ReadAll(r.Body); {
		case r.Method == http.MethodGet:
			rw.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(string(body), "notifications"):
			rw.WriteHeader(http.StatusAccepted)
		default:
			fmt.Fprint(rw, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
	})
	for _, tc := range []struct{ method, body string }{{http.MethodGet, ""}, {http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, {http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`}} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, address, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		for name, said := range answer.Header {
			if slices.Contains(said, "elsewhere") {
				t.Errorf("%s %s is answered with %s", tc.method, tc.body, name)
			}
		}
	}
}
