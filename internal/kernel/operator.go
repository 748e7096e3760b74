package kernel

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
)

// Status returns what the kernel knows of itself. The daemon adds the rest.
func (k *Kernel) Status(ctx context.Context) (api.Status, error) {
	s := api.Status{ProtocolVersion: api.ProtocolVersion, Exchanges: make(map[string]int)}
	s.Held, s.Paused = k.requests.Count(), k.pauses.List()
	// A store that is closed because a file is lost can often not be read either:
	// that it is closed must be told all the same.
	if err := k.storedStatus(ctx, &s); err != nil && k.store.Latched() == nil {
		return s, err
	}
	head := k.store.Head()
	s.Audit = api.AuditStatus{Seq: head.Seq, Time: head.Time, Hash: head.Hash.String(), Log: k.store.Origin(), Signed: k.store.Covered(), Retired: k.store.Retired()}
	if err := k.store.Latched(); err != nil {
		s.Audit.Fault = err.Error()
	}
	s.Apps = k.apps.Status()
	ready := make(map[string]bool, len(s.Apps))
	for i := range s.Apps {
		ready[s.Apps[i].ID] = s.Apps[i].Ready
	}
	configured := k.rules().cfg.Directory.Agents
	for i := range configured {
		agent := &configured[i]
		s.Agents = append(s.Agents, api.AgentStatus{ID: agent.ID, InstanceID: agent.InstanceID, App: agent.App, Connected: ready[agent.App] || k.inboxes.Has(agent.ID)})
	}
	return s, nil
}

// storedStatus adds what the store is asked for.
func (k *Kernel) storedStatus(ctx context.Context, s *api.Status) error {
	counts, err := k.exchanges.Counts(ctx)
	if err != nil {
		return err
	}
	for outcome, n := range counts {
		s.Exchanges[string(outcome)] = n
	}
	_, s.Sessions, err = k.store.Sessions(ctx, store.SessionFilter{ActiveSince: k.now().Add(-k.rules().cfg.ActiveWindow)}, 0, 0)
	if err != nil {
		return err
	}
	if s.Held > 0 {
		if s.OldestHeld, err = k.requests.Oldest(ctx); err != nil {
			return err
		}
	}
	queues, err := k.store.Queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		s.Queues = append(s.Queues, api.QueueStatus{Name: q.Name, Waiting: q.Count})
	}
	return nil
}

// ContactList lists with whom the agents had sessions, and who that is to them.
func (k *Kernel) ContactList(ctx context.Context, p *api.ContactListParams) (api.ContactListResult, error) {
	return k.contacts.List(ctx, p, k.rules().directory)
}

// ContactForget undoes what messages of a session have shown about who is there.
func (k *Kernel) ContactForget(ctx context.Context, who api.Peer, p *api.ContactForgetParams) (api.ContactForgetResult, error) {
	return k.contacts.Forget(ctx, who, p, k.rules().directory)
}
