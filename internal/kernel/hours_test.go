package kernel_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/ocip"
)

// until is a policy that allows everything up to a time.
type until time.Time

func (u until) Evaluate(context.Context, ocip.PolicyInput) (ocip.PolicyAnswer, string, string, error) {
	return ocip.PolicyAnswer{Allow: time.Now().Before(time.Time(u)), Reason: "office hours"}, "hours", "1", nil
}

func (until) Lasts() bool { return false }

// A policy that reads the clock is asked again about a message that waits for a channel's app or
// for an agent, each time that somebody would get it.
func TestPolicyThatReadsTheClockIsAskedAgain(t *testing.T) {
	channel := func(w *world) *app {
		w.t.Helper()
		a := w.register("@acme/telegram", api.Capabilities{Channels: api.Provides{Provides: []string{"telegram"}}})
		if r, err := a.RegisterCapability(w.t.Context(), &api.CapabilityParams{Type: "channel", Config: map[string]jsontext.Value{"channelId": api.String("telegram")}}); err != nil || !r.Granted {
			w.t.Fatal(r, err)
		}
		if _, err := a.Subscribe(w.t.Context(), &api.HooksParams{Events: []string{"message_sending"}}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := a.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
			w.t.Fatal(err)
		}
		return a
	}
	agent := func(w *world) *app {
		w.t.Helper()
		a := w.register("@acme/alice", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}})
		if _, err := a.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
			w.t.Fatal(err)
		}
		return a
	}
	for name, tc := range map[string]struct {
		send  func(w *world) error
		to    func(w *world) *app
		event string
	}{
		"outgoing": {func(w *world) error {
			_, err := agent(w).dispatch(w.t.Context(), "telegram:dave")
			return err
		}, channel, "hook:message_sending"},
		"incoming": {func(w *world) error {
			_, _, err := channel(w).Queue(w.t.Context(), &api.QueueParams{SessionKey: "telegram:dave", Text: gate.NewText("hello"), Metadata: api.Object{
				"ocip": []byte(`{"version":"1.0","message_type":"agent-generated","classification":"internal","conversation_id":"conv-1","source_agent":{"instance_id":"agent-dave-1","user_id":"dave","org_unit":"engineering","tenant_id":"acme-corp"},"exchange_round":1,"max_rounds":3,"capabilities":{"can_commit":false,"can_share":["public","internal"]},"reply_policy":"agent-ok","requires_commitment":false,"expires_at":"2099-03-14T10:00:00.000Z"}`),
			}})
			return err
		}, agent, "hook:message_received"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *kernel.Config) { c.Directory.DefaultAgent = "alice" }, func(w *world) {
				adopt, err := w.Prepare(kernel.Terms{Config: w.cfg, Policy: until(time.Now().Add(time.Hour))})
				if err != nil {
					t.Fatal(err)
				}
				adopt.Do()
				if err := tc.send(w); err != nil {
					t.Fatal(err)
				}
				w.pass(2 * time.Hour)
				to := tc.to(w)
				w.pass(time.Second)
				if got := to.link.of(tc.event); len(got) != 0 {
					t.Errorf("after hours, it was delivered at %v", got)
				}
				r := w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, Event: "withdrawn"}})
				if len(r) != 1 || r[0].Details["code"] != string(ocip.PolicyDenied) {
					t.Errorf("on record is %+v", r)
				}
			})
		})
	}
}
