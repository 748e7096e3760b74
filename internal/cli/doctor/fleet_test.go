package doctor

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
)

// The doctor names a silent host, one with faults, and one whose log has become smaller, with both
// checkpoints.
func TestFleetFindings(t *testing.T) {
	st := &fleetapi.FleetStatus{Tenant: "acme-corp", Host: "host-a", Version: 3, Member: true, Lines: 1, Hosts: []fleetapi.FleetHost{{Host: "host-a"}, {Host: "host-b"}}}
	if got := fleetFindings(st); len(got) != 1 || got[0].Health != Pass {
		t.Errorf("a fleet that is well: %+v", got)
	}
	st.Lines = 0
	st.Hosts[1] = fleetapi.FleetHost{
		Host: "host-b", Silent: true, Beat: &fleetapi.Beat{Faults: []string{"disk: refuse"}}, Shrunk: &fleetapi.Shrunk{Before: "log\n9\nroot\n", After: "log\n3\nother\n"},
	}
	got := fleetFindings(st)
	for i, want := range []struct {
		health Health
		text   string
	}{{Warn, "no carrier"}, {Fail, "it has shown log | 9 | root and later log | 3 | other"}, {Warn, "host host-b has sent no beat"}, {Warn, "host host-b says: disk: refuse"}} {
		if i >= len(got) || got[i].Health != want.health || !strings.Contains(got[i].Text, want.text) || got[i].Advice == "" {
			t.Errorf("finding %d of %+v: want %s", i, got, want.text)
		}
	}
	st.Member = false
	if got := fleetFindings(st); len(got) != 1 || got[0].Health != Warn {
		t.Errorf("a host that is not in the roster: %+v", got)
	}
}
