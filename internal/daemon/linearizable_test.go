package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/test/roundtest"
)

// The rounds of exchanges are linearizable: the answers to many senders of both sides of
// several pairs, while the daemon is stopped and started, are those of some sequential order.
func TestRoundsAreLinearizable(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := roundtest.NewLoad(seed)
			h := build(t, l.Config())
			for range 4 {
				h.races(l, 50)
				h.start()
			}
			h.races(l, 0)
			l.History.Check(t, l.Rules())
		})
	}
}

// races runs a load until a number of messages is answered, and stops the daemon. With 0 it
// only checks the remaining state.
func (h *harness) races(l *roundtest.Load, messages int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	var lines roundtest.Lines
	for _, id := range l.Agents() {
		a := h.register(id, api.Capabilities{}, client.WithDropEvents())
		a.must("app.ready", nil, nil)
		lines.Agents = append(lines.Agents, a)
	}
	operator, err := client.Dial(ctx, h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer operator.Close()
	lines.Operator = operator
	if messages == 0 {
		err = l.Look(ctx, lines)
	} else {
		err = l.Run(ctx, lines, messages, h.stop)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// A slightly falsified history is found to be wrong.
func TestDoctoredRoundsAreFound(t *testing.T) {
	type told = []porcupine.Operation
	in := func(op porcupine.Operation) roundtest.Input { return op.Input.(roundtest.Input) }
	out := func(op porcupine.Operation) roundtest.Output { return op.Output.(roundtest.Output) }
	lies := map[string]func(history told) (told, bool){
		"two sends share a round": func(history told) (told, bool) {
			for _, first := range history {
				for i, second := range history {
					a, b := out(first), out(second)
					if in(first).Action == roundtest.Dispatch && in(second).Action == roundtest.Dispatch && a.Code == "" && b.Code == "" &&
						a.Round > 0 && a.Round+1 == b.Round && a.ExchangeID == b.ExchangeID {
						b.Round = a.Round
						history[i].Output = b
						return history, true
					}
				}
			}
			return nil, false
		},
		"a round runs back over the last restart": func(history told) (told, bool) {
			for i := len(history) - 1; i >= 0; i-- {
				seen := out(history[i])
				if in(history[i]).By != roundtest.Operator || seen.Sides[0].Round < 2 {
					continue
				}
				for side := range seen.Sides {
					seen.Sides[side].Round--
				}
				history[i].Output = seen
				return history, true
			}
			return nil, false
		},
		"a send while the escalation is open": func(history told) (told, bool) {
			// Nobody settles the first escalation, and yet messages are sent.
			for _, op := range history {
				if out(op).Code != string(ocip.RoundLimit) || out(op).Escalated != "" {
					continue
				}
				var left told
				later := false
				for _, other := range history {
					if in(other).Action == roundtest.Resolve && in(other).ID == out(op).ExchangeID {
						continue
					}
					left = append(left, other)
					later = later || in(other).Pair == in(op).Pair && other.Call > op.Return && in(other).Action == roundtest.Dispatch &&
						out(other).Code == "" && out(other).Round > 0
				}
				return left, later
			}
			return nil, false
		},
	}
	// The result of a load depends on the machine, and not every result has a place for
	// each falsification.
	for seed := uint64(3); len(lies) > 0; seed++ {
		if seed == 13 {
			t.Fatalf("no load has a place for a lie: %q", slices.Sorted(maps.Keys(lies)))
		}
		l := roundtest.NewLoad(seed)
		h := build(t, l.Config())
		h.races(l, 60)
		h.start()
		h.races(l, 0)
		for name, lie := range lies {
			history, told := lie(l.History.Operations())
			if !told {
				continue
			}
			if got := l.Rules().Judge(history); got != porcupine.Illegal {
				t.Errorf("%s: the history is %s", name, got)
			}
			delete(lies, name)
		}
	}
}
