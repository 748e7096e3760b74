package kernel

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Members of a record's details that say what a decision rested on. A message that waits is
// weighed again by them, since the state has gone on by then: what it answered is answered,
// and its session has begun.
const (
	// interceptorsDetail lists the interceptors that were required and had their say.
	interceptorsDetail = "interceptors"
	// answersDetail is what the message answered, see [answered].
	answersDetail = "answers"
	// firstDetail is set for the first message to somebody.
	firstDetail = "firstContact"
	// dataLevelDetail is the highest level of the data items that went along.
	dataLevelDetail = "dataLevel"
)

// answered is what the message before an answer asked of the agent that gave it.
type answered struct {
	ReplyPolicy ocip.ReplyPolicy `json:"replyPolicy,omitzero"`
	Commitment  bool             `json:"commitment,omitzero"`
	ForPerson   bool             `json:"forPerson,omitzero"`
	// Owed is what the agent owed the counterparty in whichever exchange.
	Owed ocip.Owed `json:"owed,omitzero"`
}

// allowedRecord is the sender's record of a message that is let through. It says what the
// decision rested on.
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

// askedAbout enters into the record of a message that is let through who was required to
// look at it: without the word of each of them it would not have come so far.
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

// restedOn reads a member of the details of a record that was read back. It leaves to as it
// is if there is none.
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
