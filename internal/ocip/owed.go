package ocip

import "time"

// Owed is what an agent owes a counterparty an answer to, or must not answer.
// It is kept for the two of them, whatever exchange the answer is put in.
type Owed struct {
	// ReplyPolicy is who may answer, empty where nothing is owed.
	ReplyPolicy ReplyPolicy
	// Commitment is set where the answer would commit the agent's person.
	Commitment bool
	// ConversationID is the conversation of the message that is to be answered.
	ConversationID string
	// Until is when the message may no longer be answered, zero for never.
	Until time.Time
}
