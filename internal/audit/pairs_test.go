package audit

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Messages count for the pair of sender and receiver, on the sender's side alone.
func TestPairs(t *testing.T) {
	at := time.Unix(1_000_020, 0)
	tally := NewTally(at, at.Add(time.Minute), time.Minute)
	add := func(r Record) { tally.Add(&Entry{Time: at, Record: r}) }
	sent := func(to Counterparty, rule, result string) {
		add(Record{ActionType: ActionExchange, Side: SideSender, AgentID: "a", Counterparty: to, PolicyApplied: rule, PolicyResult: result})
	}
	bob, eve := Counterparty{Kind: "agent", InstanceID: "b"}, Counterparty{Kind: "agent", InstanceID: "e"}
	sent(bob, "p", ResultAllow)
	sent(bob, "p", ResultAllow)
	sent(bob, "p", ResultApproval)
	sent(eve, tenantWall, ResultDeny)
	sent(eve, "p", ResultDeny)
	sent(Counterparty{Kind: "unknown"}, "p", ResultDeny)
	add(Record{ActionType: ActionExchange, Side: SideReceiver, AgentID: "b", Counterparty: Counterparty{Kind: "agent", InstanceID: "a"}, PolicyResult: ResultAllow})
	add(Record{ActionType: ActionCheck, Side: SideSender, AgentID: "a", Counterparty: bob, PolicyResult: ResultAllow})
	s := tally.Stats()
	if got, want := fmt.Sprint(s.Pairs, s.PairCount), "[{a b agent 2 1 0 0} {a e agent 0 0 2 1} {a  unknown 0 0 1 0}] 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// There may be any number of pairs; the most frequent are listed.
func TestPairsAreBounded(t *testing.T) {
	at := time.Unix(1_000_020, 0)
	tally := NewTally(at, at.Add(time.Minute), time.Minute)
	for i := range StatsPairs + 10 {
		for range 1 + i/StatsPairs {
			tally.Add(&Entry{Time: at, Record: Record{ActionType: ActionExchange, Side: SideSender, AgentID: "a", Counterparty: Counterparty{Kind: "agent", InstanceID: fmt.Sprint(i)}, PolicyResult: ResultAllow}})
		}
	}
	if s := tally.Stats(); len(s.Pairs) != StatsPairs || s.PairCount != StatsPairs+10 || s.Pairs[0].Sent != 2 || s.Pairs[10].Sent != 1 {
		t.Errorf("%d of %d pairs, first %+v", len(s.Pairs), s.PairCount, s.Pairs[0])
	}
}

// The percentiles of times are never below the exact ones, and at most the root of 2 above.
func TestTimesToDecide(t *testing.T) {
	at := time.Unix(1_000_020, 0)
	tally := NewTally(at, at.Add(time.Minute), time.Minute)
	for i := 1; i <= 100; i++ {
		tally.Add(&Entry{Time: at, Record: Record{ActionType: ActionApproval, Event: "approved", Details: map[string]any{"kind": "message", "waitedMs": float64(i * 10_000), "heldBy": "commitment"}}})
	}
	tally.Add(&Entry{Time: at, Record: Record{ActionType: ActionApproval, Event: "expired", Details: map[string]any{}}})
	tally.Add(&Entry{Time: at, Record: Record{ActionType: ActionApproval, Event: "denied", Details: map[string]any{"kind": "effect", "waitedMs": float64(0)}}})
	s := tally.Stats()
	if len(s.KindTimes) != 2 || len(s.RuleTimes) != 1 || s.RuleTimes[0].Name != "commitment" || s.KindTimes[0].Decided != 100 || s.KindTimes[1] != (StatsTime{"effect", 1, 1, 1}) {
		t.Fatalf("got %+v, %+v", s.KindTimes, s.RuleTimes)
	}
	for _, p := range [][2]float64{{s.KindTimes[0].P50, 500}, {s.KindTimes[0].P90, 900}} {
		if p[0] < p[1] || p[0] > 1.42*p[1] {
			t.Errorf("%g s, exactly %g s", p[0], p[1])
		}
	}
	for _, bad := range []float64{-1, 0, math.NaN(), math.Inf(1), 1e300} {
		if step := stepOf(bad); step < 0 || step > lastStep {
			t.Errorf("step of %g: %d", bad, step)
		}
	}
}

// The index stores subjects as texts. None of them breaks the counts.
func FuzzAbout(f *testing.F) {
	f.Add("to\tagent\tb", "a")
	f.Add("after\tmessage\t12\tcommitment", "")
	f.Add("after\tmessage\t-1\t", "")
	f.Fuzz(func(t *testing.T, about, agent string) {
		at := time.Unix(1_000_020, 0)
		tally := NewTally(at, at.Add(time.Minute), time.Minute)
		tally.AddFor(Subject{Agent: agent, About: about, Result: ResultAllow}, 3)
		s := tally.Stats()
		if len(s.Pairs) > 1 || len(s.KindTimes) > 1 || len(s.Pairs)+len(s.KindTimes) > 1 {
			t.Errorf("%q counts for %+v, %+v", about, s.Pairs, s.KindTimes)
		}
	})
}
