package fold

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// Set holds the open rows of all tables, according to the log up to a record. Its methods are safe
// for concurrent use.
type Set struct {
	mu     sync.Mutex
	tables []opens
	// undo lists the changes since [Set.Begin], the newest last.
	undo []undo
	// moved are the keys of the exchanges that changed since [Set.List], and unlisted those from
	// before it that the transaction in progress lists: see [Set.Unlisted].
	moved, unlisted map[string][]string
	restored        string
	newest          map[string]string
}

// opens are the open rows of one table.
type opens struct {
	rows map[string]*held
	// leaves are the leaves of the digest, by their first byte, one after another, and sums the
	// hashes of each group.
	leaves [256][]byte
	sums   [256]audit.Hash
	stale  [256]bool
	// dirty are the rows that changed since the last digest, with their leaves at that time.
	dirty map[string]*audit.Hash
	begun bool
}

// held is an open row. It is replaced, and never changes.
type held struct {
	key []string
	row Row
	// stated is the record that stated the whole row, and said the last that changed it; 0 is one
	// from before the set was filled.
	stated, said uint64
}

type undo struct {
	table Table
	key   string
	was   *held
}

// NewSet returns an empty set.
func NewSet() *Set {
	s := &Set{tables: make([]opens, len(definitions())), moved: make(map[string][]string)}
	for i := range s.tables {
		s.tables[i] = opens{rows: make(map[string]*held), dirty: make(map[string]*audit.Hash)}
	}
	return s
}

// ErrStale means that a change does not fit the current row.
var ErrStale = errors.New("the row is another one by now")

// Get returns an open row, nil for none, and the last record that changed it, 0 if that was
// before the set was filled.
func (s *Set) Get(t Table, key []string) (row Row, said uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.tables[t].rows[t.key(key)]; h != nil {
		return h.row, h.said
	}
	return nil, 0
}

// Each calls visit with each open row of a table, in no order, until it returns false.
func (s *Set) Each(t Table, visit func(key []string, row Row, stated, said uint64) bool) {
	s.mu.Lock()
	all := make([]*held, 0, len(s.tables[t].rows))
	for _, h := range s.tables[t].rows {
		all = append(all, h)
	}
	s.mu.Unlock()
	for _, h := range all {
		if !visit(h.key, h.row, h.stated, h.said) {
			return
		}
	}
}

// Restore notes the id of the newest state_restored record.
func (s *Set) Restore(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = id
}

// Restored returns the id of the newest state_restored record, "" for none.
func (s *Set) Restored() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restored
}

// SetNewest notes a value that must never go back, under a name.
func (s *Set) SetNewest(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		s.newest = make(map[string]string)
	}
	s.newest[name] = value
}

// Newest returns the values of [Set.SetNewest].
func (s *Set) Newest() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.newest)
}

// Put fills the set with a row, which is as it was before.
func (s *Set) Put(t Table, key []string, row Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(t, t.key(key), &held{key: key, row: row})
}

// Move notes that the database's list may differ from the set for an exchange.
func (s *Set) Move(key []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved[Exchanges.key(key)] = key
}

// Listing is an exchange in the database's list, and whether it is open.
type Listing struct {
	Key  []string
	Open bool
}

// List begins a list of the currently open exchanges, if at least so many have changed since the
// last one. It belongs to the transaction in progress.
func (s *Set) List(changed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.moved) < changed {
		return
	}
	if s.unlisted == nil {
		s.unlisted, s.moved = s.moved, make(map[string][]string)
		return
	}
	maps.Copy(s.unlisted, s.moved)
	clear(s.moved)
}

// Unlisted returns the exchanges that changed before the list that the transaction in progress has
// begun. The database keeps a list of the open exchanges, which is complete at each checkpoint, so
// that a start finds them without an index. Between checkpoints it may be ahead: a start reads the
// records since the checkpoint, and looks at their exchanges in any case.
func (s *Set) Unlisted() []Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	listings := make([]Listing, 0, len(s.unlisted))
	for id, key := range s.unlisted {
		listings = append(listings, Listing{key, s.tables[Exchanges].rows[id] != nil})
	}
	return listings
}

// Begin begins a transaction: changes from now on can be taken back.
func (s *Set) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo, s.unlisted = s.undo[:0], nil
}

// Rollback takes back the changes since [Set.Begin].
func (s *Set) Rollback() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range slices.Backward(s.undo) {
		s.put(u.table, u.key, u.was)
	}
	maps.Copy(s.moved, s.unlisted)
	s.undo, s.unlisted = s.undo[:0], nil
}

// Fits reports whether all changes fit the current rows.
func (s *Set) Fits(changes []Change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		var was Row
		if h := s.tables[c.Table].rows[c.id()]; h != nil {
			was = h.row
		}
		if _, fits := c.Apply(was); !fits || c.Stated && was == nil {
			return false
		}
	}
	return true
}

// Apply applies the changes of a record. It returns the first one that does not fit its row, which
// it applies all the same, and that row.
func (s *Set) Apply(seq uint64, at time.Time, changes []Change) (misfit *Change, was Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := at.UnixMilli()
	for i := range changes {
		c := &changes[i]
		key := c.id()
		before := s.tables[c.Table].rows[key]
		next := &held{key: c.Key, said: seq, stated: seq}
		var old Row
		if before != nil {
			old = before.row
			if c.New == nil {
				next.stated = before.stated
			}
			if c.Stated {
				next.said = before.said
			}
		}
		row, fits := c.Apply(old)
		if !fits && misfit == nil {
			misfit, was = c, old
		}
		next.row = row
		if !c.isOpen(row, now) {
			next = nil
		}
		s.undo = append(s.undo, undo{c.Table, key, before})
		s.put(c.Table, key, next)
		if c.Table == Exchanges {
			s.moved[key] = c.Key
		}
	}
	return misfit, was
}

// put replaces a row, by none if it is nil.
func (s *Set) put(t Table, key string, next *held) {
	o := &s.tables[t]
	before := o.rows[key]
	if before == nil && next == nil {
		return
	}
	if _, dirty := o.dirty[key]; !dirty {
		o.dirty[key] = nil
		if before != nil {
			leaf := t.Leaf(before.key, before.row)
			o.dirty[key] = &leaf
		}
	}
	if next == nil {
		delete(o.rows, key)
	} else {
		o.rows[key] = next
	}
	if len(o.dirty) >= dirtyTogether {
		o.settle(t)
	}
}

// State returns the digests of the tables that have open rows at a time. Rows that have ended by
// then leave the set.
func (s *Set) State(at time.Time) []audit.TableState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := []audit.TableState{}
	for i, t := range Tables() {
		if t.def().ends {
			for key, h := range s.tables[i].rows {
				if !t.isOpen(h.row, at.UnixMilli()) {
					s.undo = append(s.undo, undo{t, key, h})
					s.put(t, key, nil)
				}
			}
		}
		if one := s.tables[i].state(t); one.Open > 0 {
			state = append(state, one)
		}
	}
	return state
}

// dirtyTogether is the number of changed rows after which their leaves are computed, so that a
// checkpoint has few left.
const dirtyTogether = 64

// settle brings the leaves up to date with the rows.
func (o *opens) settle(t Table) {
	for key, old := range o.dirty {
		if old != nil {
			group := &o.leaves[old[0]]
			if at, found := find(*group, old); found {
				*group = slices.Delete(*group, at, at+len(old))
			}
			o.stale[old[0]] = true
		}
		if h := o.rows[key]; h != nil {
			leaf := t.Leaf(h.key, h.row)
			group := &o.leaves[leaf[0]]
			at, _ := find(*group, &leaf)
			*group = slices.Insert(*group, at, leaf[:]...)
			o.stale[leaf[0]] = true
		}
	}
	clear(o.dirty)
}

func (o *opens) state(t Table) audit.TableState {
	o.settle(t)
	for i := range o.leaves {
		if o.stale[i] || !o.begun {
			o.sums[i], o.stale[i] = sha256.Sum256(o.leaves[i]), false
		}
	}
	o.begun = true
	h := sha256.New()
	for i := range o.sums {
		h.Write(o.sums[i][:])
	}
	one := audit.TableState{Table: t.Name(), Open: len(o.rows)}
	h.Sum(one.Digest[:0])
	return one
}

// find returns the place of a leaf in a group, in bytes.
func find(group []byte, leaf *audit.Hash) (at int, found bool) {
	const size = len(leaf)
	at, found = sort.Find(len(group)/size, func(i int) int { return bytes.Compare(leaf[:], group[i*size:(i+1)*size]) })
	return at * size, found
}
