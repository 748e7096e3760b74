package peer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Listed is one process in the list of all.
type Listed struct {
	PID, Parent, Session int
	// UID is the user who owns the process, -1 if it is unknown.
	UID int
	// Name is the name that the process gives itself, 15 bytes at most.
	Name string
}

// Processes returns all visible processes that have not ended.
func Processes() (list []Listed) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if p, ok := parseListed(string(text)); ok {
			p.UID = -1
			if of, err := os.Stat(filepath.Dir(name)); err == nil {
				p.UID = int(of.Sys().(*syscall.Stat_t).Uid)
			}
			list = append(list, p)
		}
	}
	return list
}

// parseListed reads fields 1, 2, 4 and 6 of /proc/PID/stat, proc_pid_stat(5).
func parseListed(text string) (p Listed, ok bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return p, false
	}
	first, name, _ := strings.Cut(text[:end], " (")
	fields := strings.Fields(text[end+1:])
	if len(fields) < 4 || fields[0] == "Z" {
		return p, false
	}
	var errs [3]error
	p.Name = name
	p.PID, errs[0] = strconv.Atoi(first)
	p.Parent, errs[1] = strconv.Atoi(fields[1])
	p.Session, errs[2] = strconv.Atoi(fields[3])
	return p, errors.Join(errs[:]...) == nil
}

// Descendants returns the children of a process, their children, and so on.
func Descendants(of int) (pids []int) {
	all := Processes()
	next := []int{of}
	for len(next) > 0 {
		parent := next[0]
		next = next[1:]
		for _, p := range all {
			if p.Parent == parent {
				pids, next = append(pids, p.PID), append(next, p.PID)
			}
		}
	}
	return pids
}

// maxRounds bounds the searches for processes that a process started while it was being ended.
const maxRounds = 16

// EndTree kills the descendants of a process, and then the process.
func EndTree(pid int) {
	for range maxRounds {
		started := Descendants(pid)
		tell(started, syscall.SIGKILL)
		if len(started) == 0 {
			break
		}
	}
	tell([]int{pid}, syscall.SIGKILL)
}

// EndAdopted kills all processes that this process has adopted from its children, until none is
// left or the context ends.
func EndAdopted(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for every := time.Millisecond; ; every = min(2*every, time.Second) {
		// The list is read anew each time: a process that just started another is not in the old
		// list.
		tell(Descendants(os.Getpid()), syscall.SIGKILL)
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return nil // no child is left
			}
			if err == nil && pid == 0 {
				break
			}
		}
		tick.Reset(every)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// TellDescendants sends a signal to all descendants of this process.
func TellDescendants(sig syscall.Signal) { tell(Descendants(os.Getpid()), sig) }

func tell(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}
