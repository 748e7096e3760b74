package daemon_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// pause pauses or resumes a scope.
func (h *harness) pause(method string, scope map[string]any) (result api.PauseResult) {
	h.t.Helper()
	if scope == nil {
		scope = map[string]any{}
	}
	h.operator("sending."+method, scope, &result)
	return result
}

// waits lists the waiting messages.
func (h *harness) waits(filter map[string]any) (list api.QueueListResult) {
	h.t.Helper()
	if filter == nil {
		filter = map[string]any{}
	}
	h.operator("queue.list", filter, &list)
	return list
}

// quiet fails if an app is sent an event with a name. Events sent before the answer to a
// call have come before it.
func (a *app) quiet(event string) {
	a.t.Helper()
	a.must("session.list", nil, nil)
	for {
		select {
		case in := <-a.Events():
			if in.Event == event {
				a.t.Errorf("%s was sent %s: %s", a.id, event, in.Payload)
			}
		default:
			return
		}
	}
}

// New messages of a paused scope are refused, and its waiting ones stay; other scopes work
// as ever, and a restart changes nothing.
func TestPause(t *testing.T) {
	h := build(t, acme)
	telegram, irc := h.channel("@openclawos/telegram", "telegram"), h.channel("@openclawos/irc", "irc")
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	refused := func(a *app, session, why string) {
		t.Helper()
		e := a.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": session, "content": "hello", "metadata": fresh(nil)})
		if code := ocipCode(t, e); code != string(ocip.Paused) {
			t.Errorf("%s to %s is refused for %s", a.id, session, code)
		}
		contains(t, e.Message, why)
	}
	if got := h.pause("pause", map[string]any{"agent": "alice", "note": "she spins"}); !got.Changed || len(got.Paused) != 1 || got.Paused[0].Agent != "alice" {
		t.Fatalf("alice's pause is %+v", got)
	}
	if got := h.pause("pause", map[string]any{"agent": "alice"}); got.Changed || got.AuditSeq != 0 {
		t.Errorf("the same pause again is %+v", got)
	}
	refused(alice, "telegram:dave", "agent alice")
	bob.dispatch("telegram:dave", "not paused", nil)
	telegram.message("hook:message_sending")
	h.pause("pause", map[string]any{"channel": "irc"})
	refused(bob, "irc:stranger", "channel irc")
	h.pause("resume", map[string]any{"agent": "alice"})
	alice.dispatch("telegram:dave", "goes on", fresh(nil))
	telegram.message("hook:message_sending")
	h.pause("pause", nil)

	// Also after a restart, and only a person can end it.
	h.restart()
	alice, bob = h.again(alice), h.again(bob)
	h.again(telegram)
	h.again(irc)
	for _, a := range []*app{alice, bob} {
		refused(a, "telegram:dave", "sending is paused")
		a.refuse(api.Forbidden, "sending.resume", map[string]any{})
	}
	e := alice.call("hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "telegram:dave", "content": "by itself"}}, nil)
	if e != nil {
		t.Error(e)
	}
	got := h.pause("resume", nil)
	if !got.Changed || len(got.Paused) != 1 || got.Paused[0].Scope != "channel:irc" || got.Paused[0].By == "" {
		t.Errorf("after all went on, %+v is paused", got.Paused)
	}
	refused(alice, "irc:stranger", "channel irc")
	if s := h.status(); len(s.Paused) != 1 || s.Paused[0].Channel != "irc" {
		t.Errorf("the status has %+v", s.Paused)
	}
	var events []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		if r.Event == "sending_paused" || r.Event == "sending_resumed" {
			events = append(events, r.Event+" "+r.Details["scope"].(string))
			if r.Details["by"] == nil {
				t.Errorf("nobody did %+v", r)
			}
		}
	}
	want := []string{"sending_paused agent:alice", "sending_paused channel:irc", "sending_resumed agent:alice", "sending_paused all", "sending_resumed all"}
	if !slices.Equal(events, want) {
		t.Errorf("on record is %q", events)
	}
}

// A pause of an unknown scope is refused, and so are two at once.
func TestPauseRefused(t *testing.T) {
	h := build(t, acme)
	person := h.operates()
	person.refuse(api.NotFound, "sending.pause", map[string]any{"agent": "nobody"})
	person.refuse(api.InvalidParams, "sending.pause", map[string]any{"agent": "alice", "channel": "irc"})
	if got := h.pause("resume", map[string]any{"agent": "nobody"}); got.Changed {
		t.Errorf("what was never paused goes on: %+v", got)
	}
}

// A message that was allowed before a pause and has not reached its app is held back, other users
// of the queue continue, and all messages arrive after the pause: each once, in its sender's order.
func TestPauseKeepsBackWhatWaits(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	// The channel's app is away: all of it waits.
	send := func(a *app, text string) { a.dispatch("telegram:stranger", text, nil) }
	for _, text := range []string{"1", "2"} {
		send(alice, "alice "+text)
		send(bob, "bob "+text)
	}
	h.pause("pause", map[string]any{"agent": "alice"})
	telegram := h.channel("@openclawos/telegram", "telegram")
	next := func(want ...string) {
		t.Helper()
		for _, text := range want {
			contains(t, telegram.message("hook:message_sending").Content, text)
		}
	}
	next("bob 1", "bob 2")
	send(bob, "bob 3")
	next("bob 3")
	telegram.quiet("hook:message_sending")
	list := h.waits(nil)
	if len(list.Messages) < 2 || list.Messages[0].Paused != "agent:alice" || list.Messages[0].Sender != "alice" || list.Messages[0].Handed {
		t.Errorf("what waits is %+v", list.Messages)
	}
	// Over a lost connection and a restart too.
	telegram.Close()
	<-telegram.Done()
	h.restart()
	alice, bob = h.again(alice), h.again(bob)
	telegram = h.channel("@openclawos/telegram", "telegram")
	send(bob, "bob 4")
	for {
		if m := telegram.message("hook:message_sending"); m.Content[:5] == "bob 4" {
			break // those before it may come again
		}
	}
	h.pause("resume", map[string]any{"agent": "alice"})
	send(alice, "alice 3")
	next("alice 1", "alice 2", "alice 3")
	telegram.quiet("hook:message_sending")
	// And then nothing waits any more.
	h.statusUntil("nothing waits", func(s api.Status) bool { return len(h.waits(nil).Messages) == 0 })
}

// Messages to a paused agent wait too.
func TestPauseOfTheReceiver(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	h.pause("pause", map[string]any{"agent": "bob"})
	alice.dispatch("agent:bob:main", "are you there?", nil)
	bob.quiet("hook:message_received")
	if got := h.waits(map[string]any{"agent": "alice"}); len(got.Messages) != 1 || got.Messages[0].Receiver != "bob" || got.Messages[0].Paused != "agent:bob" {
		t.Errorf("what waits is %+v", got.Messages)
	}
	if got := h.waits(map[string]any{"agent": "carol"}); len(got.Messages) != 0 {
		t.Errorf("of somebody else, %+v waits", got.Messages)
	}
	h.pause("resume", map[string]any{"agent": "bob"})
	contains(t, bob.message("hook:message_received").Content, "are you there?")
}

// An allowed message can be dropped until its delivery begins, with a record.
func TestQueueDrop(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	first, second := alice.dispatch("telegram:dave", "first", fresh(nil)), alice.dispatch("telegram:stranger", "second", nil)
	if list := h.waits(map[string]any{"channel": "telegram"}); len(list.Messages) != 2 || list.Messages[0].DispatchID != first.DispatchID || list.Messages[0].AuditSeq == 0 {
		t.Fatalf("what waits is %+v", list.Messages)
	}
	var got api.QueueDropResult
	h.operator("queue.drop", map[string]any{"dispatchIds": []string{first.DispatchID, "nonesuch"}, "note": "wrong person"}, &got)
	if len(got.Dropped) != 1 || got.Dropped[0].DispatchID != first.DispatchID || len(got.Kept) != 1 || got.Kept[0].DispatchID != "nonesuch" {
		t.Errorf("dropped is %+v", got)
	}
	telegram := h.channel("@openclawos/telegram", "telegram")
	if m := telegram.message("hook:message_sending"); m.DispatchID != second.DispatchID {
		t.Errorf("delivered is %+v", m)
	}
	telegram.quiet("hook:message_sending")
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: first.DispatchID}})
	if last := r[len(r)-1]; last.Event != "dropped" || last.Seq != got.Dropped[0].AuditSeq || last.Details["note"] != "wrong person" || last.Details["by"] == nil {
		t.Errorf("on record is %+v", last)
	}
	var failure *api.Error
	if err := alice.call("queue.drop", map[string]any{"dispatchIds": []string{second.DispatchID}}, nil); !errors.As(err, &failure) || failure.Code != api.Forbidden {
		t.Errorf("an app drops: %v", err)
	}
}

// A page of waiting messages continues after the previous one, over several queues.
func TestQueueListPages(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	var want, got []string
	for i := range 7 {
		want = append(want, alice.dispatch([]string{"irc:x", "telegram:y"}[i/4], "hello", nil).DispatchID)
	}
	for after := ""; ; {
		page := h.waits(map[string]any{"limit": 2, "after": after})
		for _, m := range page.Messages {
			got = append(got, m.DispatchID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// An acknowledged message does not wait, whatever is paused.
func TestPauseAndReceipts(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	telegram := h.channel("@openclawos/telegram", "telegram")
	h.pause("pause", map[string]any{"channel": "irc"})
	h.pause("pause", map[string]any{"agent": "alice"})
	bob.dispatch("telegram:stranger", "one", nil)
	m := telegram.message("hook:message_sending")
	telegram.answer(m.EventID, map[string]any{"delivered": true})
	if got := h.waits(nil); len(got.Messages) != 0 {
		t.Errorf("what was taken waits: %+v", got.Messages)
	}
	h.pause("resume", map[string]any{"agent": "alice"})
	alice.dispatch("telegram:stranger", "two", nil)
	contains(t, telegram.message("hook:message_sending").Content, "two")
}
