package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
)

// configure writes the configuration of a home.
func configure(t *testing.T, home, more string) {
	t.Helper()
	file := filepath.Join(home, ".config", "openclawos", "ocipd.yaml")
	text := `agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
` + more + "\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// surroundings is the environment of a home.
func surroundings(home string) *cli.Process {
	return &cli.Process{Env: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "OCIPD_APPROVALS_NOTIFY_DESKTOP=false"}, Version: "1.2.3"}
}

// livedIn makes a home in which a daemon has run.
func livedIn(t *testing.T) (home string) {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	home, err := os.MkdirTemp("", "doctor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	configure(t, home, "")
	p := surroundings(home)
	cfg, err := p.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	log, level := zap.NewNop(), zap.NewAtomicLevel()
	d, err := daemon.New(daemon.Options{Config: cfg, Getenv: p.Getenv, Version: p.Version, Log: log, Level: &level})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Start(t.Context()), d.Stop()); err != nil {
		t.Fatal(err)
	}
	return home
}

// examiner is an examiner for single checks.
func examiner(t *testing.T, home string, now func() time.Time) *Examiner {
	d := New(t.Context(), surroundings(home))
	d.now = now
	d.look()
	return d
}

// TestDoctorHearsTheDaemon compares a daemon's status with the doctor's findings.
func TestDoctorHearsTheDaemon(t *testing.T) {
	home := livedIn(t)
	now := time.Now()
	revision, _, _ := strings.Cut(strings.TrimPrefix(examiner(t, home, time.Now).policy()[0].Text, "the built-in policy compiles, "), " ")
	journal := "audit: {sinks: [{name: journal, type: journald}]}"
	for _, test := range []struct {
		name  string
		yaml  string
		live  func(*api.Status)
		ask   func(*Examiner) []Diagnosis
		want  Health
		text  string
		clock time.Duration
	}{
		{name: "another version", live: func(s *api.Status) { s.Version = "0.0.1" }, ask: (*Examiner).daemon, want: Warn, text: "version 0.0.1 runs"},
		{name: "closed store", live: func(s *api.Status) { s.Audit.Fault = "the database is gone" }, ask: (*Examiner).daemon, want: Fail, text: "nothing is recorded or let through: the database is gone"},
		{name: "elsewhere", live: func(s *api.Status) { s.Database = "/elsewhere.db" }, ask: (*Examiner).daemon, want: Warn, text: "keeps its state in /elsewhere.db"},
		{name: "silent app", live: func(s *api.Status) {
			s.Apps = []api.AppStatus{{ID: "@acme/alice", Health: "unhealthy", LastSeenAt: now.Add(-2 * time.Minute)}}
		}, ask: (*Examiner).daemon, want: Warn, text: "app @acme/alice was not heard of for 2m0s"},
		{name: "nobody", live: func(s *api.Status) { s.Agents = nil }, ask: (*Examiner).daemon, want: Warn, text: "no agent is configured"},
		{name: "well", live: func(*api.Status) {}, ask: (*Examiner).daemon, want: Pass, text: "answers on"},
		{name: "refused policy", live: func(s *api.Status) { s.Policy.RefusedAt, s.Policy.Refusal = now, "a.rego:3: no" }, ask: (*Examiner).policy, want: Fail, text: "a.rego:3: no"},
		{name: "edited policy", live: func(s *api.Status) { s.Policy.Revision = "sha256:0" }, ask: (*Examiner).policy, want: Warn, text: "the daemon decides by sha256:0"},
		{name: "policy", live: func(*api.Status) {}, ask: (*Examiner).policy, want: Pass, text: "compiles"},
		{name: "damaged log", live: func(s *api.Status) { s.Audit.Damaged = "audit record 30: it is missing" }, ask: (*Examiner).log, want: Fail, text: "the log is not what was written: audit record 30: it is missing"},
		{name: "mirror's problems", live: func(s *api.Status) { s.Audit.Mirror.Problems = []string{"it is gone"} }, ask: (*Examiner).mirror, want: Fail, text: "it is gone"},
		{name: "mirror behind", live: func(s *api.Status) { s.Audit.Mirrored = 1 }, ask: (*Examiner).mirror, want: Warn, text: "records behind"},
		{name: "mirror", live: func(*api.Status) {}, ask: (*Examiner).mirror, want: Pass, text: "up to record 9000"},
		{name: "index behind", live: func(s *api.Status) { s.Audit.Indexed = 1 }, ask: (*Examiner).index, want: Warn, text: "8999 records behind"},
		{name: "gates", live: func(s *api.Status) {
			s.Ungated = []api.UngatedProcess{{App: "@openclaw/gateway", Title: "OpenClaw", PID: 7, Since: time.Now()}}
		}, ask: (*Examiner).gates, want: Fail, text: "OpenClaw runs (process 7) and its plugin has not been connected"},
		{name: "index", live: func(*api.Status) {}, ask: (*Examiner).index, want: Pass, text: "up to record 9000"},
		{name: "keeps too little", yaml: "audit: {keep: 48h}", live: func(*api.Status) {}, ask: (*Examiner).keep, want: Warn, text: "records are removed for good after 2d"},
		{name: "keeps a year", yaml: "audit: {keep: 8760h}", live: func(*api.Status) {}, ask: (*Examiner).keep, want: Pass, text: "records are removed for good after 365d"},
		{name: "keeps all", live: func(*api.Status) {}, ask: (*Examiner).keep, want: Pass, text: "records are kept until"},
		{name: "no sink", live: func(*api.Status) {}, ask: (*Examiner).sinks, want: Pass, text: "none configured"},
		{name: "failing sink", yaml: journal, live: func(s *api.Status) {
			s.Sinks = []api.SinkStatus{{Name: "journal", Lag: 7, Error: "no", FailingSince: now.Add(-time.Hour)}}
		}, ask: (*Examiner).sinks, want: Warn, text: "journal takes nothing for 1h0m and is 7 records behind: no"},
		{name: "slow sink", yaml: journal, live: func(s *api.Status) {
			s.Sinks = []api.SinkStatus{{Name: "journal", Lag: 7000}}
		}, ask: (*Examiner).sinks, want: Warn, text: "journal is 7000 records behind"},
		{name: "no witness", live: func(*api.Status) {}, ask: (*Examiner).witnesses, want: Pass, text: "none: nobody else remembers"},
		{name: "dead witness", live: func(s *api.Status) {
			s.Witnesses = []api.WitnessStatus{{Name: "w.example", URL: "unix:/w", Error: "no such file", FailingSince: now.Add(-time.Hour)}, {Name: "v.example", Signed: 9}}
		}, ask: (*Examiner).witnesses, want: Warn, text: "w.example has signed nothing for 1h0m: no such file"},
		{name: "witness that refuses", live: func(s *api.Status) {
			s.Witnesses = []api.WitnessStatus{{Name: "w.example", URL: "unix:/w", Refused: true, Error: "the witness w.example was shown 9 other records of this log", FailingSince: now.Add(-time.Hour)}}
		}, ask: (*Examiner).witnesses, want: Fail, text: "sending is paused: the witness w.example was shown 9 other records"},
		{name: "witness that refused and was removed", live: func(s *api.Status) {
			s.Paused = []api.PausedScope{{Scope: api.PausedAll, Since: now.Add(-time.Hour), By: "witness:w.example"}}
		}, ask: (*Examiner).witnesses, want: Fail, text: "sending is paused since 1h0m: the witness w.example refused the log, and is not listed any more"},
		{name: "witness", live: func(s *api.Status) { s.Witnesses = []api.WitnessStatus{{Name: "w.example", Signed: 9}} }, ask: (*Examiner).witnesses, want: Pass, text: "listed: 1; each signs the log"},
		{name: "a moment behind", live: func(s *api.Status) { s.Audit.Time = now.Add(10 * time.Second) }, ask: (*Examiner).clock, want: Warn, text: "behind the last record"},
		{name: "clock jumped", live: func(s *api.Status) { s.Audit.Time = now.Add(10 * time.Hour) }, ask: (*Examiner).clock, want: Fail, text: "it jumped back"},
		{name: "clock jumped, nobody there", clock: -48 * time.Hour, ask: (*Examiner).clock, want: Fail, text: "it jumped back"},
	} {
		t.Run(test.name, func(t *testing.T) {
			configure(t, home, test.yaml)
			d := examiner(t, home, func() time.Time { return now.Add(test.clock) })
			if test.live != nil {
				d.live = &api.Status{
					Version: d.Version, PID: 7, StartedAt: now.Add(-time.Hour), Socket: d.places.socket, Database: d.places.database,
					Agents: []api.AgentStatus{{ID: "alice"}}, Audit: api.AuditStatus{Seq: 9000, Mirrored: 9000, Indexed: 9000, Time: now},
					Policy: api.PolicyStatus{Revision: revision},
				}
				test.live(d.live)
			}
			found := test.ask(d)
			if !slices.ContainsFunc(found, func(f Diagnosis) bool { return f.Health == test.want && strings.Contains(f.Text, test.text) }) || test.want == Pass && len(found) != 1 {
				t.Errorf("found %+v", found)
			}
			for _, f := range found {
				if f.Health != Pass && f.Advice == "" {
					t.Errorf("no advice: %+v", f)
				}
			}
		})
	}
}

func TestMeasureSync(t *testing.T) {
	dir := t.TempDir()
	times, err := measureSync(t.Context().Err, dir)
	if err != nil || len(times) != syncs || !slices.IsSorted(times) {
		t.Errorf("%d times, %v", len(times), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measureSync(ended.Err, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted one gives %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDiagnosisFits(t *testing.T) {
	long := "/home/carol/" + strings.Repeat("very-long/", 12) + "checkpoint.key"
	f := failed("a path\x1b that is %s\nand %s", strings.Repeat("long ", 40), long).advise("%s; do %s", chmod(0o600, &syscall.Stat_t{}, long+" x"), strings.Repeat("this ", 40))
	f.Check = "machine"
	drawn := f.draw(term.Screen{Width: 80, Terminal: true})
	if !strings.HasPrefix(drawn, "fail   machine  a path‹U+001B› that is long") || !strings.Contains(drawn, "\n                to do: chmod 600\n                       '"+long+"\n") {
		t.Errorf("got\n%s", drawn)
	}
	for line := range strings.Lines(drawn) {
		if term.Width(strings.TrimSuffix(line, "\n")) > 80 && !strings.Contains(line, long) {
			t.Errorf("too wide: %q", line)
		}
	}
	// A program gets unfolded lines.
	whole := f.draw(term.Screen{Width: 80})
	if lines := strings.Split(whole, "\n"); len(lines) != 4 || !strings.HasSuffix(lines[0], strings.Repeat("long ", 40)) ||
		strings.TrimSpace(lines[1]) != "and "+long || !strings.HasPrefix(lines[2], "                to do: chmod 600 '"+long+" x'; do this") {
		t.Errorf("got %q", lines)
	}
}
