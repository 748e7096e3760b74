package taskservice

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/store"
)

// RestoredGrants revokes grants of actors and agents, since a copy of the state was restored: a
// person may have revoked them after the copy was made.
func RestoredGrants(ctx context.Context, t *Tasks, ids [][]string) (err error) {
	for _, id := range ids {
		err = errors.Join(err, restoredGrant(ctx, t, id[0]))
	}
	return err
}

func restoredGrant(ctx context.Context, t *Tasks, id string) error {
	err := revokeOne(ctx, t, id, daemonActor(), "a copy of the state was restored, in which it may be in force although it was revoked since")
	if _, altered := errors.AsType[*store.AlteredError](err); altered {
		// Nobody attaches by it.
		return nil
	}
	return err
}
