package ocip

import "github.com/openclawos/ocipd/internal/base/mutant"

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
	// KindPerson is a person whom the directory declares and who is not the owner.
	KindPerson Kind = "person"
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

// Wall reports whether the tenant wall stands between an agent and a
// counterparty, and why. An agent of no tenant reaches no agent; anybody else is
// behind the wall where a tenant is known and it is another one. It is the first
// rule of every message, in both directions, and needs nothing but who is who, so
// that it can be asked before anybody else sees a text.
func Wall(self Identity, other Counterparty) (reason string, blocked bool) {
	if mutant.Off("wall") {
		return "", false
	}
	if other.Kind != KindAgent && other.TenantID == "" || self.SameTenant(other.Identity) {
		return "", false
	}
	return wallReason(self, other.Identity), true
}
