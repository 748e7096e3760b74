package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ocip"
)

// scrapeAt reads a page over a socket, or from a port under its own name.
func scrapeAt(t *testing.T, network, address, path string) (int, string) {
	t.Helper()
	host := "ocipd"
	if network == "tcp" {
		host = address
	}
	return scrapeAs(t, host, network, address, path)
}

func scrapeAs(t *testing.T, host, network, address, path string) (int, string) {
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
	request.Host = host
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

// TestMetricsAreServed scrapes a busy daemon, over the socket and the port.
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
		`ocipd_requests_total{code="OK",method="message.dispatch"} 2`, `ocipd_requests_total{code="FORBIDDEN",method="message.dispatch"} 1`, `ocipd_request_errors_total{code="FORBIDDEN"} 1`,
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
	if series < 100 || series > 25*len(daemon.MethodNames()) {
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
	// A socket of a daemon that is gone is replaced.
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

// A page in a browser whose name points to the loopback reads nothing.
func TestMetricsOfAnotherName(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		free, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			t.Logf("%s: %v", ip, err)
			continue
		}
		address := free.Addr().String()
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
		build(t, acme+"metrics: {listen: \""+address+"\"}\n")
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]int{
			address: http.StatusOK, "localhost:" + port: http.StatusOK, "LOCALHOST:" + port: http.StatusOK, "127.0.0.1:" + port: http.StatusOK, "[::1]:" + port: http.StatusOK,
			"evil.example:" + port: http.StatusForbidden, "evil.example": http.StatusForbidden, "localhost": http.StatusForbidden, "localhost:1": http.StatusForbidden,
			"localhost.evil.example:" + port: http.StatusForbidden, "192.0.2.1:" + port: http.StatusForbidden, "127.0.0.8:" + port: http.StatusForbidden,
		} {
			code, page := scrapeAs(t, host, "tcp", address, "/metrics")
			if code != want || code != http.StatusOK && strings.Contains(page, "ocipd_") {
				t.Errorf("on %s, asked for as %s, it answers %d, want %d: %.100s", address, host, code, want, page)
			}
		}
	}
}

// The decisions in status and metrics are those on record, however often a message was
// checked, and nothing else.
func TestDecisionsAreThoseOnRecord(t *testing.T) {
	dir := t.TempDir()
	h := build(t, acme+"metrics: {socket: "+dir+"/m.sock}\n")
	telegram, alice, bob := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	agree := func(what string, grown int) {
		t.Helper()
		said := h.status().Latency.Decisions
		_, page := scrapeAt(t, "unix", dir+"/m.sock", "/metrics")
		var served float64
		for line := range strings.Lines(page) {
			if value, ok := strings.CutPrefix(line, "ocipd_decisions_total{"); ok {
				n, err := strconv.ParseFloat(strings.TrimSpace(value[strings.LastIndexByte(value, ' '):]), 64)
				if err != nil {
					t.Fatal(err)
				}
				served += n
			}
		}
		onRecord := 0
		for _, e := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}) {
			if e.PolicyResult != "" {
				onRecord++
			}
		}
		if onRecord != grown || said != uint64(onRecord) || served != float64(onRecord) {
			t.Errorf("%s: %d decisions are on record, want %d; status says %d, the metrics %v", what, onRecord, grown, said, served)
		}
	}
	agree("nothing", 0)
	sent := alice.dispatch("telegram:dave", "What is the status?", fresh(nil))
	agree("to a channel", 1)
	bob.dispatch("agent:alice:main", "Hello", fresh(nil))
	agree("between two agents here, one of each side", 3)
	alice.refuse("FORBIDDEN", "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": "Hello"})
	agree("denied", 4)
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	agree("held", 5)
	h.decides("approve", held.ApprovalID)
	agree("let go", 6)
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("01890000-0000-7000-8000-000000000001", 1, "acme-corp")}}, nil)
	agree("in", 7)
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:alice", "text": "Hello"}, nil)
	agree("of a person, whom no rule stops", 7)
	h.operates().must("exchange.resolve", map[string]any{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved"}, nil)
	agree("an exchange that a person ended", 7)
}

// families lists the daemon's own metrics in a page: name, type, labels, help.
func families(page string) string {
	type family struct {
		help, kind string
		labels     map[string]bool
	}
	all := map[string]*family{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if about, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(about, " ")
			all[name] = &family{help: help, labels: map[string]bool{}}
			continue
		}
		if about, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(about, " ")
			all[name].kind = kind
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if whole := strings.TrimSuffix(name, part); all[whole] != nil {
				name = whole
			}
		}
		for _, label := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(line, -1) {
			all[name].labels[label[1]] = true
		}
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if f := all[name]; strings.HasPrefix(name, "ocipd_") {
			fmt.Fprintf(&out, "%s %s {%s} %s\n", name, f.kind, strings.Join(slices.Sorted(maps.Keys(f.labels)), ","), f.help)
		}
	}
	return out.String()
}

// TestFamilies compares the metrics with the list on which users' dashboards and alerts
// rely: a changed name, label or type breaks them.
func TestFamilies(t *testing.T) {
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build(t, acme+"audit: {sinks: [{name: siem, type: ocsf, path: "+dir+"/siem.jsonl}]}\nmetrics: {socket: "+dir+"/m.sock}\n")
	_, page := scrapeAt(t, "unix", dir+"/m.sock", "/metrics")
	if got := families(page); got != string(want) {
		t.Errorf("served is\n%s", got)
	}
	if !strings.Contains(page, `ocipd_sink_lag_records{sink="siem"}`) {
		t.Error("a sink is missing")
	}
}

// A counter that does not exist before its first count shows no first increase.
func TestCountersAreThereFromTheStart(t *testing.T) {
	dir := t.TempDir()
	build(t, acme+"metrics: {socket: "+dir+"/m.sock}\n")
	_, page := scrapeAt(t, "unix", dir+"/m.sock", "/metrics")
	var want []string
	for _, side := range []string{"sender", "receiver"} {
		want = append(want, `ocipd_decisions_total{code="",result="allow",side="`+side+`"} 0`)
		for _, code := range ocip.Codes() {
			for _, result := range []string{"deny", "require_approval"} {
				want = append(want, fmt.Sprintf("ocipd_decisions_total{code=%q,result=%q,side=%q} 0", code, result, side))
			}
		}
	}
	for _, result := range []string{"handed_over", "delivered", "failed", "expired"} {
		want = append(want, fmt.Sprintf("ocipd_deliveries_total{result=%q} 0", result))
	}
	for _, code := range api.Codes() {
		want = append(want, fmt.Sprintf("ocipd_request_errors_total{code=%q} 0", code))
	}
	for _, method := range daemon.MethodNames() {
		want = append(want, fmt.Sprintf("ocipd_requests_total{code=\"OK\",method=%q} ", method))
	}
	for _, line := range want {
		if !strings.Contains(page, "\n"+line) {
			t.Errorf("%s is missing", line)
		}
	}
	if strings.Contains(page, `="other"`) {
		t.Error("what has no word is shown before it came")
	}
	// A row at zero for each error of each method would hide everything else.
	if rows := strings.Count(page, "\nocipd_requests_total{"); rows != len(daemon.MethodNames()) {
		t.Errorf("%d rows count requests before any came, of %d methods", rows, len(daemon.MethodNames()))
	}
}

// TestMetricsStayOnTheMachine checks the metrics' only protection.
func TestMetricsStayOnTheMachine(t *testing.T) {
	for _, address := range []string{"0.0.0.0:9464", ":9464", "192.0.2.1:9464", "[::]:9464", "localhost:9464"} {
		if _, err := config.Parse("x", []byte("metrics: {listen: \""+address+"\"}\n")); err == nil {
			t.Errorf("%s is taken", address)
		}
	}
}
