//go:build linux

package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Connected is the other end of a TCP connection within this machine.
type Connected struct {
	// UID is the user who opened the socket, if Known is set: the system still has the socket.
	UID   uint32
	Known bool
	// Holders are the processes that have the socket open and can be inspected, named as
	// [Peer.Process] does. A process of another user is not among them, unless root asks.
	Holders []string
}

// OfTCP finds the socket at the other end of a TCP connection by its exact addresses (sock_diag(7)),
// and the processes that hold it. This process accepted the connection at server from client; both
// are addresses of this machine and of this process's network namespace.
//
// Only a socket that the system knows can speak, so the processes are those that can have written.
// A process can hide from the list by hiding its descriptors, and hand the socket to another one
// later. The error is [ErrGone] if no process holds the socket any more.
func OfTCP(client, server netip.AddrPort) (Connected, error) {
	fail := func(err error) (Connected, error) {
		return Connected{}, fmt.Errorf("cannot tell who holds the connection from %s: %w", client, err)
	}
	inode, uid, err := socketOf(client, server)
	if err != nil {
		return fail(err)
	}
	found := Connected{UID: uid, Known: true}
	if found.Holders = holders(inode); inode == 0 || len(found.Holders) == 0 {
		return found, fmt.Errorf("cannot tell who holds the connection from %s: %w", client, ErrGone)
	}
	return found, nil
}

// OwnerOfTCP returns the user who opened the socket at the other end of a TCP connection within this
// machine, and takes microseconds: it looks for no process. The arguments and [ErrGone] are those of
// [OfTCP].
func OwnerOfTCP(client, server netip.AddrPort) (uid uint32, err error) {
	inode, uid, err := socketOf(client, server)
	if err == nil && inode == 0 {
		err = ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("cannot tell whose the connection from %s is: %w", client, err)
	}
	return uid, nil
}

// Sizes and offsets of sock_diag's messages (linux/inet_diag.h).
const (
	sockDiagByFamily = 20
	diagRequest      = 56 // inet_diag_req_v2
	diagID           = 48 // inet_diag_sockid
	diagAnswer       = 72 // inet_diag_msg
	diagTime         = 2  // seconds
)

// sockID writes the addresses of a socket as inet_diag_sockid has them, without the cookie: its own
// port, the other's, and the two addresses.
func sockID(own, other netip.AddrPort) []byte {
	id := make([]byte, diagID)
	binary.BigEndian.PutUint16(id[0:], own.Port())
	binary.BigEndian.PutUint16(id[2:], other.Port())
	copy(id[4:20], own.Addr().AsSlice())
	copy(id[20:36], other.Addr().AsSlice())
	return id
}

// socketOf asks the system for one socket. The inode is 0 if no process holds it.
func socketOf(own, other netip.AddrPort) (inode uint64, uid uint32, err error) {
	own, other = netip.AddrPortFrom(own.Addr().Unmap(), own.Port()), netip.AddrPortFrom(other.Addr().Unmap(), other.Port())
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: diagTime}); err != nil {
		return 0, 0, err
	}
	b := make([]byte, unix.SizeofNlMsghdr+diagRequest)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	request := b[unix.SizeofNlMsghdr:]
	if request[0], request[1] = unix.AF_INET6, unix.IPPROTO_TCP; own.Addr().Is4() {
		request[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0)) // in any state
	id := sockID(own, other)
	copy(request[8:], id)
	for i := 8 + 40; i < diagRequest; i++ {
		request[i] = 0xff // no cookie
	}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, err
	}
	answer := make([]byte, 4096)
	n, from, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, 0, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return 0, 0, errors.New("the answer is not the kernel's")
	}
	return parseDiag(answer[:n], id)
}

// parseDiag reads the answer about one socket. Its addresses have to be those that were asked for:
// if the socket is gone, the system may answer with one that listens at the same port.
func parseDiag(answer, id []byte) (inode uint64, uid uint32, err error) {
	const head = unix.SizeofNlMsghdr
	if len(answer) < head {
		return 0, 0, errors.New("the answer is too short")
	}
	kind := binary.NativeEndian.Uint16(answer[4:])
	if kind == unix.NLMSG_ERROR && len(answer) >= head+4 {
		if code := -int32(binary.NativeEndian.Uint32(answer[head:])); code != int32(unix.ENOENT) {
			return 0, 0, unix.Errno(code)
		}
		return 0, 0, ErrGone
	}
	if kind != sockDiagByFamily || len(answer) < head+diagAnswer {
		return 0, 0, errors.New("the answer cannot be read")
	}
	socket := answer[head:]
	if !slices.Equal(socket[4:4+36], id[:36]) {
		return 0, 0, ErrGone
	}
	return uint64(binary.NativeEndian.Uint32(socket[68:])), binary.NativeEndian.Uint32(socket[64:]), nil
}

// holders names the processes that have a socket open and whose descriptors may be listed.
func holders(inode uint64) (names []string) {
	link := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	found, _ := filepath.Glob("/proc/[0-9]*/fd")
	for _, dir := range found {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil {
			continue
		}
		// The name before and after: the descriptors are those of the process that has it.
		name, err := NameOf(pid)
		if err != nil || !holds(dir, link) {
			continue
		}
		if again, err := NameOf(pid); err == nil && again == name {
			names = append(names, name)
		}
	}
	return names
}

// holds reports whether a directory of descriptors has one that leads to link.
func holds(dir, link string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	for {
		entries, err := f.Readdirnames(256)
		for _, entry := range entries {
			if to, err := os.Readlink(filepath.Join(dir, entry)); err == nil && to == link {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}
