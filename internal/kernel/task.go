package kernel

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// TaskOf returns the tenant of a task, and its level. It returns false if there is none.
type TaskOf func(ctx context.Context, id string) (tenant, level string, ok bool, err error)

// aboutTask is the task of a message. It is empty if the message has none.
type aboutTask struct {
	api.MessageTask
	level ocip.Level
}

// enter writes the task into a record of the message.
func (t *aboutTask) enter(r *audit.Record) { r.TaskID, r.AttemptID = t.ID, t.AttemptID }

// taskRule names the rule that refuses messages for their task.
const taskRule = "task"

// find finds the task that metadata names. It refuses a task of another tenant with the same text
// as a missing one.
func (of TaskOf) find(ctx context.Context, metadata api.Object, agent *Agent) (t aboutTask, denied *ocip.Verdict, err error) {
	named, err := api.TaskOf(metadata)
	if err != nil || named.ID == "" {
		return t, nil, err
	}
	tenant, level, ok := "", "", false
	if of != nil {
		if tenant, level, ok, err = of(ctx, named.ID); err != nil {
			return t, nil, err
		}
	}
	if !ok || tenant != agent.TenantID {
		return t, &ocip.Verdict{
			Result: ocip.Deny, Code: ocip.TaskRefused, Policy: taskRule,
			Reason: fmt.Sprintf("metadata.task names %s, which is no task of tenant %s", named.ID, agent.TenantID),
		}, nil
	}
	t.MessageTask = named
	if level != "" {
		t.level, err = ocip.ParseLevel(level)
	}
	return t, nil, err
}

// bind finds the task of a message. The message must not reach anybody who is not known to
// belong to the task's tenant.
func (of TaskOf) bind(ctx context.Context, m *outgoing) (denied *ocip.Verdict, err error) {
	if m.task, denied, err = of.find(ctx, m.metadata, m.sender); err != nil || denied != nil || m.task.ID == "" {
		return denied, err
	}
	if m.to.Kind != ocip.KindOwner && !m.staysWithin(m.sender.TenantID) {
		return &ocip.Verdict{
			Result: ocip.Deny, Code: ocip.TaskRefused, Policy: taskRule,
			Reason: fmt.Sprintf("the message is about task %s and leaves for nobody outside tenant %s; nothing says that session %s reaches one of that tenant", m.task.ID, m.sender.TenantID, m.key),
		}, nil
	}
	return nil, nil
}

// staysWithin reports whether all readers of the message are known to belong to a tenant, not only
// the one that the decision is about.
func (m *outgoing) staysWithin(tenant string) bool {
	return m.to.TenantID == tenant && (!m.recipient.Group || !m.recipient.Strangers) &&
		!slices.ContainsFunc(m.recipient.Members, func(c ocip.Counterparty) bool { return c.TenantID != tenant })
}

// sameTask refuses a message if an interceptor has changed its task.
func (m *outgoing) sameTask(before api.Object) *ocip.Verdict {
	was, _ := api.TaskOf(before)
	now, err := api.TaskOf(m.metadata)
	if err == nil && was == now && (was.ID == "" || bytes.Equal(before["task"], m.metadata["task"])) {
		return nil
	}
	by := m.changedBy[len(m.changedBy)-1]
	return &ocip.Verdict{Result: ocip.Deny, Code: ocip.InterceptorBlocked, Policy: "interceptor:" + by, Reason: "interceptor " + by + " changed the task that the message is about, which no interceptor may"}
}
