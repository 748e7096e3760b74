package buildtest

import (
	"syscall"
	"testing"
	"time"
)

// Used is the processor time that this process has used. What a test holds work to is told
// by it: on the clock, others' work counts too.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
