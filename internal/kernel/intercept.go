package kernel

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/registry"
)

// Interception is how the interceptors left a message.
type interception struct {
	content  string
	metadata api.Object
	// blocked is set where it must not go on.
	blocked *ocip.Verdict
	// changedBy lists the interceptors that changed something.
	changedBy []string
}

// intercept shows a message to the interceptors, each with the former's output.
// The owner of the message's channel is not among them, unless it is required: it
// gets the message last.
func (k *ruleset) intercept(ctx context.Context, m *outgoing, owner *registry.App) (interception, error) {
	out := interception{content: m.content, metadata: m.metadata}
	var err error
	out.blocked, err = k.apps.Ask(ctx, k.terms, &registry.Question{
		Hook: api.MessageSending, About: m.about(), Asker: m.app, But: owner,
		Data: func() []byte {
			return api.Message{ChannelID: m.channel, Target: m.target, Content: out.content, Metadata: out.metadata, DispatchID: m.dispatchID}.Append(nil)
		},
		Take: func(a *registry.App, result jsontext.Value) *ocip.Verdict { return out.take(a, m, result) },
	})
	return out, err
}

// take applies an interceptor's answer. An object replaces content and
// metadata; null or a block stops the message; anything else is not an answer
// that a message may depend on, and stops it too.
func (i *interception) take(a *registry.App, m *outgoing, result jsontext.Value) *ocip.Verdict {
	if blocked := a.Denies(result); blocked != nil {
		return blocked
	}
	var answer struct {
		ChannelID *string        `json:"channelId"`
		Target    *string        `json:"target"`
		Content   *string        `json:"content"`
		Metadata  jsontext.Value `json:"metadata"`
	}
	switch {
	case json.Unmarshal(result, &answer) != nil:
		return a.Deny("gave an answer that is no message")
	case answer.ChannelID != nil && *answer.ChannelID != m.channel, answer.Target != nil && *answer.Target != m.target:
		return a.Deny("changed the recipient, which no interceptor may")
	}
	changed := false
	if answer.Content != nil && *answer.Content != i.content {
		i.content, changed = *answer.Content, true
	}
	if len(answer.Metadata) > 0 && answer.Metadata.Kind() != 'n' {
		var metadata api.Object
		if err := json.Unmarshal(answer.Metadata, &metadata); err != nil {
			return a.Deny("gave metadata that is no object")
		}
		if !metadata.Equal(i.metadata) {
			i.metadata, changed = metadata, true
		}
	}
	if changed {
		i.changedBy = append(i.changedBy, a.ID())
	}
	return nil
}

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
		Data: in.data,
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
