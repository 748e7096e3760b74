package audit

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Hash is the SHA-256 of a line up to its own hash member.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hexadecimal.
func (h Hash) MarshalText() ([]byte, error) {
	return hex.AppendEncode(nil, h[:]), nil
}

// UnmarshalText reads a hash in lower-case hexadecimal.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("%.80q is not a SHA-256 in hexadecimal", b)
	}
	if _, err := hex.Decode(h[:], b); err != nil {
		return fmt.Errorf("%q is not a SHA-256 in hexadecimal", b)
	}
	if bytes.ContainsAny(b, "ABCDEF") {
		return fmt.Errorf("%q is not in lower-case hexadecimal", b)
	}
	return nil
}

// Head is the end of a chain. The zero Head is the start of an empty one, and
// its zero hash is what the first record names as the one before it.
type Head struct {
	Seq  uint64
	Time time.Time
	Hash Hash
}

// timeLayout is fixed in width, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// The fixed ends of a line. Their exact bytes are part of the format: the
// verifier cuts a line at them instead of encoding it again.
const (
	prevMember = `,"prev":"`
	hashMember = `","hash":"`
	lineEnd    = `"}`
	hashText   = 2 * sha256.Size
	tailLen    = len(hashMember) + hashText + len(lineEnd)
)

// Seal appends to dst the line that follows h, without a newline, and returns
// it with the new head. A clock that stepped back does not show: a record is
// never older than the one before it. The hash covers every byte of the line
// before the hash member.
func (h Head) Seal(dst []byte, now time.Time, body []byte) ([]byte, Head) {
	start := len(dst)
	now = now.UTC().Truncate(time.Microsecond)
	if now.Before(h.Time) {
		now = h.Time
	}
	next := Head{Seq: h.Seq + 1, Time: now}
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, next.Seq, 10)
	dst = append(dst, `,"time":"`...)
	dst = now.AppendFormat(dst, timeLayout)
	dst = append(dst, `",`...)
	dst = append(dst, body[1:len(body)-1]...)
	dst = append(dst, prevMember...)
	dst = hex.AppendEncode(dst, h.Hash[:])
	next.Hash = sha256.Sum256(dst[start:])
	dst = append(dst, hashMember...)
	dst = hex.AppendEncode(dst, next.Hash[:])
	dst = append(dst, lineEnd...)
	return dst, next
}

// Fault says which record breaks a chain and how.
type Fault struct {
	// Seq is the number the record should have had.
	Seq     uint64
	Problem string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("audit record %d: %s", f.Seq, f.Problem)
}

// Check reads the line that should follow h and returns the head after it. A
// line that does not fit is a [*Fault]: changed, missing, moved or doubled.
func (h Head) Check(line []byte) (Head, error) {
	want := h.Seq + 1
	fault := func(format string, args ...any) (Head, error) {
		return h, &Fault{Seq: want, Problem: fmt.Sprintf(format, args...)}
	}
	if len(line) < tailLen {
		return fault("cut short: %d bytes", len(line))
	}
	covered, tail := line[:len(line)-tailLen], line[len(line)-tailLen:]
	if !bytes.HasPrefix(tail, []byte(hashMember)) || !bytes.HasSuffix(tail, []byte(lineEnd)) {
		return fault("does not end in a hash: cut short or changed")
	}
	var next Head
	if err := next.Hash.UnmarshalText(tail[len(hashMember) : len(hashMember)+hashText]); err != nil {
		return fault("its hash is unreadable: %v", err)
	}
	if sum := sha256.Sum256(covered); subtle.ConstantTimeCompare(sum[:], next.Hash[:]) != 1 {
		return fault("its content does not match its hash: changed after it was written")
	}
	entry, err := Parse(line)
	if err != nil {
		return fault("%v", err)
	}
	next.Seq, next.Time = entry.Seq, entry.Time
	switch {
	case entry.Seq < want:
		return fault("record %d stands here again: doubled or moved", entry.Seq)
	case entry.Seq > want:
		return fault("record %d stands here: records are missing or moved", entry.Seq)
	case entry.Prev != h.Hash:
		return fault("names %s as the record before it, but that one is %s", entry.Prev, h.Hash)
	case entry.Time.Before(h.Time):
		return fault("is older than the record before it")
	}
	return next, nil
}

// HeadOf returns the head a line claims, without checking that the line's
// content matches. Use it to take up a chain at a line known to be good.
func HeadOf(line []byte) (Head, error) {
	entry, err := Parse(line)
	if err != nil {
		return Head{}, err
	}
	if entry.Seq == 0 {
		return Head{}, errors.New("not an audit record: no sequence number")
	}
	return Head{Seq: entry.Seq, Time: entry.Time, Hash: entry.Hash}, nil
}
