package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/orchestrator"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// quickTeam has immediate retries, and a short lease.
const quickTeam = "  self_review: true\n  retry: {base: 50ms, factor: 2}\n  lease: 3s\n  run: {executor: builder, escalation: expert, spec_reviewer: checker, quality_reviewer: critic}\n"

// task makes a task with effects, whose commands each add a line to a file.
func (m *mcpTrial) task(effects ...string) string {
	m.t.Helper()
	p := args{"title": "Export", "spec_markdown": agentSpec, "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_draft", "tenant_id": "acme"}
	var list []any
	for _, key := range effects {
		list = append(list, args{"idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "Do " + key, "command": args{"argv": []any{"/bin/sh", "-c", "echo " + key + " >>effects"}}})
	}
	if list != nil {
		p["effects"] = list
	}
	var made taskapi.Created
	m.operator("task.create", p, &made)
	return made.TaskID
}

// run runs tasks with the lead's token, and returns the events and the success.
func (m *mcpTrial) run(more ...string) (events []orchestrator.Event, good bool) {
	m.t.Helper()
	cmd := m.program(append([]string{"task", "run", "--json", "--token-file", m.grant("lead", nil)}, more...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var e orchestrator.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.What == "" || e.Time.IsZero() {
			m.t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		events = append(events, e)
	}
	if said.Len() > 0 {
		m.t.Logf("stderr: %s", said.String())
	}
	if m.t.Failed() {
		m.t.Logf("events:\n%s", happened(events))
	}
	return events, err == nil
}

// runner is a running ocipd runner.
func (m *mcpTrial) runner() *exec.Cmd {
	m.t.Helper()
	cmd := m.program("runner")
	// Its child processes have this name and no variable that makes them the program.
	cmd.Args[0] = "ocipd"
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "ready: ") {
			go func() {
				for lines.Scan() {
				}
			}()
			return cmd
		}
	}
	m.t.Fatal("the runner does not start")
	return nil
}

// pause waits a moment.
func (m *mcpTrial) pause() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 50*time.Millisecond)
	defer cancel()
	if <-ctx.Done(); m.t.Context().Err() != nil {
		m.t.Fatal("the test is over")
	}
}

// done counts the times that an effect has happened.
func (m *mcpTrial) done(key string) int {
	text, err := os.ReadFile(filepath.Join(m.dir, "work", "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return strings.Count(string(text), key+"\n")
}

// happened formats events as lines.
func happened(events []orchestrator.Event) string {
	var b strings.Builder
	for i := range events {
		fmt.Fprintln(&b, events[i].What, events[i].Phase, events[i].Actor, events[i].Text)
	}
	return b.String()
}

func tries(v *taskapi.View) string {
	var list []string
	for i := range v.Attempts {
		list = append(list, strings.TrimSuffix(v.Attempts[i].Actor+" "+v.Attempts[i].Status+" "+v.Attempts[i].Failure, " "))
	}
	return strings.Join(list, ", ")
}

// Scripted agents take tasks through rework, retries, an escalation and the circuit.
func TestTaskRun(t *testing.T) {
	tests := []struct {
		name                             string
		builder, expert, checker, critic []string
		phase                            task.Phase
		attempts, why                    string
	}{
		{name: "at once", phase: task.Completed, attempts: "builder succeeded"},
		{name: "rework", critic: []string{"changes quotes are lost", "approve"}, phase: task.Completed, attempts: "builder succeeded, builder succeeded"},
		{name: "rework of what is not as the spec", checker: []string{"approve", "changes no endpoint"}, phase: task.Completed, attempts: "builder succeeded, builder succeeded"},
		{name: "retry", builder: []string{"crash", "make"}, phase: task.Completed, attempts: "builder failed crashed, builder succeeded"},
		{name: "escalation", builder: []string{"crash", "crash"}, phase: task.Completed, attempts: "builder failed crashed, builder failed crashed, expert succeeded"},
		{name: "circuit", builder: []string{"crash", "crash"}, expert: []string{"crash"}, phase: task.CircuitOpen,
			attempts: "builder failed crashed, builder failed crashed, expert failed crashed", why: "circuit close"},
		{name: "rework until none is left", critic: []string{"changes a", "changes b", "changes c", "changes d"}, phase: task.CircuitOpen,
			attempts: "builder succeeded, builder succeeded, builder succeeded, builder succeeded", why: "circuit close"},
		{name: "a failure between reworks", builder: []string{"make", "make", "crash", "make"}, critic: []string{"changes a", "changes b"}, phase: task.Completed,
			attempts: "builder succeeded, builder succeeded, builder failed crashed, builder succeeded"},
		{name: "not retried", builder: []string{"refuse"}, phase: task.Executing, attempts: "builder failed refused", why: "attempt 1 is failed (refused)"},
		{name: "a spec that is wanting", checker: []string{"changes say what"}, phase: task.SpecDraft, why: "found wanting"},
		{name: "no verdict, then one", checker: []string{"crash", "approve"}, phase: task.Completed, attempts: "builder succeeded"},
		{name: "no verdict", checker: []string{"crash", "make"}, phase: task.SpecReview, why: "gave no verdict"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newAgentTrial(t, quickTeam)
			for actor, plan := range map[string][]string{"builder": tt.builder, "expert": tt.expert, "checker": tt.checker, "critic": tt.critic} {
				m.plan(actor, plan...)
			}
			id := m.task()
			events, good := m.run(id)
			v := m.view(id)
			last := events[len(events)-1]
			if v.Phase != tt.phase || tries(&v) != tt.attempts || good != (tt.phase == task.Completed) || last.What != orchestrator.Stopped || !strings.Contains(last.Text, tt.why) {
				t.Errorf("in %s after %s:\n%s", v.Phase, tries(&v), happened(events))
			}
		})
	}
}

// A task that cannot run is refused, and an incomplete one does not continue.
func TestTaskRunSpecIsIncomplete(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, quickTeam)
	var made taskapi.Created
	m.operator("task.create", args{"title": "Export", "spec_markdown": "## Goal\nA file.", "workspace": m.dir, "initial_phase": "spec_draft", "tenant_id": "acme"}, &made)
	events, good := m.run(made.TaskID)
	if last := events[len(events)-1]; good || !strings.Contains(last.Text, "not complete") {
		t.Errorf("events:\n%s", happened(events))
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"task", "run"}, "name them, or say --ready"},
		{[]string{"task", "run", "--ready"}, "as the operator"},
		{[]string{"task", "run", "--ready", "--token-file", m.grant("critic", nil)}, "by an orchestrator"},
		{[]string{"task", "run", "--ready", "--jobs", "0"}, "0 tasks at once"},
	} {
		if out, err := m.program(tt.args...).CombinedOutput(); err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v: %v, %s", tt.args, err, out)
		}
	}
}

// People decide about effects, and approved ones happen once.
func TestTaskRunEffects(t *testing.T) {
	tests := []struct {
		name      string
		decisions []string
		phase     task.Phase
		attempts  int
		done      int
	}{
		{"approved", []string{"approve", "approve"}, task.Completed, 1, 1},
		{"rejected", []string{"approve", "deny"}, task.Failed, 1, 0},
		{"changes, then approved", []string{"request_changes", "approve", "approve"}, task.Completed, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newAgentTrial(t, quickTeam)
			id := m.task("deploy", "notify")
			ended := make(chan bool, 1)
			go func() {
				_, good := m.run(id)
				ended <- good
			}()
			for _, decision := range tt.decisions {
				if shown := m.decide(decision); shown.Kind != api.ApprovalOfEffect {
					t.Errorf("a person was shown %+v", shown)
				}
				// The other requests are made again after the rework.
				for decision == api.DecideChanges && len(m.view(id).Attempts) < 2 {
					m.pause()
				}
			}
			if tt.phase == task.Completed {
				// It waits for a runner too.
				m.runner()
			}
			if good := <-ended; good != (tt.phase == task.Completed) {
				t.Errorf("it was good: %v", good)
			}
			v := m.view(id)
			if v.Phase != tt.phase || len(v.Attempts) != tt.attempts || m.done("deploy") != tt.done || m.done("notify") != tt.done {
				t.Errorf("in %s after %d attempts, done %d and %d times", v.Phase, len(v.Attempts), m.done("deploy"), m.done("notify"))
			}
		})
	}
}

// Reviewers need a person's grant: grants that an orchestrator issued could belong to the executor.
func TestTaskRunReviewersAreOthers(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, strings.Replace(quickTeam, "self_review: true", "self_review: false", 1))
	// The author of the spec is a different actor too.
	spec := filepath.Join(m.dir, "spec.md")
	if err := os.WriteFile(spec, []byte("---\ntitle: Export\nworkspace: "+filepath.Join(m.dir, "work")+"\n---\n"+agentSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := m.program("task", "create", "--json", "-f", spec, "--token-file", m.grant("lead", nil)).CombinedOutput()
	var made taskapi.Created
	if err := errors.Join(err, json.Unmarshal(out, &made)); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	id := made.TaskID
	events, good := m.run(id)
	if last := events[len(events)-1]; good || !strings.Contains(last.Text, "gave it its grant") {
		t.Errorf("ends with %+v", last)
	}
	m.grant("checker", nil)
	m.grant("critic", nil)
	if events, good = m.run(id, "--tokens", filepath.Join(m.dir, "tokens")); !good {
		t.Errorf("events:\n%s", happened(events))
	}
}

// All ready tasks are worked on, several at once.
func TestTaskRunReady(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, quickTeam)
	ids := []string{m.task(), m.task(), m.task()}
	if events, good := m.run("--ready", "--jobs", "2"); !good {
		t.Errorf("events:\n%s", happened(events))
	}
	for _, id := range ids {
		if v := m.view(id); v.Phase != task.Completed {
			t.Errorf("%s is in %s", id, v.Phase)
		}
	}
	if events, good := m.run("--ready"); !good || len(events) > 0 {
		t.Errorf("nothing is ready, and:\n%s", happened(events))
	}
}

// If a loop is killed at any point, another one continues, and effects happen once.
func TestTaskRunIsKilled(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, quickTeam)
	m.runner()
	m.plan("critic", "changes quotes are lost")
	id := m.task("deploy")
	token := m.grant("lead", nil)
	events := 0
	for round := range 60 {
		cmd := m.program("task", "run", "--json", "--token-file", token, id)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		killed := false
		seen := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e orchestrator.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if e.What == orchestrator.Waits && strings.Contains(e.Text, "word about") {
				m.decide("approve")
			}
			// Each round ends at another event, and those that wait for a lease continue.
			if seen++; e.What != orchestrator.Waits && seen > 1+round%4 && round < 40 {
				killed = true
				_ = cmd.Process.Kill()
				break
			}
		}
		events += seen
		if err := cmd.Wait(); err == nil {
			break
		} else if v := m.view(id); v.Phase == task.CircuitOpen && !strings.Contains(tries(&v), "crashed") {
			// As many attempts were lost with their loops as a task has: a person lets it continue.
			m.operator("task.close_circuit", args{"task_id": id, "to_phase": task.ExecutionReady, "reason": "Its loops were killed."}, nil)
		} else if !killed {
			t.Fatalf("round %d: %v, in %s after %s", round, err, v.Phase, tries(&v))
		}
	}
	v := m.view(id)
	if v.Phase != task.Completed || m.done("deploy") != 1 {
		t.Errorf("in %s after %d events and %s, done %d times", v.Phase, events, tries(&v), m.done("deploy"))
	}
}

// An interrupted loop ends its agents.
func TestTaskRunIsInterrupted(t *testing.T) {
	t.Parallel()
	m := newAgentTrial(t, quickTeam)
	m.plan("builder", "hang")
	id := m.task()
	cmd := m.program("task", "run", "--token-file", m.grant("lead", nil), id)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.appears(filepath.Join(m.dir, "work", "hangs"))
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was good")
	}
	if v := m.view(id); tries(&v) != "builder aborted" {
		t.Errorf("attempts: %s", tries(&v))
	}
	for _, want := range []string{"Export: spec_review", "Export: attempt 1 by builder", "it was interrupted"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("a person was not told %q:\n%s", want, out.String())
		}
	}
	// Nothing of the agent remains.
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	if i := slices.IndexFunc(found, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(text), agentWord+"\x00"+m.dir)
	}); i >= 0 {
		t.Errorf("%s is an agent", found[i])
	}

}
