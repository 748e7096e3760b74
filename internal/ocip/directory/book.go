package directory

import (
	"iter"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// Listed is a long list of entries, and the highest level of each of its sets of accepted levels.
type Listed struct {
	*entries.List
	Levels []ocip.Level
}

// groupKind is the kind of groups in the configuration.
const groupKind = "group"

// EntryOf returns an entry of the configuration. Accepts is the highest level that it accepts.
func EntryOf(e *entries.Entry, accepts ocip.Level) Entry {
	is := Entry{Counterparty: ocip.Counterparty{
		Kind: ocip.KindAgent, Accepts: accepts,
		Identity: ocip.Identity{InstanceID: e.InstanceID, UserID: e.UserID, OrgUnit: e.OrgUnit, TenantID: e.TenantID},
	}, Sessions: e.Sessions}
	switch e.Kind {
	case "person":
		is.Kind = ocip.KindPerson
	case groupKind:
		is.Kind, is.Group, is.Members = ocip.KindUnknown, true, e.Members
	}
	return is
}

// All are the entries of a configuration: the few, and then the listed ones.
func (c *Config) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for i := range c.Entries {
			if !yield(&c.Entries[i]) {
				return
			}
		}
		for i := range c.Listed.Len() {
			e := c.Listed.At(i)
			if is := EntryOf(&e, c.Listed.Levels[c.Listed.Accepts(i)]); !yield(&is) {
				return
			}
		}
	}
}

// book has the entries of a directory and their sessions by number: first the few, and then the
// listed ones.
type book struct {
	own []Entry
	// written are the sessions of the few, each with its entry.
	written []ownSession
	listed  Listed
	// instances finds the listed entries by instance id.
	instances entries.Table
}

type ownSession struct {
	key   string
	entry int
}

func newBook(cfg *Config) book {
	b := book{own: make([]Entry, len(cfg.Entries)), listed: cfg.Listed}
	for i := range cfg.Entries {
		b.own[i] = cfg.Entries[i]
		b.own[i].number = i + 1
		for _, key := range b.own[i].Sessions {
			b.written = append(b.written, ownSession{key, i})
		}
	}
	return b
}

// entry returns an entry by its number, a listed one without its sessions.
func (b *book) entry(n int) *Entry {
	if n < len(b.own) {
		return &b.own[n]
	}
	i := n - len(b.own)
	who := b.listed.Who(i)
	e := EntryOf(&who, b.listed.Levels[b.listed.Accepts(i)])
	e.number = n + 1
	return &e
}

// isGroup reports whether the entry of a number is a group.
func (b *book) isGroup(n int) bool {
	if n < len(b.own) {
		return b.own[n].Group
	}
	return b.listed.Who(n-len(b.own)).Kind == groupKind
}

// sessionsOf returns the sessions of an entry.
func (b *book) sessionsOf(e *Entry) []string {
	if e.number <= len(b.own) {
		return e.Sessions
	}
	return b.listed.At(e.number - 1 - len(b.own)).Sessions
}

// session returns a session by its number, and the number of its entry.
func (b *book) session(n int) (key string, entry int) {
	if n < len(b.written) {
		return b.written[n].key, b.written[n].entry
	}
	key, i := b.listed.Session(n - len(b.written))
	return key, len(b.own) + i
}

// reached returns the entry of a session that an index has found, nil for none.
func (b *book) reached(session int, ok bool) *Entry {
	if !ok {
		return nil
	}
	_, n := b.session(session)
	return b.entry(n)
}

// listedInstance returns the listed entry of an instance id, by its place in the list.
func (b *book) listedInstance(instance string) (i int, ok bool) {
	return b.instances.Find(instance, func(i int) bool { return b.listed.Instance(i) == instance })
}

// is reports whether two entries are the same.
func (e *Entry) is(other *Entry) bool {
	return e == other || e != nil && other != nil && e.number != 0 && e.number == other.number
}

// elsewhere returns the only address in the directory for the entry of a session whose key names
// none: the one address among the entry's sessions of the channel. Of several, none is preferred.
func (d *Directory) elsewhere(f *found, channel string) (address string) {
	if f.key == nil {
		return ""
	}
	for _, key := range d.sessionsOf(f.key) {
		s := d.heard(key)
		if s.channel != channel || !s.placed() || s.toOpen || s.many() {
			continue
		}
		if address != "" && address != s.to {
			return ""
		}
		address = s.to
	}
	return address
}
