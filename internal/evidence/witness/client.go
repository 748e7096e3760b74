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

// Place is the address of a witness, and its key.
type Place struct {
	Key *Key
	URL string
}

// Same reports whether another witness has the same key and the same address.
func (p Place) Same(other Place) bool {
	return p.Key.String() == other.Key.String() && p.URL == other.URL
}

// ParsePlace reads the address of a witness: http://HOST/PREFIX, https://HOST/PREFIX, or unix:/PATH
// for a socket on this machine.
func ParsePlace(key, where string) (Place, error) {
	k, err := ParseKey(key)
	if err != nil {
		return Place{}, err
	}
	u, err := url.Parse(where)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		err = fmt.Errorf("%.120q is no address of a witness: want http://HOST/PREFIX, https://HOST/PREFIX or unix:/PATH", where)
	case u.Scheme == "unix" && !strings.HasPrefix(u.Path, "/"), u.Scheme != "unix" && u.Host == "":
		err = fmt.Errorf("%.120q is no address of a witness: it names no host, or no absolute path", where)
	}
	return Place{k, where}, err
}

// RefusedError reports that a witness does not sign a checkpoint because it has signed others of
// the same log that this one does not extend. The log here was cut, restored or rewritten, or
// somebody else writes another one with its key.
type RefusedError struct {
	Witness string
	// Shown is the refused signed note, and Have the number of its records.
	Shown string
	Have  uint64
	// Seen is the number of records that the witness remembers. Signed is the note about them, or
	// about the newest ones that are known here, or "".
	Seen   uint64
	Signed string
	// Answer is the witness's answer, up to 200 bytes.
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

// describe names a checkpoint by the data that identifies it.
func describe(signed string) string {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return "one that is not kept here"
	}
	return fmt.Sprintf("the checkpoint of %d records with the root %s", c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// conflictError is the answer of a witness that remembers another size than the question began
// with. The size is [unknownSize] if the answer has none.
type conflictError struct{ size uint64 }

const unknownSize = math.MaxUint64

func (e *conflictError) Error() string {
	return fmt.Sprintf("the witness remembers %d records", e.size)
}

// forkError is the answer of a witness that found that a checkpoint does not extend the records
// that the question began with.
type forkError struct{ answer string }

func (e *forkError) Error() string { return e.answer }

// ErrUnknown reports that a witness does not know a log, or the key that signed.
var ErrUnknown = errors.New("the witness does not take the log's checkpoint")

// askTime bounds one question.
const askTime = 10 * time.Second

// maxAnswer bounds the answer of a witness.
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
		// If the roots of equal sizes differ, the specification requires no size.
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

// Log is the log for the witness.
type Log interface {
	// ProveExtension returns the path from the root at one size to that at another.
	ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error)
}

// askTries bounds the questions about one checkpoint, since somebody else can show the witness more
// of the log between two of them.
const askTries = 4

// Ask sends a witness a checkpoint, with the proof that the log extends the records that the
// witness remembers, and returns the note with the witness's signature. A [*RefusedError] means
// that the witness knows of other records, or of more.
func (p Place) Ask(ctx context.Context, log Log, signed string) (cosigned string, err error) {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return "", err
	}
	// The first guess is that nothing is new. The answer gives the witness's size.
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

// refusal returns the fault that an answer shows, or nil. The question was whether a checkpoint
// extends its first old records.
func (p Place) refusal(answer error, c *audit.Checkpoint, old uint64, signed string) *RefusedError {
	e := &RefusedError{Witness: p.Key.name, Shown: signed, Have: c.Size}
	fork, forked := errors.AsType[*forkError](answer)
	conflict, remembers := errors.AsType[*conflictError](answer)
	switch {
	case forked:
		e.Seen = old
		e.Answer, e.Signed = apart(fork.answer, c.Origin)
	case remembers && conflict.size == unknownSize && old == c.Size:
		// For this conflict alone, a witness need not give a size.
		e.Seen = c.Size
	case remembers && conflict.size != unknownSize && conflict.size >= c.Size:
		e.Seen = conflict.size
	default:
		return nil
	}
	return e
}

// apart divides the answer of this program's witness into its words and the note that the witness
// has signed.
func apart(answer, origin string) (words, signed string) {
	words, signed, _ = strings.Cut(answer, "\n")
	signed = strings.TrimRight(signed, "\n") + "\n"
	if c, err := audit.OpenCheckpoint(signed); !errors.Is(err, audit.ErrUnsigned) || c.Origin != origin {
		signed = ""
	}
	return words[:min(len(words), maxWords)], signed
}

// maxWords bounds the words of an answer that are kept, in bytes.
const maxWords = 200
