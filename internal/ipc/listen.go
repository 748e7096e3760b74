package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the limit of a Unix socket's address, in bytes.
const maxSocketPath = 107

// Claim is the right to a socket directory. It holds a lock file, so that only one of two daemons
// starts.
type Claim struct {
	lock  *os.File
	paths []string
}

// ClaimSockets takes the sockets at paths, which must be in one directory, for this process. If
// there is no directory, it makes one with mode 0700. It refuses a directory that is a symbolic
// link, belongs to somebody else or can be written by others. It never takes a socket that a live
// daemon answers on, and removes a dead one.
func ClaimSockets(paths ...string) (*Claim, error) {
	dir := filepath.Dir(paths[0])
	for _, path := range paths {
		if len(path) > maxSocketPath {
			return nil, fmt.Errorf("cannot listen on %s: longer than %d bytes, which is all a socket's address can hold", path, maxSocketPath)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the socket directory: %w", err)
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	c := &Claim{paths: paths}
	if err := c.takeLock(paths[0]); err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := removeDead(path); err != nil {
			return nil, errors.Join(err, c.lock.Close())
		}
	}
	return c, nil
}

// checkDir refuses a directory in which another user could replace the socket.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot use the socket directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("cannot use the socket directory %s: it is a symbolic link; remove it or name another with --socket", dir)
	case !info.IsDir():
		return fmt.Errorf("cannot use the socket directory %s: it is not a directory", dir)
	case !ok || stat.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("cannot use the socket directory %s: it belongs to another user; name another with --socket", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("cannot use the socket directory %s: others can write to it (mode %04o); run chmod 700 on it", dir, info.Mode().Perm())
	}
	return nil
}

// takeLock takes the lock that stands for a socket.
func (c *Claim) takeLock(socket string) error {
	path := socket + ".lock"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the lock file: %w", err)
	}
	// The file is emptied below, so make sure that it is only a lock.
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return errors.Join(fmt.Errorf("cannot look at the lock file: %w", err), f.Close())
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1 {
		return errors.Join(fmt.Errorf("cannot use the lock file %s: it is no plain file, or has another name too; remove it", path), f.Close())
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := ""
		if pid, readErr := os.ReadFile(path); readErr == nil && len(pid) > 0 {
			holder = " (pid " + strings.TrimSpace(string(pid)) + ")"
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("cannot start: a daemon%s is already running on %s", holder, socket)
		} else {
			err = fmt.Errorf("cannot lock %s: %w", path, err)
		}
		return errors.Join(err, f.Close())
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		if err != nil {
			return errors.Join(fmt.Errorf("cannot write the lock file: %w", err), f.Close())
		}
	}
	c.lock = f
	return nil
}

// probeTime bounds the wait for a daemon that may answer on a socket.
const probeTime = 2 * time.Second

func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("cannot listen on %s: something that is no socket is there; remove it", path)
	}
	probe, err := net.DialTimeout("unix", path, probeTime)
	if err == nil {
		return errors.Join(fmt.Errorf("cannot start: a daemon is already running on %s", path), probe.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot start: cannot tell whether a daemon runs on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove a dead socket: %w", err)
	}
	return nil
}

// Listen listens on one of the claimed paths, with the mode given: 0600, or one that lets other
// users connect, who are then told apart by their credentials.
func (c *Claim) Listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot protect %s: %w", path, err), l.Close())
	}
	return l, nil
}

// Release gives the paths back. The listeners must be closed before. The lock file stays: if it
// were removed, two daemons could each hold a different one.
func (c *Claim) Release() error {
	var failures []error
	for _, path := range c.paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	// A child process that does not run its program yet has the file open too.
	unlocked := unix.Flock(int(c.lock.Fd()), unix.LOCK_UN)
	return errors.Join(errors.Join(failures...), unlocked, c.lock.Close())
}
