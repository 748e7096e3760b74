package ocip

import (
	"context"
	"fmt"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Rules are what a decision looks for in a message's text. A detector that is
// nil looks for nothing.
type Rules struct {
	Content     *content.Detector
	Commitments *commitment.Detector
	// Monitor records commitments and lets them go.
	Monitor bool
	// Chain bounds the causal line of messages between agents.
	Chain ChainLimits
	// Unknown is what holds towards whom nobody declared, Person towards declared
	// people who are not the owner.
	Unknown, Person PeopleRules
	// LookAlike is what becomes of a message whose session key imitates an entry
	// of the directory.
	LookAlike LookAlike
}

func (r *Rules) chainLimits() ChainLimits {
	if r == nil {
		return ChainLimits{}
	}
	return r.Chain
}

// promises looks for commitments in a text and enters what it finds.
func (r *Rules) promises(text string, v *Verdict) commitment.CommitmentDetectionResult {
	if r == nil || r.Commitments == nil {
		return commitment.Judge(nil)
	}
	hits := r.Commitments.Detect(text)
	for _, h := range commitment.Digest(hits, maxDetections) {
		v.Detections = append(v.Detections, Detection{Rule: "commitment." + h.Name(), Start: h.Start, End: h.End, Zone: h.Zone, Shadow: h.Shadow})
	}
	return commitment.Judge(hits)
}

// Detection is one thing that was found in a text: the rule that found it and
// where, never the text itself. Start and End are byte offsets in the message's
// member, which is empty for its content.
type Detection struct {
	Rule       string
	Member     string
	Start, End int
	Zone       string
	// Shadow marks what is only recorded.
	Shadow bool
}

// maxDetections bounds what a verdict carries, so that no text can make a record
// larger than it may be.
const maxDetections = 64

// raise looks at the content, which can only raise the declared level.
func raise(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.Rules == nil || m.Rules.Content == nil {
		return
	}
	found := m.Rules.Content.Detect(m.Content)
	for _, f := range found[:min(len(found), maxDetections)] {
		v.Detections = append(v.Detections, Detection{Rule: f.Rule, Start: f.Start, End: f.End})
	}
	// The detector's levels are the protocol's; one that is not is treated as
	// the highest.
	level, err := ParseLevel(content.Highest(found))
	if err != nil {
		level = Restricted
	}
	if level <= v.Level {
		return
	}
	v.Level = level
	for _, f := range found {
		if f.Level == level.String() {
			v.raisedBy = &Detection{Rule: f.Rule, Start: f.Start, End: f.End}
			return
		}
	}
}

// commitments looks for what no agent may promise by itself: the exchange's own
// flags, and words in the text. With a person, nothing is held.
func commitments(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	result := m.Rules.promises(m.Content, v)
	if m.To.Kind != KindAgent || m.Person != Nobody || m.Rules != nil && m.Rules.Monitor {
		return
	}
	var reason string
	switch t := v.Exchange.Type; {
	case v.Exchange.Awaiting == HumanOnly:
		reason = "the message this answers may be answered by a person only"
	case v.Exchange.AwaitsCommitment:
		reason = "the message this answers asks for a commitment"
	case v.Exchange.Awaiting != "" && !m.Sender.CanAutoRespond:
		reason = fmt.Sprintf("agent %s does not answer by itself", m.Sender.ID)
	case t.ReplyPolicy() == HumanOnly:
		reason = fmt.Sprintf("an exchange of type %s is for people", t)
	case t.RequiresCommitment():
		reason = fmt.Sprintf("an exchange of type %s asks for a commitment", t)
	case result.RequiresHuman:
		reason = *result.Reason
	default:
		return
	}
	v.escalate(CommitmentRequiresHuman, ruleCommitment, reason)
	v.Details = map[string]any{"requiresHuman": true, "detectedKeywords": result.DetectedKeywords}
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}

// replyExpected refuses an answer to a message that wants none.
func replyExpected(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind == KindAgent && v.Exchange.Awaiting == NoReplyNeeded {
		v.deny(ReplyNotExpected, ruleExchange, "the message this answers expects no reply")
	}
}

// DataItem is one piece of data that a caller says its message includes (OCIP
// reference, Data Tracking).
type DataItem struct {
	Source      string
	Fields      []string
	Level       Level
	Description string
}

// Shared names data that was included in a message.
type Shared struct {
	Source string   `json:"source"`
	Fields []string `json:"fields"`
}

// Withheld names data that was kept back, and why.
type Withheld struct {
	Reason      string `json:"reason"`
	Description string `json:"description"`
}

// sift parts the data items into those that go along and those that do not:
// above the message's level, or above what the receiver accepts.
func sift(items []DataItem, level, accepts Level) (shared []Shared, withheld []Withheld) {
	for _, item := range items {
		switch {
		case item.Level > level:
			withheld = append(withheld, Withheld{Description: item.Description, Reason: fmt.Sprintf("%s is above the exchange's level %s", item.Level, level)})
		case item.Level > accepts:
			withheld = append(withheld, Withheld{Description: item.Description, Reason: fmt.Sprintf("the receiver accepts no %s data", item.Level)})
		default:
			shared = append(shared, Shared{Source: item.Source, Fields: item.Fields})
		}
	}
	return shared, withheld
}
