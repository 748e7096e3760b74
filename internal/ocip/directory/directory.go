// Package directory identifies agents and counterparties: the agent that an app speaks for, the
// counterparty that a session reaches, and the agent that an inbound message is for. It uses the
// configuration alone, does no I/O and never changes once it is made. Every look-up costs the same
// for any number of agents and counterparties.
package directory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Config is the directory's part of the configuration, checked and typed.
type Config struct {
	Agents       []Agent
	DefaultAgent string
	Routes       []Route
	// Entries are few, and Listed may be many.
	Entries []Entry
	Listed  Listed
	// Channels are the configured profiles of channels, by channel id.
	Channels map[string]Profile

	// Grants are the rights of apps, by app id, and Required the apps that messages must wait for.
	Grants   map[string]Grant
	Required []string
	// Apps are the ids of further apps in the configuration.
	Apps []string
	// UIDs are the users whose processes may connect: first the daemon's own, then the additional
	// ones. Those of agents need not be in it.
	UIDs []uint32
}

// Agent is a local agent and the app that speaks for it, [AppOf] if it has none. UID and Exe, if
// set, bind its app to a user and a program.
type Agent struct {
	ocip.Agent
	App string
	UID *uint32
	Exe string
	// Media are the folders from which the agent may send files.
	Media []string
	// Tools is the treatment of its tool calls.
	Tools ToolMode
	// OwnTurns is set if its runtime is believed about the messages that begin a causal chain.
	OwnTurns bool
	// Disclosure is the label of its texts, "" for [ocip.DisclosureLabel].
	Disclosure string
}

// Label returns the label of the agent's texts.
func (a *Agent) Label() string { return cmp.Or(a.Disclosure, ocip.DisclosureLabel) }

// ToolMode is the treatment of an agent's tool calls that its runtime asks about.
type ToolMode string

// The treatments: the answer about a tool call is only recorded, takes effect if the call has a
// secret, always takes effect, or is not asked for.
const (
	ToolsRecord  ToolMode = "record"
	ToolsSecrets ToolMode = "secrets"
	ToolsEnforce ToolMode = "enforce"
	ToolsOff     ToolMode = "off"
)

// ownApp is the prefix that replaces the app of an agent without one. No app can register under
// such an id.
const ownApp = "@ocipd/agent:"

// AppOf returns the replacement for the app of an agent without one. Grants determine its rights to
// send and receive.
func AppOf(agent string) string { return ownApp + agent }

// IsAgents reports whether an app id is the replacement for an agent without an app.
func IsAgents(app string) bool { return strings.HasPrefix(app, ownApp) }

// Route assigns inbound messages of a session to an agent. Session is a key, or the beginning of
// keys with * behind it.
type Route struct {
	Session string
	Agent   string
}

// Entry is one counterparty and the sessions that reach it: an agent, a person, or a group. A
// person has any kind except an agent's: each agent sees for itself whether the person is its
// owner.
type Entry struct {
	ocip.Counterparty
	Sessions []string
	// Group is set for a group. Members are the instance ids and session keys of its readers;
	// without any, the readers are unknown. Accepts applies to it, but never more than the reader
	// with the lowest level accepts.
	Group   bool
	Members []string
	// Host is the host of the fleet on which the agent runs, "" for an entry of the configuration.
	Host string
	// Agent is the id of such an agent in session keys.
	Agent string

	// number distinguishes the entries of a directory, from 1. It is 0 for one that is in none.
	number int
}

// Directory identifies agents and counterparties under one configuration.
type Directory struct {
	agents map[string]*Agent
	byApp  map[string][]*Agent
	// byInstance are the agents and the few entries by instance id.
	byInstance map[string]*ocip.Counterparty
	local      map[string]*Agent
	// remote are the entries of agents on other hosts of the fleet, by instance id.
	remote       map[string]*Entry
	routes       patterns[*Agent]
	defaultAgent *Agent
	access

	channels
	book
	// sessions are the entries by session key, places by address, and people by names to which
	// their channel's app does not send. All find the numbers of sessions.
	sessions, places, people index
	// names finds sessions by their appearance, see [Directory.look].
	names index
	// groups has the readers of each group, by the entry's number.
	groups map[int]*readers
}

// channels are the known channels, and the properties of any other.
type channels struct {
	networks   map[string]*network
	anyNetwork *network
}

// network returns the known properties of a channel.
func (c *channels) network(channel string) *network {
	if n, ok := c.networks[channel]; ok {
		return n
	}
	return c.anyNetwork
}

// AgentChannel begins the session keys of agents. No channel has this name.
const AgentChannel = "agent"

// New makes the directory of a configuration, which must not change afterwards.
func New(cfg *Config) (*Directory, error) {
	d := &Directory{
		agents: make(map[string]*Agent), byApp: make(map[string][]*Agent), byInstance: make(map[string]*ocip.Counterparty), local: make(map[string]*Agent), remote: make(map[string]*Entry),
		access: newAccess(cfg), channels: channels{networks: make(map[string]*network)}, groups: make(map[int]*readers),
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		d.agents[a.ID] = a
		d.byApp[a.App] = append(d.byApp[a.App], a)
		d.byInstance[a.InstanceID] = a.Counterparty()
		d.local[a.InstanceID] = a
	}
	unknown := anyNetwork()
	d.anyNetwork = &unknown
	d.book = newBook(cfg)
	if err := (lister{d}).list(cfg); err != nil {
		return nil, err
	}
	for _, r := range cfg.Routes {
		a := d.agents[r.Agent]
		if a == nil {
			return nil, fmt.Errorf("cannot route %s: there is no agent %q", r.Session, r.Agent)
		}
		session, open := text.Pattern(r.Session)
		d.routes.add(d.folded(session), open, a)
	}
	switch {
	case cfg.DefaultAgent != "":
		if d.defaultAgent = d.agents[cfg.DefaultAgent]; d.defaultAgent == nil {
			return nil, fmt.Errorf("cannot use default_agent %q: there is no such agent", cfg.DefaultAgent)
		}
	case len(cfg.Agents) == 1:
		d.defaultAgent = &cfg.Agents[0]
	}
	return d, nil
}

// Counterparty returns the agent as others see it.
func (a *Agent) Counterparty() *ocip.Counterparty {
	return &ocip.Counterparty{Kind: ocip.KindAgent, Identity: a.Identity, Accepts: a.MaxShared}
}

// Identified distinguishes the agent from another one with its id.
func (a *Agent) Identified() string { return a.TenantID + "/" + a.InstanceID }

// Agent returns the agent of an id, or nil.
func (d *Directory) Agent(id string) *Agent { return d.agents[id] }

// Local returns this daemon's agent of an instance id, or nil.
func (d *Directory) Local(instance string) *Agent { return d.local[instance] }

// Knows reports whether an agent of this instance id is configured or listed.
func (d *Directory) Knows(instance string) bool { return d.Known(instance) != nil }

// Known returns the agent of an instance id, here or elsewhere, nil if there is none.
func (d *Directory) Known(instance string) *ocip.Counterparty {
	if known := d.byInstance[instance]; known != nil || instance == "" {
		return known
	}
	if i, ok := d.listedInstance(instance); ok {
		if e := d.entry(len(d.own) + i); !e.Group {
			return &e.Counterparty
		}
	}
	return nil
}

// Routed returns the agent that a configured route names for a session.
func (d *Directory) Routed(key string) (*Agent, bool) { return d.routes.find(d.folded(key)) }

// Default returns the agent for inbound messages that nothing else assigns to one, or nil.
func (d *Directory) Default() *Agent { return d.defaultAgent }

// SpokenBy lists the agents that an app speaks for.
func (d *Directory) SpokenBy(app string) []*Agent { return d.byApp[app] }

// Sender returns the agent for which an app speaks. If there are several, the app must name it in a
// member of its request: context.agentId, unless another one is given.
func (d *Directory) Sender(app, named string, member ...string) (*Agent, error) {
	mine := d.byApp[app]
	if named := d.agents[named]; named != nil && mutant.Off("sender") {
		return named, nil
	}
	switch {
	case len(mine) == 0:
		return nil, fmt.Errorf("app %[1]s speaks for no agent; name it in agents[].app, or add an agent: ocipd config add-agent ID --app %[1]s", app)
	case named == "" && len(mine) == 1:
		return mine[0], nil
	case named == "":
		return nil, fmt.Errorf("app %s speaks for several agents; name one in %s", app, append(member, "context.agentId")[0])
	}
	if i := slices.IndexFunc(mine, func(a *Agent) bool { return a.ID == named }); i >= 0 {
		return mine[i], nil
	}
	return nil, fmt.Errorf("app %s does not speak for agent %q", app, named)
}

// LocalAgent returns this daemon's agent that a session key names.
func (d *Directory) LocalAgent(key string) *Agent {
	if id, ok := AgentOf(key); ok {
		return d.agents[id]
	}
	return nil
}

// AgentOf returns the agent that a key of the form agent:{agentId}:{rest}
// names.
func AgentOf(key string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(key, AgentChannel+":")
	if !ok {
		return "", false
	}
	id, _, _ = strings.Cut(rest, ":")
	return id, true
}

// Split divides a session key into its channel and the rest.
func Split(key string) (channel, rest string) {
	channel, rest, _ = strings.Cut(key, ":")
	return channel, rest
}

// ChannelOf returns the channel of a session: agent:alice:telegram:1 belongs to telegram, and
// agent:alice:main to the agent alone.
func ChannelOf(key string) string {
	channel, rest := Split(key)
	if channel != AgentChannel {
		return channel
	}
	_, rest, _ = strings.Cut(rest, ":")
	if inner, _, nested := strings.Cut(rest, ":"); nested && inner != "" {
		return inner
	}
	return channel
}

// folded returns a session key, or the beginning of one, in the spelling for comparisons.
func (d *Directory) folded(key string) string {
	channel, rest := Split(key)
	return d.network(channel).foldedKey(key, rest)
}

// Lists reports whether the directory has an entry for a session.
func (d *Directory) Lists(key string) bool {
	channel, rest := Split(key)
	said := d.network(channel).parse(rest)
	at := d.find(channel, key, &said)
	return at.listed()
}

// ReplyKey returns the session key that answers a message between local agents.
func ReplyKey(sender, receiver *Agent, target string) string {
	rest := target
	if i := len(receiver.ID) + 1; i < len(rest) {
		rest = rest[i:]
	} else {
		rest = "main"
	}
	return "agent:" + sender.ID + ":" + rest
}
