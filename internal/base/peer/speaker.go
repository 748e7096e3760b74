//go:build linux

package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Attend makes the system say which process wrote each piece of data on a listener's connections
// (SO_PASSCRED), for [Peer.Reader]. Call it before the first accept: it then also holds for
// connections that wait to be accepted.
func Attend(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot request the credentials of writers: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("cannot request the credentials of writers: %w", err)
	}
	return nil
}

// Reader reads from the process's connection, and notes if another process writes to it, since a
// socket can be handed on or inherited. Without [Attend] for the listener it notes nothing.
func (p *Peer) Reader(c *net.UnixConn) io.Reader { return &reader{peer: p, conn: c} }

type reader struct {
	peer *Peer
	conn *net.UnixConn
	// said has room for the writer's credentials and for nothing more: the kernel drops file
	// descriptors that come with the data.
	said [credentialBytes]byte
}

// credentialBytes is the size of the kernel's message with the writer's credentials: a header of 16
// bytes and three numbers, padded to 8.
const credentialBytes = unix.SizeofCmsghdr + (unix.SizeofUcred+7)&^7

func (r *reader) Read(b []byte) (int, error) {
	n, said, _, _, err := r.conn.ReadMsgUnix(b, r.said[:])
	if said >= unix.SizeofCmsghdr+unix.SizeofUcred {
		r.peer.hear(r.said[:said])
	}
	if errors.Is(err, io.EOF) || n == 0 && err == nil && len(b) > 0 {
		return n, io.EOF
	}
	return n, err
}

// hear notes the writer.
func (p *Peer) hear(said []byte) {
	level, kind := binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr-8:]), binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr-4:])
	if level != unix.SOL_SOCKET || kind != unix.SCM_CREDENTIALS {
		return
	}
	if pid := int32(binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr:])); pid != p.PID {
		p.other.CompareAndSwap(0, int64(pid)+1)
	}
}

// Present returns the reason not to take data on the connection for the word of the process that
// connected. It returns nil if that process runs, has not executed another program since, and is
// the only writer. A process that cannot be inspected, such as another user's, is no reason.
//
// Errors are [ErrGone], [ErrReplaced], [ErrHandedOn], [ErrClosed].
func (p *Peer) Present() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.present()
	if err != nil {
		return fmt.Errorf("peer process %d is not the only speaker: %w", p.PID, err)
	}
	return nil
}

// present is Present for a caller that holds mu.
func (p *Peer) present() error {
	switch {
	case p.closed:
		return ErrClosed
	case !p.alive():
		return ErrGone
	case p.other.Load() != 0:
		return ErrHandedOn
	}
	now := lookAt(p.PID)
	if !p.alive() {
		return ErrGone
	}
	if now.differs(p.first) {
		return ErrReplaced
	}
	return nil
}
