package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
)

// told returns the summaries of an exchange that an app sees through exchange.get and
// exchange.list, "-" for one without words. It is nil if the app sees no such exchange.
func (a *app) told(agent, exchange string) (words []string) {
	a.t.Helper()
	var got, list api.ExchangeResult
	a.must("exchange.list", map[string]any{"agent": agent}, &list)
	err := a.call("exchange.get", map[string]any{"exchangeId": exchange}, &got)
	if err != nil && (api.AsError(err).Code != api.NotFound || len(list.Exchanges) != 0) {
		a.t.Errorf("exchange.get: %v, and listed are %d", err, len(list.Exchanges))
	}
	if err != nil {
		return nil
	}
	summaries := func(x *api.ExchangeResult) (words []string) {
		for _, turn := range x.Exchanges[0].Transcript {
			words = append(words, turn.Summary)
			if turn.Summary == "" {
				words[len(words)-1] = "-"
			}
		}
		for _, shared := range x.Exchanges[0].DataShared {
			words = append(words, shared.Source)
		}
		return words
	}
	if words = summaries(&got); len(list.Exchanges) != 1 || !slices.Equal(words, summaries(&list)) {
		a.t.Errorf("exchange.get says %q, and the list %+v", words, list.Exchanges)
	}
	return words
}

// An app sees another agent's words after it was given their message: not while the message
// waits, not if it was taken out, and not across the tenant wall. A person sees everything.
func TestExchangeTellsWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	const words = "the blue folder"
	moved := func(who string) string {
		return strings.Replace(acme, "user_id: "+who+", org_unit: engineering, tenant_id: acme-corp", "user_id: "+who+", org_unit: engineering, tenant_id: globex-inc", 1)
	}
	for name, tc := range map[string]struct {
		// there is set if bob's app has the message before anything changes.
		there  bool
		change func(h *harness)
		want   []string
	}{
		"handed over":             {true, func(*harness) {}, []string{words, "crm"}},
		"handed over, and before": {true, func(h *harness) { h.restart() }, []string{words, "crm"}},
		"sender paused":           {false, func(h *harness) { h.pause("pause", map[string]any{"agent": "alice"}) }, []string{"-"}},
		"policy denies":           {false, func(h *harness) { h.enact(rego(false, "not any more")) }, []string{"-"}},
		"sender moved":            {false, func(h *harness) { h.moves(moved("alice")) }, []string{"-"}},
		"sender moved later":      {true, func(h *harness) { h.moves(moved("alice")) }, []string{"-"}},
		"receiver moved":          {true, func(h *harness) { h.moves(moved("bob")) }, nil},
		"both moved": {true, func(h *harness) {
			h.moves(strings.ReplaceAll(acme, "org_unit: engineering, tenant_id: acme-corp", "org_unit: engineering, tenant_id: globex-inc"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, acme, rego(true, "ok"))
			alice := h.agent("@acme/alice")
			wishes := map[string]any{"exchange": map[string]any{"new": true, "data": []any{map[string]any{"source": "crm", "fields": []string{"name"}, "classification": "public", "description": "names"}}}}
			var bob *app
			if tc.there {
				bob = h.agent("@acme/bob")
			}
			id := alice.dispatch("agent:bob:main", words, wishes).OCIP.ExchangeID
			if tc.there {
				bob.message("hook:message_received")
			}
			if tc.change(h); !tc.there || name == "handed over, and before" {
				bob = h.agent("@acme/bob")
			}
			if got := bob.told("agent-bob-1", id); !slices.Equal(got, tc.want) {
				t.Errorf("bob is told %q, want %q", got, tc.want)
			}
			if got := h.outcomeOf(id, "agent-bob-1").Transcript; len(got) != 1 || got[0].Summary != words {
				t.Errorf("a person is told %+v", got)
			}
			h.verify()
		})
	}
}

// moves puts another configuration in force, under the same policy.
func (h *harness) moves(yaml string) {
	h.t.Helper()
	const served = `access: {apps: {"@both/telegram": {channels: [telegram], tenants: [acme-corp, globex-inc]}}}`
	if strings.Contains(yaml, "engineering, tenant_id: acme-corp") {
		yaml += served + "\n"
	}
	h.reloaded(yaml + policySection(h.path("policy"), "watch: false"))
}
