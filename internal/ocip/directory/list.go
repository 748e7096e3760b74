package directory

import (
	"fmt"
	"strings"
	"sync"

	"github.com/openclawos/ocipd/internal/base/text"
)

// end stands for the rest of a session that is listed by its beginning. No key contains it.
const end = "\x00"

// lister enters the entries of a configuration into a directory that is being made.
type lister struct{ *Directory }

// list enters all entries.
func (d lister) list(cfg *Config) error {
	for channel, n := range networks() {
		d.networks[channel] = n.with(&Profile{})
	}
	// MCP servers send to these, and treat capitals as small letters.
	for _, channel := range []string{"email", "github"} {
		d.networks[channel] = d.anyNetwork.with(&Profile{Case: text.CaseASCII})
	}
	for channel, p := range cfg.Channels {
		n, ok := d.networks[channel]
		if !ok {
			n = d.anyNetwork
		}
		d.networks[channel] = n.with(&p)
	}
	entries := cfg.Entries
	sessions := 0
	for i := range entries {
		sessions += len(entries[i].Sessions)
	}
	d.sessions.grow(sessions)
	d.places.grow(sessions)
	d.names.grow(sessions)
	// The appearances take about as long as the rest, and are in a map of their own.
	var looks sync.WaitGroup
	looks.Go(func() {
		for i := range entries {
			for k := range entries[i].Sessions {
				d.listLooks(&entries[i].Sessions[k])
			}
		}
	})
	err := d.listSessions(entries)
	looks.Wait()
	if err != nil {
		return err
	}
	return d.listMembers(entries, cfg.Agents)
}

// listLooks enters the appearance of one session of an entry, and those of the address and of anybody
// else in it.
func (d lister) listLooks(key *string) {
	s, channel, rest := d.listed(*key)
	if channel == AgentChannel {
		d.names.add(likeness(channel, rest), s.open, key)
		return
	}
	if s.who != "" || s.whoOpen {
		d.names.add(likeness(channel, s.who), s.whoOpen, key)
	}
	if s.placed() {
		d.names.add(likeness(channel, s.to), s.toOpen, key)
	}
}

// listedSession is a session of an entry: whether it is a beginning of keys, the address in it and
// anybody else that it names, each with whether that is a beginning.
type listedSession struct {
	open, whoOpen, toOpen bool
	prefix, who, to       string
	said                  conversation
	network               *network
}

func (d lister) listed(key string) (s listedSession, channel, rest string) {
	s.prefix, s.open = text.Pattern(key)
	channel, rest = Split(s.prefix)
	s.network = d.network(channel)
	if channel == AgentChannel {
		return s, channel, rest
	}
	tail := ""
	if s.open {
		tail = end
	}
	s.said = s.network.parse(rest + tail)
	s.who, s.whoOpen = strings.CutSuffix(s.said.who, end)
	s.to, s.toOpen = strings.CutSuffix(s.said.to, end)
	return s, channel, rest
}

// placed reports whether a session has an address, or the beginning of some. The beginning of a name
// that the app chose can be that of any key. A group's session with somebody belongs to that person,
// not to the group.
func (s *listedSession) placed() bool {
	return (s.to != "" || s.toOpen) && (!s.toOpen || !s.said.name) && (!s.said.many || s.said.who == "" || s.whoOpen)
}

// listSessions enters the entries by their instance ids and sessions.
func (d lister) listSessions(entries []Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.InstanceID != "" && !e.Group {
			d.byInstance[e.InstanceID] = &e.Counterparty
		}
		if e.Host != "" {
			d.remote[e.InstanceID] = e
		}
		for _, key := range e.Sessions {
			if err := d.listSession(e, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// listSession enters one session of an entry: its key, the address in it, and anybody else that it
// names.
func (d lister) listSession(e *Entry, key string) error {
	s, channel, rest := d.listed(key)
	if err := spelled("directory session", s.prefix); err != nil && s.prefix != "" {
		return err
	}
	n := s.network
	d.sessions.add(n.foldedKey(s.prefix, rest), s.open, e)
	if s.who != "" || s.whoOpen {
		if err := enter(&d.people, channel+":"+n.folded(s.who), s.whoOpen, e, key); err != nil {
			return err
		}
	}
	if !s.placed() {
		return nil
	}
	group := s.said.many
	if s.to != "" && n.many != nil {
		group = n.many(s.to)
	}
	if !s.toOpen && !group {
		d.listAddress(e, n, channel, s.to)
	}
	return enter(&d.places, n.place(channel, n.folded(s.to), group), s.toOpen, e, key)
}

// listAddress notes the address of an entry on a channel whose app sends to another name than some keys
// have.
func (d lister) listAddress(e *Entry, n *network, channel, to string) {
	addresses := d.addresses[e]
	if addresses == nil && n.sendsElsewhere() {
		addresses = make(map[string]string)
		d.addresses[e] = addresses
	}
	if before, more := addresses[channel]; addresses != nil && (!more || before == to) {
		addresses[channel] = to
	} else if more {
		addresses[channel] = "" // there are several, and none is preferred
	}
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
func (d lister) listMembers(entries []Entry, agents []Agent) error {
	var byInstance map[string]*Entry
	for i := range entries {
		group := &entries[i]
		if !group.Group {
			continue
		}
		if byInstance == nil {
			byInstance = entriesByInstance(entries, agents)
		}
		r := &readers{unsure: len(group.Members) == 0}
		d.groups[group] = r
		for _, name := range group.Members {
			member := byInstance[name]
			if strings.Contains(name, ":") {
				member = d.listedAt(name)
			}
			switch {
			case member == nil:
				r.unsure = true
			case member.Group:
				return fmt.Errorf("cannot list %s as a member of %s: a group has people and agents for members, and no groups", name, group.name())
			default:
				r.members = append(r.members, member)
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
