package ocip

import (
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// promising has the detectors of commitments for these tests.
func promising(t *testing.T, families map[string]commitment.Mode) *Rules {
	t.Helper()
	d, err := commitment.New(commitment.Options{Families: families})
	if err != nil {
		t.Fatal(err)
	}
	return &Rules{Commitments: d, Unknown: PeopleRules{Commitments: true}}
}

// A message that a grant does not cover asks a person as without it. A covered message is sent as
// assisted.
func TestGrantCoversWhatItSays(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Outgoing, *Grant)
		code   Code
	}{
		"as it is":       {func(*Outgoing, *Grant) {}, ""},
		"the last round": {func(m *Outgoing, _ *Grant) { m.Exchange.Round = 1 }, ""},
		"a later round":  {func(m *Outgoing, g *Grant) { m.Exchange.Round, g.Rounds = 1, 1 }, CommitmentRequiresHuman},
		"another word":   {func(m *Outgoing, _ *Grant) { m.Content = "I promise a meeting" }, CommitmentRequiresHuman},
		"a cue":          {func(m *Outgoing, _ *Grant) { m.Content = "My promise: I'll send it by Friday" }, CommitmentRequiresHuman},
		"a cue that it lists": {func(m *Outgoing, g *Grant) {
			m.Content, g.Words = "My promise: I'll send it by Friday", append(g.Words, commitment.FirstPersonFuture)
		}, ""},
		"a cue, standing": {func(m *Outgoing, g *Grant) {
			m.Content, g.Words, g.Standing = "My promise: I'll send it by Friday", append(g.Words, commitment.FirstPersonFuture), true
		}, CommitmentRequiresHuman},
		"a higher level":    {func(m *Outgoing, g *Grant) { g.Level = Public }, CommitmentRequiresHuman},
		"too late":          {func(m *Outgoing, g *Grant) { g.Until = m.Now }, CommitmentRequiresHuman},
		"two people":        {func(m *Outgoing, _ *Grant) { m.Approvers = 2 }, CommitmentRequiresHuman},
		"two of two people": {func(m *Outgoing, g *Grant) { m.Approvers, g.People = 2, 2 }, ""},
		"acceptance": {func(m *Outgoing, g *Grant) {
			m.Content, g.Words = "Deal. It's a promise", append(g.Words, commitment.Acceptance)
		}, CommitmentRequiresHuman},
		"acceptance in shadow": {func(m *Outgoing, _ *Grant) {
			m.Content, m.Rules = "Works for me, a promise", promising(t, map[string]commitment.Mode{commitment.Acceptance: commitment.Shadow})
		}, CommitmentRequiresHuman},
		"money":               {func(m *Outgoing, _ *Grant) { m.Content = "I promise you €900" }, CommitmentRequiresHuman},
		"money in words":      {func(m *Outgoing, _ *Grant) { m.Content = "I promise nine hundred euros" }, CommitmentRequiresHuman},
		"money of full width": {func(m *Outgoing, _ *Grant) { m.Content = "I promise ＄900" }, CommitmentRequiresHuman},
		"money in a member":   {func(m *Outgoing, _ *Grant) { m.Passages = []Passage{{Member: "caption", Text: "900 USD", Prose: true}} }, CommitmentRequiresHuman},
		"words of a file": {func(m *Outgoing, _ *Grant) {
			m.Files.hits = []commitment.Hit{{Rule: commitment.RuleKeyword, Keyword: "promise"}}
		}, CommitmentRequiresHuman},
		"answer for a person": {func(m *Outgoing, _ *Grant) { m.Exchange.Awaiting = HumanOnly }, CommitmentRequiresHuman},
		"answer to a request": {func(m *Outgoing, _ *Grant) { m.Exchange.Awaiting, m.Exchange.AwaitsCommitment = AgentOK, true }, CommitmentRequiresHuman},
		"an answer owed": {func(m *Outgoing, _ *Grant) {
			m.Owed = Owed{ReplyPolicy: AgentOK, Commitment: true, ConversationID: "c"}
		}, CommitmentRequiresHuman},
		"a time":               {func(m *Outgoing, _ *Grant) { m.Content = "I promise to be there at 3pm" }, ""},
		"a sealed deal":        {func(m *Outgoing, _ *Grant) { m.Content = "Deal accepted, I promise" }, CommitmentRequiresHuman},
		"a signed contract":    {func(m *Outgoing, _ *Grant) { m.Content = "The contract is signed, I promise" }, CommitmentRequiresHuman},
		"money in metadata":    {func(m *Outgoing, _ *Grant) { m.Passages = []Passage{{Member: "metadata.amount", Text: "900"}} }, CommitmentRequiresHuman},
		"another reply policy": {func(m *Outgoing, _ *Grant) { m.ReplyPolicy = HumanOnly }, CommitmentRequiresHuman},
		"a type for people":    {func(m *Outgoing, _ *Grant) { m.Exchange.Type = MeetingScheduling }, CommitmentRequiresHuman},
		"a type that commits":  {func(m *Outgoing, _ *Grant) { m.Exchange.Type = CommitmentRequest }, CommitmentRequiresHuman},
		"no answers by itself": {func(m *Outgoing, _ *Grant) { m.Exchange.Awaiting, m.Sender.CanAutoRespond = AgentOK, false }, CommitmentRequiresHuman},
		"no round left":        {func(m *Outgoing, g *Grant) { m.Exchange.Round, g.Rounds = 3, 9 }, RoundLimit},
		"a look-alike":         {func(m *Outgoing, _ *Grant) { m.LooksLike = "agent-bob-1" }, LooksLikeKnown},
		"budget":               {func(m *Outgoing, _ *Grant) { m.Sender.MaxPerHour, m.SpentHour = 1, 1 }, BudgetExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			m := question()
			m.Content, m.Rules = "I promise", promising(t, nil)
			g := Grant{ID: "g", Words: []string{"promise"}, Level: Internal, Rounds: 2, Until: m.Now.Add(time.Minute), People: 1}
			test.change(&m, &g)
			m.Grants = []Grant{{ID: "of others", Words: []string{"book"}, Level: Restricted, Until: g.Until, People: 9}, g}
			v := Decide(t.Context(), &m, yes)
			if v.Code != test.code || v.Grant != map[bool]string{true: "g"}[test.code == ""] {
				t.Fatalf("the verdict is %s %s with grant %q, want %q", v.Code, v.Reason, v.Grant, test.code)
			}
			if e := v.Envelope; v.Allowed() && (e.MessageType != AgentAssisted || !e.Capabilities.CanCommit || v.Exchange.Approved) {
				t.Errorf("it leaves as %+v, approved %t", e, v.Exchange.Approved)
			}
		})
	}
}

// A policy that requires a person requires one for each message.
func TestGrantIsNoAnswerToAPolicy(t *testing.T) {
	m := question()
	m.Content, m.Rules = "I promise", promising(t, nil)
	m.Grants = []Grant{{ID: "g", Words: []string{"promise"}, Level: Internal, Until: m.Now.Add(time.Minute), People: 1}}
	if v := Decide(t.Context(), &m, answers(PolicyAnswer{Allow: true, RequireApproval: true})); v.Code != PolicyRequiresApproval || v.Grant != "" {
		t.Errorf("the verdict is %s with grant %q", v.Code, v.Grant)
	}
	if v := Decide(t.Context(), &m, answers(PolicyAnswer{Allow: true, Approvers: 2})); v.Code != CommitmentRequiresHuman {
		t.Errorf("where the policy wants two people the verdict is %s", v.Code)
	}
}

// Every family of cues is listed as grantable or as not grantable. A new one is not grantable.
func TestGrantable(t *testing.T) {
	grantable := []string{commitment.FirstPersonFuture, commitment.NextStep, commitment.Prefixed, commitment.Derived}
	for _, family := range append(commitment.Families(), "of tomorrow", "") {
		if got := Grantable(family); got != slices.Contains(grantable, family) {
			t.Errorf("%q is grantable %t", family, got)
		}
	}
	for _, word := range commitment.Keywords() {
		if !Grantable(word) {
			t.Errorf("the keyword %s is not grantable", word)
		}
	}
}

// An incoming message whose commitments the receiver's person has approved asks for nothing. One
// with flags, or with other commitments, does.
func TestGrantOfWhatArrives(t *testing.T) {
	out := question()
	sent := Decide(t.Context(), &out, yes)
	for name, test := range map[string]struct {
		content string
		change  func(*Incoming)
		asks    bool
	}{
		"the word":      {"I promise", nil, false},
		"another word":  {"I agree and promise", nil, true},
		"money":         {"I promise $5", nil, true},
		"the flag":      {"I promise", func(m *Incoming) { m.Envelope.RequiresCommitment = true }, true},
		"for a person":  {"I promise", func(m *Incoming) { m.Envelope.ReplyPolicy = HumanOnly }, true},
		"after its end": {"I promise", func(m *Incoming) { m.Grants[0].Until = m.Now }, true},
	} {
		m := &Incoming{
			Now: out.Now, Receiver: Agent{ID: "bob", Identity: out.To.Identity, MaxShared: Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true},
			From: Counterparty{Kind: KindAgent, Identity: out.Sender.Identity, Accepts: Internal}, Envelope: sent.Envelope, Content: test.content,
			Exchange: Exchange{ID: "e", ConversationID: sent.Envelope.ConversationID, Type: InformationQuery, Agent: "agent-bob-1", Counterparty: "agent-alice-1", Outcome: InProgress, MaxRounds: 3, ExpiresAt: out.Exchange.ExpiresAt},
			Rules:    promising(t, nil),
			Grants:   []Grant{{ID: "g", Words: []string{"promise"}, Level: Internal, Rounds: 3, Until: out.Now.Add(time.Minute), People: 1}},
		}
		if test.change != nil {
			test.change(m)
		}
		v := Receive(t.Context(), m, yes)
		if asks := v.ForPerson != ""; !v.Allowed() || asks != test.asks || asks != (v.Owed.human() || v.Exchange.AwaitsCommitment) {
			t.Errorf("%s: %s %s, for a person %q, owed %+v", name, v.Result, v.Reason, v.ForPerson, v.Owed)
		}
	}
}

func FuzzOfMoney(f *testing.F) {
	for _, seed := range []string{"", "$", "pay 5 EUR", "european pounds of flesh", "\u20ac", "\xff$"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		one := []text.Passage{{Text: s + " $", Prose: true}}
		if !OfMoney(one) {
			t.Errorf("no money in %q", one[0].Text)
		}
	})
}
