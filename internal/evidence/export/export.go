// Package export hands the audit log to other systems: as OCSF events in a
// file, as OTLP logs over HTTP, as syslog (RFC 5424) and to the systemd journal.
//
// The mappings are pure: [Mapping.OCSF], [Mapping.OTLP], [Mapping.Syslog] and
// [Mapping.Journal] turn one record into what the other system reads, and the
// same record always into the same. Each keeps the record's own line, so that
// whoever holds the copy can check the chain.
//
// A [Sink] takes records over, and a [Follower] feeds it: it reads the log page
// by page behind a cursor that is kept in a file, and moves the cursor only when
// the sink has taken a page over. So every record arrives at least once; one
// that comes again has the same id, which is its hash.
//
// Use: [Open] makes the followers of a configuration, [Set.Close] lets them send
// what is left for a short time. The caller closes the log after that. Nothing
// here is ever waited for by whoever writes the log.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/follow"
)

// Log is the audit log as a follower reads it.
type Log = follow.Log

// Record is one record on its way out. Nobody changes Line.
type Record struct {
	Line  []byte
	Entry audit.Entry
	// Known is false where the line could not be read; Entry is empty then.
	Known bool
}

// Read makes a record of a line without its newline.
func Read(line []byte) Record {
	e, err := audit.Parse(line)
	if err != nil || e.Seq == 0 {
		return Record{Line: line}
	}
	return Record{Line: line, Entry: e, Known: true}
}

// Sink takes records over. It is used by one follower alone.
type Sink interface {
	// Send returns when the other system has taken the records over, as far as
	// it says so, or cannot. An error means that all of them come again.
	Send(ctx context.Context, batch []Record) (Ack, error)
	// Close gives back what is held. Nothing is sent after it.
	Close() error
}

// Ack is what a sink says about records it has taken over.
type Ack struct {
	// Refused is how many of them the other system will not keep, and Why.
	Refused int
	Why     string
}

// trailing is a [Sink] whose other end does not say what it has read.
type trailing interface {
	// Trail is for how long before a connection broke records are not certain
	// to have been read. They are sent again.
	Trail() time.Duration
	// Broken is closed when the connection ends, nil where there is none.
	Broken() <-chan struct{}
	// Check returns a [brokenError] where the connection has ended, and lets go
	// of it.
	Check() error
}

// brokenError says when a connection of a [trailing] sink broke.
type brokenError struct {
	at  time.Time
	err error
}

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// busyError says when the other system wants to be asked again.
type busyError struct {
	after time.Duration
	err   error
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

// RetryAfter is what the other system asks for, within reason.
func (e *busyError) RetryAfter() time.Duration { return min(e.after, maxAfter) }

// maxAfter bounds what another system may ask for by Retry-After.
const maxAfter = 10 * time.Minute

// Types of sinks.
const (
	TypeOCSF   = "ocsf"
	TypeOTLP   = "otlp"
	TypeSyslog = "syslog"
	TypeJournd = "journald"
)

// Networks of a syslog sink.
const (
	NetUnixgram = "unixgram"
	NetUnix     = "unix"
	NetTCP      = "tcp"
	NetTLS      = "tls"
)

// Where a sink begins that has no cursor yet.
const (
	FromStart = "start"
	FromNow   = "now"
)

// DefaultMaxBytes is the longest syslog message unless configured, in bytes:
// what receivers take by default. RFC 5425 section 4.3.1 asks them to take 8192, and
// rsyslog cuts at 8096.
const DefaultMaxBytes = 8000

// MinMaxBytes is the least a syslog message may be limited to, in bytes. It is
// what RFC 5425 section 4.3.1 obliges a receiver to take, and leaves room for
// some text beside the header.
const MinMaxBytes = 2048

// Spec is one configured sink.
type Spec struct {
	// Name names the cursor file too: letters, digits, hyphen and underscore.
	Name string
	Type string
	// Path is the file of ocsf, or the socket of journald.
	Path string
	// Endpoint is the URL that otlp posts to.
	Endpoint string
	Headers  map[string]string
	// Gzip compresses what otlp posts.
	Gzip bool
	// Network and Address are where syslog goes.
	Network, Address string
	// MaxBytes bounds one syslog message; 0 is [DefaultMaxBytes].
	MaxBytes int
	// Enterprise is the private enterprise number in syslog's structured data; 0 is
	// [DefaultEnterprise].
	Enterprise int
	TLS        TLS
	// Timeout bounds one attempt to send a page.
	Timeout time.Duration
	From    string
	Filter  audit.Filter
}

// TLS says whom a sink trusts, and who it says it is. All are files but
// ServerName. Empty means the system's roots, no certificate of its own and the
// name in the address.
type TLS struct{ CA, Cert, Key, ServerName string }

// newSink makes the sink of a configuration. Nothing is opened or dialled yet
// but the files that TLS names.
func newSink(s *Spec, m *Mapping, now func() time.Time) (Sink, error) {
	switch s.Type {
	case TypeOCSF:
		return &fileSink{path: s.Path, mapping: m}, nil
	case TypeOTLP:
		return newOTLPSink(s, m, now)
	case TypeSyslog:
		return newSyslogSink(s, m, now)
	case TypeJournd:
		return &journalSink{path: cmp.Or(s.Path, JournalSocket), mapping: m}, nil
	}
	return nil, fmt.Errorf("unknown type %q", s.Type)
}

// validName reports whether a name can be that of a cursor file.
func validName(name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }) {
		return errors.New("want a name of up to 64 letters, digits, hyphens and underscores")
	}
	return nil
}
