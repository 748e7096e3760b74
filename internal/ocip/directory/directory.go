// Package directory answers who is who: which agent an app speaks for, which
// counterparty a session reaches, and which agent an inbound message is for. It
// answers from the configuration alone, does no I/O and never changes once it is
// made. Every look-up costs the same however many agents and counterparties
// there are.
package directory

import (
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
	Entries      []Entry
	// Channels is what the configuration says of channels, by channel id.
	Channels map[string]Profile

	// Grants are what apps may do, by app id, and Required the apps that messages
	// must wait for.
	Grants   map[string]Grant
	Required []string
	// Apps are the ids of further apps that the configuration names.
	Apps []string
	// UIDs are the users whose processes may connect: first the daemon's own, then
	// those that are allowed besides. Those of agents need not be in it.
	UIDs []uint32
}

// Agent is a local agent and the app that speaks for it, [AppOf] where it has none. UID
// and Exe, where set, bind whoever speaks for it to a user and a program.
type Agent struct {
	ocip.Agent
	App string
	UID *uint32
	Exe string
	// Media are the folders out of which the agent may send files.
	Media []string
	// Tools is what becomes of its tool calls.
	Tools ToolMode
	// OwnTurns says that its runtime is believed about which messages begin a causal chain.
	OwnTurns bool
}

// ToolMode is what becomes of an agent's tool calls of which its runtime asks.
type ToolMode string

// A policy's answer about a tool call is put on record, holds, or is not asked for.
const (
	ToolsRecord  ToolMode = "record"
	ToolsEnforce ToolMode = "enforce"
	ToolsOff     ToolMode = "off"
)

// ownApp begins what stands for the app of an agent that has none. No app can register
// under such an id.
const ownApp = "@ocipd/agent:"

// AppOf is what stands for the app of an agent that has none: what it says and hears
// goes by grants.
func AppOf(agent string) string { return ownApp + agent }

// IsAgents reports whether what stands for an app is an agent without one.
func IsAgents(app string) bool { return strings.HasPrefix(app, ownApp) }

// Route says which agent inbound messages of a session are for. Session is a
// key, or the beginning of keys with * behind it.
type Route struct {
	Session string
	Agent   string
}

// Entry is one counterparty and the sessions that reach it: an agent, a person, or
// a group. Of a person the kind is any but an agent's: whether it is the owner,
// each agent sees for itself.
type Entry struct {
	ocip.Counterparty
	Sessions []string
	// Group is set for a group. Members are the instance ids and session keys of
	// who reads it; without any, nobody knows. It accepts what it says, and no more
	// than the one of them who accepts least.
	Group   bool
	Members []string

	// members are the entries of Members, and unsure is set where there may be
	// others.
	members []*Entry
	unsure  bool
	// addresses has for a channel the one address among Sessions, where it sends to
	// another name than some of Sessions has.
	addresses map[string]string
}

// Directory is who is who under one configuration.
type Directory struct {
	agents       map[string]*Agent
	byApp        map[string][]*Agent
	byInstance   map[string]*ocip.Counterparty
	local        map[string]*Agent
	routes       patterns[*Agent]
	defaultAgent *Agent
	access       access

	networks   map[string]*network
	anyNetwork *network
	// sessions are the entries by session key, places by address, and people by
	// names that their channel's app does not send to.
	sessions, places, people patterns[*Entry]
	// names are the sessions of entries by what they look like.
	names patterns[string]
}

// AgentChannel begins the session keys of agents. It is no channel's name.
const AgentChannel = "agent"

// New makes the directory of a configuration, which must not change afterwards.
func New(cfg *Config) (*Directory, error) {
	d := &Directory{
		agents: make(map[string]*Agent), byApp: make(map[string][]*Agent), byInstance: make(map[string]*ocip.Counterparty), local: make(map[string]*Agent),
		access: newAccess(cfg), networks: make(map[string]*network),
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		d.agents[a.ID] = a
		d.byApp[a.App] = append(d.byApp[a.App], a)
		d.byInstance[a.InstanceID] = a.Counterparty()
		d.local[a.InstanceID] = a
	}
	if err := d.list(cfg); err != nil {
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

// Counterparty is the agent as others see it.
func (a *Agent) Counterparty() *ocip.Counterparty {
	return &ocip.Counterparty{Kind: ocip.KindAgent, Identity: a.Identity, Accepts: a.MaxShared}
}

// Identified tells the agent from another one of its id.
func (a *Agent) Identified() string { return a.TenantID + "/" + a.InstanceID }

// Agent returns the agent of an id, nil where there is none.
func (d *Directory) Agent(id string) *Agent { return d.agents[id] }

// Local returns the agent of an instance id, nil where it is none of this
// daemon's.
func (d *Directory) Local(instance string) *Agent { return d.local[instance] }

// Knows reports whether an agent of this instance id is configured or listed.
func (d *Directory) Knows(instance string) bool { return d.byInstance[instance] != nil }

// Known returns the agent of an instance id, here or elsewhere, nil if there is none.
func (d *Directory) Known(instance string) *ocip.Counterparty { return d.byInstance[instance] }

// Routed returns the agent that a configured route names for a session.
func (d *Directory) Routed(key string) (*Agent, bool) { return d.routes.find(d.folded(key)) }

// Default returns the agent that inbound messages are for which nothing else
// leads to one, nil where there is none.
func (d *Directory) Default() *Agent { return d.defaultAgent }

// SpokenBy lists the agents that an app speaks for.
func (d *Directory) SpokenBy(app string) []*Agent { return d.byApp[app] }

// Sender returns the agent for which an app speaks, which it must name where
// there are several.
func (d *Directory) Sender(app, named string) (*Agent, error) {
	mine := d.byApp[app]
	if named := d.agents[named]; named != nil && mutant.Off("sender") {
		return named, nil
	}
	switch {
	case len(mine) == 0:
		return nil, fmt.Errorf("app %s speaks for no agent; bind one with agents[].app in the configuration", app)
	case named == "" && len(mine) == 1:
		return mine[0], nil
	case named == "":
		return nil, fmt.Errorf("app %s speaks for several agents; name one in metadata.agentId", app)
	}
	if i := slices.IndexFunc(mine, func(a *Agent) bool { return a.ID == named }); i >= 0 {
		return mine[i], nil
	}
	return nil, fmt.Errorf("app %s does not speak for agent %q", app, named)
}

// LocalAgent returns the agent of this daemon that a session key names.
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

// Split parts a session key into its channel and what is behind it.
func Split(key string) (channel, rest string) {
	channel, rest, _ = strings.Cut(key, ":")
	return channel, rest
}

// ChannelOf returns the channel of a session: agent:alice:telegram:1 is one of
// telegram, and agent:alice:main of the agent alone.
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

// folded is a session key, or the beginning of one, in the one spelling that it is
// compared by.
func (d *Directory) folded(key string) string {
	channel, rest := Split(key)
	return d.network(channel).foldedKey(key, rest)
}

// Lists reports whether the directory has somebody at a session.
func (d *Directory) Lists(key string) bool {
	channel, rest := Split(key)
	said := d.network(channel).parse(rest)
	at := d.find(channel, key, &said)
	return at.listed()
}

// ReplyKey is the session key that answers a message between local agents.
func ReplyKey(sender, receiver *Agent, target string) string {
	rest := target
	if i := len(receiver.ID) + 1; i < len(rest) {
		rest = rest[i:]
	} else {
		rest = "main"
	}
	return "agent:" + sender.ID + ":" + rest
}
