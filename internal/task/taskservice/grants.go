package taskservice

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
)

// uses are when grants were last used, as long as the daemon runs.
type uses interface {
	Get(id string) (*atomic.Int64, bool)
	Add(id string, at *atomic.Int64) (evicted bool)
}

// use notes that a grant is used now.
func use(u uses, id string, now time.Time) {
	if at, ok := u.Get(id); ok {
		at.Store(now.UnixMilli())
		return
	}
	at := new(atomic.Int64)
	at.Store(now.UnixMilli())
	u.Add(id, at)
}

const (
	// usualGrants is how many grants a list has that does not say.
	usualGrants = 100
	// maxLookedAt is how many records are looked at for the last use of a grant.
	maxLookedAt = 50
)

// Grants answers task.grants: the grants by which somebody may act now.
func (s *Session) Grants(ctx context.Context, p *taskapi.GrantsParams) (taskapi.Grants, error) {
	t, now, want := s.t, s.t.o.Now(), usualGrants
	if p.Limit != nil {
		want = *p.Limit
	}
	list, after := taskapi.Grants{Grants: []taskapi.GrantLine{}}, p.After
	tenant, err := tenantOf(ctx, t, p.TaskID)
	if err != nil {
		return list, err
	}
	for {
		page, err := t.rows.Grants(ctx, p.TaskID, after, now, want)
		if err != nil {
			return list, err
		}
		for i := range page {
			after = page[i].ID
			line, err := grantLine(ctx, t, &page[i], p.Actor)
			if err != nil {
				return list, err
			}
			if line == nil || tenant != "" && (line.TenantID != tenant || line.Actor == "") {
				continue
			}
			if list.Grants = append(list.Grants, *line); len(list.Grants) == want {
				list.Next = after
				return list, nil
			}
		}
		if len(page) < want {
			return list, nil
		}
	}
}

// tenantOf is the tenant of a task, "" for no task.
func tenantOf(ctx context.Context, t *Tasks, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		return "", err
	}
	return at.Tenant, nil
}

// grantLine is a grant of a list, nil if nobody can act by it or it is another actor's.
func grantLine(ctx context.Context, t *Tasks, stored *taskstore.Grant, actor string) (*taskapi.GrantLine, error) {
	if err := t.o.Store.Agrees(ctx, fold.TaskGrants, stored.ID); err != nil {
		return nil, err
	}
	g := new(task.Grant)
	if err := json.Unmarshal(stored.Body, g); err != nil {
		return nil, err
	}
	if actor != "" && g.Actor != actor && g.Agent != actor || !g.RevokedAt.IsZero() {
		return nil, nil
	}
	if over, err := ended(ctx, t, g); err != nil || over {
		return nil, err
	}
	used, err := lastUse(ctx, t, g)
	return &taskapi.GrantLine{
		GrantID: g.ID, Actor: g.Actor, Role: g.Role, Agent: g.Agent, TenantID: g.Tenant, TaskID: g.TaskID, AttemptID: g.AttemptID, Tools: toolsOf(g), Bind: g.Bind, Holder: g.Holder,
		Under: g.Under, IssuedBy: g.IssuedBy, IssuedAt: g.IssuedAt, ExpiresAt: g.ExpiresAt, LastUsedAt: used,
	}, err
}

// ended reports whether a grant's task, attempt or subject is over, or the grant that it was given
// under.
func ended(ctx context.Context, t *Tasks, g *task.Grant) (bool, error) {
	if err := stands(ctx, t, g, nil); err != nil {
		if api.AsError(err).Code == api.Unauthorized {
			return true, nil
		}
		return false, err
	}
	if g.TaskID == "" {
		return false, nil
	}
	defer t.locks.Lock(g.TaskID)()
	at, err := t.loadLocked(ctx, g.TaskID)
	if errors.Is(err, store.ErrNotFound) || err != nil && api.AsError(err).Code == api.NotFound {
		return true, nil
	}
	return err == nil && g.Ended(at), err
}

// lastUse is when somebody last acted by a grant: in this run of the daemon, or else as the newest
// records of its actor say. It is zero if neither says so.
func lastUse(ctx context.Context, t *Tasks, g *task.Grant) (at time.Time, err error) {
	if used, ok := t.uses.Get(g.ID); ok {
		return time.UnixMilli(used.Load()).UTC(), nil
	}
	if g.Holder == nil || t.o.Search == nil {
		return at, nil
	}
	lines, _, err := t.o.Search.Query(ctx, audit.Filter{Like: audit.Record{TaskID: g.TaskID, Actor: g.Actor}}, 0, maxLookedAt)
	if err != nil {
		return at, err
	}
	for _, line := range lines {
		if r, err := audit.Parse(line); err == nil && r.Details["grant_id"] == g.ID && r.Event != "grant.issued" {
			return r.Time.UTC(), nil
		}
	}
	return at, nil
}
