package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// deaf is the app of the channel telegram, which has stopped reading.
func (h *harness) deaf() *wire {
	h.t.Helper()
	w := h.registered("@acme/telegram", `{"channels":{"provides":["telegram"]},"hooks":{"subscribes":["message_sending"]}}`)
	w.grant("capability.register", `{"type":"channel","config":{"channelId":"telegram"}}`)
	w.grant("hook.subscribe", `{"events":["message_sending"]}`)
	w.grant("app.ready", `{}`)
	return w
}

// fills has an agent send more than the operating system keeps for an app that does not read. All
// of it is in the app's queue then.
func (h *harness) fills(a *app, text string) (last api.DispatchResult) {
	h.t.Helper()
	for n := range 20 {
		last = a.dispatch(fmt.Sprint("telegram:z", n), text+strings.Repeat(" word", 5000), nil)
	}
	h.inQueue(last.DispatchID)
	return last
}

// inQueue checks that a message is in the queue of its app's connection.
func (h *harness) inQueue(id string) {
	h.t.Helper()
	for _, m := range h.waits(nil).Messages {
		if m.DispatchID == id && m.Handed {
			return
		}
	}
	h.t.Fatalf("message %s is not in the queue of a connection", id)
}

// reads returns the lines with a text that the app reads until it is answered, or its connection
// has ended.
func (w *wire) reads(text string) (lines []string, open bool) {
	w.t.Helper()
	// It cannot be written if the connection has ended.
	_, _ = w.conn.Write([]byte(w.request("last", "app.heartbeat", `{}`) + "\n"))
	for {
		line, err := w.lines.ReadString('\n')
		if err != nil {
			if strings.Contains(line, text) && strings.Contains(line, "secret") {
				lines = append(lines, line)
			}
			return lines, false
		}
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
		if strings.Contains(line, `"requestId":"last"`) {
			return lines, true
		}
	}
}

// A pause takes back the messages of its scope that an app has not read, although the daemon has
// queued them for its connection. Others stay, on the same connection, and those that were taken
// back come when the pause ends.
func TestPauseReachesQueuesOfConnections(t *testing.T) {
	h := plot(t, moving)
	said := h.observe()
	h.start()
	t.Cleanup(h.stop)
	telegram := h.deaf()
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	h.fills(alice, "of alice")
	sent := bob.dispatch("telegram:zed", "of bob", nil)
	h.inQueue(sent.DispatchID)
	h.pause("pause", map[string]any{"agent": "bob"})
	if got, open := telegram.reads("of bob"); len(got) > 0 || !open {
		t.Errorf("after the pause it reads %q, and its connection is open: %t", got, open)
	}
	h.pause("resume", map[string]any{"agent": "bob"})
	telegram.wait(func(m *message) bool { return strings.Contains(m.line, "of bob") })
	// All messages are of the scope. If one of them is half written, the connection ends.
	last := h.fills(bob, "of bob")
	h.pause("pause", nil)
	got, open := telegram.reads(last.DispatchID)
	if len(got) > 0 {
		t.Errorf("it reads the last message %d times", len(got))
	}
	closed := said.FilterMessage("a connection was to get a text that may not be sent any more: closing it").Len()
	if open && closed != 0 || !open && closed != 1 {
		t.Errorf("the connection is open: %t, and the log says %d times that it was closed", open, closed)
	}
	h.pause("resume", nil)
	if !open {
		telegram = h.deaf()
	}
	telegram.wait(func(m *message) bool { return strings.Contains(m.line, last.DispatchID) })
}

// A reload takes back what the new configuration forbids, here because the channel belongs to
// another tenant, and withdraws it.
func TestReloadReachesQueuesOfConnections(t *testing.T) {
	h := build(t, moving)
	telegram := h.deaf()
	last := h.fills(h.agent("@acme/alice"), "of alice")
	h.reloaded(moved)
	if got, _ := telegram.reads(last.DispatchID); len(got) > 0 {
		t.Errorf("after the reload it reads the last message %d times", len(got))
	}
	h.channel("@globex/telegram", "telegram").silent("hook:message_sending")
	h.statusUntil("an empty queue", func(s api.Status) bool { return len(s.Queues) == 0 })
	got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, Event: "withdrawn", DispatchID: last.DispatchID}})
	if len(got) != 1 {
		t.Errorf("on record is %+v", got)
	}
}

// queue.drop removes a message that is queued for a connection whose app does not read.
func TestDropReachesQueuesOfConnections(t *testing.T) {
	h := build(t, moving)
	telegram := h.deaf()
	alice := h.agent("@acme/alice")
	h.fills(alice, "of alice")
	dropped, kept := alice.dispatch("telegram:zed", "to be dropped", nil), alice.dispatch("telegram:yan", "to be kept", nil)
	h.inQueue(kept.DispatchID)
	var result api.QueueDropResult
	h.operator("queue.drop", map[string]any{"dispatchIds": []string{dropped.DispatchID}}, &result)
	if len(result.Dropped) != 1 || len(result.Kept) > 0 {
		t.Errorf("it is answered %+v", result)
	}
	got, open := telegram.reads("to be ")
	if len(got) > 1 || len(got) == 1 && !strings.Contains(got[0], "to be kept") || !open {
		t.Errorf("it reads %q, and its connection is open: %t", got, open)
	}
	if len(got) == 0 {
		telegram.wait(func(m *message) bool { return strings.Contains(m.line, "to be kept") })
	}
}
