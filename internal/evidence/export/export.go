// Package export hands the audit log to other systems: as OCSF events in a file, as OTLP logs over
// HTTP, as syslog (RFC 5424) and to the systemd journal.
//
// The mappings are pure: [Mapping.OCSF], [Mapping.OTLP], [Mapping.Syslog] and [Mapping.Journal]
// turn one record into the form of the other system, always in the same way. Each keeps the
// record's own line, so that a holder of the copy can check the chain.
//
// A [Sink] takes records, and a [Follower] feeds it. The follower reads the log page by page after
// a cursor in a file. It moves the cursor only when the sink has taken a page. So every record
// arrives at least once. A repeated record has the same id, which is its hash.
//
// Use: [Open] makes the followers of a configuration, [Set.Close] lets them send the rest for a
// short time. The caller closes the log after that. No writer of the log ever waits for this
// package.
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

// Record is one record to export. Line must not be changed.
type Record struct {
	Line  []byte
	Entry audit.Entry
	// Known is false if the line could not be read; Entry is empty then.
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

// Sink takes records. Only one follower uses it.
type Sink interface {
	// Send returns after the other system has confirmed the records, as far as it confirms them, or
	// with an error. After an error, all of them come again.
	Send(ctx context.Context, batch []Record) (Ack, error)
	// Close releases the sink. Nothing is sent after it.
	Close() error
}

// Ack is a sink's report about records that it has taken.
type Ack struct {
	// Refused is the number of records that the other system will not keep, and Why its reason.
	Refused int
	Why     string
}

// trailing is a [Sink] whose other end does not confirm the records that it has read.
type trailing interface {
	// Trail is the period before the end of a connection in which sent records are not certain to
	// have been read. They are sent again.
	Trail() time.Duration
	// Broken returns a channel that is closed when the connection ends, or nil.
	Broken() <-chan struct{}
	// Check returns a [brokenError] if the connection has ended, and releases it.
	Check() error
}

// brokenError has the time at which a connection of a [trailing] sink broke.
type brokenError struct {
	at  time.Time
	err error
}

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// busyError has the time after which the other system wants another attempt.
type busyError struct {
	after time.Duration
	err   error
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

// RetryAfter returns the requested wait, within reason.
func (e *busyError) RetryAfter() time.Duration { return min(e.after, maxAfter) }

// maxAfter bounds the wait that another system may request by Retry-After.
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

// Starting points of a sink without a cursor.
const (
	FromStart = "start"
	FromNow   = "now"
)

// DefaultMaxBytes is the longest syslog message unless configured, in bytes. Receivers accept it by
// default: RFC 5425 section 4.3.1 asks them to take 8192, and rsyslog cuts at 8096.
const DefaultMaxBytes = 8000

// MinMaxBytes is the least limit for a syslog message, in bytes. RFC 5425 section 4.3.1 obliges
// receivers to take that much. It leaves room for some text beside the header.
const MinMaxBytes = 2048

// Spec is one configured sink.
type Spec struct {
	// Name names the cursor file too: letters, digits, hyphen and underscore.
	Name string
	Type string
	// Path is the file of ocsf, or the socket of journald.
	Path string
	// Endpoint is the URL to which otlp posts.
	Endpoint string
	Headers  map[string]string
	// Gzip compresses the posts of otlp.
	Gzip bool
	// Network and Address are the destination of syslog.
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

// TLS configures a sink's trust and its own certificate. All fields except ServerName are files.
// Empty means the system's roots, no certificate of its own and the name in the address.
type TLS struct{ CA, Cert, Key, ServerName string }

// newSink makes the sink of a configuration. It opens only the files that TLS names, and dials
// nothing.
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

// validName checks that a name can be used for a cursor file.
func validName(name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }) {
		return errors.New("want a name of up to 64 letters, digits, hyphens and underscores")
	}
	return nil
}
