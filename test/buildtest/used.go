package buildtest

import (
	"syscall"
	"testing"
	"time"
)

// Used is the processor time that this process has used. Tests bound
// work by it, because the clock also counts the work of others.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
