// Package gate is the one exit for messages. The text of one principal reaches another
// only as a [Sealed], and [Open] alone makes one of somebody's message: it takes the
// receipt of the commit that let the message through, holds the message against the
// records of that commit, and weighs once more what may have changed since.
//
// A message goes through in three steps. [Keys.Close] writes the bytes that its receiver
// gets and takes their keyed digest, which the caller enters into the record of the
// decision. The store commits the record and returns a [Receipt]. [Open] compares the two.
// A message that waited on disk is closed anew from its row and opened with the receipt of
// the record that was read back, so an edited row never passes.
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

// Receipt says where a commit went, and proves that its records are on disk. The zero
// Receipt proves nothing.
type Receipt struct {
	// Seq is the sequence number of the commit's first record, zero if it had none.
	Seq uint64
	// Time is the time of its records.
	Time time.Time

	records []*audit.Record
}

// Committed makes the receipt of records that are durable. The store alone may call it,
// after the commit.
func Committed(seq uint64, at time.Time, records []*audit.Record) Receipt {
	return Receipt{Seq: seq, Time: at, records: records}
}

// ReadBack makes the receipt of a record that was read from the log. The store alone may
// call it.
func ReadBack(e *audit.Entry) Receipt {
	return Receipt{Seq: e.Seq, Time: e.Time, records: []*audit.Record{&e.Record}}
}

// Form is a message in the words of the protocol, as its receiver is given it.
type Form interface {
	// Room is about how many bytes it takes.
	Room() int
	// Write appends it as JSON and tells what the digest is taken of.
	Write(b []byte) ([]byte, Delivered)
}

// Delivered is what the digest of a message as it is handed over is taken of, see
// [audit.DeliveredForm].
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

// Letter is a closed message: the bytes that its receiver would get, and their digest.
// Nobody can read the bytes before [Open] has let them through.
type Letter struct {
	dispatchID, digest string
	// said is set if the digest is that of a text as it was said, see [Keys.CloseText].
	said bool
	data []byte
}

// Close appends a message to a buffer as its receiver is given it, and closes it.
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

// Same reports whether a member of a record of a tenant, which may be redacted, is that of a
// text. It says no where that cannot be told.
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

// CloseEvent closes the event that answers a request of its receiver. Its digest stands as
// the delivered digest of the record of the answer.
func (k Keys) CloseEvent(b []byte, tenant, dispatchID string, event []byte) ([]byte, Letter, error) {
	digest, err := k.text(tenant, audit.LabelEvent, event)
	from := len(b)
	b = append(b, event...)
	return b, Letter{dispatchID: dispatchID, digest: digest, data: b[from:len(b):len(b)]}, err
}

// Digest is the keyed digest of the message, for the record that lets it through.
func (l *Letter) Digest() string { return l.digest }

// IsZero reports whether there is no message.
func (l *Letter) IsZero() bool { return l.data == nil }

// Size is how many bytes the receiver gets.
func (l *Letter) Size() int { return len(l.data) }

// ErrUndecided means that no record of the receipt lets the message through.
var ErrUndecided = errors.New("it is not what its record let through")

// Open lets a closed message out. It fails with [ErrUndecided] if no record of the receipt
// has its digest and lets it through, and with the error of still if what the message was
// decided by holds no more: see [Withdrawn] and [Anew]. Nothing has to be weighed if still
// is nil.
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

// letThroughBy reports whether a record lets the letter through.
func (l *Letter) letThroughBy(r *audit.Record) bool {
	has := r.DeliveredDigest
	switch {
	case l.said:
		has = r.ContentDigest
	case r.DispatchID != l.dispatchID:
		return false
	}
	// A record of what a person decided says what became of a request, and tells whoever
	// asked either way.
	stopped := r.ActionType != audit.ActionApproval && (r.PolicyResult == string(ocip.Deny) || r.PolicyResult == string(ocip.RequireApproval))
	return l.digest != "" && !stopped && (mutant.Off("digest") || subtle.ConstantTimeCompare([]byte(has), []byte(l.digest)) == 1)
}

// Waited is a message that was let through and has waited since.
type Waited struct {
	// Record is the one that let it through.
	Record *audit.Entry
	// Approval is that of the person who approved it, nil if nobody had to.
	Approval *audit.Entry
	// SessionKey is the record's, or as the row has it if the record's is redacted.
	SessionKey string
	// Form is the message as its receiver gets it: a channel's, an agent's or a runtime's
	// that delivers by itself.
	Form Form
}

// Withdrawn is the error of a message that may not leave any more.
type Withdrawn struct {
	Code, Reason string
	// Details are for the record.
	Details map[string]any
}

func (w *Withdrawn) Error() string { return w.Reason }

// Anew is the error of a message that may leave if a person agrees to what has changed
// since it was let through.
type Anew struct {
	// Reason names what has changed.
	Reason string
	// Details are for the record.
	Details map[string]any
}

func (a *Anew) Error() string { return a.Reason }
