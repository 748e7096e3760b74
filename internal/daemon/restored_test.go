package daemon_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/evidence/backup"
)

// restores replaces the state of a stopped daemon by a backup of it, and starts the daemon.
func (h *harness) restores() {
	h.t.Helper()
	h.stop()
	saved := filepath.Join(h.dir, "saved")
	places := backup.Places{Database: h.path("state/ocipd.db"), Checkpoints: h.path("state/audit-checkpoints.jsonl"), Keys: h.path("state/keys"), Mirror: h.path("state/audit.jsonl")}
	if _, err := backup.Make(h.t.Context(), places, saved, backup.Without{}); err != nil {
		h.t.Fatal(err)
	}
	if _, err := backup.Restore(h.t.Context(), places, saved, false, time.Now()); err != nil {
		h.t.Fatal(err)
	}
	h.start()
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
