package kernel

import (
	"cmp"
	"context"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Send sends an operator's message as one of the agents. It is decided like any message of that
// agent's app, which need not be connected, and its record names the operator's user. It rests on
// the operator's process alone: Send refuses an agent that is bound to another user or program,
// even with a signature.
func (k *Kernel) Send(ctx context.Context, who api.Peer, p *api.SendParams) (api.DispatchResult, error) {
	var m *outgoing
	result, err := anew(func() (result api.DispatchResult, err error) {
		r := k.rules()
		s, err := r.operator(who, p)
		if err != nil {
			return result, err
		}
		if bound := k.apps.OtherThan(s.sender, who); bound != "" {
			refusal := api.Errorf(api.Forbidden, "agent %s is bound to %s: have its own program send the message, or take the binding (exe, uid) out of the agent in the configuration", s.sender.ID, bound)
			details := caller.Details(who)
			details["agent"] = s.sender.ID
			return result, k.apps.RecordRefusalOf(api.OperatorApp, "binding_refused", refusal, details)
		}
		m, result, err = r.say(ctx, s, &p.DispatchParams)
		return result, err
	})
	if err == nil && m.deliver != nil {
		m.deliver()
	}
	return result, err
}

// Check decides such a message without any effect: it takes no round and counts for no budget, no
// person and no interceptor sees it, and its record is marked as a check. An operator learns
// nothing from it that reading would not tell, so any process may check for any agent.
func (k *Kernel) Check(ctx context.Context, who api.Peer, p *api.SendParams) (api.CheckResult, error) {
	r := k.rules()
	s, err := r.operator(who, p)
	if err != nil {
		return api.CheckResult{}, err
	}
	s.check = true
	m, err := r.speak(ctx, s, &p.DispatchParams)
	if err != nil {
		return api.CheckResult{}, err
	}
	return r.check(ctx, m)
}

// operator returns the speaker for an operator who sends as one of the agents.
func (k *ruleset) operator(who api.Peer, p *api.SendParams) (speaker, error) {
	agents := k.cfg.Directory.Agents
	s := speaker{appID: api.OperatorApp, operator: who}
	switch {
	case p.Agent != "":
		if s.sender = cmp.Or(k.directory.Agent(p.Agent), k.directory.Local(p.Agent)); s.sender == nil {
			return s, api.Errorf(api.NotFound, "there is no agent %q; ocipd status lists the configured ones", p.Agent)
		}
	case len(agents) == 1:
		s.sender = k.directory.Agent(agents[0].ID)
	default:
		return s, api.Invalid([]api.FieldError{{Path: "agent", Message: needed(agents)}})
	}
	return s, nil
}

// needed says why an operator must name an agent.
func needed(agents []Agent) string {
	if len(agents) == 0 {
		return "no agent is configured; add one: ocipd config add-agent"
	}
	var ids []string
	for i := range agents {
		ids = append(ids, agents[i].ID)
	}
	return "required, as several are configured: one of " + strings.Join(ids, ", ")
}

// check weighs a message, and records the decision that it would have got.
func (k *ruleset) check(ctx context.Context, m *outgoing) (api.CheckResult, error) {
	now := k.now()
	defer k.state.Lock(m.sender.InstanceID, m.other())()
	st, err := k.conversations.standing(ctx, m, now)
	if err != nil {
		return api.CheckResult{}, k.exchangeRefused(m, err)
	}
	giveBack, err := k.conversations.count(ctx, m, st, now)
	if err != nil {
		return api.CheckResult{}, err
	}
	giveBack()
	v := k.weigh(ctx, m, st, ocip.Nobody, now)
	r, err := k.sentRecord(m, v)
	if err != nil {
		return api.CheckResult{}, err
	}
	if _, err := k.record(r); err != nil {
		return api.CheckResult{}, err
	}
	return checkResult(v, r), nil
}

func checkResult(v *ocip.Verdict, r *audit.Record) api.CheckResult {
	c := api.CheckResult{Result: v.Result, Code: v.Code, Reason: v.Reason, Reasons: v.Grounds, Rule: v.Policy, Classification: v.Level.String(), Detections: approval.Detections(v), AuditID: r.ID}
	if v.Exchange.ID != "" {
		c.Type, c.Round, c.MaxRounds = v.Exchange.Type, v.Exchange.Round, v.Exchange.MaxRounds
	}
	return c
}
