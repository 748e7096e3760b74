package fleetcmd

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/fleet/roster"
)

func host(name string, epoch int, key byte) roster.Host {
	return roster.Host{Name: name, Epoch: epoch, Sign: bytes.Repeat([]byte{key}, 32), Seal: bytes.Repeat([]byte{key + 1}, 32)}
}

func agent(id, on string) roster.Agent {
	return roster.Agent{ID: id, Host: on, InstanceID: "agent-" + id + "-1", UserID: id, OrgUnit: "sales"}
}

// Lines replace what the operator names, and nothing else.
func TestAdded(t *testing.T) {
	lines, err := roster.Write("acme-corp", 1, []roster.Host{host("host-a", 2, 1), host("host-b", 1, 3)},
		[]roster.Agent{agent("alice", "host-a"), agent("anna", "host-a"), agent("bob", "host-b")})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := roster.Sign(lines, "SIGNATURE")
	if err != nil {
		t.Fatal(err)
	}
	r, err := roster.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	fingerprints := r.Host("host-a").Fingerprints()
	another := host("host-a", 1, 1)
	another.Line = bytes.Repeat([]byte{9}, 32)
	for what, tc := range map[string]struct {
		host    roster.Host
		agents  []string
		replace string
		// refused is the reason; without one, roster has hosts with epochs and agents, and shown a part
		// of what the operator sees.
		refused, roster, shown string
	}{
		"a new host":              {host("host-c", 1, 5), []string{"carol"}, "", "", "host-a:2 host-b:1 host-c:1 alice@host-a anna@host-a bob@host-b carol@host-c", "agents: carol\n"},
		"a known host":            {host("host-a", 1, 5), []string{"alice"}, "", "add --replace host-a", "", ""},
		"another host is named":   {host("host-a", 1, 5), []string{"alice"}, "host-b", "add --replace host-a", "", ""},
		"new keys":                {host("host-a", 1, 5), []string{"alice"}, "host-a", "", "host-a:3 host-b:1 bob@host-b alice@host-a", "they replace the keys of epoch 2\n" + fingerprints},
		"a new key of the line":   {another, []string{"alice", "anna"}, "host-a", "", "host-a:2 host-b:1 bob@host-b alice@host-a anna@host-a", another.Fingerprints() + "they replace the keys of epoch 2\n" + fingerprints},
		"agents that are gone":    {host("host-a", 1, 5), []string{"alice"}, "host-a", "", "host-a:3 host-b:1 bob@host-b alice@host-a", "no longer in the roster: anna\n"},
		"the same keys":           {host("host-a", 9, 1), []string{"alice", "anna"}, "host-a", "", "host-a:2 host-b:1 bob@host-b alice@host-a anna@host-a", "the roster has the same keys\n"},
		"another host's agent":    {host("host-c", 1, 5), []string{"bob"}, "", "agent bob is on host host-b; to move it to host-c, add --replace agent:bob", "", ""},
		"a host is no agent":      {host("host-c", 1, 5), []string{"bob"}, "bob", "add --replace agent:bob", "", ""},
		"an agent of a new host":  {host("host-c", 1, 5), []string{"bob"}, "agent:bob", "", "host-a:2 host-b:1 host-c:1 alice@host-a anna@host-a bob@host-c", "moved: bob from host-b\n"},
		"a host takes an agent":   {host("host-a", 1, 5), []string{"alice", "bob"}, "host-a", "agent bob is on host host-b", "", ""},
		"nothing of that name":    {host("host-c", 1, 5), []string{"carol"}, "host-d", "--replace host-d: the lines replace nothing", "", ""},
		"an agent not in the way": {host("host-c", 1, 5), []string{"carol"}, "agent:bob", "--replace agent:bob: the lines replace nothing", "", ""},
	} {
		var with []roster.Agent
		for _, id := range tc.agents {
			with = append(with, agent(id, tc.host.Name))
		}
		a, err := added(r, &tc.host, with, strings.Fields(tc.replace))
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: got %v, want %s", what, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var parts []string
		for i := range a.hosts {
			parts = append(parts, fmt.Sprintf("%s:%d", a.hosts[i].Name, a.hosts[i].Epoch))
		}
		for i := range a.agents {
			parts = append(parts, a.agents[i].ID+"@"+a.agents[i].Host)
		}
		if got := strings.Join(parts, " "); got != tc.roster {
			t.Errorf("%s: the roster is %s, want %s", what, got, tc.roster)
		}
		var shown strings.Builder
		if err := a.show(&shown); err != nil || !strings.Contains(shown.String(), tc.shown) {
			t.Errorf("%s: it shows %s (%v), want %s", what, shown.String(), err, tc.shown)
		}
	}
	if len(r.Hosts) != 2 || r.Host("host-a").Epoch != 2 {
		t.Errorf("the roster changed: %+v", r.Hosts)
	}
}
