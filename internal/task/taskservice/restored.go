package taskservice

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskstore"
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
	defer t.lockGrant(id)()
	defer t.grants.Remove(id)
	stored, err := t.rows.Grant(ctx, id)
	if _, altered := errors.AsType[*store.AlteredError](err); altered {
		// Nobody attaches by it.
		return nil
	}
	g := new(task.Grant)
	if err == nil {
		err = json.Unmarshal(stored.Body, g)
	}
	if err != nil {
		return err
	}
	if g.RevokedAt = t.o.Now().UTC(); !g.RevokedAt.Before(stored.ExpiresAt) {
		return nil
	}
	r := t.grantRecord("grant.revoked", g, daemonActor())
	r.TaskID, r.Details["reason"] = g.TaskID, "a copy of the state was restored, in which it may be in force although it was revoked since"
	body, err := json.Marshal(g)
	if err != nil {
		return err
	}
	change := &store.Change{Records: []*audit.Record{r}, Last: true}
	change.Add(taskstore.Grant{ID: id, Token: stored.Token, TaskID: g.TaskID, ExpiresAt: g.ExpiresAt, Body: body}.Rows())
	_, err = t.o.Commit(change)
	return err
}
