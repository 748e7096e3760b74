package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/store/diskspace"
	"github.com/openclawos/ocipd/internal/store/quota"
)

// TestNearlyFull: changes that begin something are refused with the free space in the error,
// changes that end something are written, and it goes on without a restart.
func TestNearlyFull(t *testing.T) {
	o := options(t.TempDir())
	free := int64(1 << 30)
	o.Space = diskspace.Options{WarnFree: 200 << 20, MinFree: 64 << 20, Free: func() (int64, error) { return free, nil }, Every: time.Hour}
	s := open(t, o)
	defer s.Close()
	fill(t, s, 1)
	free = 12 << 20
	s.commits.space.Look(false)
	if d := s.Disk(); d.Level != diskspace.Refuse || d.Free != free {
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
	s.commits.space.Look(false)
	commit(t, s, noted("goes on"))
	if s.Head().Seq != 5 {
		t.Errorf("the log ends at %d, want 5", s.Head().Seq)
	}
	wantSound(t, s)
}

// childUsesItsReserve fills a small disk and expects the last records on the reserve, among many
// changes that begin something and one that ends something.
func childUsesItsReserve(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		fmt.Println("skip: cannot mount a small disk:", err)
		return nil
	}
	o := options(dir)
	// The test checks the disk by hand, so that it is full before the daemon knows.
	o.Space = diskspace.Options{MinFree: 1 << 20, Reserve: 1 << 20, Every: time.Hour}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	for round := range 3 {
		if d := s.Disk(); d.Level != diskspace.OK || !d.Reserve {
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
		if d := s.Disk(); !errors.Is(full, ErrFull) || d.Level != diskspace.Full || !d.Reserve {
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
		s.commits.space.Look(false)
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

// TestBigChangesLookAtTheDisk: between two checks of the disk, writes leave the space that must be
// free, however large the changes are and regardless of the sender.
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
	o.Space = diskspace.Options{WarnFree: 24 << 20, MinFree: least, Every: time.Hour, Free: free}
	o.Quota = quota.Limit{Bytes: 1 << 40}
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

// TestManyAtOnceLookAtTheDisk: changes in progress count, or each would find the same space free.
func TestManyAtOnceLookAtTheDisk(t *testing.T) {
	o := options(t.TempDir())
	o.Space = diskspace.Options{MinFree: 16 << 20, Every: time.Hour, Free: func() (int64, error) { return 20 << 20, nil }}
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
	// Refused and written changes do not count any more.
	if refused < 30 || refused > 34 {
		t.Errorf("%d were refused", refused)
	}
	s.commits.space.Look(false)
	c := noted("one that takes nearly all")
	c.Add(&Message{MessageID: MessageID{Queue: "q"}, DispatchID: "d", Body: make([]byte, (s.Disk().Free-16<<20)/2-64<<10)})
	commit(t, s, c)
}
