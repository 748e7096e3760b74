package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/outbox"
	"github.com/openclawos/ocipd/internal/store"
)

// Granted is an agent without an app, which a grant lets a connection speak and read
// for. It is one call's.
type Granted struct {
	kernel *Kernel
	rules  *ruleset
	agent  *Agent
	grant  string
	peer   api.Peer
}

// Grantable returns the tenant of an agent that a grant can name, and an error where there
// is none.
func (k *Kernel) Grantable(agent string) (tenant string, err error) {
	a := k.rules().directory.Agent(agent)
	switch {
	case a == nil:
		return "", api.Errorf(api.NotFound, "there is no agent %.64q; ocipd status lists the configured ones", agent)
	case !directory.IsAgents(a.App):
		return "", hasApp(a)
	}
	return a.TenantID, nil
}

func hasApp(a *Agent) error {
	return api.Errorf(api.Forbidden, "agent %s has the app %s, which speaks for it and takes its messages: leave agents[].app out for an agent that speaks by grants", a.ID, a.App)
}

// Granted returns the agent that a grant of a tenant names, where the process at the
// other end may speak for it.
func (k *Kernel) Granted(agent, tenant, grant string, peer api.Peer) (*Granted, error) {
	r := k.rules()
	g := &Granted{kernel: k, rules: r, agent: r.directory.Agent(agent), grant: grant, peer: peer}
	switch {
	case g.agent == nil || g.agent.TenantID != tenant:
		return nil, api.Errorf(api.Unauthorized, "the grant's agent %s is not configured as it was", agent)
	case !directory.IsAgents(g.agent.App):
		return nil, hasApp(g.agent)
	}
	err := peer.Present()
	if err != nil {
		err = api.Errorf(api.Forbidden, "the process that connected is not who speaks")
	} else {
		err = k.apps.MayBe(g.agent, "this grant", peer)
	}
	if err != nil {
		return nil, k.apps.RecordRefusalOf(g.agent.App, "binding_refused", err, map[string]any{"grant_id": grant})
	}
	return g, nil
}

// Send takes a message to its receiver, the way that an app's takes. Asked again with
// the same key, it answers what it answered before.
func (g *Granted) Send(ctx context.Context, p *api.AgentSendParams) (api.AgentSent, api.AfterReply, error) {
	var asked string
	if p.RequestKey != "" {
		text, err := json.Marshal(p, json.Deterministic(true))
		if err != nil {
			return api.AgentSent{}, nil, fmt.Errorf("cannot encode a request: %w", err)
		}
		asked = approval.Asked("agent.send", string(text))
		defer g.kernel.asking.Lock(g.agent.App + "\n" + p.RequestKey)()
		before, err := g.kernel.store.RequestOf(ctx, g.agent.App, p.RequestKey, g.kernel.now())
		switch {
		case err == nil && before.Asked != asked:
			return api.AgentSent{}, nil, api.Errorf(api.Conflict, "the request key %s was of another message", p.RequestKey)
		case err == nil:
			var sent api.AgentSent
			err = json.Unmarshal(before.Result, &sent)
			sent.Replayed = true
			return sent, nil, err
		case !errors.Is(err, store.ErrNotFound):
			return api.AgentSent{}, nil, err
		}
	}
	m := &outgoing{appID: g.agent.App, sender: g.agent, grantID: g.grant}
	if asked != "" {
		m.keep = func(c *store.Change, r *api.DispatchResult) error {
			text, err := json.Marshal(r.SentBy())
			c.Add(&store.RequestKey{Actor: g.agent.App, Key: p.RequestKey, Asked: asked, At: g.kernel.now(), Result: text})
			return err
		}
	}
	k := g.rules
	if err := k.direct(ctx, m, p.Dispatch()); err != nil {
		return api.AgentSent{}, nil, err
	}
	if err := k.served(m); err != nil {
		return api.AgentSent{}, nil, k.apps.RecordRefusalOf(g.agent.App, "sender_refused", err, map[string]any{"sessionKey": m.key, "grant_id": g.grant})
	}
	if err := k.prepare(ctx, m); err != nil {
		return api.AgentSent{}, nil, err
	}
	result, err := k.send(m)
	if err != nil {
		return api.AgentSent{}, nil, err
	}
	return result.SentBy(), m.deliver, nil
}

// pageBytes is about how much of an inbox is read at a time.
const pageBytes = 256 << 10

// Read passes the cursor and gives what waits behind it. It waits for a message where
// there is none.
func (g *Granted) Read(ctx context.Context, p *api.AgentReadParams) (api.AgentMessages, api.AfterReply, error) {
	result := api.AgentMessages{Messages: []api.AgentMessage{}}
	k := g.kernel
	if err := k.inboxes.enter(ctx, g.agent.ID, g.peer); err != nil {
		return result, nil, err
	}
	queue := outbox.AgentQueue(g.agent.ID)
	if p.Cursor != "" {
		to, err := api.ParseInboxCursor(p.Cursor)
		if err == nil {
			err = g.pass(ctx, queue, to)
		}
		if err != nil {
			return result, nil, err
		}
	}
	over := time.NewTimer(time.Duration(p.WaitS) * time.Second)
	defer over.Stop()
	for {
		came, leave := k.outbox.Arrival(queue)
		page, err := k.outbox.Read(ctx, queue, p.Page(), pageBytes)
		if err != nil || len(page.Messages) > 0 || p.WaitS == 0 {
			leave()
			if err == nil {
				err = shown(&page, &result)
			}
			return result, nil, err
		}
		select {
		case <-came:
			leave()
		case <-over.C:
			leave()
			return result, nil, nil
		case <-ctx.Done():
			leave()
			return result, nil, ctx.Err()
		case <-k.closing.Done():
			leave()
			return result, nil, nil
		}
	}
}

// pass puts on record that messages were read, and tells those who observe the agent.
func (g *Granted) pass(ctx context.Context, queue string, to api.InboxCursor) error {
	k := g.kernel
	defer k.asking.Lock("inbox " + g.agent.ID)()
	had, err := k.outbox.Pass(context.WithoutCancel(ctx), queue, to, func(d *outbox.Delivery) *audit.Record {
		return &audit.Record{
			ID: k.newID(), ActionType: audit.ActionDelivery, Event: "read", Side: audit.SideReceiver, TenantID: g.agent.TenantID, UserID: g.agent.UserID,
			AgentID: g.agent.InstanceID, AppID: g.agent.App, SessionKey: d.About.SessionKey, DispatchID: d.DispatchID, RunID: d.RunID,
			Details: map[string]any{"decidedBy": d.RecordSeq, "grant_id": g.grant},
		}
	})
	for _, d := range had {
		about := d.About
		about.Timestamp = k.now().UnixMilli()
		k.apps.Observe(g.rules.terms, api.MessageReceived, d.Data, about, nil)
	}
	return err
}

// shown are the messages of a page as their reader is given them.
func shown(page *outbox.Page, result *api.AgentMessages) error {
	for _, d := range page.Messages {
		var in api.Inbound
		if err := json.Unmarshal(d.Data, &in); err != nil {
			return fmt.Errorf("cannot decode a message that waits: %w", err)
		}
		m := api.AgentMessage{DispatchID: d.DispatchID, Session: in.SessionKey, ReplyTo: in.ReplyTo, Text: in.Content, Metadata: in.Metadata}
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
		for _, name := range ours {
			delete(m.Metadata, name)
		}
		delete(m.Metadata, "exchange")
		delete(m.Metadata, "aiDisclosure")
		result.Messages = append(result.Messages, m)
	}
	if len(page.Messages) > 0 {
		result.Cursor = page.Cursor.Text()
	}
	result.More = page.More
	return nil
}

// Contacts lists whom the agent can write to: those of its tenant that the configuration
// has, and the sessions that it had.
func (g *Granted) Contacts(ctx context.Context, _ *api.AgentContactsParams) (api.AgentContacts, api.AfterReply, error) {
	k, result := g.rules, api.AgentContacts{Agent: g.agent.ID, Contacts: []api.AgentContact{}}
	add := func(c api.AgentContact) {
		if !slices.ContainsFunc(result.Contacts, func(has api.AgentContact) bool { return has.Session == c.Session }) {
			result.Contacts = append(result.Contacts, c)
		}
	}
	for i := range k.cfg.Directory.Agents {
		if a := &k.cfg.Directory.Agents[i]; a.TenantID == g.agent.TenantID && a.ID != g.agent.ID {
			to := api.AgentSendParams{To: a.ID}
			add(api.AgentContact{Session: to.SessionKey(), Kind: string(ocip.KindAgent), InstanceID: a.InstanceID, UserID: a.UserID, OrgUnit: a.OrgUnit, Here: true})
		}
	}
	for i := range k.cfg.Directory.Entries {
		e := &k.cfg.Directory.Entries[i]
		owner := e.Kind != ocip.KindAgent && e.UserID == g.agent.UserID
		if e.TenantID != g.agent.TenantID && (e.TenantID != "" || !owner && k.directory.SeveralTenants()) {
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
			// A pattern is no session, and a channel of others none of the agent's.
			if channel, _ := directory.Split(session); !strings.Contains(session, "*") && (channel == agentChannel || k.directory.Served(channel, g.agent) == nil) {
				add(api.AgentContact{Session: session, Kind: kind, InstanceID: e.InstanceID, UserID: e.UserID, OrgUnit: e.OrgUnit})
			}
		}
	}
	had, err := k.contacts.List(ctx, &api.ContactListParams{Agent: g.agent.ID}, k.directory)
	for i := range had.Contacts {
		// The agent's own session is where others write to it.
		if c := &had.Contacts[i]; k.directory.LocalAgent(c.SessionKey) == nil {
			add(api.AgentContact{Session: c.SessionKey, Kind: c.Kind, InstanceID: c.InstanceID, UserID: c.UserID})
		}
	}
	return result, nil, err
}

// Exchange returns the agent's side of an exchange.
func (g *Granted) Exchange(ctx context.Context, p *api.AgentExchangeParams) (api.ExchangeResult, api.AfterReply, error) {
	result, err := g.kernel.exchanges.Get(ctx, p.ExchangeID, g.rules.ending().Of(g.agent.App))
	return result, nil, err
}

// Approval tells what became of a message that is held.
func (g *Granted) Approval(ctx context.Context, p *api.AgentApprovalParams) (api.AgentApproval, api.AfterReply, error) {
	r, err := g.kernel.approvalOf(ctx, p.ApprovalID, g.agent.App)
	if err != nil {
		return api.AgentApproval{}, nil, err
	}
	a := api.AgentApproval{
		ApprovalID: r.ApprovalID, Status: r.State, Code: r.Code, Reason: r.Reason, DispatchID: r.DispatchID, ExchangeID: r.ExchangeID, ExpiresAt: time.UnixMilli(r.ExpiresAt).UTC(),
	}
	if r.Decision != nil {
		a.Note = r.Decision.Note
	}
	return a, nil, nil
}

// inboxes are the processes that read for agents: of an agent's messages, one process
// has each.
type inboxes struct {
	mu sync.Mutex
	by map[string]api.Peer
}

// enter makes a process the reader of an agent until its connection ends.
func (i *inboxes) enter(ctx context.Context, agent string, peer api.Peer) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	has := i.by[agent]
	if has == peer {
		return nil
	}
	if has != nil && has.Present() == nil && !sameProcess(has, peer) {
		return api.Errorf(api.Conflict, "another process reads for agent %s: end it first", agent)
	}
	if i.by == nil {
		i.by = make(map[string]api.Peer)
	}
	i.by[agent] = peer
	context.AfterFunc(ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.by[agent] == peer {
			delete(i.by, agent)
		}
	})
	return nil
}

// has reports whether somebody reads for an agent.
func (i *inboxes) has(agent string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.by[agent] != nil
}

func sameProcess(a, b api.Peer) bool {
	one, err := a.Process()
	other, otherErr := b.Process()
	return err == nil && otherErr == nil && one != "" && one == other
}
