package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// callNumber is the member for the runtime's number of a call. Each attempt has another number, so
// people do not approve it, and the answer does not contain it.
const callNumber = "toolCallId"

// OfRuntime reports whether a member of a tool call's data describes the runtime or the server. The
// agent does not choose it, and the tool does not get it.
func OfRuntime(member string) bool {
	switch member {
	case callNumber, "mcpServer", "cwd", "origin", "map", "unmapped", "session", "runtime":
		return true
	}
	return false
}

// call is a tool call as it is judged. A person approves everything that its runtime says of it,
// except its number.
type call struct {
	Tool   string         `json:"toolName"`
	Server string         `json:"mcpServer,omitzero"`
	Folder string         `json:"cwd,omitzero"`
	Params jsontext.Value `json:"params"`
	// Origin distinguishes servers of one name, and Map is the proxy's map for the server.
	Origin string `json:"origin,omitzero"`
	Map    string `json:"map,omitzero"`
	// Answers are the client's answers to the server's questions about the call.
	Answers jsontext.Value `json:"inputResponses,omitzero"`
	// Headers are arguments that are repeated in the request's header, and ID is the request's id if it
	// could say something.
	Headers jsontext.Value `json:"headers,omitzero"`
	ID      jsontext.Value `json:"requestId,omitzero"`
	// Unmapped is set if no map says what the tool does with its text.
	Unmapped bool `json:"unmapped,omitzero"`

	// found names the rules that match the arguments. Rules change, so it is set anew before each
	// question to the policy, see look.
	found []string
	// whole has all members, in canonical form. Numbers stay as they came, since programs read
	// large ones differently.
	whole api.Object
}

// callOf reads the call of a hook.
func callOf(data api.Object) (*call, error) {
	whole := make(api.Object, len(data))
	for name, raw := range data {
		if name == callNumber {
			continue
		}
		value := raw.Clone()
		if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
			return nil, fmt.Errorf("data.%s: %w", name, err)
		}
		whole[name] = value
	}
	c := &call{Params: whole["params"], Answers: whole["inputResponses"], Headers: whole["headers"], ID: whole["requestId"], Unmapped: string(whole["unmapped"]) == "true", whole: whole}
	for name, to := range map[string]*string{"toolName": &c.Tool, "mcpServer": &c.Server, "cwd": &c.Folder, "origin": &c.Origin, "map": &c.Map} {
		raw, there := whole[name]
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

// command returns the command line for a shell, "" if the tool is no shell.
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

// askedBy identifies the call of an agent. It includes the agent: an app may speak for several, and
// a person's word about one agent's call says nothing about another's.
func (c *call) askedBy(agent *directory.Agent) string {
	return approval.Asked(api.ApprovalOfPermission, agent.TenantID, agent.InstanceID, string(c.whole.Append(nil)))
}

// shown formats the call for people. The agent's own text is quoted, as JSON or behind a bar.
func (c *call) shown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tool: %q\n", c.Tool)
	if c.Server != "" {
		fmt.Fprintf(&b, "MCP server: %q\n", c.Server)
	}
	if c.Origin != "" {
		fmt.Fprintf(&b, "which is: %q\n", c.Origin)
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
	if len(c.Answers) > 0 {
		fmt.Fprintf(&b, "answers to the server's questions: %s\n", c.Answers)
	}
	if len(c.Headers) > 0 {
		fmt.Fprintf(&b, "arguments in the request's header: %s\n", c.Headers)
	}
	for _, name := range slices.Sorted(maps.Keys(c.whole)) {
		switch name {
		case "toolName", "mcpServer", "origin", "cwd", "params", "inputResponses", "headers":
		default:
			fmt.Fprintf(&b, "also said: %q: %s\n", name, c.whole[name])
		}
	}
	return b.String()
}

// maxSummary bounds the line of a call in lists, in bytes.
const maxSummary = 120

func (c *call) summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(c.command(), string(c.Params))), "\n")
	return text.Clip(c.Tool+": "+line, maxSummary)
}

// look detects data in a stored call that may not be shared, as judge did before, and keeps the
// findings for the policy. It returns the rule that finds a secret which the agent may not share.
func (c *call) look(rules *Rules, agent *directory.Agent) (secret string) {
	data := api.Object{"toolName": api.String(c.Tool), "params": c.Params}
	for name, value := range map[string]jsontext.Value{"inputResponses": c.Answers, "headers": c.Headers, "requestId": c.ID} {
		if len(value) > 0 {
			data[name] = value
		}
	}
	found, secret := rules.Look(data, agent.MaxShared)
	c.found = names(found)
	return secret
}

// secretIn returns the refusal of a call in which a rule finds a secret that the agent may not
// share.
func secretIn(rule string, agent *directory.Agent) string {
	return fmt.Sprintf("what it is called with has a secret in it (%s), which agent %s may not share", rule, agent.ID)
}

// evaluate asks the policy about a call of an agent.
func (r *Rules) evaluate(ctx context.Context, agent *directory.Agent, c *call) (answer ocip.PolicyAnswer, name, revision string, err error) {
	return r.Policy.EvaluateTool(ctx, &ocip.ToolQuestion{
		Agent: agent.Identity, Name: c.Tool, Server: c.Server, Command: c.command(), Folder: c.Folder, Arguments: c.Params, Map: c.Map, Found: c.found,
	})
}

// judge weighs a tool call that no interceptor objected to, by the findings in its arguments and by
// the policy. The answer goes on record. A verdict other than allow is returned only if the agent's
// tool rules are enforced, or if it is about a secret and those about secrets are.
func (h *Hooks) judge(ctx context.Context, p *Raised, rules *Rules, r *audit.Record) (*ocip.Verdict, error) {
	found, secret := rules.Look(p.Data, p.Agent.MaxShared)
	r.Detections = approval.Detections(&ocip.Verdict{Detections: found})
	v := &ocip.Verdict{Result: ocip.Deny, Code: ocip.PolicyDenied, Policy: "hooks"}
	c, err := callOf(p.Data)
	if err == nil && c.Map != "" {
		r.Details["map"] = ocip.Summarize(c.Map)
	}
	judged := rules.Policy != nil && rules.Policy.JudgesTools()
	switch {
	case err != nil && judged:
		v.Reason = "cannot tell what the call is: " + err.Error()
	case secret != "":
		v.Code, v.Policy, v.Reason = ocip.ClassificationViolation, "content", secretIn(secret, p.Agent)
	case !judged:
		return nil, ctx.Err()
	default:
		c.found = names(found)
		v = h.byPolicy(ctx, p, rules, r, c)
	}
	r.PolicyApplied, r.PolicyRevision, r.PolicyReason = v.Policy, v.PolicyRevision, v.Reason
	if v.Result == ocip.Allow {
		return nil, ctx.Err()
	}
	if p.Agent.Tools == directory.ToolsRecord || p.Agent.Tools == directory.ToolsSecrets && secret == "" {
		r.Details["wouldBe"], r.Details["wouldBeCode"] = v.Result, v.Code
		return nil, ctx.Err()
	}
	return v, ctx.Err()
}

// names returns the rules that matched, each once, in an order that does not depend on the call's.
func names(found []ocip.Detection) (list []string) {
	for _, d := range found {
		if !slices.Contains(list, d.Rule) {
			list = append(list, d.Rule)
		}
	}
	slices.Sort(list)
	return list
}

const unmapped = "no map says what the tool does with the text that it is given"

// byPolicy has the policy judge a call. A tool that no map describes needs at least a person's
// approval.
func (h *Hooks) byPolicy(ctx context.Context, p *Raised, rules *Rules, r *audit.Record, c *call) *ocip.Verdict {
	answer, name, revision, err := rules.evaluate(ctx, p.Agent, c)
	v := &ocip.Verdict{Result: ocip.Deny, Code: ocip.PolicyDenied, Policy: name, PolicyRevision: revision, Reason: answer.Reason}
	switch {
	case err != nil:
		v.Code, v.Reason = ocip.PolicyUnreachable, "the policy gave no answer"
		r.Details["cause"] = ocip.Summarize(err.Error())
	case answer.Allow && (answer.RequireApproval || c.Unmapped):
		v.Result, v.Code, v.Approvers = ocip.RequireApproval, ocip.PolicyRequiresApproval, ocip.PeopleNeeded(answer.Approvers, rules.Approvers)
		if c.Unmapped {
			v.Reason = unmapped
			if answer.RequireApproval && answer.Reason != "" {
				v.Reason = answer.Reason + "; " + unmapped
			}
		}
	case answer.Allow:
		v.Result, v.Code, v.Reason = ocip.Allow, "", cmp.Or(answer.Reason, "the policy has no objection")
	}
	return v
}

// askPerson answers a call that needs a person: by a decision that was made, or by a pending
// request.
func (h *Hooks) askPerson(ctx context.Context, p *Raised, c *call, rules *Rules, r *audit.Record, v *ocip.Verdict) (result api.EmitAnswer, receipt store.Receipt, err error) {
	defer h.locks.Lock(p.Agent.InstanceID)()
	asked := c.askedBy(p.Agent)
	said, few, err := rules.Decider.Said(ctx, p.AppID, asked, v.PolicyRevision, v.Approvers)
	switch {
	case err != nil:
		return result, receipt, err
	case said != nil:
		return h.take(rules.Decider, r, said, v)
	case few != "":
		r.Details["tooFew"] = few
	}
	r.PolicyResult, r.Code = string(ocip.RequireApproval), string(v.Code)
	change := &store.Change{Records: []*audit.Record{r}}
	result = api.EmitAnswer{Held: true, Reason: v.Reason, OCIP: map[string]any{"code": v.Code, "reason": v.Reason, "result": v.Result, "auditId": r.ID}}
	if id := rules.Decider.Waiting(api.ApprovalOfPermission, p.Agent.InstanceID, func() string { return asked }); id != "" {
		waits, err := rules.Decider.Get(ctx, id)
		switch {
		case err != nil:
			return result, receipt, err
		case waits.OverAt(h.o.Now()):
			if err := rules.Decider.Expire(ctx, waits); err != nil {
				return result, receipt, err
			}
		default:
			r.ApprovalID, result.ApprovalID = id, id
			receipt, err = h.o.Commit(change)
			return result, receipt, err
		}
	}
	if !rules.Decider.Room(api.ApprovalOfPermission, p.Agent.InstanceID, asked, rules.MaxHeld) {
		v.DenyTooManyPending(fmt.Sprintf("%d tool calls of agent %s wait for a person already; decide about them first: ocipd approvals list --agent %s", rules.MaxHeld, p.Agent.ID, p.Agent.ID))
		result, err = h.refuse(r, v)
		return result, receipt, err
	}
	own, err := json.Marshal(c)
	if err != nil {
		return result, receipt, err
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
		return result, receipt, err
	}
	receipt, err = h.o.Commit(change)
	return result, receipt, err
}

// take answers a call by a person's decision, and uses it up. The caller holds the agent's lock.
func (h *Hooks) take(d *approval.Decider, r *audit.Record, said *approval.Word, v *ocip.Verdict) (result api.EmitAnswer, receipt store.Receipt, err error) {
	r.ApprovalID = said.Approval()
	change := &store.Change{Records: []*audit.Record{r}}
	said.Take(change)
	if !said.Allow {
		v.Reason = "a person has denied the call"
		if said.Note != "" {
			v.Reason += ": " + said.Note
		}
		r.PolicyResult, r.PolicyReason, r.Code = string(ocip.Deny), v.Reason, string(v.Code)
		receipt, err = h.o.Commit(change)
		return api.EmitAnswer{Reason: v.Reason, OCIP: map[string]any{"code": v.Code, "reason": v.Reason, "result": ocip.Deny, "auditId": r.ID}}, receipt, err
	}
	r.PolicyResult, r.PolicyReason = string(ocip.Allow), "a person has approved the call"
	if receipt, err = h.o.Commit(change); err != nil {
		return result, receipt, err
	}
	result = api.EmitAnswer{Allowed: true, ApprovalID: r.ApprovalID}
	result.Watch(func(written bool) {
		if written {
			return // the caller may have read it, and run the tool
		}
		if err := d.Back(said, r); err != nil {
			h.o.Log.Error("cannot give back an approval that nobody took", zap.String("approval", r.ApprovalID), zap.Error(err))
		}
	})
	return result, receipt, nil
}

// permission is a tool call that waits for a person.
type permission struct {
	h     *Hooks
	rules *Rules
	r     *approval.Request
	call  call
}

// Subject returns the tool call of a request.
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

// Takes accepts approval, denial and revocation.
func (s *permission) Takes(decision string) error {
	if decision != api.DecideApprove && decision != api.DecideDeny && decision != api.DecideRevoke {
		return api.Errorf(api.InvalidParams, "decision: a tool call is approved or denied")
	}
	return nil
}

// Preview asks the policy again about the call, with the same kind of findings as before. The
// policy's current number of people counts, even if it is lower than before.
func (s *permission) Preview(ctx context.Context, _ time.Time) error {
	s.r.Blocked = ""
	agent := s.rules.Directory.Agent(s.r.AgentID)
	switch {
	case agent == nil || agent.InstanceID != s.r.Agent:
		s.r.Blocked = "agent " + s.r.AgentID + " is no longer configured as it was"
	case s.rules.Policy == nil || !s.rules.Policy.JudgesTools():
		s.r.Blocked = "the policy does not judge tool calls any more: the agent can ask again"
	default:
		if secret := s.call.look(s.rules, agent); secret != "" {
			s.r.Blocked = secretIn(secret, agent)
			break
		}
		answer, name, revision, err := s.rules.evaluate(ctx, agent, &s.call)
		s.r.PolicyApplied, s.r.PolicyRevision = name, revision
		switch {
		case err != nil:
			s.r.Blocked = "the policy gives no answer"
		case !answer.Allow:
			s.r.Blocked = answer.Reason
		default:
			s.r.Needed = ocip.PeopleNeeded(answer.Approvers, s.rules.Approvers)
		}
	}
	s.r.Approvable = s.r.Blocked == ""
	return nil
}

// Shown returns the call.
func (s *permission) Shown() approval.View {
	return approval.View{Asked: []string{s.r.Asked}, Effect: s.r.Content, Approvable: "the tool may be used once", Refused: "it cannot be approved any more", Instead: "deny it"}
}

// say makes a person's decision the answer to the next identical call.
func (s *permission) say(d *approval.Decision) { d.Say(s.r.AppID, d.Now.Add(s.rules.HoldFor)) }

// Release allows the next identical call.
func (s *permission) Release(_ context.Context, d *approval.Decision) error {
	s.say(d)
	if err := d.Conclude(api.ApprovalApproved, nil); err != nil {
		return err
	}
	_, err := s.h.o.Commit(d.Change)
	return err
}

// End refuses the next identical call, if a person denied this one.
func (s *permission) End(_ context.Context, d *approval.Decision, state string) error {
	if state == api.ApprovalDenied {
		s.say(d)
	}
	return nil
}

// TakeBack revokes the decision about the call. Calls use decisions only under the agent's lock.
func (s *permission) TakeBack(_ string, revoke func() error) error { return revoke() }

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

// Tell puts the outcome into a change for the app that asked.
func (s *permission) Tell(change *store.Change, outcome api.ApprovalOutcome) error {
	return s.h.o.Tell(s.r, change, outcome)
}
