package kernel_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel"
)

// reload puts other terms in force.
func (w *world) reload(cfg kernel.Config) {
	w.t.Helper()
	adopt, err := w.Prepare(kernel.Terms{Config: cfg, Policy: allowAll{}})
	if err != nil {
		w.t.Fatal(err)
	}
	adopt.Do()
}

// A message that waits for an interceptor while the terms change begins again under the new terms:
// the interceptor is asked once more.
func TestMessageIsDecidedByTheTermsInForce(t *testing.T) {
	var cfg kernel.Config
	bubble(t, func(c *kernel.Config) { cfg = *c }, func(w *world) {
		filter := w.interceptor("@acme/filter", true)
		alice := w.register("@acme/alice", api.Capabilities{})
		filter.answers(2*time.Second, `{}`)
		var sending sync.WaitGroup
		sending.Go(func() {
			if _, err := alice.dispatch(w.t.Context(), "telegram:dave"); err != nil {
				w.t.Error(err)
			}
		})
		w.pass(time.Second)
		later := cfg
		later.MaxRounds, later.DefaultLevel = 2, 0
		w.reload(later)
		w.pass(1500 * time.Millisecond)
		filter.answers(0, `{}`)
		sending.Wait()
		filter.answers(0, `{}`)
		if _, _, err := alice.Dispatch(w.t.Context(), &api.DispatchParams{SessionKey: "telegram:dave", Content: gate.NewText("hello"), Metadata: api.Object{"exchange": []byte(`{"new":true}`)}}); err != nil {
			w.t.Fatal(err)
		}
		sent := w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}})
		if len(sent) != 2 || sent[0].MaxRounds != 2 || sent[0].Classification != "public" || sent[1].MaxRounds != 2 || sent[1].Classification != "public" {
			w.t.Errorf("on record are %+v", sent)
		}
	})
}

// An app's silence counts from its last sign of life, even if the new terms have another limit.
func TestHealthIsReloaded(t *testing.T) {
	var cfg kernel.Config
	bubble(t, func(c *kernel.Config) { cfg = *c }, func(w *world) {
		w.register("@acme/alice", api.Capabilities{})
		other := w.register("@acme/other", api.Capabilities{})
		w.pass(20 * time.Second)
		other.request()
		later := cfg
		later.UnhealthyAfter = 30 * time.Second
		w.reload(later)
		w.pass(25 * time.Second)
		synctest.Wait()
		if got := other.link.of("app:unhealthy"); !slices.Equal(got, []time.Duration{30 * time.Second}) {
			w.t.Errorf("apps are unhealthy at %v", got)
		}
	})
}

// Unusable terms are refused, and change nothing.
func TestTermsThatCannotBe(t *testing.T) {
	var cfg kernel.Config
	bubble(t, func(c *kernel.Config) { cfg = *c }, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		wrong := cfg
		wrong.Directory.Agents, wrong.Directory.DefaultAgent = nil, "alice"
		if _, err := w.Prepare(kernel.Terms{Config: wrong, Policy: allowAll{}}); err == nil {
			w.t.Error("a default agent that does not exist is taken")
		}
		if _, err := alice.dispatch(w.t.Context(), "telegram:dave"); err != nil {
			w.t.Error(err)
		}
		none := cfg
		none.Directory.Agents = nil
		w.reload(none)
		var refused *api.Error
		if _, err := alice.dispatch(w.t.Context(), "telegram:dave"); !errors.As(err, &refused) || refused.Code != api.Forbidden {
			w.t.Errorf("without an agent: %v", err)
		}
	})
}
