package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeTour does what the README says: the configuration serves, and the
// shell script is an app.
func TestReadmeTour(t *testing.T) {
	for _, tool := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the tour needs %s", tool)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	files := regexp.MustCompile("(?s)<!-- tour: (\\S+) -->\n```\\w+\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(files) != 2 {
		t.Fatalf("the tour has %d files, want 2", len(files))
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, string(f[1])), f[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}
	if err := os.Rename(filepath.Join(dir, "tour.yaml"), filepath.Join(dir, "ocipd.yaml")); err != nil {
		t.Fatal(err)
	}
	daemon := k.start(t)
	for _, tool := range []string{"socat", "nc"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Logf("without %s", tool)
			continue
		}
		t.Run(tool, func(t *testing.T) {
			// The script takes socat where there is one, so it sees one tool
			// at a time.
			bin := t.TempDir()
			for _, name := range []string{"bash", "jq"} {
				found, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(found, filepath.Join(bin, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
				t.Fatal(err)
			}
			script := exec.CommandContext(t.Context(), "bash", "app.sh")
			script.Dir = dir
			script.Env = []string{"PATH=" + bin, "OPENCLAWOS_KERNEL_SOCKET=" + k.socket}
			out, err := script.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{`"granted":true`, `"queued":true`, "CROSS_ENTERPRISE_BLOCKED", `"target": "friend"`, "Sent by user's OpenClaw assistant", `"exchange_round"`, `app.shutdown → {"ok":true}`} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not have %s:\n%s", want, out)
				}
			}
		})
	}
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Error(err)
	}
}
