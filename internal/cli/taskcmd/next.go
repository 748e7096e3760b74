package taskcmd

import (
	"slices"

	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// next returns the commands that help after a refusal, one a line. TASK stands for the task's id, and
// other words in capitals for the reader's own.
func next(e *taskapi.Error) (lines []string) {
	switch e.Code {
	case task.GuardFailed:
		for _, g := range e.Guards {
			if line := nextFor(g, e.Phase); line != "" {
				lines = append(lines, line)
			}
		}
		return lines
	case task.PhaseMismatch:
		for _, o := range e.Transitions {
			if o.Allowed && onward(e.Phase, o.To) {
				lines = append(lines, "ocipd task transition TASK "+string(o.To))
			}
		}
		if len(lines) > 0 {
			return lines
		}
	default:
	}
	if line := nextAfter()[e.Code]; line != "" {
		lines = append(lines, line)
	}
	return lines
}

// onward reports whether a transition brings a task nearer to its end: nobody is sent back, which can
// cancel effects, by a line of advice.
func onward(from, to task.Phase) bool {
	order := task.Phases()
	return slices.Index(order, from) < slices.Index(order, to) && to != task.Failed && to != task.CircuitOpen
}

// nextFor is the command that makes a guard hold, in a phase.
func nextFor(g task.Guard, phase task.Phase) string {
	switch {
	case phase == task.ReadyToResume && (g == task.NoEffect || g == task.Unapproved):
		return "ocipd task effect run --task TASK --key KEY"
	case phase == task.ReadyToResume && g == task.Approved:
		return "ocipd task transition TASK awaiting_approval, once its approval is used, revoked (ocipd approvals deny) or expired"
	}
	return map[task.Guard]string{
		task.Complete:   "ocipd task update TASK -f SPEC",
		task.Idle:       "ocipd task finish-attempt TASK",
		task.Leased:     "ocipd task start-attempt TASK --worker ACTOR",
		task.Unblocked:  "ocipd task show TASK, and complete the tasks under waits for",
		task.Delivered:  "ocipd task artifact TASK FILE for each declared output, then ocipd task finish-attempt TASK; after its end, another attempt from execution_ready",
		task.SpecOK:     "ocipd task review TASK --verdict approved, by a spec reviewer",
		task.QualityOK:  "ocipd task review TASK --verdict approved, by a quality reviewer",
		task.NoEffect:   "ocipd task transition TASK awaiting_approval, or ocipd task effect cancel EFFECT --task TASK",
		task.Quiet:      "ocipd task effect list TASK; ocipd task effect settle answers for a run whose end is unknown",
		task.Approved:   "ocipd task request-approval --task TASK --key KEY for each open effect, then ocipd approvals",
		task.Changes:    "ocipd approvals request-changes ID, by a person",
		task.Unapproved: "ocipd task show TASK: every open effect is approved, and can be run",
	}[g]
}

// nextAfter has the commands that help after the other refusals.
func nextAfter() map[task.Code]string {
	const look = "ocipd task show TASK"
	return map[task.Code]string{
		task.PhaseMismatch:    look + ", which says what each next phase needs",
		task.RevisionMismatch: look,
		task.ReadFirst:        look + ", by the same token",
		task.SameActor:        "ocipd task review TASK by the token of an actor that did none of the work",
		task.NeedsPerson:      "ocipd approvals",
		task.RetriesExhausted: "ocipd task circuit open TASK, which a person closes",
		task.RunnerAbsent:     "ocipd runner, or ocipd service install --runner",
		task.LeaseLost:        look + "; an orchestrator starts another attempt",
		task.Claimed:          "ocipd task ready",
		task.EffectInFlight:   "ocipd task effect list TASK",
		task.EffectUnknown:    "ocipd task effect settle EFFECT --task TASK, by a person",
	}
}
