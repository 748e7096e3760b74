package daemon_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

func vectors[T any](t *testing.T, file string) T {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	return v
}

// fresh opens a new exchange, declared public.
func fresh(more map[string]any) map[string]any {
	exchange := map[string]any{"new": true, "classification": "public"}
	maps.Copy(exchange, more)
	return map[string]any{"exchange": exchange}
}

// The content of a message raises its level, over the real socket: the envelope shows it,
// and above the sender's maximum the message is refused.
func TestContentRaisesTheLevel(t *testing.T) {
	v := vectors[struct {
		Cases []struct{ Text, Level, Note string }
	}](t, "testdata/content-levels.json")
	if len(v.Cases) == 0 {
		t.Fatal("no cases")
	}
	// One of the texts speaks of a commit; that is the subject of another rule.
	h := build(t, acme+"\nocip: {commitment: {enforcement: monitor}}\n")
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	for _, tc := range v.Cases {
		t.Run(tc.Text[:min(len(tc.Text), 20)], func(t *testing.T) {
			want, err := ocip.ParseLevel(tc.Level)
			if err != nil {
				t.Fatal(err)
			}
			params := map[string]any{"sessionKey": "telegram:dave", "content": tc.Text, "metadata": fresh(nil)}
			if want > ocip.Internal {
				e := alice.refuse(api.Forbidden, "message.dispatch", params)
				if code := ocipCode(t, e); code != string(ocip.ClassificationViolation) {
					t.Errorf("got %s", code)
				}
				// Which rule and where, and never the secret.
				contains(t, e.Message, tc.Level, "at bytes")
				for secret := range strings.FieldsSeq(tc.Text) {
					if len(secret) > 12 && strings.Contains(e.Message, secret) {
						t.Errorf("the answer gives %q away", secret)
					}
				}
				return
			}
			alice.must("message.dispatch", params, nil)
			envelope, err := ocip.ParseEnvelope(telegram.message("hook:message_sending").Metadata["ocip"])
			if err != nil {
				t.Fatal(err)
			}
			if envelope.Classification != want {
				t.Errorf("stamped %s, want %s", envelope.Classification, want)
			}
		})
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{Code: string(ocip.ClassificationViolation)}}) {
		if len(r.Detections) == 0 || r.Detections[0].Rule == "" || r.Detections[0].End <= r.Detections[0].Start {
			t.Errorf("record %d does not say what was found: %+v", r.Seq, r.Detections)
		}
	}
}

// The thirteen keywords stop a message without a person's approval.
func TestCommitmentsNeedAPerson(t *testing.T) {
	v := vectors[struct {
		Cases []struct {
			Text     string
			Keywords []string
		}
	}](t, "testdata/commitments.json")
	if len(v.Cases) == 0 {
		t.Fatal("no cases")
	}
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for i, tc := range v.Cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			params := map[string]any{"sessionKey": "telegram:dave", "content": tc.Text, "metadata": fresh(nil)}
			if len(tc.Keywords) == 0 {
				alice.must("message.dispatch", params, nil)
				return
			}
			got := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", tc.Text, fresh(nil))
			if !slices.Equal(got.OCIP.DetectedKeywords, tc.Keywords) {
				t.Errorf("%q: got %q, want %q", tc.Text, got.OCIP.DetectedKeywords, tc.Keywords)
			}
		})
	}
}

// A stranger gets no promise before a person has looked; the agent's owner gets anything,
// with a record.
func TestCommitmentToAPerson(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:4711", "I promise to approve it.", nil)
	if saw := h.shown(held.ApprovalID); saw.CounterpartyKind != ocip.KindUnknown || saw.Target != "4711" || saw.ExchangeID != "" || !saw.Approvable {
		t.Errorf("a person sees %+v", saw)
	}
	h.decides(api.DecideApprove, held.ApprovalID)
	if m := telegram.message("hook:message_sending"); !strings.HasPrefix(m.Content, "I promise to approve it.") || m.envelope(t).MessageType != ocip.AgentAssisted {
		t.Errorf("released is %+v", m)
	}
	alice.concludes(held.ApprovalID, api.ApprovalApproved)

	sent := alice.dispatch("telegram:alice", "I promise to approve it.", nil)
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	if len(r) != 1 || len(r[0].Detections) != 2 || r[0].PolicyResult != "allow" {
		t.Errorf("records are %+v", r)
	}
}

// Data above the message's level, or above the receiver's, is withheld; the rest is sent,
// and both sides can tell.
func TestDataIsWithheld(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	sent := alice.dispatch("telegram:dave", "Here is the state.", map[string]any{"exchange": map[string]any{"new": true, "data": []map[string]any{
		{"source": "jira", "fields": []string{"status"}, "classification": "internal", "description": "ticket states"},
		{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "salaries"},
	}}})
	var got struct{ DataShared, DataWithheld []map[string]any }
	m := telegram.message("hook:message_sending")
	alice.decode(m.Metadata["exchange"], &got)
	if len(got.DataShared) != 1 || got.DataShared[0]["source"] != "jira" || len(got.DataWithheld) != 1 || got.DataWithheld[0]["reason"] != "above_level" || got.DataWithheld[0]["description"] != "above the message's level" {
		t.Errorf("the receiver got %s", m.Metadata["exchange"])
	}
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	if len(r) != 1 || len(r[0].DataShared) != 1 || len(r[0].DataWithheld) != 1 || r[0].DataWithheld[0].Description != "salaries" {
		t.Errorf("records are %+v", r)
	}
	e := alice.refuse(api.InvalidParams, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "x", "metadata": fresh(map[string]any{"data": []map[string]any{{"classification": "secret"}}})})
	contains(t, e.Message, "metadata.exchange.data[0].classification")
}

// A reply to a message that only a person may answer, or that wants no answer, is refused;
// so is any reply of an agent that does not answer by itself.
func TestReplyPolicies(t *testing.T) {
	shy := strings.Replace(acme, "agents:\n", "agents:\n  - {id: shy, app: \"@acme/shy\", instance_id: agent-shy-1, user_id: shy, org_unit: engineering, tenant_id: acme-corp, can_auto_respond: false}\n", 1)
	h := build(t, shy)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	for i, tc := range []struct {
		policy string
		code   ocip.Code
	}{{"agent-ok", ""}, {"human-only", ocip.CommitmentRequiresHuman}, {"no-reply-needed", ocip.ReplyNotExpected}} {
		t.Run(tc.policy, func(t *testing.T) {
			conversation := fmt.Sprintf("conv-%d", i)
			telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": "Are you there?", "metadata": map[string]any{
				"exchange": map[string]any{"type": "information_query"},
				"ocip": map[string]any{
					"version": "1.0", "message_type": "agent-generated", "classification": "internal", "conversation_id": conversation,
					"source_agent":   map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"},
					"exchange_round": 1, "max_rounds": 3, "capabilities": map[string]any{"can_commit": false, "can_share": []string{"public", "internal"}},
					"reply_policy": tc.policy, "requires_commitment": false, "expires_at": "2099-03-14T10:00:00.000Z",
				},
			}}, nil)
			params := map[string]any{"sessionKey": "telegram:dave", "content": "Yes.", "metadata": map[string]any{"exchange": map[string]any{"conversationId": conversation}}}
			if tc.code == "" {
				alice.must("message.dispatch", params, nil)
				return
			}
			if tc.code == ocip.CommitmentRequiresHuman {
				alice.held(tc.code, "telegram:dave", "Yes.", params["metadata"].(map[string]any))
				return
			}
			if code := ocipCode(t, alice.refuse(api.Forbidden, "message.dispatch", params)); code != string(tc.code) {
				t.Errorf("got %s, want %s", code, tc.code)
			}
		})
	}
	t.Run("can_auto_respond false", func(t *testing.T) {
		agent := h.agent("@acme/shy")
		alice.dispatch("agent:shy:main", "Are you there?", nil)
		m := agent.message("hook:message_received")
		got := agent.held(ocip.CommitmentRequiresHuman, m.ReplyTo, "Yes.", nil)
		contains(t, got.OCIP.Reason, "does not answer by itself")
	})
}

// A message contains the disclosure once, whatever happened to it: an interceptor that strips it,
// an agent that passes a message on, one that quotes the message it answers, a person who approves.
func TestDisclosureOnce(t *testing.T) {
	h := build(t, watched)
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	once := func(what, content string) {
		t.Helper()
		if n := strings.Count(content, aliceSays); n != 1 || !strings.HasSuffix(content, aliceSays) {
			t.Errorf("%s: %q has the disclosure %d times", what, content, n)
		}
	}
	alice.dispatch("agent:bob:main", "The tests pass.", nil)
	got := bob.message("hook:message_received")
	once("sent", got.Content)
	if label, _ := api.Text(got.Metadata["aiDisclosure"]); label != aliceSays {
		t.Errorf("the annotation is %q", label)
	}
	bob.dispatch("telegram:dave", got.Content, map[string]any{"ocip": got.Metadata["ocip"], "aiDisclosure": got.Metadata["aiDisclosure"]})
	if m := telegram.message("hook:message_sending"); m.Content != "The tests pass.\n\n"+aliceSays+"\n\nSent by bob's assistant" {
		t.Errorf("passed on it is %q", m.Content)
	}

	dlp := h.interceptor("@acme/dlp", true)
	for name, edited := range map[string]string{"stripped": "All tests pass.", "kept": "Edited.\n\n" + aliceSays} {
		done := alice.send("telegram:dave", got.Content)
		dlp.answer(dlp.message("hook:message_sending").EventID, map[string]any{"content": edited, "metadata": map[string]any{"aiDisclosure": ""}})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m := telegram.message("hook:message_sending")
		once(name+" by an interceptor", m.Content)
		if label, _ := api.Text(m.Metadata["aiDisclosure"]); label != aliceSays {
			t.Errorf("%s: the annotation is %q", name, label)
		}
	}
	dlp.must("hook.unsubscribe", map[string]any{"events": []string{"message_sending"}}, nil)
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise it.\n\n"+aliceSays, fresh(nil))
	saw := h.shown(held.ApprovalID)
	h.operates().must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	once("approved", telegram.message("hook:message_sending").Content)
}
