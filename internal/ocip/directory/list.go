package directory

import (
	"fmt"
	"github.com/openclawos/ocipd/internal/base/text"
	"slices"
	"strings"
)

// end stands for the rest of a session that is listed by its beginning. No key contains it.
const end = "\x00"

// list enters the entries of a configuration.
func (d *Directory) list(cfg *Config) error {
	unknown := anyNetwork()
	d.anyNetwork = &unknown
	for channel, n := range networks() {
		d.networks[channel] = n.with(&Profile{})
	}
	// MCP servers send to these, and treat capitals as small letters.
	for _, channel := range []string{"email", "github"} {
		d.networks[channel] = unknown.with(&Profile{Case: text.CaseASCII})
	}
	for channel, p := range cfg.Channels {
		n, ok := d.networks[channel]
		if !ok {
			n = d.anyNetwork
		}
		d.networks[channel] = n.with(&p)
	}
	// Entries are completed here; the configuration's own stay unchanged.
	entries := slices.Clone(cfg.Entries)
	sessions := 0
	for i := range entries {
		sessions += len(entries[i].Sessions)
	}
	d.sessions.grow(sessions)
	d.places.grow(sessions)
	d.names.grow(sessions)
	for i := range entries {
		e := &entries[i]
		if e.InstanceID != "" && !e.Group {
			d.byInstance[e.InstanceID] = &e.Counterparty
		}
		for _, key := range e.Sessions {
			if err := d.listSession(e, key); err != nil {
				return err
			}
		}
	}
	return d.listMembers(entries, cfg.Agents)
}

// listSession enters one session of an entry: its key, the address in it, anybody else that it
// names, and its appearance.
func (d *Directory) listSession(e *Entry, key string) error {
	prefix, open := text.Pattern(key)
	if err := spelled("directory session", prefix); err != nil && prefix != "" {
		return err
	}
	tail := ""
	if open {
		tail = end
	}
	channel, rest := Split(prefix)
	n := d.network(channel)
	d.sessions.add(n.foldedKey(prefix, rest), open, e)
	if channel == AgentChannel {
		d.names.add(likeness(channel, rest), open, key)
		return nil
	}
	said := n.parse(rest + tail)
	who, whoOpen := strings.CutSuffix(said.who, end)
	to, toOpen := strings.CutSuffix(said.to, end)
	if who != "" || whoOpen {
		if err := enter(&d.people, channel+":"+n.folded(who), whoOpen, e, key); err != nil {
			return err
		}
		d.names.add(likeness(channel, who), whoOpen, key)
	}
	// The beginning of a name that the app chose can be that of any key. A group's session with
	// somebody belongs to that person, not to the group.
	if to == "" && !toOpen || toOpen && said.name || said.many && said.who != "" && !whoOpen {
		return nil
	}
	group := said.many
	if to != "" && n.many != nil {
		group = n.many(to)
	}
	d.names.add(likeness(channel, to), toOpen, key)
	if !toOpen && !group {
		if e.addresses == nil && n.sendsElsewhere() {
			e.addresses = make(map[string]string)
		}
		if before, more := e.addresses[channel]; e.addresses != nil && (!more || before == to) {
			e.addresses[channel] = to
		} else if more {
			e.addresses[channel] = "" // there are several, and none is preferred
		}
	}
	return enter(&d.places, n.place(channel, n.folded(to), group), toOpen, e, key)
}

// sendsElsewhere reports whether some keys of a channel name a person by a name to which the app
// does not send.
func (n *network) sendsElsewhere() bool {
	for i := range n.forms {
		if len(n.forms[i].parts) == 2 && n.forms[i].parts[1] == whoPart {
			return true
		}
	}
	return false
}

// enter adds one way to find an entry, unless it already finds another.
func enter(p *patterns[*Entry], name string, open bool, e *Entry, key string) error {
	if before, ok := p.exact[name]; ok && !open && before != e {
		return fmt.Errorf("cannot list session %s for %s: it is one address with a session of %s", key, e.name(), before.name())
	}
	p.add(name, open, e)
	return nil
}

// name returns the name of an entry for errors.
func (e *Entry) name() string {
	switch {
	case e.InstanceID != "":
		return e.InstanceID
	case len(e.Sessions) > 0:
		return e.Sessions[0]
	default:
		return "another entry"
	}
}

// listMembers finds the members of the groups.
func (d *Directory) listMembers(entries []Entry, agents []Agent) error {
	var byInstance map[string]*Entry
	for i := range entries {
		group := &entries[i]
		if !group.Group {
			continue
		}
		if byInstance == nil {
			byInstance = entriesByInstance(entries, agents)
		}
		group.members, group.unsure = nil, len(group.Members) == 0
		for _, name := range group.Members {
			member := byInstance[name]
			if strings.Contains(name, ":") {
				member = d.listedAt(name)
			}
			switch {
			case member == nil:
				group.unsure = true
			case member.Group:
				return fmt.Errorf("cannot list %s as a member of %s: a group has people and agents for members, and no groups", name, group.name())
			default:
				group.members = append(group.members, member)
			}
		}
	}
	return nil
}

func entriesByInstance(entries []Entry, agents []Agent) map[string]*Entry {
	found := make(map[string]*Entry, len(entries)+len(agents))
	for i := range entries {
		if id := entries[i].InstanceID; id != "" {
			found[id] = &entries[i]
		}
	}
	for i := range agents {
		a := &agents[i]
		found[a.InstanceID] = &Entry{Counterparty: *a.Counterparty()}
	}
	return found
}

// listedAt returns the entry of a session, or nil.
func (d *Directory) listedAt(key string) *Entry {
	if a := d.LocalAgent(key); a != nil {
		return &Entry{Counterparty: *a.Counterparty()}
	}
	channel, rest := Split(key)
	said := d.network(channel).parse(rest)
	at := d.find(channel, key, &said)
	return at.key
}
