package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// fill adds so many random records, of one a second.
func fill(tb testing.TB, l *memLog, seed uint64, n int) {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		i := len(l.lines)
		l.add(tb, start.Add(time.Duration(i)*time.Second), randomRecord(r, i))
	}
}

// check holds some questions and the numbers against the log.
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

// TestIndexIsTakenUpOrMadeAgain opens what a former index left, in all states.
func TestIndexIsTakenUpOrMadeAgain(t *testing.T) {
	l := newLog()
	const records = blockRecords + 200
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
	fill(t, shorter, 1, blockRecords-10)
	script := func(path, text string) error {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
		if err != nil {
			return err
		}
		return errors.Join(sqlitex.ExecuteScript(conn, text, nil), conn.Close())
	}
	tests := []struct {
		name string
		// damage is done to the closed file, and log is what it is opened over.
		damage func(path string) error
		log    *memLog
		// kept is set where the blocks of the file go on being used.
		kept bool
	}{
		{"whole", func(string) error { return nil }, l, true},
		{"killed", func(path string) error {
			boot, err := bootID()
			return errors.Join(err, script(path, fmt.Sprintf("UPDATE opened SET boot = '%s'", boot)))
		}, l, true},
		{"power failed", func(path string) error { return script(path, "UPDATE opened SET boot = 'before'") }, l, false},
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
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
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
			kept := tt.log.reads < blockRecords/1024
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

// TestDamageIsFound changes the file under an open index. Answers stay right,
// and the index is made again.
func TestDamageIsFound(t *testing.T) {
	whole := newLog()
	fill(t, whole, 1, blockRecords+100)
	for _, table := range []string{"postings SET lists = CAST(lists || x'00' AS BLOB)", "texts SET folded = zeroblob(length(folded))", "blocks SET counts = x'00'"} {
		t.Run(table, func(t *testing.T) {
			l := whole.upTo(blockRecords + 100)
			path := filepath.Join(t.TempDir(), "ocipd.index.db")
			core, logs := observer.New(zap.ErrorLevel)
			x := Open(t.Context(), Options{Path: path, Log: l, Now: time.Now, Logger: zap.New(core)})
			defer x.Close()
			indexed(t, x, blockRecords+100)
			conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(sqlitex.ExecuteScript(conn, "UPDATE "+table, nil), conn.Close()); err != nil {
				t.Fatal(err)
			}
			check(t, x, l)
			if logs.Len() == 0 {
				t.Error("nothing is said of it")
			}
			until(t, "the index is made again", func() bool {
				x.files.RLock()
				defer x.files.RUnlock()
				return x.usable() && x.Indexed() == blockRecords+100
			})
			said := logs.Len()
			check(t, x, l)
			if logs.Len() != said {
				t.Errorf("and again: %v", logs.All()[said:])
			}
		})
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

// TestRetire takes records away: in the middle of a block on disk, at the end of
// one, in the block in memory, and all of them; before and after a restart.
func TestRetire(t *testing.T) {
	const records, more = blockRecords + 900, blockRecords - 800
	whole := newLog()
	fill(t, whole, 1, records+more)
	for _, upTo := range []uint64{700, blockRecords, blockRecords + 600, records} {
		t.Run(fmt.Sprint(upTo), func(t *testing.T) {
			l := whole.upTo(records)
			x, path := openIndex(t, l)
			indexed(t, x, records)
			l.retire(upTo)
			ask(t, x, l) // the records are gone, the index does not know yet
			if err := x.Retire(t.Context(), upTo); err != nil {
				t.Fatal(err)
			}
			for block := range blockOf(records) + 1 {
				var buffer []byte
				err := eachGroup(x.file.writer, &buffer, block, 0, func(tm term, list []byte) bool {
					for _, p := range places(nil, list) {
						if seq := firstOf(block) + uint64(p); seq <= upTo {
							t.Fatalf("term %x still has record %d", tm, seq)
						}
					}
					return true
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			kept, err := queryInt(x.file.writer, "SELECT count(*) FROM texts")
			if err != nil || upTo >= blockRecords && kept > 1 {
				t.Errorf("the reasons of %d blocks are kept, %v", kept, err)
			}
			// New records may have the reasons of those that are gone.
			l.catchUp(whole)
			indexed(t, x, records+more)
			check(t, x, l)
			if upTo != 700 {
				return
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			x = openAt(t, l, path)
			indexed(t, x, records+more)
			check(t, x, l)
		})
	}
	t.Run("made again afterwards", func(t *testing.T) {
		l := whole.upTo(records)
		l.retire(700)
		x, _ := openIndex(t, l)
		indexed(t, x, records)
		check(t, x, l)
	})
	t.Run("before it was indexed", func(t *testing.T) {
		l := newLog()
		fill(t, l, 1, 500)
		x, _ := openIndex(t, l)
		indexed(t, x, 500)
		l.mu.Lock()
		l.gone = blockRecords + 300
		l.mu.Unlock()
		if err := x.Retire(t.Context(), blockRecords+300); err != nil {
			t.Fatal(err)
		}
		fill(t, l, 1, blockRecords+1000)
		indexed(t, x, blockRecords+1500)
		check(t, x, l)
	})
}

// slowLog is a log whose lines take time to be taken in, and which grows by
// itself.
type slowLog struct {
	*memLog
	cost time.Duration
	// worked is how long the follower has worked.
	worked time.Duration
}

func (l *slowLog) LinesAfter(ctx context.Context, seq uint64) ([][]byte, uint64, error) {
	<-time.After(l.cost)
	l.mu.Lock()
	l.worked += l.cost
	l.mu.Unlock()
	return l.memLog.LinesAfter(ctx, seq)
}

// TestPolite lets the log grow fast and wants the follower to keep to a twentieth of
// the time; when it is quiet, to hurry.
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
		<-time.After(2 * time.Second)
		synctest.Wait()
		if x.Indexed() != l.Head().Seq {
			t.Errorf("%d of %d records are indexed when it is quiet again", x.Indexed(), l.Head().Seq)
		}
		// One record now and then is taken in at once.
		l.add(t, time.Now(), record)
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if x.Indexed() != l.Head().Seq {
			t.Error("a single record waits")
		}
	})
}
