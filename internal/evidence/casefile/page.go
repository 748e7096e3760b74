package casefile

import (
	"bytes"
	"cmp"
	_ "embed" // for the page
	"fmt"
	"html/template"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
)

//go:embed page.html
var pageText string

// event is a line of the timeline.
type event struct {
	Seq                          uint64
	Time, Who, What, Result, Why string
	Signed                       bool
	Class                        string
}

// decision is a person's decision.
type decision struct {
	Seq                  uint64
	Who, What, Key, Note string
}

// ruling is a version in force.
type ruling struct {
	What string
	held
}

const timeForm = "2006-01-02 15:04:05.000"

// addPage adds the page for people.
func (f *folder) addPage() error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("cannot read the page of a case: %w", err)
	}
	data := struct {
		Case, Made, Log, Program, Count, ContextCount, From, To, Unsigned string
		FirstKept                                                         uint64
		Timeline                                                          []event
		People                                                            []decision
		InForce                                                           []ruling
		Texts                                                             []listedText
	}{Case: f.Case, Made: f.Made.Format(timeForm), Log: f.Log, Program: f.Program, Texts: f.Texts}
	of, context, unsigned := 0, 0, 0
	for _, seq := range f.seqs() {
		e := f.chosen[seq]
		if !e.receipt {
			unsigned++
		}
		data.Timeline = append(data.Timeline, f.event(e))
		if e.context {
			context++
			continue
		}
		of++
		at := e.Time.Format(timeForm)
		data.From, data.To = cmp.Or(data.From, at), at
		if by, ok := e.Details["by"].(string); ok && (e.ActionType == audit.ActionApproval || e.Event == "call_signed") {
			d := decision{Seq: seq, Who: by, What: said(&e.Entry)}
			d.Key, _ = e.Details["fingerprint"].(string)
			d.Note, _ = e.Details["note"].(string)
			data.People = append(data.People, d)
		}
	}
	data.Count, data.ContextCount = records(of), records(context)
	if unsigned > 0 {
		data.Unsigned = records(unsigned)
	}
	if f.First > 1 {
		data.FirstKept = f.First
	}
	for _, kind := range []struct {
		what string
		list []held
	}{{"Configuration", f.Configurations}, {"Policy", f.Policies}, {"Allowed signers", f.Signers}} {
		for _, h := range kind.list {
			data.InForce = append(data.InForce, ruling{kind.what, h})
		}
	}
	var out bytes.Buffer
	if err := page.Execute(&out, data); err != nil {
		return fmt.Errorf("cannot write the page of a case: %w", err)
	}
	f.files[pageName] = out.Bytes()
	return nil
}

func records(n int) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

func (f *folder) event(e *entry) event {
	v := event{Seq: e.Seq, Time: e.Time.Format(timeForm), Who: who(&e.Entry), What: said(&e.Entry), Why: e.PolicyReason, Signed: e.receipt}
	if codes := e.Codes(); len(codes) > 0 {
		v.Why = strings.TrimSuffix(strings.Join(codes, ", ")+": "+v.Why, ": ")
	}
	switch e.PolicyResult {
	case audit.ResultAllow:
		v.Result = "allowed"
	case audit.ResultDeny:
		v.Result, v.Class = "refused", "refused"
	case audit.ResultApproval:
		v.Result, v.Class = "held until a person decides", "held"
	}
	if e.ActionType == audit.ActionApproval && e.Event == "denied" {
		v.Class = "refused"
	}
	return v
}

// who returns the actor in a record.
func who(e *audit.Entry) string {
	if by, ok := e.Details["by"].(string); ok && by != "" {
		return by
	}
	if e.Side == audit.SideReceiver {
		return cmp.Or(e.Counterparty.InstanceID, e.Counterparty.UserID, e.SessionKey, "somebody unknown")
	}
	return cmp.Or(e.Actor, e.AgentID, e.AppID, e.UserID, "the daemon")
}

// sentences describe the events whose name alone does not say enough.
var sentences = map[string]string{
	"security daemon_started":       "The daemon started",
	"security daemon_stopped":       "The daemon stopped",
	"security tool_executing":       "An agent asked to use a tool",
	"security decision_refused":     "A person's decision was refused",
	"security call_signed":          "A person signed a command to the daemon",
	"security sender_refused":       "An app asked in the name of an agent that it does not speak for",
	"security sending_paused":       "All sending was paused",
	"security sending_resumed":      "Sending was resumed",
	"security witness_refused":      "A witness refused to sign the log",
	"config_change loaded":          "A configuration was put in force",
	"config_change refused":         "A configuration was refused",
	"config_change signers_changed": "The list of people who may decide had changed",
	"policy_change loaded":          "A policy was put in force",
	"policy_change refused":         "A policy was refused",
	"approval approved":             "A person approved the request",
	"approval denied":               "A person denied the request",
	"approval taken_over":           "A person answered in the agent's place",
	"approval resolved":             "A person settled what was open",
	"approval revoked":              "A request was taken back",
	"approval approved_in_part":     "One of several people approved the request",
	"approval expired":              "Nobody decided in time",
	"approval asked_anew":           "A person was asked again, because the request had changed",
	"approval asked_again":          "The request was repeated while it waited",
	"agent_exchange resolved":       "The exchange was ended",
	"agent_exchange expired":        "The exchange ran out of time",
	"delivery delivered":            "The message was delivered",
	"delivery failed":               "The message could not be delivered",
	"delivery read":                 "An agent read the message",
	"delivery redeemed":             "The agent's program took what a person had approved",
	"delivery withdrawn":            "A waiting message was withdrawn",
	"delivery expired":              "Nobody fetched the message in time",
	"delivery dropped":              "A person took a waiting message out",
	"delivery human_message":        "A message of a person came in",
	"delivery run_completed":        "The agent finished its turn",
	"delivery receipt":              "The other host decided the message",
}

// said describes an event in plain words.
func said(e *audit.Entry) string {
	if e.ActionType == audit.ActionExchange && e.Event == "" {
		return message(e)
	}
	what := strings.TrimSpace(e.ActionType + " " + e.Event)
	sentence := sentences[what]
	if sentence == "" {
		sentence = strings.NewReplacer("_", " ", ".", " ").Replace(what)
	}
	if tool, ok := e.Details["tool"].(string); ok {
		sentence += " (" + tool + ")"
	}
	if e.TaskID != "" && e.ActionType == audit.ActionTask {
		sentence += ", task " + e.TaskID
	}
	return sentence
}

// message describes a decision about a message.
func message(e *audit.Entry) string {
	own, other := cmp.Or(e.AgentID, e.UserID, e.AppID), cmp.Or(e.Counterparty.InstanceID, e.Counterparty.UserID, e.SessionKey)
	if e.Side == audit.SideReceiver {
		own, other = other, own
	}
	s := fmt.Sprintf("A message of %s to %s", own, other)
	if e.Side == audit.SideReceiver {
		s += ", as it came in"
	}
	var about []string
	if e.ExchangeType != "" {
		about = append(about, strings.ReplaceAll(e.ExchangeType, "_", " "))
	}
	if e.Round > 0 {
		about = append(about, fmt.Sprintf("round %d of at most %d", e.Round, e.MaxRounds))
	}
	if e.Classification != "" {
		about = append(about, "classified "+e.Classification)
	}
	if len(about) > 0 {
		s += " (" + strings.Join(about, ", ") + ")"
	}
	return s
}
