package kernel

import (
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Terms are all that messages are decided by. They are replaced as one.
type Terms struct {
	Config Config
	Policy ocip.Policy
	// Signers, where set, is who may sign decisions: each must then be signed.
	Signers approval.Signers
	// Seal, where set, makes what records keep of a text itself. Where it fails,
	// nothing is released.
	Seal func(text string) (string, error)
}

// ruleset is the kernel under one set of terms, which never changes. A call takes
// the one in force when it begins and keeps it to its end, so that no message is
// decided half by one configuration and half by another. What reads terms is
// a method of ruleset; what is a method of [Kernel] alone is the same under all.
type ruleset struct {
	*Kernel
	cfg       Config
	directory *directory.Directory
	policy    ocip.Policy
	signers   approval.Signers
	seal      func(text string) (string, error)
	// generation counts the rulesets, from 1.
	generation uint64
}

// rules returns what is in force. Whoever asks twice may get two answers, so a
// call asks once.
func (k *Kernel) rules() *ruleset { return k.inForce.Load() }

func (k *Kernel) newRuleset(t *Terms) (*ruleset, error) {
	r := &ruleset{Kernel: k, cfg: t.Config, policy: t.Policy, signers: t.Signers, seal: t.Seal}
	var err error
	r.directory, err = directory.New(&r.cfg.Directory)
	return r, err
}

// sender returns the agent for which an app speaks, which it must name where
// there are several.
func (k *ruleset) sender(app, named string) (*Agent, error) {
	agent, err := k.directory.Sender(app, named)
	if err != nil {
		return nil, api.Errorf(api.Forbidden, "%s", err)
	}
	return agent, nil
}

// Prepare makes everything of other terms that can fail, and changes nothing.
// What it returns puts them in force: one swap, after which every call that
// begins is made under them. It may be called once, and one at a time.
func (k *Kernel) Prepare(t Terms) (adopt func(), err error) {
	next, err := k.newRuleset(&t)
	if err != nil {
		return nil, err
	}
	return func() { k.adopt(next) }, nil
}

func (k *Kernel) adopt(next *ruleset) {
	next.generation = k.rules().generation + 1
	// Before the swap, so that nobody who stays has to wait for it, and after it
	// for those who came in between.
	next.clearAll()
	before := k.inForce.Swap(next)
	apps := next.clearAll()
	k.outbox.rebind()
	for _, a := range apps {
		k.outbox.resume(k.queuesOf(a))
		if before.cfg.UnhealthyAfter != next.cfg.UnhealthyAfter {
			k.checkHealth(a)
		}
	}
}

// clearance is what was found out about an app under a ruleset: nil where it may
// run, and else why not.
type clearance struct {
	under *ruleset
	err   error
}

// clear reports whether an app may still run: an agent it speaks for can have been
// bound to another user or program since it registered.
func (k *ruleset) clear(a *app) error {
	known := a.clearance.Load()
	if known != nil && known.under == k {
		return known.err
	}
	found := &clearance{under: k, err: k.mayRun(a.id(), a.peer)}
	for known == nil || known.under.generation < k.generation {
		if !a.clearance.CompareAndSwap(known, found) {
			known = a.clearance.Load()
			continue
		}
		if found.err != nil && k.registered(a) {
			// It is refused also where that cannot be recorded.
			details := k.claim(a)
			details["connected"] = true
			_ = k.onRecord(a, "binding_refused", found.err, details)
		}
		break
	}
	return found.err
}

// clearAll looks at every app that is registered, and returns them.
func (k *ruleset) clearAll() []*app {
	k.mu.RLock()
	apps := slices.Collect(maps.Values(k.apps))
	k.mu.RUnlock()
	for _, a := range apps {
		_ = k.clear(a)
	}
	return apps
}

// cleared reports whether an app was found to be allowed to run, under these terms
// or later ones. It never waits.
func (k *ruleset) cleared(a *app) bool {
	c := a.clearance.Load()
	return c != nil && c.err == nil && c.under.generation >= k.generation
}

func (k *Kernel) registered(a *app) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.apps[a.id()] == a
}

// rules returns what a call of the client's app is decided by. Terms under which
// the app may not run refuse its calls from the next one on.
func (c *Client) rules() (*ruleset, error) {
	k := c.kernel.rules()
	return k, k.clear(c.app.Load())
}
