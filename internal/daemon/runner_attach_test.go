package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/test/buildtest"
)

// runnerVariable makes a process of the tests attach as the runner of a daemon.
const runnerVariable = "TEST_RUNNER_OF"

// TestAttachesAsRunner is another process that attaches as the runner.
func TestAttachesAsRunner(t *testing.T) {
	dir := os.Getenv(runnerVariable)
	if dir == "" {
		t.Skip("is started by another test")
	}
	h := &harness{t: t, dir: dir}
	stream, err := h.taskOperator().c.Stream(t.Context(), "runner.attach", m{})
	if err == nil {
		_, err = nextOf(t, stream)
	}
	t.Log("attached:", err)
}

// A process that runs another program than the daemon cannot attach as the runner, not even while
// there is none. Each attempt is on record with the program.
func TestOnlyTheDaemonsProgramIsTheRunner(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	h := build(t, taskTeam)
	text, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(h.dir, "other")
	buildtest.Executable(t, other, append(text, "another build"...))
	for _, tc := range []struct {
		program, event, says string
	}{{other, "runner_refused", "FORBIDDEN"}, {self(t), "runner_attached", "attached: <nil>"}} {
		cmd := exec.CommandContext(t.Context(), tc.program, "-test.v", "-test.run=^TestAttachesAsRunner$")
		cmd.Env = append(os.Environ(), runnerVariable+"="+h.dir, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.says) {
			t.Errorf("%s: %v\n%s", tc.event, err, out)
		}
		found := h.records(audit.Filter{Like: audit.Record{Event: tc.event}})
		if len(found) != 1 || found[0].Details["exe"] != tc.program || (found[0].Details["program"] == registry.OwnProgram()) != (tc.event == "runner_attached") || found[0].Details["program"] == "" {
			t.Errorf("on record as %s is %+v", tc.event, found)
		}
	}
	h.verify()
}
