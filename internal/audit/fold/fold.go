// Package fold computes the expected rows of the daemon's tables from the audit log alone.
//
// The log and the tables are in one database, and each change of a row is committed with a
// record of it. The record holds enough to apply the change, and to undo it, so a verifier
// needs no key to compute the rows. The functions here are pure. internal/store calls them to
// write records, so that row and record cannot differ, and at each start to compare the rows
// that it finds; verifiers call them to read the log.
//
// The package folds only rows that decisions can still depend on, which are called open: an
// exchange in progress, a pending request, a grant in force. No record has the other content
// of a row, such as a transcript; the row's seal covers it (internal/store/db). An old row
// with a valid old seal differs from the log in one of the columns here.
//
//	table              key           columns                                          open
//	exchanges          agent, id     conversation, type, outcome, round, maxRounds,   in progress
//	                                 expiresAt, forPerson
//	escalations        exchange      open: the pairs of agents that it stops          open > 0
//	approvals          id            kind, agent, exchange, state, expiresAt,         pending
//	                                 digest, given
//	commitment_grants  id            agent, kind, state, until, uses, maxUses         in force, not over
//	paused             scope         at                                               always
//	releases           approval      state, expiresAt                                 ready or claimed
//	tasks              id            tenant, phase, seq, parts, bound, unsettled      neither completed nor failed,
//	                                                                                  or unsettled > 0
//	grants             id            actor, role, task, expiresAt, revokedAt,         not revoked, not over
//	                                 token, holder
//	lanes              name          last                                             last > 0
//	used_signatures    id            until                                            until 0, or not over
//	owed               agent, seal   until                                            until 0, or not over
//	app_processes      boot, name    at                                               always
//
// The columns parts and bound of a task stand for the rows that belong to it, and unsettled
// counts its effects that decisions can still depend on: see [Parts].
//
// The seal of a debt stands for the columns that no record may have. Another content of the row has
// another seal, so that the log knows each row that is there, and nobody without the key of the
// seals learns anything from it.
//
// The form of a log determines its columns and tables. A log of form 1 lacks those of [former], and
// its rows are compared without them. A table that a later form brought is counted from that form on:
// used_signatures from 3, owed from 4, app_processes from 5.
//
// Members of records that an operator can have redacted are no columns.
//
// A record lists its changes in the member rows, one entry a row:
//
//	{"table":"approvals","key":["ID"],"now":{every column}}            the row is new
//	{"table":"approvals","was":{"state":"pending"},"now":{"state":"denied"}}  columns change
//	{"table":"paused","key":["all"],"was":{every column}}              the row goes
//	{"table":"escalations","key":["ID"],"add":1}                       the column that counts
//	{"table":"approvals","key":["ID"],"stated":true,"now":{…}}         the row is so, and does not change
//
// The key is omitted if the record's own members are the key: agentId and exchangeId,
// approvalId. Three usual changes by messages have shorter forms. A record of an allowed
// message (actionType agent_exchange, no event, policyResult allow, with an exchangeId, and
// nothing in rows about that exchange) is the next round of its exchange: the round was one
// less. With the member opens, the exchange is new, and opens is expiresAt; conversation,
// type, outcome, round and maxRounds are those of the record. With usesGrant, a grant of that
// id has been used once more.
//
// The member state of a checkpoint record has the number of open rows of each table after all
// records before it, and their digest; a table without any is omitted.
//
// A row's leaf is the SHA-256 of the names of the table, its key and its columns in the order
// above, each written as its length in bytes, a colon, the text and a comma. The leaves of a table are put
// into 256 groups by their first byte, and sorted there. The digest is the SHA-256 of the 256
// SHA-256 of the groups, one after another.
package fold

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// Table is one of the tables whose open rows the log states.
type Table int

// The tables.
const (
	Exchanges Table = iota
	Escalations
	Approvals
	CommitmentGrants
	Paused
	Releases
	Tasks
	TaskGrants
	Lanes
	UsedSignatures
	Owed
	AppProcesses
)

// Tables returns all tables, in their order.
func Tables() []Table {
	all := make([]Table, len(definitions()))
	for i := range all {
		all[i] = Table(i)
	}
	return all
}

// definition describes a table. A column's name begins with # if it is a number, and with + if that
// number is the one that changes add to.
type definition struct {
	name, noun   string
	key, columns []string
	// former is the number of columns in a log of form 1, 0 for all.
	former int
	// since is the first form of a log with the table, 0 for each.
	since int
	// ends says that a row can end by the time alone.
	ends bool
	// numbers marks the columns that are numbers in records.
	numbers []bool
	// counter is the column that changes add to, -1 for none.
	counter int
	open    func(r Row, now int64) bool
	// own returns the key in a record's own members, nil for none.
	own func(r *audit.Record) []string
}

var definitions = sync.OnceValue(func() []definition {
	always := func(Row, int64) bool { return true }
	untilEnds := func(r Row, now int64) bool { return r[0] == "0" || number(r[0]) > now }
	none := func(*audit.Record) []string { return nil }
	ofApproval := func(r *audit.Record) []string { return []string{r.ApprovalID} }
	list := []definition{
		Exchanges: {
			name: "exchanges", noun: "exchange", key: []string{"agent", "id"},
			columns: []string{"conversation", "type", "outcome", "#round", "#maxRounds", "#expiresAt", "#forPerson"},
			open:    func(r Row, _ int64) bool { return r[2] == "in_progress" },
			own:     func(r *audit.Record) []string { return []string{r.AgentID, r.ExchangeID} },
		},
		Escalations: {
			name: "escalations", noun: "escalation of exchange", key: []string{"exchange"}, columns: []string{"+open"},
			open: func(r Row, _ int64) bool { return r[0] != "0" },
			own:  func(r *audit.Record) []string { return []string{r.ExchangeID} },
		},
		Approvals: {
			name: "approvals", noun: "approval", key: []string{"id"},
			columns: []string{"kind", "agent", "exchange", "state", "#expiresAt", "digest", "#given"},
			open:    func(r Row, _ int64) bool { return r[3] == "pending" },
			own:     ofApproval,
		},
		CommitmentGrants: {
			name: "commitment_grants", noun: "grant", key: []string{"id"},
			columns: []string{"agent", "kind", "state", "#until", "+uses", "#maxUses"}, ends: true,
			open: func(r Row, now int64) bool {
				until, uses, most := number(r[3]), number(r[4]), number(r[5])
				return r[2] == "in_force" && until > now && (most == 0 || uses < most)
			},
			own: none,
		},
		Paused: {name: "paused", noun: "pause of", key: []string{"scope"}, columns: []string{"#at"}, open: always, own: none},
		Releases: {
			name: "releases", noun: "release of approval", key: []string{"approval"}, columns: []string{"state", "#expiresAt"},
			open: func(r Row, _ int64) bool { return r[0] == "ready" || r[0] == "claimed" },
			own:  ofApproval,
		},
		Tasks: {
			name: "tasks", noun: "task", key: []string{"id"}, columns: []string{"tenant", "phase", "#seq", "parts", "bound", "#unsettled"}, former: 4,
			open: func(r Row, _ int64) bool {
				return r[1] != "completed" && r[1] != "failed" || len(r) > 5 && r[5] != "0"
			},
			own: func(r *audit.Record) []string { return []string{r.TaskID} },
		},
		TaskGrants: {
			name: "grants", noun: "grant of an actor", key: []string{"id"},
			columns: []string{"actor", "role", "task", "#expiresAt", "#revokedAt", "token", "holder"}, former: 5, ends: true,
			open: func(r Row, now int64) bool { return number(r[3]) > now && r[4] == "0" },
			own:  none,
		},
		Lanes: {name: "lanes", noun: "lane", key: []string{"name"}, columns: []string{"+last"}, open: func(r Row, _ int64) bool { return r[0] != "0" }, own: none},
		UsedSignatures: {
			name: "used_signatures", noun: "used signature", key: []string{"id"}, columns: []string{"#until"}, since: 3, ends: true,
			open: untilEnds,
			own:  none,
		},
		Owed: {
			name: "owed", noun: "debt of agent", key: []string{"agent", "seal"}, columns: []string{"#until"}, since: 4, ends: true,
			open: untilEnds,
			own:  none,
		},
		AppProcesses: {name: "app_processes", noun: "process of an app", key: []string{"boot", "name"}, columns: []string{"#at"}, since: 5, open: always, own: none},
	}
	for i := range list {
		d := &list[i]
		d.counter = -1
		for j, name := range d.columns {
			d.numbers = append(d.numbers, name[0] == '#' || name[0] == '+')
			if name[0] == '+' {
				d.counter = j
			}
			d.columns[j] = strings.TrimLeft(name, "#+")
		}
	}
	return list
})

func (t Table) def() *definition { return &definitions()[t] }

// Name returns the table's name in the database.
func (t Table) Name() string { return t.def().name }

// Form is the form of rows that this version writes, and FormName the member of a checkpoint's
// details that says it. A checkpoint without it is of form 1.
const (
	Form     = 5
	FormName = "rowForm"
	// RestoredName is the member of a checkpoint's details with the id of the newest state_restored
	// record. It is absent before the first.
	RestoredName = "restored"
	// NewestName is the member of a checkpoint's details with the values that must never go
	// back, by name, such as the roster of a fleet. It is absent if there are none.
	NewestName = "newest"
)

// width returns the number of columns in a log's form.
func (t Table) width(form int) int {
	d := t.def()
	if form == 1 && d.former > 0 {
		return d.former
	}
	return len(d.columns)
}

// former returns a row in a log's form.
func (t Table) former(r Row, form int) Row { return r[:min(len(r), t.width(form))] }

// Columns returns the names of its columns in records. Callers must not change the list.
func (t Table) Columns() []string { return t.def().columns }

// Of returns the table of a name.
func Of(name string) (t Table, ok bool) {
	i := slices.IndexFunc(definitions(), func(d definition) bool { return d.name == name })
	return Table(i), i >= 0
}

// Row has the columns of a row in the order of its table; nil is none. Numbers are in decimal,
// times in milliseconds. A row never changes.
type Row []string

// Int returns a number as a column.
func Int[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Bool is "1" or "0".
func Bool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Time returns a time as a column, in milliseconds, 0 for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return Int(t.UnixMilli())
}

// Number returns the number in a column, 0 if it is none.
func Number(text string) int64 { return number(text) }

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if it is no number
	return n
}

// Open reports whether decisions can depend on a row at a time.
func (t Table) Open(r Row, now time.Time) bool { return t.isOpen(r, now.UnixMilli()) }

func (t Table) isOpen(r Row, now int64) bool { return r != nil && t.def().open(r, now) }

// key joins the parts of a row's key unambiguously.
func (t Table) key(key []string) string {
	if len(key) == 1 {
		return key[0]
	}
	b := make([]byte, 0, 128)
	for _, part := range key {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(b, part...)
	}
	return string(b)
}

// Leaf returns the hash of a row for the digest of its table.
func (t Table) Leaf(key []string, r Row) audit.Hash {
	b := make([]byte, 0, 256)
	text := func(s string) {
		b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
		b = append(append(b, s...), ',')
	}
	text(t.Name())
	for _, part := range key {
		text(part)
	}
	for _, column := range r {
		text(column)
	}
	return sha256.Sum256(b)
}

// Cell is a column of a row that changes.
type Cell struct {
	Column   int
	Was, Now string
}

// Change is a record's statement about one row. One of New, Gone, Cells and Add is set.
type Change struct {
	Table
	Key []string
	// New is the whole row; Stated says that the row was there before.
	New    Row
	Stated bool
	// Gone is the whole row before its removal.
	Gone Row
	// Cells are the columns that change.
	Cells []Cell
	// Add is added to the counting column.
	Add int64

	// joined caches the key as one text.
	joined string
}

// former returns the change in a log's form.
func (c Change) former(form int) Change {
	n := c.width(form)
	if n == len(c.Columns()) {
		return c
	}
	c.New, c.Gone = c.Table.former(c.New, form), c.Table.former(c.Gone, form)
	c.Cells = slices.DeleteFunc(slices.Clone(c.Cells), func(cell Cell) bool { return cell.Column >= n })
	return c
}

func (c *Change) id() string {
	if c.joined == "" {
		c.joined = c.key(c.Key)
	}
	return c.joined
}

// Changed returns the change from an open row to another, ok if there is something to say. Either
// row may be nil. It says nothing of rows that are not open before or after.
func (t Table) Changed(key []string, was, now Row, at time.Time) (c Change, ok bool) {
	c = Change{Table: t, Key: key}
	ends := !t.Open(now, at)
	switch {
	case was == nil:
		c.New = now
		return c, !ends
	case now == nil:
		c.Gone = was
		return c, true
	}
	for i := range now {
		differs := was[i] != now[i]
		// No record states a row after its end. The former row can be computed from the ended one
		// only if the record has the columns that may change.
		if ok = ok || differs; differs || ends && t == Exchanges && t.def().numbers[i] {
			c.Cells = append(c.Cells, Cell{i, was[i], now[i]})
		}
	}
	return c, ok
}

// Apply returns the row after a change. Fits is false if the row before is not the one that the
// change names.
func (c *Change) Apply(was Row) (now Row, fits bool) {
	switch {
	case c.Stated:
		return c.New, was == nil || slices.Equal(was, c.New)
	case c.New != nil:
		return c.New, was == nil
	case c.Gone != nil:
		return nil, slices.Equal(was, c.Gone)
	case c.Add != 0:
		if was == nil {
			was = c.none()
			fits = len(was) == 1
		} else {
			fits = true
		}
		now = slices.Clone(was)
		now[c.def().counter] = Int(number(was[c.def().counter]) + c.Add)
		return now, fits
	}
	fits = was != nil
	now = make(Row, len(c.Columns()))
	if copy(now, was); fits && len(was) < len(now) && len(was) == c.def().former {
		now = now[:len(was)]
	}
	was = slices.Clone(now)
	for _, cell := range c.Cells {
		if cell.Column >= len(now) {
			// The row is of a form without that column.
			return now, false
		}
		fits = fits && was[cell.Column] == cell.Was
		now[cell.Column] = cell.Now
	}
	return now, fits
}

// Undo returns the row before a change, from the row after it.
func (c *Change) Undo(now Row) (was Row) {
	switch {
	case c.Stated:
		return now
	case c.New != nil:
		return nil
	case c.Gone != nil:
		return c.Gone
	case c.Add != 0:
		if now == nil {
			now = c.none()
		}
		was = slices.Clone(now)
		was[c.def().counter] = Int(number(now[c.def().counter]) - c.Add)
		if c.Table == CommitmentGrants {
			// It may be revoked after its last use, which no record mentions.
			was[columnState] = "in_force"
		}
		return was
	}
	if now == nil {
		return nil
	}
	was = slices.Clone(now)
	for _, cell := range c.Cells {
		was[cell.Column] = cell.Was
	}
	return was
}

// columnState is the state of a grant.
const columnState = 2

// none returns a row with the count 0.
func (t Table) none() Row {
	r := make(Row, len(t.Columns()))
	r[t.def().counter] = "0"
	return r
}
