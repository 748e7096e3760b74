package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"golang.org/x/sync/semaphore"
)

// withoutDaemon returns the options of a proxy without a daemon, so that everything under
// decision is withheld.
func withoutDaemon() *Options {
	n := new(atomic.Int64)
	return &Options{
		Map:   &toolmap.Map{Name: "chat", Channel: "chat", Reads: map[string]toolmap.Read{"history": {From: []string{"{channel}"}}}},
		Given: true, Origin: "chat #1", Now: time.Now, Log: slog.New(slog.DiscardHandler), NewID: func() string { return fmt.Sprint(n.Add(1)) }, Hold: time.Minute,
		Link: &gatelink.Link{Dial: func(context.Context) (*client.Client, error) { return nil, errors.New("no daemon") }, NewID: func() string { return fmt.Sprint(n.Add(1)) }, Now: time.Now},
	}
}

// listening is the address of a handler.
func listening(t *testing.T, handler http.HandlerFunc) *url.URL {
	t.Helper()
	behind := httptest.NewServer(handler)
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// served is a proxy before a handler.
func served(t *testing.T, o *Options, handler http.HandlerFunc) (address string) {
	t.Helper()
	target := listening(t, handler)
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, o, l, target, "/p") }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/p"
}

func ask(t *testing.T, method, address, body string, header ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A withheld answer stays withheld if a client resumes its stream in another session or
// after the session's end, because the client chooses the session of a request.
func TestWithheldStaysWithheldInOtherSessions(t *testing.T) {
	t.Parallel()
	const answer = "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"secret\"}]}}\n\n"
	for name, before := range map[string]func(address string){
		"another session": func(string) {},
		"a session that has ended": func(address string) {
			ask(t, http.MethodDelete, address, "", "Mcp-Session-Id", "a")
			ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":0,"method":"initialize"}`)
		},
	} {
		address := served(t, withDaemon(t, nil), func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodGet || strings.Contains(string(body), "tools/call") {
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(rw, answer)
			}
		})
		for _, session := range []string{"a", ""} {
			got := ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"history","arguments":{"channel":"x"}}}`, "Mcp-Session-Id", session)
			if strings.Contains(got, "secret") || !strings.Contains(got, "withheld") {
				t.Fatalf("%s: answered %q", name, got)
			}
		}
		before(address)
		for _, session := range []string{"a", "b", ""} {
			if got := ask(t, http.MethodGet, address, "", "Mcp-Session-Id", session, "Last-Event-ID", "6"); strings.Contains(got, "secret") {
				t.Errorf("%s: session %q goes on with %q", name, session, got)
			}
		}
	}
}

// Long frames share one room. A request without a place waits, and gives up with its client.
func TestLongFramesHaveOneRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &web{proxy: newProxy(t.Context(), withoutDaemon())}
		w.heard = semaphore.NewWeighted(maxHeldLine)
		w.calls.watch(&observer{key: key{"s", "3"}, in: func(_ *frame, line []byte) []byte { return line }, spoiled: func(string) []byte { return nil }})
		begin := func(ctx context.Context) (*events, *io.PipeWriter, chan int) {
			from, to := io.Pipe()
			e := &events{w: w, ctx: ctx, session: "s", from: from, r: bufio.NewReader(from)}
			read := make(chan int, 1)
			go func() {
				text, _ := io.ReadAll(e)
				_ = e.Close()
				read <- len(text)
			}()
			go func() { _, _ = to.Write(bytes.Repeat([]byte(":"), 2*maxBeside)) }()
			return e, to, read
		}
		_, first, done := begin(t.Context())
		synctest.Wait()
		_, second, other := begin(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		_, _, third := begin(ctx)
		synctest.Wait()
		cancel()
		if n := <-third; n != 0 {
			t.Errorf("without room %d bytes were held", n)
		}
		if len(other) != 0 || w.heard.TryAcquire(1) {
			t.Error("there is room for two")
		}
		_ = first.Close()
		if n := <-done; n < maxBeside {
			t.Errorf("%d bytes have passed", n)
		}
		_ = second.Close()
		if n := <-other; n < maxBeside {
			t.Errorf("%d bytes have passed", n)
		}
		if !w.heard.TryAcquire(maxHeldLine) {
			t.Error("the room is not given back")
		}
	})
	room := semaphore.NewWeighted(maxHeld)
	for length, known := range map[int]int64{10: -1, maxBeside: -1, 3 * maxBeside: -1, 4 * maxBeside: 4 * maxBeside, 5*maxBeside + 9: -1} {
		text, leave, err := take(t.Context(), room, io.LimitReader(endless{}, int64(length)), 5*maxBeside, known)
		if err != nil || len(text) != min(length, 5*maxBeside+1) {
			t.Errorf("of %d bytes, %d are read: %v", length, len(text), err)
		}
		leave()
		if !room.TryAcquire(maxHeld) {
			t.Errorf("the room for %d bytes is not given back", length)
		}
		room.Release(maxHeld)
	}
}

// A server that asks its client a question has not reported the outcome of a message.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`"result":{"content":[]}`: api.OutcomeSent, `"result":{"content":[],"resultType":"complete"}`: api.OutcomeSent, `"result":{"isError":true}`: api.OutcomeUnknown,
		`"result":{"resultType":"input_required","inputRequests":{}}`: api.OutcomeUnknown, `"result":{"resultType":"task"}`: api.OutcomeUnknown, `"result":{"task":{}}`: api.OutcomeUnknown,
		`"error":{"code":-32602}`: api.OutcomeNotSent, `"error":{"code":-32000}`: api.OutcomeUnknown, `"result":7`: api.OutcomeUnknown,
	} {
		f, err := parseBody([]byte(`{"id":1,` + answer + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := outcomeOf(&f); got != want {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
}

// The proxy ends when told to, even if processes of its server live on or the server ignores signals.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		"sleep 20 & exec cat", "trap '' TERM; exec 1>&-; while :; do sleep 20; done", "trap '' TERM; while :; do sleep 20; done",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			o := withoutDaemon()
			in, client := io.Pipe()
			o.Command, o.Env, o.In, o.Out, o.Stderr = []string{"/bin/sh", "-c", script}, os.Environ(), in, io.Discard, io.Discard
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = run(ctx, o, 100*time.Millisecond)
			}()
			time.AfterFunc(200*time.Millisecond, func() {
				_ = client.Close()
				cancel()
			})
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("it does not end")
			}
		})
	}
}
