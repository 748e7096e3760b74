package export

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Mapping has the data of the mappings besides the record.
type Mapping struct {
	// Version is the daemon's version.
	Version string
	// Host is the name of the machine.
	Host string
	// Log identifies the chain for its whole life. It is empty if unknown.
	Log string
	// Enterprise is the number in the name of syslog's structured data; 0 is
	// [DefaultEnterprise].
	Enterprise int
}

// ProductName is the source that receivers see.
const ProductName = "ocipd"

// operation names the event, for example agent_exchange or approval.denied.
func operation(r *Record) string {
	switch {
	case !r.Known || r.Entry.ActionType == "":
		return "unknown"
	case r.Entry.Event == "":
		return r.Entry.ActionType
	}
	return r.Entry.ActionType + "." + r.Entry.Event
}

// summary describes the event in one line, for a person.
func summary(r *Record) string {
	if !r.Known {
		return fmt.Sprintf("a line of %d bytes that is no audit record", len(r.Line))
	}
	e := &r.Entry
	var b strings.Builder
	b.WriteString(operation(r))
	if e.PolicyResult != "" {
		b.WriteString(" " + e.PolicyResult)
	}
	actor, other := sides(e)
	from, to := cmp.Or(actor.name(), e.AppID), cmp.Or(other.name(), e.SessionKey)
	switch {
	case from != "" && to != "":
		b.WriteString(": " + from + " to " + to)
	case from != "" || to != "":
		b.WriteString(": " + from + to)
	}
	if e.Code != "" {
		b.WriteString(", " + e.Code)
	}
	if e.PolicyReason != "" {
		b.WriteString(": " + e.PolicyReason)
	}
	return text.Clip(oneLine(b.String()), maxSummary)
}

// maxSummary bounds a summary, in bytes. The line holds all of it.
const maxSummary = 1000

// party is one end of an exchange.
type party struct{ kind, instance, user, org, tenant string }

func (p party) name() string { return cmp.Or(p.instance, p.user) }

// sides returns the actor and the other party: on the receiver's record, the counterparty acted.
func sides(e *audit.Entry) (from, to party) {
	own := party{kind: "agent", instance: e.AgentID, user: e.UserID, tenant: e.TenantID}
	c := e.Counterparty
	other := party{kind: c.Kind, instance: c.InstanceID, user: c.UserID, org: c.OrgUnit, tenant: c.TenantID}
	if e.Side == audit.SideReceiver {
		return other, own
	}
	return own, other
}

// oneLine removes invisible characters: those that would break a line, steer a terminal or make a
// text read as another.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if text.Shows(r) {
			return r
		}
		return ' '
	}, s)
}

// boundary returns the last position at or before i at which a character of s begins.
func boundary[T string | []byte](s T, i int) int {
	for at := i; at > 0 && at > i-4; at-- {
		if s[at]&0xc0 != 0x80 {
			return at
		}
	}
	return i
}
