package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/test/buildtest"
)

// taskWorld is a daemon and a runner as processes, with a task whose effects are about
// to run.
type taskWorld struct {
	t              *testing.T
	dir, socket    string
	daemon, runner *exec.Cmd
	id             string
	looks          int
	digests        map[string]string
	effects        map[string]string
	// digest is the digest of the last request.
	digest atomic.Value
}

const taskWorldConfig = `
ipc: {apps_may_operate: true}
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme}
approvals: {notify: {desktop: false}}
tasks:
  self_review: true
  effects: {late: ask}
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
    - {name: gate, role: lobster, tenant_id: acme}
`

const taskWorldSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

func newTaskWorld(t *testing.T) *taskWorld {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &taskWorld{t: t, dir: dir, socket: filepath.Join(dir, "run", "kernel.sock"), digests: make(map[string]string), effects: make(map[string]string)}
	for name, text := range map[string]string{"ocipd.yaml": taskWorldConfig, "out.txt": "made", "effects": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.startDaemon()
	w.startRunner()
	t.Cleanup(func() {
		w.kill(w.runner)
		w.kill(w.daemon)
		w.rowsAgree()
	})
	return w
}

// rowsAgree checks that the daemon's rows agree with its log, by the program and by a
// verifier with only the page.
func (w *taskWorld) rowsAgree() {
	if out, err := w.program("audit", "verify").CombinedOutput(); err != nil {
		w.t.Errorf("verify: %v, %s", err, out)
	}
	key, err := w.program("audit", "key", "show").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	state := filepath.Join(w.dir, "openclawos")
	out, err := exec.Command("python3", "../../docs/verify.py", strings.TrimSpace(string(key)), state, "--database", filepath.Join(state, "ocipd.db"), "--row-key", filepath.Join(state, "keys", "rows.json")).CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil {
		w.t.Errorf("verify.py: %v, %s", err, out)
	}
}

// program runs the program under its own name, as its own processes do.
func (w *taskWorld) program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0]) //nolint:noctx // tests kill it
	cmd.Args = append([]string{"ocipd", "--config", filepath.Join(w.dir, "ocipd.yaml"), "--socket", w.socket}, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+w.dir, "GORACE=atexit_sleep_ms=0", "TEST_SECRET=hush-hush")
	return cmd
}

func (w *taskWorld) startDaemon() { w.daemon = w.starts("\"ready\"", "serve") }
func (w *taskWorld) startRunner() { w.runner = w.starts("ready: ", "runner") }

func (w *taskWorld) starts(word string, args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := w.program(args...)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	var said []string
	for lines.Scan() {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), word) {
			go func() {
				for lines.Scan() {
				}
			}()
			return cmd
		}
	}
	w.t.Fatalf("%v does not start: %s", args, strings.Join(said, "\n"))
	return nil
}

func (w *taskWorld) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (w *taskWorld) call(token, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	path := w.socket
	if token == "" {
		path = config.OperatorPath(path)
	}
	c, err := client.Dial(ctx, path)
	if err != nil {
		return err
	}
	defer c.Close()
	if token != "" {
		if err := c.Call(ctx, "task.attach", map[string]any{"token": token}, nil); err != nil {
			return err
		}
	}
	return c.Call(ctx, method, params, result)
}

func (w *taskWorld) must(token, method string, params map[string]any) map[string]any {
	w.t.Helper()
	var result map[string]any
	if err := w.call(token, method, params, &result); err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
	return result
}

type object = map[string]any

// asks brings a task with effects to the point where a person is asked about them. It
// returns the orchestrator's token, and a function that moves the task.
func (w *taskWorld) asks(effects ...any) (lead string, move func(from, to task.Phase)) {
	w.t.Helper()
	token := func(actor, id string) string {
		p := object{"actor": actor}
		if id != "" {
			p["task_id"] = id
		}
		return w.must("", "task.grant", p)["token"].(string)
	}
	lead = token("lead", "")
	w.id = w.must(lead, "task.create", object{"title": "Export", "spec_markdown": taskWorldSpec, "workspace": w.dir, "initial_phase": "spec_review", "effects": effects})["task_id"].(string)
	move = func(from, to task.Phase) {
		w.must(lead, "task.transition", object{"task_id": w.id, "from_phase": from, "to_phase": to, "actor": "lead", "actor_role": "orchestrator", "reason": "next"})
	}
	attempt := ""
	review := func(actor, kind string) {
		p := object{"task_id": w.id, "review_type": kind, "reviewer_ref": actor, "verdict": "approved", "findings": []any{}}
		if attempt != "" {
			p["attempt_id"] = attempt
		}
		w.must(token(actor, w.id), "task.append_review", p)
	}
	review("checker", "spec")
	move(task.SpecReview, task.ExecutionReady)
	attempt = w.must(lead, "task.start_attempt", object{"task_id": w.id, "phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder"})["attempt_id"].(string)
	move(task.ExecutionReady, task.Executing)
	w.must(lead, "task.record_artifact", object{"task_id": w.id, "attempt_id": attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "lead"})
	w.must(lead, "task.finish_attempt", object{"task_id": w.id, "attempt_id": attempt, "outcome": "succeeded"})
	move(task.Executing, task.SpecGate)
	review("checker", "spec")
	move(task.SpecGate, task.QualityGate)
	review("critic", "quality")
	move(task.QualityGate, task.AwaitingApproval)
	return lead, move
}

// external brings a task with an effect without a command to the point where a person is asked.
func (w *taskWorld) external() (lead string) {
	w.t.Helper()
	w.digest.Store("")
	lead, _ = w.asks(object{"idempotency_key": "tell", "side_effect_kind": "deployment", "requested_action": "Run tell", "params": object{"to": "ops"}})
	return lead
}

// resume brings a task with effects to their execution.
func (w *taskWorld) resume(commands map[string]object) {
	w.t.Helper()
	var effects []any
	for key, command := range commands {
		effects = append(effects, object{"idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "Run " + key, "command": command})
	}
	lead, move := w.asks(effects...)
	for key := range commands {
		asked := w.must(lead, "task.request_approval", object{"task_id": w.id, "idempotency_key": key, "requested_action": "Run " + key, "side_effect_kind": "deployment"})
		shown := w.must("", "approval.get", object{"approvalId": asked["approval_id"]})
		w.must("", "task.resolve_approval", object{"task_id": w.id, "approval_id": asked["approval_id"], "resolution": "approved", "resolved_by": "me", "digest": shown["digest"]})
		w.digests[key], w.effects[key] = asked["request_digest"].(string), asked["effect_id"].(string)
	}
	move(task.AwaitingApproval, task.ReadyToResume)
}

func (w *taskWorld) run(key string) (map[string]any, error) {
	var result map[string]any
	err := w.call("", "task.run_effect", object{"task_id": w.id, "idempotency_key": key, "request_digest": w.digests[key]}, &result)
	return result, err
}

// runs runs an effect, once a runner is attached to the current daemon.
func (w *taskWorld) runs(key string) {
	w.t.Helper()
	for {
		_, err := w.run(key)
		if err == nil {
			return
		}
		if e, ok := errors.AsType[*api.Error](err); !ok || !strings.HasPrefix(e.Message, "no runner is attached") {
			w.t.Fatal(err)
		}
		w.soon("no runner attaches")
	}
}

// last is the last run of an effect.
func (w *taskWorld) last(key string) (r task.Run) {
	var v taskapi.View
	if err := w.call("", "task.get", object{"task_id": w.id}, &v); err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(v.Effects, func(e task.Effect) bool { return e.Key == key })
	if runs := v.Effects[i].Runs; len(runs) > 0 {
		r = runs[len(runs)-1]
	}
	return r
}

// ends waits for the end of an effect's last run.
func (w *taskWorld) ends(key string) task.Run {
	w.t.Helper()
	for {
		if r := w.last(key); r.State != task.EffectStarted {
			return r
		}
		w.soon("the run of " + key + " does not end")
	}
}

// soon waits a moment within a waiting loop; it fails after two minutes.
func (w *taskWorld) soon(what string) {
	w.t.Helper()
	if w.looks++; w.looks > 6000 {
		w.t.Fatal(what)
	}
	w.lets(20 * time.Millisecond)
}

// lets waits a while.
func (w *taskWorld) lets(while time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), while)
	defer cancel()
	<-ctx.Done()
}

// lines counts the times that an effect has happened.
func (w *taskWorld) lines(key string) (n int) {
	text, err := os.ReadFile(filepath.Join(w.dir, "effects"))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == key {
			n++
		}
	}
	return n
}

// appears waits until a file of a run's ledger exists, and returns its content.
func (w *taskWorld) appears(key, kind string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "openclawos", "runner", w.effects[key]+".1."+kind)
	if kind == "line" {
		path = filepath.Join(w.dir, "effects")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		text, err := os.ReadFile(path)
		if err == nil && (kind != "line" || w.lines(key) > 0) {
			return string(text)
		}
	}
	w.t.Fatalf("%s does not appear", path)
	return ""
}

// TestRunnerKilled really kills the daemon, the runner, the shim and the command, each at each
// step of a run, and counts the effects: never twice, and exactly once if the run counts as done.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	type victim = string
	const daemon, runner, shim, command = victim("daemon"), victim("runner"), victim("shim"), victim("command")
	uncertain := []string{task.EffectUncertain}
	cases := []struct {
		when    string
		victims []victim
		want    []string
	}{
		{"started", []victim{daemon}, []string{task.EffectDone}},
		{"started", []victim{runner}, []string{task.EffectDone}},
		{"started", []victim{daemon, runner}, []string{task.EffectDone}},
		{"claim", []victim{daemon}, []string{task.EffectDone}},
		{"claim", []victim{runner}, []string{task.EffectDone}},
		// Whether it had its process by then depends on the system.
		{"claim", []victim{shim}, []string{task.EffectDone, task.EffectUncertain}},
		{"claim", []victim{runner, shim}, []string{task.EffectDone, task.EffectUncertain}},
		{"pid", []victim{daemon}, []string{task.EffectDone}},
		{"pid", []victim{runner}, []string{task.EffectDone}},
		{"pid", []victim{shim}, uncertain},
		{"pid", []victim{daemon, runner, shim}, uncertain},
		{"pid", []victim{command}, []string{task.EffectFailed}},
		{"line", []victim{daemon}, []string{task.EffectDone}},
		{"line", []victim{runner}, []string{task.EffectDone}},
		{"line", []victim{shim}, uncertain},
		{"line", []victim{command}, []string{task.EffectFailed}},
		{"line", []victim{runner, command}, []string{task.EffectFailed}},
		{"result", []victim{daemon}, []string{task.EffectDone}},
		{"result", []victim{runner}, []string{task.EffectDone}},
		{"result", []victim{daemon, runner}, []string{task.EffectDone}},
	}
	w := newTaskWorld(t)
	commands := make(map[string]object)
	for i := range cases {
		key := "effect-" + strconv.Itoa(i)
		commands[key] = object{"argv": []any{"/bin/sh", "-c", "echo begun; sleep 0.2; echo " + key + " >> effects; sleep 0.2"}}
	}
	w.resume(commands)
	for i, tc := range cases {
		key := "effect-" + strconv.Itoa(i)
		t.Run(fmt.Sprintf("%s after %s", strings.Join(tc.victims, " and "), tc.when), func(t *testing.T) {
			w.t = t
			w.runs(key)
			if tc.when != "started" {
				w.appears(key, tc.when)
			}
			for _, v := range tc.victims {
				switch v {
				case daemon:
					w.kill(w.daemon)
				case runner:
					w.kill(w.runner)
				case shim:
					w.signals(w.appears(key, "claim"))
				case command:
					_, after, _ := strings.Cut(w.appears(key, "pid"), `"pid":`)
					pid, _, _ := strings.Cut(after, ",")
					w.signals(pid)
				}
			}
			if slices.Contains(tc.victims, daemon) {
				w.startDaemon()
			}
			if slices.Contains(tc.victims, runner) {
				w.startRunner()
			}
			r := w.ends(key)
			n := w.lines(key)
			if !slices.Contains(tc.want, r.State) || n > 1 || r.State == task.EffectDone && n != 1 {
				t.Fatalf("%d lines, and the run is %s: %s %s", n, r.State, r.Evidence, r.Receipt)
			}
			_, err := w.run(key)
			e, _ := errors.AsType[*api.Error](err)
			switch r.State {
			case task.EffectDone:
				if err != nil {
					t.Errorf("run again: %v", err)
				}
			case task.EffectUncertain:
				if e == nil || codeOf(err) != task.EffectUnknown {
					t.Errorf("run again: %v", err)
				}
				if !strings.Contains(r.Evidence, "left no result") || tc.when == "line" && !strings.Contains(r.Evidence, "begun") {
					t.Errorf("the evidence is %q", r.Evidence)
				}
				// A process that outlives its shim may still act, and prevents a settlement.
				w.settles(key)
				if n = w.lines(key); n > 1 {
					t.Errorf("%d lines", n)
				}
			default:
				if e == nil || e.Code != api.Conflict {
					t.Errorf("run again without an approval: %v", err)
				}
			}
			if again := w.lines(key); again != n {
				t.Errorf("%d lines, then %d", n, again)
			}
		})
	}
}

// codeOf is the tasks' code in a refusal.
func codeOf(err error) task.Code {
	e, _ := errors.AsType[*api.Error](err)
	if e == nil {
		return ""
	}
	var d taskapi.Details
	if text, err := json.Marshal(e.Details); err != nil || json.Unmarshal(text, &d) != nil {
		return ""
	}
	return d.Task.Code
}

// settles settles a run, once no process of it remains.
func (w *taskWorld) settles(key string) {
	w.t.Helper()
	for {
		err := w.call("", "task.settle_effect", object{"task_id": w.id, "effect_id": w.effects[key], "outcome": "failed", "note": "nobody had it"}, nil)
		switch {
		case err == nil:
			return
		case codeOf(err) != task.EffectInFlight:
			w.t.Fatal(err)
		}
		w.soon("a process of the run of " + key + " is still there")
	}
}

// signals kills a process with the id of a text's first line.
func (w *taskWorld) signals(text string) {
	pid, _, _ := strings.Cut(text, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil || n < 2 {
		w.t.Fatalf("%q is no process", pid)
	}
	_ = syscall.Kill(n, syscall.SIGKILL)
}

// TestRunner runs only what was approved: with its variables, its folder, its input, in its
// time; and its processes cannot operate the daemon.
func TestRunner(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	w := newTaskWorld(t)
	script := filepath.Join(w.dir, "deploy")
	buildtest.Executable(t, script, "#!/bin/sh\necho \"$0 $1\"\n")
	sh := func(text string, more object) object {
		c := object{"argv": []any{"sh", "-c", text}}
		maps.Copy(c, more)
		return c
	}
	w.resume(map[string]object{
		"env":     sh(`echo "$MINE $TEST_SECRET $HOME_GIVEN ${OCIPD_EFFECT%%_*} $(pwd)"; cat`, object{"env": object{"MINE": "a b"}, "env_from": []any{"TEST_SECRET"}, "stdin": "hello"}),
		"script":  {"argv": []any{"./deploy", "staging"}},
		"changed": {"argv": []any{"./deploy", "changed"}, "inputs": []any{"out.txt"}},
		"copied":  {"argv": []any{"sh", "-c", `echo over > out.txt; cat "$1" "$OCIPD_INPUTS/out.txt"`, "sh", "out.txt"}, "inputs": []any{"out.txt"}},
		"slow":    sh("trap '' TERM; sleep 60", object{"timeout_s": 1}),
		"hangs":   sh("sleep 60", nil),
		"absent":  sh("true", nil),
		"leaves":  sh("(setsid sh -c 'sleep 1; echo leaves >> effects' &) ; exit 3", nil),
		"much":    sh("head -c 300000 /dev/zero", nil),
		"operate": sh(`until test -e go; do sleep 0.1; done; "$OCIPD" --config ocipd.yaml --socket "$SOCKET" task list > operated 2>&1`, object{"env": object{"OCIPD": os.Args[0], "SOCKET": w.socket, asProgram: "1"}}),
	})
	ends := func(key string) task.Run {
		t.Helper()
		if _, err := w.run(key); err != nil {
			t.Fatal(err)
		}
		return w.ends(key)
	}
	want := func(key, state string, parts ...string) {
		t.Helper()
		r := ends(key)
		for _, part := range parts {
			if r.State != state || !strings.Contains(string(r.Receipt), part) {
				t.Errorf("%s is %s, without %q: %s", key, r.State, part, r.Receipt)
			}
		}
		if strings.Contains(string(r.Receipt), "hush") {
			t.Errorf("%s tells a secret: %s", key, r.Receipt)
		}
	}
	want("env", task.EffectDone, `a b [TEST_SECRET]  eff `+w.dir+`\nhello`, `"exit_code":0`)
	want("script", task.EffectDone, `/proc/self/fd/4 staging\n`)
	want("leaves", task.EffectFailed, `"exit_code":3`)
	want("much", task.EffectDone, `"bytes":300000`)
	// It gets copies of its inputs, which are removed with it.
	want("copied", task.EffectDone, `"text":"mademade"`)
	if left, err := filepath.Glob(filepath.Join(w.dir, "ocipd", "runner", "*.inputs")); err != nil || len(left) > 0 {
		t.Errorf("copies of inputs are left: %v %v", left, err)
	}
	// Its input is what an earlier effect has made of it: the start is refused, and uses nothing up.
	if _, err := w.run("changed"); codeOf(err) != task.GuardFailed || !strings.Contains(err.Error(), `the input "out.txt" is not what was recorded`) {
		t.Errorf("with a changed input: %v", err)
	}
	if _, err := w.run("hangs"); err != nil {
		t.Fatal(err)
	}
	w.appears("hangs", "pid")
	w.must("", "task.kill_effect", object{"task_id": w.id, "effect_id": w.effects["hangs"], "reason": "it hangs"})
	if r := w.ends("hangs"); r.State != task.EffectFailed || !strings.Contains(string(r.Receipt), `"killed":true`) {
		t.Errorf("killed: %s %s", r.State, r.Receipt)
	}
	// Nobody else is its runner, and nobody else's report about a run counts.
	if err := w.call("", "runner.report", object{"task_id": w.id, "effect_id": w.effects["hangs"], "run": 1, "event": "finished", "state": "done"}, nil); err == nil {
		t.Error("what has ended ends again")
	}
	// A remaining process would write after a second, during which another effect's run times out.
	want("slow", task.EffectFailed, `"timed_out":true`, `"signal":"SIGKILL"`)
	if n := w.lines("leaves"); n != 0 {
		t.Error("what a command left behind goes on")
	}
	if _, err := w.run("operate"); err != nil {
		t.Fatal(err)
	}
	w.appears("operate", "pid")
	w.kill(w.runner)
	// Without a runner nothing is recorded as started. The daemon learns from its
	// connection that the runner is gone.
	absent := func() bool {
		_, err := w.run("absent")
		return codeOf(err) == task.RunnerAbsent
	}
	for w.last("absent").Number == 0 && !absent() {
		w.soon("the daemon does not learn that its runner is gone")
	}
	w.kill(w.daemon)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ocipd.yaml", strings.Replace(taskWorldConfig, "apps_may_operate: true", "apps_may_operate: false", 1))
	w.startDaemon()
	write("go", "")
	w.appears("operate", "result")
	if said, err := os.ReadFile(filepath.Join(w.dir, "operated")); err != nil || !strings.Contains(string(said), "this process is actor effect eff_") {
		t.Errorf("a command operates: %s (%v)", said, err)
	}
}
