package peer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
