package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// The tests of this file need a process of their own, to kill it or to take its disk away: this
// program again, with its task in the environment.
const (
	childRole = "OCIPD_STORE_TEST_ROLE"
	childDir  = "OCIPD_STORE_TEST_DIR"
)

func TestMain(m *testing.M) {
	role, dir := os.Getenv(childRole), os.Getenv(childDir)
	if role == "" {
		os.Exit(buildtest.Isolated(m).Run())
	}
	play := map[string]func(string) error{"commit": childCommits, "full disk": childFillsItsDisk, "broken disk": childLosesItsDisk, "reserve": childUsesItsReserve, "outsider": childLooksIn, "visitor": childReadsOn, "panic": childPanics}[role]
	if err := play(dir); err != nil {
		fmt.Println("fault:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, role, dir string) *osexec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// acknowledge tells the parent that a change is durable, with one write, so that lines of several
// goroutines do not mix and none is half written.
func acknowledge(id string) error {
	_, err := os.Stdout.WriteString(id + "\n")
	return err
}

// childCommits commits from several goroutines until it is killed.
func childCommits(dir string) error {
	s, err := Open(context.Background(), options(dir))
	if err != nil {
		return err
	}
	failed := make(chan error)
	for g := range 6 {
		go func() {
			for i := 0; ; i++ {
				c := dispatchChange(i, time.Now())
				id := c.Records[0].DispatchID
				m := messageOf(c)
				m.Queue = fmt.Sprint("q", g)
				m.Body = []byte(id)
				c.Add(Run{ID: id, AgentID: "alice", QueuedAt: time.Now()})
				c.Records = append(c.Records, &audit.Record{ID: id + "-2", ActionType: audit.ActionDelivery, DispatchID: id})
				_, err := s.Commit(c)
				if err == nil {
					err = acknowledge(id)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// TestKilledAtAnyMoment kills a committing process again and again. Every acknowledged change is
// there, whole, with its evidence.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	acknowledged := 0
	for round := range 15 {
		cmd := child(t, "commit", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var ids []string
		limit := rand.IntN(120)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "fault:") {
				t.Fatal(lines.Text())
			}
			if ids = append(ids, lines.Text()); len(ids) == limit+1 {
				// Changes that are still in the pipe were acknowledged as well.
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		acknowledged += len(ids)
		s := open(t, options(dir))
		wantAcknowledged(t, s, ids)
		wantSound(t, s)
		shut(t, s)
		if t.Failed() {
			t.Fatalf("after kill %d", round+1)
		}
	}
	t.Logf("%d acknowledged changes survived", acknowledged)
}

// wantAcknowledged looks for every part of the acknowledged changes.
func wantAcknowledged(t *testing.T, s *Store, ids []string) {
	t.Helper()
	ctx := t.Context()
	records := make(map[string][]string)
	err := s.EachLine(ctx, 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		records[e.DispatchID] = append(records[e.DispatchID], e.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	queued := make(map[string]bool)
	for g := range 6 {
		page, err := s.Messages(ctx, fmt.Sprint("q", g), 0, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			queued[m.DispatchID] = string(m.Body) == m.DispatchID
		}
	}
	check := func(id string) {
		if !slices.Equal(records[id], []string{id, id + "-2"}) || !queued[id] {
			t.Errorf("change %s: records %v, queued %v", id, records[id], queued[id])
		}
		if _, err := s.Exchange(ctx, "agent-alice-1", id); err != nil {
			t.Errorf("change %s: its exchange: %v", id, err)
		}
		if _, err := s.Run(ctx, id); err != nil {
			t.Errorf("change %s: its run: %v", id, err)
		}
	}
	for _, id := range ids {
		check(id)
	}
	// A change that was not acknowledged is there whole or not at all.
	if len(queued) != len(records) {
		t.Errorf("%d changes have records, %d have messages", len(records), len(queued))
	}
}

// childLooksIn opens a store's file as another program does.
func childLooksIn(dir string) error {
	for _, uri := range []string{"", "?mode=ro", "?vfs=unix-excl"} {
		conn, err := sqlite.OpenConn("file:"+options(dir).Path+uri, sqlite.OpenReadWrite|sqlite.OpenURI)
		if err != nil {
			return err
		}
		conn.SetBusyTimeout(0)
		for _, query := range []string{"SELECT count(*) FROM records", "CREATE TABLE mine (x)", "PRAGMA wal_checkpoint"} {
			err := sqlitex.ExecuteTransient(conn, query, nil)
			fmt.Println(sqlite.ErrCode(err).ToPrimary())
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

// childReadsOn reads a database until its parent ends it.
func childReadsOn(dir string) error {
	conn, err := sqlite.OpenConn(options(dir).Path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	err = errors.Join(sqlitex.ExecuteTransient(conn, "BEGIN", nil), sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM records", nil))
	fmt.Println("reading")
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the parent
	return errors.Join(err, conn.Close())
}

// TestNoOtherProcess expects all connections of a store to hold SQLite's lock, and the lock to
// survive the closing of one of them.
func TestNoOtherProcess(t *testing.T) {
	s, o := openIn(t, t.TempDir())
	path, remove, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole := openReader(t, path)
	wantRecords(t, whole.Records, s.Head().Seq)
	if err := remove(); err != nil {
		t.Error(err)
	}
	said, err := child(t, "outsider", filepath.Dir(o.Path)).Output()
	if err != nil || string(said) != strings.Repeat("SQLITE_BUSY\n", 9) {
		t.Errorf("another process gets %q, %v", said, err)
	}
	fill(t, s, 1)
	wantSound(t, s)
	for name := range files(t, filepath.Dir(o.Path)) {
		if name != "ocipd.db" && name != "ocipd.db-wal" {
			t.Errorf("there is %s", name)
		}
	}
	shut(t, s)
	if said, err := child(t, "outsider", filepath.Dir(o.Path)).Output(); err != nil || !strings.HasPrefix(string(said), "SQLITE_OK\n") {
		t.Errorf("afterwards another process gets %q, %v", said, err)
	}
}

// childFillsItsDisk runs in a mount namespace of its own, where it can have a small disk.
func childFillsItsDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		fmt.Println("skip: cannot mount a small disk:", err)
		return nil
	}
	o := options(dir)
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if _, err := s.Commit(with(Session{Key: "telegram:bob"})); err != nil {
		return err
	}
	for round := range 3 {
		ballast := filepath.Join(dir, "ballast")
		if err := fillDisk(ballast); err != nil {
			return err
		}
		before := s.Head()
		s.TouchSession("telegram:bob", time.Now())
		var full error
		committed := uint64(0)
		for i := 0; full == nil; i++ {
			if i > 10_000 {
				return errors.New("the disk does not get full")
			}
			c := noted(fmt.Sprintf("%d-%d", round, i))
			c.Records[0].Content = strings.Repeat("x", 3000)
			c.Add(&Message{MessageID: MessageID{Queue: fmt.Sprint("q", round)}, Body: []byte("hi")})
			c.Durable = func(Receipt) { committed++ }
			_, full = s.Commit(c)
		}
		// A small change is also refused, or fits: never anything between.
		_, small := s.Commit(noted("small"))
		if small == nil {
			committed++
		} else if !errors.Is(small, ErrFull) {
			return fmt.Errorf("the small change: %w", small)
		}
		head := s.Head()
		last, err := s.LastSeq(context.Background())
		switch {
		case !errors.Is(full, ErrFull):
			return fmt.Errorf("with a full disk: %w", full)
		case s.Latched() != nil:
			return fmt.Errorf("a full disk closed the store: %w", s.Latched())
		case err != nil:
			return err
		case last != head.Seq || head.Seq != before.Seq+committed:
			return fmt.Errorf("%d changes were acknowledged after record %d, but the log ends at %d and the store at %d", committed, before.Seq, last, head.Seq)
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		if _, err := s.Commit(noted("goes on")); err != nil {
			return fmt.Errorf("with space again: %w", err)
		}
		if err := sound(s); err != nil {
			return err
		}
		if used, err := s.FreshSession(context.Background(), "telegram:bob"); err != nil || used.MessageCount != int64(round+1) {
			return fmt.Errorf("the session counts %d messages of %d: %w", used.MessageCount, round+1, err)
		}
	}
	head := s.Head()
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = Open(context.Background(), o); err != nil {
		return err
	}
	if s.Head() != head {
		return fmt.Errorf("opened again at %d, closed at %d", s.Head().Seq, head.Seq)
	}
	if err := sound(s); err != nil {
		return err
	}
	fmt.Println("done")
	return s.Close()
}

// fillDisk leaves a little room.
func fillDisk(ballast string) error {
	f, err := os.Create(ballast)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	end, err := f.Seek(0, 1)
	if err != nil {
		return err
	}
	return f.Truncate(max(0, end-int64(40+rand.IntN(200))*1024))
}

// TestFullDisk takes the space away and gives it back.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	cmd := child(t, "full disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	var exit *osexec.ExitError
	switch said := strings.TrimSpace(string(out)); {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("cannot start a process with a disk of its own here: %v", err)
	case strings.HasPrefix(said, "skip:"):
		t.Skip(said)
	case err != nil || said != "done":
		t.Errorf("%s (%v)", said, err)
	}
}

// childLosesItsDisk makes the kernel refuse writes beyond a size, which SQLite reports as an
// input/output error.
func childLosesItsDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	o := options(dir)
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	for i := range 300 {
		c := noted(fmt.Sprint("before-", i))
		if _, err := s.Commit(c); err != nil {
			return err
		}
		if err := acknowledge(c.Records[0].ID); err != nil {
			return err
		}
	}
	written, err := os.Stat(o.Path + "-wal")
	if err != nil {
		return err
	}
	limit := uint64(written.Size() + 50_000)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	var broken error
	for i := 0; broken == nil; i++ {
		if i > 10_000 {
			return errors.New("the disk does not break")
		}
		c := noted(fmt.Sprint("at-the-end-", i))
		if _, broken = s.Commit(c); broken == nil {
			if err := acknowledge(c.Records[0].ID); err != nil {
				return err
			}
		}
	}
	if !errors.Is(broken, ErrLatched) || s.Latched() == nil {
		return fmt.Errorf("want the store closed: %w, %w", broken, s.Latched())
	}
	head := s.Head()
	late := noted("late")
	late.Durable = func(Receipt) { broken = nil }
	if _, err := s.Commit(late); !errors.Is(err, ErrLatched) || broken == nil {
		return fmt.Errorf("a later change: %w", err)
	}
	if last, err := s.LastSeq(context.Background()); err != nil || last != head.Seq || s.Head() != head {
		return fmt.Errorf("the log ends at %d, the store at %d: %w", last, head.Seq, err)
	}
	if err := s.Close(); !errors.Is(err, ErrLatched) {
		return fmt.Errorf("closed as if nothing had happened: %w", err)
	}
	return nil
}

// TestBrokenDisk expects an input/output error to close the store, and the next start to check
// everything before it goes on.
func TestBrokenDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	dir := t.TempDir()
	out, err := child(t, "broken disk", dir).Output()
	if err != nil {
		t.Fatalf("%v: %.500s", err, out[bytes.LastIndex(out, []byte("fault:"))+1:])
	}
	o := options(dir)
	if _, err := os.Stat(o.Path + ".latched"); err != nil {
		t.Errorf("the store is not marked: %v", err)
	}
	core, logs := observer.New(zap.WarnLevel)
	o.Log = zap.New(core)
	s := open(t, o)
	defer s.Close()
	if logs.FilterMessageSnippet("verifying every record").Len() != 1 {
		t.Error("it went on unchecked")
	}
	var want, got []string
	for id := range strings.Lines(string(out)) {
		want = append(want, strings.TrimSpace(id))
	}
	err = s.EachLine(t.Context(), 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		got = append(got, e.ID)
		return err
	})
	if err != nil || len(want) < 300 || !slices.Equal(got, want) {
		t.Errorf("%d changes are there, %d were acknowledged: %v", len(got), len(want), err)
	}
	fill(t, s, 3)
	wantSound(t, s)
}
