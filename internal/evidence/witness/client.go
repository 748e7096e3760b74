package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// Place is where a witness is asked, and the key that it answers with.
type Place struct {
	Key *Key
	URL string
}

// ParsePlace reads where a witness is: http://HOST/PREFIX, https://HOST/PREFIX, or
// unix:/PATH for a socket on this machine.
func ParsePlace(key, where string) (Place, error) {
	k, err := ParseKey(key)
	if err != nil {
		return Place{}, err
	}
	u, err := url.Parse(where)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		err = fmt.Errorf("%.120q is no place of a witness: want http://HOST/PREFIX, https://HOST/PREFIX or unix:/PATH", where)
	case u.Scheme == "unix" && !strings.HasPrefix(u.Path, "/"), u.Scheme != "unix" && u.Host == "":
		err = fmt.Errorf("%.120q is no place of a witness: it names no host, or no absolute path", where)
	}
	return Place{k, where}, err
}

// RefusedError means that a witness does not sign a checkpoint because it has signed others of
// the same log that this one does not go on from: the log here was cut, put back, rewritten,
// or somebody else writes another one with its key.
type RefusedError struct {
	Witness string
	// Shown is the signed note that was refused, and Have how many records it is of.
	Shown string
	Have  uint64
	// Seen is how many records the witness remembers. Signed is the note of them, or of the
	// newest ones that are known here; "" where none is.
	Seen   uint64
	Signed string
	// Answer is what the witness said, up to 200 bytes.
	Answer string
}

func (e *RefusedError) Error() string {
	why := fmt.Sprintf("the witness %s was shown %d records of this log that the %d here do not begin with: it was rewritten, or another daemon has its key", e.Witness, e.Seen, e.Have)
	switch {
	case e.Seen == e.Have:
		why = fmt.Sprintf("the witness %s was shown %d other records of this log: it was rewritten, or another daemon has its key", e.Witness, e.Seen)
	case e.Seen > e.Have:
		why = fmt.Sprintf("the witness %s was shown %d records of this log, and there are %d: it was cut, or is an older copy", e.Witness, e.Seen, e.Have)
	}
	return why + "; refused is " + describe(e.Shown) + ", signed was " + describe(e.Signed)
}

// describe names a checkpoint by what tells it from others.
func describe(signed string) string {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return "one that is not kept here"
	}
	return fmt.Sprintf("the checkpoint of %d records with the root %s", c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// conflictError is an answer of a witness that remembers another size than the question
// began with. The size is [unknownSize] where it does not say which.
type conflictError struct{ size uint64 }

const unknownSize = math.MaxUint64

func (e *conflictError) Error() string {
	return fmt.Sprintf("the witness remembers %d records", e.size)
}

// forkError is an answer of a witness for which a checkpoint does not go on from the records
// that the question began with.
type forkError struct{ answer string }

func (e *forkError) Error() string { return e.answer }

// ErrUnknown means that a witness does not know a log, or the key that signed.
var ErrUnknown = errors.New("the witness does not take the log's checkpoint")

// askTime bounds one question.
const askTime = 10 * time.Second

// maxAnswer bounds what a witness answers.
const maxAnswer = 16 << 10

// post asks one question, and returns the signature lines of the answer.
func (p Place) post(ctx context.Context, c *audit.Consistency) (lines string, err error) {
	text, err := c.MarshalText()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, Proxy: nil}
	base := strings.TrimSuffix(p.URL, "/")
	if path, ok := strings.CutPrefix(p.URL, "unix:"); ok {
		base = "http://witness"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, base+AddCheckpoint, bytes.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("cannot ask the witness %s: %w", p.Key.name, err)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	out, err := client.Do(in)
	if err != nil {
		return "", fmt.Errorf("cannot ask the witness %s: %w", p.Key.name, err)
	}
	defer out.Body.Close()
	body, err := io.ReadAll(io.LimitReader(out.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("cannot ask the witness %s: %w", p.Key.name, err)
	}
	switch out.StatusCode {
	case http.StatusOK:
		return string(body), nil
	case http.StatusConflict:
		// Where the roots of equal sizes differ, the specification asks for no size.
		size, err := parseSize(string(body))
		if err != nil {
			size = unknownSize
		}
		return "", &conflictError{size}
	case http.StatusUnprocessableEntity:
		return "", &forkError{string(body)}
	case http.StatusNotFound, http.StatusForbidden:
		return "", fmt.Errorf("%w: %s: %.200q", ErrUnknown, p.Key.name, body)
	}
	return "", fmt.Errorf("the witness %s answers %d %s: %.200q", p.Key.name, out.StatusCode, http.StatusText(out.StatusCode), body)
}

// Log is the log that is shown to a witness.
type Log interface {
	// ProveExtension returns the path from the root at one size to that at another.
	ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error)
}

// askTries bounds the questions about one checkpoint: between two of them somebody else can
// have shown the witness more of the log.
const askTries = 4

// Ask shows a witness a checkpoint, with the proof that the log goes on from what the
// witness remembers, and returns the note with the witness's signature. A
// [*RefusedError] means that the witness knows of other records, or of more.
func (p Place) Ask(ctx context.Context, log Log, signed string) (cosigned string, err error) {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return "", err
	}
	// The first guess is that nothing is new; the answer to it says what is.
	question := audit.Consistency{Old: c.Size, Note: signed}
	var lines string
	for range askTries {
		lines, err = p.post(ctx, &question)
		if refused := p.refusal(err, &c, question.Old, signed); refused != nil {
			return "", refused
		}
		remembers, ok := errors.AsType[*conflictError](err)
		if !ok {
			break
		}
		if remembers.size >= c.Size {
			return "", fmt.Errorf("the witness %s answers that it remembers other records, and not how many", p.Key.name)
		}
		question.Old = remembers.size
		if question.Path, err = log.ProveExtension(ctx, question.Old, c.Size); err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", err
	}
	cosigned = signed + lines
	if len(cosigned) > audit.MaxNoteBytes {
		return "", fmt.Errorf("the witness %s answers with %d bytes", p.Key.name, len(lines))
	}
	if _, ok := p.Key.Cosigned(cosigned); !ok {
		return "", fmt.Errorf("the witness at %s does not sign with the key of %s", p.URL, p.Key.name)
	}
	if _, err := audit.OpenCheckpoint(cosigned); !errors.Is(err, audit.ErrUnsigned) {
		return "", fmt.Errorf("the witness %s answers with no signature: %w", p.Key.name, err)
	}
	return cosigned, nil
}

// refusal is the fault that an answer shows to the question whether a checkpoint goes on from
// its first old records, nil where it shows none.
func (p Place) refusal(answer error, c *audit.Checkpoint, old uint64, signed string) *RefusedError {
	e := &RefusedError{Witness: p.Key.name, Shown: signed, Have: c.Size}
	fork, forked := errors.AsType[*forkError](answer)
	conflict, remembers := errors.AsType[*conflictError](answer)
	switch {
	case forked:
		e.Seen = old
		e.Answer, e.Signed = apart(fork.answer, c.Origin)
	case remembers && conflict.size == unknownSize && old == c.Size:
		// The one conflict that a witness need not give a size for.
		e.Seen = c.Size
	case remembers && conflict.size != unknownSize && conflict.size >= c.Size:
		e.Seen = conflict.size
	default:
		return nil
	}
	return e
}

// apart parts the answer of a witness of ours into its words and the note that it has signed.
func apart(answer, origin string) (words, signed string) {
	words, signed, _ = strings.Cut(answer, "\n")
	signed = strings.TrimRight(signed, "\n") + "\n"
	if c, err := audit.OpenCheckpoint(signed); !errors.Is(err, audit.ErrUnsigned) || c.Origin != origin {
		signed = ""
	}
	return words[:min(len(words), maxWords)], signed
}

// maxWords is how many bytes are kept of the words of an answer.
const maxWords = 200
