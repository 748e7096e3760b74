package buildtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Descriptors are open files of this process.
type Descriptors map[[2]string]bool

// Open returns the files that are open now.
func Open(tb testing.TB) Descriptors {
	tb.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	open := Descriptors{}
	for _, e := range entries {
		// The one by which the directory was read is closed again.
		if file, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			open[[2]string{e.Name(), file}] = true
		}
	}
	return open
}

// Since returns how many are open that were not before. Files that earlier tests left
// to a finalizer may be closed meanwhile, so the two lengths say nothing.
func (d Descriptors) Since(before Descriptors) (n int) {
	for open := range d {
		if !before[open] {
			n++
		}
	}
	return n
}
