package sshsig

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of signers is read as a whole or not at all, and a pipe does not block the reader.
func TestFileOfSigners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, long := filepath.Join(dir, "pipe"), filepath.Join(dir, "long")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, bytes.Repeat([]byte("# signers\n"), maxFile/10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{pipe: "is no file", long: "has more than", filepath.Join(dir, "none"): "no such file"} {
		if _, err := (File{Path: path, Key: "approvals.allowed_signers"}).Load(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
