package acp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Result is the outcome of a run.
type Result struct {
	TaskID    string `json:"task_id"`
	AttemptID string `json:"attempt_id,omitzero"`
	// Outcome is the attempt's outcome, succeeded for a written review, or [Ended] if
	// the attempt was already over.
	Outcome string `json:"outcome"`
	Failure string `json:"failure_code,omitzero"`
	Verdict string `json:"verdict,omitzero"`
	Summary string `json:"summary,omitzero"`
}

// Ended is the outcome of an attempt that somebody else ended.
const Ended = "ended"

// Good reports whether the attempt or review succeeded.
func (r *Result) Good() bool { return r.Outcome == task.AttemptSucceeded }

// ending says how the agent's work ended.
type ending struct {
	outcome, code, summary string
	// turned is set if the agent itself ended its turn.
	turned bool
}

func failed(code, format string, args ...any) ending {
	return ending{outcome: task.AttemptFailed, code: code, summary: fmt.Sprintf(format, args...)}
}

// stopped returns the ending for a stop reason.
func stopped(why sdk.StopReason) ending {
	switch why {
	case sdk.StopReasonEndTurn:
		return ending{outcome: task.AttemptSucceeded, turned: true}
	case sdk.StopReasonRefusal:
		return failed("refused", "the agent refused")
	case sdk.StopReasonMaxTokens:
		return failed("max_tokens", "the agent came to its limit of tokens")
	case sdk.StopReasonMaxTurnRequests:
		return failed("max_turns", "the agent came to its limit of requests in a turn")
	case sdk.StopReasonCancelled:
		return ending{outcome: task.AttemptAborted, summary: "the agent says that it was cancelled"}
	default:
		return failed("agent_error", "the agent stopped for a reason that the protocol does not have: %.64q", why)
	}
}

// notSignedIn is the error code of an agent that needs a login first.
const notSignedIn = -32000

// refused returns the ending for an error answer of the agent.
func (b *bridge) refused(method string, err error) ending {
	e, ok := errors.AsType[*sdk.RequestError](err)
	if ok && e.Code == notSignedIn {
		return failed("environment", "the agent is not signed in: %s", e.Message)
	}
	return failed("agent_error", "the agent answered %s with an error: %v", method, err)
}

// finish records the agent's outputs and ends the attempt.
func (b *bridge) finish(ctx context.Context, e ending) (Result, error) {
	r := Result{TaskID: b.id, AttemptID: b.attempt.ID, Outcome: e.outcome, Failure: e.code, Summary: e.summary}
	if e.outcome == Ended {
		return r, nil
	}
	// Send all remaining news, at least the session id.
	for range maxCalls + 1 {
		more, _, err := b.news(ctx)
		if over(err) {
			r.Outcome, r.Failure, r.Summary = Ended, "", err.Error()
			return r, nil
		}
		if err != nil {
			b.o.Say("not all that the agent did is on record: %v", err)
		}
		if !more || err != nil && !invalid(err) {
			break
		}
	}
	if e.turned {
		made, err := b.deliver(ctx)
		switch {
		case over(err):
			r.Outcome, r.Summary = Ended, err.Error()
			return r, nil
		case err != nil:
			return r, err
		case !made:
			r.Outcome, r.Failure = task.AttemptFailed, "invalid_output"
			r.Summary = "the agent ended its turn and has made nothing that was asked for: no artifact that is recorded has a name of the outputs, and no file matches the outputs of the spec: " + strings.Join(b.view.Spec.Outputs, ", ")
		}
	}
	r.Summary = cut(r.Summary, task.MaxText)
	p := taskapi.FinishAttemptParams{Write: b.write(), AttemptID: b.attempt.ID, Outcome: r.Outcome, FailureCode: r.Failure, ErrorSummary: r.Summary, Fence: &b.attempt.Fence}
	if r.Outcome == task.AttemptSucceeded {
		p.ErrorSummary = ""
	}
	err := b.o.Daemon.Call(ctx, "task.finish_attempt", &p, nil)
	if over(err) {
		r.Outcome, r.Failure, r.Summary = Ended, "", err.Error()
		return r, nil
	}
	return r, err
}

// reviewed finds the verdict that the reviewer submitted, or reads one from the agent's last text.
func (b *bridge) reviewed(ctx context.Context, e ending) (Result, error) {
	r := Result{TaskID: b.id, AttemptID: b.view.CurrentAttempt, Outcome: e.outcome, Failure: e.code, Summary: e.summary}
	v, err := b.get(ctx)
	if err != nil {
		if over(err) {
			r.Outcome, r.Summary = Ended, err.Error()
			return r, nil
		}
		return r, err
	}
	known := func(id string) bool {
		return slices.ContainsFunc(b.view.Reviews, func(old taskapi.Review) bool { return old.ID == id })
	}
	for i := range slices.Backward(v.Reviews) {
		if w := &v.Reviews[i]; w.Actor == b.o.Attached.Actor && !known(w.ID) {
			r.Outcome, r.Failure, r.Verdict, r.Summary = task.AttemptSucceeded, "", w.Verdict, w.Summary
			return r, nil
		}
	}
	if !e.turned {
		return r, nil
	}
	word, ok := readVerdict(b.told.text())
	if !ok {
		r.Outcome, r.Failure = task.AttemptFailed, "invalid_output"
		r.Summary = "the agent ended its turn without a verdict: it has not called task_append_review, and its text does not end with one"
		return r, nil
	}
	p := taskapi.ReviewParams{
		Write: b.write(), AttemptID: b.view.CurrentAttempt, ReviewType: task.ReviewSpec, ReviewerRef: b.o.Attached.Actor, Verdict: word.Verdict, Findings: word.Findings,
		Summary: cut(strings.TrimSpace("via: text\n"+b.clean(word.Summary)), task.MaxText), Subject: &b.view.ArtifactRevision,
	}
	if b.o.Attached.Role == task.QualityReviewer {
		p.ReviewType = task.ReviewQuality
	}
	if b.view.Phase == task.SpecReview {
		p.AttemptID, p.Subject = "", &b.view.Spec.Version
	}
	r.Verdict, r.Summary = word.Verdict, word.Summary
	return r, b.o.Daemon.Call(ctx, "task.append_review", &p, nil)
}

// clean removes secrets from a text: those with a known form, and the values of the
// agent's variables.
func (b *bridge) clean(text string) string {
	text = strings.ReplaceAll(text, b.o.Token, "[OCIPD_TOKEN]")
	for _, name := range b.agent.Env {
		if value, ok := b.o.Lookup(name); ok && len(value) >= leastSecret && !strings.HasPrefix(value, "/") {
			text = strings.ReplaceAll(text, value, "["+name+"]")
		}
	}
	return b.redact.Text(strings.ToValidUTF8(text, "�"))
}

// leastSecret is the minimum length of a variable's value that clean removes.
const leastSecret = 8

// cut shortens a text to a limit.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
