package witness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"golang.org/x/mod/sumdb/note"
)

const logName = "ocipd/018f0000-0000-7000-8000-00000000abcd"

// testLog is a log with its tree in memory.
type testLog struct {
	t      *testing.T
	tree   audit.Tree
	leaves []audit.Hash
	signer note.Signer
	public string
}

func newLog(t *testing.T) *testLog {
	t.Helper()
	l := &testLog{t: t}
	l.key()
	return l
}

func (l *testLog) key() {
	l.t.Helper()
	secret, public, err := note.GenerateKey(rand.Reader, logName)
	if err == nil {
		l.signer, err = note.NewSigner(secret)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.public = public
}

func (l *testLog) grow(n int, mark string) {
	l.t.Helper()
	for i := range n {
		l.add(audit.Leaf(fmt.Append(nil, mark, i)))
	}
}

func (l *testLog) add(leaf audit.Hash) {
	l.t.Helper()
	l.leaves = append(l.leaves, leaf)
	if err := l.tree.Append(leaf, func(audit.Tile) error { return nil }); err != nil {
		l.t.Fatal(err)
	}
}

// again returns the same log, which then continues separately.
func (l *testLog) again() *testLog {
	l.t.Helper()
	other := &testLog{t: l.t, signer: l.signer, public: l.public}
	for _, leaf := range l.leaves {
		other.add(leaf)
	}
	return other
}

func (l *testLog) sign(signers ...note.Signer) string {
	l.t.Helper()
	c := audit.Checkpoint{Origin: logName, Size: l.tree.Size(), Root: l.tree.Root()}
	signed, err := c.Sign(append(signers, l.signer)...)
	if err != nil {
		l.t.Fatal(err)
	}
	return signed
}

func (l *testLog) ProveExtension(_ context.Context, old, size uint64) ([]audit.Hash, error) {
	return l.tree.ProveExtension(old, size, func(int, uint64) ([]audit.Hash, error) { return nil, errors.New("there is no tile") })
}

var noon = time.Date(2026, 3, 13, 12, 0, 0, 0, time.UTC)

// serve has a witness answer at a socket, in a directory that a later one uses again.
func serve(t *testing.T, dir string, keys ...string) (p Place, stop func()) {
	t.Helper()
	w, err := Open(dir, "other.example", func() time.Time { return noon }, keys...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string), make(chan error, 1)
	sockets, err := os.MkdirTemp("", "ocipw")
	if err != nil {
		t.Fatal(err)
	}
	at := "unix:" + filepath.Join(sockets, "w.sock")
	go func() { done <- w.Serve(ctx, at, func(address string) { ready <- address }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if p, err = ParsePlace(w.Key().String(), at); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(sockets)
	}
	return p, stop
}

// A witness signs only extensions of the records that it has seen, also after its restarts and with
// new keys of the log. A log that asks with fewer records learns the number.
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	l := newLog(t)
	l.grow(5, "a")
	p, stop := serve(t, dir, l.public)
	ask := func(l *testLog, signed string) error {
		t.Helper()
		cosigned, err := p.Ask(t.Context(), l, signed)
		if err != nil {
			return err
		}
		if at, ok := p.Key.Cosigned(cosigned); !ok || !at.Equal(noon) || !strings.HasPrefix(cosigned, signed) {
			t.Errorf("cosigned at %v, %v:\n%s", at, ok, cosigned)
		}
		if _, ok := p.Key.Cosigned(strings.Replace(cosigned, "\n5\n", "\n6\n", 1)); ok && l.tree.Size() == 5 {
			t.Error("another checkpoint counts as cosigned")
		}
		return nil
	}
	first := l.sign()
	// A repetition is no news, and no fault.
	for range 2 {
		if err := ask(l, first); err != nil {
			t.Fatal(err)
		}
	}
	early, fork := l.again(), l.again()
	l.grow(100, "b")
	if err := ask(l, l.sign()); err != nil {
		t.Fatal(err)
	}
	stop()
	p, stop = serve(t, dir, l.public)
	defer func() { stop() }()

	// refused shows a log to the witness, and expects a fault with that text, and the signed note
	// if the witness returns it.
	refused := func(l *testLog, says, signed string) {
		t.Helper()
		shown := l.sign()
		err := ask(l, shown)
		e, ok := errors.AsType[*RefusedError](err)
		if !ok || e.Have != l.tree.Size() || e.Seen != 105 || e.Shown != shown || e.Signed != signed || !strings.Contains(e.Error(), says) {
			t.Errorf("%d records: %v", l.tree.Size(), err)
		}
	}
	refused(early, "was shown 105 records of this log, and there are 5", "")
	fork.grow(100, "c")
	refused(fork, "was shown 105 other records of this log", "")
	fork.grow(1, "c")
	refused(fork, "was shown 105 records of this log that the 106 here do not begin with", l.sign())
	stranger := newLog(t)
	stranger.grow(120, "d")
	if err := ask(stranger, stranger.sign()); !errors.Is(err, ErrUnknown) {
		t.Errorf("of another key: %v", err)
	}
	// The key hands over: from there on the signatures of the next key count, also after a restart
	// of the witness with the first key.
	old := l.signer
	l.grow(1, "e")
	handed := audit.Checkpoint{Origin: logName, Size: l.tree.Size(), Root: l.tree.Root()}
	l.key()
	next := audit.HandOver(handed, l.public)
	signed, err := next.Sign(old, l.signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(l, l.sign()); !errors.Is(err, ErrUnknown) {
		t.Errorf("by a key that nobody named: %v", err)
	}
	if err := ask(l, signed); err != nil {
		t.Fatal(err)
	}
	l.grow(1, "f")
	if err := ask(l, l.sign()); err != nil {
		t.Error(err)
	}
	l.signer = old
	l.grow(1, "g")
	if err := ask(l, l.sign()); !errors.Is(err, ErrUnknown) {
		t.Errorf("by the key before: %v", err)
	}
}

// Of two processes with one directory, only one answers.
func TestOneWitnessOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Open(dir, "w.example", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(dir, "w.example", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- first.Serve(ctx, "127.0.0.1:0", func(string) { close(ready) }) }()
	<-ready
	if err := second.Serve(ctx, "127.0.0.1:0", func(string) { t.Error("it answers") }); err == nil || !strings.Contains(err.Error(), "another witness") {
		t.Errorf("it says %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := second.Serve(ctx, "127.0.0.1:0", func(string) { cancel() }); err != nil {
		t.Errorf("behind the first: %v", err)
	}
}

func TestKeysAndPlaces(t *testing.T) {
	for _, name := range []string{"a\x1b[2J", "a\u009b2J", "a\u202eb", "a b", "a+b", "", "a\xff"} {
		if _, err := newSigner(name, rand.Reader); err == nil {
			t.Errorf("%q names a witness", name)
		}
	}
	s, err := newSigner("other.example", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseSigner(s.text())
	if err != nil || again.String() != s.String() {
		t.Errorf("read back: %v, %v", again, err)
	}
	if k, err := ParseKey(s.String()); err != nil || k.String() != s.String() {
		t.Errorf("read back: %v, %v", k, err)
	}
	_, logKey, err := note.GenerateKey(rand.Reader, "other.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", logKey, s.String() + "x", strings.Replace(s.String(), "other", "another", 1)} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q is read as a key", text)
		}
	}
	for where, good := range map[string]bool{"http://h:1": true, "https://h/x": true, "unix:/run/w.sock": true, "unix:w.sock": false, "h:1": false, "http://": false, "ftp://h": false, "": false} {
		if _, err := ParsePlace(s.String(), where); (err == nil) != good {
			t.Errorf("%q: %v", where, err)
		}
	}
	dir := t.TempDir()
	for _, where := range []string{"http://h:1", "http://h:2", "http://h:2"} {
		p, err := ParsePlace(s.String(), where)
		if err == nil {
			err = AddPlace(dir, p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if list, err := Places(dir); err != nil || len(list) != 1 || list[0].URL != "http://h:2" {
		t.Errorf("listed are %+v, %v", list, err)
	}
}
