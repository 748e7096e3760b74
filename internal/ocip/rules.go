package ocip

import (
	"context"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Rules configure the checks of a message's text. A nil detector finds nothing.
type Rules struct {
	Content     *content.Detector
	Commitments *commitment.Detector
	// Monitor records commitments and does not hold them.
	Monitor bool
	// Keywords is the treatment of messages that only keywords hold. An empty one holds them.
	Keywords commitment.Mode
	// RecordSameOwner only records commitments in the words between two agents of one person, as
	// towards the person.
	RecordSameOwner bool
	// Chain bounds the causal chain of messages between agents.
	Chain ChainLimits
	// Unknown are the rules towards undeclared counterparties, Person those towards declared people
	// other than the owner.
	Unknown, Person PeopleRules
	// LookAlike is the treatment of a message whose session key imitates an entry of the directory.
	LookAlike LookAlike
}

func (r *Rules) chainLimits() ChainLimits {
	if r == nil {
		return ChainLimits{}
	}
	return r.Chain
}

// promises looks for commitments in a message's texts, both as written and as the receiver sees
// them. It enters its findings and those from the message's files.
func (r *Rules) promises(before Before, texts []Passage, as []text.Rendering, files []commitment.Hit, v *Verdict) (hits []commitment.Hit) {
	if r == nil || r.Commitments == nil {
		return nil
	}
	hits = append(r.Commitments.ScanAfter(before, texts, as...), files...)
	var found []Detection
	for _, h := range hits {
		found = append(found, Detection{Rule: "commitment." + h.Name(), Member: ClipMember(h.Member), Start: h.Start, End: h.End, Zone: h.Zone, Shadow: h.Shadow})
	}
	v.Detections = append(v.Detections, few(found)...)
	return hits
}

// read begins to weigh a message by its commitments, nil if there is no detector.
func (r *Rules) read(hits []commitment.Hit, texts []Passage, before Before) *commitment.Reading {
	if r == nil || r.Commitments == nil {
		return nil
	}
	return r.Commitments.Read(hits, texts, before)
}

// Detection is one finding in a text: its rule and its position, never the text itself. Start and
// End are byte offsets in the message's member, which is empty for its content.
type Detection struct {
	Rule       string
	Member     string
	Start, End int
	Zone       string
	// Shadow marks a finding that is only recorded.
	Shadow bool
}

// maxDetections bounds the findings in a verdict, so that no text can make a record larger than the
// limit.
const maxDetections = 64

// few keeps at most [maxDetections] detections for a record: the first of each kind, enforced ones
// before shadow ones, then the earliest others, in their order.
func few(found []Detection) []Detection {
	const n = maxDetections
	if len(found) <= n {
		return found
	}
	type kind struct {
		rule, zone string
		shadow     bool
	}
	kept, seen := make([]bool, len(found)), make(map[kind]bool)
	for _, counts := range [...]bool{true, false} {
		for i, d := range found {
			k := kind{d.Rule, d.Zone, d.Shadow}
			if len(seen) < n && d.Shadow != counts && !seen[k] {
				seen[k], kept[i] = true, true
			}
		}
	}
	free := n - len(seen)
	list := make([]Detection, 0, n)
	for i, d := range found {
		if !kept[i] {
			if free == 0 {
				continue
			}
			free--
		}
		list = append(list, d)
	}
	return list
}

// raise checks every text of the message. A finding can only raise the declared level.
func raise(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.Rules == nil || m.Rules.Content == nil {
		return
	}
	var found []Detection
	for _, f := range append(m.Rules.Content.Scan(m.texts, m.Rendering...), m.Files.findings...) {
		d := Detection{Rule: f.Rule, Member: ClipMember(f.Member), Start: f.Start, End: f.End, Shadow: f.Shadow}
		found = append(found, d)
		// The detector's levels are the protocol's. An unknown level counts as the highest.
		level, err := ParseLevel(f.Level)
		if err != nil {
			level = Restricted
		}
		if level > v.Level {
			v.Level, v.raisedBy = level, &d
		}
	}
	v.Detections = append(v.Detections, few(found)...)
}

// Look looks for data that may not be shared in texts that are no message. Secret is the finding
// that raises them above a level: a credential, or a match of the operator's own pattern.
func (r *Rules) Look(texts []Passage, most Level) (found []Detection, secret string) {
	if r == nil || r.Content == nil {
		return nil, ""
	}
	for _, f := range r.Content.Scan(texts) {
		found = append(found, Detection{Rule: f.Rule, Member: ClipMember(f.Member), Start: f.Start, End: f.End, Shadow: f.Shadow})
		level, err := ParseLevel(f.Level)
		if err != nil {
			level = Restricted
		}
		if kind, _, _ := strings.Cut(f.Rule, "."); secret == "" && !f.Shadow && level > most && (kind == "credential" || kind == "operator") {
			secret = f.Rule
		}
	}
	return few(found), secret
}

// commitments looks for promises that no agent may make by itself: its debts, the exchange's own
// flags, and words in the texts. If a person has decided, it holds nothing.
func commitments(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	hits := m.Rules.promises(m.before(v), m.texts, m.Rendering, m.Files.hits, v)
	result := commitment.Judge(hits)
	if m.Person.decided() || m.Rules != nil && m.Rules.Monitor && !m.AskPerson || mutant.Off("commitment") {
		return
	}
	var grounds []Ground
	if code, reason := binding(m, v); reason != "" {
		grounds = append(grounds, Ground{Code: code, Rule: ruleCommitment, Reason: reason})
	}
	if m.AskPerson {
		grounds = append(grounds, Ground{Code: CommitmentRequiresHuman, Rule: ruleCommitment, Reason: "its sender asks for a person's approval"})
	}
	held := result.RequiresHuman && (m.To.Kind == KindAgent || m.Rules.Towards(m.To.Kind).Commitments)
	if held && m.sameOwner() {
		held, v.Details = false, map[string]any{"sameOwner": "record", "keywords": result.DetectedKeywords}
	}
	var read *commitment.Reading
	var weighed *commitment.Weighed
	spare := false
	if held {
		var by string
		read = m.Rules.read(hits, m.texts, m.before(v))
		if weighed, by, spare = m.byKeywords(read, v); weighed != nil && !weighed.Binds {
			held, v.Details = false, weighedAway(weighed, by)
		}
	}
	if held {
		if g := granted(m.Grants, m.texts, hits, v.Level, v.Exchange.Round+1, m.Now, max(v.Approvers, m.Approvers)); g != nil && len(m.Files.hits) == 0 && m.asWas(v) {
			v.Grant = g.ID
		} else {
			words := Ground{Code: CommitmentRequiresHuman, Rule: ruleCommitment, Reason: *result.Reason}
			words.Guess, words.Open = guess(read), m.open(read, weighed, v)
			if weighed != nil {
				words.LikelyBecause = commitment.JoinReasons(weighed.Reasons)
			}
			if m.Person != Judged || !words.Open {
				grounds = append(grounds, words)
			}
		}
	}
	if len(grounds) == 0 {
		return
	}
	m.offer(hits, v)
	v.hold(grounds...)
	v.Details = map[string]any{"requiresHuman": true, "detectedKeywords": result.DetectedKeywords}
	if spare {
		v.Details[detailSpare] = true
	}
	v.Exchange = v.Exchange.close(m.Now, Escalated)
}

// binding returns a code and a reason if a message between two agents binds somebody whatever its
// words are, or nothing.
func binding(m *Outgoing, v *Verdict) (Code, string) {
	if m.To.Kind != KindAgent {
		return "", ""
	}
	var reason string
	switch t := v.Exchange.Type; {
	case v.Exchange.Awaiting == HumanOnly:
		reason = "only a person may answer the message before it"
	case v.Exchange.AwaitsCommitment:
		reason = "the message this answers asks for a commitment"
	case v.Exchange.Awaiting != "" && !m.Sender.CanAutoRespond:
		reason = fmt.Sprintf("agent %s does not answer by itself", m.Sender.ID)
	case v.Exchange.ForPerson:
		reason = "the exchange waits for a person, who has not answered yet"
	case t.ReplyPolicy() == HumanOnly:
		reason = fmt.Sprintf("an exchange of type %s is for people", t)
	case t.RequiresCommitment():
		reason = fmt.Sprintf("an exchange of type %s asks for a commitment", t)
	default:
		return v.Owed.reason(m)
	}
	return CommitmentRequiresHuman, reason
}

// replyExpected refuses an answer to a message that wants none, in any exchange of its
// conversation.
func replyExpected(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind != KindAgent {
		return
	}
	if v.Exchange.Awaiting == NoReplyNeeded || v.Owed.ReplyPolicy == NoReplyNeeded && v.Owed.ConversationID == v.Exchange.ConversationID {
		v.deny(ReplyNotExpected, ruleExchange, "the message this answers expects no reply")
	}
}

// DataItem is one piece of data that the message includes, according to the caller (OCIP reference,
// Data Tracking).
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

// Withheld names data that was kept back, and why. The description is the caller's, for the
// sender's record alone; others get the words of [Withheld.Told].
type Withheld struct {
	// Reason is one of a fixed list: [AboveLevel], [NotAccepted].
	Reason      string `json:"reason"`
	Description string `json:"description"`
}

// Reasons to keep data back.
const (
	AboveLevel  = "above_level"
	NotAccepted = "not_accepted"
)

// Told is the information for the receiver about data that was kept back: the reason, always in the
// same words.
func (w Withheld) Told() Withheld {
	w.Description = "above what the receiver accepts"
	if w.Reason == AboveLevel {
		w.Description = "above the message's level"
	}
	return w
}

// Told lists the information for the receiver about data that was kept back.
func (v *Verdict) Told() []Withheld {
	if len(v.Withheld) == 0 {
		return nil
	}
	told := make([]Withheld, len(v.Withheld))
	for i, w := range v.Withheld {
		told[i] = w.Told()
	}
	return told
}

// sift divides the data items into those that are sent and those that are kept back because they
// are above the message's level, or above the level that the receiver accepts.
func sift(items []DataItem, level, accepts Level) (shared []Shared, withheld []Withheld) {
	for _, item := range items {
		switch {
		case item.Level > level:
			withheld = append(withheld, Withheld{Reason: AboveLevel, Description: item.Description})
		case item.Level > accepts:
			withheld = append(withheld, Withheld{Reason: NotAccepted, Description: item.Description})
		default:
			shared = append(shared, Shared{Source: item.Source, Fields: item.Fields})
		}
	}
	return shared, withheld
}
