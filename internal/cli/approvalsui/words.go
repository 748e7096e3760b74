package approvalsui

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
)

// words are the words for one kind of request.
type words struct {
	// what names the subject, and title is the heading of its description.
	what, title string
	// does describes the effect of each available decision. done describes it afterwards, by state.
	does, done map[string]string
	// delivery describes how far the runtime has got with a decided request.
	delivery map[string]string
	// waiting is shown while more approvals are needed.
	waiting string
	// refused is the default reason why a request cannot be approved, and instead the alternative.
	refused, instead string
}

// wordsOf returns the words for a kind of request.
func wordsOf(kind string) words {
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
	messageWords = words{
		what: "a message", title: "What the agent wrote",
		does: map[string]string{
			api.DecideApprove:  "send it, just as it is shown here",
			api.DecideDeny:     "do not send it",
			api.DecideTakeover: "send it as your own, or with --content your words",
			api.DecideResolve:  "do not send it; the exchange is settled",
		},
		done: map[string]string{
			api.ApprovalApproved:  "the message goes on its way",
			api.ApprovalTakenOver: "it goes on its way as yours, and a person has taken over from the agent",
			api.ApprovalDenied:    "nothing was sent",
			api.ApprovalResolved:  "nothing was sent, and the exchange is settled",
			api.ApprovalRevoked:   "it is taken back, and was not sent",
		},
		delivery: map[string]string{
			"ready":     "not sent: the agent's runtime has not taken it, or has given it back",
			"claimed":   "the agent's runtime has taken it to send it, and has not said yet what became of it",
			"sent":      "sent, as the agent's runtime says",
			"unknown":   "nobody knows whether it was sent: that waits for a person",
			"abandoned": "given up by a person: nobody sends it any more",
			"expired":   "not sent: the agent's runtime has not taken it in time",
		},
		waiting: "the message goes on waiting", refused: "it may not be sent", instead: "deny it, resolve it, or take it over",
	}
	effectWords = words{
		what: "an effect", title: "What would be done",
		does: map[string]string{
			api.DecideApprove: "let the task do it once, just as it is shown here",
			api.DecideDeny:    "do not let the task do it",
			api.DecideChanges: "do not let the task do it as it is; --note says what to change",
		},
		done: map[string]string{
			api.ApprovalApproved:       "the task may do it once",
			api.ApprovalDenied:         "the task does not do it",
			api.ApprovalRequestChanges: "the task does not do it, and may ask for something else",
		},
		delivery: map[string]string{
			"ready":   "not started yet: the approval lets it start once",
			"sent":    "a start has used the approval, which lets nothing else start",
			"expired": "not started in time: the approval lets nothing start any more",
		},
		waiting: "the task goes on waiting", refused: "it may not be done", instead: "deny it, or ask for changes",
	}
	permissionWords = words{
		what: "a tool call", title: "What the agent asks to do",
		does: map[string]string{
			api.DecideApprove: "let the agent use the tool this once",
			api.DecideDeny:    "do not let the agent use the tool",
		},
		done: map[string]string{
			api.ApprovalApproved: "the agent may use the tool this once",
			api.ApprovalDenied:   "the agent does not use the tool",
			api.ApprovalRevoked:  "it is taken back: the tool was not used, and the agent may ask again",
		},
		delivery: map[string]string{
			"ready":   "the agent is told when it asks again",
			"sent":    "the agent has been told",
			"expired": "the agent has not asked again in time",

			"abandoned": "taken back by a person before the agent asked again",
		},
		waiting: "the agent goes on waiting", refused: "the tool may not be used", instead: "deny it",
	}
	escalationWords = words{
		what: "an escalation", title: "What it is about",
		does: map[string]string{
			api.DecideDeny:    "end the exchange as denied",
			api.DecideResolve: "you have seen to it; the exchange is settled",
		},
		done: map[string]string{
			api.ApprovalDenied:   "the exchange has ended",
			api.ApprovalResolved: "the exchange is settled",
		},
		refused: "nothing waits to be sent", instead: "deny it, or resolve it",
	}
	// A runtime carries out the decision about a delivery after it learns of it.
	deliveryWords = words{
		what: "a delivery", title: "What was approved, and may have been sent",
		does: map[string]string{
			api.DecideApprove: "have the agent's runtime send it once more; it comes twice where it was sent",
			api.DecideDeny:    "give it up; nothing is sent any more",
			api.DecideResolve: "you know that it was sent; nothing is sent any more",
		},
		done: map[string]string{
			api.ApprovalApproved: "the agent's runtime sends it as soon as it is there, until its time is over",
			api.ApprovalDenied:   "it is given up, whether it was sent or not",
			api.ApprovalResolved: "it counts as sent",
		},
		waiting: "the delivery goes on waiting", refused: "it may not be sent again", instead: "deny it, or resolve it",
	}
)

// CommandOf is a decision as a command's name.
func CommandOf(decision string) string { return strings.ReplaceAll(decision, "_", "-") }

// verbOf is a decision in words for people.
func verbOf(decision string) string { return strings.ReplaceAll(decision, "_", " ") }

// decidedLine describes the result of a decision about a kind of request.
func decidedLine(kind string, r api.ApprovalResolveResult) string {
	w := wordsOf(kind)
	if r.State == api.ApprovalPending {
		return fmt.Sprintf("%d of %d approvals are given: %s (record %d)", r.Given, r.Needed, w.waiting, r.AuditSeq)
	}
	said := term.Printable(stateWords(r.State))
	if done := w.done[r.State]; done != "" {
		said += ": " + done
	}
	return fmt.Sprintf("%s (record %d)", said, r.AuditSeq)
}

// question asks for confirmation of a decision about the shown request.
func question(a *api.Approval, decision string) string {
	verb := verbOf(decision)
	verb = strings.ToUpper(verb[:1]) + verb[1:]
	if Sends(decision) {
		return verb + " " + cmp.Or(text.Proquints(a.Digest), term.Printable(a.Digest)) + "?"
	}
	return verb + " it?"
}

// notOffered says that a decision does not apply to a kind of request.
func notOffered(kind string) string {
	w := wordsOf(kind)
	return "that is no decision about " + w.what + "; " + w.instead
}

// cannotApprove says why a request cannot be approved.
func cannotApprove(a *api.Approval) string {
	return cmp.Or(a.Blocked, wordsOf(a.Kind).refused)
}
