// Package pause keeps the pauses that people made: of all sending, of an agent, or of a channel.
package pause

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/store"
)

// Pauses are the paused scopes. They are read for every message, and each change replaces them as a
// whole.
type Pauses struct {
	// changing is held from the read of the pauses to the commit of their change, and shared by
	// decisions about messages that no queue could keep back.
	changing sync.RWMutex
	now      atomic.Pointer[map[string]store.Paused]
}

// Deciding keeps pauses from beginning until the returned function is called. Code that releases a
// message without a queue calls it, then checks the pauses, and commits. An earlier check may be
// outdated, for example because a person was asked in between.
func (p *Pauses) Deciding() (done func()) {
	p.changing.RLock()
	return p.changing.RUnlock
}

// Changing waits for the decisions in progress, and keeps others from beginning until the returned
// function is called.
func (p *Pauses) Changing() (done func()) {
	p.changing.Lock()
	return p.changing.Unlock
}

// Load loads the pauses from an open store.
func Load(ctx context.Context, s *store.Store) (*Pauses, error) {
	rows, err := s.Paused(ctx)
	if err != nil {
		return nil, err
	}
	now := make(map[string]store.Paused, len(rows))
	for _, row := range rows {
		now[row.Scope] = row
	}
	p := new(Pauses)
	p.now.Store(&now)
	return p, nil
}

// List returns the pauses, in the order of the scopes.
func (p *Pauses) List() []api.PausedScope {
	now := *p.now.Load()
	list := make([]api.PausedScope, 0, len(now))
	for _, scope := range slices.Sorted(maps.Keys(now)) {
		list = append(list, api.NewPausedScope(scope, now[scope].At, now[scope].By))
	}
	return list
}

// Reason reports whether messages between these agents, or through a channel, are paused, with a
// text for an app.
func (p *Pauses) Reason(channel string, agents ...string) (reason string, paused bool) {
	scope := p.Of(channel, agents...)
	switch scope {
	case "":
		return "", false
	case api.PausedAll:
		return "sending is paused", true
	}
	kind, name, _ := strings.Cut(scope, ":")
	return fmt.Sprintf("sending is paused for %s %s", kind, name), true
}

// Of returns the widest scope that stops messages between these agents, or through a channel, or
// "".
func (p *Pauses) Of(channel string, agents ...string) string {
	now := *p.now.Load()
	if len(now) == 0 || mutant.Off("pause") {
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

// Change has a commit pause a scope, or end its pause, and reports whether that changed anything.
// From the commit on, nothing of a paused scope is released. The change holds its record.
func (p *Pauses) Change(row store.Paused, pause bool, change *store.Change, commit func(*store.Change) (store.Receipt, error)) (api.PauseResult, error) {
	p.changing.Lock()
	defer p.changing.Unlock()
	next := maps.Clone(*p.now.Load())
	if _, paused := next[row.Scope]; paused == pause {
		return api.PauseResult{Paused: p.List()}, nil
	}
	if pause {
		next[row.Scope] = row
		change.Add(row)
	} else {
		delete(next, row.Scope)
		change.Add(store.Resumed(row.Scope))
	}
	// In the order of the commits: everything that becomes durable after this is kept back.
	change.OnDurable(func(store.Receipt) { p.now.Store(&next) })
	receipt, err := commit(change)
	if err != nil {
		return api.PauseResult{}, err
	}
	return api.PauseResult{Changed: true, Paused: p.List(), AuditSeq: receipt.Seq}, nil
}
