package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// fill adds that many random records, one a second.
func fill(tb testing.TB, l *memLog, seed uint64, n int) {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		i := len(l.lines)
		l.add(tb, start.Add(time.Duration(i)*time.Second), randomRecord(r, i))
	}
}

// check compares some queries and the counts with the log.
func check(t *testing.T, x *Index, l *memLog) {
	t.Helper()
	ask(t, x, l)
	checkStats(t, x, l, time.Time{}, start.Add(1000*time.Hour), 0)
}

func ask(t *testing.T, x *Index, l *memLog) {
	t.Helper()
	for _, f := range []audit.Filter{
		{Like: audit.Record{AgentID: "agent-3"}}, {Like: audit.Record{PolicyResult: "deny", TenantID: "tenant-1"}}, {Text: "is OVER"},
		{Like: audit.Record{ExchangeID: "exchange-77"}}, {Text: "größe", Like: audit.Record{UserID: "user-2"}},
	} {
		got, err := collect(x, f, 0, 1000)
		if err == nil {
			err = same(got, l.want(f, 0))
		}
		if err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// TestIndexIsTakenUpOrMadeAgain opens files of an earlier index in all states.
func TestIndexIsTakenUpOrMadeAgain(t *testing.T) {
	l := newLog()
	const records = rangeRecords + 200
	fill(t, l, 1, records)
	first, made := openIndex(t, l)
	indexed(t, first, records)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	other := newLog()
	fill(t, other, 2, records)
	shorter := newLog()
	fill(t, shorter, 1, rangeRecords-10)
	script := func(path, text string) error {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
		if err != nil {
			return err
		}
		return errors.Join(sqlitex.ExecuteScript(conn, text, nil), conn.Close())
	}
	tests := []struct {
		name string
		// damage changes the closed file, and log is the log over which it is opened.
		damage func(path string) error
		log    *memLog
		// kept is set if the blocks of the file stay in use.
		kept bool
	}{
		{"whole", func(string) error { return nil }, l, true},
		{"deleted", os.Remove, l, false},
		{"empty", func(path string) error { return os.Truncate(path, 0) }, l, false},
		{"cut", func(path string) error { return os.Truncate(path, 4096*2+17) }, l, false},
		{"no database", func(path string) error {
			return os.WriteFile(path, []byte("nothing of the kind, but long enough to be read"), 0o600)
		}, l, false},
		{"another program's", func(path string) error { return script(path, "PRAGMA application_id=7") }, l, false},
		{"another version's", func(path string) error { return script(path, "PRAGMA user_version=99") }, l, false},
		{"of another log", func(string) error { return nil }, other, false},
		{"ahead of the log", func(string) error { return nil }, shorter, false},
	}
	few := sample(3)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			few(t)
			path := filepath.Join(t.TempDir(), "ocipd.index.db")
			if err := os.WriteFile(path, index, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tt.damage(path); err != nil {
				t.Fatal(err)
			}
			tt.log.mu.Lock()
			tt.log.reads = 0
			tt.log.mu.Unlock()
			x := openAt(t, tt.log, path)
			indexed(t, x, tt.log.Head().Seq)
			tt.log.mu.Lock()
			kept := tt.log.reads < 4
			tt.log.mu.Unlock()
			if kept != tt.kept {
				t.Errorf("the old blocks are used: %v, want %v", kept, tt.kept)
			}
			check(t, x, tt.log)
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestDamageIsFound changes the file under an open index. Answers stay correct, and the index is
// made again.
func TestDamageIsFound(t *testing.T) {
	const records = rangeRecords + 100
	whole := newLog()
	fill(t, whole, 1, records)
	made, path := openIndex(t, whole)
	indexed(t, made, records)
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	few := sample(2)
	for _, table := range []string{
		"UPDATE terms_0_data SET block = x'ffffffff' WHERE id > 10", "UPDATE reasons_0_data SET block = x'ffffffff' WHERE id > 10", "UPDATE ranges SET counts = x'00'",
		"DROP TABLE terms_0", "DELETE FROM subjects",
	} {
		t.Run(table, func(t *testing.T) {
			few(t)
			l := whole.upTo(records)
			path := filepath.Join(t.TempDir(), "ocipd.index.db")
			if err := os.WriteFile(path, index, 0o600); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.ErrorLevel)
			x := Open(t.Context(), Options{Path: path, Log: l, Now: time.Now, Logger: zap.New(core)})
			defer x.Close()
			indexed(t, x, records)
			change(t, path, table)
			check(t, x, l)
			if logs.Len() == 0 {
				t.Error("nothing is said of it")
			}
			until(t, "the index is made again", func() bool {
				x.files.RLock()
				defer x.files.RUnlock()
				return x.usable() && x.Indexed() == records
			})
			said := logs.Len()
			check(t, x, l)
			if logs.Len() != said {
				t.Errorf("and again: %v", logs.All()[said:])
			}
		})
	}
}

// change runs SQL on an index's file.
func change(t *testing.T, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingRecordsAreFound removes records from a closed index, in all their tables. After the
// next open only that shard is made again.
func TestMissingRecordsAreFound(t *testing.T) {
	l := newLogAt(shardRecords - rangeRecords - 50)
	fill(t, l, 1, 2*rangeRecords)
	x, made := openIndex(t, l)
	indexed(t, x, l.head.Seq)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	lost := l.entries[l.gone+70]
	tokens := rangeToken(rangeOf(lost.Seq))
	for _, m := range audit.Filters() {
		if value := *m.Of(&lost.Record); value != "" {
			tokens += " " + token(&m, value)
		}
	}
	few := sample(2)
	for name, script := range map[string]string{
		"a record":        fmt.Sprintf("INSERT INTO terms_0 (terms_0, rowid, terms) VALUES ('delete', %d, '%s')", lost.Seq, tokens),
		"a range's count": fmt.Sprintf("DELETE FROM ranges WHERE range = %d", shardRanges-1),
		"a count":         fmt.Sprintf("UPDATE ranges SET records = records - 1 WHERE range = %d", shardRanges-1),
		"all terms":       "UPDATE terms_0_data SET block = x'00'",
		"a shard":         "DELETE FROM shards WHERE shard = 0",
		"a shard's rows":  "DELETE FROM shards WHERE shard = 0; DROP TABLE terms_0; DROP TABLE reasons_0; DELETE FROM subjects WHERE shard = 0",
	} {
		t.Run(name, func(t *testing.T) {
			few(t)
			path := filepath.Join(t.TempDir(), "ocipd.index.db")
			if err := os.WriteFile(path, index, 0o600); err != nil {
				t.Fatal(err)
			}
			change(t, path, script)
			core, logs := observer.New(zap.WarnLevel)
			x := Open(t.Context(), Options{Path: path, Log: l, Now: time.Now, Logger: zap.New(core)})
			defer x.Close()
			f := audit.Filter{Like: audit.Record{ActionType: lost.ActionType}}
			until(t, "the record is found again", func() bool {
				got, err := collect(x, f, 0, 1000)
				if err == nil {
					err = same(got, l.want(f, 0))
				}
				if err != nil {
					t.Fatalf("an answer lacks records while the index does: %v", err)
				}
				return logs.Len() > 0 && x.known(shardOf(lost.Seq))
			})
			check(t, x, l)
			if logs.Len() != 1 {
				t.Errorf("%v", logs.All())
			}
		})
	}
}

// TestKilled kills a process that fills an index, again and again. The next one continues with the
// file each time, and it is correct in the end.
func TestKilled(t *testing.T) {
	const records = 3 * rangeRecords
	log := func() *memLog {
		l := newLogAt(shardRecords - rangeRecords)
		fill(t, l, 1, records)
		return l
	}
	if path := os.Getenv("OCIPD_INDEX_KILLED"); path != "" {
		openAt(t, log(), path)
		fmt.Println("open")
		<-t.Context().Done()
		return
	}
	path := filepath.Join(t.TempDir(), "ocipd.index.db")
	r := rand.New(rand.NewPCG(1, 2))
	for range fewer(6) {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), "OCIPD_INDEX_KILLED="+path)
		said, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := said.Read(make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(r.IntN(60)) * time.Millisecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
	}
	core, logs := observer.New(zap.WarnLevel)
	l := log()
	x := Open(t.Context(), Options{Path: path, Log: l, Now: time.Now, Logger: zap.New(core)})
	defer x.Close()
	indexed(t, x, l.head.Seq)
	check(t, x, l)
	if logs.Len() > 0 {
		t.Errorf("%v", logs.All())
	}
}

// TestNoPlaceForAnIndex has a directory where the file should be.
func TestNoPlaceForAnIndex(t *testing.T) {
	l := newLog()
	fill(t, l, 1, 3000)
	path := filepath.Join(t.TempDir(), "ocipd.index.db")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	x := openAt(t, l, path)
	check(t, x, l)
	if x.Indexed() != 0 {
		t.Errorf("%d records are indexed", x.Indexed())
	}
}

// TestRetire removes records: in the middle of a shard, at the end of one, in the one in progress,
// and all of them; before and after a restart.
func TestRetire(t *testing.T) {
	const begin, records, more = shardRecords - rangeRecords, 2 * rangeRecords, 500
	whole := newLogAt(begin)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range records + more {
		record := randomRecord(r, i)
		record.PolicyReason = fmt.Sprintf("the reason of %d.", begin+i+1)
		whole.add(t, start.Add(time.Duration(i)*time.Second), record)
	}
	few := sample(2)
	for _, upTo := range []uint64{begin + 700, shardRecords, shardRecords + 600, begin + records} {
		t.Run(fmt.Sprint(upTo), func(t *testing.T) {
			few(t)
			l := whole.upTo(begin + records)
			x, path := openIndex(t, l)
			indexed(t, x, begin+records)
			l.retire(upTo)
			ask(t, x, l) // the log has lost the records, and the index does not know yet
			if err := x.Retire(t.Context(), upTo); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changes, err := os.ReadFile(path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			there := make(map[string]bool)
			for _, reason := range regexp.MustCompile(`the reason of [0-9]+\.`).FindAll(append(file, changes...), -1) {
				there[string(reason)] = true
			}
			for seq := uint64(begin + 1); seq <= begin+records; seq++ {
				if kept := there[fmt.Sprintf("the reason of %d.", seq)]; kept != (seq > upTo) {
					t.Fatalf("the reason of record %d is there: %v", seq, kept)
				}
			}
			err = x.file.read(t.Context(), func(conn *sqlite.Conn) error {
				list, err := shards(conn, 0, 9)
				for _, number := range list {
					err = errors.Join(err, matches(conn, number, 0, upTo+1, []string{rangeToken(rangeOf(upTo))}, nil, func(seq uint64) error {
						return fmt.Errorf("record %d is still found", seq)
					}))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			l.catchUp(whole)
			indexed(t, x, begin+records+more)
			check(t, x, l)
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			x = openAt(t, l, path)
			indexed(t, x, begin+records+more)
			check(t, x, l)
		})
	}
	t.Run("made again afterwards", func(t *testing.T) {
		few(t)
		l := whole.upTo(begin + records)
		l.retire(begin + 700)
		x, _ := openIndex(t, l)
		indexed(t, x, begin+records)
		check(t, x, l)
	})
	t.Run("before it was indexed", func(t *testing.T) {
		few(t)
		l := newLog()
		fill(t, l, 1, 500)
		x, _ := openIndex(t, l)
		indexed(t, x, 500)
		l.retire(2*rangeRecords + 300)
		if err := x.Retire(t.Context(), 2*rangeRecords+300); err != nil {
			t.Fatal(err)
		}
		fill(t, l, 1, 2*rangeRecords+1000)
		indexed(t, x, 2*rangeRecords+1500)
		check(t, x, l)
	})
}

// gatedLog is a log that returns no line until its gate is open.
type gatedLog struct {
	*memLog
	gate chan struct{}
}

func (l *gatedLog) Lines(ctx context.Context, seqs []uint64) ([][]byte, error) {
	<-l.gate
	return l.memLog.Lines(ctx, seqs)
}

// Records that are retired while the file is not open are forgotten later.
func TestRetireBeforeTheFileIsOpen(t *testing.T) {
	t.Parallel()
	l := newLog()
	for i := range 200 {
		l.add(t, start.Add(time.Duration(i)*time.Second), &audit.Record{ID: fmt.Sprint(i), ActionType: audit.ActionSecurity, PolicyReason: fmt.Sprintf("the reason of %d.", i+1)})
	}
	x, path := openIndex(t, l)
	indexed(t, x, 200)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	l.retire(100)
	gated := &gatedLog{l, make(chan struct{})}
	x = openAt(t, gated, path)
	if err := x.Retire(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	close(gated.gate)
	until(t, "what is retired to be forgotten", func() bool {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := os.ReadFile(path + "-wal")
		return !bytes.Contains(append(whole, changes...), []byte("the reason of 7.")) && (err == nil || errors.Is(err, fs.ErrNotExist))
	})
	check(t, x, l)
}

// A full disk is no fault of the file: the file is used again afterwards.
func TestFileIsAskedAgain(t *testing.T) {
	t.Parallel()
	l := newLog()
	fill(t, l, 1, 100)
	x, _ := openIndex(t, l)
	indexed(t, x, 100)
	if !x.blame(t.Context(), sqlite.ResultFull.ToError()) {
		t.Fatal("it is not blamed")
	}
	until(t, "the file to be asked", func() bool {
		x.files.RLock()
		defer x.files.RUnlock()
		return x.usable()
	})
	check(t, x, l)
}

// slowLog is a log whose lines take time to index, and which grows by itself.
type slowLog struct {
	*memLog
	cost time.Duration
	// worked is the working time of the follower.
	worked time.Duration
}

func (l *slowLog) LinesAfter(ctx context.Context, seq uint64) ([][]byte, uint64, error) {
	<-time.After(l.cost)
	l.mu.Lock()
	l.worked += l.cost
	l.mu.Unlock()
	return l.memLog.LinesAfter(ctx, seq)
}

// TestPolite lets the log grow fast and checks that the follower takes only a twentieth of the
// time; when the log is quiet, it hurries.
func TestPolite(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &slowLog{memLog: newLog(), cost: 4 * time.Millisecond}
		record := &audit.Record{ID: "r", ActionType: audit.ActionSecurity}
		for range 4096 {
			l.add(t, time.Now(), record)
		}
		began := time.Now()
		x := Open(t.Context(), Options{Path: filepath.Join(dir, "i.db"), Log: l, Now: time.Now, Logger: zap.NewNop()})
		defer x.Close()
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		if x.Indexed() != 4096 {
			t.Errorf("%d records indexed of a quiet log after %v", x.Indexed(), time.Since(began))
		}
		l.mu.Lock()
		l.worked = 0
		l.mu.Unlock()
		began = time.Now()
		for time.Since(began) < 10*time.Second {
			l.add(t, time.Now(), record) // 500 a second
			<-time.After(2 * time.Millisecond)
		}
		l.mu.Lock()
		share := l.worked.Seconds() / time.Since(began).Seconds()
		l.mu.Unlock()
		if share > 0.06 || share < 0.01 {
			t.Errorf("the follower worked %.3f of the time", share)
		}
		// Many records are taken in small pieces, so that no message waits long for a processor.
		for before := x.Indexed(); time.Since(began) < 11*time.Second; before = x.Indexed() {
			for range 10 {
				l.add(t, time.Now(), record) // 5000 a second
			}
			<-time.After(2 * time.Millisecond)
			if taken := x.Indexed() - before; taken > busyRecords {
				t.Fatalf("the follower took %d records at once", taken)
			}
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if x.Indexed() != l.Head().Seq {
			t.Errorf("%d of %d records are indexed when it is quiet again", x.Indexed(), l.Head().Seq)
		}
		// A single record now and then is indexed at once.
		l.add(t, time.Now(), record)
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if x.Indexed() != l.Head().Seq {
			t.Error("a single record waits")
		}
	})
}
