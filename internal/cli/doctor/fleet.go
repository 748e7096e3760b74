package doctor

import (
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
)

// fleet examines the other hosts of the fleet, as the running daemon sees them.
func fleet(e *Examiner) []Diagnosis {
	if e.cfg.Fleet.Roster == "" {
		return []Diagnosis{passed("this host is in no fleet")}
	}
	if e.live == nil {
		return nil
	}
	var st fleetapi.FleetStatus
	if _, err := e.TellOperator(e.ctx, "fleet.status", false, &st); err != nil {
		return []Diagnosis{warned("the daemon does not say how the fleet is: %v", err)}
	}
	return fleetFindings(&st)
}

// fleetFindings are the findings about the hosts of a fleet.
func fleetFindings(st *fleetapi.FleetStatus) (found []Diagnosis) {
	if !st.Member {
		return []Diagnosis{warned("host %s is not in the roster of the fleet", st.Host).advise("ocipd fleet join prints its lines for an operator")}
	}
	if st.Lines == 0 {
		found = append(found, warned("no carrier is attached, so messages to other hosts wait").advise("start one: docs/guides/fleet.md"))
	}
	for i := range st.Hosts {
		h := &st.Hosts[i]
		if h.Host == st.Host {
			continue
		}
		if h.Shrunk != nil {
			found = append(found, failed("the log of host %s has become smaller, or is another: it has shown %s and later %s", h.Host, oneLine(h.Shrunk.Before), oneLine(h.Shrunk.After)).
				advise("find out who put that host back or changed its log; ocipd fleet rejoin on it, once that is settled"))
		}
		if h.Silent {
			found = append(found, warned("host %s has sent no beat for a minute", h.Host).advise("see whether its daemon and its carrier run"))
		}
		if h.Beat != nil {
			for _, fault := range h.Beat.Faults {
				found = append(found, warned("host %s says: %s", h.Host, term.Printable(fault)).advise("ocipd doctor on that host says more"))
			}
		}
	}
	if len(found) == 0 {
		found = append(found, passed("version %d of the roster of %s, with %s", st.Version, term.Printable(st.Tenant), term.Count(len(st.Hosts), "host")))
	}
	return found
}

// oneLine is a signed checkpoint in one line.
func oneLine(note string) string {
	return term.Printable(strings.Join(strings.FieldsFunc(note, func(r rune) bool { return r == '\n' }), " | "))
}
