package exchanges

import (
	"context"
	"errors"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// GetFor returns the sides of an exchange that the agents of an app hold, as far as the app
// may know them.
func (x *Exchanges) GetFor(ctx context.Context, id, app string, r *Rules) (api.ExchangeResult, error) {
	sides, err := x.sides(ctx, id, r.Of(app))
	if err == nil {
		sides, err = x.told(ctx, sides, r)
	}
	if err != nil {
		return api.ExchangeResult{}, err
	}
	if len(sides) == 0 {
		return api.ExchangeResult{}, notThere(id)
	}
	return x.shown(ctx, sides)
}

// ListFor returns a page of one agent's exchanges, newest first, as far as its app may know
// them.
func (x *Exchanges) ListFor(ctx context.Context, p *api.ExchangeListParams, r *Rules) (api.ExchangeResult, error) {
	var page []ocip.Exchange
	for before := p.Before; ; {
		next, err := x.o.Store.Exchanges(ctx, filter(p, before), p.Page()-len(page), nil)
		if err != nil {
			return api.ExchangeResult{}, err
		}
		if len(next) == 0 {
			return x.shown(ctx, page)
		}
		before = next[len(next)-1].ID
		if next, err = x.told(ctx, next, r); err != nil {
			return api.ExchangeResult{}, err
		}
		if page = append(page, next...); len(page) == p.Page() {
			return x.shown(ctx, page)
		}
	}
}

// told returns the sides that the apps of their agents may see, and leaves out sides whose agent
// belonged to another tenant then. It blanks messages that the agents were not given, and messages
// of an agent behind the tenant wall: a side has the other agent's words from the decision on,
// while the message may still wait, or have been dropped.
func (x *Exchanges) told(ctx context.Context, sides []ocip.Exchange, r *Rules) (told []ocip.Exchange, err error) {
	if mutant.Off("exchange-told") {
		return sides, nil
	}
	waiting := make(map[string]map[string]bool)
	for _, e := range sides {
		agent := r.Directory.Local(e.Agent)
		if agent == nil {
			continue
		}
		given, ours, err := x.messages(ctx, &e, agent.TenantID)
		if err != nil {
			return nil, err
		}
		if !ours {
			continue
		}
		if other := r.Directory.Known(e.Counterparty); other != nil {
			if _, walled := ocip.Wall(agent.Identity, *other); walled {
				given = nil
			}
		}
		if waiting[agent.ID] == nil {
			if waiting[agent.ID], err = x.o.Waiting(ctx, agent.ID); err != nil {
				return nil, err
			}
		}
		if err := x.blank(ctx, &e, given, waiting[agent.ID]); err != nil {
			return nil, err
		}
		told = append(told, e)
	}
	return told, nil
}

// rememberedRounds limits the records of one side that are searched.
const rememberedRounds = 256

// messages finds the messages that an agent was sent in an exchange, by their rounds. Ours is unset
// if the agent was another tenant's then.
func (x *Exchanges) messages(ctx context.Context, e *ocip.Exchange, tenant string) (sent map[int]string, ours bool, err error) {
	lines, _, err := x.o.Search(ctx, audit.Filter{Like: audit.Record{ConversationID: e.ConversationID, AgentID: e.Agent, PolicyResult: audit.ResultAllow}}, 0, rememberedRounds)
	if err != nil {
		return nil, false, err
	}
	sent = make(map[int]string)
	for _, line := range lines {
		record, err := x.o.Store.WrittenAs(ctx, line)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if record.TenantID != tenant {
			return nil, false, nil
		}
		if record.Side == audit.SideReceiver && record.Round > 0 {
			sent[record.Round] = record.DispatchID
		}
	}
	return sent, true, nil
}

// blank removes the other agent's words from a side if their message was not handed over, and then
// also the names of the attached data.
func (x *Exchanges) blank(ctx context.Context, e *ocip.Exchange, sent map[int]string, waiting map[string]bool) error {
	e.Transcript = slices.Clone(e.Transcript)
	for i := range e.Transcript {
		t := &e.Transcript[i]
		if t.Sender == e.Agent {
			continue
		}
		id := sent[t.Round]
		over := id != "" && !waiting[id]
		if over {
			var err error
			if over, err = x.handedOver(ctx, id); err != nil {
				return err
			}
		}
		if !over {
			t.Summary, t.Claimed = "", false
			e.Shared, e.Withheld = nil, nil
		}
	}
	return nil
}

// ends are the events after which a waiting message is handed to nobody.
var ends = []string{"asked_anew", "dropped", "expired", "undecided_message", "withdrawn"}

// handedOver reports whether a message that no longer waits reached its receiver: it was allowed,
// and not removed since.
func (x *Exchanges) handedOver(ctx context.Context, dispatchID string) (bool, error) {
	lines, _, err := x.o.Search(ctx, audit.Filter{Like: audit.Record{DispatchID: dispatchID}}, 0, rememberedRounds)
	if err != nil {
		return false, err
	}
	for _, line := range lines { // newest first
		r, err := x.o.Store.WrittenAs(ctx, line)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return false, err
		case slices.Contains(ends, r.Event):
			return false, nil
		case r.Side == audit.SideReceiver && r.PolicyResult == audit.ResultAllow:
			return true, nil
		}
	}
	return false, nil
}
