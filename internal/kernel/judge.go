package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Judging returns the method that takes a model's answer about a held message, once.
func Judging(k *Kernel) func(context.Context, *approval.JudgeParams) (approval.JudgeResult, error) {
	return func(ctx context.Context, p *approval.JudgeParams) (approval.JudgeResult, error) {
		ctx = context.WithoutCancel(ctx)
		return anew(func() (approval.JudgeResult, error) { return k.rules().decider.Judge(ctx, p) })
	}
}

// Judge sends the message without a person, because the operator's model found that it commits
// nobody. Every other rule is weighed as for a message that nobody has seen: the exchange goes on,
// but neither its rounds nor its causal chain begin anew. It reports false if another rule holds or
// denies the message now.
func (s *heldMessage) Judge(ctx context.Context, d *approval.Decision) (released bool, err error) {
	k, st := s.k, *s.st
	if st.exchange.Outcome == ocip.Escalated {
		st.exchange.Outcome = ocip.InProgress // by this message
	}
	spent := st
	giveBack, err := k.conversations.count(ctx, s.m, &spent, d.Now)
	if err != nil {
		return false, err
	}
	v := k.weigh(ctx, s.m, &spent, ocip.Judged, d.Now)
	giveBack()
	if mutant.Off("judge-open") {
		v = s.v
	}
	if !v.Allowed() {
		return false, nil
	}
	if err := s.passRequired(ctx, d); err != nil {
		return false, err
	}
	defer k.pauses.Deciding()()
	if k.inForce.Load() != k {
		return false, hooks.ErrReplaced
	}
	s.m.person, s.st = ocip.Judged, &st
	return true, s.release(ctx, d, v, api.ApprovalApproved)
}
