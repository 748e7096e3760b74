package task

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/ids"
)

// everything are commands of all kinds, about what the task has and what it has not.
func (d *desk) everything() (list []struct {
	who Actor
	c   Command
}) {
	add := func(who Actor, c Command) {
		list = append(list, struct {
			who Actor
			c   Command
		}{who, c})
	}
	t := d.task
	seen := func(a Actor) Actor { a.Seen = t.Subject(); return a }
	for _, to := range Phases() {
		add(lead, Move{From: t.Phase, To: to})
	}
	for _, to := range []Phase{SpecDraft, ExecutionReady} {
		add(person, CloseCircuit{To: to})
	}
	add(lead, StartAttempt{WorkerRef: "builder"})
	add(lead, StartAttempt{})
	for _, outcome := range Outcomes() {
		add(builder, FinishAttempt{AttemptID: t.CurrentAttempt, Outcome: outcome, Failure: "crashed"})
	}
	add(lead, FinishAttempt{AttemptID: t.CurrentAttempt, Outcome: AttemptSucceeded})
	add(builder, FinishAttempt{AttemptID: t.CurrentAttempt, Outcome: AttemptFailed, Failure: "refused"})
	add(builder, RecordArtifact{AttemptID: t.CurrentAttempt, Kind: Diff, URI: "a", Digest: sum(len(t.Attempts))})
	add(lead, RecordArtifact{AttemptID: t.CurrentAttempt, Kind: Diff, URI: "a", Digest: sum(0)})
	add(checker, RecordArtifact{AttemptID: t.CurrentAttempt, Kind: ReviewReport, URI: "r", Digest: sum(5)})
	for _, v := range []string{VerdictApproved, VerdictChanges} {
		add(seen(checker), AppendReview{AttemptID: t.CurrentAttempt, Type: ReviewSpec, Verdict: v})
		add(seen(critic), AppendReview{AttemptID: t.CurrentAttempt, Type: ReviewQuality, Verdict: v})
	}
	add(lead, Update{Spec: &Spec{Fields: goodSpec()}})
	add(lead, Update{Spec: &Spec{Fields: Fields{Goal: "x"}}})
	add(builder, PlanEffect{Planned: notify()})
	add(gate, PlanEffect{Planned: notify()})
	for _, p := range []Planned{deploy(), notify()} {
		add(gate, RequestApproval{Planned: p, Digest: zero, ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)})
	}
	add(gate, RequestApproval{Undo: true, Planned: Planned{Key: "deploy"}, Digest: sum(9), Bound: jsontext.Value(`{"undo":1}`), ID: d.w.NewID(ids.Approval), ExpiresAt: d.now.Add(time.Hour)})
	for _, a := range t.Approvals[max(0, len(t.Approvals)-2):] {
		for _, status := range Resolutions() {
			add(person, ResolveApproval{ID: a.ID, Status: status, By: "uid:1000"})
		}
		add(daemon, ResolveApproval{ID: a.ID, Status: ApprovalExpired, By: "expiry"})
		add(person, ResolveApproval{ID: a.ID, Status: ApprovalRevoked, By: "uid:1000"})
	}
	for i := range t.Effects {
		e := &t.Effects[i]
		add(gate, RunEffect{EffectID: e.ID, Digest: zero, TokenHash: "h"})
		add(gate, RunEffect{EffectID: e.ID, Digest: zero, Compensation: true})
		add(gate, RunEffect{EffectID: e.ID, Digest: sum(9), Compensation: true})
		add(gate, RunEffect{EffectID: e.ID, Digest: sum(9)})
		add(lead, CancelEffect{EffectID: e.ID})
		for _, r := range e.Runs[max(0, len(e.Runs)-2):] {
			for _, process := range []string{"7@1", "8@2"} {
				add(daemon, BeginRun{EffectID: e.ID, Run: r.Number, Process: process, Signed: true})
				add(daemon, Spawned{EffectID: e.ID, Run: r.Number, Withdrawn: process})
			}
			add(daemon, Spawned{EffectID: e.ID, Run: r.Number, PID: 7})
			for _, state := range []string{EffectDone, EffectFailed, EffectUncertain} {
				add(daemon, FinishRun{EffectID: e.ID, Run: r.Number, State: state})
			}
			add(person, SettleEffect{EffectID: e.ID, Run: r.Number, Outcome: EffectFailed})
		}
	}
	if a := t.Running(); a != nil {
		add(daemon, EndLease{AttemptID: a.ID})
	}
	add(lead, Claiming{For: time.Second})
	return list
}

// illegal is what is wrong with a task that nothing may lead to, or "".
func illegal(was, t *Task, now time.Time) string {
	running := 0
	for i, a := range t.Attempts {
		if a.Status == AttemptRunning {
			running++
		}
		if a.Ordinal != i+1 || i > 0 && a.Fence <= t.Attempts[i-1].Fence {
			return fmt.Sprintf("attempt %d has fence %d", a.Ordinal, a.Fence)
		}
		if a.Status == AttemptRetrying && i != len(t.Attempts)-1 {
			return "an attempt before the last is retrying"
		}
	}
	if running > 1 || running == 1 && t.Running() == nil {
		return "several attempts run"
	}
	if c := t.counts(); c.failures > 3 || c.reworks > 3 {
		return "too many attempts"
	}
	if running == 1 && t.Phase != ExecutionReady && t.Phase != Executing {
		return "an attempt runs in " + string(t.Phase)
	}
	for i := range t.Effects {
		e := &t.Effects[i]
		starts, used := 0, 0
		for _, r := range e.Runs {
			if !r.Compensation {
				starts++
			}
			if (r.State == EffectDone || r.State == EffectFailed) && r.TokenHash == "" && r.Settled == "" && r.Begun == "" && len(r.Receipt) == 0 {
				return fmt.Sprintf("run %d is %s and never began", r.Number, r.State)
			}
		}
		for _, a := range t.Approvals {
			if a.EffectID != e.ID {
				continue
			}
			if a.Used {
				if a.Undo == 0 {
					used++
				}
				// What lets a run be undone can be taken back.
				if a.Status != ApprovalApproved && (a.Status != ApprovalRevoked || a.Undo > 0 || e.Compensation == nil) {
					return "a used approval is " + a.Status
				}
			}
		}
		if starts != used {
			return fmt.Sprintf("%d starts on %d approvals", starts, used)
		}
		if len(e.Runs)-starts > 1 {
			return "a compensation ran twice"
		}
	}
	if was == nil {
		return ""
	}
	if t.ArtifactRevision < was.ArtifactRevision || t.Fence < was.Fence || t.Seq < was.Seq || t.Revision < was.Revision || t.Revision > was.Revision+1 {
		return "a number went back or jumped"
	}
	if was.Phase == t.Phase {
		return ""
	}
	// The gates, told once more in other words.
	approves := func(kind string, s Subject) bool {
		for _, r := range slices.Backward(t.Reviews) {
			if r.Type == kind && r.Subject == s && !r.Void {
				return r.Verdict == VerdictApproved
			}
		}
		return false
	}
	of, made := Subject{Spec: len(t.Specs)}, Subject{Spec: len(t.Specs), Artifact: t.ArtifactRevision, Gate: true}
	if t.Phase == ExecutionReady && (was.Phase == SpecReview || was.Phase == CircuitOpen) && (!approves(ReviewSpec, of) || len(t.Missing()) > 0) {
		return "around the spec's review"
	}
	if was.Phase == SpecGate && t.Phase == QualityGate && !approves(ReviewSpec, made) {
		return "around the spec gate"
	}
	if was.Phase == QualityGate && (t.Phase == Completed || t.Phase == AwaitingApproval) && (!approves(ReviewQuality, made) || !approves(ReviewSpec, made)) {
		return "around the quality gate"
	}
	if t.Phase == Completed && was.Phase != QualityGate && was.Phase != ReadyToResume {
		return "completed from " + string(was.Phase)
	}
	if t.Phase.Final() || t.Phase == CircuitOpen || t.Phase == ExecutionReady && was.Phase == ReadyToResume {
		for _, e := range t.Effects {
			if e.State == EffectStarted || e.State == EffectUncertain || t.Phase == Completed && isOpen(e) {
				return fmt.Sprintf("%s with an effect that is %s", t.Phase, e.State)
			}
		}
	}
	if !slices.ContainsFunc(table(), func(row Transition) bool { return row.From == was.Phase && row.To == t.Phase }) && t.Phase != Failed && t.Phase != CircuitOpen {
		return fmt.Sprintf("from %s to %s", was.Phase, t.Phase)
	}
	return ""
}

// Whatever is called in whatever order, no state comes about that may not, every
// refusal has its code and those of guards name them, and events leave no gap.
func TestRandomCommands(t *testing.T) {
	steps := 250
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 16))
		d := newDesk(t)
		d.create(SpecDraft, deploy())
		for range steps {
			all := d.everything()
			// What makes headway is tried more often than what ends it all.
			pick := all[random.IntN(len(all))]
			if m, ok := pick.c.(Move); ok && (m.To == Failed || m.To == CircuitOpen) && random.IntN(30) > 0 {
				continue
			}
			d.now = d.now.Add(time.Duration(random.IntN(20)) * time.Second)
			was := d.task
			before := ""
			look := random.IntN(10) == 0
			if look {
				before = fmt.Sprintf("%+v", was)
			}
			err := d.try(pick.who, pick.c)
			if look && fmt.Sprintf("%+v", was) != before {
				t.Fatalf("seed %d: %T changed what it was given", seed, pick.c)
			}
			if err != nil {
				r, ok := errors.AsType[*Refusal](err)
				if !ok || r.Code == "" || r.Message == "" || (r.Code == GuardFailed) != (len(r.Guards) > 0) {
					t.Fatalf("seed %d: %T: refused with %#v", seed, pick.c, err)
				}
				continue
			}
			if fault := illegal(was, d.task, d.now); fault != "" {
				t.Fatalf("seed %d: %T by %s: %s\nwas %+v\nnow %+v", seed, pick.c, pick.who.Name, fault, was, d.task)
			}
			if d.task.Seq != was.Seq+len(d.last.Events) {
				t.Fatalf("seed %d: %T: %d events from %d to %d", seed, pick.c, len(d.last.Events), was.Seq, d.task.Seq)
			}
			if len(d.last.Events) == 0 && d.task != was {
				t.Fatalf("seed %d: %T changed something without an event", seed, pick.c)
			}
			for _, o := range d.task.Options(&d.w, d.now) {
				if o.Allowed != (len(o.Guards) == 0) {
					t.Fatalf("option %+v", o)
				}
			}
		}
	}
}

// shape is a task without its numbers and ids: what the walk takes for the same.
func shape(t *Task, w *World, now time.Time) string {
	s := fmt.Sprint(t.Phase, len(t.Missing()) == 0, t.counts(), t.delivered(), t.Gate(ReviewSpec, 1).OK(), t.Gate(ReviewQuality, 1).OK())
	if last := t.Last(); last != nil {
		s += last.Status + last.Actor + fmt.Sprint(slices.ContainsFunc(t.Artifacts, func(a Artifact) bool { return a.AttemptID == last.ID && a.Work }))
	}
	for i := range t.Effects {
		e := &t.Effects[i]
		s += "|" + e.Key + e.State
		if a := t.Newest(e.ID); a != nil {
			s += fmt.Sprint(a.Status, a.Used, a.Void)
		}
		if n := e.Started(); n > 0 {
			s += fmt.Sprint(e.Run(n).Begun != "")
		}
		undone := slices.IndexFunc(e.Runs, func(r Run) bool { return r.Compensation })
		if undone >= 0 {
			s += e.Runs[undone].State
		}
	}
	return s
}

// walked reports whether the walk takes a command: one effect of each origin at a time
// is enough for it, and what is taken back is in the test of random commands.
func walked(c Command) bool {
	switch c := c.(type) {
	case Claiming, PlanEffect, RecordCheckpoint, Spawned:
		return false
	case BeginRun:
		return c.Process == "7@1"
	case RequestApproval:
		return c.Planned.Key == "deploy" && !c.Undo
	case RunEffect:
		return !c.Compensation && c.Digest == zero
	case FinishAttempt:
		return c.Failure != "refused"
	case Update:
		return c.Spec.Goal == goodSpec().Goal
	default:
		return true
	}
}

// From wherever a task can come to, it can be completed, unless it is at its end or its
// circuit is open, which a person closes; and nothing on the way is illegal.
func TestAllStates(t *testing.T) {
	d := newDesk(t)
	// Each number multiplies the states.
	d.w.Rules.Retry.Attempts, d.w.Rules.Rework.Attempts = 2, 1
	d.create(SpecDraft, deploy())
	type place struct {
		task *Task
		now  time.Time
		from []string
	}
	places, limit := map[string]*place{}, 30_000
	start := shape(d.task, &d.w, d.now)
	places[start] = &place{task: d.task, now: d.now}
	queue := []string{start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		p := places[at]
		d.task, d.now = p.task, p.now
		if last := p.task.Last(); last != nil && last.Status != AttemptRunning {
			// The wait between attempts is over.
			d.now = latest(d.now, last.RetryAt)
		}
		for _, step := range d.everything() {
			d.task = p.task
			if !walked(step.c) || d.try(step.who, step.c) != nil || len(d.task.Attempts) > 7 {
				continue
			}
			if fault := illegal(p.task, d.task, d.now); fault != "" {
				t.Fatalf("%s: %T: %s", at, step.c, fault)
			}
			next := shape(d.task, &d.w, d.now)
			if places[next] == nil {
				if len(places) == limit {
					t.Fatal("there are more states than were thought of")
				}
				places[next] = &place{task: d.task, now: d.now}
				queue = append(queue, next)
			}
			places[next].from = append(places[next].from, at)
		}
	}
	reaches := map[string]bool{}
	for key, p := range places {
		if p.task.Phase == Completed && !reaches[key] {
			queue = append(queue, key)
			reaches[key] = true
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, from := range places[at].from {
			if !reaches[from] {
				reaches[from] = true
				queue = append(queue, from)
			}
		}
	}
	phases := map[Phase]int{}
	for key, p := range places {
		phases[p.task.Phase]++
		if !reaches[key] && p.task.Phase != Failed {
			t.Errorf("nothing leads from here to completed: %s", key)
		}
	}
	for _, phase := range Phases() {
		if phases[phase] == 0 {
			t.Errorf("the walk never came to %s", phase)
		}
	}
	t.Logf("%d states: %v", len(places), phases)
}
