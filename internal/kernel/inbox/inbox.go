// Package inbox delivers messages to agents without an app. A process reads an agent's messages, a
// cursor marks the ones it has had, and each message that the cursor passes is on record. One
// process at a time reads an agent's messages.
package inbox

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/kernel/contacts"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Options holds the dependencies of the inboxes.
type Options struct {
	Outbox   *outbox.Outbox
	Contacts *contacts.Contacts
	Apps     *registry.Registry
	// Ours lists the members of metadata that the daemon writes. A reader gets their content in the
	// daemon's own fields.
	Ours []string
	// Digest makes the keyed digest that stands for a text in records.
	Digest func(tenant, text string) (string, error)
	Now    func() time.Time
	NewID  func() string
	// Closing is closed when the daemon ends, so that readers stop waiting.
	Closing <-chan struct{}
}

// Inboxes are the messages of all agents without an app. Its methods are safe for
// concurrent use.
type Inboxes struct {
	outbox   *outbox.Outbox
	contacts *contacts.Contacts
	apps     *registry.Registry
	ours     []string
	digest   func(tenant, text string) (string, error)
	now      func() time.Time
	newID    func() string
	closing  <-chan struct{}
	passing  keylock.Locks
	listing  keylock.Locks

	mu sync.Mutex
	by map[string]reading // readers, by agent
}

// reading is a process that reads for an agent until its connection ends. Unwatched cancels the
// cleanup for that end.
type reading struct {
	// of identifies the agent that it reads for, see [directory.Agent.Identified].
	of        string
	peer      api.Peer
	unwatched func() bool
}

// New returns the inboxes.
func New(o Options) *Inboxes {
	return &Inboxes{
		outbox: o.Outbox, contacts: o.Contacts, apps: o.Apps, ours: o.Ours, digest: o.Digest, now: o.Now, newID: o.NewID, closing: o.Closing, by: make(map[string]reading),
	}
}

// Reader reads one agent's inbox, by a grant.
type Reader struct {
	*Inboxes
	agent     *directory.Agent
	directory *directory.Directory
	names     *directory.Config
	terms     *registry.Terms
	grant     string
	peer      api.Peer
	// still refuses a reader whose permission ended while it waited.
	still func(context.Context) error
}

// For returns the reader of an agent's inbox, for a process whose grant was checked under one
// configuration.
func (i *Inboxes) For(agent *directory.Agent, d *directory.Directory, names *directory.Config, t *registry.Terms, grant string, peer api.Peer) *Reader {
	return &Reader{
		Inboxes: i, agent: agent, directory: d, names: names, terms: t, grant: grant, peer: peer,
		still: func(context.Context) error { return nil },
	}
}

// While sets the check that a waiting reader must pass again once there is a message.
func (r *Reader) While(still func(context.Context) error) { r.still = still }

// pageBytes is the approximate size of one page of an inbox.
const pageBytes = 256 << 10

// Read passes the cursor and returns the messages behind it. If there are none, it waits for one.
func (r *Reader) Read(ctx context.Context, p *api.AgentReadParams) (api.InboxPage, api.AfterReply, error) {
	result := api.InboxPage{Messages: []gate.Shown[api.AgentMessage]{}}
	if err := r.enter(ctx); err != nil {
		return result, nil, err
	}
	queue := outbox.AgentQueue(r.agent.ID)
	if p.Cursor != "" {
		seal, err := r.seal()
		if err != nil {
			return result, nil, err
		}
		// A cursor that this inbox did not issue passes nothing: its messages come again.
		if to, ok := seal.open(p.Cursor); ok {
			if err := r.pass(ctx, queue, to); err != nil {
				return result, nil, err
			}
		}
	}
	over := time.NewTimer(time.Duration(p.WaitS) * time.Second)
	defer over.Stop()
	for {
		came, leave := r.outbox.Arrival(queue)
		page, err := r.outbox.Read(ctx, queue, r.agent.Identified(), p.Page(), pageBytes)
		if err != nil || len(page.Messages) > 0 || p.WaitS == 0 {
			leave()
			if err == nil {
				err = r.shown(&page, &result)
			}
			return result, nil, err
		}
		select {
		case <-came:
			leave()
			if err := r.still(ctx); err != nil {
				return result, nil, err
			}
		case <-over.C:
			leave()
			return result, nil, nil
		case <-ctx.Done():
			leave()
			return result, nil, ctx.Err()
		case <-r.closing:
			leave()
			return result, nil, nil
		}
	}
}

// pass records that messages were read, and tells the agent's observers.
func (r *Reader) pass(ctx context.Context, queue string, to outbox.Cursor) error {
	defer r.passing.Lock(r.agent.ID)()
	had, err := r.outbox.Pass(context.WithoutCancel(ctx), queue, to, func(d *outbox.Delivery) *audit.Record {
		return &audit.Record{
			ID: r.newID(), ActionType: audit.ActionDelivery, Event: "read", Side: audit.SideReceiver, TenantID: r.agent.TenantID, UserID: r.agent.UserID,
			AgentID: r.agent.InstanceID, AppID: r.agent.App, SessionKey: d.About.SessionKey, DispatchID: d.DispatchID, RunID: d.RunID,
			Details: map[string]any{"decidedBy": d.RecordSeq, "grant_id": r.grant},
		}
	})
	for _, d := range had {
		about := d.About
		about.Timestamp = r.now().UnixMilli()
		r.apps.Observe(r.terms, api.MessageReceived, d.Sealed(), about, d.From, nil)
	}
	return err
}

// shown adds the messages of a page to the reader's result.
func (r *Reader) shown(page *outbox.Page, result *api.InboxPage) error {
	for _, d := range page.Messages {
		m, err := gate.Show(d.Sealed(), r.view)
		if err != nil {
			return err
		}
		result.Messages = append(result.Messages, m)
	}
	if len(page.Messages) > 0 {
		seal, err := r.seal()
		if err == nil {
			result.Cursor, err = seal.close(&page.Cursor)
		}
		if err != nil {
			return err
		}
	}
	result.More = page.More
	result.While(page.Stays)
	return nil
}

// view returns a message in the form for readers of an inbox.
func (r *Reader) view(in api.Inbound) api.AgentMessage {
	m := api.AgentMessage{DispatchID: in.DispatchID, Session: in.SessionKey, ReplyTo: in.ReplyTo, Text: in.Content.Inspect(), Metadata: in.Metadata}
	if m.ReplyTo == "" {
		m.ReplyTo = in.SessionKey
	}
	if e, err := ocip.ParseEnvelope(in.Metadata["ocip"]); err == nil {
		m.From, m.FromUser = e.SourceAgent.InstanceID, e.SourceAgent.UserID
		m.Classification, m.MessageType, m.ReplyPolicy = e.Classification.String(), string(e.MessageType), string(e.ReplyPolicy)
		m.Round, m.MaxRounds, m.ExpiresAt = e.ExchangeRound, e.MaxRounds, e.ExpiresAt.Time
	}
	var of struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	if raw := in.Metadata["exchange"]; len(raw) > 0 && json.Unmarshal(raw, &of) == nil {
		m.ExchangeID, m.ExchangeType = of.ID, of.Type
	}
	if about, err := api.TaskOf(m.Metadata); err == nil && about.ID != "" {
		m.TaskID = about.ID
		delete(m.Metadata, "task")
	}
	for _, name := range r.ours {
		delete(m.Metadata, name)
	}
	delete(m.Metadata, "exchange")
	return m
}

// Contacts lists the possible receivers for the agent: those of its tenant in the configuration,
// and the sessions that it had.
func (r *Reader) Contacts(ctx context.Context, _ *api.AgentContactsParams) (api.AgentContacts, api.AfterReply, error) {
	// Only one call at a time, whatever the number of the agent's connections.
	defer r.listing.Lock(r.agent.ID)()
	result := api.AgentContacts{Agent: r.agent.ID, Contacts: []api.AgentContact{}}
	add := func(c api.AgentContact) {
		if !slices.ContainsFunc(result.Contacts, func(has api.AgentContact) bool { return has.Session == c.Session }) {
			result.Contacts = append(result.Contacts, c)
		}
	}
	for i := range r.names.Agents {
		if a := &r.names.Agents[i]; a.TenantID == r.agent.TenantID && a.ID != r.agent.ID {
			to := api.AgentSendParams{To: a.ID}
			add(api.AgentContact{Session: to.SessionKey(), Kind: string(ocip.KindAgent), InstanceID: a.InstanceID, UserID: a.UserID, OrgUnit: a.OrgUnit, Here: true})
		}
	}
	for e := range r.names.All() {
		owner := e.Kind != ocip.KindAgent && e.UserID == r.agent.UserID
		if e.TenantID != r.agent.TenantID && (e.TenantID != "" || !owner && r.directory.SeveralTenants()) {
			continue
		}
		kind := string(e.Kind)
		switch {
		case e.Group:
			kind = "group"
		case owner:
			kind = string(ocip.KindOwner)
		}
		for _, session := range e.Sessions {
			// A pattern is no session, and the agent cannot use other agents' channels.
			if channel, _ := directory.Split(session); !strings.Contains(session, "*") && (channel == directory.AgentChannel || r.directory.Served(channel, r.agent) == nil) {
				add(api.AgentContact{Session: session, Kind: kind, InstanceID: e.InstanceID, UserID: e.UserID, OrgUnit: e.OrgUnit})
			}
		}
	}
	had, err := r.contacts.List(ctx, &api.ContactListParams{}, r.directory, r.agent)
	for i := range had.Contacts {
		// Others write to the agent at its own session.
		if c := &had.Contacts[i]; r.directory.LocalAgent(c.SessionKey) == nil {
			add(api.AgentContact{Session: c.SessionKey, Kind: c.Kind, InstanceID: c.InstanceID, UserID: c.UserID})
		}
	}
	return result, nil, err
}

// enter makes a process the reader of an agent until its connection ends.
func (r *Reader) enter(ctx context.Context) error {
	i, agent, peer := r.Inboxes, r.agent.ID, r.peer
	i.mu.Lock()
	defer i.mu.Unlock()
	has, some := i.by[agent]
	switch {
	case some && has.peer == peer:
		has.of = r.agent.Identified()
		i.by[agent] = has
		return nil
	case some && has.of == r.agent.Identified() && has.peer.Present() == nil && !sameProcess(has.peer, peer):
		return api.Errorf(api.Conflict, "another process reads for agent %s: end it first", agent)
	case some:
		has.unwatched()
	}
	i.by[agent] = reading{r.agent.Identified(), peer, context.AfterFunc(ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.by[agent].peer == peer {
			delete(i.by, agent)
			i.outbox.Left(outbox.AgentQueue(agent))
		}
	})}
	return nil
}

// Has reports whether a process reads for an agent.
func (i *Inboxes) Has(agent string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, some := i.by[agent]
	return some
}

func sameProcess(a, b api.Peer) bool {
	one, err := a.Process()
	other, otherErr := b.Process()
	return err == nil && otherErr == nil && one != "" && one == other
}
