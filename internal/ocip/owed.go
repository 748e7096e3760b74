package ocip

import "time"

// Owed is an agent's debt to a counterparty: an answer that a person must give, or no answer at
// all. It is kept for the two of them, so that another exchange or another id does not get round
// it. [Decide] and [Receive] return the debt after their message; [Owed.Settle] returns it after a
// person has ended something.
type Owed struct {
	// ReplyPolicy determines who may answer, and is empty if there is no debt. It is agent-ok if
	// an agent may answer, and this one leaves the answer to a person or owes a commitment.
	ReplyPolicy ReplyPolicy `json:"replyPolicy,omitzero"`
	// Commitment is set if the answer would commit the agent's person.
	Commitment bool `json:"commitment,omitzero"`
	// ConversationID is the conversation of the newest message that made a debt.
	ConversationID string `json:"conversationId,omitzero"`
	// Until is the end of the debt, zero for never.
	Until time.Time `json:"until,omitzero"`
}

func (o Owed) owes() bool { return o.ReplyPolicy != "" }

// human reports whether only a person may answer, whoever asks.
func (o Owed) human() bool { return o.ReplyPolicy == HumanOnly || o.Commitment }

// at returns the debt at a time.
func (o Owed) at(now time.Time) Owed {
	if !o.owes() || !o.Until.IsZero() && !now.Before(o.Until) {
		return Owed{}
	}
	return o
}

// incur returns the debt after a message was received; e is the exchange after it. A message that
// asks for less does not reduce an existing debt.
func (o Owed) incur(agent *Agent, e *Exchange) Owed {
	fresh := Owed{ReplyPolicy: e.Awaiting, Commitment: e.AwaitsCommitment, ConversationID: e.ConversationID, Until: e.ExpiresAt}
	switch {
	case fresh.ReplyPolicy == NoReplyNeeded && !fresh.Commitment:
		if o.owes() && o.ReplyPolicy != NoReplyNeeded {
			return o
		}
		return fresh
	case !fresh.human() && agent.CanAutoRespond:
		if o.ReplyPolicy == NoReplyNeeded && !o.Commitment {
			// The counterparty first wanted no answer, and has now asked for one.
			return Owed{}
		}
		return o
	case !o.owes() || o.ReplyPolicy == NoReplyNeeded && !o.Commitment:
		return fresh
	}
	if o.ReplyPolicy == HumanOnly {
		fresh.ReplyPolicy = HumanOnly
	}
	fresh.Commitment = fresh.Commitment || o.Commitment
	if o.Until.IsZero() || !fresh.Until.IsZero() && fresh.Until.Before(o.Until) {
		fresh.Until = o.Until
	}
	return fresh
}

// Settle returns the debt after a person has ended a conversation's exchange, or has ended a message
// that was held with this code, without sending anything. If the person resolves the exchange, its debt is settled. If
// the person denies the answer, it stays. If the counterparty wanted no answer, only the next
// message needs a person, whatever that person decides.
func (o Owed) Settle(outcome Outcome, conversationID string, held Code) Owed {
	switch {
	case outcome == Resolved && conversationID == o.ConversationID:
		return Owed{}
	case held == ReplyNotExpected && o.ReplyPolicy == NoReplyNeeded && !o.Commitment && (outcome == Resolved || outcome == Denied):
		return Owed{}
	}
	return o
}

// reason returns the code and the explanation if a message of the agent is held because of the
// debt, or nothing.
func (o Owed) reason(m *Outgoing) (Code, string) {
	asked := "agent " + m.To.InstanceID + " "
	in := "conversation " + o.ConversationID
	switch {
	case !o.owes():
	case o.ReplyPolicy == HumanOnly:
		return CommitmentRequiresHuman, asked + "waits for an answer in " + in + " that only a person may give; a person's approval of any message to it counts as the answer"
	case o.Commitment:
		return CommitmentRequiresHuman, asked + "waits for a commitment in " + in + "; a person's approval of any message to it counts as the answer"
	case o.ReplyPolicy == NoReplyNeeded:
		return ReplyNotExpected, asked + "wanted no reply in " + in + "; the first message back needs a person, in any exchange"
	case !m.Sender.CanAutoRespond:
		return CommitmentRequiresHuman, "agent " + m.Sender.ID + " does not answer by itself, and " + asked + "waits for an answer in " + in
	}
	return "", ""
}
