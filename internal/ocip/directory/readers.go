package directory

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
)

// readers are those of a group: the entries of its Members, and whether there may be others.
type readers struct {
	members []*Entry
	unsure  bool
}

func stranger() ocip.Counterparty {
	return ocip.Counterparty{Kind: ocip.KindUnknown, Accepts: ocip.Public}
}

// weigh combines all readers of a message into one counterparty, as strict as the strictest of
// them. Strangers is set if others may read it as well.
func (d *Directory) weigh(r *Recipient, self *Agent, strangers bool, entries ...*Entry) {
	most := ocip.Restricted
	for i, e := range entries {
		if e == nil || slices.ContainsFunc(entries[:i], e.is) {
			continue
		}
		if !e.Group {
			r.Members = append(r.Members, *e.seenBy(self))
			continue
		}
		r.Group, most = true, min(most, e.Accepts)
		group := d.groups[e.number]
		strangers = strangers || group.unsure
		for _, m := range group.members {
			if m.InstanceID == "" || m.InstanceID != self.InstanceID {
				r.Members = append(r.Members, *m.seenBy(self))
			}
		}
	}
	r.Strangers = strangers || len(r.Members) == 0
	if !r.Group && len(r.Members) == 1 && !r.Strangers {
		r.Counterparty, r.Members = r.Members[0], nil
		return
	}
	r.Counterparty = strictest(self, r.Members, r.Strangers)
	r.Counterparty.Accepts = min(r.Counterparty.Accepts, most)
}

// strictest returns a counterparty as strict as the strictest of several. If one belongs to another
// tenant, the wall applies. One agent brings the rules of agents, one stranger the rules for
// strangers. The level is the least that any of them accepts.
func strictest(self *Agent, members []ocip.Counterparty, strangers bool) ocip.Counterparty {
	if len(members) == 0 {
		return stranger()
	}
	rank := func(c *ocip.Counterparty) int {
		if _, walled := ocip.Wall(self.Identity, *c); walled {
			return 5
		}
		switch c.Kind {
		case ocip.KindAgent:
			// Another unit also needs the policy between units.
			if c.OrgUnit != self.OrgUnit {
				return 4
			}
			return 3
		case ocip.KindUnknown:
			return 2
		case ocip.KindPerson:
			return 1
		case ocip.KindOwner:
		}
		return 0
	}
	most, accepts := members[0], members[0].Accepts
	for i := range members {
		if rank(&members[i]) > rank(&most) {
			most = members[i]
		}
		accepts = min(accepts, members[i].Accepts)
	}
	if strangers {
		accepts = ocip.Public
		if rank(&most) < 2 {
			most = stranger()
		}
	}
	most.Accepts = accepts
	return most
}

// seenBy returns an entry as one agent sees it: a person is its owner, or is not.
func (e *Entry) seenBy(self *Agent) *ocip.Counterparty {
	c := e.Counterparty
	if c.Kind != ocip.KindAgent {
		c.Kind = ocip.KindPerson
		if c.UserID != "" && c.UserID == self.UserID && (c.TenantID == "" || c.TenantID == self.TenantID) {
			c.Kind = ocip.KindOwner
		}
	}
	return &c
}
