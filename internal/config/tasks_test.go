package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/config"
)

const actors = `tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - name: builder
      role: executor
      tenant_id: acme
      acp: {command: [/usr/bin/agent, --acp], wrap: [/usr/bin/bwrap], env: [PATH], mode: read-only, timeout: 5m, idle: 1m}
`

func TestTaskActors(t *testing.T) {
	c, err := config.Parse("ocipd.yaml", []byte(actors+"  run: {executor: builder}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Tasks.Actors[1].ACP
	if a == nil || !slices.Equal(a.Command, []string{"/usr/bin/agent", "--acp"}) || a.Wrap[0] != "/usr/bin/bwrap" || a.Env[0] != "PATH" || a.Mode != "read-only" || a.Timeout != 5*time.Minute || a.Idle != time.Minute {
		t.Errorf("read %+v", a)
	}
	if c.Tasks.Actors[0].ACP != nil || c.Tasks.Run.Executor != "builder" {
		t.Errorf("read %+v", c.Tasks)
	}
	reordered, err := config.Parse("ocipd.yaml", []byte(actors+"  run: {executor: builder}\n"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(reordered.Tasks.Actors)
	if d := reordered.Since(c); len(d.Changes) != 0 {
		t.Errorf("another order of actors differs: %+v", d.Changes)
	}
	reordered.Tasks.Actors[0].TenantID = "other"
	if d := reordered.Since(c); len(d.Changes) != 1 || !strings.Contains(d.Changes[0].Path, reordered.Tasks.Actors[0].Name+".tenant_id") {
		t.Errorf("one actor in another tenant differs: %+v", d.Changes)
	}
	tests := []struct{ yaml, want string }{
		{strings.Replace(actors, "/usr/bin/agent", "agent", 1), "tasks.actors[1].acp.command[0]"},
		{strings.Replace(actors, "timeout: 5m", "timeout: -5m", 1), "times of zero or more"},
		{strings.Replace(actors, "mode:", "mood:", 1), "unknown key"},
		{actors + "  run: {executor: lead}\n", "lead is orchestrator"},
		{actors + "  run: {spec_reviewer: nobody}\n", "tasks.run.spec_reviewer"},
	}
	for _, tt := range tests {
		if _, err := config.Parse("ocipd.yaml", []byte(tt.yaml)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.want, err)
		}
	}
}

// Other variables in the environment are not keys, so a command with a token can load a configuration.
func TestOtherVariables(t *testing.T) {
	env := []string{"OCIPD_TOKEN=ocg_x", "OCIPD_TOKEN_FILE=/x", "OCIPD_TASK=tsk_x", "OCIPD_EFFECT=eff_x:1", "OCIPD_BIN=/usr/bin/ocipd", "XDG_CONFIG_HOME=" + t.TempDir()}
	if _, err := config.Load(config.Options{Env: env}); err != nil {
		t.Error(err)
	}
}
