package registry

import (
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/directory"
	"go.uber.org/zap"
)

// binding is what was found out about an app under some terms: a nil error where it
// may run, and else why not.
type binding struct {
	under *Terms
	err   error
}

// CheckBinding reports whether an app may still run: an agent it speaks for can have
// been bound to another user or program since it registered.
func (r *Registry) CheckBinding(t *Terms, a *App) error {
	known := a.binding.Load()
	if known != nil && known.under == t {
		return known.err
	}
	found := &binding{under: t, err: r.mayRun(t, a.ID(), a.peer)}
	for known == nil || known.under.Generation < t.Generation {
		if !a.binding.CompareAndSwap(known, found) {
			known = a.binding.Load()
			continue
		}
		if found.err != nil && r.registered(a) {
			// It is refused also where that cannot be recorded.
			details := t.claimDetails(a)
			details["connected"] = true
			_ = r.RecordRefusal(a, "binding_refused", found.err, details)
		}
		break
	}
	return found.err
}

// CheckBindings checks every app that is registered, and returns them.
func (r *Registry) CheckBindings(t *Terms) []*App {
	r.mu.RLock()
	apps := slices.Collect(maps.Values(r.apps))
	r.mu.RUnlock()
	for _, a := range apps {
		_ = r.CheckBinding(t, a)
	}
	return apps
}

// bindingOK reports whether an app was found to be allowed to run, under these terms
// or later ones. It never waits.
func (a *App) bindingOK(t *Terms) bool {
	b := a.binding.Load()
	return b != nil && b.err == nil && b.under.Generation >= t.Generation
}

func (r *Registry) registered(a *App) bool { return r.Connected(a.ID()) == a }

// claimDetails is what a record says of who claimed an app's id.
func (t *Terms) claimDetails(a *App) map[string]any {
	details := map[string]any{"pid": a.pid, "uid": a.uid}
	if like := t.Directory.LooksLike(a.ID()); like != "" {
		details["looksLike"] = like
	}
	return details
}

// mayRun checks that an app may have its id, and the user and the program that the id
// is bound to.
func (r *Registry) mayRun(t *Terms, id string, peer api.Peer) error {
	if err := t.Directory.MayRegister(id); err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	for _, agent := range t.Directory.SpokenBy(id) {
		if err := r.MayBe(agent, "app "+id, peer); err != nil {
			return err
		}
	}
	return nil
}

// MayBe checks that a process is the user and the program that an agent is bound to.
// Who names what speaks for the agent.
func (r *Registry) MayBe(agent *directory.Agent, who string, peer api.Peer) error {
	if uid, _, _ := peer.Credentials(); agent.UID != nil && *agent.UID != uid {
		return api.Errorf(api.Forbidden, "%s speaks for agent %s, which is bound to user %d; this process runs as user %d", who, agent.ID, *agent.UID, uid)
	}
	if agent.Exe == "" {
		return nil
	}
	exe, err := peer.Executable()
	if err != nil {
		r.log.Warn("cannot tell which program connects", zap.String("agent", agent.ID), zap.Error(err))
		return api.Errorf(api.Forbidden, "%s speaks for agent %s, which is bound to a program, and the kernel cannot tell which program this is", who, agent.ID)
	}
	if exe != agent.Exe {
		return api.Errorf(api.Forbidden, "%s speaks for agent %s, which is bound to %s; this process runs %s", who, agent.ID, agent.Exe, exe)
	}
	return nil
}
