package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// TestMain lets the test's own binary be the tracer, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"-trace", "-filtered"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(buildtest.Isolated(m).Run())
}

// mayTrace skips the test where a process cannot be traced, as in a sandbox
// without ptrace(2).
func mayTrace(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	orders, events, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	defer events.Close()
	cmd := exec.CommandContext(t.Context(), self, "-trace", t.TempDir(), "--", "/bin/true")
	cmd.ExtraFiles = []*os.File{orders, events}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("cannot trace a process here: %v: %s", err, out)
	}
}

// TestFaults injects a few faults, one of each kind: a write and an fsync
// of a decision's commit fail or are the daemon's last, and so do those of the
// checkpoint that brings the log into the database. `make fault` does all.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	mayTrace(t)
	// Sockets have short addresses, so their directory's must be short too.
	base, err := os.MkdirTemp("", "ocf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	binary, err := buildtest.Program("../..", "./cmd/ocipd", t.TempDir())
	if err != nil {
		t.Skip(err)
	}
	r := &rig{binary: binary, base: base}
	if err := r.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	limit := make(chan struct{}, 3)
	for _, job := range []string{
		"serve wal write EIO 3", "serve wal write ENOSPC 4", "serve wal write torn 5", "serve wal write KILL 12", "serve wal write KILL_torn 9",
		"serve wal sync EIO 1", "serve wal sync ENOSPC 2", "serve wal sync KILL 2", "serve mirror write ENOSPC 1", "serve mirror write EIO 1",
		"checkpoint db write EIO 2", "checkpoint db write ENOSPC 3", "checkpoint db write KILL 4", "checkpoint db sync EIO 1",
		"effect wal write KILL 9", "effect wal write ENOSPC 12", "effect wal sync EIO 2",
		"start wal sync KILL 1", "start wal write EIO 2", "restart wal write KILL_torn 1", "recover wal sync KILL 1", "stop wal sync EIO 1",
	} {
		j, err := parseJob(job)
		if err != nil {
			t.Fatal(err)
		}
		if j.String() != job {
			t.Fatalf("%q is read as %q", job, j)
		}
		running.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			o, err := r.run(t.Context(), j)
			switch {
			case err != nil:
				t.Errorf("%s: %v", job, err)
			case !o.hit:
				t.Errorf("%s: the fault was not injected", job)
			case len(o.problems) > 0:
				t.Errorf("%s: %s", job, strings.Join(o.problems, "\n"))
			}
		})
	}
	running.Wait()
}

// TestJudge gives the judge logs that disagree: each must be found.
func TestJudge(t *testing.T) {
	on := map[string]string{"a": "3"}
	tests := []struct {
		name     string
		attempt  attempt
		received []receipt
		want     string
	}{
		{"all is well", attempt{content: "x", dispatchID: "a", acknowledged: true}, []receipt{{"a", "x", "3", false}}, ""},
		{"twice under its id", attempt{content: "x", dispatchID: "a", acknowledged: true}, []receipt{{"a", "x", "3", false}, {"a", "x", "3", true}}, ""},
		{"out without a record", attempt{content: "x"}, []receipt{{"b", "x", "3", false}}, "OUT WITHOUT A RECORD"},
		{"another's record", attempt{content: "x", dispatchID: "a", acknowledged: true}, []receipt{{"a", "x", "4", false}}, "names record 4"},
		{"twice under two ids", attempt{content: "x", dispatchID: "a", acknowledged: true}, []receipt{{"a", "x", "3", false}, {"b", "x", "3", false}}, "arrived as a and as b"},
		{"acknowledged and lost", attempt{content: "x", dispatchID: "a", acknowledged: true}, nil, "did not arrive"},
		{"acknowledged and not on record", attempt{content: "x", dispatchID: "c", acknowledged: true}, nil, "is not on record"},
		{"refused and out", attempt{content: "x", unrecorded: true}, []receipt{{"a", "x", "3", false}}, "although it could not be recorded"},
		{"refused and out after the start", attempt{content: "x", unrecorded: true}, []receipt{{"a", "x", "3", true}}, ""},
		{"another answer", attempt{content: "x", other: "TIMEOUT"}, nil, "answered with TIMEOUT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := &outcome{}
			o.compare([]*attempt{&tt.attempt}, tt.received, on)
			if got := strings.Join(o.problems, "; "); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestReport: the table fits a terminal, and names the first failure.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	s := &series{out: &out, rig: &rig{}}
	for i, fault := range []fault{faultEIO, faultKillTorn} {
		s.outcomes = append(s.outcomes, &outcome{job: job{phaseCheckpoint, aim{fileMirror, "write", fault, 17}}, hit: true, acknowledged: 9999, refused: 9999, received: 9999, latched: true})
		if i == 1 {
			s.outcomes[i].wrong("it burns")
		}
	}
	if !s.report(time.Now()) {
		t.Error("no failure is reported")
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if want := fmt.Sprintf("-only %q", "checkpoint mirror write KILL_torn 17"); !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "FAIL 1") {
		t.Errorf("want %s in\n%s", want, out.String())
	}
}

// TestSpread: the first and the last call are always struck.
func TestSpread(t *testing.T) {
	for _, count := range []int{1, 2, 5, 7, 23, 24, 25, 400} {
		for _, all := range []bool{false, true} {
			s := &series{all: all}
			list := s.spread(phaseServe, fileWAL, count)
			if list[0] != 1 || list[len(list)-1] != count || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) || all && len(list) != count {
				t.Errorf("of %d: %v", count, list)
			}
		}
	}
}
