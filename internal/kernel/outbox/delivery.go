package outbox

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/store"
)

// Delivery is one message on its way from the store to an app.
type Delivery struct {
	store.Message
	Event
	// Generation is that of the rules which decided it, read before anything else was read
	// that decided it.
	Generation uint64
	// Volatile is set if what decided it can change without the rules while it waits.
	Volatile bool

	// waited is set if the message was read back.
	waited *gate.Waited
	letter gate.Letter
	sealed gate.Sealed
}

// Event is what the store keeps of a delivery besides the data of its event: what it is
// about.
type Event struct {
	Hook api.Hook `json:"hook,omitzero"`
	// Name, where set, is the name of an event that is no hook.
	Name  string `json:"event,omitzero"`
	RunID string `json:"runId,omitzero"`
	// From is the agent that sent the message, absent where it came from outside. By says
	// which one that is, its instance, where the message goes to no agent, and Tenant, where
	// that is known, whose.
	From   string `json:"from,omitzero"`
	By     string `json:"by,omitzero"`
	Tenant string `json:"tenant,omitzero"`
	// For is which agent the message was decided for, see [directory.Agent.Identified].
	For   string          `json:"for,omitzero"`
	About api.HookContext `json:"about"`
}

// tenant is whose agent sent the message, or whom it came in for: the wall lets nobody
// write to an agent of another tenant.
func (d *Delivery) tenant() string {
	if d.For != "" {
		tenant, _, _ := strings.Cut(d.For, "/")
		return tenant
	}
	return d.Tenant
}

// approvalID is that of the person's decision that let the message through, "" where none did
// or the message was not read back.
func (d *Delivery) approvalID() string {
	if d.waited == nil {
		return ""
	}
	return d.waited.Record.ApprovalID
}

// Reference returns what a receipt for the delivery is about.
func (d *Delivery) Reference() *registry.Delivery {
	return &registry.Delivery{MessageID: d.MessageID, RecordSeq: d.RecordSeq, DispatchID: d.DispatchID, SessionKey: d.About.SessionKey}
}

// Close closes the message that is delivered, which is written once, where it stays. Its
// digest belongs into the record of the decision.
func (d *Delivery) Close(keys gate.Keys, tenant string, f gate.Form) (err error) {
	d.Body, d.letter, err = keys.Close(d.encode(f.Room()), tenant, f)
	return err
}

// CloseEvent closes the event that answers a request of the app.
func (d *Delivery) CloseEvent(keys gate.Keys, tenant string, event []byte) (err error) {
	d.Body, d.letter, err = keys.CloseEvent(d.encode(len(event)), tenant, d.DispatchID, event)
	return err
}

// Digest is that of the closed message.
func (d *Delivery) Digest() string { return d.letter.Digest() }

// Sealed is the message once it may leave.
func (d *Delivery) Sealed() gate.Sealed { return d.sealed }

// Enter puts a closed delivery into the change that decides it.
func (d *Delivery) Enter(c *store.Change) { c.Add(&d.Message) }

// encode writes the first line as the JSON library would, with room for so many bytes more.
func (e *Event) encode(room int) []byte {
	text := make([]byte, 0, headBytes+room)
	text = jsonline.TextIfAny(append(text, '{'), "hook", string(e.Hook))
	text = jsonline.TextIfAny(text, "event", e.Name)
	text = jsonline.TextIfAny(text, "runId", e.RunID)
	text = jsonline.TextIfAny(text, "from", e.From)
	text = jsonline.TextIfAny(text, "by", e.By)
	text = jsonline.TextIfAny(text, "tenant", e.Tenant)
	text = jsonline.TextIfAny(text, "for", e.For)
	text = e.About.Append(jsonline.Key(text, "about"))
	return append(text, "}\n"...)
}

// headBytes is about what a delivery's first line takes.
const headBytes = 384

// read takes up what the store has of a message. Its data begin at an index of the body.
func read(m *store.Message) (d *Delivery, data int, err error) {
	d = &Delivery{Message: *m}
	head, _, ok := bytes.Cut(m.Body, []byte("\n"))
	if !ok {
		return d, 0, errors.New("not a delivery")
	}
	return d, len(head) + 1, json.Unmarshal(head, &d.Event)
}

// about is the context that the receiver is given with the event.
func (e *Event) about(now time.Time) api.HookContext {
	about := e.About
	about.Timestamp = now.UnixMilli()
	return about
}

// ChannelQueue names the queue of a channel, whose messages go to the app that owns it.
func ChannelQueue(channel string) string { return "channel:" + channel }

// AgentQueue names the queue of an agent.
func AgentQueue(agent string) string { return "agent:" + agent }

// AppQueue names the queue of what an app itself is told, also after it reconnects.
func AppQueue(app string) string { return "app:" + app }
