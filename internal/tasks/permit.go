package tasks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/taskapi"
)

// ownServer is the name of the MCP server whose calls the store itself checks.
const ownServer = "ocipd"

// quiet are the kinds of tool calls that need no person within the workspace.
func quiet() []string { return []string{"read", "search", "think", "edit"} }

// BuiltIn answers where the policy in force does not judge tasks: what moves a task is allowed, an effect
// needs a person, and so does a tool call that is more than reading, searching,
// thinking and editing within the workspace.
func BuiltIn(q *Question) task.Answer {
	a := task.Answer{Allow: true, Policy: "tasks-built-in"}
	switch q.Action {
	case task.AskEffect:
		a.RequireApproval = true
	case task.AskPermission:
		a.RequireApproval = q.Tool == nil || q.Tool.Server != ownServer && (!slices.Contains(quiet(), q.Tool.Kind) || !q.Tool.InWorkspace)
	}
	return a
}

// permit answers whether a tool call may be made: by the policy, or by a person, whose word
// about the request that it returns is waited for elsewhere. No pause begins between its look
// at them and the commit.
func (t *Tasks) permit(ctx context.Context, at *task.Task, who *task.Actor, p *taskapi.AskPermissionParams) (id string, until time.Time, result taskapi.Permission, err error) {
	defer t.deciding(who)()
	if r := t.paused(nil, who); r != nil {
		return "", until, result, t.refused(at, who, &task.World{}, r)
	}
	level := t.raised(at.Classification, p.ToolCall)
	q := Question{
		Question: task.Question{Action: task.AskPermission, Actor: who.Name, ActorAs: who.Role}, Tenant: at.Tenant, Classification: level, Labels: at.Labels,
		Phase: at.Phase, Tool: &p.ToolCall,
	}
	answer := t.o.Ask(ctx, q)
	record := &audit.Record{
		ID: t.o.NewID(), ActionType: audit.ActionSecurity, Event: "task_permission", TenantID: at.Tenant, TaskID: at.ID, AttemptID: p.AttemptID, Actor: who.Name, Role: string(who.Role), Classification: level,
		PolicyApplied: answer.Policy, PolicyRevision: answer.Revision, PolicyReason: answer.Reason,
		Details: map[string]any{"kind": p.ToolCall.Kind, "in_workspace": p.ToolCall.InWorkspace, "input_digest": task.Digest(p.ToolCall.Input)},
	}
	if answer.Cause != "" {
		record.PolicyReason += ": " + answer.Cause
	}
	change := &store.Change{Records: []*audit.Record{record}}
	if !answer.Allow || !answer.RequireApproval {
		result = taskapi.Permission{Decision: "deny", Reason: answer.Reason}
		if record.PolicyResult = audit.ResultDeny; answer.Allow {
			result.Decision, record.PolicyResult = "allow", audit.ResultAllow
		}
		_, err = t.o.Commit(change)
		return "", until, result, err
	}
	record.PolicyResult = audit.ResultApproval
	id, until, err = t.request(ctx, at, who, p, change, max(1, answer.Approvers))
	return id, until, result, err
}

// request enters the request for a person's word, or finds the one that waits for it: a
// call that its bridge makes again, as after the end of a daemon, is one question.
func (t *Tasks) request(ctx context.Context, at *task.Task, who *task.Actor, p *taskapi.AskPermissionParams, change *store.Change, needed int) (id string, until time.Time, err error) {
	now := t.o.Now()
	until = now.Add(t.config.Load().PermitWithin)
	id = task.ApprovalID + t.o.NewID()
	agent, asked := "task:"+at.ID, approval.Asked(api.ApprovalOfPermission, at.ID, id)
	if p.ToolCall.ID != "" {
		encoded, err := json.Marshal(&p.ToolCall)
		call := jsontext.Value(encoded)
		if err = errors.Join(err, call.Canonicalize()); err != nil {
			return "", until, err
		}
		asked = approval.Asked(api.ApprovalOfPermission, at.ID, p.AttemptID, who.Name, string(call))
		defer t.locks.Lock("permission " + asked)()
		if waits := t.o.Approvals().Waiting(api.ApprovalOfPermission, agent, func() string { return asked }); waits != "" {
			r, err := t.o.Approvals().Get(ctx, waits)
			if err != nil {
				return "", until, err
			}
			if !r.OverAt(now) {
				change.Records[0].ApprovalID = waits
				_, err = t.o.Commit(change)
				return waits, time.UnixMilli(r.ExpiresAt), err
			}
		}
	}
	o := own{TaskID: at.ID, Tenant: at.Tenant, Digest: task.Digest(p.ToolCall.Input)}
	kept, err := json.Marshal(&o)
	if err != nil {
		return "", until, err
	}
	content := p.ToolCall.Title + "\n" + string(p.ToolCall.Input)
	r := &approval.Request{Asked: asked, Own: kept, Approval: api.Approval{
		ApprovalSummary: api.ApprovalSummary{
			ApprovalID: id, Kind: api.ApprovalOfPermission, State: api.ApprovalPending, Code: "PERMISSION", Reason: "an agent asks to use a tool: " + p.ToolCall.Kind,
			AgentID: who.Name, Agent: agent, TaskID: at.ID, Classification: change.Records[0].Classification, Summary: summary(p.ToolCall.Title, p.ToolCall.Kind),
			AskedAt: now.UnixMilli(), ExpiresAt: until.UnixMilli(), Approvable: true, Needed: needed,
		},
		PolicyApplied: change.Records[0].PolicyApplied, PolicyRevision: change.Records[0].PolicyRevision, Content: content, ContentBytes: len(content),
	}}
	change.Records[0].ApprovalID = id
	if err := t.o.Approvals().Add(r, &subject{t: t, r: r, own: o}, change); err != nil {
		return "", until, err
	}
	_, err = t.o.Commit(change)
	return id, until, err
}

// await waits for a person's word. Expiry denies.
func (t *Tasks) await(ctx context.Context, id string, within time.Duration) (taskapi.Permission, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		decided, leave := t.moved.watch(id)
		now, err := t.o.Approvals().Get(ctx, id)
		if err != nil || now.State != api.ApprovalPending {
			leave()
			result := taskapi.Permission{Decision: "deny", ApprovalID: id}
			if err == nil && now.State == api.ApprovalApproved {
				result.Decision = "allow"
			}
			return result, err
		}
		select {
		case <-decided:
			leave()
		case <-timer.C:
			leave()
			return taskapi.Permission{Decision: "deny", Reason: "nobody decided in time", ApprovalID: id}, nil
		case <-ctx.Done():
			leave()
			return taskapi.Permission{}, ctx.Err()
		case <-t.closing.Done():
			leave()
			return taskapi.Permission{}, api.Errorf(api.ConnectionClosed, "the daemon is ending, and the request waits on: ask again")
		}
	}
}
