package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// TestLadder walks a disk down and up again: where each rung begins and ends.
func TestLadder(t *testing.T) {
	const warn, least, mib = 1000 << 20, 64 << 20, 1 << 20
	steps := []struct {
		free int64
		full bool
		want Rung
	}{
		{2000 << 20, false, DiskOK},
		{warn, false, DiskOK},
		{warn - 1, false, DiskWarn},
		{warn, false, DiskWarn}, // at the border, it is not told of again
		{leave(warn), false, DiskOK},
		{500 << 20, false, DiskWarn},
		{least, false, DiskWarn},
		{least - 1, false, DiskRefuse},
		{least + mib, false, DiskRefuse},
		{leave(least), false, DiskWarn},
		{10 * mib, false, DiskRefuse},
		{0, true, DiskFull},
		{20 * mib, false, DiskFull},
		{leave(least), false, DiskWarn},
		{0, true, DiskFull},
		{2000 << 20, false, DiskOK},
		// A write found no space and there is plenty: no reason to stop.
		{2000 << 20, true, DiskOK},
	}
	free := int64(0)
	s := newSpace(SpaceOptions{WarnFree: warn, MinFree: least, Free: func() (int64, error) { return free, nil }}, t.TempDir()+"/db", zap.NewNop())
	s.now.Store(&Disk{Rung: DiskOK})
	for i, step := range steps {
		free = step.free
		s.look(step.full)
		if got := s.now.Load().Rung; got != step.want {
			t.Fatalf("step %d, %d MiB free: got %s, want %s", i+1, step.free>>20, got, step.want)
		}
	}
	s.Free = func() (int64, error) { return 0, errors.New("no such disk") }
	s.look(false)
	if got := s.now.Load(); got.Rung != DiskOK || got.Free != 2000<<20 {
		t.Errorf("what cannot be told changes nothing: got %+v", got)
	}
}

// TestReserve: it is made where there is room for it beside what must be free,
// given up once, and made again when there is room again.
func TestReserve(t *testing.T) {
	const least, size = 8 << 20, 2 << 20
	free := int64(least)
	db := t.TempDir() + "/db"
	open := func() *space {
		return newSpace(SpaceOptions{MinFree: least, Reserve: size, Free: func() (int64, error) { return free, nil }}, db, zap.NewNop())
	}
	have := func() bool {
		info, err := os.Stat(db + ".reserve")
		if err == nil && (info.Mode().Perm() != 0o600 || info.Size() != size || info.Sys().(*syscall.Stat_t).Blocks*512 < size) {
			t.Errorf("it is %v with %d bytes, and takes %d blocks", info.Mode(), info.Size(), info.Sys().(*syscall.Stat_t).Blocks)
		}
		return err == nil
	}
	s := open()
	if have() || s.now.Load().Reserve || s.release() {
		t.Error("there is one without room for it")
	}
	free = leave(least) + size
	s.look(false)
	if d := s.now.Load(); !have() || !d.Reserve || d.Free != leave(least) {
		t.Fatalf("there is none: %+v", d)
	}
	if s = open(); !s.now.Load().Reserve {
		t.Error("it is not taken up by the next start")
	}
	if !s.release() || have() || s.now.Load().Reserve {
		t.Error("it is not given up")
	}
	if s.release() {
		t.Error("it is given up twice")
	}
	free = leave(least) + size - 1
	if s.look(false); have() {
		t.Error("it is made again too soon")
	}
	free++
	if s.look(false); !have() {
		t.Error("it is not made again")
	}
	// What somebody put in its place is not written to.
	if err := errors.Join(os.WriteFile(db+".other", []byte("precious"), 0o600), os.Remove(db+".reserve"), os.Symlink(db+".other", db+".reserve")); err != nil {
		t.Fatal(err)
	}
	if s = open(); !have() || !s.now.Load().Reserve {
		t.Error("it is not made in the place of a link")
	}
	if text, err := os.ReadFile(db + ".other"); err != nil || string(text) != "precious" {
		t.Errorf("the link's target was written to: %q, %v", text, err)
	}
}

// TestDiskIsLookedAtOnceASecond, and each change of the rung is told once.
func TestDiskIsLookedAtOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		looks, free := 0, int64(10<<20)
		var told []string
		s := newSpace(SpaceOptions{
			WarnFree: 5 << 20, MinFree: 2 << 20,
			Free: func() (int64, error) {
				mu.Lock()
				defer mu.Unlock()
				looks++
				return free, nil
			},
			Changed: func(was, now Disk) *Change {
				told = append(told, string(was.Rung)+">"+string(now.Rung))
				return &Change{}
			},
		}, "/nowhere/db", zap.NewNop())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx, func(*Change) (Receipt, error) { return Receipt{}, ErrFull })
		}()
		for _, next := range []int64{4 << 20, 1 << 20, 1 << 20, 3 << 20, 10 << 20} {
			mu.Lock()
			free = next
			mu.Unlock()
			<-time.After(time.Second + time.Millisecond)
			synctest.Wait()
		}
		s.look(true) // there is space: nothing to tell
		s.poke()
		synctest.Wait()
		stop()
		<-done
		if got := strings.Join(told, " "); got != "ok>warn warn>refuse refuse>warn warn>ok" {
			t.Errorf("told %s", got)
		}
		if looks != 7 {
			t.Errorf("%d looks in 5 s", looks)
		}
	})
}

// TestNearlyFull: what begins something is refused and says how much is free,
// what ends something is written, and it goes on without a restart.
func TestNearlyFull(t *testing.T) {
	o := options(t.TempDir())
	free := int64(1 << 30)
	o.Space = SpaceOptions{WarnFree: 200 << 20, MinFree: 64 << 20, Free: func() (int64, error) { return free, nil }, Every: time.Hour}
	s := open(t, o)
	defer s.Close()
	fill(t, s, 1)
	free = 12 << 20
	s.space.look(false)
	if d := s.Disk(); d.Rung != DiskRefuse || d.Free != free {
		t.Fatalf("got %+v", d)
	}
	c := noted("new")
	c.Durable = func(Receipt) { t.Error("it was released") }
	_, err := s.Commit(c)
	if !errors.Is(err, ErrLow) || !strings.Contains(err.Error(), "12 MiB are free, store.min_free_bytes asks for 64") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Commit(&Change{Parts: []Part{Meta{Key: "new"}}}); !errors.Is(err, ErrLow) {
		t.Errorf("a change without records: got %v", err)
	}
	for i, c := range []*Change{{Drains: true}, {Alarm: true}, {Last: true}, {}} {
		c.Records = noted("old").Records
		if i == 3 {
			c.Records = nil
		}
		commit(t, s, c)
	}
	s.TouchSession("telegram:bob", time.Now())
	s.Flush()
	free = 1 << 30
	s.space.look(false)
	commit(t, s, noted("goes on"))
	if s.Head().Seq != 5 {
		t.Errorf("the log ends at %d, want 5", s.Head().Seq)
	}
	wantSound(t, s)
}

// childUsesItsReserve fills a small disk up and wants the last records on the
// reserve: many changes that begin something and one that ends something.
func childUsesItsReserve(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		fmt.Println("skip: cannot mount a small disk:", err)
		return nil
	}
	o := options(dir)
	// Looked at by hand, so that the disk is full before anybody knows.
	o.Space = SpaceOptions{MinFree: 1 << 20, Reserve: 1 << 20, Every: time.Hour}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	for round := range 3 {
		if d := s.Disk(); d.Rung != DiskOK || !d.Reserve {
			return fmt.Errorf("round %d begins with %+v", round, d)
		}
		ballast := dir + "/ballast"
		if err := fillDisk(ballast); err != nil {
			return err
		}
		var full error
		for i := 0; full == nil; i++ {
			if i > 10_000 {
				return errors.New("the disk does not get full")
			}
			c := noted(fmt.Sprintf("%d-%d", round, i))
			c.Records[0].Content = strings.Repeat("x", 3000)
			_, full = s.Commit(c)
		}
		if d := s.Disk(); !errors.Is(full, ErrFull) || d.Rung != DiskFull || !d.Reserve {
			return fmt.Errorf("a change that begins something has used the reserve: %+v, %w", d, full)
		}
		if _, err := s.Commit(noted("new")); !errors.Is(err, ErrLow) {
			return fmt.Errorf("once full, a small one: %w", err)
		}
		for i := range 40 {
			c := noted(fmt.Sprintf("last-%d-%d", round, i))
			c.Records[0].Content = strings.Repeat("x", 3000)
			c.Drains = true
			if _, err := s.Commit(c); !errors.Is(err, ErrFull) {
				return fmt.Errorf("what apps end may use the reserve: %w", err)
			}
			c.Last = true
			if _, err := s.Commit(c); err != nil {
				return fmt.Errorf("last record %d: %w", i, err)
			}
		}
		if d := s.Disk(); d.Reserve {
			return fmt.Errorf("the last records did not need the reserve: %+v", d)
		}
		if err := sound(s); err != nil {
			return err
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		s.space.look(false)
		if _, err := s.Commit(noted("goes on")); err != nil {
			return fmt.Errorf("with space again: %w", err)
		}
	}
	if err := sound(s); err != nil {
		return err
	}
	fmt.Println("done")
	return s.Close()
}

// TestLastRecordsOnTheReserve takes the space away and gives it back.
func TestLastRecordsOnTheReserve(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	cmd := child(t, "reserve", t.TempDir())
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

// TestBigChangesLookAtTheDisk: between two looks no more is written than leaves what
// must be free, however large the changes are, and whoever sends them (attack 17).
func TestBigChangesLookAtTheDisk(t *testing.T) {
	o := options(t.TempDir())
	const disk, least = 64 << 20, 16 << 20
	free := func() (int64, error) {
		used := int64(0)
		for _, suffix := range []string{"", "-wal"} {
			if info, err := os.Stat(o.Path + suffix); err == nil {
				used += info.Size()
			}
		}
		return disk - used, nil
	}
	o.Space = SpaceOptions{WarnFree: 24 << 20, MinFree: least, Every: time.Hour, Free: free}
	o.Quota = Quota{Bytes: 1 << 40}
	s := open(t, o)
	defer shut(t, s)
	var refused error
	for i := 0; refused == nil; i++ {
		if i > 1000 {
			t.Fatal("nothing is refused")
		}
		c := noted(fmt.Sprint("big-", i))
		c.Records[0].AppID = "@acme/flood"
		c.Add(&Message{MessageID: MessageID{Queue: "agent:absent"}, DispatchID: "d", Body: make([]byte, 200<<10)})
		_, refused = s.Commit(c)
	}
	left, _ := free()
	if !errors.Is(refused, ErrLow) || left < least {
		t.Errorf("%d MiB are left after %v", left>>20, refused)
	}
	c := noted("a person's decision")
	c.Last = true
	commit(t, s, c)
	wantSound(t, s)
}

// TestManyAtOnceLookAtTheDisk: changes under way count, or each would find the same
// space free.
func TestManyAtOnceLookAtTheDisk(t *testing.T) {
	o := options(t.TempDir())
	o.Space = SpaceOptions{MinFree: 16 << 20, Every: time.Hour, Free: func() (int64, error) { return 20 << 20, nil }}
	s := open(t, o)
	defer shut(t, s)
	release := hold(t, s)
	results := make(chan error, 40)
	for i := range 40 {
		go func() {
			c := noted(fmt.Sprint(i))
			c.Add(&Message{MessageID: MessageID{Queue: "q"}, DispatchID: "d", Body: make([]byte, 250<<10)})
			_, err := s.Commit(c)
			results <- err
		}()
	}
	eventually(t, "all are taken or refused", func() bool { return s.waitingChanges()+len(results) == 40 })
	refused := len(results)
	release()
	for i := range 40 {
		if err := <-results; (err != nil) != (i < refused) || err != nil && !errors.Is(err, ErrLow) {
			t.Errorf("change %d of %d refused: %v", i+1, refused, err)
		}
	}
	// What was refused, and what was written, counts no more.
	if flying := s.space.flying.Load(); flying != 0 || refused < 30 || refused > 34 {
		t.Errorf("%d bytes are still under way, %d were refused", flying, refused)
	}
}
