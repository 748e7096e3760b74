package approval

import (
	"context"
	"strconv"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Subject is what a request is about: something that is done when enough people
// have approved it, or that a person has to see to. One is made for a request
// whenever somebody decides; it need not be safe for concurrent use.
type Subject interface {
	// Lock takes the lock under which all that concerns the subject is decided, one
	// after the other. What it locks by never changes.
	Lock() (unlock func())
	// Takes refuses a decision that is never taken about such a subject.
	Takes(decision string) error
	// Preview works out what an approval would lead to now, and enters it into the
	// request: what a person is shown, how many are needed, under which policy, and
	// Blocked, why it cannot be approved if it cannot.
	Preview(ctx context.Context, now time.Time) error
	// Shown is what a person decides about, as the request has it.
	Shown() View
	// Release does what was approved, or taken over, as the last preview had it. It
	// calls [Decision.Conclude] and commits the decision's change. Where it cannot,
	// nothing is decided. Its error can be [Unanswered].
	Release(ctx context.Context, d *Decision) error
	// End enters into the decision's change what it means that nothing is released.
	// The state is denied, resolved or expired.
	End(ctx context.Context, d *Decision, state string) error
	// Record begins a record: what the subject is, and whose.
	Record() *audit.Record
	// Tell enters into a change that whoever asked is told what came of it.
	Tell(change *store.Change, outcome api.ApprovalOutcome) error
}

// Revocable is a [Subject] whose release is kept until somebody fetches it: until then, a
// person can take it back.
type Revocable interface {
	Subject
	// TakeBack calls revoke while nobody can fetch what was released. It is called under
	// the subject's lock. The key is the name of what was asked for, of a tool call.
	TakeBack(key string, revoke func() error) error
}

// Spendable is a [Subject] whose approval counts once, later: until then, a denial takes it
// back.
type Spendable interface {
	Subject
	// Unspent reports whether the approval is such a one, and still counts. It is called
	// under the subject's lock.
	Unspent(ctx context.Context) (bool, error)
}

// Member is a named part of a request, in the form that is compared.
type Member struct{ Name, Text string }

// View is what a person is shown of a subject. All of it is in the digest.
type View struct {
	// Asked is what was asked for, and Effect what an approval leads to, without what is
	// of the moment.
	Asked  []string
	Effect string
	// Members are further members of the request, such as the receiver. One that changes
	// is listed under its name.
	Members []Member
	// Approvable says what an approval does, Refused that there can be none any
	// more, and Instead what a person can do then.
	Approvable, Refused, Instead string
}

// name gives a request its digest, which names exactly what waits: what was asked
// for, what would be done, why it waits and under which policy. When it was weighed
// is no part of it, so that what has not changed keeps its digest. The salt is: all
// the rest is on record, but for the text, which could be guessed then. A request that
// waits since before there were salts has none.
func (r *Request) name(v View) {
	parts := append([]string{r.ApprovalID}, v.Asked...)
	parts = append(parts, v.Effect, r.Code, r.PolicyRevision, r.Blocked, strconv.Itoa(r.Anew))
	if r.Salt != "" {
		parts = append([]string{r.Salt}, parts...)
	}
	for _, m := range v.Members {
		parts = append(parts, m.Name, m.Text)
	}
	r.Digest = Digest(parts...)
	r.sign()
}

// sign enters the texts that decisions about the request are signed over.
func (r *Request) sign() {
	r.ToSign = make(map[string]string)
	for _, decision := range api.DecisionsOf(r.Kind) {
		r.ToSign[decision] = api.SignedText(r.ApprovalID, decision, r.Digest)
	}
}

// changes lists what a person saw otherwise.
func changes(was, now *Request, saw, sees View) (list []api.ApprovalChange) {
	verdict := func(r *Request, v View) string {
		if r.Blocked == "" {
			return v.Approvable
		}
		return r.Blocked
	}
	for _, f := range []api.ApprovalChange{
		{Field: changedRevision, Was: was.PolicyRevision, Now: now.PolicyRevision},
		{Field: changedVerdict, Was: verdict(was, saw), Now: verdict(now, sees)},
		{Field: changedSending, Was: saw.Effect, Now: sees.Effect},
	} {
		if f.Was != f.Now {
			list = append(list, f)
		}
	}
	for i, m := range sees.Members {
		// A subject has the same members whenever it is shown.
		if before := saw.Members[i].Text; before != m.Text {
			list = append(list, api.ApprovalChange{Field: m.Name, Was: before, Now: m.Text})
		}
	}
	return list
}

// record is a record about a request.
func (q *Requests) record(s Subject, event string) *audit.Record {
	r := s.Record()
	r.ID, r.ActionType, r.Event = q.o.NewID(), audit.ActionApproval, event
	return r
}

// Details is a decision as records write it, with the signature, so that the record
// alone can be checked.
func Details(by *api.ApprovalDecision) map[string]any {
	details := map[string]any{"by": by.By, "decision": by.Decision}
	for name, value := range map[string]string{"note": by.Note, "fingerprint": by.Fingerprint, "signature": by.Signature} {
		if value != "" {
			details[name] = value
		}
	}
	if by.By != byExpiry {
		details["uid"] = by.UID
	}
	if by.Exchange != nil {
		details["exchange"] = by.Exchange
	}
	return details
}
