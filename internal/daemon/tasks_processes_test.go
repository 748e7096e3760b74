package daemon_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// callsVariable makes a process of the tests make the calls in its input.
const callsVariable = "TEST_CALLS_AT"

// TestCallsElsewhere is another process, which attaches with a token, makes the calls in
// the lines of its input, and reports for each whether it succeeded.
func TestCallsElsewhere(t *testing.T) {
	dir := os.Getenv(callsVariable)
	if dir == "" {
		t.Skip("is started by other tests")
	}
	h := &harness{t: t, dir: dir}
	a := h.taskDial("run/kernel.sock", "another process")
	a.must("task.attach", m{"token": os.Getenv("TEST_TOKEN")})
	fmt.Println("answer attached")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		method, params, _ := strings.Cut(lines.Text(), " ")
		_, err := a.call(method, json.RawMessage(params))
		said := "ok"
		if e, ok := errors.AsType[*api.Error](err); ok {
			said = string(e.Code)
		} else if err != nil {
			said = err.Error()
		}
		fmt.Println("answer " + said)
	}
}

// elsewhereCaller is another process with a connection.
type elsewhereCaller struct {
	in  io.Writer
	out *bufio.Scanner
}

func (c *elsewhereCaller) answer() string {
	for c.out.Scan() {
		if said, ok := strings.CutPrefix(c.out.Text(), "answer "); ok {
			return said
		}
	}
	return "it ended"
}

func (h *harness) callsElsewhere(actor string) *elsewhereCaller {
	h.t.Helper()
	granted := h.taskOperator().must("task.grant", m{"actor": actor})
	cmd := exec.CommandContext(h.t.Context(), os.Args[0], "-test.run=^TestCallsElsewhere$")
	cmd.Env = append(os.Environ(), callsVariable+"="+h.dir, "TEST_TOKEN="+str(granted, "token"), "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &elsewhereCaller{in, bufio.NewScanner(out)}
}

// racingProcesses is the number of processes that race for one task in each round. The
// variable asks for more rounds.
const (
	racingProcesses = 64
	racingRounds    = 25
	roundsVariable  = "TEST_ROUNDS"
)

// If many processes, each a separate orchestrator, start an attempt, move a task, claim it
// and start its effect at once, exactly one succeeds.
func TestManyProcessesOneWinner(t *testing.T) {
	rounds := racingRounds
	if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
		rounds = n
	}
	var actors strings.Builder
	for i := range racingProcesses {
		fmt.Fprintf(&actors, "    - {name: lead%d, role: orchestrator, tenant_id: acme-corp}\n", i)
	}
	h := build(t, strings.Replace(taskTeam, "  self_approval", actors.String()+"  self_approval", 1))
	racers := make([]*elsewhereCaller, racingProcesses)
	for i := range racers {
		racers[i] = h.callsElsewhere(fmt.Sprintf("lead%d", i))
	}
	for _, r := range racers {
		if said := r.answer(); said != "attached" {
			t.Fatal(said)
		}
	}
	race := func(round int, method string, params func(i int) m) {
		t.Helper()
		for i, r := range racers {
			text, err := json.Marshal(params(i))
			if err == nil {
				_, err = fmt.Fprintf(r.in, "%s %s\n", method, text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		said := map[string]int{}
		for _, r := range racers {
			said[r.answer()]++
		}
		if said["ok"] != 1 || said[string(api.Conflict)] != racingProcesses-1 {
			t.Fatalf("round %d: %s: %v", round, method, said)
		}
	}
	// One connection each is enough for all rounds.
	c := h.crew()
	c.builder = h.actor("builder", "")
	checker, critic, operator := h.actor("checker", ""), h.actor("critic", ""), h.taskOperator()
	for round := range rounds {
		made := c.lead.must("task.create", m{
			"title": "Export", "spec_markdown": goodTaskSpec, "workspace": h.path("work"), "initial_phase": "spec_review",
			"effects": []any{m{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": m{"to": "ops"}}},
		})
		c.id, c.attempt = str(made, "task_id"), ""
		review := func(who *taskCaller, kind string) {
			who.must("task.get", m{"task_id": c.id, "include_events_limit": 0})
			params := m{"task_id": c.id, "review_type": kind, "reviewer_ref": who.name, "verdict": "approved", "findings": []any{}}
			if c.attempt != "" {
				params["attempt_id"] = c.attempt
			}
			who.must("task.append_review", params)
		}
		review(checker, "spec")
		c.move(task.ExecutionReady)
		race(round, "task.start_attempt", func(i int) m {
			return m{"task_id": c.id, "phase": "executing", "actor": fmt.Sprintf("lead%d", i), "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}
		})
		c.attempt = str(c.lead.must("task.get", m{"task_id": c.id}), "current_attempt_id")
		race(round, "task.transition", func(i int) m {
			return m{"task_id": c.id, "from_phase": "execution_ready", "to_phase": "executing", "actor": fmt.Sprintf("lead%d", i), "actor_role": "orchestrator", "reason": "r"}
		})
		c.deliver()
		c.move(task.SpecGate)
		review(checker, "spec")
		c.move(task.QualityGate)
		review(critic, "quality")
		c.move(task.AwaitingApproval)
		asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "tell", "requested_action": "Tell ops", "side_effect_kind": "notification"})
		shown := operator.must("approval.get", m{"approvalId": asked["approval_id"]})
		operator.must("approval.resolve", m{"approvalId": asked["approval_id"], "decision": "approve", "digest": shown["digest"]})
		c.move(task.ReadyToResume)
		race(round, "task.run_effect", func(int) m {
			return m{"task_id": c.id, "idempotency_key": "tell", "request_digest": asked["request_digest"]}
		})
		race(round, "task.claim", func(int) m { return m{"task_id": c.id, "lease_s": 600} })
	}
	h.verify()
}
