// Package hooks handles an agent's acts besides sending and receiving, which its runtime reports.
// It asks interceptors, the policy and a person whether a tool may run, records the reports, and
// tells the agent's observers.
package hooks

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/approval/pause"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Options holds the dependencies of Hooks.
type Options struct {
	// InForce are the rules for calls that begin now.
	InForce func() *Rules
	Apps    *registry.Registry
	State   *exchangestate.State
	Store   *store.Store
	Pauses  *pause.Pauses
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	Keys   gate.Keys
	// Tell enters the notice of an outcome to the app that asked into a change.
	Tell  func(*approval.Request, *store.Change, api.ApprovalOutcome) error
	Now   func() time.Time
	NewID func() string
	Log   *zap.Logger
}

// Hooks handles hooks that runtimes raise. Its methods are safe for concurrent use.
type Hooks struct {
	o Options
	// locks has one lock per agent. People's decisions about its tool calls are read and used up
	// under it.
	locks keylock.Locks
}

// New returns a Hooks.
func New(o Options) *Hooks { return &Hooks{o: o} }

// Rules is the part of a configuration that concerns hooks.
type Rules struct {
	Directory *directory.Directory
	Terms     *registry.Terms
	// Content enters the text of a hook into a record.
	Content func(*audit.Record, gate.Text) error
	// Look detects data in a tool call that may not be shared, and names the rule that finds a
	// secret above a level.
	Look func(api.Object, ocip.Level) (found []ocip.Detection, secret string)
	// Policy, if set, judges tool calls.
	Policy ocip.ToolPolicy
	// Decider takes people's decisions. At most MaxHeld tool calls of an agent wait, each for
	// HoldFor, and Approvers people must approve one if the policy names no number.
	Decider            *approval.Decider
	MaxHeld, Approvers int
	HoldFor            time.Duration
}

// ErrReplaced means that other rules came into force while a call waited for interceptors. Nothing
// was decided, and the call has to begin again under the rules in force.
var ErrReplaced = errors.New("the rules were replaced")

// Raised is a hook that the app of an agent raises.
type Raised struct {
	// By is nil if the agent has no app; AppID then stands for the agent.
	By    *registry.App
	AppID string
	Agent *directory.Agent
	Hook  api.Hook
	// Context is the app's account of the hook. Only its session is used.
	Context api.HookContext
	Data    api.Object
	// Still, if set, refuses a process that may not ask for the agent any more. It may take the lock
	// of a task, which comes before [pause.Pauses.Deciding], and takes none if it is deciding.
	Still func(deciding bool) error
}

// Take handles a hook that is about no message. Without permission the agent must not act, and
// observers are not told.
func (h *Hooks) Take(ctx context.Context, p *Raised, rules *Rules) (api.EmitAnswer, error) {
	about, err := h.about(ctx, p, rules)
	if err != nil {
		return api.EmitAnswer{}, err
	}
	r := &audit.Record{
		ID: h.o.NewID(), ActionType: audit.ActionSecurity, Event: string(p.Hook), AppID: p.AppID,
		TenantID: p.Agent.TenantID, UserID: p.Agent.UserID, AgentID: p.Agent.InstanceID, SessionKey: about.SessionKey,
		PolicyApplied: "access", PolicyResult: string(ocip.Allow), PolicyReason: "told to those who may observe the agent",
	}
	about.AuditID = r.ID
	if v := h.paused(p.Agent, about.ChannelID); v != nil {
		return h.refuse(r, v)
	}
	denied, err := h.weigh(ctx, p, about, rules, r)
	if err != nil {
		return api.EmitAnswer{}, err
	}
	// While interceptors were asked, somebody may have paused the agent, or replaced the rules.
	defer h.o.Pauses.Deciding()()
	if err := stands(h, p, rules); err != nil {
		return api.EmitAnswer{}, err
	}
	if v := h.paused(p.Agent, about.ChannelID); v != nil {
		denied = v
	}
	return h.conclude(ctx, p, about, rules, r, denied)
}

// conclude records a decision, and returns the data once the record is durable. The caller keeps
// pauses from beginning.
func (h *Hooks) conclude(ctx context.Context, p *Raised, about api.HookContext, rules *Rules, r *audit.Record, denied *ocip.Verdict) (result api.EmitAnswer, err error) {
	var asked *call
	if denied != nil && denied.Result == ocip.RequireApproval {
		if asked, err = callOf(p.Data); err != nil {
			return api.EmitAnswer{}, err
		}
		// The answer contains exactly the call that the person is asked about.
		p.Data = asked.whole
		r.PolicyResult = string(ocip.RequireApproval)
	}
	encoded := p.Data.Append(nil)
	if err := rules.Content(r, gate.NewText(string(encoded))); err != nil {
		return api.EmitAnswer{}, err
	}
	letter, err := h.o.Keys.CloseText(r.TenantID, encoded)
	if err != nil {
		return api.EmitAnswer{}, err
	}
	if !api.There(ctx) {
		return api.EmitAnswer{}, api.ErrGone
	}
	var receipt store.Receipt
	result.Allowed = true
	switch {
	case asked != nil:
		if result, receipt, err = h.askPerson(ctx, p, asked, rules, r, denied); !result.Allowed {
			return result, err
		}
	case denied != nil:
		return h.refuse(r, denied)
	case h.unrecorded(p, r):
		result.Data = gate.Own(encoded)
		return result, nil
	default:
		receipt, err = h.o.Commit(&store.Change{Records: []*audit.Record{r}})
	}
	if err == nil {
		result.Data, err = gate.Open(receipt, letter, nil)
	}
	if err != nil {
		return api.EmitAnswer{}, err
	}
	h.o.Apps.Observe(rules.Terms, p.Hook, result.Data, about, "", p.By)
	return result, nil
}

// stands refuses a hook that is decided under rules which are not in force any more, or for a process
// that may not ask any more.
func stands(h *Hooks, p *Raised, rules *Rules) error {
	if h.o.InForce() != rules {
		return ErrReplaced
	}
	if p.Still == nil {
		return nil
	}
	return p.Still(true)
}

// weigh asks interceptors and the policy about a tool call. It returns the denial, if there is one.
func (h *Hooks) weigh(ctx context.Context, p *Raised, about api.HookContext, rules *Rules, r *audit.Record) (denied *ocip.Verdict, err error) {
	if p.Hook != api.ToolExecuting {
		return nil, nil
	}
	if denied, err = h.askAboutTool(ctx, p, about, rules, r); err == nil && denied == nil && p.Agent.Tools != directory.ToolsOff {
		denied, err = h.judge(ctx, p, rules, r)
	}
	if err == nil && p.Still != nil {
		// Meanwhile somebody may have revoked the grant.
		err = p.Still(false)
	}
	return denied, err
}

// unrecorded reports whether an allowed hook needs no record: the agent's tool calls are not
// recorded, nobody has changed this one, and no app observes it.
func (h *Hooks) unrecorded(p *Raised, r *audit.Record) bool {
	return p.Agent.Tools == directory.ToolsOff && (p.Hook == api.ToolExecuting || p.Hook == api.ToolCompleted) && r.Details["changedBy"] == nil && len(h.o.Apps.Listeners(p.Hook)) == 0
}

// paused returns the denial of an act while the agent, or its session's channel, is paused.
func (h *Hooks) paused(agent *directory.Agent, channel string) *ocip.Verdict {
	reason, paused := h.o.Pauses.Reason(channel, agent.ID)
	if !paused {
		return nil
	}
	return &ocip.Verdict{Policy: "pause", Reason: reason, Code: ocip.Paused}
}

// about returns the context of a hook. Agent and session decide which observers are told, so the
// runtime may only name one of the agent's own sessions, and the daemon sets the rest.
func (h *Hooks) about(ctx context.Context, p *Raised, rules *Rules) (about api.HookContext, err error) {
	key := p.Context.SessionKey
	about = api.HookContext{AgentID: p.Agent.ID, Timestamp: h.o.Now().UnixMilli()}
	if key == "" {
		return about, nil
	}
	own := rules.Directory.LocalAgent(key) == p.Agent
	if !own {
		whose, err := h.o.State.Sessions.Agent(ctx, rules.Directory, key)
		if err != nil {
			return about, err
		}
		own = whose == p.Agent
	}
	if !own {
		return about, api.Invalid([]api.FieldError{{Path: "context.sessionKey", Message: "is no session of agent " + p.Agent.ID}})
	}
	about.SessionKey, about.ChannelID = key, directory.ChannelOf(key)
	return about, nil
}

// askAboutTool asks the interceptors whether an agent's tool may run, and with which arguments. The
// answer goes on record, also if it is yes.
func (h *Hooks) askAboutTool(ctx context.Context, p *Raised, about api.HookContext, rules *Rules, r *audit.Record) (denied *ocip.Verdict, err error) {
	var changedBy []string
	// The record does not exist yet, so interceptors are told no id.
	about.AuditID = ""
	denied, err = h.o.Apps.Ask(ctx, rules.Terms, &registry.Question{
		Hook: api.ToolExecuting, About: about, Asker: p.By,
		Data: func() []byte { return p.Data.Append(nil) },
		Take: func(by *registry.App, result jsontext.Value) *ocip.Verdict {
			if denied := by.Denies(result); denied != nil {
				return denied
			}
			var changed api.Object
			if err := json.Unmarshal(result, &changed); err != nil {
				return by.Deny("gave an answer that is no object")
			}
			if !changed.Equal(p.Data) {
				p.Data, changedBy = changed, append(changedBy, by.ID())
			}
			return nil
		},
	})
	tool, _ := api.Text(p.Data["toolName"])
	r.PolicyApplied, r.PolicyReason, r.Details = "interceptors", "no interceptor objected", map[string]any{"tool": ocip.Summarize(tool)}
	if len(changedBy) > 0 {
		r.Details["changedBy"] = changedBy
	}
	return denied, err
}

// refuse records the refusal of a hook.
func (h *Hooks) refuse(r *audit.Record, v *ocip.Verdict) (api.EmitAnswer, error) {
	r.PolicyApplied, r.PolicyResult, r.PolicyReason, r.Code = v.Policy, string(ocip.Deny), v.Reason, string(v.Code)
	if len(v.Details) > 0 {
		maps.Copy(r.Details, v.Details)
	}
	if err := h.record(r); err != nil {
		return api.EmitAnswer{}, err
	}
	return api.EmitAnswer{Reason: v.Reason, OCIP: map[string]any{"code": v.Code, "reason": v.Reason, "result": ocip.Deny, "auditId": r.ID}}, nil
}

func (h *Hooks) record(r *audit.Record) error {
	_, err := h.o.Commit(&store.Change{Records: []*audit.Record{r}})
	return err
}
