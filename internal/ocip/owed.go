package ocip

import "time"

// Owed is what an agent owes a counterparty: an answer that a person must give,
// or no answer at all. It is kept for the two of them, so that a fresh exchange
// or another id does not get round it. [Decide] and [Receive] return what is owed
// after their message; [Owed.Settle] does where a person ends something.
type Owed struct {
	// ReplyPolicy is who may answer, empty where nothing is owed. It is agent-ok
	// where the agent does not answer by itself, or owes a commitment.
	ReplyPolicy ReplyPolicy `json:"replyPolicy,omitzero"`
	// Commitment is set where the answer would commit the agent's person.
	Commitment bool `json:"commitment,omitzero"`
	// ConversationID is the conversation of the newest message that is owed for.
	ConversationID string `json:"conversationId,omitzero"`
	// Until is when nothing is owed any more, zero for never.
	Until time.Time `json:"until,omitzero"`
}

func (o Owed) owes() bool { return o.ReplyPolicy != "" }

// human reports whether the answer is a person's to give, whoever asks.
func (o Owed) human() bool { return o.ReplyPolicy == HumanOnly || o.Commitment }

// at returns what is owed at a time.
func (o Owed) at(now time.Time) Owed {
	if !o.owes() || !o.Until.IsZero() && !now.Before(o.Until) {
		return Owed{}
	}
	return o
}

// incur returns what is owed once a message was received, as the exchange after it
// shows it. What is owed already is not made less by a message that asks for less.
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
			// Who wanted no answer has asked for one now.
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

// Settle returns what is owed after a person has ended a conversation's exchange,
// or a held message with the code it was held for, without sending anything. A
// person who resolves an exchange has dealt with what was asked there; one who
// denies the answer has not. A first message after one that wanted no answer is
// looked at once, whatever comes of it.
func (o Owed) Settle(outcome Outcome, conversationID string, held Code) Owed {
	switch {
	case outcome == Resolved && conversationID == o.ConversationID:
		return Owed{}
	case held == ReplyNotExpected && o.ReplyPolicy == NoReplyNeeded && !o.Commitment && (outcome == Resolved || outcome == Denied):
		return Owed{}
	}
	return o
}

// reason says why a message of the agent is held because of what it owes, and by
// which code, or nothing.
func (o Owed) reason(m *Outgoing) (Code, string) {
	asked := "agent " + m.To.InstanceID + " "
	in := "conversation " + o.ConversationID
	switch {
	case !o.owes():
	case o.ReplyPolicy == HumanOnly:
		return CommitmentRequiresHuman, asked + "waits for an answer in " + in + " that only a person may give; a person's approval of any message to it counts as that answer"
	case o.Commitment:
		return CommitmentRequiresHuman, asked + "waits for a commitment in " + in + "; a person's approval of any message to it counts as the answer"
	case o.ReplyPolicy == NoReplyNeeded:
		return ReplyNotExpected, asked + "wanted no reply in " + in + "; the first message back needs a person, wherever it is put"
	case !m.Sender.CanAutoRespond:
		return CommitmentRequiresHuman, "agent " + m.Sender.ID + " does not answer by itself, and " + asked + "waits for an answer in " + in
	}
	return "", ""
}
