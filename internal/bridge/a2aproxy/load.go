package a2aproxy

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxLoad bounds the memory of all open requests and answers, in bytes as [load.cost] estimates them.
const maxLoad = 1 << 30

// errBusy means that a message would take more memory than there is now.
var errBusy = fmt.Errorf("the messages that are open now, with this one, would take more than %d MiB, or one peer's more than half of what is left", maxLoad>>20)

// shares divide a limit among peers. A peer takes at most half of what the others leave of it: so one
// alone has half, and each further one finds room. The proxy itself has no such share.
type shares struct {
	most int64
	mu   sync.Mutex
	all  int64
	of   map[string]int64
}

func sharing(most int64) *shares { return &shares{most: most, of: make(map[string]int64)} }

// take takes n for a peer, and reports whether there was room. What was taken is given back in any case.
func (s *shares) take(peer string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += n
	mine := s.of[peer] + n
	if s.of[peer] = mine; mine <= 0 {
		delete(s.of, peer)
	}
	return s.all <= s.most && (peer == own || mine <= (s.most-(s.all-mine))/2)
}

// own names in shares what the proxy asks for itself, or for the programs of its own machine.
const own = ""

// load is the part of the memory for all requests that one request and its answers take.
type load struct {
	all  *shares
	peer string
	mine int64
}

// take takes n bytes more.
func (l *load) take(n int) error {
	if l.mine += int64(n); !l.all.take(l.peer, int64(n)) {
		return errBusy
	}
	return nil
}

// back gives back what was taken since mine was so much, and free gives all back.
func (l *load) back(mine int64) {
	l.all.take(l.peer, mine-l.mine)
	l.mine = mine
}

func (l *load) free() { l.back(0) }

// copies is how often the bytes of a message are in memory until it is decided, and perValue is
// about how many bytes a JSON value takes, with its copy.
const copies, perValue = 6, 512

// read reads a body, of which most bytes are allowed, and takes what its values will need.
func (l *load) read(r io.Reader, most int) (body []byte, err error) {
	if body, err = io.ReadAll(&counting{l, io.LimitReader(r, int64(most)+1)}); err != nil {
		return nil, err
	}
	return body, l.values(body)
}

// values takes the memory for a text's JSON values.
func (l *load) values(text []byte) error {
	n := 0
	for _, sign := range []string{",", ":", "[", "{"} {
		n += bytes.Count(text, []byte(sign))
	}
	return l.take(n * perValue)
}

// counting takes memory for what it reads.
type counting struct {
	l *load
	r io.Reader
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if busy := c.l.take(n * copies); busy != nil {
		return n, busy
	}
	return n, err
}
