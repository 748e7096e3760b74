//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What docs/guides/tasks.md says to copy, in a home of its own, brings a task that Codex works on and
// reviews to its release. The model is a stand-in, so nobody signs in; the person's part is
// played by commands in place of the screen.
func TestTasksPage(t *testing.T) {
	page, err := os.ReadFile("../docs/guides/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "## From nothing to a release, by copying\n")
	section, _, ends := strings.Cut(section, "\n## Recipes\n")
	if !ok || !ends {
		t.Fatal("docs/guides/tasks.md has no such part")
	}
	var script strings.Builder
	script.WriteString("set -eu\n")
	count := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		count++
		switch text := block[1]; {
		case strings.Contains(text, "codex login"):
		case strings.Contains(text, "\nocipd approvals\n"):
			// It is run beside the rest.
		default:
			script.WriteString(text)
		}
	}
	if count != 6 {
		t.Fatalf("it has %d blocks to copy", count)
	}
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	builder, reviewer := newStandIn(t, codexModel, outside("printf 'wc -w < \"$1\" | tr -d \" \"\\n' > count.sh")), newStandIn(t, codexModel)
	reviewer.says = `{"verdict":"approved","summary":"It is as it was asked for.","findings":[]}`
	api := newStandIn(t, func(_ *standIn, w http.ResponseWriter, asked map[string]any) {
		text, _ := json.Marshal(asked["input"])
		if strings.Contains(string(text), "You make attempt") {
			codexModel(builder, w, asked)
			return
		}
		codexModel(reviewer, w, asked)
	})
	r := &trial{t: t, ocipd: os.Getenv(variable), dir: filepath.Join(home, "ocipd-tour"), socket: filepath.Join(home, "ocipd-tour/run/kernel.sock")}
	config := filepath.Join(home, ".codex")
	if err := os.Mkdir(config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "config.toml"), []byte(standInConfig(api)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "tour.sh"), []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-m", filepath.Join(home, "tour.sh"))
	cmd.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(r.ocipd) + ":" + os.Getenv("PATH"), "npm_config_cache=" + filepath.Join(os.Getenv("HOME"), ".npm")}
	cmd.Dir = home
	ended, over := make(chan error, 1), make(chan ending, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		over <- ending{string(out), err}
		ended <- err
	}()
	// The page's configuration is where a trial has its own.
	if err := waitFor(r.at("config/openclawos/ocipd.yaml"), r.at("run/operator.sock"), over); err != "" {
		t.Fatal(err)
	}
	if err := os.Symlink("config/openclawos/ocipd.yaml", r.at("ocipd.yaml")); err != nil {
		t.Fatal(err)
	}
	r.decide("approve", r.asked(ended).ID) // what the agent asks for
	r.decide("approve", r.asked(ended).ID) // the release
	e := <-over
	if e.err != nil {
		t.Fatalf("%v\n%s", e.err, e.out)
	}
	spec, err := os.ReadFile(r.at("spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	// What was released counts the words of the specification.
	words := fmt.Sprintf("\n%d\n", len(strings.Fields(string(spec))))
	for _, want := range []string{"ends in completed", "exit code 0, run 1", "release  deployment  done", words} {
		if !strings.Contains(e.out, want) {
			t.Errorf("it does not say %q:\n%s", want, e.out)
		}
	}
}

// ending is how a script ended.
type ending struct {
	out string
	err error
}

// waitFor waits until files are there, or says how the script ended before.
func waitFor(first, second string, over <-chan ending) string {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := os.Stat(first)
		if _, other := os.Stat(second); err == nil && other == nil {
			return ""
		}
		select {
		case e := <-over:
			return fmt.Sprintf("%v\n%s", e.err, e.out)
		case <-tick.C:
		}
	}
}
