package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"go.uber.org/zap"
)

// binding is the result of the check of an app under some terms: nil if it may run, else the
// reason.
type binding struct {
	under *Terms
	err   error
}

// CheckBinding reports whether an app may still run: the configuration may have bound one of its
// agents to another user or program since it registered.
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
			// It is refused even if the record fails.
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

// bindingOK reports whether a check allowed the app to run, under these terms or later ones. It
// never waits.
func (a *App) bindingOK(t *Terms) bool {
	b := a.binding.Load()
	return b != nil && b.err == nil && b.under.Generation >= t.Generation
}

func (r *table) registered(a *App) bool { return r.Connected(a.ID()) == a }

// claimDetails returns the details about the claimant of an app id for a record.
func (t *Terms) claimDetails(a *App) map[string]any {
	details := map[string]any{"pid": a.pid, "uid": a.uid}
	if like := t.Directory.LooksLike(a.ID()); like != "" {
		details["looksLike"] = like
	}
	return details
}

// mayRun checks that an app may have its id, and runs as the user and the program that the id is
// bound to.
func (r *Registry) mayRun(t *Terms, id string, peer api.Peer) error {
	if err := t.Directory.MayRegister(id); err != nil {
		return api.Errorf(api.Forbidden, "%v", err)
	}
	for _, agent := range t.Directory.SpokenBy(id) {
		if err := r.MayBe(t, agent, "app "+id, peer); err != nil {
			return err
		}
	}
	return nil
}

// MayBe checks that a process is the user and the program that an agent is bound to. Who names the
// claimant for the reason. If other parties' apps share the daemon, the claimant is not told the
// reason; the log and the record of the refusal have it.
func (r *Registry) MayBe(t *Terms, agent *directory.Agent, who string, peer api.Peer) error {
	why := r.OtherThan(agent, peer)
	if why == "" {
		return nil
	}
	reason := fmt.Sprintf("%s speaks for agent %s, which is bound to %s", who, agent.ID, why)
	if !t.Directory.Shared() {
		return api.Errorf(api.Forbidden, "%s", reason)
	}
	r.log.Warn("a process is not who an agent is bound to: refused", zap.String("reason", reason))
	return &withheld{api.Errorf(api.Forbidden, "%s is not this process's to use; the kernel's log says why", who), reason}
}

// OtherThan says which binding of an agent a process does not match, "" if there is none.
func (r *Registry) OtherThan(agent *directory.Agent, peer api.Peer) string {
	if uid, _, _ := peer.Credentials(); agent.UID != nil && *agent.UID != uid {
		return fmt.Sprintf("user %d; this process runs as user %d", *agent.UID, uid)
	}
	if agent.Exe == "" {
		return ""
	}
	exe, err := peer.Executable()
	if err != nil {
		r.log.Warn("cannot tell which program connects", zap.String("agent", agent.ID), zap.Error(err))
		return "a program, and the kernel cannot tell which program this is"
	}
	if exe != agent.Exe {
		return fmt.Sprintf("%s; this process runs %s", agent.Exe, exe)
	}
	return ""
}

// withheld is a refusal whose reason only the log and the record have.
type withheld struct {
	error

	reason string
}

func (w *withheld) Unwrap() error { return w.error }

// reasonOf returns the recorded reason of a refusal.
func reasonOf(refusal error) string {
	if w, ok := errors.AsType[*withheld](refusal); ok {
		return w.reason
	}
	return api.AsError(refusal).Message
}
