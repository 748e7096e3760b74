package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// dlpRequired makes an interceptor mandatory for every message.
const dlpRequired = "\nhooks: {answer: 1h, apps: {\"@acme/dlp\": {required: true}}}\n"

// resolves decides in the background, while the test plays the interceptors.
func (a *app) resolves(params map[string]any) <-chan error {
	done := make(chan error, 1)
	go func() { done <- a.call("approval.resolve", params, nil) }()
	return done
}

// passes makes an interceptor leave the next message unchanged, and returns it.
func (a *app) passes() delivered {
	a.t.Helper()
	m := a.message("hook:message_sending")
	a.answer(m.EventID, map[string]any{})
	return m
}

// asked sends a message that is held, after a required interceptor has passed it.
func asked(alice, dlp *app, session, content string, metadata map[string]any) api.DispatchResult {
	alice.t.Helper()
	var held api.DispatchResult
	done := make(chan error, 1)
	go func() {
		done <- alice.call("message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": metadata}, &held)
	}()
	dlp.passes()
	if err := <-done; err != nil || !held.Held {
		alice.t.Fatalf("%+v, %v", held, err)
	}
	return held
}

// decisions lists the recorded events of an approval.
func (h *harness) decisions(id string) (events []string) {
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: id}}) {
		events = append(events, r.Event)
	}
	return events
}

// If an interceptor becomes required after a message was held, the message is not released without it,
// even if it had seen the message: the person learns which app is missing, and nothing is decided.
func TestNothingIsReleasedWithoutARequiredInterceptor(t *testing.T) {
	t.Parallel()
	t.Run("required later", func(t *testing.T) {
		t.Parallel()
		h := build(t, acme)
		telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
		h.reloaded(acme + dlpRequired)
		saw := h.shown(held.ApprovalID)
		for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
			e := person.conflict("APPROVAL_BLOCKED", decision(what, &saw))
			contains(t, e.Message, "@acme/dlp is required and not connected", "nothing was decided")
		}
		if now := h.shown(held.ApprovalID); now.State != api.ApprovalPending || now.Digest != saw.Digest || now.Given != 0 {
			t.Errorf("it is %+v", now)
		}
		if got := h.decisions(held.ApprovalID); !slices.Equal(got, []string{"not_released", "not_released"}) {
			t.Errorf("on record are %q", got)
		}
		dlp := h.interceptor("@acme/dlp", false)
		done := person.resolves(decision(api.DecideApprove, &saw))
		if m := dlp.passes(); m.Content != promise || m.DispatchID != held.DispatchID || m.Target != "dave" {
			t.Errorf("the interceptor is asked about %+v", m)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if m := telegram.message("hook:message_sending"); m.DispatchID != held.DispatchID {
			t.Errorf("delivered is %s", m.DispatchID)
		}
		// A denial needs nobody else.
		alice.concludes(held.ApprovalID, api.ApprovalApproved)
	})
	t.Run("gone since", func(t *testing.T) {
		t.Parallel()
		h := build(t, acme+dlpRequired)
		alice, dlp, person := h.agent("@acme/alice"), h.interceptor("@acme/dlp", false), h.operates()
		held := asked(alice, dlp, "telegram:dave", promise, fresh(nil))
		dlp.Close()
		saw := h.shown(held.ApprovalID)
		waitFor(t, "the interceptor is gone", func() bool {
			e := person.refuse(api.Conflict, "approval.resolve", decision(api.DecideApprove, &saw))
			return strings.Contains(e.Message, "@acme/dlp is required and not connected")
		})
		person.must("approval.resolve", decision(api.DecideDeny, &saw), nil)
		alice.concludes(held.ApprovalID, api.ApprovalDenied)
	})
}

// If a required interceptor blocks or changes a message at its release, the approvals are
// void: nothing is sent, and a person looks again at the changed message.
func TestRequiredInterceptorVoidsAnApproval(t *testing.T) {
	t.Parallel()
	h := build(t, acme+dlpRequired)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	dlp := h.interceptor("@acme/dlp", false)
	held := asked(alice, dlp, "telegram:dave", promise, fresh(nil))
	// anew checks that an interceptor's answer makes a decision void.
	anew := func(saw *api.Approval, params map[string]any, answer any, objection string) api.Approval {
		t.Helper()
		done := person.resolves(params)
		dlp.answer(dlp.message("hook:message_sending").EventID, answer)
		if code, ocipCode := codeOf(t, <-done); code != api.Conflict || ocipCode != string(api.ApprovalStale) {
			t.Fatalf("it is refused as %s, %s", code, ocipCode)
		}
		now := h.shown(held.ApprovalID)
		if c := changed(t, now.Changed, "interceptor"); c.Now != objection || now.State != api.ApprovalPending || now.Digest == saw.Digest || now.Given != 0 {
			t.Errorf("asked anew because %q it is %+v", c.Now, now)
		}
		person.conflict("APPROVAL_STALE", decision(api.DecideApprove, saw))
		return now
	}
	saw := h.shown(held.ApprovalID)
	now := anew(&saw, decision(api.DecideApprove, &saw), map[string]any{"block": true, "reason": "a name of ours"}, "interceptor @acme/dlp blocked it: a name of ours")
	now = anew(&now, decision(api.DecideTakeover, &now), map[string]any{"metadata": map[string]any{"exchange": map[string]any{"new": true, "classification": "public"}, "chatId": "eve"}}, "an interceptor names another recipient in metadata.chatId than session telegram:dave reaches")
	now = anew(&now, decision(api.DecideApprove, &now), map[string]any{"content": "I promise ***", "metadata": map[string]any{"exchange": map[string]any{"new": true}, "seen": true}}, "interceptor @acme/dlp changed the message")
	if now.Content != "I promise ***" || now.Summary != now.Content || now.ContentBytes != len(now.Content) || !strings.Contains(string(now.Sending), `"seen":true`) || len(now.Changed) != 2 {
		t.Errorf("what the interceptor made of it is %+v", now)
	}
	contains(t, changed(t, now.Changed, "sending").Now, "I promise ***")

	// The interceptor is also asked about the text of a person who takes over, and cannot change it.
	own := decision(api.DecideTakeover, &now)
	own["content"] = "Rumpelstiltskin will do it"
	now = anew(&now, own, map[string]any{"block": true}, "interceptor @acme/dlp blocked it")
	own["digest"] = now.Digest
	now = anew(&now, own, map[string]any{"content": "*** will do it"}, "interceptor @acme/dlp would change the words of the person who takes over")
	if now.Content != "I promise ***" {
		t.Errorf("the agent's message is %q", now.Content)
	}

	done := person.resolves(decision(api.DecideApprove, &now))
	// No lock is held meanwhile: the agent writes to the same receiver.
	m := dlp.message("hook:message_sending")
	other := alice.send("telegram:dave", "Where do we stand?")
	dlp.passes()
	if err := <-other; err != nil {
		t.Error(err)
	}
	if got := telegram.message("hook:message_sending"); !strings.HasPrefix(got.Content, "Where do we stand?") {
		t.Errorf("delivered is %q", got.Content)
	}
	if m.Content != "I promise ***" {
		t.Errorf("the interceptor is asked about %q", m.Content)
	}
	dlp.answer(m.EventID, map[string]any{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := telegram.message("hook:message_sending"); got.DispatchID != held.DispatchID || got.Content != "I promise ***\n\n"+aliceSays {
		t.Errorf("delivered is %+v", got)
	}
	if got := h.decisions(held.ApprovalID); !slices.Equal(got, []string{"asked_anew", "asked_anew", "asked_anew", "asked_anew", "asked_anew", "approved"}) {
		t.Errorf("on record are %q", got)
	}
	h.stop()
	h.verify()
}

// The text of a takeover is sent after the required interceptor has seen it, and a runtime
// can redeem a message only after that.
func TestRequiredInterceptorSeesWhatIsTakenOverAndRedeemed(t *testing.T) {
	t.Parallel()
	h := build(t, acme+dlpRequired)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.redeems(), h.operates()
	dlp := h.interceptor("@acme/dlp", false)
	held := asked(alice, dlp, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	own := decision(api.DecideTakeover, &saw)
	own["content"] = "I will do it"
	done := person.resolves(own)
	if m := dlp.passes(); m.Content != "I will do it" {
		t.Errorf("the interceptor is asked about %q", m.Content)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if m := telegram.message("hook:message_sending"); m.Content != "I will do it" {
		t.Errorf("delivered is %q", m.Content)
	}

	emitted := make(chan api.EmitResult, 1)
	go func() {
		emitted <- alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": fresh(nil)})
	}()
	dlp.passes()
	carried := <-emitted
	saw = h.shown(carried.ApprovalID)
	done = person.resolves(decision(api.DecideApprove, &saw))
	m := dlp.message("hook:message_sending")
	alice.refuse(api.NotFound, "approval.redeem", map[string]any{"approvalId": carried.ApprovalID})
	dlp.answer(m.EventID, map[string]any{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	alice.redeem(carried.ApprovalID)
}

// If several people must approve, the interceptors are asked after the last approval.
// Meanwhile, another person can deny.
func TestRequiredInterceptorIsAskedForTheLastApproval(t *testing.T) {
	t.Parallel()
	h := guarded(t, acme+dlpRequired, people(2, "two people"), listed(t, "carol", ""), listed(t, "dora", ""), listed(t, "erin", ""))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	dlp := h.interceptor("@acme/dlp", false)
	ask := func() api.Approval {
		t.Helper()
		return h.shown(asked(alice, dlp, "telegram:dave", "Hello", fresh(nil)).ApprovalID)
	}
	saw := ask()
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	done := person.resolves(signed(t, "dora", api.DecideApprove, &saw))
	dlp.passes()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	telegram.message("hook:message_sending")
	if now := h.shown(saw.ApprovalID); now.State != api.ApprovalApproved || now.Given != 2 {
		t.Errorf("it is %+v", now)
	}

	saw = ask()
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	done = person.resolves(signed(t, "dora", api.DecideApprove, &saw))
	m := dlp.message("hook:message_sending")
	person.must("approval.resolve", signed(t, "erin", api.DecideDeny, &saw), nil)
	dlp.answer(m.EventID, map[string]any{})
	if code, ocipCode := codeOf(t, <-done); code != api.Conflict || ocipCode != string(api.AlreadyDecided) {
		t.Errorf("after the denial it is %s, %s", code, ocipCode)
	}
}

// If the configuration changes while an interceptor looks at a message that a person approves, the
// new one decides whether it may leave, and who may approve it.
func TestApprovalUnderTheRulesInForce(t *testing.T) {
	t.Parallel()
	for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme+dlpRequired)
			alice, dlp, person := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true), h.operates()
			held := asked(alice, dlp, "telegram:dave", promise, fresh(nil))
			saw := h.shown(held.ApprovalID)
			done := person.resolves(decision(what, &saw))
			m := dlp.message("hook:message_sending")
			h.reloaded(strings.Replace(acme, "user_id: dave, org_unit: engineering, tenant_id: acme-corp", "user_id: dave, org_unit: engineering, tenant_id: globex-inc", 1) + dlpRequired)
			dlp.answer(m.EventID, map[string]any{})
			if code, _ := codeOf(t, <-done); code != api.Conflict {
				t.Errorf("the decision is answered %s", code)
			}
			if now := h.shown(held.ApprovalID); now.State != api.ApprovalPending {
				t.Errorf("the request is %s", now.State)
			}
			if got := h.decisions(held.ApprovalID); slices.Contains(got, "approved") || slices.Contains(got, "taken_over") {
				t.Errorf("on record are %q", got)
			}
		})
	}
}
