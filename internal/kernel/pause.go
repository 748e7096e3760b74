package kernel

import (
	"context"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Pause stops the sending of a scope, durably: once the pause is recorded, no message in the scope
// is decided or handed to an app.
func (k *Kernel) Pause(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	if p.Agent != "" && k.rules().directory.Agent(p.Agent) == nil {
		return api.PauseResult{}, api.Errorf(api.NotFound, "there is no agent %q; agents[].id in the configuration lists them", p.Agent)
	}
	return k.changePause(who, p, true)
}

// Resume ends the pause of a scope, and sends the messages that it kept back.
func (k *Kernel) Resume(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	result, err := k.changePause(who, p, false)
	if err == nil && result.Changed {
		k.outbox.LookBack()
	}
	return result, err
}

func (k *Kernel) changePause(who api.Peer, p *api.PauseParams, pause bool) (api.PauseResult, error) {
	row := store.Paused{Scope: p.Scope(), At: k.now(), By: caller.Principal(who)}
	r := &audit.Record{ID: k.newID(), ActionType: audit.ActionSecurity, Event: "sending_resumed", Details: caller.PersonDetails(who, p.Note)}
	if pause {
		r.Event = "sending_paused"
	}
	r.Details["scope"] = row.Scope
	if agent := k.rules().directory.Agent(p.Agent); agent != nil {
		r.AgentID, r.TenantID, r.UserID = agent.InstanceID, agent.TenantID, agent.UserID
	}
	defer k.Exempt.End()
	return k.setPause(row, pause, &store.Change{Records: []*audit.Record{r}, Last: true})
}

// setPause makes a change of the pauses durable, and takes back what apps have not read.
func (k *base) setPause(row store.Paused, pause bool, change *store.Change) (api.PauseResult, error) {
	result, err := k.pauses.Change(row, pause, change, k.commit)
	if pause && err == nil {
		k.recall()
	}
	return result, err
}

// Halt stops all sending, durably, with the record of the daemon's finding. A person must look into
// it and resume. A pause that a person made stays. The parts are written with the record.
func (k *Kernel) Halt(by string, found *audit.Record, parts ...store.Part) error {
	paused := &audit.Record{ID: k.newID(), ActionType: audit.ActionSecurity, Event: "sending_paused", Details: map[string]any{"by": by, "scope": api.PausedAll, "because": found.ID}}
	change := &store.Change{Records: []*audit.Record{found, paused}, Parts: slices.Clone(parts), Last: true}
	defer k.Exempt.End()
	result, err := k.setPause(store.Paused{Scope: api.PausedAll, At: k.now(), By: by}, true, change)
	if err == nil && !result.Changed {
		_, err = k.commit(&store.Change{Records: []*audit.Record{found}, Parts: parts, Last: true})
	}
	return err
}

// ActorPaused reports whether an actor of tasks is paused: the agent of its grant, or one that its
// app speaks for.
func (k *Kernel) ActorPaused(app, agent string) (reason string, paused bool) {
	agents := []string{agent}
	for _, a := range k.rules().directory.SpokenBy(app) {
		agents = append(agents, a.ID)
	}
	return k.pauses.Reason("", agents...)
}

// Deciding is [pause.Pauses.Deciding].
func (k *Kernel) Deciding() (done func()) { return k.pauses.Deciding() }
