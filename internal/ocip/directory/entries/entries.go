// Package entries holds the entries of a long directory in little memory: their texts one after
// another in one string, and 32 bytes besides for each entry. The configuration and the directory
// of the kernel share one list.
package entries

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Entry is one entry as it is written, with the meaning of the configuration's members.
type Entry struct {
	Kind       string
	InstanceID string
	UserID     string
	OrgUnit    string
	TenantID   string
	Accepts    []string
	Sessions   []string
	Members    []string
}

// List is a list of entries. It never changes once it is built. A nil list is empty.
type List struct {
	text string
	rows []row
	// ends are the places in the text behind each session. A session begins at the end of the one
	// before it, or behind the ids of its entry.
	ends []uint32
	// words are the kinds, units and tenants, and sets the lists of accepted levels, each once.
	words   []string
	sets    [][]string
	members map[int][]string
	// blank are the entries with an empty list of sessions, other than those without one.
	blank map[int]bool
}

// row is one entry. Its text begins at that byte with the instance id and the user id, and its
// sessions begin with that number.
type row struct {
	at, sessions       uint32
	instance, user     uint32
	kind, unit, tenant uint32
	accepts            uint32
}

// Len is the number of entries, and Sessions that of their sessions.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.rows)
}

// Sessions is the number of sessions of all entries.
func (l *List) Sessions() int {
	if l == nil {
		return 0
	}
	return len(l.ends)
}

// Sets are the different lists of accepted levels, see [List.Accepts].
func (l *List) Sets() [][]string {
	if l == nil {
		return nil
	}
	return l.sets
}

// At returns an entry.
func (l *List) At(i int) Entry {
	from, to := l.SessionsOf(i)
	e := l.Who(i)
	if to > from || l.blank[i] {
		e.Sessions = make([]string, 0, to-from)
	}
	for n := from; n < to; n++ {
		e.Sessions = append(e.Sessions, l.SessionOf(i, n))
	}
	return e
}

// Who returns an entry without its sessions. It allocates nothing.
func (l *List) Who(i int) Entry {
	r := &l.rows[i]
	user := r.at + r.instance
	return Entry{
		Kind: l.words[r.kind], InstanceID: l.text[r.at:user], UserID: l.text[user : user+r.user], OrgUnit: l.words[r.unit], TenantID: l.words[r.tenant],
		Accepts: l.sets[r.accepts], Members: l.members[i],
	}
}

// Instance is the instance id of an entry.
func (l *List) Instance(i int) string { return l.text[l.rows[i].at:][:l.rows[i].instance] }

// Accepts is the number of an entry's accepted levels in [List.Sets].
func (l *List) Accepts(i int) int { return int(l.rows[i].accepts) }

// SessionsOf returns the numbers of an entry's sessions: the first, and that behind the last.
func (l *List) SessionsOf(i int) (from, to int) {
	from, to = int(l.rows[i].sessions), len(l.ends)
	if i+1 < len(l.rows) {
		to = int(l.rows[i+1].sessions)
	}
	return from, to
}

// owner returns the entry of a session.
func (l *List) owner(session int) int {
	// An entry without sessions has the number of the next one's first.
	return sort.Search(len(l.rows), func(i int) bool { return int(l.rows[i].sessions) > session }) - 1
}

// Session returns a session by its number, and its entry.
func (l *List) Session(session int) (key string, owner int) {
	owner = l.owner(session)
	return l.SessionOf(owner, session), owner
}

// SessionOf returns a session of an entry by the session's number.
func (l *List) SessionOf(i, session int) string {
	r := &l.rows[i]
	from := r.at + r.instance + r.user
	if session > int(r.sessions) {
		from = l.ends[session-1]
	}
	return l.text[from:l.ends[session]]
}

// Same reports whether an entry equals one of another list.
func (l *List) Same(i int, as *List, k int) bool {
	a, b := l.Who(i), as.Who(k)
	if a.Kind != b.Kind || a.InstanceID != b.InstanceID || a.UserID != b.UserID || a.OrgUnit != b.OrgUnit || a.TenantID != b.TenantID ||
		!slices.Equal(a.Accepts, b.Accepts) || !slices.Equal(a.Members, b.Members) {
		return false
	}
	from, to := l.SessionsOf(i)
	begin, end := as.SessionsOf(k)
	if end-begin != to-from {
		return false
	}
	for n := range to - from {
		if l.SessionOf(i, from+n) != as.SessionOf(k, begin+n) {
			return false
		}
	}
	return true
}

// Builder builds a list.
type Builder struct {
	text  strings.Builder
	l     List
	words map[string]uint32
	// last is the set that the entry before has, which is nearly always that of the next.
	last uint32
	sets map[string]uint32
}

// Add adds an entry. It keeps none of the entry's memory.
func (b *Builder) Add(e *Entry) {
	r := row{
		at: uint32(b.text.Len()), sessions: uint32(len(b.l.ends)), instance: uint32(len(e.InstanceID)), user: uint32(len(e.UserID)),
		kind: b.word(e.Kind), unit: b.word(e.OrgUnit), tenant: b.word(e.TenantID), accepts: b.set(e.Accepts),
	}
	b.text.WriteString(e.InstanceID)
	b.text.WriteString(e.UserID)
	for _, s := range e.Sessions {
		b.text.WriteString(s)
		b.l.ends = append(b.l.ends, uint32(b.text.Len()))
	}
	i := len(b.l.rows)
	if e.Sessions != nil && len(e.Sessions) == 0 {
		b.blank(i)
	}
	b.members(i, e.Members)
	b.l.rows = append(b.l.rows, r)
}

func (b *Builder) members(i int, members []string) {
	if members == nil {
		return
	}
	if b.l.members == nil {
		b.l.members = make(map[int][]string)
	}
	kept := make([]string, len(members))
	for i, m := range members {
		kept[i] = strings.Clone(m)
	}
	b.l.members[i] = kept
}

func (b *Builder) blank(i int) {
	if b.l.blank == nil {
		b.l.blank = make(map[int]bool)
	}
	b.l.blank[i] = true
}

func (b *Builder) word(s string) uint32 {
	n, ok := b.words[s]
	if !ok {
		if b.words == nil {
			b.words = make(map[string]uint32)
		}
		n, s = uint32(len(b.l.words)), strings.Clone(s)
		b.words[s], b.l.words = n, append(b.l.words, s)
	}
	return n
}

func (b *Builder) set(accepts []string) uint32 {
	if int(b.last) < len(b.l.sets) && slices.Equal(b.l.sets[b.last], accepts) && (accepts == nil) == (b.l.sets[b.last] == nil) {
		return b.last
	}
	name := fmt.Sprintf("%#v", accepts)
	n, ok := b.sets[name]
	if !ok {
		if b.sets == nil {
			b.sets = make(map[string]uint32)
		}
		kept := slices.Clone(accepts)
		for i := range kept {
			kept[i] = strings.Clone(kept[i])
		}
		n = uint32(len(b.l.sets))
		b.sets[name], b.l.sets = n, append(b.l.sets, kept)
	}
	b.last = n
	return n
}

// Join builds one list of the entries of several builders, which must not be used afterwards.
func Join(parts []*Builder) *List {
	all := new(Builder)
	size, rows, ends := 0, 0, 0
	for _, b := range parts {
		size, rows, ends = size+b.text.Len(), rows+len(b.l.rows), ends+len(b.l.ends)
	}
	all.text.Grow(size)
	all.l.rows, all.l.ends = make([]row, 0, rows), make([]uint32, 0, ends)
	for _, b := range parts {
		all.join(b)
	}
	all.l.text = all.text.String()
	return &all.l
}

func (b *Builder) join(part *Builder) {
	at, sessions, entries := uint32(b.text.Len()), uint32(len(b.l.ends)), len(b.l.rows)
	b.text.WriteString(part.text.String())
	words, sets := make([]uint32, len(part.l.words)), make([]uint32, len(part.l.sets))
	for i, word := range part.l.words {
		words[i] = b.word(word)
	}
	for i, set := range part.l.sets {
		sets[i] = b.set(set)
	}
	for _, r := range part.l.rows {
		r.at, r.sessions = r.at+at, r.sessions+sessions
		r.kind, r.unit, r.tenant, r.accepts = words[r.kind], words[r.unit], words[r.tenant], sets[r.accepts]
		b.l.rows = append(b.l.rows, r)
	}
	for _, end := range part.l.ends {
		b.l.ends = append(b.l.ends, end+at)
	}
	for i, members := range part.l.members {
		b.members(entries+i, members)
	}
	for i := range part.l.blank {
		b.blank(entries + i)
	}
}

// Len is the number of entries so far.
func (b *Builder) Len() int { return len(b.l.rows) }

// Of builds a list of some entries.
func Of(all ...Entry) *List {
	var b Builder
	for i := range all {
		b.Add(&all[i])
	}
	return Join([]*Builder{&b})
}
