package daemon_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// patient is acme with exchanges that last some rounds.
var patient = strings.Replace(acme, "max_rounds: 3", "max_rounds: 9", 1) + "ocip: {max_rounds: 9}\n"

// in names an exchange, with more wishes.
func in(id string, more ...any) map[string]any {
	wishes := map[string]any{"id": id, "classification": "public"}
	for i := 0; i < len(more); i += 2 {
		wishes[more[i].(string)] = more[i+1]
	}
	return map[string]any{"exchange": wishes}
}

// withExchange is an approval of a message and its exchange.
func withExchange(saw *api.Approval, b *api.Bounds) map[string]any {
	params := decision(api.DecideApprove, saw)
	params["exchange"] = b
	return params
}

// grants lists the grants in force.
func (h *harness) grants(all bool) []api.Grant {
	h.t.Helper()
	var list api.GrantListResult
	h.operator("grant.list", map[string]any{"all": all}, &list)
	return list.Grants
}

// approveExchange has a person approve a held message and its exchange, as offered.
func (h *harness) approveExchange(id string) api.ApprovalResolveResult {
	h.t.Helper()
	saw := h.shown(id)
	var result api.ApprovalResolveResult
	h.operates().must("approval.resolve", withExchange(&saw, saw.Exchange), &result)
	if result.GrantID == "" {
		h.t.Fatalf("no grant is made: %+v, offered was %+v (%s)", result, saw.Exchange, saw.NoExchange)
	}
	return result
}

// A person who approves an exchange is asked once: messages with the approved words are
// sent, marked as assisted and recorded with the approval and the person. Anything new
// needs another approval, and so does everything after the grant is revoked.
func TestExchangeIsApprovedOnce(t *testing.T) {
	h := build(t, patient)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal"))
	saw := h.shown(held.ApprovalID)
	if b := saw.Exchange; b == nil || !slices.Equal(b.Words, []string{"promise"}) || b.Classification != "public" || b.MaxRound != 9 || b.Until <= time.Now().UnixMilli() {
		t.Fatalf("offered is %+v, %s", b, saw.NoExchange)
	}
	made := h.approveExchange(held.ApprovalID)
	telegram.message("hook:message_sending")
	if list := h.grants(false); len(list) != 1 || list[0].GrantID != made.GrantID || list[0].ApprovalID != held.ApprovalID || list[0].ExchangeID != "deal" || list[0].By() == "" {
		t.Fatalf("in force is %+v", list)
	}

	sent := alice.dispatch("telegram:dave", "My promise stands", in("deal"))
	if sent.Held {
		t.Fatalf("the same word asks again: %+v", sent.OCIP)
	}
	m := telegram.message("hook:message_sending")
	if e := m.envelope(t); e.MessageType != ocip.AgentAssisted || !e.Capabilities.CanCommit || e.ExchangeRound != 2 {
		t.Errorf("it leaves as %+v", e)
	}
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	grant, _ := r[0].Details["grant"].(map[string]any)
	if len(r) == 0 || r[0].ApprovalID != held.ApprovalID || grant["id"] != made.GrantID || grant["by"] != saw.UserID && !strings.HasPrefix(fmt.Sprint(grant["by"]), "uid:") {
		t.Errorf("on record is %+v", r)
	}
	if plain := alice.dispatch("telegram:dave", "All well here", in("deal")); plain.Held {
		t.Error("what needs nobody is held")
	}
	if e := telegram.message("hook:message_sending"); e.envelope(t).Capabilities.CanCommit {
		t.Error("what needs no grant leaves with one")
	}

	for what, asks := range map[string]map[string]any{
		"I promise a deadline":     in("deal"),
		"I promise, and I agree":   in("deal"),
		"Promise you $500":         in("deal"),
		"Deal, that is my promise": in("deal"),
		"I promise secretly":       in("deal", "classification", "internal"),
		"I promise elsewhere":      in("other"),
	} {
		again := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", what, asks)
		h.decides(api.DecideApprove, again.ApprovalID)
		telegram.message("hook:message_sending")
		if len(h.grants(false)) != 1 {
			t.Errorf("%q changes what is in force", what)
		}
	}

	var revoked api.GrantRevokeResult
	h.operates().must("grant.revoke", map[string]any{"grantId": made.GrantID, "note": "enough"}, &revoked)
	if !revoked.Changed || len(h.grants(false)) != 0 {
		t.Errorf("taken back: %+v, in force %+v", revoked, h.grants(false))
	}
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise once more", in("deal"))
	if all := h.grants(true); len(all) != 1 || all[0].State != api.GrantRevoked || all[0].Uses != 1 {
		t.Errorf("all grants are %+v", all)
	}
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, Event: "grant_revoked"}}); len(r) != 1 || r[0].Details["note"] != "enough" {
		t.Errorf("on record is %+v", r)
	}
	h.verify()
}

// An approval of an exchange applies to the session in which it was read: another session
// of the same receiver, which others read, needs another approval.
func TestExchangeApprovalIsForItsSession(t *testing.T) {
	h := build(t, strings.Replace(patient, `sessions: ["telegram:dave"]`, `sessions: ["telegram:dave", "telegram:team"]`, 1))
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	h.approveExchange(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
	telegram.message("hook:message_sending")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:team", "I promise it here too", in("deal"))
	if held.OCIP.ExchangeID != "deal" {
		t.Errorf("the other session has another exchange: %+v", held.OCIP)
	}
	h.decides(api.DecideApprove, held.ApprovalID)
	telegram.message("hook:message_sending")
	if sent := alice.dispatch("telegram:dave", "I promise again", in("deal")); sent.Held {
		t.Errorf("where it was approved it asks again: %+v", sent.OCIP)
	}
}

// A grant survives a restart, and ends with the last approved round.
func TestExchangeApprovalIsDurableAndBounded(t *testing.T) {
	h := build(t, patient)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
	person := h.operates()
	for name, beyond := range map[string]func(*api.Bounds){
		"a level": func(b *api.Bounds) { b.Classification = "internal" },
		"a round": func(b *api.Bounds) { b.MaxRound++ },
		"a time":  func(b *api.Bounds) { b.Until++ },
	} {
		b := *saw.Exchange
		beyond(&b)
		e := person.conflict(string(api.ApprovalBlocked), withExchange(&saw, &b))
		if !strings.Contains(e.Message, "beyond") {
			t.Errorf("%s beyond what is offered: %s", name, e.Message)
		}
	}
	b := *saw.Exchange
	b.MaxRound = 2
	person.must("approval.resolve", withExchange(&saw, &b), nil)
	telegram.message("hook:message_sending")

	h.stop()
	h.start()
	h.channel("@openclawos/telegram", "telegram")
	alice = h.agent("@acme/alice")
	if second := alice.dispatch("telegram:dave", "I promise again", in("deal")); second.Held {
		t.Errorf("after a restart the second round asks: %+v", second.OCIP)
	}
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise for the third time", in("deal"))
	if list := h.grants(true); len(list) != 1 || list[0].State != api.GrantOver || list[0].Uses != 1 {
		t.Errorf("grants are %+v", list)
	}
}

// Commitments that need a person each time are not offered, and cannot be approved beforehand.
func TestExchangeThatIsNotOffered(t *testing.T) {
	h := build(t, patient)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for content, want := range map[string]string{
		"Deal, I promise it":                   "one by one",
		"I promise you $500":                   "are approved one by one",
		"I promise on Thursday (a meeting)":    "only a person may answer",
		"I promise, as asked for a commitment": "asks for a commitment",
	} {
		exchange := in(strings.Fields(want)[0])
		wishes := exchange["exchange"].(map[string]any)
		switch want {
		case "only a person may answer":
			wishes["type"] = ocip.MeetingScheduling
		case "asks for a commitment":
			wishes["type"] = ocip.CommitmentRequest
		}
		saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", content, exchange).ApprovalID)
		if saw.Exchange != nil || !strings.Contains(saw.NoExchange, want) {
			t.Errorf("%q: offered is %+v, %q; want %q", content, saw.Exchange, saw.NoExchange, want)
		}
		e := h.operates().conflict(string(api.ApprovalBlocked), withExchange(&saw, &api.Bounds{
			Words: []string{"promise"}, Classification: "public", MaxRound: 5, Until: time.Now().Add(time.Hour).UnixMilli(),
		}))
		if !strings.Contains(e.Message, "approve the message alone") {
			t.Errorf("%q: %s", content, e.Message)
		}
	}
}

// Between two agents of this daemon each side's person approves the exchange once, and
// hears of nothing within it.
func TestExchangeApprovedOnBothSides(t *testing.T) {
	h := build(t, patient)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	h.approveExchange(alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "My promise: it works", in("pair")).ApprovalID)
	m := bob.message("hook:message_received")
	answer := bob.held(ocip.CommitmentRequiresHuman, m.ReplyTo, "A promise is a promise", in("pair"))
	h.approveExchange(answer.ApprovalID)
	alice.message("hook:message_received")
	for range 2 {
		for _, turn := range []struct {
			from, to *app
			session  string
		}{{alice, bob, "agent:bob:main"}, {bob, alice, m.ReplyTo}} {
			if sent := turn.from.dispatch(turn.session, "The promise holds", in("pair")); sent.Held {
				t.Fatalf("%s is asked again: %+v", turn.from.id, sent.OCIP)
			}
			turn.to.message("hook:message_received")
		}
	}
	var waiting api.ApprovalListResult
	h.operator("approval.list", map[string]any{}, &waiting)
	if waiting.Total != 0 {
		t.Errorf("people are to see to %s", waiting.Approvals)
	}
	// Money is not covered.
	bob.held(ocip.CommitmentRequiresHuman, m.ReplyTo, "I promise $900", in("pair"))
}

// If decisions must be signed, the signature covers the bounds, and a removed signer's
// grants do not count.
func TestExchangeApprovalIsSigned(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
	params := withExchange(&saw, saw.Exchange)
	params["signature"] = signs(t, "carol", saw.ToSign[api.DecideApprove], api.ApprovalNamespace)
	h.operates().refuse(api.Forbidden, "approval.resolve", params)
	narrow := *saw.Exchange
	narrow.MaxRound = 4
	params["signature"] = signs(t, "carol", api.SignedApproval(&saw, &narrow), api.ApprovalNamespace)
	h.operates().refuse(api.Forbidden, "approval.resolve", params)
	params["exchange"] = narrow
	h.operates().must("approval.resolve", params, nil)
	telegram.message("hook:message_sending")
	if sent := alice.dispatch("telegram:dave", "I promise again", in("deal")); sent.Held {
		t.Fatalf("within the bounds: %+v", sent.OCIP)
	}
	h.allow(listed(t, "dan", ""))
	if list := h.grants(false); len(list) != 0 {
		t.Errorf("in force is %+v", list)
	}
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise on", in("deal"))
}

// standingGrant is a standing grant, signed by carol.
func standingGrant(t testing.TB, id string, uses int, change func(*api.GrantAddParams)) *api.GrantAddParams {
	t.Helper()
	p := &api.GrantAddParams{
		GrantID: id, Agent: "agent-alice-1", Receiver: "agent-dave-1", MaxUses: uses,
		Bounds: api.Bounds{Words: []string{"meeting", "schedule"}, Classification: "public", Until: time.Now().Add(time.Hour).UnixMilli()},
	}
	if change != nil {
		change(p)
	}
	p.Signature = signs(t, "carol", api.SignedGrant(p), api.ApprovalNamespace)
	return p
}

// A list of grants comes page by page, and no page leaves out a grant, or has one twice: also where some
// end at the same moment, and where those that are over stand between those in force.
func TestGrantsComeInPages(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	person, end := h.operates(), time.Now().Add(time.Hour).UnixMilli()
	for i := range 7 {
		person.must("grant.add", standingGrant(t, fmt.Sprint("g-", i), 1, func(p *api.GrantAddParams) { p.Until = end + int64(i/3) }), nil)
	}
	for _, id := range []string{"g-3", "g-0", "g-6"} {
		person.must("grant.revoke", m{"grantId": id}, nil)
	}
	for _, all := range []bool{true, false} {
		want := "[g-6 g-3 g-4 g-5 g-0 g-1 g-2]"
		if !all {
			want = "[g-4 g-5 g-1 g-2]"
		}
		for size := 1; size <= 8; size++ {
			got, asked := []string{}, m{"all": all, "kind": api.GrantStanding, "limit": size}
			for {
				var page api.GrantListResult
				person.must("grant.list", asked, &page)
				if len(page.Grants) > size || page.Next != "" && len(page.Grants) < size {
					t.Fatalf("a page of %d has %d, and another follows: %v", size, len(page.Grants), page.Next != "")
				}
				for i := range page.Grants {
					got = append(got, page.Grants[i].GrantID)
				}
				if asked["after"] = page.Next; page.Next == "" {
					break
				}
			}
			if fmt.Sprint(got) != want {
				t.Errorf("pages of %d, all %v: %v, want %s", size, all, got, want)
			}
		}
	}
	for _, place := range []string{"x", "1", "1#", "#g-1"} {
		person.refuse(api.InvalidParams, "grant.list", m{"after": place})
	}
}

// A standing grant lets only keywords pass, as often as it says, between two ends, and can
// be added once.
func TestStandingGrant(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	const status = "The meeting room is on the schedule"
	asks := func(session, content string, metadata map[string]any) {
		t.Helper()
		held := alice.held(ocip.CommitmentRequiresHuman, session, content, metadata)
		saw := h.shown(held.ApprovalID)
		person.must("approval.resolve", signed(t, "carol", api.DecideDeny, &saw), nil)
	}
	goes := func(session, content string) {
		t.Helper()
		if sent := alice.dispatch(session, content, in(fmt.Sprint("e", time.Now().UnixNano()))); sent.Held {
			t.Fatalf("%q is held: %+v", content, sent.OCIP)
		}
		if e := telegram.message("hook:message_sending"); !e.envelope(t).Capabilities.CanCommit {
			t.Errorf("%q leaves as %+v", content, e)
		}
	}
	asks("telegram:dave", status, fresh(nil))

	p := standingGrant(t, "g-1", 3, nil)
	unsigned := *p
	unsigned.MaxUses = 30
	person.refuse(api.Forbidden, "grant.add", &unsigned)
	var added api.GrantAddResult
	person.must("grant.add", p, &added)
	if added.Grant.By() != "carol@acme-corp" || added.AuditSeq == 0 {
		t.Errorf("made is %+v", added)
	}
	person.refuse(api.Conflict, "grant.add", p)
	goes("telegram:dave", status)
	asks("agent:bob:main", status, fresh(nil))
	asks("telegram:dave", "I promise a meeting", fresh(nil))
	asks("telegram:dave", "Sounds good, the meeting is on the schedule", fresh(nil))
	asks("telegram:dave", "The meeting costs us: we'll pay $500", fresh(nil))
	asks("telegram:dave", "I'll send the schedule by Friday", fresh(nil))
	asks("telegram:dave", status, fresh(map[string]any{"classification": "internal"}))
	asks("telegram:dave", status, fresh(map[string]any{"type": ocip.CommitmentRequest}))
	asks("telegram:dave", status, fresh(map[string]any{"type": ocip.MeetingScheduling}))

	h.stop()
	h.start()
	telegram, alice, person = h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	goes("telegram:dave", status)
	goes("telegram:dave", status)
	asks("telegram:dave", status, fresh(nil))
	if list := h.grants(true); len(list) != 1 || list[0].State != api.GrantUsedUp || list[0].Uses != 3 {
		t.Errorf("grants are %+v", list)
	}
	used := h.records(audit.Filter{Like: audit.Record{AgentID: "agent-alice-1", Side: audit.SideSender, PolicyResult: string(ocip.Allow)}})
	if len(used) != 3 || used[2].Details["grant"].(map[string]any)["id"] != "g-1" {
		t.Errorf("the uses on record are %+v", used)
	}
	person.refuse(api.Conflict, "grant.add", p) // used up, it is good no more

	person.must("grant.add", standingGrant(t, "g-2", 3, nil), nil)
	// These names can never be a receiver.
	for _, receiver := range []string{"agent-dvae-1", "*", "telegram:*"} {
		if e := person.refuse(api.NotFound, "grant.add", standingGrant(t, "g-4", 1, func(p *api.GrantAddParams) { p.Receiver = receiver })); !strings.Contains(e.Message, "there is no receiver") {
			t.Errorf("%s: %v", receiver, e)
		}
	}
	goes("telegram:dave", status)
	person.must("grant.revoke", map[string]any{"grantId": "g-2"}, nil)
	asks("telegram:dave", status, fresh(nil))

	for name, change := range map[string]func(*api.GrantAddParams){
		"a cue":     func(p *api.GrantAddParams) { p.Words = []string{"acceptance"} },
		"no words":  func(p *api.GrantAddParams) { p.Words = nil },
		"no end":    func(p *api.GrantAddParams) { p.Until = 0 },
		"no uses":   func(p *api.GrantAddParams) { p.MaxUses = 0 },
		"past":      func(p *api.GrantAddParams) { p.Until = 1 },
		"for years": func(p *api.GrantAddParams) { p.Until = time.Now().AddDate(3, 0, 0).UnixMilli() },
	} {
		if e := person.refuse(api.InvalidParams, "grant.add", standingGrant(t, "g-3", 1, change)); e.Message == "" {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// Attack: somebody without a key deletes the row of a pre-approval that was revoked or used up, has the
// search index find nothing, and brings its signature again, which is on record. The log has the
// pre-approval, and so the id is used.
func TestSignatureOfAPreApprovalCountsOnce(t *testing.T) {
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	person := h.operates()
	p := standingGrant(t, "g-1", 3, nil)
	person.must("grant.add", p, nil)
	person.must("grant.revoke", m{"grantId": "g-1"}, nil)
	made := h.records(audit.Filter{Like: audit.Record{Event: "grant_made"}})[0].Seq
	waitFor(t, "the index has the record", func() bool {
		var s api.Status
		person.must("kernel.status", m{}, &s)
		return s.Audit.Indexed >= made
	})
	h.stop()
	h.fillLog()
	h.editRows("DELETE FROM commitment_grants")
	h.blindIndex()
	h.start()
	person = h.operates()
	if list := h.grants(true); len(list) != 0 {
		t.Fatalf("the row is there: %+v", list)
	}
	if found := h.records(audit.Filter{Like: audit.Record{Event: "grant_made"}}); len(found) != 0 {
		t.Fatalf("the index finds %d records", len(found))
	}
	if e := person.refuse(api.Conflict, "grant.add", p); !strings.Contains(e.Message, `there is, or was, a pre-approval "g-1"`) {
		t.Errorf("refused with %v", e)
	}
	person.must("grant.add", standingGrant(t, "g-2", 3, nil), nil)
	h.verify()
	h.stop()
	h.editRows("DELETE FROM used_signatures WHERE id = 'pre-approval g-1'")
	if fault, ok := errors.AsType[*audit.Fault](h.tryStart()); !ok || !strings.Contains(fault.Problem, "used signature pre-approval g-1: there is no such row") && !strings.Contains(fault.Problem, "used_signatures") {
		t.Errorf("the start: %v", fault)
	}
}

// blindIndex has the search index of a stopped daemon find none of its records, in a way that it does
// not notice.
func (h *harness) blindIndex() {
	h.t.Helper()
	conn, err := sqlite.OpenConn(h.path("state/ocipd.index.db"), sqlite.OpenReadWrite)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, `
INSERT INTO terms_0(terms_0) VALUES ('delete-all');
WITH RECURSIVE n(seq, last) AS (SELECT 1, max(last) FROM ranges UNION ALL SELECT seq + 1, last FROM n WHERE seq < last)
INSERT INTO terms_0(rowid, terms) SELECT seq, 'w0' FROM n;`, nil), conn.Close())
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// Without required signatures there are no standing grants.
func TestStandingGrantTakesSigners(t *testing.T) {
	h := build(t, acme)
	e := h.operates().refuse(api.Forbidden, "grant.add", standingGrant(t, "g-1", 3, nil))
	contains(t, e.Message, "allowed_signers")
}

// Grants are linearizable while many senders use them and a person revokes and adds them,
// over restarts: no grant is used too often, and none after its revocation.
func TestGrantsAreLinearizable(t *testing.T) {
	type input struct {
		revoke bool
		grant  int
	}
	h := guarded(t, patient, rego(true, "ok"), listed(t, "carol", ""))
	const grants, uses, senders = 4, 3, 4
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		began   = time.Now()
	)
	note := func(client int, in input, out bool, call, end time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(call), Return: int64(end)})
	}
	for round := range 2 {
		h.channel("@openclawos/telegram", "telegram")
		alice, person := h.agent("@acme/alice"), h.operates()
		if round == 0 {
			for i := range grants {
				// Each has a separate session, so that their messages do not wait for one lock.
				person.must("grant.add", standingGrant(t, fmt.Sprint("g-", i), uses, func(p *api.GrantAddParams) { p.Receiver = fmt.Sprint("telegram:room", i) }), nil)
			}
		}
		var work sync.WaitGroup
		for s := range senders {
			work.Go(func() {
				for n := range 6 {
					i := (s + n) % grants
					call := time.Since(began)
					var result api.DispatchResult
					err := alice.call("message.dispatch", map[string]any{
						"sessionKey": fmt.Sprint("telegram:room", i), "content": "The meeting of " + strings.Repeat("r", round+1) + strings.Repeat("s", s+1) + strings.Repeat("n", n+1), "metadata": in("x"),
					}, &result)
					if err != nil {
						t.Error(err)
					}
					note(s, input{grant: i}, !result.Held, call, time.Since(began))
				}
			})
		}
		work.Go(func() {
			call := time.Since(began)
			if err := person.call("grant.revoke", map[string]any{"grantId": fmt.Sprint("g-", round)}, nil); err != nil {
				t.Error(err)
			}
			note(senders, input{revoke: true, grant: round}, true, call, time.Since(began))
		})
		work.Wait()
		h.stop()
		h.start()
	}
	model := porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, grants)
			for _, op := range history {
				parts[op.Input.(input).grant] = append(parts[op.Input.(input).grant], op)
			}
			return parts
		},
		Init: func() any { return uses },
		Step: func(state, in, out any) (bool, any) {
			left := state.(int)
			switch {
			case in.(input).revoke:
				return true, 0
			case out.(bool):
				return left > 0, left - 1
			}
			return left == 0, left
		},
	}
	if !porcupine.CheckOperations(model, history) {
		t.Errorf("the history is not one of grants that are used one after the other: %+v", history)
	}
	// A wrong answer is found.
	for i, op := range history {
		if !op.Input.(input).revoke && op.Input.(input).grant == grants-1 && !op.Output.(bool) {
			history[i].Output = true
			break
		}
	}
	if porcupine.CheckOperations(model, history) {
		t.Error("a use too many is not found")
	}
}

// Further readers, another agent that must answer, another type, and money in the metadata
// need a new approval; a time of day does not, nor a word that the person has selected.
func TestExchangeApprovalIsForWhatItWas(t *testing.T) {
	h := build(t, patient)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal"))
	saw := h.shown(held.ApprovalID)
	some := *saw.Exchange
	some.Words = append(slices.Clone(some.Words), "reserve")
	h.operates().must("approval.resolve", withExchange(&saw, &some), nil)
	telegram.message("hook:message_sending")
	for _, goes := range []string{"I promise to be there at 3pm on 5 May", "The reservation is as promised"} {
		if alice.dispatch("telegram:dave", goes, in("deal")).Held {
			t.Errorf("%q asks again", goes)
		}
		telegram.message("hook:message_sending")
	}
	for what, metadata := range map[string]map[string]any{
		"I promise, for a person":  in("deal", "replyPolicy", "human-only"),
		"I promise a sum":          {"exchange": in("deal")["exchange"], "amount": 9},
		"Deal accepted, I promise": in("deal"),
	} {
		again := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", what, metadata)
		h.decides(api.DecideApprove, again.ApprovalID)
		telegram.message("hook:message_sending")
	}
}

// One session can have several places, and an agent can choose among them by the message that
// it answers: an approval for a place that only the receiver reads does not apply in a room.
func TestExchangeApprovalIsForItsPlace(t *testing.T) {
	h := build(t, patient)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	says := func(metadata map[string]any) {
		t.Helper()
		telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": "Well?", "metadata": metadata}, nil)
	}
	says(map[string]any{"chatId": "55"})
	h.approveExchange(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
	says(map[string]any{"chatId": "-100999", "isGroup": true})
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise it to the room", in("deal"))
	h.decides(api.DecideDeny, held.ApprovalID)
}

// A standing grant for an agent applies only where that agent alone reads, and one for a
// session applies to the target in its key.
func TestStandingGrantIsForNobodyElse(t *testing.T) {
	rooms := strings.Replace(patient, "routes:", `  - {kind: group, sessions: ["telegram:-7"], members: [agent-dave-1, "telegram:alice"]}
routes:`, 1)
	h := guarded(t, rooms, rego(true, "ok"), listed(t, "carol", ""))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	const status = "The meeting room is on the schedule"
	person.must("grant.add", standingGrant(t, "for dave", 9, nil), nil)
	if sent := alice.dispatch("telegram:dave", status, fresh(nil)); sent.Held {
		t.Fatalf("to dave alone it is held: %+v", sent.OCIP)
	}
	asks := func(what, session string) {
		t.Helper()
		saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, session, what+status, fresh(nil)).ApprovalID)
		person.must("approval.resolve", signed(t, "carol", api.DecideDeny, &saw), nil)
	}
	asks("", "telegram:-7")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": "Well?", "metadata": map[string]any{"chatId": "-100999", "isGroup": true}}, nil)
	asks("In a room that nobody knows: ", "telegram:dave")

	person.must("grant.add", standingGrant(t, "for a session", 9, func(p *api.GrantAddParams) { p.Receiver = "telegram:-7" }), nil)
	if sent := alice.dispatch("telegram:-7", status, fresh(nil)); sent.Held {
		t.Errorf("to the room that is granted it is held: %+v", sent.OCIP)
	}
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:-7", "text": "Well?", "metadata": map[string]any{"chatId": "-100999", "isGroup": true}}, nil)
	asks("Elsewhere: ", "telegram:-7")
}

// An approval beforehand applies to the receiver as it was then: if the configuration turns
// it into another counterparty, a person is asked again, and no more once it is restored.
func TestGrantIsForWhoTheReceiverWas(t *testing.T) {
	t.Parallel()
	const entry = "\ndirectory:\n  - {kind: person, user_id: pat, tenant_id: acme-corp, sessions: [\"chat:pat\"]}"
	company := strings.NewReplacer("\ndirectory:", entry, "ocip: {max_rounds: 9}", "ocip: {max_rounds: 9, person: {commitments: hold}, unknown: {commitments: hold}}").Replace(patient)
	h := guarded(t, company, rego(true, "ok"), listed(t, "carol", ""))
	h.channel("@openclawos/telegram", "telegram")
	h.channel("@openclawos/chat", "chat")
	alice, person := h.agent("@acme/alice"), h.operates()
	const status = "The meeting room is on the schedule"
	person.must("grant.add", standingGrant(t, "for dave", 9, nil), nil)
	person.must("grant.add", standingGrant(t, "for pat", 9, func(p *api.GrantAddParams) { p.Receiver = "chat:pat" }), nil)
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to look", in("deal")).ApprovalID)
	params := withExchange(&saw, saw.Exchange)
	params["signature"] = signs(t, "carol", api.SignedApproval(&saw, saw.Exchange), api.ApprovalNamespace)
	person.must("approval.resolve", params, nil)

	section := policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {allowed_signers: %q}\n", h.path("signers"))
	for i, tc := range []struct {
		was, now  string
		pat, dave bool
	}{
		{},
		{was: "user_id: pat", now: "user_id: eve", pat: true},
		{was: "user_id: dave", now: "user_id: erin", dave: true},
		{},
	} {
		if i > 0 {
			h.reloaded(strings.Replace(company, tc.was, tc.now, 1) + section)
		}
		for _, m := range []struct {
			session, content string
			metadata         map[string]any
			held             bool
		}{
			{"chat:pat", status, in("none"), tc.pat}, {"telegram:dave", status, in(fmt.Sprint("other-", i)), tc.dave}, {"telegram:dave", "I promise to look again", in("deal"), tc.dave},
		} {
			content := m.content + " as " + []string{"before", "said", "ever", "usual"}[i]
			sent := alice.dispatch(m.session, content, m.metadata)
			if sent.Held != m.held {
				t.Errorf("%d: %q to %s is held: %v, want %v: %+v", i, content, m.session, sent.Held, m.held, sent.OCIP)
			}
			if sent.Held {
				again := h.shown(sent.ApprovalID)
				person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &again), nil)
			}
		}
	}
}
