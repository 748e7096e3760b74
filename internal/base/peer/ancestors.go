//go:build linux

package peer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxAncestors bounds the walk, in case process ids are reused under it.
const maxAncestors = 256

// Ancestors names the process that connected, the one that started it, and so on
// up to the first. A name is the pid and the start time in clock ticks since
// boot, so that a pid that is used again names another process. A process whose parent ended first has
// another ancestor in its place, usually the first process or a manager of
// services: the list says where a process comes from only as long as nobody on
// the way wants to hide it.
//
// Errors are [ErrGone], [ErrClosed], or that of the system where a process may
// not be looked at.
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
	var line []string
	for pid := p.PID; pid > 0 && len(line) < maxAncestors; {
		stat, err := os.ReadFile(procPath(pid, "stat"))
		if err != nil {
			return fail(err)
		}
		start, err := parseStartTime(string(stat))
		if err != nil {
			return fail(err)
		}
		line = append(line, processName(pid, start))
		if pid, err = parseParent(string(stat)); err != nil {
			return fail(err)
		}
	}
	// Asked last: what was read of a reused pid is not about this process.
	if !p.alive() {
		return fail(ErrGone)
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
