//go:build linux

// Package peer says which process is at the other end of a Unix socket.
//
// Use: call [FromConn] once, right after accept, and carry the *[Peer] with
// the connection. The credentials are those the kernel noted when the other
// end connected; they cannot be forged by it and do not change afterwards. The
// executable is looked up only when [Peer.Exe] is called.
//
// The caller's duty:
//
//   - Close every Peer. Until then it holds at most one file descriptor, the
//     pidfd that pins the process. A caller that checks no executable, or has
//     done so, may close it at once: UID, GID, PID and a resolved executable
//     stay readable.
//   - Decide by UID and, where an agent is bound to one, by Exe. PID alone is
//     for logs: a number says nothing once its process is gone.
//   - Know what the credentials mean. They name the process that connected. It
//     may have handed the socket to another since, or executed another program:
//     [Peer.Present] says so, where the listener was attended to ([Attend]) and
//     the connection is read through [Peer.Reader]. What a process was made to
//     load into itself nobody sees (LD_PRELOAD and its like), and a process of
//     the same user that may trace it can act in its name. An executable binding
//     keeps apps apart that do not attack each other, or that a sandbox keeps
//     from doing so.
package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Errors a caller may act on.
var (
	// ErrGone says that the process ended before it could be looked at.
	ErrGone = errors.New("process has ended")
	// ErrDeleted says that the file of the running program was removed or
	// replaced, as an upgrade does: what runs can no longer be compared with
	// what is installed until the process is started again.
	ErrDeleted = errors.New("executable was deleted or replaced while it runs")
	// ErrForeignMount says that the program's path means another file here
	// than it does for the process, as it does after a private mount.
	ErrForeignMount = errors.New("executable is another file than the one at its path here")
	// ErrReplaced says that the process became another program after it connected:
	// what it runs is not what connected.
	ErrReplaced = errors.New("process has executed another program since it connected")
	// ErrHandedOn says that another process wrote to the connection.
	ErrHandedOn = errors.New("another process speaks on the connection")
	// ErrUnseen says that what ran when the process connected could not be looked
	// at, so that what runs now may be something else.
	ErrUnseen = errors.New("the program could not be looked at when it connected")
	// ErrClosed says that the peer was closed before its executable was asked.
	ErrClosed = errors.New("peer is closed")
)

// deletedMark is what the kernel puts behind the path of an unlinked file.
const deletedMark = " (deleted)"

// Peer is the process that connected. Its methods may be called from several
// goroutines.
type Peer struct {
	UID, GID uint32
	// PID is the process id in this process's pid namespace, 0 if the process
	// has none there.
	PID int32

	// mu is held while the pidfd is in use, so that Close cannot give its
	// number to another file in the middle of a check.
	mu     sync.Mutex
	pidfd  int    // -1: none
	start  string // start time of the process, known only where pidfd is -1
	closed bool
	exe    string // "" until resolved
	first  image  // what ran when the connection was accepted

	// other is the pid of another process that wrote to the connection, and one.
	other atomic.Int64
}

// FromConn reads the credentials of the process at the other end of c
// (SO_PEERCRED), pins the process (SO_PEERPIDFD, Linux 6.5) and looks at what it
// runs. It does not block and takes a few system calls.
//
// On a kernel without SO_PEERPIDFD the process is pinned by the start time in
// /proc/PID/stat, in clock ticks since boot. That is weaker: a pid that was
// reused between connect and this call, or twice within one tick, goes unseen.
//
// A process that has already ended is not an error: its credentials are
// returned, and the Peer is not alive.
func FromConn(c *net.UnixConn) (*Peer, error) {
	return fromConn(c, peerPidfd)
}

func fromConn(c *net.UnixConn, open func(sock int) (pidfd int, err error)) (*Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot read peer credentials: %w", err)
	}
	p := &Peer{pidfd: -1}
	var credErr, pidfdErr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		p.UID, p.GID, p.PID = cred.Uid, cred.Gid, cred.Pid
		p.pidfd, pidfdErr = open(int(fd))
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("cannot read peer credentials: %w", err)
	}
	switch {
	case pidfdErr == nil:
	case errors.Is(pidfdErr, unix.ENOPROTOOPT):
		p.pidfd = -1
		// A process that cannot be read has no start time, and so is gone.
		p.start, _ = startTime(p.PID)
	case errors.Is(pidfdErr, unix.ESRCH), errors.Is(pidfdErr, unix.EINVAL), errors.Is(pidfdErr, unix.ENODATA):
		// The process was reaped; kernels disagree on the word for it.
		p.pidfd = -1
	default:
		return nil, fmt.Errorf("cannot open a pidfd for peer process %d: %w", p.PID, pidfdErr)
	}
	// What was read of a process that has ended is another's.
	if first := lookAt(p.PID); p.alive() {
		p.first = first
	}
	return p, nil
}

// peerPidfd asks the kernel for a pidfd of the connecting process. The kernel
// sets close-on-exec on it.
func peerPidfd(sock int) (int, error) {
	fd, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// Alive reports whether the process that connected still runs. A zombie does
// not. After Close nothing is known, and the answer is false.
func (p *Peer) Alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alive()
}

// alive is Alive for a caller that holds mu.
func (p *Peer) alive() bool {
	if p.closed {
		return false
	}
	if p.pidfd >= 0 {
		return !exited(p.pidfd)
	}
	if p.start == "" {
		return false
	}
	now, err := startTime(p.PID)
	return err == nil && now == p.start
}

// exited polls the pidfd, which becomes readable when the process ends. Unlike
// signal 0 it needs no right over the process. An error counts as an end:
// what cannot be seen alive is not believed alive.
func exited(pidfd int) bool {
	events, err := Poll(pidfd, unix.POLLIN)
	return err != nil || events != 0
}

// Poll returns at once with those of the events of poll(2) that hold for a descriptor. A
// hangup and an error are always among those asked for. A signal to the process, of which
// the Go runtime sends itself many, interrupts poll(2) even where it does not wait: it is
// asked again then, so that an error tells of the descriptor or the system alone.
func Poll(fd int, events int16) (int16, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return fds[0].Revents, err
		}
	}
}

// Exe returns the absolute path of the program the process runs, as this
// process sees it, where that is what it ran when its connection was accepted. The
// path is resolved at the first call and remembered: a file that is removed or
// replaced later, as an upgrade does, changes nothing for a process that runs it.
//
// The answer is sure to be about the process that connected: it is read
// through the pid, and the pinned process is found alive afterwards, so the pid
// cannot have been reused in between. The file is compared with the one found
// at the path, so that a process with mounts of its own cannot borrow a name.
//
// Errors are [ErrGone], [ErrReplaced], [ErrHandedOn], [ErrUnseen], [ErrDeleted],
// [ErrForeignMount], [ErrClosed], or that of the system where the link may not be
// read, as for another user's process.
func (p *Peer) Exe() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && p.exe != "" {
		return p.exe, nil
	}
	if err := p.present(); err != nil {
		return "", p.exeError(err)
	}
	if p.PID <= 0 {
		return "", p.exeError(ErrGone)
	}
	if p.exe != "" {
		return p.exe, nil
	}
	exe, err := readExe(p.PID)
	// Looked at once more: it may have become that program just now.
	if now := lookAt(p.PID); now.differs(p.first) && p.alive() {
		return "", p.exeError(ErrReplaced)
	}
	// Asked before err is looked at: what was read of a reused pid, an error
	// too, is not about this process.
	if !p.alive() {
		return "", p.exeError(ErrGone)
	}
	if err != nil {
		return "", p.exeError(err)
	}
	if !p.first.known {
		return "", p.exeError(ErrUnseen)
	}
	p.exe = exe
	return exe, nil
}

func (p *Peer) exeError(err error) error {
	return fmt.Errorf("cannot tell the executable of peer process %d: %w", p.PID, err)
}

// readExe resolves the executable of whatever process has the pid now.
func readExe(pid int32) (string, error) {
	link := procPath(pid, "exe")
	path, err := os.Readlink(link)
	if err != nil {
		return "", err
	}
	var running, installed unix.Stat_t
	// The link leads to the file itself, whatever its path means here.
	if err := unix.Stat(link, &running); err != nil {
		return "", err
	}
	if running.Nlink == 0 {
		return "", fmt.Errorf("%s: %w", strings.TrimSuffix(path, deletedMark), ErrDeleted)
	}
	err = unix.Stat(path, &installed)
	switch {
	case err == nil && running.Dev == installed.Dev && running.Ino == installed.Ino:
		return path, nil
	case strings.HasSuffix(path, deletedMark):
		// The name is gone, but another hard link keeps the file.
		return "", fmt.Errorf("%s: %w", strings.TrimSuffix(path, deletedMark), ErrDeleted)
	case err != nil && !errors.Is(err, unix.ENOENT):
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return "", fmt.Errorf("%s: %w", path, ErrForeignMount)
}

// Close lets go of the process. UID, GID, PID and an executable that was
// resolved before stay readable. It is safe to call more than once.
func (p *Peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.pidfd < 0 {
		return nil
	}
	fd := p.pidfd
	p.pidfd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("cannot close the pidfd of peer process %d: %w", p.PID, err)
	}
	return nil
}

// startTime reads when the process started, in clock ticks since boot. A
// zombie is an error: it runs nothing any more.
func startTime(pid int32) (string, error) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return "", err
	}
	return parseStartTime(string(stat))
}

// parseStartTime reads field 22 of /proc/PID/stat, proc_pid_stat(5). The second
// field is the program's name in parentheses and may hold anything, further
// parentheses and spaces too, so fields are counted from the last one.
func parseStartTime(stat string) (string, error) {
	const state, start = 0, 22 - 3 // counted from the third field
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return "", errors.New("malformed process status")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) <= start {
		return "", errors.New("malformed process status")
	}
	if s := fields[state]; s == "Z" || s == "X" {
		return "", ErrGone
	}
	return fields[start], nil
}

func procPath(pid int32, name string) string {
	return "/proc/" + strconv.Itoa(int(pid)) + "/" + name
}
