package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
)

// passInbound asks those that nothing goes past about a message that an app brings
// in. They see it as it came and may stop it, which is on record; they change
// nothing. One of another tenant is not shown to them: it goes no further anyway.
func (k *ruleset) passInbound(ctx context.Context, in *incoming) error {
	err := k.askInbound(ctx, in)
	if err == nil && in.carried && !api.There(ctx) {
		err = api.ErrGone
	}
	return err
}

func (k *ruleset) askInbound(ctx context.Context, in *incoming) error {
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
