package kernel

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchange"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/hints"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// outgoing is one message on its way to a receiver. Each stage of that way fills one of its parts.
type outgoing struct {
	speaker
	destination
	content    gate.Text
	metadata   api.Object
	hints      hints.Hints
	dispatchID string
	// unlabelled messages are of a runtime that cannot change their text.
	unlabelled bool
	// asked holds the caller's original parameters, before interceptors ran, and requested
	// caches their digest. ChangedBy names the interceptors that changed the message.
	asked     *api.DispatchParams
	requested string
	changedBy []string
	// task is what the message is about.
	task aboutTask
	attached
	earlier
	// record is that of the decision. Sealed is the message for a runtime that delivers by
	// itself, set once the record is durable; deliver, if set, writes the message to its
	// receiver after that.
	record  *audit.Record
	sealed  gate.Sealed
	deliver api.AfterReply
}

// destination is where a message goes.
type destination struct {
	key, channel, target, account string
	// local is the receiver if it is an agent of this daemon.
	local *Agent
	// recipient is the one that the message reaches. To is how the rules see it: as an agent
	// that was seen there, if the directory has nobody.
	recipient directory.Recipient
	to        ocip.Counterparty
	known     known
}

// attached is what a message holds besides its text.
type attached struct {
	// passages are the strings of the metadata.
	passages []ocip.Passage
	media    []api.MediaItem
	// files is what was found in media, and extracts are the parts of it that people are shown.
	files    ocip.Weighed
	extracts []ocip.Extract
}

// earlier is what was decided about a message that was held, or has waited.
type earlier struct {
	// waited is set for a message that was let through before and is weighed again, and
	// person is what a person had to do with that.
	waited bool
	person ocip.Person
	// grant is the id of the grant that lets the message go, and under that grant's rule if
	// the message has waited.
	grant string
	under []ocip.Grant
	// ungranted messages are weighed as if nobody had approved anything beforehand.
	ungranted bool
	// approvalID names the hold that the message is released from, and askedAt is when it was
	// held. Conclude enters the decision of the person who releases it into the change, once
	// it is known whether a receiver in this daemon refuses the message.
	approvalID string
	askedAt    time.Time
	conclude   func(refused *ocip.Verdict) error
}

// answered enters what the sender is answered into the change that decides.
func (m *outgoing) answered(c *store.Change, r *api.DispatchResult) error {
	if m.keep == nil {
		return nil
	}
	return m.keep(c, r)
}

// about is the context of the hook events about the message.
func (m *outgoing) about() api.HookContext {
	return api.HookContext{AgentID: m.sender.ID, SessionKey: m.key, ChannelID: directory.ChannelOf(m.key), AccountID: m.account}
}

// unconfirmed reports whether the counterparty is known as an agent by what it said of
// itself alone.
func (m *outgoing) unconfirmed() bool {
	return m.to.Kind == ocip.KindAgent && m.recipient.Counterparty.Kind == ocip.KindUnknown
}

// asSender is the sender as the rules see it. Where strangers read along with an
// agent, no more may be said than strangers may be told.
func (m *outgoing) asSender() ocip.Agent {
	a := m.sender.Agent
	if m.recipient.Group && m.recipient.Strangers && a.MaxUnknown != nil {
		a.MaxShared = min(a.MaxShared, *a.MaxUnknown)
	}
	return a
}

// other names the other end of the message to whoever locks the two.
func (m *outgoing) other() string { return exchange.OtherEnd(m.to.InstanceID, m.key) }

// reader is the person who reads the message, empty where many do.
func (m *outgoing) reader() string {
	if m.recipient.Group && m.to.Kind != ocip.KindAgent {
		return ""
	}
	return m.to.UserID
}

// ownTurn reports whether the sender's runtime says that no message of another agent led to
// this one, and is believed.
func (m *outgoing) ownTurn() bool { return m.carried && m.hints.OwnTurn && m.sender.OwnTurns }

// named adds to the passages what the caller chose in the names of session and
// account, where nobody has declared the one and the channel's app has not named
// the other: they arrive with the message. A name without letters is a number of
// its network.
func (m *outgoing) named(list []ocip.Passage) []ocip.Passage {
	name, account := "", m.account
	switch {
	case m.local != nil:
		_, name = directory.Split(m.key)
		_, name, _ = strings.Cut(name, ":")
	case m.recipient.Counterparty.Kind == ocip.KindUnknown:
		_, name = directory.Split(m.key)
	case m.recipient.OwnAccount() != "":
		account = ""
	}
	for _, p := range [...]ocip.Passage{{Member: "sessionKey", Text: name}, {Member: "accountId", Text: account}} {
		if strings.ContainsFunc(p.Text, unicode.IsLetter) {
			p.Prose = strings.ContainsAny(p.Text, " \t")
			list = append(slices.Clip(list), p)
		}
	}
	return list
}

func (m *outgoing) summary() string {
	if m.hints.Summary != "" {
		return m.hints.Summary
	}
	return ocip.Summarize(m.content.Inspect())
}

func (m *outgoing) concern() *exchanges.Concern {
	return &exchanges.Concern{Agent: m.sender, Other: m.to, Key: m.key, Summary: ocip.Summarize(m.content.Inspect()), DispatchID: m.dispatchID}
}

// handedTo is the target that the delivered message's digest is taken with: the
// address its channel's app sends to, or the session of whoever delivers by other
// means.
func (m *outgoing) handedTo() string {
	if m.carried || m.local != nil {
		return m.key
	}
	return m.target
}

// inAnnotation reports whether the label of an agent's message stands in its annotation
// alone: no person is to go without it, in a room neither, and where the daemon delivers, it writes it.
func (m *outgoing) inAnnotation() bool {
	return m.carried && m.unlabelled && m.to.Kind == ocip.KindAgent && !m.recipient.Group && !m.recipient.Strangers && !m.unconfirmed()
}

func (m *outgoing) message() api.Message {
	return api.Message{ChannelID: m.channel, Target: m.target, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// emitted is the message as a runtime that delivers by itself is given it.
func (m *outgoing) emitted() api.EmittedMessage {
	return api.EmittedMessage{SessionKey: m.key, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// inbound is the message as an agent of this daemon is given it.
func (m *outgoing) inbound(runID string) api.Inbound {
	return api.Inbound{
		RunID: runID, SessionKey: m.key, ReplyTo: directory.ReplyKey(m.sender, m.local, m.target), Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID,
	}
}
