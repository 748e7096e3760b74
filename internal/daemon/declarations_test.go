package daemon_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
)

const twoTenants = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: sales, tenant_id: globex-inc}
routes:
  - {session: "telegram:*", agent: alice}
`

// If one daemon has agents of two tenants, or apps of two users, the rights of apps must be
// declared. Otherwise the configuration is refused: by the check, by the start before it
// touches anything, and by a reload, which keeps the rules in force.
func TestUndeclaredIsRefused(t *testing.T) {
	h := plot(t, twoTenants)
	const first = `the agents are of several tenants (acme-corp, globex-inc), and nothing says which app may have channel telegram; ` +
		`add access: {apps: {"@your/telegram": {channels: ["telegram"]}}} (ocipd config migrate proposes all such lines)`
	cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	var all config.Errors
	if err := daemon.Check(t.Context(), cfg); !errors.As(err, &all) || len(all) != 2 || all[0].Message != first ||
		all[0].File != h.path("ocipd.yaml") || all[0].Key != `access.apps."@your/telegram".channels` {
		t.Errorf("the check says %v", err)
	}
	if err := h.tryStart(); err == nil || !strings.Contains(err.Error(), first) {
		t.Fatalf("the start says %v", err)
	}
	if _, err := os.Stat(h.path("state")); err == nil {
		t.Error("the start has touched the state")
	}
	// The proposed lines are valid as they stand.
	declared := twoTenants + `access: {apps: {"@your/telegram": {channels: ["telegram"], tenants: ["acme-corp"]}}}` + "\n"
	h.configure(declared)
	h.start()
	t.Cleanup(h.stop)
	h.edit(twoTenants)
	h.refusesConfig("nothing says which app may have channel telegram")
	h.edit(declared)

	uids := plot(t, acme+"ipc: {allow_uids: [65534]}\n")
	if err := uids.tryStart(); err == nil || !strings.Contains(err.Error(), "uid: ") || !strings.Contains(err.Error(), "in the entry of agent alice") ||
		!strings.Contains(err.Error(), "apps of several users may connect") {
		t.Errorf("with another user the start says %v", err)
	}
}
