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

// Attend has connections to a listener say with everything that comes in which
// process wrote it (SO_PASSCRED), for [Peer.Reader]. It is called before the first
// accept: what waits to be accepted then says it too.
func Attend(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot have connections say who writes: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("cannot have connections say who writes: %w", err)
	}
	return nil
}

// Reader reads from the process's connection, and notes where another process
// writes to it: a socket can be handed on, or inherited. A listener that was not
// attended to says nothing, and nobody is noted.
func (p *Peer) Reader(c *net.UnixConn) io.Reader { return &reader{peer: p, conn: c} }

type reader struct {
	peer *Peer
	conn *net.UnixConn
	// said has room for who wrote and for nothing more: descriptors that come along
	// are dropped by the kernel.
	said [credentialBytes]byte
}

// credentialBytes is what the kernel's word of who wrote takes: a header of 16 bytes
// and three numbers, padded to 8.
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

// hear takes note of who wrote.
func (p *Peer) hear(said []byte) {
	level, kind := binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr-8:]), binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr-4:])
	if level != unix.SOL_SOCKET || kind != unix.SCM_CREDENTIALS {
		return
	}
	if pid := int32(binary.NativeEndian.Uint32(said[unix.SizeofCmsghdr:])); pid != p.PID {
		p.other.CompareAndSwap(0, int64(pid)+1)
	}
}

// Present returns why what comes through the connection may not be taken for the
// word of the process that connected, nil where it may: that process runs, it has
// not become another program since, and nobody else has written. What cannot be
// looked at, as of another user's process, is no reason.
//
// Errors are [ErrGone], [ErrReplaced], [ErrHandedOn], [ErrClosed].
func (p *Peer) Present() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.present()
	if err != nil {
		return fmt.Errorf("peer process %d is not who speaks: %w", p.PID, err)
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
