package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
)

// Access says what apps may do. An app requests rights in its manifest, and gets only those
// granted here.
type Access struct {
	// Apps are the grants, by app id.
	Apps map[string]AppAccess `yaml:"apps"`
	// Channels say how the channels address people, by channel id.
	Channels map[string]ChannelAccess `yaml:"channels"`
}

// AppAccess is what one app may do.
type AppAccess struct {
	// Channels are the channels that the app may own.
	Channels []string `yaml:"channels,omitempty"`
	// Intercepts are the agents whose messages the app may read, change and stop. Observes
	// are those whose messages it may read. Both hold ids of agents, or a star for all.
	Intercepts []string `yaml:"intercepts,omitempty"`
	Observes   []string `yaml:"observes,omitempty"`
	// Tenants are the tenants to whose agents the app may bring messages.
	Tenants []string `yaml:"tenants,omitempty"`
	// Carries are the instances elsewhere whose envelopes the app may bring.
	Carries []string `yaml:"carries,omitempty"`
}

// ChannelAccess is how a channel addresses people and shows a text. The defaults are those
// of the known channels, see docs/reference/protocol/channels.md.
type ChannelAccess struct {
	// Address are the members of metadata from which the channel's app takes the address.
	Address []string `yaml:"address,omitempty"`
	// Case says which spellings are one address: none, ascii, rfc1459 or unicode.
	Case string `yaml:"case,omitempty"`
	// Rendering is the markup that the channel's clients interpret: irc, html, markdown.
	Rendering []string `yaml:"rendering,omitempty"`
}

// People are the rules for messages to people, which have no rounds.
type People struct {
	// Commitments is hold (for a person's decision) or record.
	Commitments string `yaml:"commitments"`
	// Keywords is enforce or weigh, and empty for that of the agent or of ocip.commitment.
	Keywords string `yaml:"keywords,omitempty"`
	// Policy makes the policy decide too.
	Policy bool `yaml:"policy"`
	// FirstContact is the decision about the first message: allow, hold or deny.
	FirstContact string `yaml:"first_contact"`
	// MaxMessages is how many messages may go to a session within the window. The daemon
	// holds further ones.
	MaxMessages int           `yaml:"max_messages"`
	Window      time.Duration `yaml:"window"`
}

// Inbound are the rules for incoming messages.
type Inbound struct {
	// Unannotated is the treatment of a known agent's text without an annotation: bind (the
	// agent's rules apply to the answer), human (like a person's) or refuse.
	Unannotated string `yaml:"unannotated"`
}

const (
	kindPerson = "person"
	kindGroup  = "group"
	// anyAgent stands for all agents.
	anyAgent = "*"
	// maxUnknown is the highest level for strangers, unless an agent sets another.
	maxUnknown = "internal"
)

// defaultPeople is safe for any counterparty.
func defaultPeople() People {
	return People{Commitments: "hold", Policy: true, FirstContact: "allow", MaxMessages: 60, Window: time.Hour}
}

// lower returns the lower of two levels, or b if a is not a level.
func lower(a, b string) string {
	if i := slices.Index(levels(), a); i >= 0 && i < slices.Index(levels(), b) {
		return a
	}
	return b
}

// checkUnknown checks the highest level that an agent may send to strangers.
func (a *Agent) checkUnknown(p *problems, at keypath.Path) {
	key := at.Key("max_classification_unknown")
	p.word(key, "level", a.MaxClassificationUnknown, levels()...)
	if most := slices.Index(levels(), a.MaxClassificationShared); most >= 0 && slices.Index(levels(), a.MaxClassificationUnknown) > most {
		p.bad(key, "want at most max_classification_shared (%s), got %s", a.MaxClassificationShared, a.MaxClassificationUnknown)
	}
	p.atLeast(at.Key("max_per_hour"), a.MaxPerHour, 0)
	if a.Keywords != "" {
		p.word(at.Key("keywords"), "treatment", a.Keywords, "enforce", "weigh")
	}
	p.word(at.Key("tools"), "mode", a.Tools, ToolModes()...)
	for i, folder := range a.Media {
		key := at.Key("media").Index(i)
		switch {
		case !filepath.IsAbs(folder) || filepath.Clean(folder) != folder:
			p.bad(key, "want the absolute path of a folder, with nothing in it that leads back, got %q", folder)
		case folder == "/":
			p.bad(key, "want a folder that holds nothing but what may be sent, got the whole machine")
		}
	}
}

func (c *Config) checkPeople(p *problems) {
	ocip := keypath.Path{}.Key("ocip")
	for _, who := range []struct {
		key   string
		rules *People
	}{{"unknown", &c.OCIP.Unknown}, {"person", &c.OCIP.Person}} {
		at := ocip.Key(who.key)
		p.word(at.Key("commitments"), "enforcement", who.rules.Commitments, "hold", "record")
		if who.rules.Keywords != "" {
			p.word(at.Key("keywords"), "treatment", who.rules.Keywords, "enforce", "weigh")
		}
		p.word(at.Key("first_contact"), "answer", who.rules.FirstContact, "allow", "hold", "deny")
		p.atLeast(at.Key("max_messages"), who.rules.MaxMessages, 1)
		p.positive(at.Key("window"), who.rules.Window)
	}
	p.word(ocip.Key("commitment").Key("keywords"), "treatment", c.OCIP.Commitment.Keywords, "enforce", "weigh")
	p.word(ocip.Key("same_owner"), "enforcement", c.OCIP.SameOwner, "enforce", "record")
	p.word(ocip.Key("look_alike"), "answer", c.OCIP.LookAlike, "hold", "deny", "allow")
	p.word(ocip.Key("inbound").Key("unannotated"), "way", c.OCIP.Inbound.Unannotated, "bind", "human", "refuse")
	c.checkJudge(p)
}

func (c *Config) checkAccess(p *problems) {
	apps, channels := keypath.Path{}.Key("access").Key("apps"), keypath.Path{}.Key("access").Key("channels")
	tenants := make([]string, 0, len(c.Agents))
	for i := range c.Agents {
		tenants = append(tenants, c.Agents[i].TenantID)
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	agents := c.agentIDs()
	owners := make(map[string][]string) // by channel
	for _, app := range slices.Sorted(maps.Keys(c.Access.Apps)) {
		grant, at := c.Access.Apps[app], apps.Key(app)
		p.app(at, app)
		p.each(at.Key("channels"), grant.Channels, func(at keypath.Path, channel string) {
			if !validChannel(channel) {
				p.bad(at, "want the id of a channel such as telegram, got %q", channel)
			}
			// Only one app owns a channel at a time. Each could tell when the other owns
			// it, and queued messages would go to an app that must not get them.
			for _, other := range owners[channel] {
				if theirs := c.Access.Apps[other].Tenants; len(theirs) > 0 && len(grant.Tenants) > 0 && !sameSet(theirs, grant.Tenants) {
					p.bad(at, "channel %s is app %s's, which serves other tenants (%s); want a channel of its own for each, or the same tenants", channel, other, listed(theirs))
				}
			}
			owners[channel] = append(owners[channel], app)
		})
		for key, named := range map[string][]string{"intercepts": grant.Intercepts, "observes": grant.Observes} {
			p.each(at.Key(key), named, func(at keypath.Path, id string) {
				if id != anyAgent {
					agents.check(p, at, id)
				}
			})
		}
		p.each(at.Key("tenants"), grant.Tenants, func(at keypath.Path, tenant string) {
			if !slices.Contains(tenants, tenant) {
				p.add(at, text.Nearest(tenant, tenants, text.Near(tenant)), "%s: no agent has the tenant %q, there are: %s", at, tenant, listed(tenants))
			}
		})
		p.each(at.Key("carries"), grant.Carries, p.required)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Access.Channels)) {
		channel, at := c.Access.Channels[id], channels.Key(id)
		if !validChannel(id) {
			p.bad(at, "want the id of a channel such as telegram, got %q", id)
		}
		p.each(at.Key("address"), channel.Address, func(at keypath.Path, member string) {
			if strings.TrimSpace(member) != member || member == "" {
				p.bad(at, "want the name of a member of metadata such as chatId, got %q", member)
			}
			p.canonical(at, member)
		})
		if channel.Case != "" {
			p.word(at.Key("case"), "case rule", channel.Case, "none", "ascii", "rfc1459", "unicode")
		}
		p.words(at.Key("rendering"), "rendering", channel.Rendering, []string{"irc", "html", "markdown"})
	}
}

// sameSet reports whether two lists have the same items, in any order.
func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// validChannel reports whether a session key can begin with a channel's id. No channel has
// the id "agent".
func validChannel(id string) bool {
	return id != "" && id != "agent" && text.Canonical(id) == nil && !strings.ContainsFunc(id, func(r rune) bool { return strings.ContainsRune(":*", r) || unicode.IsSpace(r) })
}

// each checks the items of a list, and that none comes twice.
func (p *problems) each(at keypath.Path, items []string, look func(at keypath.Path, item string)) {
	for i, item := range items {
		if slices.Contains(items[:i], item) {
			p.bad(at.Index(i), "%q is listed twice", item)
		}
		look(at.Index(i), item)
	}
}

// agentIDs are the ids of the agents, in order and as a set.
type agentIDs struct {
	list []string
	set  map[string]struct{}
}

func (c *Config) agentIDs() agentIDs {
	ids := agentIDs{set: make(map[string]struct{}, len(c.Agents))}
	for i := range c.Agents {
		ids.list = append(ids.list, c.Agents[i].ID)
		ids.set[c.Agents[i].ID] = struct{}{}
	}
	return ids
}

// check reports an id that no agent has.
func (ids *agentIDs) check(p *problems, at keypath.Path, id string) {
	if _, ok := ids.set[id]; ok && id != "" || p.full() {
		return
	}
	p.add(at, text.Nearest(id, ids.list, text.Near(id)), "%s: no agent has the id %q, there are: %s", at, id, listed(ids.list))
}

// listed formats names for an error.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > maxNames {
		names = append(slices.Clone(names[:maxNames]), "…")
	}
	return strings.Join(names, ", ")
}

// group checks the keys that only groups may have, or that they must not have. members
// checks the group's members once all entries are known.
func (d *directoryCheck) group(at keypath.Path, c *Contact) {
	if c.Kind != kindGroup {
		if len(c.Members) > 0 {
			d.bad(at.Under("members"), "are for a group, and this one is of the kind %s", c.Kind)
		}
		return
	}
	for _, f := range [...]struct{ key, text string }{
		{"instance_id", c.InstanceID}, {"user_id", c.UserID}, {"org_unit", c.OrgUnit}, {"tenant_id", c.TenantID},
	} {
		if f.text != "" {
			d.bad(at.Under(f.key), "a group has none: its members say who is there")
		}
	}
	for i, member := range c.Members {
		key := at.Under("members").Item(i)
		if slices.Contains(c.Members[:i], member) {
			d.bad(key, "%q is listed twice", member)
		}
		d.groups = append(d.groups, groupMember{slices.Clone(key), member})
	}
}

// groupMember is one member of a group with its position.
type groupMember struct {
	at   keypath.Path
	name string
}

// members reports members of groups that match no entry.
func (d *directoryCheck) members() {
	for _, m := range d.groups {
		if d.full() {
			return
		}
		if strings.Contains(m.name, ":") {
			d.session(m.at, m.name)
			if text.IsPattern(m.name) {
				d.bad(m.at, "want one session, got %q", m.name)
			}
			continue
		}
		if _, known := d.instances.find(m.name); !known {
			d.bad(m.at, "no agent and no entry has the instance_id %q; a person is named by a session key", m.name)
		}
	}
}
