package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A message that a grant permitted is sent only under that grant: after the grant is revoked,
// its signer is removed, or the policy requires a person all the same, a person is asked.
func TestWhatAGrantLetGoIsWeighedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(h *harness, grant string)
		leaves bool
	}{
		"taken back": {func(h *harness, grant string) {
			h.operates().must("grant.revoke", map[string]any{"grantId": grant}, nil)
		}, false},
		"signer taken off":     {func(h *harness, _ string) { h.allow(listed(t, "dan", "")) }, false},
		"policy asks a person": {func(h *harness, _ string) { h.enact(people(1, "a person looks")) }, false},
		"as it was":            {func(*harness, string) {}, true},
		"restart":              {func(h *harness, _ string) { h.restart() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
			telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
			saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
			params := withExchange(&saw, saw.Exchange)
			params["signature"] = signs(t, "carol", api.SignedApproval(&saw, saw.Exchange), api.ApprovalNamespace)
			var made api.ApprovalResolveResult
			h.operates().must("approval.resolve", params, &made)
			telegram.message("hook:message_sending")
			h.leaves(telegram)
			sent := alice.dispatch("telegram:dave", "My promise stands", in("deal"))
			if sent.Held || !sent.Waiting {
				t.Fatalf("sent as %+v", sent)
			}
			tc.change(h, made.GrantID)
			telegram = h.channel("@openclawos/telegram", "telegram")
			if tc.leaves {
				for !strings.Contains(telegram.message("hook:message_sending").Content, "My promise stands") {
					// The message that was read before may come again.
				}
				return
			}
			// The first message needs an approval too if the channel's app left before it had read it.
			waitFor(t, "a person is asked", func() bool {
				return slices.ContainsFunc(h.pending(), func(a api.ApprovalSummary) bool {
					return a.DispatchID == sent.DispatchID && a.Code == string(ocip.ChangedSince)
				})
			})
			telegram.must("app.heartbeat", nil, nil)
			for len(telegram.Events()) > 0 {
				if in := <-telegram.Events(); strings.Contains(string(in.Payload), "My promise stands") {
					t.Errorf("the channel was sent %s", in.Payload)
				}
			}
		})
	}
}

// The number of people who must approve a message is the number at its sending.
func TestPeopleWhoApprovedAreCountedAgain(t *testing.T) {
	h := ruled(t, acme, rego(true, "ok"))
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	h.decides(api.DecideApprove, held.ApprovalID)
	h.leaves(alice)
	redeems := h.redeems()
	fetched := redeems.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise + " too", "metadata": fresh(nil)})
	h.decides(api.DecideApprove, fetched.ApprovalID)
	h.reloaded(acme + "\n" + policySection(h.path("policy"), "watch: false") + "\napprovals: {required: 2}\n")
	telegram := h.channel("@openclawos/telegram", "telegram")
	waitFor(t, "a person is asked", func() bool { return len(h.pending()) == 1 })
	telegram.must("app.heartbeat", nil, nil)
	telegram.silent("hook:message_sending")
	if asked := h.pending()[0]; asked.Needed != 2 || !strings.Contains(asked.Reason, "2 people have to approve") {
		t.Errorf("asked is %+v", asked)
	}
	redeems.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": fetched.ApprovalID})
	if asked := h.pending(); len(asked) != 2 {
		t.Errorf("asked are %+v", asked)
	}
}

// Two equal waiting messages make one new request, and block no other message.
func TestEqualMessagesAreAskedAnewOnce(t *testing.T) {
	h, file := attaches(t, "as it was")
	alice := h.agent("@acme/alice")
	var ids []string
	for range 2 {
		metadata := map[string]any{"mediaUrls": []string{file}}
		ids = append(ids, alice.dispatch("telegram:dave", "The report", metadata).DispatchID)
	}
	alice.dispatch("telegram:dave", "Something else", fresh(nil))
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	telegram := h.channel("@openclawos/telegram", "telegram")
	contains(t, telegram.message("hook:message_sending").Content, "Something else")
	asked := h.pending()
	if len(asked) != 1 {
		t.Fatalf("asked are %+v", asked)
	}
	for _, id := range ids {
		if got := h.eventsOf(id); len(got) != 1 || !strings.HasPrefix(got[0], "asked_anew") {
			t.Errorf("on record is %q", got)
		}
	}
	h.decides(api.DecideApprove, asked[0].ApprovalID)
	contains(t, telegram.message("hook:message_sending").Content, "The report")
	telegram.must("app.heartbeat", nil, nil)
	telegram.silent("hook:message_sending")
}

// A message that its runtime has redeemed may have been sent: if something changed since,
// no second copy is requested or handed out.
func TestClaimedMessageIsNotAskedAnew(t *testing.T) {
	h, file := attaches(t, "as shown")
	alice := h.redeems()
	metadata := fresh(nil)
	metadata["mediaUrls"] = []string{file}
	held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": metadata})
	h.decides(api.DecideApprove, held.ApprovalID)
	params := map[string]any{"approvalId": held.ApprovalID, "requestKey": "one"}
	var claimed api.Redeemed
	alice.must("approval.redeem", params, &claimed)
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := alice.refuse(api.Conflict, "approval.redeem", params); ocipCode(t, e) != string(ocip.ChangedSince) {
			t.Errorf("refused by %+v", e)
		}
		alice.redeemed(held.ApprovalID, "claimed")
	}
	if asked := h.pending(); len(asked) != 0 {
		t.Errorf("asked are %+v", asked)
	}
	alice.must("approval.confirm", map[string]any{"claim": claimed.Claim, "outcome": "sent"}, nil)
	if r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, Event: "delivered"}}); len(r) != 1 {
		t.Errorf("on record is %+v", r)
	}
}

// Sending a message again takes as many people as sending it.
func TestSendingAgainTakesAsManyPeople(t *testing.T) {
	h := guarded(t, acme, people(2, "two look"), listed(t, "carol", ""), listed(t, "dora", ""))
	alice, person := h.redeems(), h.operates()
	held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": fresh(nil)})
	for _, who := range []string{"carol", "dora"} {
		saw := h.shown(held.ApprovalID)
		person.must("approval.resolve", signed(t, who, api.DecideApprove, &saw), nil)
	}
	claim := alice.redeem(held.ApprovalID).Claim
	alice.must("approval.confirm", map[string]any{"claim": claim, "outcome": "unknown"}, nil)
	about := h.pending()[0]
	if about.Needed != 2 {
		t.Errorf("asked is %+v", about)
	}
	saw := h.shown(about.ApprovalID)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	alice.redeemed(held.ApprovalID, "unknown")
	saw = h.shown(about.ApprovalID)
	person.must("approval.resolve", signed(t, "dora", api.DecideApprove, &saw), nil)
	alice.redeem(held.ApprovalID)
}

// A message whose exchange was edited in the database is taken out, and those behind it are delivered.
func TestEditedExchangeHoldsUpNobody(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	edited := alice.dispatch("telegram:dave", "the blue folder", fresh(nil))
	alice.dispatch("telegram:dave", "the red folder", fresh(nil))
	h.stop()
	h.editRows(`UPDATE exchanges SET counterparty = counterparty || 'x' WHERE id = '` + edited.OCIP.ExchangeID + `'`)
	h.start()
	telegram := h.channel("@openclawos/telegram", "telegram")
	contains(t, telegram.message("hook:message_sending").Content, "the red folder")
	if got := h.eventsOf(edited.DispatchID); len(got) != 1 || got[0] != "withdrawn POLICY_DENIED" {
		t.Errorf("on record is %q", got)
	}
}
