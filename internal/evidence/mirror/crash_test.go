package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/test/buildtest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests of this file need a process of their own, to kill it or to take its disk away. It is
// this binary again, and its environment tells it what to do.
const (
	childRole = "OCIPD_MIRROR_TEST_ROLE"
	childDir  = "OCIPD_MIRROR_TEST_DIR"
	childStep = "OCIPD_MIRROR_TEST_STEP"
)

func TestMain(m *testing.M) {
	role, dir := os.Getenv(childRole), os.Getenv(childDir)
	if role == "" {
		os.Exit(buildtest.Isolated(m).Run())
	}
	play := map[string]func(string) error{"rotate": childRotates, "rebuild": childRebuilds, "retire": childRetires, "full disk": childFillsItsDisk}[role]
	if err := play(dir); err != nil {
		fmt.Println("fault:", err)
		os.Exit(1)
	}
	fmt.Println("done")
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

// lethal returns options that kill the process at one of the steps, which its environment names.
func lethal(dir string, b *book) Options {
	o := options(dir, b)
	die, err := strconv.Atoi(os.Getenv(childStep))
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	o.step = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if die--; die == 0 {
			fmt.Println("killed at:", name)
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				panic(err)
			}
			select {}
		}
	}
	return o
}

const crashRecords = 44

func childRotates(dir string) error {
	b := newBook("book", crashRecords)
	m, err := Open(context.Background(), lethal(dir, b))
	if err != nil {
		return err
	}
	return finish(m, b)
}

// childRebuilds removes a segment that was not listed.
func childRebuilds(dir string) error {
	b := newBook("book", crashRecords)
	o := options(dir, b)
	m, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if err := errors.Join(finish(m, b), os.Remove(m.layout.manifest()), os.Remove(m.layout.path(m.Segments()[1].File))); err != nil {
		return err
	}
	if m, err = Open(context.Background(), lethal(dir, b)); err != nil {
		return err
	}
	return finish(m, b)
}

func childRetires(dir string) error {
	b := newBook("book", crashRecords)
	o := options(dir, b)
	m, err := Open(context.Background(), o)
	if err == nil {
		err = finish(m, b)
	}
	if err != nil {
		return err
	}
	if m, err = Open(context.Background(), lethal(dir, b)); err != nil {
		return err
	}
	_, err = m.Retire(context.Background(), m.Segments()[1].Last)
	return errors.Join(err, finish(m, b))
}

// finish waits until everything is compressed, and closes.
func finish(m *Mirror, b *book) error {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if s := m.Status(); s.Mirrored == b.Head().Seq && s.Pending == 0 {
			return m.Close(context.Background())
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("it does not finish: %+v", m.Status())
		}
	}
}

// TestKilledAtEveryStep kills a process between any two steps of rotation, rebuilding and
// retirement. The next start has every line once and complete.
func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	b := newBook("book", crashRecords)
	whole := openTest(t, options(t.TempDir(), b))
	rest(t, whole)
	retired := whole.Segments()[1].Last
	shut(t, whole)
	for _, role := range []string{"rotate", "rebuild", "retire"} {
		seen := make(map[string]bool)
		for step := 1; ; step++ {
			if step > 200 {
				t.Fatal("the child never finishes")
			}
			dir := t.TempDir()
			cmd := child(t, role, dir)
			cmd.Env = append(cmd.Env, fmt.Sprint(childStep, "=", step))
			out, err := cmd.Output()
			said := strings.TrimSpace(string(out))
			name, killed := strings.CutPrefix(said, "killed at: ")
			if !killed && (err != nil || said != "done") {
				t.Fatalf("%s, step %d: %q, %v", role, step, said, err)
			}
			seen[name] = true

			// The files at that moment contain a part of the log, or all of it.
			if got, err := walked(filepath.Join(dir, "audit.jsonl"), 0); !bytes.Contains(b.all(), got) && !errors.Is(err, ErrTorn) {
				t.Errorf("%s, killed at %s (%d): the files are not the log's: %d bytes, %v", role, name, step, len(got), err)
			}
			o := options(dir, newBook("book", crashRecords+3))
			now := o
			if role == "retire" {
				// The daemon removes the records from the database first.
				left := newBook("book", crashRecords+3)
				left.retire(retired)
				now.Source = left
			}
			m := openTest(t, now)
			rest(t, m)
			// Once they are marked, the first two segments are removed for good.
			first := m.Segments()[0].First
			if want := role == "retire" && (seen["segments marked"] || name == "manifest replaced"); (first > 1) != want {
				t.Errorf("%s, killed at %s (%d): the files begin at record %d", role, name, step, first)
			}
			if role != "rebuild" {
				wantFaults(t, m)
			}
			wantWhole(t, o, first)
			shut(t, m)
			if n := matching(t, dir, "foreign") + matching(t, dir, ".tmp"); n != 0 || matching(t, dir, "-0")-len(m.Segments()) != 0 {
				t.Errorf("%s, killed at %s (%d): left behind: %q", role, name, step, names(t, dir))
			}
			if t.Failed() {
				return
			}
			if !killed {
				break
			}
		}
		want := map[string][]string{
			"rotate":  {"live file synced", "live file renamed", "live file made", "segment compressed", "segment verified", "compressed segment renamed", "manifest written", "manifest replaced", "plain segment removed"},
			"rebuild": {"segment rebuilt", "rebuilt segment named", "manifest replaced"},
			"retire":  {"manifest written", "segments marked", "segment removed", "manifest replaced"},
		}[role]
		for _, name := range want {
			if !seen[name] {
				t.Errorf("%s: nobody was killed at %q: %v", role, name, seen)
			}
		}
	}
}

// TestKilledAtAnyMoment kills a process that rotates, at any moment.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	for round := range 10 {
		cmd := child(t, "rotate", dir)
		cmd.Env = append(cmd.Env, childStep+"=0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(10+round*7)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		o := options(dir, newBook("book", crashRecords))
		m := openTest(t, o)
		rest(t, m)
		wantFaults(t, m)
		wantWhole(t, o, 1)
		shut(t, m)
		if round%2 == 1 {
			dir = t.TempDir()
		}
	}
}

// childFillsItsDisk runs in a name space of its own, with a small disk.
func childFillsItsDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		fmt.Println("skip: cannot mount a small disk:", err)
		os.Exit(0)
	}
	b := newBook("book", 20)
	o := options(dir, b)
	o.RotateBytes = 40_000
	m, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	for round := range 3 {
		ballast := filepath.Join(dir, "ballast")
		if err := fillDisk(ballast); err != nil {
			return err
		}
		b.add(2000)
		stuck := func() bool { return len(m.Status().Problems) > 0 }
		if err := soon(stuck); err != nil {
			return fmt.Errorf("round %d: the disk does not get full: %w", round, err)
		}
		switch s := m.Status(); {
		case m.Check() != nil:
			return fmt.Errorf("a full disk is no loss: %w", m.Check())
		case s.Mirrored == b.Head().Seq:
			return fmt.Errorf("there was space: %+v", s)
		}
		if got, err := walked(o.Path, 0); err != nil && !errors.Is(err, ErrTorn) || !bytes.HasPrefix(b.all(), got) {
			return fmt.Errorf("the files are not the log's: %d bytes, %w", len(got), err)
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		if err := soon(func() bool { return m.Mirrored() == b.Head().Seq && !stuck() && m.Status().Pending == 0 }); err != nil {
			return fmt.Errorf("round %d: with space again: %+v: %w", round, m.Status(), err)
		}
		got, err := walked(o.Path, 0)
		if err != nil || !bytes.Equal(got, b.all()) {
			return fmt.Errorf("round %d: %d bytes, want %d: %w", round, len(got), len(b.all()), err)
		}
		// Room for the next round.
		if _, err := m.Retire(context.Background(), b.Head().Seq); err != nil {
			return err
		}
		b.retire(m.live.base)
	}
	return m.Close(context.Background())
}

func soon(ready func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
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

// fillDisk leaves only little space.
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
	return f.Truncate(max(0, end-150*1024))
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
