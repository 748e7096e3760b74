package grants

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A grant covers what was approved, and nothing that differs from it in one point: the approval of
// an exchange covers its conversation, receiver, session and type, and a standing grant its
// receiver, by either name.
func TestIsFor(t *testing.T) {
	type change func(*Grant, *About)
	exchange := func() (*Grant, *About) {
		g := &Grant{session: "telegram:dave", exchangeType: string(ocip.InformationQuery), Grant: api.Grant{
			Kind: api.GrantOfExchange, Agent: "agent-alice-1", Receiver: "agent-dave-1", ExchangeID: "e", ConversationID: "c",
		}}
		return g, &About{Agent: "agent-alice-1", Receiver: "agent-dave-1", SessionKey: "telegram:dave", Exchange: &ocip.Exchange{
			ID: "e", ConversationID: "c", Type: ocip.InformationQuery,
		}}
	}
	standing := func() (*Grant, *About) {
		g := &Grant{Grant: api.Grant{Kind: api.GrantStanding, Agent: "agent-alice-1", Receiver: "agent-dave-1"}}
		return g, &About{Agent: "agent-alice-1", Receiver: "agent-dave-1", SessionKey: "telegram:dave", Exchange: &ocip.Exchange{ID: "e", ConversationID: "c"}}
	}
	for name, test := range map[string]struct {
		of     func() (*Grant, *About)
		change change
		good   bool
	}{
		"an exchange":               {exchange, func(*Grant, *About) {}, true},
		"another session":           {exchange, func(_ *Grant, m *About) { m.SessionKey = "telegram:team" }, false},
		"another type":              {exchange, func(_ *Grant, m *About) { m.Exchange.Type = ocip.MeetingScheduling }, false},
		"another exchange":          {exchange, func(_ *Grant, m *About) { m.Exchange.ID = "f" }, false},
		"another conversation":      {exchange, func(_ *Grant, m *About) { m.Exchange.ConversationID = "d" }, false},
		"another receiver":          {exchange, func(_ *Grant, m *About) { m.Receiver = "agent-eve-1" }, false},
		"no exchange":               {exchange, func(_ *Grant, m *About) { m.Receiver, m.Exchange = "", nil }, false},
		"what arrives":              {exchange, func(_ *Grant, m *About) { m.SessionKey = "" }, true},
		"what arrives, by type":     {exchange, func(_ *Grant, m *About) { m.SessionKey, m.Exchange.Type = "", ocip.MeetingScheduling }, false},
		"of an earlier version":     {exchange, func(g *Grant, m *About) { g.session, g.exchangeType, m.SessionKey = "", "", "telegram:team" }, true},
		"standing":                  {standing, func(*Grant, *About) {}, true},
		"standing, another session": {standing, func(_ *Grant, m *About) { m.SessionKey = "telegram:team" }, true},
		"another tenant":            {exchange, func(g *Grant, m *About) { g.tenant, m.Tenant = "acme", "globex" }, false},
		"standing, another tenant":  {standing, func(g *Grant, m *About) { g.tenant, m.Tenant = "acme", "globex" }, false},
		"standing, its tenant":      {standing, func(g *Grant, m *About) { g.tenant, m.Tenant = "acme", "acme" }, true},
		"elsewhere":                 {exchange, func(g *Grant, m *About) { g.target, m.Target = "7", "-100" }, false},
		"where it was":              {exchange, func(g *Grant, m *About) { g.target, m.Target = "7", "7" }, true},
		"what arrives from there":   {exchange, func(g *Grant, m *About) { g.target, m.SessionKey = "7", "" }, true},
		"standing, others read":     {standing, func(_ *Grant, m *About) { m.Others = true }, false},
		"standing, elsewhere":       {standing, func(g *Grant, m *About) { g.Receiver, m.Elsewhere = "telegram:dave", true }, false},
		"standing, for a room":      {standing, func(g *Grant, m *About) { g.Receiver, m.Others = "telegram:dave", true }, true},
		"standing, for a session":   {standing, func(g *Grant, _ *About) { g.Receiver = "telegram:dave" }, true},
		"standing, another of them": {standing, func(g *Grant, _ *About) { g.Receiver = "telegram:team" }, false},
		"standing, another agent":   {standing, func(_ *Grant, m *About) { m.Receiver, m.SessionKey = "agent-eve-1", "telegram:eve" }, false},
		"standing, nobody":          {standing, func(g *Grant, m *About) { g.Receiver, m.Receiver, m.SessionKey = "", "", "telegram:eve" }, false},
	} {
		g, m := test.of()
		test.change(g, m)
		if got := g.isFor(m); got != test.good {
			t.Errorf("%s: it is for the message %t, want %t", name, got, test.good)
		}
	}
}
