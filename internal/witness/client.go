package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// LargerError means that a witness has seen more of a log than there is here, or
// another log of that name.
type LargerError struct {
	Witness    string
	Have, Seen uint64
}

func (e *LargerError) Error() string {
	if e.Seen == e.Have {
		return fmt.Sprintf("the witness %s was shown %d other records of this log: it was rewritten, or another daemon has its key", e.Witness, e.Seen)
	}
	return fmt.Sprintf("the witness %s was shown %d records of this log, and there are %d: it was cut, or is an older copy", e.Witness, e.Seen, e.Have)
}

// sizeError is the size that a witness remembers, where the question began at another.
type sizeError struct{ size uint64 }

func (e *sizeError) Error() string { return fmt.Sprintf("the witness remembers %d records", e.size) }

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
		size, err := parseSize(string(body))
		if err != nil {
			return "", err
		}
		return "", &sizeError{size}
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

// Ask shows a witness a checkpoint, with the proof that the log goes on from what the
// witness remembers, and returns the note with the witness's signature. A
// [*LargerError] means that the witness knows of more.
func (p Place) Ask(ctx context.Context, log Log, signed string) (cosigned string, err error) {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return "", err
	}
	// The first guess is that nothing is new; the answer to it says what is.
	question := audit.Consistency{Old: c.Size, Note: signed}
	lines, err := p.post(ctx, &question)
	if remembers, ok := errors.AsType[*sizeError](err); ok {
		if remembers.size >= c.Size {
			return "", &LargerError{p.Key.name, c.Size, remembers.size}
		}
		question.Old = remembers.size
		if question.Path, err = log.ProveExtension(ctx, question.Old, c.Size); err != nil {
			return "", err
		}
		lines, err = p.post(ctx, &question)
		if remembers, ok = errors.AsType[*sizeError](err); ok && remembers.size >= c.Size {
			return "", &LargerError{p.Key.name, c.Size, remembers.size}
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
