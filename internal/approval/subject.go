package approval

import (
	"context"
	"strconv"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Subject is the matter of a request: an act that follows when enough people have approved it, or
// something that a person must look at. Each decision makes one; it need not be safe for concurrent
// use.
type Subject interface {
	// Lock takes the lock for all decisions about the subject, which are made one after the other.
	// The key of the lock never changes.
	Lock() (unlock func())
	// Takes refuses a kind of decision that is never made about such a subject.
	Takes(decision string) error
	// Preview computes the current effect of an approval, and enters it into the request: the shown
	// text, the number of people, the policy, and in Blocked the reason why it cannot be approved,
	// if there is one.
	Preview(ctx context.Context, now time.Time) error
	// Shown returns the matter of the decision, from the request.
	Shown() View
	// Release carries out an approval or a takeover, as the last preview had it. It calls
	// [Decision.Conclude] and commits the decision's change. If it cannot, nothing is decided. Its
	// error can be [Unanswered].
	Release(ctx context.Context, d *Decision) error
	// End enters the effect of a decision without a release into its change. The state is denied,
	// resolved or expired.
	End(ctx context.Context, d *Decision, state string) error
	// Record begins a record that names the subject and its owner.
	Record() *audit.Record
	// Tell enters the notice of an outcome to the app that asked into a change.
	Tell(change *store.Change, outcome api.ApprovalOutcome) error
}

// Exclusive is a [Subject] about which not every person may decide. MayApprove refuses a person's
// approval, also one of several. The caller holds the subject's lock.
type Exclusive interface {
	Subject
	MayApprove(ctx context.Context, by *api.ApprovalDecision) error
}

// Judged is a [Subject] that an operator's model may release. Judge does so as the current state has
// it, like Release, and reports false without any effect if the subject waits for more than a guess
// about its words.
type Judged interface {
	Subject
	Judge(ctx context.Context, d *Decision) (released bool, err error)
}

// Revocable is a [Subject] whose release is kept until somebody fetches it. Until then, a person
// can revoke it.
type Revocable interface {
	Subject
	// TakeBack calls revoke while nobody can fetch the release. The caller holds the subject's
	// lock. For a tool call, the key names the call.
	TakeBack(key string, revoke func() error) error
}

// Spendable is a [Subject] whose approval counts once, later. Until then, a denial revokes it.
type Spendable interface {
	Subject
	// Unspent reports whether the approval is of this kind and still counts. The caller holds the
	// subject's lock.
	Unspent(ctx context.Context) (bool, error)
}

// Member is a named part of a request, in the form for comparisons.
type Member struct{ Name, Text string }

// View is a subject as people see it. The digest covers all of it.
type View struct {
	// Asked is the original request, and Effect the effect of an approval, without parts that
	// depend on the time.
	Asked  []string
	Effect string
	// Members are further members of the request, such as the receiver. A change of one is listed
	// under its name.
	Members []Member
	// Approvable describes the effect of an approval, Refused says that none is possible any more,
	// and Instead names the person's alternatives.
	Approvable, Refused, Instead string
}

// name gives a request its digest, which names exactly the pending matter: the request, the effect,
// the reason to wait and the policy. It does not cover the time, so that an unchanged request keeps
// its digest. It covers the salt: everything else is on record, except the text, which could
// otherwise be guessed. A request from before there were salts has none.
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

// sign enters the texts that people sign for decisions about the request.
func (r *Request) sign() {
	r.ToSign = make(map[string]string)
	for _, decision := range api.DecisionsOf(r.Kind) {
		r.ToSign[decision] = api.SignedText(r.ApprovalID, decision, r.Digest)
	}
}

// changes lists differences from the view that a person saw.
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
		// A subject always has the same members.
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

// Details returns a decision in the form of records, with the signature, so that the record alone
// can be verified.
func Details(by *api.ApprovalDecision) map[string]any {
	details := map[string]any{"by": by.By, "decision": by.Decision}
	for name, value := range map[string]string{"note": by.Note, "fingerprint": by.Fingerprint, "signature": by.Signature} {
		if value != "" {
			details[name] = value
		}
	}
	if by.By != byExpiry && by.By != ByRestoration && by.By != byJudge {
		details["uid"] = by.UID
	}
	if by.Exchange != nil {
		details["exchange"] = by.Exchange
	}
	by.AddTo(details)
	return details
}
