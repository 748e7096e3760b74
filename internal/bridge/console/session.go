package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
)

const (
	// linkTime is how long a link works, and keepLinks how long a used one is known as used.
	linkTime  = time.Minute
	keepLinks = time.Hour
	maxLinks  = 64
	// sessionTime is the life of a session, if the process lives that long.
	sessionTime = 12 * time.Hour
	maxSessions = 32
)

// secret is a text that nobody can guess.
func secret() string {
	raw := make([]byte, sha256.Size)
	_, _ = rand.Read(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw)
}

// sessions are the sessions of pages, by the digests of their keys. They are in memory alone.
type sessions struct {
	now func() time.Time
	mu  sync.Mutex
	all map[digest]*held
}

// held is a session: its key, its end, and the nonces of its requests.
type held struct {
	key  string
	ends time.Time
	seen map[[nonceSize]byte]bool
}

// begin begins a session with a key. If there are too many, the oldest one ends.
func (s *sessions) begin(key string) (ends time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	oldest := digest{}
	for sum, one := range s.all {
		if !one.ends.After(now) {
			delete(s.all, sum)
		} else if other, ok := s.all[oldest]; !ok || one.ends.Before(other.ends) {
			oldest = sum
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
	if s.all == nil {
		s.all = make(map[digest]*held)
	}
	ends = now.Add(sessionTime)
	s.all[digestOf(key)] = &held{key, ends, make(map[[nonceSize]byte]bool)}
	return ends
}

// find returns the key of a session and its end, or false if there is none.
func (s *sessions) find(sum digest) (key string, ends time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[sum]
	if !ok || !one.ends.After(s.now()) {
		return "", time.Time{}, false
	}
	return one.key, one.ends, true
}

// once takes the nonce of a proven request. It fails if the session had it before, or has had as many
// as it may: then it ends.
func (s *sessions) once(c claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[c.key]
	if !ok || one.seen[c.nonce] {
		return false
	}
	if len(one.seen) >= maxProofs {
		delete(s.all, c.key)
		return false
	}
	one.seen[c.nonce] = true
	return true
}

// prove answers a page that has lost its connection. The proof is in the header of the answer, as in
// any: the page asks for it before it sends something to a port at which another program may listen.
func (c *Console) prove(q *request) (answer, *refusal) {
	if _, no := parse[struct{}](q.body); no != nil {
		return nil, no
	}
	return struct{}{}, nil
}

// links are the links that were given out. Each is good for one session.
type links struct {
	now         func() time.Time
	dir, origin string
	mu          sync.Mutex
	all         map[digest]*link
}

// link is one of them. Its file takes the browser to it.
type link struct {
	code string
	made time.Time
	used bool
	file string
	end  *time.Timer
}

// The errors of a link.
var (
	errLinkUsed = errors.New("the link was used before: each works once; get another one: ocipd console")
	errLinkLate = errors.New("the link is older than a minute; get another one: ocipd console")
	errLinkNone = errors.New("the link is none of this console's; get another one: ocipd console")
)

// make makes a link and a file that leads to it. Only this user can read the file, so that no other
// user sees the link among the arguments of a browser.
func (l *links) make() (address, file string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for sum, one := range l.all {
		if now.Sub(one.made) >= keepLinks {
			delete(l.all, sum)
		}
	}
	if len(l.all) >= maxLinks {
		return "", "", errors.New("too many links were made within an hour; use an open page, or start the console again")
	}
	code := secret()
	address = l.origin + "/#" + code
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it never fails
	file = filepath.Join(l.dir, fmt.Sprintf("console-%x.html", name))
	page := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=%s"><title>ocipd console</title><a href="%[1]s">ocipd console</a>`+"\n", html.EscapeString(address))
	if err := durable.Create(file, 0o600, []byte(page)); err != nil {
		return "", "", fmt.Errorf("cannot write the link: %w", err)
	}
	if l.all == nil {
		l.all = make(map[digest]*link)
	}
	one := &link{code: code, made: now, file: file}
	one.end = time.AfterFunc(linkTime, func() { _ = os.Remove(file) }) // it may be gone
	l.all[digestOf(code)] = one
	return address, file, nil
}

// find returns the code of a link, used or not, or false if there is none.
func (l *links) find(code digest) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.all[code]
	if !ok {
		return "", false
	}
	return one.code, true
}

// use takes a link for a session. It fails if the link was used before, or is too old.
func (l *links) use(code digest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[code]
	switch {
	case one == nil:
		return errLinkNone
	case one.used:
		return errLinkUsed
	case l.now().Sub(one.made) >= linkTime:
		return errLinkLate
	}
	one.used = true
	one.remove()
	return nil
}

// remove removes the link's file.
func (l *link) remove() {
	l.end.Stop()
	_ = os.Remove(l.file) // it may be gone
}

// forget removes all files.
func (l *links) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.remove()
	}
}
