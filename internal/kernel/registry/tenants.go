package registry

import (
	"slices"

	"github.com/openclawos/ocipd/internal/base/mutant"
)

// tenants are the tenants of an app; every stands for all.
type tenants struct {
	every bool
	names []string
}

// tenantsOf returns the tenants of an app: those of its agents, and those of its grants. If the
// configuration declares no access, every app belongs to every tenant.
func (t *Terms) tenantsOf(app string) tenants {
	if !t.Directory.Declared() {
		return tenants{every: true}
	}
	var of tenants
	for _, agent := range t.Directory.SpokenBy(app) {
		of.names = append(of.names, agent.TenantID)
	}
	grant, granted := t.Grants[app]
	if !granted && !t.HookApps[app].Required {
		return of
	}
	if len(grant.Channels) > 0 || len(grant.Tenants) > 0 {
		of.names = append(of.names, t.Directory.Tenants(app)...)
	}
	for i := range t.Agents {
		if agent := &t.Agents[i]; t.Directory.Intercepts(app, agent) || t.Directory.Observes(app, agent, "") {
			of.names = append(of.names, agent.TenantID)
		}
	}
	return of
}

// share reports whether two apps have a tenant in common.
func (t tenants) share(other tenants) bool {
	if t.every || other.every || mutant.Off("app-tenant") {
		return true
	}
	return slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(other.names, name) })
}
