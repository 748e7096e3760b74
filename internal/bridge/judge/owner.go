package judge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
)

// lookAgain is the time between two looks for the program that accepts a connection.
const lookAgain = 5 * time.Millisecond

// ownerError means that a server gets no text, since it is another user's or nobody can tell whose.
type ownerError struct{ why string }

func (e *ownerError) Error() string { return e.why }

// own checks that a program of this user or of root has accepted a connection: any user can listen at
// a port of the loopback while the operator's server is down. Before a program accepts, the system
// does not name its user, so it is waited for.
func own(ctx context.Context, c net.Conn, within time.Duration) error {
	from, ok := c.LocalAddr().(*net.TCPAddr)
	at, is := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !is {
		return &ownerError{"the server is not reached over TCP"}
	}
	late := time.After(within)
	for {
		uid, err := peer.OwnerOfTCP(at.AddrPort(), from.AddrPort())
		switch {
		case err == nil && (uid == 0 || uid == uint32(os.Geteuid())):
			return nil
		case err == nil:
			return &ownerError{fmt.Sprintf("the server at %s is of another user, %s, and gets no text: run it as your own user, or set ocip.judge.elsewhere", at, nameOf(uid))}
		case !errors.Is(err, peer.ErrGone):
			return &ownerError{fmt.Sprintf("cannot tell whose server is at %s, which gets no text: %v", at, err)}
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return &ownerError{fmt.Sprintf("no program of this machine has accepted the connection to %s within %s, and no text was sent", at, within)}
		}
	}
}

// nameOf is a user's name with the number, or the number.
func nameOf(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username + " (uid " + number + ")"
	}
	return "uid " + number
}
