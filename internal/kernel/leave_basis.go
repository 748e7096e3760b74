package kernel

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Members of a record's details that hold the basis of a decision. A waiting message is weighed
// again by them, since the state has moved on: the message that it answered is answered, and its
// session has begun.
const (
	// interceptorsDetail lists the required interceptors that were asked.
	interceptorsDetail = "interceptors"
	// answersDetail describes the message that this one answered, see [answered].
	answersDetail = "answers"
	// firstDetail is set for the first message to a counterparty.
	firstDetail = "firstContact"
	// dataLevelDetail is the highest level of the attached data items.
	dataLevelDetail = "dataLevel"
)

// answered is what the counterparty asked of the agent before the agent's answer.
type answered struct {
	ReplyPolicy ocip.ReplyPolicy `json:"replyPolicy,omitzero"`
	Commitment  bool             `json:"commitment,omitzero"`
	ForPerson   bool             `json:"forPerson,omitzero"`
	// Owed is the agent's debt to the counterparty, over all exchanges.
	Owed ocip.Owed `json:"owed,omitzero"`
}

// allowedRecord returns the sender's record of an allowed message, with the basis of the decision.
func allowedRecord(k *ruleset, m *outgoing, v *ocip.Verdict, st *standing) (*audit.Record, error) {
	r, err := k.sentRecord(m, v)
	if err != nil {
		return nil, err
	}
	askedAbout(k, r)
	a := answered{ReplyPolicy: v.Before.Awaiting, Commitment: v.Before.AwaitsCommitment, ForPerson: v.Before.ForPerson, Owed: st.owed}
	if a != (answered{}) {
		r.Details[answersDetail] = a
	}
	if st.first {
		r.Details[firstDetail] = true
	}
	if len(v.Shared) > 0 {
		level := ocip.Public
		for _, item := range m.hints.Data {
			if item.Level <= v.Level && item.Level <= m.to.Accepts {
				level = max(level, item.Level)
			}
		}
		r.Details[dataLevelDetail] = level.String()
	}
	return r, nil
}

// askedAbout enters the required interceptors into the record of an allowed message: without the
// answer of each, the message would not have been allowed.
func askedAbout(k *ruleset, r *audit.Record) *audit.Record {
	required := k.directory.Required()
	if len(required) == 0 {
		return r
	}
	if r.Details == nil {
		r.Details = make(map[string]any)
	}
	r.Details[interceptorsDetail] = slices.Sorted(maps.Keys(required))
	return r
}

// restedOn reads a member of the details of a record from the store into to. It leaves to unchanged
// if the record has no such member.
func restedOn(r *audit.Entry, member string, to any) error {
	raw, there := r.Details[member]
	if !there {
		return nil
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}
