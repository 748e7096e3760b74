package ocip

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestChainExtend(t *testing.T) {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	c := BeginChain("d-1", "a", now)
	asked := c.Extend("b", false)
	back := asked.Extend("a", true)
	if asked.Hops != 1 || !slices.Equal(asked.Path, []string{"a", "b"}) {
		t.Errorf("asked: %+v", asked)
	}
	if back.Hops != 2 || !slices.Equal(back.Path, []string{"a", "b"}) {
		t.Errorf("an answer adds nobody: %+v", back)
	}
	// Two chains with a common beginning share no memory that they could overwrite.
	one, two := back.Extend("c", false), back.Extend("d", false)
	if one.Path[2] != "c" || two.Path[2] != "d" {
		t.Errorf("%v and %v", one.Path, two.Path)
	}
	for i := range 200 {
		c = c.Extend(fmt.Sprint(i), false)
	}
	if c.Hops != 200 || len(c.Path) != MaxChainPath || c.Path[MaxChainPath-1] != "199" {
		t.Errorf("a long line: %d hops, %d agents, last %s", c.Hops, len(c.Path), c.Path[len(c.Path)-1])
	}
}

func TestChainLimits(t *testing.T) {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	limits := ChainLimits{MaxHops: 6, MaxRevisits: 2, MaxAge: time.Hour}
	line := func(hops int, age time.Duration, path ...string) Chain {
		return Chain{ID: "d-1", Hops: hops, Path: path, StartedAt: Time{now.Add(-age)}}
	}
	for _, tc := range []struct {
		name string
		c    Chain
		rule string
		says string
	}{
		{"none", Chain{}, "", ""},
		{"at every limit", line(6, time.Hour, "a", "b", "c", "a", "c", "a"), "", ""},
		{"one message more", line(7, 0, "a", "b"), "chain.hops", "chain d-1 has come to message 7, the limit is 6: a → b"},
		{"one visit more", line(6, 0, "a", "b", "a", "b", "a", "b", "a"), "chain.revisits", "comes back to agent a for the 3rd time, the limit is 2: a → b → a"},
		{"an instant older", line(1, time.Hour+time.Millisecond, "a", "b"), "chain.age", "began 1h0m0s ago, the limit is 1h0m0s"},
	} {
		rule, reason := limits.broken(&tc.c, now)
		if rule != tc.rule || !strings.Contains(reason, tc.says) {
			t.Errorf("%s: got %q, %q", tc.name, rule, reason)
		}
		if none, _ := (ChainLimits{}).broken(&tc.c, now); none != "" {
			t.Errorf("%s: without limits: %s", tc.name, none)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: got %s", n, got)
		}
	}
}

// The chain is checked last on either side, and a message to a person has none.
func TestChainDecides(t *testing.T) {
	m := question()
	m.Rules = &Rules{Chain: ChainLimits{MaxHops: 3}}
	m.Cause = BeginChain("d-0", m.Sender.InstanceID, m.Now)
	v := Decide(t.Context(), &m, yes)
	if !v.Allowed() || v.Chain.Hops != 1 || v.Exchange.Chain.ID != "d-0" {
		t.Errorf("the first: %+v", v.Chain)
	}
	m.Cause.Hops = 3
	v = Decide(t.Context(), &m, yes)
	if v.Result != RequireApproval || v.Code != ChainLimit || v.Policy != ruleChain || v.Exchange.Outcome != Escalated || !strings.Contains(v.Reason, "d-0") {
		t.Errorf("past the limit: %+v", v)
	}
	m.Rules.Chain.Monitor = true
	v = Decide(t.Context(), &m, yes)
	if !v.Allowed() || len(v.Detections) != 1 || v.Detections[0].Rule != "chain.hops" || !v.Detections[0].Shadow {
		t.Errorf("monitored: %+v", v)
	}
	m.Rules.Chain.Monitor = false
	m.To.Kind = KindUnknown
	if v = Decide(t.Context(), &m, yes); !v.Allowed() || v.Chain.ID != "" {
		t.Errorf("to a person: %+v", v)
	}
	in := arriving()
	in.Rules = m.Rules
	in.Chain = Chain{ID: "d-0", Hops: 4, Path: []string{"x", "y"}, StartedAt: Time{in.Now}}
	if v = Receive(t.Context(), &in, yes); v.Code != ChainLimit || v.Exchange.Outcome != Escalated {
		t.Errorf("inbound: %+v", v)
	}
}

func TestParseChain(t *testing.T) {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	good := BeginChain("d-1", "a", now.Add(-time.Minute)).Extend("b", false)
	got, err := ParseChain(good.Annotation(), now)
	if err != nil || got.ID != "d-1" || got.Hops != 1 || !slices.Equal(got.Path, good.Path) || !got.StartedAt.Equal(good.StartedAt.Time) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, none := range []string{"", "null"} {
		if c, err := ParseChain([]byte(none), now); err != nil || c.ID != "" {
			t.Errorf("%q: got %+v, %v", none, c, err)
		}
	}
	if c, err := ParseChain([]byte(`{"id":"d","hops":1,"path":["a"],"startedAt":"2030-01-01T00:00:00.000Z"}`), now); err != nil || !c.StartedAt.Equal(now) {
		t.Errorf("from the future: %+v, %v", c, err)
	}
	for text, path := range map[string]string{
		`7`:                     "ocipChain",
		`{"hops":1}`:            "ocipChain.id",
		`{"id":"d","hops":0}`:   "ocipChain.hops",
		`{"id":"d","hops":"1"}`: "ocipChain.hops",
		`{"id":"d","hops":1,"path":[],"startedAt":"2026-03-13T10:00:00.000Z"}`:    "ocipChain.path",
		`{"id":"d","hops":1,"path":["a",7]}`:                                      "ocipChain.path[1]",
		`{"id":"d","hops":1,"path":["a\u202e"]}`:                                  "ocipChain.path[0]",
		`{"id":"d","hops":1,"path":["a"],"startedAt":"yesterday"}`:                "ocipChain.startedAt",
		`{"id":"d","hops":1,"path":[` + strings.Repeat(`"a",`, 64) + `"a"]}`:      "ocipChain.path",
		`{"id":"d","hops":9999999,"path":["a"],"startedAt":"2026-03-13T10:00Z"}`:  "ocipChain.hops",
		`{"id":"` + strings.Repeat("x", 2000) + `","hops":1,"path":["a"]}`:        "ocipChain.id",
		`{"id":"d","hops":1,"path":["a"],"startedAt":"2026-03-13T10:00:00.000"}`:  "ocipChain.startedAt",
		`{"id":"d","hops":1,"path":{"a":1},"startedAt":"2026-03-13T10:00:00.00"}`: "ocipChain.path",
	} {
		_, err := ParseChain([]byte(text), now)
		var wrong *EnvelopeError
		if !errors.As(err, &wrong) || wrong.Path != path {
			t.Errorf("%.80s: got %v, want %s named", text, err, path)
		}
	}
}

// FuzzParseChain parses its own output.
func FuzzParseChain(f *testing.F) {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	f.Add(BeginChain("d-1", "a", now).Extend("b", false).Annotation())
	f.Add([]byte(`{"id":"d","hops":1,"path":["a"],"startedAt":"2026-03-13T10:00:00+02:00"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseChain(raw, now)
		if err != nil || c.ID == "" {
			return
		}
		again, err := ParseChain(c.Annotation(), now)
		if err != nil || again.ID != c.ID || again.Hops != c.Hops || !slices.Equal(again.Path, c.Path) {
			t.Fatalf("%q is read as %+v and again as %+v, %v", raw, c, again, err)
		}
	})
}
