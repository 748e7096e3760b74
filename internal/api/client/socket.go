package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/openclawos/ocipd/internal/base/fileowner"
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

// Ended reports whether the daemon has ended the connection, as the system knows it now: [Client.Err]
// knows it once the reader has seen it. It is for a connection on which nothing is awaited: one
// with something unread counts as ended.
func (c *Client) Ended() bool {
	socket, ok := c.conn.(*net.UnixConn)
	if !ok || c.Err() != nil {
		return true
	}
	ended := true
	raw, err := socket.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			var one [1]byte
			_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			ended = !errors.Is(err, unix.EAGAIN)
		})
	}
	return ended || err != nil
}

// vouched says why whoever listens on a socket is not believed to be the daemon, nil if it is. A
// server of another user is, but where just anybody could have put its socket, as in /tmp when no
// daemon runs.
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
	if err := guarded(path, server.Uid); err != nil {
		return fmt.Errorf("user %d listens there, and %w", server.Uid, err)
	}
	return nil
}

// guarded says by which directory or link others than this user, root and the
// server can put another socket at a path, nil for none.
func guarded(path string, server uint32) error {
	var open error
	err := fileowner.Walk(path, func(s fileowner.Step) error {
		dir, err := os.Lstat(s.Dir)
		if err != nil {
			return err
		}
		// The socket is the server's. The owner of its directory can replace it.
		if !keeps(dir, s.Info, server, s.Last) {
			open = fmt.Errorf("others than you and root can put a socket below %s; if it is your daemon, move its socket, and name the place in ipc.socket", s.Dir)
		}
		return open
	})
	if err != nil && open == nil {
		return fmt.Errorf("cannot tell who else can put a socket there: %w", err)
	}
	return open
}

// keeps reports whether only this user, root and the server can put something else
// in the place of a directory's entry. The sticky bit protects what is this user's
// or root's, and not a socket.
func keeps(dir, entry fs.FileInfo, server uint32, socket bool) bool {
	above, ok := dir.Sys().(*syscall.Stat_t)
	below, known := entry.Sys().(*syscall.Stat_t)
	if !ok || !known {
		return false
	}
	own := func(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }
	if !own(above.Uid) && above.Uid != server {
		return false
	}
	return dir.Mode().Perm()&0o022 == 0 || dir.Mode()&fs.ModeSticky != 0 && !socket && own(below.Uid)
}
