package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/bridge/integrate"
)

// A separate warning names each action about which no gate of a runtime is asked.
func TestOpenIsWarnedAbout(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, ".codex", "config.toml")
	program := filepath.Join(home, "codex")
	for path, text := range map[string]string{file: "[mcp_servers.chat]\ncommand = \"x\"\n", program: "#!/bin/sh\necho codex-cli 9.9.9\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := &integrate.Place{Home: home, Getenv: func(name string) string {
		return map[string]string{"PATH": home}[name]
	}, Self: "/usr/bin/ocipd", Token: "/t", Notes: filepath.Join(home, "notes"), Etc: home}
	r := integrate.Find("codex")
	plan, err := r.Behind(p, "alice")
	if err == nil {
		err = plan.Apply()
	}
	if err != nil || !r.Integrated(p) {
		t.Fatal(err)
	}
	d := New(t.Context(), surroundings(home))
	d.Gates = p
	warning := func() (said string) {
		t.Helper()
		for _, f := range d.gates() {
			if strings.Contains(f.Text, "not gated") {
				if f.Health != Warn || f.Advice == "" {
					t.Errorf("found %+v", f)
				}
				said += f.Text
			}
		}
		return said
	}
	if said := warning(); !strings.Contains(said, "write_stdin") || !strings.Contains(said, "Code Mode") {
		t.Errorf("warned %q", said)
	}
}
