package buildtest

import (
	"os"
	"syscall"
	"testing"
)

// Executable writes a program of a test's own. No process is begun meanwhile: one that a test
// beside it begins would hold the file open for writing, and until it is itself the system
// runs no such file ("text file busy").
func Executable[T string | []byte](tb testing.TB, name string, text T) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		tb.Fatal(err)
	}
}
