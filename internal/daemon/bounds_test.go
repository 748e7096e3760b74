package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// Many connections that do not read stay within the common memory limit, and readers notice nothing.
func TestReadersThatDoNotReadTakeBoundedMemory(t *testing.T) {
	const deaf, asks, blob = 24, 30, 200 << 10
	h := plot(t, acme+busy+fmt.Sprintf(`
ipc: {max_total_queue_bytes: %d}
channels: {big: {blob: %q}}
`, 8<<20, strings.Repeat("x", blob)))
	said := h.observe()
	h.start()
	t.Cleanup(h.stop)
	worker := h.work(t)
	defer worker.end()
	before := heap()
	var all []*wire
	for n := range deaf {
		w := h.registered(fmt.Sprint("@evil/deaf", n), `{"channels":{"provides":["big"]}}`)
		all = append(all, w)
		for i := range asks {
			// A closed connection takes no more.
			if _, err := fmt.Fprintln(w.conn, w.request(fmt.Sprint("r", i), "config.get", `{"path":"channels.big"}`)); err != nil {
				break
			}
		}
		if grown := heap() - before; grown > mostMemory {
			t.Fatalf("%d connections that do not read take %d MB", n+1, grown>>20)
		}
	}
	worker.goesOn(t)
	// The daemon answers in its own time: a client that reads before its queue is full gets everything.
	for late := time.Now().Add(patience); ; breathe() {
		var status api.Status
		h.operator("kernel.status", map[string]any{}, &status)
		if status.Connections < deaf {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("%d connections are open, and nothing more is left unread", status.Connections)
		}
	}
	if grown := heap() - before; grown > mostMemory {
		t.Errorf("connections that do not read take %d MB", grown>>20)
	}
	ended := 0
	for _, w := range all {
		if w.endedEarly() {
			ended++
		}
	}
	lagging := said.FilterMessage("a connection does not read: closing it").Len()
	if ended == 0 || ended != lagging {
		t.Errorf("%d of %d connections were ended, %d for what they left unread", ended, deaf, lagging)
	}
}

// endedEarly reads a connection that was not read before, and reports whether the daemon
// ended it before its last answer. A client that is in time gets the last words.
func (w *wire) endedEarly() bool {
	w.t.Helper()
	for {
		line, err := w.lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.t.Fatal(err)
		}
		if err != nil {
			return true
		}
		m := parse(w.t, line)
		if m.Event == api.KernelLagging {
			w.ended()
			return true
		}
		if m.RequestID == "r29" {
			w.conn.Close()
			return false
		}
	}
}

// A process that registers as many apps as it can locks out neither operators nor others'
// apps, because it reaches its own limit first.
func TestRegistrationsOfOneProcessLockNobodyOut(t *testing.T) {
	if dir := os.Getenv(newcomerHarness); dir != "" {
		(&harness{t: t, dir: dir}).registered("@acme/other", `{}`).alive()
		return
	}
	h := build(t, acme+"ipc: {max_connections: 40, max_connections_per_process: 30}\n")
	for n := range 30 {
		h.registered(fmt.Sprint("@evil/many", n), `{}`)
	}
	w := h.dialWire("kernel.sock")
	if m := w.read(); m.Error.Code != api.ConnectionClosed || !strings.Contains(m.Error.Message, "max_connections_per_process") {
		t.Errorf("one more got %s", m.line)
	}
	other := exec.CommandContext(t.Context(), self(t), "-test.v", "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), newcomerHarness+"="+h.dir)
	if out, err := other.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("an app of another process does not get in: %s (%v)", out, err)
	}
}

// newcomerHarness tells the process of another app where the daemon is.
const newcomerHarness = "OCIPD_DAEMON_TEST_NEWCOMER_HOUSE"

// If apps use every connection for apps, an operator can still connect.
func TestAppsThatHaveEveryConnectionLeaveTheOperatorsTheirs(t *testing.T) {
	h := build(t, acme+"ipc: {max_connections: 30}\n")
	for n := range 30 {
		h.registered(fmt.Sprint("@evil/many", n), `{}`)
	}
	h.dialWire("kernel.sock").failedFirst(api.ConnectionClosed)
	var status api.Status
	h.operator("kernel.status", map[string]any{}, &status)
	if len(status.Apps) != 30 {
		t.Errorf("%d apps", len(status.Apps))
	}
}

// failedFirst checks that a connection is turned away.
func (w *wire) failedFirst(code api.Code) {
	w.t.Helper()
	w.failed(w.read(), code)
}
