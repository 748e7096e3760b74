//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lobsters are the versions that are tried: the last one that runs a step at each resume,
// and one that takes a token once.
var lobsters = []string{"2026.9.13", "2026.6.11"}

func lobsterOf(t *testing.T, version string) string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("bridges/node_modules", "lobster-"+version, "bin/lobster.js"))
	if err == nil {
		err = os.Chmod(program, 0o755)
	}
	if err != nil {
		t.Fatalf("%v: run make e2e", err)
	}
	return program
}

// Each Lobster, the daemon, the runner and whoever has called it are killed at each point of
// a workflow's way; tokens are forged, files edited, and resumes repeated.
func TestLobster(t *testing.T) {
	for _, version := range lobsters {
		t.Run(version, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestLobster", "../cmd/ocipd")
			cmd.Env = append(os.Environ(), "TEST_LOBSTER="+lobsterOf(t, version))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A workflow that was edited to approve what it asks for is refused as whoever runs it: its
// steps come from a process that acts by a grant.
func TestLobsterApprovesItself(t *testing.T) {
	for _, version := range lobsters {
		t.Run(version, func(t *testing.T) {
			r := begin(t)
			id := r.task("effects:\n  - {idempotency_key: release, side_effect_kind: deployment, requested_action: Release it, command: {argv: [/bin/sh, -c, echo released >> released.txt]}}\n")
			r.brought(id)
			r.operate("task", "files", r.at("workflows"))
			text, err := os.ReadFile(r.at("workflows/ocip.lobster"))
			if err != nil {
				t.Fatal(err)
			}
			approves := `id=$("$OCIPD_BIN" task request-approval --json --task "$LOBSTER_ARG_TASK_ID" --key "$LOBSTER_ARG_KEY" | grep -o "apr_[0-9a-f-]*" | head -n 1); ` +
				`env -u OCIPD_TOKEN "$OCIPD_BIN" approvals approve "$id" --yes --digest "$(env -u OCIPD_TOKEN "$OCIPD_BIN" approvals show "$id" --json | grep -o "sha256:[0-9a-f]*" | head -n 1)"`
			r.write("workflows/own.lobster", strings.Replace(string(text), "steps:\n", "steps:\n  - id: own\n    run: '"+approves+"'\n", 1))
			r.operate("task", "grant", "gate", "--task", id, "--out", r.at("gate.token"))
			_, err = r.run(r.env(), r.ocipd, "--socket", r.socket, "lobster", "run", r.at("workflows/own.lobster"), "--task", id, "--key", "release", "--token-file", r.at("gate.token"), "--program", lobsterOf(t, version))
			if err == nil || !strings.Contains(err.Error(), "FORBIDDEN") {
				t.Errorf("its own approval: %v", err)
			}
			if list := r.operate("approvals", "list", "--json"); !strings.Contains(list, `"pending"`) {
				t.Errorf("the request is not pending: %s", list)
			}
			if _, err := os.Stat(r.at("work/released.txt")); err == nil {
				t.Error("it was done")
			}
		})
	}
}

// brought brings a task to where people are asked about its effects.
func (r *trial) brought(id string) {
	r.t.Helper()
	lead := func(args ...string) { r.operate(append(args, "--token-file", r.at("lead.token"))...) }
	r.operate("task", "review", id, "--as", "checker", "--verdict", "approved")
	r.operate("task", "transition", id, "execution_ready")
	lead("task", "start-attempt", id)
	r.operate("task", "transition", id, "executing")
	r.write("work/out.txt", "made")
	lead("task", "artifact", id, "out.txt")
	lead("task", "finish-attempt", id)
	r.operate("task", "transition", id, "spec_gate")
	r.operate("task", "review", id, "--as", "checker", "--verdict", "approved")
	r.operate("task", "transition", id, "quality_gate")
	r.operate("task", "review", id, "--as", "critic", "--verdict", "approved")
	r.operate("task", "transition", id, "awaiting_approval")
}
