package directory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

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
func (x *access) name(app string) {
	if app == "" || x.named[app] {
		return
	}
	x.named[app] = true
	looks := text.Skeleton(app)
	if like := x.looks[looks]; like == "" || app < like {
		x.looks[looks] = app
	}
}

// Declared reports whether apps have only explicit rights. If all agents have one tenant, all apps
// have one user, and the configuration grants nothing, apps have the rights that a set-up of one
// person needs.
func (x *access) Declared() bool { return len(x.grants) > 0 || x.Shared() }

// Shared reports whether apps may belong to several tenants or users. Then an app learns nothing
// about others.
func (x *access) Shared() bool { return len(x.tenants) > 1 || len(x.uids) > 1 }

// SeveralTenants reports whether the agents have more than one tenant.
func (x *access) SeveralTenants() bool { return len(x.tenants) > 1 }

// AllTenants returns the tenants of the agents.
func (x *access) AllTenants() []string { return x.tenants }

// speaksFor reports whether an app is the agent's own.
func speaksFor(app string, a *Agent) bool { return app != "" && a.App == app }

// Names reports whether the configuration names an app: as the app of an agent, in a grant, or as
// an interceptor.
func (x *access) Names(app string) bool { return x.named[app] }

// MayRegister returns the reason that an app may not register under an id, or nil. An id that looks
// like one in the configuration is refused. If apps may belong to several tenants or users, every
// id that is not in the configuration is refused: otherwise an app could find out whether somebody
// else has the id.
func (x *access) MayRegister(app string) error {
	like := x.LooksLike(app)
	switch {
	case x.Names(app):
		return nil
	case x.Shared():
		// The error must not reveal the apps of others.
		return fmt.Errorf("the configuration does not name app %s; to let it register, add access: {apps: {%s: {}}}", app, strconv.Quote(app))
	case like != "":
		return fmt.Errorf("app id %s looks like %s, which the configuration names; use that id if it is the same app, and another one if not", app, like)
	}
	return nil
}

// LooksLike returns the app in the configuration whose id looks like the given one but differs from
// it, or "".
func (x *access) LooksLike(app string) string {
	if x.Names(app) {
		return ""
	}
	return x.looks[text.Skeleton(app)]
}

// MayOwn returns the reason that an app may not own a channel, or nil. It does not check whether
// another app owns the channel already.
func (x *access) MayOwn(app, channel string) error {
	if mutant.Off("channel-owner") {
		return nil
	}
	switch {
	case channel == AgentChannel, looksOfAgents(channel):
		return fmt.Errorf("no app can have channel %s: the keys of agents begin with %s", channel, AgentChannel)
	case !x.Declared(), slices.Contains(x.grants[app].Channels, channel):
		return nil
	}
	return fmt.Errorf("app %s may not have channel %s; to allow it, list %s in %s", app, channel, channel, grantKey(app, "channels"))
}

// Intercepts reports whether an app may look at, change and stop messages of an agent. The agent's
// own app may, and an app with a grant, and an app that messages must wait for.
func (x *access) Intercepts(app string, a *Agent) bool {
	if mutant.Off("interceptor") {
		return true
	}
	return speaksFor(app, a) || x.required[app] || lists(x.grants[app].Intercepts, a.ID)
}

// Required returns the apps that messages must wait for.
func (x *access) Required() map[string]bool { return x.required }

// Observes reports whether an app may watch an agent in a channel. The agent's own app may, and an
// app with a grant for the agent, and an app with a grant for the channel. If nothing has to be
// declared, the app that owns the channel may as well, which the caller knows.
func (x *access) Observes(app string, a *Agent, channel string) bool {
	if mutant.Off("observer") {
		return true
	}
	grant := x.grants[app]
	return speaksFor(app, a) || lists(grant.Observes, a.ID) ||
		slices.Contains(grant.Channels, channel) && x.Serves(app, a) == nil
}

func lists(granted []string, id string) bool {
	return slices.Contains(granted, id) || slices.Contains(granted, everyAgent)
}

// Tenants lists the tenants whose agents an app's channels serve.
func (x *access) Tenants(app string) []string {
	if !x.Declared() || mutant.Off("channel-tenant") {
		return x.tenants
	}
	if grant, ok := x.grants[app]; ok && (len(grant.Tenants) > 0 || len(x.tenants) > 1) {
		return grant.Tenants
	}
	return x.tenants
}

// Serves returns the reason that an app's channels do not serve an agent, in either direction, or
// nil. Each tenant has its own channels, unless the configuration says that an app serves several.
func (x *access) Serves(app string, a *Agent) error {
	if slices.Contains(x.Tenants(app), a.TenantID) {
		return nil
	}
	return fmt.Errorf("app %s does not serve agent %s of tenant %s; to allow it, list %s in %s", app, a.ID, a.TenantID, a.TenantID, grantKey(app, "tenants"))
}

// Served returns the reason that no app, connected or not, can carry an agent's messages in a
// channel, or nil. For a known app, ask [Directory.Serves]. The error does not name an app that
// serves others, since the caller may belong to another tenant.
func (x *access) Served(channel string, a *Agent) error {
	if !x.Declared() {
		return nil
	}
	there := false
	for _, app := range slices.Sorted(maps.Keys(x.grants)) {
		if !slices.Contains(x.grants[app].Channels, channel) {
			continue
		}
		if there = true; x.Serves(app, a) == nil {
			return nil
		}
	}
	if !there {
		return fmt.Errorf("no app may have channel %s; to allow one, list %s in %s", channel, channel, grantKey(unknownApp(channel), "channels"))
	}
	return x.NotServed(channel, a)
}

// NotServed returns the error that the app of a channel does not serve an agent.
func (x *access) NotServed(channel string, a *Agent) error {
	return fmt.Errorf("channel %s does not serve tenant %s; to allow it, list %s in access.apps, in tenants of the app that has the channel", channel, a.TenantID, a.TenantID)
}

// Granted reports whether the configuration grants a channel to some app.
func (x *access) Granted(channel string) bool {
	for _, grant := range x.grants {
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
	case d.Declared():
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
	return instance != "" && d.local[instance] == nil && slices.Contains(d.grants[app].Carries, instance)
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
