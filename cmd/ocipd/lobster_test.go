package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/examples"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/bridge/lobster"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"go.yaml.in/yaml/v3"
)

// lobsterWord makes the test binary a Lobster, and lobsterVariable names a real one
// instead: make e2e runs these tests with two versions of it.
const (
	lobsterWord     = "lobster"
	lobsterVariable = "TEST_LOBSTER"
)

// The kinds of the scripted Lobster: how real ones treat a token, before and since version 2026.9.11.
const (
	keepsTokens = "keeps"
	takesTokens = "takes"
)

type (
	lobsterStep struct{ ID, Run, Approval, Stdin, When string }
	lobsterFile struct{ Steps []lobsterStep }
	// lobsterState is the state of a paused workflow. It has no digest of the file, which
	// is read again.
	lobsterState struct {
		File    string
		Args    map[string]string
		At      int
		Gate    string
		Results map[string]any
	}
)

// scriptedLobster is a Lobster with the features that the protocol's workflows need: run
// and resume in the tool mode, steps in login shells, gates, and unsigned tokens.
func scriptedLobster(kind string, argv []string) {
	flag := func(name string) string {
		if i := slices.Index(argv, name); i >= 0 {
			return argv[i+1]
		}
		return ""
	}
	s := &lobsterState{File: flag("--file"), Results: map[string]any{}}
	path := ""
	if argv[0] == "resume" {
		var token struct {
			StateKey string `json:"stateKey"`
		}
		text, _ := base64.RawURLEncoding.DecodeString(flag("--token"))
		_ = json.Unmarshal(text, &token)
		path = filepath.Join(os.Getenv("LOBSTER_STATE_DIR"), token.StateKey+".json")
		text, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(text, s) != nil {
			lobsterSays(map[string]any{"ok": false, "error": map[string]any{"message": "Workflow resume state not found"}})
		}
		if flag("--approve") == "no" {
			_ = os.Remove(path)
			lobsterSays(map[string]any{"ok": true, "status": "cancelled", "output": []any{}})
		}
		if kind == takesTokens {
			_ = os.Remove(path)
		}
		s.Results[s.Gate] = map[string]any{"approved": true}
	} else if err := json.Unmarshal([]byte(flag("--args-json")), &s.Args); err != nil {
		panic(err)
	}
	var f lobsterFile
	if text, err := os.ReadFile(s.File); err != nil || yaml.Unmarshal(text, &f) != nil {
		lobsterSays(map[string]any{"ok": false, "error": map[string]any{"message": "the workflow cannot be read"}})
	}
	for i := s.At; i < len(f.Steps); i++ {
		s.step(i, &f.Steps[i])
	}
	if path != "" {
		_ = os.Remove(path)
	}
	lobsterSays(map[string]any{"ok": true, "status": "ok", "output": []any{}})
}

func (s *lobsterState) step(i int, step *lobsterStep) {
	switch {
	case step.When != "" && !slices.ContainsFunc(strings.Split(step.When, "||"), s.holds):
		s.Results[step.ID] = map[string]any{"skipped": true}
	case step.Run != "":
		cmd := exec.Command("/bin/sh", "-lc", step.Run) //nolint:noctx // it ends with the test
		cmd.Env = os.Environ()
		for name, value := range s.Args {
			cmd.Env = append(cmd.Env, "LOBSTER_ARG_"+strings.ToUpper(name)+"="+value)
		}
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil {
			lobsterSays(map[string]any{"ok": false, "error": map[string]any{"message": fmt.Sprintf("workflow command failed (%v): %s", err, said.String())}})
		}
		var answer any
		_ = json.Unmarshal(out.Bytes(), &answer)
		s.Results[step.ID] = map[string]any{"json": answer}
	case step.Approval != "":
		s.At, s.Gate = i+1, step.ID
		key := fmt.Sprintf("workflow_resume_%d", os.Getpid())
		text, err := json.Marshal(s)
		dir := os.Getenv("LOBSTER_STATE_DIR")
		if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, key+".json"), text, 0o600)); err != nil {
			panic(err)
		}
		asks, _ := s.value(step.Stdin + ".requiresApproval").(map[string]any)
		request := map[string]any{"type": "approval_request", "resumeToken": tokenOf(key)}
		maps.Copy(request, asks)
		lobsterSays(map[string]any{"ok": true, "status": "needs_approval", "requiresApproval": request})
	}
}

func (s *lobsterState) holds(condition string) bool {
	if condition == "true" {
		return true
	}
	left, right, equals := strings.Cut(strings.TrimSpace(condition), " == ")
	if equals {
		return fmt.Sprintf("%q", s.value(left)) == right
	}
	return s.value(left) == true
}

func (s *lobsterState) value(ref string) any {
	var at any = s.Results
	for name := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(ref), "$"), ".") {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	return at
}

func lobsterSays(envelope map[string]any) {
	envelope["protocolVersion"] = 1
	text, err := json.Marshal(envelope)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(text)
	os.Exit(0)
}

// tokenOf is a token in Lobster's form, which anybody can make.
func tokenOf(state string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"protocolVersion":1,"v":1,"kind":"workflow-file","stateKey":%q}`, state))
}

// lobsterWorld is a daemon and a runner, and a Lobster that can be held at points of its workflow.
type lobsterWorld struct {
	*taskWorld
	program, file, token string
	lead                 string
	move                 func(from, to task.Phase)
}

// lobsterBin is the program that steps run. If held, it waits before and after each.
const lobsterBin = `#!/bin/sh
case $2 in request-approval) step=request ;; *) step=effect ;; esac
held() { : > "%[1]s/at.$1"; while [ -e "%[1]s/hold.$1" ]; do sleep 0.02; done; }
held $step.before
%[2]s=1 "%[3]s" "$@"
code=$?
held $step.after
exit $code
`

// newLobsterWorld makes steps wait for an effect for some seconds.
func newLobsterWorld(t *testing.T, kind string, wait int) *lobsterWorld {
	t.Helper()
	w := &lobsterWorld{taskWorld: newTaskWorld(t)}
	w.program, w.file = filepath.Join(w.dir, "lobster"), filepath.Join(w.dir, "ocip.lobster")
	text, err := workflowOf()
	if err != nil {
		t.Fatal(err)
	}
	w.write("ocip.lobster", strings.Replace(text, "effect run --json", fmt.Sprintf("effect run --wait %d --json", wait), 1), 0o600)
	w.write("lobster", fmt.Sprintf("#!/bin/sh\nexec %q %s %s \"$@\"\n", os.Args[0], lobsterWord, kind), 0o700)
	w.write("bin", fmt.Sprintf(lobsterBin, w.dir, asProgram, os.Args[0]), 0o700)
	if installed := os.Getenv(lobsterVariable); installed != "" {
		w.program = installed
	}
	return w
}

// workflowOf is the shipped workflow.
func workflowOf() (string, error) {
	f, err := examples.Workflows().Open("lobster/ocip.lobster")
	if err != nil {
		return "", err
	}
	defer f.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(f)
	return text.String(), err
}

func (w *lobsterWorld) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
}

// plan makes a task with an effect, up to the point where a person is asked, and a
// Lobster's token for it.
func (w *lobsterWorld) plan(key string) {
	w.t.Helper()
	command := object{"argv": []any{"/bin/sh", "-c", fmt.Sprintf("echo %s >>effects; : >at.running; while [ -e hold.running ]; do sleep 0.02; done", key)}}
	w.lead, w.move = w.asks(object{"idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "Run " + key, "command": command})
	w.token = filepath.Join(w.dir, "gate.token")
	w.write("gate.token", w.must("", "task.grant", object{"actor": "gate", "task_id": w.id})["token"].(string), 0o600)
	for _, name := range []string{"request.before", "request.after", "effect.before", "effect.after", "running"} {
		_ = os.Remove(filepath.Join(w.dir, "at."+name))
	}
}

func (w *lobsterWorld) env() []string {
	return append(os.Environ(), "XDG_STATE_HOME="+w.dir, "OCIPD_BIN="+filepath.Join(w.dir, "bin"), "LOBSTER_STATE_DIR="+filepath.Join(w.dir, "lobster-state"), "HOME="+w.dir, "GORACE=atexit_sleep_ms=0")
}

// lobsterRunning is a run of the workflow.
type lobsterRunning struct {
	*exec.Cmd
	out, said bytes.Buffer
}

func (w *lobsterWorld) start(key string) *lobsterRunning {
	w.t.Helper()
	r := &lobsterRunning{Cmd: w.taskWorld.program("lobster", "run", w.file, "--json", "--task", w.id, "--key", key, "--token-file", w.token, "--program", w.program)}
	r.Env, r.Stdout, r.Stderr = w.env(), &r.out, &r.said
	if err := r.Start(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// ended waits for the end of a run, and reads its output.
func (w *lobsterWorld) ended(r *lobsterRunning) (result lobster.Result) {
	w.t.Helper()
	err := r.Wait()
	if decodeErr := json.Unmarshal(r.out.Bytes(), &result); decodeErr != nil {
		w.t.Fatalf("%v: %s%s", err, r.out.String(), r.said.String())
	}
	if (err == nil) != result.Done() {
		w.t.Errorf("it says %+v and ends with %v", result, err)
	}
	return result
}

// view is the task's view.
func (w *lobsterWorld) view() (v taskapi.View) {
	w.t.Helper()
	if err := w.call("", "task.get", object{"task_id": w.id}, &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// asked waits for the workflow's request.
func (w *lobsterWorld) asked() (approval string) {
	w.t.Helper()
	for {
		v := w.view()
		if n := len(v.Approvals); n > 0 {
			return v.Approvals[n-1].ID
		}
		w.soon("nobody is asked")
	}
}

func (w *lobsterWorld) there(name string) {
	w.t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(w.dir, name)); err == nil {
			return
		}
		w.soon(name + " is not reached")
	}
}

// resolve has a person decide.
func (w *lobsterWorld) resolve(approval, resolution string) {
	w.t.Helper()
	p := object{"task_id": w.id, "approval_id": approval, "resolution": resolution, "resolved_by": "me"}
	if resolution == "approved" {
		p["digest"] = w.must("", "approval.get", object{"approvalId": approval})["digest"]
	}
	w.must("", "task.resolve_approval", p)
}

// lobsterPoints are the points of a workflow at which something is killed.
func lobsterPoints() []string {
	return []string{"request.before", "request.after", "asked", "approved", "effect.before", "running", "effect.after"}
}

// at brings a run to a point, where it is held.
func (w *lobsterWorld) at(key, point string) *lobsterRunning {
	w.t.Helper()
	w.write("hold."+point, "", 0o600)
	r := w.start(key)
	if strings.HasPrefix(point, "request.") {
		w.there("at." + point)
		return r
	}
	approval := w.asked()
	if point == "asked" {
		return r
	}
	w.resolve(approval, "approved")
	if point == "approved" {
		return r
	}
	w.move(task.AwaitingApproval, task.ReadyToResume)
	w.there("at." + point)
	return r
}

// goesOn has people do the remaining work, and runs the workflow again after any other end,
// until the effect is done.
func (w *lobsterWorld) goesOn(key string, r *lobsterRunning) {
	w.t.Helper()
	for range 4 {
		over := make(chan struct{})
		go func() {
			_ = r.Wait()
			close(over)
		}()
		for {
			v := w.view()
			n := len(v.Approvals)
			switch {
			case n == 0:
			case v.Approvals[n-1].Status == task.ApprovalPending:
				w.resolve(v.Approvals[n-1].ID, "approved")
			case v.Phase == task.AwaitingApproval:
				w.move(task.AwaitingApproval, task.ReadyToResume)
			}
			select {
			case <-over:
			default:
				w.soon("it does not end: " + key)
				continue
			}
			break
		}
		if r.ProcessState.Success() {
			return
		}
		r = w.start(key)
	}
	w.t.Errorf("it is not done by running it again: %s%s", r.out.String(), r.said.String())
}

// TestLobsterKilled really kills Lobster, the daemon, the runner and the caller, each at
// each point of a workflow. Running it again with the same key is the only recovery, and
// its effect happens once.
func TestLobsterKilled(t *testing.T) {
	for _, victim := range []string{"lobster", "daemon", "runner", "caller"} {
		for _, kind := range []string{keepsTokens, takesTokens} {
			t.Run(victim+" "+kind, func(t *testing.T) {
				t.Parallel()
				points := lobsterPoints()
				switch {
				case os.Getenv(lobsterVariable) == "":
					// A real Lobster is killed everywhere; here it is one point each.
					points = map[string][]string{"lobster": {"effect.before"}, "daemon": {"effect.before"}, "runner": {"running"}, "caller": {"asked"}}[victim]
				case kind == keepsTokens:
					t.Skip("a real Lobster is of its own kind")
				}
				w := newLobsterWorld(t, kind, 15)
				for i, point := range points {
					if victim == "lobster" && (point == "asked" || point == "approved") {
						continue // there is none
					}
					key := fmt.Sprintf("%s%d", victim, i)
					w.plan(key)
					r := w.at(key, point)
					switch victim {
					case "lobster":
						w.killLobster(r.Process.Pid)
					case "daemon":
						w.kill(w.daemon)
						w.startDaemon()
					case "runner":
						w.kill(w.runner)
						w.startRunner()
					case "caller":
						_ = r.Process.Kill()
					}
					_ = os.Remove(filepath.Join(w.dir, "hold."+point))
					w.goesOn(key, r)
					// And once more, which does nothing.
					if again := w.ended(w.start(key)); !again.Done() || again.Run != 1 {
						t.Errorf("%s at %s, then again: %+v", victim, point, again)
					}
					if n := w.lines(key); n != 1 {
						t.Errorf("%s at %s: it was done %d times", victim, point, n)
					}
				}
			})
		}
	}
}

// killLobster kills the bridge's process, and leaves that process's children.
func (w *lobsterWorld) killLobster(bridge int) {
	w.t.Helper()
	for _, pid := range peer.Descendants(bridge) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.Fields(rest)[1] == fmt.Sprint(bridge) {
			if p, err := os.FindProcess(pid); err == nil && p.Kill() == nil {
				return
			}
		}
	}
	w.t.Fatal("there is no Lobster")
}

// A workflow follows people's decisions: without an approval it does nothing.
func TestLobsterDecisions(t *testing.T) {
	t.Parallel()
	w := newLobsterWorld(t, takesTokens, 0)
	for _, tt := range []struct{ resolution, why string }{
		{"rejected", "the approval is rejected"},
		{"request_changes", "the approval is request_changes"},
	} {
		w.plan(tt.resolution)
		r := w.start(tt.resolution)
		w.resolve(w.asked(), tt.resolution)
		if got := w.ended(r); got.State != task.EffectPlanned || got.Why != tt.why {
			t.Errorf("%s: %+v", tt.resolution, got)
		}
		// A repeated run gets the same result.
		if got := w.ended(w.start(tt.resolution)); got.Why != tt.why {
			t.Errorf("%s, again: %+v", tt.resolution, got)
		}
		if n := w.lines(tt.resolution); n != 0 {
			t.Errorf("%s was done %d times", tt.resolution, n)
		}
	}
	// If a result is sent back, its approval is void, even if it was given.
	w.plan("gone")
	r := w.start("gone")
	w.resolve(w.asked(), "approved")
	w.must("", "task.transition", object{"task_id": w.id, "from_phase": "awaiting_approval", "to_phase": "failed", "actor": "me", "actor_role": "operator", "reason": "no more"})
	if got := w.ended(r); got.Done() || !strings.Contains(got.Why, "the grant has ended") || w.lines("gone") != 0 {
		t.Errorf("after the end of the task: %+v", got)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"lobster", "run", w.file, "--task", w.id, "--key", "x"}, "as the operator"},
		{[]string{"lobster", "run", "nothing.lobster", "--task", w.id, "--key", "x", "--token-file", w.token}, "cannot read the workflow"},
		{[]string{"lobster", "run", w.file, "--task", w.id, "--key", "x", "--token-file", w.token, "--program", "no-such-lobster"}, "cannot find Lobster"},
	} {
		if out, err := w.taskWorld.program(tt.args...).CombinedOutput(); err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v: %v, %s", tt.args, err, out)
		}
	}
}

// Lobster is no security boundary: forging a token or a state, editing the file, or
// resuming twice gets no more done than a person has approved.
func TestLobsterIsNoBoundary(t *testing.T) {
	t.Parallel()
	w := newLobsterWorld(t, keepsTokens, 0)
	raw := func(args ...string) (envelope struct {
		OK       bool   `json:"ok"`
		Status   string `json:"status"`
		Requires struct {
			Token string `json:"resumeToken"`
		} `json:"requiresApproval"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}) {
		t.Helper()
		token, err := os.ReadFile(w.token)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), w.program, args...)
		cmd.Env = lobster.Environment(w.env(), string(token), w.socket, "")
		out, _ := cmd.Output()
		if err := json.Unmarshal(out, &envelope); err != nil {
			t.Fatalf("%v: %s", args, out)
		}
		return envelope
	}
	run := func(file, key string) string {
		return raw("run", "--mode", "tool", "--file", file, "--args-json", fmt.Sprintf(`{"task_id":%q,"key":%q}`, w.id, key)).Requires.Token
	}
	none := func(key, what string) {
		t.Helper()
		if n := w.lines(key); n != 0 {
			t.Errorf("%s: %s was done %d times", what, key, n)
		}
	}

	w.plan("forged")
	token := run(w.file, "forged")
	if got := raw("resume", "--token", tokenOf("workflow_resume_none"), "--approve", "yes"); got.OK {
		t.Errorf("a forged token: %+v", got)
	}
	// Nobody has approved, whatever the gate is told.
	if got := raw("resume", "--token", token, "--approve", "yes"); got.OK || !strings.Contains(got.Error.Message, "PHASE_MISMATCH") {
		t.Errorf("a gate that was opened by hand: %+v", got)
	}
	none("forged", "a gate that was opened by hand")
	// Lobster's own actor cannot approve its request, in any phase.
	for _, resolution := range []string{"approved"} {
		v := w.view()
		err := w.call(strings.TrimSpace(w.must("", "task.grant", object{"actor": "gate", "task_id": w.id})["token"].(string)), "task.resolve_approval",
			object{"task_id": w.id, "approval_id": v.Approvals[0].ID, "resolution": resolution, "resolved_by": "me", "digest": w.must("", "approval.get", object{"approvalId": v.Approvals[0].ID})["digest"]}, nil)
		if err == nil || !strings.Contains(err.Error(), "person") {
			t.Errorf("its own approval: %v", err)
		}
	}

	// A file that was edited while paused, or beforehand, has no gate.
	w.plan("edited")
	edited := filepath.Join(w.dir, "edited.lobster")
	shipped, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(shipped)
	w.write("edited.lobster", text, 0o600)
	token = run(edited, "edited")
	w.write("edited.lobster", strings.ReplaceAll(strings.ReplaceAll(text, "approval: required", "run: 'true'"), `when: $gate.approved || $request.json.status == "approved"`, "when: true"), 0o600)
	if got := raw("resume", "--token", token, "--approve", "yes"); got.OK {
		t.Errorf("a file without a gate: %+v", got)
	}
	cmd := w.taskWorld.program("lobster", "run", edited, "--json", "--task", w.id, "--key", "edited", "--token-file", w.token, "--program", w.program)
	cmd.Env = w.env()
	if out, err := cmd.Output(); err == nil || !strings.Contains(string(out), "PHASE_MISMATCH") {
		t.Errorf("a file without a gate: %v, %s", err, out)
	}
	none("edited", "a file without a gate")
	// A workflow that claims something else is checked, and one that ends well without
	// having done anything is no success.
	w.write("edited.lobster", "steps:\n  - {id: request, run: 'true'}\n", 0o600)
	r := w.taskWorld.program("lobster", "run", edited, "--json", "--task", w.id, "--key", "edited", "--token-file", w.token, "--program", w.program)
	r.Env = w.env()
	if out, err := r.Output(); err == nil || !strings.Contains(string(out), "the approval is pending") {
		t.Errorf("a workflow that does nothing: %v, %s", err, out)
	}

	// A gate of the workflow's own is not opened by an approval of something else.
	w.plan("other")
	w.write("edited.lobster", text+"  - {id: more, approval: required, stdin: $request.json}\n  - {id: wild, run: 'echo wild >>"+filepath.Join(w.dir, "effects")+"'}\n", 0o600)
	old := w.file
	w.file = edited
	running := w.start("other")
	w.resolve(w.asked(), "approved")
	w.move(task.AwaitingApproval, task.ReadyToResume)
	if got := w.ended(running); got.State != task.EffectDone || got.Done() || !strings.Contains(got.Why, "a gate more") {
		t.Errorf("a second gate: %+v", got)
	}
	none("wild", "a second gate")
	w.file = old

	// Two resumes with one token do it once.
	w.plan("twice")
	w.write("ocip.lobster", strings.Replace(text, "--wait 0", "--wait 9", 1), 0o600)
	token = run(w.file, "twice")
	approval := w.asked()
	w.resolve(approval, "approved")
	w.move(task.AwaitingApproval, task.ReadyToResume)
	both := make(chan bool, 2)
	for range 2 {
		go func() { both <- raw("resume", "--token", token, "--approve", "yes").OK }()
	}
	first, second := <-both, <-both
	if n := w.lines("twice"); n != 1 {
		t.Errorf("two resumes (%v, %v) have done it %d times", first, second, n)
	}
	if got := w.ended(w.start("twice")); !got.Done() || got.Run != 1 {
		t.Errorf("after two resumes: %+v", got)
	}
}

// A step may name a command that is not in the task's plan, and a key keeps its command.
func TestLobsterOwnCommand(t *testing.T) {
	t.Parallel()
	w := newLobsterWorld(t, takesTokens, 0)
	w.plan("planned")
	text, err := workflowOf()
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(text, `--key "$LOBSTER_ARG_KEY"'`, `--key "$LOBSTER_ARG_KEY" --kind notification --action Tell -- /bin/sh -c "echo told >>effects"'`, 1)
	w.write("ocip.lobster", own, 0o600)
	// The planned effect would wait too.
	w.must(w.lead, "task.cancel_effect", object{"task_id": w.id, "effect_id": w.view().Effects[0].ID})
	r := w.start("tell")
	approval := w.asked()
	if shown := w.must("", "approval.get", object{"approvalId": approval}); !strings.Contains(fmt.Sprint(shown["content"]), "echo told") {
		t.Errorf("a person is shown %v", shown)
	}
	w.resolve(approval, "approved")
	w.move(task.AwaitingApproval, task.ReadyToResume)
	if got := w.ended(r); !got.Done() || w.lines("told") != 1 {
		t.Errorf("its own command: %+v, done %d times", got, w.lines("told"))
	}
	w.write("ocip.lobster", strings.Replace(own, "echo told", "echo lied", 1), 0o600)
	if got := w.ended(w.start("tell")); !strings.Contains(got.Why, "IDEMPOTENCY_CONFLICT") || w.lines("lied") != 0 {
		t.Errorf("the same key with another command: %+v", got)
	}
}

// An effect goes through all possible states, each time by running the workflow again with
// the same key.
func TestLobsterLifeOfAnEffect(t *testing.T) {
	t.Parallel()
	w := newLobsterWorld(t, takesTokens, 0)
	const key = "deploy-staging"
	w.lead, w.move = w.asks(object{"idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "Deploy", "command": object{"argv": []any{"/bin/sh", "-c", "echo " + key + " >>effects; while [ -e hold.running ]; do sleep 0.02; done; exit 1"}}})
	w.token = filepath.Join(w.dir, "gate.token")
	w.write("gate.token", w.must("", "task.grant", object{"actor": "gate", "task_id": w.id})["token"].(string), 0o600)
	stands := func(step, state string, runs int, statuses ...string) {
		t.Helper()
		v := w.view()
		var got []string
		for _, a := range v.Approvals {
			if a.Used {
				a.Status = "used"
			}
			got = append(got, a.Status)
		}
		if e := &v.Effects[0]; e.State != state || len(e.Runs) != runs || !slices.Equal(got, statuses) {
			t.Errorf("%s: %s after %d runs, approvals %v", step, e.State, len(e.Runs), got)
		}
	}
	// decided waits for a number of requests, and has a person approve the last one.
	decided := func(n int) {
		t.Helper()
		for len(w.view().Approvals) < n {
			w.soon("nobody is asked again")
		}
		w.resolve(w.view().Approvals[n-1].ID, "approved")
		w.move(task.AwaitingApproval, task.ReadyToResume)
	}
	stands("the spec names it", task.EffectPlanned, 0)
	r := w.start(key)
	w.asked()
	stands("Lobster requests", task.EffectPlanned, 0, "pending")
	decided(1)
	if got := w.ended(r); got.State != task.EffectFailed || !strings.Contains(got.Why, "it failed") {
		t.Errorf("the command exits with 1: %+v", got)
	}
	stands("the command exits with 1", task.EffectFailed, 1, "used")
	// An approval permits one start.
	if got := w.ended(w.start(key)); got.State != task.EffectFailed || w.lines(key) != 1 {
		t.Errorf("run again without another approval: %+v, done %d times", got, w.lines(key))
	}
	w.write("hold.running", "", 0o600)
	w.move(task.ReadyToResume, task.AwaitingApproval)
	r = w.start(key)
	decided(2)
	for w.lines(key) < 2 {
		w.soon("the second run does not begin")
	}
	stands("the same once more", task.EffectStarted, 2, "used", "used")
	effect := w.view().Effects[0].ID
	claim, err := os.ReadFile(filepath.Join(w.dir, "openclawos", "runner", effect+".2.claim"))
	if err != nil {
		t.Fatal(err)
	}
	w.signals(string(claim))
	if got := w.ended(r); got.State != task.EffectUncertain || !strings.Contains(got.Why, "nobody knows") {
		t.Errorf("the shim left a pid and no result: %+v", got)
	}
	stands("the shim left a pid and no result", task.EffectUncertain, 2, "used", "used")
	// A process that outlives its shim prevents a settlement.
	_ = os.Remove(filepath.Join(w.dir, "hold.running"))
	for {
		err := w.call("", "task.settle_effect", object{"task_id": w.id, "effect_id": effect, "outcome": "done", "note": "it is deployed"}, nil)
		if err == nil {
			break
		}
		if codeOf(err) != task.EffectInFlight {
			t.Fatal(err)
		}
		w.soon("it cannot be settled")
	}
	stands("a person looks and settles it as done", task.EffectDone, 2, "used", "used")
	if got := w.ended(w.start(key)); !got.Done() || got.Run != 2 || w.lines(key) != 2 {
		t.Errorf("the workflow runs again with the same key: %+v, done %d times", got, w.lines(key))
	}
	stands("the workflow runs again with the same key", task.EffectDone, 2, "used", "used")
}
