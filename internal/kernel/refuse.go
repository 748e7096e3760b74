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

// refuseEarly records a denial of a message that nobody came to weigh.
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

// refuse records a denial and says it to the caller.
func (k *ruleset) refuse(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	now := k.now()
	if v.Code != ocip.CrossEnterpriseBlocked || m.to.InstanceID == m.recipient.Counterparty.InstanceID {
		// An agent that another tenant's app has named is on record, and not shown
		// to the sender's as the other end of an exchange.
		if err := k.ends(change, v, now); err != nil {
			return err
		}
	}
	if err := k.exchanges.Escalate(m.concern(), v, k.exchangeRules, change, now); err != nil {
		return err
	}
	return k.refuseOnly(m, v, change)
}

// ends enters what the refusal of a message means for its exchange, on both sides where
// this daemon keeps both.
func (k *ruleset) ends(change *store.Change, v *ocip.Verdict, now time.Time) error {
	k.state.Refuse(change, v, now)
	if v.Exchange.Outcome == v.Before.Outcome {
		return nil
	}
	return k.exchanges.EndOtherSide(context.Background(), change, &v.Exchange, k.directory, nil)
}

// refuseOnly is refuse where the change says already what the denial means for
// the exchange.
func (k *ruleset) refuseOnly(m *outgoing, v *ocip.Verdict, change *store.Change) error {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return err
	}
	// What is told of the decision comes after it.
	change.Records = slices.Insert(change.Records, 0, r)
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return refused(v, r)
}

// refused is what a caller sees of a verdict that is not an allow, and of its record
// no more than the id: its number would count the records of others.
func refused(v *ocip.Verdict, r *audit.Record) *api.Error {
	details := map[string]any{"code": v.Code, "reason": v.Reason, "result": v.Result, "auditId": r.ID}
	if v.Exchange.ID != "" {
		details["exchangeId"], details["conversationId"] = v.Exchange.ID, v.Exchange.ConversationID
	}
	for name, value := range v.Details {
		// What failed inside a policy is for the operator, in the record.
		if name != "cause" {
			details[name] = value
		}
	}
	return &api.Error{Code: api.Forbidden, Message: v.Reason, Details: map[string]any{"ocip": details}}
}
