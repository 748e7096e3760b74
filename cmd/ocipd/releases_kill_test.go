package main

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
)

const redeemTeam = `
ipc: {apps_may_operate: true}
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme, max_classification_shared: internal}
`

// The daemon is killed between the steps of a release: an approved message is neither lost
// nor handed out twice, and if its client does not return, a person is asked for the outcome.
func TestRedeemOverKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills processes")
	}
	m := newMCPTrial(t, redeemTeam)
	alice := func() *client.Client {
		c, err := m.app(t.Context(), "@acme/alice", api.Capabilities{Redeem: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	call := func(c *client.Client, method string, params map[string]any, result any) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return c.Call(ctx, method, params, result)
	}
	must := func(c *client.Client, method string, params map[string]any, result any) {
		t.Helper()
		if err := call(c, method, params, result); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	ready := func(c *client.Client, want int) {
		t.Helper()
		var list api.RedeemableResult
		if must(c, "approval.redeemable", map[string]any{}, &list); len(list.Approvals) != want {
			t.Fatalf("redeemable are %+v, want %d", list.Approvals, want)
		}
	}
	c := alice()
	var held api.EmitResult
	must(c, "hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "agent:bob:main", "content": "I promise to do it by Friday"}}, &held)
	m.kill()
	var saw api.Approval
	m.operator("approval.get", map[string]any{"approvalId": held.ApprovalID}, &saw)
	m.operator("approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": "approve", "digest": saw.Digest}, nil)
	m.kill()
	c = alice()
	ready(c, 1)
	var got api.Redeemed
	must(c, "approval.redeem", map[string]any{"approvalId": held.ApprovalID}, &got)
	m.kill()
	c = alice()
	ready(c, 0)
	if err := call(c, "approval.redeem", map[string]any{"approvalId": held.ApprovalID}, nil); api.AsError(err).Code != api.Conflict {
		t.Fatalf("redeemed twice: %v", err)
	}
	// The app knows the outcome, and reports it before and after a person is asked.
	must(c, "approval.confirm", map[string]any{"claim": got.Claim, "outcome": "not_sent"}, nil)
	m.kill()
	c = alice()
	ready(c, 1)
	must(c, "approval.redeem", map[string]any{"approvalId": held.ApprovalID}, &got)
	m.kill()
	var waits api.ApprovalListResult
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for over := time.Now().Add(time.Minute); len(waits.Approvals) == 0 && time.Now().Before(over); <-again.C {
		m.operator("approval.list", map[string]any{}, &waits)
	}
	if len(waits.Approvals) != 1 {
		t.Fatal("nobody is asked")
	}
	m.kill()
	c = alice()
	must(c, "approval.confirm", map[string]any{"claim": got.Claim, "outcome": "sent"}, nil)
	m.kill()
	if m.operator("approval.list", map[string]any{}, &waits); len(waits.Approvals) != 0 {
		t.Errorf("a person is asked still: %s", waits.Approvals)
	}
	var page api.AuditQueryResult
	m.operator("audit.query", map[string]any{"filter": audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, ApprovalID: held.ApprovalID}}}, &page)
	var events []string
	for _, line := range slices.Backward(page.Records) {
		e, err := audit.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e.Event)
	}
	if want := []string{"redeemed", "not_taken", "redeemed", "outcome_unknown", "delivered"}; !slices.Equal(events, want) {
		t.Errorf("on record are %v, want %v", events, want)
	}
	if err := m.daemon.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := m.daemon.Wait(); err != nil {
		t.Error(err)
	}
	m.rowsAgree(t)
}
