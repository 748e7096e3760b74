package foldrows

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Mend corrects the rows that differ, as far as the log has their content. Columns that no record
// holds stay. A row that the log does not have is ended, or deleted if that is how it ends. A
// missing row is made again if all its content is on record. The writer seals the rows, except those
// whose seal was not the daemon's: somebody else may have written the columns that no record holds,
// and such a row counts for nothing.
func Mend(w *db.Writer, differences []fold.Difference, log *fold.Set, now time.Time) error {
	for i := range differences {
		d := &differences[i]
		if d.Key == nil {
			continue
		}
		says, _ := log.Get(d.Table, d.Key)
		m := mending{w: w, key: d.Key, says: says, now: now}
		if err := m.mend(d.Table); err != nil {
			return fmt.Errorf("cannot make %s anew: %w", d.Table.Named(d.Key), err)
		}
	}
	const what = "the list of open exchanges"
	if err := w.Exec(what, `DELETE FROM main.listed_exchanges`); err != nil {
		return err
	}
	return w.Exec(what, `INSERT INTO main.listed_exchanges SELECT id, agent FROM main.exchanges WHERE outcome = 'in_progress'`)
}

// mending is one row that is corrected, nil if the log has no such row.
type mending struct {
	w    *db.Writer
	key  []string
	says fold.Row
	now  time.Time
}

func (m *mending) mend(t fold.Table) error {
	said := func(column int) db.Value { return db.Text(m.says[column]) }
	number := func(column int) db.Value { return db.Int(fold.Number(m.says[column])) }
	switch t {
	case fold.Exchanges:
		return m.write("exchanges", `agent = ? AND id = ?`, func(v []db.Value) error {
			if m.says == nil {
				v[4] = db.Text("denied")
				return nil
			}
			v[2], v[4], v[5] = said(0), said(2), number(5)
			return edit(&v[6], map[string]any{"type": m.says[1], "round": fold.Number(m.says[3]), "maxRounds": fold.Number(m.says[4]), "forPerson": m.says[6] == "1"})
		})
	case fold.Escalations:
		return m.escalation()
	case fold.Approvals:
		return m.write("approvals", `id = ?`, func(v []db.Value) error {
			state := "denied"
			if m.says != nil {
				state = m.says[3]
				v[9], v[1], v[3], v[6] = said(0), said(1), said(2), number(4)
				if v[4].String() == "" {
					v[4] = db.Text("of approval " + m.key[0])
				}
				if err := edit(&v[8], map[string]any{"digest": m.says[5]}); err != nil {
					return err
				}
				if err := edit(&v[7], map[string]any{"given": fold.Number(m.says[6])}); err != nil {
					return err
				}
			}
			v[5] = db.Text(state)
			return edit(&v[7], map[string]any{"state": state})
		})
	case fold.CommitmentGrants:
		return m.write("commitment_grants", `id = ?`, func(v []db.Value) error {
			if m.says == nil {
				v[3] = db.Text("revoked")
				return nil
			}
			v[1], v[2], v[3], v[4], v[5], v[6] = said(0), said(1), said(2), number(3), number(4), number(5)
			return nil
		})
	case fold.Paused:
		return m.pause()
	case fold.Lanes, fold.UsedSignatures:
		return m.numbered(t)
	case fold.Owed:
		return m.debt()
	case fold.AppProcesses:
		return m.process()
	case fold.Releases:
		return m.write("releases", `approval = ?`, func(v []db.Value) error {
			if m.says == nil {
				v[2] = db.Text("abandoned")
				return nil
			}
			v[2], v[5] = said(0), number(1)
			return nil
		})
	case fold.TaskGrants:
		return m.write("grants", `id = ?`, m.actorGrant)
	case fold.Tasks:
		return m.write("tasks", `id = ?`, m.task)
	}
	return nil
}

func (m *mending) pause() error {
	if m.says == nil {
		return m.w.Exec("what goes on", `DELETE FROM main.paused WHERE scope = ?`, db.Text(m.key[0]))
	}
	return m.w.Put("what is paused", "paused", db.Text(m.key[0]), db.Int(fold.Number(m.says[0])), db.Text("the audit log"))
}

// numbered makes a row of a key and one number.
func (m *mending) numbered(t fold.Table) error {
	if m.says == nil {
		return m.w.Exec("that there is no row in "+t.Name(), `DELETE FROM main.`+t.Name()+` WHERE `+of(t).key+` = ?`, db.Text(m.key[0]))
	}
	return m.w.Put("a row of "+t.Name(), t.Name(), db.Text(m.key[0]), db.Int(fold.Number(m.says[0])))
}

// debt deletes a debt that the log does not have. A missing one stays missing: the log has only its seal.
func (m *mending) debt() error {
	if m.says != nil {
		return nil
	}
	return m.w.Exec("that nothing is owed", `DELETE FROM main.owed WHERE agent = ? AND lower(hex(seal)) = ?`, db.Text(m.key[0]), db.Text(m.key[1]))
}

// process makes the row of a missing process again, so that the process cannot operate the daemon.
func (m *mending) process() error {
	const what = "an app's process"
	if m.says == nil {
		return m.w.Exec(what, `DELETE FROM main.app_processes WHERE boot = ? AND name = ?`, db.Text(m.key[0]), db.Text(m.key[1]))
	}
	no, err := m.w.Scalar(what, `SELECT coalesce((SELECT no FROM main.app_processes WHERE boot = ? AND name = ?), (SELECT max(no) + 1 FROM main.app_processes), 1)`, db.Text(m.key[0]), db.Text(m.key[1]))
	if err != nil {
		return err
	}
	return m.w.Put(what, "app_processes", db.Int(no), db.Text(m.key[0]), db.Text(m.key[1]), db.Text("that only the audit log names"), db.Int(fold.Number(m.says[0])))
}

// escalation makes a missing escalation again, with the pair from the row of its exchange.
func (m *mending) escalation() error {
	if m.says == nil {
		return m.w.Exec("that an escalation ended", `DELETE FROM main.escalations WHERE exchange_id = ?`, db.Text(m.key[0]))
	}
	there, err := m.w.Scalar("the escalation", `SELECT count(*) FROM main.escalations WHERE exchange_id = ?`, db.Text(m.key[0]))
	if err != nil || there > 0 {
		return err
	}
	side, sealed, err := m.raw("exchanges", `id = ? LIMIT 1`)
	if err != nil || side == nil {
		return err
	}
	const agent, counterparty = 0, 3
	pair := []string{side[agent].String(), side[counterparty].String()}
	slices.Sort(pair)
	err = m.w.Insert("the escalation", "escalations", db.Text(pair[0]), db.Text(pair[1]), db.Text(m.key[0]), db.Time(m.now))
	if err != nil || sealed {
		return err
	}
	return m.unseal("escalations", `exchange_id = ?`)
}

// actorGrant makes the grant of an actor.
func (m *mending) actorGrant(v []db.Value) error {
	if m.says == nil {
		return edit(&v[4], map[string]any{"revoked_at": m.now.UTC()})
	}
	token, err := base64.RawURLEncoding.DecodeString(m.says[5])
	if err != nil {
		return err
	}
	v[1], v[2], v[3] = db.Bytes(token), db.Text(m.says[2]), db.Int(fold.Number(m.says[3]))
	return edit(&v[4], map[string]any{"actor": m.says[0], "role": m.says[1], "revoked_at": nil})
}

// task makes the head of a task. Its parts are on record only as digests, and stay. A task that has
// ended is made a failed one, which no other task continues: the log does not keep which of the two
// ends it was.
func (m *mending) task(v []db.Value) error {
	tenant, phase, seq := v[1].String(), "failed", int64(0)
	if m.says != nil {
		tenant, phase, seq = m.says[0], m.says[1], fold.Number(m.says[2])
	} else if open, err := m.w.Scalar("the task", `SELECT is_open FROM main.tasks WHERE id = ?`, db.Text(m.key[0])); err != nil || open == 0 {
		// The task has ended, and is open because of its parts.
		return err
	}
	head := map[string]any{"tenant_id": tenant, "phase": phase}
	v[1], v[2], v[3] = db.Text(tenant), db.Text(phase), db.Bool(phase != "completed" && phase != "failed")
	if seq > 0 {
		v[9], head["seq"] = db.Int(seq), seq
	}
	return edit(&v[11], head)
}

// write changes an existing row. It seals the row if the row had the daemon's seal before.
func (m *mending) write(table, where string, change func([]db.Value) error) error {
	values, sealed, err := m.raw(table, where)
	if err != nil || values == nil {
		return err
	}
	if err := change(values); err != nil {
		return err
	}
	if err := m.w.Put("the row", table, values...); err != nil || sealed {
		return err
	}
	return m.unseal(table, where)
}

// unseal takes the seal away from a row with columns that somebody else may have written.
func (m *mending) unseal(table, where string) error {
	key := make([]db.Value, len(m.key))
	for i := range m.key {
		key[i] = db.Text(m.key[i])
	}
	return m.w.Exec("the row", `UPDATE main.`+table+` SET seal = x'' WHERE `+where, key...)
}

// raw returns the columns of the first row that a condition finds by the key, nil for none, and
// whether the row has the daemon's seal.
func (m *mending) raw(table, where string) (values []db.Value, sealed bool, err error) {
	args := make([]any, len(m.key))
	for i := range m.key {
		args[i] = m.key[i]
	}
	query := `SELECT ` + m.w.Seals().Columns(table) + ` FROM main.` + table + ` WHERE ` + where
	err = sqlitex.Execute(m.w.Conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
		sealed = m.w.Seals().Altered(table, stmt) == nil
		for i := range stmt.ColumnCount() - 1 {
			switch stmt.ColumnType(i) {
			case sqlite.TypeInteger:
				values = append(values, db.Int(stmt.ColumnInt64(i)))
			case sqlite.TypeBlob:
				values = append(values, db.Bytes(db.ColumnBytes(stmt, i)))
			case sqlite.TypeNull:
				values = append(values, db.Null())
			case sqlite.TypeText, sqlite.TypeFloat:
				values = append(values, db.Text(stmt.ColumnText(i)))
			}
		}
		return nil
	}})
	return values, sealed, err
}

// edit sets members of a column that is a JSON object; nil removes one. It leaves anything else to
// the comparison that follows.
func edit(column *db.Value, members map[string]any) error {
	object := make(map[string]jsontext.Value)
	if json.Unmarshal([]byte(column.String()), &object) != nil {
		return nil
	}
	for name, value := range maps.All(members) {
		if value == nil {
			delete(object, name)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		object[name] = text
	}
	text, err := json.Marshal(object, json.Deterministic(true))
	*column = db.Text(string(text))
	return err
}
