package store

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// Sign makes a checkpoint of everything recorded so far, unless the last record
// is a plain one.
func (s *Store) Sign() error {
	_, err := s.Commit(&Change{Checkpoint: true, Alarm: true})
	return err
}

// signInTime makes a checkpoint for records that have waited long enough for
// one.
func (s *Store) signInTime(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !s.AllSigned() && s.Latched() == nil {
				if err := s.Sign(); err != nil && !errors.Is(err, ErrClosed) {
					s.logger.Error("cannot make a checkpoint of the audit log", zap.Error(err))
				}
			}
		case <-s.closing.Done():
			return
		}
	}
}

// RotateKey hands the log over to another key, with the signer next: the old one signs a checkpoint
// that names it, and the new one signs that too. It returns the record's number.
func (s *Store) RotateKey(next note.Signer, public string) (uint64, error) {
	if s.Origin() == "" {
		return 0, errors.New("cannot rotate the key: the log has none")
	}
	receipt, err := s.Commit(&Change{log: logstore.HandOver(next, public), Alarm: true})
	return receipt.Seq, err
}

// Retire removes the records up to seq for good and leaves a signed tombstone in their place, which
// it returns. The newest checkpoint must cover seq, and the log must be signed. The time is
// proportional, and does not block others; [Store.Prune] completes an interrupted removal.
func (s *Store) Retire(ctx context.Context, seq uint64) (audit.Tombstone, error) {
	if seq > s.Retired() && seq < s.Checkpoint().Seq {
		// The remaining records must state the rows that are open then.
		if err := s.stateRows(fold.EventKept, func(stated uint64) bool { return stated <= seq }); err != nil {
			return audit.Tombstone{}, err
		}
	}
	entomb, err := logstore.Entomb(ctx, s.Log, seq)
	if err != nil {
		return audit.Tombstone{}, err
	}
	if entomb != nil {
		if _, err := s.Commit(&Change{log: entomb, Alarm: true}); err != nil {
			return audit.Tombstone{}, err
		}
		if err := s.Prune(ctx); err != nil {
			return audit.Tombstone{}, err
		}
	}
	return s.Tombstone(ctx)
}

// Prune completes the removal of the records of a tombstone, and of the exchanges that ended before
// it, and cleans both from the files.
func (s *Store) Prune(ctx context.Context) error {
	upTo := s.Retired()
	for pruned := false; upTo > 0; pruned = true {
		first, err := s.FirstSeq(ctx)
		if err != nil {
			return err
		}
		if first == 0 || first > upTo {
			if !pruned {
				return nil
			}
			t, err := s.Tombstone(ctx)
			if err == nil {
				err = s.cleaning.removeExchanges(ctx, t.Head.Time)
			}
			if err != nil {
				return err
			}
			s.cleaning.removed.Or(removedTexts | removedPages)
			return s.Clean(ctx)
		}
		if _, err := s.Commit(&Change{log: logstore.Remove(upTo), Alarm: true}); err != nil {
			return err
		}
	}
	return nil
}
