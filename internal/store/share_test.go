package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Limits are per tenant: a tenant that fills its own part takes nothing away from another's.
func TestTenantsHaveTheirOwnShare(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	defer func() { shut(t, s) }()
	write := func(parts ...Part) {
		t.Helper()
		c := noted("a share")
		c.Add(parts...)
		commit(t, s, c)
	}
	speaker := func(tenant, id string) *Speaker {
		return &Speaker{Place: "irc:#" + id, By: tenant, Agent: true, Identity: ocip.Identity{InstanceID: id, TenantID: "rival"}}
	}
	brought := func(tenant, id string) *Brought {
		return &Brought{SessionKey: TenantSession(tenant, "irc:"+id), Members: map[string]string{"target": id}}
	}
	write(speaker("acme", "first"), brought("acme", "first"), speaker("globex", "first"), brought("globex", "first"))
	write(speaker("globex", "many"), brought("globex", "many"))
	shut(t, s)
	change(t, o.Path, fmt.Sprintf(`UPDATE speakers SET no = no + %d WHERE instance_id = 'many'; UPDATE brought SET no = no + %d WHERE members LIKE '%%many%%';`, maxSpeakers, maxBrought))
	s = open(t, o)
	write(speaker("globex", "second"), brought("globex", "second"))
	has := func(tenant, id string) bool {
		t.Helper()
		spoke, err := s.Speakers(context.Background(), tenant, "irc:#"+id)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Brought(context.Background(), TenantSession(tenant, "irc:"+id))
		if (len(spoke) == 1) != (err == nil) {
			t.Errorf("of %s and %s, %+v is known and %v", tenant, id, spoke, err)
		}
		return err == nil
	}
	if !has("acme", "first") || !has("globex", "second") || has("globex", "first") {
		t.Error("a tenant has lost what another has filled")
	}
}
