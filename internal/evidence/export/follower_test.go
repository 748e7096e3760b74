package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/evidence/follow"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// fakeSink takes records as its test defines.
type fakeSink struct {
	*seen
	// fail is called before each page.
	fail  func(attempt int) error
	trail time.Duration
	// broken is closed when the connection ends, which breaks describes.
	broken chan struct{}
	breaks error

	attempts int
	pages    []int
	at       []time.Time
	closed   bool
}

func (s *fakeSink) Send(ctx context.Context, batch []Record) (Ack, error) {
	s.attempts++
	s.at = append(s.at, time.Now())
	var err error
	if s.fail != nil {
		err = s.fail(s.attempts)
	}
	if err != nil {
		return Ack{}, err
	}
	s.pages = append(s.pages, len(batch))
	for _, r := range batch {
		s.add(string(r.Line))
	}
	return Ack{}, ctx.Err()
}

func (s *fakeSink) Trail() time.Duration { return s.trail }

func (s *fakeSink) Broken() <-chan struct{} { return s.broken }

func (s *fakeSink) Check() error {
	err := s.breaks
	s.broken, s.breaks = nil, nil
	return err
}

func (s *fakeSink) Close() error {
	s.closed = true
	return nil
}

func following(tb testing.TB, log Log, sink Sink, dir string) FollowerOptions {
	tb.Helper()
	return FollowerOptions{
		Name: "siem", Type: "fake", Log: log, Sink: sink, Dir: dir, From: FromStart, Timeout: time.Second,
		Now: time.Now, Random: func() float64 { return 0 }, Zap: zap.NewNop(),
	}
}

func feed(tb testing.TB, o FollowerOptions) *Follower {
	tb.Helper()
	f, err := Follow(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func shut(tb testing.TB, f *Follower) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := f.Close(ctx); err != nil {
		tb.Fatal(err)
	}
}

// A dead sink is tried again less and less often, loses nothing, and shows the time of the first
// failure.
func TestDeadSink(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		log.fill(t, 3)
		sink := &fakeSink{seen: newSeen(), fail: func(attempt int) error {
			if attempt <= 10 {
				return errors.New("it is\ndead")
			}
			return nil
		}}
		from := time.Now()
		f := feed(t, following(t, log, sink, dir))
		defer shut(t, f)
		synctest.Wait()
		log.fill(t, 2000)
		s := f.Status()
		if s.Error != "it is dead" || !s.Since.Equal(from) || s.Lag != 2003 || s.Seq != 0 || !s.Oldest.Equal(began) {
			t.Errorf("status %+v", s)
		}
		select {
		case <-time.After(5 * time.Minute):
		case <-t.Context().Done():
		}
		synctest.Wait()
		sink.check(t, log)
		if sink.most() != 1 {
			t.Error("records came twice")
		}
		var gaps []time.Duration
		for i := range 10 {
			gaps = append(gaps, sink.at[i+1].Sub(sink.at[i]))
		}
		want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}
		if !slices.Equal(gaps, want) {
			t.Errorf("waited %v, want %v", gaps, want)
		}
		if s = f.Status(); s.Error != "" || !s.Since.IsZero() || s.Lag != 0 || s.Sent != 2003 || !s.Oldest.IsZero() {
			t.Errorf("status %+v", s)
		}
	})
}

// The follower waits as long as a receiver requests, within reason.
func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, time.Hour: maxAfter, 0: 0} {
		busy, ok := errors.AsType[follow.Busy](fmt.Errorf("a page: %w", &busyError{after: after, err: errors.New("busy")}))
		if !ok || busy.RetryAfter() != want {
			t.Errorf("after %s: %v, want %s", after, busy, want)
		}
	}
}

// A busy log is sent in several pages a second, a quiet one at once.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		sink := &fakeSink{seen: newSeen()}
		f := feed(t, following(t, log, sink, dir))
		defer shut(t, f)
		from := time.Now()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range 1000 {
			<-tick.C
			log.fill(t, 1)
			synctest.Wait()
		}
		if sink.attempts < 8 || sink.attempts > 12 {
			t.Errorf("1000 records of a second in %d pages", sink.attempts)
		}
		if got := sink.at[0].Sub(from); got > 2*time.Millisecond {
			t.Errorf("the first record was sent after %s", got)
		}
	})
}

// A restart continues after the cursor. If the cursor was not saved, records come twice, and none
// is left out.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	log := newMemory()
	log.fill(t, 10)
	sink := &fakeSink{seen: newSeen()}
	o := following(t, log, sink, dir)
	f := feed(t, o)
	eventually(t, "ten records", func() bool { return f.Status().Seq == 10 })
	shut(t, f)
	if !sink.closed {
		t.Error("the sink is open")
	}
	file := filepath.Join(dir, "siem.json")
	if want := `{"seq":10,"hash":"` + log.Head().Hash.String() + "\"}\n"; readFile(t, file) != want {
		t.Errorf("cursor %q, want %q", readFile(t, file), want)
	}
	log.fill(t, 5)
	f = feed(t, o)
	eventually(t, "fifteen records", func() bool { return f.Status().Seq == 15 })
	shut(t, f)
	sink.check(t, log)
	if sink.most() != 1 {
		t.Error("a record came twice")
	}

	// The daemon is killed after the sink took a page and before its cursor was saved.
	before := readFile(t, file)
	log.fill(t, 5)
	f = feed(t, o)
	eventually(t, "twenty records", func() bool { return f.Status().Seq == 20 })
	shut(t, f)
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	f = feed(t, o)
	eventually(t, "twenty records again", func() bool { return f.Status().Seq == 20 })
	shut(t, f)
	sink.check(t, log)
	if sink.count[16] != 2 || sink.count[15] != 1 {
		t.Errorf("record 15 came %d times and 16 %d times", sink.count[15], sink.count[16])
	}
}

// At the end of a daemon the remaining records are sent. For a dead sink it waits only for one
// attempt.
func TestLastFlush(t *testing.T) {
	dir, another := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		sink := &fakeSink{seen: newSeen()}
		f := feed(t, following(t, log, sink, dir))
		log.fill(t, 3000)
		shut(t, f)
		sink.check(t, log)

		dead := &fakeSink{seen: newSeen(), fail: func(int) error { return errors.New("dead") }}
		f = feed(t, following(t, log, dead, another))
		eventually(t, "a failure", func() bool { return f.Status().Error != "" })
		from := time.Now()
		shut(t, f)
		if took := time.Since(from); took > drain/2 {
			t.Errorf("a dead sink held the end up for %s", took)
		}
	})
}

func TestResume(t *testing.T) {
	ten := newMemory()
	ten.fill(t, 10)
	other := newMemory()
	other.add(t, &audit.Record{ID: "another log"})
	other.fill(t, 12)
	retired := newMemory()
	retired.lines, retired.head, retired.gone = ten.lines, ten.head, 7
	hash := func(m *memory, seq int) string { return Read(m.lines[seq-1]).Entry.Hash.String() }

	for _, c := range []struct {
		name   string
		log    *memory
		cursor string
		from   string
		want   uint64 // the first record sent, 0 for none
		note   string
	}{
		{"first run", ten, "", FromStart, 1, ""},
		{"first run from now", ten, "", FromNow, 0, ""},
		{"goes on", ten, `{"seq":6,"hash":"` + hash(ten, 6) + `"}`, FromNow, 7, ""},
		{"at the end", ten, `{"seq":10,"hash":"` + hash(ten, 10) + `"}`, FromNow, 0, ""},
		{"another log", other, `{"seq":6,"hash":"` + hash(ten, 6) + `"}`, FromNow, 1, "replaced or cut: record 6"},
		{"a shorter log", ten, `{"seq":12,"hash":"` + hash(other, 12) + `"}`, FromNow, 1, "replaced or cut: record 12"},
		{"no cursor", ten, `{"seq":`, FromNow, 1, "could not be read"},
		{"a huge file", ten, strings.Repeat(" ", maxCursor+1), FromNow, 1, "could not be read"},
		{"retired up to the cursor", retired, `{"seq":7,"hash":"` + hash(ten, 7) + `"}`, FromNow, 8, ""},
		{"retired behind the cursor", retired, `{"seq":5,"hash":"` + hash(ten, 5) + `"}`, FromNow, 8, "records 6 to 7 were gone"},
		{"retired, of another log", retired, `{"seq":7,"hash":"` + hash(other, 7) + `"}`, FromNow, 8, "records 1 to 7 were gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.cursor != "" {
				if err := os.WriteFile(filepath.Join(dir, "siem.json"), []byte(c.cursor), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			sink := &fakeSink{seen: newSeen()}
			o := following(t, c.log, sink, dir)
			o.From = c.from
			f := feed(t, o)
			end := c.log.Head().Seq
			eventually(t, "the end", func() bool { return f.Status().Seq == end })
			shut(t, f)
			first := uint64(0)
			for seq := end; seq > 0 && sink.count[seq] > 0; seq-- {
				first = seq
			}
			if first != c.want {
				t.Errorf("began at %d, want %d", first, c.want)
			}
			if note := f.Status().Note; !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
				t.Errorf("note %q, want %q", note, c.note)
			}
		})
	}
}

// With FromNow, records from before the first run are not sent, even if the first run sent nothing.
func TestFromNowIsKept(t *testing.T) {
	dir := t.TempDir()
	log := newMemory()
	log.fill(t, 5)
	sink := &fakeSink{seen: newSeen(), fail: func(attempt int) error {
		if attempt == 1 {
			return errors.New("dead")
		}
		return nil
	}}
	o := following(t, log, sink, dir)
	o.From = FromNow
	shut(t, feed(t, o))
	log.fill(t, 2)
	f := feed(t, o)
	eventually(t, "the rest", func() bool { return f.Status().Seq == 7 })
	shut(t, f)
	if len(sink.count) != 2 || sink.count[6] != 1 || sink.count[7] != 1 {
		t.Errorf("sent %v", sink.count)
	}
}

func TestFilter(t *testing.T) {
	log := newMemory()
	for i := range 1000 {
		log.add(t, exchange([]string{"allow", "deny", "allow", "allow"}[i%4]))
	}
	sink := &fakeSink{seen: newSeen()}
	o := following(t, log, sink, t.TempDir())
	o.Filter.Like.PolicyResult = "deny"
	f := feed(t, o)
	set := &Set{followers: []*Follower{f}}
	eventually(t, "the end", func() bool { return f.Status().Seq == 1000 })
	eventually(t, "the cursor to be kept", func() bool { return set.Behind(log.Head()) == 1000 })
	shut(t, f)
	if s := f.Status(); s.Sent != 250 || len(sink.count) != 250 || sink.count[2] != 1 {
		t.Errorf("sent %d, got %d", s.Sent, len(sink.count))
	}
}

// After a connection broke, exactly the records that may not have been read are sent again.
func TestRewind(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		var breaks error
		sink := &fakeSink{seen: newSeen(), trail: 10 * time.Second, fail: func(int) error {
			err := breaks
			breaks = nil
			return err
		}}
		f := feed(t, following(t, log, sink, dir))
		defer shut(t, f)
		tick := time.NewTicker(4 * time.Second)
		defer tick.Stop()
		for range 10 { // records 1 to 10, the last at 40 s
			<-tick.C
			log.fill(t, 1)
			synctest.Wait()
		}
		at := time.Now()
		for range 5 {
			<-tick.C
		}
		// The connection broke at 40 s; this is noticed at 60 s.
		breaks = &brokenError{at: at, err: errors.New("reset")}
		log.fill(t, 1)
		<-tick.C
		synctest.Wait()
		for seq, want := range map[uint64]int{7: 1, 8: 2, 9: 2, 10: 2, 11: 1} {
			if sink.count[seq] != want {
				t.Errorf("record %d came %d times, want %d", seq, sink.count[seq], want)
			}
		}
		if s := f.Status(); s.Seq != 11 || s.Error != "" {
			t.Errorf("status %+v", s)
		}
	})
}

// Records to be sent again are also sent again after a crash, and are not removed before.
func TestRewindIsKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		log.fill(t, 3)
		var breaks error
		sink := &fakeSink{seen: newSeen(), trail: 10 * time.Second, fail: func(int) error { return breaks }}
		f := feed(t, following(t, log, sink, dir))
		<-time.After(3 * time.Second)
		synctest.Wait()
		if c, err := loadCursor(f.path); err != nil || c.Seq != 3 {
			t.Fatalf("kept is %+v, %v", c, err)
		}
		breaks = &brokenError{at: time.Now(), err: errors.New("reset")}
		log.fill(t, 1)
		<-time.After(time.Second)
		synctest.Wait()
		set := &Set{followers: []*Follower{f}}
		if c, err := loadCursor(f.path); err != nil || c.Seq != 0 || set.Behind(log.Head()) != 0 {
			t.Errorf("kept is %+v, %v, and records go up to %d", c, err, set.Behind(log.Head()))
		}
		breaks = nil
		shut(t, f)
	})
}

// Unfinished cursors after a crash are removed, and nothing else. A cursor's name that belongs to
// no file does not block.
func TestCursorFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a[1]*")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"siem.json.part", "siem.json.bak"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := clearTemps(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "siem.json.bak" {
		t.Errorf("left are %v, %v", left, err)
	}
	pipe := filepath.Join(dir, "pipe.json")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCursor(pipe); !errors.Is(err, durable.ErrNoFile) {
		t.Errorf("a pipe: %v", err)
	}
}

// The records of a broken connection are sent again even if no record follows.
func TestRewindWhileIdle(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newMemory()
		log.fill(t, 3)
		sink := &fakeSink{seen: newSeen(), trail: 10 * time.Second, broken: make(chan struct{})}
		f := feed(t, following(t, log, sink, dir))
		defer shut(t, f)
		synctest.Wait()
		sink.breaks = &brokenError{at: time.Now(), err: errors.New("reset")}
		close(sink.broken)
		synctest.Wait()
		<-time.After(time.Minute)
		synctest.Wait()
		sink.check(t, log)
		if sink.most() != 2 || f.Status().Seq != 3 {
			t.Errorf("sent %v", sink.count)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "a", Type: "kafka"}, `unknown type "kafka"`},
		{Spec{Name: "../a", Type: TypeOCSF}, "cannot name a sink"},
		{Spec{Name: "a", Type: TypeOTLP, Endpoint: "ftp://x"}, "no URL"},
		{Spec{Name: "a", Type: TypeSyslog, Network: "udp"}, `unknown network "udp"`},
		{Spec{Name: "a", Type: TypeSyslog, Network: NetTLS, Address: "h:1", TLS: TLS{CA: ca}}, "holds no certificate"},
		{Spec{Name: "a", Type: TypeSyslog, Network: NetTLS, Address: "h:1", TLS: TLS{CA: "/nowhere"}}, "cannot read tls.ca"},
		{Spec{Name: "a", Type: TypeOTLP, Endpoint: "https://x", TLS: TLS{Cert: "c"}}, "go together"},
	} {
		good := Spec{Name: "good", Type: TypeOCSF, Path: filepath.Join(t.TempDir(), "f")}
		_, err := Open(t.Context(), options(t, newMemory(), good, c.spec))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.spec, err, c.want)
		}
	}
	if s, err := Open(t.Context(), Options{}); err != nil || len(s.Status()) != 0 || s.Close() != nil || s.Behind(audit.Head{Seq: 3}) != 3 {
		t.Error("a set of no sinks is not quiet")
	}
}
