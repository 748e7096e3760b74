package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that a person names is read up to a limit, even if it is a pipe or an endless device.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	good, large := filepath.Join(dir, "good"), filepath.Join(dir, "large")
	for name, size := range map[string]int64{good: maxInput, large: maxInput + 1} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := ReadFile(good); err != nil || len(text) != maxInput {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	for _, name := range []string{large, "/dev/zero"} {
		if _, err := ReadFile(name); err == nil || !strings.Contains(err.Error(), name+": it has more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a folder is read")
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if _, err := write.WriteString("piped"); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if text, err := ReadFile(fmt.Sprintf("/proc/self/fd/%d", read.Fd())); err != nil || string(text) != "piped" {
		t.Errorf("%q, %v", text, err)
	}
}
