package taskservice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// questions are the questions to people, by task.
type questions map[string][]taskapi.Question

// questions looks for all that waits for a person's word about any task.
func (t *Tasks) questions(ctx context.Context) (questions, error) {
	q := make(questions)
	p := api.ApprovalListParams{State: api.ApprovalPending}
	for {
		page, err := t.o.Approvals().List(ctx, &p)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.Approvals {
			var a api.ApprovalSummary
			if err := json.Unmarshal(raw, &a); err != nil {
				return nil, fmt.Errorf("cannot decode an approval: %w", err)
			}
			if p.After = a.ApprovalID; a.TaskID != "" {
				q[a.TaskID] = append(q[a.TaskID], taskapi.Question{
					About: taskapi.AskApproval, ApprovalID: a.ApprovalID, Text: a.Kind + ": " + a.Summary, Since: time.UnixMilli(a.AskedAt).UTC(),
				})
			}
		}
		if len(page.Approvals) < p.Page() {
			break
		}
	}
	busy, err := t.rows.Busy(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range busy {
		if err := q.addRuns(ctx, t, id); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// asking adds to the last page of a list of open tasks those that are closed and still
// ask something of a person.
func (t *Tasks) asking(ctx context.Context, q questions, p *taskapi.ListParams, list *taskapi.List) error {
	for _, id := range slices.Sorted(maps.Keys(q)) {
		unlock := t.locks.Lock(id)
		at, err := t.loadLocked(ctx, id)
		unlock()
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if !at.Phase.Final() || p.TenantID != "" && at.Tenant != p.TenantID || p.Phase != "" && at.Phase != p.Phase {
			continue
		}
		line := taskapi.Line{Head: at.Head, Since: at.UpdatedAt}
		if err := q.put(ctx, t, &line); err != nil {
			return err
		}
		list.Tasks = append(list.Tasks, line)
	}
	return nil
}

// addRuns adds the runs of a task with an unknown outcome.
func (q questions) addRuns(ctx context.Context, t *Tasks, id string) error {
	unlock := t.locks.Lock(id)
	at, err := t.loadLocked(ctx, id)
	unlock()
	if err != nil {
		return err
	}
	for i := range at.Effects {
		e := &at.Effects[i]
		for j := range e.Runs {
			r := &e.Runs[j]
			if r.State != task.EffectUncertain {
				continue
			}
			since := r.StartedAt
			if !r.EndedAt.IsZero() {
				since = r.EndedAt
			}
			what := "run"
			if r.Compensation {
				what = "compensation, run"
			}
			q[id] = append(q[id], taskapi.Question{
				About: taskapi.AskOutcome, EffectID: e.ID, Run: r.Number, Since: since, Text: fmt.Sprintf("%s: %s %d", e.Key, what, r.Number),
			})
		}
	}
	return nil
}

// put has a line of a list say what a person is asked about its task.
func (q questions) put(ctx context.Context, t *Tasks, l *taskapi.Line) error {
	l.Questions = q[l.ID]
	if l.Phase == task.Executing {
		if err := progress(ctx, t, l); err != nil {
			return err
		}
	}
	if l.Phase == task.CircuitOpen {
		circuit, err := circuitOf(ctx, t, l)
		if err != nil {
			return err
		}
		l.Questions = append(l.Questions, circuit)
	}
	if len(l.Questions) == 0 {
		return nil
	}
	slices.SortStableFunc(l.Questions, func(a, b taskapi.Question) int { return a.Since.Compare(b.Since) })
	first := &l.Questions[0]
	l.Person, l.Since = true, first.Since
	switch first.About {
	case taskapi.AskApproval:
		l.Waits = "a person, to decide"
	case taskapi.AskOutcome:
		l.Waits = "a person, to say how it ended"
	}
	return nil
}

// maxCircuitLines is how many lines of a summary a list has.
const maxCircuitLines = 3

// circuitOf is the question about an open circuit: its reason, the newest lines of what went wrong,
// and the last approved work.
func circuitOf(ctx context.Context, t *Tasks, l *taskapi.Line) (taskapi.Question, error) {
	unlock := t.locks.Lock(l.ID)
	at, err := t.loadLocked(ctx, l.ID)
	unlock()
	q := taskapi.Question{About: taskapi.AskCircuit, Text: l.CircuitReason, Since: l.Since}
	if err != nil || at.Phase != task.CircuitOpen {
		return q, err
	}
	if summary := at.FailureSummary(); len(summary) > 0 {
		if summary[0] == q.Text {
			summary = summary[1:]
		}
		q.Details = summary[max(0, len(summary)-maxCircuitLines):]
	}
	q.Details = append(slices.Clip(q.Details), "last approved work: "+taskapi.GoodLine(at.LastGood(&t.config.Load().Rules)))
	return q, nil
}

// waits names the person, actor or event that a task waits for, and reports whether it is a person.
func waits(phase task.Phase, ready bool) (whom string, person bool) {
	switch phase {
	case task.Completed, task.Failed:
		return "", false
	case task.CircuitOpen:
		return "a person, to close the circuit", true
	case task.AwaitingApproval:
		if ready {
			return "the orchestrator", false
		}
		return "a person, to approve", true
	case task.Executing:
		if ready {
			return "the orchestrator", false
		}
		return "the executor", false
	case task.ReadyToResume:
		if ready {
			return "the orchestrator", false
		}
		return "an effect", false
	case task.ExecutionReady:
		if ready {
			return "the orchestrator", false
		}
		return "its dependencies, or an attempt", false
	default:
		return "the orchestrator", false
	}
}
