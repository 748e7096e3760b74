package doctor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
)

// Programs of tasks that the configuration names and that cannot be started are named, each with its
// setting and what to do. Lobster is looked for if an actor runs effects through it.
func TestProgramsOfTasksAreNamed(t *testing.T) {
	dir := t.TempDir()
	there, plain, gone := filepath.Join(dir, "agent"), filepath.Join(dir, "text"), filepath.Join(dir, "gone")
	if err := errors.Join(os.WriteFile(there, nil, 0o700), os.WriteFile(plain, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	find := func(name string) (string, error) {
		if name == "lobster" {
			return "", exec.ErrNotFound // whatever this machine has
		}
		return exec.LookPath(name)
	}
	cfg := &config.Config{}
	cfg.Tasks.Actors = []config.TaskActor{{Name: "app"}, {Name: "builder", ACP: &config.TaskACP{Command: []string{there, "x"}}}}
	if found := missingOf(cfg, find); found != nil {
		t.Errorf("each is there, found %v", found)
	}
	cfg.Tasks.Actors = append(cfg.Tasks.Actors, config.TaskActor{Name: "checker", ACP: &config.TaskACP{Command: []string{gone}, Wrap: []string{plain}}})
	cfg.Tasks.Run.Lobster = "pier"
	want := []string{"fail " + gone + ", which tasks.actors[2].acp.command names", "fail " + plain + ", which tasks.actors[2].acp.wrap names", "warn tasks.run.lobster is actor pier"}
	found := missingOf(cfg, find)
	if len(found) != len(want) {
		t.Fatalf("found %q", found)
	}
	for i := range want {
		if !strings.HasPrefix(found[i], want[i]) {
			t.Errorf("found %s, want %s", found[i], want[i])
		}
	}
}

// missingOf is what taskPrograms found, but for who can change the test's folder. Each says what to
// do.
func missingOf(c *config.Config, find func(string) (string, error)) (found []string) {
	for _, f := range taskPrograms(c, find) {
		if !strings.HasPrefix(f.Text, "others can change") && f.Advice != "" {
			found = append(found, string(f.Health)+" "+f.Text)
		}
	}
	return found
}
