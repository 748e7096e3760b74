package daemon_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A message that is paused while an interceptor is asked is refused after the answer:
// nothing is decided after the pause's record, whoever delivers it.
func TestPauseWhileSomebodyIsAsked(t *testing.T) {
	h := build(t, watched)
	hooks := []string{"message_sending", "tool_executing"}
	guard := h.register("@acme/guard", api.Capabilities{Hooks: api.HookDeclaration{Intercepts: hooks}})
	guard.must("hook.subscribe", m{"events": hooks}, nil)
	guard.must("app.ready", nil, nil)
	for _, hook := range hooks {
		guard.must("capability.register", m{"type": "hook", "config": m{"event": hook, "intercept": true}}, nil)
	}
	watcher := h.register("@acme/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: hooks}})
	watcher.must("hook.subscribe", m{"events": hooks}, nil)
	watcher.must("app.ready", nil, nil)
	alice := h.agent("@acme/alice")
	said := m{"sessionKey": "agent:bob:main", "content": "Is it so?"}
	for _, c := range []struct {
		method, hook string
		params, left m
	}{
		{"message.dispatch", "message_sending", said, m{"content": "Is it?"}},
		{"hook.emit", "message_sending", m{"hookName": "message_sending", "data": said}, m{"content": "Is it?"}},
		{"hook.emit", "tool_executing", m{"hookName": "tool_executing", "data": m{"toolName": "shell"}}, m{"toolName": "other"}},
	} {
		type answer struct {
			emitted emitted
			err     error
		}
		came := make(chan answer, 1)
		go func() {
			var a answer
			var raw jsontext.Value
			if a.err = alice.call(c.method, c.params, &raw); a.err == nil {
				alice.decode(raw, &a.emitted)
			}
			came <- a
		}()
		asked := guard.message("hook:" + c.hook)
		h.pause("pause", nil)
		guard.answer(asked.EventID, c.left)
		got := <-came
		if c.method == "hook.emit" {
			if got.err != nil || got.emitted.Allowed || got.emitted.OCIP.Code != string(ocip.Paused) {
				t.Errorf("%s of %s is allowed while it is paused: %+v, %v", c.method, c.hook, got.emitted, got.err)
			}
		} else if e := api.AsError(got.err); e == nil || ocipCode(t, e) != string(ocip.Paused) {
			t.Errorf("%s is decided while it is paused: %v", c.method, got.err)
		}
		h.pause("resume", nil)
	}
	for _, hook := range hooks {
		watcher.quiet("hook:" + hook)
	}
	if n := len(h.records(audit.Filter{Like: audit.Record{Code: string(ocip.Paused)}})); n != 3 {
		t.Errorf("%d refusals are on record", n)
	}
}

// A runtime that delivers by itself may send nothing to a paused agent, nor bring anything
// in through a paused channel; its approved messages wait.
func TestPauseOfWhatARuntimeDelivers(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	promise := m{"sessionKey": "agent:bob:main", "content": "I promise to do it.", "metadata": fresh(nil)}
	held := alice.emit("message_sending", promise, nil)
	if !held.Held {
		t.Fatalf("got %+v", held)
	}
	h.pause("pause", m{"agent": "bob"})
	h.pause("pause", m{"channel": "signal"})
	for hook, data := range map[string]m{
		"message_sending":  {"sessionKey": "agent:bob:main", "content": "Is it so?", "metadata": fresh(nil)},
		"message_received": {"sessionKey": "signal:me", "content": "Hello."},
	} {
		if got := alice.emit(hook, data, m{"agentId": "alice"}); got.Allowed || got.OCIP.Code != string(ocip.Paused) {
			t.Errorf("%s is allowed while the other end is paused: %+v", hook, got)
		}
	}
	var shown api.Approval
	h.operator("approval.get", m{"approvalId": held.ApprovalID}, &shown)
	h.operator("approval.resolve", m{"approvalId": held.ApprovalID, "decision": "approve", "digest": shown.Digest}, nil)
	alice.quiet(api.ApprovalEvent)
	if waits := h.waits(nil); len(waits.Messages) != 1 || waits.Messages[0].Sender != "alice" || waits.Messages[0].Paused != "agent:bob" {
		t.Errorf("what waits is %+v", waits.Messages)
	}
	h.pause("resume", m{"agent": "bob"})
	if got := alice.next(api.ApprovalEvent); !strings.Contains(string(got.Payload), "I promise to do it.") {
		t.Errorf("after the pause came %s", got.Payload)
	}
}

// A run of a paused agent ends, and nobody gets its app's report of it.
func TestPauseTellsNobodyHowARunEnded(t *testing.T) {
	h := build(t, watched)
	watcher := h.register("@acme/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"agent_end"}}})
	watcher.must("hook.subscribe", m{"events": []string{"agent_end"}}, nil)
	watcher.must("app.ready", nil, nil)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	for _, paused := range []bool{true, false} {
		alice.dispatch("agent:bob:main", "Is it so?", fresh(nil))
		run := bob.message("hook:message_received").RunID
		if paused {
			h.pause("pause", m{"agent": "bob"})
		}
		bob.must("agent.complete", m{"runId": run, "success": false, "error": "said while paused"}, nil)
		if !paused {
			watcher.next("hook:agent_end")
			continue
		}
		watcher.quiet("hook:agent_end")
		h.pause("resume", m{"agent": "bob"})
		if r := h.records(audit.Filter{Like: audit.Record{Event: "run_completed", RunID: run}}); len(r) != 1 || r[0].Details["notTold"] == nil {
			t.Errorf("on record %+v", r)
		}
	}
}
