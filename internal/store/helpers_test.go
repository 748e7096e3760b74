package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/internal/store/walfile"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// options returns the options of a store in dir.
func options(dir string) Options {
	return Options{Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop()}
}

func open(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// shut closes a store that will be opened again.
func shut(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
}

func commit(tb testing.TB, s *Store, c *Change) Receipt {
	tb.Helper()
	r, err := s.Commit(c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// fill writes so many records, a few with each commit.
func fill(tb testing.TB, s *Store, n int) {
	tb.Helper()
	for i := 0; i < n; {
		c := &Change{}
		for ; i < n && len(c.Records) < 16; i++ {
			c.Records = append(c.Records, noted(fmt.Sprint("note-", i)).Records...)
		}
		commit(tb, s, c)
	}
}

// sides returns exchanges as parts.
func sides(exchanges ...ocip.Exchange) (parts []Part) {
	for _, e := range exchanges {
		parts = append(parts, &Exchange{Exchange: e})
	}
	return parts
}

// messageOf returns the first message of a change.
func messageOf(c *Change) *Message {
	for m := range Each[*Message](c) {
		return m
	}
	return nil
}

// noted returns a change of one record, with an id to recognize it.
func noted(id string) *Change {
	return &Change{Records: []*audit.Record{{ID: id, ActionType: audit.ActionSecurity, DispatchID: id}}}
}

// steadyClock advances one second each time it is asked.
func steadyClock() func() time.Time {
	var n atomic.Int64
	start := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	return func() time.Time { return start.Add(time.Duration(n.Add(1)) * time.Second) }
}

// eventually waits for an event in another goroutine.
func eventually(tb testing.TB, what string, ready func() bool) {
	tb.Helper()
	if err := waitFor(ready); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func waitFor(ready func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-limit.C:
			return errors.New("it did not happen in time")
		}
	}
	return nil
}

// waitingChanges returns how many changes wait for their turn.
func (s *Store) waitingChanges() int {
	s.commits.queue.mu.Lock()
	defer s.commits.queue.mu.Unlock()
	return len(s.commits.queue.waiting)
}

// hold blocks the writer in the Durable of a first commit, so that later commits wait and then
// share a batch.
func hold(tb testing.TB, s *Store) (release func()) {
	tb.Helper()
	entered, gate := make(chan struct{}), make(chan struct{})
	c := noted("hold")
	c.Durable = func(Receipt) { close(entered); <-gate }
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(c)
		done <- err
	}()
	<-entered
	return func() {
		tb.Helper()
		close(gate)
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}

// log returns the whole evidence of a database, each line with its newline.
func log(r logstore.Records) ([]byte, error) {
	var log []byte
	err := r.EachLine(context.Background(), 0, func(_ uint64, line []byte) error {
		log = append(append(log, line...), '\n')
		return nil
	})
	return log, err
}

// sound checks a store as an auditor would: the chain holds from the first
// record to the head.
func sound(s *Store) error {
	want, err := log(s.Records)
	if err != nil {
		return err
	}
	var v audit.Verifier
	if _, err := v.ReadFrom(bytes.NewReader(want)); err != nil {
		return err
	}
	if v.Head() != s.Head() {
		return fmt.Errorf("the chain ends at %d, the store at %d", v.Head().Seq, s.Head().Seq)
	}
	// The rows match the records.
	first, err := s.FirstSeq(context.Background())
	if err != nil {
		return err
	}
	_, differences, err := foldrows.Replay(context.Background(), s.db, s.Log, first, s.clock())
	if err == nil && len(differences) > 0 {
		err = errors.New(foldrows.Words(differences))
	}
	return err
}

func wantSound(tb testing.TB, s *Store) {
	tb.Helper()
	if err := sound(s); err != nil {
		tb.Error(err)
	}
}

// change runs SQL on a database file behind the store's back. It restores triggers that it drops,
// as an attacker would.
func change(tb testing.TB, path, script string) {
	tb.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		tb.Fatal(err)
	}
	var again []string
	triggers := make(map[string]string)
	list := &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		triggers[stmt.ColumnText(0)] = stmt.ColumnText(1)
		return nil
	}}
	if err := sqlitex.ExecuteTransient(conn, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`, list); err != nil {
		tb.Fatal(err)
	}
	for text := range strings.SplitSeq(script, ";") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := sqlitex.ExecuteTransient(conn, text, nil); err != nil {
			tb.Fatal(text, err)
		}
		if name, dropped := strings.CutPrefix(text, "DROP TRIGGER "); dropped {
			again = append(again, triggers[name])
		}
	}
	for _, text := range again {
		if err := sqlitex.ExecuteTransient(conn, text, nil); err != nil {
			tb.Fatal(text, err)
		}
	}
	if err := conn.Close(); err != nil {
		tb.Fatal(err)
	}
}

// files returns the names and contents of a directory.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	found := make(map[string]string)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		found[e.Name()] = string(content)
	}
	return found
}

func exchange(agent, id, conversation string) ocip.Exchange {
	at := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	return ocip.Exchange{
		ID: id, ConversationID: conversation, Type: ocip.CommitmentRequest, Agent: agent, Counterparty: "agent-bob-1", SessionKey: "telegram:bob",
		Outcome: ocip.InProgress, Round: 1, MaxRounds: 3, Level: ocip.Internal, OpenedAt: at, UpdatedAt: at.Add(time.Second), ExpiresAt: at.Add(time.Hour),
		Transcript: []ocip.Turn{{Round: 1, Sender: agent, Summary: `says "hi" ünïcode`}},
	}
}

// readAlong opens one more reading connection beside those of a store.
func readAlong(path string) (*sqlite.Conn, error) {
	vfs, err := walfile.VFS()
	if err != nil {
		return nil, err
	}
	return sqlite.OpenConn("file:"+path+"?vfs="+vfs, sqlite.OpenReadWrite|sqlite.OpenURI)
}

// migrationSteps are the scripts that make the tables, in order.
func migrationSteps() ([]string, error) { return fs.Glob(migrations, "migrations/*.sql") }

// writing opens the connection that writes, of a database that no store has open.
func writing(path string) (*sqlite.Conn, error) {
	w, err := db.OpenWriter(path)
	if err != nil {
		return nil, err
	}
	return w.Conn, nil
}

// downgrade makes a database of an earlier version of the schema, step by step as a daemon of that
// version made it, with the data that both versions have.
func downgrade(tb testing.TB, path string, version int) {
	tb.Helper()
	steps, err := migrationSteps()
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := sqlite.OpenConn(path+".old", sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		tb.Fatal(err)
	}
	for i, step := range steps[:version] {
		script, err := migrations.ReadFile(step)
		if err == nil {
			err = sqlitex.ExecuteScript(conn, fmt.Sprintf("%s\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;", script, applicationID, i+1), nil)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	var copies []string
	err = sqlitex.ExecuteTransient(conn, `ATTACH '`+path+`' AS new`, nil)
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, `SELECT m.name, group_concat(x.name, ', ') FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x
			WHERE m.type = 'table' AND x.name IN (SELECT name FROM pragma_table_xinfo(m.name, 'new')) GROUP BY m.name`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			copies = append(copies, fmt.Sprintf(`INSERT OR REPLACE INTO main.%s (%s) SELECT %[2]s FROM new.%[1]s`, stmt.ColumnText(0), stmt.ColumnText(1)))
			return nil
		}})
	}
	for _, text := range copies {
		if err == nil {
			err = sqlitex.ExecuteTransient(conn, text, nil)
		}
	}
	if err := errors.Join(err, conn.Close(), os.Rename(path+".old", path)); err != nil {
		tb.Fatal(err)
	}
}
