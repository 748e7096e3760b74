package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
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
	// nonceSize is the size of the bytes over which a proof is made.
	nonceSize = 32
)

// secret is a text that nobody can guess, and the digest under which it is kept.
func secret() (text string, sum [sha256.Size]byte) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it never fails
	text = base64.RawURLEncoding.EncodeToString(raw)
	return text, sha256.Sum256([]byte(text))
}

// sessions are the sessions of pages, by the digests of their tokens. They are in memory alone.
type sessions struct {
	now func() time.Time
	mu  sync.Mutex
	all map[[sha256.Size]byte]held
}

// held is a session: its token, by which the console proves itself to the page, and its end.
type held struct {
	token string
	ends  time.Time
}

// begin begins a session. If there are too many, the oldest one ends.
func (s *sessions) begin() (token string, ends time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	oldest := [sha256.Size]byte{}
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
		s.all = make(map[[sha256.Size]byte]held)
	}
	token, sum := secret()
	ends = now.Add(sessionTime)
	s.all[sum] = held{token, ends}
	return token, ends
}

// find returns the end of a session, or false if there is none with this token.
func (s *sessions) find(token string) (ends time.Time, ok bool) {
	one, ok := s.of(sha256.Sum256([]byte(token)))
	return one.ends, ok
}

// of returns the session whose token has a digest.
func (s *sessions) of(sum [sha256.Size]byte) (held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[sum]
	return one, ok && one.ends.After(s.now())
}

// proofOf begins the bytes of a proof, so that no other use of the token makes the same ones.
const proofOf = "ocipd console prove\x00"

// prove shows a page that this process knows its session: it answers the HMAC-SHA-256, by the token,
// of [proofOf] and the page's 32 random bytes. A page whose connection was lost sends its bearer
// after that alone, for another program may listen at the port by then.
func (c *Console) prove(q *request) (answer, *refusal) {
	p, no := parse[struct {
		Session string  `json:"session" is:"required max=64"`
		Nonce   bytes64 `json:"nonce"`
	}](q.body)
	if no != nil {
		return nil, no
	}
	raw, err := hex.DecodeString(p.Session)
	switch {
	case err != nil || len(raw) != sha256.Size:
		return nil, &refusal{http.StatusBadRequest, api.AsError(api.Invalid([]api.FieldError{{Path: "session", Message: "want a SHA-256 in hexadecimal"}}))}
	case len(p.Nonce) != nonceSize:
		return nil, &refusal{http.StatusBadRequest, api.AsError(api.Invalid([]api.FieldError{{Path: "nonce", Message: "want 32 bytes in base64url"}}))}
	}
	one, ok := c.sessions.of([sha256.Size]byte(raw))
	if !ok {
		return nil, c.unknown(q.Context(), q.process)
	}
	mac := hmac.New(sha256.New, []byte(one.token))
	mac.Write([]byte(proofOf))
	mac.Write(p.Nonce)
	return map[string]any{"proof": bytes64(mac.Sum(nil))}, nil
}

// links are the links that were given out. Each is good for one session.
type links struct {
	now         func() time.Time
	dir, origin string
	mu          sync.Mutex
	all         map[[sha256.Size]byte]*link
}

// link is one of them. Its file takes the browser to it.
type link struct {
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
	code, sum := secret()
	address = l.origin + "/#" + code
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it never fails
	file = filepath.Join(l.dir, fmt.Sprintf("console-%x.html", name))
	page := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=%s"><title>ocipd console</title><a href="%[1]s">ocipd console</a>`+"\n", html.EscapeString(address))
	if err := durable.Create(file, 0o600, []byte(page)); err != nil {
		return "", "", fmt.Errorf("cannot write the link: %w", err)
	}
	if l.all == nil {
		l.all = make(map[[sha256.Size]byte]*link)
	}
	one := &link{made: now, file: file}
	one.end = time.AfterFunc(linkTime, func() { _ = os.Remove(file) }) // it may be gone
	l.all[sum] = one
	return address, file, nil
}

// use takes a link for a session. It fails if the link was used before, or is too old.
func (l *links) use(code string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[sha256.Sum256([]byte(code))]
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
