package taskservice

import (
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// AgentTools are the tools of a grant that names an agent, by their methods.
func AgentTools() map[string]string {
	return map[string]string{
		"agent.send": "message_send", "agent.read": "messages_read", "agent.contacts": "contacts_list", "agent.exchange": "exchange_get", "agent.approval": "approval_status",
		// The methods for runtimes that deliver by themselves are no tools of the MCP server: a
		// grant has all of it or none.
		"agent.emit": "message_carry", "agent.redeem": "message_carry", "agent.confirm": "message_carry", "agent.redeemable": "message_carry", "agent.withdraw": "message_carry", "agent.watch": "message_carry",
	}
}

// granted are the tools that a grant for a role and an agent can have.
func granted(role task.Role, agent string) []string {
	tools := ToolsOf(role)
	if agent != "" {
		for _, name := range AgentTools() {
			tools = append(tools, name)
		}
		slices.Sort(tools)
		tools = slices.Compact(tools)
	}
	return tools
}

// readOnly takes from the grant of an attempt that only reads what such an attempt cannot do.
func readOnly(at *task.Task, g *task.Grant) error {
	a := at.Running()
	if a == nil || g.Role != task.Executor || !a.Research() {
		return nil
	}
	plan := tool("task.plan_effect")
	if slices.Contains(g.Tools, plan) {
		return api.Errorf(api.InvalidParams, "tools: the running attempt is of kind %s, and has no tool %s", a.Executor, plan)
	}
	g.Research = true
	return nil
}

// Agent returns the grant by which the connection speaks for an agent, if it has the tool that a
// method is.
func (s *Session) Agent(ctx context.Context, method string) (*task.Grant, error) {
	who, err := s.who(ctx, false)
	if err != nil {
		return nil, err
	}
	g := who.Grant
	if g == nil || g.Agent == "" {
		refusal := &task.Refusal{Code: task.NotPermitted, Message: fmt.Sprintf("%s is for a grant that names an agent, which an operator gives: ocipd task grant --agent", method)}
		return nil, s.t.refused(nil, &who.Actor, nil, refusal)
	}
	if name := AgentTools()[method]; len(g.Tools) > 0 && !slices.Contains(g.Tools, name) {
		return nil, s.t.refused(nil, &who.Actor, nil, &task.Refusal{Code: task.ToolDenied, Message: "this grant does not have the tool " + name})
	}
	return g, nil
}

// Peer is the process at the other end.
func (s *Session) Peer() api.Peer { return s.peer }

// grantee is the receiver of a grant: an actor, an agent that works on no task, or an actor that
// speaks for an agent too. Agents are the operator's to give.
func grantee(t *Tasks, who *task.Actor, p *taskapi.GrantParams) (*Actor, error) {
	var a *Actor
	if p.Actor != "" || p.Agent == "" {
		a = t.config.Load().actor(p.Actor)
		if a == nil || who.Role != task.Operator && a.Tenant != who.Tenant {
			return nil, api.Errorf(api.InvalidParams, "actor: tasks.actors has no %.64q", p.Actor)
		}
	}
	if p.Agent == "" {
		return a, nil
	}
	if who.Role != task.Operator {
		return nil, t.refused(nil, who, nil, &task.Refusal{Code: task.NotPermitted, Message: "a grant that names an agent is an operator's to give"})
	}
	tenant, err := t.o.Agent(p.Agent)
	switch {
	case err != nil:
		return nil, err
	case a == nil:
		return &Actor{Tenant: tenant}, nil
	case a.Tenant != tenant:
		return nil, api.Errorf(api.InvalidParams, "agent: %s is of another tenant than actor %s", p.Agent, a.Name)
	}
	return a, nil
}

// Whose returns a task's tenant and level, and whether the task exists.
func (t *Tasks) Whose(ctx context.Context, id string) (tenant, level string, ok bool, err error) {
	defer t.locks.Lock(id)()
	at, err := t.loadLocked(ctx, id)
	if err != nil {
		if api.AsError(err).Code == api.NotFound {
			err = nil
		}
		return "", "", false, err
	}
	return at.Tenant, at.Classification, true, nil
}
