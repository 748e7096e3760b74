package kernel

import (
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// incoming is one message brought in by an app, or by a process that speaks for an agent without
// one: then app is nil.
type incoming struct {
	app          *registry.App
	appID        string
	agent        *Agent
	key, account string
	content      gate.Text
	metadata     api.Object
	// origin is the place that the message came from, and from the counterparty there: the agent
	// that was seen, if the directory has nobody.
	origin directory.Origin
	from   ocip.Counterparty
	// spoke are the readers of that place that the message shows.
	spoke []ocip.Counterparty
	// generation is the generation of the data by which from was found.
	generation uint64
	// chain is the causal chain of an agent's message, and speaker that agent. Answer is set if the
	// receiver had asked something.
	chain             ocip.Chain
	speaker           string
	answer            bool
	runID, dispatchID string
	// carried is set if the message is at its runtime already. It refuses a runtime that has left or
	// may not bring messages any more.
	carried remains
	// task is the task of the message.
	task aboutTask
	// halves counts the unpaired surrogates that the daemon replaced in it. Lookalikes lists the
	// names that removed members resembled.
	halves     int
	lookalikes []string
	// deliver, if set, writes the durable message to its agent. Sealed is the message for a runtime
	// that has it already.
	deliver api.AfterReply
	sealed  gate.Sealed
	// lane is set for a message from another host of the fleet. ReplyTo is the session key that leads
	// back to its sender.
	lane    *arrivedFrom
	replyTo string
}

// label returns the label that the message says its text has.
func (in *incoming) label() string {
	label, _ := api.Text(in.metadata["aiDisclosure"])
	return label
}

// mended notes in a record that the daemon has changed the message slightly.
func (in *incoming) mended(r *audit.Record) {
	if in.halves == 0 && len(in.lookalikes) == 0 {
		return
	}
	if r.Details == nil {
		r.Details = make(map[string]any)
	}
	if in.halves > 0 {
		r.Details["mended"] = in.halves
	}
	if len(in.lookalikes) > 0 {
		r.Details["removed"] = in.lookalikes
	}
}

func (in *incoming) about() api.HookContext {
	return api.HookContext{AgentID: in.agent.ID, SessionKey: in.key, ChannelID: directory.ChannelOf(in.key), AccountID: in.account}
}

// describe enters into a record the app that brought a message in, and its origin.
func (in *incoming) describe(r *audit.Record) {
	r.AppID, r.RunID, r.DispatchID = in.appID, in.runID, in.dispatchID
	if channel, _ := directory.Split(in.key); channel != directory.AgentChannel {
		r.Address = audit.Address(in.origin.Address)
	}
	if in.origin.LooksLike != "" {
		if r.Details == nil {
			r.Details = make(map[string]any)
		}
		r.Details["looksLike"] = in.origin.LooksLike
	}
	if name, _ := mapped(in.metadata); name != "" {
		if r.Details == nil {
			r.Details = make(map[string]any)
		}
		r.Details["map"] = name
	}
	in.task.enter(r)
	in.mended(r)
}

// annotate describes an annotated message in its record. Confirmed is set if the sender's identity is
// more than its own claim.
func (in *incoming) annotate(r *audit.Record, confirmed bool) {
	exchangestate.PeerLogHead(in.metadata, r)
	in.describe(r)
	if !confirmed {
		r.Details["unconfirmed"] = true
	}
}

// sourced is the sender of an envelope: of kind agent if that is proven, or denied.
type sourced struct {
	ocip.Counterparty
	denied *ocip.Verdict
	// spoke are the readers of the place that the envelope shows. Approved is set if a person of
	// this daemon approved the message.
	spoke    []ocip.Counterparty
	approved bool
	// chain is the chain of a message of this daemon's agent, as it was sent.
	chain ocip.Chain
}

// isAddress reports whether a member of the message's metadata is part of its origin, according to
// the channel's app.
func (in *incoming) isAddress(member string) bool {
	_, ok := in.origin.Brought[member]
	return ok
}

// form returns the message in the agent's form.
func (in *incoming) form() api.Inbound {
	return api.Inbound{RunID: in.runID, SessionKey: in.key, ReplyTo: in.replyTo, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID}
}

// close closes the message for its record: for its runtime, or in a delivery.
func (in *incoming) close(k *ruleset, record *audit.Record, expires time.Time) (letter gate.Letter, d *outbox.Delivery, err error) {
	if in.carried != nil {
		letter, err = k.records.closed(record, api.EmittedMessage{SessionKey: in.key, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID})
		return letter, nil, err
	}
	d = in.delivery(k.policy, expires)
	d.About.AuditID = record.ID
	return letter, d, k.records.closedIn(record, d, in.form())
}
