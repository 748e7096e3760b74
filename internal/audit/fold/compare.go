package fold

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// Difference is one difference between rows and the log.
type Difference struct {
	Table Table
	// Key is the row's key, nil if it is not known which row it is.
	Key []string
	// Record is the last record about it, 0 for none.
	Record  uint64
	Problem string
}

func (d *Difference) String() string {
	if d.Key == nil {
		return d.Problem
	}
	return d.Table.Named(d.Key) + ": " + d.Problem
}

// Named returns a row's name for people.
func (t Table) Named(key []string) string {
	noun := t.def().noun
	if t == Exchanges {
		return fmt.Sprintf("%s %s of agent %s", noun, key[1], key[0])
	}
	if t == AppProcesses {
		return noun + " " + key[1]
	}
	return noun + " " + key[0]
}

// differ compares a row with the log's statement. Said is the last record about it, 0 if that is
// before the records that were read.
func (t Table) differ(key []string, row, says Row, open bool, said uint64) []Difference {
	record := fmt.Sprintf("record %d", said)
	if said == 0 {
		record = "the log"
	}
	one := func(format string, args ...any) Difference {
		return Difference{Table: t, Key: key, Record: said, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case row == nil && says == nil:
		return nil
	case row == nil:
		return []Difference{one("there is no such row, and %s has one", record)}
	case says == nil && said == 0:
		return []Difference{one("the row says that it is %s, and no record does", t.standing(row, open))}
	case says == nil:
		return []Difference{one("the row says that it is %s, and %s ended it", t.standing(row, open), record)}
	}
	var all []Difference
	// Rows of an earlier form have fewer columns.
	for i, name := range t.Columns()[:min(len(row), len(says))] {
		if row[i] != says[i] {
			all = append(all, one("the row says %s %s, %s says %s", name, quoted(row[i]), record, quoted(says[i])))
		}
	}
	return all
}

func quoted(text string) string {
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '_' && c != '-' {
			return fmt.Sprintf("%q", text)
		}
	}
	if text == "" {
		return `""`
	}
	return text
}

// standing describes an open row's state in a word.
func (t Table) standing(row Row, open bool) string {
	for i, name := range t.Columns() {
		if name == "state" || name == "outcome" {
			return row[i]
		}
	}
	if open {
		return "open"
	}
	return "there"
}

// Found are rows of a database, by table.
type Found struct{ tables []map[string]foundRow }

type foundRow struct {
	key []string
	row Row
}

// NewFound returns an empty Found.
func NewFound() *Found {
	f := &Found{tables: make([]map[string]foundRow, len(definitions()))}
	for i := range f.tables {
		f.tables[i] = make(map[string]foundRow)
	}
	return f
}

// Put adds a row as it is in the database.
func (f *Found) Put(t Table, key []string, row Row) { f.tables[t][t.key(key)] = foundRow{key, row} }

// Has reports whether a row was added.
func (f *Found) Has(t Table, key []string) bool {
	_, there := f.tables[t][t.key(key)]
	return there
}

// former returns the rows in a log's form.
func (f *Found) former(form int) *Found {
	if form >= Form {
		return f
	}
	all := NewFound()
	f.Each(func(t Table, key []string, row Row) {
		if t.def().since <= form {
			all.Put(t, key, t.former(row, form))
		}
	})
	return all
}

// Each calls visit with each row.
func (f *Found) Each(visit func(t Table, key []string, row Row)) {
	for i, rows := range f.tables {
		for _, one := range rows {
			visit(Table(i), one.key, one.row)
		}
	}
}

// Since compares rows with a checkpoint that counts them, and the records after it.
type Since struct {
	// Base is the record that counts the rows, At its time, and State its count.
	Base  uint64
	At    time.Time
	State []audit.TableState
	// Form is the log's form. A log without a checkpoint that counts the rows has the newest.
	Form int
	// Restored is the id of the newest state_restored record before the newest checkpoint.
	Restored string
	// Newest are the values that must never go back, as the newest checkpoint has them.
	Newest map[string]string
	said   []Said
	// Marks is set if a record makes a statement about rows that no earlier version of the daemon
	// writes.
	Marks bool
}

// Add takes the next record after the base. If it counts the rows again, it becomes the base.
func (s *Since) Add(text []byte) error {
	said, silent, err := heard(text)
	if silent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("audit record %d: %w", said.Seq, err)
	}
	s.Marks = s.Marks || said.marks()
	switch {
	case said.Counted:
		s.Base, s.At, s.State, s.Form, s.said = said.Seq, said.Time, said.State, said.Form, nil
		s.Restored, s.Newest = said.Restored, said.Newest
	case len(said.Changes) > 0:
		s.said = append(s.said, said)
	}
	return nil
}

// marks reports whether the record says more of a row than that a message went.
func (s *Said) marks() bool {
	return s.Counted || s.Adopts || slices.ContainsFunc(s.Changes, func(c Change) bool {
		return c.New != nil || len(c.Cells) != 1 || c.Table != Exchanges || c.Cells[0].Column != columnRound
	})
}

// Touched calls visit with the table and key of each row that changes after the base.
func (s *Since) Touched(visit func(t Table, key []string)) {
	for i := range s.said {
		for j := range s.said[i].Changes {
			c := &s.said[i].Changes[j]
			visit(c.Table, c.Key)
		}
	}
}

// Compare returns the differences between rows and the log. Found are all rows that are open
// at the time of the base, and those of [Since.Touched], open or not. A difference names a
// single row, or without a key a table whose rows differ from the base's count. A row that
// ended and was opened again after the base is a difference too: the base cannot be computed
// from it. For a log of an earlier form, only its columns are compared.
func (s *Since) Compare(found *Found) (differences []Difference) {
	found = s.former(found)
	now := make([]map[string]foundRow, len(definitions()))
	for i := range now {
		now[i] = maps.Clone(found.tables[i])
	}
	// With the changes undone from the end, the rows are those that the base counted.
	for _, said := range slices.Backward(s.said) {
		for j := len(said.Changes) - 1; j >= 0; j-- {
			c := &said.Changes[j]
			k := c.id()
			now[c.Table][k] = foundRow{c.Key, c.Undo(now[c.Table][k].row)}
		}
	}
	counts := differs(now, s.State, s.At)
	type last struct {
		c    *Change
		said uint64
	}
	lasts := make(map[Table]map[string]last)
	for i := range s.said {
		for j := range s.said[i].Changes {
			c := &s.said[i].Changes[j]
			k := c.id()
			row, fits := c.Apply(now[c.Table][k].row)
			if !fits {
				differences = append(differences, Difference{Table: c.Table, Key: c.Key, Record: s.said[i].Seq, Problem: fmt.Sprintf("record %d changes it from what no record before it made of it", s.said[i].Seq)})
			}
			now[c.Table][k] = foundRow{c.Key, row}
			if lasts[c.Table] == nil {
				lasts[c.Table] = make(map[string]last)
			}
			lasts[c.Table][k] = last{c, s.said[i].Seq}
		}
	}
	var rows []Difference
	for _, t := range Tables() {
		for k, l := range lasts[t] {
			row, says := found.tables[t][k].row, now[t][k].row
			if now := s.At.UnixMilli(); !t.isOpen(row, now) && !t.isOpen(says, now) {
				// The log says nothing of ended rows.
				continue
			}
			rows = append(rows, t.differ(l.c.Key, row, says, t.isOpen(row, s.At.UnixMilli()), l.said)...)
		}
	}
	if len(rows) > 0 {
		return sorted(rows)
	}
	if len(differences) > 0 {
		return differences
	}
	for _, t := range counts {
		differences = append(differences, Difference{Table: t, Record: s.Base, Problem: fmt.Sprintf("the rows of %s are not those that record %d counts", t.Name(), s.Base)})
	}
	return differences
}

// former converts the changes after the base, and rows, to the log's form.
func (s *Since) former(found *Found) *Found {
	if s.Base == 0 || s.Form >= Form {
		return found
	}
	for i := range s.said {
		s.said[i].Changes = slices.DeleteFunc(s.said[i].Changes, func(c Change) bool { return s.Form < c.def().since })
		for j, c := range s.said[i].Changes {
			s.said[i].Changes[j] = c.former(s.Form)
		}
	}
	return found.former(s.Form)
}

func sorted(list []Difference) []Difference {
	slices.SortFunc(list, func(a, b Difference) int {
		if a.Record != b.Record && a.Record != 0 && b.Record != 0 {
			return int(int64(a.Record) - int64(b.Record))
		}
		return slices.Compare([]string{a.Table.Name(), a.String()}, []string{b.Table.Name(), b.String()})
	})
	return list
}

// differs returns the tables whose open rows at a time have another digest.
func differs(rows []map[string]foundRow, state []audit.TableState, at time.Time) (tables []Table) {
	set := NewSet()
	for i, t := range Tables() {
		for _, one := range rows[i] {
			if t.isOpen(one.row, at.UnixMilli()) {
				set.Put(t, one.key, one.row)
			}
		}
	}
	return unlike(set.State(at), state)
}

// unlike returns the tables that differ between two states.
func unlike(a, b []audit.TableState) (tables []Table) {
	named := func(state []audit.TableState, name string) audit.TableState {
		for _, one := range state {
			if one.Table == name {
				return one
			}
		}
		return audit.TableState{Table: name}
	}
	for _, t := range Tables() {
		if named(a, t.Name()) != named(b, t.Name()) {
			tables = append(tables, t)
		}
	}
	return tables
}

// Replay computes the open rows from a log, from its first record on.
type Replay struct {
	set *Set
	// first is the first record, and whole is set once the set has every open row.
	first           uint64
	whole, adopting bool
	// form is the log's current form, 0 until a checkpoint says it.
	form int
	// marked is set once a record makes a statement about rows that no earlier version of the
	// daemon writes.
	marked   bool
	problems []Difference
	last     time.Time
}

// NewReplay returns a Replay before the first record.
func NewReplay() *Replay { return &Replay{set: NewSet()} }

// maxProblems bounds the differences that are named for one log.
const maxProblems = 100

// Add takes the next record of the log.
func (r *Replay) Add(seq uint64, text []byte) error {
	if r.first == 0 {
		r.first, r.whole = seq, seq == 1
	}
	said, silent, err := heard(text)
	if silent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("audit record %d: %w", seq, err)
	}
	r.marked = r.marked || said.marks()
	r.last = said.Time
	if said.Adopts {
		r.set, r.problems, r.whole, r.adopting = NewSet(), nil, false, true
	}
	if !r.whole {
		said.Changes = slices.DeleteFunc(said.Changes, func(c Change) bool {
			row, _ := r.set.Get(c.Table, c.Key)
			return row == nil && c.New == nil && c.Add <= 0
		})
	}
	r.set.Begin()
	if misfit, was := r.set.Apply(seq, said.Time, said.Changes); misfit != nil && r.whole {
		problem := "changes it from what no record before it made of it"
		if misfit.New != nil {
			problem = fmt.Sprintf("says that it is new, and it was %s before", misfit.standing(was, true))
		} else if was == nil {
			problem = "changes it, and no record before it has one that is open"
		}
		r.problem(Difference{Table: misfit.Table, Key: misfit.Key, Record: seq, Problem: fmt.Sprintf("record %d %s", seq, problem)})
	}
	if said.Retired > 0 && said.Retired == r.first-1 {
		r.whole = true
	}
	if !said.Counted {
		return nil
	}
	r.form = said.Form
	if r.adopting {
		r.whole, r.adopting = true, false
	}
	if r.whole {
		for _, t := range unlike(r.set.State(said.Time), said.State) {
			r.problem(Difference{Table: t, Record: seq, Problem: fmt.Sprintf("record %d counts other rows of %s than the records before it leave", seq, t.Name())})
		}
	}
	return nil
}

func (r *Replay) problem(d Difference) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, d)
	}
}

// Time returns the time of the last record about rows.
func (r *Replay) Time() time.Time { return r.last }

// Silent reports whether the log says nothing of rows: an earlier version of the daemon wrote all
// of it.
func (r *Replay) Silent() bool { return !r.marked }

// Whole reports whether the log states every open row.
func (r *Replay) Whole() bool { return r.whole }

// Set returns the open rows, for a caller that reads no further records.
func (r *Replay) Set() *Set { return r.set }

// Problems returns contradictions in the log's statements about rows.
func (r *Replay) Problems() []Difference {
	if r.Silent() {
		return nil
	}
	return r.problems
}

// Compare returns the differences between the open rows that were found and the log's. Found may
// contain other rows too.
func (r *Replay) Compare(found *Found, at time.Time) (differences []Difference) {
	if r.Silent() {
		return nil
	}
	now := at.UnixMilli()
	form := cmp.Or(r.form, Form)
	found = found.former(form)
	for i, t := range Tables() {
		seen := make(map[string]bool)
		r.set.Each(t, func(key []string, says Row, _, said uint64) bool {
			k := t.key(key)
			seen[k], says = true, t.former(says, form)
			row := found.tables[i][k].row
			if !t.isOpen(says, now) && !t.isOpen(row, now) {
				return true
			}
			differences = append(differences, t.differ(key, row, says, t.isOpen(row, now), said)...)
			return len(differences) < maxProblems
		})
		if !r.whole {
			// Rows that only removed records mention are not known.
			continue
		}
		for k, one := range found.tables[i] {
			if !seen[k] && t.isOpen(one.row, now) && len(differences) < maxProblems {
				differences = append(differences, t.differ(one.key, one.row, nil, true, 0)...)
			}
		}
	}
	return sorted(differences)
}
