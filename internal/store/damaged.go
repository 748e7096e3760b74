package store

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
)

// ErrDamaged means that a file is no database of ours, or not any more.
var ErrDamaged = errors.New("the database is damaged")

// Damaged adds [ErrDamaged] to errors that say so.
func Damaged(err error) error {
	switch code := sqlite.ErrCode(err).ToPrimary(); {
	case err == nil:
		return nil
	case code == sqlite.ResultCorrupt, code == sqlite.ResultNotADB, errors.Is(err, errForeign), errors.Is(err, errEmpty):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// Misplaced counts the rows of records that stand before the first number there is.
func (r *reader) Misplaced(ctx context.Context) (uint64, error) {
	return r.seqOf(ctx, `SELECT count(*) FROM records WHERE seq < 1`)
}
