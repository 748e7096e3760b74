package kernel

import (
	"errors"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Terms are the basis of all decisions. They are replaced as one.
type Terms struct {
	Config Config
	Policy ocip.Policy
	// Signers, if set, are the people who may sign decisions; then each decision must be signed.
	Signers approval.Signers
	// Seal, if set, encrypts a text for its record. If it fails, nothing is released.
	Seal func(text string) (string, error)
	// SealHeld seals only the texts of messages that wait for a person.
	SealHeld bool
	// Fleet, if set, is this daemon's place in a fleet.
	Fleet *Fleet
}

// ruleset decides under one set of terms, which never changes. A call takes the one in force when
// it begins and keeps it to its end, so that no message is decided partly by one configuration and
// partly by another. For that reason a ruleset has the state that all share, and not the [Kernel],
// which has the other rulesets.
type ruleset struct {
	*base
	cfg       Config
	directory *directory.Directory
	policy    ocip.Policy
	signers   approval.Signers
	member    *Fleet
	lanes     *keylock.Locks // of Hosts

	records       *records
	addresses     *addresses
	conversations *conversations
	// decider takes people's decisions. The other fields are these terms in the form that each
	// package needs.
	decider       *approval.Decider
	terms         *registry.Terms
	hookRules     *hooks.Rules
	exchangeRules *exchanges.Rules
}

// rules returns the ruleset in force. Two calls may return different ones, so an operation calls it
// once.
func (k *Kernel) rules() *ruleset { return k.inForce.Load() }

func (k *Kernel) newRuleset(t *Terms) (*ruleset, error) {
	r := &ruleset{base: k.base, cfg: t.Config, policy: t.Policy, signers: t.Signers, member: t.Fleet, lanes: &k.Hosts.lanes}
	var err error
	r.directory, err = directory.New(&r.cfg.Directory)
	r.records = &records{digest: r.digest, keys: r.keys, seal: t.Seal, sealHeld: t.SealHeld, newID: r.newID, log: r.log}
	r.addresses = &addresses{directory: r.directory, state: r.state, generation: r.generation}
	r.conversations = &conversations{store: r.store, state: r.state, directory: r.directory, cfg: &r.cfg, newID: r.newID}
	r.terms = &registry.Terms{Config: r.cfg.Config, Directory: r.directory, Agents: r.cfg.Directory.Agents, Grants: r.cfg.Directory.Grants}
	r.decider = k.requests.Under(approval.Rules{Signers: r.signers, KeepContent: r.cfg.KeepHeld, Judge: r.cfg.Judge, Subject: r.subject})
	tools, _ := t.Policy.(ocip.ToolPolicy)
	r.hookRules = &hooks.Rules{Directory: r.directory, Terms: r.terms, Content: r.records.content, Look: lookAtTool(r.cfg.Rules), Policy: tools, Decider: r.decider, MaxHeld: r.cfg.MaxHeld, Approvers: r.cfg.Approvers, HoldFor: r.cfg.HoldFor}
	r.exchangeRules = &exchanges.Rules{Directory: r.directory, Decider: r.decider, MaxHeld: r.cfg.MaxHeld, HoldFor: r.cfg.HoldFor, Name: r.records.named}
	return r, err
}

// generation counts the changes to the basis of decisions about a tenant's agents: the terms, the
// exchanges that people have ended, and the known agents and speakers. A decision reads it first,
// before the rest of its basis, so that a message decided on older knowledge has an older
// generation.
func (k *ruleset) generation(tenant string) uint64 {
	return k.terms.Generation<<32 | (k.settled.Load()+k.state.Learned(tenant))&0xffffffff
}

// Adoption puts new terms in force, in three steps: Begin, then Swap between [Kernel.Replacing] and its
// end, then Finish.
type Adoption struct{ Begin, Swap, Finish func() }

// Do takes all steps.
func (a *Adoption) Do() {
	a.Begin()
	a.Swap()
	a.Finish()
}

// Prepare makes everything of new terms that can fail, and changes nothing. Calls that begin after
// the swap use the new terms. Take the steps once, and of no two adoptions at a time.
func (k *Kernel) Prepare(t Terms) (Adoption, error) {
	next, err := k.newRuleset(&t)
	if err != nil {
		return Adoption{}, err
	}
	var before *ruleset
	return Adoption{
		// Before the swap, so that calls of allowed apps need not wait for the check; and after
		// it, for apps that came in between.
		Begin: func() {
			next.terms.Generation = k.rules().terms.Generation + 1
			k.apps.CheckBindings(next.terms)
		},
		Swap: func() { before = k.inForce.Swap(next) },
		Finish: func() {
			apps := k.apps.CheckBindings(next.terms)
			k.recall()
			k.outbox.Rebind()
			for _, a := range apps {
				k.outbox.Resume(k.queuesOf(a))
				if before.cfg.UnhealthyAfter != next.cfg.UnhealthyAfter {
					k.apps.CheckHealth(a)
				}
			}
			k.Hosts.ring()
		},
	}, nil
}

// Replacing waits for the decisions in progress and keeps others from beginning, until the returned
// function is called. The record of new terms and their swap come in between, so that each
// decision is made under the terms that its place in the log says.
func (k *Kernel) Replacing() (done func()) { return k.pauses.Changing() }

// Client is one connection of an app, registered or not.
type Client struct {
	*registry.Client
	kernel *Kernel
}

// Connect begins a connection.
func (k *Kernel) Connect(peer api.Peer, link api.Link) *Client {
	return &Client{Client: k.apps.Connect(peer, link), kernel: k}
}

// rules returns the ruleset for a call of the client's app. If the app may not run under its terms,
// the call is refused.
func (c *Client) rules() (*ruleset, error) {
	k := c.kernel.rules()
	return k, c.CheckBinding(k.terms)
}

// under runs a client's call under the ruleset in force.
func under[R any](c *Client, call func(*ruleset) (R, error)) (R, error) {
	return anew(func() (result R, err error) {
		k, err := c.rules()
		if err != nil {
			return result, err
		}
		return call(k)
	})
}

// anew repeats a call while its ruleset was replaced before the call decided anything. The call
// takes the ruleset in force each time.
func anew[R any](call func() (R, error)) (result R, err error) {
	for {
		if result, err = call(); !errors.Is(err, hooks.ErrReplaced) {
			return result, err
		}
	}
}
