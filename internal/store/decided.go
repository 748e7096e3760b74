package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/db"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
)

// ErrUndecided means that no record lets a waiting message through: its row was
// not written by a decision, or the record was retired while it waited.
var ErrUndecided = errors.New("no record lets the message through")

// decidedWithin is how many records from the one that a message names may be of its
// decision: a person's words come before the records of what they let go, and each
// side has one.
const decidedWithin = 8

// DecisionOf returns the record that let a waiting message through, or
// [ErrUndecided]. The caller holds the message against it, by its DeliveredDigest,
// before it hands over what it read from the database: whoever can write the file
// can put rows there. What was just committed needs no such look.
//
// The record is the first of those from [Message.RecordSeq] on that has the
// message's DispatchID and a DeliveredDigest. Where none has a digest, it is the
// first that has the DispatchID. That is enough for what is in the daemon's own
// words, and for a message that waits since before records had digests; with said
// set, for a message in somebody's words, it is no decision.
func (s *Store) DecisionOf(ctx context.Context, m *Message, said bool) (audit.Entry, error) {
	lines, err := db.Rows(ctx, s.db, "the record of a decision", `SELECT line FROM records WHERE seq >= ? ORDER BY seq LIMIT ?`,
		[]any{int64(m.RecordSeq), decidedWithin}, func(stmt *sqlite.Stmt) ([]byte, error) { return []byte(stmt.ColumnText(0)), nil })
	if err != nil {
		return audit.Entry{}, err
	}
	var bare audit.Entry
	for i, line := range lines {
		e, err := audit.Parse(line)
		if err != nil || e.Seq != m.RecordSeq+uint64(i) {
			return audit.Entry{}, errors.Join(ErrUndecided, err)
		}
		switch {
		case e.DispatchID != m.DispatchID, e.PolicyResult == string(ocip.Deny), e.PolicyResult == string(ocip.RequireApproval):
		case e.DeliveredDigest != "":
			return e, nil
		case bare.Seq == 0:
			bare = e
		}
	}
	if bare.Seq == 0 || said && bare.Seq >= s.digestsFrom {
		return audit.Entry{}, ErrUndecided
	}
	return bare, nil
}

// digestsFromName is where the database keeps from which record on the messages
// that are let through have digests.
const digestsFromName = "digests-from"

// readDigestsFrom returns it.
func (s *Store) readDigestsFrom(ctx context.Context) (uint64, error) {
	value, err := s.Meta(ctx, digestsFromName)
	if err != nil {
		return 0, err
	}
	seq, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read from which record on there are digests: %w", err)
	}
	return seq, nil
}
