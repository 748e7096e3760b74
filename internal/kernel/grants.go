package kernel

import (
	"context"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/grants"
	"github.com/openclawos/ocipd/internal/ocip"
)

// grantsFor returns the grants that may release a message which is held only for a commitment in
// its text.
func (m *outgoing) grantsFor(all *grants.Grants, signers approval.Signers, e *ocip.Exchange, v *ocip.Verdict) []ocip.Grant {
	switch {
	case !v.HeldFor(ocip.CommitmentRequiresHuman) || m.ungranted || m.unconfirmed():
		return nil
	case m.waited:
		return m.under
	case !all.Some(m.sender.InstanceID):
		return nil
	}
	return all.For(m.wants(e), signers)
}

// wants describes the message for the search of a grant that covers it.
func (m *outgoing) wants(e *ocip.Exchange) *grants.About {
	about := &grants.About{
		Agent: m.sender.InstanceID, Tenant: m.sender.TenantID, SessionKey: m.key, Target: m.target,
		To: partyOf(&m.recipient.Counterparty), Others: m.recipient.Group || m.recipient.Strangers, Elsewhere: m.recipient.Elsewhere(),
	}
	if m.to.Kind == ocip.KindAgent {
		about.Receiver, about.Exchange = m.to.InstanceID, e
	}
	return about
}

// partyOf returns a receiver as a grant's party, by the configuration alone.
func partyOf(c *ocip.Counterparty) *grants.Party {
	return &grants.Party{Kind: c.Kind, User: c.UserID, Tenant: c.TenantID}
}

// grantsOf returns the grants of the exchange that a message arrives in, if the message asks for a
// commitment.
func grantsOf(all *grants.Grants, signers approval.Signers, agent *Agent, e *ocip.Exchange, v *ocip.Verdict) []ocip.Grant {
	if !v.Exchange.AwaitsCommitment || !all.Some(e.Agent) {
		return nil
	}
	return all.For(&grants.About{Agent: e.Agent, Tenant: agent.TenantID, Receiver: e.Counterparty, Exchange: e}, signers)
}

// offered returns the bounds in which a person may approve the exchange of a held message.
func offered(v *ocip.Verdict) *api.Bounds {
	if v.Offer == nil {
		return nil
	}
	return &api.Bounds{
		Words: v.Offer.Words, Classification: v.Offer.Level.String(), MaxRound: v.Offer.Rounds, Until: v.Offer.Until.UnixMilli(),
	}
}

// GrantList lists the grants.
func (k *Kernel) GrantList(ctx context.Context, p *api.GrantListParams) (api.GrantListResult, error) {
	rules, asked := k.rules(), *p
	if agent := rules.directory.Agent(p.Agent); agent != nil {
		asked.Agent = agent.InstanceID
	}
	return k.grants.List(ctx, &asked, rules.signers)
}

// GrantAdd makes a pre-approval from one agent to one receiver.
func (k *Kernel) GrantAdd(ctx context.Context, who api.Peer, p *api.GrantAddParams) (api.GrantAddResult, error) {
	rules := k.rules()
	var to *grants.Party
	if known := rules.directory.Known(p.Receiver); known != nil {
		to = partyOf(known)
	} else if sender := rules.directory.Local(p.Agent); sender != nil && strings.Contains(p.Receiver, ":") && !strings.HasSuffix(p.Receiver, "*") {
		m := &outgoing{speaker: speaker{sender: sender}, destination: destination{key: p.Receiver}}
		if err := rules.addresses.reach(ctx, m, nil); err != nil {
			return api.GrantAddResult{}, err
		}
		to = partyOf(&m.recipient.Counterparty)
	}
	return k.grants.Add(who, p, rules.directory, rules.decider, rules.cfg.Approvers, to)
}

// GrantRevoke revokes a grant.
func (k *Kernel) GrantRevoke(ctx context.Context, who api.Peer, p *api.GrantRevokeParams) (api.GrantRevokeResult, error) {
	return k.grants.Revoke(context.WithoutCancel(ctx), who, p)
}
