package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// interception is the required interceptors' answer about a message before its release.
type interception struct {
	// of is the digest of the message that they were shown.
	of string
	registry.Interception
}

// passRequired releases the message only if each required interceptor leaves it as it is. They are
// asked with no lock held. If one is not connected, nothing is decided. If one blocks or changes
// the message, the approvals are void, and a person must look again.
func (s *heldMessage) passRequired(ctx context.Context, d *approval.Decision) error {
	k, m := s.k, s.m
	if len(k.directory.Required()) == 0 {
		return nil
	}
	shown := approval.Digest(string(m.message().Append(nil)))
	said, _ := d.Answer.(*interception)
	if said == nil || said.of != shown {
		message, about, asker := m.message(), m.about(), m.app
		return approval.Unanswered(func(ctx context.Context) (any, error) {
			left, err := k.apps.InterceptAgain(ctx, k.terms, message, about, asker)
			return &interception{of: shown, Interception: left}, err
		})
	}
	switch {
	case k.inForce.Load() != k:
		return hooks.ErrReplaced
	case said.Blocked != nil && !said.Refused:
		return s.notReleased(d, said.Blocked)
	case said.Blocked == nil && len(said.ChangedBy) == 0:
		return nil
	}
	var objection string
	change := func() error { return nil }
	switch {
	case said.Blocked != nil:
		objection = said.Blocked.Reason
		if cause, _ := said.Blocked.Details["cause"].(string); cause != "" {
			objection += ": " + cause
		}
	case d.Content != "":
		objection = "interceptor " + said.ChangedBy[len(said.ChangedBy)-1] + " would change the words of the person who takes over"
	default:
		objection = "interceptor " + said.ChangedBy[len(said.ChangedBy)-1] + " changed the message"
		next, refused := s.changedBy(&said.Interception)
		if refused != nil {
			objection = refused.Reason
			break
		}
		change = func() error { return s.become(ctx, next, d) }
	}
	return d.AskAnew(change, objection)
}

// notReleased refuses a release because a required interceptor cannot be asked.
func (s *heldMessage) notReleased(d *approval.Decision, v *ocip.Verdict) error {
	r := s.Record()
	r.ID, r.ActionType, r.Event = s.k.newID(), audit.ActionApproval, "not_released"
	r.PolicyResult, r.Code, r.PolicyReason = string(ocip.Deny), string(v.Code), v.Reason
	r.Details = approval.Details(&d.By)
	if _, err := s.k.commit(&store.Change{Records: []*audit.Record{r}}); err != nil {
		return err
	}
	return api.Obstacle{Blocked: v.Reason}.Conflict(api.ApprovalBlocked, v.Reason+", so nothing was decided; decide again once it is connected and answers, or deny the message")
}

// changedBy returns the message as interceptors left it, or the reason why they may not change it
// so.
func (s *heldMessage) changedBy(left *registry.Interception) (*outgoing, *ocip.Verdict) {
	next := *s.m
	var err error
	if next.hints, err = exchangehints.Parse(s.m.metadata["exchange"]); err != nil {
		return nil, &ocip.Verdict{Reason: err.Error()}
	}
	next.content, next.metadata, next.changedBy = left.Message.Content, left.Message.Metadata, append(slices.Clip(s.m.changedBy), left.ChangedBy...)
	if refused := next.changedHints(s.k.cfg.DefaultLevel); refused != nil {
		return nil, refused
	}
	if refused := next.sameTask(s.m.metadata); refused != nil {
		return nil, refused
	}
	bound, mismatch := next.recipient.Bind(next.metadata)
	if mismatch != "" {
		return nil, &ocip.Verdict{Reason: fmt.Sprintf("an interceptor names another recipient in metadata.%s than session %s reaches", mismatch, next.key)}
	}
	next.metadata = bound
	return &next, nil
}

// become replaces the request's message by the one that interceptors left.
func (s *heldMessage) become(ctx context.Context, next *outgoing, d *approval.Decision) (err error) {
	r := s.r
	r.Content, r.ContentBytes, r.Summary = next.content.Inspect(), next.content.Len(), next.line()
	s.kept.Metadata, s.kept.Changes = string(next.metadata.Append(nil)), next.changedBy
	if r.Own, err = json.Marshal(&s.kept); err != nil {
		return fmt.Errorf("cannot encode a held message: %w", err)
	}
	return s.Preview(ctx, d.Now)
}
