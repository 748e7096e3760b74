package daemon_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// waiting names the waiting messages, by session.
func (h *harness) waiting() map[string]string {
	h.t.Helper()
	ids := make(map[string]string)
	for _, m := range h.waits(nil).Messages {
		ids[m.SessionKey] = m.DispatchID
	}
	return ids
}

// withNed is acme with another agent elsewhere.
var withNed = strings.Replace(acme, "routes:", "  - {instance_id: agent-ned-1, user_id: ned, org_unit: engineering, tenant_id: acme-corp, sessions: [\"telegram:ned\"]}\nroutes:", 1)

// becameOf waits until no message waits, and compares their outcomes with want.
func (h *harness) becameOf(ids, want map[string]string) {
	h.t.Helper()
	waitFor(h.t, "nothing waits", func() bool { return len(h.waits(nil).Messages) == 0 })
	got := make(map[string]string)
	for session, id := range ids {
		got[session] = strings.Join(h.eventsOf(id), ", ")
	}
	if !maps.Equal(got, want) {
		h.t.Errorf("on record is %q, want %q", got, want)
	}
	h.verify()
}

// New rules hold a waiting message at its sending, if they would have held it earlier. The
// state has changed since, so the record names the state of the decision.
func TestWhatWaitsIsHeldByNewRules(t *testing.T) {
	t.Parallel()
	h := build(t, withNed)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	bob.dispatch("agent:alice:main", "Which folder is it?", fresh(nil))
	question := alice.message("hook:message_received")
	h.leaves(bob)
	ids := map[string]string{
		"answer": alice.dispatch(question.ReplyTo, "It is the blue folder", nil).DispatchID,
		"first":  alice.dispatch("telegram:sam", "the blue folder", fresh(nil)).DispatchID,
		"second": alice.dispatch("telegram:sam", "the red folder", fresh(nil)).DispatchID,
		"data": alice.dispatch("telegram:dave", "the blue folder", fresh(map[string]any{"classification": "internal", "data": []any{
			map[string]any{"source": "jira", "fields": []string{"salary"}, "classification": "internal", "description": "salaries"},
		}})).DispatchID,
		"public data": alice.dispatch("telegram:dave", "the blue folder", fresh(map[string]any{"classification": "internal", "data": []any{
			map[string]any{"source": "jira", "fields": []string{"name"}, "classification": "public", "description": "names"},
		}})).DispatchID,
	}
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:ned", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	takes := decision(api.DecideTakeover, &saw)
	takes["content"] = "I, a person, will pay 500 dollars."
	h.operates().must("approval.resolve", takes, nil)
	ids["taken over"] = held.DispatchID
	changed := strings.Replace(withNed, "{id: alice,", "{id: alice, can_auto_respond: false,", 1)
	changed = strings.Replace(changed, "user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal]", "user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public]", 1)
	h.reloaded(changed + "\nocip: {unknown: {first_contact: hold}}\napprovals: {required: 2}\n")
	bob = h.agent("@acme/bob")
	h.channel("@openclawos/telegram", "telegram")
	h.becameOf(ids, map[string]string{
		"answer": "asked_anew COMMITMENT_REQUIRES_HUMAN", "first": "asked_anew FIRST_CONTACT", "second": "",
		"data": "asked_anew", "public data": "", "taken over": "asked_anew",
	})
	bob.must("app.heartbeat", nil, nil)
	bob.silent("hook:message_received")
	for _, asked := range h.pending() {
		if asked.Code != string(ocip.ChangedSince) {
			t.Errorf("asked is %+v", asked)
		}
	}
}

// A message that one person approved and another took over counts as approved by both, also
// after a reload.
func TestTakeoverThatWaitsHasItsPeople(t *testing.T) {
	t.Parallel()
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "frank", ""))
	h.reloaded(acme + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {required: 2, allowed_signers: %q}\n", h.path("signers")))
	alice, person := h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	saw = h.shown(held.ApprovalID)
	person.must("approval.resolve", signed(t, "frank", api.DecideTakeover, &saw), nil)
	h.restart()
	contains(t, h.channel("@openclawos/telegram", "telegram").message("hook:message_sending").Content, promise)
	h.verify()
}

// An incoming message that waits for its agent is taken out if the receiver's rules now
// refuse its source.
func TestWhatCameInIsWeighedByItsSource(t *testing.T) {
	t.Parallel()
	h := build(t, withNed)
	telegram := h.channel("@openclawos/telegram", "telegram")
	from := func(name, unit string) map[string]any {
		e := foreign("conv-"+name, 1, "acme-corp")
		e["source_agent"] = map[string]any{"instance_id": "agent-" + name + "-1", "user_id": name, "org_unit": unit, "tenant_id": "acme-corp"}
		return map[string]any{"ocip": e}
	}
	for session, metadata := range map[string]map[string]any{
		"telegram:carol": {}, "telegram:ned": {}, "telegram:alice": {}, "telegram:sam": {}, "telegram:dave": from("dave", "engineering"), "telegram:carol2": from("zoe", "engineering"),
	} {
		telegram.must("agent.queue", map[string]any{"sessionKey": session, "text": "the blue folder", "metadata": metadata}, nil)
	}
	ids := h.waiting()
	changed := strings.Replace(acme, "instance_id: agent-dave-1", "instance_id: agent-dave-2", 1)
	changed = strings.Replace(changed, "routes:", "  - {kind: person, user_id: ned, sessions: [\"telegram:ned\"]}\nroutes:", 1)
	h.reloaded(changed + "\nocip: {inbound: {unannotated: refuse}}\n")
	alice := h.agent("@acme/alice")
	for range 3 {
		alice.message("hook:message_received")
	}
	alice.must("app.heartbeat", nil, nil)
	alice.silent("hook:message_received")
	h.becameOf(ids, map[string]string{
		"telegram:carol": "unannotated_message, withdrawn MALFORMED_ENVELOPE", "telegram:ned": "unannotated_message, withdrawn ENVELOPE_SOURCE_MISMATCH", "telegram:dave": "withdrawn ENVELOPE_FORGED",
		"telegram:alice": "human_message", "telegram:sam": "human_message", "telegram:carol2": "",
	})
}

// A waiting or approved message is not sent past an interceptor that is required now and
// was not asked about it: a person is asked again, and after the approval the interceptor
// is. An incoming message is taken out. A message that the interceptor has seen is sent.
func TestWhatWaitsIsShownToAnInterceptorRequiredSince(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	alice, person := h.redeems(), h.operates()
	ids := map[string]string{"out": alice.dispatch("telegram:dave", "the blue folder", fresh(nil)).DispatchID}
	approved := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": fresh(nil)})
	h.decides(api.DecideApprove, approved.ApprovalID)
	h.reloaded(acme + dlpRequired)
	if e := alice.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": approved.ApprovalID}); ocipCode(t, e) != string(ocip.ChangedSince) {
		t.Errorf("refused by %+v", e)
	}
	channel := h.channel("@openclawos/telegram", "telegram")
	h.becameOf(ids, map[string]string{"out": "asked_anew INTERCEPTOR_BLOCKED"})
	dlp := h.interceptor("@acme/dlp", false)
	for _, asked := range h.pending() {
		contains(t, asked.Reason, "@acme/dlp is required now")
		saw := h.shown(asked.ApprovalID)
		done := person.resolves(decision(api.DecideApprove, &saw))
		dlp.passes()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if asked.DispatchID == ids["out"] {
			contains(t, channel.message("hook:message_sending").Content, "blue folder")
			continue
		}
		h.reloaded(acme + dlpRequired + "# the same\n")
		alice.redeem(asked.ApprovalID)
	}
	if got := h.records(audit.Filter{Like: audit.Record{DispatchID: ids["out"], PolicyResult: "allow"}}); got[len(got)-1].Details["interceptors"] == nil {
		t.Errorf("on record is %+v", got[len(got)-1])
	}
	h.verify()
}

// A waiting message that came in before an interceptor was required is taken out.
func TestWhatCameInPastAnInterceptor(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:sam", "text": "the blue folder"}, nil)
	ids := h.waiting()
	h.reloaded(acme + dlpRequired)
	alice := h.agent("@acme/alice")
	h.becameOf(ids, map[string]string{"telegram:sam": "human_message, withdrawn INTERCEPTOR_BLOCKED"})
	alice.silent("hook:message_received")
}
