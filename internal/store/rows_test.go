package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// unsealed are the tables without seals, each with the check that finds an edit of it.
var unsealed = map[string]string{
	"records":          "each has a seal of another form, see TestForgedRecords",
	"tiles":            "the tree is made of the records, and its root is signed",
	"retired":          "the note is signed, and the leaves belong to the tree that it names",
	"listed_exchanges": "its keys are compared with the log, see TestEditedRowsAreFoundAtTheStart, and nothing else is read of it",
}

// column is one column of the schema.
type column struct {
	name, kind string
	key        bool
}

// columnsOf reads the columns of all tables out of a database.
func columnsOf(t *testing.T, path string) map[string][]column {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	tables := make(map[string][]column)
	err = sqlitex.ExecuteTransient(conn, `SELECT m.name, x.name, x.type, x.pk > 0 FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		tables[stmt.ColumnText(0)] = append(tables[stmt.ColumnText(0)], column{stmt.ColumnText(1), stmt.ColumnText(2), stmt.ColumnBool(3)})
		return nil
	}})
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	return tables
}

// aRow writes a row of any sealed table, with texts that name the table.
func aRow(table string, columns []column, no int) Rows {
	var row []db.Value
	for i, c := range columns {
		switch {
		case c.name == "seal":
		case c.kind == "INTEGER":
			row = append(row, db.Int(int64(1000+no)))
		case c.kind == "BLOB":
			row = append(row, db.Bytes(fmt.Appendf(nil, "blob %d %d", no, i)))
		default:
			row = append(row, db.Text(fmt.Sprintf("text %d %d", no, i)))
		}
	}
	return Rows{Put: func(w *db.Writer) error { return w.Put("a row", table, row...) }}
}

// If any column of any sealed table is edited while no daemon runs, nobody reads the row, and the
// log names it.
func TestAlteredColumns(t *testing.T) {
	o := options(t.TempDir())
	shut(t, open(t, o))
	tables := columnsOf(t, o.Path)
	for table := range unsealed {
		if _, ok := tables[table]; !ok {
			t.Errorf("there is no table %s", table)
		}
		delete(tables, table)
	}
	for table, columns := range tables {
		for _, edited := range columns {
			if slices.ContainsFunc(rowseal.Tables(), func(s db.SealedTable) bool { return s.Name == table && slices.Contains(s.Counters, edited.name) }) {
				if edited.kind != "INTEGER" {
					t.Errorf("%s.%s can hold text", table, edited.name)
				}
				continue
			}
			t.Run(table+"."+edited.name, func(t *testing.T) {
				t.Parallel()
				o := options(t.TempDir())
				s := open(t, o)
				commit(t, s, with(aRow(table, columns, 1), aRow(table, columns, 2)))
				if n, err := s.CheckRows(t.Context()); n > 0 || err != nil {
					t.Fatalf("%d rows are altered, %v", n, err)
				}
				shut(t, s)
				forged := map[string]string{"TEXT": `'forged'`, "BLOB": `CAST('forged' AS BLOB)`, "INTEGER": `77`}[edited.kind]
				first := columns[slices.IndexFunc(columns, func(c column) bool { return c.key })]
				change(t, o.Path, fmt.Sprintf(`UPDATE %s SET %s = %s WHERE %s = (SELECT max(%s) FROM %s)`, table, edited.name, forged, first.name, first.name, table))
				var recorded []string
				o.Altered = func(table, row string) *Change {
					recorded = append(recorded, table+" "+row)
					return &Change{Alarm: true, Records: []*audit.Record{{ID: "altered", ActionType: audit.ActionSecurity, Event: "altered_row"}}}
				}
				s = open(t, o)
				_, err := db.Rows(t.Context(), s.Tables(), "all", `SELECT * FROM `+table, nil, func(stmt *sqlite.Stmt) (struct{}, error) {
					for i := range stmt.ColumnCount() {
						if strings.Contains(stmt.ColumnText(i), "forged") {
							t.Errorf("%s is read", stmt.ColumnText(i))
						}
					}
					return struct{}{}, nil
				})
				found, ok := errors.AsType[*AlteredError](err)
				if !ok || found.Table != table || strings.Contains(err.Error(), "forged") {
					t.Fatalf("reading: %v", err)
				}
				if n, err := s.CheckRows(t.Context()); n != 1 || err != nil {
					t.Errorf("%d rows are altered, %v", n, err)
				}
				s.alterations.Settle()
				if want := []string{table + " " + found.Row}; !slices.Equal(recorded, want) {
					t.Errorf("recorded are %v, want %v", recorded, want)
				}
				head := s.Head().Seq
				if err := s.EachLine(t.Context(), head-1, func(_ uint64, line []byte) error {
					if !bytes.Contains(line, []byte("altered_row")) || bytes.Contains(line, []byte("forged")) {
						t.Errorf("the last record is %s", line)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				shut(t, s)
			})
		}
	}
}

// A row's seal is valid only for its place and its table.
func TestSwappedRows(t *testing.T) {
	for name, script := range map[string]string{
		"values":       `UPDATE owed SET value = (SELECT value FROM owed o WHERE o.counterparty <> owed.counterparty)`,
		"with seals":   `CREATE TABLE was AS SELECT * FROM owed; UPDATE owed SET (value, until, seal) = (SELECT value, until, seal FROM was WHERE was.counterparty <> owed.counterparty); DROP TABLE was`,
		"other table":  `INSERT INTO runs (id, agent_id, session_key, queued_at, seal) SELECT agent, counterparty, value, until, seal FROM owed LIMIT 1`,
		"without seal": `INSERT INTO paused (scope, at, by) VALUES ('all', 1, 'somebody')`,
		"a column cut": `UPDATE owed SET counterparty = substr(counterparty, 1, 1), value = substr(counterparty, 2) || value WHERE counterparty = 'bb'`,
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			s := open(t, o)
			commit(t, s, with(Owed{Agent: "a", Counterparty: "bb", Value: "1", Until: someTime}, Owed{Agent: "a", Counterparty: "cc", Value: "2", Until: someTime}))
			shut(t, s)
			change(t, o.Path, script)
			s = open(t, o)
			defer shut(t, s)
			if n, err := s.CheckRows(t.Context()); n == 0 || err != nil {
				t.Errorf("%d rows are altered, %v", n, err)
			}
		})
	}
}

// A change that reads an altered row is not made, and other changes are.
func TestAlteredRowIsNotChanged(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	commit(t, s, with(&Approval{ID: "a", State: PendingApproval, Body: []byte("shown"), New: true}, &Approval{ID: "b", Agent: "b", State: PendingApproval, New: true}))
	shut(t, s)
	change(t, o.Path, `UPDATE approvals SET body = 'forged' WHERE id = 'a'`)
	s = open(t, o)
	defer shut(t, s)
	_, err := s.Commit(with(&Approval{ID: "a", State: "approved"}))
	if found, ok := errors.AsType[*AlteredError](err); !ok || found.Table != "approvals" {
		t.Errorf("a decision about an altered request: %v", err)
	}
	commit(t, s, with(&Approval{ID: "b", State: "approved"}))
	if n, err := s.CheckRows(t.Context()); n != 1 || err != nil {
		t.Errorf("%d rows are altered, %v", n, err)
	}
}

// rowKey makes a new key for each call, with the same bytes.
func rowKey(k rowseal.Key) func() (*rowseal.Key, error) {
	return func() (*rowseal.Key, error) {
		one := k
		one.HowToAccept = "accept them"
		return &one, nil
	}
}

// Rows are accepted as they are once: when an older database is migrated, or when the operator says
// so.
func TestRowsAreTakenOnce(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	refused := func(o Options, want string) {
		t.Helper()
		if s, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opened: %v, want %s", err, want)
			if err == nil {
				shut(t, s)
			}
		}
	}
	o := options(t.TempDir())
	done := 0
	o.RowKey = rowKey(rowseal.Key{Key: key, Done: func() error { done++; return nil }})
	s := open(t, o)
	if why, _, err := s.SealedRows(t.Context()); why != "" || err != nil || done != 1 {
		t.Errorf("a new database: %s, %v, %d", why, err, done)
	}
	commit(t, s, with(Owed{Agent: "a", Counterparty: "b", Value: "1", Until: someTime}))
	shut(t, s)

	o.RowKey = rowKey(rowseal.Key{Key: other})
	refused(o, "another key than the one that is there; put the key back from a backup, or go on with the rows as they are: accept them")
	// An attacker who edits rows and makes the database look like an older one is refused.
	change(t, o.Path, `DELETE FROM meta WHERE key IN ('digests-from', 'row-key')`)
	downgrade(t, o.Path, beforeParts)
	o.RowKey = rowKey(rowseal.Key{Key: key, Sealed: true})
	refused(o, "they have no seals, and once they had")
	o.RowKey = rowKey(rowseal.Key{Key: key})
	s = open(t, o)
	why, recorded, err := s.SealedRows(t.Context())
	if why != rowseal.First || err != nil {
		t.Errorf("a database of before: %s, %v", why, err)
	}
	commit(t, s, with(recorded, Owed{Agent: "a", Counterparty: "b", Value: "1", Until: someTime}))
	if why, _, err := s.SealedRows(t.Context()); why != "" || err != nil {
		t.Errorf("on record already: %s, %v", why, err)
	}
	shut(t, s)

	change(t, o.Path, `DELETE FROM meta WHERE key = 'row-key'; UPDATE owed SET value = 'forged'`)
	refused(o, "they have no seals, and once they had")
	o.RowKey = rowKey(rowseal.Key{Key: other, Accept: true})
	s = open(t, o)
	if why, _, err := s.SealedRows(t.Context()); why != rowseal.Accepted || err != nil {
		t.Errorf("accepted: %s, %v", why, err)
	}
	if owed, err := s.Owed(t.Context(), "a", "b"); err != nil || owed.Value != "forged" {
		t.Errorf("accepted: %+v, %v", owed, err)
	}
	shut(t, s)
}

// An altered exchange keeps no other one from expiring or being counted, and its text does not
// appear in the counts.
func TestAlteredExchangeAmongOthers(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	for _, id := range []string{"e1", "e2", "e3"} {
		commit(t, s, with(&Exchange{Exchange: exchange("agent-alice-1", id, id)}))
	}
	defer shut(t, s)
	change(t, o.Path, `UPDATE exchanges SET state = 'forged' WHERE id = 'e2'; UPDATE exchanges SET outcome = 'forged' WHERE id = 'e3'`)
	page, next, err := s.Expired(t.Context(), ExchangeKey{}, 9, exchange("", "", "").ExpiresAt.Add(1))
	if err != nil || len(page) != 1 || page[0].ID != "e1" || next != (ExchangeKey{}) {
		t.Errorf("expired are %+v, %v, %v", page, next, err)
	}
	if counts, err := s.ExchangeCounts(t.Context()); err != nil || len(counts) != 1 || counts[ocip.InProgress] != 2 {
		t.Errorf("counted are %v, %v", counts, err)
	}
}
