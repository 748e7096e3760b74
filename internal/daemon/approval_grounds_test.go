package daemon_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// attempt is one message to a counterparty of its own.
type attempt struct {
	h        *harness
	telegram *app
	from     *app
	target   string
	// first is set if nobody has written to the counterparty before.
	first    bool
	content  string
	exchange map[string]any
	media    []string
}

func (a *attempt) session() string { return "telegram:" + a.target }

// ground is one rule that holds a message, and how to break it.
type ground struct {
	name string
	// agents and strangers are the kinds of counterparties that the rule has.
	agents, strangers bool
	// act is what the message does. No message does the same act in two ways.
	act    string
	breaks func(*attempt)
	code   ocip.Code
	reason string // a part
	// found is the rule of a finding, if the rule is about words, and member where it is.
	found, member string
}

// writes adds words to the message.
func writes(text string) func(*attempt) {
	return func(a *attempt) { a.content += text + " " }
}

// grounds are all rules that can hold a message, in their order.
func grounds() []ground {
	return []ground{
		{name: "level", act: "level", agents: true, strangers: true, breaks: func(a *attempt) { a.exchange["classification"] = "confidential" }, code: ocip.PolicyRequiresApproval, reason: "a person decides at level confidential"},
		{name: "secret", act: "level", agents: true, strangers: true, breaks: writes("The token is ghp_16C7e42F292c6912E7710c838347Ae178B4a."), code: ocip.PolicyRequiresApproval, reason: "a person decides at level restricted", found: "credential.github-token"},
		{name: "look-alike", strangers: true, breaks: func(a *attempt) { a.target = strings.ReplaceAll(a.target, "o", "\u03bf") }, code: ocip.LooksLikeKnown, reason: "reads like it"},
		{name: "first contact", strangers: true, breaks: func(a *attempt) { a.first = true }, code: ocip.FirstContactHeld, reason: "nobody has written"},
		{name: "type", act: "exchange", agents: true, breaks: func(a *attempt) { a.exchange["type"] = "commitment_request" }, code: ocip.CommitmentRequiresHuman, reason: "asks for a commitment"},
		{name: "wish", agents: true, strangers: true, breaks: func(a *attempt) { a.exchange["askPerson"] = true }, code: ocip.CommitmentRequiresHuman, reason: "its sender asks"},
		{name: "keyword", agents: true, strangers: true, breaks: writes("I promise the review."), code: ocip.CommitmentRequiresHuman, reason: "promise", found: "commitment.promise"},
		{name: "money", agents: true, strangers: true, breaks: writes("We will pay 500 EUR for it."), code: ocip.CommitmentRequiresHuman, reason: "money", found: "commitment.money"},
		{name: "deadline", agents: true, strangers: true, breaks: writes("I will send you the contract by Friday."), code: ocip.CommitmentRequiresHuman, reason: "first-person-future", found: "commitment.first-person-future"},
		{name: "acceptance", agents: true, strangers: true, breaks: func(a *attempt) { a.content = "Deal. " + a.content }, code: ocip.CommitmentRequiresHuman, reason: "acceptance", found: "commitment.acceptance"},
		{name: "media", agents: true, strangers: true, breaks: func(a *attempt) { a.media = []string{a.h.path("out/offer.txt")} }, code: ocip.CommitmentRequiresHuman, reason: "guarantee", found: "commitment.guarantee", member: "file metadata.mediaUrls[0]"},
		{name: "rounds", act: "exchange", agents: true, breaks: func(a *attempt) {
			delete(a.exchange, "new")
			a.exchange["id"] = "exch-" + a.target
			a.from.dispatch(a.session(), "Hello", map[string]any{"exchange": map[string]any{"id": a.exchange["id"]}})
			a.telegram.message("hook:message_sending")
		}, code: ocip.RoundLimit, reason: "round limit (1)"},
		{name: "messages of the agent", strangers: true, breaks: func(*attempt) {}, code: ocip.BudgetExceeded, reason: "agent spent has had 1"},
	}
}

// groundPair is a pair of grounds, with a counterparty of its own.
type groundPair struct {
	one, other *ground
	target     string
	agent      bool
}

func (p *groundPair) String() string { return p.one.name + " and " + p.other.name }

func (p *groundPair) has(name string) bool { return p.one.name == name || p.other.name == name }

// groundPairs lists all pairs, and the entries of the directory that they need.
func groundPairs() (pairs []groundPair, directory string) {
	all := grounds()
	for i := range all {
		for j := i; j < len(all); j++ {
			one, other := &all[i], &all[j]
			if i != j && one.act != "" && one.act == other.act {
				continue
			}
			target := fmt.Sprintf("bo%c%coo", 'a'+i, 'a'+j)
			if one.agents && other.agents {
				p := groundPair{one, other, "agent" + target, true}
				directory += fmt.Sprintf("\n  - {instance_id: agent-%[1]s-1, user_id: %[1]s, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal, confidential, restricted], sessions: [\"telegram:%[1]s\"]}", p.target)
				pairs = append(pairs, p)
			}
			if one.strangers && other.strangers {
				p := groundPair{one, other, target, false}
				if p.has("look-alike") {
					directory += fmt.Sprintf("\n  - {kind: person, user_id: %[1]s, sessions: [\"telegram:%[1]s\"]}", p.target)
				}
				pairs = append(pairs, p)
			}
		}
	}
	return pairs, directory
}

// Whichever rule holds a message: the answer, the request, the list and the record name the grounds of
// each pair of rules, the likeliest first, and what was found in the words.
func TestEveryGroundIsNamedEverywhere(t *testing.T) {
	t.Parallel()
	pairs, directory := groundPairs()
	h := plot(t, "")
	out := lay(t, h.path("out"), map[string]string{"offer.txt": "We guarantee the price."})
	const rules = `
default high := false
high if input.data_classification in {"confidential", "restricted"}
decision := {"allow": true, "require_approval": high, "reason": sprintf("a person decides at level %s", [input.data_classification]), "constraints": {}}
`
	policy := lay(t, h.path("policy"), map[string]string{"exchange.rego": "package ocip.agent_exchange\n" + rules, "cross.rego": "package ocip.cross_org\n" + rules})
	agents := ""
	for id, more := range map[string]string{"alice": "", "spent": ", max_per_hour: 1"} {
		agents += fmt.Sprintf("\n  - {id: %[1]s, app: \"@acme/%[1]s\", instance_id: agent-%[1]s-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: 1, max_classification_shared: restricted, max_classification_unknown: restricted, media: [%[2]q]%[3]s}", id, out, more)
	}
	h.configure("agents:" + agents + "\ndirectory:\n  - {kind: person, user_id: alice, sessions: [\"telegram:alice\"]}" + directory + `
ocip: {unknown: {commitments: hold, policy: true, first_contact: hold}}
approvals: {max_open: 1000}
routes: [{session: "telegram:*", agent: alice}]
` + policySection(policy, "watch: false"))
	h.start()
	t.Cleanup(h.stop)
	telegram, alice, spent := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/spent")
	spent.dispatch("telegram:alice", "Hello", nil)
	telegram.message("hook:message_sending")

	for i := range pairs {
		p := &pairs[i]
		from := alice
		if p.has("messages of the agent") {
			from = spent
		}
		a := &attempt{h: h, telegram: telegram, from: from, target: p.target, content: "Hello. ", exchange: map[string]any{"new": true}}
		p.one.breaks(a)
		if p.other != p.one {
			p.other.breaks(a)
		}
		if !p.agent && !a.first {
			telegram.must("agent.queue", map[string]any{"sessionKey": a.session(), "text": "Hello"}, nil)
		}
		metadata := map[string]any{"exchange": a.exchange}
		if a.media != nil {
			metadata["mediaUrls"] = a.media
		}
		answer := from.held(p.one.code, a.session(), a.content, metadata)
		p.check(t, h, &answer)
	}
}

// check compares the places that name the grounds of a held message.
func (p *groundPair) check(t *testing.T, h *harness, answer *api.DispatchResult) {
	t.Helper()
	request := h.shown(answer.ApprovalID)
	if !reflect.DeepEqual(request.Reasons, answer.OCIP.Reasons) {
		t.Errorf("%s: the request names %+v, the answer %+v", p, request.Reasons, answer.OCIP.Reasons)
	}
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{}, &list)
	listed := slices.ContainsFunc(list.Approvals, func(raw jsontext.Value) bool {
		var a api.ApprovalSummary
		if err := json.Unmarshal(raw, &a); err != nil {
			t.Fatal(err)
		}
		return a.ApprovalID == answer.ApprovalID && reflect.DeepEqual(a.Reasons, request.Reasons)
	})
	if !listed {
		t.Errorf("%s: the list has no such request", p)
	}
	records := h.records(audit.Filter{Like: audit.Record{ApprovalID: answer.ApprovalID, ActionType: audit.ActionExchange}})
	if len(records) != 1 {
		t.Fatalf("%s: on record are %+v", p, records)
	}
	r := &records[0]
	for _, g := range []*ground{p.one, p.other} {
		if !slices.ContainsFunc(request.Reasons, func(named ocip.Ground) bool { return named.Code == g.code && strings.Contains(named.Reason, g.reason) }) {
			t.Errorf("%s: %s is not among %+v", p, g.name, request.Reasons)
		}
		if !strings.Contains(r.PolicyReason, g.reason) || !slices.Contains(r.Codes(), string(g.code)) {
			t.Errorf("%s: %s is not on record: %v, %s", p, g.name, r.Codes(), r.PolicyReason)
		}
		if g.found == "" {
			continue
		}
		for where, found := range map[string][]audit.Detection{"request": request.Detections, "record": r.Detections} {
			if !slices.ContainsFunc(found, func(d audit.Detection) bool { return d.Rule == g.found && d.Member == g.member && !d.Shadow }) {
				t.Errorf("%s: %s is not found in the %s: %+v", p, g.found, where, found)
			}
		}
	}
	// The likeliest come first: a commitment, the other rules, and a commitment that is unlikely.
	place := func(g ocip.Ground) int {
		switch {
		case g.Likelihood == commitment.Low:
			return 2
		case g.Code == ocip.CommitmentRequiresHuman:
			return 0
		}
		return 1
	}
	if !slices.IsSortedFunc(request.Reasons, func(a, b ocip.Ground) int { return place(a) - place(b) }) {
		t.Errorf("%s: not the likeliest first: %+v", p, request.Reasons)
	}
}
