package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
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

// Head is the end of a chain. The zero Head is the start of an empty one, and the first record
// names its zero hash as the previous one.
type Head struct {
	Seq  uint64
	Time time.Time
	Hash Hash
}

// timeLayout is fixed in width, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// The fixed ends of a line. Their exact bytes are part of the format: the verifier cuts a line at
// them instead of encoding it again.
const (
	idMember   = `"id":"`
	prevMember = `,"prev":"`
	hashMember = `","hash":"`
	lineEnd    = `"}`
	hashText   = 2 * sha256.Size
	tailLen    = len(hashMember) + hashText + len(lineEnd)
)

// Seal appends to dst the line that follows h, without a newline, and returns it with the new head.
// If the clock stepped back, it does not show: a record is never older than the one before it. The
// hash covers every byte of the line before the hash member.
func (h Head) Seal(dst []byte, now time.Time, body []byte) ([]byte, Head) {
	start := len(dst)
	now = h.Next(now)
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

// Next returns the time of the next record, if it is written now.
func (h Head) Next(now time.Time) time.Time {
	if now = now.UTC().Truncate(time.Microsecond); now.Before(h.Time) {
		return h.Time
	}
	return now
}

// What a person can do about a log that is damaged or lost. Every error about one says it.
const (
	// OrNewLog follows the advice to put something back from a backup.
	OrNewLog = "; without one, begin a new log that says what is known of this one: ocipd restore --new-log"
	PutBack  = "put a backup back: ocipd restore DIR" + OrNewLog
)

// Fault names the record that breaks a chain, and the problem.
type Fault struct {
	// Seq is the number that the record should have had, zero for a fault of no record.
	Seq     uint64
	Problem string
}

func (f *Fault) Error() string {
	if f.Seq == 0 {
		return f.Problem
	}
	return fmt.Sprintf("audit record %d: %s", f.Seq, f.Problem)
}

// Check reads the line that should follow h and returns the head after it. A line that does not fit
// is a [*Fault]: changed, missing, moved or doubled.
//
// It cuts the line at its fixed ends and decodes nothing between them: the hash covers the record's
// content, and only a checkpoint shows whether somebody else wrote it.
func (h Head) Check(line []byte) (Head, error) {
	next, _, err := h.follow(line)
	return next, err
}

func (h Head) follow(line []byte) (Head, place, error) {
	want := h.Seq + 1
	fault := func(format string, args ...any) (Head, place, error) {
		return h, place{}, &Fault{Seq: want, Problem: fmt.Sprintf(format, args...)}
	}
	next, p, err := unseal(want, line)
	if err != nil {
		return h, place{}, err
	}
	before := h.Hash.text()
	switch {
	case p.seq < want:
		return fault("record %d stands here again: doubled or moved", p.seq)
	case p.seq > want:
		return fault("record %d stands here: records are missing or moved", p.seq)
	case !bytes.Equal(p.prev, before[:]):
		return fault("names %s as the record before it, but that one is %s", p.prev, h.Hash)
	case p.time.Before(h.Time):
		return fault("is older than the record before it")
	}
	return next, p, nil
}

// Sealed returns a line's position in the chain, and the hash of the line before it, for a line
// that is read by itself and is stored under a number. If the hash does not match the content, or
// the number differs, the error is a [*Fault].
func Sealed(seq uint64, line []byte) (head Head, prev Hash, err error) {
	head, p, err := unseal(seq, line)
	if err == nil && p.seq != seq {
		err = &Fault{Seq: seq, Problem: fmt.Sprintf("record %d stands here: doubled or moved", p.seq)}
	}
	if err == nil && prev.UnmarshalText(p.prev) != nil {
		err = &Fault{Seq: seq, Problem: fmt.Sprintf("names %.80q as the record before it", p.prev)}
	}
	return head, prev, err
}

// unseal compares a line, which should have a number, with its hash, and cuts it at its fixed ends.
func unseal(want uint64, line []byte) (Head, place, error) {
	fault := func(format string, args ...any) (Head, place, error) {
		return Head{}, place{}, &Fault{Seq: want, Problem: fmt.Sprintf(format, args...)}
	}
	if len(line) < tailLen {
		return fault("cut short: %d bytes", len(line))
	}
	covered, tail := line[:len(line)-tailLen], line[len(line)-tailLen:]
	if !bytes.HasPrefix(tail, []byte(hashMember)) || !bytes.HasSuffix(tail, []byte(lineEnd)) {
		return fault("does not end in a hash: cut short or changed")
	}
	next := Head{Hash: sha256.Sum256(covered)}
	stated := tail[len(hashMember) : len(hashMember)+hashText]
	if sum := next.Hash.text(); !bytes.Equal(sum[:], stated) {
		var other Hash
		if err := other.UnmarshalText(stated); err != nil {
			return fault("its hash is unreadable: %v", err)
		}
		return fault("its content does not match its hash: changed after it was written")
	}
	p, ok := placeOf(covered)
	if !ok {
		return fault("not an audit record: it does not say its number, its time and the record before it")
	}
	next.Seq, next.Time = p.seq, p.time
	return next, p, nil
}

// text is the hash in hexadecimal, without an allocation. It writes eight digits at once, each in its
// byte of a number: [hex.Encode] takes several times as long, which a verifier of many lines notices.
func (h Hash) text() (b [hashText]byte) {
	const each = 0x0101010101010101
	for i := 0; i < len(h); i += 4 {
		v := uint64(binary.BigEndian.Uint32(h[i:]))
		v = (v | v<<16) & 0x0000ffff0000ffff
		v = (v | v<<8) & 0x00ff00ff00ff00ff
		v = (v | v<<4) & (0x0f * each)
		letters := (v + 6*each) >> 4 & each // those from ten on
		binary.BigEndian.PutUint64(b[2*i:], v+'0'*each+letters*('a'-'0'-10))
	}
	return b
}

// place is the position that a line claims.
type place struct {
	seq  uint64
	time time.Time
	// members is the record's own content, between the time and prev.
	members []byte
	prev    []byte
}

// placeOf parses the fixed ends of the part that a line's hash covers.
func placeOf(covered []byte) (p place, ok bool) {
	const (
		seqMember  = `{"seq":`
		timeMember = `,"time":"`
		timeEnd    = `",`
	)
	rest, ok := bytes.CutPrefix(covered, []byte(seqMember))
	if !ok {
		return place{}, false
	}
	digits := 0
	for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
		if digits == maxDigits {
			return place{}, false
		}
		p.seq = p.seq*10 + uint64(rest[digits]-'0')
	}
	if digits == 0 || rest[0] == '0' {
		return place{}, false
	}
	if rest, ok = bytes.CutPrefix(rest[digits:], []byte(timeMember)); !ok {
		return place{}, false
	}
	if len(rest) < len(timeLayout)+len(timeEnd)+len(prevMember)+hashText {
		return place{}, false
	}
	if p.time, ok = parseTime(rest[:len(timeLayout)]); !ok {
		return place{}, false
	}
	if rest, ok = bytes.CutPrefix(rest[len(timeLayout):], []byte(timeEnd)); !ok {
		return place{}, false
	}
	p.members, p.prev = rest[:len(rest)-hashText], rest[len(rest)-hashText:]
	p.members, ok = bytes.CutSuffix(p.members, []byte(prevMember))
	return p, ok && bytes.HasPrefix(p.members, []byte(idMember))
}

// maxDigits bounds a number, so that it cannot overflow.
const maxDigits = 18

// parseTime parses a time of the fixed layout. [time.Parse] takes it too, at several times the
// cost.
func parseTime(b []byte) (time.Time, bool) {
	var n [7]int
	field := 0
	for i, c := range b {
		switch want := timeLayout[i]; {
		case want >= '0' && want <= '9':
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			n[field] = n[field]*10 + int(c-'0')
		case c != want:
			return time.Time{}, false
		default:
			field++
		}
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*int(time.Microsecond), time.UTC)
	// Otherwise a day or an hour that does not exist would be carried over.
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return t, year == n[0] && int(month) == n[1] && day == n[2] && hour == n[3] && minute == n[4] && second == n[5]
}

// HeadOf returns the head that a line claims, without checking that the line's content matches. Use
// it to continue a chain from a line known to be good.
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
