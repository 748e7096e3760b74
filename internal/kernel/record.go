package kernel

import (
	"maps"

	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
)

// records makes the records of decisions, and closes messages for them.
type records struct {
	digest func(tenant, text string) (string, error)
	keys   gate.Keys
	// seal and sealHeld are as in [Terms].
	seal     func(text string) (string, error)
	sealHeld bool
	newID    func() string
	log      *zap.Logger
}

// verdict is one side's record of a verdict. The caller adds its own fields; Details is never nil.
func (k *records) verdict(side string, agent *Agent, v *ocip.Verdict) *audit.Record {
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionExchange, Side: side,
		TenantID: agent.TenantID, UserID: agent.UserID, AgentID: agent.InstanceID,
		Classification: v.Level.String(), PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision,
		PolicyResult: string(v.Result), PolicyReason: v.Reasons(), Code: string(v.Code),
		Details: make(map[string]any),
	}
	if v.Exchange.ID != "" {
		e := &v.Exchange
		r.ExchangeID, r.ConversationID, r.ExchangeType = e.ID, e.ConversationID, string(e.Type)
		r.Round, r.MaxRounds, r.Outcome = e.Round, e.MaxRounds, string(e.Outcome)
	} else {
		// A counterparty that is no agent has a conversation and no exchange.
		r.ConversationID = v.Exchange.ConversationID
		if !v.Allowed() {
			r.Outcome = string(ocip.Denied)
		}
	}
	r.ChainID, r.Hops = v.Chain.ID, v.Chain.Hops
	maps.Copy(r.Details, v.Details)
	if codes := v.Codes(); len(codes) > 1 {
		r.Details["codes"] = codes
	}
	r.Detections = approval.Detections(v)
	// An empty list says that no data were declared, unlike a missing one.
	r.DataShared, r.DataWithheld = make([]audit.Shared, 0, len(v.Shared)), make([]audit.Withheld, 0, len(v.Withheld))
	for _, s := range v.Shared {
		r.DataShared = append(r.DataShared, audit.Shared(s))
	}
	for _, w := range v.Withheld {
		r.DataWithheld = append(r.DataWithheld, audit.Withheld(w))
	}
	return r
}

func counterpartyRecord(kind ocip.Kind, id ocip.Identity) audit.Counterparty {
	return audit.Counterparty{Kind: string(kind), InstanceID: id.InstanceID, UserID: id.UserID, OrgUnit: id.OrgUnit, TenantID: id.TenantID}
}

// closed closes the receiver's copy, and enters its keyed digest into its record. It fails as
// [records.content] does.
func (k *records) closed(r *audit.Record, f gate.Form) (l gate.Letter, err error) {
	_, l, err = k.keys.Close(nil, r.TenantID, f)
	r.DeliveredDigest = l.Digest()
	return l, recordable(k.log, err)
}

// closedIn is closed for a message of a queue.
func (k *records) closedIn(r *audit.Record, d *outbox.Delivery, f gate.Form) error {
	err := d.Close(k.keys, r.TenantID, f)
	r.DeliveredDigest = d.Digest()
	return recordable(k.log, err)
}

// content enters a text into a record: as its keyed digest, which only shows whether two texts of a
// tenant are equal, and sealed, if the operator asked for the text. It fails if the record could
// not be made. Then nothing may be done: see [storeerror.NotRecorded].
func (k *records) content(r *audit.Record, text gate.Text) (err error) {
	r.ContentBytes = text.Len()
	keeps := k.seal != nil && (!k.sealHeld || r.PolicyResult == audit.ResultApproval && r.ActionType != audit.ActionCheck)
	if r.ContentDigest, err = k.digest(r.TenantID, text.Inspect()); err == nil && keeps {
		r.Content, err = k.seal(text.Inspect())
	}
	return recordable(k.log, err)
}

// named enters the digest and the expiry of a new request into its record. The salt of the digest
// is kept with the text: sealed, or not at all. It fails as [records.content] does.
func (k *records) named(record *audit.Record, r *approval.Request) (err error) {
	record.Details["digest"], record.Details["expiresAt"] = r.Digest, r.ExpiresAt
	if k.seal != nil {
		record.Details["salt"], err = k.seal(r.Salt)
	}
	return recordable(k.log, err)
}

// recordable turns the failure to record a text into the caller's error.
func recordable(log *zap.Logger, err error) error {
	if err == nil {
		return nil
	}
	log.Error("cannot record a text: nothing was released", zap.Error(err))
	return storeerror.NotRecorded("cannot record the decision, so nothing was done", err)
}
