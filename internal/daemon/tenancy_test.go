package daemon_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// bothServed is an app that serves the agents of both tenants in one channel.
const bothServed = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
routes:
  - {session: "telegram:*", agent: alice}
access:
  apps:
    "@both/telegram": {channels: [telegram], tenants: [acme-corp, globex-inc]}
`

// Another tenant's agents learn nothing from an answer about a session's messages to the
// agents of one tenant.
func TestSeenIsTheTenantsOwn(t *testing.T) {
	h := build(t, bothServed)
	telegram, alice, gina := h.channel("@both/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}}, nil)
	for range 2 {
		if got := alice.dispatch("telegram:zed", "Hello", nil).OCIP; got.ConversationID != "conv-1" {
			t.Errorf("alice, who was shown an agent, has %+v", got)
		}
		if got := gina.dispatch("telegram:zed", "Hello", nil).OCIP; got.ExchangeID != "" {
			t.Errorf("gina, who was shown nobody, has %+v", got)
		}
		// The same is true from the store.
		h.stop()
		h.start()
		h.channel("@both/telegram", "telegram")
		alice, gina = h.agent("@acme/alice"), h.agent("@globex/gina")
	}
	listed := func() api.Contact {
		t.Helper()
		var page api.ContactListResult
		h.operator("contact.list", map[string]any{"agent": "alice"}, &page)
		if len(page.Contacts) != 1 {
			t.Fatalf("listed are %+v", page)
		}
		return page.Contacts[0]
	}
	if zed := listed(); !zed.Learned || zed.InstanceID != "agent-zed-9" || !slices.Equal(zed.SeenBy, []string{"acme-corp"}) {
		t.Errorf("listed is %+v", zed)
	}
	var got api.ContactForgetResult
	if h.operator("contact.forget", map[string]any{"sessionKey": "telegram:zed"}, &got); !got.Changed || got.InstanceID != "agent-zed-9" {
		t.Errorf("the answer is %+v", got)
	}
	if zed := listed(); zed.Kind != "unknown" || len(zed.SeenBy) != 0 {
		t.Errorf("once forgotten it is listed as %+v", zed)
	}
	if r := h.records(audit.Filter{Like: audit.Record{SessionKey: "telegram:zed", ActionType: audit.ActionSecurity}}); len(r) != 1 || r[0].Event != "contact_forgotten" {
		t.Errorf("on record is %+v", r)
	}
	h.verify()
}

// With several tenants, only apps named in the configuration can register; otherwise a
// trial of an id would reveal whether another tenant has it. An app removed by a reload or
// a restart is refused from then on.
func TestUnnamedAppIsRefused(t *testing.T) {
	h := build(t, bothServed)
	refused := func(id string) string {
		t.Helper()
		return h.connect().refuse(api.Forbidden, "app.register", map[string]any{"manifest": manifest(id, api.Capabilities{})}).Message
	}
	said := refused("@globex/search")
	contains(t, said, `the configuration does not name app @globex/search`, `access: {apps: {"@globex/search": {}}}`)
	if again := refused("@globex/search"); again != said {
		t.Errorf("first %q, then %q", said, again)
	}
	if r := h.records(audit.Filter{Like: audit.Record{AppID: "@globex/search"}}); len(r) != 2 || r[0].Event != "binding_refused" {
		t.Errorf("on record is %+v", r)
	}
	// Only the operator learns what it looks like.
	if said := refused("@globex/Gina"); strings.Contains(said, "@globex/gina") {
		t.Errorf("it is told %q", said)
	}
	if r := h.records(audit.Filter{Like: audit.Record{AppID: "@globex/Gina"}}); len(r) != 1 || r[0].Details["looksLike"] != "@globex/gina" {
		t.Errorf("on record is %+v", r)
	}

	h.reloaded(bothServed + "    \"@globex/search\": {}\nhooks: {apps: {\"@globex/slow\": {wait: 1s}}}\n")
	search := h.register("@globex/search", api.Capabilities{})
	search.must("app.ready", nil, nil)
	slow := h.register("@globex/slow", api.Capabilities{})
	slow.must("app.heartbeat", nil, nil)
	h.reloaded(bothServed)
	contains(t, search.refuse(api.Forbidden, "app.heartbeat", nil).Message, "does not name app @globex/search")
	h.restart()
	contains(t, h.again(search).refuse(api.Forbidden, "app.heartbeat", nil).Message, "does not name app @globex/search")
	h.verify()
}

// A tool and a gateway method belong to one app within a tenant. Another tenant can use the
// same names, also if an app resumes with them; within one tenant, the refusal names the owner.
func TestNamesOfToolsAreTheTenants(t *testing.T) {
	const named = bothServed + `    "@acme/search": {tenants: [acme-corp]}
    "@acme/other": {tenants: [acme-corp]}
    "@globex/search": {tenants: [globex-inc]}
    "@nobody/search": {}
`
	h := build(t, named)
	tools := api.Capabilities{Tools: api.Provides{Provides: []string{"search"}}, Gateway: api.GatewayProvides{Methods: []string{"find"}}}
	wants := func(a *app) (reasons []string) {
		t.Helper()
		for _, capability := range []map[string]any{
			{"type": "tool", "config": map[string]any{"toolId": "search"}}, {"type": "gateway_method", "config": map[string]any{"method": "find"}},
		} {
			var got api.CapabilityResult
			if a.must("capability.register", capability, &got); got.Granted != (got.Reason == "") {
				t.Errorf("%+v", got)
			}
			reasons = append(reasons, got.Reason)
		}
		return reasons
	}
	var apps []*app
	for _, id := range []string{"@acme/search", "@globex/search", "@nobody/search"} {
		a := h.register(id, tools)
		if got := wants(a); !slices.Equal(got, []string{"", ""}) {
			t.Errorf("%s: %q", id, got)
		}
		a.must("app.ready", nil, nil)
		apps = append(apps, a)
	}
	other := h.register("@acme/other", tools)
	if got := wants(other); !slices.Equal(got, []string{"tool search belongs to app @acme/search", "gateway_method find belongs to app @acme/search"}) {
		t.Errorf("in its own tenant: %q", got)
	}
	h.restart()
	for i := range apps {
		apps[i] = h.again(apps[i])
		apps[i].must("app.heartbeat", nil, nil)
	}
	for _, a := range h.status().Apps {
		if len(a.Capabilities) != 2 {
			t.Errorf("%s goes on with %q", a.ID, a.Capabilities)
		}
	}
	// Its own tenant hears of its changes.
	other = h.register("@acme/other", tools)
	other.must("app.ready", nil, nil)
	apps[0].must("app.shutdown", nil, nil)
	contains(t, string(other.next("app:left").Payload), "@acme/search")
	apps[1].must("app.heartbeat", nil, nil)
	apps[1].silent("app:left")
}

// A request for another app's channel gets the same answer whether or not that app is connected.
func TestSomebodyElsesChannelIsAnsweredAlike(t *testing.T) {
	h := build(t, strings.Replace(twoHouses, `  - {session: "telegram:*", agent: alice}`+"\n", "", 1))
	gina := h.register("@globex/gina", api.Capabilities{Channels: api.Provides{Provides: []string{"telegram"}}})
	gina.must("app.ready", nil, nil)
	ask := func() (said []string) {
		t.Helper()
		var granted api.CapabilityResult
		gina.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, &granted)
		said = append(said, granted.Reason)
		for method, params := range map[string]map[string]any{
			"message.dispatch": {"sessionKey": "telegram:x", "content": "hello"},
			"agent.queue":      {"sessionKey": "telegram:x", "text": "hello"},
			"hook.emit":        {"hookName": "message_received", "context": map[string]any{"agentId": "gina"}, "data": map[string]any{"sessionKey": "telegram:y", "content": "hello"}},
		} {
			err := gina.call(method, params, nil)
			if err == nil {
				t.Errorf("%s is allowed", method)
			}
			said = append(said, method+": "+api.AsError(err).Message)
		}
		var value api.ConfigValue
		gina.must("config.get", map[string]any{"path": "channels.telegram"}, &value)
		if value.Value != nil {
			t.Errorf("it reads %v", value.Value)
		}
		slices.Sort(said)
		return said
	}
	before := ask()
	h.channel("@acme/telegram", "telegram")
	if now := ask(); !slices.Equal(before, now) {
		t.Errorf("before:\n%s\nnow:\n%s", strings.Join(before, "\n"), strings.Join(now, "\n"))
	}
}

// An app id that only looks like a configured or connected one is refused, and the refusal
// names the other. One in the configuration is accepted.
func TestLookAlikeAppIDIsRefused(t *testing.T) {
	h := build(t, acme)
	refused := func(id, like string) {
		t.Helper()
		e := h.connect().refuse(api.Forbidden, "app.register", map[string]any{"manifest": manifest(id, api.Capabilities{})})
		contains(t, e.Message, "app id "+id+" looks like "+like)
		if r := h.records(audit.Filter{Like: audit.Record{AppID: id}}); len(r) != 1 || r[0].Event != "binding_refused" {
			t.Errorf("on record is %+v", r)
		}
	}
	for _, id := range []string{"@acme/Alice", "@acme/aIice", "@acme/a1ice"} {
		refused(id, "@acme/alice")
	}
	h.agent("@acme/alice")
	tools := h.register("@me/tools", api.Capabilities{})
	refused("@me/too1s", "@me/tools")
	refused("@me/TOOLS", "@me/tools")
	h.register("@me/tool", api.Capabilities{})
	tools.must("app.shutdown", nil, nil)
	h.waitGone("@me/tools")
	h.register("@me/Tools", api.Capabilities{})
	// A configured app keeps its id, whoever is connected.
	h.reloaded(acme + "hooks: {apps: {\"@me/tools\": {wait: 1s}}}\n")
	h.register("@me/tools", api.Capabilities{})
}

// Apps get the id of the record about their request, and never its number, which counts
// other tenants' activity. The operator finds the record by its id.
func TestAppsAreToldNoNumbers(t *testing.T) {
	numbered := regexp.MustCompile(`(?i)"[a-z]*seq[a-z]*"\s*:`) // a signature may have the letters
	h := build(t, bothServed)
	telegram, alice := h.channel("@both/telegram", "telegram"), h.agent("@acme/alice")
	told := func(what string, said any, result string) {
		t.Helper()
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		_, id, found := strings.Cut(string(text), `"auditId":"`)
		if id, _, _ = strings.Cut(id, `"`); !found || numbered.Match(text) {
			t.Fatalf("%s is told as %s", what, text)
		}
		if r := h.records(audit.Filter{Like: audit.Record{ID: id}}); len(r) != 1 || r[0].PolicyResult != result || r[0].TenantID != "acme-corp" {
			t.Errorf("the record of %s is %+v", what, r)
		}
	}
	failed := func(a *app, method string, params map[string]any) *api.Error {
		t.Helper()
		return api.AsError(a.call(method, params, nil))
	}
	told("a message", alice.dispatch("telegram:x", "hello", nil), "allow")
	told("its delivery", telegram.message("hook:message_sending").Context, "allow")
	told("a held one", alice.held(ocip.CommitmentRequiresHuman, "telegram:x", "I promise to pay", nil), "require_approval")
	told("a held one, asked again", alice.held(ocip.CommitmentRequiresHuman, "telegram:x", "I promise to pay", nil), "require_approval")
	told("a refused one", failed(alice, "message.dispatch", map[string]any{"sessionKey": "agent:gina:main", "content": "hello"}), "deny")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:x", "text": "hello"}, nil)
	told("what came in", alice.message("hook:message_received").Context, "allow")
	told("what may not come in", failed(telegram, "agent.queue", map[string]any{
		"sessionKey": "telegram:y", "text": "hello", "metadata": map[string]any{"ocip": foreign("c-1", 1, "globex-inc")},
	}), "deny")
	var emitted api.EmitResult
	alice.must("hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "telegram:x", "content": "by itself"}}, &emitted)
	told("what a runtime may send", emitted, "allow")

	// A waiting message in the store is delivered with it too.
	h.leaves(telegram)
	waits := alice.dispatch("telegram:x", "later", nil)
	h.restart()
	telegram = h.channel("@both/telegram", "telegram")
	m := telegram.message("hook:message_sending")
	for m.DispatchID != waits.DispatchID { // a message read before can come again
		m = telegram.message("hook:message_sending")
	}
	if m.Context.AuditID != waits.OCIP.AuditID {
		t.Errorf("its delivery is told as %+v, it was %+v", m.Context, waits.OCIP)
	}
}

// A pending request answers only the same request: if a reload gives the session to another
// counterparty, the same bytes are a new request.
func TestPendingIsNotAnsweredForSomebodyElse(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	ask := func() api.DispatchResult {
		t.Helper()
		return alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to pay", nil)
	}
	dave := ask()
	if again := ask(); again.ApprovalID != dave.ApprovalID {
		t.Fatalf("asked again it waits as %s and as %s", dave.ApprovalID, again.ApprovalID)
	}
	h.reloaded(strings.Replace(acme, "{instance_id: agent-dave-1, user_id: dave,", "{instance_id: agent-ned-1, user_id: ned,", 1))
	ned := ask()
	if ned.ApprovalID == dave.ApprovalID || ned.OCIP.ExchangeID == dave.OCIP.ExchangeID {
		t.Errorf("for ned it waits as %+v, as it did for dave", ned)
	}
	for id, want := range map[string]string{dave.ApprovalID: "agent-dave-1", ned.ApprovalID: "agent-ned-1"} {
		if saw := h.shown(id); saw.Counterparty != want {
			t.Errorf("%s is for %s, want %s", id, saw.Counterparty, want)
		}
	}
	// And back: the request for dave is still his.
	h.reloaded(acme)
	if back := ask(); back.ApprovalID != dave.ApprovalID {
		t.Errorf("for dave again it waits as %s, want %s", back.ApprovalID, dave.ApprovalID)
	}
}

// Two agents that use the same id for their exchanges with a third have separate ones: the third
// knows the second exchange under another id. Both continue, and settling one ends both of its sides.
func TestSidesOfOneExchangeUnderTwoIDs(t *testing.T) {
	const three = acme + "\nocip: {disclosure: none}\n"
	h := build(t, strings.Replace(three, "agents:\n", `agents:
  - {id: cleo, app: "@acme/cleo", instance_id: agent-cleo-1, user_id: cleo, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
`, 1))
	alice, bob, cleo := h.agent("@acme/alice"), h.agent("@acme/bob"), h.agent("@acme/cleo")
	named := map[string]any{"exchange": map[string]any{"id": "case"}}
	toBob := func(a *app) *api.ExchangeRef {
		t.Helper()
		got := a.dispatch("agent:bob:main", "about the case", named).OCIP
		bob.message("hook:message_received")
		return got
	}
	first, second := toBob(cleo), toBob(alice)
	if first.ExchangeID != "case" || second.ExchangeID != "case" || first.ConversationID == second.ConversationID {
		t.Fatalf("cleo has %+v, alice %+v", first, second)
	}
	sides := func(with string) map[string]api.Exchange {
		t.Helper()
		var list api.ExchangeResult
		h.operator("exchange.list", map[string]any{"counterparty": with}, &list)
		var back api.ExchangeResult
		h.operator("exchange.list", map[string]any{"agent": with}, &back)
		by := make(map[string]api.Exchange)
		for _, e := range append(list.Exchanges, back.Exchanges...) {
			by[e.Agent] = e
		}
		if len(by) != 2 {
			t.Fatalf("the exchange with %s has the sides %+v", with, by)
		}
		return by
	}
	withCleo, withAlice := sides("agent-cleo-1"), sides("agent-alice-1")
	if id := withCleo["agent-bob-1"].ExchangeID; id != "case" {
		t.Errorf("bob's side with cleo is %s", id)
	}
	if id := withAlice["agent-bob-1"].ExchangeID; id == "case" || withAlice["agent-alice-1"].ExchangeID != "case" {
		t.Errorf("bob's side with alice is %s", id)
	}
	// Each continues by itself: bob's answer to alice is round 2 of hers.
	if got := bob.dispatch("agent:alice:main", "an answer", nil).OCIP; got.ConversationID != second.ConversationID || got.Round != 2 {
		t.Errorf("bob's answer is %+v", got)
	}
	if by := sides("agent-alice-1"); by["agent-alice-1"].CurrentRound != 2 || by["agent-bob-1"].CurrentRound != 2 {
		t.Errorf("with alice: %+v", by)
	}
	if by := sides("agent-cleo-1"); by["agent-cleo-1"].CurrentRound != 1 || by["agent-bob-1"].CurrentRound != 1 {
		t.Errorf("with cleo: %+v", by)
	}
	// "case" alone names two exchanges; with an agent it is one, and ends on both sides.
	h.operates().refuse(api.Conflict, "exchange.resolve", map[string]any{"exchangeId": "case", "outcome": "resolved"})
	h.operator("exchange.resolve", map[string]any{"exchangeId": "case", "agent": "agent-alice-1", "outcome": "resolved"}, nil)
	for agent, e := range sides("agent-alice-1") {
		if e.Outcome != "resolved" {
			t.Errorf("the side of %s is %s", agent, e.Outcome)
		}
	}
	for agent, e := range sides("agent-cleo-1") {
		if e.Outcome != "in_progress" {
			t.Errorf("cleo's exchange is %s on the side of %s", e.Outcome, agent)
		}
	}
	h.verify()
}
