//go:build linux

package peer

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
)

// OlderThan returns the first process in the session of a line, as [Peer.Ancestors] has it, that
// started before a named process of this boot, "" if none did. The session is that of the line's
// first process: it ends with its leader, usually the shell of a terminal or the process of a
// service. A session whose leader is not in the line has every process of it but the first of the
// system.
func OlderThan(line []string, than string) (older string, err error) {
	_, limit, ok := parseName(than)
	if !ok || len(line) == 0 {
		return "", errors.New("a process has no name")
	}
	first, _, _ := parseName(line[0])
	stat, err := os.ReadFile(procPath(first, "stat"))
	if err != nil {
		return "", err
	}
	leader, err := parseSession(string(stat))
	if err != nil {
		return "", err
	}
	pidOf := func(name string) int32 { pid, _, _ := parseName(name); return pid }
	if i := slices.IndexFunc(line, func(name string) bool { return pidOf(name) == leader }); i >= 0 {
		line = line[:i+1]
	}
	end, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return "", err
	}
	for _, name := range line {
		pid, start, _ := parseName(name)
		began, err := strconv.ParseUint(start, 10, 64)
		if err != nil {
			return "", err
		}
		if began < end && pid != 1 {
			return name, nil
		}
	}
	return "", nil
}

// parseSession reads field 6 of /proc/PID/stat, as [parseStartTime] does its own.
func parseSession(stat string) (int32, error) {
	if end := strings.LastIndexByte(stat, ')'); end >= 0 {
		if fields := strings.Fields(stat[end+1:]); len(fields) > 6-3 {
			leader, err := strconv.ParseInt(fields[6-3], 10, 32)
			return int32(leader), err
		}
	}
	return 0, errors.New("malformed process status")
}
