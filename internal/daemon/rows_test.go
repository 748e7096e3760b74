package daemon_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"github.com/openclawos/ocipd/internal/task"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// rowKey reads the key of the rows of a stopped daemon.
func (h *harness) rowKey() (*rowseal.Key, error) {
	return keyring.RowKey(h.path("state/keys"), rand.Reader, time.Now)()
}

// editRows runs SQL on the database of a stopped daemon. Triggers do not stop the script,
// and are there again afterwards.
func (h *harness) editRows(script string) {
	h.t.Helper()
	conn, err := sqlite.OpenConn(h.path("state/ocipd.db"), sqlite.OpenReadWrite)
	if err != nil {
		h.t.Fatal(err)
	}
	var drops, makes string
	err = sqlitex.ExecuteTransient(conn, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		drops += "DROP TRIGGER " + stmt.ColumnText(0) + ";"
		makes += stmt.ColumnText(1) + ";"
		return nil
	}})
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, drops+script+";"+makes, nil), conn.Close())
	}
	if err != nil {
		h.t.Fatal(script, err)
	}
}

// rewriteRows changes rows of a stopped daemon like an attacker who also has the key of rows.
func (h *harness) rewriteRows(change func(*db.Writer) error) {
	h.t.Helper()
	s, err := store.Open(context.WithoutCancel(h.t.Context()), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = s.Commit(&store.Change{Records: []*audit.Record{{ID: "rows", ActionType: audit.ActionSecurity, Event: "rows"}}, Parts: []store.Part{store.Rows{Put: change}}})
	if err := errors.Join(err, s.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// forge edits the rows of a running daemon and seals them again, like an attacker who also
// has the key of rows.
func (h *harness) forge(script string) {
	h.t.Helper()
	h.editRows(script)
	key, err := h.rowKey()
	if err != nil {
		h.t.Fatal(err)
	}
	w, err := db.OpenWriter(h.path("state/ocipd.db"))
	if err != nil {
		h.t.Fatal(err)
	}
	version, err := db.QueryInt(w.Conn, "PRAGMA user_version")
	if err == nil {
		k := rowseal.Key{Key: key.Key, Accept: true}
		_, err = k.Settle(h.t.Context(), w, version, version, func(seal func() error) error { return w.Together(seal) })
	}
	if err := errors.Join(err, w.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// rewriteRelease is rewriteRows for the approval with an id. The values are in the order of the table.
func (h *harness) rewriteRelease(id string, change func(values []db.Value)) {
	h.t.Helper()
	h.rewriteRows(func(w *db.Writer) error {
		n, err := w.Amend("a release", "releases", change, "approval = ?", db.Text(id))
		if err == nil && n != 1 {
			err = fmt.Errorf("%d releases", n)
		}
		return err
	})
}

// altered returns the tables of the altered rows on record.
func (h *harness) altered() (tables []string) {
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		if r.Event == "altered_row" {
			tables = append(tables, r.Details["table"].(string))
		}
	}
	return tables
}

// ofTheLog are the tables of the log, whose records have another form of seal
// (TestForgedRecords). A list of keys is compared with the log.
var ofTheLog = map[string]bool{"records": true, "tiles": true, "retired": true, "listed_exchanges": true}

// Whichever column of whichever table is edited while the daemon is stopped, the next start
// records the fact, or fails. It reveals nothing of the edit.
func TestEditsOfAStoppedDatabase(t *testing.T) {
	type column struct{ name, kind string }
	tables := make(map[string][]column)
	model := build(t, acme)
	model.stop()
	conn, err := sqlite.OpenConn(model.path("state/ocipd.db"), sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteTransient(conn, `SELECT m.name, x.name, x.type FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'`,
		&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			tables[stmt.ColumnText(0)] = append(tables[stmt.ColumnText(0)], column{stmt.ColumnText(1), stmt.ColumnText(2)})
			return nil
		}})
	if err := errors.Join(err, conn.Close()); err != nil || len(tables) < 20 {
		t.Fatal(len(tables), err)
	}
	for table, columns := range tables {
		if ofTheLog[table] {
			continue
		}
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			h.stop()
			s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			// One row for each column that can hold text, which is edited there.
			c := &store.Change{Records: []*audit.Record{{ID: "rows", ActionType: audit.ActionSecurity, Event: "rows"}}}
			var script strings.Builder
			edits := 0
			for no, edited := range columns {
				if edited.kind == "INTEGER" {
					continue
				}
				edits++
				var row []db.Value
				found := "false"
				for i, c := range columns {
					text := fmt.Sprintf("~row %d column %d", no, i)
					switch {
					case c.name == "seal":
					case c.kind == "INTEGER":
						row = append(row, db.Int(int64(1_000_000+no)))
					case c.kind == "BLOB":
						row = append(row, db.Bytes([]byte(text)))
						found += fmt.Sprintf(" OR %s = CAST('%s' AS BLOB)", c.name, text)
					default:
						row = append(row, db.Text(text))
						found += fmt.Sprintf(" OR %s = '%s'", c.name, text)
					}
				}
				c.Add(store.Rows{Put: func(w *db.Writer) error { return w.Insert("a row", table, row...) }})
				fmt.Fprintf(&script, "UPDATE %s SET %s = CAST('forged' AS %s) WHERE %s;", table, edited.name, edited.kind, found)
			}
			_, err = s.Commit(c)
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			h.editRows(script.String())
			logged := h.observe()
			if err := h.tryStart(); err != nil {
				// A start reads the table at once, or compares it with the log.
				compared := slices.Contains([]string{"paused", "escalations", "lanes", "app_processes"}, table) && strings.Contains(err.Error(), "and no record does")
				if want := "of the table " + table + " was changed by somebody else than the daemon"; !compared && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "forged")) {
					t.Errorf("the start: %v, want %s", err, want)
				}
				return
			}
			for t.Context().Err() == nil {
				if got := h.altered(); len(got) >= edits {
					if len(got) > edits || strings.Trim(strings.Join(got, ""), table) != "" {
						t.Errorf("on record are rows of %v, want %d of %s", got, edits, table)
					}
					break
				}
			}
			for _, entry := range logged.All() {
				if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), "forged") {
					t.Errorf("the log has %s %v", entry.Message, entry.ContextMap())
				}
			}
			for _, r := range h.records(audit.Filter{}) {
				if strings.Contains(fmt.Sprintf("%+v", r), "forged") {
					t.Errorf("on record is %+v", r)
				}
			}
		})
	}
}

// An app learns neither the edit nor its row, and if the log also has the column, the
// daemon does not start.
func TestAlteredExchange(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "Hello", fresh(nil))
	h.stop()
	h.editRows(`UPDATE exchanges SET state = replace(state, '"round":1', '"round":0')`)
	if err := h.tryStart(); err == nil || !strings.Contains(err.Error(), "the row says round 0, record") {
		t.Fatalf("the start: %v", err)
	}
	h.editRows(`UPDATE exchanges SET state = replace(state, '"round":0', '"round": 1')`)
	h.start()
	alice = h.again(alice)
	alice.refuse("INTERNAL_ERROR", "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Hello again"})
	for len(h.altered()) == 0 && t.Context().Err() == nil {
	}
	if got := h.altered(); len(got) != 1 || got[0] != "exchanges" {
		t.Errorf("on record are rows of %v", got)
	}
}

// If an attacker with the key of rows edits the approval of an effect while the daemon
// runs, the effect does not start, although the task is in memory. A revoked grant that is
// restored lets nobody attach.
func TestTasksEditedInARunningDaemon(t *testing.T) {
	h := build(t, taskTeam)
	c, ask, run := h.toTell()
	shown := h.shown(str(ask(), "approval_id"))
	h.operates().must("approval.resolve", decision(api.DecideApprove, &shown), nil)
	c.move(task.ReadyToResume)
	refused := func(table string, who *taskCaller, method string, params m) {
		t.Helper()
		_, err := who.call(method, params)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.InternalError || !strings.Contains(e.Message, "changed by somebody else") {
			t.Errorf("after an edit of %s the answer is %v", table, err)
		}
		waitFor(t, "the record of the row of "+table, func() bool { return slices.Contains(h.altered(), table) })
	}
	h.forge(`UPDATE task_parts SET body = json_set(body, '$.void', json('true')) WHERE kind = 'approval'`)
	refused("tasks", c.lead, "task.run_effect", run())
	if e := h.newest(c.id)["task effect.started"]; e.ID != "" {
		t.Errorf("the effect is started: %+v", e)
	}

	granted := h.taskOperator().must("task.grant", m{"actor": "lead"})
	h.taskOperator().must("task.revoke_grant", m{"grant_id": granted["grant_id"]})
	h.forge(`UPDATE grants SET body = json_remove(body, '$.revoked_at')`)
	refused("grants", h.taskDial("run/kernel.sock", "lead"), "task.attach", m{"token": granted["token"]})
}
