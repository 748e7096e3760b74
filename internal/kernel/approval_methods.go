package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/base/mutant"
)

// ApprovalResolve takes a person's decision about a request, at most once.
func (k *Kernel) ApprovalResolve(ctx context.Context, peer api.Peer, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	// The decision counts even if the person disconnects.
	ctx = context.WithoutCancel(ctx)
	return anew(func() (api.ApprovalResolveResult, error) { return k.rules().decider.Resolve(ctx, peer, p) })
}

// ApprovalGet returns everything about one request.
func (k *Kernel) ApprovalGet(ctx context.Context, p *api.ApprovalParams) (api.Approval, error) {
	rules := k.rules()
	r, err := rules.decider.Show(ctx, p.ApprovalID)
	if err != nil {
		return api.Approval{}, err
	}
	rules.addresses.locateHeld(ctx, r)
	r.Delivery, err = k.releases.State(ctx, r.ApprovalID)
	return r.Approval, err
}

// Approval returns what became of a message that the app asked for.
func (c *Client) Approval(ctx context.Context, p *api.ApprovalParams) (api.Approval, error) {
	return c.kernel.approvalOf(ctx, p.ApprovalID, c.App().ID())
}

// approvalOf returns a request as the app that asked may see it.
func (k *Kernel) approvalOf(ctx context.Context, id, app string) (api.Approval, error) {
	rules := k.rules()
	r, err := rules.decider.Show(ctx, id)
	if err != nil {
		return api.Approval{}, err
	}
	if (r.AppID != app || !rules.asked(r)) && !mutant.Off("approval-owner") {
		return api.Approval{}, approval.NotFound(id)
	}
	// The text that people sign is not for the app that asked. Nor is the identity of a receiver
	// that has come to belong to another tenant.
	r.ToSign, r.Salt, r.Changed, r.Extracts, r.Opinion = nil, "", nil, nil, nil
	if t := r.CounterpartyTenantID; t != "" && t != rules.directory.Agent(r.AgentID).TenantID {
		r.CounterpartyUserID, r.CounterpartyTenantID = "", ""
	}
	for i := range r.Approvals {
		r.Approvals[i].Signature, r.Approvals[i].Asking = "", api.Asking{}
	}
	if r.Decision != nil {
		r.Decision.Signature, r.Decision.Asking = "", api.Asking{}
	}
	r.Delivery, err = k.releases.State(ctx, id)
	return r.Approval, err
}

// ApprovalList returns a page of requests, oldest first.
func (k *Kernel) ApprovalList(ctx context.Context, p *api.ApprovalListParams) (api.ApprovalListResult, error) {
	asked := *p
	// An agent may be named as in session keys too.
	if agent := k.rules().directory.Agent(p.Agent); agent != nil {
		asked.Agent = agent.InstanceID
	}
	return k.requests.List(ctx, &asked)
}

// ApprovalWatch opens a stream of requests: those that wait now, and then each new or changed one.
func (k *Kernel) ApprovalWatch(context.Context, *api.Empty) (func(context.Context, api.Stream) error, error) {
	return k.requests.Watch, nil
}
