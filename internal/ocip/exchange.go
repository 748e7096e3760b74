package ocip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/text"
)

// ExchangeType is the purpose of an exchange. It determines who may reply and whether the responder
// is asked for a commitment.
type ExchangeType string

// The three exchange types of the protocol.
const (
	InformationQuery  ExchangeType = "information_query"
	CommitmentRequest ExchangeType = "commitment_request"
	MeetingScheduling ExchangeType = "meeting_scheduling"
)

// ParseExchangeType reads an exchange type by its protocol name.
func ParseExchangeType(s string) (ExchangeType, error) {
	switch t := ExchangeType(s); t {
	case InformationQuery, CommitmentRequest, MeetingScheduling:
		return t, nil
	}
	return "", fmt.Errorf("unknown exchange type %q, want one of %s, %s, %s",
		s, InformationQuery, CommitmentRequest, MeetingScheduling)
}

// ReplyPolicy returns who may answer an exchange of this type.
func (t ExchangeType) ReplyPolicy() ReplyPolicy {
	if t == MeetingScheduling {
		return HumanOnly
	}
	return AgentOK
}

// tighten combines the reply policy with a caller's wish. A caller can leave an exchange that
// agents may answer to people, or want no answer. No wish makes the policy looser.
func (p ReplyPolicy) tighten(wish ReplyPolicy) ReplyPolicy {
	if p == AgentOK && (wish == HumanOnly || wish == NoReplyNeeded) {
		return wish
	}
	return p
}

// RequiresCommitment reports whether the type asks the responder to commit.
func (t ExchangeType) RequiresCommitment() bool {
	return t == CommitmentRequest || t == MeetingScheduling
}

// ReplyPolicy determines who may answer a message.
type ReplyPolicy string

// The three reply policies of the protocol.
const (
	AgentOK       ReplyPolicy = "agent-ok"
	HumanOnly     ReplyPolicy = "human-only"
	NoReplyNeeded ReplyPolicy = "no-reply-needed"
)

// MessageType is the kind of author of a message.
type MessageType string

// The three message types of the protocol.
const (
	AgentGenerated MessageType = "agent-generated"
	AgentAssisted  MessageType = "agent-assisted"
	Human          MessageType = "human"
)

// Outcome is the state of an exchange.
type Outcome string

// The five outcomes of the protocol. Only InProgress is open.
const (
	InProgress Outcome = "in_progress"
	Resolved   Outcome = "resolved"
	Escalated  Outcome = "escalated"
	Denied     Outcome = "denied"
	Expired    Outcome = "expired"
)

// Turn is one message of an exchange in the form of its transcript.
type Turn struct {
	Round   int    `json:"round"`
	Sender  string `json:"sender"`
	Summary string `json:"summary"`
	// Claimed is set if the sender wrote the summary. Otherwise it is the beginning of the message.
	Claimed bool `json:"claimed,omitzero"`
}

// Shown is the turn's summary for people who decide by it. A summary that the sender wrote stands
// in quotation marks, as the sender's words.
func (t Turn) Shown() string {
	if !t.Claimed {
		return t.Summary
	}
	return "in the sender's words: “" + t.Summary + "”"
}

// Exchange is one side's view of an exchange between two agents. Each side
// keeps its own, also when both live in one daemon.
type Exchange struct {
	// ID identifies the exchange for the agent on this side.
	ID             string
	ConversationID string
	Type           ExchangeType
	// Agent and Counterparty are instance ids.
	Agent        string
	Counterparty string
	SessionKey   string
	Outcome      Outcome
	// Round counts the messages of both directions so far.
	Round int
	// MaxRounds never grows once the exchange is open.
	MaxRounds int
	// Awaiting is the reply policy of the last message if the counterparty sent it, and empty if
	// this side did.
	Awaiting ReplyPolicy
	// AwaitsCommitment is set if the last message came from the counterparty and asks for a
	// commitment, by its envelope or its text.
	AwaitsCommitment bool
	// Asks is set if the last message asks for a yes that would bind.
	Asks bool
	// ForPerson is set if a message that was delivered has escalated the exchange. Nothing is
	// stopped, but only a person may answer.
	ForPerson bool
	// Approved is set if this side sent the last message, on a person's word.
	Approved bool
	// Stopped is set if a person ended the exchange. Its messages that still wait are not sent any
	// more.
	Stopped bool
	// Chain is the causal chain up to the last message, of either side.
	Chain      Chain
	Level      Level
	OpenedAt   time.Time
	UpdatedAt  time.Time
	ExpiresAt  time.Time
	Transcript []Turn
	// Shared and Withheld are the declared data of its messages so far (OCIP reference, Data
	// Tracking).
	Shared   []Shared
	Withheld []Withheld
}

// maxTracked bounds the data items of each kind that an exchange lists.
const maxTracked = 64

// Track adds the data of one more message. It leaves the earlier lists unchanged for other holders.
func (e *Exchange) Track(shared []Shared, withheld []Withheld) {
	e.Shared, e.Withheld = tracked(e.Shared, shared), tracked(e.Withheld, withheld)
}

func tracked[T any](before, more []T) []T {
	if len(more) == 0 {
		return before
	}
	all := slices.Concat(before, more)
	return all[:min(len(all), maxTracked)]
}

// Open reports whether the exchange still takes messages at the given time.
func (e Exchange) Open(now time.Time) bool {
	return e.goesOn() && !e.ExpiredAt(now)
}

// goesOn reports whether the exchange has not ended. If a delivered message escalated it, it
// continues with a person's answer.
func (e Exchange) goesOn() bool {
	return e.Outcome == InProgress || e.Outcome == Escalated && e.ForPerson
}

// ExpiredAt reports whether the exchange's time has run out. An exchange without an end does not
// expire.
func (e Exchange) ExpiredAt(now time.Time) bool {
	return e.Outcome == Expired || (!e.ExpiresAt.IsZero() && !now.Before(e.ExpiresAt))
}

// advance returns the exchange after one more message. It copies the transcript, so the earlier
// state stays unchanged for other holders.
func (e Exchange) advance(now time.Time, sender, summary string, claimed bool) Exchange {
	e.Round++
	e.UpdatedAt = now
	transcript := make([]Turn, len(e.Transcript), len(e.Transcript)+1)
	copy(transcript, e.Transcript)
	e.Transcript = append(transcript, Turn{Round: e.Round, Sender: sender, Summary: summary, Claimed: claimed})
	return e
}

// close returns the exchange ended with the given outcome. If it has ended before, it keeps its
// outcome, which is evidence.
func (e Exchange) close(now time.Time, outcome Outcome) Exchange {
	switch e.Outcome {
	case Escalated:
		if !e.ForPerson {
			return e
		}
	case Resolved, Denied, Expired:
		return e
	case InProgress:
	}
	e.Outcome, e.ForPerson = outcome, false
	e.UpdatedAt = now
	return e
}

// Settle returns the exchange ended by a person or by time, and whether it was open for that. An
// escalated exchange is open for that, since it waits for a person.
func (e Exchange) Settle(now time.Time, outcome Outcome) (ended Exchange, open bool) {
	if e.Outcome != InProgress && e.Outcome != Escalated {
		return e, false
	}
	e.Outcome, e.ForPerson, e.UpdatedAt = outcome, false, now
	return e, true
}

// SummaryRunes bounds one line of a transcript.
const SummaryRunes = 120

// Summarize makes the transcript's line for a message: its first line with text that is not one of
// the labels, cut to [SummaryRunes]. Characters that could make it look like more than one line, or
// like another one, become spaces.
func Summarize(content string, labels ...string) string {
	for line := range strings.Lines(content) {
		if strings.ContainsFunc(line, misleading) {
			line = strings.Map(func(r rune) rune {
				if misleading(r) {
					return ' '
				}
				return r
			}, line)
		}
		line = strings.TrimSpace(line)
		if line == "" || slices.Contains(labels, line) {
			continue
		}
		runes := 0
		for i := range line {
			if runes == SummaryRunes {
				return line[:i] + "…"
			}
			runes++
		}
		return line
	}
	return ""
}

// misleading reports whether a reader does not see a character as itself. It includes bytes that
// are no character.
func misleading(r rune) bool { return !text.Shows(r) }
