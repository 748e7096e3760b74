package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
)

// Status is what an operator sees of the running daemon (kernel.status).
type Status struct {
	Version         string         `json:"version"`
	ProtocolVersion string         `json:"protocolVersion"`
	PID             int            `json:"pid"`
	StartedAt       time.Time      `json:"startedAt"`
	Socket          string         `json:"socket"`
	OperatorSocket  string         `json:"operatorSocket"`
	ConfigFile      string         `json:"configFile"`
	Database        string         `json:"database"`
	Mirror          string         `json:"mirror"`
	Connections     int            `json:"connections"`
	Apps            []AppStatus    `json:"apps"`
	Agents          []AgentStatus  `json:"agents"`
	Queues          []QueueStatus  `json:"queues"`
	Exchanges       map[string]int `json:"exchanges"`
	// Held is how many messages wait for a person.
	Held   int          `json:"held"`
	Policy PolicyStatus `json:"policy"`
	Audit  AuditStatus  `json:"audit"`
}

// AppStatus is one registered app.
type AppStatus struct {
	ID           string         `json:"id"`
	Version      string         `json:"version"`
	Type         string         `json:"type"`
	Health       string         `json:"health"`
	Ready        bool           `json:"ready"`
	PID          int32          `json:"pid"`
	UID          uint32         `json:"uid"`
	LastSeenAt   time.Time      `json:"lastSeenAt"`
	Capabilities []string       `json:"capabilities"`
	Hooks        []string       `json:"hooks"`
	Status       jsontext.Value `json:"status,omitzero"`
}

// AgentStatus is one configured agent.
type AgentStatus struct {
	ID string `json:"id"`
	// InstanceID is what filters and records call the agent.
	InstanceID string `json:"instanceId"`
	App        string `json:"app"`
	Connected  bool   `json:"connected"`
}

// QueueStatus is how much waits for one receiver.
type QueueStatus struct {
	Name    string `json:"name"`
	Waiting int    `json:"waiting"`
}

// PolicyStatus is the policy in force.
type PolicyStatus struct {
	Source   string `json:"source"`
	Revision string `json:"revision"`
	// RefusedAt is when a policy that should have replaced it was refused, and
	// Refusal why. Both are absent until that happens, and again from the next
	// policy on that is taken.
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	Refusal   string    `json:"refusal,omitzero"`
}

// PolicyReloadResult is the policy in force after policy.reload (operator).
type PolicyReloadResult struct {
	Revision string `json:"revision"`
	Digest   string `json:"digest"`
	// Changed is false where what was loaded is what was in force before.
	Changed bool     `json:"changed"`
	Files   []string `json:"files"`
}

// PolicyRefusal is the details of the CONFLICT that policy.reload answers where
// the policy, or the configuration that names it, cannot be used.
type PolicyRefusal struct {
	// Revision is the policy that stays in force.
	Revision string `json:"revision"`
	// FaultCount is how many faults there are, and Faults are the first of
	// them, at most 20.
	FaultCount int           `json:"faultCount"`
	Faults     []PolicyFault `json:"faults"`
}

// PolicyFault is one thing wrong with a policy or its configuration. Line counts
// from 1; 0 is unknown, or no line's fault.
type PolicyFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// AuditStatus is the end of the audit log.
type AuditStatus struct {
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Hash     string    `json:"hash"`
	Mirrored uint64    `json:"mirrored"`
	// Fault is why nothing more is recorded or let through, empty while all is
	// well.
	Fault string `json:"fault,omitzero"`
}

// AuditQueryParams asks for records, newest first (operator, audit.query).
type AuditQueryParams struct {
	Filter audit.Filter `json:"filter,omitzero"`
	Limit  *int         `json:"limit,omitzero"`
	// Before continues a page: the nextBefore of the one before.
	Before uint64 `json:"before,omitzero"`
}

// Validate names the fields that are wrong.
func (p *AuditQueryParams) Validate() []FieldError {
	var f fields
	if p.Limit != nil {
		f.between("limit", *p.Limit, 1, MaxPage)
	}
	return f
}

// Page returns the page's size.
func (p *AuditQueryParams) Page() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// AuditQueryResult is a page of records, each exactly as it was sealed.
type AuditQueryResult struct {
	Records []jsontext.Value `json:"records"`
	// NextBefore continues the query; zero where nothing more matches.
	NextBefore uint64 `json:"nextBefore"`
}

// AuditTailParams follows the log (operator, audit.tail, streaming). Each chunk
// is one record exactly as it was sealed.
type AuditTailParams struct {
	Filter audit.Filter `json:"filter,omitzero"`
	// After resumes behind a record. Where it is absent, Last records that are
	// there already come first.
	After  *uint64 `json:"after,omitzero"`
	Last   int     `json:"last,omitzero"`
	Follow bool    `json:"follow,omitzero"`
}

// Validate names the fields that are wrong.
func (p *AuditTailParams) Validate() []FieldError {
	var f fields
	f.between("last", p.Last, 0, MaxPage)
	return f
}

// MethodDescription is one method as kernel.describe tells it.
type MethodDescription struct {
	Name   string `json:"name"`
	Access string `json:"access"`
	// Stream is true where the method answers in stream chunks.
	Stream bool `json:"stream"`
	Params any  `json:"params"`
	Result any  `json:"result"`
}

// Description is the answer of kernel.describe.
type Description struct {
	ProtocolVersion string              `json:"protocolVersion"`
	Version         string              `json:"version"`
	Methods         []MethodDescription `json:"methods"`
}
