package fleetcmd

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A broker that announces endless messages ends the line, and takes no more memory of the machine.
func TestBoundMemory(t *testing.T) {
	if err := boundMemory(); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil || limit.Cur > mostMemory {
		t.Errorf("the limit is %d, %v", limit.Cur, err)
	}
}
