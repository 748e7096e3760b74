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

// Listed is what is looked at of a process among all.
type Listed struct {
	PID, Parent, Session int
	// UID is the user whose process it is, -1 where that is not known.
	UID int
	// Name is what the process calls itself, 15 bytes at most.
	Name string
}

// Processes are all processes that are seen and have not ended.
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

// Descendants are the processes that one has started, and those that these have.
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

// maxRounds is how often is looked for what a process that is being ended has started
// meanwhile.
const maxRounds = 16

// EndTree kills what a process has started, and what that has, and then the process.
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

// EndAdopted kills all that has come to this process, which adopts what its children leave
// behind, until there is nothing left of it, or the context ends.
func EndAdopted(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for every := time.Millisecond; ; every = min(2*every, time.Second) {
		// Again each time: who starts another just then is not in the list.
		tell(Descendants(os.Getpid()), syscall.SIGKILL)
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return nil // there is none any more
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

// TellDescendants sends a signal to what this process has started, and to what that has.
func TellDescendants(sig syscall.Signal) { tell(Descendants(os.Getpid()), sig) }

func tell(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}
