package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ran is the result of a command of this program.
type ran struct {
	code         int
	stdout, said string
}

// ocipd runs a command on a daemon's files.
func (d *staged) ocipd(t *testing.T, args ...string) ran {
	t.Helper()
	var out, said bytes.Buffer
	code := run(t.Context(), append([]string{"--config", d.at("ocipd.yaml"), "--socket", d.socket}, args...), strings.NewReader(""), &out, &said,
		[]string{"HOME=" + d.dir, "XDG_STATE_HOME=" + d.dir})
	return ran{code, out.String(), said.String()}
}

// sql changes a database file.
func sql(t *testing.T, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	// Triggers that the script drops are restored afterwards.
	again := ""
	err = sqlitex.ExecuteTransient(conn, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		if strings.Contains(script, "DROP TRIGGER "+stmt.ColumnText(0)+";") {
			again += ";" + stmt.ColumnText(1)
		}
		return nil
	}})
	if err := errors.Join(err, sqlitex.ExecuteScript(conn, script+again, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// Plain verify covers everything from which this daemon answers. Any fault in it leads to
// the exit code of a fault, quickly.
func TestVerifyCoversWhatIsAnsweredFrom(t *testing.T) {
	t.Parallel()
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
audit: {rotate: {bytes: 16384}}
`)
	d.begin(t, "@acme/alice", "@acme/link")
	for i := range 40 {
		if _, err := d.say(t, "agent:bob:main", fmt.Sprintf("Where do we stand with item %d?", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	d.settled(t)
	// It may run beside the daemon.
	if r := d.ocipd(t, "audit", "verify"); r.code != cli.ExitDone || !strings.Contains(r.stdout, "holds the same log, with a Merkle tree") {
		t.Errorf("beside the daemon: %+v", r)
	}
	d.end(t)
	// Its index has caught up, and there are tiles to damage.
	seq := 20
	state := d.at("openclawos")
	whole := t.TempDir()
	copyTree(t, state, whole)
	publicKey := strings.TrimSpace(d.ocipd(t, "audit", "key", "show").stdout)
	// A copy is searched and counted as well, and a changed one is not.
	for _, args := range [][]string{{"audit", "query", "--all"}, {"audit", "stats"}} {
		if r := d.ocipd(t, append(args, "--database", filepath.Join(whole, "ocipd.db"))...); r.code != cli.ExitDone || !strings.Contains(r.stdout, "agent-alice-1") {
			t.Errorf("%q of a copy: %+v", args, r)
		}
	}
	database, index := filepath.Join(state, "ocipd.db"), filepath.Join(state, "ocipd.index.db")
	line := func(script string) func(*testing.T) {
		return func(t *testing.T) {
			sql(t, database, "DROP TRIGGER records_no_update; DROP TRIGGER records_no_replace;"+script)
		}
	}
	in := func(path, script string) func(*testing.T) { return func(t *testing.T) { sql(t, path, script) } }
	pipe := func(name string) func(*testing.T) {
		return func(t *testing.T) {
			path := filepath.Join(state, name)
			if err := errors.Join(os.RemoveAll(path), unix.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put := func(name, text string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(state, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*testing.T)
		says   string
	}{
		"nothing":                  {func(*testing.T) {}, ""},
		"a record in the database": {line(fmt.Sprintf(`UPDATE records SET line = replace(line, '"allow"', '"deny"') WHERE seq = %d`, seq)), fmt.Sprintf("ocipd.db: audit record %d: its content does not match its hash", seq)},
		"a record of number zero":  {line(`INSERT INTO records (seq, line) VALUES (0, 'x'), (-7, 'y')`), "2 rows with no number of a record"},
		"the last records":         {in(database, fmt.Sprintf(`DROP TRIGGER records_no_delete; DELETE FROM records WHERE seq > %d`, seq)), "the log ends before it"},
		"the last records and the guard": {in(database, fmt.Sprintf(`DROP TRIGGER IF EXISTS records_no_delete; DELETE FROM records WHERE seq > %d`, seq)),
			fmt.Sprintf(`ocipd.db: audit record %d: the log ends before it, …; the trigger "records_no_delete" of the database is missing`, seq+1)},
		"a record and the guard": {in(database, fmt.Sprintf(`DROP TRIGGER records_no_update; DROP TRIGGER records_no_replace; DROP TRIGGER IF EXISTS records_no_delete; UPDATE records SET line = replace(line, '"allow"', '"deny"') WHERE seq = %d`, seq)),
			`its content does not match its hash: changed after it was written; the trigger "records_no_delete" of the database is missing`},
		"a record in the middle and the guard": {in(database, fmt.Sprintf(`DROP TRIGGER IF EXISTS records_no_delete; DELETE FROM records WHERE seq = %d`, seq)),
			fmt.Sprintf(`audit record %d: record %d stands here: records are missing or moved; the trigger "records_no_delete" of the database is missing`, seq, seq+1)},
		"a planted trigger, and a row": {in(database, `CREATE TRIGGER planted AFTER INSERT ON paused BEGIN DELETE FROM paused; END; UPDATE exchanges SET counterparty = 'somebody' WHERE rowid = 1`),
			`the trigger "planted" of the database was not made by the daemon: somebody else has changed the database; 1 row changed by somebody else than the daemon: exchanges `},
		"a row beside the records":       {in(database, `UPDATE exchanges SET counterparty = 'somebody' WHERE rowid = 1`), "1 row changed by somebody else than the daemon: exchanges "},
		"a round in the database":        {in(database, `UPDATE exchanges SET state = json_set(state, '$.round', 7) WHERE rowid = 1`), "of agent agent-bob-1: the row says round 7, record "},
		"an exchange that is gone":       {in(database, `DELETE FROM exchanges WHERE rowid = 1`), "of agent agent-bob-1: there is no such row, and record "},
		"a pause that nobody made":       {in(database, `INSERT INTO paused (scope, at, by) VALUES ('all', 1, 'x')`), "pause of all: the row says that it is open, and no record does"},
		"a tile":                         {in(database, `INSERT INTO tiles SELECT 0, randomblob(32), randomblob(8192)`), "the Merkle tree has 1 tiles"},
		"the database's first page":      {func(t *testing.T) { scribble(t, database, 20) }, "the database is damaged"},
		"the database's pages":           {func(t *testing.T) { scribble(t, database, 4096) }, "ocipd.db"},
		"a term of the index":            {in(index, `UPDATE ranges SET records = records - 1`), "remove it, and the daemon makes it again"},
		"all terms of the index":         {in(index, `DELETE FROM terms_0_data WHERE id > 10`), "remove it, and the daemon makes it again"},
		"a pipe as the live file":        {pipe("audit.jsonl"), "it is no file"},
		"a pipe as the checkpoints":      {pipe("audit-checkpoints.jsonl"), "it is no file"},
		"a pipe as the manifest":         {pipe("audit-manifest.jsonl"), "it is no file"},
		"a pipe as the tombstone":        {pipe("audit-tombstone.note"), "it is no file"},
		"a file that poses as a segment": {put("audit-0evil.jsonl.zst", "x"), "audit-0evil.jsonl.zst has a name like a segment's"},
		"checkpoints that are none":      {put("audit-checkpoints.jsonl", "{\"size\":1}\n"), "line 1 is not a checkpoint"},
		"a newest checkpoint of nobody":  {put("keys/checkpoint.newest", "nothing"), "no checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
			copyTree(t, whole, state)
			tc.change(t)
			r := d.ocipd(t, "audit", "verify")
			want := cli.ExitFault
			if tc.says == "" {
				want = cli.ExitDone
			}
			said := r.said
			for part := range strings.SplitSeq(tc.says, "…") {
				before, after, ok := strings.Cut(said, part)
				if said = after; !ok {
					t.Errorf("it does not say %q after %q", part, before)
				}
			}
			if r.code != want {
				t.Errorf("it ends with %d:\n%s%s", r.code, r.stdout, r.said)
			}
			if strings.Contains(tc.says, "record") || strings.Contains(tc.says, "row") || strings.HasPrefix(tc.says, "pause of") || tc.says == "" {
				// A verifier with only the page agrees.
				cmd := exec.CommandContext(t.Context(), "python3", "../../docs/verify.py", publicKey, state, "--database", database, "--row-key", filepath.Join(state, "keys", "rows.json"))
				out, _ := cmd.CombinedOutput()
				if cmd.ProcessState.ExitCode() != want || want == cli.ExitFault && !regexp.MustCompile("record|has no seal|the database (ends before|does not hold) it").Match(out) {
					t.Errorf("verify.py: %d, %s", cmd.ProcessState.ExitCode(), out)
				}
			}
			if rows := strings.HasPrefix(tc.says, "of agent ") || strings.HasPrefix(tc.says, "pause of"); rows || tc.says == "" {
				// The rows can be rebuilt, except for one about which the log does not say enough, and
				// one with columns that somebody without the key may have written.
				file, made, ends := filepath.Join(t.TempDir(), "new.db"), cli.ExitDone, cli.ExitDone
				if strings.Contains(tc.says, "no such row") {
					made, ends = cli.ExitFault, cli.ExitFault
				} else if strings.Contains(tc.says, "round 7") {
					ends = cli.ExitFault
				}
				if r := d.ocipd(t, "audit", "rebuild-state", file); r.code != ends || !strings.Contains(r.stdout, tc.says) {
					t.Errorf("rebuild-state ends with %d:\n%s%s", r.code, r.stdout, r.said)
				}
				if r := d.ocipd(t, "audit", "verify", "--database", file); r.code != made {
					t.Errorf("what it made: %d\n%s%s", r.code, r.stdout, r.said)
				}
			}
			if name == "a row beside the records" {
				d.goesOnWithRows(t, database)
			}
			// A backup holds records: the tree and the index are rebuilt from them.
			if again := strings.Contains(tc.says, "Merkle") || strings.Contains(tc.says, "makes it again"); again && strings.Contains(r.said, "ocipd restore") {
				t.Errorf("it says\n%s", r.said)
			}
			if tc.says != "" && strings.Contains(r.stdout, "intact") {
				t.Errorf("it says\n%s", r.stdout)
			}
		})
	}
}

// goesOnWithRows makes rows anew of a database with a row that somebody else has written. The command names the row, and
// with what it says to do the daemon starts.
func (d *staged) goesOnWithRows(t *testing.T, database string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "new.db")
	r := d.ocipd(t, "audit", "rebuild-state", file)
	_, accept, ok := strings.Cut(strings.TrimSpace(r.said), "go on with the rows as they are: ")
	if r.code != cli.ExitFault || !ok || !strings.Contains(r.stdout, "not the daemon's: exchanges agent-") {
		t.Fatalf("rebuild-state ends with %d:\n%s%s", r.code, r.stdout, r.said)
	}
	if err := os.Rename(file, database); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", accept).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", accept, err, out)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	d.end(t)
	if r := d.ocipd(t, "audit", "verify"); r.code != cli.ExitDone {
		t.Errorf("afterwards: %d\n%s%s", r.code, r.stdout, r.said)
	}
}

// scribble overwrites a file from an offset on.
func scribble(t *testing.T, path string, from int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, 3*4096), from)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// copyTree copies a directory, with the modes of its content.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), info.Mode().Perm())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}
