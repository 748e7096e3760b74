package taskservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Import answers task.import: one task that was kept elsewhere, in one commit, once for
// each origin.
func (s *Session) Import(ctx context.Context, p *taskapi.ImportParams) (taskapi.Created, error) {
	t := s.t
	who := s.as(ctx, "")
	var none taskapi.Created
	tenant, err := t.tenant(who, p.TenantID, p.Classification)
	if err != nil {
		return none, err
	}
	defer t.locks.Lock("origin " + tenant + "\n" + p.Origin)()
	switch id, err := t.rows.Imported(ctx, tenant, p.Origin); {
	case err == nil:
		return t.imported(ctx, id)
	case !errors.Is(err, store.ErrNotFound):
		return none, err
	}
	if !p.Phase.Final() && t.counts.full(tenant) {
		return none, limit(fmt.Sprintf("the tenant has %d open tasks", maxOpen))
	}
	given, err := spec(s.reader(), p.Workspace, p.SpecMarkdown, p.Spec, nil)
	if err != nil {
		return none, err
	}
	command := task.Create{
		Title: p.Title, Workspace: p.Workspace, Tenant: tenant, Phase: p.Phase, As: p.Phase, Labels: p.Labels, DependsOn: p.DependsOn, Priority: task.DefaultPriority,
		Spec: given, Classification: cmp.Or(p.Classification, lowest(t.config.Load())), Origin: p.Origin, Reason: p.LastError,
		Details: map[string]any{"origin": p.Origin, "origin_status": p.Status, "retries": p.Retries},
	}
	if p.Priority != nil {
		command.Priority = *p.Priority
	}
	for i, a := range p.Artifacts {
		made := task.Artifact{URI: a.URI, Digest: a.Digest}
		digest, size, err := s.reader().hashFile(p.Workspace, a.URI)
		switch {
		case err == nil && a.Digest != "" && a.Digest != digest:
			return none, api.Errorf(api.InvalidParams, "artifacts[%d].digest: the file has %s", i, digest)
		case err == nil:
			made.Digest, made.Size, made.Verified = digest, size, true
		case !errors.Is(err, errNoFile):
			return none, err
		case a.Digest == "":
			return none, api.Errorf(api.InvalidParams, "artifacts[%d].digest: required for what is no file in the workspace: %v", i, err)
		}
		command.Artifacts = append(command.Artifacts, made)
	}
	if len(p.DependsOn) > 0 {
		t.deps.Lock()
		defer t.deps.Unlock()
		if err := t.mayDepend(ctx, "", tenant, p.DependsOn); err != nil {
			return none, err
		}
	}
	out, change, err := t.decide(ctx, nil, command, who)
	if err != nil {
		return none, err
	}
	defer t.locks.Lock(out.Task.ID)()
	out, receipt, err := t.write(change, nil, out, nil)
	if err != nil {
		return none, err
	}
	return taskapi.Created{Changed: changed(out, receipt), Missing: out.Task.Missing()}, nil
}

// imported is the answer for a task that is there already.
func (t *Tasks) imported(ctx context.Context, id string) (taskapi.Created, error) {
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		return taskapi.Created{}, err
	}
	return taskapi.Created{Changed: taskapi.Changed{TaskID: at.ID, Phase: at.Phase, Revision: at.Revision, Replayed: true}, Missing: at.Missing()}, nil
}
