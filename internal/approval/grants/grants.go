// Package grants keeps approvals given beforehand: for the rest of an exchange, with the approval
// of one of its messages, and pre-approvals from one agent to one receiver. The package
// internal/ocip decides which messages a grant covers. This one knows the grants, whether their
// givers may still give them, their uses, and their end.
//
// A grant is used in the commit of the message that it releases ([Grants.Use]). The store refuses a
// use beyond the limit, or of a grant that was revoked before.
package grants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Options holds the dependencies of Grants.
type Options struct {
	Store *store.Store
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	Now    func() time.Time
	NewID  func() string
}

// Grants are all grants. They are safe for concurrent use.
type Grants struct {
	o Options
	// changing is held from the read of the list to its replacement.
	changing sync.Mutex
	// now are the usable grants, by the sender's instance id. They are read for every message.
	now atomic.Pointer[map[string][]*Grant]
}

// Grant is one usable grant.
type Grant struct {
	api.Grant
	rule ocip.Grant
	// session, target and exchangeType are those of the message that the exchange was approved
	// with: another place has other readers, and another type has another purpose. They are empty
	// if an earlier version made the grant.
	session, target, exchangeType string
	// tenant is the sender's, "" if an earlier version made the grant. An instance under another
	// tenant is another agent.
	tenant string
	// digest is the digest of the request that made the grant, and restored that of
	// [api.GrantAddParams].
	digest, restored string
	// to is the receiver at the time of the decision, nil if an earlier version made the grant. The
	// configuration can change who that is.
	to *Party
}

// Party is a counterparty's identity in the configuration.
type Party struct {
	Kind   ocip.Kind `json:"kind"`
	User   string    `json:"user,omitzero"`
	Tenant string    `json:"tenant,omitzero"`
}

// body is the stored form of a grant, beside the columns.
type body struct {
	Form           int      `json:"v"`
	Receiver       string   `json:"receiver"`
	ExchangeID     string   `json:"exchange,omitzero"`
	ConversationID string   `json:"conversation,omitzero"`
	ApprovalID     string   `json:"approval,omitzero"`
	Words          []string `json:"words"`
	Level          string   `json:"level"`
	MaxRound       int      `json:"round,omitzero"`
	MadeAt         int64    `json:"made_at"`
	People         []person `json:"people"`
	Digest         string   `json:"digest,omitzero"`
	Session        string   `json:"session,omitzero"`
	Target         string   `json:"target,omitzero"`
	Tenant         string   `json:"tenant,omitzero"`
	ExchangeType   string   `json:"type,omitzero"`
	Restored       string   `json:"restored,omitzero"`
	To             *Party   `json:"to,omitzero"`
}

// person is the stored form of a giver of a grant.
type person struct {
	By          string `json:"by"`
	UID         uint32 `json:"uid"`
	Note        string `json:"note,omitzero"`
	At          int64  `json:"at"`
	Fingerprint string `json:"fingerprint,omitzero"`
	Signature   string `json:"signature,omitzero"`
}

// form is the version of the stored form of a grant.
const form = 1

// Load loads the grants from the store.
func Load(ctx context.Context, o Options) (*Grants, error) {
	rows, err := o.Store.CommitmentGrantsInForce(ctx, o.Now())
	if err != nil {
		return nil, err
	}
	g, now := &Grants{o: o}, make(map[string][]*Grant)
	for _, row := range rows {
		one, err := decode(row)
		if err != nil {
			return nil, err
		}
		now[one.Agent] = append(now[one.Agent], one)
	}
	g.now.Store(&now)
	return g, nil
}

func (g *Grant) row() (*store.CommitmentGrant, error) {
	b := body{
		Form: form, Receiver: g.Receiver, ExchangeID: g.ExchangeID, ConversationID: g.ConversationID, ApprovalID: g.ApprovalID,
		Words: g.Words, Level: g.Classification, MaxRound: g.MaxRound, MadeAt: g.MadeAt, Digest: g.digest,
		Session: g.session, Target: g.target, Tenant: g.tenant, ExchangeType: g.exchangeType, Restored: g.restored, To: g.to,
	}
	for i := range g.People {
		p := &g.People[i]
		b.People = append(b.People, person{p.By, p.UID, p.Note, p.At, p.Fingerprint, p.Signature})
	}
	text, err := json.Marshal(&b)
	if err != nil {
		return nil, fmt.Errorf("cannot encode grant %s: %w", g.GrantID, err)
	}
	return &store.CommitmentGrant{ID: g.GrantID, Agent: g.Agent, Kind: g.Kind, Until: time.UnixMilli(g.Until), MaxUses: g.MaxUses, Body: text}, nil
}

func decode(row store.CommitmentGrant) (*Grant, error) {
	var b body
	if err := json.Unmarshal(row.Body, &b); err != nil {
		return nil, fmt.Errorf("cannot decode grant %s: %w", row.ID, err)
	}
	if b.Form != form {
		return nil, fmt.Errorf("cannot decode grant %s: form %d is not known to this version", row.ID, b.Form)
	}
	g := &Grant{digest: b.Digest, session: b.Session, target: b.Target, tenant: b.Tenant, exchangeType: b.ExchangeType, restored: b.Restored, to: b.To, Grant: api.Grant{
		GrantID: row.ID, Kind: row.Kind, State: row.State, Agent: row.Agent, Receiver: b.Receiver, ExchangeID: b.ExchangeID,
		ConversationID: b.ConversationID, ApprovalID: b.ApprovalID,
		Bounds: api.Bounds{Words: b.Words, Classification: b.Level, MaxRound: b.MaxRound, Until: row.Until.UnixMilli()},
		Uses:   row.Uses, MaxUses: row.MaxUses, MadeAt: b.MadeAt,
	}}
	for _, p := range b.People {
		g.People = append(g.People, api.ApprovalDecision{
			Decision: api.DecideApprove, By: p.By, UID: p.UID, Note: p.Note, At: p.At, Fingerprint: p.Fingerprint, Signature: p.Signature,
		})
	}
	return g, g.prepare()
}

// prepare computes the fields that decisions use.
func (g *Grant) prepare() error {
	level, err := ocip.ParseLevel(g.Classification)
	if err != nil {
		return fmt.Errorf("cannot use grant %s: %w", g.GrantID, err)
	}
	g.rule = ocip.Grant{
		ID: g.GrantID, Words: g.Words, Level: level, Rounds: g.MaxRound, Until: time.UnixMilli(g.Until),
		People: len(g.People), Standing: g.Kind == api.GrantStanding,
	}
	return nil
}

// About is a message that needs a grant: its sender and the sender's tenant, its receiver if that
// is an agent, its session and target, and its exchange if it has one.
type About struct {
	Agent, Tenant, Receiver, SessionKey, Target string
	Exchange                                    *ocip.Exchange
	// To is the receiver, nil for an arriving message.
	To *Party
	// Others is set if the message has further readers, and Elsewhere if it goes to another place
	// than the session's key says.
	Others, Elsewhere bool
}

// isFor reports whether a grant can cover a message.
func (g *Grant) isFor(m *About) bool {
	switch {
	case mutant.Off("grant-receiver"):
		return true
	case g.tenant != "" && g.tenant != m.Tenant, g.to != nil && m.To != nil && *g.to != *m.To:
		return false
	case g.Kind == api.GrantStanding:
		return g.Receiver == m.SessionKey && !m.Elsewhere || m.Receiver != "" && g.Receiver == m.Receiver && !m.Others
	}
	e := m.Exchange
	return e != nil && e.ID == g.ExchangeID && e.ConversationID == g.ConversationID && m.Receiver == g.Receiver &&
		(g.session == "" || m.SessionKey == "" || m.SessionKey == g.session) && (g.target == "" || m.SessionKey == "" || m.Target == g.target) && (g.exchangeType == "" || string(e.Type) == g.exchangeType)
}

// Some reports whether an agent has any grant.
func (g *Grants) Some(agent string) bool { return len((*g.now.Load())[agent]) > 0 }

// For returns the grants for a message, as rules for its decision, if their givers may still give
// them. Removing a signer revokes the grants that they signed, and a standing grant counts only if
// decisions are signed.
func (g *Grants) For(m *About, signers approval.Signers) (rules []ocip.Grant) {
	for _, one := range (*g.now.Load())[m.Agent] {
		if one.isFor(m) && one.stands(signers, g.o.Now()) {
			rules = append(rules, one.rule)
		}
	}
	return rules
}

// Waited returns the grant that released a message which has waited since, as a rule to weigh it
// again. There is none if the grant was revoked, has ended, or now covers something else, or if one
// of its givers may not sign any more. The number of uses does not matter: the message was one of
// them.
func (g *Grants) Waited(ctx context.Context, id string, m *About, signers approval.Signers) ([]ocip.Grant, error) {
	row, err := g.o.Store.CommitmentGrant(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case row.State != store.GrantInForce || !g.o.Now().Before(row.Until):
		return nil, nil
	}
	one, err := decode(row)
	if err != nil || !one.isFor(m) || !one.stands(signers, g.o.Now()) {
		return nil, err
	}
	return []ocip.Grant{one.rule}, nil
}

// Named returns the id of the grant that a message's record names, "" if no grant released it.
func Named(r *audit.Record) string {
	named, _ := r.Details["grant"].(map[string]any)
	id, _ := named["id"].(string)
	return id
}

func (g *Grant) stands(signers approval.Signers, now time.Time) bool {
	if signers == nil {
		return g.Kind != api.GrantStanding
	}
	text := g.signed()
	return !slices.ContainsFunc(g.People, func(p api.ApprovalDecision) bool {
		_, _, err := signers.Verify([]byte(p.Signature), []byte(api.SignedNote(text, p.Note)), now)
		if err != nil && p.Note != "" {
			// For grants from before notes were signed. Nothing relies on their notes.
			_, _, err = signers.Verify([]byte(p.Signature), []byte(text), now)
		}
		return err != nil
	})
}

// signed returns the text that the people signed. It is computed from the grant's effects, so that
// a grant can do only what was signed.
func (g *Grant) signed() string {
	if g.Kind == api.GrantStanding {
		return api.SignedGrant(&api.GrantAddParams{GrantID: g.GrantID, Agent: g.Agent, Receiver: g.Receiver, Bounds: g.Bounds, MaxUses: g.MaxUses, Restored: g.restored})
	}
	return api.SignedApproval(&api.Approval{Digest: g.digest, ApprovalSummary: api.ApprovalSummary{
		ApprovalID: g.ApprovalID, ExchangeID: g.ExchangeID, ConversationID: g.ConversationID, Agent: g.Agent, Counterparty: g.Receiver,
	}}, &g.Bounds)
}

// get returns a usable grant, or nil.
func (g *Grants) get(agent, id string) *Grant {
	for _, one := range (*g.now.Load())[agent] {
		if one.GrantID == id {
			return one
		}
	}
	return nil
}

// Enter enters a new grant into a change. It is in force once that is durable.
func (g *Grants) Enter(one *Grant, change *store.Change) error {
	one.State = api.GrantInForce
	row, err := one.row()
	if err == nil {
		err = one.prepare()
	}
	if err != nil {
		return err
	}
	change.Add(row)
	change.OnDurable(func(store.Receipt) {
		g.change(one.Agent, func(list []*Grant) []*Grant { return append(list, one) })
	})
	return nil
}

// change replaces the list of an agent's grants, without ended ones.
func (g *Grants) change(agent string, edit func([]*Grant) []*Grant) {
	g.changing.Lock()
	defer g.changing.Unlock()
	next, now := maps.Clone(*g.now.Load()), g.o.Now()
	list := slices.DeleteFunc(edit(slices.Clone(next[agent])), func(one *Grant) bool {
		return !now.Before(one.rule.Until) || one.MaxUses > 0 && one.Uses >= one.MaxUses
	})
	if next[agent] = list; len(list) == 0 {
		delete(next, agent)
	}
	g.now.Store(&next)
}

// Name enters into a message's record the grant that released it, and its givers. The approval is
// that of the exchange, if the grant is for one.
func (g *Grants) Name(agent, id string, r *audit.Record) {
	if one := g.get(agent, id); one != nil {
		r.ApprovalID = one.ApprovalID
		r.Details["grant"] = map[string]any{"id": one.GrantID, "kind": one.Kind, "by": one.By()}
	}
}

// Use enters into a message's change that a grant releases it. The commit fails with
// [store.ErrGrantOver] if the grant has ended by then.
func (g *Grants) Use(agent, id string, now time.Time, change *store.Change) {
	change.Add(store.GrantUse{ID: id, At: now})
	change.OnDurable(func(store.Receipt) { g.count(agent, id) })
}

// count counts a use of a grant, unless it was revoked since.
func (g *Grants) count(agent, id string) {
	g.change(agent, func(list []*Grant) []*Grant {
		for i, one := range list {
			if one.GrantID == id {
				used := *one
				used.Uses++
				list[i] = &used
			}
		}
		return list
	})
}

// Revoke revokes a grant: after the commit, no message can use it.
func (g *Grants) Revoke(ctx context.Context, who api.Peer, p *api.GrantRevokeParams) (api.GrantRevokeResult, error) {
	row, err := g.o.Store.CommitmentGrant(ctx, p.GrantID)
	if errors.Is(err, store.ErrNotFound) {
		return api.GrantRevokeResult{}, api.Errorf(api.NotFound, "there is no pre-approval %q", p.GrantID)
	}
	if err != nil || row.State != store.GrantInForce {
		return api.GrantRevokeResult{}, err
	}
	one, err := decode(row)
	if err != nil {
		return api.GrantRevokeResult{}, err
	}
	r := g.record(one, "grant_revoked")
	maps.Copy(r.Details, caller.PersonDetails(who, p.Note))
	change := &store.Change{Records: []*audit.Record{r}, Last: true}
	g.enterEnd(change, row.Agent, row.ID)
	receipt, err := g.o.Commit(change)
	return api.GrantRevokeResult{Changed: err == nil, AuditSeq: receipt.Seq}, err
}

// enterEnd enters the end of an agent's grant into a change.
func (g *Grants) enterEnd(change *store.Change, agent, id string) {
	change.Add(store.GrantEnded(id))
	change.OnDurable(func(store.Receipt) {
		g.change(agent, func(list []*Grant) []*Grant {
			return slices.DeleteFunc(list, func(one *Grant) bool { return one.GrantID == id })
		})
	})
}

// record begins a record about a grant.
func (g *Grants) record(one *Grant, event string) *audit.Record {
	return &audit.Record{
		ID: g.o.NewID(), ActionType: audit.ActionApproval, Event: event, AgentID: one.Agent,
		ExchangeID: one.ExchangeID, ConversationID: one.ConversationID, ApprovalID: one.ApprovalID,
		Details: map[string]any{"grantId": one.GrantID, "kind": one.Kind},
	}
}

// Add makes a pre-approval from one agent to one receiver, which must be signed. To is the receiver.
func (g *Grants) Add(who api.Peer, p *api.GrantAddParams, d *directory.Directory, decider *approval.Decider, approvers int, to *Party) (api.GrantAddResult, error) {
	now := g.o.Now()
	agent := d.Local(p.Agent)
	switch {
	case agent == nil:
		return api.GrantAddResult{}, api.Errorf(api.NotFound, "there is no agent %q; agents[].instance_id in the configuration lists them", p.Agent)
	case strings.HasSuffix(p.Receiver, "*"), !strings.Contains(p.Receiver, ":") && !d.Knows(p.Receiver):
		// A misspelled name would otherwise be signed and listed, and never used.
		return api.GrantAddResult{}, api.Errorf(api.NotFound, "there is no receiver %q: name one agent, by its instance_id in agents or directory, or one session, such as telegram:4711", p.Receiver)
	case decider.Signers == nil:
		return api.GrantAddResult{}, api.Errorf(api.Forbidden, "pre-approvals are signed, and approvals.allowed_signers names nobody who may sign")
	case approvers > 1:
		return api.GrantAddResult{}, api.Errorf(api.Forbidden, "a pre-approval is one person's, and approvals.required asks for %d", approvers)
	case p.Restored != store.Restored(g.o.Store):
		return api.GrantAddResult{}, api.Errorf(api.Conflict, "the state was restored as record %q, and the pre-approval names %q: sign it anew (restored, from grant.list)", store.Restored(g.o.Store), p.Restored)
	case p.Until <= now.UnixMilli():
		return api.GrantAddResult{}, api.Invalid([]api.FieldError{{Path: "until", Message: "is over already"}})
	case p.Until > now.Add(api.MaxGrantTime).UnixMilli():
		return api.GrantAddResult{}, api.Invalid([]api.FieldError{{Path: "until", Message: "is more than a year away"}})
	}
	one := &Grant{tenant: agent.TenantID, restored: p.Restored, to: to, Grant: api.Grant{
		GrantID: p.GrantID, Kind: api.GrantStanding, Agent: p.Agent, Receiver: p.Receiver, Bounds: p.Bounds, MaxUses: p.MaxUses, MadeAt: now.UnixMilli(),
	}}
	r := g.record(one, audit.EventGrantMade)
	by, err := decider.Who(who, api.DecideApprove, p.Note, p.Signature, one.signed(), g.record(one, ""))
	if err != nil {
		return api.GrantAddResult{}, err
	}
	one.People = []api.ApprovalDecision{by}
	r.TenantID, r.UserID = agent.TenantID, agent.UserID
	maps.Copy(r.Details, approval.Details(&by))
	r.Details["receiver"], r.Details["bounds"], r.Details["maxUses"] = p.Receiver, p.Bounds, p.MaxUses
	r.Details["signedText"] = api.SignedNote(one.signed(), p.Note)
	change := &store.Change{Records: []*audit.Record{r}}
	if err := g.Enter(one, change); err != nil {
		return api.GrantAddResult{}, err
	}
	change.Add(store.UsedSignature{Act: store.SignedGrant(one.GrantID), Until: one.rule.Until})
	receipt, err := g.o.Commit(change)
	if errors.Is(err, store.ErrGrantKnown) || errors.Is(err, store.ErrSignatureUsed) {
		return api.GrantAddResult{}, api.Errorf(api.Conflict, "there is, or was, a pre-approval %q; a signature makes one, so sign another id", p.GrantID)
	}
	return api.GrantAddResult{Grant: one.Grant, AuditSeq: receipt.Seq}, err
}

// OfApproval makes the grant for an exchange that people have approved with one of its messages.
// Tenant is the sender's, and to is the receiver.
func (g *Grants) OfApproval(r *approval.Request, tenant string, to *Party, b *api.Bounds, change *store.Change, now time.Time) (id string, err error) {
	one := &Grant{tenant: tenant, digest: r.Digest, session: r.SessionKey, target: r.Target, exchangeType: string(r.Type), to: to, Grant: api.Grant{
		GrantID: g.o.NewID(), Kind: api.GrantOfExchange, Agent: r.Agent, Receiver: r.Counterparty,
		ExchangeID: r.ExchangeID, ConversationID: r.ConversationID, ApprovalID: r.ApprovalID,
		Bounds: *b, MadeAt: now.UnixMilli(), People: slices.Clone(r.Approvals),
	}}
	return one.GrantID, g.Enter(one, change)
}

// List returns a page of grants.
func (g *Grants) List(ctx context.Context, p *api.GrantListParams, signers approval.Signers) (api.GrantListResult, error) {
	result, now := api.GrantListResult{Grants: []api.Grant{}, Restored: store.Restored(g.o.Store)}, g.o.Now()
	filter := store.GrantFilter{Agent: p.Agent, Kind: p.Kind}
	if !p.All {
		filter.UsableAt = now
	}
	var err error
	if filter.Until, filter.After, err = parsePlace(p.After); err != nil {
		return result, err
	}
	for {
		// One row more tells whether another page follows.
		rows, err := g.o.Store.CommitmentGrants(ctx, filter, p.Page()+1)
		if err != nil {
			return result, err
		}
		for _, row := range rows {
			one, err := decode(row)
			if err != nil {
				return result, err
			}
			if one.State, err = g.state(ctx, one, signers, now); err != nil {
				return result, err
			}
			if !p.All && one.State != api.GrantInForce {
				continue
			}
			if len(result.Grants) == p.Page() {
				last := &result.Grants[p.Page()-1]
				result.Next = strconv.FormatInt(last.Until, 10) + "#" + last.GrantID
				return result, nil
			}
			result.Grants = append(result.Grants, one.Grant)
		}
		if len(rows) <= p.Page() {
			return result, nil
		}
		last := &rows[len(rows)-1]
		filter.Until, filter.After = last.Until, last.ID
	}
}

// parsePlace returns the end and the id of the grant that is the last of a page.
func parsePlace(place string) (until time.Time, id string, err error) {
	if place == "" {
		return time.Time{}, "", nil
	}
	end, id, _ := strings.Cut(place, "#")
	ms, err := strconv.ParseInt(end, 10, 64)
	if err != nil || id == "" {
		return time.Time{}, "", api.Invalid([]api.FieldError{{Path: "after", Message: "not the next of a page"}})
	}
	return time.UnixMilli(ms), id, nil
}

// state returns the current state of a grant.
func (g *Grants) state(ctx context.Context, one *Grant, signers approval.Signers, now time.Time) (string, error) {
	switch {
	case one.State == store.GrantRevoked, !one.stands(signers, now):
		return api.GrantRevoked, nil
	case one.MaxUses > 0 && one.Uses >= one.MaxUses:
		return api.GrantUsedUp, nil
	case now.UnixMilli() >= one.Until:
		return api.GrantExpired, nil
	case one.Kind == api.GrantStanding:
		return api.GrantInForce, nil
	}
	sides, err := g.o.Store.Exchanges(ctx, store.ExchangeFilter{ID: one.ExchangeID, Agent: one.Agent}, 1, nil)
	if err != nil || len(sides) == 0 {
		return api.GrantOver, err
	}
	if e := &sides[0]; e.Round >= one.MaxRound || e.Outcome != ocip.InProgress && e.Outcome != ocip.Escalated {
		return api.GrantOver, nil
	}
	return api.GrantInForce, nil
}
