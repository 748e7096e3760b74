package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// Request describes a request without the advice, the text first and the metadata last. It always
// shows the texts and the metadata of the agent's app. Unless unfolded is set, it only names what
// ocipd adds, so that a short message fits a screen.
func (p *Text) Request(a *api.Approval, now time.Time, unfolded bool) {
	p.title(a)
	p.outcome(a, now)
	p.Changes(a.Changed)
	metadata := p.said(a, unfolded)
	p.deciding(a, now)
	if unfolded {
		p.facts(a, now)
	} else {
		p.fewFacts(a, now)
	}
	p.metadata(a, metadata, unfolded)
	p.Line()
	words := text.Proquints(a.Digest)
	if unfolded || words == "" {
		p.Code("digest", a.Digest)
	}
	if words != "" {
		p.Code("words", words)
	}
	if unfolded && a.RequestDigest != "" {
		p.Code("request", a.RequestDigest)
	}
}

// said describes the message in the form to be sent, and the messages before it. It returns the
// metadata.
func (p *Text) said(a *api.Approval, unfolded bool) jsontext.Value {
	p.message(a)
	metadata := p.sending(a, unfolded)
	p.background(a)
	return metadata
}

// Among describes a request that is decided together with others: its reasons and all of its texts.
func (p *Text) Among(a *api.Approval, unfolded bool) {
	p.receiver(a)
	p.grounds(a)
	p.Fact("likely", LikelyOf(&a.ApprovalSummary))
	p.opinion(a.Opinion)
	p.metadata(a, p.said(a, unfolded), unfolded)
}

// title names the main facts: the speaker, the receiver, and the reasons for the hold.
func (p *Text) title(a *api.Approval) {
	p.Title("approval " + a.ApprovalID + ": " + State(a.State))
	p.Title(Whose(a))
	p.receiver(a)
	p.grounds(a)
	if a.Likelihood != "" {
		p.Fact("likely", LikelyOf(&a.ApprovalSummary))
	}
	p.opinion(a.Opinion)
	if a.EscalatedExchange != "" {
		p.Fact("held by", "the round limit of exchange "+a.EscalatedExchange)
	}
	// An effect whose files differ can be approved again once they are put back.
	if a.State == api.ApprovalPending && (!a.Approvable || a.Blocked != "") {
		p.Tinted("blocked", term.Red, CannotApprove(a))
	}
}

// receiver describes the receiver, as far as the title does not.
func (p *Text) receiver(a *api.Approval) {
	if at := addressOf(a); at != "" {
		p.Tinted("goes to", term.Yellow, at)
	}
	if a.CounterpartyTenantID != "" {
		p.Fact("their tenant", a.CounterpartyTenantID)
	}
}

// grounds describes the reasons for which the request waits.
func (p *Text) grounds(a *api.Approval) {
	for _, g := range a.Grounds() {
		p.Tinted("why", term.Yellow, ReasonOf(a, &g))
	}
}

// opinion gives the answer of the operator's model, whose sentence is a foreign text.
func (p *Text) opinion(o *opinion.Opinion) {
	if o == nil {
		return
	}
	said := "it commits nobody"
	if o.Commits {
		said = "it commits somebody"
	}
	if o.Reason != "" {
		said += ": «" + o.Reason + "»"
	}
	p.Tinted("a model", term.Yellow, said+" (the model "+o.Model+", no person)")
}

// deciding describes the required approvals and the time limit.
func (p *Text) deciding(a *api.Approval, now time.Time) {
	if a.State != api.ApprovalPending {
		return
	}
	p.Heading("What a decision takes")
	p.Tinted("expires", Urgency(a.ExpiresAt, now), term.When(a.ExpiresAt, now))
	needed := term.Count(a.Needed, "person")
	if a.Needed != 1 {
		needed = fmt.Sprintf("%d people", a.Needed)
	}
	needed = fmt.Sprintf("%d given, by %s needed", a.Given, needed)
	if a.SignatureRequired {
		needed += ", each with a signature"
	}
	p.Fact("approvals", needed)
	p.exchange(a, now)
}

// acting describes for whom an agent speaks.
func acting(agent, user string) string {
	if user == "" {
		return agent
	}
	return agent + " for " + user
}

// Whose names the asking agent and its user: a message has a receiver, and a task's request
// belongs to the task.
func Whose(a *api.Approval) string {
	if a.Kind == api.ApprovalOfPermission && a.TaskID == "" {
		return acting(a.AgentID, a.UserID)
	}
	if a.Kind == api.ApprovalOfEffect || a.Kind == api.ApprovalOfPermission {
		return acting(a.AgentID, a.UserID) + ", task " + TaskOf(&a.ApprovalSummary)
	}
	return acting(a.Agent, a.UserID) + " → " + receiving(a)
}

// receiving describes the receiver, and what has become of a receiver that was unknown at the time.
func receiving(a *api.Approval) string {
	switch a.CounterpartyNow {
	case ocip.KindOwner:
		return a.SessionKey + ", the agent's owner by now"
	case ocip.KindPerson:
		return a.SessionKey + ", a person whom the configuration names by now"
	case ocip.KindAgent:
		return a.SessionKey + ", an agent that the configuration names by now"
	case ocip.KindUnknown:
		return a.To() + ", at " + a.SessionKey + ", whom the configuration names no more"
	}
	switch a.CounterpartyKind {
	case ocip.KindUnknown:
		return a.To() + ", whom nobody knows"
	case ocip.KindPerson, ocip.KindOwner:
		if a.To() != a.SessionKey {
			return a.To() + ", at " + a.SessionKey // which may be a group's
		}
		return a.To()
	default:
		return acting(a.To(), a.CounterpartyUserID)
	}
}

// address is the message's address, if the session does not show it.
func addressOf(a *api.Approval) string {
	at := a.Address
	if at.Target == "" || !a.Group && a.SessionKey == at.Channel+":"+at.Target {
		return ""
	}
	text := at.Target + " on " + at.Channel
	if at.Account != "" {
		text += " by account " + at.Account
	}
	if a.Group {
		text += ", where many read it"
	}
	return text
}

func (p *Text) facts(a *api.Approval, now time.Time) {
	p.Heading("Where it comes from")
	p.Fact("agent", a.AgentID)
	for _, at := range [][2]string{{"app", a.AppID}, {"session", a.SessionKey}, {"task", a.TaskID}} {
		if at[1] != "" {
			p.Fact(at[0], at[1])
		}
	}
	if a.ExchangeID != "" { // people have none, and no rounds
		p.Fact("exchange", a.ExchangeID)
		p.Fact("type", fmt.Sprintf("%s, %d of %d rounds used", a.Type, a.Round, a.MaxRounds))
	}
	if a.ConversationID != "" {
		p.Fact("conversation", a.ConversationID)
	}
	p.Fact("level", a.Classification)
	p.Fact("asked", term.When(a.AskedAt, now))
	if a.PolicyApplied != "" {
		p.Fact("policy", strings.TrimSuffix(a.PolicyApplied+", revision "+a.PolicyRevision, ", revision "))
	}
}

// fewFacts names in one paragraph where a request comes from, without what its title says.
func (p *Text) fewFacts(a *api.Approval, now time.Time) {
	from := []string{"app " + a.AppID, "level " + a.Classification, "asked " + term.ShortAge(now.Sub(time.UnixMilli(a.AskedAt))) + " ago"}
	if a.AppID == "" {
		from = from[1:]
	}
	if a.ExchangeID != "" {
		from = append(from, fmt.Sprintf("%s, %d of %d rounds used", a.Type, a.Round, a.MaxRounds))
	}
	p.Fact("comes from", strings.Join(from, ", "))
}

// urgent is the time before expiry from which it is shown in colour.
const urgent = 10 * time.Minute

// Urgency is the colour of the time that is left.
func Urgency(expires int64, now time.Time) term.Colour {
	if time.UnixMilli(expires).Sub(now) < urgent {
		return term.Red
	}
	return term.NoColour
}

// outcome describes the decisions.
func (p *Text) outcome(a *api.Approval, now time.Time) {
	for _, d := range besides(a) {
		p.decided("approved", term.Green, &d, now)
	}
	if a.Decision != nil {
		p.decided(State(a.State), StateColour(a.State), a.Decision, now)
	}
	if a.Delivery != "" {
		c := term.NoColour
		if a.Delivery != "sent" {
			c = term.Yellow
		}
		p.Tinted("delivery", c, cmp.Or(WordsOf(a.Kind).Delivery[a.Delivery], State(a.Delivery)))
	}
}

func (p *Text) decided(what string, c term.Colour, d *api.ApprovalDecision, now time.Time) {
	p.Tinted(what, c, fmt.Sprintf("by %s, %s", d.By, term.When(d.At, now)))
	if d.Fingerprint != "" {
		p.Fact("signed", "with "+d.Fingerprint)
	}
	if d.Note != "" {
		p.Fact("note", d.Note)
	}
}

// Changes shows the differences from the version that the person saw: for long texts, only
// the differing lines.
func (p *Text) Changes(changed []api.ApprovalChange) {
	if len(changed) == 0 {
		return
	}
	p.Heading("What changed since it was last shown")
	for _, c := range changed {
		p.Item(c.Field)
		was, now := differing(changeLines(c.Was), changeLines(c.Now))
		for _, side := range []struct {
			name  string
			lines []string
		}{{"was", was}, {"now", now}} {
			p.Say("    ", term.Dim, side.name)
			if len(side.lines) > 0 {
				p.Quote(strings.Join(side.lines, "\n"))
			}
		}
	}
}

// changeLines is one side of a change, with JSON formatted in comparable lines.
func changeLines(text string) []string {
	if text == "" {
		return nil
	}
	if value := jsontext.Value(text); value.Kind() == '{' {
		if shown := term.PrintableJSON(value.Clone()); shown.Indent(jsontext.WithIndent("  ")) == nil {
			text = string(shown)
		}
	}
	return strings.Split(text, "\n")
}

// differing removes the common beginning and end of two texts.
func differing(was, now []string) (only, instead []string) {
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	return was, now
}

// message shows the agent's text, or its intended action, with the findings in it.
func (p *Text) message(a *api.Approval) {
	p.Heading(WordsOf(a.Kind).Title)
	switch {
	case a.Kind == api.ApprovalOfEscalation:
		p.Quote(a.Summary)
	case a.Forgotten:
		p.Say("  ", term.Dim, fmt.Sprintf("%s, which were dropped when it was decided", term.Count(a.ContentBytes, "byte")))
	default:
		p.quote(a, api.Extract{Text: a.Content})
		p.elsewhere(a)
	}
	for _, d := range a.Detections {
		c := term.Yellow
		if d.Shadow {
			c = term.Dim
		}
		p.Tinted("found", c, findingAt(a, &d))
	}
}

// quote shows a part of one of the message's texts, with the findings in it and warnings about it.
func (p *Text) quote(a *api.Approval, e api.Extract) {
	spans := make([]term.Span, 0, len(a.Detections))
	for _, d := range a.Detections {
		if d.Member == e.Member {
			spans = append(spans, term.Span{Start: d.Start - e.At, End: d.End - e.At, Label: finding(&d)})
		}
	}
	p.Quote(e.Text, spans...)
	for _, warning := range term.Misleading(e.Text) {
		p.Say("    ", term.Red, warning)
	}
}

// elsewhere shows the other texts with findings, except those of files.
func (p *Text) elsewhere(a *api.Approval) {
	for i, e := range a.Extracts {
		if !strings.HasPrefix(e.Member, api.FileMember) && (i == 0 || a.Extracts[i-1].Member != e.Member) {
			p.Fact("and in", e.Member)
			p.extracts(a, e.Member)
		}
	}
}

// extracts shows the available parts of a member's text, and the size of the omitted ones.
// It reports whether there are any.
func (p *Text) extracts(a *api.Approval, member string) (some bool) {
	at, of := 0, 0
	leftOut := func(n int) {
		if n > 0 {
			p.Say("    ", term.Yellow, "… "+term.Thousands(n)+" bytes of it are not shown")
		}
	}
	for _, e := range a.Extracts {
		if e.Member == member {
			leftOut(e.At - at)
			p.quote(a, e)
			at, of, some = e.At+len(e.Text), e.Of, true
		}
	}
	leftOut(of - at)
	return some
}

// along shows the files, inline parts and addresses of the message.
func (p *Text) along(a *api.Approval) {
	if len(a.Media) > 0 {
		p.Heading("What goes along")
	}
	for _, item := range a.Media {
		switch {
		case item.Path != "":
			p.Fact("file", item.Path)
		case item.SHA256 != "":
			p.Fact("inline part", item.URL)
		default:
			p.Fact("address", item.URL)
		}
		p.Fact("named in", item.Member)
		if item.SHA256 == "" {
			continue
		}
		p.Fact("size", term.Thousands(int(item.Bytes))+" bytes")
		p.Fact("SHA-256", item.SHA256)
		switch {
		case a.Forgotten:
		case !p.extracts(a, api.FileMember+item.Member):
			p.Say("    ", term.Yellow, "no text was found in it; nothing of it is shown")
		}
	}
}

// finding names a finding and, if relevant, its place.
func finding(d *audit.Detection) string {
	name := strings.TrimPrefix(d.Rule, "commitment.")
	if d.Zone != "" {
		name += " (" + d.Zone + ")"
	}
	return name
}

// findingAt names a finding and its place: the text, a named file or inline part, or a
// member of the metadata.
func findingAt(a *api.Approval, d *audit.Detection) string {
	text, member := d.Rule, cmp.Or(d.Member, "the text")
	if in, ok := strings.CutPrefix(d.Member, api.FileMember); ok {
		for _, item := range a.Media {
			switch {
			case item.Member != in:
			case item.Path != "":
				member = "file " + item.Path + ", which " + in + " names"
			default:
				member = "the inline part " + in
			}
		}
	}
	if d.End > d.Start {
		text += fmt.Sprintf(", bytes %d to %d of %s", d.Start, d.End, member)
	} else if d.Member != "" {
		text += ", in " + member
	}
	if d.Zone != "" {
		text += ", in " + d.Zone
	}
	if d.Shadow {
		text += ", only recorded"
	}
	return text
}

// background shows the messages that led to this one.
func (p *Text) background(a *api.Approval) {
	if len(a.Transcript) > 0 {
		p.Heading("What was said before in this exchange")
		for _, t := range a.Transcript {
			p.Fact(fmt.Sprintf("round %d", t.Round), t.Sender)
			p.Quote(t.Shown())
		}
	}
	if a.Escalation != nil && a.Escalation.ConversationSummary != "" {
		p.Heading("What the round limit stopped")
		p.Fact("exchange", fmt.Sprintf("%s, round %d of %d", a.Escalation.ExchangeID, a.Escalation.CurrentRound, a.Escalation.MaxRounds))
		p.Quote(a.Escalation.ConversationSummary)
	}
	if a.Chain != nil {
		p.Heading("The line of messages that led to it")
		p.Fact("messages", fmt.Sprintf("%d, since %s", a.Chain.Hops, a.Chain.StartedAt.Local().Format(time.DateTime)))
		p.Fact("agents", strings.Join(a.Chain.Path, " → "))
	}
}

func (p *Text) data(shared []ocip.Shared, withheld []ocip.Withheld) {
	if len(shared)+len(withheld) > 0 {
		p.Heading("What data goes with it")
	}
	for _, item := range shared {
		p.Fact("shared", strings.TrimSuffix(item.Source+": "+strings.Join(item.Fields, ", "), ": "))
	}
	for _, item := range withheld {
		p.Tinted("withheld", term.Yellow, item.Description+": "+item.Reason)
	}
}

// State is a state in words for people.
func State(state string) string { return strings.ReplaceAll(state, "_", " ") }

// StateColour is the colour of a state.
func StateColour(state string) term.Colour {
	switch state {
	case api.ApprovalPending:
		return term.Yellow
	case api.ApprovalApproved, api.ApprovalTakenOver:
		return term.Green
	case api.ApprovalDenied:
		return term.Red
	case api.ApprovalExpired:
		return term.Dim
	}
	return term.NoColour
}

// CanTakeBack reports whether an approval can still be withdrawn: nobody has fetched the
// message, or the effect may not have been done.
func CanTakeBack(a *api.Approval) bool {
	return a.Kind == api.ApprovalOfEffect && a.State == api.ApprovalApproved || a.Delivery == "ready" && (a.State == api.ApprovalApproved || a.State == api.ApprovalTakenOver)
}

// Instead shows the person's text in place of the message.
func (p *Text) Instead(content string) {
	p.Heading("What you say in its place")
	p.Quote(content)
	for _, warning := range term.Misleading(content) {
		p.Say("    ", term.Red, warning)
	}
}

// Within describes bounds.
func Within(b *api.Bounds, now time.Time) string {
	text := fmt.Sprintf("%s; up to %s", strings.Join(b.Words, ", "), b.Classification)
	if b.MaxRound > 0 {
		text += fmt.Sprintf("; to round %d", b.MaxRound)
	}
	return text + "; until " + term.When(b.Until, now)
}

// exchange shows how a request's exchange can be approved too.
func (p *Text) exchange(a *api.Approval, now time.Time) {
	if a.State != api.ApprovalPending || a.Kind == api.ApprovalOfEscalation {
		return
	}
	switch {
	case a.Exchange != nil:
		p.Fact("its exchange", "can be approved with it: "+Within(a.Exchange, now)+"; anything new asks again")
	case a.NoExchange != "":
		p.Fact("its exchange", "cannot be approved with it: "+a.NoExchange)
	}
}

// besides returns the approvals of a request without the last required one, which is the decision.
func besides(a *api.Approval) (list []api.ApprovalDecision) {
	for _, d := range a.Approvals {
		if last := a.Decision; last == nil || d.By != last.By || d.At != last.At {
			list = append(list, d)
		}
	}
	return list
}
