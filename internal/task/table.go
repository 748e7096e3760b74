package task

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Guard names a condition of a transition.
type Guard string

// The guards.
const (
	Complete   Guard = "complete"
	Idle       Guard = "idle"
	Leased     Guard = "leased"
	Unblocked  Guard = "unblocked"
	Delivered  Guard = "delivered"
	SpecOK     Guard = "spec_ok"
	QualityOK  Guard = "quality_ok"
	NoEffect   Guard = "no_effect"
	Approved   Guard = "approved"
	Unapproved Guard = "unapproved"
	Unreviewed Guard = "unreviewed"
	Changes    Guard = "changes"
	Quiet      Guard = "quiet"
)

// Via is which call makes a transition.
type Via string

// The calls that move a task.
const (
	ByTransition   Via = "transition"
	ByOpenCircuit  Via = "open_circuit"
	ByCloseCircuit Via = "close_circuit"
)

// Transition is a row of the table: all of its guards must hold.
type Transition struct {
	From, To Phase
	Via      Via
	Guards   []Guard
}

// table has the transitions of each phase, but those that lead out of every one.
func table() []Transition {
	row := func(from, to Phase, guards ...Guard) Transition { return Transition{from, to, ByTransition, guards} }
	return []Transition{
		row(SpecDraft, SpecReview, Complete),
		row(SpecReview, ExecutionReady, SpecOK),
		row(SpecReview, SpecDraft),
		row(ExecutionReady, Executing, Leased, Unblocked),
		row(ExecutionReady, SpecDraft, Idle),
		row(Executing, SpecGate, Delivered),
		row(Executing, ExecutionReady, Idle),
		row(SpecGate, QualityGate, SpecOK),
		row(SpecGate, ExecutionReady),
		row(QualityGate, Completed, SpecOK, QualityOK, NoEffect, Quiet),
		row(QualityGate, AwaitingApproval, SpecOK, QualityOK),
		row(QualityGate, SpecGate, Unreviewed),
		row(QualityGate, ExecutionReady),
		row(AwaitingApproval, ReadyToResume, Approved),
		row(AwaitingApproval, SpecGate, Unreviewed),
		row(AwaitingApproval, ExecutionReady, Changes),
		row(ReadyToResume, Completed, Quiet, NoEffect),
		row(ReadyToResume, AwaitingApproval, Quiet, Unapproved),
		row(ReadyToResume, ExecutionReady, Quiet, Unapproved),
		{CircuitOpen, SpecDraft, ByCloseCircuit, nil},
		{CircuitOpen, ExecutionReady, ByCloseCircuit, []Guard{Complete, SpecOK}},
	}
}

// outOf has the transitions that lead out of each phase. Every move asks for them.
var outOf = sync.OnceValue(func() map[Phase][]Transition {
	rows := make(map[Phase][]Transition)
	for _, t := range table() {
		rows[t.From] = append(rows[t.From], t)
	}
	for _, from := range Phases() {
		if from.Final() {
			continue
		}
		rows[from] = append(rows[from], Transition{from, Failed, ByTransition, []Guard{Quiet}})
		if from != CircuitOpen {
			rows[from] = append(rows[from], Transition{from, CircuitOpen, ByOpenCircuit, []Guard{Quiet}})
		}
	}
	return rows
})

// Transitions returns what leads out of a phase. The caller does not change it.
func Transitions(from Phase) []Transition { return outOf()[from] }

// transition returns the row from one phase to another.
func transition(from, to Phase) (Transition, bool) {
	list := Transitions(from)
	i := slices.IndexFunc(list, func(t Transition) bool { return t.To == to })
	if i < 0 {
		return Transition{}, false
	}
	return list[i], true
}

// Option is a transition in the form for readers of a task.
type Option struct {
	To      Phase   `json:"to"`
	Allowed bool    `json:"allowed"`
	Guards  []Guard `json:"guards"`
	// Via is the call where it is not a transition.
	Via Via `json:"via,omitzero"`
}

// Options returns what leads out of the task's phase, with the guards that do not
// hold.
func (t *Task) Options(w *World, now time.Time) []Option {
	options := []Option{}
	for _, row := range Transitions(t.Phase) {
		o := Option{To: row.To, Guards: t.failing(row.Guards, w, now)}
		if o.Allowed = len(o.Guards) == 0; row.Via != ByTransition {
			o.Via = row.Via
		}
		options = append(options, o)
	}
	return options
}

// failing returns the guards that do not hold.
func (t *Task) failing(guards []Guard, w *World, now time.Time) []Guard {
	failed := []Guard{}
	for _, g := range guards {
		if !t.holds(g, w, now) {
			failed = append(failed, g)
		}
	}
	return failed
}

// holds reports whether a guard holds.
func (t *Task) holds(g Guard, w *World, now time.Time) bool {
	switch g {
	case Complete:
		return len(t.Missing()) == 0
	case Idle:
		return t.Running() == nil
	case Leased:
		a := t.Running()
		return a != nil && now.Before(w.lease(a))
	case Unblocked:
		return len(w.Open) == 0
	case Delivered:
		return t.delivered()
	case SpecOK:
		return t.Gate(ReviewSpec, w.Rules.SpecReviews).OK()
	case QualityOK:
		return t.Gate(ReviewQuality, w.Rules.QualityReviews).OK()
	case NoEffect:
		return !slices.ContainsFunc(t.Effects, isOpen)
	case Approved:
		return !slices.ContainsFunc(t.Effects, func(e Effect) bool { return isOpen(e) && t.Live(e.ID, now) == nil })
	case Unapproved:
		return slices.ContainsFunc(t.Effects, func(e Effect) bool { return isOpen(e) && t.Live(e.ID, now) == nil })
	case Unreviewed:
		return !t.holds(SpecOK, w, now) || t.Phase == AwaitingApproval && !t.holds(QualityOK, w, now)
	case Changes:
		return slices.ContainsFunc(t.Effects, func(e Effect) bool {
			a := t.Newest(e.ID)
			return isOpen(e) && a != nil && a.Status == ApprovalChanges && !a.Void
		})
	case Quiet:
		return !slices.ContainsFunc(t.Effects, func(e Effect) bool {
			return slices.ContainsFunc(e.Runs, func(r Run) bool { return r.open() })
		})
	}
	return false
}

// isOpen reports whether an effect is still to be done.
func isOpen(e Effect) bool { return e.State == EffectPlanned || e.State == EffectFailed }

// delivered reports whether the last attempt succeeded with an artifact that the spec declares.
func (t *Task) delivered() bool {
	last := t.Last()
	if last == nil || last.Status != AttemptSucceeded {
		return false
	}
	return slices.ContainsFunc(t.Artifacts, func(a Artifact) bool {
		return a.AttemptID == last.ID && a.Work && !a.Undeclared && a.Kind != ReviewReport
	})
}

// DeliversNothing warns of a last attempt that succeeded and from which the task goes to no gate.
// It returns "" for any other.
func DeliversNothing(t *Task) string {
	last := t.Last()
	if last == nil || last.Status != AttemptSucceeded || t.delivered() {
		return ""
	}
	return "attempt " + itoa(last.Ordinal) + " delivers nothing, and the task cannot go to spec_gate: no artifact was recorded under a name that the spec declares as an output (" +
		text.Clip(strings.Join(t.Spec().Outputs, ", "), maxSummaryLine) + "); go to execution_ready, and record each output in another attempt before it is finished"
}

// undelivered says which outputs are declared, if the last attempt made something else alone.
func (t *Task) undelivered() string {
	last := t.Last()
	if last == nil || !slices.ContainsFunc(t.Artifacts, func(a Artifact) bool { return a.AttemptID == last.ID && a.Undeclared }) {
		return ""
	}
	return ": no artifact of attempt " + itoa(last.Ordinal) + " has a name that the spec declares as an output: " + text.Clip(strings.Join(t.Spec().Outputs, ", "), maxSummaryLine)
}

// Gate is how the reviews of one type stand.
type Gate struct {
	Needed   int      `json:"needed"`
	Approved []string `json:"approved"`
	Against  []string `json:"against"`
}

// OK reports whether enough approve, and nobody says otherwise.
func (g Gate) OK() bool { return len(g.Approved) >= g.Needed && len(g.Against) == 0 }

// Gate returns how the reviews of a type stand: of each actor's newest on what is
// reviewed now.
func (t *Task) Gate(kind string, needed int) Gate { return t.gate(kind, needed, t.Subject()) }

// gate returns how the reviews of a type stand on a subject.
func (t *Task) gate(kind string, needed int, of Subject) Gate {
	g := Gate{Needed: needed, Approved: []string{}, Against: []string{}}
	seen := make(map[string]bool)
	for i := range slices.Backward(t.Reviews) {
		r := &t.Reviews[i]
		if r.Type != kind || r.Subject != of || r.Void || seen[r.Actor] {
			continue
		}
		seen[r.Actor] = true
		if r.Verdict == VerdictApproved {
			g.Approved = append(g.Approved, r.Actor)
		} else {
			g.Against = append(g.Against, r.Actor)
		}
	}
	slices.Sort(g.Approved)
	slices.Sort(g.Against)
	return g
}

// Binds reports whether dependencies matter in the phase.
func (p Phase) Binds() bool {
	return p != SpecDraft && p != SpecReview && p != CircuitOpen && !p.Final()
}

// ReadyAt is from when on there is something to do for the orchestrator, and false if it waits for
// somebody else.
func (t *Task) ReadyAt(w *World, now time.Time) (at time.Time, ready bool) {
	if t.Phase.Final() || t.Phase == CircuitOpen || t.Running() != nil || t.Phase.Binds() && len(w.Open) > 0 {
		return time.Time{}, false
	}
	for i := range t.Approvals {
		if a := &t.Approvals[i]; a.Status == ApprovalPending && !a.Void && a.Undo == 0 && now.Before(a.ExpiresAt) {
			return time.Time{}, false
		}
	}
	if !t.holds(Quiet, w, now) {
		return time.Time{}, false
	}
	at = latest(t.UpdatedAt, t.nextAt(&w.Rules))
	if t.Claim != nil {
		at = latest(at, t.Claim.Until)
	}
	return at, true
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// counted is how many attempts there were since the circuit was last closed.
func (t *Task) counted() int { return len(t.Attempts) - t.Counted }
