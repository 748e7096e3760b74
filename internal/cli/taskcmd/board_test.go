package taskcmd

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

var update = flag.Bool("update", false, "write what is drawn into testdata")

// golden compares a drawing with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", name, got, want)
	}
}

// fits checks that no line is wider than the screen, except lines for copying.
func fits(t *testing.T, drawn string, width int) {
	t.Helper()
	for line := range strings.Lines(drawn) {
		if line = strings.TrimSuffix(line, "\n"); term.Width(line) > width {
			t.Errorf("at width %d a line takes %d: %q", width, term.Width(line), line)
		}
	}
}

func testID(prefix string, n int) string {
	return fmt.Sprintf("%s01a20361-8e6c-7390-aa3f-%012d", prefix, n)
}

// inUTC shows times in UTC, regardless of the machine's zone.
func inUTC(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func line(n int, phase task.Phase, title, waits string, ago time.Duration) taskapi.Line {
	l := taskapi.Line{Waits: waits, Since: noon.Add(-ago)}
	l.ID, l.Phase, l.Title, l.Priority = testID(ids.Task, n), phase, title, 2
	l.Person = strings.HasPrefix(waits, "a person")
	return l
}

func someTasks() *taskapi.List {
	later := noon.Add(2 * time.Minute)
	waitsForTime := line(4, task.Executing, "Retried", "the executor", time.Minute)
	waitsForTime.ReadyAt = &later
	first := line(5, task.ExecutionReady, "Urgent", "the orchestrator", time.Second)
	first.Priority = 0
	unknown := line(6, task.ReadyToResume, "Deploy the billing service to staging, and tell the accountants", "a person, to say how it ended", 3*time.Minute)
	unknown.Questions = []taskapi.Question{{About: taskapi.AskOutcome, EffectID: testID(ids.Effect, 1), Run: 1, Text: "deploy-staging: run 1", Since: unknown.Since}}
	asked := line(7, task.AwaitingApproval, "請求書をCSVとして書き出す、とても長い題名のタスク", "a person, to decide", 26*time.Hour)
	asked.Questions = []taskapi.Question{
		{About: taskapi.AskApproval, ApprovalID: testID(ids.Approval, 1), Text: "effect: Deploy the billing service to staging with all that belongs to it, twice", Since: asked.Since},
		{About: taskapi.AskApproval, ApprovalID: testID(ids.Approval, 2), Text: "permission: \x1b[31mrm -rf\u202e", Since: asked.Since},
	}
	circuit := line(8, task.CircuitOpen, "It falls over", "a person, to close the circuit", time.Hour)
	circuit.Questions = []taskapi.Question{{About: taskapi.AskCircuit, Text: "the same fault three times", Since: circuit.Since}}
	list := &taskapi.List{Tasks: []taskapi.Line{
		line(1, task.SpecDraft, "Short", "the orchestrator", 5*time.Second), line(2, task.SpecGate, "A title that goes on and on and on until no terminal has room for it", "the orchestrator", time.Minute),
		line(3, task.ExecutionReady, "Blocked", "its dependencies, or an attempt", 40*time.Minute), waitsForTime, first, unknown, asked, circuit,
		line(9, task.Failed, "Failed", "", 2*time.Hour),
	}}
	for n := range 14 {
		list.Tasks = append(list.Tasks, line(20+n, task.Completed, fmt.Sprintf("Done %d", n), "", time.Duration(n+1)*24*time.Hour))
	}
	return list
}

func TestBoard(t *testing.T) {
	inUTC(t)
	for _, width := range []int{80, 120} {
		var out bytes.Buffer
		if err := drawBoard(&out, someTasks(), term.Screen{Terminal: true, Width: width}, noon); err != nil {
			t.Fatal(err)
		}
		fits(t, out.String(), width)
		golden(t, fmt.Sprintf("board-%d.txt", width), out.String())
	}
}

// An empty board says so, and colours mark the tasks for a person.
func TestBoardEdges(t *testing.T) {
	lines, err := boardLines(&taskapi.List{}, term.Screen{Terminal: true, Width: 80}, noon)
	if err != nil || len(lines) != 1 {
		t.Errorf("an empty board is %q, %v", lines, err)
	}
	lines, err = boardLines(someTasks(), term.Screen{Terminal: true, Width: 80, Colour: term.Palette{On: true}}, noon)
	if err != nil || !strings.Contains(strings.Join(lines, "\n"), "\x1b[33ma person, to say how it ended, 3m") {
		t.Errorf("a person's row is not marked: %q, %v", lines, err)
	}
}

// A phase of a newer daemon is shown, after the known ones.
func TestBoardOfANewerDaemon(t *testing.T) {
	list := &taskapi.List{Tasks: make([]taskapi.Line, 2)}
	for i, phase := range []task.Phase{"somewhere", task.SpecDraft} {
		list.Tasks[i].ID, list.Tasks[i].Phase = testID(ids.Task, i), phase
	}
	lines, err := boardLines(list, term.Screen{Terminal: true, Width: 120}, noon)
	if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[1], "SPEC") || !strings.HasPrefix(lines[2], "SOMEWHERE") {
		t.Errorf("%q, %v", lines, err)
	}
}

// The command that a dry run proposes imports the same tasks: from the same folder, tenant and level.
func TestImportAgain(t *testing.T) {
	for _, tt := range []struct {
		dir  string
		p    taskapi.ImportParams
		want string
	}{
		{"/home/me/billing", taskapi.ImportParams{}, "ocipd task import /home/me/billing --apply"},
		{"/home/me/my billing", taskapi.ImportParams{TenantID: "acme", Classification: "confidential"}, "ocipd task import '/home/me/my billing' --apply --tenant acme --classification confidential"},
		{"/home/me/it's; rm", taskapi.ImportParams{}, "ocipd task import DIR --apply"},
	} {
		if got := again(tt.dir, &tt.p); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func records(t *testing.T) (lines []jsontext.Value) {
	t.Helper()
	add := func(r audit.Record, ago time.Duration) {
		e := audit.Entry{Seq: uint64(len(lines) + 1), Time: noon.Add(-ago), Record: r}
		text, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, text)
	}
	event := func(n int, event, actor, role string, was, now map[string]any, reason string) audit.Record {
		r := audit.Record{ActionType: audit.ActionTask, Event: event, TaskSeq: n, Actor: actor, Role: role, PolicyResult: audit.ResultAllow, Details: map[string]any{"was": was, "now": now}}
		if reason != "" {
			r.Details["reason"] = reason
		}
		return r
	}
	type m = map[string]any
	add(event(1, "task.created", "lead", "orchestrator", nil, m{"phase": "spec_review", "priority": 1, "spec_version": 1}, ""), 9*time.Minute)
	add(event(2, "review.appended", "checker", "spec_reviewer", nil, m{"verdict": "approved", "review_type": "spec", "spec_version": 1, "review_id": "rev_x"}, ""), 8*time.Minute)
	add(event(3, "task.transitioned", "lead", "orchestrator", m{"phase": "executing", "revision": 9}, m{"phase": "spec_gate", "revision": 10}, "attempt 1 delivered 2 artifacts, of which one is 請求書.csv and the other one a report of its tests"), 7*time.Minute)
	add(audit.Record{
		ActionType: audit.ActionExchange, Side: audit.SideSender, AgentID: "agent-alice-1", Counterparty: audit.Counterparty{InstanceID: "agent-bob-1"}, Round: 1, MaxRounds: 3,
		PolicyResult: audit.ResultAllow, PolicyApplied: "within-limit",
	}, 6*time.Minute)
	add(audit.Record{
		ActionType: audit.ActionExchange, Side: audit.SideSender, AgentID: "agent-alice-1", Counterparty: audit.Counterparty{InstanceID: "agent-bob-1"}, Round: 2, MaxRounds: 3,
		PolicyResult: audit.ResultApproval, Code: "COMMITMENT", PolicyReason: "a promise waits for a person: \"we will deliver on Monday\"",
	}, 5*time.Minute)
	add(audit.Record{ActionType: audit.ActionSecurity, Event: "task_refused", Actor: "builder", Role: "executor", PolicyResult: audit.ResultDeny, Code: "NOT_PERMITTED", PolicyReason: "task.transition is for orchestrator, operator, and builder is executor"}, 4*time.Minute)
	add(event(4, "approval.requested", "lead", "orchestrator", nil, m{"approval_id": "apr_x", "effect_id": "eff_x", "status": "pending", "request_digest": "sha256:0"}, ""), 3*time.Minute)
	add(audit.Record{ActionType: audit.ActionApproval, Event: "approved", PolicyResult: audit.ResultAllow, ApprovalID: "apr_x"}, 2*time.Minute)
	add(event(5, "approval.resolved", "uid:1000", "operator", m{"status": "pending"}, m{"status": "approved"}, ""), 2*time.Minute)
	add(event(6, "effect.unknown", "ocipd", "daemon", m{"state": "started"}, m{"state": "outcome_unknown", "run": 1}, "the runner's shim left a pid and no result"), time.Minute)
	return lines
}

func TestTimeline(t *testing.T) {
	inUTC(t)
	for _, width := range []int{80, 120} {
		var out bytes.Buffer
		if err := drawTimeline(&out, records(t), term.Screen{Terminal: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		fits(t, out.String(), width)
		golden(t, fmt.Sprintf("timeline-%d.txt", width), out.String())
	}
	if err := drawTimeline(&bytes.Buffer{}, []jsontext.Value{jsontext.Value("1")}, term.Screen{}); err == nil {
		t.Error("what is no record is drawn")
	}
}
