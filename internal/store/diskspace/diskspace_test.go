package diskspace

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// TestLevels walks a disk down and up again: where each level begins and ends.
func TestLevels(t *testing.T) {
	const warn, least, mib = 1000 << 20, 64 << 20, 1 << 20
	steps := []struct {
		free int64
		full bool
		want Level
	}{
		{2000 << 20, false, OK},
		{warn, false, OK},
		{warn - 1, false, Warn},
		{warn, false, Warn}, // at the limit, it is not reported again
		{leave(warn), false, OK},
		{500 << 20, false, Warn},
		{least, false, Warn},
		{least - 1, false, Refuse},
		{least + mib, false, Refuse},
		{leave(least), false, Warn},
		{10 * mib, false, Refuse},
		{0, true, Full},
		{20 * mib, false, Full},
		{leave(least), false, Warn},
		{0, true, Full},
		{2000 << 20, false, OK},
		// A write found no space, but there is plenty: no reason to stop.
		{2000 << 20, true, OK},
	}
	free := int64(0)
	s := New(Options{WarnFree: warn, MinFree: least, Free: func() (int64, error) { return free, nil }}, t.TempDir()+"/db", zap.NewNop())
	s.now.Store(&Disk{Level: OK})
	for i, step := range steps {
		free = step.free
		s.Look(step.full)
		if got := s.now.Load().Level; got != step.want {
			t.Fatalf("step %d, %d MiB free: got %s, want %s", i+1, step.free>>20, got, step.want)
		}
	}
	s.Free = func() (int64, error) { return 0, errors.New("no such disk") }
	s.Look(false)
	if got := s.now.Load(); got.Level != OK || got.Free != 2000<<20 {
		t.Errorf("what cannot be told changes nothing: got %+v", got)
	}
}

// TestReserve: it is made if there is room for it beside the space that must be free, given up
// once, and made again when there is room again.
func TestReserve(t *testing.T) {
	const least, size = 8 << 20, 2 << 20
	free := int64(least)
	db := t.TempDir() + "/db"
	open := func() *Monitor {
		return New(Options{MinFree: least, Reserve: size, Free: func() (int64, error) { return free, nil }}, db, zap.NewNop())
	}
	have := func() bool {
		info, err := os.Stat(db + ".reserve")
		if err == nil && (info.Mode().Perm() != 0o600 || info.Size() != size || info.Sys().(*syscall.Stat_t).Blocks*512 < size) {
			t.Errorf("it is %v with %d bytes, and takes %d blocks", info.Mode(), info.Size(), info.Sys().(*syscall.Stat_t).Blocks)
		}
		return err == nil
	}
	s := open()
	if have() || s.now.Load().Reserve || s.Release() {
		t.Error("there is one without room for it")
	}
	free = leave(least) + size
	s.Look(false)
	if d := s.now.Load(); !have() || !d.Reserve || d.Free != leave(least) {
		t.Fatalf("there is none: %+v", d)
	}
	if s = open(); !s.now.Load().Reserve {
		t.Error("it is not taken up by the next start")
	}
	if !s.Release() || have() || s.now.Load().Reserve {
		t.Error("it is not given up")
	}
	if s.Release() {
		t.Error("it is given up twice")
	}
	free = leave(least) + size - 1
	if s.Look(false); have() {
		t.Error("it is made again too soon")
	}
	free++
	if s.Look(false); !have() {
		t.Error("it is not made again")
	}
	// A file that somebody put in its place is not written to.
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

// TestDiskIsLookedAtOnceASecond, and each change of the level is reported once.
func TestDiskIsLookedAtOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		looks, free := 0, int64(10<<20)
		var told []string
		s := New(Options{
			WarnFree: 5 << 20, MinFree: 2 << 20,
			Free: func() (int64, error) {
				mu.Lock()
				defer mu.Unlock()
				looks++
				return free, nil
			},
		}, "/nowhere/db", zap.NewNop())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx, func(was, now Disk) error {
				told = append(told, string(was.Level)+">"+string(now.Level))
				return ErrFull
			})
		}()
		for _, next := range []int64{4 << 20, 1 << 20, 1 << 20, 3 << 20, 10 << 20} {
			mu.Lock()
			free = next
			mu.Unlock()
			<-time.After(time.Second + time.Millisecond)
			synctest.Wait()
		}
		s.Look(true) // there is space: nothing to report
		s.wakeUp()
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
