package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tracer is a process of its own between this program and the daemon: it
// stops the daemon at every call that writes or syncs a file, counts those of
// the file it was told of over all threads, and makes the one it was told of
// fail, or the daemon's last. A tool that counts for each thread would hit
// another call in every run, since goroutines change threads.
//
// It is spoken to in lines: "arm FILE CALL FAULT N" and "disarm" on descriptor
// 3; on descriptor 4 it says "pid N", "armed", "hit PATH" and, when it is disarmed
// and at the end, "counted CALLS…".

// A file is the end of a path, by which the tracer tells writes apart.
type file string

// The files of the daemon's state that the tracer knows.
const (
	fileWAL      file = "wal"
	fileDatabase file = "db"
	fileMirror   file = "mirror"
	// fileOther is every other regular file below the daemon's directory:
	// checkpoints, manifests, the index, cursors of exports.
	fileOther file = "other"
)

// fileOf tells which file of the directory a path is, "" for none of them.
func fileOf(dir, path string) file {
	if !strings.HasPrefix(path, dir+"/") {
		return ""
	}
	switch base := filepath.Base(path); {
	case base == "ocipd.db-wal":
		return fileWAL
	case base == "ocipd.db":
		return fileDatabase
	case base == "audit.jsonl":
		return fileMirror
	case strings.HasSuffix(base, ".sock"), strings.HasSuffix(base, ".lock"):
		return ""
	}
	return fileOther
}

// calls are the system calls that are stopped at, and which kind each is.
func calls() map[uint64]string {
	return map[uint64]string{
		unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "write", unix.SYS_WRITEV: "write", unix.SYS_PWRITEV: "write",
		unix.SYS_FSYNC: "sync", unix.SYS_FDATASYNC: "sync",
		unix.SYS_FTRUNCATE: "alloc", unix.SYS_FALLOCATE: "alloc",
	}
}

// A fault is the failure of a call.
type fault string

const (
	// faultEIO and faultENOSPC fail the call without doing it.
	faultEIO    fault = "EIO"
	faultENOSPC fault = "ENOSPC"
	// faultTorn writes the first half and fails with EIO.
	faultTorn fault = "torn"
	// faultKill ends the process before the call, faultKillTorn after the
	// first half of a write.
	faultKill     fault = "KILL"
	faultKillTorn fault = "KILL torn"
)

// aim is where a fault goes.
type aim struct {
	file  file
	call  string
	fault fault
	n     int
}

func (a aim) String() string {
	return fmt.Sprintf("%s %s %s %d", a.file, a.call, strings.ReplaceAll(string(a.fault), " ", "_"), a.n)
}

func parseAim(text string) (a aim, err error) {
	var f string
	if _, err := fmt.Sscan(text, &a.file, &a.call, &f, &a.n); err != nil {
		return a, fmt.Errorf("cannot read the aim %q: %w", text, err)
	}
	a.fault = fault(strings.ReplaceAll(f, "_", " "))
	return a, nil
}

type tracer struct {
	dir   string
	main  int
	calls map[uint64]string

	mu    sync.Mutex
	armed bool
	aim   aim
	count map[string]int
	// known are the threads that have begun, pending what is to be done when a
	// thread's call returns.
	known   map[int]bool
	pending map[int]fault
	say     *os.File
}

// trace runs a command under the tracer and returns its exit code.
// A first aim is armed before the command begins.
func trace(dir, first string, command []string) (int, error) {
	t := &tracer{dir: dir, calls: calls(), count: make(map[string]int), known: make(map[int]bool), pending: make(map[int]fault), say: os.NewFile(4, "events")}
	if first != "" {
		a, err := parseAim(first)
		if err != nil {
			return 0, err
		}
		t.armed, t.aim = true, a
	}
	// The thread that starts a process to trace must also trace it.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, append([]string{"-filtered", "--"}, command...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("cannot trace a process here: %w", err)
	}
	t.main = cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(t.main, &status, 0, nil); err != nil {
		return 0, err
	}
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD
	if err := syscall.PtraceSetOptions(t.main, options); err != nil {
		return 0, fmt.Errorf("cannot trace a process here: %w", err)
	}
	t.known[t.main] = true
	go t.listen(os.NewFile(3, "orders"))
	t.tell("pid %d", t.main)
	if err := syscall.PtraceCont(t.main, 0); err != nil {
		return 0, err
	}
	return t.follow()
}

func (t *tracer) tell(format string, args ...any) { fmt.Fprintf(t.say, format+"\n", args...) }

func (t *tracer) listen(orders *os.File) {
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		order, rest, _ := strings.Cut(lines.Text(), " ")
		t.mu.Lock()
		switch order {
		case "arm":
			a, err := parseAim(rest)
			if err != nil {
				t.tell("error %v", err)
				break
			}
			t.armed, t.aim = true, a
			clear(t.count)
			t.tell("armed")
		case "disarm":
			t.armed = false
			t.counted()
		}
		t.mu.Unlock()
	}
}

func (t *tracer) counted() {
	var counted []string
	for what, n := range t.count {
		counted = append(counted, fmt.Sprintf("%s=%d", strings.ReplaceAll(what, " ", ":"), n))
	}
	t.tell("counted %s", strings.Join(counted, " "))
}

// follow goes from stop to stop until the process has ended.
func (t *tracer) follow() (int, error) {
	for {
		var status syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("cannot follow the process: %w", err)
		case status.Exited(), status.Signaled():
			if tid != t.main {
				continue
			}
			t.mu.Lock()
			if t.armed {
				t.counted()
			}
			t.mu.Unlock()
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		case status.Stopped():
			// A thread that is killed meanwhile cannot be asked any more.
			if err := t.stopped(tid, status); err != nil && !errors.Is(err, syscall.ESRCH) {
				return 0, err
			}
		}
	}
}

// stopped deals with one stop of one thread and lets it go on.
func (t *tracer) stopped(tid int, status syscall.WaitStatus) error {
	first := !t.known[tid]
	t.known[tid] = true
	signal := status.StopSignal()
	switch {
	case signal == syscall.SIGTRAP|0x80:
		return t.leave(tid)
	case signal == syscall.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return t.enter(tid)
	case signal == syscall.SIGTRAP && status.TrapCause() > 0, signal == syscall.SIGSTOP && first:
		return syscall.PtraceCont(tid, 0)
	}
	return syscall.PtraceCont(tid, int(signal))
}

// enter is at a call that has not begun.
func (t *tracer) enter(tid int) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	call := t.calls[callNumber(&regs)]
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.main, firstArgument(&regs)))
	which := fileOf(t.dir, path)
	if err != nil || which == "" || call == "" || !t.due(which, call, path) {
		return syscall.PtraceCont(tid, 0)
	}
	switch t.aim.fault {
	case faultKill:
		return syscall.Kill(t.main, syscall.SIGKILL)
	case faultTorn, faultKillTorn:
		halve(&regs)
	case faultEIO, faultENOSPC:
		// The call is made with a descriptor that is none, so that it does
		// nothing, and its result is put in afterwards.
		spoil(&regs)
	}
	if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
		return err
	}
	t.pending[tid] = t.aim.fault
	return syscall.PtraceSyscall(tid, 0)
}

// due counts a call, and reports whether it is the one.
func (t *tracer) due(which file, call, path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.armed {
		return false
	}
	t.count[string(which)+" "+call]++
	if which != t.aim.file || call != t.aim.call || t.count[string(which)+" "+call] != t.aim.n {
		return false
	}
	t.tell("hit %s", path)
	return true
}

// leave is at a call that has been made.
func (t *tracer) leave(tid int) error {
	f, ok := t.pending[tid]
	delete(t.pending, tid)
	if !ok {
		return syscall.PtraceCont(tid, 0)
	}
	failure := syscall.EIO
	switch f {
	case faultKillTorn, faultKill:
		return syscall.Kill(t.main, syscall.SIGKILL)
	case faultENOSPC:
		failure = syscall.ENOSPC
	case faultEIO, faultTorn:
	}
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	setResult(&regs, -int64(failure))
	if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
		return err
	}
	return syscall.PtraceCont(tid, 0)
}

// filtered turns this process into the command, with a filter that stops it at
// the calls that write or sync, and nowhere else.
func filtered(command []string) error {
	runtime.LockOSThread()
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for number := range calls() {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot filter system calls: %w", err)
	}
	// The filter is this thread's, and stays after the exec.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil { //nolint:gosec // as prctl(2) wants it
		return fmt.Errorf("cannot filter system calls: %w", err)
	}
	return syscall.Exec(command[0], command, os.Environ())
}
