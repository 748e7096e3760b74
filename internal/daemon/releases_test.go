package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
)

// redeeming are the capabilities of an app that redeems.
var redeeming = api.Capabilities{Redeem: true, Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}}

// redeems is alice's runtime, which redeems approved messages.
func (h *harness) redeems() *app {
	h.t.Helper()
	a := h.register("@acme/alice", redeeming)
	a.must("app.ready", nil, nil)
	return a
}

// approved is an approved message of alice's runtime.
func (h *harness) approved(alice *app) (id string) {
	h.t.Helper()
	held := alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": map[string]any{"origin": "chat", "exchange": map[string]any{"new": true}}})
	h.decides(api.DecideApprove, held.ApprovalID)
	return held.ApprovalID
}

func (a *app) redeem(id string) (r api.Redeemed) {
	a.t.Helper()
	a.must("approval.redeem", map[string]any{"approvalId": id}, &r)
	return r
}

// redeemed makes a redemption that must be refused.
func (a *app) redeemed(id, state string) {
	a.t.Helper()
	e := a.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": id})
	if code := ocipCode(a.t, e); code != string(api.AlreadyRedeemed) {
		a.t.Errorf("refused as %s, want %s", code, api.AlreadyRedeemed)
	}
	var got api.Approval
	a.must("approval.get", map[string]any{"approvalId": id}, &got)
	if got.Delivery != state {
		a.t.Errorf("the delivery is %q, want %s", got.Delivery, state)
	}
}

// deliveries are the recorded events about the outcome of a message.
func (h *harness) deliveries(id string) (events []string) {
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, ApprovalID: id}}) {
		events = append(events, r.Event)
	}
	return events
}

// asksAbout waits until a person is asked for the outcome of a message, and returns the request.
func (h *harness) asksAbout() (asked api.ApprovalSummary) {
	h.t.Helper()
	person := h.operates()
	waitFor(h.t, "somebody is asked", func() bool {
		var list api.ApprovalListResult
		person.must("approval.list", nil, &list)
		for _, raw := range list.Approvals {
			if person.decode(raw, &asked); asked.Kind == api.ApprovalOfDelivery {
				return true
			}
		}
		return false
	})
	return asked
}

// An approved message is redeemed once, by the app that asked, and the event about the
// approval contains nothing of it.
func TestRedeemOnce(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.redeems(), h.agent("@acme/bob")
	id := h.approved(alice)
	if o := alice.concludes(id, api.ApprovalApproved); len(o.Data) > 0 {
		t.Errorf("the event has %s", o.Data)
	}
	var ready api.RedeemableResult
	alice.must("approval.redeemable", nil, &ready)
	if len(ready.Approvals) != 1 || ready.Approvals[0].ApprovalID != id || ready.Approvals[0].Origin != "chat" {
		t.Errorf("redeemable is %+v", ready)
	}
	bob.refuse(api.NotFound, "approval.redeem", map[string]any{"approvalId": id})
	got := alice.redeem(id)
	var m delivered
	alice.decode(got.Data, &m)
	if !strings.HasPrefix(m.Content, promise) || m.SessionKey != "agent:bob:main" || got.Claim == "" {
		t.Errorf("redeemed is %+v", m)
	}
	alice.redeemed(id, "claimed")
	bob.refuse(api.NotFound, "approval.confirm", map[string]any{"claim": got.Claim, "outcome": "sent"})
	alice.refuse(api.Conflict, "approval.confirm", map[string]any{"claim": id + ".another", "outcome": "sent"})
	// A message that was not sent can be redeemed again, under another claim.
	alice.must("approval.confirm", map[string]any{"claim": got.Claim, "outcome": "not_sent", "note": "refused"}, nil)
	alice.refuse(api.Conflict, "approval.confirm", map[string]any{"claim": got.Claim, "outcome": "sent"})
	again := alice.redeem(id)
	if again.Claim == got.Claim || string(again.Data) != string(got.Data) {
		t.Errorf("again it is %+v", again)
	}
	alice.must("approval.confirm", map[string]any{"claim": again.Claim, "outcome": "sent"}, nil)
	alice.redeemed(id, "sent")
	want := []string{"redeemed", "not_taken", "redeemed", "delivered"}
	if got := h.deliveries(id); !slices.Equal(got, want) {
		t.Errorf("on record %v, want %v", got, want)
	}
	wantWaiting(t, h, 0)
	h.verify()
}

// A pause holds back approved messages too, and a denied message cannot be redeemed.
func TestRedeemPausedAndDenied(t *testing.T) {
	h := build(t, acme)
	alice, person := h.redeems(), h.operates()
	id := h.approved(alice)
	for _, end := range []string{"alice", "bob"} {
		person.must("sending.pause", map[string]any{"agent": end}, nil)
		if e := alice.refuse(api.Forbidden, "approval.redeem", map[string]any{"approvalId": id}); ocipCode(t, e) != "PAUSED" {
			t.Errorf("while %s is paused it is refused by %v", end, e)
		}
		person.must("sending.resume", map[string]any{"agent": end}, nil)
	}
	alice.redeem(id)
	held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": fresh(nil)})
	h.decides(api.DecideDeny, held.ApprovalID)
	alice.refuse(api.NotFound, "approval.redeem", map[string]any{"approvalId": held.ApprovalID})
}

// A denial withdraws an approval or a takeover, until the runtime has redeemed it, and is
// signed if denials must be.
func TestDenialTakesBackWhatWasApproved(t *testing.T) {
	t.Parallel()
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "dora", ""))
	alice, person := h.redeems(), h.operates()
	for _, first := range []string{api.DecideApprove, api.DecideTakeover} {
		id := alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": fresh(nil)}).ApprovalID
		saw := h.shown(id)
		person.must("approval.resolve", signed(t, "carol", first, &saw), nil)
		state := h.shown(id).State
		alice.concludes(id, state)

		for _, what := range []string{api.DecideApprove, api.DecideTakeover, api.DecideResolve} {
			person.conflict("APPROVAL_DECIDED", signed(t, "dora", what, &saw))
		}
		person.refuse(api.Forbidden, "approval.resolve", decision(api.DecideDeny, &saw))
		if now := h.shown(id); now.State != state || now.Delivery != "ready" || now.Decision.By != "carol@acme-corp" {
			t.Fatalf("it is %+v", now)
		}
		deny := signed(t, "dora", api.DecideDeny, &saw)
		var result api.ApprovalResolveResult
		person.must("approval.resolve", deny, &result)
		if result.State != api.ApprovalRevoked || result.AuditSeq == 0 {
			t.Errorf("answered %+v", result)
		}
		alice.concludes(id, api.ApprovalRevoked)
		alice.redeemed(id, "abandoned")
		var ready api.RedeemableResult
		alice.must("approval.redeemable", nil, &ready)
		if len(ready.Approvals) > 0 {
			t.Errorf("redeemable is %+v", ready)
		}
		if now := h.shown(id); now.State != api.ApprovalRevoked || now.Decision.By != "dora@acme-corp" || now.Decision.Decision != api.DecideDeny {
			t.Errorf("it is %+v by %+v", now.ApprovalSummary, now.Decision)
		}
		if got := h.decisions(id); !slices.Equal(got, []string{state, "revoked"}) {
			t.Errorf("on record are %q", got)
		}
		person.conflict("APPROVAL_DECIDED", deny)
	}

	id := alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": fresh(nil)}).ApprovalID
	saw := h.shown(id)
	person.must("approval.resolve", signed(t, "carol", api.DecideApprove, &saw), nil)
	alice.redeem(id)
	person.conflict("APPROVAL_DECIDED", signed(t, "dora", api.DecideDeny, &saw))
	if now := h.shown(id); now.State != api.ApprovalApproved || now.Delivery != "claimed" {
		t.Errorf("redeemed it is %+v", now)
	}
	h.stop()
	h.verify()
}

// The app that asked can withdraw a pending request, but the state of its exchange stays.
func TestWithdraw(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.redeems(), h.agent("@acme/bob")
	ask := map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": fresh(nil)}
	held := alice.emitHeld(ask)
	bob.refuse(api.NotFound, "approval.withdraw", map[string]any{"approvalId": held.ApprovalID})
	alice.must("approval.withdraw", map[string]any{"approvalId": held.ApprovalID, "note": "given up"}, nil)
	alice.concludes(held.ApprovalID, api.ApprovalRevoked)
	wantWaiting(t, h, 0)
	alice.refuse(api.Conflict, "approval.withdraw", map[string]any{"approvalId": held.ApprovalID})
	if now := h.shown(held.ApprovalID); now.State != api.ApprovalRevoked || now.Decision.By != "@acme/alice" || now.Decision.Note != "given up" {
		t.Errorf("it is %+v by %+v", now.ApprovalSummary, now.Decision)
	}
	var last api.EmitResult
	for range 4 {
		meta := map[string]any{"exchange": map[string]any{"classification": "public"}}
		alice.must("hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "telegram:dave", "content": "Hello", "metadata": meta}}, &last)
	}
	if !last.Held {
		t.Fatalf("the fourth round goes: %+v", last)
	}
	alice.refuse(api.Forbidden, "approval.withdraw", map[string]any{"approvalId": last.ApprovalID})
	wantWaiting(t, h, 1)
}

// A client that is killed with a claim may have sent the message: a person is asked for the outcome.
func TestRedeemerIsKilled(t *testing.T) {
	if id := os.Getenv("OCIPD_TEST_APPROVAL"); id != "" {
		h := &harness{t: t, dir: os.Getenv(appHarness)}
		a := h.redeems()
		fmt.Println("claim", a.redeem(id).Claim)
		select {}
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, tc := range []struct {
		decide, state string
		again         bool
	}{{api.DecideApprove, "ready", true}, {api.DecideResolve, "sent", false}, {api.DecideDeny, "abandoned", false}, {"", "sent", false}} {
		t.Run(tc.decide, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			alice := h.redeems()
			id := h.approved(alice)
			alice.concludes(id, api.ApprovalApproved)
			alice.Close()
			claim := killedWith(t, h, id)
			alice = h.redeems()
			alice.redeemed(id, "claimed")
			asked := h.asksAbout()
			if asked.Code != string(api.OutcomeNotKnown) || asked.SessionKey != "agent:bob:main" {
				t.Errorf("asked is %+v", asked)
			}
			alice.redeemed(id, "unknown")
			if tc.decide == "" {
				// It had stored the claim, and knows.
				alice.must("approval.confirm", map[string]any{"claim": claim, "outcome": "sent"}, nil)
				wantWaiting(t, h, 0)
			} else {
				saw := h.shown(asked.ApprovalID)
				contains(t, saw.Content, promise)
				h.operates().must("approval.resolve", decision(tc.decide, &saw), nil)
			}
			if !tc.again {
				alice.redeemed(id, tc.state)
				return
			}
			alice.concludes(id, api.ApprovalApproved)
			again := alice.redeem(id)
			alice.refuse(api.Conflict, "approval.confirm", map[string]any{"claim": claim, "outcome": "sent"})
			alice.must("approval.confirm", map[string]any{"claim": again.Claim, "outcome": "sent"}, nil)
			alice.redeemed(id, "sent")
		})
	}
}

// killedWith has another process redeem an approval, and kills it once it has the claim.
func killedWith(t *testing.T, h *harness, id string) (claim string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), self(t), "-test.v", "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), "OCIPD_TEST_APPROVAL="+id, appHarness+"="+h.dir, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said []string
	for found := false; !found; claim, found = strings.CutPrefix(lines.Text(), "claim ") {
		if !lines.Scan() {
			t.Fatalf("the process ends without a claim: %v, %v\n%s", lines.Err(), cmd.Wait(), strings.Join(said, "\n"))
		}
		said = append(said, lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return claim
}

// With a key that it stored before, a returning client gets its claim again, until it has confirmed.
func TestRedeemAgainByKey(t *testing.T) {
	h := build(t, acme)
	alice := h.redeems()
	id := h.approved(alice)
	redeem := func(key string) (r api.Redeemed) {
		alice.must("approval.redeem", map[string]any{"approvalId": id, "requestKey": key}, &r)
		return r
	}
	first := redeem("mine")
	h.stop()
	h.start()
	alice = h.redeems()
	if again := redeem("mine"); again.Claim != first.Claim || !again.Replayed || string(again.Data) != string(first.Data) {
		t.Errorf("again it is %+v", again)
	}
	alice.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": id, "requestKey": "another"})
	alice.Close()
	h.asksAbout()
	alice = h.redeems()
	late := redeem("mine")
	if !late.Replayed || late.Claim == first.Claim {
		t.Errorf("late it is %+v", late)
	}
	wantWaiting(t, h, 0)
	alice.must("approval.confirm", map[string]any{"claim": late.Claim, "outcome": "sent"}, nil)
	alice.refuse(api.Conflict, "approval.redeem", map[string]any{"approvalId": id, "requestKey": "mine"})
}

// An agent that speaks through a grant redeems like one with an app.
func TestGrantedRedeem(t *testing.T) {
	h := build(t, ungoverned)
	ann := h.speaker("ann")
	emit := m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": promise}}
	held := ann.must("agent.emit", emit)
	if held["held"] != true {
		t.Fatalf("not held: %v", held)
	}
	id := str(held, "approvalId")
	h.decides(api.DecideApprove, id)
	// It belongs to the agent, whichever connection asked.
	other := h.speaker("ann")
	if got := other.must("agent.redeemable", m{})["approvals"].([]any); len(got) != 1 || str(got[0].(m), "approvalId") != id {
		t.Errorf("redeemable is %v", got)
	}
	got := other.must("agent.redeem", m{"approvalId": id})
	ann.refuse(api.Conflict, "", "agent.redeem", m{"approvalId": id})
	other.must("agent.confirm", m{"claim": got["claim"], "outcome": "sent"})
	sent := ann.must("agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": "Hello"}})
	if sent["allowed"] != true {
		t.Errorf("not allowed: %v", sent)
	}
	ann.must("agent.confirm", m{"dispatchId": str(sent["data"].(m), "dispatchId"), "outcome": "not_sent"})
	ann.refuse(api.NotFound, "", "agent.confirm", m{"dispatchId": str(sent["data"].(m), "dispatchId"), "outcome": "not_sent"})
	if r := h.records(audit.Filter{Like: audit.Record{Event: "not_taken"}}); len(r) != 1 || r[0].DispatchID != str(sent["data"].(m), "dispatchId") || r[0].AgentID != "agent-ann-1" {
		t.Errorf("on record is %+v", r)
	}
	ann.refuse(api.InvalidParams, "", "agent.emit", m{"hookName": "agent_completed", "data": emit["data"]})
}

// If nobody has read an allow, another record says so, and its round stays used.
func TestNobodyTookTheAllow(t *testing.T) {
	h := build(t, acme)
	alice := h.registered("@acme/alice", `{}`)
	alice.write(alice.request("1", "hook.emit", `{"hookName":"message_sending","data":{"sessionKey":"agent:bob:main","content":"Is it done?","metadata":{"exchange":{"new":true}}}}`) + "\n")
	// It is decided, and the answer is never read.
	decided := audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, PolicyResult: "allow"}}
	waitFor(t, "the decision", func() bool { return len(h.records(decided)) == 1 })
	sent := h.records(decided)[0]
	alice.conn.Close()
	taken := audit.Filter{Like: audit.Record{Event: "not_taken", DispatchID: sent.DispatchID}}
	waitFor(t, "the record", func() bool { return len(h.records(taken)) == 1 })
	r := h.records(taken)[0]
	if r.Round != 1 || r.ExchangeID != sent.ExchangeID || r.ApprovalID != "" {
		t.Errorf("on record is %+v", r)
	}
	// An allow that was read has no such record.
	again := h.agent("@acme/alice")
	got := again.emit("message_sending", map[string]any{"sessionKey": "agent:bob:main", "content": "And now?", "metadata": map[string]any{"exchange": map[string]any{"id": sent.ExchangeID}}}, nil)
	if !got.Allowed || got.OCIP.Round != 2 {
		t.Errorf("the next is %+v", got)
	}
	again.Close()
	h.stop()
	h.start()
	if r := h.records(audit.Filter{Like: audit.Record{Event: "not_taken"}}); len(r) != 1 {
		t.Errorf("on record are %+v", r)
	}
}

// A message that its runtime has given up before the decision is not decided.
func TestEmitOfWhoHasLeft(t *testing.T) {
	h := build(t, watched)
	// A slow interceptor that must answer.
	dlp := h.interceptor("@acme/dlp", true)
	alice := h.register("@acme/alice", api.Capabilities{}, client.WithDropEvents())
	alice.must("app.ready", nil, nil)
	go alice.call("hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "agent:bob:main", "content": "Is it done?", "metadata": fresh(nil)}}, nil) // it leaves
	asked := dlp.message("hook:message_sending")
	alice.Close()
	dlp.must("hook.result", map[string]any{"eventId": asked.EventID, "result": map[string]any{}}, nil)
	waitFor(t, "the end of the connection", func() bool {
		return len(h.records(audit.Filter{Like: audit.Record{AppID: "@acme/alice", Event: "lost"}})) == 1
	})
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}); len(r) != 0 {
		t.Errorf("on record is %+v", r)
	}
}

// A message approved for an agent does not go to a later holder of its id in another tenant, whether
// that holder has an instance id of its own or the former one.
func TestRedeemedByTheNextOfAnID(t *testing.T) {
	for _, instance := range []string{"agent-ann-2", "agent-ann-1"} {
		t.Run(instance, func(t *testing.T) { redeemedByTheNext(t, instance) })
	}
}

func redeemedByTheNext(t *testing.T, instance string) {
	h := build(t, ungoverned)
	waits := str(h.speaker("ann").must("agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": promise + " Again."}}), "approvalId")
	ann := h.speaker("ann")
	held := ann.must("agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": promise}})
	id := str(held, "approvalId")
	once := m{"to": "alice", "text": "Of acme alone.", "request_key": "first"}
	ann.must("agent.send", once)
	h.decides(api.DecideApprove, id)
	h.configure(strings.Replace(ungoverned, "{id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme-corp",
		"{id: ann, instance_id: "+instance+", user_id: anna, org_unit: sales, tenant_id: globex-inc", 1))
	h.operator("policy.reload", m{}, nil)
	next := h.speaker("ann")
	if got := next.must("agent.redeemable", m{})["approvals"].([]any); len(got) != 0 {
		t.Errorf("another tenant's agent can redeem %v", got)
	}
	next.refuse(api.NotFound, "", "agent.redeem", m{"approvalId": id})
	next.refuse(api.NotFound, "", "agent.approval", m{"approval_id": id})
	next.refuse(api.NotFound, "", "agent.withdraw", m{"approvalId": id})
	next.refuse(api.NotFound, "", "agent.approval", m{"approval_id": waits})
	next.refuse(api.NotFound, "", "agent.withdraw", m{"approvalId": waits})
	// Nor does the latter learn what the former one has sent, by the former's key.
	next.refuse(api.Forbidden, "", "agent.send", once)
	next.must("agent.send", m{"to": "gus", "text": "Of globex.", "request_key": "first"})
}

// The holder of an agent's grant hears of changes to its requests, of nobody else's, and no
// longer than the grant lasts.
func TestAgentWatch(t *testing.T) {
	h := build(t, ungoverned)
	granted := h.taskOperator().must("task.grant", m{"agent": "ann"})
	c, err := client.Dial(t.Context(), h.path("run/kernel.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := c.Stream(t.Context(), "agent.watch", nil); err != nil {
		t.Fatal(err)
	} else if _, err := nextOf(t, s); api.AsError(err).Code != api.AppNotRegistered {
		t.Errorf("nobody is told %v", err)
	}
	if err := c.Call(t.Context(), "task.attach", m{"token": granted["token"]}, nil); err != nil {
		t.Fatal(err)
	}
	s, err := c.Stream(t.Context(), "agent.watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if got, err := s.Next(ctx); err != nil || string(got) != want {
			t.Fatalf("told %s, %v, want %s", got, err, want)
		}
	}
	told(`{"caught":true}`)
	hold := func(agent, text string) string {
		held := h.speaker(agent).must("agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": text}})
		return str(held, "approvalId")
	}
	hold("ben", promise)
	for decision, state := range map[string]string{api.DecideApprove: api.ApprovalApproved, api.DecideDeny: api.ApprovalDenied} {
		id := hold("ann", promise+" "+decision)
		told(`{"approval_id":"` + id + `","status":"pending"}`)
		h.decides(decision, id)
		told(`{"approval_id":"` + id + `","status":"` + state + `"}`)
	}
	h.taskOperator().must("task.revoke_grant", m{"grant_id": granted["grant_id"]})
	hold("ann", promise+" again")
	if got, err := nextOf(t, s); err == nil {
		t.Errorf("told %s after the end of the grant", got)
	}
}

// If nobody heard the answer to a decision, its request key settles it, also after the
// daemon was killed: the message was not sent, its round stays used, and nothing waits.
func TestEmitWhoseAnswerWasLost(t *testing.T) {
	h := build(t, ungoverned)
	ann := h.speaker("ann")
	emit := func(key, text string) m {
		return ann.must("agent.emit", m{"requestKey": key, "hookName": "message_sending", "data": m{"sessionKey": "telegram:dave", "content": text}})
	}
	sent := str(emit("one", "Hello")["data"].(m), "dispatchId")
	held := str(emit("two", promise), "approvalId")
	emit("three", "Hello again")
	h.stop()
	h.start()
	ann = h.speaker("ann")
	ben := h.speaker("ben")
	ben.refuse(api.NotFound, "", "agent.confirm", m{"requestKey": "one", "outcome": "not_sent"})
	ann.refuse(api.NotFound, "", "agent.confirm", m{"requestKey": "none", "outcome": "not_sent"})
	ann.refuse(api.Conflict, "", "agent.confirm", m{"requestKey": "two", "outcome": "sent"})
	for _, key := range []string{"one", "two"} {
		ann.must("agent.confirm", m{"requestKey": key, "outcome": "not_sent"})
	}
	ann.must("agent.confirm", m{"requestKey": "three", "outcome": "unknown"})
	ann.refuse(api.NotFound, "", "agent.confirm", m{"requestKey": "one", "outcome": "not_sent"})
	ann.refuse(api.NotFound, "", "agent.confirm", m{"dispatchId": sent, "outcome": "not_sent"})
	if r := h.records(audit.Filter{Like: audit.Record{Event: "not_taken"}}); len(r) != 1 || r[0].DispatchID != sent {
		t.Errorf("on record is %+v", r)
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "outcome_unknown"}}); len(r) != 1 {
		t.Errorf("on record is %+v", r)
	}
	wantWaiting(t, h, 0)
	if r := h.records(audit.Filter{Like: audit.Record{Event: api.ApprovalRevoked}}); len(r) != 1 || r[0].ApprovalID != held {
		t.Errorf("on record is %+v", r)
	}
}

// A message that a process with a grant has received by itself is treated like the receiver's
// others: an agent's text binds the answer, another tenant's is refused, and both are recorded.
func TestGrantedReceives(t *testing.T) {
	h := build(t, ungoverned)
	ann := h.speaker("ann")
	received := func(key string) m {
		return ann.must("agent.emit", m{"hookName": "message_received", "data": m{"sessionKey": key, "content": "Is it done?"}})
	}
	if got := received("telegram:dave"); got["allowed"] != true || str(got["data"].(m), "content") != "Is it done?" {
		t.Errorf("from an agent it is %v", got)
	}
	if got := received("telegram:eve"); got["allowed"] == true || str(got["ocip"].(m), "code") != "CROSS_ENTERPRISE_BLOCKED" {
		t.Errorf("from another tenant's agent it is %v", got)
	}
	if got := received("telegram:stranger"); got["allowed"] != true {
		t.Errorf("from a stranger it is %v", got)
	}
	for _, key := range []string{"agent:ben:main", "agent:alice:main"} {
		ann.refuse(api.Forbidden, "", "agent.emit", m{"hookName": "message_received", "data": m{"sessionKey": key, "content": "x"}})
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "unannotated_message"}}); len(r) != 1 || r[0].AgentID != "agent-ann-1" || r[0].AppID != "@ocipd/agent:ann" || r[0].Counterparty.InstanceID != "agent-dave-1" {
		t.Errorf("on record is %+v", r)
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "human_message"}}); len(r) != 1 || r[0].Counterparty.Kind != "unknown" {
		t.Errorf("on record is %+v", r)
	}
	if r := h.records(audit.Filter{Like: audit.Record{Side: audit.SideReceiver, Code: "CROSS_ENTERPRISE_BLOCKED"}}); len(r) != 1 {
		t.Errorf("on record is %+v", r)
	}
}
