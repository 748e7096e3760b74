package ocip

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// mention has a keyword and commits nobody.
const mention = "The meeting room on the second floor has a new lamp."

// TestKeywordsWeighed checks by which settings a message that only keywords hold is weighed, and
// what is never weighed away.
func TestKeywordsWeighed(t *testing.T) {
	for _, tc := range []struct {
		name string
		with func(m *Outgoing)
		by   string // the setting by which the message goes, empty if it is held
	}{
		{"the seed", func(*Outgoing) {}, ""},
		{"weigh", func(m *Outgoing) { m.Rules.Keywords = commitment.Weigh }, settingKeywords},
		{"the agent's", func(m *Outgoing) { m.Sender.Keywords = commitment.Weigh }, settingAgent},
		{"enforced for the agent", func(m *Outgoing) { m.Rules.Keywords, m.Sender.Keywords = commitment.Weigh, commitment.Enforce }, ""},
		{"a person", func(m *Outgoing) { m.Rules.Person.Keywords, m.To.Kind = commitment.Weigh, KindPerson }, settingPerson},
		{"enforced for people", func(m *Outgoing) {
			m.Rules.Keywords, m.Sender.Keywords, m.Rules.Person.Keywords, m.To.Kind = commitment.Weigh, commitment.Weigh, commitment.Enforce, KindPerson
		}, ""},
		{"a setting for people says nothing of agents", func(m *Outgoing) { m.Rules.Person.Keywords = commitment.Weigh }, ""},
		{"a stranger, later", func(m *Outgoing) { m.Rules.Keywords, m.To.Kind = commitment.Weigh, KindUnknown }, settingKeywords},
		{"a stranger, first", func(m *Outgoing) {
			m.Rules.Keywords, m.Rules.Unknown.Keywords, m.To.Kind, m.First = commitment.Weigh, commitment.Weigh, KindUnknown, true
		}, ""},
		{"a stranger that calls itself an agent", func(m *Outgoing) { m.Rules.Keywords, m.Unconfirmed = commitment.Weigh, true }, ""},
		{"a group", func(m *Outgoing) { m.Rules.Keywords, m.To.Group = commitment.Weigh, true }, ""},
		{"an answer to a question", func(m *Outgoing) { m.Rules.Keywords, m.Before.Asked = commitment.Weigh, true }, ""},
		{"an answer to an agent's question", func(m *Outgoing) {
			m.Rules.Keywords, m.Exchange.Awaiting, m.Exchange.Asks = commitment.Weigh, AgentOK, true
		}, ""},
		{"a commitment is awaited", func(m *Outgoing) { m.Rules.Keywords, m.Exchange.AwaitsCommitment = commitment.Weigh, true }, ""},
		{"the sender asks for a person", func(m *Outgoing) { m.Rules.Keywords, m.AskPerson = commitment.Weigh, true }, ""},
		{"a cue beside it", func(m *Outgoing) { m.Rules.Keywords, m.Content = commitment.Weigh, mention+" I'll send you a photo." }, ""},
		{"a promise in another string", func(m *Outgoing) {
			m.Rules.Keywords, m.Passages = commitment.Weigh, []Passage{{Member: "metadata.note", Text: "We promise it.", Prose: true}}
		}, ""},
		{"a keyword in a file", func(m *Outgoing) {
			m.Rules.Keywords = commitment.Weigh
			w := m.Rules.Weigher(nil, 0)
			_, _ = w.Write([]byte(mention))
			m.Files, _ = Together([]NamedText{{"file", w.Found()}})
		}, ""},
		{"only the markup shows it", func(m *Outgoing) {
			m.Rules.Keywords, m.Content, m.Rendering = commitment.Weigh, "The meet<b></b>ing room has a lamp.", []text.Rendering{text.RenderHTML}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := question()
			m.Content, m.Rules = mention, detectors(t)
			m.Rules.Person.Commitments, m.Rules.Unknown.Commitments = true, true
			tc.with(&m)
			if m.To.Kind != KindAgent {
				m.Exchange = to(m.To.Kind).Exchange
			}
			v := Decide(t.Context(), &m, yes)
			weighed, _ := v.Details["weighed"].(map[string]any)
			if v.Allowed() != (tc.by != "") || !v.Allowed() && v.Code != CommitmentRequiresHuman {
				t.Fatalf("%s, %s: %s", v.Result, v.Code, v.Reason)
			}
			// The record says that the setting would have sent it.
			spare := slices.Contains([]string{"the seed", "enforced for the agent", "enforced for people", "a setting for people says nothing of agents"}, tc.name)
			if (v.Details[detailSpare] == true) != spare {
				t.Errorf("spare: %v, want %v", v.Details, spare)
			}
			if tc.by == "" {
				if weighed != nil {
					t.Errorf("held, with %v", v.Details)
				}
				return
			}
			if weighed["by"] != tc.by || !slices.Equal(v.Details["keywords"].([]string), []string{"meeting"}) || len(weighed["reasons"].([]string)) == 0 {
				t.Errorf("details %v", v.Details)
			}
		})
	}
	m := question()
	m.Content, m.Rules = "We agree to the terms.", detectors(t)
	m.Rules.Keywords = commitment.Weigh
	if v := Decide(t.Context(), &m, yes); v.Code != CommitmentRequiresHuman || !strings.Contains(v.Grounds[0].LikelyBecause, "first person") {
		t.Errorf("%s: %+v", v.Result, v.Grounds)
	}
}

// TestKeywordsWeighedInbound checks that a message which commits nobody asks for no person's
// answer.
func TestKeywordsWeighedInbound(t *testing.T) {
	for _, tc := range []struct {
		name    string
		with    func(m *Incoming)
		awaited bool
	}{
		{"the seed", func(*Incoming) {}, true},
		{"weigh", func(m *Incoming) { m.Rules.Keywords = commitment.Weigh }, false},
		{"a promise", func(m *Incoming) { m.Rules.Keywords, m.Content = commitment.Weigh, "We promise it." }, true},
		{"the envelope asks", func(m *Incoming) { m.Rules.Keywords, m.Envelope.RequiresCommitment = commitment.Weigh, true }, true},
		{"a stranger", func(m *Incoming) { m.Rules.Keywords, m.From.Kind = commitment.Weigh, KindUnknown }, true},
		{"of the same owner", func(m *Incoming) {
			m.Rules.RecordSameOwner, m.From.UserID, m.Envelope.SourceAgent.UserID = true, m.Receiver.UserID, m.Receiver.UserID
		}, false},
		{"of another owner", func(m *Incoming) { m.Rules.RecordSameOwner = true }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := arriving()
			m.Content, m.Rules = mention, detectors(t)
			tc.with(&m)
			if v := Receive(t.Context(), &m, yes); !v.Allowed() || v.Exchange.AwaitsCommitment != tc.awaited {
				t.Errorf("%s %s, awaits a commitment: %v", v.Result, v.Reason, v.Exchange.AwaitsCommitment)
			}
		})
	}
}

// TestSameOwner checks that commitments between agents of one person can be only recorded, and that
// nothing else is.
func TestSameOwner(t *testing.T) {
	for _, tc := range []struct {
		name string
		with func(m *Outgoing)
		code Code
	}{
		{"recorded", func(*Outgoing) {}, ""},
		{"the seed", func(m *Outgoing) { m.Rules.RecordSameOwner = false }, CommitmentRequiresHuman},
		{"another person's agent", func(m *Outgoing) { m.To.UserID = "bob" }, CommitmentRequiresHuman},
		{"no person", func(m *Outgoing) { m.To.UserID, m.Sender.UserID = "", "" }, CommitmentRequiresHuman},
		{"another tenant", func(m *Outgoing) { m.To.TenantID = "umbrella" }, CrossEnterpriseBlocked},
		{"by its own word", func(m *Outgoing) { m.Unconfirmed = true }, CommitmentRequiresHuman},
		{"in a group", func(m *Outgoing) { m.To.Group = true }, CommitmentRequiresHuman},
		{"a person is asked for", func(m *Outgoing) { m.AskPerson = true }, CommitmentRequiresHuman},
		{"only a person may answer", func(m *Outgoing) { m.Exchange.Awaiting = HumanOnly }, CommitmentRequiresHuman},
		{"rounds", func(m *Outgoing) { m.Exchange.Round = m.Exchange.MaxRounds }, RoundLimit},
		{"level", func(m *Outgoing) { m.Content += " The key is " + secret }, ClassificationViolation},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := question()
			m.Content, m.Rules = "I promise to send it by Friday.", detectors(t)
			m.Rules.RecordSameOwner, m.To.UserID = true, m.Sender.UserID
			tc.with(&m)
			v := Decide(t.Context(), &m, yes)
			if v.Code != tc.code || len(v.Detections) == 0 && tc.code != CrossEnterpriseBlocked {
				t.Errorf("%s %s: %s, %+v", v.Result, v.Code, v.Reason, v.Detections)
			}
			if tc.code == "" && v.Details["sameOwner"] != "record" {
				t.Errorf("details %v", v.Details)
			}
		})
	}
}
