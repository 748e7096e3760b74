package approval

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Held returns the answer to the caller of a held message.
func (r *Request) Held(auditID string) api.DispatchResult {
	ref := &api.ExchangeRef{
		ExchangeID: r.ExchangeID, ConversationID: r.ConversationID, Round: r.Round, MaxRounds: r.MaxRounds, AuditID: auditID,
		Code: ocip.Code(r.Code), Reason: r.Reason, Reasons: r.Reasons, RequiresHuman: r.RequiresHuman, DetectedKeywords: r.DetectedKeywords, Escalation: r.Escalation, Chain: r.Chain,
		EscalatedExchange: r.EscalatedExchange, Blocked: r.Blocked,
	}
	return api.DispatchResult{DispatchID: r.DispatchID, Queued: true, Held: true, ApprovalID: r.ApprovalID, OCIP: ref}
}

// Timeless returns the message to be sent without the members of its metadata that depend on the
// time of sending. Its form is the same whether or not it was stored.
func Timeless(sending jsontext.Value, members ...string) jsontext.Value {
	var m api.EmittedMessage
	if len(sending) == 0 || json.Unmarshal(sending, &m) != nil {
		return sending
	}
	for _, name := range members {
		delete(m.Metadata, name)
	}
	sending = m.Append(nil)
	// A decoded value can always be formatted.
	_ = sending.Format()
	return sending
}
