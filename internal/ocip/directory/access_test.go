package directory

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

func agent(id, app, tenant string) Agent {
	return Agent{App: app, Agent: ocip.Agent{ID: id, MaxShared: ocip.Internal, Identity: ocip.Identity{
		InstanceID: "agent-" + id + "-1", UserID: id, OrgUnit: "engineering", TenantID: tenant,
	}}}
}

func directoryOf(t testing.TB, cfg Config) *Directory {
	t.Helper()
	d, err := New(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// onePerson is the set-up of one person, twoTenants that of two tenants.
func onePerson() Config {
	return Config{
		Agents: []Agent{agent("alice", "@acme/alice", "acme"), agent("bob", "@acme/bob", "acme")}, UIDs: []uint32{1000},
		// The tenants of other installations do not count.
		Entries: []Entry{{Counterparty: ocip.Counterparty{Kind: ocip.KindAgent, Identity: ocip.Identity{InstanceID: "eve", TenantID: "globex"}}, Sessions: []string{"telegram:eve"}}},
	}
}

func twoTenants() Config {
	cfg := onePerson()
	cfg.Agents[1] = agent("gina", "@globex/gina", "globex")
	return cfg
}

func TestDeclared(t *testing.T) {
	uid := uint32(1001)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   bool
	}{
		{"one person", func(*Config) {}, false},
		{"an app that messages must wait for", func(c *Config) { c.Required = []string{"@x/dlp"} }, false},
		{"a grant", func(c *Config) { c.Grants = map[string]Grant{"@x/dlp": {Intercepts: []string{"alice"}}} }, true},
		{"two tenants", func(c *Config) { c.Agents[1].TenantID = "globex" }, true},
		{"another user", func(c *Config) { c.UIDs = append(c.UIDs, 1001) }, true},
		{"an agent of another user", func(c *Config) { c.Agents[0].UID = &uid }, true},
		{"the same user, said twice", func(c *Config) { c.UIDs = []uint32{1001}; c.Agents[0].UID = &uid }, false},
	} {
		cfg := onePerson()
		tc.change(&cfg)
		if got := directoryOf(t, cfg).Declared(); got != tc.want {
			t.Errorf("%s: declared %v", tc.name, got)
		}
	}
}

func TestMayOwn(t *testing.T) {
	granted := map[string]Grant{"@x/telegram": {Channels: []string{"telegram"}}}
	for _, tc := range []struct {
		name         string
		grants       map[string]Grant
		app, channel string
		refused      string
	}{
		{"anything", nil, "@x/telegram", "telegram", ""},
		{"an agent's app", nil, "@acme/alice", "telegram", ""},
		{"the agents' keys", nil, "@x/telegram", "agent", "no app can have channel agent"},
		{"granted", granted, "@x/telegram", "telegram", ""},
		{"another channel", granted, "@x/telegram", "irc", `list irc in access.apps."@x/telegram".channels`},
		{"another app", granted, "@x/thief", "telegram", `list telegram in access.apps."@x/thief".channels`},
	} {
		cfg := onePerson()
		cfg.Grants = tc.grants
		expect(t, tc.name, directoryOf(t, cfg).MayOwn(tc.app, tc.channel), tc.refused)
	}
}

// expect checks that an error contains a text. With an empty text there must be no error.
func expect(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: refused: %v", name, err)
	case want != "" && err == nil:
		t.Errorf("%s: allowed, want %q", name, want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestInterceptsAndObserves(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		grants                map[string]Grant
		required              []string
		app                   string
		intercepts, observes  bool
		interceptsG, observsG bool
	}{
		{name: "its own agent", app: "@acme/alice", intercepts: true, observes: true},
		{name: "a stranger", app: "@x/dlp"},
		{name: "one that messages must wait for", required: []string{"@x/dlp"}, app: "@x/dlp", intercepts: true, interceptsG: true},
		{name: "one agent", grants: map[string]Grant{"@x/dlp": {Intercepts: []string{"alice"}}}, app: "@x/dlp", intercepts: true},
		{name: "all", grants: map[string]Grant{"@x/dlp": {Intercepts: []string{"*"}, Observes: []string{"*"}}}, app: "@x/dlp", intercepts: true, observes: true, interceptsG: true, observsG: true},
		{name: "watching", grants: map[string]Grant{"@x/log": {Observes: []string{"gina"}}}, app: "@x/log", observsG: true},
		{name: "its channel, for a tenant", grants: map[string]Grant{"@x/tg": {Channels: []string{"telegram"}, Tenants: []string{"acme"}}}, app: "@x/tg", observes: true},
		{name: "its channel, for nobody", grants: map[string]Grant{"@x/tg": {Channels: []string{"telegram"}}}, app: "@x/tg"},
		{name: "another channel", grants: map[string]Grant{"@x/tg": {Channels: []string{"irc"}, Tenants: []string{"acme"}}}, app: "@x/tg"},
	} {
		cfg := twoTenants()
		cfg.Grants, cfg.Required = tc.grants, tc.required
		d := directoryOf(t, cfg)
		alice, gina := d.Agent("alice"), d.Agent("gina")
		got := [...]bool{d.Intercepts(tc.app, alice), d.Observes(tc.app, alice, "telegram"), d.Intercepts(tc.app, gina), d.Observes(tc.app, gina, "telegram")}
		if want := [...]bool{tc.intercepts, tc.observes, tc.interceptsG, tc.observsG}; got != want {
			t.Errorf("%s: intercepts, observes alice, then gina: %v, want %v", tc.name, got, want)
		}
	}
}

// TestAttack01HumanTextRoundEveryRule: an app with its own channel brings "human" text to an agent
// for which it does not speak.
func TestAttack01HumanTextRoundEveryRule(t *testing.T) {
	grants := map[string]Grant{
		"@acme/alice": {Channels: []string{"junk"}, Tenants: []string{"acme"}},
		"@x/irc":      {Channels: []string{"irc"}, Tenants: []string{"acme"}},
	}
	for _, tc := range []struct {
		name     string
		cfg      Config
		grants   map[string]Grant
		app      string
		owns     bool
		key, who string
		refused  string
	}{
		{"alice's app under bob's key", onePerson(), nil, "@acme/alice", true, "agent:bob:x", "bob", "only the app that speaks for the agent"},
		{"alice's app under her own key", onePerson(), nil, "@acme/alice", false, "agent:alice:x", "alice", ""},
		{"alice's app under bob's key, for alice", onePerson(), nil, "@acme/alice", true, "agent:bob:x", "alice", "only the app that speaks for the agent"},
		{"a channel under an agent's key", onePerson(), nil, "@x/irc", true, "agent:bob:x", "bob", "only the app that speaks for the agent"},
		{"alice's channel, for her", onePerson(), nil, "@acme/alice", true, "junk:1", "alice", ""},
		{"alice's channel, for bob", onePerson(), nil, "@acme/alice", true, "junk:1", "bob", `list junk in access.apps."@acme/alice".channels`},
		{"alice's app, the channel of another, for her", onePerson(), nil, "@acme/alice", false, "irc:1", "alice", ""},
		{"a channel that speaks for none", onePerson(), nil, "@x/irc", true, "irc:1", "bob", ""},
		{"without the channel", onePerson(), nil, "@x/irc", false, "irc:1", "bob", "does not have channel irc"},
		{"two tenants, undeclared", twoTenants(), nil, "@x/irc", true, "irc:1", "gina", `list irc in access.apps."@x/irc".channels`},
		{"two tenants, declared", twoTenants(), grants, "@x/irc", true, "irc:1", "alice", ""},
		{"two tenants, the other one", twoTenants(), grants, "@x/irc", true, "irc:1", "gina", `list globex in access.apps."@x/irc".tenants`},
		{"two tenants, an agent's app, declared", twoTenants(), grants, "@acme/alice", true, "junk:1", "alice", ""},
		{"two tenants, an agent's app for the other", twoTenants(), grants, "@acme/alice", true, "junk:1", "gina", "does not serve agent gina"},
	} {
		tc.cfg.Grants = tc.grants
		d := directoryOf(t, tc.cfg)
		expect(t, tc.name, d.MayBring(tc.app, tc.owns, tc.key, d.Agent(tc.who)), tc.refused)
	}
}

// TestAttack07TenantsOfAChannel: with two tenants, the app of a channel sees the messages of those
// that it serves.
func TestAttack07TenantsOfAChannel(t *testing.T) {
	cfg := twoTenants()
	cfg.Grants = map[string]Grant{
		"@x/telegram": {Channels: []string{"telegram"}, Tenants: []string{"acme"}},
		"@y/telegram": {Channels: []string{"telegram", "sms"}, Tenants: []string{"acme"}},
		"@x/mail":     {Channels: []string{"mail"}, Tenants: []string{"acme", "globex"}},
		"@x/irc":      {Channels: []string{"irc"}},
	}
	d := directoryOf(t, cfg)
	for _, tc := range []struct{ channel, agent, refused string }{
		{"telegram", "alice", ""},
		{"telegram", "gina", "list globex in access.apps, in tenants of the app that has the channel"},
		{"mail", "gina", ""},
		{"irc", "alice", "channel irc does not serve tenant acme"},
		{"chat", "alice", `list chat in access.apps."@your/chat".channels`},
	} {
		expect(t, tc.channel+" for "+tc.agent, d.Served(tc.channel, d.Agent(tc.agent)), tc.refused)
	}
	expect(t, "who has it", d.Serves("@x/telegram", d.Agent("gina")), "does not serve agent gina of tenant globex")
	expect(t, "who has it", d.Serves("@x/mail", d.Agent("gina")), "")
	easy := directoryOf(t, onePerson())
	expect(t, "one person", easy.Served("anything", easy.Agent("bob")), "")
}

func TestMayCarry(t *testing.T) {
	cfg := onePerson()
	cfg.Grants = map[string]Grant{"@x/peer": {Carries: []string{"eve", "agent-alice-1"}}}
	d := directoryOf(t, cfg)
	bob := d.Agent("bob")
	expect(t, "a peer's carrier", d.MayCarry("@x/peer", "eve", bob), "")
	expect(t, "another peer", d.MayCarry("@x/peer", "mallory", bob), `list mallory in access.apps."@x/peer".carries`)
	expect(t, "another app", d.MayCarry("@acme/bob", "eve", bob), `list eve in access.apps."@acme/bob".carries`)
	expect(t, "an agent of this daemon", d.MayCarry("@x/peer", "agent-alice-1", bob), "only with a message that it has sent")
	if d.Carries("@x/peer", "") || d.Carries("@x/peer", "agent-alice-1") || !d.Carries("@x/peer", "eve") {
		t.Error("carries")
	}
}

func TestMissing(t *testing.T) {
	cfg := twoTenants()
	cfg.Routes = []Route{{"telegram:*", "gina"}, {"irc:*", "alice"}}
	cfg.Grants = map[string]Grant{"@x/chat": {Channels: []string{"mail"}, Tenants: []string{"acme"}}}
	lacks := Missing(&cfg, map[string]string{"irc": "@x/chat", "mail": "@x/mail"})
	want := `access:
  apps:
    "@x/chat":
      channels: ["mail", "irc"]
    "@your/telegram":
      channels: ["telegram"]
      tenants: ["globex"]
`
	if got := Lines(lacks); got != want {
		t.Errorf("lines are\n%s\nwant\n%s\n%+v", got, want, lacks)
	}
	// A configuration with the listed declarations lacks nothing.
	for _, l := range lacks {
		grant := cfg.Grants[l.App]
		if l.Name == "channels" {
			grant.Channels = l.Values
		} else {
			grant.Tenants = l.Values
		}
		cfg.Grants[l.App] = grant
	}
	if left := Missing(&cfg, nil); left != nil {
		t.Errorf("still lacks %+v", left)
	}
	if easy := onePerson(); Missing(&easy, map[string]string{"irc": "@x/irc"}) != nil {
		t.Error("one person's set-up lacks something")
	}
	users := onePerson()
	users.UIDs, users.Entries = []uint32{1000, 7}, nil
	lacks = Missing(&users, nil)
	if len(lacks) != 2 || lacks[0].Key != "agents[0].uid" || !slices.Equal(lacks[0].Values, []string{"1000"}) {
		t.Errorf("%+v", lacks)
	}
	if got := Lines(lacks); !strings.HasPrefix(got, "# in the entry of agent alice: uid: 1000\n") {
		t.Errorf("lines are %s", got)
	}
}
