//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each example of a bridge does what it shows, by one command.
func TestExamples(t *testing.T) {
	for name, says := range map[string][]string{
		"acp":     {"Make count.sh a program", "status running → succeeded"},
		"loop":    {"attempt 1 by builder", "ends in completed", "run 1"},
		"lobster": {"release: done", "exit code 0, run 1", "ready_to_resume → completed"},
		"prose":   {"ocip-protocol.prose.md holds to the protocol", "checker: task_append_review"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sh", "../examples/"+name+"/run.sh")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(os.Getenv(variable))+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, text := range says {
				if !strings.Contains(string(out), text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
		})
	}
}
