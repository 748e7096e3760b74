package buildtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
)

// VerifyPy has docs/verify.py, which shares no line with the daemon, verify a log by its public key, and the rows of a
// database with it, with further options. It returns the problem that it names, "" for none. Without Python the test is
// skipped.
func VerifyPy(t testing.TB, key string, lines [][]byte, database string, options ...string) (problem string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	log := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(log, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root(t), "docs/verify.py")
	out, err := exec.CommandContext(t.Context(), python, append([]string{"-I", script, key, log, "--database", database}, options...)...).Output()
	var said struct {
		OK      bool   `json:"ok"`
		Problem string `json:"problem"`
	}
	if failed := json.Unmarshal(out, &said); failed != nil || said.OK != (err == nil) {
		t.Fatalf("verify.py says %s, %v, %v", out, err, failed)
	}
	return said.Problem
}

// root is the folder of the module whose test runs: a test begins in its package's folder.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.mod is above this test: %v", err)
	return ""
}
