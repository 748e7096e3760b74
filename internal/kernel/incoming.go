package kernel

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// incoming is one message brought in by an app, or by who speaks for an agent without one:
// then app is nil.
type incoming struct {
	app          *registry.App
	appID        string
	agent        *Agent
	key, account string
	content      gate.Text
	metadata     api.Object
	// origin is where it came from, and from who is there: an agent that was seen,
	// where the directory has nobody.
	origin directory.Origin
	from   ocip.Counterparty
	// spoke are those whom it shows to read where it came from.
	spoke []ocip.Counterparty
	// generation is that of what was known when from was looked up.
	generation uint64
	// chain is the causal chain of an agent's message, speaker the agent, and
	// answer is set where the receiver had asked it.
	chain             ocip.Chain
	speaker           string
	answer            bool
	runID, dispatchID string
	// carried messages are with their runtime already.
	carried bool
	// task is what the message is about.
	task aboutTask
	// halves is how many halves of characters the daemon replaced in it, and lookalikes are
	// the names that those of members looked like which it took out.
	halves     int
	lookalikes []string
	// deliver, where set, has the message written to its agent, once it is durable, and
	// sealed is the message for a runtime that has it already.
	deliver api.AfterReply
	sealed  gate.Sealed
}

// mended says in a record of the message that it is not quite what was sent.
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

// describe enters into a record who brought a message in, and from where.
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

// sourced is who sent an envelope: of the kind agent where that is shown, or denied.
type sourced struct {
	ocip.Counterparty
	denied *ocip.Verdict
	// spoke are those whom it shows to read where it came from, and approved is set where
	// a person of this daemon let the message through.
	spoke    []ocip.Counterparty
	approved bool
	// chain is that of a message of an agent of this daemon, as it was sent.
	chain ocip.Chain
}

// isAddress reports whether a member of the message's metadata is where it came
// from, as the channel's app says.
func (in *incoming) isAddress(member string) bool {
	_, ok := in.origin.Brought[member]
	return ok
}

// form is the message as its agent is given it.
func (in *incoming) form() api.Inbound {
	return api.Inbound{RunID: in.runID, SessionKey: in.key, Content: in.content, Metadata: in.metadata, DispatchID: in.dispatchID}
}
