package taskcmd

import (
	"bytes"
	"fmt"
	"slices"
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

// titles are those of tasks in two scripts.
var titles = []string{"Invoices get a CSV export that goes on and on until no terminal has room for it", "按月导出发票的CSV文件，标题很长很长很长，任何终端都放不下这一行文字，还要更长一些"}

// manyTasks are n tasks in all phases. Every seventh waits for a person.
func manyTasks(n int) *taskapi.List {
	list := &taskapi.List{Tasks: []taskapi.Line{}}
	for i := range n {
		phase := task.Phases()[i%len(task.Phases())]
		l := line(i, phase, titles[i%2], "the orchestrator", time.Duration(i)*time.Second)
		switch {
		case i%7 == 3:
			l.Waits, l.Person = "a person, to decide", true
			l.Questions = []taskapi.Question{{About: taskapi.AskApproval, ApprovalID: testID(ids.Approval, i), Text: titles[(i+1)%2], Since: l.Since}}
		case phase == task.Executing:
			l.Progress = &taskapi.Progress{Attempt: 2, Actor: "执行者", StartedAt: noon.Add(-10 * time.Minute), Checkpoints: 25, HeardAt: noon.Add(-20 * time.Second), LeaseExpiresAt: noon.Add(70 * time.Second)}
		}
		list.Tasks = append(list.Tasks, l)
	}
	return list
}

// The board fits narrow and wide terminals, with no task, some and many, in English and Chinese. The
// tasks that wait for a person come first, each with the command that answers.
func TestBoardFits(t *testing.T) {
	inUTC(t)
	for _, width := range []int{80, 200} {
		for _, n := range []int{0, 5, 500} {
			lines, err := boardLines(manyTasks(n), term.Screen{Terminal: true, Width: width}, noon)
			if err != nil {
				t.Fatal(err)
			}
			fits(t, strings.Join(lines, "\n"), width)
			if n == 0 && !slices.Equal(lines, []string{"there is no task"}) {
				t.Errorf("without a task the board is %q", lines)
			}
			asked, last, person, others := 0, 0, 0, len(lines)
			for i, l := range lines {
				switch {
				case strings.Contains(l, "ocipd approvals approve apr_"):
					asked, last = asked+1, i
				case strings.Contains(l, "a person, to decide"):
					person++
				case strings.Contains(l, "the orchestrator") || strings.Contains(l, "checkpoints"):
					others = min(others, i)
				}
			}
			if want := (n + 3) / 7; asked != want || person != want || n > 0 && last > others {
				t.Errorf("%d tasks at %d: %d commands and %d rows for people, want %d; the last is line %d, and others begin at %d", n, width, asked, person, want, last, others)
			}
		}
	}
}

// A long attempt shows how it goes.
func TestProgress(t *testing.T) {
	p := &taskapi.Progress{Attempt: 2, StartedAt: noon.Add(-10 * time.Minute), Checkpoints: 25, HeardAt: noon.Add(-20 * time.Second), LeaseExpiresAt: noon.Add(70 * time.Second)}
	if got, want := going(p, noon), "attempt 2 for 10m0s: 25 checkpoints (2.5 a minute), heard of 20s ago, 1m10s of its lease left"; got != want {
		t.Errorf("it goes %q, want %q", got, want)
	}
	p.StartedAt, p.Checkpoints, p.LeaseExpiresAt = noon.Add(-30*time.Second), 1, noon
	if got, want := going(p, noon), "attempt 2 for 30s: 1 checkpoint, heard of 20s ago, its lease is over"; got != want {
		t.Errorf("it goes %q, want %q", got, want)
	}
}

// The timeline fits narrow and wide terminals too.
func TestTimelineFits(t *testing.T) {
	inUTC(t)
	for _, width := range []int{80, 200} {
		for _, n := range []int{0, 5, 500} {
			var lines []jsontext.Value
			for i := range n {
				r := audit.Record{ActionType: audit.ActionTask, Event: "task.transitioned", TaskSeq: i + 1, Actor: "执行者", Role: "orchestrator", PolicyResult: audit.ResultAllow, Details: map[string]any{
					"was": map[string]any{"phase": "executing"}, "now": map[string]any{"phase": "spec_gate"}, "reason": titles[i%2],
				}}
				text, err := json.Marshal(&audit.Entry{Seq: uint64(i + 1), Time: noon, Record: r})
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, text)
			}
			var out bytes.Buffer
			if err := drawTimeline(&out, lines, term.Screen{Terminal: true, Width: width}); err != nil {
				t.Fatal(err)
			}
			fits(t, out.String(), width)
			if got := strings.Count(out.String(), "executing → spec_gate"); got != n {
				t.Errorf("%d records at %d: %d are shown", n, width, got)
			}
			if n > 0 && !strings.Contains(out.String(), fmt.Sprintf("%d  12:00:00", n)) {
				t.Errorf("the last record is not shown at %d", width)
			}
		}
	}
}
