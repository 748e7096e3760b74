package directory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Grant lists the rights of one app in the configuration, access.apps.<id> in the file. An app's
// manifest asks for rights, and the app gets these.
type Grant struct {
	// Channels are the channels that the app may own.
	Channels []string
	// Intercepts are the ids of the agents whose messages the app may look at, change and stop.
	// Observes are those of the agents that it may watch. A star is all of them.
	Intercepts []string
	Observes   []string
	// Tenants are the tenants whose agents the app's channels serve.
	Tenants []string
	// Carries are the foreign instances whose envelopes the app may bring in under agent: keys.
	Carries []string
}

// everyAgent in a grant means all agents.
const everyAgent = "*"

// access holds the rights of apps.
type access struct {
	grants   map[string]Grant
	required map[string]bool
	// tenants are the tenants of the agents, and uids the users that apps may run as, both sorted.
	tenants []string
	uids    []uint32
	// named are the apps that the configuration names. looks finds one of them by its appearance.
	named map[string]bool
	looks map[string]string
}

func newAccess(cfg *Config) access {
	a := access{
		grants: cfg.Grants, required: make(map[string]bool, len(cfg.Required)), uids: slices.Clone(cfg.UIDs),
		named: make(map[string]bool), looks: make(map[string]string),
	}
	for _, app := range cfg.Required {
		a.required[app] = true
		a.name(app)
	}
	for _, app := range cfg.Apps {
		a.name(app)
	}
	for app := range cfg.Grants {
		a.name(app)
	}
	for i := range cfg.Agents {
		a.name(cfg.Agents[i].App)
		a.tenants = append(a.tenants, cfg.Agents[i].TenantID)
		if uid := cfg.Agents[i].UID; uid != nil {
			a.uids = append(a.uids, *uid)
		}
	}
	slices.Sort(a.tenants)
	a.tenants = slices.Compact(a.tenants)
	slices.Sort(a.uids)
	a.uids = slices.Compact(a.uids)
	return a
}

// name enters an app that the configuration names. If several look alike, others are compared with
// the one whose id comes first.
func (a *access) name(app string) {
	if app == "" || a.named[app] {
		return
	}
	a.named[app] = true
	looks := text.Skeleton(app)
	if like := a.looks[looks]; like == "" || app < like {
		a.looks[looks] = app
	}
}

// declared reports whether apps have only explicit rights. If all agents have one tenant, all apps
// have one user, and the configuration grants nothing, apps have the rights that a set-up of one
// person needs.
func (a *access) declared() bool {
	return len(a.grants) > 0 || a.shared()
}

// shared reports whether apps may belong to several tenants or users.
func (a *access) shared() bool { return len(a.tenants) > 1 || len(a.uids) > 1 }

// Declared reports whether apps have only explicit rights, instead of the rights that a set-up of
// one person needs.
func (d *Directory) Declared() bool { return d.access.declared() }

// Shared reports whether apps may belong to several tenants or users. Then an app learns nothing
// about others.
func (d *Directory) Shared() bool { return d.access.shared() }

// SeveralTenants reports whether the agents have more than one tenant.
func (d *Directory) SeveralTenants() bool { return len(d.access.tenants) > 1 }

// AllTenants returns the tenants of the agents.
func (d *Directory) AllTenants() []string { return d.access.tenants }

// speaksFor reports whether an app is the agent's own.
func speaksFor(app string, a *Agent) bool { return app != "" && a.App == app }

// Names reports whether the configuration names an app: as the app of an agent, in a grant, or as
// an interceptor.
func (d *Directory) Names(app string) bool { return d.access.named[app] }

// MayRegister returns the reason that an app may not register under an id, or nil. An id that looks
// like one in the configuration is refused. If apps may belong to several tenants or users, every
// id that is not in the configuration is refused: otherwise an app could find out whether somebody
// else has the id.
func (d *Directory) MayRegister(app string) error {
	like := d.LooksLike(app)
	switch {
	case d.Names(app):
		return nil
	case d.access.shared():
		// The error must not reveal the apps of others.
		return fmt.Errorf("the configuration does not name app %s; to let it register, add access: {apps: {%s: {}}}", app, strconv.Quote(app))
	case like != "":
		return fmt.Errorf("app id %s looks like %s, which the configuration names; use that id if it is the same app, and another one if not", app, like)
	}
	return nil
}

// LooksLike returns the app in the configuration whose id looks like the given one but differs from
// it, or "".
func (d *Directory) LooksLike(app string) string {
	if d.Names(app) {
		return ""
	}
	return d.access.looks[text.Skeleton(app)]
}

// MayOwn returns the reason that an app may not own a channel, or nil. It does not check whether
// another app owns the channel already.
func (d *Directory) MayOwn(app, channel string) error {
	if mutant.Off("channel-owner") {
		return nil
	}
	switch {
	case channel == AgentChannel:
		return fmt.Errorf("no app can have a channel named %s: the keys of agents begin with it", AgentChannel)
	case !d.access.declared(), slices.Contains(d.access.grants[app].Channels, channel):
		return nil
	}
	return fmt.Errorf("app %s may not have channel %s; to allow it, list %s in %s", app, channel, channel, grantKey(app, "channels"))
}

// Intercepts reports whether an app may look at, change and stop messages of an agent. The agent's
// own app may, and an app with a grant, and an app that messages must wait for.
func (d *Directory) Intercepts(app string, a *Agent) bool {
	if mutant.Off("interceptor") {
		return true
	}
	return speaksFor(app, a) || d.access.required[app] || lists(d.access.grants[app].Intercepts, a.ID)
}

// Required returns the apps that messages must wait for.
func (d *Directory) Required() map[string]bool { return d.access.required }

// Observes reports whether an app may watch an agent in a channel. The agent's own app may, and an
// app with a grant for the agent, and an app with a grant for the channel. If nothing has to be
// declared, the app that owns the channel may as well, which the caller knows.
func (d *Directory) Observes(app string, a *Agent, channel string) bool {
	if mutant.Off("observer") {
		return true
	}
	grant := d.access.grants[app]
	return speaksFor(app, a) || lists(grant.Observes, a.ID) ||
		slices.Contains(grant.Channels, channel) && d.Serves(app, a) == nil
}

func lists(granted []string, id string) bool {
	return slices.Contains(granted, id) || slices.Contains(granted, everyAgent)
}

// Tenants lists the tenants whose agents an app's channels serve.
func (d *Directory) Tenants(app string) []string {
	if !d.access.declared() || mutant.Off("channel-tenant") {
		return d.access.tenants
	}
	if grant, ok := d.access.grants[app]; ok && (len(grant.Tenants) > 0 || len(d.access.tenants) > 1) {
		return grant.Tenants
	}
	return d.access.tenants
}

// Serves returns the reason that an app's channels do not serve an agent, in either direction, or
// nil. Each tenant has its own channels, unless the configuration says that an app serves several.
func (d *Directory) Serves(app string, a *Agent) error {
	if slices.Contains(d.Tenants(app), a.TenantID) {
		return nil
	}
	return fmt.Errorf("app %s does not serve agent %s of tenant %s; to allow it, list %s in %s", app, a.ID, a.TenantID, a.TenantID, grantKey(app, "tenants"))
}

// Served returns the reason that no app, connected or not, can carry an agent's messages in a
// channel, or nil. For a known app, ask [Directory.Serves]. The error does not name an app that
// serves others, since the caller may belong to another tenant.
func (d *Directory) Served(channel string, a *Agent) error {
	if !d.access.declared() {
		return nil
	}
	there := false
	for _, app := range slices.Sorted(maps.Keys(d.access.grants)) {
		if !slices.Contains(d.access.grants[app].Channels, channel) {
			continue
		}
		if there = true; d.Serves(app, a) == nil {
			return nil
		}
	}
	if !there {
		return fmt.Errorf("no app may have channel %s; to allow one, list %s in %s", channel, channel, grantKey(unknownApp(channel), "channels"))
	}
	return d.NotServed(channel, a)
}

// NotServed returns the error that the app of a channel does not serve an agent.
func (d *Directory) NotServed(channel string, a *Agent) error {
	return fmt.Errorf("channel %s does not serve tenant %s; to allow it, list %s in access.apps, in tenants of the app that has the channel", channel, a.TenantID, a.TenantID)
}

// Granted reports whether the configuration grants a channel to some app.
func (d *Directory) Granted(channel string) bool {
	for _, grant := range d.access.grants {
		if slices.Contains(grant.Channels, channel) {
			return true
		}
	}
	return false
}

// MayBring returns the reason that an app may not bring in a message of a session for an agent, or
// nil. Owns is set if the app has the session's channel. It is for a message without an envelope,
// and for one with an envelope in the session of a channel. For an envelope under an agent's own
// key, use [Directory.MayCarry].
func (d *Directory) MayBring(app string, owns bool, key string, a *Agent) error {
	if mutant.Off("bringer") {
		return nil
	}
	channel, _ := Split(key)
	switch {
	case channel == AgentChannel && (!speaksFor(app, a) || d.LocalAgent(key) != a):
		return fmt.Errorf("only the app that speaks for the agent (agents[].app) brings in messages through session %s; "+
			"app %s brings the messages of people in through a channel of its own, and the envelopes of another installation's agent if %s lists its instance id",
			key, app, grantKey(app, "carries"))
	case speaksFor(app, a):
		return nil
	case !owns:
		return fmt.Errorf("app %s does not have channel %s, and agent %s is not its own; register the channel with capability.register, which takes %s where apps' rights are declared",
			app, channel, a.ID, grantKey(app, "channels"))
	case d.access.declared():
		if err := d.MayOwn(app, channel); err != nil {
			return err
		}
		return d.Serves(app, a)
	}
	if mine := d.byApp[app]; len(mine) > 0 {
		return fmt.Errorf("app %s speaks for agent %s, so its messages reach only its own agents; to let it serve agent %s too, list %s in %s",
			app, mine[0].ID, a.ID, channel, grantKey(app, "channels"))
	}
	return nil
}

// Carries reports whether the configuration grants an app to bring in the envelopes of a foreign
// instance under agent: keys.
func (d *Directory) Carries(app, instance string) bool {
	if host, _ := d.Elsewhere(instance); host != "" && app == AppOfHost(host) {
		return true
	}
	return instance != "" && d.local[instance] == nil && slices.Contains(d.access.grants[app].Carries, instance)
}

// MayCarry returns the reason that an app may not bring in an instance's envelope under an agent's
// own key, or nil. The caller knows whether an agent of this daemon sent the message, so that the
// receiver's own app may bring it in.
func (d *Directory) MayCarry(app, instance string, a *Agent) error {
	if mutant.Off("carrier") {
		return nil
	}
	if d.Carries(app, instance) {
		return d.Serves(app, a)
	}
	if d.local[instance] != nil {
		return fmt.Errorf("agent %s belongs to this daemon, so its envelope is accepted only with a message that it has sent", instance)
	}
	return fmt.Errorf("app %s may not bring in envelopes of agent %s under the key of agent %s; to allow it, list %s in %s", app, instance, a.ID, instance, grantKey(app, "carries"))
}

// grantKey returns the configuration key of a grant to an app.
func grantKey(app, what string) string { return "access.apps." + strconv.Quote(app) + "." + what }

// Declaration is one line that a configuration needs.
type Declaration struct {
	// Key is the key of the line, for example access.apps."@acme/telegram".channels.
	Key string
	// App and Name are its last two parts. Agent takes the place of App if the line belongs to an
	// agent.
	App, Agent, Name string
	// Values are the whole list to write, including existing grants.
	Values []string
	// Reason says why the line is needed.
	Reason string
}

// unknownApp is a placeholder for the unknown app of a channel.
func unknownApp(channel string) string { return "@your/" + channel }

// Missing returns the lines that a configuration needs if everything must be declared. Owners says
// which app had a channel recently, according to the log. Channels that the configuration does not
// mention count if they are in it.
func Missing(cfg *Config, owners map[string]string) []Declaration {
	a := newAccess(cfg)
	if !a.declared() {
		return nil
	}
	why := a.why()
	var lacks []Declaration
	if len(a.uids) > 1 {
		own := a.uids[0]
		if len(cfg.UIDs) > 0 {
			own = cfg.UIDs[0]
		}
		for i := range cfg.Agents {
			// Only an app with a grant speaks for an agent without an app.
			if agent := &cfg.Agents[i]; agent.UID == nil && !IsAgents(agent.App) {
				lacks = append(lacks, Declaration{
					Key: "agents[" + strconv.Itoa(i) + "].uid", Agent: agent.ID, Name: "uid", Values: []string{strconv.FormatUint(uint64(own), 10)},
					Reason: "apps of several users may connect, so any of them could speak for agent " + agent.ID,
				})
			}
		}
	}
	granted := make(map[string]string) // by channel
	for _, app := range slices.Sorted(maps.Keys(a.grants)) {
		for _, channel := range a.grants[app].Channels {
			granted[channel] = cmp.Or(granted[channel], app)
		}
	}
	// want has the missing values, by app.
	want := make(map[string][]string)
	for _, channel := range channelsIn(cfg, owners) {
		if granted[channel] == "" {
			app := cmp.Or(owners[channel], unknownApp(channel))
			want[app] = append(want[app], channel)
		}
	}
	for _, app := range slices.Sorted(maps.Keys(want)) {
		lacks = append(lacks, Declaration{
			Key: grantKey(app, "channels"), App: app, Name: "channels", Values: append(slices.Clone(a.grants[app].Channels), want[app]...),
			Reason: why + ", and nothing says which app may have " + channelWords(want[app]),
		})
	}
	if len(a.tenants) < 2 {
		return lacks
	}
	for app, grant := range a.grants {
		if len(grant.Channels) > 0 {
			want[app] = append(want[app], grant.Channels...)
		}
	}
	for _, app := range slices.Sorted(maps.Keys(want)) {
		if len(a.grants[app].Tenants) > 0 {
			continue
		}
		lacks = append(lacks, Declaration{
			Key: grantKey(app, "tenants"), App: app, Name: "tenants", Values: a.tenantsOf(cfg, want[app]),
			Reason: why + ", and no grant names the agents of app " + app + " may see in " + channelWords(want[app]),
		})
	}
	return lacks
}

// why gives the reason that everything must be declared.
func (a *access) why() string {
	switch {
	case len(a.tenants) > 1:
		return "the agents are of several tenants (" + strings.Join(a.tenants, ", ") + ")"
	case len(a.uids) > 1:
		return "apps of several users may connect"
	default:
		return "access.apps grants something, so every right must be granted"
	}
}

func channelWords(channels []string) string {
	if len(channels) == 1 {
		return "channel " + channels[0]
	}
	return "the channels " + strings.Join(channels, ", ")
}

// channelsIn lists the channels in a configuration, and those that an app had before.
func channelsIn(cfg *Config, owners map[string]string) []string {
	found := make(map[string]struct{})
	note := func(key string) {
		if channel, rest := Split(key); rest != "" && channel != AgentChannel {
			found[channel] = struct{}{}
		}
	}
	for e := range cfg.All() {
		for _, key := range e.Sessions {
			note(key)
		}
	}
	for _, r := range cfg.Routes {
		note(r.Session)
	}
	for channel := range owners {
		found[channel] = struct{}{}
	}
	return slices.Sorted(maps.Keys(found))
}

// tenantsOf lists the tenants of the agents to which some channels are routed, or all if there are
// no such routes.
func (a *access) tenantsOf(cfg *Config, channels []string) []string {
	tenants := make(map[string]struct{})
	for _, r := range cfg.Routes {
		if channel, _ := Split(r.Session); slices.Contains(channels, channel) {
			for i := range cfg.Agents {
				if cfg.Agents[i].ID == r.Agent {
					tenants[cfg.Agents[i].TenantID] = struct{}{}
				}
			}
		}
	}
	if len(tenants) == 0 {
		return a.tenants
	}
	return slices.Sorted(maps.Keys(tenants))
}

// Lines returns declarations as YAML to add to the configuration. A declaration for an agent
// belongs in that agent's existing entry, so it becomes a comment with the agent and the line.
func Lines(lacks []Declaration) string {
	var b strings.Builder
	app, begun := "", false
	// Declarations of one app belong together.
	ordered := slices.Clone(lacks)
	slices.SortStableFunc(ordered, func(x, y Declaration) int { return strings.Compare(x.App, y.App) })
	for _, l := range ordered {
		if l.App == "" {
			fmt.Fprintf(&b, "# in the entry of agent %s: %s: %s\n", l.Agent, l.Name, l.Values[0])
			continue
		}
		if !begun {
			b.WriteString("access:\n  apps:\n")
			begun = true
		}
		if l.App != app {
			app = l.App
			fmt.Fprintf(&b, "    %s:\n", strconv.Quote(app))
		}
		fmt.Fprintf(&b, "      %s: [", l.Name)
		for i, v := range l.Values {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Quote(v))
		}
		b.WriteString("]\n")
	}
	return b.String()
}
