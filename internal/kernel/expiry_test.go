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

// holds is a policy that requires approval for one agent's messages.
type holds string

func (h holds) Evaluate(_ context.Context, in ocip.PolicyInput) (ocip.PolicyAnswer, string, string, error) {
	return ocip.PolicyAnswer{Allow: true, RequireApproval: in.Source.InstanceID == string(h)}, "holds", "1", nil
}

func (holds) Lasts() bool { return true }

// A hold that expires together with its exchange ends both sides at once, in one change.
func TestExpiredHoldEndsBothSides(t *testing.T) {
	const lasts = 90 * time.Second // a sweep looks every minute
	bubble(t, func(c *kernel.Config) {
		c.HoldFor, c.ExpiresAfter, c.AppsMayOperate = lasts, lasts, true
		bob := c.Directory.Agents[0]
		bob.App, bob.ID, bob.InstanceID, bob.UserID = "@acme/bob", "bob", "agent-bob-1", "bob"
		c.Directory.Agents = append(c.Directory.Agents, bob)
	}, func(w *world) {
		adopt, err := w.Prepare(kernel.Terms{Config: w.cfg, Policy: holds("agent-bob-1")})
		if err != nil {
			w.t.Fatal(err)
		}
		adopt.Do()
		alice, bob := w.register("@acme/alice", api.Capabilities{}), w.register("@acme/bob", api.Capabilities{})
		for _, a := range []*app{alice, bob} {
			if _, err := a.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
				w.t.Fatal(err)
			}
		}
		sent, _, err := alice.Dispatch(w.t.Context(), &api.DispatchParams{SessionKey: "agent:bob:main", Content: gate.NewText("hello")})
		if err != nil {
			w.t.Fatal(err)
		}
		held, _, err := bob.Dispatch(w.t.Context(), &api.DispatchParams{
			SessionKey: "agent:alice:main", Content: gate.NewText("hello, too"), Metadata: api.Object{"exchange": jsontext.Value(`{"id":"` + sent.OCIP.ExchangeID + `"}`)},
		})
		if err != nil || !held.Held {
			w.t.Fatalf("not held: %+v, %v", held, err)
		}
		saw := w.sees(held.ApprovalID)
		w.pass(lasts)
		_, err = w.decides(api.DecideApprove, saw)
		w.conflicts(err, "APPROVAL_DECIDED")
		for _, agent := range []string{"agent-alice-1", "agent-bob-1"} {
			if e, err := w.store.Exchange(w.t.Context(), agent, sent.OCIP.ExchangeID); err != nil || e.Outcome != ocip.Expired {
				w.t.Errorf("the side of %s is %s, %v", agent, e.Outcome, err)
			}
		}
		r := w.records(audit.Filter{Like: audit.Record{Event: "expired", AgentID: "agent-alice-1"}})
		if len(r) != 1 || r[0].ApprovalID != held.ApprovalID || r[0].ActionType != audit.ActionExchange {
			w.t.Errorf("the end of alice's side is on record as %+v", r)
		}
		alice.Gone()
		bob.Gone()
	})
}
