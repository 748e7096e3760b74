package describe

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Words are the words for one kind of request.
type Words struct {
	// What names the subject, and Title is the heading of its description.
	What, Title string
	// Does describes the effect of each available decision. Done describes it afterwards, by state.
	Does, Done map[string]string
	// Delivery describes how far the runtime has got with a decided request.
	Delivery map[string]string
	// Waiting is shown while more approvals are needed.
	Waiting string
	// Refused is the default reason why a request cannot be approved, and Instead the alternative.
	Refused, Instead string
}

// WordsOf returns the words for a kind of request.
func WordsOf(kind string) Words {
	switch kind {
	case api.ApprovalOfEffect:
		return effectWords
	case api.ApprovalOfPermission:
		return permissionWords
	case api.ApprovalOfEscalation:
		return escalationWords
	case api.ApprovalOfDelivery:
		return deliveryWords
	}
	return messageWords
}

var (
	messageWords = Words{
		What: "a message", Title: "What the agent wrote",
		Does: map[string]string{
			api.DecideApprove:  "send it, just as it is shown here",
			api.DecideDeny:     "do not send it",
			api.DecideTakeover: "send it as your own, or your own words in its place",
			api.DecideResolve:  "do not send it; the exchange is settled",
		},
		Done: map[string]string{
			api.ApprovalApproved:  "the message goes on its way",
			api.ApprovalTakenOver: "it goes on its way as yours, and a person has taken over from the agent",
			api.ApprovalDenied:    "nothing was sent",
			api.ApprovalResolved:  "nothing was sent, and the exchange is settled",
			api.ApprovalRevoked:   "it is taken back, and was not sent",
		},
		Delivery: map[string]string{
			"ready":     "not sent: the agent's runtime has not taken it, or has given it back",
			"claimed":   "the agent's runtime has taken it to send it, and has not said yet what became of it",
			"sent":      "sent, as the agent's runtime says",
			"unknown":   "nobody knows whether it was sent: that waits for a person",
			"abandoned": "given up by a person: nobody sends it any more",
			"expired":   "not sent: the agent's runtime has not taken it in time",
		},
		Waiting: "the message goes on waiting", Refused: "it may not be sent", Instead: "deny it, resolve it, or take it over",
	}
	effectWords = Words{
		What: "an effect", Title: "What would be done",
		Does: map[string]string{
			api.DecideApprove: "let the task do it once, just as it is shown here",
			api.DecideDeny:    "do not let the task do it",
			api.DecideChanges: "do not let the task do it as it is; your note says what to change",
		},
		Done: map[string]string{
			api.ApprovalApproved:       "the task may do it once",
			api.ApprovalDenied:         "the task does not do it",
			api.ApprovalRequestChanges: "the task does not do it, and may ask for something else",
		},
		Delivery: map[string]string{
			"ready":   "not started yet: the approval lets it start once",
			"sent":    "a start has used the approval, which lets nothing else start",
			"expired": "not started in time: the approval lets nothing start any more",
		},
		Waiting: "the task goes on waiting", Refused: "it may not be done", Instead: "deny it, or ask for changes",
	}
	permissionWords = Words{
		What: "a tool call", Title: "What the agent asks to do",
		Does: map[string]string{
			api.DecideApprove: "let the agent use the tool this once",
			api.DecideDeny:    "do not let the agent use the tool",
		},
		Done: map[string]string{
			api.ApprovalApproved: "the agent may use the tool this once",
			api.ApprovalDenied:   "the agent does not use the tool",
			api.ApprovalRevoked:  "it is taken back: the tool was not used, and the agent may ask again",
		},
		Delivery: map[string]string{
			"ready":   "the agent is told when it asks again",
			"sent":    "the agent has been told",
			"expired": "the agent has not asked again in time",

			"abandoned": "taken back by a person before the agent asked again",
		},
		Waiting: "the agent goes on waiting", Refused: "the tool may not be used", Instead: "deny it",
	}
	escalationWords = Words{
		What: "an escalation", Title: "What it is about",
		Does: map[string]string{
			api.DecideDeny:    "end the exchange as denied",
			api.DecideResolve: "you have seen to it; the exchange is settled",
		},
		Done: map[string]string{
			api.ApprovalDenied:   "the exchange has ended",
			api.ApprovalResolved: "the exchange is settled",
		},
		Refused: "nothing waits to be sent", Instead: "deny it, or resolve it",
	}
	// A runtime carries out the decision about a delivery after it learns of it.
	deliveryWords = Words{
		What: "a delivery", Title: "What was approved, and may have been sent",
		Does: map[string]string{
			api.DecideApprove: "have the agent's runtime send it once more; it comes twice where it was sent",
			api.DecideDeny:    "give it up; nothing is sent any more",
			api.DecideResolve: "you know that it was sent; nothing is sent any more",
		},
		Done: map[string]string{
			api.ApprovalApproved: "the agent's runtime sends it as soon as it is there, until its time is over",
			api.ApprovalDenied:   "it is given up, whether it was sent or not",
			api.ApprovalResolved: "it counts as sent",
		},
		Waiting: "the delivery goes on waiting", Refused: "it may not be sent again", Instead: "deny it, or resolve it",
	}
)

// Verb is a decision in words for people.
func Verb(decision string) string { return strings.ReplaceAll(decision, "_", " ") }

// Decided describes the result of a decision about a kind of request.
func Decided(kind string, r api.ApprovalResolveResult) string {
	w := WordsOf(kind)
	if r.State == api.ApprovalPending {
		return fmt.Sprintf("%d of %d approvals are given: %s (record %d)", r.Given, r.Needed, w.Waiting, r.AuditSeq)
	}
	said := term.Printable(State(r.State))
	if done := w.Done[r.State]; done != "" {
		said += ": " + done
	}
	return fmt.Sprintf("%s (record %d)", said, r.AuditSeq)
}

// NotOffered says that a decision does not apply to a kind of request.
func NotOffered(kind string) string {
	w := WordsOf(kind)
	return "that is no decision about " + w.What + "; " + w.Instead
}

// CannotApprove says why a request cannot be approved.
func CannotApprove(a *api.Approval) string {
	return cmp.Or(a.Blocked, WordsOf(a.Kind).Refused)
}
