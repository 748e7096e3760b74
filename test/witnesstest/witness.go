// Package witnesstest is a witness for tests that was written by the specifications alone
// (C2SP tlog-witness, tlog-cosignature, signed-note), and shares no code with
// internal/evidence/witness: a client that works with this witness must work with others too. It signs for one log,
// remembers in memory, and says no more than the specification asks for.
//
// The caller makes it with [New], has it answer with [Witness.Serve], and tells it with
// [Witness.Knows] when the log's key was replaced.
package witnesstest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness cosigns the checkpoints of one log.
type Witness struct {
	name    string
	public  ed25519.PublicKey
	private ed25519.PrivateKey

	mu   sync.Mutex
	log  note.Verifier
	size int64
	root tlog.Hash
}

// New makes a witness of a log, with a key of its own.
func New(name, logKey string) (*Witness, error) {
	w := &Witness{name: name}
	var err error
	if w.public, w.private, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	return w, w.Knows(logKey)
}

// Knows has the witness take what another key of the log signs from here on.
func (w *Witness) Knows(logKey string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, err := note.NewVerifier(logKey)
	w.log = key
	return err
}

// Size is how many records the witness remembers.
func (w *Witness) Size() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(w.size)
}

// hash is the key's ID.
func (w *Witness) hash() []byte {
	sum := sha256.Sum256(append([]byte(w.name+"\n\x04"), w.public...))
	return sum[:4]
}

// Key is the public key, as it is handed around.
func (w *Witness) Key() string {
	return fmt.Sprintf("%s+%x+%s", w.name, w.hash(), base64.StdEncoding.EncodeToString(append([]byte{4}, w.public...)))
}

// Serve answers at a Unix socket until it is stopped.
func (w *Witness) Serve(ctx context.Context, socket string) (stop func() error, err error) {
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	var listener net.ListenConfig
	l, err := listener.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(w.answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	return server.Close, nil
}

// refusal is an answer that is not a signature.
type refusal struct {
	status int
	kind   string
	body   string
}

func (w *Witness) answer(out http.ResponseWriter, in *http.Request) {
	if in.Method != http.MethodPost || in.URL.Path != "/add-checkpoint" {
		out.WriteHeader(http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(in.Body, 1<<20))
	if err != nil {
		out.WriteHeader(http.StatusBadRequest)
		return
	}
	line, no := w.add(string(body))
	if no != nil {
		if no.kind != "" {
			out.Header().Set("Content-Type", no.kind)
		}
		out.WriteHeader(no.status)
		_, _ = io.WriteString(out, no.body)
		return
	}
	_, _ = io.WriteString(out, line)
}

func (w *Witness) add(request string) (line string, no *refusal) {
	bad := &refusal{status: http.StatusBadRequest}
	head, signed, found := strings.Cut(request, "\n\n")
	lines := strings.Split(head, "\n")
	number, isOld := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseInt(number, 10, 64)
	if !found || !isOld || err != nil {
		return "", bad
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return "", bad
		}
		proof = append(proof, h)
	}
	text, _, found := strings.Cut(signed, "\n\n")
	members := strings.Split(text, "\n")
	if !found || len(members) < 3 {
		return "", bad
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	size, err := strconv.ParseInt(members[1], 10, 64)
	root, wrong := tlog.ParseHash(members[2])
	switch {
	case members[0] != w.log.Name():
		return "", &refusal{status: http.StatusNotFound}
	case err != nil || wrong != nil:
		return "", bad
	}
	if _, err := note.Open([]byte(signed), note.VerifierList(w.log)); err != nil {
		return "", &refusal{status: http.StatusForbidden}
	}
	switch {
	case old > size:
		return "", bad
	case old != w.size:
		return "", &refusal{http.StatusConflict, "text/x.tlog.size", strconv.FormatInt(w.size, 10) + "\n"}
	case old == size && root != w.root:
		return "", &refusal{status: http.StatusConflict}
	case old == size || old == 0:
		if len(proof) > 0 {
			return "", &refusal{status: http.StatusUnprocessableEntity}
		}
	case tlog.CheckTree(proof, size, root, old, w.root) != nil:
		return "", &refusal{status: http.StatusUnprocessableEntity}
	}
	w.size, w.root = size, root
	now := time.Now().Unix()
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", now, text)
	signature := append(binary.BigEndian.AppendUint64(w.hash(), uint64(now)), ed25519.Sign(w.private, []byte(message))...)
	return fmt.Sprintf("— %s %s\n", w.name, base64.StdEncoding.EncodeToString(signature)), nil
}
