package lobster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// script is a daemon and a Lobster with scripted answers. The last view repeats.
type script struct {
	t         *testing.T
	views     []any // *taskapi.View or error
	envelopes []string
	calls     []string
}

func (s *script) Call(_ context.Context, method string, _, result any) error {
	if method != "task.get" {
		s.t.Errorf("it calls %s", method)
	}
	next := s.views[0]
	if len(s.views) > 1 {
		s.views = s.views[1:]
	}
	if err, ok := next.(error); ok {
		return err
	}
	*result.(*taskapi.View) = *next.(*taskapi.View)
	return nil
}

func (s *script) lobster(_ context.Context, _ []string, args ...string) ([]byte, error) {
	s.calls = append(s.calls, args[0]+" "+args[len(args)-1])
	if len(s.envelopes) == 0 {
		s.t.Errorf("Lobster is run once more: %v", args)
		return nil, fmt.Errorf("killed")
	}
	out := s.envelopes[0]
	s.envelopes = s.envelopes[1:]
	return []byte(out), nil
}

func shown(phase task.Phase, state string, approvals ...task.Approval) *taskapi.View {
	v := &taskapi.View{Effects: []task.Effect{{ID: "eff_1", Planned: task.Planned{Key: "deploy"}, State: state}}, Approvals: approvals}
	v.Phase = phase
	return v
}

// The daemon's state decides, whatever Lobster says.
func TestRun(t *testing.T) {
	const ok, killed = `{"protocolVersion":1,"ok":true,"status":"ok"}`, ""
	const gate = `{"protocolVersion":1,"ok":true,"status":"needs_approval","requiresApproval":{"items":[{"approval_id":"apr_1"}],"resumeToken":"t"}}`
	const absent = `{"protocolVersion":1,"ok":false,"error":{"message":"workflow command failed (1): RUNNER_ABSENT: no runner"}}`
	const cancelled = `{"protocolVersion":1,"ok":true,"status":"cancelled"}`
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	approval := func(status string) task.Approval {
		return task.Approval{ID: "apr_1", EffectID: "eff_1", Status: status, ExpiresAt: begin.Add(1e6 * time.Hour)}
	}
	none := shown(task.AwaitingApproval, task.EffectPlanned)
	pending := shown(task.AwaitingApproval, task.EffectPlanned, approval(task.ApprovalPending))
	approved := shown(task.AwaitingApproval, task.EffectPlanned, approval(task.ApprovalApproved))
	ready := shown(task.ReadyToResume, task.EffectPlanned, approval(task.ApprovalApproved))
	used := approval(task.ApprovalApproved)
	used.Used = true
	started, done := shown(task.ReadyToResume, task.EffectStarted, used), shown(task.ReadyToResume, task.EffectDone, used)
	failed, unknown := shown(task.ReadyToResume, task.EffectFailed, used), shown(task.ReadyToResume, task.EffectUncertain, used)
	gone := approval(task.ApprovalApproved)
	gone.Void = true
	late := approval(task.ApprovalPending)
	late.ExpiresAt = begin
	away, over := api.Errorf(api.ConnectionClosed, "gone"), api.Errorf(api.Unauthorized, "ended")
	tests := []struct {
		name      string
		views     []any
		envelopes []string
		calls     string
		why       string
		said      string
	}{
		{"asked, approved, moved on, done", []any{none, pending, approved, ready, done}, []string{gate, ok}, "run, resume yes", "", "ocipd task transition"},
		{"done before", []any{done, done}, []string{ok}, "run", "", ""},
		{"rejected", []any{none, shown(task.AwaitingApproval, task.EffectPlanned, approval(task.ApprovalRejected))}, []string{gate, cancelled}, "run, resume no", "the approval is rejected", ""},
		{"expired", []any{none, shown(task.AwaitingApproval, task.EffectPlanned, late)}, []string{gate, cancelled}, "run, resume no", "the approval is expired", ""},
		{"sent back", []any{none, shown(task.ExecutionReady, task.EffectPlanned, gone)}, []string{gate, cancelled}, "run, resume no", "is gone: the task is in execution_ready", ""},
		{"the task is over", []any{none, pending, over}, []string{gate, cancelled}, "run, resume no", "the grant has ended", ""},
		{"begun by another run", []any{none, started, done}, []string{gate, ok}, "run, resume yes", "", ""},
		{"a gate of something else", []any{none, shown(task.AwaitingApproval, task.EffectPlanned)}, []string{gate}, "run", "asks for something else", ""},
		{"a gate about what is decided", []any{ready, ready}, []string{gate}, "run", "a gate more", ""},
		{"two gates, one approval", []any{none, ready}, []string{gate, gate}, "run, resume yes", "a gate more", ""},
		{"killed, in flight, then done", []any{ready, started, started, done}, []string{killed, ok}, "run, run", "", "the end of deploy"},
		{"killed before it began", []any{ready, ready, ready, done}, []string{killed, ok}, "run, run", "", "run again"},
		{"killed always", []any{ready}, []string{killed, killed, killed, killed}, "run, run, run, run", "said nothing", ""},
		{"no runner", []any{ready, ready, ready, ready, ready, ready, ready, ready, ready, ready, done}, []string{absent, absent, absent, absent, absent, ok}, "run, run, run, run, run, run", "", "ocipd runner"},
		{"failed", []any{ready, failed}, []string{killed}, "run", "it failed", ""},
		{"failed, and approved again", []any{ready, shown(task.ReadyToResume, task.EffectFailed, used, approval(task.ApprovalApproved)), ready, done}, []string{killed, ok}, "run, run", "", ""},
		{"nobody knows", []any{ready, unknown}, []string{killed}, "run", "settle eff_1 --task tsk_1", ""},
		{"no gate", []any{none, pending}, []string{ok}, "run", "the approval is pending", ""},
		{"no effect", []any{ready, ready}, []string{ok}, "run", "did not run it", ""},
		{"no request", []any{none, none}, []string{ok}, "run", "did not ask", ""},
		{"input", []any{none, none}, []string{`{"protocolVersion":1,"ok":true,"status":"needs_input"}`}, "run", "asks for input", ""},
		{"the daemon is away", []any{away, none, away, pending, ready, away, done}, []string{gate, ok}, "run, resume yes", "", "away"},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := &script{t: t, views: tt.views, envelopes: tt.envelopes}
			var said []string
			r, err := Run(t.Context(), &Options{Daemon: s, Lobster: s.lobster, TaskID: "tsk_1", Key: "deploy", Every: time.Second, Now: func() time.Time { return begin },
				Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
			var calls []string
			for _, c := range s.calls {
				if strings.HasPrefix(c, "run") {
					c = "run"
				}
				calls = append(calls, c)
			}
			switch {
			case err != nil || strings.Join(calls, ", ") != tt.calls || len(s.envelopes) > 0:
				t.Errorf("%s: %v, %v", tt.name, calls, err)
			case r.Done() != (tt.why == "") || !strings.Contains(r.Why, tt.why):
				t.Errorf("%s: %+v", tt.name, r)
			case !strings.Contains(strings.Join(said, "\n"), tt.said):
				t.Errorf("%s: said %q", tt.name, said)
			}
		})
	}
}

// An interrupted run says so, and its error is the daemon's refusal.
func TestRunIsRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &script{t: t, views: []any{shown(task.AwaitingApproval, task.EffectPlanned)}, envelopes: []string{"", ""}}
	o := &Options{Daemon: s, Lobster: s.lobster, TaskID: "tsk_1", Key: "deploy", Every: time.Second, Now: time.Now, Say: func(string, ...any) {}}
	if _, err := Run(ctx, o); err == nil {
		t.Error("it was not interrupted")
	}
	s.views = []any{api.Errorf(api.Forbidden, "not yours")}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("it ends with %v", err)
	}
}
