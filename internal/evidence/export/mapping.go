package export

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Mapping is what the mappings know besides the record.
type Mapping struct {
	// Version is the daemon's.
	Version string
	// Host is the name of the machine.
	Host string
	// Log names the chain, for as long as it exists. Empty where it is not
	// known.
	Log string
	// Enterprise is the number in the name of syslog's structured data; 0 is
	// [DefaultEnterprise].
	Enterprise int
}

// ProductName is what receivers see as the source.
const ProductName = "ocipd"

// operation names what happened, such as agent_exchange or approval.denied.
func operation(r *Record) string {
	switch {
	case !r.Known || r.Entry.ActionType == "":
		return "unknown"
	case r.Entry.Event == "":
		return r.Entry.ActionType
	}
	return r.Entry.ActionType + "." + r.Entry.Event
}

// summary says in one line what happened, for a person.
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

// sides tells who acted and on whom: on the receiver's record the counterparty
// did.
func sides(e *audit.Entry) (from, to party) {
	own := party{kind: "agent", instance: e.AgentID, user: e.UserID, tenant: e.TenantID}
	c := e.Counterparty
	other := party{kind: c.Kind, instance: c.InstanceID, user: c.UserID, org: c.OrgUnit, tenant: c.TenantID}
	if e.Side == audit.SideReceiver {
		return other, own
	}
	return own, other
}

// oneLine takes out what does not show: what would break a line, steer a terminal
// or make a text read as another.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if text.Shows(r) {
			return r
		}
		return ' '
	}, s)
}

// boundary is the last place at or before i where a character of s begins.
func boundary[T string | []byte](s T, i int) int {
	for at := i; at > 0 && at > i-4; at-- {
		if s[at]&0xc0 != 0x80 {
			return at
		}
	}
	return i
}
