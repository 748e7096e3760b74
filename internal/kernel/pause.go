package kernel

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/store"
)

// Sending is the sending of messages, which pauses stop.
type Sending struct {
	*base
	exempt *hooks.Exemptions
}

// Pause stops the sending of a scope, durably: once the pause is recorded, no message in the scope
// is decided or handed to an app.
func (s *Sending) Pause(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	if p.Agent != "" && s.inForce.Load().directory.Agent(p.Agent) == nil {
		return api.PauseResult{}, api.Errorf(api.NotFound, "there is no agent %q; agents[].id in the configuration lists them", p.Agent)
	}
	return s.change(who, p, true)
}

// Resume ends the pause of a scope, and sends the messages that it kept back.
func (s *Sending) Resume(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	result, err := s.change(who, p, false)
	if err == nil && result.Changed {
		s.outbox.LookBack()
	}
	return result, err
}

func (s *Sending) change(who api.Peer, p *api.PauseParams, pause bool) (api.PauseResult, error) {
	row := store.Paused{Scope: p.Scope(), At: s.now(), By: caller.Principal(who)}
	r := &audit.Record{ID: s.newID(), ActionType: audit.ActionSecurity, Event: "sending_resumed", Details: caller.PersonDetails(who, p.Note)}
	if pause {
		r.Event = "sending_paused"
	}
	r.Details["scope"] = row.Scope
	if agent := s.inForce.Load().directory.Agent(p.Agent); agent != nil {
		r.AgentID, r.TenantID, r.UserID = agent.InstanceID, agent.TenantID, agent.UserID
	}
	defer s.exempt.End()
	return s.set(row, pause, &store.Change{Records: []*audit.Record{r}, Last: true})
}

// set makes a change of the pauses durable, and takes back what apps have not read.
func (s *Sending) set(row store.Paused, pause bool, change *store.Change) (api.PauseResult, error) {
	result, err := s.pauses.Change(row, pause, change, s.commit)
	if pause && err == nil {
		s.recall()
	}
	return result, err
}

// Halt stops all sending, durably, with the record of the daemon's finding. A person must look into
// it and resume. A pause that a person made stays. The parts are written with the record.
func (s *Sending) Halt(by string, found *audit.Record, parts ...store.Part) error {
	paused := &audit.Record{ID: s.newID(), ActionType: audit.ActionSecurity, Event: "sending_paused", Details: map[string]any{"by": by, "scope": api.PausedAll, "because": found.ID}}
	change := &store.Change{Records: []*audit.Record{found, paused}, Parts: slices.Clone(parts), Last: true}
	defer s.exempt.End()
	result, err := s.set(store.Paused{Scope: api.PausedAll, At: s.now(), By: by}, true, change)
	if err == nil && !result.Changed {
		_, err = s.commit(&store.Change{Records: []*audit.Record{found}, Parts: parts, Last: true})
	}
	return err
}

// PausedActor reports whether an actor of tasks is paused: the agent of its grant, or one that its
// app speaks for.
func (s *Sending) PausedActor(app, agent string) (reason string, paused bool) {
	agents := []string{agent}
	for _, a := range s.inForce.Load().directory.SpokenBy(app) {
		agents = append(agents, a.ID)
	}
	return s.pauses.Reason("", agents...)
}

// Deciding is [pause.Pauses.Deciding].
func (k *Kernel) Deciding() (done func()) { return k.pauses.Deciding() }
