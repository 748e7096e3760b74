// Package gate is the one exit for messages. The text of one principal reaches another only as a
// [Sealed], and only [Open] turns somebody's message into one. It takes the receipt of the commit
// that allowed the message, compares the message with the records of that commit, and weighs again
// what may have changed since.
//
// A message goes through in three steps. [Keys.Close] writes the bytes for its receiver and takes
// their keyed digest, which the caller enters into the record of the decision. The store commits
// the record and returns a [Receipt]. [Open] compares the two. A message that waited on disk is
// closed again from its row and opened with the receipt of the record that was read back, so an
// edited row never passes.
package gate

import (
	"crypto/subtle"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Receipt names the records of a commit, and proves that they are on disk. The zero Receipt proves
// nothing.
type Receipt struct {
	// Seq is the sequence number of the commit's first record, zero if it had none.
	Seq uint64
	// Time is the time of its records.
	Time time.Time

	records []*audit.Record
}

// Committed makes the receipt of durable records. Only the store may call it, after the commit.
func Committed(seq uint64, at time.Time, records []*audit.Record) Receipt {
	return Receipt{Seq: seq, Time: at, records: records}
}

// ReadBack makes the receipt of a record that was read from the log. Only the store may call it.
func ReadBack(e *audit.Entry) Receipt {
	return Receipt{Seq: e.Seq, Time: e.Time, records: []*audit.Record{&e.Record}}
}

// Form is a message in the protocol's form for its receiver.
type Form interface {
	// Room returns about how many bytes it takes.
	Room() int
	// Write appends it as JSON and returns the input of its digest.
	Write(b []byte) ([]byte, Delivered)
}

// Delivered is the input of a delivered message's digest, see [audit.DeliveredForm].
type Delivered struct {
	DispatchID string
	Target     string
	Content    Text
	// Metadata is JSON as it was written, nil for none.
	Metadata jsontext.Value
}

// Keys takes the keyed digest of a form under a tenant's key for a label, see
// [audit.LabelDelivered]. The form is appended to a buffer.
type Keys func(tenant, label string, form func([]byte) ([]byte, error)) (string, error)

// Letter is a closed message: the bytes for its receiver, and their digest. Nobody can read the
// bytes before [Open] has allowed it.
type Letter struct {
	dispatchID, digest string
	// said is set if the digest is that of a plain text, see [Keys.CloseText].
	said bool
	data []byte
}

// Close appends a message to a buffer in its receiver's form, and closes it.
func (k Keys) Close(b []byte, tenant string, f Form) ([]byte, Letter, error) {
	b = slices.Grow(b, f.Room())
	from := len(b)
	b, d := f.Write(b)
	digest, err := k(tenant, audit.LabelDelivered, func(b []byte) ([]byte, error) {
		return audit.DeliveredForm(b, d.Target, d.Content.said, d.Metadata)
	})
	return b, Letter{dispatchID: d.DispatchID, digest: digest, data: b[from:len(b):len(b)]}, err
}

// CloseText closes a text whose record has its content digest.
func (k Keys) CloseText(tenant string, text []byte) (Letter, error) {
	digest, err := k.text(tenant, audit.LabelContent, text)
	return Letter{digest: digest, said: true, data: text}, err
}

// Same reports whether a member of a tenant's record, which may be redacted, is that of a text. If
// that cannot be determined, it returns false.
func (k Keys) Same(tenant, member, text string) bool {
	if !audit.Redacted(member) {
		return member == text
	}
	digest, err := k.text(tenant, audit.LabelContent, []byte(text))
	return err == nil && member == audit.StandIn(digest)
}

func (k Keys) text(tenant, label string, text []byte) (string, error) {
	return k(tenant, label, func(b []byte) ([]byte, error) { return append(b, text...), nil })
}

// CloseEvent closes the event that answers a request of its receiver. Its digest becomes the
// delivered digest of the answer's record.
func (k Keys) CloseEvent(b []byte, tenant, dispatchID string, event []byte) ([]byte, Letter, error) {
	digest, err := k.text(tenant, audit.LabelEvent, event)
	from := len(b)
	b = append(b, event...)
	return b, Letter{dispatchID: dispatchID, digest: digest, data: b[from:len(b):len(b)]}, err
}

// Digest returns the keyed digest of the message, for the record that allows it.
func (l *Letter) Digest() string { return l.digest }

// IsZero reports whether there is no message.
func (l *Letter) IsZero() bool { return l.data == nil }

// Size returns the number of bytes for the receiver.
func (l *Letter) Size() int { return len(l.data) }

// ErrUndecided means that no record of the receipt allows the message.
var ErrUndecided = errors.New("no record allows this message")

// Open releases a closed message. It fails with [ErrUndecided] if no record of the receipt has its
// digest and allows it. It fails with the error of still if the basis of the decision no longer
// holds: see [Withdrawn] and [Anew]. If still is nil, nothing needs to be weighed.
func Open(r Receipt, l Letter, still func() error) (Sealed, error) {
	if l.data == nil || !slices.ContainsFunc(r.records, l.letThroughBy) {
		return Sealed{}, ErrUndecided
	}
	if still != nil {
		if err := still(); err != nil {
			return Sealed{}, err
		}
	}
	return Sealed{data: l.data}, nil
}

// letThroughBy reports whether a record allows the letter.
func (l *Letter) letThroughBy(r *audit.Record) bool {
	has := r.DeliveredDigest
	switch {
	case l.said:
		has = r.ContentDigest
	case r.DispatchID != l.dispatchID:
		return false
	}
	// The record of a person's decision states the outcome of a request, and the app that asked is
	// told either way.
	stopped := r.ActionType != audit.ActionApproval && (r.PolicyResult == string(ocip.Deny) || r.PolicyResult == string(ocip.RequireApproval))
	return l.digest != "" && !stopped && (mutant.Off("digest") || subtle.ConstantTimeCompare([]byte(has), []byte(l.digest)) == 1)
}

// Waited is an allowed message that has waited since.
type Waited struct {
	// Record is the record that allowed it.
	Record *audit.Entry
	// Approval is the record of the approval, nil if none was needed.
	Approval *audit.Entry
	// SessionKey is the record's, or the row's if the record's is redacted.
	SessionKey string
	// Form is the message in its receiver's form: for a channel, an agent, or a runtime that
	// delivers by itself.
	Form Form
}

// Withdrawn is the error of a message that may not leave any more.
type Withdrawn struct {
	Code, Reason string
	// Details are for the record.
	Details map[string]any
}

func (w *Withdrawn) Error() string { return w.Reason }

// Anew is the error of a message that may leave if a person agrees to a change since it was
// allowed.
type Anew struct {
	// Reason names the change.
	Reason string
	// Details are for the record.
	Details map[string]any
}

func (a *Anew) Error() string { return a.Reason }
