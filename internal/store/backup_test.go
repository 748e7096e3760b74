package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// older makes the database of an earlier version's daemon, with a log in it that is not yet in the
// file itself, and returns the log. The reader that keeps it there is closed when the test ends.
func older(t *testing.T, path string, version, records int) []string {
	t.Helper()
	source := openTest(t)
	fill(t, source, records)
	whole, err := log(source.Records)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n")
	steps, err := migrationSteps()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := writing(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for i, step := range steps[:version] {
		script, err := migrations.ReadFile(step)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;", script, applicationID, i+1)
		if err := sqlitex.ExecuteScript(conn, text, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, line := range lines {
		if err := sqlitex.Execute(conn, "INSERT INTO records (seq, line) VALUES (?, ?)", &sqlitex.ExecOptions{Args: []any{i + 1, line}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range olderExchanges() {
		if err := sqlitex.Execute(conn, "INSERT INTO exchanges ("+exchangeColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)", &sqlitex.ExecOptions{Args: []any{
			e.Agent, e.ID, e.ConversationID, e.Counterparty, string(e.Outcome), e.ExpiresAt.UnixMilli(), string(encodeState(&e)),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if version >= exchangesListed {
		if err := sqlitex.ExecuteTransient(conn, `INSERT INTO listed_exchanges SELECT id, agent FROM exchanges`, nil); err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// exchangesListed is the version that introduced the list of open exchanges.
const exchangesListed = 23

// olderExchanges are the contents of an older database besides its log.
func olderExchanges() []ocip.Exchange {
	return []ocip.Exchange{
		exchange("agent-alice-1", "e-2", "e-2"), exchange("agent-bob-1", "e-2", "c-2"), exchange("agent-alice-1", "e-1", "c-1"),
	}
}

// inside reads the version and the log of a database without changing it.
func inside(t *testing.T, path string) (version int, lines []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if version, _, err = schema().Versions(conn); err != nil {
		t.Fatal(err)
	}
	err = sqlitex.Execute(conn, "SELECT line FROM records ORDER BY seq", &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		lines = append(lines, stmt.ColumnText(0))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return version, lines
}

// Every earlier version is migrated, with an unchanged copy, and a daemon can use the copy as its
// database.
func TestMigrationKeepsACopy(t *testing.T) {
	steps, err := migrationSteps()
	if err != nil || len(steps) < 2 {
		t.Fatal(steps, err)
	}
	for version := 1; version < len(steps); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			o := options(t.TempDir())
			lines := older(t, o.Path, version, 20)
			kept := BackupPath(o.Path, version)
			// The copy of an earlier upgrade is replaced.
			for _, name := range []string{kept, kept + ".partial"} {
				if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			core, logs := observer.New(zap.InfoLevel)
			o.Log = zap.New(core)
			s := open(t, o)
			wantSound(t, s)
			if s.Head().Seq != 20 || logs.FilterMessageSnippet("keeping a copy").Len() != 1 {
				t.Errorf("the log ends at %d; logged %v", s.Head().Seq, logs.All())
			}
			for _, want := range olderExchanges() {
				got, err := s.Exchange(t.Context(), want.Agent, want.ID)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("exchange %s of %s came forward as %+v, %v", want.ID, want.Agent, got, err)
				}
				if got, err = s.ExchangeByConversation(t.Context(), want.Agent, want.ConversationID); err != nil || got.ID != want.ID {
					t.Errorf("conversation %s of %s is found as %+v, %v", want.ConversationID, want.Agent, got, err)
				}
			}
			fill(t, s, 1)
			shut(t, s)
			if now, got := inside(t, kept); now != version || !slices.Equal(got, lines) {
				t.Errorf("the copy has version %d and %d records, want %d and %d", now, len(got), version, len(lines))
			}
			if now, got := inside(t, o.Path); now != len(steps) || len(got) != 21 {
				t.Errorf("the store has version %d and %d records", now, len(got))
			}
			if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the copy has mode %v, %v", info.Mode(), err)
			}
			if _, err := os.Stat(kept + ".partial"); !os.IsNotExist(err) {
				t.Errorf("what was left half done is still there: %v", err)
			}

			// A start without a migration makes no copy.
			if err := os.Remove(kept); err != nil {
				t.Fatal(err)
			}
			shut(t, open(t, o))
			if _, err := os.Stat(kept); !os.IsNotExist(err) {
				t.Errorf("a copy was kept for nothing: %v", err)
			}
		})
	}

	// Nor does the first start.
	dir := t.TempDir()
	shut(t, open(t, options(dir)))
	if found, err := filepath.Glob(filepath.Join(dir, "*.bak*")); err != nil || len(found) > 0 {
		t.Errorf("found %q, %v", found, err)
	}
}

// The copy can replace the database, as its comment says.
func TestGoBackToTheCopy(t *testing.T) {
	o := options(t.TempDir())
	lines := older(t, o.Path, 1, 5)
	shut(t, open(t, o))
	back := options(t.TempDir())
	copied, err := os.ReadFile(BackupPath(o.Path, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(back.Path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	if version, got := inside(t, back.Path); version != 1 || !slices.Equal(got, lines) {
		t.Errorf("version %d, %d records", version, len(got))
	}
	s := open(t, back)
	defer s.Close()
	wantSound(t, s)
}

// Without a copy there is no migration.
func TestNoMigrationWithoutACopy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, o *Options) context.Context
		says    string
	}{
		{"no space", func(t *testing.T, o *Options) context.Context {
			o.Space.Free = func() (int64, error) { return 128 << 10, nil }
			return t.Context()
		}, "0 MiB are free"},
		{"free space cannot be told", func(t *testing.T, o *Options) context.Context {
			o.Space.Free = func() (int64, error) { return 0, errors.New("no disk at all") }
			return t.Context()
		}, "no disk at all"},
		{"interrupted", func(t *testing.T, _ *Options) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		}, "context canceled"},
		{"something in its place", func(t *testing.T, o *Options) context.Context {
			if err := os.MkdirAll(filepath.Join(BackupPath(o.Path, 2)+".partial", "full"), 0o700); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, "directory not empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t.TempDir())
			lines := older(t, o.Path, 2, 5)
			ctx := tc.prepare(t, &o)
			before := names(t, filepath.Dir(o.Path))
			s, err := Open(ctx, o)
			if err == nil {
				t.Fatal("opened", s.Close())
			}
			if !strings.Contains(err.Error(), "cannot keep a copy of the store before it is migrated from version 2") || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
			if version, got := inside(t, o.Path); version != 2 || !slices.Equal(got, lines) {
				t.Errorf("version %d, %d records", version, len(got))
			}
			if after := names(t, filepath.Dir(o.Path)); !slices.Equal(before, after) {
				t.Errorf("there was %q, there is %q", before, after)
			}
		})
	}
}

// names lists a directory.
func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

// manyExchanges adds exchanges to an older database, with increasing ids as in use, and brings them
// into its own file.
func manyExchanges(t *testing.T, path string, n int) {
	t.Helper()
	conn, err := writing(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = sqlitex.ExecuteScript(conn, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO exchanges (%s) SELECT 'agent-alice-1', printf('%%032d', i), printf('%%032d', i), 'agent-bob-1', 'resolved', 0, hex(zeroblob(200)) FROM n;`, n, exchangeColumns), nil)
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// taken returns the size of the files of a directory, in bytes.
func taken(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	for _, name := range names(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// The required space is what a migration uses: with a byte less nothing begins, and the remaining
// files, with a write-ahead log of everything that was rewritten, are no larger.
func TestMigrationNeedsRoom(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir())
	dir := filepath.Dir(o.Path)
	older(t, o.Path, 5, 20)
	// The write-ahead log must be long enough for SQLite to bring it into the file.
	manyExchanges(t, o.Path, 40000)
	was := names(t, dir)
	conn, err := sqlite.OpenConn(o.Path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	rewritten, err := rewrittenBytes(&db.Writer{Conn: conn}, 5)
	size, sizeErr := db.Size(conn)
	if err := errors.Join(err, sizeErr, conn.Close()); err != nil {
		t.Fatal(err)
	}
	needed := size + migrationRoom(rewritten)
	before := taken(t, dir)

	o.Space.Free = func() (int64, error) { return needed - 1, nil }
	if s, err := Open(t.Context(), o); err == nil {
		t.Fatal("opened", s.Close())
	} else if want := fmt.Sprintf("%d are needed: %d for the copy and %d for the migration", mebibytes(needed), mebibytes(size), mebibytes(needed-size)); !strings.Contains(err.Error(), want) {
		t.Errorf("it says %v, want %q", err, want)
	}
	if now := names(t, dir); !slices.Equal(now, was) {
		t.Errorf("there was %q, there is %q", was, now)
	}

	o.Space.Free = func() (int64, error) { return needed, nil }
	s := open(t, o)
	defer s.Close()
	grown := taken(t, dir) - before
	if grown > needed || grown < needed-needed/3 {
		t.Errorf("a database of %d bytes, %d of them exchanges, took %d more, and %d were asked for", size, rewritten, grown, needed)
	}
}

// A failed migration changed nothing, so its copy is useless.
func TestFailedMigrationLeavesNoCopy(t *testing.T) {
	o := options(t.TempDir())
	lines := older(t, o.Path, 5, 20)
	conn, err := writing(o.Path)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteTransient(conn, "INSERT INTO meta (key, value) VALUES ('digests-from', x'00')", nil), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	was := names(t, filepath.Dir(o.Path))
	if s, err := Open(t.Context(), o); err == nil {
		t.Fatal("opened", s.Close())
	} else if !strings.Contains(err.Error(), "cannot apply migration") {
		t.Errorf("it says %v", err)
	}
	if now := names(t, filepath.Dir(o.Path)); !slices.Equal(now, was) {
		t.Errorf("there was %q, there is %q", was, now)
	}
	if version, got := inside(t, o.Path); version != 5 || !slices.Equal(got, lines) {
		t.Errorf("version %d, %d records", version, len(got))
	}
}
