package daemon_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A daemon exports its log to a file and to a syslog receiver that is away at first, which
// delays nothing. After a stop the file has all records, including the last, and the next
// start continues after them.
func TestSinks(t *testing.T) {
	h := build(t, acme)
	file, socket := h.path("ocsf.jsonl"), h.path("log")
	h.stop()
	h.configure(acme + fmt.Sprintf(`
audit:
  sinks:
    - {name: siem, type: ocsf, path: %q}
    - {name: dead, type: otlp, endpoint: "http://127.0.0.1:1/v1/logs", from: now}
    - {name: loghost, type: syslog, network: unix, address: %q, filter: {action_type: agent_exchange}}
`, file, socket))
	h.start()
	alice := h.agent("@acme/alice")
	h.channel("telegram-app", "telegram")
	for i := range 20 {
		alice.dispatch("telegram:dave", fmt.Sprintf("note %d", i), map[string]any{"exchange": map[string]any{"type": "information_query", "id": fmt.Sprint("ex-", i)}})
	}
	status := func() map[string]api.SinkStatus {
		var s api.Status
		h.operator("kernel.status", nil, &s)
		by := map[string]api.SinkStatus{}
		for _, sink := range s.Sinks {
			by[sink.Name] = sink
		}
		return by
	}
	wait := func(what string, cond func(map[string]api.SinkStatus) bool) {
		t.Helper()
		late := time.After(patience)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !cond(status()) {
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("%s: %+v", what, status())
			}
		}
	}
	wait("the file", func(s map[string]api.SinkStatus) bool { return s["siem"].Lag == 0 && s["siem"].Sent > 20 })
	wait("two failures", func(s map[string]api.SinkStatus) bool { return s["dead"].Error != "" && s["loghost"].Error != "" })
	if s := status()["dead"]; s.Lag < 20 || s.FailingSince.IsZero() || s.Type != "otlp" || s.OldestUnsent.IsZero() {
		t.Errorf("status %+v", s)
	}

	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 1<<16)
		for err == nil {
			_, err = conn.Read(b)
		}
	}()
	wait("the receiver that came", func(s map[string]api.SinkStatus) bool { return s["loghost"].Lag == 0 && s["loghost"].Sent == 20 })

	sequences := func() (list []uint64) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var event struct {
				Metadata struct {
					Sequence uint64 `json:"sequence"`
					UID      string `json:"uid"`
				} `json:"metadata"`
				RawData     string `json:"raw_data"`
				Attestation []struct {
					Chain string `json:"chain_uid"`
				} `json:"attestation_list"`
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			e, err := audit.Parse([]byte(event.RawData))
			if err != nil || e.Seq != event.Metadata.Sequence || e.Hash.String() != event.Metadata.UID || event.Attestation[0].Chain == "" {
				t.Fatalf("%s: %v", line, err)
			}
			list = append(list, event.Metadata.Sequence)
		}
		return list
	}
	from := time.Now()
	h.stop()
	if took := time.Since(from); took > 5*time.Second {
		t.Errorf("the dead sink held the stop up for %s", took)
	}
	head := h.verify().Seq
	if list := sequences(); uint64(len(list)) != head || list[len(list)-1] != head {
		t.Errorf("%d events up to %d, want %d", len(list), list[len(list)-1], head)
	}
	if cursors, err := filepath.Glob(h.path("state/sinks/*.json")); err != nil || len(cursors) != 3 {
		t.Errorf("cursors %q, %v", cursors, err)
	}
	h.start()
	wait("the file again", func(s map[string]api.SinkStatus) bool { return s["siem"].Lag == 0 })
	h.stop()
	for i, seq := range sequences() {
		if seq != uint64(i+1) {
			t.Fatalf("event %d is record %d", i, seq)
		}
	}
}

// A sink that can never work stops the start, which names it.
func TestSinkThatCannotBe(t *testing.T) {
	h := build(t, acme)
	h.stop()
	h.configure(acme + "audit: {sinks: [{name: host, type: syslog, network: tls, address: \"h:1\", tls: {ca: /nowhere/ca.pem}}]}\n")
	if err := h.tryStart(); err == nil || !strings.Contains(err.Error(), "cannot start the sink host: cannot read tls.ca") {
		t.Errorf("%v", err)
	}
}
