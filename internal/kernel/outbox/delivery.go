package outbox

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Delivery is one message on its way from the store to an app.
type Delivery struct {
	store.Message
	Event
	// Generation counts the rules that decided it. It was read before any other basis of the
	// decision.
	Generation uint64
	// Volatile is set if the basis of the decision can change, without a change of the rules, while
	// the message waits.
	Volatile bool

	// waited is set if the message was read back, and basis is then what it was weighed by.
	waited *gate.Waited
	basis  basis
	letter gate.Letter
	sealed gate.Sealed
}

// basis is a state of the rules about a tenant's agents.
type basis struct {
	tenant     string
	generation uint64
}

// basisOf returns the present basis for a delivery.
func basisOf(h Host, d *Delivery) basis {
	tenant := d.tenant()
	return basis{tenant, h.Generation(tenant)}
}

// holds reports whether a basis is still that of decisions.
func (b basis) holds(h Host) bool { return h.Generation(b.tenant) == b.generation }

// Event is the part of a delivery that the store keeps besides the data of its event.
type Event struct {
	Hook api.Hook `json:"hook,omitzero"`
	// Name, if set, is the name of an event that is no hook.
	Name  string `json:"event,omitzero"`
	RunID string `json:"runId,omitzero"`
	// From is the agent that sent the message, absent if it came from outside. By is that agent's
	// instance, if the message does not go to an agent, and Tenant the agent's tenant, if known.
	From   string `json:"from,omitzero"`
	By     string `json:"by,omitzero"`
	Tenant string `json:"tenant,omitzero"`
	// For identifies the agent that the message was decided for, see [directory.Agent.Identified].
	For   string          `json:"for,omitzero"`
	About api.HookContext `json:"about"`
}

// tenant returns the tenant of the sender, or of an incoming message's receiver: the wall allows no
// message to another tenant.
func (d *Delivery) tenant() string {
	if d.For != "" {
		tenant, _, _ := strings.Cut(d.For, "/")
		return tenant
	}
	return d.Tenant
}

// approvalID returns the id of the approval that released the message, "" if there is none or the
// message was not read back.
func (d *Delivery) approvalID() string {
	if d.waited == nil {
		return ""
	}
	return d.waited.Record.ApprovalID
}

// Reference returns the subject of a receipt for the delivery.
func (d *Delivery) Reference() *registry.Delivery {
	return &registry.Delivery{MessageID: d.MessageID, RecordSeq: d.RecordSeq, DispatchID: d.DispatchID, SessionKey: d.About.SessionKey}
}

// Close encodes the message once, into the delivery's body, and closes it. Its digest belongs in
// the record of the decision.
func (d *Delivery) Close(keys gate.Keys, tenant string, f gate.Form) (err error) {
	d.Body, d.letter, err = keys.Close(d.encode(f.Room()), tenant, f)
	return err
}

// CloseEvent closes an event that answers a request of the app.
func (d *Delivery) CloseEvent(keys gate.Keys, tenant string, event []byte) (err error) {
	d.Body, d.letter, err = keys.CloseEvent(d.encode(len(event)), tenant, d.DispatchID, event)
	return err
}

// Digest returns the digest of the closed message.
func (d *Delivery) Digest() string { return d.letter.Digest() }

// Size returns the number of bytes of the closed message.
func (d *Delivery) Size() int { return d.letter.Size() }

// Sealed returns the message once it may leave.
func (d *Delivery) Sealed() gate.Sealed { return d.sealed }

// Enter puts a closed delivery into the change that decides it.
func (d *Delivery) Enter(c *store.Change) { c.Add(&d.Message) }

// encode writes the first line as the JSON library would, with room for that many bytes more.
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

// headBytes is the approximate size of a delivery's first line.
const headBytes = 384

// read decodes a message from the store. Its data begin at an index of the body.
func read(m *store.Message) (d *Delivery, data int, err error) {
	d = &Delivery{Message: *m}
	head, _, ok := bytes.Cut(m.Body, []byte("\n"))
	if !ok {
		return d, 0, errors.New("not a delivery")
	}
	return d, len(head) + 1, json.Unmarshal(head, &d.Event)
}

// about returns the context for the receiver of the event.
func (e *Event) about(now time.Time) api.HookContext {
	about := e.About
	about.Timestamp = now.UnixMilli()
	return about
}

// reaches refuses the delivery if it would reach somebody else than it was decided for.
func (d *Delivery) reaches(who *directory.Directory, to Receiver) error {
	if astray := d.astray(who, to); astray != nil {
		return &gate.Withdrawn{Reason: "it would reach somebody else than it was decided for", Details: astray}
	}
	return nil
}

// astray says how the delivery has lost its receiver, nil if it reaches the one that it was decided
// for. The configuration may have given the id of an agent, a channel, or the agent of the app that
// asked to somebody else since. To is the app that would get it, or nil.
func (d *Delivery) astray(who *directory.Directory, to Receiver) map[string]any {
	kind, name := directory.Split(d.Queue)
	if kind == "agent" {
		if agent := who.Agent(name); d.For != "" && agent != nil && agent.Identified() != d.For {
			return map[string]any{"decidedFor": d.For, "isNow": agent.Identified()}
		}
		return nil
	}
	if kind == hostKind {
		if host, _ := who.HostOf(d.About.SessionKey); host != name {
			return map[string]any{"decidedFor": name, "isNow": host}
		}
		return nil
	}
	if d.By == "" || to == nil {
		return nil
	}
	sender := who.Agent(d.From)
	same := sender != nil && sender.InstanceID == d.By && (d.Tenant == "" || sender.TenantID == d.Tenant)
	reaches := true
	switch {
	case kind == "channel":
		reaches = (same || sender == nil) && slices.Contains(who.Tenants(to.ID()), d.Tenant)
	case kind == "app" && same:
		reaches = sender.App == name
	case kind == "app" && who.SeveralTenants():
		// The agent is gone: its app is told, unless it speaks for another tenant by now.
		reaches = !slices.ContainsFunc(who.SpokenBy(name), func(a *directory.Agent) bool { return a.TenantID != d.Tenant })
	}
	if reaches {
		return nil
	}
	return map[string]any{"sentBy": d.By, "tenant": d.Tenant, "app": to.ID()}
}

// ChannelQueue names the queue of a channel, whose messages go to the app that owns it.
func ChannelQueue(channel string) string { return "channel:" + channel }

// HostQueue names the queue of another host of the fleet.
func HostQueue(host string) string { return hostKind + ":" + host }

const hostKind = "host"

// AnyHost stands for the queues of all hosts in [Outbox.Arrival].
const AnyHost = hostKind + ":"

// AgentQueue names the queue of an agent.
func AgentQueue(agent string) string { return "agent:" + agent }

// AppQueue names the queue of events for an app itself. It survives reconnection.
func AppQueue(app string) string { return "app:" + app }
