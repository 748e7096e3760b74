// Package status reads the daemon's status: connected apps, waiting messages and requests, and the
// head of the log.
package status

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/pause"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/inbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Sources are the parts that the status is read from.
type Sources struct {
	Store     *store.Store
	Requests  *approval.Requests
	Pauses    *pause.Pauses
	Exchanges *exchanges.Exchanges
	Apps      *registry.Registry
	Inboxes   *inbox.Inboxes
}

// Read returns the status, with the agents of a configuration and the sessions that were
// active since a time.
func (s *Sources) Read(ctx context.Context, agents []directory.Agent, activeSince time.Time) (api.Status, error) {
	is := api.Status{ProtocolVersion: api.ProtocolVersion, Exchanges: make(map[string]int), Held: s.Requests.Count(), Paused: s.Pauses.List()}
	// A store that is closed because a file is lost can often not be read either. The status must
	// still say that it is closed.
	if err := s.stored(ctx, &is, activeSince); err != nil && s.Store.Latched() == nil {
		return is, err
	}
	head := s.Store.Head()
	is.Audit = api.AuditStatus{
		Seq: head.Seq, Time: head.Time, Hash: head.Hash.String(), Log: s.Store.Origin(), Signed: s.Store.Covered(), Retired: s.Store.Retired(),
	}
	if err := s.Store.Latched(); err != nil {
		is.Audit.Fault = err.Error()
	}
	is.Apps = s.Apps.Status()
	ready := make(map[string]bool, len(is.Apps))
	for i := range is.Apps {
		ready[is.Apps[i].ID] = is.Apps[i].Ready
	}
	for i := range agents {
		a := &agents[i]
		is.Agents = append(is.Agents, api.AgentStatus{ID: a.ID, InstanceID: a.InstanceID, App: a.App, Connected: ready[a.App] || s.Inboxes.Has(a.ID)})
	}
	return is, nil
}

// stored adds the part of the status from the store.
func (s *Sources) stored(ctx context.Context, is *api.Status, activeSince time.Time) error {
	counts, err := s.Exchanges.Counts(ctx)
	if err != nil {
		return err
	}
	for outcome, n := range counts {
		is.Exchanges[string(outcome)] = n
	}
	if _, is.Sessions, err = s.Store.Sessions(ctx, store.SessionFilter{ActiveSince: activeSince}, 0, 0, nil); err != nil {
		return err
	}
	if is.Held > 0 {
		if is.OldestHeld, err = s.Requests.Oldest(ctx); err != nil {
			return err
		}
	}
	queues, err := s.Store.Queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		is.Queues = append(is.Queues, api.QueueStatus{Name: q.Name, Waiting: q.Count})
	}
	return nil
}
