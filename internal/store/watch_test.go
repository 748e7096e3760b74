package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/store/fileintegrity"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// copyFile makes another file of the same bytes.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// losses are ways to take the database away under a running store.
var losses = []struct {
	name, want string
	do         func(path string) error
}{
	{"database unlinked", "ocipd.db is gone", os.Remove},
	{"database moved", "ocipd.db is gone", func(p string) error { return os.Rename(p, p+".old") }},
	{"database replaced by its copy", "ocipd.db was replaced", func(p string) error {
		return errors.Join(copyFile(p, p+".new"), os.Rename(p+".new", p))
	}},
	{"database removed and made anew", "ocipd.db was replaced", func(p string) error {
		return errors.Join(os.Remove(p), os.WriteFile(p, nil, 0o600))
	}},
	{"database cut", "ocipd.db was cut from", func(p string) error { return os.Truncate(p, 4096) }},
	{"database read-only", "ocipd.db was made read-only", func(p string) error { return os.Chmod(p, 0o400) }},
	{"log unlinked", "ocipd.db-wal is gone", func(p string) error { return os.Remove(p + "-wal") }},
	{"log emptied", "ocipd.db-wal was cut", func(p string) error { return os.Truncate(p+"-wal", 0) }},
	{"log cut by a half", "ocipd.db-wal was cut", func(p string) error {
		info, err := os.Stat(p + "-wal")
		return errors.Join(err, os.Truncate(p+"-wal", info.Size()/2))
	}},
	{"log replaced", "ocipd.db-wal was replaced", func(p string) error {
		return errors.Join(copyFile(p+"-wal", p+".new"), os.Rename(p+".new", p+"-wal"))
	}},
	{"log read-only", "ocipd.db-wal was made read-only", func(p string) error { return os.Chmod(p+"-wal", 0o400) }},
	{"directory moved", "ocipd.db is gone", func(p string) error { return os.Rename(filepath.Dir(p), filepath.Dir(p)+".old") }},
	{"directory replaced by its copy", "ocipd.db was replaced", func(p string) error {
		dir := filepath.Dir(p)
		return errors.Join(os.CopyFS(dir+".copy", os.DirFS(dir)), os.Rename(dir, dir+".old"), os.Rename(dir+".copy", dir))
	}},
}

// TestLossBeforeTheTransaction takes the database away between two changes: the next one is refused
// and names the file, and nothing is written anywhere.
func TestLossBeforeTheTransaction(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			s, o := openIn(t, filepath.Join(t.TempDir(), "state"))
			for range 3 {
				commit(t, s, noted("before"))
			}
			head := s.Head()
			if err := loss.do(o.Path); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, s, loss.want)
			if s.Head() != head {
				t.Errorf("the log ends at %d, want %d", s.Head().Seq, head.Seq)
			}
		})
	}
}

// TestLostFilesAreNotReadAnew takes the database away while the only open connection is in use: no
// further one is opened by the names, whoever has them now.
func TestLostFilesAreNotReadAnew(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			s, o := openIn(t, filepath.Join(t.TempDir(), "state"))
			commit(t, s, noted("before"))
			asked := make(chan struct{}, 8)
			check := s.db.Unmoved
			s.db.Unmoved = func() error {
				asked <- struct{}{}
				return check()
			}
			var only, other *sqlite.Conn
			done := make(chan error)
			err := s.db.Read(t.Context(), func(conn *sqlite.Conn) error {
				only = conn
				if err := loss.do(o.Path); err != nil {
					return err
				}
				go func() {
					done <- s.db.Read(context.Background(), func(conn *sqlite.Conn) error {
						other = conn
						return nil
					})
				}()
				<-asked
				return nil
			})
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			if other != only {
				t.Error("a query was answered from files opened anew")
			}
			wantRefused(t, s, loss.want)
		})
	}
}

// TestLossDuringTheTransaction takes the database away during a change, after the check before it:
// the change is committed, and yet nothing is released.
func TestLossDuringTheTransaction(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			s, o := openIn(t, filepath.Join(t.TempDir(), "state"))
			for range 3 {
				commit(t, s, noted("before"))
			}
			head, late := s.Head(), false
			// The copies are checked between that check and the write.
			s.health.alive = func() error {
				if !late {
					late = true
					if err := loss.do(o.Path); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
			wantRefused(t, s, loss.want)
			if s.Head() != head {
				t.Errorf("the log ends at %d, want %d", s.Head().Seq, head.Seq)
			}
		})
	}
}

// TestLossIsNoticedByDeliveries: waiting messages are not delivered from a database that nobody can
// find.
func TestLossIsNoticedByDeliveries(t *testing.T) {
	s, o := openIn(t, t.TempDir())
	c := noted("a")
	c.Add(&Message{MessageID: MessageID{Queue: "q"}, Body: []byte("hi")})
	commit(t, s, c)
	if page, err := s.Messages(t.Context(), "q", 0, 10); err != nil || len(page) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	if err := os.Remove(o.Path); err != nil {
		t.Fatal(err)
	}
	if page, err := s.Messages(t.Context(), "q", 0, 10); !errors.Is(err, ErrLatched) || len(page) != 0 {
		t.Errorf("%v, %v", page, err)
	}
}

// TestOutboxWaitsForItsRecord: a message that is committed but not yet released is not delivered.
func TestOutboxWaitsForItsRecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { outboxWaits(t, dir) })
}

func outboxWaits(t *testing.T, dir string) {
	s, o := openIn(t, dir)
	commit(t, s, noted("a"))
	asked := 0
	s.health.alive = func() error {
		if asked++; asked >= 2 {
			return errors.New("the copy is lost")
		}
		return nil
	}
	c := noted("b")
	c.Add(&Message{MessageID: MessageID{Queue: "q"}, Body: []byte("hi")})
	if _, err := s.Commit(c); !errors.Is(err, ErrLatched) {
		t.Fatalf("got %v, want %v", err, ErrLatched)
	}
	if page, err := s.Messages(t.Context(), "q", 0, 10); err != nil || len(page) != 0 {
		t.Errorf("%v, %v", page, err)
	}
	_ = s.Close()
	s = open(t, o)
	defer s.Close()
	// It was recorded, so the next start finds it, and delivers it.
	if page, err := s.Messages(t.Context(), "q", 0, 10); err != nil || len(page) != 1 || page[0].RecordSeq != 42 {
		t.Errorf("%v, %v", page, err)
	}
	wantSound(t, s)
}

// TestReleaseWaitsForACopy: a copy that is lost during the transaction and comes back costs only
// the time that it was away.
func TestReleaseWaitsForACopy(t *testing.T) {
	s, _ := openIn(t, t.TempDir())
	asked := 0
	s.health.alive = func() error {
		if asked++; asked > 1 && asked < 10 {
			return errors.New("the copy is lost")
		}
		return nil
	}
	released := 0
	c := noted("a")
	c.Durable = func(Receipt) { released = asked }
	commit(t, s, c)
	if released != 10 {
		t.Errorf("released after it was asked %d times, want 10", released)
	}
	wantSound(t, s)
}

// TestNoFalseLoss changes the files' sizes in normal ways: growth, checkpoints, and a log that grew
// beyond its limit and is cut back.
func TestNoFalseLoss(t *testing.T) {
	s, o := openIn(t, t.TempDir())
	const limit = 1 << 20
	watch, err := fileintegrity.New(o.Path, limit)
	if err := errors.Join(err, s.health.files.Close()); err != nil {
		t.Fatal(err)
	}
	s.health.files = watch
	if err := sqlitex.ExecuteScript(s.commits.writer.Conn, fmt.Sprintf("PRAGMA journal_size_limit=%d; PRAGMA wal_autocheckpoint=100;", limit), nil); err != nil {
		t.Fatal(err)
	}
	reader, err := readAlong(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size := func() int64 {
		info, err := os.Stat(o.Path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	grow := func() {
		for i := range 20 {
			c := noted(fmt.Sprint(i))
			c.Records[0].Content = strings.Repeat("x", 200_000)
			commit(t, s, c)
		}
	}
	// A reader that stays keeps the log from being reused.
	for _, query := range []string{"BEGIN", "SELECT count(*) FROM records"} {
		if err := sqlitex.ExecuteTransient(reader, query, nil); err != nil {
			t.Fatal(err)
		}
	}
	grow()
	long := size()
	if err := sqlitex.ExecuteTransient(reader, "COMMIT", nil); err != nil {
		t.Fatal(err)
	}
	grow()
	if cut := size(); long < 3*limit || cut >= long {
		t.Errorf("the log had %d bytes and has %d: SQLite has not cut it", long, cut)
	}
	wantSound(t, s)
}

// TestWatchFollowsALink opens the database by a symbolic link: SQLite keeps the log beside the
// target. Changing the link is a loss.
func TestWatchFollowsALink(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	if err := os.Mkdir(filepath.Join(dir, "disk"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "disk", "real.db"), nil, 0o600), os.Symlink("disk/real.db", o.Path)); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	t.Cleanup(func() { _ = s.Close() })
	fill(t, s, 3)
	if err := errors.Join(os.Remove(o.Path), copyFile(filepath.Join(dir, "disk", "real.db"), filepath.Join(dir, "other.db")), os.Symlink("other.db", o.Path)); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s, "ocipd.db was replaced")
}

// TestStartAfterALoss starts again after a loss.
func TestStartAfterALoss(t *testing.T) {
	tests := []struct {
		name, want string
		loss       func(path string) error
		mend       func(path string) error
	}{
		{"the file is put back", "", func(p string) error { return os.Rename(p, p+".old") }, func(p string) error { return os.Rename(p+".old", p) }},
		{"the mode is put back", "", func(p string) error { return os.Chmod(p, 0o400) }, func(p string) error { return os.Chmod(p, 0o600) }},
		{"the log was emptied", "cannot start: the store was closed at record 46", func(p string) error { return os.Truncate(p+"-wal", 0) }, nil},
		{"an older copy", "cannot start: the store was closed at record 46, and the database ends at record 43", func(p string) error {
			return errors.Join(os.Rename(p, p+".lost"), copyFile(p+".early", p), os.Remove(p+"-wal"))
		}, nil},
		{"an empty file", "cannot start: the store was closed at record 46", func(p string) error {
			return errors.Join(os.Remove(p), os.Remove(p+"-wal"), os.WriteFile(p, nil, 0o600))
		}, nil},
		{"another log", "cannot start: the store was closed at record 46, and the database has another record there", func(p string) error {
			other := filepath.Join(filepath.Dir(p), "other")
			s, err := Open(t.Context(), options(other))
			if err != nil {
				return err
			}
			for i := range 49 {
				if _, err := s.Commit(noted(fmt.Sprint("other-", i))); err != nil {
					return err
				}
			}
			return errors.Join(s.Close(), os.Remove(p+"-wal"), os.Rename(filepath.Join(other, "ocipd.db"), p))
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t.TempDir())
			s := open(t, o)
			fill(t, s, 43)
			shut(t, s)
			if err := copyFile(o.Path, o.Path+".early"); err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
			fill(t, s, 3)
			if err := tt.loss(o.Path); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(noted("late")); !errors.Is(err, ErrLatched) {
				t.Fatalf("got %v, want %v", err, ErrLatched)
			}
			_ = s.Close()
			if tt.mend != nil {
				if err := tt.mend(o.Path); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(t.Context(), o)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if s.Head().Seq != 46 {
					t.Errorf("the log ends at %d, want 46", s.Head().Seq)
				}
				wantSound(t, s)
				return
			}
			if err == nil {
				t.Fatalf("it starts, at record %d", s.Head().Seq)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), o.Path+".latched") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			// The operator accepts that they are missing.
			if err := os.Remove(o.Path + ".latched"); err != nil {
				t.Fatal(err)
			}
			shut(t, open(t, o))
		})
	}
}

// TestMirrorLost: while a copy is lost nothing is released, records about the loss are still
// written, and it goes on when the copy is back.
func TestMirrorLost(t *testing.T) {
	o := options(t.TempDir())
	var lost error
	o.Alive = func() error { return lost }
	s := open(t, o)
	defer s.Close()
	fill(t, s, 1)
	lost = errors.New("the audit mirror is gone")
	released := false
	c := noted("refused")
	c.Durable = func(Receipt) { released = true }
	if _, err := s.Commit(c); !errors.Is(err, ErrMirrorLost) || !errors.Is(err, lost) || released {
		t.Errorf("got %v, released %v", err, released)
	}
	alarm := noted("alarm")
	alarm.Alarm = true
	if r := commit(t, s, alarm); r.Seq != 2 {
		t.Errorf("the alarm is record %d, want 2", r.Seq)
	}
	s.TouchSession("telegram:bob", time.Now())
	s.Flush()
	if s.Latched() != nil {
		t.Errorf("the store is closed: %v", s.Latched())
	}
	// An alarm in a batch with others passes alone.
	lost = nil
	release := hold(t, s)
	results := make(chan error, 2)
	for _, c := range []*Change{noted("also refused"), {Alarm: true, Records: noted("second alarm").Records}} {
		go func() {
			_, err := s.Commit(c)
			results <- err
		}()
	}
	eventually(t, "both wait", func() bool { return s.waitingChanges() == 2 })
	lost = errors.New("the audit mirror is gone again")
	release()
	if first, second := <-results, <-results; (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), ErrMirrorLost) {
		t.Errorf("got %v and %v, want the alarm recorded and the other refused", first, second)
	}
	lost = nil
	commit(t, s, noted("goes on"))
	wantSound(t, s)
}

func openIn(t *testing.T, dir string) (*Store, Options) {
	t.Helper()
	o := options(dir)
	// A close brings the records into the database's own file.
	s := open(t, o)
	fill(t, s, 40)
	shut(t, s)
	s = open(t, o)
	t.Cleanup(func() { _ = s.Close() })
	return s, o
}

// wantRefused expects a change to be refused for a loss, and all later ones too.
func wantRefused(t *testing.T, s *Store, want string) {
	t.Helper()
	for range 2 {
		c := noted("late")
		c.Durable = func(Receipt) { t.Error("it was released") }
		_, err := s.Commit(c)
		var lost *fileintegrity.LostError
		if !errors.Is(err, ErrLatched) || !errors.As(err, &lost) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// BenchmarkWatch measures the checks before and after a commit.
func BenchmarkWatch(b *testing.B) {
	s := open(b, options(b.TempDir()))
	defer s.Close()
	for b.Loop() {
		if err := errors.Join(s.health.files.Check()); err != nil {
			b.Fatal(err)
		}
	}
}

// The first reader notices that the log was cut: the store is closed, names the file, and keeps
// naming it.
func TestReadNoticesALoss(t *testing.T) {
	for _, loss := range []struct {
		name, want string
		do         func(path string) error
	}{
		{"log emptied", "ocipd.db-wal was cut", func(p string) error { return os.Truncate(p+"-wal", 0) }},
	} {
		t.Run(loss.name, func(t *testing.T) {
			s, o := openIn(t, t.TempDir())
			fill(t, s, 3)
			if err := loss.do(o.Path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := s.Line(t.Context(), s.Head().Seq)
				unreadable, ok := errors.AsType[*UnreadableError](err)
				if !ok || !errors.Is(err, ErrLatched) {
					t.Fatalf("reading: %v", err)
				}
				if !strings.Contains(unreadable.Closed.Error(), loss.want) {
					t.Errorf("it is closed for %v", unreadable.Closed)
				}
			}
			if _, err := os.Stat(o.Path + ".latched"); err != nil || s.Latched() == nil {
				t.Errorf("it is not closed: %v", err)
			}
			wantRefused(t, s, loss.want)
		})
	}
}
