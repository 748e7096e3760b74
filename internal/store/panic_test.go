package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// childPlace names the step of a commit at which [childPanics] panics. With childAlone nobody else
// commits, so that the caller leads and could recover the panic.
const (
	childPlace = "OCIPD_STORE_TEST_PANIC"
	childAlone = "OCIPD_STORE_TEST_ALONE"
)

// panics are the places of a commit at which other packages' code runs. Kept says that the change
// is durable by then.
var panics = map[string]struct {
	kept bool
	in   func(*Store, *Change)
}{
	"guard": {in: func(_ *Store, c *Change) {
		c.Add(Rows{Guard: func(*db.Writer) (refusal, err error) { panic("bug") }, Put: func(*db.Writer) error { return nil }})
	}},
	"part":          {in: func(_ *Store, c *Change) { c.Add(Rows{Put: func(*db.Writer) error { panic("bug") }}) }},
	"copies before": {in: func(s *Store, _ *Change) { s.health.alive = func() error { panic("bug") } }},
	"copies after": {kept: true, in: func(s *Store, _ *Change) {
		asked := false
		s.health.alive = func() error {
			if asked {
				panic("bug")
			}
			asked = true
			return nil
		}
	}},
	"callback": {kept: true, in: func(_ *Store, c *Change) { c.OnDurable(func(Receipt) { panic("bug") }) }},
}

// childPanics commits, and then panics in a commit whose caller recovers, as the server
// of a socket does.
func childPanics(dir string) error {
	o := options(dir)
	o.Log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(os.Stderr), zap.InfoLevel))
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if _, err := s.Commit(noted("before")); err != nil {
		return err
	}
	recovered := make(chan error)
	try := func(c *Change) {
		defer func() { recovered <- fmt.Errorf("it lived on: %v", recover()) }()
		_, err := s.Commit(c)
		recovered <- fmt.Errorf("it was answered: %w", err)
	}
	bad := noted("bad")
	if os.Getenv(childAlone) != "" {
		panics[os.Getenv(childPlace)].in(s, bad)
		go try(bad)
		return <-recovered
	}
	entered, gate := make(chan struct{}), make(chan struct{})
	held := noted("held")
	held.Durable = func(Receipt) { close(entered); <-gate }
	go func() { _, _ = s.Commit(held) }()
	<-entered
	panics[os.Getenv(childPlace)].in(s, bad)
	go try(bad)
	go try(noted("stranger"))
	if err := waitFor(func() bool { return s.waitingChanges() == 2 }); err != nil {
		return err
	}
	close(gate)
	return <-recovered
}

// TestPanicEndsTheProcess panics at each place of a commit where other packages' code runs. The
// process ends, although the caller recovers; the store is latched, the log of the service has the
// cause, and each change is there whole or not at all.
func TestPanicEndsTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for place, at := range panics {
		t.Run(place, func(t *testing.T) {
			want := []string{"before"}
			if at.kept {
				want = []string{"bad", "before"}
			}
			wantPanic(t, want, childPlace+"="+place, childAlone+"=1")
		})
		t.Run(place+" under load", func(t *testing.T) {
			want := []string{"before", "held"}
			if at.kept {
				want = []string{"bad", "before", "held", "stranger"}
			}
			wantPanic(t, want, childPlace+"="+place)
		})
	}
}

// wantPanic runs [childPanics] to its end and expects these records afterwards.
func wantPanic(t *testing.T, want []string, env ...string) {
	t.Helper()
	dir := t.TempDir()
	var said strings.Builder
	cmd := child(t, "panic", dir)
	cmd.Env, cmd.Stderr = append(cmd.Env, env...), &said
	out, err := cmd.Output()
	exit, ok := errors.AsType[*osexec.ExitError](err)
	if !ok || exit.ExitCode() != 2 || len(out) > 0 {
		t.Fatalf("the child ends with %v: %s%s", err, out, said.String())
	}
	for _, want := range []string{`"a commit panicked: the process ends","panic":"bug","stack":"`, "panic_test.go", "\npanic: a commit panicked: bug"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log lacks %q: %s", want, said.String())
		}
	}
	o := options(dir)
	if mark, err := os.ReadFile(o.Path + ".latched"); err != nil || !strings.HasPrefix(string(mark), "a commit panicked: bug\n") {
		t.Errorf("the store is marked %q, %v", mark, err)
	}
	core, logs := observer.New(zap.WarnLevel)
	o.Log = zap.New(core)
	s := open(t, o)
	defer shut(t, s)
	if logs.FilterMessageSnippet("verifying every record").Len() != 1 {
		t.Error("it went on unchecked")
	}
	var got []string
	err = s.EachLine(t.Context(), 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		got = append(got, e.ID)
		return err
	})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v: %v", got, want, err)
	}
	fill(t, s, 3)
	wantSound(t, s)
}
