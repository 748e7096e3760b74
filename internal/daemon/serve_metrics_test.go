package daemon_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
)

// scrapeAt reads a page over a socket.
func scrapeAt(t *testing.T, network, address, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://ocipd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestMetricsAreServed scrapes a daemon that did something, over both ways in.
func TestMetricsAreServed(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := build(t, acme+"metrics: {listen: \""+address+"\", socket: "+dir+"/m.sock}\n")
	if info, err := os.Stat(dir + "/m.sock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	telegram, alice := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice")
	alice.must("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "What is the status?"}, nil)
	alice.refuse("FORBIDDEN", "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": "What is the status?"})
	alice.must("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "I agree to that."}, nil)
	_ = telegram

	code, page := scrapeAt(t, "unix", dir+"/m.sock", "/metrics")
	if code != http.StatusOK {
		t.Fatalf("answered %d: %s", code, page)
	}
	for _, want := range []string{
		`ocipd_decisions_total{code="",result="allow",side="sender"} 1`, `ocipd_decisions_total{code="CROSS_ENTERPRISE_BLOCKED",result="deny",side="sender"} 1`,
		`ocipd_decisions_total{code="COMMITMENT_REQUIRES_HUMAN",result="require_approval",side="sender"} 1`,
		"ocipd_holds_total 1", "ocipd_held_messages 1", `ocipd_deliveries_total{result="handed_over"} 1`,
		`ocipd_requests_total{code="OK",method="message.dispatch"} 2`, `ocipd_requests_total{code="FORBIDDEN",method="message.dispatch"} 1`,
		"ocipd_decision_duration_seconds_count ", "ocipd_apps 2", "ocipd_agents 2", `ocipd_build_info{goversion="go`, "process_open_fds", "go_goroutines",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is missing", want)
		}
	}
	series := 0
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			series++
			for _, private := range []string{"telegram", "dave", "alice", "acme", "status?"} {
				if strings.Contains(line, private) {
					t.Errorf("a label says too much: %s", line)
				}
			}
		}
	}
	if series < 100 || series > 1500 {
		t.Errorf("%d series", series)
	}
	if code, _ := scrapeAt(t, "tcp", address, "/metrics"); code != http.StatusOK {
		t.Errorf("on the port it answers %d", code)
	}
	if code, _ := scrapeAt(t, "tcp", address, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("elsewhere it answers %d", code)
	}
	h.stop()
	if _, err := os.Stat(dir + "/m.sock"); err == nil {
		t.Error("the socket is left behind")
	}
	// A socket that is left behind is replaced.
	fd, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/m.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	fd.SetUnlinkOnClose(false)
	if err := fd.Close(); err != nil {
		t.Fatal(err)
	}
	h.start()
	if code, _ := scrapeAt(t, "unix", dir+"/m.sock", "/metrics"); code != http.StatusOK {
		t.Errorf("after a restart it answers %d", code)
	}
}

// TestMetricsStayOnTheMachine is for the numbers' only protection.
func TestMetricsStayOnTheMachine(t *testing.T) {
	for _, address := range []string{"0.0.0.0:9464", ":9464", "192.0.2.1:9464", "[::]:9464", "localhost:9464"} {
		if _, err := config.Parse("x", []byte("metrics: {listen: \""+address+"\"}\n")); err == nil {
			t.Errorf("%s is taken", address)
		}
	}
}
