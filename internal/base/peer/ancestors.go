//go:build linux

package peer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxAncestors bounds the walk, since process ids may be reused during it.
const maxAncestors = 256

// Ancestors names the process that connected, its parent, and so on up to the first process. A name
// is the pid and the start time in clock ticks since boot, so that a reused pid gives another name.
// If a parent has ended, its child has another ancestor, usually the first process or a service
// manager. The list therefore tells the origin of a process only as long as no process on the way
// wants to hide it.
//
// Errors are [ErrGone], [ErrClosed], or the system's if the caller may not inspect a process.
func (p *Peer) Ancestors() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fail := func(err error) ([]string, error) {
		return nil, fmt.Errorf("cannot tell where peer process %d comes from: %w", p.PID, err)
	}
	if p.closed {
		return fail(ErrClosed)
	}
	if !p.alive() || p.PID <= 0 {
		return fail(ErrGone)
	}
	line, err := LineOf(p.PID)
	if err != nil {
		return fail(err)
	}
	// This check comes last: data read from a reused pid is not about this process.
	if !p.alive() {
		return fail(ErrGone)
	}
	return line, nil
}

// LineOf names a process of this system, its parent, and so on, as [Peer.Ancestors] does. The caller knows
// that the process is there.
func LineOf(pid int32) (line []string, err error) {
	for pid > 0 && len(line) < maxAncestors {
		stat, err := os.ReadFile(procPath(pid, "stat"))
		if err != nil {
			return nil, err
		}
		start, err := parseStartTime(string(stat))
		if err != nil {
			return nil, err
		}
		line = append(line, processName(pid, start))
		if pid, err = parseParent(string(stat)); err != nil {
			return nil, err
		}
	}
	return line, nil
}

// parseParent reads field 4 of /proc/PID/stat, proc_pid_stat(5), as [parseStartTime] does its own.
func parseParent(stat string) (int32, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("malformed process status")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 2 {
		return 0, errors.New("malformed process status")
	}
	parent, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil || parent < 0 {
		return 0, errors.New("malformed process status")
	}
	return int32(parent), nil
}
