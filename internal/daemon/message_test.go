package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// One message all the way: dispatched by an agent's app, received with the stamp by the
// channel's app, and recorded.
func TestMessageReachesItsChannelStamped(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")

	result := alice.dispatch("telegram:dave", "What is the status of ticket ENG-1234?", map[string]any{"target": "kept", "ocip": map[string]any{"version": "forged"}})
	if result.DispatchID == "" || !result.Queued || result.Waiting || result.OCIP == nil || result.OCIP.Round != 1 {
		t.Fatalf("dispatch answered %+v", result)
	}
	m := telegram.message("hook:message_sending")
	if m.ChannelID != "telegram" || m.Target != "dave" || m.DispatchID != result.DispatchID {
		t.Errorf("delivered to %s %s as %s", m.ChannelID, m.Target, m.DispatchID)
	}
	if want := "What is the status of ticket ENG-1234?\n\n" + aliceSays; m.Content != want {
		t.Errorf("content is %q, want %q", m.Content, want)
	}
	if kept, _ := api.Text(m.Metadata["target"]); kept != "kept" {
		t.Errorf("the caller's metadata is lost: %s", m.Metadata["target"])
	}
	envelope, err := ocip.ParseEnvelope(m.Metadata["ocip"])
	if err != nil {
		t.Fatal(err)
	}
	if envelope.SourceAgent.InstanceID != "agent-alice-1" || envelope.ExchangeRound != 1 || envelope.MaxRounds != 3 ||
		envelope.Classification != ocip.Internal || envelope.Capabilities.CanCommit {
		t.Errorf("envelope is %+v", envelope)
	}
	if m.Context.AuditID != result.OCIP.AuditID {
		t.Errorf("event carries record %s, want %s", m.Context.AuditID, result.OCIP.AuditID)
	}
	records := h.records(audit.Filter{Like: audit.Record{DispatchID: result.DispatchID}})
	if len(records) != 1 {
		t.Fatalf("%d records of the dispatch, want 1", len(records))
	}
	r := records[0]
	if r.ID != result.OCIP.AuditID || r.Side != "sender" || r.PolicyResult != "allow" || r.AgentID != "agent-alice-1" ||
		r.Counterparty.InstanceID != "agent-dave-1" || r.Round != 1 || r.PolicyRevision == "" || r.ContentDigest == "" || r.Content != "" {
		t.Errorf("record is %+v", r)
	}
}

func TestMessageVerdicts(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for _, tc := range []struct {
		name, session string
		exchange      map[string]any
		code          ocip.Code
	}{
		{"another tenant", "telegram:eve", nil, ocip.CrossEnterpriseBlocked},
		{"another org unit without policy", "telegram:carol", nil, ocip.PolicyDenied},
		{"declared above the sender's maximum", "telegram:dave", map[string]any{"classification": "confidential"}, ocip.ClassificationViolation},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": tc.session, "content": "hello", "metadata": map[string]any{"exchange": tc.exchange}})
			if code := ocipCode(t, e); code != string(tc.code) {
				t.Errorf("code is %s, want %s", code, tc.code)
			}
			denied := h.records(audit.Filter{Like: audit.Record{Code: string(tc.code)}})
			if len(denied) != 1 || denied[0].PolicyResult != "deny" || denied[0].PolicyReason != e.Message {
				t.Errorf("records are %+v", denied)
			}
		})
	}
	h.stop()
	h.verify()
}

func TestMessageRoundLimit(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for round := 1; round <= 3; round++ {
		if got := alice.dispatch("telegram:dave", "ping", nil).OCIP.Round; got != round {
			t.Fatalf("round %d, want %d", got, round)
		}
	}
	raw, _ := json.Marshal(alice.held(ocip.RoundLimit, "telegram:dave", "once more", nil))
	contains(t, string(raw), `"currentRound":4`, `"maxRounds":3`, `Round 4 (agent-alice-1): once more`)
}

// Two agents of one daemon: both sides decide and record, and the reply goes back in the same exchange.
func TestMessageBetweenLocalAgents(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	sent := alice.dispatch("agent:bob:main", "How far are you?", nil)
	m := bob.message("hook:message_received")
	if m.SessionKey != "agent:bob:main" || m.ReplyTo != "agent:alice:main" || m.RunID == "" {
		t.Fatalf("bob got %+v", m)
	}
	records := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	if len(records) != 2 || records[0].Side != "sender" || records[1].Side != "receiver" || records[1].AgentID != "agent-bob-1" {
		t.Fatalf("records are %+v", records)
	}
	reply := bob.dispatch(m.ReplyTo, "Half way.", nil)
	if reply.OCIP.Round != 2 || reply.OCIP.ConversationID != sent.OCIP.ConversationID {
		t.Errorf("the reply is %+v, want round 2 of %s", reply.OCIP, sent.OCIP.ConversationID)
	}
	if got := alice.message("hook:message_received"); got.ReplyTo != "agent:bob:main" {
		t.Errorf("alice got %+v", got)
	}
	if got := alice.dispatch("agent:bob:main", "Thanks.", nil); got.OCIP.Round != 3 {
		t.Errorf("the answer to the reply has round %d, want 3", got.OCIP.Round)
	}
	bob.must("agent.complete", map[string]any{"runId": m.RunID, "success": true}, nil)
	bob.refuse(api.NotFound, "agent.complete", map[string]any{"runId": m.RunID, "success": true})
}

func TestMessageFromAHuman(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	alice.must("hook.subscribe", map[string]any{"events": []string{"agent_starting", "agent_completed"}}, nil)
	var queued api.QueueResult
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:4711", "text": "hi there"}, &queued)
	m := alice.message("hook:message_received")
	if m.RunID != queued.RunID || m.Content != "hi there" || !queued.Queued {
		t.Errorf("alice got %+v", m)
	}
	alice.next("hook:agent_starting")
	alice.must("agent.complete", map[string]any{"runId": m.RunID, "success": false, "error": "key ghp_0123456789abcdefghijABCDEFGHIJ456789"}, nil)
	ended := alice.message("hook:agent_completed")
	told := h.records(audit.Filter{Like: audit.Record{Event: "run_completed", RunID: m.RunID}})
	if len(told) != 1 || told[0].ID != ended.Context.AuditID || told[0].ContentDigest == "" || told[0].ContentBytes != len(ended.Data) || strings.Contains(fmt.Sprint(told[0].Details), "ghp_") {
		t.Errorf("on record is %+v of %+v", told, ended.HookEvent)
	}
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}); len(got) != 2 || got[0].Event != "human_message" || got[1].Event != "run_completed" {
		t.Errorf("records are %+v", got)
	}
}

// An undeliverable message waits on disk, in order, over a restart of the daemon, and is
// then delivered under the same id.
func TestMessageWaitsForItsChannel(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	var want []string
	for range 200 {
		r := alice.dispatch("telegram:dave", "hello", map[string]any{"exchange": map[string]any{"new": true}})
		if !r.Queued {
			t.Fatal("a message without a receiver is not queued")
		}
		want = append(want, r.DispatchID)
	}
	h.stop()
	h.start()
	telegram := h.channel("@openclawos/telegram", "telegram")
	for i, id := range want {
		if got := telegram.message("hook:message_sending").DispatchID; got != id {
			t.Fatalf("message %d is %s, want %s", i, got, id)
		}
	}
	h.stop()
	h.start()
	again := h.channel("@openclawos/telegram", "telegram")
	h.agent("@acme/alice").dispatch("telegram:dave", "the next", map[string]any{"exchange": map[string]any{"new": true}})
	if got := again.message("hook:message_sending"); got.DispatchID == want[len(want)-1] || got.Content[:8] != "the next" {
		t.Errorf("a message that was taken is sent again: %+v", got)
	}
}
