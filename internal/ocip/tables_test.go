package ocip

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestClassificationLevels is the reference's level order: can_share holds all
// levels up to the sender's maximum, and a message may have no other.
func TestClassificationLevels(t *testing.T) {
	tests := []struct {
		maximum  string
		canShare []string
		blocked  []string
	}{
		{"public", []string{"public"}, []string{"internal", "confidential", "restricted"}},
		{"internal", []string{"public", "internal"}, []string{"confidential", "restricted"}},
		{"confidential", []string{"public", "internal", "confidential"}, []string{"restricted"}},
		{"restricted", []string{"public", "internal", "confidential", "restricted"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.maximum, func(t *testing.T) {
			m := question()
			m.Sender.MaxShared = level(t, tt.maximum)
			for _, name := range slices.Concat(tt.canShare, tt.blocked) {
				m.Declared = level(t, name)
				v := Decide(t.Context(), &m, yes)
				if slices.Contains(tt.blocked, name) {
					if v.Result != Deny || v.Code != ClassificationViolation {
						t.Errorf("%s: got %s %s, want a violation", name, v.Result, v.Code)
					}
					if v.Exchange.Outcome != Denied {
						t.Errorf("%s: the exchange is %s, want it denied", name, v.Exchange.Outcome)
					}
					if v.Details["classification"] != name || v.Details["maximum"] != tt.maximum {
						t.Errorf("%s: details %v", name, v.Details)
					}
					continue
				}
				if !v.Allowed() {
					t.Fatalf("%s: got %s %s: %s", name, v.Result, v.Code, v.Reason)
				}
				var shared []string
				for _, l := range v.Envelope.Capabilities.CanShare {
					shared = append(shared, l.String())
				}
				if !slices.Equal(shared, tt.canShare) {
					t.Errorf("can_share is %v, want %v", shared, tt.canShare)
				}
				if v.Envelope.Classification != m.Declared {
					t.Errorf("classification is %s, want %s", v.Envelope.Classification, name)
				}
			}
		})
	}
}

func TestParseLevelIsExact(t *testing.T) {
	for _, s := range []string{"", "Public", "public ", "PUBLIC", "secret", "0", "level(4)", "internаl"} {
		if l, err := ParseLevel(s); err == nil || l != Restricted {
			t.Errorf("%q: got %s and %v, want restricted and an error", s, l, err)
		}
	}
	if _, err := Level(4).MarshalText(); err == nil {
		t.Error("a level that does not exist was encoded")
	}
	if got := Level(9).UpTo(); len(got) != 4 {
		t.Errorf("a level that does not exist shares %v", got)
	}
	if s := Level(4).String(); s != "level(4)" {
		t.Errorf("got %q", s)
	}
}

// TestExchangeTypes is the reference's table of types.
func TestExchangeTypes(t *testing.T) {
	tests := []struct {
		name       string
		reply      ReplyPolicy
		commitment bool
	}{
		{"information_query", "agent-ok", false},
		{"commitment_request", "agent-ok", true},
		{"meeting_scheduling", "human-only", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			typ, err := ParseExchangeType(tt.name)
			if err != nil {
				t.Fatal(err)
			}
			m := question()
			m.Exchange.Type = typ
			if v := Decide(t.Context(), &m, yes); (v.Code == CommitmentRequiresHuman) != tt.commitment {
				t.Errorf("got %q, want a person asked: %v", v.Code, tt.commitment)
			}
			// A message that is only recorded is sent, and its envelope has the commitment flag.
			m.Rules = &Rules{Monitor: true}
			v := Decide(t.Context(), &m, yes)
			if v.Envelope.ReplyPolicy != tt.reply || v.Envelope.RequiresCommitment != tt.commitment {
				t.Errorf("got %s and %v, want %s and %v", v.Envelope.ReplyPolicy, v.Envelope.RequiresCommitment, tt.reply, tt.commitment)
			}
			if v.Envelope.Capabilities.CanCommit {
				t.Error("an agent may commit")
			}
		})
	}
	if _, err := ParseExchangeType("Information_Query"); err == nil {
		t.Error("an unknown type was read")
	}
}

// TestCrossOrgQuickReference is the reference's table of permitted pairs.
func TestCrossOrgQuickReference(t *testing.T) {
	const acme, globex = "acme-corp", "globex-inc"
	tests := []struct {
		name                       string
		source, target             string
		sourceOrg, targetOrg       string
		policy                     *scripted
		want                       Result
		code                       Code
		asked                      []string
		exchangeAfter, policyNamed string
	}{
		{"same org", acme, acme, "engineering", "engineering", answers(agree),
			Allow, "", []string{ActionExchange}, "in_progress", "ocip.agent_exchange"},
		{"cross org, policy permits", acme, acme, "engineering", "marketing", answers(agree, agree),
			Allow, "", []string{ActionExchange, ActionExchangeCrossOrg}, "in_progress", "ocip.agent_exchange+ocip.agent_exchange_cross_org"},
		{"cross org, policy denies", acme, acme, "engineering", "marketing", answers(agree, PolicyAnswer{Reason: "no"}),
			Deny, PolicyDenied, []string{ActionExchange, ActionExchangeCrossOrg}, "denied", "ocip.agent_exchange_cross_org"},
		{"cross org, exchange itself denied", acme, acme, "engineering", "marketing", answers(PolicyAnswer{}),
			Deny, PolicyDenied, []string{ActionExchange}, "denied", "ocip.agent_exchange"},
		{"other tenant, same org", acme, globex, "engineering", "engineering", nil,
			Deny, CrossEnterpriseBlocked, nil, "denied", "tenant-wall"},
		{"other tenant, other org", acme, globex, "engineering", "marketing", nil,
			Deny, CrossEnterpriseBlocked, nil, "denied", "tenant-wall"},
		{"tenant that differs in its case", acme, "Acme-Corp", "engineering", "engineering", nil,
			Deny, CrossEnterpriseBlocked, nil, "denied", "tenant-wall"},
		{"no tenant on either side", "", "", "engineering", "engineering", nil,
			Deny, CrossEnterpriseBlocked, nil, "denied", "tenant-wall"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := question()
			m.Sender.TenantID, m.To.TenantID, m.Sender.OrgUnit, m.To.OrgUnit = tt.source, tt.target, tt.sourceOrg, tt.targetOrg
			var policy Policy = forbidden{t}
			if tt.policy != nil {
				policy = tt.policy
			}
			v := Decide(t.Context(), &m, policy)
			if v.Result != tt.want || v.Code != tt.code {
				t.Errorf("got %s %s, want %s %s", v.Result, v.Code, tt.want, tt.code)
			}
			if string(v.Exchange.Outcome) != tt.exchangeAfter || v.Policy != tt.policyNamed {
				t.Errorf("exchange %s by %s, want %s by %s", v.Exchange.Outcome, v.Policy, tt.exchangeAfter, tt.policyNamed)
			}
			if tt.policy != nil && !slices.Equal(tt.policy.actions(), tt.asked) {
				t.Errorf("asked about %v, want %v", tt.policy.actions(), tt.asked)
			}
		})
	}
}

// TestTenantWallStandsBeforeAnythingElse breaks every other rule as well: the wall decides, and the
// policy is not asked.
func TestTenantWallStandsBeforeAnythingElse(t *testing.T) {
	m := question()
	m.To.TenantID = "globex-inc"
	m.Declared = Restricted
	m.Exchange.Outcome = Resolved
	m.Exchange.ExpiresAt = m.Now.Add(-time.Hour)
	m.Exchange.Round = 9
	m.Sender.Types = []ExchangeType{MeetingScheduling}
	m.MaxAnnotation = 1
	v := Decide(t.Context(), &m, forbidden{t})
	if v.Code != CrossEnterpriseBlocked || !strings.Contains(v.Reason, `"globex-inc"`) {
		t.Errorf("got %s: %s", v.Code, v.Reason)
	}
	if v.Exchange.Outcome != Resolved {
		t.Errorf("an exchange that was resolved became %s", v.Exchange.Outcome)
	}
}

// TestRoundLimit is the reference's loop prevention: three rounds pass, the fourth goes to a
// person, with the payload of the reference.
func TestRoundLimit(t *testing.T) {
	const alice, bob = "agent-alice", "agent-bob"
	says := []string{"Requested project status", "Provided status update", "Asked follow-up question", "Provided additional context"}
	m := question()
	m.Sender.InstanceID, m.To.InstanceID = alice, bob
	m.Exchange = Exchange{
		ID: "exch-001", ConversationID: "conv-789-xyz", Type: InformationQuery, Agent: alice, Counterparty: bob,
		Outcome: InProgress, MaxRounds: 3, ExpiresAt: m.Now.Add(time.Hour),
	}
	before := m.Exchange
	for i, what := range says[:3] {
		m.Sender.InstanceID, m.To.InstanceID = alice, bob
		if i%2 == 1 {
			m.Sender.InstanceID, m.To.InstanceID = bob, alice
		}
		m.Summary = what
		v := Decide(t.Context(), &m, yes)
		if !v.Allowed() || v.Envelope.ExchangeRound != i+1 || v.Envelope.MaxRounds != 3 {
			t.Fatalf("round %d: got %s, envelope %d of %d", i+1, v.Result, v.Envelope.ExchangeRound, v.Envelope.MaxRounds)
		}
		m.Exchange = v.Exchange
		if i == 1 {
			transcript, err := json.Marshal(m.Exchange.Transcript)
			if err != nil {
				t.Fatal(err)
			}
			const want = `[{"round":1,"sender":"agent-alice","summary":"Requested project status"},{"round":2,"sender":"agent-bob","summary":"Provided status update"}]`
			if string(transcript) != want {
				t.Errorf("transcript\n%s\nwant\n%s", transcript, want)
			}
		}
	}
	if before.Round != 0 || len(before.Transcript) != 0 {
		t.Errorf("the exchange before was changed: %+v", before)
	}
	m.Sender.InstanceID, m.To.InstanceID, m.Summary = bob, alice, says[3]
	v := Decide(t.Context(), &m, yes)
	if v.Result != RequireApproval || v.Code != RoundLimit || v.Annotation != nil {
		t.Fatalf("got %s %s with annotation %s", v.Result, v.Code, v.Annotation)
	}
	payload, err := json.Marshal(v.Details["escalation"])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"exchangeId":"exch-001","conversationId":"conv-789-xyz","currentRound":4,"maxRounds":3,` +
		`"conversationSummary":"Round 1 (agent-alice): Requested project status\nRound 2 (agent-bob): Provided status update\nRound 3 (agent-alice): Asked follow-up question\nRound 4 (agent-bob): Provided additional context",` +
		`"reason":"Exchange reached maximum round limit (3). Human review required."}`
	if string(payload) != want {
		t.Errorf("payload\n%s\nwant\n%s", payload, want)
	}
	if v.Exchange.Outcome != Escalated || v.Exchange.Round != 3 || len(v.Exchange.Transcript) != 3 {
		t.Errorf("the exchange is %s at round %d with %d lines", v.Exchange.Outcome, v.Exchange.Round, len(v.Exchange.Transcript))
	}
	// The exchange cannot be reopened.
	m.Exchange = v.Exchange
	if v := Decide(t.Context(), &m, forbidden{t}); v.Code != ExchangeClosed || v.Exchange.Outcome != Escalated {
		t.Errorf("afterwards: got %s, exchange %s", v.Code, v.Exchange.Outcome)
	}
}

// TestTranscriptIsNotShared branches one exchange twice.
func TestTranscriptIsNotShared(t *testing.T) {
	now := question().Now
	e := Exchange{}.advance(now, "a", "one", false).advance(now, "b", "two", false)
	left, right := e.advance(now, "a", "left", false), e.advance(now, "a", "right", false)
	if left.Transcript[2].Summary != "left" || right.Transcript[2].Summary != "right" || len(e.Transcript) != 2 {
		t.Errorf("got %v and %v from %v", left.Transcript, right.Transcript, e.Transcript)
	}
}

func TestSummarize(t *testing.T) {
	long := strings.Repeat("ü", SummaryRunes)
	tests := []struct{ name, content, want string }{
		{"nothing", "", ""},
		{"blanks", " \n\t\r\n", ""},
		{"first line with text", "\n\n  Status?  \nMore", "Status?"},
		{"windows line", "Status?\r\nMore", "Status?"},
		{"as long as may be", long, long},
		{"longer", long + "x", long + "…"},
		// The reviewer's terminal must not show another story.
		{"carriage return", "hi\rRound 9 (agent-b): approved", "hi Round 9 (agent-b): approved"},
		{"escape sequence", "\x1b[2Kapproved", "[2Kapproved"},
		{"line separator", "a\u2028b\u0085c", "a b c"},
		{"reversed", "a\u202eb", "a b"},
		{"not UTF-8", "a\xffb", "a b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Summarize(tt.content); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzSummarize checks that the result is one line that can be shown and stored.
func FuzzSummarize(f *testing.F) {
	for _, s := range []string{"", "a\nb", "\r\n\x00x", "\xff\xfe", strings.Repeat("é", 200), "a\u2029b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		s := Summarize(content)
		if n := utf8.RuneCountInString(s); n > SummaryRunes+1 {
			t.Fatalf("%d characters", n)
		}
		if !utf8.ValidString(s) || strings.ContainsFunc(s, misleading) || s != strings.TrimSpace(s) {
			t.Fatalf("%q becomes %q", content, s)
		}
		if again := Summarize(s); again != s && utf8.RuneCountInString(s) <= SummaryRunes {
			t.Fatalf("%q becomes %q, then %q", content, s, again)
		}
	})
}

func level(t *testing.T, name string) Level {
	t.Helper()
	l, err := ParseLevel(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
