package metricshttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// served is a server with its socket and its port, and its log.
func served(t *testing.T, status func(context.Context) (api.Status, error)) (s *Server, socket string, log *observer.ObservedLogs) {
	t.Helper()
	return servedTo(t, status, func() bool { return false })
}

// servedTo is served with a choice of several tenants.
func servedTo(t *testing.T, status func(context.Context) (api.Status, error), shared func() bool) (s *Server, socket string, log *observer.ObservedLogs) {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	core, log := observer.New(zap.InfoLevel)
	socket = filepath.Join(dir, "m.sock")
	s, err = Serve(t.Context(), Options{
		Socket: socket, Listen: "127.0.0.1:0", Metrics: metrics.New(metrics.Words{}), Status: status,
		Traffic: func() (int, int64) { return 3, 4096 }, Version: "1.2.3", Log: zap.New(core), Shared: shared,
		Now: func() time.Time { return time.Unix(1000, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, socket, log
}

func running(context.Context) (api.Status, error) {
	return api.Status{
		Held: 2, OldestHeld: time.Unix(940, 0), StartedAt: time.Unix(900, 0),
		Apps:      []api.AppStatus{{ID: "@acme/a", Health: "healthy"}, {ID: "@acme/b", Health: "unhealthy"}},
		Queues:    []api.QueueStatus{{Name: "agent:bob", Waiting: 5}, {Name: "channel:irc", Waiting: 2}},
		Audit:     api.AuditStatus{Seq: 40, Signed: 38, Fault: "the disk is gone"},
		Sinks:     []api.SinkStatus{{Name: "siem", Lag: 9}},
		Witnesses: []api.WitnessStatus{{Name: "w.example", Signed: 7, Error: "it refuses", Refused: true}},
	}, nil
}

// ask sends a request to a server at an address, under a host name.
func ask(t *testing.T, network, address, method, path, host string) (code int, body string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestServe(t *testing.T) {
	s, socket, _ := served(t, running)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(socket)); err != nil || len(left) != 1 {
		t.Errorf("beside the socket there is %v, %v", left, err)
	}
	port := s.listeners[1].Addr().String()
	for network, address := range map[string]string{"unix": socket, "tcp": port} {
		code, text := ask(t, network, address, http.MethodGet, "/metrics", port)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", network, code, text)
		}
		for _, want := range []string{
			`ocipd_build_info{goversion="go`, `version="1.2.3"} 1`, "ocipd_apps 2", "ocipd_apps_unhealthy 1", "ocipd_connections 3", "ocipd_reader_queue_bytes 4096",
			"ocipd_held_messages 2", "ocipd_held_oldest_age_seconds 60", "ocipd_queued_messages 7", "ocipd_queues 2", "ocipd_log_records 40", "ocipd_log_signed_records 38",
			"ocipd_store_latched 1", "ocipd_policy_refused 0", "ocipd_start_time_seconds 900", `ocipd_sink_lag_records{sink="siem"} 9`,
			`ocipd_witness_signed_records{witness="w.example"} 7`, `ocipd_witness_failing{witness="w.example"} 1`, `ocipd_witness_refused{witness="w.example"} 1`,
			"ocipd_holds_total 0", "go_goroutines ", "process_open_fds ",
		} {
			if !strings.Contains(text, "\n"+want) && !strings.Contains(text, want+"\n") {
				t.Errorf("%s: no %q in\n%s", network, want, text)
			}
		}
	}
	for _, wrong := range []struct {
		method, path string
		code         int
	}{{http.MethodGet, "/", http.StatusNotFound}, {http.MethodPost, "/metrics", http.StatusMethodNotAllowed}} {
		if code, _ := ask(t, "unix", socket, wrong.method, wrong.path, "x"); code != wrong.code {
			t.Errorf("%s %s is %d, want %d", wrong.method, wrong.path, code, wrong.code)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// A page in a browser uses the name of its own site, and gets nothing.
func TestOwnNamesOnly(t *testing.T) {
	s, socket, _ := served(t, running)
	address := s.listeners[1].Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		address: http.StatusOK, "localhost:" + port: http.StatusOK, "LocalHost:" + port: http.StatusOK, "[::1]:" + port: http.StatusOK,
		"evil.example:" + port: http.StatusForbidden, "localhost": http.StatusForbidden, "localhost:1": http.StatusForbidden,
		"localhost.evil.example:" + port: http.StatusForbidden, "127.0.0.2:" + port: http.StatusForbidden, "evil.example": http.StatusForbidden,
	} {
		if code, _ := ask(t, "tcp", address, http.MethodGet, "/metrics", host); code != want {
			t.Errorf("by the name %s it answers %d, want %d", host, code, want)
		}
	}
	if code, _ := ask(t, "unix", socket, http.MethodGet, "/metrics", "whatever"); code != http.StatusOK {
		t.Errorf("on the socket it answers %d", code)
	}
}

// If the agents are of several tenants, the port reveals nothing from which one could count
// another's activity. The socket, which belongs to the operator, serves everything.
func TestThePortCountsNoTenant(t *testing.T) {
	shared := true
	s, socket, _ := servedTo(t, running, func() bool { return shared })
	port := s.listeners[1].Addr().String()
	s.o.Metrics.Held()
	page := func(network, address string) string {
		code, text := ask(t, network, address, http.MethodGet, "/metrics", port)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", network, code, text)
		}
		return text
	}
	before := page("tcp", port)
	for line := range strings.Lines(before) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		if name != "#" && !slices.Contains(public(), name) {
			t.Errorf("the port shows %s", line)
		}
	}
	if !strings.Contains(before, "ocipd_store_latched 1") {
		t.Errorf("the port says nothing of the store: %s", before)
	}
	if text := page("unix", socket); !strings.Contains(text, "ocipd_holds_total 1") || !strings.Contains(text, "ocipd_log_records 40") {
		t.Errorf("the socket does not say all: %s", text)
	}
	// Everybody's activity meanwhile changes nothing.
	for range 16 {
		s.o.Metrics.Held()
		s.o.Metrics.Decision("sender", "allow", "")
		s.o.Metrics.Committed(3, time.Millisecond)
		s.o.Metrics.Accepted(metrics.SocketApps)
	}
	if after := page("tcp", port); after != before {
		t.Errorf("the port showed\n%s\nand then\n%s", before, after)
	}
	// A configuration with one tenant is in force.
	shared = false
	if text := page("tcp", port); !strings.Contains(text, "ocipd_holds_total 17") {
		t.Errorf("for one tenant it does not say all: %s", text)
	}
}

// Idle connections take a bounded number of descriptors, and do not keep a scraper out.
func TestConnectionsAreBounded(t *testing.T) {
	s, socket, _ := served(t, running)
	port := s.listeners[1].Addr().String()
	ended := make(chan struct{}, 8*maxConnections)
	for range 4 * maxConnections {
		for network, address := range map[string]string{"tcp": port, "unix": socket} {
			c, err := new(net.Dialer).DialContext(t.Context(), network, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				_, _ = c.Read(make([]byte, 1)) // it is closed
				ended <- struct{}{}
			}()
		}
	}
	for range 7 * maxConnections {
		<-ended
	}
	for range 3 {
		if code, _ := ask(t, "tcp", port, http.MethodGet, "/metrics", port); code != http.StatusOK {
			t.Errorf("a scraper is answered %d", code)
		}
	}
	s.bound.mu.Lock()
	if len(s.bound.open) > maxConnections {
		t.Errorf("%d connections are open", len(s.bound.open))
	}
	s.bound.mu.Unlock()
}

// A connection with an answer in progress is not closed for another one.
func TestAnswersAreNotCut(t *testing.T) {
	answering, answer := make(chan struct{}), make(chan struct{})
	s, socket, _ := served(t, func(ctx context.Context) (api.Status, error) {
		close(answering)
		<-answer
		return running(ctx)
	})
	code := make(chan int)
	go func() {
		got, _ := ask(t, "unix", socket, http.MethodGet, "/metrics", "x")
		code <- got
	}()
	<-answering
	for range 2 * maxConnections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.listeners[1].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	close(answer)
	if got := <-code; got != http.StatusOK {
		t.Errorf("it is answered %d", got)
	}
}

// A request is bounded in its header and its time.
func TestRequestsAreBounded(t *testing.T) {
	s, _, _ := served(t, running)
	h := s.http
	if h.ReadHeaderTimeout <= 0 || h.ReadTimeout <= 0 || h.WriteTimeout <= 0 || h.IdleTimeout <= 0 {
		t.Errorf("times are without a bound: %v %v %v %v", h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout)
	}
	port := s.listeners[1].Addr().String()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: %s\r\nX: %s", port, strings.Repeat("x", 2*maxHeaderBytes)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header is answered %d", answer.StatusCode)
	}
}

// If the status is unavailable, the counters are served all the same.
func TestWithoutStatus(t *testing.T) {
	_, socket, log := served(t, func(context.Context) (api.Status, error) { return api.Status{}, errors.New("too busy") })
	code, text := ask(t, "unix", socket, http.MethodGet, "/metrics", "x")
	if code != http.StatusOK || !strings.Contains(text, "\nocipd_holds_total 0\n") || !strings.Contains(text, "ocipd_build_info") || strings.Contains(text, "ocipd_apps") {
		t.Errorf("%d %s", code, text)
	}
	if log.FilterMessage("cannot look up gauges").Len() != 1 {
		t.Errorf("it logs %v", log.All())
	}
}

func TestPlaces(t *testing.T) {
	if s, err := Serve(t.Context(), Options{}); s != nil || err != nil || s.Close() != nil {
		t.Errorf("without a place it is %v, %v", s, err)
	}
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "m.sock")
	try := func() error {
		l, err := listenUnix(path)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), "no socket is there") {
		t.Errorf("over a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), "somebody serves there already") {
		t.Errorf("beside another one: %v", err)
	}
	other.SetUnlinkOnClose(false)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Errorf("where another one is gone: %v", err)
	}
	path = filepath.Join(dir, "nowhere", "m.sock")
	if err := try(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("in no directory: %v", err)
	}
	if _, err := Serve(t.Context(), Options{Socket: filepath.Join(dir, "m.sock"), Listen: "nowhere:0", Log: zap.NewNop()}); err == nil {
		t.Error("it serves nowhere")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
