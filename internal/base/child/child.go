// Package child runs a program to its end, and ends it with all that it has started where
// nobody waits for it any more. Nothing is waited for without a limit once it is to end.
package child

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
	"golang.org/x/sys/unix"
)

// held is how long is waited for a process that was killed, and for who has the output of
// one that has ended.
const held = 2 * time.Second

// ErrStays says that a process does not end though it was killed. What writes its output
// may go on.
var ErrStays = errors.New("it was killed and does not end")

// Run runs a program to its end, in a process group of its own. Where the context ends, the
// group is told to end; what is still there after leave is killed, with all that it has
// started. What is left of the group behind the program's end is killed too.
func Run(ctx context.Context, cmd *exec.Cmd, leave time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = held
	if err := cmd.Start(); err != nil {
		return err
	}
	signal := func(sig unix.Signal) {
		// It may have left its group. Nobody is told twice: some programs end at once at a
		// second signal, and say nothing of what they were doing.
		if group, err := unix.Getpgid(cmd.Process.Pid); err != nil || group != cmd.Process.Pid {
			_ = cmd.Process.Signal(sig)
		}
		_ = unix.Kill(-cmd.Process.Pid, sig)
	}
	defer signal(unix.SIGKILL)
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it has ended well, and others have its output
		}
		ended <- err
	}()
	within := func(limit time.Duration) (err error, over bool) {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case err = <-ended:
			return err, true
		case <-timer.C:
			return nil, false
		}
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	signal(unix.SIGTERM)
	err, over := within(leave)
	if !over {
		peer.EndTree(cmd.Process.Pid)
		signal(unix.SIGKILL)
		// Its end, and that of its output.
		if err, over = within(2 * held); !over {
			return fmt.Errorf("process %d: %w", cmd.Process.Pid, ErrStays)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}
