package kernel

import (
	"context"
	"maps"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
)

// passInbound asks the required interceptors about a message that an app brings in. They see it
// unchanged and may stop it, which is on record; they change nothing. A message from another tenant
// is not shown to them, since the wall stops it anyway.
func (k inbound) passInbound(ctx context.Context, in *incoming) error {
	err := k.askInbound(ctx, in)
	if err == nil {
		err = in.carried.check()
	}
	return err
}

func (k inbound) askInbound(ctx context.Context, in *incoming) error {
	if len(k.directory.Required()) == 0 {
		return nil
	}
	if _, walled := ocip.Wall(in.agent.Identity, in.from); walled {
		return nil
	}
	if e, err := ocip.ParseEnvelope(in.metadata["ocip"]); err == nil {
		claimed := ocip.Counterparty{Kind: ocip.KindAgent, Identity: e.SourceAgent}
		if _, walled := ocip.Wall(in.agent.Identity, claimed); walled {
			return nil
		}
	}
	receiver := k.apps.Connected(in.agent.App)
	v, err := k.apps.Ask(ctx, k.terms, &registry.Question{
		Hook: api.MessageReceived, About: in.about(), Asker: in.app, But: receiver,
		Data: func() []byte { return in.form().Append(nil) },
		Take: (*registry.App).Denies,
	})
	if err != nil || v == nil {
		return err
	}
	r, err := k.receivedRecord(in.agent, in.from, v, in.key, in.content)
	if err != nil {
		return err
	}
	in.describe(r)
	r.Classification = ""
	if err := k.stopped(in, r); err != nil {
		return err
	}
	failure := refused(v, r)
	if v.Code == ocip.InterceptorTimeout {
		failure.Code = api.Timeout
	}
	return failure
}

// passInterceptors lets the interceptors change the message. If one stops it, the denial is on
// record like any other.
func (k *ruleset) passInterceptors(ctx context.Context, m *outgoing) error {
	if !k.apps.Intercepted(k.terms) {
		return nil
	}
	left, err := k.apps.Intercept(ctx, k.terms, m.message(), m.about(), m.app, k.apps.Owner(k.terms, m.channel))
	if err != nil {
		return err
	}
	before := m.metadata
	m.content, m.metadata, m.changedBy = left.Message.Content, left.Message.Metadata, append(m.changedBy, left.ChangedBy...)
	if left.Blocked == nil && len(left.ChangedBy) > 0 {
		if left.Blocked = m.changedHints(k.cfg.DefaultLevel); left.Blocked == nil {
			left.Blocked = m.sameTask(before)
		}
	}
	if left.Blocked == nil {
		return k.bind(m, "an interceptor")
	}
	return k.refuseEarly(m, left.Blocked)
}

// changedHints applies the interceptors' changes to the caller's hints. They may only tighten them.
func (m *outgoing) changedHints(level ocip.Level) *ocip.Verdict {
	by := m.changedBy[len(m.changedBy)-1]
	left, err := exchangehints.Parse(m.metadata["exchange"])
	wrong := "left metadata.exchange in a form that cannot be read"
	if err == nil {
		wrong = m.hints.After(left, level)
	}
	if wrong == "" {
		// A held message is read again when it is released.
		metadata := make(api.Object, len(m.metadata)+1)
		maps.Copy(metadata, m.metadata)
		metadata["exchange"] = m.hints.Object()
		m.metadata = metadata
		return nil
	}
	return &ocip.Verdict{Result: ocip.Deny, Code: ocip.InterceptorBlocked, Policy: "interceptor:" + by, Reason: "interceptor " + by + " " + wrong + ", which no interceptor may"}
}
