package console

import (
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/openclawos/ocipd/internal/base/peer"
)

// maxConnections bounds the connections of this user, and maxForeign those of other users and of users
// that the system does not name: their requests are refused, and they cannot keep a browser out.
const (
	maxConnections = 256
	maxForeign     = 16
)

// seats counts connections, and closes those beyond the limit before they are read.
type seats struct {
	mu sync.Mutex
	// taken are the open connections: true for those of this user's.
	taken map[net.Conn]bool
	own   int
}

// watch takes a seat for a new connection, and gives it back.
func (s *seats) watch(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !s.take(c, ours(c)) {
			_ = c.Close() // it has said nothing yet
		}
	case http.StateClosed, http.StateHijacked:
		s.leave(c)
	case http.StateActive, http.StateIdle:
	}
}

// take reports whether there is a seat for a connection.
func (s *seats) take(c net.Conn, own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own && s.own >= maxConnections || !own && len(s.taken)-s.own >= maxForeign {
		return false
	}
	if s.taken == nil {
		s.taken = make(map[net.Conn]bool)
	}
	if s.taken[c] = own; own {
		s.own++
	}
	return true
}

func (s *seats) leave(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[c] {
		s.own--
	}
	delete(s.taken, c)
}

// ours reports whether this user opened the other end of a connection. It is asked before the next
// connection is accepted, and takes microseconds.
func ours(c net.Conn) bool {
	one := connectionOf(c)
	uid, err := peer.OwnerOfTCP(one.client, one.server)
	return err == nil && uid == uint32(os.Geteuid())
}
