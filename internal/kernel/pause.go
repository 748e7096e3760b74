package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// pauses knows what a person has stopped. It is looked at for every message, and
// replaced as a whole by whoever changes it.
type pauses struct {
	// changing is held from what holds now to the commit of what holds next.
	changing sync.Mutex
	now      atomic.Pointer[map[string]store.Paused]
}

func (p *pauses) load(ctx context.Context, s *store.Store) error {
	rows, err := s.Paused(ctx)
	if err != nil {
		return err
	}
	now := make(map[string]store.Paused, len(rows))
	for _, row := range rows {
		now[row.Scope] = row
	}
	p.now.Store(&now)
	return nil
}

// list is what is paused, in the order of the scopes.
func (p *pauses) list() []api.PausedScope {
	now := *p.now.Load()
	list := make([]api.PausedScope, 0, len(now))
	for _, scope := range slices.Sorted(maps.Keys(now)) {
		list = append(list, api.NewPausedScope(scope, now[scope].At, now[scope].By))
	}
	return list
}

// pausedFor reports whether what an agent sends through a channel is paused, and
// says so in words for its app.
func (k *Kernel) pausedFor(agent, channel string) (reason string, paused bool) {
	scope := k.pauses.of(channel, agent)
	switch scope {
	case "":
		return "", false
	case api.PausedAll:
		return "sending is paused", true
	}
	kind, name, _ := strings.Cut(scope, ":")
	return fmt.Sprintf("sending is paused for %s %s", kind, name), true
}

// of returns the widest scope that stops what these agents say to each other, or
// through a channel, "" where none does.
func (p *pauses) of(channel string, agents ...string) string {
	now := *p.now.Load()
	if len(now) == 0 {
		return ""
	}
	if _, all := now[api.PausedAll]; all {
		return api.PausedAll
	}
	for _, agent := range agents {
		scope := api.PausedAgent(agent)
		if _, paused := now[scope]; paused && agent != "" {
			return scope
		}
	}
	scope := api.PausedChannel(channel)
	if _, paused := now[scope]; paused && channel != "" {
		return scope
	}
	return ""
}

// Pause stops the sending of a scope, durably: from the record on, nothing of it is
// decided and nothing is handed to an app.
func (k *Kernel) Pause(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	if p.Agent != "" && k.rules().directory.Agent(p.Agent) == nil {
		return api.PauseResult{}, api.Errorf(api.NotFound, "there is no agent %q; agents[].id in the configuration lists them", p.Agent)
	}
	return k.changePause(who, p, true)
}

// Resume ends the pause of a scope, and lets flow what it kept back.
func (k *Kernel) Resume(_ context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	result, err := k.changePause(who, p, false)
	if err == nil && result.Changed {
		k.outbox.LookBack()
	}
	return result, err
}

func (k *Kernel) changePause(who api.Peer, p *api.PauseParams, pause bool) (api.PauseResult, error) {
	k.pauses.changing.Lock()
	defer k.pauses.changing.Unlock()
	scope := p.Scope()
	next := maps.Clone(*k.pauses.now.Load())
	if _, paused := next[scope]; paused == pause {
		return api.PauseResult{Paused: k.pauses.list()}, nil
	}
	r := &audit.Record{ID: k.newID(), ActionType: audit.ActionSecurity, Event: "sending_resumed", Details: byPerson(who, p.Note)}
	r.Details["scope"] = scope
	if agent := k.rules().directory.Agent(p.Agent); agent != nil {
		r.AgentID, r.TenantID, r.UserID = agent.InstanceID, agent.TenantID, agent.UserID
	}
	change := &store.Change{Records: []*audit.Record{r}, Last: true}
	if pause {
		r.Event = "sending_paused"
		row := store.Paused{Scope: scope, At: k.now(), By: principal(who)}
		next[scope] = row
		change.Add(row)
	} else {
		delete(next, scope)
		change.Add(store.Resumed(scope))
	}
	// In the order of the commits: whatever is durable after this is kept back.
	change.OnDurable(func(store.Receipt) { k.pauses.now.Store(&next) })
	receipt, err := k.commit(change)
	if err != nil {
		return api.PauseResult{}, err
	}
	return api.PauseResult{Changed: true, Paused: k.pauses.list(), AuditSeq: receipt.Seq}, nil
}

// principal names who operates as the operating system does.
func principal(who api.Peer) string {
	uid, _, _ := who.Credentials()
	return fmt.Sprintf("uid:%d", uid)
}

// byPerson is who decided something on the operator socket, as records have it.
func byPerson(who api.Peer, note string) map[string]any {
	uid, _, pid := who.Credentials()
	details := map[string]any{"by": principal(who), "uid": uid, "pid": pid}
	if note != "" {
		details["note"] = note
	}
	return details
}
