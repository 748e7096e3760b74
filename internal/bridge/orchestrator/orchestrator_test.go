package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/test/buildtest"
)

// store is a daemon with a sequence of views, the last of which repeats, and scripted answers.
type store struct {
	t *testing.T

	mu    sync.Mutex
	views []*taskapi.View
	// pages are the pages of one list.
	pages   []*taskapi.View
	answers map[string][]any
	calls   []string
	ready   []string
	granted int
	// stays keeps ready tasks ready, whatever happens to them.
	stays bool
}

func (s *store) Call(_ context.Context, method string, params, result any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wrong := members.Check(params); len(wrong) > 0 {
		s.t.Errorf("%s: %v", method, wrong)
	}
	switch p := params.(type) {
	case *taskapi.GetParams:
		if p.Part != "" {
			*result.(*taskapi.View), s.pages = *s.pages[0], s.pages[1:]
			return nil
		}
		*result.(*taskapi.View) = *s.views[0]
		if len(s.views) > 1 {
			s.views = s.views[1:]
		}
		return nil
	case *taskapi.ClaimParams:
		if *p.LeaseS == 0 {
			s.calls = append(s.calls, "released")
		}
		return nil
	case *taskapi.TransitionParams:
		s.calls = append(s.calls, "to "+string(p.ToPhase))
	case *taskapi.StartAttemptParams:
		s.calls = append(s.calls, "attempt of "+p.WorkerRef)
	case *taskapi.GrantParams:
		s.granted++
		result.(*taskapi.Granted).Token = fmt.Sprintf("ocg_%s%d", p.Actor, s.granted)
	case *taskapi.OpenCircuitParams:
		s.calls = append(s.calls, "circuit")
	case *taskapi.RequestApprovalParams:
		s.calls = append(s.calls, "ask "+p.Key)
	case *taskapi.RunEffectParams:
		s.calls = append(s.calls, "run "+p.IdempotencyKey)
	case *taskapi.FinishAttemptParams:
		s.calls = append(s.calls, "finish "+cmp.Or(p.FailureCode, p.Outcome))
	case *taskapi.ListReadyParams:
		limit := 50
		if p.Limit != nil {
			limit = *p.Limit
		}
		for _, id := range s.ready[:min(limit, len(s.ready))] {
			l := result.(*taskapi.List)
			l.Tasks = append(l.Tasks, taskapi.Line{})
			l.Tasks[len(l.Tasks)-1].ID = id
		}
		if !s.stays {
			s.ready = nil
		}
		return nil
	default:
		s.t.Errorf("it calls %s", method)
	}
	if list := s.answers[method]; len(list) > 0 {
		s.answers[method] = list[1:]
		if err, ok := list[0].(error); ok {
			return err
		}
	}
	if started, ok := result.(*taskapi.AttemptStarted); ok {
		started.AttemptID, started.Ordinal, started.Fence = attempt1, 1, 1
	}
	return nil
}

const (
	task1    = "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	attempt1 = "att_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	effect1  = "eff_01a1fe46-d68f-77d6-9611-d5a7674802c7"
)

func refused(code task.Code) error {
	return &api.Error{Code: api.Conflict, Message: "no: " + string(code), Details: map[string]any{"task": map[string]any{"code": string(code)}}}
}

// in is a task in a phase, with its own revision.
func in(phase task.Phase, change ...func(*taskapi.View)) *taskapi.View {
	v := &taskapi.View{RetriesLeft: 3}
	v.ID, v.Title, v.Phase, v.Spec.Version = task1, "Export", phase, 1
	v.Gates.Spec.Needed, v.Gates.Quality.Needed = 1, 1
	for _, c := range change {
		c(v)
	}
	return v
}

func revised(n int) func(*taskapi.View) { return func(v *taskapi.View) { v.Revision = n } }

func reviewed(kind, verdict string, gate bool) func(*taskapi.View) {
	return func(v *taskapi.View) {
		actor := map[string]string{task.ReviewSpec: "checker", task.ReviewQuality: "critic"}[kind]
		r := taskapi.Review{}
		r.Actor, r.Type, r.Verdict, r.Subject.Gate, r.Subject.Spec = actor, kind, verdict, gate, 1
		v.Reviews = append(v.Reviews, r)
		state := &v.Gates.Spec
		if kind == task.ReviewQuality {
			state = &v.Gates.Quality
		}
		if verdict == task.VerdictApproved {
			state.Approved = append(state.Approved, actor)
		} else {
			state.Against = append(state.Against, actor)
		}
	}
}

func tried(status, failure string, left int) func(*taskapi.View) {
	return func(v *taskapi.View) {
		v.Attempts = append(v.Attempts, task.Attempt{ID: attempt1, Ordinal: len(v.Attempts) + 1, Actor: "builder", Status: status, Failure: failure})
		v.RetriesLeft = left
	}
}

func planned(state string, approvals ...task.Approval) func(*taskapi.View) {
	return func(v *taskapi.View) {
		v.Effects = append(v.Effects, task.Effect{ID: effect1, Planned: task.Planned{Key: "deploy", Kind: "deployment"}, EffectType: task.TypeCommand, State: state, Digest: "sha256:" + strings.Repeat("0", 64)})
		v.Approvals = approvals
	}
}

func approval(status string, left time.Duration) task.Approval {
	return task.Approval{ID: "apr_1", EffectID: effect1, Status: status, ExpiresAt: time.Now().Add(left)}
}

// Each phase has its step, according to the stored state.
func TestSteps(t *testing.T) {
	const full = time.Hour
	tests := []struct {
		name    string
		views   func() []*taskapi.View
		answers map[string][]any
		bridge  error
		calls   string
		why     string
		change  func(*Options)
	}{
		{name: "a spec that is complete", views: func() []*taskapi.View { return []*taskapi.View{in(task.SpecDraft), in(task.Completed, revised(1))} }, calls: "to spec_review"},
		{name: "a spec that is not", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecDraft, func(v *taskapi.View) { v.Missing = []task.Missing{{Field: "goal", Problem: "absent"}} })}
		}, why: "not complete"},
		{name: "a spec that was found wanting", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecDraft, reviewed(task.ReviewSpec, task.VerdictChanges, false))}
		}, why: "found wanting"},
		{name: "a review, then forward", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecReview), in(task.SpecReview, revised(1), reviewed(task.ReviewSpec, task.VerdictApproved, false)), in(task.Completed, revised(2))}
		}, calls: "checker ocg_checker1, to execution_ready"},
		{name: "no verdict, twice", views: func() []*taskapi.View { return []*taskapi.View{in(task.SpecReview)} }, bridge: errors.New("it crashed"),
			calls: "checker ocg_checker1, checker ocg_checker2", why: "gave no verdict: it crashed"},
		{name: "changes of the spec", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecReview, reviewed(task.ReviewSpec, task.VerdictChanges, false)), in(task.Completed, revised(1))}
		}, calls: "to spec_draft"},
		{name: "changes of the work", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecGate, reviewed(task.ReviewSpec, task.VerdictChanges, true)), in(task.Completed, revised(1))}
		}, calls: "to execution_ready"},
		{name: "blocked", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.QualityGate, reviewed(task.ReviewQuality, task.VerdictBlocked, true))}
		}, why: "critic has blocked it"},
		{name: "no reviewer", views: func() []*taskapi.View { return []*taskapi.View{in(task.SpecGate)} }, change: func(o *Options) { o.Actors.SpecReviewer = "" }, why: "no spec reviewer"},
		{name: "good, and nothing to do in the world", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.QualityGate, reviewed(task.ReviewQuality, task.VerdictApproved, true)), in(task.Completed, revised(1))}
		}, calls: "to completed"},
		{name: "good, and an effect is planned", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.QualityGate, reviewed(task.ReviewQuality, task.VerdictApproved, true), planned(task.EffectPlanned)), in(task.Completed, revised(1))}
		}, calls: "to awaiting_approval"},
		{name: "an effect was planned after the reviews", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.AwaitingApproval, planned(task.EffectPlanned), func(v *taskapi.View) {
				v.Transitions = []task.Option{{To: task.Failed, Allowed: true}, {To: task.SpecGate, Allowed: true}}
			}), in(task.Completed, revised(1))}
		}, calls: "to spec_gate"},
		{name: "an attempt", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady), in(task.Executing, revised(1), tried(task.AttemptSucceeded, "", 2)), in(task.Completed, revised(2))}
		}, calls: "attempt of builder, to executing, builder ocg_builder1"},
		{name: "an attempt whose bridge says nothing", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady), in(task.Executing, revised(1), tried(task.AttemptRunning, "", 2)), in(task.Completed, revised(2))}
		}, bridge: errors.New("no such program"), calls: "attempt of builder, to executing, builder ocg_builder1, finish environment"},
		{name: "an attempt that has begun", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady, tried(task.AttemptRunning, "", 2)), in(task.Completed, revised(1))}
		}, calls: "to executing"},
		{name: "the last attempt is the escalation's", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady, func(v *taskapi.View) { v.Escalate = true }), in(task.Completed, revised(1))}
		}, calls: "attempt of expert, to executing, expert ocg_expert1"},
		{name: "no attempt is left", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady), in(task.CircuitOpen, revised(1))}
		}, answers: map[string][]any{"task.start_attempt": {refused(task.RetriesExhausted)}}, calls: "attempt of builder, circuit", why: "circuit close"},
		{name: "not yet", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady), in(task.ExecutionReady), in(task.Completed, revised(1))}
		}, answers: map[string][]any{"task.start_attempt": {refused(task.NotBefore)}}, calls: "attempt of builder, attempt of builder, to executing, builder ocg_builder1"},
		{name: "other tasks first", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ExecutionReady, func(v *taskapi.View) { v.OpenDependencies = []string{"tsk_2"} }), in(task.Completed, revised(1))}
		}, answers: map[string][]any{"task.start_attempt": {refused(task.GuardFailed)}}, calls: "attempt of builder"},
		{name: "no executor", views: func() []*taskapi.View { return []*taskapi.View{in(task.ExecutionReady)} }, change: func(o *Options) { o.Actors.Executor = "" }, why: "no executor"},
		{name: "delivered", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.Executing, tried(task.AttemptSucceeded, "", 2)), in(task.Completed, revised(1))}
		}, calls: "to spec_gate"},
		{name: "runs elsewhere", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.Executing, tried(task.AttemptRunning, "", 2)), in(task.Completed, revised(1))}
		}},
		{name: "is due later, then is made", views: func() []*taskapi.View {
			later := in(task.Executing, tried(task.AttemptRetrying, "crashed", 2))
			later.Attempts[0].RetryAt = time.Now().Add(1500 * time.Millisecond)
			return []*taskapi.View{later, later, later, in(task.Completed, revised(1))}
		}, calls: "attempt of builder, builder ocg_builder1"},
		{name: "the last one failed", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.Executing, tried(task.AttemptFailed, "crashed", 0)), in(task.CircuitOpen, revised(1))}
		}, calls: "circuit", why: "circuit close"},
		{name: "not tried again", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.Executing, tried(task.AttemptFailed, "refused", 2))}
		}, why: "attempt 1 is failed (refused)"},
		{name: "aborted", views: func() []*taskapi.View { return []*taskapi.View{in(task.Executing, tried(task.AttemptAborted, "", 2))} }, why: "attempt 1 is aborted (by hand)"},
		{name: "asks, waits, goes on", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.AwaitingApproval, planned(task.EffectPlanned)), in(task.AwaitingApproval, revised(1), planned(task.EffectPlanned, approval(task.ApprovalPending, full))),
				in(task.AwaitingApproval, revised(2), planned(task.EffectPlanned, approval(task.ApprovalApproved, full))), in(task.Completed, revised(3))}
		}, calls: "ask deploy, to ready_to_resume"},
		{name: "asks again after expiry", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.AwaitingApproval, planned(task.EffectPlanned, approval(task.ApprovalApproved, 0))), in(task.Completed, revised(1))}
		}, calls: "ask deploy"},
		{name: "a person asks for changes", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.AwaitingApproval, planned(task.EffectPlanned, approval(task.ApprovalChanges, full))), in(task.Completed, revised(1))}
		}, calls: "to execution_ready"},
		{name: "a person says no", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.AwaitingApproval, planned(task.EffectPlanned, approval(task.ApprovalRejected, full))), in(task.Failed, revised(1))}
		}, calls: "to failed"},
		{name: "runs what is approved, once there is a runner", views: func() []*taskapi.View {
			ready := in(task.ReadyToResume, planned(task.EffectPlanned, approval(task.ApprovalApproved, full)))
			return []*taskapi.View{ready, ready, in(task.ReadyToResume, revised(1), planned(task.EffectStarted)), in(task.ReadyToResume, revised(2), planned(task.EffectDone)), in(task.Completed, revised(3))}
		}, answers: map[string][]any{"task.run_effect": {refused(task.RunnerAbsent)}}, calls: "run deploy, run deploy, to completed"},
		{name: "runs it through a workflow", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ReadyToResume, planned(task.EffectPlanned, approval(task.ApprovalApproved, full))), in(task.ReadyToResume, revised(1), planned(task.EffectDone)), in(task.Completed, revised(2))}
		}, change: func(o *Options) {
			o.Effects = func(_ context.Context, w Work, key string) error {
				return o.Bridge(t.Context(), Work{Actor: "workflow of " + key, Token: w.Token})
			}
		}, calls: "workflow of deploy ocg_gate1, to completed"},
		{name: "a workflow that does not run it", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.ReadyToResume, planned(task.EffectPlanned, approval(task.ApprovalApproved, full)))}
		}, change: func(o *Options) {
			o.Effects = func(context.Context, Work, string) error { return errors.New("no Lobster") }
		}, why: "did not run deploy: no Lobster"},
		{name: "failed, to be approved again", views: func() []*taskapi.View {
			used := approval(task.ApprovalApproved, full)
			used.Used = true
			return []*taskapi.View{in(task.ReadyToResume, planned(task.EffectFailed, used)), in(task.Completed, revised(1))}
		}, calls: "to awaiting_approval"},
		{name: "nobody knows", views: func() []*taskapi.View { return []*taskapi.View{in(task.ReadyToResume, planned(task.EffectUncertain))} }, why: "effect settle " + effect1},
		{name: "somebody else's to do", views: func() []*taskapi.View {
			v := in(task.ReadyToResume, planned(task.EffectPlanned, approval(task.ApprovalApproved, full)))
			v.Effects[0].EffectType = task.TypeExternal
			return []*taskapi.View{v}
		}, why: "somebody else to do"},
		{name: "an open circuit", views: func() []*taskapi.View { return []*taskapi.View{in(task.CircuitOpen)} }, why: "circuit close"},
		{name: "failed for good", views: func() []*taskapi.View { return []*taskapi.View{in(task.Failed)} }},
		{name: "changed meanwhile", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecDraft), in(task.SpecDraft), in(task.Completed, revised(1))}
		}, answers: map[string][]any{"task.transition": {refused(task.RevisionMismatch)}}, calls: "to spec_review, to spec_review"},
		{name: "another orchestrator's", views: func() []*taskapi.View { return []*taskapi.View{in(task.SpecDraft)} },
			answers: map[string][]any{"task.transition": {refused(task.Claimed)}}, calls: "to spec_review", why: "another orchestrator has it"},
		{name: "the daemon is away", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.SpecDraft), in(task.SpecDraft), in(task.Completed, revised(1))}
		}, answers: map[string][]any{"task.transition": {api.Errorf(api.ConnectionClosed, "gone")}}, calls: "to spec_review, to spec_review"},
		{name: "refused", views: func() []*taskapi.View { return []*taskapi.View{in(task.SpecDraft)} },
			answers: map[string][]any{"task.transition": {api.Errorf(api.Forbidden, "the policy says no")}}, calls: "to spec_review", why: "the policy says no"},
		{name: "nowhere", views: func() []*taskapi.View {
			return []*taskapi.View{in(task.Executing, tried(task.AttemptSucceeded, "", 2))}
		},
			calls: strings.TrimSuffix(strings.Repeat("to spec_gate, ", maxSame+2), ", "), why: "does not get on in executing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{t: t, views: tt.views(), answers: tt.answers}
				o := options(s, tt.bridge)
				if tt.change != nil {
					tt.change(o)
				}
				got := Run(t.Context(), o, []string{task1}, 1)[0]
				calls := slices.DeleteFunc(slices.Clone(s.calls), func(c string) bool { return c == "released" })
				if strings.Join(calls, ", ") != tt.calls || (got.Why == "") != (tt.why == "") || !strings.Contains(got.Why, tt.why) {
					t.Errorf("it called %q and stopped with %q", calls, got.Why)
				}
				if len(s.calls) == 0 || s.calls[len(s.calls)-1] != "released" {
					t.Errorf("the task is not given back: %q", s.calls)
				}
			})
		})
	}
}

func options(s *store, bridge error) *Options {
	id := 0
	return &Options{
		Daemon: s, Me: "lead", Actors: Actors{Executor: "builder", Escalation: "expert", SpecReviewer: "checker", QualityReviewer: "critic", Lobster: "gate"},
		Token: func(string) (string, error) { return "", nil },
		Bridge: func(_ context.Context, w Work) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.calls = append(s.calls, w.Actor+" "+w.Token)
			return bridge
		},
		Every: time.Second, Tell: func(Event) {}, Now: time.Now,
		NewID: func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			id++
			return fmt.Sprint(id)
		},
	}
}

// An interrupted loop aborts the attempt as the orchestrator before the bridge is told to end: what
// the executor itself aborts counts as a failure.
func TestInterruptedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, views: []*taskapi.View{in(task.ExecutionReady)}}
		o := options(s, nil)
		ctx, interrupt := context.WithCancel(t.Context())
		o.Bridge = func(ctx context.Context, _ Work) error {
			interrupt()
			<-ctx.Done()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.calls = append(s.calls, "the bridge ends")
			return nil
		}
		got := Run(ctx, o, []string{task1}, 1)[0]
		aborted, ends := slices.Index(s.calls, "finish aborted"), slices.Index(s.calls, "the bridge ends")
		if got.Why != "it was interrupted" || aborted < 0 || aborted > ends {
			t.Errorf("it ends with %+v after %q", got, s.calls)
		}
	})
}

// A token that a person gave is used. If it cannot be read, no grant replaces it.
func TestGivenTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, views: []*taskapi.View{in(task.SpecReview), in(task.Completed, revised(1))}}
		o := options(s, nil)
		o.Token = func(actor string) (string, error) { return "ocg_of_a_person_for_" + actor, nil }
		if Run(t.Context(), o, []string{task1}, 1); s.calls[0] != "checker ocg_of_a_person_for_checker" || s.granted > 0 {
			t.Errorf("it called %q", s.calls)
		}
		s.views, o.Token = []*taskapi.View{in(task.SpecReview)}, func(string) (string, error) { return "", errors.New("unreadable") }
		if got := Run(t.Context(), o, []string{task1}, 1)[0]; got.Why != "unreadable" || s.granted > 0 {
			t.Errorf("it ends with %+v", got)
		}
	})
}

// Each ready task is taken once, a few at a time, and an interrupted run releases all.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, views: []*taskapi.View{in(task.Completed)}, ready: []string{task1, task1[:len(task1)-1] + "3", task1[:len(task1)-1] + "4", task1}}
		results, err := Ready(t.Context(), options(s, nil), nil, 3)
		if err != nil || len(results) != 3 {
			t.Errorf("%v, %v", results, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.ready, s.views, s.calls = []string{task1}, []*taskapi.View{in(task.Executing, tried(task.AttemptRunning, "", 2))}, nil
		results, err = Ready(ctx, options(s, nil), nil, 1)
		if err == nil || len(results) != 1 || results[0].Why != "it was interrupted" || !slices.Contains(s.calls, "released") {
			t.Errorf("%v, %v, %q", results, err, s.calls)
		}
	})
}

// A task that stays ready although nothing can be done does not block those after it.
func TestReadyBehindMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, views: []*taskapi.View{in(task.Completed)}, stays: true}
		for i := range 70 {
			s.ready = append(s.ready, fmt.Sprintf("%s%02d", task1[:len(task1)-2], i))
		}
		if results, err := Ready(t.Context(), options(s, nil), nil, 4); err != nil || len(results) != len(s.ready) {
			t.Errorf("%d of %d were taken, %v", len(results), len(s.ready), err)
		}
	})
}

// Effects that a view omits do not count as done.
func TestLeftOutEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older := task.Effect{ID: effect1, Planned: task.Planned{Key: "deploy", Kind: "deployment", RequestedAction: "Deploy"}, State: task.EffectPlanned}
		newer := task.Effect{ID: effect1[:len(effect1)-1] + "8", Planned: task.Planned{Key: "tell"}, State: task.EffectDone}
		left := in(task.AwaitingApproval, func(v *taskapi.View) { v.Effects, v.More = []task.Effect{newer}, []string{"effects"} })
		first := in(task.AwaitingApproval, func(v *taskapi.View) { v.Effects, v.More = []task.Effect{older}, []string{"effects"} })
		second := in(task.AwaitingApproval, func(v *taskapi.View) { v.Effects = []task.Effect{newer} })
		s := &store{t: t, views: []*taskapi.View{left, in(task.Completed)}, pages: []*taskapi.View{first, second}}
		Run(t.Context(), options(s, nil), []string{task1}, 1)
		if len(s.calls) == 0 || s.calls[0] != "ask deploy" {
			t.Errorf("it made %q", s.calls)
		}
	})
}

// Of several verdicts the most serious one counts, regardless of its author.
func TestGraverVerdict(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := &store{t: t, views: []*taskapi.View{in(task.QualityGate, reviewed(task.ReviewQuality, task.VerdictChanges, true), func(v *taskapi.View) {
				r := taskapi.Review{}
				r.Actor, r.Type, r.Verdict, r.Subject.Gate, r.Subject.Spec = "other", task.ReviewQuality, task.VerdictBlocked, true, 1
				v.Reviews = append(v.Reviews, r)
			})}}
			if results := Run(t.Context(), options(s, nil), []string{task1}, 1); results[0].Why != "other has blocked it" {
				t.Errorf("it stops: %q, after %q", results[0].Why, s.calls)
			}
		})
	}
}

// Whatever bytes an agent writes, its reported words are valid text.
func TestLinesAreText(t *testing.T) {
	var said []string
	l := &lines{say: func(line string) { said = append(said, line) }}
	for _, part := range []string{"a \xff b\n", strings.Repeat("x", maxLine-1) + "é\n", "last"} {
		if _, err := l.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	l.end()
	if want := []string{"a � b", strings.Repeat("x", maxLine-1) + "�", "last"}; !slices.Equal(said, want) {
		t.Errorf("it says %d lines, the first %q", len(said), said[0])
	}
}

// A bridge is a separate process that gets the grant's token and not the loop's.
func TestBridges(t *testing.T) {
	var said []string
	b := &Bridges{Program: "/bin/sh", Env: []string{"OCIPD_TOKEN=mine", "OCIPD_TOKEN_FILE=/mine", "A=b"}, Say: func(_ Work, line string) { said = append(said, line) }}
	// The bridge's command line is ocipd's: `acp run --task ID`.
	script := t.TempDir() + "/ocipd"
	buildtest.Executable(t, script, "#!/bin/sh\necho \"$*\"; env | grep -e OCIPD -e ^A= | sort; exit 3\n")
	b.Program = script
	err := b.Run(t.Context(), Work{Actor: "builder", TaskID: task1, Token: "ocg_1"})
	if err == nil || err.Error() != "OCIPD_TOKEN=ocg_1" || !slices.Equal(said, []string{"acp run --task " + task1, "A=b", "OCIPD_TOKEN=ocg_1"}) {
		t.Errorf("%q, %v", said, err)
	}
	b.Program = "/nowhere"
	if err := b.Run(t.Context(), Work{}); err == nil || !strings.Contains(err.Error(), "cannot be started") {
		t.Errorf("no program: %v", err)
	}
	buildtest.Executable(t, script, "#!/bin/sh\nexec 2>/dev/null\ntrap 'echo ended; exit 1' TERM\necho begun\nwhile :; do sleep 0.05; done\n")
	b.Program, said = script, nil
	ctx, cancel := context.WithCancel(t.Context())
	b.Say = func(_ Work, line string) {
		if said = append(said, line); line == "begun" {
			cancel()
		}
	}
	if err := b.Run(ctx, Work{}); err == nil || !slices.Equal(said, []string{"begun", "ended"}) {
		t.Errorf("interrupted: %q, %v", said, err)
	}
}

// A bridge that does not end is killed with everything that it started. A process that
// holds its output is not waited for.
func TestBridgeThatStays(t *testing.T) {
	t.Parallel()
	script := t.TempDir() + "/ocipd"
	buildtest.Executable(t, script, "#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\necho $!\nwait\nwhile :; do sleep 0.05; done\n")
	ctx, cancel := context.WithCancel(t.Context())
	child := 0
	b := &Bridges{Program: script, Env: os.Environ(), leave: time.Millisecond, Say: func(_ Work, line string) {
		// The shell also prints a line if its command is killed.
		if pid, err := strconv.Atoi(line); err == nil {
			child = pid
			cancel()
		}
	}}
	if err := b.Run(ctx, Work{}); err == nil {
		t.Error("it ended well")
	}
	// It is not our child, so its state shows whether it is gone or a zombie.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
	if child == 0 || err == nil && !strings.Contains(string(text), ") Z ") && !strings.Contains(string(text), ") X ") {
		t.Errorf("process %d is still there: %s", child, text)
	}
}
