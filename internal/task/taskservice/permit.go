package taskservice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"go.uber.org/zap"
)

// ownServer is the name of the MCP server whose calls the store itself checks.
const ownServer = "ocipd"

// quiet reports whether a kind of tool calls needs no person within the workspace.
func quiet(kind string, researches bool) bool {
	return slices.Contains([]string{"read", "search", "think"}, kind) || kind == "edit" && !researches
}

// BuiltIn answers where the policy in force does not judge tasks: a move of a task is allowed; an
// effect needs a person, and so does a tool call other than reading, searching, thinking and
// editing within the workspace. An attempt of kind research edits nothing without a person either.
func BuiltIn(q *Question) task.Answer {
	a := task.Answer{Allow: true, Policy: "tasks-built-in"}
	switch q.Action {
	case task.AskEffect:
		a.RequireApproval = true
	case task.AskPermission:
		a.RequireApproval = q.Tool == nil || q.Tool.Server != ownServer && (!quiet(q.Tool.Kind, q.Research) || !q.Tool.InWorkspace)
	}
	return a
}

// permission is one question about a tool call. The same call that its actor asks about again,
// under the same attempt or about the same subject, is the same question, also after the end of a
// daemon or of the caller: it is shown to people once, and a person's word about it answers one
// asking.
type permission struct {
	at      *task.Task
	who     *task.Actor
	attempt string
	tool    *taskapi.ToolCall
	// asked names the question, and agent is the name under which it is counted and kept.
	asked, agent string
}

// permission makes a question of a call. Only names the call where it has no id of its own, so
// that no other is the same.
func (t *Tasks) permission(ctx context.Context, who *task.Actor, p *taskapi.AskPermissionParams, only string) (*permission, error) {
	out, _, err := t.act(ctx, p.TaskID, who, always(nil), nil)
	if err != nil {
		return nil, err
	}
	at := out.Task
	refused := func(code task.Code, message string) (*permission, error) {
		return nil, t.refused(at, who, &task.World{}, &task.Refusal{Code: code, Message: message})
	}
	q := &permission{at: at, who: who, attempt: p.AttemptID, tool: &p.ToolCall, agent: "task:" + at.ID}
	about := ""
	if who.Role == task.Executor {
		a := at.Running()
		if a == nil || a.Actor != who.Name || p.AttemptID != "" && p.AttemptID != a.ID {
			return refused(task.LeaseLost, "the attempt does not run any more")
		}
		q.attempt = a.ID
	} else {
		if p.AttemptID != "" && at.Attempt(p.AttemptID) == nil {
			return refused(task.Absent, "the task has no attempt "+p.AttemptID)
		}
		about = fmt.Sprint(at.Subject())
	}
	call, err := json.Marshal(&p.ToolCall)
	if err == nil {
		// Numbers stay as written: two whole numbers can be one double, and programs that read them exactly differ.
		err = (*jsontext.Value)(&call).Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	}
	q.asked = approval.Asked(api.ApprovalOfPermission, at.ID, q.attempt, about, who.Name, string(call), only)
	return q, err
}

// AskPermission answers task.ask_permission: by the policy, or by a person's word, which is
// waited for.
func (s *Session) AskPermission(ctx context.Context, p *taskapi.AskPermissionParams) (taskapi.Permission, error) {
	t, only := s.t, ""
	if p.ToolCall.ID == "" {
		only = t.o.NewID()
	}
	for {
		who, err := again(ctx, s, p.TaskID)
		if err != nil {
			return taskapi.Permission{}, err
		}
		q, err := t.permission(ctx, who, p, only)
		if err != nil {
			return taskapi.Permission{}, err
		}
		result, waits, err := t.permit(ctx, q)
		if err != nil || waits == nil {
			return result, err
		}
		state, err := t.await(ctx, waits)
		switch {
		case err != nil:
			return taskapi.Permission{}, err
		case state != api.ApprovalApproved && state != api.ApprovalDenied:
			return taskapi.Permission{Decision: "deny", Reason: "nobody decided in time", ApprovalID: waits.ApprovalID}, nil
		}
		// The word is there for one asking. If another call has taken it, the person is asked
		// again.
	}
}

// permit answers a question by the policy or by a person's decision, or returns the request that
// waits for a person. No pause begins between its look at them and the commit.
func (t *Tasks) permit(ctx context.Context, q *permission) (result taskapi.Permission, waits *approval.Request, err error) {
	defer t.locks.Lock(q.at.ID)()
	defer t.locks.Lock("permission " + q.asked)()
	if err := holds(ctx, t, q.who, q.at); err != nil {
		return result, nil, err
	}
	// Waiting requests are looked for first: what is decided meanwhile is said then.
	if id := t.o.Approvals().Waiting(api.ApprovalOfPermission, q.agent, func() string { return q.asked }); id != "" {
		if waits, err = t.waiting(ctx, id); err != nil {
			return result, nil, err
		}
	}
	done, err := t.deciding(ctx, q.who, q.at, nil)
	if err != nil {
		return result, nil, err
	}
	defer done()
	if r := t.paused(nil, q.who); r != nil {
		return result, nil, t.refused(q.at, q.who, &task.World{}, r)
	}
	level, answer := t.judged(ctx, q.at, q.who.Name, q.who.Role, q.tool, q.attempt)
	input, err := t.o.Keys.Task(q.at.Tenant, "input", q.tool.Input)
	if err != nil {
		return result, nil, err
	}
	record := &audit.Record{
		ID: t.o.NewID(), ActionType: audit.ActionSecurity, Event: "task_permission", TenantID: q.at.Tenant, TaskID: q.at.ID, AttemptID: q.attempt, Actor: q.who.Name, Role: string(q.who.Role), Classification: level,
		PolicyApplied: answer.Policy, PolicyRevision: answer.Revision, PolicyReason: answer.Reason,
		Details: map[string]any{"kind": q.tool.Kind, "in_workspace": q.tool.InWorkspace, "digests": map[string]any{"input": input}},
	}
	if answer.Cause != "" {
		record.PolicyReason += ": " + answer.Cause
	}
	change := &store.Change{Records: []*audit.Record{record}}
	if answer.Allow && answer.RequireApproval {
		return t.askPerson(ctx, q, waits, change, &answer)
	}
	result = taskapi.Permission{Decision: "deny", Reason: answer.Reason}
	if record.PolicyResult = audit.ResultDeny; answer.Allow {
		result.Decision, record.PolicyResult = "allow", audit.ResultAllow
	}
	_, err = t.o.Commit(change)
	return result, nil, err
}

// judged asks the policy about a tool call in a task.
func (t *Tasks) judged(ctx context.Context, at *task.Task, actor string, role task.Role, tool *taskapi.ToolCall, attempt string) (level string, answer task.Answer) {
	level = t.raised(at.Classification, *tool)
	a := at.Attempt(attempt)
	return level, t.o.Ask(ctx, Question{
		Question: task.Question{Action: task.AskPermission, Actor: actor, ActorAs: role}, Tenant: at.Tenant, Classification: level, Labels: at.Labels, Phase: at.Phase, Tool: tool,
		Research: role == task.Executor && a != nil && a.Research(),
	})
}

// askPerson answers by a person's word that nobody has taken yet, or returns the request that
// waits for one, which may be new. The change has the record of the asking. The question's lock
// is held.
func (t *Tasks) askPerson(ctx context.Context, q *permission, waits *approval.Request, change *store.Change, answer *task.Answer) (taskapi.Permission, *approval.Request, error) {
	var none taskapi.Permission
	d, record, now := t.o.Approvals(), change.Records[0], t.o.Now()
	record.PolicyResult = audit.ResultApproval
	if waits != nil && waits.State == api.ApprovalPending {
		record.ApprovalID = waits.ApprovalID
		_, err := t.o.Commit(change)
		return none, waits, err
	}
	needed := t.config.Load().Rules.People(answer)
	said, few, err := d.Said(ctx, q.agent, q.asked, answer.Revision, needed)
	if err != nil {
		return none, nil, err
	}
	if said != nil {
		result, err := t.take(ctx, said, change)
		return result, nil, err
	}
	if few != "" {
		record.Details["tooFew"] = few
	}
	kept, err := json.Marshal(&own{TaskID: q.at.ID, Tenant: q.at.Tenant, Tool: q.tool, Actor: q.who.Name, Role: q.who.Role, Attempt: q.attempt})
	if err != nil {
		return none, nil, err
	}
	content := describeTool(q.tool)
	within := t.config.Load().PermitWithin
	r := &approval.Request{Asked: q.asked, Own: kept, Approval: api.Approval{
		ApprovalSummary: api.ApprovalSummary{
			ApprovalID: ids.Approval + t.o.NewID(), Kind: api.ApprovalOfPermission, State: api.ApprovalPending, Code: "PERMISSION", Reason: "an agent asks to use a tool: " + word(q.tool.Kind),
			AgentID: q.who.Name, Agent: q.agent, TaskID: q.at.ID, Target: summary(q.at.Title), Classification: record.Classification, Summary: summary(q.tool.Title, q.tool.Kind),
			AskedAt: now.UnixMilli(), ExpiresAt: now.Add(within).UnixMilli(), Approvable: true, Needed: needed,
		},
		PolicyApplied: answer.Policy, PolicyRevision: answer.Revision, Content: content, ContentBytes: len(content),
	}}
	record.ApprovalID = r.ApprovalID
	if most := t.config.Load().MaxAsked; !d.Reserve(r, most) {
		return none, nil, limit(fmt.Sprintf("%d tool calls of task %s wait for a person already", most, q.at.ID))
	}
	s, err := t.Subject(r)
	if err == nil {
		err = d.Add(r, s, change)
	}
	if err == nil {
		err = t.shows(record, r)
	}
	if err == nil {
		_, err = t.o.Commit(change)
	}
	if err != nil {
		d.Free(r)
	}
	return none, r, err
}

// describeTool is a tool call for people. The agent's text is in quotes, or JSON in one line.
func describeTool(tool *taskapi.ToolCall) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q (%q)\n", tool.Title, tool.Kind)
	if tool.Server != "" {
		fmt.Fprintf(&b, "MCP server: %q\n", tool.Server)
	}
	if tool.InWorkspace {
		b.WriteString("all that it says it touches is in the workspace\n")
	}
	if len(tool.Input) > 0 {
		fmt.Fprintf(&b, "arguments: %s\n", tool.Input)
	}
	return b.String()
}

// waiting returns a request, and ends it first if its time is over. The task is locked.
func (t *Tasks) waiting(ctx context.Context, request string) (*approval.Request, error) {
	d := t.o.Approvals()
	r, err := d.Get(ctx, request)
	if err == nil && r.State == api.ApprovalPending && r.OverAt(t.o.Now()) {
		err = d.Expire(ctx, r)
	}
	return r, err
}

// take answers a question by a person's word, which is used up by that. The caller is still there,
// and an answer that was not written gives the decision back.
func (t *Tasks) take(ctx context.Context, said *approval.Word, change *store.Change) (result taskapi.Permission, err error) {
	if ctx.Err() != nil || !api.There(ctx) {
		return result, api.ErrGone
	}
	record := change.Records[0]
	result = taskapi.Permission{Decision: "deny", Reason: said.Note, ApprovalID: said.Approval()}
	record.ApprovalID, record.PolicyResult, record.PolicyReason = result.ApprovalID, audit.ResultDeny, "a person has denied the call"
	if said.Allow {
		result.Decision, record.PolicyResult, record.PolicyReason = "allow", audit.ResultAllow, "a person has approved the call"
	}
	said.Take(change)
	if _, err = t.o.Commit(change); err != nil {
		return taskapi.Permission{}, err
	}
	result.Watch(func(written bool) {
		if written {
			return // it may have been read, and the tool used
		}
		if err := t.o.Approvals().Back(said, record); err != nil {
			t.o.Log.Error("cannot give back a person's word that nobody got", zap.String("approval", result.ApprovalID), zap.Error(err))
		}
	})
	return result, nil
}

// await waits until a request waits no more, and returns its state. Expiry denies.
func (t *Tasks) await(ctx context.Context, r *approval.Request) (state string, err error) {
	timer := time.NewTimer(time.UnixMilli(r.ExpiresAt).Sub(t.o.Now()))
	defer timer.Stop()
	for {
		decided, leave := t.moved.watch(r.ApprovalID)
		now, err := t.o.Approvals().Get(ctx, r.ApprovalID)
		if err != nil || now.State != api.ApprovalPending {
			leave()
			if err != nil {
				return "", err
			}
			return now.State, nil
		}
		select {
		case <-decided:
			leave()
		case <-timer.C:
			leave()
			return api.ApprovalExpired, nil
		case <-ctx.Done():
			leave()
			return "", ctx.Err()
		case <-t.closing.Done():
			leave()
			return "", api.Errorf(api.ConnectionClosed, "the daemon is ending, and the request waits on: ask again")
		}
	}
}
