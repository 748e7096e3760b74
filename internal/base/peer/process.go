//go:build linux

package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// image identifies the program that a process runs, by its file and by the address of its stack.
// The system chooses a new address for each program that is executed. Fields that cannot be seen
// are empty.
type image struct {
	known    bool
	dev, ino uint64
	// stack is "0" or "" if the system does not show it.
	stack string
}

// lookAt inspects the program of a process.
func lookAt(pid int32) image {
	var i image
	if pid <= 0 {
		return i
	}
	var running unix.Stat_t
	if err := unix.Stat(procPath(pid, "exe"), &running); err != nil {
		return i
	}
	i.known, i.dev, i.ino = true, running.Dev, running.Ino
	if stat, err := os.ReadFile(procPath(pid, "stat")); err == nil {
		i.stack = parseStack(string(stat))
	}
	return i
}

// differs reports whether a process has executed another program between two looks.
func (i image) differs(before image) bool {
	if !i.known || !before.known {
		return false
	}
	if i.dev != before.dev || i.ino != before.ino {
		return true
	}
	return shown(i.stack) && shown(before.stack) && i.stack != before.stack
}

func shown(stack string) bool { return stack != "" && stack != "0" }

// parseStack reads field 28 of /proc/PID/stat, as [parseStartTime] does its own. It returns "" if
// there is none.
func parseStack(stat string) string {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return ""
	}
	if fields := strings.Fields(stat[end+1:]); len(fields) > 28-3 {
		return fields[28-3]
	}
	return ""
}

// Process names the process that connected as [Peer.Ancestors] does. It returns "" if the process
// runs but cannot be seen here, because it is in another pid namespace or hidden.
//
// Errors are [ErrGone], [ErrClosed], or the system's.
func (p *Peer) Process() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("cannot tell which process %d is: %w", p.PID, err)
	}
	switch {
	case p.closed:
		return fail(ErrClosed)
	case !p.alive():
		return fail(ErrGone)
	case p.PID <= 0:
		return "", nil
	}
	start, err := startTime(p.PID)
	// This check comes last: data read from a reused pid is not about this process.
	switch {
	case !p.alive():
		return fail(ErrGone)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", nil
	case err != nil:
		return fail(err)
	}
	return processName(p.PID, start), nil
}

func processName(pid int32, start string) string { return strconv.Itoa(int(pid)) + "@" + start }

// parseName reads a name that processName made.
func parseName(name string) (pid int32, start string, ok bool) {
	digits, start, ok := strings.Cut(name, "@")
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), start, ok && err == nil && n > 0 && name == processName(int32(n), start)
}

// Runs reports whether the process still runs that [Peer.Process] named in this boot. A process
// that cannot be seen counts as running.
func Runs(name string) bool {
	n, start, ok := parseName(name)
	if !ok {
		return false
	}
	now, err := startTime(n)
	switch {
	case err == nil:
		return now == start
	case errors.Is(err, ErrGone):
		return false
	case errors.Is(err, fs.ErrNotExist):
		// The process is hidden or gone. Signal 0 distinguishes the two.
		return !errors.Is(unix.Kill(int(n), 0), unix.ESRCH)
	}
	return true
}

// Boot names the system's boot. Names of processes are valid for one boot.
func Boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell the system's boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// NameOf names a process by its pid as [Peer.Process] does.
func NameOf(pid int) (string, error) {
	start, err := startTime(int32(pid))
	if err != nil {
		return "", fmt.Errorf("cannot tell which process %d is: %w", pid, err)
	}
	return processName(int32(pid), start), nil
}
