package api

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

// RedeemParams asks for what may be sent now that a person has approved it, once
// (approval.redeem).
type RedeemParams struct {
	ApprovalID string `json:"approvalId"`
	// RequestKey, where given, is what the caller has written down before: whoever asks
	// again with it is answered as before, until the outcome is confirmed.
	RequestKey string `json:"requestKey,omitzero"`
}

// Validate names the fields that are wrong.
func (p *RedeemParams) Validate() []FieldError {
	var f Fields
	f.Text("approvalId", p.ApprovalID, MaxName)
	f.UpTo("requestKey", p.RequestKey, MaxName)
	return f
}

// Redeemed is what a client is given to send.
type Redeemed = RedeemedOf[jsontext.Value]

// RedeemAnswer is what the daemon gives to send.
type RedeemAnswer = RedeemedOf[gate.Sealed]

// RedeemedOf is what may be sent, once, and the claim that its outcome is confirmed with.
type RedeemedOf[Data any] struct {
	Claim    string `json:"claim"`
	Data     Data   `json:"data"`
	Replayed bool   `json:"replayed,omitzero"`

	lost func(written bool)
}

// OnLost is what is done where nobody is known to have taken the answer.
func (r RedeemedOf[Data]) OnLost() func(written bool) { return r.lost }

// Watch has a function told where nobody is known to have taken the answer.
func (r *RedeemedOf[Data]) Watch(lost func(written bool)) { r.lost = lost }

// What can become of a message that its runtime delivers.
const (
	OutcomeSent    = "sent"
	OutcomeNotSent = "not_sent"
	OutcomeUnknown = "unknown"
)

// ConfirmParams says what became of a message that the caller was to deliver by itself
// (approval.confirm): one that it has redeemed, by the claim, or one that hook.emit has let
// go, by its dispatchId, or by the key that agent.emit was given, where no answer came.
type ConfirmParams struct {
	Claim      string `json:"claim,omitzero"`
	DispatchID string `json:"dispatchId,omitzero"`
	RequestKey string `json:"requestKey,omitzero"`
	Outcome    string `json:"outcome"`
	// Note says more, for the record.
	Note string `json:"note,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ConfirmParams) Validate() []FieldError {
	var f Fields
	given := 0
	for name, id := range map[string]string{"claim": p.Claim, "dispatchId": p.DispatchID, "requestKey": p.RequestKey} {
		if f.UpTo(name, id, MaxName); id != "" {
			given++
		}
	}
	if given != 1 {
		f.Add("claim", "want one of claim, dispatchId and requestKey")
	}
	if outcomes := []string{OutcomeSent, OutcomeNotSent, OutcomeUnknown}; !slices.Contains(outcomes, p.Outcome) {
		f.Add("outcome", "%q is not one of %v", p.Outcome, outcomes)
	}
	if len(p.Note) > MaxNote {
		f.Add("note", "longer than %d bytes", MaxNote)
	}
	return f
}

// WithdrawParams takes back what waits for a person (approval.withdraw).
type WithdrawParams struct {
	ApprovalID string `json:"approvalId"`
	Note       string `json:"note,omitzero"`
}

// Validate names the fields that are wrong.
func (p *WithdrawParams) Validate() []FieldError {
	var f Fields
	f.Text("approvalId", p.ApprovalID, MaxName)
	if len(p.Note) > MaxNote {
		f.Add("note", "longer than %d bytes", MaxNote)
	}
	return f
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

// Watched is a result of which somebody wants to know where nobody took it: the connection
// ended before it was read, as far as is known. Written says whether it was in the socket.
type Watched interface{ OnLost() func(written bool) }
