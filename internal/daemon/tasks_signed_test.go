package daemon_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/backup"
	"github.com/openclawos/ocipd/internal/task"
)

// toTell is a crew just before the approval of its effect. ask requests the approval, and
// run starts the effect.
func (h *harness) toTell() (c *crew, ask, run func() m) {
	h.t.Helper()
	c = h.crew(m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}})
	c.executing()
	c.toApproval()
	var digest string
	ask = func() m {
		h.t.Helper()
		asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "requested_by": "lead"})
		digest = str(asked, "request_digest")
		return asked
	}
	run = func() m { return m{"task_id": c.id, "idempotency_key": "tell", "request_digest": digest} }
	return c, ask, run
}

// An effect starts only while the signers of its approvals are allowed to sign. An approval
// that does not count any more is withdrawn, and requested again.
func TestEffectStartsWhileItsSignersMaySign(t *testing.T) {
	h := build(t, taskTeam)
	c, ask, run := h.toTell()
	signers := func(lines ...string) {
		t.Helper()
		h.allow(lines...)
		h.reloaded(taskTeam + fmt.Sprintf("\napprovals: {allowed_signers: %q}\n", h.path("signers")))
	}
	both := []string{listed(t, "carol", ""), listed(t, "dave", "")}
	signers(both...)
	person := h.operates()
	first := str(ask(), "approval_id")
	saw := h.shown(first)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)

	signers(both[1])
	e := c.lead.refuse(api.Conflict, task.GuardFailed, "task.run_effect", run())
	if !strings.Contains(e.Message, "allowed signers") || !strings.Contains(e.Message, first) {
		t.Errorf("it is refused with %q", e.Message)
	}
	saw = h.shown(first)
	person.refuse(api.Forbidden, "approval.resolve", decision(api.DecideDeny, &saw))
	person.must("approval.resolve", signed(t, "dave", api.DecideDeny, &saw), nil)

	c.move(task.AwaitingApproval)
	second := str(ask(), "approval_id")
	saw = h.shown(second)
	person.must("approval.resolve", signed(t, "dave", api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	if got := c.lead.must("task.run_effect", run()); got["run"] != 1.0 {
		t.Errorf("it is started as %v", got)
	}
}

// A denial withdraws an approval that no effect has used, once; a used one stays.
func TestDenialTakesAnEffectBack(t *testing.T) {
	h := build(t, taskTeam)
	c, ask, run := h.toTell()
	person := h.operates()
	first := str(ask(), "approval_id")
	saw := h.shown(first)
	person.must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	saw = h.shown(first)
	var result api.ApprovalResolveResult
	person.must("approval.resolve", decision(api.DecideDeny, &saw), &result)
	if now := h.shown(first); result.State != api.ApprovalRevoked || now.State != api.ApprovalRevoked {
		t.Errorf("it is %s, and shown as %s", result.State, now.State)
	}
	if got := h.decisions(first); !slices.Equal(got, []string{"approved", "revoked"}) {
		t.Errorf("on record are %q", got)
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{ApprovalID: first}}) {
		if r.TenantID != "acme-corp" {
			t.Errorf("%s is on record of tenant %q", r.Event, r.TenantID)
		}
	}
	c.lead.refuse(api.Conflict, task.GuardFailed, "task.run_effect", run())
	person.refuse(api.Conflict, "approval.resolve", decision(api.DecideDeny, &saw))

	c.move(task.AwaitingApproval)
	second := str(ask(), "approval_id")
	if second == first {
		t.Fatal("what was taken back is not asked for anew")
	}
	saw = h.shown(second)
	person.must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	c.lead.must("task.run_effect", run())
	saw = h.shown(second)
	person.refuse(api.Conflict, "approval.resolve", decision(api.DecideDeny, &saw))
	if now := h.shown(second); now.State != api.ApprovalApproved {
		t.Errorf("it is shown as %s", now.State)
	}
}

// An approved effect that may have been done since a backup is not done again on a machine
// that restored the backup: the restoration is recorded, and people are asked again. A
// pending question stays pending.
func TestRestorationTakesEffectsBack(t *testing.T) {
	h := build(t, taskTeam)
	c, ask, run := h.toTell()
	id, person := str(ask(), "approval_id"), h.operates()
	saw := h.shown(id)
	person.must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	_, askOther, _ := h.toTell()
	waits := str(askOther(), "approval_id")
	h.stop()
	saved := filepath.Join(h.dir, "saved")
	places := backup.Places{Database: h.path("state/ocipd.db"), Checkpoints: h.path("state/audit-checkpoints.jsonl"), Keys: h.path("state/keys"), Mirror: h.path("state/audit.jsonl")}
	if _, err := backup.Make(t.Context(), places, saved, backup.Without{}); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), places, saved, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.start()
		h.pause("resume", nil)
		if now := h.shown(id); now.State != api.ApprovalRevoked {
			t.Errorf("it is shown as %s", now.State)
		}
		if now := h.shown(waits); now.State != api.ApprovalPending {
			t.Errorf("what waited is shown as %s", now.State)
		}
		if n := len(h.records(audit.Filter{Like: audit.Record{Event: "state_restored"}})); n != 1 {
			t.Errorf("the restoration is on record %d times", n)
		}
		c.lead = h.actor("lead", "")
		c.lead.refuse(api.Conflict, task.GuardFailed, "task.run_effect", run())
		h.stop()
	}
	h.start()
	c.lead = h.actor("lead", "")
	c.move(task.AwaitingApproval)
	saw = h.shown(str(c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "requested_by": "lead"}), "approval_id"))
	h.operates().must("approval.resolve", decision(api.DecideApprove, &saw), nil)
	c.move(task.ReadyToResume)
	c.lead.must("task.run_effect", run())
}
