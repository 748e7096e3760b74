package daemon_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// guards are the apps of these tests with rights to others' messages, and the channels'
// owners, which must be declared then too.
const guards = `
access:
  apps:
    "@acme/dlp": {intercepts: ["*"], observes: ["*"]}
    "@acme/dlp2": {intercepts: ["*"]}
    "@acme/first": {intercepts: ["*"]}
    "@acme/second": {intercepts: ["*"]}
    "@acme/guard": {intercepts: ["*"]}
    "@acme/other": {intercepts: ["*"]}
    "@acme/silent": {intercepts: ["*"]}
    "@acme/observer": {observes: ["*"]}
    "@acme/watcher": {observes: ["*"]}
    "@openclawos/telegram": {channels: [telegram]}
    "@openclawos/irc": {channels: [irc]}
    "@openclawos/chat": {channels: [chat]}
    "@openclawos/sms": {channels: [sms]}
    "@acme/telegram": {channels: [telegram]}
`

// watched is the company with such apps.
const watched = acme + guards

// quickHooks shortens the time that silent interceptors cost a test.
const quickHooks = watched + `
hooks: {wait: 150ms, answer: 300ms}
`

// interceptor is an app that intercepts outgoing messages. mustAnswer declares it an
// interceptor, whose silence blocks.
func (h *harness) interceptor(id string, mustAnswer bool) *app {
	h.t.Helper()
	a := h.register(id, api.Capabilities{Hooks: api.HookDeclaration{Intercepts: []string{"message_sending"}}})
	if mustAnswer {
		var granted api.CapabilityResult
		a.must("capability.register", map[string]any{"type": "hook", "config": map[string]any{"event": "message_sending", "intercept": true}}, &granted)
		if !granted.Granted {
			h.t.Fatal(granted.Reason)
		}
	}
	a.must("hook.subscribe", map[string]any{"events": []string{"message_sending"}}, nil)
	a.must("app.ready", nil, nil)
	return a
}

// send dispatches in the background, while the test plays the interceptors.
func (a *app) send(session, content string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- a.call("message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}}}, nil)
	}()
	return done
}

func (a *app) answer(eventID string, result any) {
	a.t.Helper()
	a.must("hook.result", map[string]any{"eventId": eventID, "result": result}, nil)
}

func codeOf(t *testing.T, err error) (api.Code, string) {
	t.Helper()
	var failure *api.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want an error of the protocol", err)
	}
	return failure.Code, ocipCode(t, failure)
}

func TestInterceptorsRunInOrderOnEachOthersOutput(t *testing.T) {
	h := build(t, watched)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	first, second := h.interceptor("@acme/first", true), h.interceptor("@acme/second", true)
	done := alice.send("telegram:dave", "one")

	m := first.message("hook:message_sending")
	first.answer(m.EventID, map[string]any{"channelId": "telegram", "target": "dave", "content": m.Content + " two", "metadata": map[string]any{"seen": "first"}})
	m = second.message("hook:message_sending")
	if m.Content != "one two" || string(m.Metadata["seen"]) != `"first"` {
		t.Errorf("the second interceptor got %q %v", m.Content, m.Metadata)
	}
	second.answer(m.EventID, map[string]any{"content": m.Content + " three"})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := telegram.message("hook:message_sending")
	if want := "one two three\n\n" + aliceSays; got.Content != want {
		t.Errorf("delivered %q, want %q", got.Content, want)
	}
	if string(got.Metadata["seen"]) != `"first"` {
		t.Errorf("the first interceptor's metadata is lost: %v", got.Metadata)
	}
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: got.DispatchID}})
	if len(r) != 1 || r[0].Details["changedBy"] == nil {
		t.Errorf("the record does not say who changed the message: %+v", r)
	}
}

func TestInterceptorBlocks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result any
		reason string
	}{
		{"null", nil, "blocked it"},
		{"block with reason", map[string]any{"block": true, "reason": "names a customer"}, "blocked it"},
		{"another recipient", map[string]any{"content": "x", "target": "eve"}, "changed the recipient"},
		{"not a message", "fine", "no object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := build(t, watched)
			h.channel("@openclawos/telegram", "telegram")
			alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
			done := alice.send("telegram:dave", "secret")
			dlp.answer(dlp.message("hook:message_sending").EventID, tc.result)
			err := <-done
			if code, ocipCode := codeOf(t, err); code != api.Forbidden || ocipCode != string(ocip.InterceptorBlocked) {
				t.Errorf("got %v", err)
			}
			contains(t, err.Error(), tc.reason)
			r := h.records(audit.Filter{Like: audit.Record{Code: string(ocip.InterceptorBlocked)}})
			if len(r) != 1 || r[0].PolicyApplied != "interceptor:@acme/dlp" {
				t.Errorf("records are %+v", r)
			}
			// The interceptor's reason is recorded, and the sender does not see it.
			if strings.Contains(err.Error(), "customer") || tc.name == "block with reason" && r[0].Details["cause"] != "names a customer" {
				t.Errorf("%v; on record is %v", err, r[0].Details)
			}
		})
	}
}

// The stock SDK sends no hook.result when a handler returns nothing.
func TestInterceptorThatOnlySubscribedMayStaySilent(t *testing.T) {
	h := build(t, quickHooks)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	silent := h.interceptor("@acme/silent", false)
	done := alice.send("telegram:dave", "hello")
	m := silent.message("hook:message_sending")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	telegram.message("hook:message_sending")
	silent.missed(m.EventID, "too late")
	silent.missed(m.EventID, "answered already")
}

func TestInterceptorThatMustAnswerBlocksBySilence(t *testing.T) {
	h := build(t, quickHooks)
	h.channel("@openclawos/telegram", "telegram")
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	done := alice.send("telegram:dave", "hello")
	dlp.message("hook:message_sending")
	if code, ocipCode := codeOf(t, <-done); code != api.Timeout || ocipCode != string(ocip.InterceptorTimeout) {
		t.Errorf("got %s %s", code, ocipCode)
	}
}

func TestInterceptorThatDiesBlocks(t *testing.T) {
	h := build(t, watched+"\nhooks: {answer: 1h}\n")
	h.channel("@openclawos/telegram", "telegram")
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	done := alice.send("telegram:dave", "hello")
	dlp.message("hook:message_sending")
	dlp.Close()
	if code, _ := codeOf(t, <-done); code != api.Timeout {
		t.Errorf("got %s", code)
	}
}

func TestRequiredInterceptorIsMissed(t *testing.T) {
	h := build(t, acme+"\nhooks: {apps: {\"@acme/dlp\": {required: true}}}\n")
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "hello"})
	contains(t, e.Message, "@acme/dlp is required and not connected")
	dlp := h.interceptor("@acme/dlp", false)
	done := alice.send("telegram:dave", "hello")
	dlp.answer(dlp.message("hook:message_sending").EventID, map[string]any{})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// missed gives an answer that must have no effect, and be no error.
func (a *app) missed(eventID, reason string) {
	a.t.Helper()
	var said api.OK
	a.must("hook.result", map[string]any{"eventId": eventID, "result": nil}, &said)
	if said.OK || !strings.Contains(said.Reason, reason) {
		a.t.Errorf("the answer is %+v, want %q", said, reason)
	}
}

// The stock SDK ends its process at an unhandled error, so a late, second or unrelated
// answer is no error (clients.md 3).
func TestHookResultsThatMiss(t *testing.T) {
	h := build(t, watched)
	h.channel("@openclawos/telegram", "telegram")
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	other := h.interceptor("@acme/other", false)
	outsider := h.register("@acme/outsider", api.Capabilities{})

	outsider.refuse(api.HookNotSubscribed, "hook.result", map[string]any{"eventId": "nonesuch", "result": nil})
	dlp.missed("nonesuch", "no such event")
	done := alice.send("telegram:dave", "hello")
	m := dlp.message("hook:message_sending")
	other.missed(m.EventID, "no such event")
	dlp.answer(m.EventID, map[string]any{})
	dlp.missed(m.EventID, "answered already")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The owner of a channel sees its own messages last, and may change them; an observer is
// told and not waited for.
func TestChannelOwnerAndObservers(t *testing.T) {
	h := build(t, watched+"\nhooks: {wait: 1h, answer: 1h}\n")
	telegram, irc := h.channel("@openclawos/telegram", "telegram"), h.channel("@openclawos/irc", "irc")
	alice := h.agent("@acme/alice")
	observer := h.register("@acme/observer", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_sending", "message_sent", "agent_starting"}}})
	var subscribed api.SubscribeResult
	observer.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "message_sent", "tool_executing", "nonesuch", "before_agent_start"}}, &subscribed)
	if len(subscribed.Subscribed) != 3 || len(subscribed.Denied) != 2 {
		t.Errorf("subscribed %v, denied %v", subscribed.Subscribed, subscribed.Denied)
	}
	observer.must("app.ready", nil, nil)

	sent := alice.dispatch("telegram:dave", "hello", nil)
	m := telegram.message("hook:message_sending")
	telegram.answer(m.EventID, map[string]any{"delivered": true})
	observer.message("hook:message_sending")
	observer.message("hook:message_sent")
	failed := alice.dispatch("irc:stranger", "hello", nil)
	m = irc.message("hook:message_sending")
	irc.answer(m.EventID, map[string]any{"delivered": false, "error": "no such nick"})
	var got []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}) {
		got = append(got, r.Event+" "+r.DispatchID)
	}
	if want := []string{"delivered " + sent.DispatchID, "failed " + failed.DispatchID}; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("receipts are %q, want %q", got, want)
	}
	// An event under an alias is answered under that name.
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:alice", "text": "hi"}, nil)
	alice.message("hook:message_received")
	if e := observer.next("hook:before_agent_start"); e.Event == "" {
		t.Error("no event under the alias")
	}
	// An app of one agent hears nothing of other agents' messages.
	bob := h.agent("@acme/bob")
	bob.must("hook.subscribe", map[string]any{"events": []string{"message_received"}}, nil)
	alice.must("agent.queue", map[string]any{"sessionKey": "agent:alice:main", "text": "for alice alone"}, nil)
	bob.must("agent.queue", map[string]any{"sessionKey": "agent:bob:main", "text": "for bob"}, nil)
	if m := bob.message("hook:message_received"); m.Content != "for bob" {
		t.Errorf("bob was shown %q", m.Content)
	}
	observer.must("hook.unsubscribe", map[string]any{"events": []string{"message_sent", "message_sent"}}, nil)
}

func TestAppLifecycle(t *testing.T) {
	h := build(t, acme+"\nhealth: {unhealthy_after: 200ms}\n")
	watcher := h.agent("@acme/bob")
	silent := h.agent("@acme/alice")
	beat := make(chan struct{})
	go func() {
		// The watcher stays alive meanwhile; the other app does not.
		defer close(beat)
		for i := 0; ; i++ {
			if watcher.call("app.heartbeat", map[string]any{"status": map[string]any{"n": i}}, nil) != nil {
				return
			}
		}
	}()
	watcher.next("app:unhealthy")
	silent.must("app.heartbeat", nil, nil)
	watcher.next("app:healthy")
	silent.must("app.shutdown", map[string]any{"reason": "done", "timeout": 1000}, nil)
	watcher.next("app:left")
	<-silent.Done()
	lost := h.register("@acme/lost", api.Capabilities{})
	lost.Close()
	watcher.next("app:lost")
	watcher.Close()
	<-beat
	var events []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, AppID: "@acme/alice"}}) {
		events = append(events, r.Event)
	}
	if len(events) < 5 || events[0] != "registered" || events[1] != "unhealthy" || events[2] != "healthy" || events[len(events)-1] != "left" {
		t.Errorf("alice's life is %q", events)
	}
}
