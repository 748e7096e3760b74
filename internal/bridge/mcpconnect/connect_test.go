package mcpconnect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// server answers each frame as the test specifies, and records its requests.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := strings.TrimSpace(strings.Join([]string{r.Method, r.Header.Get("X"), r.Header.Get("Mcp-Session-Id"), r.Header.Get("Mcp-Protocol-Version"), r.Header.Get("Last-Event-ID"), string(body)}, "|"))
		s.mu.Lock()
		s.asked = append(s.asked, line)
		s.mu.Unlock()
		answer(w, r, string(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) was() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// talk sends lines one by one: each is sent after the answers to the one before.
func talk(t *testing.T, s *server, lines ...string) (said []string) {
	t.Helper()
	in, client := io.Pipe()
	from, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Run(t.Context(), &Options{URL: s.URL, Headers: map[string]string{"X": "y"}, In: in, Out: out, Log: slog.New(slog.DiscardHandler)})
		_ = out.Close()
		done <- err
	}()
	answers := make(chan string)
	go func() {
		defer close(answers)
		text := new(bytes.Buffer)
		piece := make([]byte, 1)
		for {
			if _, err := from.Read(piece); err != nil {
				return
			}
			if piece[0] != '\n' {
				text.WriteByte(piece[0])
				continue
			}
			answers <- text.String()
			text.Reset()
		}
	}()
	for _, line := range lines {
		if _, err := io.WriteString(client, line+"\n"); err != nil {
			t.Fatal(err)
		}
		asked := read([]byte(line))
		for asked.asks() {
			answer := <-answers
			said = append(said, answer)
			if m := read([]byte(answer)); m.answers(asked) {
				break
			}
		}
	}
	_ = client.Close()
	for answer := range answers {
		said = append(said, answer)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	return said
}

const (
	begin  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	begun  = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}`
	ready  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	call   = `{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{}}`
	result = `{"jsonrpc":"2.0","id":12345678901234567890,"result":{"x": "é \u00e9"}}`
)

// session is a server that begins sessions and leaves the rest to the test.
func session(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case strings.Contains(body, `"initialize"`):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s1")
			_, _ = io.WriteString(w, begun)
		case strings.Contains(body, `"method":"notifications`):
			w.WriteHeader(http.StatusAccepted)
		default:
			answer(w, r)
		}
	})
}

// A server's own text for a status reaches nobody's terminal.
func TestStatusIsInOurWords(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(c, "HTTP/1.1 500 \x1b]0;mine\a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = c.Close()
		}
	}()
	err = Try(t.Context(), &Options{URL: "http://" + l.Addr().String(), Headers: map[string]string{"Authorization": "x"}, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "500 Internal Server Error") || strings.Contains(err.Error(), "mine") {
		t.Errorf("it says %q", err)
	}
}

// The number of unanswered requests is limited.
func TestRequestsThatAwaitAnAnswer(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	s := session(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	var lines strings.Builder
	lines.WriteString(begin + "\n")
	for id := range maxOpen + 3 {
		fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"x"}`+"\n", id+1)
	}
	from, out := io.Pipe()
	in, client := io.Pipe()
	go func() { _, _ = io.WriteString(client, lines.String()) }()
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), &Options{URL: s.URL, In: in, Out: out, Log: slog.New(slog.DiscardHandler)})
		_ = out.Close()
	}()
	said := bufio.NewScanner(from)
	for n := 0; n < 4 && said.Scan(); n++ {
		if n > 0 && !strings.Contains(said.Text(), "too many requests") {
			t.Errorf("answered %s", said.Text())
		}
	}
	close(over)
	_ = client.Close()
	for said.Scan() {
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		want   []string
	}{
		{"one", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, result)
		}, []string{result}},
		{"on several lines", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.ReplaceAll(result, ",", ",\r\n")+"\n")
		}, []string{strings.ReplaceAll(result, ",", ",  ")}},
		{"a stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": hello\r\nid: 1\r\ndata: {\"method\":\"notifications/progress\"}\r\n\r\ndata:"+result+"\n\n")
		}, []string{`{"method":"notifications/progress"}`, result}},
		{"an end in between", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if r.Header.Get("Last-Event-ID") == "" {
				_, _ = io.WriteString(w, "id: 7\nretry: 1\ndata:\n\ndata: cut off")
				return
			}
			_, _ = io.WriteString(w, "data: "+result+"\n\n")
		}, []string{result}},
		{"an end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
		}, []string{`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-32000,"message":"ocipd: the server's stream ended without an answer"}}`}},
		{"a login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			[]string{`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-32000,"message":"ocipd: the server wants a login: 401 Unauthorized"}}`}},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/x", http.StatusTemporaryRedirect)
		},
			[]string{`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-32000,"message":"ocipd: the server is elsewhere: 307 Temporary Redirect"}}`}},
		{"an ended session", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			[]string{`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-32000,"message":"ocipd: the server has ended the session: start it again"}}`}},
		{"nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
			[]string{`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-32000,"message":"ocipd: the server has not answered"}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := session(t, tt.answer)
			const discover = `{"jsonrpc":"2.0","id":"d","method":"server/discover"}`
			unknown := `{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"Method not found"}}`
			if got, want := talk(t, s, discover, begin, call), append([]string{unknown, begun}, tt.want...); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			asked := s.was()
			if asked[0] != "POST|y||||"+begin || asked[1] != "POST|y|s1|2025-06-18||"+call || asked[len(asked)-1] != "DELETE|y|s1|2025-06-18||" {
				t.Errorf("it was asked\n%s", strings.Join(asked, "\n"))
			}
		})
	}
}

// The server's own messages reach the client, and the client's answers reach the server.
func TestServersOwnStream(t *testing.T) {
	t.Parallel()
	const ping, pong = `{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"p","result":{}}`
	heard := make(chan struct{})
	s := session(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+ping+"\n\n")
		w.(http.Flusher).Flush()
		close(heard)
		<-r.Context().Done()
	})
	in, client := io.Pipe()
	from, out := io.Pipe()
	go func() {
		_ = Run(t.Context(), &Options{URL: s.URL, In: in, Out: out, Log: slog.New(slog.DiscardHandler)})
		_ = out.Close()
	}()
	go func() {
		_, _ = io.WriteString(client, begin+"\n"+ready+"\n")
		<-heard
		_, _ = io.WriteString(client, pong+"\n")
		_ = client.Close()
	}()
	text, err := io.ReadAll(from)
	if err != nil || string(text) != begun+"\n"+ping+"\n" {
		t.Errorf("the client got %s, %v", text, err)
	}
	if asked := s.was(); !slices.ContainsFunc(asked, func(line string) bool { return strings.HasSuffix(line, pong) }) {
		t.Errorf("the server got\n%s", strings.Join(asked, "\n"))
	}
}

func TestTry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		page  string
		auth  bool
		tools int
		login bool
		ok    bool
	}{
		{"open", "", false, 200, false, true},
		{"tools for those who log in", "", false, 401, true, false},
		{"it says where to log in", `{"authorization_servers":["https://l"]}`, false, 200, true, false},
		{"a header says who it is", `{"authorization_servers":["https://l"]}`, true, 200, false, true},
		{"it fails", "", false, 500, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := session(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/.well-known") && tt.page != "":
					_, _ = io.WriteString(w, tt.page)
				case r.Method == http.MethodPost && tt.tools == 200:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
				case r.Method == http.MethodPost:
					w.WriteHeader(tt.tools)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			})
			o := &Options{URL: s.URL + "/mcp", Headers: map[string]string{}}
			if tt.auth {
				o.Headers["authorization"] = "Bearer x"
			}
			if err := Try(t.Context(), o); (err == nil) != tt.ok || errors.Is(err, ErrLogin) != tt.login {
				t.Errorf("%v", err)
			}
		})
	}
}

// A stream has the same meaning however it is cut into pieces.
func FuzzStream(f *testing.F) {
	for _, text := range []string{"data: a\n\n", "data: a\r\ndata: b\r\r\nid: 1\rretry: 5\n\n", "data\n\n: x\ndata:  y\n\n", "id: \x00\n\rdata:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		take := func(from io.Reader) string {
			var all []string
			s := stream{said: func(data []byte) { all = append(all, string(data)) }}
			err := s.read(from)
			return fmt.Sprintf("%q %q %d %v", all, s.last, s.retry, err)
		}
		if whole, byOne := take(strings.NewReader(text)), take(iotest.OneByteReader(strings.NewReader(text))); whole != byOne {
			t.Errorf("%s in one, %s byte by byte", whole, byOne)
		}
	})
}
