package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// UsedSignature is a person's signature that counts once, as a part of the change that it is for. The
// signature is on record, and so everybody who can read the log can bring it again: the log counts the
// row until the signature can count for nothing any more.
type UsedSignature struct {
	// Act names the act that was signed: see [SignedGrant] and [SignedSettlement].
	Act string
	// Until is the end of the signature, the zero time for none.
	Until time.Time
}

// ErrSignatureUsed means that a signature was used before.
var ErrSignatureUsed = errors.New("the signature was used before")

// SignedGrant names the act of giving a pre-approval.
func SignedGrant(id string) string { return "pre-approval " + id }

// SignedSettlement names the act of settling an exchange in a state, which comes only once.
func SignedSettlement(state string) string { return "settlement " + state }

func (u UsedSignature) prepare() (int, error) { return bounded("the use of a signature", u.Act) }

// usedQuery counts the rows of an act, at most one.
const usedQuery = `SELECT count(*) FROM main.used_signatures WHERE id = ?`

// guard refuses a signature that another change has used since this one was folded.
func (u UsedSignature) guard(tx *transaction) (refusal, err error) {
	used, err := tx.Scalar("the use of a signature", usedQuery, db.Text(u.Act))
	if err == nil && used > 0 {
		refusal = ErrSignatureUsed
	}
	return refusal, err
}

func (u UsedSignature) put(tx *transaction) error { return putUsed(tx.Writer, u) }

func putUsed(w *db.Writer, u UsedSignature) error {
	return w.Put("the use of a signature", "used_signatures", db.Text(u.Act), db.Int(fold.Number(fold.Time(u.Until))))
}

// fold refuses a signature that was used according to the log, whatever the database says.
func (u UsedSignature) fold(f *folding) {
	r := f.row(fold.UsedSignatures, []string{u.Act})
	if r.was != nil {
		f.err = ErrSignatureUsed
		return
	}
	r.now = foldrows.UsedSignature(u.Until)
}

// signedRecord has the members of a record that show a signature which counts once.
type signedRecord struct {
	Event   string `json:"event"`
	Details struct {
		GrantID string `json:"grantId"`
		Bounds  struct {
			Until int64 `json:"until"`
		} `json:"bounds"`
		SignedText string `json:"signedText"`
	} `json:"details"`
}

// used returns the use of a signature that a record shows.
func (r *signedRecord) used() (u UsedSignature, ok bool) {
	if r.Event == audit.EventGrantMade {
		return UsedSignature{SignedGrant(r.Details.GrantID), time.UnixMilli(r.Details.Bounds.Until)}, true
	}
	_, state, _ := strings.Cut(r.Details.SignedText, "\nstate ")
	state, _, _ = strings.Cut(state, "\n")
	state, err := strconv.Unquote(state)
	return UsedSignature{Act: SignedSettlement(state)}, err == nil
}

// takeUpSignatures makes the rows of used signatures that a log of an earlier version does not count. It
// reads the whole log, once: the checkpoint that follows has the form that counts them. A record counts
// here whether it has a seal or not, since it can only refuse a signature. A pre-approval whose record
// retention has removed is taken from its row.
func takeUpSignatures(ctx context.Context, s *Store, w *db.Writer) error {
	s.logger.Info("reading the whole log for signatures that were used")
	found, err := db.Rows(ctx, s.db, "the pre-approvals", `SELECT id, until FROM main.commitment_grants WHERE kind = 'standing'`, nil, func(stmt *sqlite.Stmt) (UsedSignature, error) {
		return UsedSignature{SignedGrant(stmt.ColumnText(0)), db.TimeOf(stmt.ColumnInt64(1))}, nil
	})
	for _, like := range []audit.Record{{ActionType: audit.ActionApproval, Event: audit.EventGrantMade}, {ActionType: audit.ActionExchange, Event: audit.EventResolved}} {
		if err == nil {
			err = eachLike(ctx, s, &like, func(line []byte) error {
				var r signedRecord
				if err := json.Unmarshal(line, &r); err != nil {
					return fmt.Errorf("not an audit record: %w", err)
				}
				if u, ok := r.used(); ok {
					found = append(found, u)
				}
				return nil
			})
		}
	}
	if err != nil {
		return fmt.Errorf("cannot read which signatures were used: %w", err)
	}
	err = w.Together(func() error {
		for _, u := range found {
			if err := putUsed(w, u); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, u := range found {
		if row := foldrows.UsedSignature(u.Until); fold.UsedSignatures.Open(row, s.clock()) {
			s.state.Put(fold.UsedSignatures, []string{u.Act}, row)
		}
	}
	s.logger.Info("the signatures that were used count once", zap.Int("signatures", len(found)))
	return nil
}
