package walfile_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/store/walfile"
	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func open(t *testing.T, path, vfs string, settings ...string) *sqlite.Conn {
	t.Helper()
	conn, err := sqlite.OpenConn("file:"+path+"?vfs="+vfs, sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenURI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, s := range append([]string{"journal_mode=WAL", "synchronous=FULL"}, settings...) {
		if err := sqlitex.ExecuteTransient(conn, "PRAGMA "+s, nil); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func gathering(t *testing.T) string {
	t.Helper()
	name, err := walfile.VFS()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func run(conn *sqlite.Conn, query string, args ...any) error {
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args})
}

func must(t *testing.T, conn *sqlite.Conn, query string, args ...any) {
	t.Helper()
	if err := run(conn, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func value(t *testing.T, conn *sqlite.Conn, query string) string {
	t.Helper()
	got := ""
	if err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		got = stmt.ColumnText(0)
		return nil
	}}); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return got
}

// TestCommits runs transactions of all sizes, some rolled back, with a small cache that makes
// SQLite write pages before the commit. Beside it are a second connection and copies of the files
// as a crash would leave them, which SQLite's own VFS opens.
func TestCommits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.db")
	writer := open(t, path, gathering(t), "cache_size=4", "wal_autocheckpoint=200")
	reader := open(t, path, gathering(t))
	must(t, writer, "CREATE TABLE a (n INTEGER PRIMARY KEY, text BLOB NOT NULL)")
	random, sum, count := rand.New(rand.NewPCG(1, 2)), 0, 0
	for i := range 60 {
		keep := i%4 != 3
		must(t, writer, "BEGIN IMMEDIATE")
		rows, bytes := 1+random.IntN(12), 0
		for range rows {
			n := 1 << random.IntN(14)
			bytes += n
			must(t, writer, "INSERT INTO a (text) VALUES (randomblob(?))", n)
		}
		if got := value(t, reader, "SELECT count(*) FROM a"); got != strconv.Itoa(count) {
			t.Fatalf("%d: %s rows are seen before the commit, want %d", i, got, count)
		}
		if !keep {
			must(t, writer, "ROLLBACK")
			continue
		}
		must(t, writer, "COMMIT")
		sum, count = sum+bytes, count+rows
		want := fmt.Sprint(count, " ", sum)
		if got := value(t, reader, "SELECT count(*) || ' ' || sum(length(text)) FROM a"); got != want {
			t.Fatalf("%d: the other connection sees %s, want %s", i, got, want)
		}
		if i%10 == 0 {
			crashed := filepath.Join(dir, strconv.Itoa(i)+".db")
			for _, suffix := range []string{"", "-wal"} {
				b, err := os.ReadFile(path + suffix)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(crashed+suffix, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			after := open(t, crashed, "unix")
			if got := value(t, after, "SELECT count(*) || ' ' || sum(length(text)) FROM a"); got != want {
				t.Fatalf("%d: after a crash there is %s, want %s", i, got, want)
			}
			if got := value(t, after, "PRAGMA integrity_check"); got != "ok" {
				t.Fatalf("%d: after a crash: %s", i, got)
			}
		}
		if i%37 == 0 {
			must(t, writer, "PRAGMA wal_checkpoint(TRUNCATE)")
		}
	}
}

// writes counts the write system calls of this process.
func writes(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("system calls cannot be counted here: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if n, found := strings.CutPrefix(line, "syscw: "); found {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
	}
	t.Skip("system calls cannot be counted here")
	return 0
}

func TestOneWriteACommit(t *testing.T) {
	const commits = 50
	count := func(vfs string) int {
		conn := open(t, filepath.Join(t.TempDir(), "a.db"), vfs)
		must(t, conn, "CREATE TABLE a (n INTEGER PRIMARY KEY, text BLOB NOT NULL)")
		before := writes(t)
		for range commits {
			must(t, conn, "INSERT INTO a (text) VALUES (randomblob(30000))")
		}
		return writes(t) - before
	}
	if plain := count("unix-excl"); plain < 10*commits {
		t.Fatalf("SQLite's own VFS makes %d calls in %d commits: is there still anything to gather?", plain, commits)
	}
	if got := count(gathering(t)); got > commits+10 {
		t.Errorf("%d calls write %d commits", got, commits)
	}
}

// TestWriteThatFails has the kernel refuse to make the log longer.
func TestWriteThatFails(t *testing.T) {
	conn := open(t, filepath.Join(t.TempDir(), "a.db"), gathering(t))
	must(t, conn, "CREATE TABLE a (n INTEGER PRIMARY KEY, text BLOB NOT NULL)")
	must(t, conn, "INSERT INTO a (text) VALUES (randomblob(20000))")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 64 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	err := run(conn, "INSERT INTO a (text) VALUES (randomblob(60000))")
	if again := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); again != nil {
		t.Fatal(again)
	}
	if err == nil {
		t.Fatal("a commit succeeds that was not written")
	}
	must(t, conn, "INSERT INTO a (text) VALUES (randomblob(10000))")
	if got := value(t, conn, "SELECT group_concat(length(text)) FROM a"); got != "20000,10000" {
		t.Errorf("after a write that failed there is %s", got)
	}
	if got := value(t, conn, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("after a write that failed: %s", got)
	}
}

// After a failed sync no commit succeeds, even if the sync was a checkpoint's, whose error SQLite
// drops, and even if a later one would succeed.
func TestSyncThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	conn := open(t, path, gathering(t), "wal_autocheckpoint=0")
	must(t, conn, "CREATE TABLE t (n INTEGER)")
	must(t, conn, "INSERT INTO t VALUES (1)")

	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	wal := -1
	for _, entry := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && name == path+"-wal" {
			wal, _ = strconv.Atoi(entry.Name())
		}
	}
	if wal < 0 {
		t.Fatal("the log is not open")
	}
	kept, err := unix.Dup(wal)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	null, err := unix.Open("/dev/null", unix.O_RDWR, 0) // cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, wal, 0); err != nil {
		t.Fatal(err)
	}
	_ = run(conn, "PRAGMA wal_checkpoint(PASSIVE)")
	if err := unix.Dup3(kept, wal, 0); err != nil {
		t.Fatal(err)
	}
	if err := run(conn, "INSERT INTO t VALUES (2)"); sqlite.ErrCode(err) != sqlite.ResultIOErrFsync {
		t.Errorf("a commit after a sync that failed: %v", err)
	}
	if got := value(t, conn, "SELECT count(*) FROM t"); got != "1" {
		t.Errorf("%s rows", got)
	}
}
