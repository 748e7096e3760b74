package metricshttp

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConnections bounds the connections of all listeners together; a scraper needs one.
const maxConnections = 32

// bound keeps a server's connections within maxConnections. A further connection replaces
// the one that has been quiet longest. If all are in use, it is closed.
type bound struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
	// quiet are the connections without a request, the longest first.
	quiet []net.Conn
}

// watch is the server's ConnState.
func (b *bound) watch(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = slices.DeleteFunc(b.quiet, func(other net.Conn) bool { return other == c })
	switch state {
	case http.StateActive:
	case http.StateHijacked, http.StateClosed:
		delete(b.open, c)
	case http.StateIdle:
		b.quiet = append(b.quiet, c)
	case http.StateNew:
		if b.open == nil {
			b.open = make(map[net.Conn]struct{})
		}
		b.open[c] = struct{}{}
		b.quiet = append(b.quiet, c)
		if len(b.open) > maxConnections {
			last := b.quiet[0]
			b.quiet = b.quiet[1:]
			delete(b.open, last)
			_ = last.Close() // its own goroutine sees that
		}
	}
}
