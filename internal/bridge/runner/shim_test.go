package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/test/buildtest"
	"golang.org/x/sys/unix"
)

// TestMain lets the test's program also act as the shim and as the process that becomes a command.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "runner" {
		os.Exit(buildtest.Isolated(m).Run())
	}
	var err error
	switch os.Args[2] {
	case "shim":
		ended := make(chan os.Signal, 1)
		if len(os.Args) > 3 {
			ended <- syscall.SIGTERM
		}
		err = Shim(os.Stdin, ended, time.Now)
	case "exec":
		err = Exec(os.Args[4:], os.Environ())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

const secretValue = "s3cr3t-value-123456"

// shimmed runs a command in its own shim. It returns the result and the ledger.
func shimmed(t *testing.T, change func(o *shimOrder), args ...string) (result, *ledger.Run) {
	t.Helper()
	l, err := ledger.Open(t.TempDir(), []byte("the key of a test"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	o := &shimOrder{Env: map[string]string{"TOKEN": secretValue}}
	o.RunnerRef = taskapi.RunnerRef{TaskID: "tsk_1", EffectID: "eff_1", Run: 1}
	o.Workspace, o.Action = t.TempDir(), task.Action{Argv: []string{"sh", "-c", "true"}, EnvFrom: []string{"TOKEN"}}
	o.Bound = task.Bound{Exe: task.Program{Path: sh, SHA256: strings.TrimPrefix(digestOf(t, sh), "sha256:")}}
	if o.Bound.Folder, err = filepath.EvalSymlinks(o.Workspace); err != nil {
		t.Fatal(err)
	}
	change(o)
	run := l.Of(o.RunnerRef, o.StartedAt)
	own, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"runner", "shim"}, args...)...)
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(string(own)+string(text)), []*os.File{write}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Opening a pipe for reading would wait for a writer.
	timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the shim: %v %s", err, said.String())
	}
	var r result
	if known, err := run.Get(ledger.ResultFile, &r); err != nil || !known {
		t.Fatalf("no result: %v", err)
	}
	return r, run
}

func digestOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// An approved program or input must be a regular file and no link out of the workspace;
// otherwise nothing runs, and the shim does not block.
func TestLooksAtFilesAlone(t *testing.T) {
	pipe := func(t *testing.T, name string) {
		if err := unix.Mkfifo(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) func(*testing.T, string) {
		return func(t *testing.T, name string) {
			if err := os.Symlink(to, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		put  func(*testing.T, string)
	}{{"a pipe", pipe}, {"a link to a device", link("/dev/zero")}, {"a link to a file", link("/etc/passwd")}, {"a folder", func(t *testing.T, name string) {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}}} {
		for _, as := range []string{"input", "absolute input", "input elsewhere", "program"} {
			t.Run(tt.name+" as "+as, func(t *testing.T) {
				t.Parallel()
				elsewhere := t.TempDir()
				r, _ := shimmed(t, func(o *shimOrder) {
					name := filepath.Join(o.Workspace, "in")
					if as == "input elsewhere" {
						name = filepath.Join(elsewhere, "in")
					}
					tt.put(t, name)
					in := task.Input{URI: name, Digest: digestOf(t, "/etc/passwd")}
					switch as {
					case "program":
						o.Bound.Exe = task.Program{Path: name, SHA256: strings.TrimPrefix(in.Digest, "sha256:")}
						return
					case "input":
						in.URI = "in"
					}
					o.Bound.Inputs = []task.Input{in}
				})
				if r.State != task.EffectFailed || r.Receipt.ExitCode != nil || r.Receipt.Error == "" {
					t.Errorf("got %+v", r)
				}
			})
		}
	}
	// With unchanged files, the command runs.
	r, _ := shimmed(t, func(o *shimOrder) {
		name := filepath.Join(o.Workspace, "in")
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Bound.Inputs = []task.Input{{URI: "in", Digest: digestOf(t, name)}, {URI: "file://" + name, Digest: digestOf(t, name)}, {URI: "/etc/passwd", Digest: digestOf(t, "/etc/passwd")}}
	})
	if r.State != task.EffectDone {
		t.Errorf("got %+v", r)
	}
}

// A command reads its inputs as they were checked, whatever becomes of them meanwhile.
func TestInputsAreCopies(t *testing.T) {
	t.Parallel()
	elsewhere := put(t, "other", []byte("OTHER "), 0o600)
	var work string
	r, run := shimmed(t, func(o *shimOrder) {
		work = o.Workspace
		name := filepath.Join(o.Workspace, "sub", "in")
		if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("GOOD "), 0o700); err != nil {
			t.Fatal(err)
		}
		o.Action.Argv = []string{"sh", "-c", `echo EVIL > sub/in; echo EVIL > ` + elsewhere + `; cat "$1" "${2#--file=}" "$3" "$OCIPD_INPUTS/sub/in" sub/in; test -x "$1"`, "sh", "sub/in", "--file=sub/in", elsewhere}
		o.Bound.Inputs = []task.Input{
			{URI: "sub/in", Digest: digestOf(t, name), Argv: []task.Word{{Index: 4}, {Index: 5, From: 7}}}, {URI: "file://" + name, Digest: digestOf(t, name)},
			{URI: "file://" + elsewhere, Digest: digestOf(t, elsewhere), Argv: []task.Word{{Index: 6}}},
		}
	})
	if r.State != task.EffectDone || r.Receipt.Stdout.Text != "GOOD GOOD OTHER GOOD EVIL\n" {
		t.Errorf("got %+v", r)
	}
	if _, err := os.Stat(filepath.Join(run.Path(ledger.InputsDir), work, "sub", "in")); err != nil {
		t.Error(err)
	}
}

// The other files that a command names are those of the approval, and no new ones appear. A
// compensation finds the results of the command.
func TestWhatACommandNames(t *testing.T) {
	for name, tt := range map[string]struct {
		approved, there string
		compensation    bool
		want            string
	}{
		"as it was":                {"text", "text", false, ""},
		"another file":             {"text", "other", false, "is not what was approved"},
		"gone":                     {"text", "", false, "cannot be looked at"},
		"new":                      {"", "text", false, "was not there when it was approved"},
		"made by what it undoes":   {"", "text", true, ""},
		"nothing, then and by now": {"", "", false, ""},
	} {
		for _, word := range []string{"in", "--file=in", "./in"} {
			t.Run(name+" "+word, func(t *testing.T) {
				t.Parallel()
				r, _ := shimmed(t, func(o *shimOrder) {
					o.Action.Argv, o.Compensation = append(o.Action.Argv, "sh", word), tt.compensation
					name := filepath.Join(o.Bound.Folder, "in")
					if tt.there != "" {
						if err := os.WriteFile(name, []byte(tt.there), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					if tt.approved != "" {
						o.Bound.Named = []task.Named{{Path: name, Digest: task.Digest([]byte(tt.approved))}}
					}
				})
				if tt.want == "" && r.State != task.EffectDone || tt.want != "" && (r.State != task.EffectFailed || !strings.Contains(r.Receipt.Error, tt.want)) {
					t.Errorf("got %+v", r)
				}
			})
		}
	}
}

// An endless input is not copied.
func TestInputsHaveALimit(t *testing.T) {
	t.Parallel()
	r, _ := shimmed(t, func(o *shimOrder) {
		name := filepath.Join(o.Workspace, "large")
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, maxInput+1); err != nil {
			t.Fatal(err)
		}
		o.Bound.Inputs = []task.Input{{URI: "large", Digest: task.Digest(nil)}}
	})
	if r.State != task.EffectFailed || !strings.Contains(r.Receipt.Error, "has more than") {
		t.Errorf("got %+v", r)
	}
}

// A run can also be ended while the approved files are being checked.
func TestEndedWhileItLooks(t *testing.T) {
	t.Parallel()
	r, _ := shimmed(t, func(o *shimOrder) {
		name := filepath.Join(o.Workspace, "large")
		if err := os.WriteFile(name, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		// A sparse file takes long to hash and needs no disk.
		if err := os.Truncate(name, maxProgram); err != nil {
			t.Fatal(err)
		}
		o.Bound.Exe.Path = name
	}, "ended")
	if r.State != task.EffectFailed || !r.Receipt.Killed || !strings.Contains(r.Receipt.Error, "nothing was run") {
		t.Errorf("got %+v", r)
	}
}

// An effect cannot set the daemon's own variables for its command.
func TestMarkStands(t *testing.T) {
	t.Parallel()
	r, _ := shimmed(t, func(o *shimOrder) {
		o.Action.Argv[2] = `tr '\0' '\n' </proc/$$/environ | grep OCIPD_`
		o.Action.Env = map[string]string{"OCIPD_EFFECT": "zzz", "OCIPD_TASK": "zzz"}
		o.Env["OCIPD_EFFECT"] = "zzz"
	})
	if r.Receipt.Stdout.Text != "OCIPD_EFFECT=eff_1:1\nOCIPD_TASK=tsk_1\n" {
		t.Errorf("got %+v", r)
	}
	for _, c := range []*task.Action{{Argv: []string{"x"}, Env: map[string]string{"OCIPD_EFFECT": "zzz"}}, {Argv: []string{"x"}, EnvFrom: []string{"OCIPD_TOKEN"}}} {
		p := taskapi.CreateParams{Effects: []task.Planned{{Key: "k", Kind: "deployment", Command: c}}}
		if faults := members.Check(&p); !slices.ContainsFunc(faults, func(f api.FieldError) bool { return strings.Contains(f.Path, "command.env") }) {
			t.Errorf("%+v is taken: %v", c, faults)
		}
	}
}

// No part of a secret remains in a kept output, wherever it is cut. A long output keeps its
// beginning and its end.
func TestKept(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return "head -c " + strconv.Itoa(n) + " /dev/zero | tr '\\0' x; " }
	const tell = `printf 'begin %s ' "$TOKEN"; `
	for _, tt := range []struct {
		name, script, evidence string
		long                   bool
	}{
		{"short", tell + "printf over", "begin [TOKEN] over", false},
		{"in pieces", `printf 'begin s3cr'; sleep 0.01; printf '3t-value-'; sleep 0.01; printf '123456 over'`, "begin [TOKEN] over", false},
		{"at the end", tell + `printf over; printf "$TOKEN"`, "over[TOKEN]", false},
		{"at the cut", x(keptOutput-18) + `printf %s "$TOKEN"; echo over`, "xxx[TOKEN]over", false},
		{"its name at the cut", x(keptOutput-3) + `printf %s "$TOKEN"; echo over`, "xxx[TOKEN]over", true},
		{"long", tell + x(keptOutput+9*keptEnd) + `printf %s "$TOKEN"; ` + x(100) + "echo over", "[TOKEN]" + strings.Repeat("x", 100) + "over", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, run := shimmed(t, func(o *shimOrder) { o.Action.Argv[2] = tt.script })
			file, err := os.ReadFile(run.Path(ledger.StdoutFile))
			if err != nil {
				t.Fatal(err)
			}
			evidence := evidence(run, &ledger.Process{PID: 1, At: time.Now()})
			for what, text := range map[string]string{"receipt": r.Receipt.Stdout.Text, "file": string(file), "evidence": evidence} {
				if strings.Contains(text, "s3cr3t") || strings.Contains(text, "123456") {
					t.Errorf("the %s tells a secret: …%s", what, text[max(0, len(text)-200):])
				}
			}
			if !strings.Contains(evidence, "the end of what it wrote to stdout:\n") || !strings.HasSuffix(evidence, tt.evidence) || len(evidence) > shownTail+500 {
				t.Errorf("evidence: %s", evidence)
			}
			if !strings.HasPrefix(string(file), r.Receipt.Stdout.Text) || (len(file) > keptOutput) != tt.long || (len(r.Receipt.Stdout.Text) == keptOutput) != tt.long {
				t.Errorf("a receipt of %d bytes and a file of %d", len(r.Receipt.Stdout.Text), len(file))
			}
		})
	}
}

// A command begins in the approved folder, and not where its name leads now.
func TestBeginsInItsFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, folder string)
		want   string
	}{
		"as it was": {func(*testing.T, string) {}, ""},
		"a link": {func(t *testing.T, folder string) {
			if err := os.Symlink(t.TempDir(), folder); err != nil {
				t.Fatal(err)
			}
		}, "is not the one that was approved"},
		"gone": {func(*testing.T, string) {}, "no such file"},
		"a file": {func(t *testing.T, folder string) {
			if err := os.WriteFile(folder, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		"none": {nil, "says no folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var folder string
			r, _ := shimmed(t, func(o *shimOrder) {
				o.Action.Argv[2] = "pwd -P"
				if tc.change == nil {
					o.Bound.Folder = ""
					return
				}
				folder = filepath.Join(o.Bound.Folder, "sub")
				if tc.want == "" {
					if err := os.Mkdir(folder, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				tc.change(t, folder)
				o.Bound.Folder = folder
			})
			switch {
			case tc.want != "":
				if r.State != task.EffectFailed || !strings.Contains(r.Receipt.Error, tc.want) || r.Receipt.ExitCode != nil {
					t.Errorf("%+v", r)
				}
			case r.State != task.EffectDone || strings.TrimSpace(r.Receipt.Stdout.Text) != folder:
				t.Errorf("it began in %q, and not in %q: %+v", r.Receipt.Stdout.Text, folder, r)
			}
		})
	}
}

// A command ends even if a process that it left behind, such as another user's, cannot be killed.
func TestWhatIsLeftBehindAndStays(t *testing.T) {
	// Not in parallel, because it reaps any child of this process.
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &result{State: task.EffectFailed}
		watch(&ledger.Process{PID: cmd.Process.Pid}, r, newClock(nil), func(ctx context.Context) error {
			<-ctx.Done() // it stays
			return ctx.Err()
		})
		if r.State != task.EffectDone || !strings.Contains(r.Receipt.Error, "could not be ended") {
			t.Errorf("it ended as %+v", r)
		}
	})
}

// The run ends without waiting for an unrelated process that has its output open.
func TestOutputThatOthersHaveOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	go func() {
		var out *os.File
		for end := time.Now().Add(5 * time.Second); out == nil && time.Now().Before(end); {
			pid, _ := os.ReadFile(filepath.Join(dir, "pid"))
			out, _ = os.OpenFile("/proc/"+strings.TrimSpace(string(pid))+"/fd/1", os.O_WRONLY, 0)
		}
		if out == nil {
			return // which the command's end shows
		}
		t.Cleanup(func() { _ = out.Close() })
		_ = os.WriteFile(filepath.Join(dir, "held"), nil, 0o600)
	}()
	r, _ := shimmed(t, func(o *shimOrder) {
		o.Action.TimeoutS = 5
		o.Action.Argv[2] = "echo said; echo $$ > " + dir + "/part; mv " + dir + "/part " + dir + "/pid; until [ -e " + dir + "/held ]; do :; done"
	})
	if r.State != task.EffectDone || r.Receipt.Stdout.Text != "said\n" || !strings.Contains(r.Receipt.Error, "another process has it open") {
		t.Errorf("it ended as %+v", r)
	}
}

// After a restoration, the daemon gives the number of a run a second time. The result of the first
// is not reported for the second, whose outcome is a person's to settle.
func TestNumberOfAnEarlierRun(t *testing.T) {
	start := time.Now()
	_, run := shimmed(t, func(o *shimOrder) { o.StartedAt = start })
	of := func(number int, started time.Time) *ledger.Run {
		ref := run.RunnerRef
		ref.Run = number
		return ledger.At(run.Ledger, []byte("the key of a test")).Of(ref, started)
	}
	for _, tc := range []struct {
		started time.Time
		other   bool
	}{{start.UTC(), false}, {start.Add(time.Second), true}, {start.Add(-time.Second), true}} {
		report, err := another(of(1, tc.started))
		if err != nil || (report != nil) != tc.other || report != nil && report.State != task.EffectUncertain {
			t.Errorf("started %s after: %+v, %v", tc.started.Sub(start), report, err)
		}
		// Without its claim, its result is still no other's.
		var r result
		if known, err := of(1, tc.started).Get(ledger.ResultFile, &r); known == tc.other || errors.Is(err, ledger.ErrUnsealed) != tc.other {
			t.Errorf("started %s after: the result counts: %v, %v", tc.started.Sub(start), known, err)
		}
	}
	if report, err := another(of(2, start)); report != nil || err != nil {
		t.Errorf("a new number: %+v, %v", report, err)
	}
	// An earlier version has claimed it.
	if err := os.WriteFile(run.Path(ledger.ClaimFile), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := another(of(1, start.Add(time.Minute))); report == nil || err != nil {
		t.Errorf("claimed by an earlier version: %+v, %v", report, err)
	}
}

// A shim without an order, or with a part of one, runs nothing and says so under the run's seal. What
// anybody else says in its place does not count.
func TestNoOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"", `{"task_id":"tsk_1","comm`} {
		l, err := ledger.Open(t.TempDir(), []byte("the key of a test"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		run := l.Of(taskapi.RunnerRef{TaskID: "tsk_1", EffectID: "eff_1", Run: 1}, time.Now())
		own, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "runner", "shim")
		cmd.Stdin, cmd.Env = strings.NewReader(string(own)+order), append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		name, err := peer.NameOf(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err == nil) != (order == "") {
			t.Errorf("with %q: %v", order, err)
		}
		var w ledger.Withdrawal
		if found, err := run.Get(ledger.WithdrawnFile, &w); !found || err != nil || w.Process != name {
			t.Errorf("with %q, %s withdraws: %v %+v %v", order, name, found, w, err)
		}
		if h, err := run.Holder(); h.There || err != nil {
			t.Errorf("with %q, the run is claimed: %v", order, err)
		}
	}
}
