package export

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
)

// DefaultEnterprise is the private enterprise number in the name of the structured data: IANA's for
// documentation (RFC 5612), since this project has none of its own. The name before it identifies
// this project's data.
const DefaultEnterprise = 32473

// facilityAudit is the facility "log audit" (RFC 5424 section 6.2.1).
const facilityAudit = 13

// Severities of RFC 5424 section 6.2.1, which the journal has as well.
const (
	syslogCritical = 2
	syslogError    = 3
	syslogWarning  = 4
	syslogNotice   = 5
	syslogInfo     = 6
)

// syslogSeverity returns the severity of a record. A line that could not be read is a warning.
func syslogSeverity(r *Record) int {
	switch grave, _ := severityOf(r); grave {
	case info:
		return syslogInfo
	case low:
		return syslogNotice
	case high:
		return syslogError
	case critical:
		return syslogCritical
	case byKind, medium, unknown:
	}
	return syslogWarning
}

// Syslog maps a record to messages of RFC 5424, of at most maxBytes each and at least
// [MinMaxBytes]. The text is the line. If one message is too short for it, the text continues in
// the next ones, each with its number and the total. The parts in order are the line, byte for
// byte.
//
// The text is UTF-8 without the byte order mark of section 6.4, so that it is valid JSON.
func (m *Mapping) Syslog(r *Record, maxBytes int) [][]byte {
	maxBytes = max(maxBytes, MinMaxBytes)
	head := m.syslogHead(r)
	if len(head)+len("] ")+len(r.Line) <= maxBytes {
		return [][]byte{append(append([]byte(head), "] "...), r.Line...)}
	}
	const room = len(` part="9999999" parts="9999999"] `)
	var pieces [][]byte
	for rest := r.Line; len(rest) > 0; {
		n := min(len(rest), maxBytes-len(head)-room)
		if n < len(rest) {
			n = boundary(rest, n)
		}
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	messages := make([][]byte, len(pieces))
	for i, piece := range pieces {
		b := append([]byte(head), ` part="`...)
		b = strconv.AppendInt(b, int64(i+1), 10)
		b = append(b, `" parts="`...)
		b = strconv.AppendInt(b, int64(len(pieces)), 10)
		b = append(b, `"] `...)
		messages[i] = append(b, piece...)
	}
	return messages
}

// syslogTime is the most exact time that RFC 5424 section 6.2.3 allows.
const syslogTime = "2006-01-02T15:04:05.000000Z"

// syslogHead returns everything before the text except the end of the structured data. It leaves
// some hundred bytes of [MinMaxBytes] for the text.
func (m *Mapping) syslogHead(r *Record) string {
	e := &r.Entry
	var b strings.Builder
	b.WriteString("<" + strconv.Itoa(facilityAudit*8+syslogSeverity(r)) + ">1 ")
	at := "-"
	if r.Known && e.Time.Year() >= 0 && e.Time.Year() <= 9999 {
		at = e.Time.UTC().Format(syslogTime)
	}
	msgID := "-"
	if r.Known {
		msgID = printASCII(e.ActionType, 32)
	}
	b.WriteString(at + " " + printASCII(m.Host, 255) + " " + ProductName + " - " + msgID + " [" + ProductName + "@" + strconv.Itoa(cmp.Or(m.Enterprise, DefaultEnterprise)))
	if !r.Known {
		return b.String()
	}
	param(&b, "seq", strconv.FormatUint(e.Seq, 10))
	param(&b, "hash", e.Hash.String())
	param(&b, "prev", e.Prev.String())
	for _, m := range audit.Members() {
		if value := *m.Of(&e.Record); m.Syslog && value != "" {
			param(&b, m.Export, text.Clip(oneLine(value), 64))
		}
	}
	return b.String()
}

// param writes an SD-PARAM; three characters are escaped (section 6.3.3).
func param(b *strings.Builder, name, value string) {
	b.WriteString(" " + name + `="`)
	for i := range len(value) {
		if c := value[i]; c == '"' || c == '\\' || c == ']' {
			b.WriteByte('\\')
		}
		b.WriteByte(value[i])
	}
	b.WriteByte('"')
}

// printASCII returns a header field: PRINTUSASCII, or a hyphen if it is empty.
func printASCII(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < 33 || r > 126 {
			return -1
		}
		return r
	}, s)
	return cmp.Or(s[:min(len(s), most)], "-")
}
