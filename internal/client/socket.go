package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// DialSocket connects to a Unix socket that speaks a protocol of its own, such
// as that of ssh-agent. The caller closes it.
func DialSocket(ctx context.Context, path string) (io.ReadWriteCloser, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", path, cause(err))
	}
	return conn, nil
}

// vouched says why whoever listens on a socket is not believed to be the daemon,
// nil where it is. A server of another user is, but where just anybody could have
// put its socket, as in /tmp when no daemon runs.
func vouched(path string, conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var server *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		server, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return fmt.Errorf("cannot tell who listens there: %w", errors.Join(err, failed))
	}
	if server.Uid == 0 || server.Uid == uint32(os.Geteuid()) {
		return nil
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("cannot tell who listens there: %w", err)
	}
	own := func(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }
	// The socket's own directory may be the server's, and whose it is decides who
	// can put another in its place.
	var below *syscall.Stat_t
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("cannot tell who listens there: %w", err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		open := info.Mode().Perm()&0o022 != 0 && (info.Mode()&fs.ModeSticky == 0 || below == nil || !own(below.Uid))
		if !ok || open || !own(stat.Uid) && stat.Uid != server.Uid {
			return fmt.Errorf("user %d listens there, and others than you and root can put a socket below %s; if it is your daemon, move its socket, and name the place in ipc.socket", server.Uid, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		below = stat
	}
}
