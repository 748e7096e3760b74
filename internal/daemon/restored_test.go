package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/backup"
	"github.com/openclawos/ocipd/internal/ocip"
)

// restores replaces the state of a stopped daemon by a backup of it, and starts the daemon.
func (h *harness) restores() {
	h.t.Helper()
	h.putsBack(backup.Restore)
	h.start()
}

// putsBack stops the daemon, makes a backup of its state, and puts it back by a function.
func (h *harness) putsBack(by func(ctx context.Context, p backup.Places, dir string, older bool, now time.Time) (backup.Restored, error)) {
	h.t.Helper()
	h.stop()
	saved := filepath.Join(h.dir, "saved")
	places := backup.Places{Database: h.path("state/ocipd.db"), Checkpoints: h.path("state/audit-checkpoints.jsonl"), Keys: h.path("state/keys"), Mirror: h.path("state/audit.jsonl")}
	if _, err := backup.Make(h.t.Context(), places, saved, backup.Without{}); err != nil {
		h.t.Fatal(err)
	}
	if _, err := by(h.t.Context(), places, saved, false, time.Now()); err != nil {
		h.t.Fatal(err)
	}
}

// goesOn has a person resume what the restoration paused.
func (h *harness) goesOn() {
	h.t.Helper()
	if s := h.status(); len(s.Paused) != 1 || s.Paused[0].Scope != api.PausedAll || s.Paused[0].By != "restoration" {
		h.t.Errorf("after a restoration %+v is paused", s.Paused)
	}
	h.pause("resume", nil)
}

// A backup that somebody puts into place without ocipd restore, or restores without its mark, counts
// as restored, once.
func TestBackupInPlaceIsARestoration(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(ctx context.Context, p backup.Places, dir string, older bool, now time.Time) (backup.Restored, error){
		"copied": func(_ context.Context, p backup.Places, dir string, _ bool, _ time.Time) (none backup.Restored, err error) {
			state := filepath.Dir(p.Database)
			// A rename keeps the modes, as cp -a does.
			return none, errors.Join(os.RemoveAll(state), os.Rename(dir, state))
		},
		"restored, and the mark removed": func(ctx context.Context, p backup.Places, dir string, older bool, now time.Time) (backup.Restored, error) {
			done, err := backup.Restore(ctx, p, dir, older, now)
			return done, errors.Join(err, os.Remove(backup.MarkPath(p.Database)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			alice := h.agent("@acme/alice")
			id := alice.dispatch("telegram:yan", promise, nil).ApprovalID
			saw := h.shown(id)
			h.putsBack(put)
			for range 2 {
				h.start()
				if got := h.records(audit.Filter{Like: audit.Record{Event: "state_restored"}}); len(got) != 1 {
					t.Errorf("on record is %+v", got)
				}
				if len(h.status().Paused) != 1 {
					t.Errorf("paused is %+v", h.status().Paused)
				}
				h.operates().conflict("APPROVAL_STALE", decision(api.DecideApprove, &saw))
				h.stop()
			}
		})
	}
}

// An app that registered since a backup is still known as one after the restoration. Where the state
// that was replaced cannot be read, the daemon notes that there can be such apps.
func TestRestorationKnowsAppsSinceTheBackup(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"replaced": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			h.stop()
			saved := filepath.Join(h.dir, "saved")
			places := backup.Places{Database: h.path("state/ocipd.db"), Checkpoints: h.path("state/audit-checkpoints.jsonl"), Keys: h.path("state/keys"), Mirror: h.path("state/audit.jsonl")}
			if _, err := backup.Make(t.Context(), places, saved, backup.Without{}); err != nil {
				t.Fatal(err)
			}
			h.start()
			h.agent("@acme/alice")
			h.stop()
			before := h.rowsOf("app_processes")
			if lost {
				if err := os.Remove(places.Database); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := backup.Restore(t.Context(), places, saved, true, time.Now()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				h.start()
				if r := h.last("state_restored"); r.Details["appsKnown"] != !lost {
					t.Errorf("on record is %v", r.Details)
				}
				h.stop()
				after := strings.Join(h.rowsOf("app_processes"), "; ")
				if len(before) != 1 || strings.Contains(after, "'@acme/alice'") == lost || strings.Contains(after, "'the restored state'") != lost {
					t.Errorf("the rows were %q, and are %s", before, after)
				}
			}
		})
	}
}

// An approved message that may have been sent since a backup is not given to its runtime on
// a machine that restored the backup: a person says what became of it. The same is true for
// one that its runtime had claimed, also with the key of the claim.
func TestRestorationTakesReleasesBack(t *testing.T) {
	h := build(t, acme)
	alice := h.redeems()
	ready, taken := h.approved(alice), h.approved(alice)
	redeem := func(id string) map[string]any { return map[string]any{"approvalId": id, "requestKey": "once"} }
	var claimed api.Redeemed
	alice.must("approval.redeem", redeem(taken), &claimed)
	h.restores()
	h.goesOn()
	for range 2 {
		alice = h.redeems()
		for _, id := range []string{ready, taken} {
			alice.refuse(api.Conflict, "approval.redeem", redeem(id))
			alice.redeemed(id, "unknown")
		}
		if asked := h.pending(); len(asked) != 2 || asked[0].Kind != api.ApprovalOfDelivery || asked[0].Code != string(api.OutcomeNotKnown) {
			t.Fatalf("asked is %+v", asked)
		}
		if got := h.deliveries(ready); !slices.Equal(got, []string{"outcome_unknown"}) {
			t.Errorf("on record is %q", got)
		}
		h.stop()
		h.start()
	}
	// Its app may still report the outcome, and a person may have the other sent again.
	alice = h.redeems()
	alice.must("approval.confirm", map[string]any{"claim": claimed.Claim, "outcome": api.OutcomeSent}, nil)
	asked := h.pending()
	if len(asked) != 1 {
		t.Fatalf("asked is %+v", asked)
	}
	h.decides(api.DecideApprove, asked[0].ApprovalID)
	alice.redeem(ready)
	h.verify()
}

// An approved tool call that may have been made since a backup is requested again on a
// machine that restored the backup. A denied one stays denied.
func TestRestorationTakesToolCallsBack(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	ann := h.speaker("ann")
	deploy, clean := str(ann.tool(h, "make deploy", "require_approval"), "approvalId"), str(ann.tool(h, "make deploy-all", "require_approval"), "approvalId")
	h.decides(api.DecideApprove, deploy)
	h.decides(api.DecideDeny, clean)
	h.restores()
	h.goesOn()
	ann = h.speaker("ann")
	if got := h.deliveries(deploy); !slices.Equal(got, []string{"approved_not_used"}) || h.shown(deploy).Delivery != "withdrawn" {
		t.Errorf("on record is %q, and it is shown as %s", got, h.shown(deploy).Delivery)
	}
	ann.tool(h, "make deploy-all", "deny")
	if anew := str(ann.tool(h, "make deploy", "require_approval"), "approvalId"); anew == deploy {
		t.Error("it is asked about as the same")
	}
	h.verify()
}

// A grant that was in force when a backup was made may have been used up or revoked since: it is
// revoked on a machine that the backup was restored on, and so is each token of an actor or agent.
func TestRestorationRevokesGrants(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	person := h.operates()
	grant := standingGrant(t, "once", 1, nil)
	person.must("grant.add", grant, nil)
	h.restores()
	if list := h.grants(false); len(list) != 0 {
		t.Errorf("in force is %+v", list)
	}
	person = h.operates()
	person.refuse(api.Conflict, "grant.add", grant)
	person.refuse(api.Forbidden, "sending.resume", m{})
	person.mustSigned("carol", "sending.resume", m{}, nil)
	h.agent("@acme/alice").held(ocip.CommitmentRequiresHuman, "telegram:dave", "The meeting room is on the schedule", in("new"))
	if r := h.last("state_restored"); r.Details["commitment_grants"] != 1.0 {
		t.Errorf("on record is %v", r.Details)
	}
	h.verify()
}

func TestRestorationRevokesTokens(t *testing.T) {
	h := build(t, ungoverned)
	granted := h.taskOperator().must("task.grant", m{"agent": "ann"})
	h.restores()
	h.goesOn()
	h.taskDial("run/kernel.sock", "ann").refuse(api.Unauthorized, "", "task.attach", m{"token": granted["token"]})
	if r := h.last("grant.revoked"); r.Details["grant_id"] != granted["grant_id"] {
		t.Errorf("on record is %v", r.Details)
	}
	h.speaker("ann")
	h.verify()
}

// A message that a person approved, and that waited for its channel or its app when a backup was
// made, may have been sent or dropped since: it leaves by itself no more on a machine that the
// backup was restored on, and a person is asked.
func TestRestorationTakesMessagesBack(t *testing.T) {
	h := ruled(t, acme, rego(true, "ok"))
	alice := h.agent("@acme/alice")
	waits := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	told := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise + " too", "metadata": fresh(nil)})
	h.leaves(alice)
	h.decides(api.DecideApprove, waits.ApprovalID)
	h.decides(api.DecideApprove, told.ApprovalID)
	h.restores()
	asked := h.pending()
	if len(asked) != 2 || asked[0].Code != string(ocip.ChangedSince) || asked[1].Code != string(ocip.ChangedSince) {
		t.Fatalf("asked is %+v", asked)
	}
	for _, id := range []string{waits.DispatchID, h.shown(told.ApprovalID).DispatchID} {
		if got := h.eventsOf(id); len(got) != 1 || !strings.HasPrefix(got[0], "asked_anew") {
			t.Errorf("on record is %q", got)
		}
	}
	h.goesOn()
	alice, telegram := h.agent("@acme/alice"), h.channel("@openclawos/telegram", "telegram")
	telegram.quiet("hook:message_sending")
	alice.concludes(waits.ApprovalID, api.ApprovalApproved)
	alice.quiet(api.ApprovalEvent)
	for i := range asked {
		h.decides(api.DecideApprove, asked[i].ApprovalID)
	}
	contains(t, telegram.message("hook:message_sending").Content, promise)
	h.verify()
}

// What a person signed before a restoration decides nothing after it: no pending request, no
// settlement of an exchange, no standing grant. It stays so over a restart.
func TestNoSignatureOutlivesARestoration(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	sent := alice.dispatch("telegram:dave", "hello", in("open"))
	if sent.Held {
		t.Fatalf("sent as %+v", sent)
	}
	saw := h.shown(held.ApprovalID)
	approves, settles, grant := signed(t, "carol", api.DecideApprove, &saw), h.settlement("carol", sent.OCIP.ExchangeID), standingGrant(t, "later", 1, nil)
	h.restores()
	h.operates().mustSigned("carol", "sending.resume", m{}, nil)
	for range 2 {
		person := h.operates()
		person.refuse(api.Conflict, "approval.resolve", approves)
		now := h.shown(held.ApprovalID)
		person.refuse(api.Forbidden, "approval.resolve", m{"approvalId": held.ApprovalID, "decision": api.DecideApprove, "digest": now.Digest, "signature": approves["signature"]})
		person.refuse(api.Conflict, "exchange.resolve", settles)
		person.refuse(api.Conflict, "grant.add", grant)
		var list api.GrantListResult
		person.must("grant.list", m{}, &list)
		if list.Restored != h.last("state_restored").ID {
			t.Errorf("restored is %q", list.Restored)
		}
		replayed := *grant
		replayed.Restored = list.Restored
		person.refuse(api.Forbidden, "grant.add", &replayed)
		h.restart()
	}
	if got := h.decisions(held.ApprovalID); !slices.Equal(got, []string{"asked_anew"}) {
		t.Errorf("on record is %q", got)
	}
	person := h.operates()
	now := h.shown(held.ApprovalID)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &now), nil)
	person.must("exchange.resolve", h.settlement("carol", sent.OCIP.ExchangeID), nil)
	person.must("grant.add", standingGrant(t, "new", 1, func(p *api.GrantAddParams) { p.Restored = h.last("state_restored").ID }), nil)
	h.verify()
}
