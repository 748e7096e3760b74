// Package buildtest isolates tests from the machine that runs them (see [Isolated]), and
// builds programs of this module for them with the flags of `make build`, so that one
// compilation serves all of them. A test runs the programs as a user would.
package buildtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program builds a package, such as ./cmd/ocipd, of the module at root into a directory,
// and returns the program's path.
func Program(root, pkg, dir string) (string, error) { return build(root, pkg, dir) }

// Edit replaces one text of a file of the module, or makes the file if Old is "".
type Edit struct {
	// File is relative to the module's root.
	File, Old, New string
}

// Mutant is [Program] with a seeded fault. The files of the module stay as they are.
func Mutant(root, pkg, dir string, edits ...Edit) (string, error) {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	for i, e := range edits {
		file, text := filepath.Join(root, e.File), e.New
		if overlay.Replace[file] != "" {
			return "", fmt.Errorf("cannot edit %s twice", e.File)
		}
		if e.Old != "" {
			original, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if n := strings.Count(string(original), e.Old); n != 1 {
				return "", fmt.Errorf("cannot edit %s: it has %q %d times", e.File, e.Old, n)
			}
			text = strings.Replace(string(original), e.Old, e.New, 1)
		}
		overlay.Replace[file] = filepath.Join(dir, fmt.Sprintf("edit%d.go", i))
		if err := os.WriteFile(overlay.Replace[file], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, list, 0o600); err != nil {
		return "", err
	}
	return build(root, pkg, dir, "-overlay", name)
}

func build(root, pkg, dir string, flags ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, filepath.Base(pkg)))
	if err != nil {
		return "", err
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-pgo=bench/ocipd.pgo", "-ldflags=-s -w", "-o", path}, flags...)
	c := exec.Command("go", append(args, pkg)...)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}
