package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Doctor reports an edited row, beside a stopped daemon and beside a running one.
func TestDoctorFindsAnEditedRow(t *testing.T) {
	t.Parallel()
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
`)
	d.begin(t, "@acme/alice", "@acme/link")
	if _, err := d.say(t, "agent:bob:main", "Where do we stand?", nil); err != nil {
		t.Fatal(err)
	}
	d.settled(t)
	wants := func(when, want string) {
		t.Helper()
		if r := d.ocipd(t, "doctor"); !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) {
			t.Errorf("%s: %+v, want %s", when, r, want)
		}
	}
	wants("while it runs", "the daemon has found none that somebody else has changed")
	d.end(t)
	wants("stopped", "all as the daemon wrote them")
	sql(t, filepath.Join(d.at("openclawos"), "ocipd.db"), `UPDATE exchanges SET counterparty = 'somebody' WHERE agent = 'agent-bob-1'`)
	wants("edited", "1 row of the database changed by somebody else than the daemon")
	d.begin(t, "@acme/alice", "@acme/link")
	d.settled(t)
	// The check of the rows runs in the background.
	for t.Context().Err() == nil {
		if r := d.ocipd(t, "audit", "query", "--all"); strings.Contains(r.stdout, "altered_row") || strings.Contains(r.stdout, "altered row") {
			break
		}
	}
	wants("edited, while it runs", "altered_row is on record")
	d.end(t)
}
