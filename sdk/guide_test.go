package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

// TestGuide runs the program in each language that docs/guides/apps.md shows.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../docs/guides/apps.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string][]string{"go": nil, "python": {"python3"}, "js": {"node"}} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			needs(t, "ssh-keygen")
			_, shown, _ := strings.Cut(string(page), "\n```"+language+"\n")
			shown, _, found := strings.Cut(shown, "\n```\n")
			if !found {
				t.Fatal("the page shows no program")
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "app.py")
			switch language {
			case "go":
				// It is compiled as if it were in the module, in the place of the runner.
				path, err := buildtest.Mutant("..", "./sdk/go", dir, buildtest.Edit{File: "sdk/go/main.go", Old: runnerInGo(t), New: shown})
				if err != nil {
					t.Fatal(err)
				}
				command, file = []string{path}, ""
			case "js":
				file = filepath.Join(dir, "app.mjs")
				packages := filepath.Join(dir, "node_modules", "@openclawos")
				node, err := filepath.Abs("node")
				if err == nil {
					err = os.MkdirAll(packages, 0o700)
				}
				if err == nil {
					err = os.Symlink(node, filepath.Join(packages, "ocipd"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if file != "" {
				needs(t, command[0])
				if err := os.WriteFile(file, []byte(shown), 0o600); err != nil {
					t.Fatal(err)
				}
				command = append(command, file)
			}
			python, err := filepath.Abs("python")
			if err != nil {
				t.Fatal(err)
			}
			r := place(t)
			r.serve()
			c := exec.CommandContext(t.Context(), command[0], command[1:]...)
			c.Env, c.Stderr = append(r.env, "PYTHONPATH="+python), os.Stderr
			said, err := c.Output()
			if want := "sent telegram:4711\na person decides\n"; err != nil || string(said) != want {
				t.Errorf("it says %q, want %q; %v", said, want, err)
			}
		})
	}
}

func runnerInGo(t *testing.T) string {
	text, err := os.ReadFile("go/main.go")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
