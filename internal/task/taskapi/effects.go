package taskapi

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/task"
)

// PlanEffectParams plans an effect (task.plan_effect).
type PlanEffectParams struct {
	Write
	task.Planned
}

// Rules reports faults between members.
func (p *PlanEffectParams) Rules() (f api.Fields) {
	planned(&f, "", &p.Planned, false)
	return f
}

// planned checks rules between the members of a planned effect at a path. Bare allows a key
// without an action.
func planned(f *api.Fields, path string, p *task.Planned, bare bool) {
	if none := p.Command == nil && len(p.Params) == 0; none && !bare || p.Command != nil && len(p.Params) > 0 {
		f.Add(path+"command", "want either command or params")
	}
	action(f, path+"command.", p.Command)
	action(f, path+"compensation.", p.Compensation)
}

// daemonsOwn is the prefix of variables that only the daemon and the runner set.
const daemonsOwn = "OCIPD_"

// action checks rules between the members of a command, nil for none.
func action(f *api.Fields, path string, c *task.Action) {
	if c == nil {
		return
	}
	size := 0
	for i, a := range c.Argv {
		if size += len(a) + 1; strings.ContainsRune(a, 0) {
			f.Add(at(path+"argv", i), "has a zero byte")
		}
	}
	if len(c.Argv) > 0 && c.Argv[0] == "" {
		f.Add(path+"argv", "required: the program and its arguments")
	}
	members.Keep(path+"argv", size, task.MaxArgvBytes, "bytes", f)
	for name, value := range c.Env {
		if variable(f, path+"env", name); name == "" || strings.ContainsRune(value, 0) {
			f.Add(path+"env", "%.64q is no variable", name)
		}
	}
	for i, name := range c.EnvFrom {
		variable(f, at(path+"env_from", i), name)
	}
}

// variable checks the name of a variable.
func variable(f *api.Fields, path, name string) {
	if strings.ContainsAny(name, "=\x00") {
		f.Add(path, "%.64q is no variable", name)
	}
	if strings.HasPrefix(name, daemonsOwn) {
		f.Add(path, "%.64q: only the daemon sets variables %s…", name, daemonsOwn)
	}
}

// at is the path of an item of a list.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// EffectPlanned is the answer of task.plan_effect.
type EffectPlanned struct {
	Changed
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}

// RequestApprovalParams asks a person about an effect (task.request_approval). For a planned
// effect, key, kind and action suffice.
type RequestApprovalParams struct {
	Write
	AttemptID string `json:"attempt_id,omitzero" is:"id=att_" doc:"The attempt's id."`
	task.Planned
	RequestedBy string `json:"requested_by" is:"max=256" doc:"The caller's name."`
	Undo        bool   `json:"undo,omitzero" doc:"Asks whether the effect of the key, which was run, may be undone: for an effect whose approval does not allow that any more."`
	Status      string `json:"status,omitzero" is:"max=256" doc:"Ignored. The published protocol has it."`
}

// Rules reports faults between members.
func (p *RequestApprovalParams) Rules() (f api.Fields) {
	planned(&f, "", &p.Planned, true)
	if p.Undo && (p.Command != nil || len(p.Params) > 0 || p.Compensation != nil) {
		f.Add("undo", "leave out command, params and compensation: the approval of the effect determines its undoing")
	}
	if p.RequestedAction == "" {
		f.Add("requested_action", "required")
	}
	return f
}

// ApprovalRequested is the answer of task.request_approval.
type ApprovalRequested struct {
	Changed
	ApprovalID    string    `json:"approval_id"`
	EffectID      string    `json:"effect_id"`
	Status        string    `json:"status"`
	RequestDigest string    `json:"request_digest"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// ResolveApprovalParams decides about an approval (task.resolve_approval).
type ResolveApprovalParams struct {
	Write
	ApprovalID string `json:"approval_id" is:"required id=apr_" doc:"The approval's id."`
	Resolution string `json:"resolution" is:"required words=approved|rejected|request_changes" doc:"The decision."`
	ResolvedBy string `json:"resolved_by" is:"max=256" doc:"The caller's name."`
	Note       string `json:"note,omitzero" is:"max=1024" doc:"The reason."`
	Digest     string `json:"digest,omitzero" is:"max=256" doc:"The digest of the request that the person saw, from approval.get. Required to approve."`
	Signature  string `json:"signature,omitzero" is:"max=16384" doc:"A person's armored SSH signature."`
}

// Rules reports faults between members.
func (p *ResolveApprovalParams) Rules() (f api.Fields) {
	if p.Resolution == task.ApprovalApproved && p.Digest == "" {
		f.Add("digest", "required: the digest of the request that you saw, from approval.get")
	}
	return f
}

// ApprovalResolved is the answer of task.resolve_approval.
type ApprovalResolved struct {
	Changed
	Status string `json:"status"`
	Needed int    `json:"needed"`
	Given  int    `json:"given"`
}

// RunEffectParams starts an effect once (task.run_effect). The call waits up to WaitS for the
// end and, if the caller is a lobster, for the decision and the phase.
type RunEffectParams struct {
	Ref
	EffectID       string `json:"effect_id,omitzero" is:"id=eff_" doc:"The effect's id."`
	IdempotencyKey string `json:"idempotency_key,omitzero" is:"max=256" doc:"The effect's key, in place of effect_id."`
	RequestDigest  string `json:"request_digest" is:"required form=digest" doc:"The digest from the answer of task.request_approval."`
	Compensation   bool   `json:"compensation,omitzero" doc:"Undoes the effect, once, by the compensation that was approved with it."`
	WaitS          int    `json:"wait_s,omitzero" is:"range=0..20" doc:"Seconds to wait for the end; for a lobster also for the decision and the orchestrator's move."`
}

// Rules reports faults between members.
func (p *RunEffectParams) Rules() (f api.Fields) {
	if (p.EffectID == "") == (p.IdempotencyKey == "") {
		f.Add("effect_id", "want either effect_id or idempotency_key")
	}
	return f
}

// EffectRun is the answer of task.run_effect.
type EffectRun struct {
	Changed
	EffectID string         `json:"effect_id"`
	State    string         `json:"state"`
	Run      int            `json:"run"`
	Receipt  jsontext.Value `json:"receipt,omitzero"`
	// RunToken authorizes the report of an external effect. It is given once.
	RunToken string `json:"run_token,omitzero"`
}

// FinishEffectParams reports the end of an external effect (task.finish_effect).
type FinishEffectParams struct {
	Write
	EffectID string         `json:"effect_id" is:"required id=eff_" doc:"The effect's id."`
	Run      int            `json:"run" is:"required range=1.." doc:"The run's number."`
	RunToken string         `json:"run_token" is:"required max=256" doc:"The run's token from task.run_effect."`
	Outcome  string         `json:"outcome" is:"required words=done|failed" doc:"The outcome."`
	Receipt  jsontext.Value `json:"receipt,omitzero" is:"exact keeps=16384" doc:"Evidence of the outcome."`
}

// SettleEffectParams is a person's report of a run with an unknown outcome (task.settle_effect).
type SettleEffectParams struct {
	Write
	EffectID string `json:"effect_id" is:"required id=eff_" doc:"The effect's id."`
	Run      int    `json:"run,omitzero" is:"range=0.." doc:"The run's number; by default the run with an unknown outcome."`
	Outcome  string `json:"outcome" is:"required words=done|failed" doc:"The outcome."`
	Note     string `json:"note" is:"required max=1024" doc:"The reason, for the record."`
}

// KillEffectParams ends a running command (task.kill_effect).
type KillEffectParams struct {
	Write
	EffectID string `json:"effect_id" is:"required id=eff_" doc:"The effect's id."`
	Run      int    `json:"run,omitzero" is:"range=0.." doc:"The run's number; by default the run in progress."`
	Reason   string `json:"reason" is:"required max=4096" doc:"The reason, for the record."`
}

// CancelEffectParams gives up an effect (task.cancel_effect).
type CancelEffectParams struct {
	Write
	EffectID string `json:"effect_id" is:"required id=eff_" doc:"The effect's id."`
}

// EffectState is the answer of a call that changes an effect.
type EffectState struct {
	Changed
	EffectID string `json:"effect_id"`
	State    string `json:"state"`
}
