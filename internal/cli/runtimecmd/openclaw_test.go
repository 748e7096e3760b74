package runtimecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
)

const (
	itemAlice = `{id: "alice", app: "@openclaw/gateway", instance_id: "agent-alice-1", user_id: "ann", org_unit: general, tenant_id: "home"}`
	itemBob   = `{id: "bob", app: "@openclaw/gateway", instance_id: "agent-bob-1", user_id: "ann", org_unit: general, tenant_id: "home"}`
	other     = `{id: other, instance_id: o, user_id: ann, org_unit: general, tenant_id: home}`
)

// Agents are added to a configuration in any form, and removed again: byte for byte if
// nobody has changed it since, and otherwise without other changes.
func TestAgentsIntoTheConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"none":        "",
		"comments":    "# mine\n",
		"other keys":  "# mine\nlog: {level: info}\n",
		"an empty":    "agents: []\nlog: {level: info}\n",
		"no value":    "agents:\nlog: {level: info}\n",
		"in lines":    "agents:\n  - " + other + "\nlog: {level: info}\n",
		"in one":      "agents: [" + other + "]\n",
		"the default": string(configs.Default()),
	} {
		file := filepath.Join(t.TempDir(), "ocipd.yaml")
		items := []string{itemAlice, itemBob}
		after, err := configfile.WithAgents(file, []byte(text), items)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ids := func(text []byte) (ids []string) {
			cfg, err := config.Parse(file, text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			for i := range cfg.Agents {
				ids = append(ids, cfg.Agents[i].ID)
			}
			return ids
		}
		if got := strings.Join(ids(after), " "); !strings.HasPrefix(got, "alice bob") || strings.Contains(text, other) != strings.Contains(got, "other") {
			t.Errorf("%s: the agents are %s", name, got)
		}
		n := &integrate.ConfigNote{File: file, Before: []byte(text), Was: true, After: integrate.Sum(after), Items: items}
		undo := func(now []byte) string {
			if err := os.WriteFile(file, now, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := undoConfig(n); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			left, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(left)
		}
		if got := undo(after); got != text {
			t.Errorf("%s: it became\n%s", name, got)
		}
		const added = "# somebody was here\n"
		left := undo(append([]byte(added), after...))
		if got := strings.Join(ids([]byte(left)), " "); !strings.HasPrefix(left, added) || strings.Contains(got, "alice") || strings.Contains(got, "bob") || strings.Contains(text, other) != strings.Contains(got, "other") {
			t.Errorf("%s: of a changed one is left\n%s", name, left)
		}
	}
}
