package taskapi

import (
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// GrantParams gives an actor a token (task.grant).
type GrantParams struct {
	TaskID    string   `json:"task_id,omitzero" is:"id=tsk_" doc:"The task. Only a person can leave it out, for an orchestrator or an agent."`
	Actor     string   `json:"actor,omitzero" is:"max=256" doc:"The actor's name. Required with task_id, and without agent."`
	Agent     string   `json:"agent,omitzero" is:"max=256" doc:"The agent that the token sends and reads for. Only a person can give it."`
	AttemptID string   `json:"attempt_id,omitzero" is:"id=att_" doc:"The executor's attempt."`
	Tools     []string `json:"tools,omitzero" is:"names" doc:"The tools of the grant; those of the role by default."`
	ExpiresS  *int     `json:"expires_s,omitzero" is:"range=1..31622400" doc:"The seconds until the grant ends."`
	Bind      string   `json:"bind,omitzero" is:"words=program|process|none" doc:"The processes that may attach after the first: the same program (default), the same process, or any."`
	Keyed
}

// Rules reports faults between members.
func (p *GrantParams) Rules() (f api.Fields) {
	switch {
	case p.Actor == "" && p.TaskID != "":
		f.Add("actor", "required with task_id")
	case p.Actor == "" && p.Agent == "":
		f.Add("actor", "required")
	}
	return f
}

// Granted is the answer of task.grant. The token is given once.
type Granted struct {
	Changed
	GrantID   string    `json:"grant_id"`
	Token     string    `json:"token,omitzero"`
	Actor     string    `json:"actor"`
	Role      task.Role `json:"role"`
	Agent     string    `json:"agent,omitzero"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Fence     int64     `json:"fence,omitzero"`
	Tools     []string  `json:"tools"`
	ExpiresAt time.Time `json:"expires_at"`
}

// RevokeGrantParams ends a grant (task.revoke_grant).
type RevokeGrantParams struct {
	TaskID  string `json:"task_id,omitzero" is:"id=tsk_" doc:"The grant's task."`
	GrantID string `json:"grant_id" is:"required id=grt_" doc:"The grant's id."`
	Keyed
}

// GrantsParams asks for the grants by which somebody may act now (task.grants).
type GrantsParams struct {
	TaskID string `json:"task_id,omitzero" is:"id=tsk_" doc:"The grants that are good for this task: its own, and those of its tenant for any task."`
	Actor  string `json:"actor,omitzero" is:"max=256" doc:"The grants of this actor or agent."`
	Limit  *int   `json:"limit,omitzero" is:"range=1..1000" doc:"The most grants in the answer."`
	After  string `json:"after,omitzero" is:"id=grt_" doc:"The answer's next: continues a list."`
}

// GrantLine is one grant of a list, without its token.
type GrantLine struct {
	GrantID   string    `json:"grant_id"`
	Actor     string    `json:"actor,omitzero"`
	Role      task.Role `json:"role,omitzero"`
	Agent     string    `json:"agent,omitzero"`
	TenantID  string    `json:"tenant_id,omitzero"`
	TaskID    string    `json:"task_id,omitzero"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Tools     []string  `json:"tools"`
	// Bind says whom the token is bound to, and Holder who that is: nobody yet if it is absent.
	Bind   string       `json:"bind,omitzero"`
	Holder *task.Holder `json:"holder,omitempty"`
	// Under is the grant with which this one ends, since its giver acted by that one.
	Under     string    `json:"under,omitzero"`
	IssuedBy  string    `json:"issued_by"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// LastUsedAt is absent if neither this run of the daemon nor the newest records know of a use.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

// Grants is the answer of task.grants, oldest first.
type Grants struct {
	Grants []GrantLine `json:"grants"`
	Next   string      `json:"next,omitzero"`
}

// AttachParams makes a connection an actor's by a grant's token (task.attach).
type AttachParams struct {
	Token string `json:"token" is:"required max=256" doc:"The grant's token."`
}

// Attached is the grant of the connection.
type Attached struct {
	GrantID   string    `json:"grant_id"`
	Actor     string    `json:"actor"`
	Role      task.Role `json:"role"`
	Agent     string    `json:"agent,omitzero"`
	TenantID  string    `json:"tenant_id,omitzero"`
	TaskID    string    `json:"task_id,omitzero"`
	AttemptID string    `json:"attempt_id,omitzero"`
	Fence     int64     `json:"fence,omitzero"`
	Tools     []string  `json:"tools"`
	ExpiresAt time.Time `json:"expires_at"`
}
