package ocip

// Identity says who an agent is and whom it speaks for. It always comes from
// the daemon's configuration or from a checked envelope, never from what a
// client claims about itself.
type Identity struct {
	InstanceID string `json:"instance_id"`
	UserID     string `json:"user_id"`
	OrgUnit    string `json:"org_unit"`
	TenantID   string `json:"tenant_id"`
}

// SameTenant reports whether both identities belong to one tenant. An identity
// with no tenant belongs to none, so the answer is then no.
func (i Identity) SameTenant(other Identity) bool {
	return i.TenantID != "" && i.TenantID == other.TenantID
}

// Kind says what is known about a counterparty, and so which rules hold.
type Kind string

const (
	// KindAgent is an agent in the directory, a local agent, or one whose
	// envelope was seen in the session: every rule holds.
	KindAgent Kind = "agent"
	// KindOwner is the person the agent speaks for.
	KindOwner Kind = "owner"
	// KindUnknown is anybody else.
	KindUnknown Kind = "unknown"
)

// Counterparty is the other end of an exchange.
type Counterparty struct {
	Kind Kind
	Identity
	// Accepts is the highest level the counterparty accepts.
	Accepts Level
}
