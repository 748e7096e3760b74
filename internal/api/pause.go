package api

import (
	"strings"
	"time"
)

// PauseParams names the messages that are paused or resumed: those that one agent sends and
// receives, or those of one channel. Without either, they are all messages (operator,
// sending.pause and sending.resume).
type PauseParams struct {
	Agent   string `json:"agent,omitzero" is:"max=256" doc:"The agent's id or instance id."`
	Channel string `json:"channel,omitzero" is:"max=256" doc:"The channel. All is meant if neither is given."`
	Note    string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// Rules reports faults between members.
func (p *PauseParams) Rules() (f Fields) {
	if p.Agent != "" && p.Channel != "" {
		f.Add("channel", "cannot be given together with agent: pause each by itself")
	}
	return f
}

// The scopes of a pause: all, or one agent or channel behind its prefix.
const (
	PausedAll     = "all"
	pausedAgent   = "agent:"
	pausedChannel = "channel:"
)

// Scope is the scope that the parameters name.
func (p *PauseParams) Scope() string {
	switch {
	case p.Agent != "":
		return PausedAgent(p.Agent)
	case p.Channel != "":
		return PausedChannel(p.Channel)
	}
	return PausedAll
}

// PausedAgent is the scope of one agent, by its id.
func PausedAgent(id string) string { return pausedAgent + id }

// PausedChannel is the scope of one channel.
func PausedChannel(id string) string { return pausedChannel + id }

// PausedScope is one thing that is paused, since when and by whom. Agent and Channel are absent if
// all is.
type PausedScope struct {
	Scope   string    `json:"scope"`
	Agent   string    `json:"agent,omitzero"`
	Channel string    `json:"channel,omitzero"`
	Since   time.Time `json:"since"`
	By      string    `json:"by"`
}

// NewPausedScope says of a scope what it is.
func NewPausedScope(scope string, since time.Time, by string) PausedScope {
	s := PausedScope{Scope: scope, Since: since.UTC(), By: by}
	if agent, ok := strings.CutPrefix(scope, pausedAgent); ok {
		s.Agent = agent
	} else if channel, ok := strings.CutPrefix(scope, pausedChannel); ok {
		s.Channel = channel
	}
	return s
}

// PauseResult lists the pauses in force. Changed is false if that was so before; then there is no
// record.
type PauseResult struct {
	Changed  bool          `json:"changed"`
	Paused   []PausedScope `json:"paused"`
	AuditSeq uint64        `json:"auditSeq,omitzero"`
}

// QueueListParams asks for a page of allowed messages that have not reached their receivers
// (operator, queue.list). Agent is the sender or receiver of the messages.
type QueueListParams struct {
	Queue   string `json:"queue,omitzero" is:"max=512" doc:"The queue."`
	Agent   string `json:"agent,omitzero" is:"max=512" doc:"The sender or the receiver."`
	Channel string `json:"channel,omitzero" is:"max=512" doc:"The channel."`
	Limit   *int   `json:"limit,omitzero" is:"range=1..1000" doc:"At most this many; 100 by default."`
	After   string `json:"after,omitzero" is:"max=512" doc:"next of the page before."`
}

// Page returns the page's size.
func (p *QueueListParams) Page() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// QueuedMessage is one message that waits. Summary is how its text begins.
type QueuedMessage struct {
	Queue      string `json:"queue"`
	DispatchID string `json:"dispatchId"`
	// AuditSeq is the record of the decision that let it through.
	AuditSeq uint64 `json:"auditSeq"`
	// Event is the receiver's event, such as hook:message_sending.
	Event string `json:"event"`
	// Sender is the agent here that sent it, absent if it came from outside, and Receiver the one
	// here that it is for.
	Sender     string    `json:"sender,omitzero"`
	Receiver   string    `json:"receiver,omitzero"`
	Channel    string    `json:"channel,omitzero"`
	SessionKey string    `json:"sessionKey,omitzero"`
	Summary    string    `json:"summary"`
	Bytes      int       `json:"bytes"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	// Paused names the pause that stops the message. Handed is set if the message cannot be dropped.
	Paused string `json:"paused,omitzero"`
	Handed bool   `json:"handed,omitzero" doc:"The message is on its way to its app, at its reader, or may be with a carrier."`
}

// QueueListResult is a page of messages, each queue's in the order in which they
// were decided.
type QueueListResult struct {
	Messages []QueuedMessage `json:"messages"`
	// Next continues the list, "" where nothing is left.
	Next string `json:"next,omitzero"`
}

// QueueDropParams takes messages out that were let through and have not reached
// their receivers (operator, queue.drop).
type QueueDropParams struct {
	DispatchIDs []string `json:"dispatchIds" is:"names nonempty" doc:"The messages."`
	Queue       string   `json:"queue,omitzero" is:"max=512" doc:"The queue in which alone they are looked for."`
	Note        string   `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// QueueDropResult is the result for each message.
type QueueDropResult struct {
	Dropped []DroppedMessage `json:"dropped"`
	// Kept were not dropped, with the reason.
	Kept []KeptMessage `json:"kept"`
}

// DroppedMessage is one that is taken out, and the record of that.
type DroppedMessage struct {
	DispatchID string `json:"dispatchId"`
	Queue      string `json:"queue"`
	AuditSeq   uint64 `json:"auditSeq"`
	// Given says that a reader was given it before, which has gone.
	Given bool `json:"given,omitzero" doc:"The reader may have acted on the message: it had it when its connection ended. The daemon does not know that for deliveries before its last start."`
}

// KeptMessage is one that was not taken out.
type KeptMessage struct {
	DispatchID string `json:"dispatchId"`
	Reason     string `json:"reason"`
}
