package api

import "time"

// ContactListParams selects a page of the sessions that there were (operator,
// contact.list).
type ContactListParams struct {
	// Agent and Channel, where given, select the sessions of one of them, by id.
	Agent   string `json:"agent,omitzero"`
	Channel string `json:"channel,omitzero"`
	Limit   *int   `json:"limit,omitzero"`
	Offset  int    `json:"offset,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ContactListParams) Validate() []FieldError {
	var f Fields
	for path, value := range map[string]string{"agent": p.Agent, "channel": p.Channel} {
		if len(value) > MaxName {
			f.Add(path, "longer than %d bytes", MaxName)
		}
	}
	if p.Limit != nil {
		f.Between("limit", *p.Limit, 1, MaxPage)
	}
	if p.Offset < 0 {
		f.Add("offset", "below zero")
	}
	return f
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
	// Kind is who that is to the agent: agent, owner, person or unknown.
	Kind string `json:"kind"`
	// InstanceID, UserID and TenantID are as the configuration has them, or the
	// daemon learned them.
	InstanceID string `json:"instanceId,omitzero"`
	UserID     string `json:"userId,omitzero"`
	TenantID   string `json:"tenantId,omitzero"`
	// Group is set where many people read the session, as far as the daemon knows.
	Group bool `json:"group,omitzero"`
	// Learned is set where messages have shown who that is, and not the
	// configuration: contact.forget undoes it.
	Learned bool `json:"learned,omitzero"`
	// SeenBy are the tenants whose agents got such an envelope, where the agents are
	// of several; a star is all of them.
	SeenBy []string `json:"seenBy,omitempty"`
}

// ContactListResult is a page of sessions, the one used last first.
type ContactListResult struct {
	Contacts []Contact `json:"contacts"`
	Total    int       `json:"total"`
}

// ContactForgetParams names a session of which is forgotten what was learned
// (operator, contact.forget).
type ContactForgetParams struct {
	SessionKey string `json:"sessionKey"`
	// Note is the person's own, for the record.
	Note string `json:"note,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ContactForgetParams) Validate() []FieldError {
	var f Fields
	f.SessionKey("sessionKey", p.SessionKey)
	if len(p.Note) > MaxNote {
		f.Add("note", "longer than %d bytes", MaxNote)
	}
	return f
}

// ContactForgetResult says what was forgotten. Changed is false where nothing had
// been learned; then there is no record.
type ContactForgetResult struct {
	Changed    bool   `json:"changed"`
	InstanceID string `json:"instanceId,omitzero"`
	TenantID   string `json:"tenantId,omitzero"`
	AuditSeq   uint64 `json:"auditSeq,omitzero"`
}
