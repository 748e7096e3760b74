//go:build linux

// Package peer finds out which process is at the other end of a Unix socket.
//
// Use: call [FromConn] once, right after accept, and carry the *[Peer] with the connection. The
// kernel noted the credentials when the other end connected, which cannot forge them. They do not
// change afterwards. The executable is looked up only when [Peer.Exe] is called.
//
// The caller's duty:
//
//   - Close every Peer. Until then it holds at most one file descriptor, the
//     pidfd that pins the process. A caller that checks no executable, or has
//     done so, may close it at once: UID, GID, PID and a resolved executable
//     stay readable.
//   - Decide by UID and, if an agent is bound to an executable, by Exe. PID alone is
//     for logs: a number says nothing once its process is gone.
//   - Know the meaning of the credentials. They name the process that connected. That
//     process may since have handed the socket to another, or executed another program:
//     [Peer.Present] detects both if the caller called [Attend] for the listener and reads
//     the connection through [Peer.Reader]. Nothing detects code that a process was made to
//     load into itself (LD_PRELOAD and its like). A process of the same user that may trace
//     it can act in its name. An executable binding separates apps that do not attack each
//     other, or that a sandbox keeps from doing so.
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
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Errors a caller may act on.
var (
	// ErrGone reports that the process ended before it could be inspected.
	ErrGone = errors.New("process has ended")
	// ErrDeleted reports that the file of the running program was removed or replaced, for example
	// by an upgrade. Until the process is started again, its program cannot be compared with the
	// installed one.
	ErrDeleted = errors.New("executable was deleted or replaced while it runs")
	// ErrForeignMount reports that the program's path means another file here than for the process,
	// for example after a private mount.
	ErrForeignMount = errors.New("executable is another file than the one at its path here")
	// ErrReplaced reports that the process has executed another program since it connected.
	ErrReplaced = errors.New("process has executed another program since it connected")
	// ErrHandedOn reports that another process wrote to the connection.
	ErrHandedOn = errors.New("another process speaks on the connection")
	// ErrUnseen reports that the program of the process could not be inspected at the connect, so
	// it may run another one now.
	ErrUnseen = errors.New("the program could not be inspected when it connected")
	// ErrClosed reports that the peer was closed before its executable was read.
	ErrClosed = errors.New("peer is closed")
)

// deletedMark is the suffix that the kernel adds to the path of an unlinked file.
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
	start  string // start time of the process, known only if pidfd is -1
	closed bool
	exe    string // "" until resolved
	first  image  // the program at the time of accept

	// other is the pid of another process that wrote to the connection, and one.
	other atomic.Int64
}

// FromConn reads the credentials of the process at the other end of c (SO_PEERCRED), pins the
// process (SO_PEERPIDFD, Linux 6.5) and inspects its program. It does not block and takes a few
// system calls.
//
// On a kernel without SO_PEERPIDFD it pins the process by the start time in /proc/PID/stat, in
// clock ticks since boot. That is weaker: it misses a pid that was reused between connect and this
// call, or twice within one tick.
//
// A process that has already ended is not an error: FromConn returns its credentials, and the Peer
// is not alive.
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
		// A process that cannot be read has no start time, and so counts as gone.
		p.start, _ = startTime(p.PID)
	case errors.Is(pidfdErr, unix.ESRCH), errors.Is(pidfdErr, unix.EINVAL), errors.Is(pidfdErr, unix.ENODATA):
		// The process was reaped; kernels report this differently.
		p.pidfd = -1
	default:
		return nil, fmt.Errorf("cannot open a pidfd for peer process %d: %w", p.PID, pidfdErr)
	}
	// If the process has ended, the data may be from another one.
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

// Alive reports whether the process that connected still runs. A zombie does not count. After Close
// the answer is always false.
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

// exited polls the pidfd, which becomes readable when the process ends. Unlike signal 0 it needs no
// right over the process. An error counts as an end: the process could not be seen alive.
func exited(pidfd int) bool {
	events, err := Poll(pidfd, unix.POLLIN)
	return err != nil || events != 0
}

// Poll returns at once with those of the events of poll(2) that hold for a descriptor. It always
// reports a hangup and an error too. Signals interrupt poll(2) even if it does not wait, and the Go
// runtime sends the process many. Poll then tries again, so an error comes from the descriptor or
// the system alone.
func Poll(fd int, events int16) (int16, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return fds[0].Revents, err
		}
	}
}

// Exe returns the absolute path of the process's program, as this process sees it, if the process
// still runs the program from the time of its accept. The first call resolves the path, and later
// calls return the same: if a file is removed or replaced later, for example by an upgrade, nothing
// changes for a process that runs it.
//
// The answer is sure to be about the process that connected: it is read through the pid, and the
// pinned process is found alive afterwards, so the pid cannot have been reused in between. Exe
// compares the file with the one at the path, so that a process with mounts of its own cannot
// borrow a name.
//
// Errors are [ErrGone], [ErrReplaced], [ErrHandedOn], [ErrUnseen], [ErrDeleted], [ErrForeignMount],
// [ErrClosed], or the system's if the link may not be read, as for another user's process.
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
	// A second look, since the process may have executed that program just now.
	if now := lookAt(p.PID); now.differs(p.first) && p.alive() {
		return "", p.exeError(ErrReplaced)
	}
	// This check comes before err is used: data read from a reused pid, including an error, is not
	// about this process.
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

// readExe resolves the executable of the process that has the pid now.
func readExe(pid int32) (string, error) {
	link := procPath(pid, "exe")
	path, err := os.Readlink(link)
	if err != nil {
		return "", err
	}
	if !utf8.ValidString(path) {
		// No record can have it.
		return "", fmt.Errorf("the path %q is not UTF-8", path)
	}
	var running, installed unix.Stat_t
	// The link leads to the file itself, even if its path means another file here.
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

// Close releases the process. UID, GID, PID and an executable that was resolved before stay
// readable. It is safe to call more than once.
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

// startTime reads when the process started, in clock ticks since boot. A zombie is an error, since
// it runs nothing any more.
func startTime(pid int32) (string, error) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return "", err
	}
	return parseStartTime(string(stat))
}

// parseStartTime reads field 22 of /proc/PID/stat, proc_pid_stat(5). The second field is the
// program's name in parentheses and may itself contain parentheses and spaces. Fields are therefore
// counted from the last parenthesis.
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
