package ocip

import "github.com/openclawos/ocipd/internal/base/mutant"

// Identity names an agent and its principal. It always comes from the daemon's configuration or
// from a checked envelope, never from a client's claim about itself.
type Identity struct {
	InstanceID string `json:"instance_id"`
	UserID     string `json:"user_id"`
	OrgUnit    string `json:"org_unit"`
	TenantID   string `json:"tenant_id"`
}

// SameTenant reports whether both identities belong to one tenant. Without a tenant, the answer is
// no.
func (i Identity) SameTenant(other Identity) bool {
	return i.TenantID != "" && i.TenantID == other.TenantID
}

// Kind is the daemon's knowledge about a counterparty. It selects the rules.
type Kind string

const (
	// KindAgent is an agent in the directory, a local agent, or one whose envelope was seen in the
	// session. Every rule applies.
	KindAgent Kind = "agent"
	// KindOwner is the person for whom the agent acts.
	KindOwner Kind = "owner"
	// KindPerson is a person in the directory other than the owner.
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
	// Group is set if others read along.
	Group bool
}

// Wall reports whether the tenant wall stands between an agent and a counterparty, and why. An
// agent without a tenant reaches no agent. Any other counterparty is behind the wall if its tenant
// is known and differs. The wall is the first rule for every message, in both directions. It needs
// only the directory, so it can be checked before anybody else sees a text.
func Wall(self Identity, other Counterparty) (reason string, blocked bool) {
	if mutant.Off("wall") {
		return "", false
	}
	if other.Kind != KindAgent && other.TenantID == "" || self.SameTenant(other.Identity) {
		return "", false
	}
	return wallReason(self, other.Identity), true
}
