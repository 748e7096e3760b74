package api

import "time"

// ContactListParams selects a page of the sessions that there were (operator,
// contact.list).
type ContactListParams struct {
	Agent   string `json:"agent,omitzero" is:"max=256" doc:"Sessions of this agent."`
	Channel string `json:"channel,omitzero" is:"max=256" doc:"Sessions of this channel."`
	Limit   *int   `json:"limit,omitzero" is:"range=1..1000" doc:"At most this many; 100 by default."`
	Offset  int    `json:"offset,omitzero" is:"range=0.." doc:"Skip this many."`
}

// PageSize is how many are wanted.
func (p *ContactListParams) PageSize() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// Contact is somebody that an agent has a session with.
type Contact struct {
	SessionKey   string    `json:"sessionKey"`
	Agent        string    `json:"agent"`
	LastActiveAt time.Time `json:"lastActiveAt"`
	MessageCount int64     `json:"messageCount"`
	// Kind is the contact's relation to the agent: agent, owner, person or unknown.
	Kind string `json:"kind"`
	// InstanceID, UserID and TenantID are as the configuration has them, or the
	// daemon learned them.
	InstanceID string `json:"instanceId,omitzero"`
	UserID     string `json:"userId,omitzero"`
	TenantID   string `json:"tenantId,omitzero"`
	// Group is set if many people read the session, as far as the daemon knows.
	Group bool `json:"group,omitzero" doc:"Several people read the session."`
	// Learned is set if messages have shown who that is, and not the configuration: contact.forget
	// undoes it.
	Learned bool `json:"learned,omitzero" doc:"Known from an envelope and not from the configuration."`
	// SeenBy are the tenants whose agents got such an envelope, if there are several tenants; a
	// star is all of them.
	SeenBy []string `json:"seenBy,omitempty" doc:"With several tenants, those whose agents got the envelope; * is unknown, from an older version of ocipd."`
}

// ContactListResult is a page of sessions, the one used last first.
type ContactListResult struct {
	Contacts []Contact `json:"contacts"`
	Total    int       `json:"total"`
	Altered  []string  `json:"altered,omitzero" doc:"Rows that something else than the daemon changed: the list leaves out what needs them."`
}

// ContactForgetParams names a session of which is forgotten what was learned
// (operator, contact.forget).
type ContactForgetParams struct {
	SessionKey string `json:"sessionKey" is:"required max=512 form=session" doc:"The session."`
	Note       string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// ContactForgetResult names the forgotten agent. Changed is false if nothing had been learned; then
// there is no record.
type ContactForgetResult struct {
	Changed    bool   `json:"changed"`
	InstanceID string `json:"instanceId,omitzero"`
	TenantID   string `json:"tenantId,omitzero"`
	AuditSeq   uint64 `json:"auditSeq,omitzero"`
}
