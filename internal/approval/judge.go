package approval

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
	"github.com/openclawos/ocipd/internal/store"
)

// Judge is an operator's model that is asked whether a held message commits somebody.
type Judge struct {
	Model string
	// Releases is set if its no releases the message. Otherwise a person is only told its answer.
	Releases bool
}

// JudgeParams has a model's answer about a held message (operator socket only). The digest
// names the message that the model was shown.
type JudgeParams struct {
	ApprovalID   string `json:"approvalId" is:"required max=256" doc:"The approval request."`
	Digest       string `json:"digest" is:"required max=256" doc:"The digest of the request that the model was shown."`
	Model        string `json:"model" is:"required max=256" doc:"The model, as ocip.judge names it."`
	PromptDigest string `json:"promptDigest" is:"required max=256" doc:"The digest of the question; it has to be the daemon's."`
	Answer       string `json:"answer" is:"required max=2048" doc:"The model's answer, byte for byte."`
}

// JudgeResult is what became of a request after a model's answer.
type JudgeResult struct {
	State    string `json:"state"`
	Released bool   `json:"released" doc:"true if the answer released the message."`
	AuditSeq uint64 `json:"auditSeq" doc:"The record's number."`
}

// byJudge stands for the person in a decision by the operator's model, and is the proof of it on
// record.
const byJudge = "judge"

// IsJudged reports whether the details of a decision's record say that a model made it.
func IsJudged(details map[string]any) bool { return details["proof"] == byJudge }

// JudgeReleases reports whether a model's no releases messages.
func (c *Decider) JudgeReleases() bool { return c.Rules.Judge != nil && c.Rules.Judge.Releases }

// Judge takes a model's answer about a request, once for each digest. The process that brings it is
// believed about the answer alone: whether a model may decide about the request is weighed here.
func (c *Decider) Judge(ctx context.Context, p *JudgeParams) (JudgeResult, error) {
	rules := c.Rules.Judge
	switch {
	case rules == nil:
		return JudgeResult{}, api.Errorf(api.Forbidden, "no model is asked: ocip.judge is not set")
	case p.Model != rules.Model:
		return JudgeResult{}, api.Errorf(api.Forbidden, "ocip.judge.model is %q, and this answer is of %q", rules.Model, p.Model)
	case p.PromptDigest != opinion.PromptDigest:
		return JudgeResult{}, api.Errorf(api.Forbidden, "the daemon has another question than the one with the digest %q; after an upgrade restart `ocipd judge`", p.PromptDigest)
	}
	said, err := opinion.Parse(p.Answer)
	if err != nil {
		return JudgeResult{}, api.Invalid([]api.FieldError{{Path: "answer", Message: err.Error()}})
	}
	return answered(ctx, func(answer any) (JudgeResult, error) { return c.judge(ctx, p, said, answer) })
}

func (c *Decider) judge(ctx context.Context, p *JudgeParams, said opinion.Answer, answer any) (JudgeResult, error) {
	r, s, unlock, err := c.load(ctx, p.ApprovalID)
	if err != nil {
		return JudgeResult{}, err
	}
	defer unlock()
	subject, judged := s.(Judged)
	switch {
	case r.State != api.ApprovalPending:
		return JudgeResult{}, decidedAlready(r)
	case p.Digest != r.Digest && !mutant.Off("judge-digest"):
		return JudgeResult{}, stale(r, "what waits is not what the model was shown")
	case !judged || !r.Judgeable():
		return JudgeResult{}, api.Obstacle{}.Conflict(api.ApprovalBlocked, "a model decides once, and only about a message that waits for one person, for a guess about its words")
	}
	digest, err := c.o.Keyed(s.Record().TenantID, p.Answer)
	if err != nil {
		return JudgeResult{}, err
	}
	d := c.decision(r, s, &api.ApprovalResolveParams{ApprovalID: p.ApprovalID, Decision: api.DecideApprove, Digest: p.Digest}, &store.Change{Last: true})
	d.Answer = answer
	d.By = api.ApprovalDecision{Decision: byJudge, By: byJudge, At: d.Now.UnixMilli(), Asking: api.Asking{Proof: byJudge}}
	d.proof = map[string]any{
		"model": p.Model, "promptDigest": p.PromptDigest, "answerDigest": digest, "answer": p.Answer, "commits": said.Commits,
	}
	released := false
	if c.JudgeReleases() && !said.Commits {
		if err := c.lookAgain(ctx, d); err != nil {
			return JudgeResult{}, err
		}
		d.By.Decision = api.DecideApprove
	}
	r.Opinion = &opinion.Opinion{Commits: said.Commits, Reason: said.Reason, Model: p.Model, PromptDigest: p.PromptDigest, At: d.By.At}
	if d.By.Decision == api.DecideApprove && r.Needed <= 1 {
		released, err = subject.Judge(ctx, d)
	}
	if err == nil && !released {
		d.By.Decision = byJudge
		err = c.keepWaiting(d, "judged")
	}
	if err != nil {
		return JudgeResult{}, err
	}
	return JudgeResult{State: r.State, Released: r.State == api.ApprovalApproved, AuditSeq: d.seq}, nil
}

// answered takes a decision, and again with the answers that it needs from others.
func answered[R any](ctx context.Context, decide func(answer any) (R, error)) (result R, err error) {
	var (
		answer any
		none   R
	)
	// The second attempt asks the same question, unless the request has changed.
	for range 3 {
		result, err = decide(answer)
		ask, unanswered := errors.AsType[Unanswered](err)
		if !unanswered {
			return result, err
		}
		if answer, err = ask(ctx); err != nil {
			return none, err
		}
	}
	return none, api.Obstacle{}.Conflict(api.ApprovalStale, "what would be sent changed while others were asked about it: look again")
}
