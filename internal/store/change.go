package store

import (
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Change is what one decision writes. It is durable whole or not at all. The
// caller must not touch it again after handing it to [Store.Commit].
type Change struct {
	// Records are the decision's evidence, in order.
	Records []*audit.Record
	// Exchanges are written over what is known of them.
	Exchanges []ocip.Exchange
	// Current names the exchange that a session's next message belongs to.
	Current []Current
	// Escalations are opened, Settled are ended.
	Escalations []Escalation
	Settled     []Pair
	// Heard is what agents heard last, Seen which agents were seen at sessions.
	Heard []Heard
	Seen  []Seen
	// Approvals are messages that begin to wait for a person, or that a person
	// has decided about.
	Approvals []Approval
	// Sessions are new sessions.
	Sessions []Session
	// Outbox are messages to be delivered.
	Outbox []*Message
	// Taken are outbox messages that their receivers have.
	Taken []MessageID
	// Runs are new agent runs, EndedRuns the ids of completed ones.
	Runs      []Run
	EndedRuns []string
	// Meta are small named values of the database itself, and Dropped the names
	// of those that go. What is in both is there in the end.
	Meta    []Meta
	Dropped []string
	// Parts are further rows, of whatever kinds there are. They need a record in
	// the change, or that it drains: see [ErrUnrecorded].
	Parts []Part

	// Checkpoint asks for a checkpoint of the log right after the records,
	// unless the last record of it is one.
	Checkpoint bool
	// rotate and retire are what the store itself writes.
	rotate *rotation
	retire *retirement

	// Drains marks a change that ends something or is needed for it: a person's
	// decision, a delivery's receipt, the going of an app. It is written also while
	// the disk is nearly full, as long as there is more than the reserve.
	Drains bool
	// Last marks a person's decision. It drains, and may use the reserve.
	Last bool
	// Alarm marks records about the log itself, such as that the mirror is lost
	// or the daemon stops. They release nothing, so they are written also where
	// nothing may be released. An alarm drains, and may use the reserve.
	Alarm bool

	// Durable, where set, is called after the fsync, in commit order, before
	// Commit returns. It must not block: every other caller waits for it.
	Durable func(Receipt)
}

// OnDurable adds to what happens when the change is durable, after what is set
// already. See [Change.Durable].
func (c *Change) OnDurable(f func(Receipt)) {
	first := c.Durable
	if first == nil {
		c.Durable = f
		return
	}
	c.Durable = func(r Receipt) {
		first(r)
		f(r)
	}
}

// drains reports whether the change is written while the disk is nearly full.
// What has no record is no more than what rides along with the next commit.
func (c *Change) drains() bool {
	return c.Drains || c.last() || len(c.Records) == 0 && len(c.Meta) == 0
}

// last reports whether the change may use the space that is kept for the end.
func (c *Change) last() bool { return c.Last || c.Alarm }

// releases reports whether something may follow from the change.
func (c *Change) releases() bool {
	return !c.Alarm && (len(c.Records) > 0 || len(c.Parts) > 0 || c.Durable != nil)
}

// Meta is one named value, such as a key made on first start.
type Meta struct {
	Key   string
	Value []byte
}

// Receipt says where a change went.
type Receipt struct {
	// Seq is the sequence number of the change's first record, zero where it
	// had none.
	Seq  uint64
	Time time.Time
}

// Current binds a session to an exchange, for one agent.
type Current struct {
	Agent      string
	SessionKey string
	ExchangeID string
}

// Session is what is known of a session.
type Session struct {
	Key          string
	AgentID      string
	ChannelID    string
	AccountID    string
	CreatedAt    time.Time
	LastActiveAt time.Time
	MessageCount int64
}

// MessageID names a message in the outbox.
type MessageID struct {
	Queue string
	// ID orders the messages of all queues by when they were decided. The
	// store assigns it.
	ID int64
}

// Message is one message on its way to a receiver.
type Message struct {
	MessageID
	// RecordSeq is the record of the decision that let it through. The store
	// assigns it.
	RecordSeq  uint64
	DispatchID string
	// ExpiresAt ends the waiting; zero never does.
	ExpiresAt time.Time
	// App is the app that it is from, which may have so much waiting and no more.
	// The store fills it in from the change's records where it is empty.
	App string
	// Body is the message as its receiver will get it, in the kernel's form.
	Body []byte
}

// Run is one agent invocation that has not completed.
type Run struct {
	ID         string
	AgentID    string
	SessionKey string
	QueuedAt   time.Time
}
