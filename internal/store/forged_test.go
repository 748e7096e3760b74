package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// rechained forges the log of a database from a record on: the line is changed, and its hash and
// those of all later lines are made to fit, as anybody can. The seals stay.
func rechained(t *testing.T, path string, seq uint64, was, is string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	err = sqlitex.Execute(conn, `SELECT line FROM records WHERE seq >= ? ORDER BY seq`, &sqlitex.ExecOptions{Args: []any{int64(seq - 1)}, ResultFunc: func(stmt *sqlite.Stmt) error {
		lines = append(lines, []byte(stmt.ColumnText(0)))
		return nil
	}})
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	head, err := audit.HeadOf(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	script := "DROP TRIGGER records_no_update"
	for _, line := range lines[1:] {
		at, err := audit.HeadOf(line)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := bytes.Cut(line, []byte(`Z",`))
		body, _, _ = bytes.Cut(body, []byte(`,"prev":"`))
		body = bytes.ReplaceAll(body, []byte(was), []byte(is))
		var forged []byte
		forged, head = head.Seal(nil, at.Time, slices.Concat([]byte("{"), body, []byte("}")))
		script += fmt.Sprintf(";UPDATE records SET line = '%s' WHERE seq = %d", forged, head.Seq)
	}
	change(t, path, script)
}

// A record that somebody other than the daemon has written or changed allows nothing, whether or
// not its hash and the later ones were made to fit. At the end of the log it keeps the daemon from
// starting.
func TestForgedRecords(t *testing.T) {
	const denied = 3
	decided := func(t *testing.T, behind int) Options {
		o := options(t.TempDir())
		s := open(t, o)
		fill(t, s, 2)
		commit(t, s, &Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionApproval, Event: "denied", DispatchID: "d", ApprovalID: "a"}}})
		fill(t, s, behind)
		if found, err := s.DecisionsOf(t.Context(), denied, "d"); err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		shut(t, s)
		return o
	}
	const edit = `UPDATE records SET line = replace(line, '"event":"denied"', '"event":"approved"') WHERE seq = 3`
	for name, tamper := range map[string]func(t *testing.T, o Options){
		"edited": func(t *testing.T, o Options) { change(t, o.Path, "DROP TRIGGER records_no_update;"+edit) },
		"hash that fits": func(t *testing.T, o Options) {
			r, err := OpenReader(t.Context(), o.Path)
			if err != nil {
				t.Fatal(err)
			}
			line, err := r.Line(t.Context(), 2)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			before, _ := audit.HeadOf(line)
			forged, _ := before.Seal(nil, time.Now(), []byte(`{"id":"r","actionType":"approval","event":"approved","dispatchId":"d","approvalId":"a"}`))
			change(t, o.Path, fmt.Sprintf(`DROP TRIGGER records_no_update; UPDATE records SET line = '%s' WHERE seq = 3`, forged))
		},
		"all chained anew": func(t *testing.T, o Options) { rechained(t, o.Path, denied, `"event":"denied"`, `"event":"approved"`) },
		"no seal": func(t *testing.T, o Options) {
			change(t, o.Path, "DROP TRIGGER records_no_update; UPDATE records SET seal = x'' WHERE seq = 3")
		},
		"another's seal": func(t *testing.T, o Options) {
			change(t, o.Path, "DROP TRIGGER records_no_update; UPDATE records SET seal = (SELECT seal FROM records WHERE seq = 4) WHERE seq = 3")
		},
		"made one of before": func(t *testing.T, o Options) {
			change(t, o.Path, "DROP TRIGGER records_no_update; UPDATE records SET seal = x'' WHERE seq = 3; INSERT INTO meta (key, value) VALUES ('records-sealed-from', CAST('100' AS BLOB))")
		},
	} {
		for _, behind := range []int{20, 300} {
			t.Run(fmt.Sprintf("%s, %d behind", name, behind), func(t *testing.T) {
				t.Parallel()
				o := decided(t, behind)
				tamper(t, o)
				var recorded []string
				o.Altered = func(table, row string) *Change {
					recorded = append(recorded, table)
					return &Change{Alarm: true, Records: noted("altered").Records}
				}
				s, err := Open(context.Background(), o)
				if err != nil {
					// Each start checks the last records, and all that are not signed yet.
					if _, ok := errors.AsType[*audit.Fault](err); !ok && !strings.Contains(err.Error(), "somebody else than the daemon") {
						t.Errorf("the start: %v", err)
					}
					return
				}
				defer shut(t, s)
				if behind < 256 {
					t.Error("it starts")
				}
				found, err := s.DecisionsOf(t.Context(), denied, "d")
				if altered, ok := errors.AsType[*AlteredError](err); !ok || altered.Table != "records" || len(found) > 0 {
					t.Errorf("it is read as %v, %v", found, err)
				}
				line, err := db.Row(t.Context(), s.Tables(), "a line", `SELECT line FROM records WHERE seq = 3`, nil, db.ScanBytes)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.WrittenAs(t.Context(), line); err == nil {
					t.Error("it is believed where a search has found it")
				}
				s.alterations.Settle()
				if !slices.Equal(recorded, []string{"records"}) {
					t.Errorf("on record are rows of %v", recorded)
				}
			})
		}
	}
}

// Records that are older than the seals of records allow nothing, and an older row is sealed only
// if its old seal fits.
func TestRecordsOfBeforeSeals(t *testing.T) {
	const before = 19
	o := options(t.TempDir())
	s := open(t, o)
	m := &Message{MessageID: MessageID{Queue: "channel:irc"}, DispatchID: "d", Body: []byte("body")}
	commit(t, s, &Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange, DispatchID: "d", PolicyResult: "allow"}}, Parts: []Part{m}})
	shut(t, s)
	change(t, o.Path, `DELETE FROM meta WHERE key = 'row-key'`)
	downgrade(t, o.Path, before)
	s = open(t, o)
	if found, err := s.DecisionsOf(t.Context(), m.RecordSeq, "d"); err != nil || len(found) > 0 {
		t.Errorf("a record of before is read as %v, %v", found, err)
	}
	if page, err := s.Messages(t.Context(), "channel:irc", 0, 9); err != nil || len(page) != 1 || page[0].Altered || string(page[0].Body) != "body" {
		t.Errorf("what waits is %v, %v", page, err)
	}
	r := commit(t, s, noted("d2"))
	shut(t, s)
	s = open(t, o)
	defer shut(t, s)
	if found, err := s.DecisionsOf(t.Context(), r.Seq, "d2"); err != nil || len(found) != 1 {
		t.Errorf("a record since is read as %v, %v", found, err)
	}
	if from, err := rowseal.SealedFrom(t.Context(), s.Tables()); err != nil || from != r.Seq {
		t.Errorf("records are sealed from %d on, %v", from, err)
	}
}

// A database with another schema than the daemon's is not used, whichever object differs.
func TestSchemaIsHeldAgainstTheMigrations(t *testing.T) {
	const write = `PRAGMA writable_schema = ON;`
	for name, tc := range map[string]struct{ script, want string }{
		"names of columns exchanged": {write + `UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'agent ', 'x '), 'counterparty ', 'agent '), 'x ', 'counterparty ') WHERE name = 'exchanges'`, `the table "exchanges" of the database is not as the daemon made it`},
		"a trigger planted":          {`CREATE TRIGGER planted AFTER INSERT ON paused BEGIN DELETE FROM paused`, `the trigger "planted" of the database was not made by the daemon`},
		"a trigger gone":             {write + `DELETE FROM sqlite_schema WHERE name = 'records_no_update'`, `the trigger "records_no_update" of the database is missing`},
		"a trigger changed":          {write + `UPDATE sqlite_schema SET sql = replace(sql, 'ABORT', 'FAIL') WHERE name = 'records_no_delete'`, `the trigger "records_no_delete" of the database is not as`},
		"a view":                     {`CREATE VIEW seen AS SELECT * FROM records`, `the view "seen" of the database was not made`},
		"an index":                   {`CREATE INDEX more ON runs (agent_id)`, `the index "more" of the database was not made`},
		"an index gone":              {`DROP INDEX releases_app`, `the index "releases_app" of the database is missing`},
		"an index on another column": {write + `UPDATE sqlite_schema SET sql = replace(sql, 'app_id, approval', 'approval, app_id') WHERE name = 'releases_app'`, `the index "releases_app" of the database is not as`},
		"a table":                    {`CREATE TABLE more (a TEXT)`, `the table "more" of the database was not made`},
		"a column":                   {`ALTER TABLE runs ADD COLUMN more TEXT`, `the table "runs" of the database is not as`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t.TempDir())
			shut(t, open(t, o))
			conn, err := sqlite.OpenConn(o.Path, sqlite.OpenReadWrite)
			if err == nil && strings.HasPrefix(tc.script, "CREATE TRIGGER") {
				err = sqlitex.ExecuteTransient(conn, tc.script+"; END", nil)
			} else if err == nil {
				err = sqlitex.ExecuteScript(conn, tc.script, nil)
			}
			if err := errors.Join(err, conn.Close()); err != nil {
				t.Fatal(err)
			}
			s, err := Open(context.Background(), o)
			if err == nil {
				shut(t, s)
			}
			if _, ok := errors.AsType[*audit.Fault](err); !ok || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("opened: %v, want %s", err, tc.want)
			}
			r := openReader(t, o.Path)
			if err := r.CheckSchema(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("without a start: %v, want %s", err, tc.want)
			}
		})
	}
}

// A waiting message belongs only to its queue, even if another queue got the number, and an altered
// one does not block those after it.
func TestMessageIsOfItsQueue(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	for _, id := range []string{"d1", "d2", "d3"} {
		commit(t, s, with(&Message{MessageID: MessageID{Queue: "agent:bob"}, DispatchID: id, Body: []byte(id)}))
	}
	shut(t, s)
	change(t, o.Path, `UPDATE outbox SET message = 'forged' WHERE dispatch_id = 'd2'; DELETE FROM queues`)
	s = open(t, o)
	commit(t, s, with(&Message{MessageID: MessageID{Queue: "agent:zed"}, DispatchID: "d4", Body: []byte("d4")}))
	page, err := s.Messages(t.Context(), "agent:zed", 0, 9)
	if err != nil || len(page) != 4 || !page[0].Altered || !page[1].Altered || !page[2].Altered || page[3].Altered || string(page[3].Body) != "d4" {
		t.Errorf("zed is given %v, %v", page, err)
	}
	for _, m := range page[:3] {
		if m.DispatchID != "" || m.Body != nil || m.RecordSeq != 0 {
			t.Errorf("of an altered message there is %+v", m)
		}
	}
	shut(t, s)
}
