// Package child runs a program to its end. If the caller stops waiting, it ends the program with
// all processes that the program started. Each wait for an end has a limit.
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

// held limits the wait for a killed process to end, and the wait for other processes to close the
// output of a program that has ended.
const held = 2 * time.Second

// ErrStays reports that a process did not end although it was killed. Its output may still grow.
var ErrStays = errors.New("it was killed and does not end")

// Run runs a program to its end, in a process group of its own. If the context ends, Run sends
// SIGTERM to the group. After leave it kills the program and all processes that the program
// started. When the program ends, Run also kills the rest of its group.
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
		// The program may have left its group. No process gets the signal twice: some programs end
		// at once at a second signal, and do not report what they were doing.
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
			err = nil // it has ended well, and other processes hold its output
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
		// The program must end and its output must be closed.
		if err, over = within(2 * held); !over {
			return fmt.Errorf("process %d: %w", cmd.Process.Pid, ErrStays)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}
