package directory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

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
	if !a.Declared() {
		return nil
	}
	why := a.why()
	lacks := a.missingUIDs(cfg)
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

// missingUIDs returns the lines that say which user an agent's app runs as, if apps have several.
func (x *access) missingUIDs(cfg *Config) (lacks []Declaration) {
	if len(x.uids) < 2 {
		return nil
	}
	own := x.uids[0]
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
	return lacks
}

// why gives the reason that everything must be declared.
func (x *access) why() string {
	switch {
	case len(x.tenants) > 1:
		return "the agents are of several tenants (" + strings.Join(x.tenants, ", ") + ")"
	case len(x.uids) > 1:
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
func (x *access) tenantsOf(cfg *Config, channels []string) []string {
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
		return x.tenants
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
