package ocip

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// detectors returns the rules with all detectors.
func detectors(t *testing.T) *Rules {
	t.Helper()
	found, err := content.New(content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	promises, err := commitment.New(commitment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Rules{Content: found, Commitments: promises}
}

// to directs the question to a counterparty that is no agent.
func to(kind Kind) Outgoing {
	m := question()
	m.To = Counterparty{Kind: kind}
	if kind == KindPerson {
		m.To.UserID, m.To.OrgUnit, m.To.TenantID = "dana", "marketing", "acme-corp"
	}
	m.Exchange = Exchange{ConversationID: "conv-1", Type: InformationQuery, MaxRounds: 3, ExpiresAt: m.Now.Add(time.Hour)}
	return m
}

const secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

// Detectors check every string of a message for secrets, and prose for commitments. A finding names
// its member.
func TestEveryStringIsLookedAt(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Passage
		code Code
	}{
		{"a secret in a note", Passage{Member: "metadata.note", Text: "the key is " + secret, Prose: true}, ClassificationViolation},
		{"a secret in what is no prose", Passage{Member: "exchange.data[0].source", Text: secret}, ClassificationViolation},
		{"a promise in a note", Passage{Member: "metadata.note", Text: "I promise to pay", Prose: true}, CommitmentRequiresHuman},
		{"a promise in an item's description", Passage{Member: "exchange.data[0].description", Text: "we hereby approve it", Prose: true}, CommitmentRequiresHuman},
		{"a word in an enum is no promise", Passage{Member: "metadata.kind", Text: "meeting_scheduling"}, ""},
		{"a name is no promise", Passage{Member: "metadata.room", Text: "#book-club"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := question()
			m.Content, m.Rules = "See attached.", detectors(t)
			m.Passages = []Passage{{Member: "metadata.other", Text: "Nothing here.", Prose: true}, tc.p}
			v := Decide(t.Context(), &m, yes)
			if v.Code != tc.code {
				t.Fatalf("got %s: %s", v.Code, v.Reason)
			}
			if tc.code == "" {
				if len(v.Detections) > 0 {
					t.Errorf("found %+v", v.Detections)
				}
				return
			}
			if len(v.Detections) == 0 {
				t.Fatal("nothing on record")
			}
			for _, d := range v.Detections {
				if d.Member != tc.p.Member || d.End > len(tc.p.Text) {
					t.Errorf("found %+v", d)
				}
			}
			if tc.code == ClassificationViolation && (v.Details["member"] != tc.p.Member || !strings.Contains(v.Reason, tc.p.Member) || strings.Contains(v.Reason, "ghp_")) {
				t.Errorf("because %s, %v", v.Reason, v.Details)
			}
		})
	}
}

// The detectors also check the text that the receiver's program shows.
func TestRenderedTextIsLookedAt(t *testing.T) {
	m := question()
	m.Content, m.Rules = `I \x70\x72omise to pay`, detectors(t)
	m.Rendering = []text.Rendering{text.RenderIRC}
	if v := Decide(t.Context(), &m, yes); v.Code != CommitmentRequiresHuman {
		t.Errorf("got %s, %+v", v.Code, v.Detections)
	}
	m.Content, m.Rendering = "AKIA<b>IOSFODNN7SAMPLED</b>", []text.Rendering{text.RenderHTML}
	if v := Decide(t.Context(), &m, yes); v.Code != ClassificationViolation {
		t.Errorf("got %s, %+v", v.Code, v.Detections)
	}
}

// Many findings leave room for one of each kind, and no record grows with the text.
func TestFewDetectionsOfMany(t *testing.T) {
	var all []Detection
	for i := range 200 {
		all = append(all, Detection{Rule: "commitment.money", Member: fmt.Sprint("m", i), Shadow: true})
	}
	all = append(all, Detection{Rule: "commitment.promise", Member: "last"})
	got := few(all)
	if len(got) != maxDetections || got[0].Member != "m0" || got[maxDetections-1].Member != "last" {
		t.Errorf("%d are kept, the last of them %+v", len(got), got[len(got)-1])
	}
	m := question()
	m.Content, m.Rules = strings.Repeat(secret+" promise ", 500), detectors(t)
	for i := range 300 {
		m.Passages = append(m.Passages, Passage{Member: fmt.Sprint("metadata.", i), Text: "I promise " + secret, Prose: true})
	}
	if v := Decide(t.Context(), &m, yes); len(v.Detections) > 2*maxDetections {
		t.Errorf("%d detections", len(v.Detections))
	}
}

// Messages to strangers and to declared people are held if they promise something, are put to the
// policy, are limited in level and number. Messages to the owner are not.
func TestPeopleRules(t *testing.T) {
	everything := func(t *testing.T) *Rules {
		r := detectors(t)
		r.Unknown = PeopleRules{Commitments: true, Policy: true, MaxMessages: 2, Window: time.Hour}
		r.Person = r.Unknown
		return r
	}
	internal := Internal
	tests := []struct {
		name   string
		change func(*Outgoing)
		policy Policy
		kinds  []Kind
		want   Result
		code   Code
		rule   string
		reason string
	}{
		{"nothing special", func(*Outgoing) {}, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "ocip.agent_exchange", "allowed"},
		{"nothing special", func(*Outgoing) {}, nil, []Kind{KindOwner}, Allow, "", ruleClassification, "within the sender's maximum"},
		{"a promise", func(m *Outgoing) { m.Content = "I promise to pay 500 EUR by Friday" }, yes, []Kind{KindUnknown, KindPerson}, RequireApproval, CommitmentRequiresHuman, ruleCommitment, "promise"},
		{"a promise to the owner", func(m *Outgoing) { m.Content = "I promise to pay 500 EUR by Friday" }, nil, []Kind{KindOwner}, Allow, "", ruleClassification, ""},
		{"a promise that a person approved", func(m *Outgoing) { m.Content, m.Person = "I promise", Approved }, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "ocip.agent_exchange", ""},
		{"a promise, monitored", func(m *Outgoing) { m.Content, m.Rules.Monitor = "I promise", true }, yes, []Kind{KindUnknown}, Allow, "", "ocip.agent_exchange", ""},
		{"a promise, only recorded", func(m *Outgoing) { m.Content, m.Rules.Unknown.Commitments = "I promise", false }, yes, []Kind{KindUnknown}, Allow, "", "ocip.agent_exchange", ""},
		{"a person is asked for", func(m *Outgoing) { m.AskPerson, m.Rules.Monitor = true, true }, yes, []Kind{KindUnknown, KindPerson}, RequireApproval, CommitmentRequiresHuman, ruleCommitment, "asks for a person"},
		{"a person was asked for", func(m *Outgoing) { m.AskPerson, m.Person = true, Approved }, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "ocip.agent_exchange", ""},
		{"the policy denies", func(*Outgoing) {}, answers(PolicyAnswer{Reason: "no strangers"}), []Kind{KindUnknown, KindPerson}, Deny, PolicyDenied, "ocip.agent_exchange", "no strangers"},
		{"the policy wants a person", func(*Outgoing) {}, answers(PolicyAnswer{Allow: true, RequireApproval: true}), []Kind{KindUnknown, KindPerson}, RequireApproval, PolicyRequiresApproval, "ocip.agent_exchange", ""},
		{"the policy is not asked", func(m *Outgoing) { m.Rules.Unknown.Policy, m.Rules.Person.Policy = false, false }, nil, []Kind{KindUnknown, KindPerson}, Allow, "", ruleClassification, ""},
		{"above what strangers are told", func(m *Outgoing) { m.Sender.MaxShared, m.Declared = Confidential, Confidential }, nil, []Kind{KindUnknown}, Deny, ClassificationViolation, ruleClassification, "with undeclared counterparties is internal"},
		{"above what strangers are told, to others", func(m *Outgoing) { m.Sender.MaxShared, m.Declared = Confidential, Confidential }, yes, []Kind{KindPerson, KindOwner}, Allow, "", "", ""},
		{"as many as may be", func(m *Outgoing) { m.Spent = 1 }, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "", ""},
		{"one more than may be", func(m *Outgoing) { m.Spent = 2 }, yes, []Kind{KindUnknown, KindPerson}, RequireApproval, BudgetExceeded, ruleBudget, "has had 2 messages within 1h0m0s, the limit is 2"},
		{"one more than may be, to the owner", func(m *Outgoing) { m.Spent = 2 }, nil, []Kind{KindOwner}, Allow, "", "", ""},
		{"one more than may be, approved", func(m *Outgoing) { m.Spent, m.Person = 2, Approved }, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "", ""},
		{"one more than the agent may send in an hour", func(m *Outgoing) { m.Sender.MaxPerHour, m.SpentHour = 5, 5 }, yes, []Kind{KindAgent, KindOwner, KindUnknown, KindPerson}, RequireApproval, BudgetExceeded, ruleBudget, "agent alice has had 5 messages within 1h0m0s"},
		{"as many as the agent may send in an hour", func(m *Outgoing) { m.Sender.MaxPerHour, m.SpentHour = 5, 4 }, yes, []Kind{KindAgent, KindOwner, KindUnknown, KindPerson}, Allow, "", "", ""},
		{"a first message", func(m *Outgoing) { m.First = true }, yes, []Kind{KindUnknown, KindPerson}, Allow, "", "", ""},
		{"a first message is held", func(m *Outgoing) { m.First, m.Rules.Unknown.FirstContact = true, ContactHold }, yes, []Kind{KindUnknown}, RequireApproval, FirstContactHeld, ruleContact, ""},
		{"a second message is not", func(m *Outgoing) { m.Rules.Unknown.FirstContact = ContactHold }, yes, []Kind{KindUnknown}, Allow, "", "", ""},
		{"a first message is held, approved", func(m *Outgoing) { m.First, m.Rules.Unknown.FirstContact, m.Person = true, ContactHold, Approved }, yes, []Kind{KindUnknown}, Allow, "", "", ""},
		{"a first message is denied", func(m *Outgoing) { m.First, m.Rules.Unknown.FirstContact, m.Person = true, ContactDeny, Approved }, yes, []Kind{KindUnknown}, Deny, FirstContactHeld, ruleContact, ""},
		{"a look-alike", func(m *Outgoing) { m.LooksLike = "telegram:rival" }, yes, []Kind{KindUnknown}, RequireApproval, LooksLikeKnown, ruleContact, "telegram:rival"},
		{"a look-alike, approved", func(m *Outgoing) { m.LooksLike, m.Person = "telegram:rival", Approved }, yes, []Kind{KindUnknown}, Allow, "", "", ""},
		{"a look-alike is denied", func(m *Outgoing) {
			m.LooksLike, m.Rules.LookAlike, m.Person = "telegram:rival", LookAlikeDeny, Approved
		}, yes, []Kind{KindUnknown}, Deny, LooksLikeKnown, ruleContact, ""},
		{"a look-alike is allowed", func(m *Outgoing) { m.LooksLike, m.Rules.LookAlike = "telegram:rival", LookAlikeAllow }, yes, []Kind{KindUnknown}, Allow, "", "", ""},
	}
	for _, tt := range tests {
		for _, kind := range tt.kinds {
			t.Run(tt.name+"/"+string(kind), func(t *testing.T) {
				m := to(kind)
				if kind == KindAgent {
					m = question()
				}
				m.Rules, m.Sender.MaxUnknown = everything(t), &internal
				tt.change(&m)
				policy := tt.policy
				if policy == nil {
					policy = forbidden{t}
				}
				v := Decide(t.Context(), &m, policy)
				if v.Result != tt.want || v.Code != tt.code || !strings.Contains(v.Reason, tt.reason) {
					t.Fatalf("got %s %s: %s", v.Result, v.Code, v.Reason)
				}
				if tt.rule != "" && v.Policy != tt.rule {
					t.Errorf("by %s, want %s", v.Policy, tt.rule)
				}
				if v.Exchange.ConversationID == "" {
					t.Error("the conversation is lost")
				}
				if v.Allowed() && kind == KindUnknown && slices.Contains(v.Envelope.Capabilities.CanShare, Confidential) {
					t.Errorf("a stranger is told of %v", v.Envelope.Capabilities.CanShare)
				}
			})
		}
	}
}

// A zero field changes nothing: without rules, messages to people are unrestricted.
func TestNoPeopleRulesHoldNothing(t *testing.T) {
	for _, kind := range []Kind{KindOwner, KindPerson, KindUnknown} {
		m := to(kind)
		m.Content, m.Rules, m.First, m.Spent, m.SpentHour = "I promise to approve it", detectors(t), true, 1000, 1000
		if v := Decide(t.Context(), &m, forbidden{t}); !v.Allowed() || len(v.Detections) != 2 {
			t.Errorf("%s: got %s, %+v", kind, v.Code, v.Detections)
		}
	}
}

// The policy receives the kind of the counterparty. For people it is asked once, since only agents
// have org units.
func TestPolicySeesTheKindOfCounterparty(t *testing.T) {
	for _, kind := range []Kind{KindPerson, KindUnknown} {
		m := to(kind)
		m.Rules = &Rules{Unknown: PeopleRules{Policy: true}, Person: PeopleRules{Policy: true}}
		p := answers(PolicyAnswer{Allow: true, MaxRounds: 1})
		v := Decide(t.Context(), &m, p)
		if !v.Allowed() || len(p.asked) != 1 || p.asked[0].CounterpartyKind != kind || p.asked[0].Target != m.To.Identity {
			t.Errorf("%s: asked %+v, got %s", kind, p.asked, v.Code)
		}
		if v.Envelope.MaxRounds != 3 {
			t.Errorf("rounds with a person are counted: %d", v.Envelope.MaxRounds)
		}
	}
	// A message with an envelope is an agent's, whatever the directory says about the session.
	in := arriving()
	in.From = Counterparty{Kind: KindUnknown}
	p := answers(agree)
	if v := Receive(t.Context(), &in, p); !v.Allowed() || p.asked[0].CounterpartyKind != KindAgent {
		t.Errorf("inbound: asked %+v", p.asked)
	}
}

// A known tenant counts for every kind of counterparty, before everything else and outside the
// policy.
func TestWallStandsForEveryKind(t *testing.T) {
	acme := Identity{InstanceID: "agent-alice-1", UserID: "alice", TenantID: "acme-corp"}
	for _, tc := range []struct {
		kind    Kind
		self    string
		tenant  string
		blocked bool
	}{
		{KindAgent, "acme-corp", "acme-corp", false}, {KindAgent, "acme-corp", "globex-inc", true}, {KindAgent, "acme-corp", "", true}, {KindAgent, "", "", true},
		{KindPerson, "acme-corp", "acme-corp", false}, {KindPerson, "acme-corp", "globex-inc", true}, {KindPerson, "acme-corp", "", false}, {KindPerson, "", "globex-inc", true},
		{KindOwner, "acme-corp", "globex-inc", true}, {KindOwner, "acme-corp", "", false},
		{KindUnknown, "acme-corp", "globex-inc", true}, {KindUnknown, "acme-corp", "", false}, {KindUnknown, "", "", false},
	} {
		self := acme
		self.TenantID = tc.self
		other := Counterparty{Kind: tc.kind, Identity: Identity{TenantID: tc.tenant}}
		reason, blocked := Wall(self, other)
		if blocked != tc.blocked || blocked != (reason != "") {
			t.Errorf("%q to %s of %q: blocked %t, %q", tc.self, tc.kind, tc.tenant, blocked, reason)
		}
		m := question()
		m.Sender.Identity, m.To = self, other
		m.To.Accepts, m.LooksLike = Restricted, "telegram:rival"
		var policy Policy = forbidden{t}
		if !blocked {
			policy = yes
		}
		if v := Decide(t.Context(), &m, policy); (v.Code == CrossEnterpriseBlocked) != tc.blocked {
			t.Errorf("%q to %s of %q: decided %s", tc.self, tc.kind, tc.tenant, v.Code)
		}
	}
}

// The caller's wish about who may answer makes the type's own policy narrower, never wider.
func TestReplyPolicyOnlyTightens(t *testing.T) {
	for _, tc := range []struct {
		of   ExchangeType
		wish ReplyPolicy
		want ReplyPolicy
	}{
		{InformationQuery, "", AgentOK}, {InformationQuery, AgentOK, AgentOK}, {InformationQuery, HumanOnly, HumanOnly}, {InformationQuery, NoReplyNeeded, NoReplyNeeded},
		{MeetingScheduling, AgentOK, HumanOnly}, {MeetingScheduling, NoReplyNeeded, HumanOnly}, {InformationQuery, "anybody", AgentOK},
	} {
		m := question()
		m.Exchange.Type, m.ReplyPolicy, m.Person = tc.of, tc.wish, Approved
		if v := Decide(t.Context(), &m, yes); v.Envelope.ReplyPolicy != tc.want {
			t.Errorf("%s with %q: %s, %s", tc.of, tc.wish, v.Envelope.ReplyPolicy, v.Reason)
		}
	}
}

// A receiver learns the category of withheld data from a fixed list. The description stays with the
// sender.
func TestWithheldIsToldByCategory(t *testing.T) {
	m := question()
	m.To.Accepts = Public
	m.Data = []DataItem{
		{Source: "hr", Level: Restricted, Description: "the merger is on"}, {Source: "crm", Level: Internal, Description: "who buys"}, {Source: "web", Level: Public},
	}
	v := Decide(t.Context(), &m, yes)
	if len(v.Shared) != 1 || len(v.Withheld) != 2 || v.Withheld[0] != (Withheld{AboveLevel, "the merger is on"}) || v.Withheld[1] != (Withheld{NotAccepted, "who buys"}) {
		t.Fatalf("shared %+v, withheld %+v", v.Shared, v.Withheld)
	}
	told := v.Told()
	if len(told) != 2 || told[0] != (Withheld{AboveLevel, "above the message's level"}) || told[1] != (Withheld{NotAccepted, "above what the receiver accepts"}) {
		t.Errorf("told %+v", told)
	}
}

// The verdict on an answer that binds says that a person is required, and names the words.
func TestHeldAnswerRequiresHuman(t *testing.T) {
	m := question()
	m.Content, m.Rules = "I promise", detectors(t)
	v := Decide(t.Context(), &m, yes)
	words, _ := v.Details["detectedKeywords"].([]string)
	if v.Details["requiresHuman"] != true || !slices.Equal(words, []string{"promise"}) {
		t.Errorf("details %v", v.Details)
	}
}

// received returns bob's debt to alice after her message.
func received(t *testing.T, o Owed, change func(*Incoming)) Owed {
	t.Helper()
	in := arriving()
	in.Owed = o
	change(&in)
	v := Receive(t.Context(), &in, yes)
	if !v.Allowed() {
		t.Fatalf("refused: %s", v.Reason)
	}
	return v.Owed
}

func humanOnly(m *Incoming)  { m.Envelope.ReplyPolicy = HumanOnly }
func noReply(m *Incoming)    { m.Envelope.ReplyPolicy = NoReplyNeeded }
func commits(m *Incoming)    { m.Envelope.RequiresCommitment = true }
func mute(m *Incoming)       { m.Receiver.CanAutoRespond = false }
func ordinary(*Incoming)     {}
func anotherOne(m *Incoming) { m.Exchange.ConversationID = "conv-2" }

// The debt belongs to the pair of agents until a person has answered: a new exchange, or another
// id, changes nothing.
func TestFreshExchangeStepsOutOfNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Incoming)
		code   Code
		reason string
	}{
		{"human-only", humanOnly, CommitmentRequiresHuman, "only a person may give"},
		{"requires_commitment", commits, CommitmentRequiresHuman, "waits for a commitment"},
		{"can_auto_respond: false", mute, CommitmentRequiresHuman, "does not answer by itself"},
		{"no-reply-needed", noReply, ReplyNotExpected, "wanted no reply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			owed := received(t, Owed{}, tc.change)
			if owed.ReplyPolicy == "" || owed.ConversationID != "conv-789-xyz" || owed.Until.IsZero() {
				t.Fatalf("owed is %+v", owed)
			}
			m := question()
			m.Exchange.ID, m.Exchange.ConversationID = "fresh", "fresh"
			m.Owed, m.Sender.CanAutoRespond = owed, tc.name != "can_auto_respond: false"
			v := Decide(t.Context(), &m, yes)
			if v.Result != RequireApproval || v.Code != tc.code || !strings.Contains(v.Reason, tc.reason) || v.Owed != owed {
				t.Fatalf("got %s %s: %s, owed %+v", v.Result, v.Code, v.Reason, v.Owed)
			}
			// In the conversation itself, a reply to a message that wants none is refused.
			same := m
			same.Exchange.ConversationID = "conv-789-xyz"
			if v := Decide(t.Context(), &same, yes); tc.code == ReplyNotExpected && v.Result != Deny || v.Allowed() {
				t.Errorf("in its conversation: %s %s", v.Result, v.Code)
			}
			for _, person := range []Person{Approved, TakenOver} {
				m.Person = person
				if v := Decide(t.Context(), &m, yes); !v.Allowed() || v.Owed != (Owed{}) {
					t.Errorf("a person's answer: %s, owed %+v", v.Code, v.Owed)
				}
			}
			m.Person, m.Now = Nobody, owed.Until
			m.Exchange.ExpiresAt = owed.Until.Add(time.Hour)
			if v := Decide(t.Context(), &m, yes); !v.Allowed() || v.Owed != (Owed{}) {
				t.Errorf("once it has expired: %s, owed %+v", v.Code, v.Owed)
			}
			m.Now, m.Rules = question().Now, &Rules{Monitor: true}
			if v := Decide(t.Context(), &m, yes); !v.Allowed() {
				t.Errorf("monitored: %s", v.Code)
			}
		})
	}
}

// A message that asks for less does not reduce an existing debt.
func TestOwedIsNotLessened(t *testing.T) {
	later := func(m *Incoming) { m.Exchange.ExpiresAt = m.Exchange.ExpiresAt.Add(time.Hour) }
	tests := []struct {
		name   string
		before []func(*Incoming)
		change []func(*Incoming)
		want   Owed
	}{
		{"nothing", nil, []func(*Incoming){ordinary}, Owed{}},
		{"a person's, then an ordinary one", []func(*Incoming){humanOnly}, []func(*Incoming){anotherOne}, Owed{ReplyPolicy: HumanOnly, ConversationID: "conv-789-xyz"}},
		{"a person's, then one that wants no answer", []func(*Incoming){humanOnly}, []func(*Incoming){noReply, anotherOne}, Owed{ReplyPolicy: HumanOnly, ConversationID: "conv-789-xyz"}},
		{"a person's, then a commitment", []func(*Incoming){humanOnly}, []func(*Incoming){commits, anotherOne}, Owed{ReplyPolicy: HumanOnly, Commitment: true, ConversationID: "conv-2"}},
		{"a commitment, then a person's", []func(*Incoming){commits}, []func(*Incoming){humanOnly, anotherOne}, Owed{ReplyPolicy: HumanOnly, Commitment: true, ConversationID: "conv-2"}},
		{"no answer, then a commitment", []func(*Incoming){noReply}, []func(*Incoming){commits, anotherOne}, Owed{ReplyPolicy: AgentOK, Commitment: true, ConversationID: "conv-2"}},
		{"no answer, then a question", []func(*Incoming){noReply}, []func(*Incoming){anotherOne}, Owed{}},
		{"no answer, and no answer again", []func(*Incoming){noReply}, []func(*Incoming){noReply, anotherOne}, Owed{ReplyPolicy: NoReplyNeeded, ConversationID: "conv-2"}},
		{"no answer, but a commitment", []func(*Incoming){noReply, commits}, []func(*Incoming){anotherOne}, Owed{ReplyPolicy: NoReplyNeeded, Commitment: true, ConversationID: "conv-789-xyz"}},
		{"two of one who answers nobody", []func(*Incoming){mute, later}, []func(*Incoming){mute, anotherOne}, Owed{ReplyPolicy: AgentOK, ConversationID: "conv-2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := func(changes []func(*Incoming)) func(*Incoming) {
				return func(m *Incoming) {
					for _, change := range changes {
						change(m)
					}
				}
			}
			before := Owed{}
			if tt.before != nil {
				before = received(t, before, all(tt.before))
			}
			got := received(t, before, all(tt.change))
			if got.Until.Before(before.Until) && got != (Owed{}) {
				t.Errorf("it ends at %s, before %s", got.Until, before.Until)
			}
			if got.Until = (time.Time{}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// If a person resolves the exchange, its debt is settled. If a person denies an answer, it is not.
// After a message that wanted no answer, a person looks once.
func TestSettleOwed(t *testing.T) {
	person := Owed{ReplyPolicy: HumanOnly, ConversationID: "c"}
	none := Owed{ReplyPolicy: NoReplyNeeded, ConversationID: "c"}
	for _, tc := range []struct {
		owed         Owed
		outcome      Outcome
		conversation string
		held         Code
		paid         bool
	}{
		{person, Resolved, "c", "", true}, {person, Resolved, "other", "", false}, {person, Denied, "c", CommitmentRequiresHuman, false}, {person, Expired, "c", "", false},
		{none, Denied, "other", ReplyNotExpected, true}, {none, Resolved, "other", ReplyNotExpected, true}, {none, Denied, "other", CommitmentRequiresHuman, false},
		{none, Expired, "other", ReplyNotExpected, false}, {person, Denied, "other", ReplyNotExpected, false},
	} {
		if got := tc.owed.Settle(tc.outcome, tc.conversation, tc.held); (got == Owed{}) != tc.paid {
			t.Errorf("%+v: owed %+v", tc, got)
		}
	}
}

// While two agents are at their limit, no message passes between them in either direction, in any
// exchange, except a person's own.
func TestStoppedPairTakesNothingEitherWay(t *testing.T) {
	out := question()
	out.Escalated = "exch-old"
	v := Decide(t.Context(), &out, yes)
	payload, _ := v.Details["escalation"].(Escalation)
	if v.Code != RoundLimit || v.Details["escalatedExchange"] != "exch-old" || payload.ExchangeID != "exch-001" || payload.CurrentRound != 1 || payload.Reason != v.Reason {
		t.Errorf("out: %s, %+v", v.Code, v.Details)
	}
	// The other side of the same exchange is stopped too, although it has rounds left.
	out.Escalated = "exch-001"
	if v = Decide(t.Context(), &out, yes); v.Code != RoundLimit || v.Exchange.Outcome != Escalated {
		t.Errorf("out, in the exchange itself: %s", v.Code)
	}
	out.Person = Approved
	if v = Decide(t.Context(), &out, yes); !v.Allowed() {
		t.Errorf("out, approved in the exchange itself: %s", v.Code)
	}
	if out.Escalated = "exch-old"; Decide(t.Context(), &out, yes).Result == Allow {
		t.Error("out, approved in another exchange")
	}
	out.Person = TakenOver
	if v = Decide(t.Context(), &out, yes); !v.Allowed() {
		t.Errorf("out, a person's own words: %s", v.Code)
	}

	in := arriving()
	in.Escalated = "exch-old"
	v = Receive(t.Context(), &in, forbidden{t})
	if v.Result != Deny || v.Code != RoundLimit || v.Exchange.Outcome != InProgress || v.Details["escalatedExchange"] != "exch-old" || v.Exhausted() {
		t.Errorf("in: %s, %+v", v.Code, v.Exchange)
	}
	for name, words := range map[string]func(*Incoming){
		"a person's own words":       func(m *Incoming) { m.Envelope.MessageType = Human },
		"a person of this daemon ok": func(m *Incoming) { m.Approved = true },
	} {
		m := in
		words(&m)
		if v := Receive(t.Context(), &m, yes); !v.Allowed() {
			t.Errorf("in, %s: %s", name, v.Code)
		}
	}
}

// A chain that is too long stops its two agents like used-up rounds.
func TestChainLimitStopsThePair(t *testing.T) {
	m := question()
	m.Rules = &Rules{Chain: ChainLimits{MaxHops: 1}}
	m.Cause = Chain{ID: "d", Hops: 1, Path: []string{"x"}, StartedAt: Time{m.Now}}
	if v := Decide(t.Context(), &m, yes); v.Code != ChainLimit || !v.Exhausted() {
		t.Errorf("got %s, exhausted %t", v.Code, v.Exhausted())
	}
	// A held commitment stops only its own exchange.
	m = question()
	m.Content, m.Rules = "I promise", detectors(t)
	if v := Decide(t.Context(), &m, yes); v.Code != CommitmentRequiresHuman || v.Exhausted() {
		t.Errorf("got %s, exhausted %t", v.Code, v.Exhausted())
	}
}

// From outside, limits can only tighten this side's: the end comes earlier, rounds that run ahead
// change nothing, and a first message has a first round.
func TestEnvelopesOnlyTighten(t *testing.T) {
	in := arriving()
	in.ExpiresAfter = time.Hour
	in.Envelope.ExpiresAt.Time = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	in.Exchange.ExpiresAt = in.Envelope.ExpiresAt.Time
	v := Receive(t.Context(), &in, yes)
	if !v.Allowed() || !v.Exchange.ExpiresAt.Equal(in.Now.Add(time.Hour)) {
		t.Errorf("the end is %s", v.Exchange.ExpiresAt)
	}
	if in.Envelope.MaxRounds = 99; Receive(t.Context(), &in, yes).Exchange.MaxRounds != 3 {
		t.Error("the limit of rounds grew")
	}
	for _, round := range []int{4, 1_000_000} {
		in := arriving()
		in.Envelope.ExchangeRound = round
		if v := Receive(t.Context(), &in, forbidden{t}); v.Result != Deny || v.Code != EnvelopeForged || v.Exhausted() || v.Exchange.Outcome != InProgress {
			t.Errorf("round %d: %s %s", round, v.Result, v.Code)
		}
	}
	// A refused message leaves the exchange unchanged.
	in = arriving()
	underWay(&in)
	in.Envelope.ExchangeRound, in.Envelope.MaxRounds, in.Exchange.Outcome, in.Exchange.ForPerson = 1, 2, Escalated, true
	if v := Receive(t.Context(), &in, yes); v.Code != EnvelopeReplayed || v.Exchange.MaxRounds != 3 || !v.Exchange.ForPerson {
		t.Errorf("a replay: %s, %+v", v.Code, v.Exchange)
	}
}

// A message that only a person may answer is delivered, the receiver's side is escalated, and a
// person is told. The answer is held, and a person's approval lets the exchange continue.
func TestReceiverEscalatesAndDelivers(t *testing.T) {
	for name, change := range map[string]func(*Incoming){
		"a keyword": func(m *Incoming) { m.Content, m.Rules = "Please approve the budget", detectors(t) },
		"a keyword elsewhere": func(m *Incoming) {
			m.Rules = detectors(t)
			m.Passages = []Passage{{Member: "metadata.note", Text: "Please approve it", Prose: true}}
		},
		"requires_commitment": commits,
		"human-only":          humanOnly,
	} {
		t.Run(name, func(t *testing.T) {
			in := arriving()
			change(&in)
			v := Receive(t.Context(), &in, yes)
			payload, _ := v.Details["escalation"].(Escalation)
			if !v.Allowed() || v.Exchange.Outcome != Escalated || !v.Exchange.ForPerson || v.ForPerson == "" || payload.Reason != v.ForPerson || payload.CurrentRound != 1 || v.Exhausted() {
				t.Fatalf("got %s, %+v, %q", v.Code, v.Exchange, v.ForPerson)
			}
			if !v.Exchange.Open(in.Now) {
				t.Error("the session's next message would begin another exchange")
			}
			// The sender may send more.
			more := in
			more.Exchange, more.Envelope.ExchangeRound = v.Exchange, 2
			more.Envelope.ReplyPolicy, more.Envelope.RequiresCommitment, more.Content, more.Passages = AgentOK, false, "Thanks", nil
			after := Receive(t.Context(), &more, yes)
			if !after.Allowed() || after.ForPerson != "" || after.Exchange.Outcome != Escalated || !after.Exchange.ForPerson {
				t.Errorf("one more: %s, %+v, %q", after.Code, after.Exchange, after.ForPerson)
			}
			// The agent's answer waits. Meanwhile no other message is sent there.
			answer := question()
			answer.Sender.Identity, answer.To.Identity = answer.To.Identity, answer.Sender.Identity
			answer.Exchange = after.Exchange
			held := Decide(t.Context(), &answer, yes)
			if held.Code != CommitmentRequiresHuman || held.Exchange.Outcome != Escalated || held.Exchange.ForPerson {
				t.Fatalf("the answer: %s, %+v", held.Code, held.Exchange)
			}
			second := answer
			second.Exchange = held.Exchange
			if v := Decide(t.Context(), &second, yes); v.Code != ExchangeClosed {
				t.Errorf("beside the held answer: %s", v.Code)
			}
			answer.Person = Approved
			if v := Decide(t.Context(), &answer, yes); !v.Allowed() || v.Exchange.Outcome != InProgress || v.Exchange.ForPerson || v.Owed != (Owed{}) {
				t.Errorf("approved: %s, %+v", v.Code, v.Exchange)
			}
		})
	}
	in := arriving()
	in.Content, in.Rules = "Please approve the budget", detectors(t)
	in.Rules.Monitor = true
	if v := Receive(t.Context(), &in, yes); !v.Allowed() || v.ForPerson != "" || v.Exchange.Outcome != InProgress {
		t.Errorf("monitored: %+v", v.Exchange)
	}
}

// An exchange that exceeds its limit through an inbound message has a payload for the person who
// reviews it.
func TestInboundRoundLimitHasAPayload(t *testing.T) {
	in := arriving()
	underWay(&in)
	in.Exchange.Round, in.Envelope.ExchangeRound = 3, 4
	v := Receive(t.Context(), &in, yes)
	payload, ok := v.Details["escalation"].(Escalation)
	if v.Code != RoundLimit || !v.Exhausted() || !ok || payload.CurrentRound != 4 || payload.MaxRounds != 3 {
		t.Errorf("got %s, %+v", v.Code, v.Details)
	}
}

// An error of the policy denies, escalates the exchange and tells a person.
func TestPolicyErrorEscalates(t *testing.T) {
	broken := &scripted{err: errors.New("ill-shaped")}
	asks, comes, stranger := question(), arriving(), to(KindUnknown)
	out := Decide(t.Context(), &asks, broken)
	in := Receive(t.Context(), &comes, broken)
	for name, v := range map[string]*Verdict{"out": out, "in": in} {
		if v.Result != Deny || v.Code != PolicyUnreachable || v.Exchange.Outcome != Escalated || v.ForPerson == "" || v.Exchange.ForPerson || v.Exhausted() {
			t.Errorf("%s: %s %s, %+v, %q", name, v.Result, v.Code, v.Exchange, v.ForPerson)
		}
		if strings.Contains(v.ForPerson, "ill-shaped") {
			t.Errorf("%s: the notice tells what failed inside: %s", name, v.ForPerson)
		}
	}
	if v := Decide(t.Context(), &stranger, broken); !v.Allowed() {
		t.Errorf("nobody asks the policy about a stranger here: %s", v.Code)
	}
}

// An exchange's first round is 1, and a sender that may share a level may share those below it.
func TestEnvelopeShapes(t *testing.T) {
	good := string(annotate(arriving().Envelope))
	for from, path := range map[[2]string]string{
		{`"exchange_round":1`, `"exchange_round":0`}:                                   "exchange_round",
		{`["public","internal"]`, `["internal"]`}:                                      "capabilities.can_share",
		{`["public","internal"]`, `["public","restricted"]`}:                           "capabilities.can_share",
		{`["public","internal"]`, `["confidential","public","restricted"]`}:            "capabilities.can_share",
		{`["public","internal"]`, `["public","internal","confidential","public"]`}:     "",
		{`["public","internal"]`, `["restricted","confidential","internal","public"]`}: "",
		{`["public","internal"]`, `[]`}:                                                "classification",
		{`["public","internal"]`, `["public"]`}:                                        "classification",
	} {
		_, err := ParseEnvelope([]byte(strings.Replace(good, from[0], from[1], 1)))
		var wrong *EnvelopeError
		switch {
		case path == "" && err != nil:
			t.Errorf("%s: %v", from[1], err)
		case path != "" && (!errors.As(err, &wrong) || wrong.Path != path):
			t.Errorf("%s: %v", from[1], err)
		}
	}
}

// Personal data are recorded and raise nothing, until the operator gives them a level.
func TestPersonalDataInShadow(t *testing.T) {
	for mode, want := range map[string]Code{"": "", content.Off: "", content.Restricted: ClassificationViolation} {
		m := question()
		m.Content, m.Rules = "Ask ada@acme.io.", detectors(t)
		o := content.Options{Personal: map[string]string{}}
		if mode != "" {
			o.Personal["email"] = mode
		}
		var err error
		if m.Rules.Content, err = content.New(o); err != nil {
			t.Fatal(err)
		}
		v := Decide(t.Context(), &m, yes)
		if v.Code != want {
			t.Errorf("%q: got %s, %s", mode, v.Code, v.Reason)
		}
		found := slices.IndexFunc(v.Detections, func(d Detection) bool { return d.Rule == "personal.email" })
		if found >= 0 == (mode == content.Off) || found >= 0 && v.Detections[found].Shadow != (mode == "") {
			t.Errorf("%q: got %+v", mode, v.Detections)
		}
	}
}
