package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// promise is a text that no agent may send without a person.
const promise = "I promise to do it by Friday"

// decision makes the parameters of a decision about the shown request.
func decision(what string, saw *api.Approval) map[string]any {
	return map[string]any{"approvalId": saw.ApprovalID, "decision": what, "digest": saw.Digest}
}

// decides has a person look at a held message and then decide about it.
func (h *harness) decides(what, id string) (result api.ApprovalResolveResult) {
	h.t.Helper()
	saw := h.shown(id)
	h.operates().must("approval.resolve", decision(what, &saw), &result)
	return result
}

// conflict makes a decision that must be refused with a code.
func (a *app) conflict(code string, params map[string]any) *api.Error {
	a.t.Helper()
	e := a.refuse(api.Conflict, "approval.resolve", params)
	if got := ocipCode(a.t, e); got != code {
		a.t.Fatalf("%v is refused as %s (%s), want %s", params["decision"], got, e.Message, code)
	}
	return e
}

// outcome returns the app's next event about a message that it asked for.
func (a *app) outcome() (o api.ApprovalOutcome) {
	a.t.Helper()
	a.decode(a.next(api.ApprovalEvent).Payload, &o)
	return o
}

// concludes checks that the next outcome is that of one approval.
func (a *app) concludes(id, resolution string) api.ApprovalOutcome {
	a.t.Helper()
	o := a.outcome()
	if o.ApprovalID != id || o.Resolution != resolution {
		a.t.Fatalf("%s is told of %s: %s, want %s: %s", a.id, o.ApprovalID, o.Resolution, id, resolution)
	}
	return o
}

// envelope reads a message's envelope.
func (d *delivered) envelope(t testing.TB) ocip.Envelope {
	t.Helper()
	e, err := ocip.ParseEnvelope(d.Metadata["ocip"])
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// silence shows that nothing was on its way to a channel: a message sent now comes next.
func (a *app) silence(t testing.TB, from *app, session string) {
	t.Helper()
	marker := from.dispatch(session, "Are you there?", fresh(nil))
	if m := a.message("hook:message_sending"); m.DispatchID != marker.DispatchID {
		t.Errorf("%q was delivered, want nothing", m.Content)
	}
}

// A held message is stored completely, in the commit of its decision, and a person sees
// everything that the decision needs.
func TestHoldIsStoredWithItsDecision(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	before := h.logEnd()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(map[string]any{"id": "exch-1"}))
	if !slices.Equal(held.OCIP.DetectedKeywords, []string{"promise"}) || held.OCIP.Reason == "" || held.DispatchID == "" {
		t.Errorf("the caller is told %+v", held.OCIP)
	}

	r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID}})
	if len(r) != 1 || r[0].Seq != before+1 || r[0].ID != held.OCIP.AuditID || r[0].PolicyResult != string(ocip.RequireApproval) ||
		r[0].DispatchID != held.DispatchID || r[0].Code != string(ocip.CommitmentRequiresHuman) || r[0].Outcome != "escalated" || r[0].Side != audit.SideSender {
		t.Fatalf("on record: %+v", r)
	}
	saw := h.shown(held.ApprovalID)
	if r[0].Details["digest"] != saw.Digest || r[0].PolicyRevision != saw.PolicyRevision || saw.PolicyRevision == "" || saw.PolicyRevision != h.policyStatus().Revision {
		t.Errorf("the record says digest %v and policy %s, the person sees %s and %s", r[0].Details["digest"], r[0].PolicyRevision, saw.Digest, saw.PolicyRevision)
	}

	want := api.ApprovalSummary{
		ApprovalID: held.ApprovalID, Kind: api.ApprovalOfMessage, CounterpartyKind: ocip.KindAgent, Target: "dave", State: api.ApprovalPending, Code: string(ocip.CommitmentRequiresHuman), Reason: held.OCIP.Reason,
		AgentID: "alice", Agent: "agent-alice-1", AppID: "@acme/alice", UserID: "alice", SessionKey: "telegram:dave",
		Counterparty: "agent-dave-1", CounterpartyUserID: "dave", CounterpartyTenantID: "acme-corp", ExchangeID: "exch-1", ConversationID: held.OCIP.ConversationID,
		Type: ocip.InformationQuery, MaxRounds: 3, Classification: "public", Summary: promise, DispatchID: held.DispatchID,
		AskedAt: saw.AskedAt, ExpiresAt: saw.AskedAt + 24*60*60*1000, Approvable: true, Needed: 1, Estimate: saw.Estimate,
		Reasons: []ocip.Ground{{Code: ocip.CommitmentRequiresHuman, Rule: "commitment", Reason: held.OCIP.Reason, Guess: saw.Guess}},
	}
	if !reflect.DeepEqual(saw.ApprovalSummary, want) || saw.Likelihood == "" || saw.LikelyBecause == "" || saw.AskedAt > r[0].Time.UnixMilli() {
		t.Errorf("shown are\n%+v, want\n%+v", saw.ApprovalSummary, want)
	}
	var sending struct {
		SessionKey, Content string
		Metadata            api.Object
	}
	alice.decode(saw.Sending, &sending)
	envelope, err := ocip.ParseEnvelope(sending.Metadata["ocip"])
	if err != nil {
		t.Fatal(err)
	}
	if saw.Content != promise || sending.SessionKey != "telegram:dave" || sending.Content != promise+"\n\n"+aliceSays ||
		envelope.MessageType != ocip.AgentAssisted || !envelope.Capabilities.CanCommit || envelope.ExchangeRound != 1 {
		t.Errorf("would be sent: %+v with %+v", sending, envelope)
	}
	if len(saw.Detections) == 0 || saw.Detections[0].Rule == "" || len(saw.ToSign) != len(api.DecisionsOf(api.ApprovalOfMessage)) || saw.SignatureRequired || saw.Decision != nil {
		t.Errorf("shown are %+v", saw)
	}
	for what, text := range saw.ToSign {
		if text != api.SignedText(saw.ApprovalID, what, saw.Digest) {
			t.Errorf("to sign for %s: %q", what, text)
		}
	}
	// Nothing was sent, and the exchange waits for a person.
	telegram.silence(t, alice, "telegram:dave")
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "And?", "metadata": map[string]any{"exchange": map[string]any{"id": "exch-1"}}})
	if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
		t.Errorf("a message past the one that waits: %s", code)
	}
}

// The same bytes asked again are the same request, also over a restart, and other bytes another.
func TestHoldOfTheSameBytes(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	metadata := func() map[string]any { return map[string]any{"exchange": map[string]any{"new": true}, "thread": 7} }
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, metadata())
	again := func() {
		t.Helper()
		got := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, metadata())
		if got.ApprovalID != held.ApprovalID || got.DispatchID != held.DispatchID || got.OCIP.Reason != held.OCIP.Reason || got.OCIP.AuditID == held.OCIP.AuditID {
			t.Errorf("asked again: %+v %+v, want %+v %+v", got, got.OCIP, held, held.OCIP)
		}
	}
	again()
	h.stop()
	h.start()
	alice = h.agent("@acme/alice")
	again()
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: held.ApprovalID}}); len(r) != 2 || r[0].Event != "asked_again" || r[1].Event != "asked_again" {
		t.Errorf("on record: %+v", r)
	}

	ids := map[string]string{held.ApprovalID: "the first"}
	for name, ask := range map[string]func() string{
		"other content": func() string {
			return alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" ", metadata()).ApprovalID
		},
		"other metadata": func() string {
			return alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID
		},
		"other session": func() string {
			return alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, metadata()).ApprovalID
		},
		"carried by its runtime": func() string {
			got := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": metadata()})
			return got.ApprovalID
		},
	} {
		id := ask()
		if other := ids[id]; other != "" {
			t.Errorf("%s waits as approval %s, like %s", name, id, other)
		}
		ids[id] = name
	}
	wantWaiting(t, h, len(ids))

	// After a decision, the same bytes are a new request.
	h.decides(api.DecideDeny, held.ApprovalID)
	if next := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, metadata()); ids[next.ApprovalID] != "" {
		t.Errorf("after the decision it waits as %s", next.ApprovalID)
	}
}

// emitHeld emits a message that must be held.
func (a *app) emitHeld(data map[string]any) api.EmitResult {
	a.t.Helper()
	var got api.EmitResult
	a.must("hook.emit", map[string]any{"hookName": "message_sending", "data": data}, &got)
	if got.Allowed || !got.Held || got.ApprovalID == "" || got.Reason == "" || len(got.Data) > 0 {
		a.t.Fatalf("not held: %+v", got)
	}
	return got
}

// An approved message is sent with every byte of its metadata as given, in any notation,
// and without a new request.
func TestHoldKeepsTheBytes(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.registered("@acme/alice", `{}`)
	metadata := `"n":1.50,"big":12345678901234567890123,"e":1E40,"esc":"\u00e9\/\u003c\ud83d\ude00\u2028","sp":[ 1 ,  2 ] ,"o":{"b":1, "a":{"c":null}}`
	m := alice.ask("message.dispatch", `{"sessionKey":"telegram:dave","content":"`+promise+` \u00e9\u0000\u2028 <&>","metadata":{`+metadata+`}}`)
	var held api.DispatchResult
	if err := json.Unmarshal(m.Result, &held); err != nil || !held.Held {
		t.Fatalf("%s %v", m.line, err)
	}
	if got := h.decides(api.DecideApprove, held.ApprovalID); got.State != api.ApprovalApproved {
		t.Fatalf("got %+v", got)
	}
	line := telegram.next("hook:message_sending").Payload
	for _, part := range []string{`"n":1.50`, `"big":12345678901234567890123`, `"e":1E40`, `"o":{"b":1, "a":{"c":null}}`, `"sp":[ 1 ,  2 ]`, `"esc":"\u00e9\/\u003c\ud83d\ude00\u2028"`} {
		contains(t, string(line), part)
	}
	var d delivered
	if err := json.Unmarshal(line, &d.HookEvent, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(d.Data, &d, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if want := promise + " é\x00\u2028 <&>\n\n" + aliceSays; d.Content != want {
		t.Errorf("content is %q, want %q", d.Content, want)
	}
}

// A decision applies only to what its person has seen.
func TestDecisionIsBoundToItsDigest(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	one := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	other := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise something else", fresh(nil)).ApprovalID)
	person := h.operates()
	for _, tc := range []struct {
		name, digest string
		code         api.Code
	}{
		{"none", "", api.InvalidParams},
		{"that of another approval", other.Digest, api.Conflict},
		{"one that is cut", one.Digest[:len(one.Digest)-1], api.Conflict},
		{"one in capitals", strings.ToUpper(one.Digest), api.Conflict},
		{"one with a space", one.Digest + " ", api.Conflict},
		{"endless", strings.Repeat("0", 4096), api.InvalidParams},
	} {
		for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
			t.Run(what+" with "+tc.name, func(t *testing.T) {
				params := map[string]any{"approvalId": one.ApprovalID, "decision": what, "digest": tc.digest}
				if tc.code == api.InvalidParams {
					contains(t, person.refuse(tc.code, "approval.resolve", params).Message, "digest")
					return
				}
				person.conflict("APPROVAL_STALE", params)
			})
		}
	}
	// A denial needs no digest, but a given one must be right.
	person.conflict("APPROVAL_STALE", map[string]any{"approvalId": one.ApprovalID, "decision": api.DecideDeny, "digest": other.Digest})
	person.refuse(api.NotFound, "approval.resolve", map[string]any{"approvalId": "none", "decision": api.DecideDeny})
	for _, wrong := range []map[string]any{
		{"approvalId": one.ApprovalID, "decision": "allow", "digest": one.Digest},
		{"approvalId": one.ApprovalID, "digest": one.Digest},
		{"decision": api.DecideApprove, "digest": one.Digest},
		{"approvalId": one.ApprovalID, "decision": api.DecideApprove, "digest": one.Digest, "content": "my words"},
		{"approvalId": one.ApprovalID, "decision": api.DecideDeny, "note": strings.Repeat("x", api.MaxNote+1)},
	} {
		person.refuse(api.InvalidParams, "approval.resolve", wrong)
	}
	if now := h.shown(one.ApprovalID); now.State != api.ApprovalPending || now.Digest != one.Digest || len(now.Changed) > 0 {
		t.Errorf("after all that it is %+v", now)
	}
	telegram.silence(t, alice, "telegram:dave")
	person.must("approval.resolve", decision(api.DecideApprove, &one), nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != one.DispatchID {
		t.Errorf("delivered is %s", m.DispatchID)
	}
}

// Each approval is decided once, whatever is tried next, and a later decider learns who was first.
func TestDecidedOnce(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	person := h.operates()
	states := map[string]string{
		api.DecideApprove: api.ApprovalApproved, api.DecideDeny: api.ApprovalDenied,
		api.DecideTakeover: api.ApprovalTakenOver, api.DecideResolve: api.ApprovalResolved,
	}
	for _, first := range api.DecisionsOf(api.ApprovalOfMessage) {
		t.Run(first, func(t *testing.T) {
			held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" after "+first, fresh(nil))
			saw := h.shown(held.ApprovalID)
			var got api.ApprovalResolveResult
			params := decision(first, &saw)
			params["note"] = "because of " + first
			person.must("approval.resolve", params, &got)
			if got.State != states[first] || got.DispatchID != held.DispatchID {
				t.Fatalf("got %+v", got)
			}
			for _, second := range api.DecisionsOf(api.ApprovalOfMessage) {
				e := person.conflict("APPROVAL_DECIDED", decision(second, &saw))
				contains(t, e.Message, states[first], "by uid:")
			}
			now := h.shown(held.ApprovalID)
			if now.State != states[first] || now.Decision == nil || now.Decision.Decision != first || now.Decision.Note != "because of "+first ||
				!strings.HasPrefix(now.Decision.By, "uid:") || now.DecidedAt != now.Decision.At || now.DecidedAt < now.AskedAt {
				t.Errorf("afterwards it is %+v, %+v", now.ApprovalSummary, now.Decision)
			}
			o := alice.concludes(held.ApprovalID, states[first])
			if o.DispatchID != held.DispatchID || o.Note != "because of "+first || len(o.Data) > 0 || o.Timestamp != now.DecidedAt {
				t.Errorf("the app is told %+v", o)
			}
			r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionApproval}})
			if len(r) != 1 || r[0].Event != states[first] || r[0].Details["by"] != now.Decision.By || r[0].Details["note"] != "because of "+first ||
				r[0].Details["digest"] != saw.Digest || r[0].DispatchID != held.DispatchID || r[0].TenantID != "acme-corp" {
				t.Errorf("on record: %+v", r)
			}
			if first == api.DecideApprove || first == api.DecideTakeover {
				if m := telegram.message("hook:message_sending"); m.DispatchID != held.DispatchID {
					t.Errorf("delivered is %s, want %s", m.DispatchID, held.DispatchID)
				}
			}
			telegram.silence(t, alice, "telegram:dave")
		})
	}
	h.stop()
	h.verify()
}

// If many people decide at once, one wins; the message is sent once or not at all,
// according to that decision.
func TestDecisionRace(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	people := make([]*app, 8)
	for i := range people {
		people[i] = h.operates()
	}
	for round := range 5 {
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", fmt.Sprint(promise, round), fresh(nil))
		saw := h.shown(held.ApprovalID)
		results := make([]error, len(people))
		var deciding sync.WaitGroup
		for i, p := range people {
			deciding.Go(func() {
				results[i] = p.call("approval.resolve", decision(api.DecisionsOf(api.ApprovalOfMessage)[i%len(api.DecisionsOf(api.ApprovalOfMessage))], &saw), nil)
			})
		}
		deciding.Wait()
		won := ""
		for i, err := range results {
			if err == nil {
				if won != "" {
					t.Errorf("%s won too", api.DecisionsOf(api.ApprovalOfMessage)[i%4])
				}
				won = api.DecisionsOf(api.ApprovalOfMessage)[i%4]
				continue
			}
			var e *api.Error
			if !errors.As(err, &e) || ocipCode(t, e) != "APPROVAL_DECIDED" || !strings.Contains(e.Message, "by uid:") {
				t.Errorf("a loser is told %v", err)
			}
		}
		now := h.shown(held.ApprovalID)
		if now.Decision == nil || now.Decision.Decision != won {
			t.Fatalf("%q won, decided is %+v", won, now.Decision)
		}
		if won == api.DecideApprove || won == api.DecideTakeover {
			if m := telegram.message("hook:message_sending"); m.DispatchID != held.DispatchID {
				t.Errorf("delivered is %s, want %s", m.DispatchID, held.DispatchID)
			}
		}
		telegram.silence(t, alice, "telegram:dave")
		if r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionApproval}}); len(r) != 1 {
			t.Errorf("%d decisions are on record", len(r))
		}
		alice.concludes(held.ApprovalID, now.State)
	}
}

// people is a policy that requires several people for every message.
func people(approvers int, reason string) map[string]string {
	files := rego(true, reason)
	files["exchange.rego"] = "package ocip.agent_exchange\n\n" + fmt.Sprintf(
		"decision := {\"allow\": true, \"require_approval\": true, \"reason\": %q, \"constraints\": {\"approvers\": %d}}\n", reason, approvers)
	return files
}

// enact puts a policy in force.
func (h *harness) enact(files map[string]string) {
	h.t.Helper()
	lay(h.t, h.path("policy"), files)
	if _, err := h.reload(); err != nil {
		h.t.Fatal(err)
	}
}

// ruled builds a harness with a policy that is loaded only on request.
func ruled(t testing.TB, yaml string, files map[string]string) *harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	lay(t, h.path("policy"), files)
	h.configure(yaml + policySection(h.path("policy"), "watch: false"))
	h.start()
	t.Cleanup(h.stop)
	return h
}

// changed returns the change of a field in a stale approval.
func changed(t testing.TB, list []api.ApprovalChange, field string) api.ApprovalChange {
	t.Helper()
	i := slices.IndexFunc(list, func(c api.ApprovalChange) bool { return c.Field == field })
	if i < 0 {
		t.Fatalf("%s is not among the changes %+v", field, list)
	}
	return list[i]
}

// After a change of the policy, an approval releases nothing: it names the change, and a
// person has to decide again, or cannot any more.
func TestApprovalIsBoundToThePolicy(t *testing.T) {
	h := ruled(t, acme, rego(true, "as before"))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	first := h.shown(held.ApprovalID)

	// The policy would deny now.
	h.enact(rego(false, "not any more"))
	e := person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &first))
	contains(t, e.Message, "may not be sent any more", "not any more")
	denied := h.shown(held.ApprovalID)
	if denied.State != api.ApprovalPending || denied.Digest == first.Digest || denied.Approvable || denied.Blocked != "not any more" || len(denied.Sending) > 0 ||
		denied.PolicyRevision != h.policyStatus().Revision {
		t.Errorf("under the new policy it is %+v", denied)
	}
	if c := changed(t, denied.Changed, "policyRevision"); c.Was != first.PolicyRevision || c.Now != denied.PolicyRevision {
		t.Errorf("the revision changed as %+v", c)
	}
	if c := changed(t, denied.Changed, "verdict"); c.Was != "may be sent once approved" || c.Now != "not any more" {
		t.Errorf("the verdict changed as %+v", c)
	}
	raw, err := json.Marshal(e.Details)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(raw), denied.Digest, "policyRevision", "not any more")
	for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
		e := person.conflict("APPROVAL_BLOCKED", decision(what, &denied))
		contains(t, e.Message, "not any more")
	}

	// It allows again, with another reason: a person still has to look.
	h.enact(rego(true, "again"))
	person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &denied))
	again := h.shown(held.ApprovalID)
	if !again.Approvable || again.Blocked != "" || len(again.Sending) == 0 || changed(t, again.Changed, "verdict").Now != "may be sent once approved" {
		t.Errorf("under the third policy it is %+v", again)
	}
	// A policy that changes only its revision for this message requires a look too, and
	// nothing else counts as changed.
	more := rego(true, "again")
	more["unrelated.rego"] = "package unrelated\n\nx := 1\n"
	h.enact(more)
	person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &again))
	last := h.shown(held.ApprovalID)
	if len(last.Changed) != 1 || last.Changed[0].Field != "policyRevision" {
		t.Errorf("changed are %+v", last.Changed)
	}
	telegram.silence(t, alice, "telegram:dave")
	person.must("approval.resolve", decision(api.DecideApprove, &last), nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != held.DispatchID {
		t.Errorf("delivered is %s", m.DispatchID)
	}
	var events []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionApproval}}) {
		events = append(events, r.Event)
		if r.Event == "asked_anew" && (r.Details["digest"] == nil || r.Details["changed"] == nil || r.Details["by"] == nil) {
			t.Errorf("the record says %+v", r.Details)
		}
	}
	if want := []string{"asked_anew", "asked_anew", "asked_anew", "approved"}; !slices.Equal(events, want) {
		t.Errorf("on record are %q, want %q", events, want)
	}
	alice.concludes(held.ApprovalID, api.ApprovalApproved)

	// A person can always deny, whatever changed.
	held = alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	h.enact(rego(false, "no"))
	person.must("approval.resolve", decision(api.DecideDeny, &saw), nil)
	alice.concludes(held.ApprovalID, api.ApprovalDenied)
}

// A policy that was changed and changed back still requires a new look: no earlier digest
// becomes valid again, nor a signature over it.
func TestDigestNeverComesBack(t *testing.T) {
	h := ruled(t, acme, rego(true, "ok"))
	h.channel("@openclawos/telegram", "telegram")
	alice, person := h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	seen := make(map[string]bool)
	for i := range 4 {
		saw := h.shown(held.ApprovalID)
		if seen[saw.Digest] {
			t.Fatalf("digest %s came back", saw.Digest)
		}
		seen[saw.Digest] = true
		h.enact(rego(true, []string{"else", "ok"}[i%2]))
		person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &saw))
	}
}

// An approved message of a runtime that delivers by itself reaches a receiver in this
// daemon, even if the policy requires a person for it.
func TestApprovedAndCarriedArrives(t *testing.T) {
	files := rego(true, "a person approves")
	files["exchange.rego"] = strings.Replace(files["exchange.rego"], `"require_approval": false`, `"require_approval": true`, 1)
	h := ruled(t, acme, files)
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	asked := alice.emit("message_sending", map[string]any{"sessionKey": "agent:bob:main", "content": "Hello"}, nil)
	if asked.Allowed || !asked.Held {
		t.Fatalf("got %+v", asked)
	}
	saw := h.shown(asked.ApprovalID)
	person.must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	var outcome api.ApprovalOutcome
	alice.decode(alice.next(api.ApprovalEvent).Payload, &outcome)
	var send map[string]any
	alice.decode(outcome.Data, &send)
	if got := bob.emit("message_received", send, nil); !got.Allowed {
		t.Errorf("it does not arrive: %+v", got)
	}
	// An envelope that claims this by itself is not believed.
	next := alice.emit("message_sending", map[string]any{"sessionKey": "agent:bob:main", "content": "More", "metadata": map[string]any{"exchange": map[string]any{"id": saw.ExchangeID}}}, nil)
	if next.Allowed || !next.Held {
		t.Fatalf("got %+v", next)
	}
	ocipOf := send["metadata"].(map[string]any)["ocip"].(map[string]any)
	ocipOf["exchange_round"] = 2
	if got := bob.emit("message_received", send, nil); got.Allowed {
		t.Errorf("a forged round arrives: %+v", got)
	}
}

// Other changes to the message or to its permission are noticed as well: here, the
// configuration of the agents.
func TestApprovalIsBoundToTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		was, now string
		blocked  string
	}{
		"a lower maximum":         {"max_classification_shared: internal, max_rounds", "max_classification_shared: public, max_rounds", "classified internal"},
		"a lower round limit":     {"max_rounds: 3", "max_rounds: 2", ""},
		"another tenant":          {`instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp`, `instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: other`, "blocked"},
		"another unit":            {`user_id: dave, org_unit: engineering`, `user_id: dave, org_unit: sales`, "cross_org"},
		"another user of alice's": {"user_id: alice, org_unit", "user_id: alicia, org_unit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, acme)
			held := h.agent("@acme/alice").held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(map[string]any{"classification": "internal"}))
			saw := h.shown(held.ApprovalID)
			h.stop()
			h.configure(strings.Replace(acme, tc.was, tc.now, 1))
			h.start()
			telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
			person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &saw))
			now := h.shown(held.ApprovalID)
			contains(t, now.Blocked, tc.blocked)
			if now.Approvable != (tc.blocked == "") || len(now.Changed) == 0 {
				t.Errorf("it is %+v", now)
			}
			if tc.blocked != "" {
				person.conflict("APPROVAL_BLOCKED", decision(api.DecideApprove, &now))
				h.decides(api.DecideDeny, held.ApprovalID)
				alice.concludes(held.ApprovalID, api.ApprovalDenied)
				return
			}
			h.decides(api.DecideApprove, held.ApprovalID)
			if m := telegram.message("hook:message_sending"); m.DispatchID != held.DispatchID {
				t.Errorf("delivered is %s", m.DispatchID)
			}
		})
	}
}

// A request can still be ended if its agent or its receiver is no longer configured, but
// the message cannot be sent.
func TestApprovalOfAnAgentThatIsGone(t *testing.T) {
	for name, rest := range map[string]string{
		"the sender": `
agents:
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
`,
		"another agent under its name": `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-2, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
`,
		"the receiver": `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
`,
		"another receiver at its session": `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-mallory-1, user_id: mallory, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
`,
	} {
		for _, end := range []string{api.DecideDeny, api.DecideResolve, "exchange.resolve"} {
			t.Run(name+" "+end, func(t *testing.T) {
				h := build(t, acme)
				held := h.agent("@acme/alice").held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
				saw := h.shown(held.ApprovalID)
				h.stop()
				h.configure(rest)
				h.start()
				telegram, person := h.channel("@openclawos/telegram", "telegram"), h.operates()
				for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
					e := person.refuse(api.Conflict, "approval.resolve", decision(what, &saw))
					contains(t, e.Message, "no longer", "deny it")
				}
				want := api.ApprovalResolved
				switch end {
				case api.DecideDeny:
					want = api.ApprovalDenied
					fallthrough
				case api.DecideResolve:
					person.must("approval.resolve", decision(end, &saw), nil)
				default:
					person.must(end, map[string]any{"exchangeId": held.OCIP.ExchangeID, "outcome": "resolved"}, nil)
				}
				if now := h.shown(held.ApprovalID); now.State != want {
					t.Errorf("it is %s, want %s", now.State, want)
				}
				var e api.ExchangeResult
				person.must("exchange.get", map[string]any{"exchangeId": held.OCIP.ExchangeID}, &e)
				if got := e.Exchanges[0].Outcome; got != want {
					t.Errorf("its exchange is %s, want %s", got, want)
				}
				// The app that asked is told, whichever agent it speaks for now.
				h.agent("@acme/alice").concludes(held.ApprovalID, want)
				wantWaiting(t, h, 0)
				telegram.must("app.heartbeat", nil, nil)
			})
		}
	}
}

// An approved message is sent once, with a stamp for the person's approval, with a record,
// and as it was shown.
func TestReleaseIsWhatWasShown(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, map[string]any{
		"target": "kept", "ocip": map[string]any{"version": "forged"},
		"exchange": map[string]any{"new": true, "data": []map[string]any{
			{"source": "jira", "fields": []string{"status"}, "classification": "internal", "description": "ticket states"},
			{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "salaries"},
		}},
	})
	saw := h.shown(held.ApprovalID)
	if len(saw.DataShared) != 1 || saw.DataShared[0].Source != "jira" || len(saw.DataWithheld) != 1 || saw.DataWithheld[0].Description != "salaries" {
		t.Errorf("a person sees %+v shared and %+v withheld", saw.DataShared, saw.DataWithheld)
	}
	got := h.decides(api.DecideApprove, held.ApprovalID)
	m := telegram.message("hook:message_sending")
	e := m.envelope(t)
	if e.MessageType != ocip.AgentAssisted || !e.Capabilities.CanCommit || e.ExchangeRound != 1 || e.ConversationID != held.OCIP.ConversationID ||
		e.SourceAgent.InstanceID != "agent-alice-1" || m.DispatchID != held.DispatchID {
		t.Errorf("delivered is %+v with %+v", m, e)
	}
	if label, _ := api.Text(m.Metadata["aiDisclosure"]); label != aliceSays || strings.Count(m.Content, aliceSays) != 1 {
		t.Errorf("disclosed is %q in %q", label, m.Content)
	}
	var shown struct {
		Content  string
		Metadata api.Object
	}
	alice.decode(saw.Sending, &shown)
	if m.Content != shown.Content || len(m.Metadata) != len(shown.Metadata) {
		t.Errorf("delivered is %q with %d members, shown was %q with %d", m.Content, len(m.Metadata), shown.Content, len(shown.Metadata))
	}
	for name, value := range shown.Metadata {
		if name != "ocipChain" && string(m.Metadata[name]) != string(value) {
			t.Errorf("%s is delivered as %s, shown was %s", name, m.Metadata[name], value)
		}
	}
	r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID}})
	if len(r) != 3 || r[1].Seq != got.AuditSeq || r[1].ActionType != audit.ActionApproval || r[1].Event != "approved" ||
		r[2].Seq != r[1].Seq+1 || r[2].PolicyResult != "allow" || r[2].ActionType != audit.ActionExchange || r[2].Round != 1 ||
		len(r[2].DataShared) != 1 || len(r[2].DataWithheld) != 1 || r[2].Outcome != "in_progress" || r[2].Code != "" || r[2].ID != m.Context.AuditID {
		t.Fatalf("on record: %+v", r)
	}
	contains(t, fmt.Sprint(r[2].Details["changedBy"]), "metadata.ocip replaced")
	o := alice.concludes(held.ApprovalID, api.ApprovalApproved)
	if len(o.Data) > 0 {
		t.Errorf("the daemon delivers it, and the app is given %s", o.Data)
	}
	// The exchange continues, and a restart sends nothing again.
	if next := alice.dispatch("telegram:dave", "Thanks", map[string]any{"exchange": map[string]any{"id": held.OCIP.ExchangeID}}); next.OCIP.Round != 2 {
		t.Errorf("the next message has round %d, want 2", next.OCIP.Round)
	}
	telegram.message("hook:message_sending")
	h.stop()
	h.start()
	telegram, alice = h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	telegram.silence(t, alice, "telegram:dave")
	next := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	h.decides(api.DecideDeny, next.ApprovalID)
	alice.concludes(next.ApprovalID, api.ApprovalDenied)
}

// Pending requests survive a restart. An app that was away during a decision is told once
// when it returns, also after another restart.
func TestHoldsOutliveTheDaemon(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	var waiting []api.Approval
	for i := range 4 {
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", fmt.Sprint(promise, i), fresh(nil))
		waiting = append(waiting, h.shown(held.ApprovalID))
	}
	if err := alice.Close(); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.start()
	wantWaiting(t, h, 4)
	person := h.operates()
	for i := range waiting {
		if now := h.shown(waiting[i].ApprovalID); now.Digest != waiting[i].Digest || string(now.Sending) != string(waiting[i].Sending) {
			t.Errorf("after a restart it is %+v, was %+v", now, waiting[i])
		}
		person.must("approval.resolve", decision(api.DecisionsOf(api.ApprovalOfMessage)[i], &waiting[i]), nil)
	}
	h.stop()
	h.start()
	wantWaiting(t, h, 0)
	alice = h.agent("@acme/alice")
	for i, want := range []string{api.ApprovalApproved, api.ApprovalDenied, api.ApprovalTakenOver, api.ApprovalResolved} {
		alice.concludes(waiting[i].ApprovalID, want)
	}
	telegram := h.channel("@openclawos/telegram", "telegram")
	for _, i := range []int{0, 2} {
		if m := telegram.message("hook:message_sending"); m.DispatchID != waiting[i].DispatchID {
			t.Errorf("delivered is %s, want %s", m.DispatchID, waiting[i].DispatchID)
		}
	}
	telegram.silence(t, alice, "telegram:dave")
	next := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	h.decides(api.DecideDeny, next.ApprovalID)
	alice.concludes(next.ApprovalID, api.ApprovalDenied)
	h.stop()
	h.verify()
}

// In a takeover the person speaks: in their words or in the agent's, without a disclosure,
// and the exchange belongs to them from then on.
func TestTakeOver(t *testing.T) {
	for name, words := range map[string]string{"as it is": "", "in own words": "I am afraid not.\nRegards"} {
		t.Run(name, func(t *testing.T) {
			h := build(t, acme)
			telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
			held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(map[string]any{"summary": "agrees to all"}))
			saw := h.shown(held.ApprovalID)
			params, want, line := decision(api.DecideTakeover, &saw), promise, "agrees to all"
			if words != "" {
				params["content"], want, line = words, words, "I am afraid not."
			}
			var got api.ApprovalResolveResult
			person.must("approval.resolve", params, &got)
			m := telegram.message("hook:message_sending")
			e := m.envelope(t)
			if m.Content != want || m.Metadata["aiDisclosure"] != nil || e.MessageType != ocip.Human || !e.Capabilities.CanCommit || e.ExchangeRound != 1 || m.DispatchID != held.DispatchID {
				t.Errorf("delivered is %q with %+v", m.Content, e)
			}
			if got.State != api.ApprovalTakenOver {
				t.Errorf("got %+v", got)
			}
			alice.concludes(held.ApprovalID, api.ApprovalTakenOver)
			var x api.ExchangeResult
			person.must("exchange.get", map[string]any{"exchangeId": held.OCIP.ExchangeID}, &x)
			if side := x.Exchanges[0]; side.Outcome != "escalated" || len(side.Transcript) != 1 || side.Transcript[0].Summary != line {
				t.Errorf("the exchange is %+v", side)
			}
			// The agent may begin a new exchange, but not continue this one.
			err := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "And?", "metadata": map[string]any{"exchange": map[string]any{"id": held.OCIP.ExchangeID}}})
			if code := ocipCode(t, err); code != string(ocip.ExchangeClosed) {
				t.Errorf("the agent goes on: %s", code)
			}
			if next := alice.dispatch("telegram:dave", "And?", nil); next.OCIP.Round != 1 {
				t.Errorf("the agent's next message has round %d", next.OCIP.Round)
			}
		})
	}

	// Classification and tenants apply to people too.
	h := build(t, acme)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	params := decision(api.DecideTakeover, &saw)
	params["content"] = "Use ghp_0123456789abcdefghijABCDEFGHIJ456789 for it"
	e := person.conflict("APPROVAL_BLOCKED", params)
	contains(t, e.Message, "cannot leave, whoever sends it")
	if strings.Contains(e.Message, "ghp_") {
		t.Errorf("the answer gives the secret away: %s", e.Message)
	}
	if now := h.shown(held.ApprovalID); now.State != api.ApprovalPending {
		t.Errorf("it is %+v", now.ApprovalSummary)
	}
	telegram.silence(t, alice, "telegram:dave")
}

// The exchange of a held message takes no other message until a person has decided, from
// either side, so that the message is sent with the shown round.
func TestHeldExchangeTakesNothing(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	arrives := func(round int) map[string]any {
		envelope := foreign("conv-1", round, "acme-corp")
		envelope["source_agent"] = map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"}
		return map[string]any{"sessionKey": "telegram:dave", "text": "Well?", "metadata": map[string]any{"ocip": envelope}}
	}
	telegram.must("agent.queue", arrives(1), nil)
	alice.message("hook:message_received")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, nil)
	if held.OCIP.ConversationID != "conv-1" {
		t.Fatalf("held in %+v", held.OCIP)
	}
	saw := h.shown(held.ApprovalID)
	if code := ocipCode(t, telegram.refuse(api.Forbidden, "agent.queue", arrives(2))); code != string(ocip.ExchangeClosed) {
		t.Errorf("an answer meanwhile: %s", code)
	}
	if now := h.shown(held.ApprovalID); now.Digest != saw.Digest {
		t.Errorf("it is %+v", now)
	}
	h.operates().must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	if e := telegram.message("hook:message_sending"); e.envelope(t).ExchangeRound != 2 {
		t.Errorf("it left as round %d", e.envelope(t).ExchangeRound)
	}
	telegram.must("agent.queue", arrives(3), nil)
	alice.message("hook:message_received")
}

// A message for an agent that was seen in a session does not go to another agent seen there since.
func TestApprovalIsBoundToItsReceiver(t *testing.T) {
	h := build(t, acme)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	seen := func(instance, conversation string) {
		t.Helper()
		envelope := foreign(conversation, 1, "acme-corp")
		envelope["source_agent"] = map[string]any{"instance_id": instance, "user_id": "zed", "org_unit": "engineering", "tenant_id": "acme-corp"}
		telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": envelope}}, nil)
	}
	seen("agent-zed-9", "conv-1")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:zed", promise, nil)
	saw := h.shown(held.ApprovalID)
	if saw.Counterparty != "agent-zed-9" {
		t.Fatalf("it is for %s", saw.Counterparty)
	}
	seen("agent-zed-10", "conv-2")
	for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
		e := person.refuse(api.Conflict, "approval.resolve", decision(what, &saw))
		contains(t, e.Message, "telegram:zed no longer reaches agent agent-zed-9")
	}
	telegram.silence(t, alice, "telegram:dave")
	person.must("approval.resolve", decision(api.DecideDeny, &saw), nil)
	alice.concludes(held.ApprovalID, api.ApprovalDenied)
}

// The list can be filtered by state and by agent under either name, comes in pages, and
// gives the total.
func TestApprovalList(t *testing.T) {
	h := build(t, acme)
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	for i, what := range api.DecisionsOf(api.ApprovalOfMessage) {
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", fmt.Sprint(promise, i), fresh(nil))
		h.decides(what, held.ApprovalID)
	}
	waits := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, nil)
	bob.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, nil)
	for _, tc := range []struct {
		params map[string]any
		total  int
	}{
		{nil, 2},
		{map[string]any{"state": "pending"}, 2},
		{map[string]any{"state": "all"}, 6},
		{map[string]any{"state": "approved"}, 1},
		{map[string]any{"state": "denied"}, 1},
		{map[string]any{"state": "taken_over"}, 1},
		{map[string]any{"state": "resolved"}, 1},
		{map[string]any{"state": "expired"}, 0},
		{map[string]any{"state": "all", "agent": "alice"}, 5},
		{map[string]any{"agent": "agent-alice-1"}, 1},
		{map[string]any{"agent": "' OR 1=1 --"}, 0},
	} {
		var list api.ApprovalListResult
		person.must("approval.list", tc.params, &list)
		if list.Total != tc.total || len(list.Approvals) != tc.total || list.Approvals == nil {
			t.Errorf("%v: %d of %d, want %d", tc.params, len(list.Approvals), list.Total, tc.total)
		}
		for i, raw := range list.Approvals {
			var a, before api.ApprovalSummary
			person.decode(raw, &a)
			if i > 0 {
				person.decode(list.Approvals[i-1], &before)
			}
			if a.ApprovalID <= before.ApprovalID || !reflect.DeepEqual(a, h.shown(a.ApprovalID).ApprovalSummary) {
				t.Errorf("%v lists %+v after %s", tc.params, a, before.ApprovalID)
			}
		}
	}
	for _, wrong := range []map[string]any{{"state": "open"}, {"limit": 0}, {"limit": api.MaxApprovals + 1}, {"limit": -1}} {
		person.refuse(api.InvalidParams, "approval.list", wrong)
	}
	person.refuse(api.NotFound, "approval.get", map[string]any{"approvalId": waits.ApprovalID[:35]})
	person.refuse(api.InvalidParams, "approval.get", map[string]any{})
}

// Each message that is held for its words has the likelihood of a commitment, with reasons; a
// message held by a rule has none. The likelihood is stored with the request, and does not change.
func TestApprovalLikelihood(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	for content, want := range map[string][2]string{
		"We talked about the promise.":            {"medium", `its words; "promise" is the name of a thing; keyword`},
		"Deal, I promise.":                        {"high", `acceptance; the sender does it: "promise" in the first person; its words`},
		"Ich liefere Ihnen das am Freitag.":       {"high", "de"},
		"Let me confirm whether the file exists.": {"low", `its words; "confirm" means to check something`},
	} {
		held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", content, fresh(nil))
		saw := h.shown(held.ApprovalID)
		if string(saw.Likelihood) != want[0] || saw.LikelyBecause != want[1] {
			t.Errorf("%q is likely %s because of %s, want %v", content, saw.Likelihood, saw.LikelyBecause, want)
		}
		h.decides(api.DecideDeny, held.ApprovalID)
		if saw = h.shown(held.ApprovalID); string(saw.Likelihood) != want[0] || saw.LikelyBecause != want[1] {
			t.Errorf("%q decided is likely %s because of %s, want %v", content, saw.Likelihood, saw.LikelyBecause, want)
		}
	}
	wishes := fresh(map[string]any{"type": "commitment_request"})
	held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "What do you think of it?", wishes)
	if saw := h.shown(held.ApprovalID); saw.Likelihood != "" || saw.LikelyBecause != "" {
		t.Errorf("what a rule holds is likely %s because of %s", saw.Likelihood, saw.LikelyBecause)
	}
}

// Strangers who claim to be agents and to need a person's answer leave places for known counterparties.
func TestStrangersLeavePlacesToTheKnown(t *testing.T) {
	h := build(t, acme+"approvals: {max_open: 6}\n")
	telegram := h.channel("@openclawos/telegram", "telegram")
	asks := func(session, conversation string, as map[string]any) {
		t.Helper()
		envelope := foreign(conversation, 1, "acme-corp")
		envelope["reply_policy"] = "human-only"
		if as != nil {
			envelope["source_agent"] = as
		}
		telegram.must("agent.queue", map[string]any{"sessionKey": session, "text": "When do we meet?", "metadata": map[string]any{"ocip": envelope}}, nil)
	}
	for i := range 8 {
		asks(fmt.Sprintf("telegram:%d", 900+i), fmt.Sprint("stranger-", i), map[string]any{
			"instance_id": fmt.Sprintf("agent-zed-%d", i), "user_id": "zed", "org_unit": "engineering", "tenant_id": "acme-corp",
		})
	}
	asks("telegram:dave", "known", map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"})
	var list struct {
		Total     int                   `json:"total"`
		Approvals []api.ApprovalSummary `json:"approvals"`
	}
	h.operator("approval.list", map[string]any{}, &list)
	if list.Total != 4 || list.Approvals[3].Counterparty != "agent-dave-1" {
		t.Errorf("people see to %d: %+v", list.Total, list.Approvals)
	}
}
