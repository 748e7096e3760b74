package mcpproxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const secretAnswer = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"secret"}]}}`

// history calls the tool whose results are withheld.
const history = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"history","arguments":{"channel":"x"}}}`

// No encoding, type or stream hides an answer: a response is read as every client reads it, or refused.
func TestNoResponseHidesAnAnswer(t *testing.T) {
	t.Parallel()
	event := "event: message\ndata: " + secretAnswer + "\n\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, event)
	_ = z.Close()
	for name, tc := range map[string]struct {
		header    []string
		body      string
		elsewhere string // the response that says it: that to the call, a stream of GET or one opened before
	}{
		"encoded":                      {[]string{"Content-Type", "text/event-stream", "Content-Encoding", "gzip"}, packed.String(), ""},
		"encoded JSON":                 {[]string{"Content-Type", "application/json", "Content-Encoding", "br"}, secretAnswer, ""},
		"another type":                 {[]string{"Content-Type", "text/plain"}, event, "get"},
		"JSON that a client reads so":  {[]string{"Content-Type", "application/json; x=text/event-stream"}, event, ""},
		"JSON on a stream":             {[]string{"Content-Type", "application/json"}, event, "get"},
		"a type that is cut":           {[]string{"Content-Type", "text/event-stream; charset"}, event, "post"},
		"no type":                      {[]string{"Content-Type", ""}, event, "post"},
		"another charset":              {[]string{"Content-Type", "text/event-stream; charset=utf-7"}, event, "post"},
		"two types":                    {[]string{"Content-Type", "text/event-stream", "Content-Type", "text/plain"}, event, "post"},
		"a stream opened before":       {[]string{"Content-Type", "text/event-stream"}, event, "post"},
		"the stream that has begun it": {[]string{"Content-Type", "text/event-stream"}, event, "initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, said := make(chan struct{}), make(chan struct{})
			address := served(t, withDaemon(t, nil), func(rw http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				says := func() {
					for i := 0; i < len(tc.header); i += 2 {
						rw.Header().Add(tc.header[i], tc.header[i+1])
					}
					if tc.elsewhere != "" {
						_, _ = io.WriteString(rw, ":\n\n")
						rw.(http.Flusher).Flush()
						<-called
					}
					_, _ = io.WriteString(rw, tc.body)
				}
				switch {
				case strings.Contains(string(text), "history"):
					if tc.elsewhere == "" {
						says()
						return
					}
					close(called)
					<-said
					rw.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(rw, ":\n\n")
				case r.Method == http.MethodGet, strings.Contains(string(text), "tools/list"), strings.Contains(string(text), "initialize"):
					says()
				}
			})
			var other chan string
			if tc.elsewhere != "" {
				other = make(chan string, 1)
				go func() {
					switch tc.elsewhere {
					case "get":
						other <- ask(t, http.MethodGet, address, "", "Mcp-Session-Id", "s")
					case "post":
						other <- ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "Mcp-Session-Id", "s")
					default:
						other <- ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":2,"method":"initialize"}`)
					}
					close(said)
				}()
			}
			got := ask(t, http.MethodPost, address, history, "Mcp-Session-Id", "s")
			if other != nil {
				got += <-other
			}
			if strings.Contains(got, "secret") || strings.Contains(got, packed.String()) {
				t.Errorf("the client has %q", got)
			}
		})
	}
}

// begun is a server's output that comes in parts, before each of which something happens.
type begun struct {
	parts []string
	do    []func()
}

func (b *begun) Read(into []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	if len(b.do) > 0 && b.do[0] != nil {
		b.do[0]()
		b.do[0] = nil
	}
	n := copy(into, b.parts[0])
	if b.parts[0] = b.parts[0][n:]; b.parts[0] == "" {
		b.parts = b.parts[1:]
		if len(b.do) > 0 {
			b.do = b.do[1:]
		}
	}
	return n, nil
}

// A line, an event or a body that the server has begun before the call is not the call's answer, however
// long it is and wherever its id stands; another message passes whole.
func TestWhatHadBegunIsNoAnswer(t *testing.T) {
	t.Parallel()
	space := strings.Repeat(" ", 3*maxBeside)
	for name, tc := range map[string]struct {
		before, after string
		passes        bool
	}{
		"a short one":                {`{"jsonrpc":"2.0",`, `"id":3,"result":"secret"}`, false},
		"a long one":                 {`{"jsonrpc":"2.0",` + space, `"id":3,"result":"secret"}`, false},
		"a long one, by its end":     {`{"result":"secret",` + space, `"id":3}`, false},
		"a long one but for an end":  {`{"result":"secret","id":3}` + space, ` `, false},
		"a long one, twice":          {`{"id":3,"result":"secret",` + space, `"id":9}`, false},
		"a long one, escaped":        {`{"result":"secret",` + space, `"\u0069d":3}`, false},
		"a long list":                {`[{"result":"secret",` + space, `"id":3}]`, false},
		"a long one of no id":        {`{"result":"secret",` + space, `"id":null}`, false},
		"a long one to a lenient":    {`{"result":"secret",'a':"` + space, `","id":3}`, false},
		"another answer":             {`{"jsonrpc":"2.0","id":4,"result":{"a":["` + space, `"]}}`, true},
		"another answer, by its end": {`{"jsonrpc":"2.0","result":{"id":3,"a":["` + space, `"]},"id":4}`, true},
		"a request":                  {`{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"a":"` + space, `\""}}`, true},
		"a notification":             {`{"jsonrpc":"2.0","method":"notifications/message","params":{"a":"` + space, `"}}`, true},
	} {
		watched := func(p *proxy, session string) func() {
			p.requests.opens(key{session, "4"}, jsontext.Value("4"))
			return func() {
				p.calls.watch(&observer{
					key: key{session, "3"}, tell: func([]byte) {},
					in:      func(*frame, []byte) []byte { return []byte("withheld\n") },
					spoiled: func(string) []byte { return []byte("withheld\n") },
				})
			}
		}
		var out bytes.Buffer
		s := &stdio{proxy: newProxy(t.Context(), &Options{Out: &out, Now: time.Now})}
		if err := s.readServer(&begun{[]string{tc.before, tc.after + "\n"}, []func(){nil, watched(s.proxy, "")}}); err != nil {
			t.Fatal(err)
		}
		s.finish()
		whole := tc.before + tc.after
		found := false
		for line := range strings.Lines(out.String()) {
			found = found || jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true)) && strings.TrimSpace(line) == strings.TrimSpace(whole)
		}
		if found != tc.passes {
			t.Errorf("%s: over stdio it passes: %t", name, found)
		}
		w := &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
		from := io.NopCloser(&begun{[]string{"id: 1\ndata: " + tc.before, tc.after + "\n\n"}, []func(){nil, watched(w.proxy, "s")}})
		got, err := io.ReadAll(&events{w: w, ctx: t.Context(), session: "s", from: from, r: bufio.NewReaderSize(from, maxBeside)})
		if err != nil {
			t.Fatal(err)
		}
		if passes := strings.HasSuffix(string(got), tc.after+"\n\n"); passes != tc.passes {
			t.Errorf("%s: as an event it passes: %t", name, passes)
		}
		w = &web{proxy: newProxy(t.Context(), &Options{Now: time.Now})}
		body := io.NopCloser(&begun{[]string{tc.before, tc.after}, []func(){nil, watched(w.proxy, "s")}})
		long := &longBody{Closer: body, from: body, passage: passage{p: w.proxy, session: "s"}}
		got, err = io.ReadAll(long)
		if passes := err == nil && string(got) == whole; passes != tc.passes {
			t.Errorf("%s: as a body it passes: %t, %v", name, passes, err)
		}
	}
}

// An answer that comes before the server has the call is none, and neither is one to a call that nobody
// has made.
func TestAnswersBeforeTheCall(t *testing.T) {
	t.Parallel()
	p := newProxy(t.Context(), &Options{Now: time.Now})
	if _, held := p.observed("", false, []byte(secretAnswer)); !held {
		t.Error("an answer passes to a call that nobody has made")
	}
	p.calls.deciding[key{"", "3"}] = func() {}
	for _, session := range []string{"", "s"} {
		if _, held := p.observed(session, false, []byte(secretAnswer)); !held || !p.calls.watches(false) {
			t.Error("an answer passes while the call is decided about")
		}
	}
	delete(p.calls.deciding, key{"", "3"})
	p.requests.opens(key{"", "3"}, jsontext.Value("3"))
	if _, held := p.observed("", false, []byte(secretAnswer)); held {
		t.Error("the answer does not pass")
	}
	if _, held := p.observed("", false, []byte(secretAnswer)); !held {
		t.Error("a second answer passes")
	}
}

// A line of a comment, or of another field than data, is not several lines to programs that end lines at
// other characters.
func TestEventsInComments(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e"} {
		for _, begins := range []string{": x", "id: 1", "event: x", "retry"} {
			if got := stream(t, begins+ends+"data: "+secretAnswer+"\n\n", "3"); strings.Contains(got, "secret") {
				t.Errorf("%q before %q: the client has %q", begins, ends, got)
			}
		}
	}
	const text = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"a\u2028b\"}}\n\n"
	if got := stream(t, text, "3"); got != text {
		t.Errorf("%q becomes %q", text, got)
	}
}

// clientSays is what the server gets of messages of the client.
func clientSays(t *testing.T, o *Options, asks string, lines ...string) (server, client string) {
	t.Helper()
	o.Command = []string{"/bin/sh", "-c", fmt.Sprintf("printf '%%s\\n' '%s'; cat >&2", asks)}
	in, says := io.Pipe()
	hears, out := io.Pipe()
	var got bytes.Buffer
	o.In, o.Out, o.Stderr = in, out, &got
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), o)
		_ = out.Close()
	}()
	scanner := bufio.NewScanner(hears)
	scanner.Scan() // what the server asks
	heard := make(chan string)
	go func() {
		all := ""
		for scanner.Scan() {
			all += scanner.Text() + "\n"
		}
		heard <- all
	}()
	for _, line := range lines {
		if _, err := io.WriteString(says, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	_ = says.Close()
	client = <-heard
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return got.String(), client
}

// The server gets nothing undecided beside a request, as an answer that it has not asked for, or as a
// notification that is a request.
func TestNothingUndecidedBesideAMessage(t *testing.T) {
	t.Parallel()
	const asks = `{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"which?"}}`
	server, client := clientSays(t, withDaemon(t, nil), asks,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"},"extra":{"text":"secret 1"}}`,
		`{"jsonrpc":"secret 2","id":2,"method":"tools/list","note":"secret 3"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","note":"secret 4"}`,
		`{"jsonrpc":"2.0","id":3,"method":"notifications/cancelled","params":{"reason":"secret 5"}}`,
		`{"jsonrpc":"2.0","id":null,"method":"notifications/x","params":{"reason":"secret 6"}}`,
		`{"jsonrpc":"2.0","id":4,"method":"ping","result":"secret 7"}`,
		`{"jsonrpc":"2.0","id":99,"result":{"content":{"text":"secret 8"}}}`,
		`{"jsonrpc":"2.0","id":98,"error":{"code":1,"message":"secret 9"}}`,
		`{"jsonrpc":"2.0","id":97,"x":"secret 10"}`,
		`{"jsonrpc":"2.0","id":5,"result":{"action":"accept","content":{"room":"blue"}},"note":"secret 11"}`,
		`{"jsonrpc":"2.0","id":5,"result":{"action":"accept","content":{"room":"secret 12"}}}`)
	if strings.Contains(server, "secret") {
		t.Errorf("the server gets %s", server)
	}
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"}}`, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress"}`, `{"jsonrpc":"2.0","id":5,"result":{"action":"accept","content":{"room":"blue"}}}`,
	} {
		if !strings.Contains(server, want+"\n") {
			t.Errorf("the server does not get %s, but %s", want, server)
		}
	}
	if n := strings.Count(client, `"code":-32600`); n != 7 {
		t.Errorf("%d messages are refused: %s", n, client)
	}
	// An answer that nobody lets pass is none, and the server hears so.
	server, _ = clientSays(t, withoutDaemon(), asks, `{"jsonrpc":"2.0","id":5,"result":{"action":"accept","content":{"room":"secret"}}}`)
	if strings.Contains(server, "secret") || !strings.Contains(server, `{"jsonrpc":"2.0","id":5,"error":{"code":-32603`) {
		t.Errorf("without the daemon the server gets %s", server)
	}
}
