package kernel

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/exchanges"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
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
	hints      exchangehints.Hints
	dispatchID string
	// unlabelled messages are of a runtime that cannot change their text.
	unlabelled bool
	// asked holds the caller's original parameters, before interceptors ran, and requested
	// caches their digest. ChangedBy names the interceptors that changed the message.
	asked     *api.DispatchParams
	requested string
	changedBy []string
	// task is the task of the message.
	task aboutTask
	attached
	earlier
	// record is the record of the decision. Sealed is the message for a runtime that delivers by
	// itself, set once the record is durable; deliver, if set, writes the message to its receiver
	// after that.
	record  *audit.Record
	sealed  gate.Sealed
	deliver api.AfterReply
}

// destination is the address of a message.
type destination struct {
	key, channel, target, account string
	// local is the receiver if it is an agent of this daemon.
	local *Agent
	// recipient is the counterparty that the message reaches. To is the rules' view of it: an agent
	// that was seen there, if the directory has nobody.
	recipient directory.Recipient
	to        ocip.Counterparty
	known     known
}

// attached is a message's content besides its text.
type attached struct {
	// passages are the strings of the metadata.
	passages []ocip.Passage
	media    []api.MediaItem
	// files holds the findings in media, and extracts the parts of it that people are shown.
	files    ocip.Weighed
	extracts []ocip.Extract
}

// earlier holds decisions about a message that was held, or has waited.
type earlier struct {
	// waited is set for a message that was allowed before and is weighed again, and person is a
	// person's part in that.
	waited bool
	person ocip.Person
	// grant is the id of the grant that releases the message. Under holds that grant's rule if the
	// message has waited.
	grant string
	under []ocip.Grant
	// ungranted messages are weighed without grants.
	ungranted bool
	// approvalID names the held message's approval, and askedAt is when it was held. Conclude
	// enters the decision of the person who releases it into the change, once it is known whether a
	// receiver in this daemon refuses the message.
	approvalID string
	askedAt    time.Time
	conclude   func(refused *ocip.Verdict) error
}

// answered enters the answer to the sender into the change that decides.
func (m *outgoing) answered(c *store.Change, r *api.DispatchResult) error {
	if m.keep == nil {
		return nil
	}
	return m.keep(c, r)
}

// about returns the context of the hook events about the message.
func (m *outgoing) about() api.HookContext {
	return api.HookContext{AgentID: m.sender.ID, SessionKey: m.key, ChannelID: directory.ChannelOf(m.key), AccountID: m.account}
}

// unconfirmed reports whether the counterparty is an agent only by its own claim.
func (m *outgoing) unconfirmed() bool {
	return m.to.Kind == ocip.KindAgent && m.recipient.Counterparty.Kind == ocip.KindUnknown
}

// asSender returns the sender as the rules see it. If strangers read along with an agent, the
// limits for strangers apply.
func (m *outgoing) asSender() ocip.Agent {
	a := m.sender.Agent
	a.Label = m.sender.Label()
	if m.recipient.Group && m.recipient.Strangers && a.MaxUnknown != nil {
		a.MaxShared = min(a.MaxShared, *a.MaxUnknown)
	}
	return a
}

// other names the other end of the message for the lock of the two.
func (m *outgoing) other() string { return exchangestate.OtherEnd(m.to.InstanceID, m.key) }

// reader returns the user id of the person who reads the message, "" if there are several readers.
func (m *outgoing) reader() string {
	if m.recipient.Group && m.to.Kind != ocip.KindAgent {
		return ""
	}
	return m.to.UserID
}

// ownTurn reports whether the sender's runtime says that no message of another agent led to this
// one, and is trusted to say so.
func (m *outgoing) ownTurn() bool { return m.carried && m.hints.OwnTurn && m.sender.OwnTurns }

// named adds the caller-chosen names of session and account to the passages, because they arrive
// with the message. It leaves out a session that the directory declares, and an account that the
// channel's app has named. A name without letters is a number of its network.
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
	return m.line()
}

// line returns the message's line in a transcript.
func (m *outgoing) line() string { return ocip.Summarize(m.content.Inspect(), m.sender.Label()) }

func (m *outgoing) concern() *exchanges.Concern {
	return &exchanges.Concern{Agent: m.sender, Other: m.to, Key: m.key, Summary: m.line(), DispatchID: m.dispatchID}
}

// handedTo returns the target for the delivered message's digest: the address that its channel's
// app sends to, or the session if the message is delivered by other means.
func (m *outgoing) handedTo() string {
	if m.carried || m.local != nil {
		return m.key
	}
	return m.target
}

// inAnnotation reports whether an agent's message carries its label only in its annotation. That is
// allowed only if no person can read the message, for example in a room. If the daemon delivers the
// message, it adds the label itself.
func (m *outgoing) inAnnotation() bool {
	return m.carried && m.unlabelled && m.to.Kind == ocip.KindAgent && !m.recipient.Group && !m.recipient.Strangers && !m.unconfirmed()
}

func (m *outgoing) message() api.Message {
	return api.Message{ChannelID: m.channel, Target: m.target, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// emitted returns the message for a runtime that delivers by itself.
func (m *outgoing) emitted() api.EmittedMessage {
	return api.EmittedMessage{SessionKey: m.key, Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID}
}

// inbound returns the message for an agent of this daemon.
func (m *outgoing) inbound(runID string) api.Inbound {
	return api.Inbound{
		RunID: runID, SessionKey: m.key, ReplyTo: directory.ReplyKey(m.sender, m.local, m.target), Content: m.content, Metadata: m.metadata, DispatchID: m.dispatchID,
	}
}
