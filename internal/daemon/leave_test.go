package daemon_test

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
)

// eventsOf are the recorded events about the delivery of a message.
func (h *harness) eventsOf(dispatchID string) (events []string) {
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, DispatchID: dispatchID}}) {
		code, _ := r.Details["code"].(string)
		events = append(events, strings.TrimSpace(r.Event+" "+code))
	}
	return events
}

// theirs is acme with dave in another tenant.
var theirs = strings.Replace(acme, "user_id: dave, org_unit: engineering, tenant_id: acme-corp", "user_id: dave, org_unit: engineering, tenant_id: globex-inc", 1)

// A message waiting for a channel's app or an agent is sent only if it would be permitted
// now: the new refusal is recorded, and nobody gets it.
func TestWhatWaitsIsWeighedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		session string
		change  func(h *harness, sent api.DispatchResult)
		want    string
	}{
		"receiver of another tenant": {"telegram:dave", func(h *harness, _ api.DispatchResult) { h.reloaded(theirs) }, "withdrawn CROSS_ENTERPRISE_BLOCKED"},
		"another receiver": {"telegram:dave", func(h *harness, _ api.DispatchResult) {
			h.reloaded(strings.Replace(acme, "instance_id: agent-dave-1", "instance_id: agent-dave-2", 1))
		}, "withdrawn RECIPIENT_MISMATCH"},
		"sender no longer configured": {"telegram:dave", func(h *harness, _ api.DispatchResult) {
			h.reloaded(strings.Replace(acme, "instance_id: agent-alice-1", "instance_id: agent-alice-2", 1))
		}, "withdrawn RECIPIENT_MISMATCH"},
		"policy denies": {"telegram:dave", func(h *harness, _ api.DispatchResult) { h.enact(rego(false, "not any more")) }, "withdrawn POLICY_DENIED"},
		"policy denies what waits for an agent": {"agent:bob:main", func(h *harness, _ api.DispatchResult) {
			h.enact(rego(false, "not any more"))
		}, "withdrawn POLICY_DENIED"},
		"receiver who takes no queries any more": {"agent:bob:main", func(h *harness, _ api.DispatchResult) {
			h.reloaded(strings.Replace(acme, "{id: bob,", "{id: bob, can_receive_queries: false,", 1))
		}, "withdrawn QUERIES_NOT_RECEIVED"},
		"exchange that a person has ended": {"telegram:dave", func(h *harness, sent api.DispatchResult) {
			h.operator("exchange.resolve", map[string]any{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved"}, nil)
		}, "withdrawn EXCHANGE_CLOSED"},
		"nothing changed": {"telegram:dave", func(h *harness, _ api.DispatchResult) {
			h.reloaded(acme + "\n" + policySection(h.path("policy"), "watch: false") + "\n# the same\n")
		}, ""},
		"restart": {"agent:bob:main", func(h *harness, _ api.DispatchResult) { h.restart() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, acme, rego(true, "ok"))
			alice := h.agent("@acme/alice")
			sent := alice.dispatch(tc.session, "the blue folder", fresh(nil))
			if !sent.Waiting {
				t.Fatalf("sent as %+v", sent)
			}
			tc.change(h, sent)
			receiver, event := h.receiverOf(tc.session)
			if tc.want == "" {
				contains(t, receiver.message(event).Content, "blue folder")
				h.verify()
				return
			}
			// The queue is read from the database: a moment later the record can be found too.
			waitFor(t, "it is taken out, on record", func() bool { return len(h.waits(nil).Messages) == 0 && len(h.eventsOf(sent.DispatchID)) > 0 })
			receiver.must("app.heartbeat", nil, nil)
			receiver.silent(event)
			if got := h.eventsOf(sent.DispatchID); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("on record is %q, want %q", got, tc.want)
			}
			h.verify()
		})
	}
}

// receiverOf connects the app that gets a session's messages, and names the event.
func (h *harness) receiverOf(session string) (*app, string) {
	if strings.HasPrefix(session, "agent:") {
		return h.agent("@acme/bob"), "hook:message_received"
	}
	return h.channel("@openclawos/telegram", "telegram"), "hook:message_sending"
}

// A waiting message that would be held now is held: a person sees the reason, and an
// approved one is delivered once.
func TestWhatWaitsIsAskedAnew(t *testing.T) {
	t.Parallel()
	for _, session := range []string{"telegram:dave", "agent:bob:main"} {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, acme, rego(true, "ok"))
			alice := h.agent("@acme/alice")
			sent := alice.dispatch(session, "the blue folder", fresh(nil))
			h.enact(people(1, "a person looks"))
			receiver, event := h.receiverOf(session)
			waitFor(t, "a person is asked", func() bool { return len(h.pending()) == 1 })
			receiver.must("app.heartbeat", nil, nil)
			receiver.silent(event)
			asked := h.pending()[0]
			if asked.Code != string(ocip.ChangedSince) || asked.DispatchID != sent.DispatchID || asked.Reason != "a person looks" {
				t.Errorf("asked is %+v", asked)
			}
			if got := h.eventsOf(sent.DispatchID); !slices.Equal(got, []string{"asked_anew POLICY_REQUIRES_APPROVAL"}) {
				t.Errorf("on record is %q", got)
			}
			h.decides(api.DecideApprove, asked.ApprovalID)
			if m := receiver.message(event); m.DispatchID != sent.DispatchID || strings.Count(m.Content, aliceSays) != 1 {
				t.Errorf("delivered is %+v", m)
			}
			receiver.must("app.heartbeat", nil, nil)
			receiver.silent(event)
			h.verify()
		})
	}
}

// pending lists the pending requests.
func (h *harness) pending() (list []api.ApprovalSummary) {
	h.t.Helper()
	var result api.ApprovalListResult
	h.operator("approval.list", nil, &result)
	person := h.operates()
	for _, raw := range result.Approvals {
		var a api.ApprovalSummary
		person.decode(raw, &a)
		list = append(list, a)
	}
	return list
}

// A runtime that delivers by itself gets an approved message only if it may be sent now and
// is unchanged.
func TestWhatWasApprovedIsWeighedAgain(t *testing.T) {
	t.Parallel()
	const dave = `  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}` + "\n"
	sessions := map[string]string{"stranger who is listed by now": "telegram:sam", "receiver who takes no queries any more": "agent:bob:main"}
	for name, tc := range map[string]struct {
		change func(h *harness, id string)
		code   string
		event  string
	}{
		"receiver of another tenant": {func(h *harness, _ string) { h.reloaded(theirs) }, "CROSS_ENTERPRISE_BLOCKED", "withdrawn"},
		"receiver who takes no queries any more": {func(h *harness, _ string) {
			h.reloaded(strings.Replace(acme, "{id: bob,", "{id: bob, can_receive_queries: false,", 1))
		}, "QUERIES_NOT_RECEIVED", "withdrawn"},
		"receiver who is nobody any more": {func(h *harness, _ string) { h.reloaded(strings.Replace(acme, dave, "", 1)) }, "RECIPIENT_MISMATCH", "withdrawn"},
		"stranger who is listed by now": {func(h *harness, _ string) {
			h.reloaded(strings.Replace(acme, dave, dave+`  - {kind: person, user_id: sam, sessions: ["telegram:sam"]}`+"\n", 1))
		}, "RECIPIENT_MISMATCH", "withdrawn"},
		"sender of another tenant": {func(h *harness, _ string) {
			h.moves(strings.Replace(acme, "user_id: alice, org_unit: engineering, tenant_id: acme-corp", "user_id: alice, org_unit: engineering, tenant_id: globex-inc", 1))
		}, "", "withdrawn"},
		"exchange that a person has ended": {func(h *harness, id string) {
			h.operator("exchange.resolve", map[string]any{"exchangeId": h.shown(id).ExchangeID, "outcome": "resolved"}, nil)
		}, "EXCHANGE_CLOSED", "withdrawn"},
		"policy denies": {func(h *harness, _ string) { h.enact(rego(false, "not any more")) }, "POLICY_DENIED", "withdrawn"},
		"text that was edited": {func(h *harness, id string) {
			h.stop()
			h.rewriteRelease(id, func(v []db.Value) { v[7] = db.Text(strings.Replace(v[7].String(), "blue", "grey", 1)) })
			h.start()
		}, "POLICY_DENIED", "undecided_message"},
		"member that was added": {func(h *harness, id string) {
			h.stop()
			h.rewriteRelease(id, func(v []db.Value) {
				v[7] = db.Text(strings.Replace(v[7].String(), `{"sessionKey"`, `{"disclosure":"annotation","sessionKey"`, 1))
			})
			h.start()
		}, "POLICY_DENIED", "undecided_message"},
		"record of another message": {func(h *harness, id string) {
			h.stop()
			h.rewriteRelease(id, func(v []db.Value) { v[8] = db.Int(100) })
			h.start()
		}, "POLICY_DENIED", "undecided_message"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, acme, rego(true, "ok"))
			alice := h.redeems()
			session := cmp.Or(sessions[name], "telegram:dave")
			held := alice.emitHeld(map[string]any{"sessionKey": session, "content": promise + " the blue folder", "metadata": fresh(nil)})
			h.decides(api.DecideApprove, held.ApprovalID)
			tc.change(h, held.ApprovalID)
			if tc.event == "undecided_message" {
				alice = h.redeems()
			}
			if tc.code == "" { // the caller is of another tenant by now, and is not told that there was a message
				alice.refuse(api.NotFound, "approval.redeem", map[string]any{"approvalId": held.ApprovalID})
			} else {
				if e := alice.refuse(api.Forbidden, "approval.redeem", map[string]any{"approvalId": held.ApprovalID}); ocipCode(t, e) != tc.code {
					t.Errorf("refused by %+v", e)
				}
				alice.redeemed(held.ApprovalID, "withdrawn")
			}
			found := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID}})
			if !slices.ContainsFunc(found, func(r audit.Entry) bool { return r.Event == tc.event }) {
				t.Errorf("on record is no %s: %+v", tc.event, found)
			}
			h.verify()
		})
	}
}

// The same is true for an agent that speaks through a grant.
func TestWhatAGrantRedeemsIsWeighedAgain(t *testing.T) {
	t.Parallel()
	h := ruled(t, ungoverned, rego(true, "ok"))
	ann := h.speaker("ann")
	id := str(ann.must("agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": promise}}), "approvalId")
	h.decides(api.DecideApprove, id)
	h.enact(rego(false, "not any more"))
	ann.refuse(api.Forbidden, "", "agent.redeem", m{"approvalId": id})
	if r := h.last("withdrawn"); r.ApprovalID != id || r.Details["code"] != string(ocip.PolicyDenied) {
		t.Errorf("on record is %+v", r)
	}
	ann.refuse(api.Conflict, "", "agent.redeem", m{"approvalId": id})
	h.verify()
}

// A waiting incoming message does not reach its agent once its sender belongs to another
// tenant, whether or not the sender named itself.
func TestWhatCameInIsWeighedAgain(t *testing.T) {
	t.Parallel()
	envelope := foreign("conv-1", 1, "acme-corp")
	envelope["source_agent"] = map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"}
	for name, metadata := range map[string]map[string]any{"with an envelope": {"ocip": envelope}, "without": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			telegram := h.channel("@openclawos/telegram", "telegram")
			telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": "the blue folder", "metadata": metadata}, nil)
			if n := len(h.waits(nil).Messages); n != 1 {
				t.Fatalf("%d messages wait", n)
			}
			h.reloaded(theirs)
			alice := h.agent("@acme/alice")
			waitFor(t, "it is taken out, on record", func() bool {
				return len(h.waits(nil).Messages) == 0 && len(h.records(audit.Filter{Like: audit.Record{Event: "withdrawn"}})) > 0
			})
			alice.quiet("hook:message_received")
			if r := h.last("withdrawn"); r.Details["code"] != string(ocip.CrossEnterpriseBlocked) {
				t.Errorf("on record is %+v", r)
			}
			h.verify()
		})
	}
}

// attaches is a daemon in which alice may send a file with the text.
func attaches(t *testing.T, text string) (h *harness, file string) {
	t.Helper()
	h = plot(t, "")
	file = lay(t, h.path("out"), map[string]string{"a.txt": text}) + "/a.txt"
	h.configure(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, media: ["+h.path("out")+"]}", 1))
	h.start()
	t.Cleanup(h.stop)
	return h, file
}

// A file of an approved message is hashed again when its runtime fetches it. A person then
// sees the new content, and that is handed out.
func TestFileOfWhatWasApprovedIsReadAgain(t *testing.T) {
	h, file := attaches(t, "as shown")
	alice := h.redeems()
	metadata := fresh(nil)
	metadata["mediaUrls"] = []string{file}
	held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": metadata})
	h.decides(api.DecideApprove, held.ApprovalID)
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := alice.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": held.ApprovalID}); ocipCode(t, e) != string(ocip.ChangedSince) {
		t.Errorf("refused by %+v", e)
	}
	waiting := h.pending()
	if len(waiting) != 1 || waiting[0].Code != string(ocip.ChangedSince) {
		t.Fatalf("asked is %+v", waiting)
	}
	h.decides(api.DecideApprove, waiting[0].ApprovalID)
	alice.redeem(waiting[0].ApprovalID)
	alice.redeemed(held.ApprovalID, "withdrawn")
	h.verify()
}

// If a signer is removed, the signer's approvals have to be given again.
func TestSignerWhoWasTakenOff(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "frank", ""))
	alice, person := h.redeems(), h.operates()
	held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": fresh(nil)})
	saw := h.shown(held.ApprovalID)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	h.allow(listed(t, "frank", ""))
	alice.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": held.ApprovalID})
	waiting := h.pending()
	if len(waiting) != 1 {
		t.Fatalf("asked is %+v", waiting)
	}
	saw = h.shown(waiting[0].ApprovalID)
	person.must("approval.resolve", signed(t, "frank", api.DecideApprove, &saw), nil)
	alice.redeem(waiting[0].ApprovalID)
	h.verify()
}

// The event that tells a runtime of an approval waits for the runtime, and names no message
// that may not be sent any more.
func TestOutcomeThatWaitsIsWeighedAgain(t *testing.T) {
	for name, change := range map[string]func(*harness){
		"receiver of another tenant": func(h *harness) { h.reloaded(theirs) },
		"edited": func(h *harness) {
			h.stop()
			h.editRows(`UPDATE outbox SET message = replace(message, 'blue', 'grey')`)
			h.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, acme)
			alice := h.agent("@acme/alice")
			held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise + " the blue folder", "metadata": fresh(nil)})
			h.leaves(alice)
			h.decides(api.DecideApprove, held.ApprovalID)
			change(h)
			alice = h.agent("@acme/alice")
			waitFor(t, "it is taken out", func() bool { return len(h.waits(nil).Messages) == 0 })
			alice.must("app.heartbeat", nil, nil)
			alice.silent("approval:resolved")
			h.verify()
		})
	}
}

// A person's decision about one tool call permits no other call, whatever is written into the database.
func TestWordIsOfTheCallThatWasShown(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	ann := h.speaker("ann")
	other := str(ann.tool(h, "make clean", "require_approval"), "approvalId")
	id := str(ann.tool(h, "make deploy", "require_approval"), "approvalId")
	h.decides(api.DecideApprove, other)
	h.stop()
	h.rewriteRows(func(w *db.Writer) error {
		var asked string
		_, err := w.Amend("a request", "approvals", func(v []db.Value) {
			for _, value := range v {
				if strings.HasPrefix(value.String(), "permission:") {
					asked = value.String()
				}
			}
		}, "id = ?", db.Text(id))
		if err == nil {
			_, err = w.Amend("a release", "releases", func(v []db.Value) { v[4] = db.Text(asked) }, "approval = ?", db.Text(other))
		}
		return err
	})
	h.start()
	ann = h.speaker("ann")
	if again := ann.tool(h, "make deploy", "require_approval"); str(again, "approvalId") != id {
		t.Errorf("asked anew: %v", again)
	}
	if r := h.last("undecided_word"); r.ApprovalID != other {
		t.Errorf("on record is %+v", r)
	}
	h.verify()
}

// A message waits under the identity that its receiver is told. If the agent's user or unit is
// another one by then, a person is asked, and the receiver is told the new identity.
func TestWhatWaitsNamesItsSender(t *testing.T) {
	t.Parallel()
	const is = "user_id: alice, org_unit: engineering, tenant_id: acme-corp, max"
	for name, becomes := range map[string]string{
		"another user": "user_id: anna, org_unit: engineering, tenant_id: acme-corp, max",
		"another unit": "user_id: alice, org_unit: sales, tenant_id: acme-corp, max",
	} {
		for _, session := range []string{"telegram:dave", "agent:bob:main"} {
			t.Run(name+" "+session, func(t *testing.T) {
				t.Parallel()
				h := build(t, acme)
				alice := h.agent("@acme/alice")
				held := alice.held(ocip.CommitmentRequiresHuman, session, promise, fresh(nil))
				h.decides(api.DecideApprove, held.ApprovalID)
				h.reloaded(strings.Replace(acme, is, becomes, 1))
				receiver, event := h.receiverOf(session)
				waitFor(t, "a person is asked", func() bool { return len(h.pending()) == 1 })
				receiver.must("app.heartbeat", nil, nil)
				receiver.silent(event)
				asked := h.pending()[0]
				if asked.Code != string(ocip.ChangedSince) || !strings.Contains(asked.Reason, "another identity") {
					t.Errorf("asked is %+v", asked)
				}
				if name == "another unit" {
					return // that needs a policy for messages to other units
				}
				h.decides(api.DecideApprove, asked.ApprovalID)
				got := receiver.message(event)
				e, err := ocip.ParseEnvelope(got.Metadata["ocip"])
				if err != nil || e.SourceAgent.UserID != "anna" {
					t.Errorf("the receiver is told %+v, %v", e.SourceAgent, err)
				}
				h.verify()
			})
		}
	}
}
