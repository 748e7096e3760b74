package fleetcmd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mostMemory is how much memory a line may have, in bytes: several times the sum of its own bounds.
const mostMemory = 1 << 30

// boundMemory bounds the memory of this process. The client of the broker makes room for a message of
// whatever size the broker announces, so that a broker could take all memory of the machine. With the
// bound it ends this process alone, and the daemon keeps the messages.
func boundMemory() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return fmt.Errorf("cannot read the limit of memory: %w", err)
	}
	if limit.Cur = min(limit.Cur, mostMemory); unix.Setrlimit(unix.RLIMIT_DATA, &limit) != nil {
		return fmt.Errorf("cannot limit the memory to %d bytes", limit.Cur)
	}
	return nil
}
