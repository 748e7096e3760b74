# Asked besides agent_exchange.rego where the two org units differ, with
#   input: as there, and {source_org_unit, target_org_unit}, which are also
#          called sourceOrgUnit and targetOrgUnit
#   data.policy: the configuration's policy.data
#
# Another tenant is never asked about: that is refused before any policy.
package ocip.cross_org

decision := {
	"allow": allow,
	"require_approval": false,
	"reason": reason,
	"constraints": {},
}

default allow := false

allow if data.policy.cross_org == true

exchange := sprintf("cross-org exchange from %s to %s", [unit(input.source_org_unit), unit(input.target_org_unit)])

reason := sprintf("%s is allowed by policy.data.cross_org", [exchange]) if allow

else := sprintf("%s needs policy.data.cross_org: true", [exchange])

unit(name) := name if name != ""

else := "no org unit"
