package api

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

// RedeemParams takes an approved message, once (approval.redeem).
type RedeemParams struct {
	ApprovalID string `json:"approvalId" is:"required max=256" doc:"The approval request."`
	RequestKey string `json:"requestKey,omitzero" is:"max=256" doc:"A name of the caller's own. A repetition with it gets the same answer until the outcome is confirmed."`
}

// Redeemed is an approved message for a client to send.
type Redeemed = RedeemedOf[jsontext.Value]

// RedeemAnswer is an approved message from the daemon.
type RedeemAnswer = RedeemedOf[gate.Sealed]

// RedeemedOf is a message to send, once, and the claim that confirms its outcome.
type RedeemedOf[Data any] struct {
	Claim    string `json:"claim"`
	Data     Data   `json:"data"`
	Replayed bool   `json:"replayed,omitzero"`

	Followed `json:"-"`
}

// The outcomes of a message that its runtime delivers.
const (
	OutcomeSent    = "sent"
	OutcomeNotSent = "not_sent"
	OutcomeUnknown = "unknown"
)

// ConfirmParams reports the outcome of a message that the caller delivers by itself
// (approval.confirm). The claim names a redeemed message, and the dispatchId one that hook.emit
// allowed. If agent.emit got no answer, its request key names the message.
type ConfirmParams struct {
	Claim      string `json:"claim,omitzero" is:"max=256" doc:"The claim from redeeming."`
	DispatchID string `json:"dispatchId,omitzero" is:"max=256" doc:"The message that hook.emit allowed."`
	RequestKey string `json:"requestKey,omitzero" is:"max=256" doc:"The key of an agent.emit whose answer did not come."`
	Outcome    string `json:"outcome" is:"required words=sent|not_sent|unknown" doc:"What became of the message."`
	Note       string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// Rules reports faults between members.
func (p *ConfirmParams) Rules() (f Fields) {
	given := 0
	for _, id := range []string{p.Claim, p.DispatchID, p.RequestKey} {
		if id != "" {
			given++
		}
	}
	if given != 1 {
		f.Add("claim", "want one of claim, dispatchId and requestKey")
	}
	return f
}

// WithdrawParams takes back what waits for a person (approval.withdraw).
type WithdrawParams struct {
	ApprovalID string `json:"approvalId" is:"required max=256" doc:"The approval request."`
	Note       string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// Redeemable is a message that was approved and that nobody has redeemed.
type Redeemable struct {
	ApprovalID string `json:"approvalId"`
	DispatchID string `json:"dispatchId"`
	SessionKey string `json:"sessionKey"`
	// Origin is the member origin of the message's metadata: which part of a runtime asked
	// for it.
	Origin    string `json:"origin,omitzero"`
	ExpiresAt int64  `json:"expiresAt"`
}

// RedeemableResult lists them, the oldest first.
type RedeemableResult struct {
	Approvals []Redeemable `json:"approvals"`
}

// Followed is the part of a result with somebody's text that follows it through the queue of its
// connection. It is a [gate.Fate].
type Followed struct {
	lost  func(written bool)
	while func() bool
}

// OnLost returns the function to call if no receiver is known to have taken the answer: the
// connection ended before. Written reports whether any of it was in the socket.
func (f Followed) OnLost() func(written bool) { return f.lost }

// Stays reports whether the answer may still be written.
func (f Followed) Stays() bool { return f.while == nil || f.while() }

// Watch sets the function to call if no receiver is known to have taken the answer.
func (f *Followed) Watch(lost func(written bool)) { f.lost = lost }

// While sets the condition under which the answer may be written. It never waits.
func (f *Followed) While(may func() bool) { f.while = may }
