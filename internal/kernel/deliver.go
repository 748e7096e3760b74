package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// queuesOf lists the queues whose messages an app receives.
func (k *Kernel) queuesOf(a *registry.App) (queues []string) {
	rules := k.rules()
	for _, channel := range k.apps.Channels(rules.terms, a) {
		queues = append(queues, outbox.ChannelQueue(channel))
	}
	for _, agent := range rules.directory.SpokenBy(a.ID()) {
		queues = append(queues, outbox.AgentQueue(agent.ID))
	}
	return append(queues, outbox.AppQueue(a.ID()))
}

// deliveries adapts the outbox to the registry.
type deliveries struct{ kernel *Kernel }

func (d deliveries) Resume(a *registry.App) { d.kernel.outbox.Resume(d.kernel.queuesOf(a)) }

func (d deliveries) ResumeChannel(channel string) {
	d.kernel.outbox.Resume([]string{outbox.ChannelQueue(channel)})
}

func (d deliveries) Leave(a *registry.App) { d.kernel.outbox.Leave(a) }

func (d deliveries) Acknowledge(a *registry.App, of *registry.Delivery, said registry.Receipt) error {
	return d.kernel.outbox.Acknowledge(a.ID(), of, said)
}

// receivers adapts the kernel to the outbox.
type receivers struct{ kernel *Kernel }

// Receiver returns the app that takes a queue's messages now, or nil.
func (h receivers) Receiver(queue string) outbox.Receiver {
	kind, name := directory.Split(queue)
	k := h.kernel
	r := k.rules()
	var a *registry.App
	switch kind {
	case "channel":
		a = k.apps.ChannelReceiver(r.terms, name)
	case "agent":
		if agent := r.directory.Agent(name); agent != nil {
			a = k.apps.Receiver(r.terms, agent.App)
		}
	case "app":
		a = k.apps.Receiver(r.terms, name)
	}
	if a == nil {
		return nil
	}
	return a
}

// Directory returns the directory in force.
func (h receivers) Directory() *directory.Directory { return h.kernel.rules().directory }

// PausedBy returns the scope of a pause that stops messages between two agents or through a
// channel.
func (h receivers) PausedBy(channel, from, to string) string {
	return h.kernel.pauses.Of(channel, from, to)
}

// HookEvent makes the event that hands a delivery to an app.
func (h receivers) HookEvent(b []byte, to outbox.Receiver, d *outbox.Delivery, about api.HookContext) gate.Event {
	return h.kernel.apps.Deliver(b, to.(*registry.App), d.Hook, d.Sealed(), about, d.Reference())
}

// Handed tells observers that an app was handed a delivery.
func (h receivers) Handed(to outbox.Receiver, d *outbox.Delivery, about api.HookContext) {
	k := h.kernel.rules()
	if d.Hook == api.MessageSending {
		// The channel's owner too, after the message, if it asked for that.
		k.apps.Observe(k.terms, api.MessageSent, d.Sealed(), about, d.From, nil)
		return
	}
	k.apps.Observe(k.terms, api.MessageReceived, d.Sealed(), about, d.From, to.(*registry.App))
	k.apps.Observe(k.terms, api.AgentStarting, gate.Fact(api.RunEvent(d.RunID, d.About.AgentID, d.About.SessionKey)), about, "", nil)
}

// Commit makes a change of the outbox durable.
func (h receivers) Commit(c *store.Change) (store.Receipt, error) { return h.kernel.commit(c) }

// QueueList returns a page of allowed messages that have not reached their receivers.
func (k *Kernel) QueueList(ctx context.Context, p *api.QueueListParams) (api.QueueListResult, error) {
	return k.outbox.List(ctx, p)
}

// QueueDrop removes messages that have not reached their receivers.
func (k *Kernel) QueueDrop(_ context.Context, who api.Peer, p *api.QueueDropParams) (api.QueueDropResult, error) {
	return k.outbox.Drop(caller.PersonDetails(who, p.Note), p)
}

// known is the daemon's knowledge of the receiver: its generation, and whether an observed speaker
// decided.
type known struct {
	generation uint64
	learned    bool
}

// toApp is the delivery of a message to the app that owns its channel.
func (m *outgoing) toApp(p ocip.Policy, names *directory.Directory, v *ocip.Verdict, auditID string) *outbox.Delivery {
	d := &outbox.Delivery{
		Generation: m.known.generation, Volatile: m.volatile(p),
		Message: store.Message{MessageID: store.MessageID{Queue: outbox.ChannelQueue(m.channel)}, DispatchID: m.dispatchID, ExpiresAt: v.Exchange.ExpiresAt},
		Event:   outbox.Event{Hook: api.MessageSending, From: m.sender.ID, By: m.sender.InstanceID, Tenant: m.sender.TenantID, About: m.about()},
	}
	d.About.AuditID = auditID
	if m.channel == directory.AgentChannel {
		if host, _ := names.HostOf(m.key); host != "" {
			d.Queue = outbox.HostQueue(host)
		}
	}
	return d
}

// toAgent is the delivery of a message between agents of this daemon.
func (m *outgoing) toAgent(p ocip.Policy, runID string, v *ocip.Verdict, auditID string) *outbox.Delivery {
	return &outbox.Delivery{
		Generation: m.known.generation, Volatile: m.volatile(p),
		Message: store.Message{MessageID: store.MessageID{Queue: outbox.AgentQueue(m.local.ID)}, DispatchID: m.dispatchID, ExpiresAt: v.Exchange.ExpiresAt},
		Event: outbox.Event{
			Hook: api.MessageReceived, RunID: runID, From: m.sender.ID, For: m.local.Identified(),
			About: api.HookContext{AgentID: m.local.ID, SessionKey: m.key, ChannelID: directory.ChannelOf(m.key), AccountID: m.account, AuditID: auditID},
		},
	}
}

// delivery is the message on its way to its agent.
func (in *incoming) delivery(p ocip.Policy, expires time.Time) *outbox.Delivery {
	return &outbox.Delivery{
		Generation: in.generation, Volatile: in.task.ID != "" || !p.Lasts(),
		Message: store.Message{MessageID: store.MessageID{Queue: outbox.AgentQueue(in.agent.ID)}, DispatchID: in.dispatchID, ExpiresAt: expires},
		Event:   outbox.Event{Hook: api.MessageReceived, RunID: in.runID, For: in.agent.Identified(), About: in.about()},
	}
}

// volatile reports whether the basis of the decision can change without the rules: an attached
// file, the list of signers, a grant, the message's task, or the time that the policy reads.
func (m *outgoing) volatile(p ocip.Policy) bool {
	return len(m.media) > 0 || m.approvalID != "" || m.grant != "" || m.task.ID != "" || !p.Lasts()
}

// tellApp puts an event into the queue of its app. The change's first record is about that, and gets the
// digest of the event.
func tellApp(k *ruleset, change *store.Change, told *outbox.Delivery, payload any) error {
	event, err := json.Marshal(payload, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("cannot encode an event: %w", err)
	}
	err = told.CloseEvent(k.keys, told.Tenant, event)
	if change.Records[0].DeliveredDigest = told.Digest(); err != nil {
		return recordable(k.log, err)
	}
	told.Enter(change)
	change.OnDurable(func(receipt store.Receipt) {
		k.outbox.Open(receipt, told)
		if flush := k.outbox.Offer(told); flush != nil {
			flush()
		}
	})
	return nil
}
