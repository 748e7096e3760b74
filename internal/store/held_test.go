package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// notShown are the columns, and members of JSON columns, that no record holds, and the ended rows:
// docs/for-auditors/what-no-log-shows.md lists them, with each of these texts.
var notShown = map[string]struct {
	columns []string
	page    string
}{
	"exchanges":         {[]string{"counterparty"}, "| `exchanges` | "},
	"escalations":       {[]string{"first", "second", "opened_at"}, "| `escalations` | whether one is open | `first` and `second`"},
	"approvals":         {[]string{"app_id", "asked"}, "`id`, `app_id`, `asked`; all else in `summary` and `body`"},
	"commitment_grants": {[]string{"body"}, "| `commitment_grants` | all other columns | `id`, `body` |"},
	"paused":            {[]string{"by"}, "| `paused` | `at` | nothing |"},
	"lanes":             {nil, "| `lanes` | `last` | nothing |"},
	"owed":              {[]string{"value"}, "| `owed` | nothing: the log has only the `seal` of a row | everything |"},
	"app_processes":     {[]string{"app"}, "| `app_processes` | `boot`, `name`, `at` | `app` |"},
	"used_signatures":   {nil, "| `used_signatures` | `until` | nothing |"},
	"releases":          {[]string{"app_id", "claim", "request_key", "origin", "data", "record_seq"}, "| `releases` | `state`, `expires_at` | all other columns |"},
	"tasks":             {[]string{"priority", "ready_at", "binds", "blocked", "running", "origin", "head"}, "| `tasks` | `tenant`, `phase`, `seq`, `is_open`, and the same in `head`."},
	"task_parts":        {[]string{"id"}, "| `task_parts`, `effects`, `task_deps` | nothing"},
	"effects":           {[]string{"id", "key", "busy"}, "| `task_parts`, `effects`, `task_deps` | nothing"},
	"task_deps":         {nil, "| `task_parts`, `effects`, `task_deps` | nothing"},
	"grants":            {nil, "| `grants` | `task_id`, `expires_at`, `token`;"},
}

// notHeld are the tables that the log does not hold, with the reason. Their rows have seals, except
// those of the log itself: a row that somebody deletes, or replaces by an older one, is not found.
var notHeld = map[string]string{
	"brought":           "an address that a message brought is a stranger again: the page says so",
	"current_exchanges": "an agent may begin a new exchange at any time, and a debt binds it there too",
	"heard":             "the chain of a message begins anew: the page says so",
	"lane_sent":         "each row has the number of its lane, which the log holds",
	"lane_taken":        "each row has the number of its lane, which the log holds",
	"listed_exchanges":  "it only finds rows of exchanges, which the log holds",
	"meta":              "values of the daemon, each checked by its reader: the page says so",
	"outbox":            "a message needs the record that allowed it, and no record may have ended it",
	"queues":            "each message of the outbox names its queue",
	"records":           "it is the log",
	"request_keys":      "a request that is repeated is decided again",
	"retired":           "it is the log's tombstone, which is signed",
	"runs":              "a run that is not known cannot be completed",
	"seen_agents":       "nobody is known to be an agent there: the page says so",
	"sessions":          "times and counts for people",
	"speakers":          "somebody is not known to have spoken in a room: the page says so",
	"spent":             "counts within a window begin anew: the page says so",
	"tiles":             "it is the log's tree, which is checked against the records",
}

// Each table of the database is held to the log, or has a reason why not.
func TestEachTableIsHeldOrSaysWhyNot(t *testing.T) {
	s := open(t, foldOptions(t))
	defer shut(t, s)
	names, err := db.Rows(t.Context(), s.db, "the tables", `SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`, nil, db.ScanText)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		_, held := notShown[name]
		if why := notHeld[name]; held == (why != "") {
			t.Errorf("%s is held: %t, and the reason why not is %q", name, held, why)
		}
	}
	if len(names) != len(notShown)+len(notHeld) {
		t.Errorf("there are %d tables, and %d are listed", len(names), len(notShown)+len(notHeld))
	}
	for _, table := range fold.Tables() {
		if _, held := notShown[table.Name()]; !held {
			t.Errorf("nothing says which columns of %s the log does not hold", table.Name())
		}
	}
}

// otherJSON are values for a JSON column that change the part that the log holds.
var otherJSON = map[string][]string{
	"exchanges.state": {`json_set(state, '$.round', 77)`, `json_set(state, '$.maxRounds', 77)`, `json_set(state, '$.type', 'x')`, `json_set(state, '$.forPerson', json('true'))`, `'x'`},
	"approvals.body":  {`'{"digest":"x"}'`, `'x'`}, "approvals.summary": {`'{"given":77}'`, `'x'`},
	"task_parts.body": {`json_set(body, '$.version', 77)`, `json_set(body, '$.kept.seq', 77)`, `json_set(body, '$.kept.keyed', 'x')`, `'x'`},
	"effects.body":    {`json_set(body, '$.state', 'x')`, `json_set(body, '$.effect_id', 'x')`, `json_set(body, '$.request_digest', 'x')`, `json_set(body, '$.kept.seq', 77)`, `json_set(body, '$.runs', json('[{"run":1,"state":"started"}]'))`, `'x'`},
	"grants.body":     {`json_set(body, '$.actor', 'x')`, `json_set(body, '$.role', 'x')`, `json_set(body, '$.holder.uid', 77)`, `json_remove(body, '$.holder')`, `'x'`},
}

// Each row of every table in the log, open or ended, is deleted, replaced by an older one, and
// changed in each of its columns, by an attacker who even has the key of the rows. Either the start
// is refused, or the row is not used, or the page says that no log shows it.
func TestEveryColumnIsHeldToTheLog(t *testing.T) {
	page, err := os.ReadFile("../../docs/for-auditors/what-no-log-shows.md")
	if err != nil {
		t.Fatal(err)
	}
	o := foldOptions(t)
	shut(t, lived(t, o))
	before := make(map[string][]string)
	for table := range notShown {
		before[table] = readAll(t, o.Path, table)
		if !strings.Contains(string(page), notShown[table].page) {
			t.Errorf("the page does not list %s: %s", table, notShown[table].page)
		}
	}
	for _, says := range []string{"rows that have ended: if somebody deletes one", "can turn a failed task into a completed one"} {
		if !strings.Contains(string(page), says) {
			t.Errorf("the page does not say %q", says)
		}
	}
	s := open(t, o)
	e := exchange("agent-alice-1", "e1", "c-e1")
	e.Round, e.Outcome = 4, ocip.Resolved
	e2 := exchange("agent-alice-1", "e2", "c-e2")
	e2.Round = 4
	commit(t, s, with(&Exchange{Exchange: e}, &Exchange{Exchange: e2}, Settled(PairOf("a", "b")), GrantEnded("g1"),
		&Release{Approval: "r1", AppID: "app", State: ReleaseAbandoned, ExpiresAt: someTime, From: ReleaseClaimed, FromClaim: "c"},
		&Approval{ID: "a1", Kind: "message", Agent: "a", State: "denied", ExpiresAt: someTime},
		taskStep{phase: "completed", state: "done", runs: 1}.part("t1", 3), taskStep{phase: "completed", state: "done", runs: 2}.part("t2", 3),
		Owed{Agent: "a", Counterparty: "b", Value: `{"replyPolicy":"human-only","commitment":true}`, Until: someTime.Add(time.Hour)}, Owed{Agent: "a", Counterparty: "c"},
		actorGrant("k1", `{"actor":"claude","holder":{"uid":8},"role":"executor"}`),
		EndedProcesses{{"boot", "1@1"}, {"boot", "never"}}, AppProcess{Boot: "boot", Name: "2@2", App: "b", At: someTime.Add(time.Second)},
		Escalation{Pair: PairOf("d", "a"), ExchangeID: "e2", OpenedAt: someTime}, Paused{Scope: "agent:b", At: someTime, By: "p"}))
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	content, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	defer shut(t, s)
	conn, err := sqlite.OpenConn(copied, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader, err := db.NewReader(copied, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	do := func(script string) {
		t.Helper()
		if err := sqlitex.ExecuteScript(conn, script, nil); err != nil {
			t.Fatal(script, err)
		}
	}
	if err := sqlitex.ExecuteTransient(conn, `PRAGMA synchronous = OFF`, nil); err != nil {
		t.Fatal(err)
	}
	found := func() bool {
		t.Helper()
		_, err := foldrows.TakeUp(t.Context(), reader, s.Log, fold.NewSet(), someTime.Add(time.Second), false, s.logger)
		return err != nil
	}
	if found() {
		t.Fatal("rows differ that nobody has changed")
	}
	h := held{t: t, s: s, conn: conn, do: do, found: found}
	for table := range notShown {
		h.table(table, before[table], readAll(t, copied, table))
	}
	if h.refused < 60 || h.missed == 0 {
		t.Errorf("%d changes were found, and %d not", h.refused, h.missed)
	}
	t.Logf("%d changes were found, %d are listed", h.refused, h.missed)
}

// held changes rows, and counts the findings.
type held struct {
	t               *testing.T
	s               *Store
	conn            *sqlite.Conn
	do              func(string)
	found           func() bool
	refused, missed int
}

func (h *held) columns(table string) (names, keys []string) {
	h.t.Helper()
	err := sqlitex.ExecuteTransient(h.conn, `SELECT name, pk FROM pragma_table_info('`+table+`')`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		names = append(names, stmt.ColumnText(0))
		if stmt.ColumnInt(1) > 0 {
			keys = append(keys, stmt.ColumnText(0))
		}
		return nil
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	return names, keys
}

func (h *held) table(table string, before, now []string) {
	h.t.Helper()
	names, keys := h.columns(table)
	conditions := make(map[string]bool)
	keyed := func(row string) (where string) {
		h.do(`CREATE TEMP TABLE one AS SELECT * FROM main.` + table + ` LIMIT 0; INSERT INTO one VALUES (` + row + `)`)
		var parts []string
		for _, key := range keys {
			parts = append(parts, `'`+key+` = ' || quote(`+key+`)`)
		}
		err := sqlitex.ExecuteTransient(h.conn, `SELECT `+strings.Join(parts, ` || ' AND ' || `)+` FROM one`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			where = stmt.ColumnText(0)
			return nil
		}})
		if err != nil {
			h.t.Fatal(err)
		}
		h.do(`DROP TABLE one`)
		return where
	}
	for _, row := range now {
		where := keyed(row)
		conditions[where] = true
		restore := `DELETE FROM main.` + table + `; ` + puts(table, now)
		ended := h.ended(table, where)
		try := func(what, script string, listed bool) {
			h.do(script)
			if h.found() || h.unused(table, where) {
				h.refused++
			} else if h.missed++; !listed {
				h.t.Errorf("%s %s, %s: it is not found", table, where, what)
			}
			h.do(restore)
		}
		try("deleted", `DELETE FROM main.`+table+` WHERE `+where, ended)
		for _, older := range before {
			if older != row && keyed(older) == where {
				try("as it was before", `DELETE FROM main.`+table+` WHERE `+where+`; INSERT INTO main.`+table+` VALUES (`+older+`)`, ended)
			}
		}
		for _, name := range names {
			if name == "seal" || slices.Contains(keys, name) {
				continue
			}
			values, isJSON := otherJSON[table+"."+name]
			if !isJSON {
				values = []string{`CASE typeof(` + name + `) WHEN 'integer' THEN ` + name + ` + 1 WHEN 'null' THEN 1 WHEN 'blob' THEN x'00' ELSE 'other' END`}
			}
			for _, value := range values {
				// A change must differ from the row's value.
				h.do(fmt.Sprintf(`CREATE TEMP TABLE was AS SELECT %[1]s AS v FROM main.%[2]s WHERE %[3]s`, name, table, where))
				script := fmt.Sprintf(`UPDATE main.%s SET %s = %s WHERE %s`, table, name, value, where)
				same := 0
				h.do(script)
				err := sqlitex.ExecuteTransient(h.conn, fmt.Sprintf(`SELECT count(*) FROM main.%s, was WHERE %s AND %s IS was.v`, table, where, name), &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error { same = stmt.ColumnInt(0); return nil }})
				if err != nil {
					h.t.Fatal(err)
				}
				h.do(`DROP TABLE was; ` + restore)
				if same == 0 {
					try(name+" = "+value, script, ended || slices.Contains(notShown[table].columns, name))
				}
			}
		}
	}
	// Deleted rows are put back.
	for _, older := range before {
		if where := keyed(older); !conditions[where] {
			h.do(`INSERT INTO main.` + table + ` VALUES (` + older + `)`)
			if h.found() {
				h.refused++
			} else {
				h.t.Errorf("%s %s is put back, and is not found", table, where)
			}
			h.do(`DELETE FROM main.` + table + ` WHERE ` + where)
		}
	}
}

func puts(table string, rows []string) string {
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, `INSERT INTO main.%s VALUES (%s);`, table, row)
	}
	return b.String()
}

// ended reports whether no decision depends on a row any more, so that the log does not state it.
func (h *held) ended(table, where string) bool {
	h.t.Helper()
	t, _, row := h.find(table, where)
	return !t.Open(row, someTime)
}

// unused reports whether the store refuses to use a row that it reads, regardless of the start.
func (h *held) unused(table, where string) bool {
	h.t.Helper()
	t, keys, row := h.find(table, where)
	return keys != nil && !h.s.sameAsSaid(t, keys, row)
}

// find returns the row that the log states: the row itself, or the task that it belongs to.
func (h *held) find(table, where string) (t fold.Table, keys []string, row fold.Row) {
	h.t.Helper()
	of := map[string]fold.Table{"task_parts": fold.Tasks, "effects": fold.Tasks, "task_deps": fold.Tasks}
	t, belongs := of[table]
	if !belongs {
		t, _ = fold.Of(table)
	}
	key := map[string]string{"exchanges": "agent, id", "escalations": "exchange_id", "paused": "scope", "lanes": "name", "releases": "approval", "owed": "agent, lower(hex(seal))", "app_processes": "boot, name"}[table]
	if belongs {
		key = "task_id"
	} else if key == "" {
		key = "id"
	}
	err := sqlitex.ExecuteTransient(h.conn, `SELECT `+key+` FROM main.`+table+` WHERE `+where, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		for i := range stmt.ColumnCount() {
			keys = append(keys, stmt.ColumnText(i))
		}
		return nil
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	if keys == nil {
		return t, nil, nil
	}
	if row, err = foldrows.Find(h.conn, t, keys); err != nil {
		h.t.Fatal(err)
	}
	return t, keys, row
}
