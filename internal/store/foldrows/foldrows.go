// Package foldrows reads the rows that the audit log states (internal/audit/fold) as they are in a
// database, regardless of their seals, and compares them with its log.
package foldrows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// unreadable and noNumber stand for columns that cannot be read.
const (
	unreadable = "?"
	noNumber   = "-1"
)

// Exchange returns the row of an exchange.
func Exchange(conversation, kind, outcome string, round, maxRounds int, expires time.Time, forPerson bool) fold.Row {
	return fold.Row{conversation, kind, outcome, fold.Int(round), fold.Int(maxRounds), fold.Time(expires), fold.Bool(forPerson)}
}

// Approval returns the row of a request, with the stored summary and body.
func Approval(kind, agent, exchange, state string, expires time.Time, summary, body []byte) fold.Row {
	row := fold.Row{kind, agent, exchange, state, fold.Time(expires), unreadable, noNumber}
	var text struct {
		Digest string `json:"digest"`
		Given  int    `json:"given"`
	}
	for _, stored := range [...][]byte{summary, body} {
		if len(stored) > 0 && json.Unmarshal(stored, &text) != nil {
			return row
		}
	}
	row[5], row[6] = text.Digest, fold.Int(text.Given)
	return row
}

// Grant returns the row of a grant.
func Grant(agent, kind, state string, until time.Time, uses, maxUses int) fold.Row {
	return fold.Row{agent, kind, state, fold.Time(until), fold.Int(uses), fold.Int(maxUses)}
}

// Pause returns the row of a pause.
func Pause(at time.Time) fold.Row { return fold.Row{fold.Int(at.UnixMilli())} }

// Release returns the row of a release.
func Release(state string, expires time.Time) fold.Row { return fold.Row{state, fold.Time(expires)} }

// Lane returns the row of a lane.
func Lane(last int64) fold.Row { return fold.Row{fold.Int(last)} }

// UsedSignature returns the row of a signature that was used.
func UsedSignature(until time.Time) fold.Row { return fold.Row{fold.Time(until)} }

// table describes how to read the rows of a table.
type table struct {
	// columns are the columns to read, and key those of the key. open is the condition for open
	// rows, with the current time in milliseconds as the only argument.
	columns, open, key string
	scan               func(stmt *sqlite.Stmt) (key []string, row fold.Row)
}

// unsettled is the condition for an effect that [fold.Parts.Unsettled] counts, in the form of its
// index. It also selects effects that cannot be read.
const unsettled = `CASE WHEN json_valid(body) THEN body ->> '$.runs[#-1].state' IN ('started', 'outcome_unknown') OR body ->> '$.compensation' IS NOT NULL AND body ->> '$.runs[#-1].state' IS NOT NULL AND body ->> '$.runs[#-1].compensation' IS NOT 1 ELSE 1 END`

func of(t fold.Table) table {
	one := func(stmt *sqlite.Stmt) []string { return []string{stmt.ColumnText(0)} }
	at := func(stmt *sqlite.Stmt, column int) time.Time { return db.TimeOf(stmt.ColumnInt64(column)) }
	switch t {
	case fold.Exchanges:
		return table{`agent, id, conversation_id, outcome, expires_at, state FROM main.exchanges`, `outcome = 'in_progress' AND ?1 = ?1`, `agent, id`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) {
				var state struct {
					Type      string `json:"type"`
					Round     int    `json:"round"`
					MaxRounds int    `json:"maxRounds"`
					ForPerson bool   `json:"forPerson"`
				}
				err := json.Unmarshal(db.ColumnBytes(stmt, 5), &state)
				row := Exchange(stmt.ColumnText(2), state.Type, stmt.ColumnText(3), state.Round, state.MaxRounds, at(stmt, 4), state.ForPerson)
				if err != nil {
					row[1], row[3], row[4], row[6] = unreadable, noNumber, noNumber, noNumber
				}
				return []string{stmt.ColumnText(0), stmt.ColumnText(1)}, row
			}}
	case fold.Escalations:
		return table{`DISTINCT exchange_id, (SELECT count(*) FROM main.escalations WHERE exchange_id = e.exchange_id) FROM main.escalations AS e`, `?1 = ?1`, `exchange_id`, numbered}
	case fold.Approvals:
		return table{`id, kind, agent, exchange_id, state, expires_at, summary, body FROM main.approvals`, `state = 'pending' AND ?1 = ?1`, `id`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) {
				return one(stmt), Approval(stmt.ColumnText(1), stmt.ColumnText(2), stmt.ColumnText(3), stmt.ColumnText(4), at(stmt, 5), db.ColumnBytes(stmt, 6), db.ColumnBytes(stmt, 7))
			}}
	case fold.CommitmentGrants:
		return table{`id, agent, kind, state, until, uses, max_uses FROM main.commitment_grants`, `state = 'in_force' AND until > ?1`, `id`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) {
				return one(stmt), Grant(stmt.ColumnText(1), stmt.ColumnText(2), stmt.ColumnText(3), at(stmt, 4), stmt.ColumnInt(5), stmt.ColumnInt(6))
			}}
	case fold.Paused:
		return table{`scope, at FROM main.paused`, `?1 = ?1`, `scope`, numbered}
	case fold.Releases:
		return table{`approval, state, expires_at FROM main.releases`, `state IN ('ready', 'claimed') AND ?1 = ?1`, `approval`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) {
				return one(stmt), Release(stmt.ColumnText(1), at(stmt, 2))
			}}
	case fold.Lanes:
		return table{`name, last FROM main.lanes`, `?1 = ?1`, `name`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) { return one(stmt), Lane(stmt.ColumnInt64(1)) }}
	case fold.UsedSignatures:
		return table{`id, until FROM main.used_signatures`, `(until = 0 OR until > ?1)`, `id`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) { return one(stmt), UsedSignature(at(stmt, 1)) }}
	case fold.Owed:
		return ofOwed()
	case fold.AppProcesses:
		return ofProcesses()
	case fold.Tasks:
		return ofTasks()
	case fold.TaskGrants:
		return table{`id, task_id, expires_at, body, token FROM main.grants`, `expires_at > ?1`, `id`,
			func(stmt *sqlite.Stmt) ([]string, fold.Row) {
				return one(stmt), TaskGrant(db.ColumnBytes(stmt, 4), stmt.ColumnText(1), at(stmt, 2), db.ColumnBytes(stmt, 3))
			}}
	}
	panic("foldrows: no rows of " + t.Name())
}

// numbered reads a row of a key and one number.
func numbered(stmt *sqlite.Stmt) ([]string, fold.Row) {
	return []string{stmt.ColumnText(0)}, fold.Row{fold.Int(stmt.ColumnInt64(1))}
}

func ofOwed() table {
	return table{`agent, lower(hex(seal)), until FROM main.owed`, `(until = 0 OR until > ?1)`, `agent, lower(hex(seal))`,
		func(stmt *sqlite.Stmt) ([]string, fold.Row) {
			return []string{stmt.ColumnText(0), stmt.ColumnText(1)}, fold.Row{fold.Int(stmt.ColumnInt64(2))}
		}}
}

func ofProcesses() table {
	return table{`boot, name, at FROM main.app_processes`, `?1 = ?1`, `boot, name`,
		func(stmt *sqlite.Stmt) ([]string, fold.Row) {
			return []string{stmt.ColumnText(0), stmt.ColumnText(1)}, fold.Row{fold.Int(stmt.ColumnInt64(2))}
		}}
}

func ofTasks() table {
	return table{`id, tenant, phase, seq, (SELECT json_group_array(json_array(kind, CASE WHEN json_valid(body) THEN json(body) ELSE 0 END) ORDER BY kind, place) FROM (
			SELECT kind, place, body FROM main.task_parts WHERE task_id = t.id AND kind <> 'checkpoint' UNION ALL SELECT 'effect', place, body FROM main.effects WHERE task_id = t.id)),
			(SELECT json_group_array(depends_on) FROM main.task_deps WHERE task_id = t.id), is_open FROM main.tasks AS t`,
		`id IN (SELECT id FROM main.tasks WHERE is_open = 1 UNION SELECT task_id FROM main.effects WHERE ` + unsettled + `) AND ?1 = ?1`, `id`,
		func(stmt *sqlite.Stmt) ([]string, fold.Row) {
			row := Task(stmt.ColumnText(1), stmt.ColumnText(2), stmt.ColumnInt(3), new(fold.Parts))
			if parts := partsOf(db.ColumnBytes(stmt, 4), db.ColumnBytes(stmt, 5)); parts != nil {
				row = Task(row[0], row[1], stmt.ColumnInt(3), parts)
			} else {
				row[3], row[4], row[5] = unreadable, unreadable, noNumber
			}
			if ended := row[1] == "completed" || row[1] == "failed"; stmt.ColumnBool(6) == ended {
				// Lists and limits use a column that repeats the state.
				row[1] = unreadable
			}
			return []string{stmt.ColumnText(0)}, row
		}}
}

// listed is the condition for the exchanges that were open at the newest checkpoint, and those of
// the transaction that made it.
const listed = `(id, agent) IN (SELECT id, agent FROM main.listed_exchanges) AND ?1 = ?1`

// listTogether is the number of changed exchanges after which the list is updated without a
// checkpoint. A checkpoint would otherwise list about a thousand, and all commits would wait for
// it.
const listTogether = 64

// List updates the list of open exchanges from a set, if a checkpoint was made or enough of them
// changed.
func List(w *db.Writer, set *fold.Set) error {
	set.List(listTogether)
	for _, exchange := range set.Unlisted() {
		query := `DELETE FROM main.listed_exchanges WHERE id = ? AND agent = ?`
		if exchange.Open {
			query = `INSERT OR IGNORE INTO main.listed_exchanges (id, agent) VALUES (?, ?)`
		}
		if err := w.Exec("the list of open exchanges", query, db.Text(exchange.Key[1]), db.Text(exchange.Key[0])); err != nil {
			return err
		}
	}
	return nil
}

// Open adds the rows that are open at a time, as they are in a database. A database that an earlier
// version has left has no rows of a table that it did not know.
func Open(conn *sqlite.Conn, at time.Time, found *fold.Found) error {
	var known []fold.Table
	for _, t := range fold.Tables() {
		n, err := db.QueryInt(conn, `SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = '`+t.Name()+`'`)
		if err != nil {
			return err
		}
		if n > 0 {
			known = append(known, t)
		}
	}
	return open(conn, known, of(fold.Exchanges).open, at, found)
}

// open is Open for some tables, with the condition of the exchanges.
func open(conn *sqlite.Conn, tables []fold.Table, exchanges string, at time.Time, found *fold.Found) error {
	for _, t := range tables {
		how := of(t)
		if t == fold.Exchanges {
			how.open = exchanges
		}
		err := how.rows(conn, t, how.open, []any{db.Milliseconds(at)}, func(key []string, row fold.Row) {
			if t.Open(row, at) {
				found.Put(t, key, row)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rows calls visit with the rows that meet a condition.
func (how *table) rows(conn *sqlite.Conn, t fold.Table, condition string, args []any, visit func(key []string, row fold.Row)) error {
	var none []struct{}
	err := db.Collect(conn, &none, `SELECT `+how.columns+` WHERE `+condition, args, func(stmt *sqlite.Stmt) (struct{}, error) {
		visit(how.scan(stmt))
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("cannot compare the rows of %s with the log: %w", t.Name(), err)
	}
	return nil
}

// Find returns one row as it is in a database, or nil.
func Find(conn *sqlite.Conn, t fold.Table, key []string) (row fold.Row, err error) {
	how := of(t)
	args := make([]any, len(key))
	for i := range key {
		args[i] = key[i]
	}
	err = how.rows(conn, t, `(`+how.key+`) = (?`+strings.Repeat(", ?", len(key)-1)+`)`, args, func(_ []string, found fold.Row) { row = found })
	return row, err
}

// findAll adds those rows of a table that have one of the keys.
func findAll(conn *sqlite.Conn, t fold.Table, keys [][]string, found *fold.Found) error {
	if len(keys) == 0 {
		return nil
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("cannot compare the rows of %s with the log: %w", t.Name(), err)
	}
	how, parts := of(t), make([]string, len(keys[0]))
	for i := range parts {
		parts[i] = fmt.Sprintf("value ->> %d", i)
	}
	condition := `(` + how.key + `) IN (SELECT ` + strings.Join(parts, ", ") + ` FROM json_each(?))`
	return how.rows(conn, t, condition, []any{string(list)}, func(key []string, row fold.Row) { found.Put(t, key, row) })
}

// Log is the part of a log that is read.
type Log interface {
	Head() audit.Head
	Checkpoint() logstore.Signed
	FirstSeq(ctx context.Context) (uint64, error)
	Line(ctx context.Context, seq uint64) ([]byte, error)
	Lines
}

// Lines are the records of a log.
type Lines interface {
	LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error)
}

// TakeUp compares the open rows of a database with its log, and puts them into a set. It returns an
// [audit.Fault] that names the rows which differ. Adopt says that the log knows nothing of the
// rows, which must then be stated; accept says so beforehand. It reads only the part of the log
// after the newest checkpoint, unless rows differ.
func TakeUp(ctx context.Context, reader *db.Reader, log Log, set *fold.Set, now time.Time, accept bool, logger *zap.Logger) (adopt bool, err error) {
	since, adopt, err := sinceCounted(ctx, log)
	if err != nil {
		return false, err
	}
	set.Restore(since.Restored)
	for name, value := range since.Newest {
		set.SetNewest(name, value)
	}
	adopt = adopt || accept
	// unlisted says that the list of open exchanges is not used, and made anew.
	unlisted := adopt
	find := func() (*fold.Found, error) {
		exchanges := listed
		if unlisted {
			exchanges = of(fold.Exchanges).open
		}
		found := fold.NewFound()
		return found, reader.Scan(ctx, func(conn *sqlite.Conn) error {
			if err := open(conn, fold.Tables(), exchanges, since.At, found); err != nil {
				return err
			}
			return findTouched(conn, since, set, found)
		})
	}
	found, err := find()
	if err != nil {
		return false, err
	}
	if !adopt {
		differences := since.Compare(found)
		if len(differences) > 0 && since.Base == 0 && !since.Marks && log.Head().Seq > 0 {
			adopt = true
		} else if len(differences) > 0 {
			if err := unlike(ctx, reader, log, now, differences, logger); err != nil {
				return false, err
			}
			// The list may be what differs: it has no seals.
			unlisted = true
			if found, err = find(); err != nil {
				return false, err
			}
		}
		// An earlier version counted the rows with fewer columns.
		adopt = adopt || since.Base > 0 && since.Form < fold.Form
	}
	found.Each(func(t fold.Table, key []string, row fold.Row) {
		if t.Open(row, now) {
			set.Put(t, key, row)
			if (adopt || unlisted) && t == fold.Exchanges {
				set.Move(key)
			}
		}
	})
	return adopt, nil
}

// findTouched finds the rows that the records since a checkpoint have changed.
func findTouched(conn *sqlite.Conn, since *fold.Since, set *fold.Set, found *fold.Found) error {
	touched := fold.NewFound()
	since.Touched(func(t fold.Table, key []string) {
		if t == fold.Exchanges {
			set.Move(key)
		}
		if !found.Has(t, key) {
			touched.Put(t, key, nil)
		}
	})
	keys := make(map[fold.Table][][]string)
	touched.Each(func(t fold.Table, key []string, _ fold.Row) { keys[t] = append(keys[t], key) })
	for _, t := range fold.Tables() {
		if err := findAll(conn, t, keys[t], found); err != nil {
			return err
		}
	}
	return nil
}

// sinceCounted reads the records since the newest checkpoint. Adopt says that an earlier version
// made that one, without counting rows.
func sinceCounted(ctx context.Context, log Log) (since *fold.Since, adopt bool, err error) {
	since = new(fold.Since)
	at := log.Checkpoint().Seq
	if at > 0 {
		line, err := log.Line(ctx, at)
		if err == nil {
			err = since.Add(line)
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot compare the rows with the log: %w", err)
		}
		if since.Base == 0 {
			return since, true, nil
		}
	}
	return since, false, eachAfter(ctx, log, at, func(_ uint64, line []byte) error { return since.Add(line) })
}

// eachAfter reads the records after one.
func eachAfter(ctx context.Context, log Lines, seq uint64, visit func(seq uint64, line []byte) error) error {
	for {
		lines, upTo, err := log.LinesAfter(ctx, seq)
		if err != nil || len(lines) == 0 {
			return err
		}
		first := upTo + 1 - uint64(len(lines))
		for i, line := range lines {
			if err := visit(first+uint64(i), line); err != nil {
				return err
			}
		}
		seq = upTo
	}
}

// Replay computes the open rows from a whole log, and compares the rows of the database with them.
func Replay(ctx context.Context, reader *db.Reader, log Lines, first uint64, now time.Time) (*fold.Replay, []fold.Difference, error) {
	replay, found := fold.NewReplay(), fold.NewFound()
	err := eachAfter(ctx, log, max(first, 1)-1, replay.Add)
	if err == nil {
		err = reader.Scan(ctx, func(conn *sqlite.Conn) error { return Open(conn, now, found) })
	}
	if err != nil {
		return nil, nil, err
	}
	return replay, append(replay.Problems(), replay.Compare(found, now)...), nil
}

// namedAtOnce bounds the differing rows that one error names.
const namedAtOnce = 5

// Words describes the differences of rows.
func Words(differences []fold.Difference) string {
	var b strings.Builder
	for i := range differences {
		if i == namedAtOnce {
			fmt.Fprintf(&b, "; and %d more", len(differences)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(differences[i].String())
	}
	return b.String()
}

// unlike returns the error of a start whose rows differ from the log. It reads the whole log to
// decide: a row that ended and was opened again after the newest checkpoint cannot be compared with
// that checkpoint. It returns nil if the rows match the whole log.
func unlike(ctx context.Context, reader *db.Reader, log Log, now time.Time, differences []fold.Difference, logger *zap.Logger) error {
	logger.Warn("rows of the database are not what the records since the newest checkpoint say: reading the whole log")
	first, err := log.FirstSeq(ctx)
	if err != nil {
		return err
	}
	replay, named, err := Replay(ctx, reader, log, first, now)
	switch {
	case err != nil:
		return err
	case len(named) == 0 && replay.Whole() && !replay.Silent():
		logger.Info("the rows of the database are what the whole log says")
		return nil
	case len(named) > 0 && differences[0].Key == nil:
		// The checkpoint counts rows, and does not say which.
		differences = named
	}
	return fmt.Errorf("cannot start with rows that are not as the audit log says: %w", &audit.Fault{
		Problem: Words(differences) + "; somebody else has changed the database, or put older rows back: put a backup back (ocipd restore DIR), or make the rows anew from the log (ocipd audit rebuild-state FILE)",
	})
}

// stateBytes is about how many bytes of rows one record states.
const stateBytes = 128 << 10

// Stated returns changes that state open rows again, in portions for several records. A function
// picks the rows of a set by the record that last stated them in full.
func Stated(set *fold.Set, pick func(stated uint64) bool) (chunks [][]fold.Change) {
	size := stateBytes
	for _, t := range fold.Tables() {
		set.Each(t, func(key []string, row fold.Row, stated, _ uint64) bool {
			if !pick(stated) {
				return true
			}
			if size >= stateBytes {
				chunks, size = append(chunks, nil), 0
			}
			last := &chunks[len(chunks)-1]
			*last = append(*last, fold.Change{Table: t, Key: key, New: row, Stated: true})
			for _, text := range slices.Concat(key, row) {
				size += len(text) + 24
			}
			return true
		})
	}
	return chunks
}
