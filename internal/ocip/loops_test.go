package ocip

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// lines simulates the daemon's memory of causal chains: for each agent the longest one within the
// window, from anybody and from each counterparty. An answer to an exchange that the agent itself
// began counts only between the two.
type lines struct {
	now    time.Time
	window time.Duration
	limits ChainLimits
	heard  map[[2]string]heardLine
	sent   int
}

type heardLine struct {
	at   time.Time
	line Chain
}

func newLines() *lines {
	return &lines{
		now: time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC), window: time.Hour,
		limits: ChainLimits{MaxHops: 24, MaxRevisits: 2, MaxAge: 24 * time.Hour}, heard: make(map[[2]string]heardLine),
	}
}

func (l *lines) last(agent, from string) Chain {
	if h := l.heard[[2]string{agent, from}]; l.now.Sub(h.at) <= l.window {
		return h.line
	}
	return Chain{}
}

func (l *lines) hear(agent, from string, line Chain) {
	if longer := l.last(agent, from).Longer(line); longer.Hops > l.last(agent, from).Hops {
		l.heard[[2]string{agent, from}] = heardLine{l.now, longer}
	}
}

// message sends from one agent to another, in a new exchange or as the answer in the exchange that
// asked opened, and reports whether it is allowed.
func (l *lines) message(from, to string, asked *Exchange) (Exchange, bool) {
	m := question()
	m.Now, m.Sender.InstanceID, m.Sender.ID, m.To.InstanceID = l.now, from, from, to
	m.Rules = &Rules{Chain: l.limits}
	m.Exchange.ExpiresAt = l.now.Add(24 * time.Hour)
	if asked != nil {
		m.Exchange.Awaiting, m.Exchange.Round, m.Exchange.Chain = AgentOK, asked.Round, asked.Chain
		m.Cause = asked.Chain
	}
	m.Cause = m.Cause.Longer(l.last(from, to)).Longer(l.last(from, ""))
	if m.Cause.ID == "" {
		m.Cause = BeginChain(fmt.Sprint("d-", l.sent), from, l.now)
	}
	v := Decide(context.Background(), &m, yes)
	if !v.Allowed() {
		return v.Exchange, false
	}
	l.sent++
	l.hear(to, from, v.Chain)
	if asked == nil {
		l.hear(to, "", v.Chain)
	}
	return v.Exchange, true
}

// Two agents that open a new exchange for every message are stopped by message 24, with any
// messages to them in between: neither an app's claim of a person's word, nor a bare message, nor a
// third agent's innocent "ok" changes that.
func TestLoopsInFreshExchangesStopByMessage24(t *testing.T) {
	for name, between := range map[string]func(l *lines){
		"an app's own human text":       func(*lines) {},
		"a message with no annotation":  func(l *lines) { l.hear("alice", "", Chain{}) },
		"a third agent says ok":         func(l *lines) { l.message("carol", "alice", nil) },
		"a third agent says ok to both": func(l *lines) { l.message("carol", "alice", nil); l.message("dave", "bob", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLines()
			names := [...]string{"alice", "bob"}
			for i := range 80 {
				if _, ok := l.message(names[i%2], names[(i+1)%2], nil); !ok {
					if i > 24 {
						t.Errorf("stopped at message %d", i)
					}
					return
				}
				l.now = l.now.Add(time.Second)
				between(l)
			}
			t.Error("80 messages went, and no end")
		})
	}
}

// A hub that asks thirty workers one question each in an hour, and receives each answer, is not
// stopped.
func TestHubOfThirtyWorkersIsNotStopped(t *testing.T) {
	l := newLines()
	for i := range 30 {
		worker := fmt.Sprint("worker-", i)
		asked, ok := l.message("hub", worker, nil)
		if !ok {
			t.Fatalf("question %d was stopped", i+1)
		}
		l.now = l.now.Add(time.Minute)
		if _, ok := l.message(worker, "hub", &asked); !ok {
			t.Fatalf("answer %d was stopped", i+1)
		}
		l.now = l.now.Add(time.Minute)
	}
}

// If another installation claims a longer chain than the known one, it cannot reset the chain's age
// or its returns.
func TestLongerLineKeepsAgeAndReturns(t *testing.T) {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	known := Chain{ID: "d-1", Hops: 6, Path: []string{"a", "b", "a", "b", "a", "b"}, StartedAt: Time{now.Add(-20 * time.Hour)}}
	claimed := Chain{ID: "d-9", Hops: 7, Path: []string{"x", "y", "z", "v", "w", "u", "b"}, StartedAt: Time{now}}
	if got := known.Longer(claimed); got.ID != "d-9" || got.Hops != 7 || !got.StartedAt.Equal(known.StartedAt.Time) || !slices.Equal(got.Path, known.Path) {
		t.Errorf("got %+v", got)
	}
	limits := ChainLimits{MaxRevisits: 2}
	next := known.Longer(claimed).Extend("a", false).Extend("b", false)
	if rule, _ := limits.broken(&next, now); rule != "chain.revisits" {
		t.Errorf("the returns begin anew: %+v", next)
	}
	if got := known.Longer(Chain{}); got.Hops != 6 {
		t.Errorf("nothing is no line: %+v", got)
	}
	if got := (Chain{}).Longer(known); got.Hops != 6 {
		t.Errorf("nothing is no line: %+v", got)
	}
	// A chain that is not longer stops nobody.
	shorter := Chain{ID: "d-8", Hops: 6, Path: []string{"a", "b", "a", "a", "a"}, StartedAt: Time{now.Add(-9000 * time.Hour)}}
	if got := known.Longer(shorter); got.ID != "d-1" || got.Hops != 6 || !slices.Equal(got.Path, known.Path) || got.StartedAt != known.StartedAt {
		t.Errorf("a shorter line: %+v", got)
	}
}
