package daemon_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// restart ends the daemon and starts it on its state.
func (h *harness) restart() {
	h.t.Helper()
	h.stop()
	h.start()
}

// again connects like an app of the SDK whose connection ended: with its token, without registering.
func (h *harness) again(a *app) *app {
	h.t.Helper()
	b := h.connect(client.WithToken(a.Token()))
	b.id = a.id
	return b
}

// events lists the records of an app's life.
func (h *harness) events(id string) (events []string) {
	h.t.Helper()
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, AppID: id}}) {
		events = append(events, r.Event)
	}
	return events
}

// An app continues over restarts with everything it had, including the order of interceptors.
func TestResume(t *testing.T) {
	h := build(t, watched+"\nhooks: {wait: 1h, answer: 1h}\n")
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	first, second := h.interceptor("@acme/first", true), h.interceptor("@acme/second", false)
	for range 2 {
		h.restart()
		// They return in another order.
		second, first = h.again(second), h.again(first)
		telegram, alice = h.again(telegram), h.again(alice)
		for _, a := range []*app{second, first, telegram, alice} {
			a.must("app.heartbeat", map[string]any{"status": map[string]any{"status": "healthy"}}, nil)
		}
		done := alice.send("telegram:dave", "hello")
		first.answer(first.message("hook:message_sending").EventID, map[string]any{"content": "hello, changed"})
		m := second.message("hook:message_sending")
		contains(t, m.Content, "hello, changed")
		second.answer(m.EventID, map[string]any{})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		contains(t, telegram.message("hook:message_sending").Content, "hello, changed")
	}
	if got := h.events("@acme/alice"); len(got) != 3 || got[0] != "registered" || got[1] != "resumed" || got[2] != "resumed" {
		t.Errorf("on record is %q", got)
	}
}

// Capabilities that an app got or gave up after it was ready are kept too.
func TestResumeKeepsChanges(t *testing.T) {
	h := build(t, acme)
	a := h.register("@openclawos/chat", api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram", "irc"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sent", "session_start"}},
	})
	var irc api.CapabilityResult
	a.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "irc"}}, &irc)
	a.must("hook.subscribe", map[string]any{"events": []string{"session_start"}}, nil)
	a.must("app.ready", nil, nil)
	a.must("capability.unregister", map[string]any{"capabilityId": irc.CapabilityID}, nil)
	a.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, nil)
	a.must("hook.unsubscribe", map[string]any{"events": []string{"session_start"}}, nil)
	a.must("hook.subscribe", map[string]any{"events": []string{"message_sent"}}, nil)
	h.restart()
	a = h.again(a)
	a.must("app.heartbeat", nil, nil)
	var status api.Status
	h.operator("kernel.status", nil, &status)
	if len(status.Apps) != 1 || !status.Apps[0].Ready || !slices.Equal(status.Apps[0].Capabilities, []string{"channel:telegram"}) || !slices.Equal(status.Apps[0].Hooks, []string{"message_sent"}) {
		t.Fatalf("the apps are %+v", status.Apps)
	}
	alice := h.agent("@acme/alice")
	if sent := alice.dispatch("irc:stranger", "hello", nil); !sent.Waiting {
		t.Error("a channel that was given back is there again")
	}
	// The channel that came after app.ready is still there.
	alice.dispatch("telegram:dave", "hello", nil)
	a.message("hook:message_sending")
}

// An app also resumes after its connection ended while the daemon lives.
func TestResumeAfterLoss(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	for _, a := range []*app{telegram, alice} {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	telegram, alice = h.again(telegram), h.again(alice)
	alice.dispatch("telegram:dave", "hello", nil)
	telegram.must("session.list", nil, nil)
	telegram.message("hook:message_sending")
	// A connection that the daemon still considers open gives way.
	other := h.again(alice)
	other.must("app.heartbeat", nil, nil)
	<-alice.Done()
}

// An app that cannot resume has to register.
func TestResumeRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		// token returns a worthless token.
		token func(h *harness) string
	}{
		{"never given", func(*harness) string { return "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" }},
		{"not ready", func(h *harness) string { return h.register("@acme/alice", api.Capabilities{}).Token() }},
		{"shut down", func(h *harness) string {
			a := h.agent("@acme/alice")
			a.must("app.shutdown", nil, nil)
			<-a.Done()
			return a.Token()
		}},
		{"registered anew", func(h *harness) string {
			a := h.agent("@acme/alice")
			h.register("@acme/alice", api.Capabilities{}, client.WithToken(a.Token()))
			return a.Token()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := build(t, acme)
			token := tc.token(h)
			for range 2 {
				h.restart()
				h.connect(client.WithToken(token)).refuse(api.AppNotRegistered, "app.heartbeat", nil)
			}
		})
	}
}

// A resumed app may still register, as apps do that listen for their connection, and its
// old token ends then.
func TestResumeThenRegister(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	old := alice.Token()
	h.restart()
	alice = h.again(alice)
	alice.must("app.heartbeat", nil, nil)
	if _, err := alice.Register(t.Context(), manifest("@acme/alice", api.Capabilities{})); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Register(t.Context(), manifest("@acme/alice", api.Capabilities{})); err == nil {
		t.Error("it registered twice on one connection")
	}
	alice.must("app.ready", nil, nil)
	h.restart()
	h.connect(client.WithToken(old)).refuse(api.AppNotRegistered, "app.heartbeat", nil)
	h.again(alice).must("app.heartbeat", nil, nil)
}

// A channel that another app took meanwhile stays with it.
func TestResumeChannelTaken(t *testing.T) {
	h := build(t, acme)
	was, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	h.restart()
	now := h.channel("@openclawos/other", "telegram")
	was, alice = h.again(was), h.again(alice)
	was.must("app.heartbeat", nil, nil)
	alice.dispatch("telegram:dave", "hello", nil)
	now.message("hook:message_sending")
	// Over another restart too, in either order.
	h.restart()
	was, now, alice = h.again(was), h.again(now), h.again(alice)
	was.must("app.heartbeat", nil, nil)
	now.must("app.heartbeat", nil, nil)
	alice.dispatch("telegram:dave", "hello again", nil)
	contains(t, now.message("hook:message_sending").Content, "again")
}

// An app whose agent was bound to another program meanwhile cannot resume.
func TestResumeBinding(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.stop()
	h.configure(`agents: [{id: alice, app: "@acme/alice", exe: /usr/bin/true, instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}]`)
	h.start()
	// One record, however often the SDK asks.
	refused := h.again(alice)
	for range 3 {
		refused.refuse(api.Forbidden, "app.heartbeat", nil)
	}
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, AppID: "@acme/alice"}}); len(got) != 1 || got[0].Event != "binding_refused" {
		t.Errorf("on record is %+v", got)
	}
}

// An app that resumes and then may not register anew is gone, with a record.
func TestResumeThenRefused(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	h.restart()
	alice, bob = h.again(alice), h.again(bob)
	alice.must("app.heartbeat", nil, nil)
	bob.must("app.heartbeat", nil, nil)
	h.reloaded(strings.Replace(acme, `app: "@acme/alice"`, `app: "@acme/alice", exe: /usr/bin/true`, 1))
	if _, err := alice.Register(t.Context(), manifest("@acme/alice", api.Capabilities{})); err == nil {
		t.Fatal("it registered as what it is not")
	}
	if got := h.events("@acme/alice"); !slices.Equal(got, []string{"registered", "resumed", "lost"}) {
		t.Errorf("on record is %q", got)
	}
}

// A handler's return value that is not a receipt is no error: the SDK sends any value, and
// ends at an unhandled error.
func TestAnswerThatIsNoReceipt(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "hello", nil)
	m := telegram.message("hook:message_sending")
	for _, result := range []any{true, nil, "sent", 7, []int{1}, map[string]any{}, map[string]any{"messageId": 12}, map[string]any{"delivered": "yes"}} {
		var said api.OK
		if telegram.must("hook.result", map[string]any{"eventId": m.EventID, "result": result}, &said); said.OK {
			t.Errorf("%v was taken for a receipt", result)
		}
	}
	telegram.answer(m.EventID, map[string]any{"delivered": true})
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}); len(got) != 1 || got[0].Event != "delivered" {
		t.Errorf("on record is %+v", got)
	}
}

// Only the process that registered can resume, and the stored state does not contain its token.
func TestResumeOfAnotherProcess(t *testing.T) {
	for _, member := range []string{"pid", "uid"} {
		t.Run(member, func(t *testing.T) {
			h := build(t, acme)
			alice := h.agent("@acme/alice")
			h.stop()
			s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			kept, err := s.Meta(t.Context(), "app:@acme/alice")
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(kept, []byte(alice.Token())) {
				t.Errorf("the token is kept: %s", kept)
			}
			other := bytes.Replace(kept, []byte(`"`+member+`":`), []byte(`"`+member+`":1`), 1)
			if bytes.Equal(other, kept) {
				t.Fatalf("no %s in %s", member, kept)
			}
			if _, err := s.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: "app:@acme/alice", Value: other}}}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			h.start()
			h.again(alice).refuse(api.AppNotRegistered, "app.heartbeat", nil)
		})
	}
}

// Unreadable state of an app does not keep the daemon from starting.
func TestResumeUnreadable(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.stop()
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	change := &store.Change{Parts: []store.Part{store.Meta{Key: "app:@acme/alice", Value: []byte("{")}, store.Meta{Key: "app:x", Value: []byte(`{"token":""}`)}}}
	if _, err := s.Commit(change); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.again(alice).refuse(api.AppNotRegistered, "app.heartbeat", nil)
	h.agent("@acme/alice")
}
