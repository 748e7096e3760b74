package keyring

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"golang.org/x/mod/sumdb/note"
)

// The files of the signing key: the key in force, its successor, and the public keys. Earlier ones
// have a number after the name.
const (
	signingFile = "checkpoint.key"
	nextFile    = "checkpoint.key.next"
	publicFile  = "checkpoint.pub"
)

// ErrNotInForce reports that the log was signed with a key that is not here.
var ErrNotInForce = errors.New("the key that signs this log is not here")

// Signer is the key that signs a log's checkpoints: Ed25519, in the form of
// signed notes (C2SP signed-note).
type Signer struct {
	dir, name string
	random    io.Reader

	mu      sync.Mutex
	current signingKey
	next    *signingKey
}

type signingKey struct {
	// private and public are the encoded keys of golang.org/x/mod/sumdb/note.
	private, public string
	signer          note.Signer
}

// OpenSigner opens the signing key of a log, or makes it on the first start. The name is the log's,
// and becomes the key's. It does not replace a lost key by itself: if there is a public key without
// its private one, it returns an error.
func OpenSigner(dir, name string, random io.Reader) (*Signer, error) {
	s := &Signer{dir: dir, name: name, random: random}
	if err := prepare(dir, signingFile, nextFile, publicFile, newestFile); err != nil {
		return nil, err
	}
	current, err := s.load(signingFile)
	if errors.Is(err, fs.ErrNotExist) {
		current, err = s.first()
	}
	if err != nil {
		return nil, err
	}
	s.current = *current
	next, err := s.load(nextFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.next = next
	return s, s.publish()
}

// first makes the key of a log that never had one.
func (s *Signer) first() (*signingKey, error) {
	public := filepath.Join(s.dir, publicFile)
	if _, err := os.Lstat(public); err == nil {
		return nil, fmt.Errorf("cannot find the signing key %s, though its public key %s is there: put it back from a backup%s",
			filepath.Join(s.dir, signingFile), public, audit.OrNewLog)
	}
	k, err := s.generate()
	if err != nil {
		return nil, err
	}
	return k, write(s.dir, signingFile, secretMode, []byte(k.private+"\n"))
}

func (s *Signer) generate() (*signingKey, error) {
	private, _, err := note.GenerateKey(s.random, s.name)
	if err != nil {
		return nil, fmt.Errorf("cannot make a signing key for %q: %w", s.name, err)
	}
	k, err := s.parse(private)
	if err != nil {
		return nil, fmt.Errorf("cannot make a signing key for %q: a name has no space and no plus", s.name)
	}
	return k, nil
}

func (s *Signer) load(name string) (*signingKey, error) {
	text, err := read(s.dir, name, secretMode)
	if err != nil {
		return nil, err
	}
	k, err := s.parse(line(text))
	if err != nil {
		return nil, fmt.Errorf("cannot use the key file %s: %w", filepath.Join(s.dir, name), err)
	}
	return k, nil
}

// parse reads an encoded private key, and derives the public one.
func (s *Signer) parse(private string) (*signingKey, error) {
	k, err := parseSigningKey(private)
	if err != nil {
		return nil, err
	}
	if name := k.signer.Name(); name != s.name {
		return nil, &otherLogError{key: name, log: s.name}
	}
	return k, nil
}

// otherLogError reports that the present key belongs to another log.
type otherLogError struct{ key, log string }

func (e *otherLogError) Error() string {
	return fmt.Sprintf("it is the key of the log %s, and this log is %s; every log has its own key", e.key, e.log)
}

// OtherLog distinguishes this error from failures in making a key.
func (e *otherLogError) OtherLog() {}

// errNoKey does not quote the file's content, which may be a key all the same.
var errNoKey = errors.New("it holds no signing key (PRIVATE+KEY+…, one line)")

func parseSigningKey(private string) (*signingKey, error) {
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, errNoKey
	}
	// The name contains no plus sign; the last part may contain some.
	parts := strings.SplitN(private, "+", 5)
	data, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(data) != 1+ed25519.SeedSize {
		return nil, errNoKey
	}
	seed := ed25519.NewKeyFromSeed(data[1:])
	public, err := note.NewEd25519VerifierKey(signer.Name(), seed.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, errNoKey
	}
	return &signingKey{private: private, public: public, signer: signer}, nil
}

// publish writes the public key of the key in force beside it.
func (s *Signer) publish() error {
	if text, err := read(s.dir, publicFile, publicMode); err == nil && line(text) == s.current.public {
		return nil
	}
	return write(s.dir, publicFile, publicMode, []byte(s.current.public+"\n"))
}

// Note returns the key in force, for signing.
func (s *Signer) Note() note.Signer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.signer
}

// Verifier returns the public key in force, as NAME+HASH+KEY, for a verifier.
func (s *Signer) Verifier() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.public
}

// Public returns a verifier for the signatures of the key in force.
func (s *Signer) Public() (note.Verifier, error) {
	key, err := note.NewVerifier(s.Verifier())
	if err != nil {
		return nil, fmt.Errorf("cannot use the public key of the log: %w", err)
	}
	return key, nil
}

// Next makes the successor key durably, and returns it with its public key. It is the first of
// three steps. The caller then commits a record to the log in which the key in force signs the new
// one. It calls [Signer.Promote] when that is durable. After a crash in between, [Signer.Settle]
// finds out which of the two signs the log. If a rotation was not finished, Next returns its key.
func (s *Signer) Next() (note.Signer, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		k, err := s.generate()
		if err != nil {
			return nil, "", err
		}
		if err := write(s.dir, nextFile, secretMode, []byte(k.private+"\n")); err != nil {
			return nil, "", err
		}
		s.next = k
	}
	return s.next.signer, s.next.public, nil
}

// Promote puts the next key in force. The earlier public key stays, in a file with a number after
// its name; the earlier private key is deleted.
func (s *Signer) Promote() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		return errors.New("cannot rotate the signing key: there is no next one")
	}
	for _, step := range s.promotion() {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// promotion lists the steps in order. After an interruption at any step, a repetition from the
// start leads to the same result.
func (s *Signer) promotion() []func() error {
	return []func() error{
		s.keepPublic,
		func() error { return rename(s.dir, nextFile, signingFile) },
		func() error {
			s.current, s.next = *s.next, nil
			return s.publish()
		},
	}
}

// keepPublic keeps the public key that another is about to replace.
func (s *Signer) keepPublic() error {
	earlier, err := earlierKeys(s.dir)
	if err != nil {
		return err
	}
	number := 1
	if len(earlier) > 0 {
		last := earlier[len(earlier)-1]
		if last.Verifier == s.current.public {
			return nil
		}
		number = last.number + 1
	}
	return write(s.dir, publicFile+"."+strconv.Itoa(number), publicMode, []byte(s.current.public+"\n"))
}

// Settle ends a rotation that a crash interrupted. The log says which public key is in force, "" if
// it was never signed. If the next key is in force, it replaces the present one; otherwise it is
// removed. If neither is in force, the error is [ErrNotInForce].
func (s *Signer) Settle(inForce string) error {
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	switch {
	case next != nil && next.public == inForce:
		return s.Promote()
	case inForce != "" && inForce != s.Verifier():
		return fmt.Errorf("cannot continue to sign with %s: %w: it is %s; put it back from a backup%s",
			filepath.Join(s.dir, signingFile), ErrNotInForce, inForce, audit.OrNewLog)
	case next == nil:
		return nil
	}
	if err := remove(s.dir, nextFile); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = nil
	return nil
}

// PublicKey is one public key of a log.
type PublicKey struct {
	// Verifier is the key as NAME+HASH+KEY.
	Verifier string
	// File is the file of the key. It was written at At: since then the key has been in force, and
	// an earlier one before.
	File string
	At   time.Time

	number int
}

// PublicKeys returns the public keys in a directory of keys, oldest first; the last is in force. It
// needs no daemon. If there is none, the error wraps [fs.ErrNotExist].
func PublicKeys(dir string) ([]PublicKey, error) {
	keys, err := earlierKeys(dir)
	if err != nil {
		return nil, err
	}
	current, err := publicKey(dir, publicFile)
	if err != nil {
		return nil, err
	}
	return append(keys, current), nil
}

// earlierKeys returns the public keys that others replaced, oldest first.
func earlierKeys(dir string) ([]PublicKey, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot look for public keys: %w", err)
	}
	var keys []PublicKey
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), publicFile+".")
		number, err := strconv.Atoi(suffix)
		if !ok || err != nil || number < 1 || strconv.Itoa(number) != suffix {
			continue
		}
		k, err := publicKey(dir, e.Name())
		if err != nil {
			return nil, err
		}
		k.number = number
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b PublicKey) int { return a.number - b.number })
	return keys, nil
}

func publicKey(dir, name string) (PublicKey, error) {
	text, err := read(dir, name, publicMode)
	if err != nil {
		return PublicKey{}, err
	}
	k := PublicKey{Verifier: line(text), File: filepath.Join(dir, name)}
	if _, err := note.NewVerifier(k.Verifier); err != nil {
		return PublicKey{}, fmt.Errorf("cannot use %s: it holds no public key", k.File)
	}
	info, err := os.Lstat(k.File)
	if err != nil {
		return PublicKey{}, fmt.Errorf("cannot use %s: %w", k.File, err)
	}
	k.At = info.ModTime()
	return k, nil
}
