package taskservice

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
	"go.uber.org/zap"
)

// RevokeGrant answers task.revoke_grant. From its commit on, nobody acts by the grant or by one that
// was given under it ([stands]). Those go on record as revoked before the answer.
func (s *Session) RevokeGrant(ctx context.Context, p *taskapi.RevokeGrantParams) (taskapi.Changed, error) {
	who := s.as(ctx, p.TaskID)
	if err := s.t.mayRevoke(ctx, p.TaskID, who); err != nil {
		return taskapi.Changed{}, err
	}
	defer s.t.o.Revoked()
	return once(ctx, s, "task.revoke_grant", p, nil, func(keep func(*store.Change, taskapi.Changed) error) (taskapi.Changed, error) {
		changed, err := revoke(ctx, s.t, p, who, keep)
		if err == nil {
			revokeUnder(ctx, s.t, p.GrantID, who)
		}
		return changed, err
	})
}

// revoke revokes a grant, and keeps the answer with it.
func revoke(ctx context.Context, t *Tasks, p *taskapi.RevokeGrantParams, who *task.Actor, keep func(*store.Change, taskapi.Changed) error) (taskapi.Changed, error) {
	defer t.lockGrant(p.GrantID)()
	stored, err := t.rows.Grant(ctx, p.GrantID)
	if errors.Is(err, store.ErrNotFound) || err == nil && stored.TaskID != p.TaskID {
		return taskapi.Changed{}, api.Errorf(api.NotFound, "there is no grant %s of this task", p.GrantID)
	}
	if err != nil {
		return taskapi.Changed{}, err
	}
	if p.TaskID == "" {
		change := new(store.Change)
		if err := errors.Join(enterRevoked(t, change, &stored, who, ""), keep(change, taskapi.Changed{})); err != nil {
			return taskapi.Changed{}, err
		}
		done, err := t.deciding(ctx, who, nil, task.RevokeGrant{ID: stored.ID})
		if err != nil {
			return taskapi.Changed{}, err
		}
		defer done()
		receipt, err := t.o.Commit(change)
		return taskapi.Changed{AuditSeq: told(who, receipt).Seq}, err
	}
	out, receipt, err := t.act(ctx, p.TaskID, who, always(task.RevokeGrant{ID: stored.ID}), func(change *store.Change, out *task.Outcome) error {
		_, err := enterEnd(t, change, &stored)
		return errors.Join(err, keep(change, changed(out, store.Receipt{})))
	})
	if err != nil {
		return taskapi.Changed{}, err
	}
	return changed(out, receipt), nil
}

// enterEnd enters the end of a grant into a change, and returns the grant.
func enterEnd(t *Tasks, change *store.Change, stored *taskstore.Grant) (*task.Grant, error) {
	g := new(task.Grant)
	if err := json.Unmarshal(stored.Body, g); err != nil {
		return nil, err
	}
	g.RevokedAt = t.o.Now().UTC()
	body, err := json.Marshal(g)
	change.Add(taskstore.Grant{ID: g.ID, Token: stored.Token, TaskID: g.TaskID, ExpiresAt: g.ExpiresAt, Body: body}.Rows())
	// Before the locks of the task and of the pauses are free again.
	change.OnDurable(func(store.Receipt) { t.grants.Remove(g.ID) })
	return g, err
}

// enterRevoked is enterEnd with a record of it, which says why if there is a reason.
func enterRevoked(t *Tasks, change *store.Change, stored *taskstore.Grant, who *task.Actor, reason string) error {
	g, err := enterEnd(t, change, stored)
	if err != nil {
		return err
	}
	r := t.grantRecord("grant.revoked", g, who)
	if r.TaskID = g.TaskID; reason != "" {
		r.Details["reason"] = reason
	}
	change.Records = append(change.Records, r)
	return nil
}

// revokeUnder puts on record that the grants which were given under a grant have ended with it, those
// that were given under these, and so on. Nobody can give or use one any more, so it is no matter
// that they follow in changes of their own, and those of an earlier run of the daemon not at all.
func revokeUnder(ctx context.Context, t *Tasks, id string, who *task.Actor) {
	ctx = context.WithoutCancel(ctx)
	for under := []string{id}; len(under) > 0; under = under[1:] {
		ids, err := t.rows.GrantsUnder(ctx, under[0], t.o.Now())
		for _, child := range ids {
			err = errors.Join(err, revokeOne(ctx, t, child, who, "grant "+under[0]+", under which it was given, was revoked"))
		}
		if err != nil {
			t.o.Log.Error("cannot record that grants have ended with the one they were given under", zap.String("grant", under[0]), zap.Error(err))
		}
		under = append(under, ids...)
	}
}

// revokeOne revokes a grant, unless it has ended before.
func revokeOne(ctx context.Context, t *Tasks, id string, who *task.Actor, reason string) error {
	defer t.lockGrant(id)()
	stored, err := t.rows.Grant(ctx, id)
	if err != nil {
		return err
	}
	g := new(task.Grant)
	if err := json.Unmarshal(stored.Body, g); err != nil || over(g, nil, t.o.Now()) {
		return err
	}
	change := &store.Change{Last: true}
	if err := enterRevoked(t, change, &stored, who, reason); err != nil {
		return err
	}
	_, err = t.o.Commit(change)
	return err
}

// mayRevoke refuses a caller that may not revoke grants of a task, or grants without one. It looks at
// no grant, so that the refusal does not tell whether there is one.
func (t *Tasks) mayRevoke(ctx context.Context, id string, who *task.Actor) error {
	if id == "" {
		if who.Role == task.Operator {
			return nil
		}
		return t.refused(nil, who, nil, &task.Refusal{Code: task.NotPermitted, Message: "a grant without a task is an operator's to revoke"})
	}
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		return err
	}
	if err := at.May(who); err != nil {
		return t.refused(at, who, nil, err)
	}
	return nil
}
