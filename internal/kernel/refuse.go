package kernel

import (
	"context"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// refuseEarly records the denial of a message that was not weighed.
func (k *ruleset) refuseEarly(m *outgoing, v *ocip.Verdict) error {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return err
	}
	r.Classification = ""
	if _, err := k.record(r); err != nil {
		return err
	}
	failure := refused(v, r)
	if v.Code == ocip.InterceptorTimeout {
		failure.Code = api.Timeout
	}
	return failure
}

// refuse records a denial and returns it to the caller.
func (k *ruleset) refuse(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	now := k.now()
	if v.Code != ocip.CrossEnterpriseBlocked || m.to.InstanceID == m.recipient.Counterparty.InstanceID {
		// If another tenant's app has named an agent, that is on record, and the sender's app does
		// not learn it from an exchange.
		if err := k.ends(change, v, now); err != nil {
			return err
		}
	}
	if err := k.exchanges.Escalate(m.concern(), v, k.exchangeRules, change, now); err != nil {
		return err
	}
	return k.refuseOnly(m, v, change)
}

// ends enters the effect of a refused message on its exchange, on both sides if this daemon keeps
// both.
func (k *ruleset) ends(change *store.Change, v *ocip.Verdict, now time.Time) error {
	k.state.Refuse(change, v, now)
	if v.Exchange.Outcome == v.Before.Outcome {
		return nil
	}
	return k.exchanges.EndOtherSide(context.Background(), change, &v.Exchange, k.directory, nil)
}

// refuseOnly is refuse for a change that already has the denial's effect on the exchange.
func (k *ruleset) refuseOnly(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return err
	}
	// Records of consequences come after the record of the decision.
	change.Records = slices.Insert(change.Records, 0, r)
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return refused(v, r)
}

// refused returns the caller's view of a verdict other than allow. It contains the record's id, and
// not its number, which would count other agents' records.
func refused(v *ocip.Verdict, r *audit.Record) *api.Error {
	details := map[string]any{"code": v.Code, "reason": v.Reason, "result": v.Result, "auditId": r.ID}
	if v.Exchange.ID != "" {
		details["exchangeId"], details["conversationId"] = v.Exchange.ID, v.Exchange.ConversationID
	}
	for name, value := range v.Details {
		// A failure inside a policy is for the operator, in the record.
		if name != "cause" {
			details[name] = value
		}
	}
	return &api.Error{Code: api.Forbidden, Message: v.Reason, Details: map[string]any{"ocip": details}}
}
