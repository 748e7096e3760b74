package witness

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"golang.org/x/mod/sumdb/note"
)

// Witness cosigns checkpoints. It is an [http.Handler].
type Witness struct {
	dir    string
	signer *signer
	now    func() time.Time

	// mu makes one step of the look at a log's remembered checkpoint and the signature of the next
	// one.
	mu   sync.Mutex
	keys map[string]string
}

// keyFile holds the private key of a witness.
const keyFile = "witness.key"

// Open opens a witness over a directory of its own, and makes its key at the first start. The keys
// are those of the logs that it witnesses. It follows a key that was handed over to another.
func Open(dir, name string, now func() time.Time, keys ...string) (*Witness, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the witness: %w", err)
	}
	w := &Witness{dir: dir, now: now, keys: make(map[string]string)}
	path := filepath.Join(dir, keyFile)
	text, err := durable.ReadFile(path)
	switch {
	case err == nil:
		w.signer, err = parseSigner(string(text))
	case errors.Is(err, fs.ErrNotExist):
		if w.signer, err = newSigner(name, rand.Reader); err == nil {
			err = durable.Replace(path, ".tmp", 0o600, []byte(w.signer.text()))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the key of the witness in %s: %w", path, err)
	}
	for _, key := range keys {
		known, err := note.NewVerifier(key)
		if err != nil {
			return nil, fmt.Errorf("%.120q is no public key such as ocipd audit key show prints", key)
		}
		seen, err := w.load(known.Name())
		if err != nil {
			return nil, err
		}
		// The last checkpoint of the log determines the key in force.
		w.keys[known.Name()] = cmp.Or(seen.key, key)
	}
	return w, nil
}

// Key is the witness's public key.
func (w *Witness) Key() *Key { return w.signer.Key }

// seen is a witness's memory of a log.
type seen struct {
	// key is the key in force, and signed the note of the largest checkpoint.
	key    string
	signed string
	// former are the earlier keys.
	former []string
	audit.Checkpoint
}

// formerly reports whether one of the earlier keys signed a note.
func (s *seen) formerly(signed string) bool {
	for _, text := range s.former {
		if key, err := note.NewVerifier(text); err == nil {
			if _, err := audit.OpenCheckpoint(signed, key); err == nil {
				return true
			}
		}
	}
	return false
}

// file returns the path of that memory: the key, and the note after it.
func (w *Witness) file(origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return filepath.Join(w.dir, "log-"+hex.EncodeToString(sum[:16]))
}

func (w *Witness) load(origin string) (s seen, err error) {
	text, err := durable.ReadFile(w.file(origin))
	if errors.Is(err, fs.ErrNotExist) {
		return seen{}, nil
	}
	if err != nil {
		return seen{}, fmt.Errorf("cannot read what was seen of %s: %w", origin, err)
	}
	keys, signed, _ := strings.Cut(string(text), "\n")
	all := strings.Split(keys, " ")
	s.key, s.former, s.signed = all[0], all[1:], signed
	s.Checkpoint, err = audit.OpenCheckpoint(s.signed)
	if errors.Is(err, audit.ErrUnsigned) {
		_, err = note.NewVerifier(s.key)
	}
	if err == nil && s.Origin != origin {
		err = errors.New("it is of another log")
	}
	if err != nil {
		return seen{}, fmt.Errorf("cannot use %s: %w", w.file(origin), err)
	}
	return s, nil
}

func (w *Witness) save(s *seen) error {
	text := strings.Join(append([]string{s.key}, s.former...), " ") + "\n" + s.signed
	return durable.Replace(w.file(s.Origin), ".tmp", 0o600, []byte(text))
}

// AddCheckpoint is the path of the only question.
const AddCheckpoint = "/add-checkpoint"

// sizeType is the type of an answer with a size.
const sizeType = "text/x.tlog.size"

// maxAsked bounds a question.
const maxAsked = audit.MaxNoteBytes + 8<<10

// ServeHTTP answers requests to cosign a checkpoint.
func (w *Witness) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	if in.URL.Path != AddCheckpoint {
		http.NotFound(out, in)
		return
	}
	if in.Method != http.MethodPost {
		http.Error(out, "POST only", http.StatusMethodNotAllowed)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(out, in.Body, maxAsked))
	if err != nil {
		http.Error(out, "the question cannot be read", http.StatusBadRequest)
		return
	}
	line, status, err := w.add(text)
	switch {
	case status == http.StatusConflict:
		out.Header().Set("Content-Type", sizeType)
		out.WriteHeader(status)
		_, _ = io.WriteString(out, line)
	case err != nil:
		http.Error(out, err.Error(), status)
	default:
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(out, line)
	}
}

// add answers one question: with a signature; with the remembered size, if the question begins at
// another; or with the reason of a refusal.
func (w *Witness) add(text []byte) (line string, status int, err error) {
	var c audit.Consistency
	if err := c.UnmarshalText(text); err != nil {
		return "", http.StatusBadRequest, err
	}
	stated, _ := audit.OpenCheckpoint(c.Note)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.keys[stated.Origin]
	known, err := note.NewVerifier(key)
	if err != nil {
		return "", http.StatusNotFound, errors.New("this log is not witnessed here")
	}
	before, err := w.load(stated.Origin)
	if err != nil {
		return "", http.StatusInternalServerError, errors.New("what was seen of the log cannot be read")
	}
	next, err := audit.OpenCheckpoint(c.Note, known)
	if err != nil && stated.Size < before.Size && before.formerly(c.Note) {
		// An older state of the log has an older key. The witness tells it the newer size.
		next, err = stated, nil
	}
	if err != nil {
		return "", http.StatusForbidden, fmt.Errorf("the checkpoint is not signed by the log's key: %w", err)
	}
	conflict := fmt.Sprintf("%d\n", before.Size)
	switch {
	case c.Old > next.Size:
		return "", http.StatusBadRequest, errors.New("the checkpoint is of fewer records than the proof begins with")
	case c.Old != before.Size, next.Size == before.Size && before.signed != "" && next.Root != before.Root:
		return conflict, http.StatusConflict, nil
	}
	if err := audit.Extends(c.Path, before.Size, before.Root, next.Size, next.Root); err != nil {
		// The refused log learns which checkpoint its own does not extend.
		return "", http.StatusUnprocessableEntity, fmt.Errorf("%w\n%s", err, before.signed)
	}
	if to := next.NextKey(); to != "" {
		if v, err := note.NewVerifier(to); err != nil || v.Name() != next.Origin {
			return "", http.StatusUnprocessableEntity, errors.New("the next key that the checkpoint names is not one of this log")
		}
		before.former = append([]string{key}, before.former...)
		key = to
	}
	if err := w.save(&seen{key: key, former: before.former, signed: c.Note, Checkpoint: next}); err != nil {
		return "", http.StatusInternalServerError, errors.New("the checkpoint cannot be remembered")
	}
	w.keys[next.Origin] = key
	signed, _ := textOf(c.Note)
	return w.signer.cosign(signed, w.now()), http.StatusOK, nil
}
