//go:build linux

package peer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Seen is a running process.
type Seen struct {
	PID int32
	// UID is the real, effective, saved and file system user of the process, which are one.
	UID uint32
	// Exe is the path of the program, "" if it cannot be seen. The process may run it under another
	// name, or from a file that was replaced: it is for people to read.
	Exe string
	// Line is as [Peer.Ancestors] has it. It begins with the process.
	Line []string
}

// ErrSeveralUsers reports that a process has the rights of more than one user.
var ErrSeveralUsers = errors.New("process has the rights of several users")

// Look describes the process that [Peer.Process] named in this boot, for callers without a
// connection to it. Nothing keeps the process from ending, or from executing another program, right
// after.
//
// Errors are [ErrGone], [ErrSeveralUsers], or the system's if the caller may not inspect the
// process. A name of a thread, or one in another form, is an error.
func Look(name string) (Seen, error) {
	fail := func(err error) (Seen, error) {
		return Seen{}, fmt.Errorf("cannot tell where process %.64q comes from: %w", name, err)
	}
	pid, start, ok := parseName(name)
	if !ok {
		return fail(errors.New("its name is not pid@start"))
	}
	if !Runs(name) {
		return fail(ErrGone)
	}
	line, err := LineOf(pid)
	if err != nil {
		return fail(err)
	}
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return fail(err)
	}
	s := Seen{PID: pid, Line: line}
	if s.UID, err = parseStatus(string(status), pid); err != nil {
		return fail(err)
	}
	s.Exe, _ = os.Readlink(procPath(pid, "exe"))
	// This check comes last: data read from a reused pid is not about this process.
	if now, err := startTime(pid); err != nil {
		return fail(err)
	} else if now != start || line[0] != name {
		return fail(ErrGone)
	}
	return s, nil
}

// parseStatus reads the user of a process from /proc/PID/status, proc_pid_status(5). A thread has
// such a file too, under its own number and with the number of its process.
func parseStatus(status string, pid int32) (uid uint32, err error) {
	process, users := "", []string(nil)
	for line := range strings.Lines(status) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "Tgid":
			process = strings.TrimSpace(value)
		case "Uid":
			users = strings.Fields(value)
		}
	}
	if len(users) != 4 || process == "" {
		return 0, errors.New("malformed process status")
	}
	if process != strconv.Itoa(int(pid)) {
		return 0, fmt.Errorf("it is a thread of process %.16s", process)
	}
	for _, user := range users {
		if user != users[0] {
			return 0, ErrSeveralUsers
		}
	}
	n, err := strconv.ParseUint(users[0], 10, 32)
	if err != nil {
		return 0, errors.New("malformed process status")
	}
	return uint32(n), nil
}
