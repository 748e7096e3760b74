package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/text"
	"go.uber.org/zap"
)

// call is a tool call: what it is judged by, and what a person approves of it. All else
// that a runtime says of a call, such as its number, is no part of it.
type call struct {
	Tool   string         `json:"toolName"`
	Server string         `json:"mcpServer,omitzero"`
	Folder string         `json:"cwd,omitzero"`
	Params jsontext.Value `json:"params"`
}

// callOf reads the call that a hook is about.
func callOf(data api.Object) (*call, error) {
	c := &call{Params: data["params"]}
	for name, to := range map[string]*string{"toolName": &c.Tool, "mcpServer": &c.Server, "cwd": &c.Folder} {
		raw, there := data[name]
		text, ok := api.Text(raw)
		if there && !ok {
			return nil, fmt.Errorf("data.%s is no text", name)
		}
		*to = text
	}
	if len(c.Params) == 0 {
		c.Params = jsontext.Value("{}")
	}
	switch {
	case c.Tool == "":
		return nil, errors.New("data.toolName names no tool")
	case c.Params.Kind() != '{':
		return nil, errors.New("data.params is no object")
	}
	return c, nil
}

// command is the line that a shell is given, "" where the tool is none.
func (c *call) command() string {
	var params struct {
		Command jsontext.Value `json:"command"`
		Cmd     jsontext.Value `json:"cmd"`
	}
	if json.Unmarshal(c.Params, &params) != nil {
		return ""
	}
	for _, raw := range []jsontext.Value{params.Command, params.Cmd} {
		if line, ok := api.Text(raw); ok && line != "" {
			return line
		}
		var words []string
		if json.Unmarshal(raw, &words) == nil && len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

// askedBy names the call of an agent. The agent is part of the name: an app may speak for
// several, and what a person says to the one is no word to the other.
func (c *call) askedBy(agent *directory.Agent) string {
	return approval.Asked(api.ApprovalOfPermission, agent.TenantID, agent.InstanceID, c.Tool, c.Server, c.Folder, string(c.Params))
}

// shown is the call for people. Whatever the agent wrote stands in quotes, as JSON or behind
// a bar.
func (c *call) shown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tool: %q\n", c.Tool)
	if c.Server != "" {
		fmt.Fprintf(&b, "MCP server: %q\n", c.Server)
	}
	if c.Folder != "" {
		fmt.Fprintf(&b, "folder: %q\n", c.Folder)
	}
	if line := c.command(); line != "" {
		b.WriteString("command:\n")
		for part := range strings.Lines(line) {
			fmt.Fprintf(&b, "  | %s\n", strings.TrimRight(part, "\n"))
		}
	}
	fmt.Fprintf(&b, "arguments: %s\n", c.Params)
	return b.String()
}

// maxSummary bounds the line of a call in lists, in bytes.
const maxSummary = 120

func (c *call) summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(c.command(), string(c.Params))), "\n")
	return text.Clip(c.Tool+": "+line, maxSummary)
}

// evaluate asks the policy about a call of an agent.
func (r *Rules) evaluate(ctx context.Context, agent *directory.Agent, c *call) (answer ocip.PolicyAnswer, name, revision string, err error) {
	return r.Policy.EvaluateTool(ctx, &ocip.ToolQuestion{
		Agent: agent.Identity, Name: c.Tool, Server: c.Server, Command: c.command(), Folder: c.Folder, Arguments: c.Params,
	})
}

// judge has the policy judge a tool call that no interceptor objected to. Its answer goes on
// record; what it is other than yes is returned where it holds.
func (h *Hooks) judge(ctx context.Context, p *Raised, rules *Rules, r *audit.Record) (*ocip.Verdict, error) {
	if rules.Policy == nil || !rules.Policy.JudgesTools() {
		return nil, nil
	}
	v := &ocip.Verdict{Result: ocip.Deny, Code: ocip.PolicyDenied, Policy: "hooks"}
	c, err := callOf(p.Data)
	if err != nil {
		v.Reason = "cannot tell what the call is: " + err.Error()
	} else {
		var answer ocip.PolicyAnswer
		answer, v.Policy, v.PolicyRevision, err = rules.evaluate(ctx, p.Agent, c)
		v.Reason = answer.Reason
		switch {
		case err != nil:
			v.Code, v.Reason = ocip.PolicyUnreachable, "the policy gave no answer"
			r.Details["cause"] = ocip.Summarize(err.Error())
		case answer.Allow && answer.RequireApproval:
			v.Result, v.Code, v.Approvers = ocip.RequireApproval, ocip.PolicyRequiresApproval, max(answer.Approvers, rules.Approvers, 1)
		case answer.Allow:
			v = &ocip.Verdict{Result: ocip.Allow, Policy: v.Policy, PolicyRevision: v.PolicyRevision, Reason: cmp.Or(answer.Reason, "the policy has no objection")}
		}
	}
	r.PolicyApplied, r.PolicyRevision, r.PolicyReason = v.Policy, v.PolicyRevision, v.Reason
	if v.Result == ocip.Allow {
		return nil, ctx.Err()
	}
	if p.Agent.Tools != directory.ToolsEnforce {
		r.Details["wouldBe"], r.Details["wouldBeCode"] = v.Result, v.Code
		return nil, ctx.Err()
	}
	return v, ctx.Err()
}

// askPerson answers a call that a person decides about: by what one has said, or by what
// waits.
func (h *Hooks) askPerson(ctx context.Context, p *Raised, rules *Rules, r *audit.Record, v *ocip.Verdict) (api.EmitResult, error) {
	c, err := callOf(p.Data)
	if err != nil {
		return api.EmitResult{}, err
	}
	defer h.locks.Lock(p.Agent.InstanceID)()
	asked := c.askedBy(p.Agent)
	said, err := rules.Decider.Said(ctx, p.AppID, asked, v.PolicyRevision)
	switch {
	case err != nil:
		return api.EmitResult{}, err
	case said != nil:
		return h.take(rules.Decider, r, said, v)
	}
	r.PolicyResult, r.Code = string(ocip.RequireApproval), string(v.Code)
	change := &store.Change{Records: []*audit.Record{r}}
	result := api.EmitResult{Held: true, Reason: v.Reason, OCIP: map[string]any{"code": v.Code, "reason": v.Reason, "result": v.Result, "auditId": r.ID}}
	if id := rules.Decider.Waiting(api.ApprovalOfPermission, p.Agent.InstanceID, func() string { return asked }); id != "" {
		waits, err := rules.Decider.Get(ctx, id)
		switch {
		case err != nil:
			return api.EmitResult{}, err
		case waits.OverAt(h.o.Now()):
			if err := rules.Decider.Expire(ctx, waits); err != nil {
				return api.EmitResult{}, err
			}
		default:
			r.ApprovalID, result.ApprovalID = id, id
			_, err = h.o.Commit(change)
			return result, err
		}
	}
	if !rules.Decider.Room(api.ApprovalOfPermission, p.Agent.InstanceID, asked, rules.MaxHeld) {
		v.DenyTooManyPending(fmt.Sprintf("%d tool calls of agent %s wait for a person already; decide about them first: ocipd approvals list --agent %s", rules.MaxHeld, p.Agent.ID, p.Agent.ID))
		return h.refuse(r, v)
	}
	own, err := json.Marshal(c)
	if err != nil {
		return api.EmitResult{}, err
	}
	now, content := h.o.Now(), c.shown()
	r.ApprovalID = h.o.NewID()
	result.ApprovalID = r.ApprovalID
	request := &approval.Request{Asked: asked, Own: own, Approval: api.Approval{
		ApprovalSummary: api.ApprovalSummary{
			ApprovalID: r.ApprovalID, Kind: api.ApprovalOfPermission, State: api.ApprovalPending, Code: string(v.Code), Reason: v.Reason,
			AgentID: p.Agent.ID, Agent: p.Agent.InstanceID, AppID: p.AppID, UserID: p.Agent.UserID, SessionKey: r.SessionKey, Summary: c.summary(),
			AskedAt: now.UnixMilli(), ExpiresAt: now.Add(rules.HoldFor).UnixMilli(), Approvable: true, Needed: v.Approvers,
		},
		PolicyApplied: v.Policy, PolicyRevision: v.PolicyRevision, Content: content, ContentBytes: len(content),
	}}
	if err := rules.Decider.Add(request, &permission{h: h, rules: rules, r: request, call: *c}, change); err != nil {
		return api.EmitResult{}, err
	}
	_, err = h.o.Commit(change)
	return result, err
}

// take answers a call by a person's word, which is used up by that. The agent's lock is held.
func (h *Hooks) take(d *approval.Decider, r *audit.Record, said *approval.Word, v *ocip.Verdict) (api.EmitResult, error) {
	r.ApprovalID = said.Approval()
	change := &store.Change{Records: []*audit.Record{r}}
	said.Take(change)
	if !said.Allow {
		v.Reason = "a person has denied the call"
		if said.Note != "" {
			v.Reason += ": " + said.Note
		}
		r.PolicyResult, r.PolicyReason, r.Code = string(ocip.Deny), v.Reason, string(v.Code)
		_, err := h.o.Commit(change)
		return api.EmitResult{Reason: v.Reason, OCIP: map[string]any{"code": v.Code, "reason": v.Reason, "result": ocip.Deny, "auditId": r.ID}}, err
	}
	r.PolicyResult, r.PolicyReason = string(ocip.Allow), "a person has approved the call"
	if _, err := h.o.Commit(change); err != nil {
		return api.EmitResult{}, err
	}
	result := api.EmitResult{Allowed: true, ApprovalID: r.ApprovalID}
	result.Watch(func(written bool) {
		if written {
			return // it may have been read, and the tool run
		}
		if err := d.Back(said, r); err != nil {
			h.o.Log.Error("cannot give back an approval that nobody took", zap.String("approval", r.ApprovalID), zap.Error(err))
		}
	})
	return result, nil
}

// permission is a tool call that waits for a person.
type permission struct {
	h     *Hooks
	rules *Rules
	r     *approval.Request
	call  call
}

// Subject finds the tool call that a request is about.
func (h *Hooks) Subject(r *approval.Request, rules *Rules) (approval.Subject, error) {
	s := &permission{h: h, rules: rules, r: r}
	if len(r.Own) > 0 {
		if err := json.Unmarshal(r.Own, &s.call); err != nil {
			return nil, fmt.Errorf("cannot decode approval %s: %w", r.ApprovalID, err)
		}
	}
	return s, nil
}

// Lock takes the lock of the agent.
func (s *permission) Lock() (unlock func()) { return s.h.locks.Lock(s.r.Agent) }

// Takes takes what can be decided about something that is done or not.
func (s *permission) Takes(decision string) error {
	if decision != api.DecideApprove && decision != api.DecideDeny && decision != api.DecideRevoke {
		return api.Errorf(api.InvalidParams, "decision: a tool call is approved or denied")
	}
	return nil
}

// Preview asks the policy once more.
func (s *permission) Preview(ctx context.Context, _ time.Time) error {
	s.r.Blocked = ""
	agent := s.rules.Directory.Agent(s.r.AgentID)
	switch {
	case agent == nil || agent.InstanceID != s.r.Agent:
		s.r.Blocked = "agent " + s.r.AgentID + " is no longer configured as it was"
	case s.rules.Policy == nil || !s.rules.Policy.JudgesTools():
		s.r.Blocked = "the policy does not judge tool calls any more: the agent can ask again"
	default:
		answer, name, revision, err := s.rules.evaluate(ctx, agent, &s.call)
		s.r.PolicyApplied, s.r.PolicyRevision = name, revision
		switch {
		case err != nil:
			s.r.Blocked = "the policy gives no answer"
		case !answer.Allow:
			s.r.Blocked = answer.Reason
		default:
			s.r.Needed = max(answer.Approvers, s.rules.Approvers, 1)
		}
	}
	s.r.Approvable = s.r.Blocked == ""
	return nil
}

// Shown is the call.
func (s *permission) Shown() approval.View {
	return approval.View{Asked: []string{s.r.Asked}, Effect: s.r.Content, Approvable: "the tool may be used once", Refused: "it cannot be approved any more", Instead: "deny it"}
}

// say enters a person's word into the change of their decision.
func (s *permission) say(d *approval.Decision, allow bool) error {
	return d.Say(s.r.AppID, allow, d.Now.Add(s.rules.HoldFor))
}

// Release lets the next call that is the same run.
func (s *permission) Release(_ context.Context, d *approval.Decision) error {
	if err := s.say(d, true); err != nil {
		return err
	}
	if err := d.Conclude(api.ApprovalApproved, nil); err != nil {
		return err
	}
	_, err := s.h.o.Commit(d.Change)
	return err
}

// End has the next call that is the same refused, where a person has said so.
func (s *permission) End(_ context.Context, d *approval.Decision, state string) error {
	if state != api.ApprovalDenied {
		return nil
	}
	return s.say(d, false)
}

// Record begins a record about the call.
func (s *permission) Record() *audit.Record {
	r := &audit.Record{
		AppID: s.r.AppID, AgentID: s.r.Agent, UserID: s.r.UserID, SessionKey: s.r.SessionKey, ApprovalID: s.r.ApprovalID, Code: s.r.Code, PolicyRevision: s.r.PolicyRevision,
	}
	if agent := s.rules.Directory.Local(s.r.Agent); agent != nil {
		r.TenantID = agent.TenantID
	}
	return r
}

// Tell has the app that asked told.
func (s *permission) Tell(change *store.Change, outcome api.ApprovalOutcome) error {
	return s.h.o.Tell(s.r, change, outcome)
}
