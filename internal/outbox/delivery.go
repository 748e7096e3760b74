package outbox

import (
	"bytes"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/registry"
	"github.com/openclawos/ocipd/internal/store"
)

// Delivery is one message on its way from the store to an app.
type Delivery struct {
	store.Message
	Event
}

// Event is what the store keeps of a delivery: two lines, what it is about and
// the data of its event, which is never decoded again.
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
	Data  jsontext.Value  `json:"-"`
}

// Reference returns what a receipt for the delivery is about.
func (d *Delivery) Reference() *registry.Delivery {
	return &registry.Delivery{MessageID: d.MessageID, RecordSeq: d.RecordSeq, DispatchID: d.DispatchID, SessionKey: d.About.SessionKey}
}

// Enter puts a delivery into the change that decides it.
func (d *Delivery) Enter(c *store.Change) {
	if d.Body == nil {
		d.Write(len(d.Data), func(b []byte) []byte { return append(b, d.Data...) })
	}
	c.Add(&d.Message)
}

// Write makes of a delivery what the store keeps of it. Its data are what a function
// appends, at most about so many bytes: they are written once, where they stay.
func (d *Delivery) Write(room int, data func([]byte) []byte) {
	head := d.encode(room)
	d.Body = data(head)
	d.Data = d.Body[len(head):]
}

// encode writes the first line as the JSON library would.
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

func (e *Event) decode(text []byte) error {
	head, data, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return errors.New("not a delivery")
	}
	e.Data = data
	return json.Unmarshal(head, e)
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
