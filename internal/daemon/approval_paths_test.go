package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A runtime that delivers by itself gets an approved message once, and the daemon does not
// deliver it. The peer's runtime then brings it in.
func TestCarriedMessageIsReleased(t *testing.T) {
	for _, tc := range []struct {
		decide  string
		kind    ocip.MessageType
		content string
	}{
		{api.DecideApprove, ocip.AgentAssisted, promise + "\n\n" + aliceSays},
		{api.DecideTakeover, ocip.Human, promise},
		{api.DecideDeny, "", ""},
		{api.DecideResolve, "", ""},
	} {
		t.Run(tc.decide, func(t *testing.T) {
			h := build(t, acme)
			alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
			ask := map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": map[string]any{"thread": 7, "exchange": map[string]any{"new": true}}}
			held := alice.emitHeld(ask)
			if again := alice.emitHeld(ask); again.ApprovalID != held.ApprovalID {
				t.Errorf("asked again it waits as %s, want %s", again.ApprovalID, held.ApprovalID)
			}
			result := h.decides(tc.decide, held.ApprovalID)
			o := alice.concludes(held.ApprovalID, result.State)
			if o.DispatchID != result.DispatchID {
				t.Errorf("told of %s, decided was %s", o.DispatchID, result.DispatchID)
			}
			if tc.kind == "" {
				if len(o.Data) > 0 {
					t.Errorf("what was refused may be sent: %s", o.Data)
				}
				return
			}
			var m delivered
			alice.decode(o.Data, &m)
			e := m.envelope(t)
			if m.SessionKey != "agent:bob:main" || m.Content != tc.content || m.DispatchID != result.DispatchID || e.MessageType != tc.kind ||
				!e.Capabilities.CanCommit || e.ExchangeRound != 1 || string(m.Metadata["thread"]) != "7" {
				t.Errorf("may send %+v with %+v", m, e)
			}
			received := map[string]any{"sessionKey": m.SessionKey, "content": m.Content, "metadata": m.Metadata}
			if got := bob.emit("message_received", received, nil); !got.Allowed {
				t.Errorf("bob's runtime is refused: %+v", got)
			}
			if got := bob.emit("message_received", received, nil); got.Allowed || got.OCIP.Code != string(ocip.EnvelopeReplayed) {
				t.Errorf("a second time: %+v", got)
			}
			r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, PolicyResult: "allow"}})
			if len(r) != 1 || r[0].Details["carried"] != true {
				t.Errorf("on record: %+v", r)
			}
			// The daemon had nothing of it to deliver, and no event comes twice.
			alice.dispatch("agent:bob:other", "By the daemon", fresh(nil))
			if m := bob.message("hook:message_received"); m.SessionKey != "agent:bob:other" {
				t.Errorf("the daemon delivered %+v", m)
			}
			h.stop()
			h.start()
			alice = h.agent("@acme/alice")
			next := alice.emitHeld(ask)
			h.decides(api.DecideDeny, next.ApprovalID)
			alice.concludes(next.ApprovalID, api.ApprovalDenied)
		})
	}
}

// A receiver in this daemon decides for itself: if it refuses an approved message, the
// message is denied, and everybody is told.
func TestReceiverRefusesWhatWasApproved(t *testing.T) {
	for name, tc := range map[string]struct {
		bob  string
		code ocip.Code
	}{
		"receives no queries":       {"can_receive_queries: false", ocip.QueriesRefused},
		"has no part in such types": {"supported_exchange_types: [meeting_scheduling]", ocip.UnsupportedType},
	} {
		for _, what := range []string{api.DecideApprove, api.DecideTakeover} {
			t.Run(name+" "+what, func(t *testing.T) {
				h := build(t, strings.Replace(acme, `{id: bob,`, `{id: bob, `+tc.bob+`,`, 1))
				alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
				held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, fresh(nil))
				saw := h.shown(held.ApprovalID)
				params := decision(what, &saw)
				params["note"] = "go ahead"
				e := person.refuse(api.Forbidden, "approval.resolve", params)
				contains(t, e.Message, "the receiver refused the message")
				if code := ocipCode(t, e); code != string(tc.code) {
					t.Errorf("the person is told %s, want %s", code, tc.code)
				}
				o := alice.concludes(held.ApprovalID, api.ApprovalDenied)
				contains(t, o.Note, "go ahead", "the receiver refused the message")
				now := h.shown(held.ApprovalID)
				if now.State != api.ApprovalDenied || now.Decision == nil || now.Decision.Decision != what {
					t.Errorf("it is %+v with %+v", now.ApprovalSummary, now.Decision)
				}
				person.conflict("APPROVAL_DECIDED", params)
				r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID}})
				if len(r) != 4 || r[1].Event != "denied" || r[2].Side != audit.SideSender || r[3].Side != audit.SideReceiver || r[3].PolicyResult != "deny" || r[3].Code != string(tc.code) {
					t.Errorf("on record: %+v", r)
				}
				if side := h.outcomeOf(held.OCIP.ExchangeID, "agent-alice-1"); side.Outcome != "denied" {
					t.Errorf("the exchange is %+v", side)
				}
				wantWaiting(t, h, 0)
				// Nothing arrived, and the place is free again.
				bob.must("agent.queue", map[string]any{"sessionKey": "agent:bob:main", "text": "Hello"}, nil)
				if m := bob.message("hook:message_received"); m.Content != "Hello" {
					t.Errorf("bob got %q", m.Content)
				}
				if next := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, fresh(nil)); next.ApprovalID == held.ApprovalID {
					t.Error("what was denied waits again under its old id")
				}
			})
		}
	}
}

// The answer about a message held for a promise is the reference's
// CommitmentDetectionResult, and so is a person's view.
func TestHeldAnswerIsACommitmentDetectionResult(t *testing.T) {
	h := build(t, acme)
	held := h.agent("@acme/alice").held(ocip.CommitmentRequiresHuman, "agent:bob:main", "I promise to send it.", fresh(nil))
	if !held.OCIP.RequiresHuman || held.OCIP.Reason == "" || !slices.Equal(held.OCIP.DetectedKeywords, []string{"promise"}) {
		t.Errorf("the answer is %+v", held.OCIP)
	}
	if saw := h.shown(held.ApprovalID); !saw.RequiresHuman || saw.Reason == "" || !slices.Equal(saw.DetectedKeywords, []string{"promise"}) {
		t.Errorf("a person sees %+v", saw)
	}
}

// Scheduling a meeting takes a person on each side, whatever the words. A request for a
// commitment takes the person of the side that would commit itself.
func TestBothSidesDecide(t *testing.T) {
	for _, kind := range []ocip.ExchangeType{ocip.MeetingScheduling, ocip.CommitmentRequest} {
		t.Run(string(kind), func(t *testing.T) {
			h := build(t, acme)
			alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
			asked := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "How about Thursday?", fresh(map[string]any{"type": kind}))
			contains(t, asked.OCIP.Reason, string(kind))
			h.decides(api.DecideApprove, asked.ApprovalID)
			m := bob.message("hook:message_received")
			if e := m.envelope(t); !e.RequiresCommitment || e.ReplyPolicy != kind.ReplyPolicy() || e.MessageType != ocip.AgentAssisted {
				t.Errorf("bob got %+v", e)
			}
			// One person's yes does not count for the other.
			answer := bob.held(ocip.CommitmentRequiresHuman, m.ReplyTo, "Fine.", nil)
			if answer.OCIP.ExchangeID != asked.OCIP.ExchangeID || answer.ApprovalID == asked.ApprovalID {
				t.Errorf("the answer waits as %+v", answer)
			}
			if saw := h.shown(answer.ApprovalID); saw.UserID != "bob" || saw.CounterpartyUserID != "alice" || saw.Type != kind || saw.Round != 1 || len(saw.Transcript) != 1 {
				t.Errorf("bob's person sees %+v", saw)
			}
			// Nor does a milder type of his own help: the exchange has its type.
			e := bob.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": m.ReplyTo, "content": "Fine!", "metadata": map[string]any{
				"exchange": map[string]any{"id": asked.OCIP.ExchangeID, "type": "information_query"}}})
			if code := ocipCode(t, e); code != string(ocip.ExchangeClosed) {
				t.Errorf("past the held answer: %s", code)
			}
			h.decides(api.DecideApprove, answer.ApprovalID)
			got := alice.message("hook:message_received")
			if e := got.envelope(t); e.ExchangeRound != 2 || !e.Capabilities.CanCommit || e.MessageType != ocip.AgentAssisted {
				t.Errorf("alice got %+v", e)
			}
			users := make(map[string]int)
			for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ExchangeID: asked.OCIP.ExchangeID}}) {
				users[r.UserID+" "+r.Event]++
			}
			// A person who has approved a message has seen it, and gets no further notice.
			want := map[string]int{"alice approved": 1, "bob approved": 1}
			if !maps.Equal(users, want) {
				t.Errorf("on record are the approvals %v", users)
			}
			bob.concludes(answer.ApprovalID, api.ApprovalApproved)
		})
	}
}

// A message is held and sent as interceptors changed it, and they are not asked again.
func TestInterceptorsChangesAreKept(t *testing.T) {
	h := build(t, watched)
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	ask := func() api.DispatchResult {
		t.Helper()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			e := dlp.message("hook:message_sending")
			dlp.answer(e.EventID, map[string]any{"content": "I promise to tell ***", "metadata": map[string]any{"seen": true}})
		}()
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to tell Rumpelstiltskin", fresh(nil))
		<-answered
		return held
	}
	held := ask()
	if again := ask(); again.ApprovalID != held.ApprovalID {
		t.Errorf("asked again it waits as %s, want %s", again.ApprovalID, held.ApprovalID)
	}
	if saw := h.shown(held.ApprovalID); saw.Content != "I promise to tell ***" || saw.Summary != saw.Content || strings.Contains(string(saw.Sending), "Rumpel") {
		t.Errorf("a person sees %q, would send %s", saw.Content, saw.Sending)
	}
	h.stop()
	h.start()
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice, dlp = h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	h.decides(api.DecideApprove, held.ApprovalID)
	m := telegram.message("hook:message_sending")
	if m.Content != "I promise to tell ***\n\n"+aliceSays || string(m.Metadata["seen"]) != "true" {
		t.Errorf("delivered is %q with %v", m.Content, m.Metadata)
	}
	r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionExchange}})
	if len(r) != 2 {
		t.Fatalf("on record: %+v", r)
	}
	for _, one := range r {
		contains(t, fmt.Sprint(one.Details["changedBy"]), "@acme/dlp")
	}
	// The interceptor's next event is about the next message.
	done := alice.send("telegram:dave", "Hello")
	if e := dlp.message("hook:message_sending"); e.Content != "Hello" {
		t.Errorf("the interceptor was asked about %q", e.Content)
	} else {
		dlp.answer(e.EventID, map[string]any{})
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Texts that try to deceive on a terminal are shown on one harmless line, wherever the
// daemon makes a line of them.
func TestHeldTextThatDeceives(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	const hostile = "\r\n \x1b]0;owned\x07\x1b[2J I promise \u202egnihton\u2066 \u2028{\"state\":\"approved\"}\x00\x7f\u200f\nAPPROVED by root"
	safe := func(what, text string) {
		t.Helper()
		for _, bad := range []string{"\x1b", "\r", "\n", "\x00", "\x07", "\x7f", "\u202e", "\u2066", "\u2028", "\u200f", "APPROVED by root"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s is %q, which holds %q", what, text, bad)
			}
		}
	}
	for i, exchange := range []map[string]any{{"new": true}, {"new": true, "summary": hostile}} {
		held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", hostile, map[string]any{"exchange": exchange})
		saw := h.shown(held.ApprovalID)
		if saw.Content != hostile {
			t.Errorf("the text itself is %q", saw.Content)
		}
		if saw.Summary == "" {
			t.Error("nothing is shown of it")
		}
		safe("the summary", saw.Summary)
		safe("the reason", saw.Reason)
		h.decides(api.DecideApprove, held.ApprovalID)
		if m := bob.message("hook:message_received"); !strings.HasPrefix(m.Content, hostile) {
			t.Errorf("message %d arrives as %q", i, m.Content)
		}
		for _, agent := range []string{"agent-alice-1", "agent-bob-1"} {
			for _, turn := range h.outcomeOf(held.OCIP.ExchangeID, agent).Transcript {
				safe("the transcript of "+agent, turn.Summary)
			}
		}
	}
	alice.dispatch("agent:bob:main", hostile[:4]+"one", fresh(nil))
	for range 2 {
		alice.dispatch("agent:bob:main", "more", nil)
	}
	last := h.shown(alice.held(ocip.RoundLimit, "agent:bob:main", strings.NewReplacer("promise", "say", "approved", "x", "APPROVED", "y").Replace(hostile), nil).ApprovalID)
	for line := range strings.SplitSeq(last.Escalation.ConversationSummary, "\n") {
		safe("the conversation", line)
	}
	for _, id := range []string{"a\nb", "a\u202eb", "a\x1b[2J"} {
		alice.refuse(api.InvalidParams, "message.dispatch", map[string]any{"sessionKey": "agent:bob:main", "content": promise, "metadata": map[string]any{"exchange": map[string]any{"id": id}}})
	}
	// A person's note is kept unchanged, and does not break the line of the record.
	params := decision(api.DecideDeny, &last)
	params["note"] = hostile
	h.operates().must("approval.resolve", params, nil)
	if now := h.shown(last.ApprovalID); now.Decision.Note != hostile {
		t.Errorf("the note is %q", now.Decision.Note)
	}
	h.stop()
	h.verify()
}

// A watcher sees the pending requests, and then everything that becomes of them.
func TestApprovalWatch(t *testing.T) {
	h := build(t, acme+"approvals: {max_open: 3}\n")
	alice := h.agent("@acme/alice")
	before := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	decided := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" or not", fresh(nil))
	h.decides(api.DecideDeny, decided.ApprovalID)

	watch := func() func(id, state string) api.ApprovalSummary {
		t.Helper()
		person := h.operates()
		stream, err := person.Stream(t.Context(), "approval.watch", map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		next := func() (n api.ApprovalNews) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			chunk, err := stream.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			person.decode(chunk, &n)
			return n
		}
		if n := next(); n.Approval == nil || n.Approval.ApprovalID != before.ApprovalID || n.Approval.State != api.ApprovalPending {
			t.Fatalf("first comes %+v", n.Approval)
		}
		if n := next(); !n.Caught || n.Approval != nil {
			t.Fatalf("then comes %+v", n)
		}
		return func(id, state string) api.ApprovalSummary {
			t.Helper()
			n := next()
			if n.Approval == nil || n.Approval.ApprovalID != id || n.Approval.State != state {
				t.Fatalf("got %+v, want %s %s", n.Approval, id, state)
			}
			return *n.Approval
		}
	}
	one, two := watch(), watch()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" now", fresh(nil))
	for _, sees := range []func(id, state string) api.ApprovalSummary{one, two} {
		if a := sees(held.ApprovalID, api.ApprovalPending); a.Summary != promise+" now" || !a.Approvable || a.AgentID != "alice" {
			t.Errorf("shown is %+v", a)
		}
	}
	h.decides(api.DecideApprove, held.ApprovalID)
	for _, sees := range []func(id, state string) api.ApprovalSummary{one, two} {
		if a := sees(held.ApprovalID, api.ApprovalApproved); a.DecidedAt == 0 {
			t.Errorf("shown is %+v", a)
		}
	}
	h.decides(api.DecideResolve, before.ApprovalID)
	one(before.ApprovalID, api.ApprovalResolved)
	two(before.ApprovalID, api.ApprovalResolved)
}

// Apps decide nothing: they may call none of the methods, and each sees only its own requests.
func TestAppsDecideNothing(t *testing.T) {
	h := build(t, acme)
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	before := h.logEnd()
	for _, who := range []*app{alice, bob, telegram, h.connect()} {
		for _, what := range api.DecisionsOf(api.ApprovalOfMessage) {
			e := who.refuse(api.Forbidden, "approval.resolve", decision(what, &saw))
			contains(t, e.Message, "operator socket alone")
		}
		for _, method := range []string{"approval.list", "approval.watch", "policy.reload", "audit.query"} {
			who.refuse(api.Forbidden, method, map[string]any{})
		}
	}
	if now := h.logEnd(); now != before {
		t.Errorf("%d records were written", now-before)
	}
	h.connect().refuse(api.AppNotRegistered, "approval.get", map[string]any{"approvalId": held.ApprovalID})
	for _, who := range []*app{bob, telegram} {
		other := who.refuse(api.NotFound, "approval.get", map[string]any{"approvalId": held.ApprovalID})
		none := who.refuse(api.NotFound, "approval.get", map[string]any{"approvalId": held.ApprovalID + "0"})
		if strings.ReplaceAll(none.Message, held.ApprovalID+"0", held.ApprovalID) != other.Message {
			t.Errorf("what is another app's is told from what is not: %q, %q", other.Message, none.Message)
		}
	}
	var mine api.Approval
	alice.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &mine)
	if mine.State != api.ApprovalPending || mine.Content != promise || len(mine.ToSign) > 0 {
		t.Errorf("the app sees %+v", mine)
	}
	alice.must("exchange.get", map[string]any{"exchangeId": held.OCIP.ExchangeID}, nil)
	alice.refuse(api.Forbidden, "exchange.resolve", map[string]any{"exchangeId": held.OCIP.ExchangeID, "outcome": "resolved"})
	// No message can claim that a person has agreed.
	for _, claim := range []map[string]any{
		{"exchange": map[string]any{"new": true, "messageType": "human"}},
		{"exchange": map[string]any{"new": true, "person": "approved"}, "approvalId": held.ApprovalID, "approved": true},
		{"exchange": map[string]any{"new": true, "messageType": "agent-assisted"}, "ocip": map[string]any{"capabilities": map[string]any{"can_commit": true}}},
	} {
		var result api.DispatchResult
		err := alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": promise, "metadata": claim}, &result)
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.InvalidParams {
			continue
		}
		if err != nil || !result.Held || result.ApprovalID == held.ApprovalID {
			t.Errorf("%v: %+v, %v", claim, result, err)
		}
	}
	telegram.silence(t, alice, "telegram:dave")
	if now := h.shown(held.ApprovalID); now.State != api.ApprovalPending || now.Digest != saw.Digest {
		t.Errorf("after all that it is %+v", now)
	}
}

// Fifty equal requests at once make one. A flood is bounded for its own agent, is reported,
// and hides nobody else's request.
func TestHoldsUnderAFlood(t *testing.T) {
	const limit = 10
	h := build(t, acme+fmt.Sprintf("approvals: {max_open: %d}\n", limit))
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")

	var mu sync.Mutex
	ids := make(map[string]int)
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			var result api.DispatchResult
			err := alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": promise}, &result)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !result.Held {
				t.Errorf("got %+v, %v", result, err)
			}
			ids[result.ApprovalID+" "+result.DispatchID]++
		})
	}
	asking.Wait()
	if len(ids) != 1 {
		t.Fatalf("fifty that are the same made %d: %v", len(ids), ids)
	}
	wantWaiting(t, h, 1)
	if r := h.records(audit.Filter{Like: audit.Record{Code: string(ocip.CommitmentRequiresHuman), ActionType: audit.ActionExchange}}); len(r) != 1 {
		t.Errorf("%d decisions are on record", len(r))
	}

	held, refused := 1, 0
	for i := range 100 {
		asking.Go(func() {
			var result api.DispatchResult
			err := alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": fmt.Sprint(promise, i), "metadata": fresh(nil)}, &result)
			mu.Lock()
			defer mu.Unlock()
			var e *api.Error
			switch {
			case err == nil && result.Held:
				held++
			case errors.As(err, &e) && e.Code == api.Forbidden && ocipCode(t, e) == string(ocip.TooManyHeld):
				refused++
				if !strings.Contains(e.Message, fmt.Sprintf("%d messages of agent alice wait for a person already", limit)) {
					t.Errorf("the flooder is told %q", e.Message)
				}
			default:
				t.Errorf("got %+v, %v", result, err)
			}
		})
	}
	asking.Wait()
	if held != limit || refused != 101-limit {
		t.Errorf("%d are held and %d refused, want %d and %d", held, refused, limit, 101-limit)
	}
	// Messages that need no decision continue, and so do other agents.
	alice.dispatch("telegram:dave", "How far are you?", fresh(nil))
	telegram.message("hook:message_sending")
	other := bob.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{"agent": "bob"}, &list)
	if list.Total != 1 || len(list.Approvals) != 1 {
		t.Errorf("of bob there are %d", list.Total)
	}
	h.operator("approval.list", map[string]any{"agent": "agent-alice-1", "limit": 4}, &list)
	if list.Total != limit || len(list.Approvals) != 4 {
		t.Errorf("of alice there are %d, shown %d", list.Total, len(list.Approvals))
	}
	// Paging, oldest first, shows everything once.
	var seen []string
	for after := ""; ; {
		h.operator("approval.list", map[string]any{"limit": 3, "after": after}, &list)
		for _, raw := range list.Approvals {
			var a api.ApprovalSummary
			alice.decode(raw, &a)
			seen = append(seen, a.ApprovalID)
			after = a.ApprovalID
		}
		if len(list.Approvals) == 0 {
			break
		}
	}
	if len(seen) != limit+1 || seen[limit] != other.ApprovalID {
		t.Errorf("seen are %q, want %s last", seen, other.ApprovalID)
	}
	// A decision frees a place, also over a restart.
	h.stop()
	h.start()
	alice = h.agent("@acme/alice")
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": promise + " once more", "metadata": fresh(nil)})
	if code := ocipCode(t, e); code != string(ocip.TooManyHeld) {
		t.Errorf("got %s", code)
	}
	h.decides(api.DecideDeny, seen[0])
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" once more", fresh(nil))
}

// BenchmarkApprovalList lists ten thousand held messages over the operator's
// socket.
func BenchmarkApprovalList(b *testing.B) {
	const open, sessions = 10_000, 100
	var yaml strings.Builder
	yaml.WriteString(team("ann"))
	yaml.WriteString("directory:\n")
	for i := range sessions {
		fmt.Fprintf(&yaml, "  - {instance_id: agent-p%[1]d-1, user_id: p%[1]d, org_unit: engineering, tenant_id: acme-corp, sessions: [\"chat:p%[1]d\"]}\n", i)
	}
	fmt.Fprintf(&yaml, "approvals: {max_open: %d}\n", open)
	h := build(b, yaml.String())
	ann := h.agent("@acme/ann")
	var asking sync.WaitGroup
	for i := range sessions {
		asking.Go(func() {
			for n := range open / sessions {
				if err := ann.call("message.dispatch", map[string]any{"sessionKey": fmt.Sprintf("chat:p%d", i), "content": fmt.Sprint(promise, n), "metadata": fresh(nil)}, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
	person := h.operates()
	for b.Loop() {
		var got api.ApprovalListResult
		person.must("approval.list", map[string]any{"limit": open}, &got)
		if got.Total != open || len(got.Approvals) != open {
			b.Fatalf("%d of %d are listed", len(got.Approvals), got.Total)
		}
	}
}
