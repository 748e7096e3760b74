package export

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
)

// JournalSocket is the socket of the systemd journal.
const JournalSocket = "/run/systemd/journal/socket"

// Journal maps a record to an entry of the journal's native protocol: MESSAGE describes the event
// in one line, OCIPD_LINE is the line, and OCIPD_HASH the record's id. A field whose value has a
// newline is written with its length.
//
// Source: systemd, Native Journal Protocol; systemd.journal-fields(7).
func (m *Mapping) Journal(r *Record) []byte {
	e := &r.Entry
	b := make([]byte, 0, len(r.Line)+1024)
	b = field(b, "MESSAGE", []byte(strings.ToValidUTF8(summary(r), "\uFFFD")))
	b = field(b, "PRIORITY", strconv.AppendInt(nil, int64(syslogSeverity(r)), 10))
	b = field(b, "SYSLOG_IDENTIFIER", []byte(ProductName))
	b = field(b, "SYSLOG_FACILITY", strconv.AppendInt(nil, facilityAudit, 10))
	b = field(b, "OCIPD_VERSION", []byte(m.Version))
	b = field(b, "OCIPD_LOG", []byte(m.Log))
	if r.Known {
		b = field(b, "SYSLOG_TIMESTAMP", []byte(e.Time.UTC().Format(syslogTime)))
		b = field(b, "OCIPD_SEQ", strconv.AppendUint(nil, e.Seq, 10))
		b = field(b, "OCIPD_HASH", []byte(e.Hash.String()))
		b = field(b, "OCIPD_PREV", []byte(e.Prev.String()))
		for _, m := range audit.Members() {
			if name := m.Journal(); name != "" {
				b = field(b, name, []byte(*m.Of(&e.Record)))
			}
		}
	}
	return field(b, "OCIPD_LINE", r.Line)
}

// field appends a field, unless its value is empty.
func field(b []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	b = append(b, name...)
	if !bytes.ContainsRune(value, '\n') {
		b = append(append(b, '='), value...)
		return append(b, '\n')
	}
	b = append(b, '\n')
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	return append(append(b, value...), '\n')
}
