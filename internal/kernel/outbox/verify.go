package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// undecided is the error for a row that no decision allowed.
type undecided string

func (u undecided) Error() string { return string(u) }

// reopen closes again a message from the store, and opens it if it may still leave. Its error is an
// [undecided], a [gate.Withdrawn], a [gate.Anew], or the reason that it cannot tell now.
func (o *Outbox) reopen(ctx context.Context, to Receiver, m *store.Message) (*Delivery, error) {
	d, data, err := read(m)
	if err != nil {
		return d, undecided("it cannot be read")
	}
	d.basis = basisOf(o.host, d)
	tenant, generation := d.basis.tenant, d.basis.generation
	if sealed, known := o.memory.Recall(m.ID, generation, m.Body, data, m.Queue, m.DispatchID); known {
		d.sealed = sealed
		return d, d.reaches(o.host.Directory(), to)
	}
	found, w, err := o.evidence(ctx, d, m.Body[data:])
	if d.waited = w; err != nil {
		return d, err
	}
	d.sealed, err = gate.Open(found.Receipt, d.letter, func() error {
		if err := d.reaches(o.host.Directory(), to); err != nil || w == nil {
			return err
		}
		return o.host.Standing(ctx, w)
	})
	if err == nil && !d.Volatile && d.tenant() == tenant {
		o.memory.Keep(d.sealed, m.ID, generation, m.Body, m.Queue, m.DispatchID)
	}
	return d, err
}

// evidence finds the record that allowed a row, closes the row's message again, and sets the
// delivery's context from the record. gate.Waited is nil if it hands over no message.
func (o *Outbox) evidence(ctx context.Context, d *Delivery, data []byte) (*store.Decision, *gate.Waited, error) {
	decisions, err := decisionsAbout(ctx, o, d)
	if err != nil {
		return nil, nil, err
	}
	kind, name := directory.Split(d.Queue)
	form, said, why := d.form(kind, name, data)
	if why != "" {
		return nil, nil, undecided(why)
	}
	for i := range decisions {
		found := &decisions[i]
		if form != nil {
			err = d.Close(o.keys, found.TenantID, form)
		} else {
			err = d.CloseEvent(o.keys, found.TenantID, data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot hold a waiting message against its record: %w", err)
		}
		if _, err := gate.Open(found.Receipt, d.letter, nil); err != nil {
			continue
		}
		let := letting(decisions, found, said)
		if let == nil && said != nil {
			continue
		}
		if err := d.fromRecord(o.keys, o.host.Directory(), found, said, kind, name); err != nil {
			return nil, nil, err
		}
		if let == nil {
			return found, nil, nil
		}
		d.Volatile = let.Details["media"] != nil || let.Details["grant"] != nil || let.ApprovalID != "" || let.TaskID != "" || !o.host.Lasts()
		w := &gate.Waited{Record: &let.Entry, SessionKey: d.About.SessionKey, Form: said}
		if m, emitted := said.(*api.EmittedMessage); emitted {
			w.SessionKey = m.SessionKey
		}
		for j := range decisions {
			if a := &decisions[j]; a.ActionType == audit.ActionApproval && let.ApprovalID != "" && a.ApprovalID == let.ApprovalID {
				w.Approval = &a.Entry
			}
		}
		return found, w, nil
	}
	if err := Gone(ctx, o.store, o.search, decisions, d.RecordSeq); err != nil {
		return nil, nil, err
	}
	if len(decisions) == 0 {
		return nil, nil, undecided("no record lets it through")
	}
	return nil, nil, undecided(gate.ErrUndecided.Error())
}

// Gone returns a [gate.Withdrawn] for a message that cannot be held against its decision any more: retention
// has removed the record of it, or the digest key of its tenant is gone, on record. It is nil if both must be
// there. Decisions are those that were found, and decidedBy is the number of the record.
func Gone(ctx context.Context, s *store.Store, search store.Search, decisions []store.Decision, decidedBy uint64) error {
	if len(decisions) == 0 {
		if decidedBy == 0 || decidedBy > s.Retired() {
			return nil
		}
		return &gate.Withdrawn{Reason: fmt.Sprintf("the record of its decision (%d) was retired, so that it cannot be held against it any more", decidedBy)}
	}
	gone, err := store.KeyGone(ctx, s, search, decisions[0].TenantID, decidedBy)
	if err != nil || gone == 0 {
		return err
	}
	return &gate.Withdrawn{Reason: fmt.Sprintf("its tenant's digest key is gone (record %d), so that it cannot be held against its decision any more", gone)}
}

// decisionsAbout returns the records of the decision about a row, or an error if a later record ended its
// message.
func decisionsAbout(ctx context.Context, o *Outbox, d *Delivery) ([]store.Decision, error) {
	decisions, err := o.store.DecisionsOf(ctx, d.RecordSeq, d.DispatchID)
	ended := uint64(0)
	if err == nil && len(decisions) > 0 && d.RecordSeq <= o.found {
		// A row of a later record was written by this daemon, and stands for a message that waits.
		ended, err = store.EndOf(ctx, o.store, o.search, &d.Message, o.found)
	}
	if _, altered := errors.AsType[*store.AlteredError](err); altered {
		return nil, undecided("a record of its decision was changed by somebody else than the daemon")
	}
	if err == nil && ended > 0 {
		err = undecided(fmt.Sprintf("record %d ended it, and somebody has put its row back", ended))
	}
	return decisions, err
}

// letting returns the record of a message's own decision. For an event that hands over a message,
// found is the record of the person's decision, and the message has a record of its own.
func letting(decisions []store.Decision, found *store.Decision, said gate.Form) *store.Decision {
	if _, emitted := said.(*api.EmittedMessage); !emitted {
		if said == nil {
			return nil
		}
		return found
	}
	for i := range decisions {
		if d := &decisions[i]; d.ActionType == audit.ActionExchange && d.DeliveredDigest != "" && d.PolicyResult == string(ocip.Allow) {
			return d
		}
	}
	return nil
}

// form decodes a delivery for a kind of queue, or says why it does not belong there. The text must
// be exactly as the daemon writes it, so that nothing can be added. The form is nil for an event,
// and said is the message in it.
func (d *Delivery) form(kind, name string, data []byte) (form, said gate.Form, why string) {
	var to gate.Form
	switch {
	case kind == "app" && d.Name == fleetapi.ReceiptEvent && d.Hook == "":
		var event fleetapi.MessageReceipt
		if json.Unmarshal(data, &event, json.RejectUnknownMembers(true)) != nil {
			return nil, nil, "it cannot be read"
		}
		return nil, nil, ""
	case kind == "app" && d.Name == api.ApprovalEvent && d.Hook == "":
		var event api.ApprovalOutcome
		var m api.EmittedMessage
		if json.Unmarshal(data, &event) != nil || len(event.Data) > 0 && json.Unmarshal(event.Data, &m) != nil {
			return nil, nil, "it cannot be read"
		}
		if len(event.Data) > 0 {
			said = &m
		}
		return nil, said, ""
	case (kind == "channel" || kind == hostKind) && d.Hook == api.MessageSending && d.Name == "":
		to = new(api.Message)
	case kind == "agent" && d.Hook == api.MessageReceived && d.Name == "":
		to = new(api.Inbound)
	default:
		return nil, nil, "it is no message of such a queue"
	}
	if json.Unmarshal(data, to, json.RejectUnknownMembers(true)) != nil {
		return nil, nil, "it cannot be read"
	}
	if again, _ := to.Write(nil); !bytes.Equal(again, data) {
		return nil, nil, "it says more than its record let through"
	}
	if kind == hostKind {
		name = directory.AgentChannel
	}
	if m, ok := to.(*api.Message); ok && m.ChannelID != name {
		return nil, nil, "it is of another channel"
	}
	return to, to, ""
}

// answers reports why a session key, if there is one, does not lead back to the sender of a record's
// message: an agent of this daemon, or one on another host. The sender may be gone, or on yet another host,
// since then.
func answers(keys gate.Keys, who *directory.Directory, key string, r *audit.Record, sender *directory.Agent) error {
	there := sender != nil
	leads := there && strings.HasPrefix(key, directory.AgentChannel+":"+sender.ID+":")
	if r.Side == audit.SideReceiver {
		is := func(host, instance string) bool {
			return host != "" && keys.Same(r.TenantID, r.AppID, directory.AppOfHost(host)) && keys.Same(r.TenantID, r.Counterparty.InstanceID, instance)
		}
		leads = is(who.HostOf(key))
		host, _ := who.Elsewhere(r.Counterparty.InstanceID)
		there = is(host, r.Counterparty.InstanceID)
	}
	switch {
	case key == "" || leads:
		return nil
	case !there:
		return &gate.Withdrawn{Code: string(ocip.SourceMismatch), Reason: "its sender is no agent of its host any more"}
	}
	return undecided("it is answered elsewhere than its record let through")
}

// isFor reports whether a record is of a message for the agent that [directory.Agent.Identified]
// returned.
func isFor(keys gate.Keys, r *audit.Record, agent string) bool {
	decidedFor := audit.Counterparty{TenantID: r.TenantID, InstanceID: r.AgentID}
	if r.Side != audit.SideReceiver {
		decidedFor = r.Counterparty
	}
	tenant, instance, _ := strings.Cut(agent, "/")
	return keys.Same(r.TenantID, decidedFor.TenantID, tenant) && keys.Same(r.TenantID, decidedFor.InstanceID, instance)
}

// fromRecord sets the delivery's context from its record, and returns why the message does not
// match it, or has lost its sender. If the record has redacted a value, the row's value is used, provided that it
// has the same digest.
func (d *Delivery) fromRecord(keys gate.Keys, who *directory.Directory, found *store.Decision, said gate.Form, kind, name string) error {
	r := &found.Entry
	key := r.SessionKey
	if audit.Redacted(key) {
		if key = d.About.SessionKey; !keys.Same(r.TenantID, r.SessionKey, key) {
			return undecided("it is of another session than its record")
		}
	}
	sender := who.Local(r.AgentID)
	if r.Side == audit.SideReceiver {
		sender = nil
	}
	about := api.HookContext{AuditID: r.ID}
	d.From, d.By, d.Tenant = "", "", ""
	if sender != nil {
		d.From = sender.ID
	}
	switch kind {
	case "channel", hostKind:
		if channel, _ := directory.Split(key); channel != name && kind != hostKind {
			return undecided("its record is of session " + r.SessionKey)
		}
		d.By, d.Tenant, about.AgentID = r.AgentID, r.TenantID, d.From
	case "agent":
		m := said.(*api.Inbound)
		if m.SessionKey != key {
			return undecided("it names another session than its record")
		}
		if err := answers(keys, who, m.ReplyTo, &r.Record, sender); err != nil {
			return err
		}
		if !isFor(keys, &r.Record, d.For) {
			return undecided("its record is of a message for another agent")
		}
		d.RunID, about.AgentID = m.RunID, name
	case "app":
		if !keys.Same(r.TenantID, r.AppID, name) {
			return undecided("its record is of app " + r.AppID)
		}
		d.By, d.Tenant = r.AgentID, r.TenantID
		about = api.HookContext{AgentID: d.From, ChannelID: d.About.ChannelID}
		if local := who.LocalAgent(key); local != nil && said != nil {
			about.AgentID = local.ID
		}
		about.ChannelID, _ = directory.Split(key)
		d.About = about
		return nil
	}
	about.SessionKey, about.ChannelID = key, directory.ChannelOf(key)
	_, delivered := said.Write(nil)
	var metadata api.Object
	if len(delivered.Metadata) > 0 && json.Unmarshal(delivered.Metadata, &metadata) == nil {
		about.AccountID, _ = api.Text(metadata["accountId"])
	}
	d.About = about
	return nil
}

// alteredRow is the reason to remove a row that is not as the daemon wrote it.
const alteredRow = "its row was changed by somebody else than the daemon"

// reject removes a row that no decision allowed, with a record.
func (o *Outbox) reject(m *store.Message, why string) error {
	o.log.Error("a row of the outbox was not written by a decision: it is not delivered",
		zap.String("queue", m.Queue), zap.Uint64("record", m.RecordSeq), zap.String("reason", why))
	_, err := o.host.Commit(&store.Change{
		Records: []*audit.Record{{
			ID: o.newID(), ActionType: audit.ActionSecurity, Event: "undecided_message", DispatchID: m.DispatchID,
			PolicyResult: string(ocip.Deny), PolicyReason: why, Details: map[string]any{"queue": m.Queue, "decidedBy": m.RecordSeq},
		}},
		Parts:  []store.Part{store.Taken{m.MessageID}},
		Drains: true,
	})
	if err != nil {
		return err
	}
	o.given.remove(m.MessageID)
	if m.Altered {
		return nil // its other columns cannot be believed
	}
	decisions, err := o.store.DecisionsOf(o.closing, m.RecordSeq, m.DispatchID)
	for i := range decisions {
		if id := decisions[i].ApprovalID; id != "" {
			o.host.Withdrawn(id, &gate.Withdrawn{Reason: why})
			break
		}
	}
	if err != nil {
		o.log.Error("cannot tell who approved a message that was taken out", zap.Error(err))
	}
	return nil
}

func withReason(details map[string]any, reason string) map[string]any {
	all := map[string]any{"reason": reason}
	maps.Copy(all, details)
	return all
}
