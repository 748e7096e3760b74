// Package orchestrator takes tasks through their phases without a model: it reads a task, takes the
// one step that its stored state requires, and reads it again. The actors' agents do the
// work, each in its own process.
//
// The loop is an orchestrator and a client of the daemon, and has no state of its own. If
// it is killed at any point, another loop continues from the stored state.
package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// Daemon is a connection under an orchestrator's grant.
type Daemon interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Actors are the actors whose agents do the work. Escalation, if set, makes the last
// attempt instead of the executor. Lobster runs the effects of workflows.
type Actors struct{ Executor, Escalation, SpecReviewer, QualityReviewer, Lobster string }

// Work is one run of an actor's agent.
type Work struct{ Actor, TaskID, AttemptID, Token string }

// Options are the inputs of a loop.
type Options struct {
	Daemon Daemon
	// Me is the orchestrator's name.
	Me     string
	Actors Actors
	// Token returns the token that a person gave an actor, or "".
	Token func(actor string) (string, error)
	// Bridge runs an actor's agent to its end. Its error is for people; the stored state
	// decides.
	Bridge func(ctx context.Context, w Work) error
	// Effects, if set, runs an effect through a workflow, to its end. Its error is for
	// people too.
	Effects func(ctx context.Context, w Work, key string) error
	// Every is the interval between checks.
	Every time.Duration
	// Tell reports events. Several goroutines may call it at once.
	Tell  func(Event)
	Now   func() time.Time
	NewID func() string
}

// Event is a message to a person or a program.
type Event struct {
	Time   time.Time  `json:"time"`
	TaskID string     `json:"task_id,omitzero"`
	Title  string     `json:"title,omitzero"`
	Phase  task.Phase `json:"phase,omitzero"`
	// What is one of phase, attempt, agent, review, waits, asks, runs and stopped.
	What  string `json:"event"`
	Actor string `json:"actor,omitzero"`
	Text  string `json:"text,omitzero"`
}

// The kinds of events.
const (
	NewPhase   = "phase"
	NewAttempt = "attempt"
	AgentSays  = "agent"
	Reviewing  = "review"
	Waits      = "waits"
	Asks       = "asks"
	Runs       = "runs"
	Stopped    = "stopped"
)

const (
	// claimFor is how long a claim keeps other orchestrators away from a task, and
	// claimEvery how often the loop renews it.
	claimFor   = 60
	claimEvery = 20 * time.Second
	// maxReviews bounds the runs of a reviewer that gives no verdict, and maxSame the steps
	// that change nothing.
	maxReviews = 2
	maxSame    = 4
)

// Result is how far a task has come.
type Result struct {
	TaskID string     `json:"task_id"`
	Phase  task.Phase `json:"phase"`
	// Why says why the task does not continue by itself.
	Why string `json:"why,omitzero"`
}

// Run takes tasks as far as they go, at most jobs at once.
func Run(ctx context.Context, o *Options, ids []string, jobs int) []Result {
	results := make([]Result, len(ids))
	turns := make(chan struct{}, max(jobs, 1))
	var all sync.WaitGroup
	for i, id := range ids {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			results[i] = take(ctx, o, id)
		})
	}
	all.Wait()
	return results
}

// Ready takes all ready tasks, at most jobs at once, until there are none.
func Ready(ctx context.Context, o *Options, labels []string, jobs int) (results []Result, err error) {
	seen := make(map[string]bool)
	ended := make(chan Result)
	running := 0
	for {
		var list taskapi.List
		// Tasks that were taken may still be ready, and come first in the list.
		limit := min(len(seen)+max(jobs, 1), api.MaxPage)
		if err = o.Daemon.Call(ctx, "task.list_ready", &taskapi.ListReadyParams{Limit: &limit, Labels: labels}, &list); err != nil && !taskclient.Away(err) {
			break
		}
		for i := range list.Tasks {
			id := list.Tasks[i].ID
			if seen[id] || running >= max(jobs, 1) {
				continue
			}
			seen[id] = true
			running++
			go func() { ended <- take(ctx, o, id) }()
		}
		if running == 0 && err == nil {
			break
		}
		timer := time.NewTimer(o.Every)
		select {
		case r := <-ended:
			results = append(results, r)
			running--
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err = ctx.Err(); err != nil {
			break
		}
	}
	for ; running > 0; running-- {
		results = append(results, <-ended)
	}
	return results, err
}

// loop is the loop of one task.
type loop struct {
	o  *Options
	id string
	v  *taskapi.View
	// reviews counts a reviewer's runs without a verdict, by the reviewed version.
	reviews map[string]int
	// said is the last reported wait, and why the last words of the last bridge.
	said, why string
}

// next says when the next step follows: at once, after a while, or never.
type next struct {
	wait time.Duration
	stop bool
	why  string
}

func again() (next, error) { return next{}, nil }

func stop(format string, args ...any) (next, error) {
	return next{stop: true, why: fmt.Sprintf(format, args...)}, nil
}

// waits reports a wait, unless it was reported last.
func (l *loop) waits(format string, args ...any) (next, error) {
	if text := fmt.Sprintf(format, args...); text != l.said {
		l.said = text
		l.tell(Event{What: Waits, Text: text})
	}
	return next{wait: l.o.Every}, nil
}

func (l *loop) tell(e Event) {
	e.Time, e.TaskID = l.o.Now().UTC(), l.id
	if l.v != nil {
		e.Title, e.Phase = l.v.Title, l.v.Phase
	}
	l.o.Tell(e)
}

func (l *loop) write() taskapi.Write {
	return taskapi.Write{Ref: taskapi.Ref{TaskID: l.id}, Keyed: taskapi.Keyed{RequestKey: "run-" + l.o.NewID()}}
}

// take takes one task as far as it goes.
func take(ctx context.Context, o *Options, id string) Result {
	l := &loop{o: o, id: id, reviews: make(map[string]int)}
	held, release := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { l.claim(held) })
	why := l.steps(ctx)
	release()
	keeping.Wait()
	r := Result{TaskID: id, Why: why}
	if l.v != nil {
		r.Phase = l.v.Phase
	}
	l.tell(Event{What: Stopped, Text: why})
	return r
}

// claim keeps other orchestrators away from the task, and releases it at the end.
func (l *loop) claim(ctx context.Context) {
	call := func(ctx context.Context, seconds int) {
		_ = l.o.Daemon.Call(ctx, "task.claim", &taskapi.ClaimParams{Write: l.write(), LeaseS: &seconds}, nil) // a step fails if another orchestrator has it
	}
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		call(ctx, claimFor)
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.Every)
			defer cancel()
			call(last, 0)
			return
		}
	}
}

// steps takes steps until there are none, and says why.
func (l *loop) steps(ctx context.Context) string {
	same, last := 0, ""
	for {
		var n next
		err := l.look(ctx)
		if err == nil {
			n, err = l.step(ctx)
		}
		switch code := taskclient.Code(err); {
		case ctx.Err() != nil:
			return "it was interrupted"
		case err == nil:
		case taskclient.Away(err):
			n, _ = l.waits("the daemon, which is away")
		case code == task.Claimed:
			return "another orchestrator has it: " + err.Error()
		case code == task.RevisionMismatch || code == task.PhaseMismatch || code == task.LeaseLost || code == task.EffectInFlight:
			n = next{} // it was changed meanwhile
		default:
			return err.Error()
		}
		if n.stop {
			return n.why
		}
		if n.wait == 0 {
			// Repeated steps without a change lead nowhere.
			now := fmt.Sprint(l.v.Revision, l.v.Seq)
			if same++; now != last {
				same, last = 0, now
			}
			if same > maxSame {
				if err != nil {
					l.why = err.Error()
				}
				return strings.TrimSuffix(fmt.Sprintf("it does not get on in %s: %s", l.v.Phase, l.why), ": ")
			}
			continue
		}
		timer := time.NewTimer(n.wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look reads the task.
func (l *loop) look(ctx context.Context) error {
	v, err := taskclient.View(ctx, l.o.Daemon.Call, l.id)
	if err != nil {
		return err
	}
	moved := l.v == nil || l.v.Phase != v.Phase
	if l.v = v; moved {
		l.said = ""
		l.tell(Event{What: NewPhase})
	}
	return nil
}

// step takes the one step that the task requires.
func (l *loop) step(ctx context.Context) (next, error) {
	if slices.ContainsFunc(l.v.Transitions, func(o task.Option) bool { return o.To == task.SpecGate && o.Allowed && l.v.Phase != task.Executing }) {
		return l.move(ctx, task.SpecGate, "an effect was planned after the reviews")
	}
	switch l.v.Phase {
	case task.SpecDraft:
		return l.draft(ctx)
	case task.SpecReview:
		return l.gate(ctx, task.ReviewSpec, l.o.Actors.SpecReviewer, task.SpecDraft, task.ExecutionReady)
	case task.SpecGate:
		return l.gate(ctx, task.ReviewSpec, l.o.Actors.SpecReviewer, task.ExecutionReady, task.QualityGate)
	case task.QualityGate:
		forward := task.Completed
		if len(l.open()) > 0 {
			forward = task.AwaitingApproval
		}
		return l.gate(ctx, task.ReviewQuality, l.o.Actors.QualityReviewer, task.ExecutionReady, forward)
	case task.ExecutionReady:
		if l.running() != nil {
			return l.move(ctx, task.Executing, "the attempt has begun")
		}
		return l.attempt(ctx)
	case task.Executing:
		return l.executing(ctx)
	case task.AwaitingApproval:
		return l.approvals(ctx)
	case task.ReadyToResume:
		return l.resume(ctx)
	case task.CircuitOpen:
		return stop("a person has to close its circuit: ocipd task circuit close %s", l.id)
	default:
		return stop("")
	}
}

func (l *loop) move(ctx context.Context, to task.Phase, format string, args ...any) (next, error) {
	p := taskapi.TransitionParams{
		Write: l.write(), FromPhase: l.v.Phase, ToPhase: to, Said: taskapi.Said{Actor: l.o.Me, ActorRole: string(task.Orchestrator)},
		Reason: fmt.Sprintf(format, args...), Expected: &l.v.Revision,
	}
	return next{}, l.o.Daemon.Call(ctx, "task.transition", &p, nil)
}

func (l *loop) openCircuit(ctx context.Context, why string) (next, error) {
	p := taskapi.OpenCircuitParams{Write: l.write(), Said: taskapi.Said{Actor: l.o.Me, ActorRole: string(task.Orchestrator)}, Reason: why, LatestAttempt: l.v.CurrentAttempt}
	return next{}, l.o.Daemon.Call(ctx, "task.open_circuit", &p, nil)
}

// draft submits a spec that is complete and has no open objections.
func (l *loop) draft(ctx context.Context) (next, error) {
	if len(l.v.Missing) > 0 {
		return stop("its spec is not complete: %s", l.v.Missing[0].String())
	}
	if l.v.Spec.Version > 0 && slices.ContainsFunc(l.v.Reviews, func(r taskapi.Review) bool {
		return !r.Subject.Gate && r.Subject.Spec == l.v.Spec.Version && r.Verdict != task.VerdictApproved
	}) {
		return stop("its spec was found wanting, and is to be mended: ocipd task update %s -f FILE", l.id)
	}
	return l.move(ctx, task.SpecReview, "the spec is complete")
}

// verdicts returns each actor's newest verdict on the version under review.
func (l *loop) verdicts(kind string) map[string]string {
	newest := make(map[string]string)
	for i := range l.v.Reviews {
		r := &l.v.Reviews[i]
		if r.Type == kind && !r.Stale && r.Subject.Gate == (l.v.Phase != task.SpecReview) {
			newest[r.Actor] = r.Verdict
		}
	}
	return newest
}

// giver returns the first actor with a verdict, or "".
func giver(verdicts map[string]string, verdict string) (first string) {
	for actor, given := range verdicts {
		if given == verdict && (first == "" || actor < first) {
			first = actor
		}
	}
	return first
}

// gate runs the reviewer, and acts on the verdict.
func (l *loop) gate(ctx context.Context, kind, reviewer string, back, forward task.Phase) (next, error) {
	state := l.v.Gates.Spec
	if kind == task.ReviewQuality {
		state = l.v.Gates.Quality
	}
	verdicts := l.verdicts(kind)
	if actor := giver(verdicts, task.VerdictBlocked); actor != "" {
		return stop("%s has blocked it", actor)
	}
	if actor := giver(verdicts, task.VerdictChanges); actor != "" {
		return l.move(ctx, back, "%s asks for changes", actor)
	}
	switch {
	case len(state.Approved) >= state.Needed && len(state.Against) == 0:
		return l.move(ctx, forward, "%d of %d reviews approve", len(state.Approved), state.Needed)
	case verdicts[reviewer] != "":
		return l.waits("%d more %s reviews", state.Needed-len(state.Approved), kind)
	case reviewer == "":
		return stop("no %s reviewer is configured (tasks.run)", kind)
	}
	subject := fmt.Sprint(l.v.Phase, l.v.Spec.Version, l.v.ArtifactRevision)
	if l.reviews[subject] >= maxReviews {
		return stop("%s was run %d times and gave no verdict: %s", reviewer, maxReviews, cmp.Or(l.why, "it said nothing"))
	}
	l.reviews[subject]++
	token, err := l.token(ctx, reviewer)
	if err != nil {
		return next{}, err
	}
	l.tell(Event{What: Reviewing, Actor: reviewer})
	l.bridge(ctx, Work{Actor: reviewer, TaskID: l.id, Token: token})
	return again()
}

// token returns the token that a person gave an actor, or a new grant for the task.
func (l *loop) token(ctx context.Context, actor string) (string, error) {
	if token, err := l.o.Token(actor); err != nil || token != "" {
		return token, err
	}
	return l.grant(ctx, actor, "")
}

func (l *loop) grant(ctx context.Context, actor, attempt string) (string, error) {
	var granted taskapi.Granted
	err := l.o.Daemon.Call(ctx, "task.grant", &taskapi.GrantParams{TaskID: l.id, Actor: actor, AttemptID: attempt, Keyed: taskapi.Keyed{RequestKey: "run-" + l.o.NewID()}}, &granted)
	if err == nil && granted.Token == "" {
		err = errors.New("the grant was made, and its token was lost with the connection") // another one is made with the next step
	}
	return granted.Token, err
}

// bridge runs an agent, and keeps its last words for the person who looks after the task.
func (l *loop) bridge(ctx context.Context, w Work) {
	l.why = ""
	if err := l.o.Bridge(ctx, w); err != nil {
		l.why = err.Error()
		l.tell(Event{What: AgentSays, Actor: w.Actor, Text: l.why})
	}
}

func (l *loop) running() *task.Attempt {
	if a := l.last(); a != nil && a.Status == task.AttemptRunning {
		return a
	}
	return nil
}

func (l *loop) last() *task.Attempt {
	if len(l.v.Attempts) == 0 {
		return nil
	}
	return &l.v.Attempts[len(l.v.Attempts)-1]
}

// open returns the effects that remain to be done.
func (l *loop) open() (list []*task.Effect) {
	for i := range l.v.Effects {
		if e := &l.v.Effects[i]; e.State == task.EffectPlanned || e.State == task.EffectFailed {
			list = append(list, e)
		}
	}
	return list
}

// newest returns the newest valid approval of an effect, or nil.
func (l *loop) newest(effect string) *task.Approval {
	for i := range slices.Backward(l.v.Approvals) {
		if a := &l.v.Approvals[i]; a.EffectID == effect && a.Undo == 0 {
			if a.Void || a.Used {
				return nil
			}
			return a
		}
	}
	return nil
}

// approvals requests missing approvals, and acts on people's decisions.
func (l *loop) approvals(ctx context.Context) (next, error) {
	pending := ""
	for _, e := range l.open() {
		a := l.newest(e.ID)
		switch {
		case a == nil || a.Status == task.ApprovalExpired || a.Status == task.ApprovalRevoked || !l.o.Now().Before(a.ExpiresAt):
			p := taskapi.RequestApprovalParams{Write: l.write(), RequestedBy: l.o.Me}
			p.Key, p.Kind, p.RequestedAction = e.Key, e.Kind, cmp.Or(e.RequestedAction, e.Key)
			var asked taskapi.ApprovalRequested
			if err := l.o.Daemon.Call(ctx, "task.request_approval", &p, &asked); err != nil {
				return next{}, err
			}
			l.tell(Event{What: Asks, Text: fmt.Sprintf("%s (%s): ocipd approvals show %s", p.RequestedAction, e.Kind, asked.ApprovalID)})
			return again()
		case a.Status == task.ApprovalChanges:
			return l.move(ctx, task.ExecutionReady, "changes are asked for: %s", cmp.Or(a.Note, e.Key))
		case a.Status == task.ApprovalRejected:
			return l.move(ctx, task.Failed, "%s was rejected", e.Key)
		case a.Status == task.ApprovalPending:
			pending = cmp.Or(pending, fmt.Sprintf("a person's word about %s: ocipd approvals show %s", e.Key, a.ID))
		}
	}
	if pending != "" {
		return l.waits("%s", pending)
	}
	return l.move(ctx, task.ReadyToResume, "all effects are approved")
}

// waitEffect bounds one call that waits for an effect to end, in seconds.
const waitEffect = 10

// resume runs the approved effects, in order.
func (l *loop) resume(ctx context.Context) (next, error) {
	for i := range l.v.Effects {
		e := &l.v.Effects[i]
		switch e.State {
		case task.EffectUncertain:
			return stop("nobody knows how %s ended: ocipd task effect settle %s --task %s", e.Key, e.ID, l.id)
		case task.EffectStarted:
			return l.waits("the end of %s", e.Key)
		case task.EffectDone, task.EffectCancelled:
			continue
		}
		a := l.newest(e.ID)
		if a == nil || a.Status != task.ApprovalApproved || !l.o.Now().Before(a.ExpiresAt) {
			return l.move(ctx, task.AwaitingApproval, "%s is %s, and has no approval", e.Key, e.State)
		}
		if e.EffectType == task.TypeExternal && l.o.Effects == nil {
			return stop("%s is for somebody else to do: ocipd task effect run --task %s --key %s", e.Key, l.id, e.Key)
		}
		l.tell(Event{What: Runs, Text: e.Key})
		return l.effect(ctx, e)
	}
	return l.move(ctx, task.Completed, "all effects are done")
}

// effect runs an effect, itself or through Effects.
func (l *loop) effect(ctx context.Context, e *task.Effect) (next, error) {
	if l.o.Effects != nil {
		token, err := l.token(ctx, l.o.Actors.Lobster)
		if err != nil {
			return next{}, err
		}
		if err := l.o.Effects(ctx, Work{Actor: l.o.Actors.Lobster, TaskID: l.id, Token: token}, e.Key); err != nil {
			l.why = err.Error()
			l.tell(Event{What: AgentSays, Actor: l.o.Actors.Lobster, Text: l.why})
			before := *e
			if err := l.look(ctx); err != nil {
				return next{}, err
			}
			if i := slices.IndexFunc(l.v.Effects, func(now task.Effect) bool { return now.ID == before.ID }); i >= 0 && l.v.Effects[i].State == before.State && l.v.Phase == task.ReadyToResume {
				return stop("the workflow did not run %s: %s", before.Key, l.why)
			}
		}
		return again()
	}
	p := taskapi.RunEffectParams{Ref: taskapi.Ref{TaskID: l.id}, IdempotencyKey: e.Key, RequestDigest: e.Digest, WaitS: waitEffect}
	err := l.o.Daemon.Call(ctx, "task.run_effect", &p, nil)
	if taskclient.Code(err) == task.RunnerAbsent {
		return l.waits("a runner, which runs %s: ocipd runner", e.Key)
	}
	return next{}, err
}
