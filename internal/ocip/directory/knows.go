package directory

import "slices"

// MayKnow reports whether an app may learn that an agent exists. With several tenants, the app must
// speak for an agent of that tenant, or the configuration must grant it that tenant or the agent.
func MayKnow(d *Directory, app string, a *Agent) bool {
	if !d.SeveralTenants() || slices.ContainsFunc(d.byApp[app], func(own *Agent) bool { return own.TenantID == a.TenantID }) {
		return true
	}
	grant := d.grants[app]
	return slices.Contains(grant.Tenants, a.TenantID) || lists(grant.Intercepts, a.ID) || lists(grant.Observes, a.ID)
}
