package integrations

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// TestOpenClaw runs the tests of the plugin for OpenClaw beside a built daemon.
func TestOpenClaw(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("the plugin needs node")
	}
	// What is read here is what the go command holds a kept result against.
	if err := filepath.WalkDir("openclaw", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ocipd, err := buildtest.Program("..", "./cmd/ocipd", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "node", "--test", "openclaw/test/")
	c.Env = append(os.Environ(), "OCIPD="+ocipd)
	c.WaitDelay = 10 * time.Second // for a daemon that outlives the tests
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOpenCode runs the tests of the plugin for opencode, beside a gate that they bring with them.
func TestOpenCode(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("the plugin needs node")
	}
	for _, file := range []string{"opencode/ocipd.js", "opencode/test/ocipd.test.js"} { // as above
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "node", "--test", "opencode/test/")
	c.WaitDelay = 10 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
