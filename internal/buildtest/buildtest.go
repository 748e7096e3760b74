// Package buildtest builds programs of this module for tests, in the way of `make
// build`: what was compiled for one of them serves the others. The caller runs
// what it gets as a user would.
package buildtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program builds a package, such as ./cmd/ocipd, of the module at root into a directory,
// and returns the program's path.
func Program(root, pkg, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, filepath.Base(pkg)))
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-pgo=bench/ocipd.pgo", "-ldflags=-s -w", "-o", path, pkg)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}
