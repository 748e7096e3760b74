package directory

import (
	"fmt"
	"iter"
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
	heard := func(n int) listedSession {
		key, _ := d.session(n)
		return d.heard(key)
	}
	d.sessions.key = func(n int) string { return heard(n).session() }
	d.people.key = func(n int) string { return heard(n).person() }
	d.places.key = func(n int) string { return heard(n).place() }
	d.names.key = d.look
	count := len(d.written) + d.listed.Sessions()
	d.sessions.exact.Grow(count)
	d.places.exact.Grow(count)
	d.names.exact.Grow(count)
	d.instances.Grow(d.listed.Len())
	// The appearances take about as long as the rest, and are in a table of their own.
	var looks sync.WaitGroup
	looks.Go(func() {
		for n, key := range d.inOrder() {
			d.listLooks(n, key)
		}
	})
	err := d.listSessions()
	looks.Wait()
	if err != nil {
		return err
	}
	return d.listMembers()
}

// inOrder are all sessions with their numbers, in the order in which they are entered: of two with
// one key, the later one is found. Those of other hosts come last.
func (d lister) inOrder() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for n, s := range d.written {
			if d.own[s.entry].Host == "" && !yield(n, s.key) {
				return
			}
		}
		for i := range d.listed.Len() {
			from, to := d.listed.SessionsOf(i)
			for n := from; n < to; n++ {
				if !yield(len(d.written)+n, d.listed.SessionOf(i, n)) {
					return
				}
			}
		}
		for n, s := range d.written {
			if d.own[s.entry].Host != "" && !yield(n, s.key) {
				return
			}
		}
	}
}

// The appearances of a session have two numbers: twice the session's for anybody whom it names besides
// the address, and one more for the address, or for the rest of an agent's key.
const (
	lookOfWho = iota
	lookOfAddress
	looksOfOne
)

// look makes the appearance of a number.
func (d lister) look(number int) string {
	key, _ := d.session(number / looksOfOne)
	s := d.heard(key)
	switch {
	case s.channel == AgentChannel:
		return likeness(s.channel, s.rest)
	case number%looksOfOne == lookOfWho:
		return likeness(s.channel, s.who)
	default:
		return likeness(s.channel, s.to)
	}
}

// listLooks enters the appearances of one session of an entry.
func (d lister) listLooks(n int, key string) {
	s := d.heard(key)
	if s.channel == AgentChannel {
		d.names.add(likeness(s.channel, s.rest), s.open, looksOfOne*n+lookOfAddress)
		return
	}
	if s.who != "" || s.whoOpen {
		d.names.add(likeness(s.channel, s.who), s.whoOpen, looksOfOne*n+lookOfWho)
	}
	if s.placed() {
		d.names.add(likeness(s.channel, s.to), s.toOpen, looksOfOne*n+lookOfAddress)
	}
}

// listedSession is a session of an entry: whether it is a beginning of keys, the address in it and
// anybody else that it names, each with whether that is a beginning.
type listedSession struct {
	open, whoOpen, toOpen bool
	prefix, channel, rest string
	who, to               string
	said                  conversation
	network               *network
}

// heard reads a session of an entry.
func (c *channels) heard(key string) (s listedSession) {
	s.prefix, s.open = text.Pattern(key)
	s.channel, s.rest = Split(s.prefix)
	s.network = c.network(s.channel)
	if s.channel == AgentChannel {
		return s
	}
	rest := s.rest
	if s.open {
		rest += end
	}
	s.said = s.network.parse(rest)
	s.who, s.whoOpen = strings.CutSuffix(s.said.who, end)
	s.to, s.toOpen = strings.CutSuffix(s.said.to, end)
	return s
}

// session is the key by which the session is found, person that of anybody else that it names, and
// place that of its address.
func (s listedSession) session() string { return s.network.foldedKey(s.prefix, s.rest) }

func (s listedSession) person() string { return s.channel + ":" + s.network.folded(s.who) }

func (s listedSession) place() string {
	return s.network.place(s.channel, s.network.folded(s.to), s.many())
}

// many reports whether several read at its address.
func (s listedSession) many() bool {
	if s.to != "" && s.network.many != nil {
		return s.network.many(s.to)
	}
	return s.said.many
}

// placed reports whether a session has an address, or the beginning of some. The beginning of a name
// that the app chose can be that of any key. A group's session with somebody belongs to that person,
// not to the group.
func (s listedSession) placed() bool {
	return (s.to != "" || s.toOpen) && (!s.toOpen || !s.said.name) && (!s.said.many || s.said.who == "" || s.whoOpen)
}

// listSessions enters the entries by their instance ids and sessions.
func (d lister) listSessions() error {
	for i := range d.own {
		e := &d.own[i]
		if e.InstanceID != "" && !e.Group {
			d.byInstance[e.InstanceID] = &e.Counterparty
		}
		if e.Host != "" {
			d.remote[e.InstanceID] = e
		}
	}
	for i := range d.listed.Len() {
		if id := d.listed.Instance(i); id != "" {
			d.instances.Set(id, i, func(i int) bool { return d.listed.Instance(i) == id })
		}
	}
	for n, key := range d.inOrder() {
		if err := d.listSession(n, key); err != nil {
			return err
		}
	}
	return nil
}

// listSession enters one session of an entry: its key, the address in it, and anybody else that it
// names.
func (d lister) listSession(n int, key string) error {
	s := d.heard(key)
	if err := spelledKey("directory session", s.prefix); err != nil && s.prefix != "" {
		return err
	}
	d.sessions.add(s.session(), s.open, n)
	if s.who != "" || s.whoOpen {
		if err := d.enter(&d.people, s.person(), s.whoOpen, n, key); err != nil {
			return err
		}
	}
	if !s.placed() {
		return nil
	}
	return d.enter(&d.places, s.place(), s.toOpen, n, key)
}

// enter adds one way to find an entry, unless it already finds another.
func (d lister) enter(x *index, name string, open bool, n int, key string) error {
	before, had := x.add(name, open, n)
	if !had || open {
		return nil
	}
	_, was := d.session(before)
	if _, is := d.session(n); is != was {
		return fmt.Errorf("cannot list session %s for %s: it is one address with a session of %s", key, d.nameOf(d.entry(is)), d.nameOf(d.entry(was)))
	}
	return nil
}

// nameOf returns the name of an entry for errors.
func (b *book) nameOf(e *Entry) string {
	if e.InstanceID != "" {
		return e.InstanceID
	}
	if sessions := b.sessionsOf(e); len(sessions) > 0 {
		return sessions[0]
	}
	return "another entry"
}

// listMembers finds the members of the groups.
func (d lister) listMembers() error {
	for n := range len(d.own) + d.listed.Len() {
		if !d.isGroup(n) {
			continue
		}
		group := d.entry(n)
		r := &readers{unsure: len(group.Members) == 0}
		d.groups[group.number] = r
		for _, name := range group.Members {
			member := d.member(name)
			switch {
			case member == nil:
				r.unsure = true
			case member.Group:
				return fmt.Errorf("cannot list %s as a member of %s: a group has people and agents for members, and no groups", name, d.nameOf(group))
			default:
				r.members = append(r.members, member)
			}
		}
	}
	return nil
}

// member returns the entry of a group's member, which is an instance id or a session.
func (d lister) member(name string) *Entry {
	if strings.Contains(name, ":") {
		return d.listedAt(name)
	}
	if a := d.local[name]; a != nil {
		return &Entry{Counterparty: *a.Counterparty()}
	}
	for i := range d.own {
		if e := &d.own[i]; e.InstanceID == name {
			return e
		}
	}
	if i, ok := d.listedInstance(name); ok {
		return d.entry(len(d.own) + i)
	}
	return nil
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
