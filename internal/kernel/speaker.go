package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/pause"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// speaker brings a message to the daemon: an app, a process with a grant, or an operator, whichever
// method carries the message.
type speaker struct {
	// app is nil if the app is not connected any more, and for grants and operators.
	app   *registry.App
	appID string
	// sender is the agent in whose name the message is sent.
	sender *Agent
	// grantID is the grant of a process that speaks for an agent without an app.
	grantID string
	// operator is the process of an operator, if the caller is not the agent's app.
	operator api.Peer
	// check is set if the caller only asks for the decision.
	check bool
	// carried messages are delivered by the agent's runtime, not by the daemon. Redeems reports
	// that it redeems approved messages by their ids.
	carried, redeems bool
	// still, if set, refuses a speaker that may not speak any more, or has left.
	still remains
	// keep, if set, enters the answer into the change, for a request that is repeated.
	keep func(*store.Change, *api.DispatchResult) error
}

// remains checks once more, after a call has waited, whether its caller may act: a grant may have
// been revoked, or a runtime may have left. It may take the lock of a task, which comes before
// [pause.Pauses.Deciding] and after the lock of a message's two ends. With deciding set it takes no
// lock, since the caller has that of the pauses.
type remains func(deciding bool) error

func (r remains) check() error {
	if r == nil {
		return nil
	}
	return r(false)
}

// decides checks a caller, and keeps pauses and revocations of grants from beginning until done is
// called: whatever is committed before that was decided for somebody who may act.
func (r remains) decides(p *pause.Pauses) (done func(), err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	done = p.Deciding()
	if r == nil {
		return done, nil
	}
	if err := r(true); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// connected is the check for a caller that delivers by itself.
func connected(ctx context.Context) error {
	if !api.There(ctx) {
		return api.ErrGone
	}
	return nil
}

// forbidden records that the speaker may not send a message, if that is why it is refused, and
// returns the caller's error.
func (s *speaker) forbidden(apps *registry.Registry, refusal error, p *api.DispatchParams) error {
	details := map[string]any{"sessionKey": p.SessionKey}
	if s.grantID != "" {
		details["grant_id"] = s.grantID
	}
	return apps.RecordRefusalOf(s.appID, "sender_refused", refusal, details)
}

// say takes a message of a speaker to its receiver, whichever method carries it.
func (k *ruleset) say(ctx context.Context, s speaker, p *api.DispatchParams) (*outgoing, api.DispatchResult, error) {
	m, err := k.speak(ctx, s, p)
	if err != nil {
		return nil, api.DispatchResult{}, err
	}
	result, err := k.send(m)
	return m, result, err
}

// speak takes a message of a speaker as far as its decision: it finds out whom the message
// reaches and whether somebody serves that channel, and prepares the message.
func (k *ruleset) speak(ctx context.Context, s speaker, p *api.DispatchParams) (*outgoing, error) {
	m := &outgoing{
		speaker: s, destination: destination{key: p.SessionKey, local: k.directory.LocalAgent(p.SessionKey)},
		asked: p, content: p.Content, dispatchID: k.member.names(k.newID()), unlabelled: p.InAnnotation,
	}
	m.metadata, m.changedBy = exchangehints.WithoutOwn(p.Metadata)
	m.account, _ = api.Text(p.Metadata["accountId"])
	err := k.addresses.locate(ctx, m)
	id, ofAgent := directory.AgentOf(p.SessionKey)
	switch {
	case err != nil:
	case ofAgent && m.local == nil && m.to.Kind == ocip.KindUnknown && !k.directory.Lists(p.SessionKey):
		err = api.Errorf(api.NotFound, "there is no agent %q: name it in agents, or where it is reached in directory[].sessions", id)
	case m.local == m.sender:
		err = api.Errorf(api.InvalidParams, "agent %s cannot send to itself; a reply goes to the replyTo of the message", m.sender.ID)
	default:
		err = k.served(m)
	}
	if err != nil {
		return nil, s.forbidden(k.apps, err, p)
	}
	return m, k.prepare(ctx, m)
}
