package outbox

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// decided remembers what this process let through of late and left in the store, by
// a hash that nobody else can make, so that a row which is read back needs no look at its record.
type decided struct {
	seed maphash.Seed

	mu   sync.Mutex
	hash map[int64]uint64
	// ring forgets the oldest when a new one needs its place.
	ring []int64
	next int
}

// rememberedDecided bounds it.
const rememberedDecided = 32768

func newDecided() *decided {
	return &decided{seed: maphash.MakeSeed(), hash: make(map[int64]uint64)}
}

// sum is the hash of all that is read back of a message.
func (r *decided) sum(m *store.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, part := range [...]string{m.Queue, m.DispatchID} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(m.Body)
	return h.Sum64()
}

func (r *decided) add(m *store.Message) {
	sum := r.sum(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < rememberedDecided {
		r.ring = append(r.ring, m.ID)
	} else {
		delete(r.hash, r.ring[r.next])
		r.ring[r.next] = m.ID
		r.next = (r.next + 1) % rememberedDecided
	}
	r.hash[m.ID] = sum
}

func (r *decided) has(m *store.Message) bool {
	r.mu.Lock()
	want, known := r.hash[m.ID]
	r.mu.Unlock()
	return known && want == r.sum(m)
}

// mismatch returns why a row of the outbox is not what a record let through, ""
// where it is: whoever can write the database can put rows there.
func (o *Outbox) mismatch(ctx context.Context, who *directory.Directory, m *store.Message, d *Delivery) (why string, err error) {
	if o.decided.has(m) {
		return "", nil
	}
	kind, name := directory.Split(m.Queue)
	text, why := d.text(kind)
	if why != "" {
		return why, nil
	}
	r, err := o.store.DecisionOf(ctx, m, text != nil)
	switch {
	case errors.Is(err, store.ErrUndecided):
		return "no record lets it through", nil
	case err != nil:
		return "", err
	}
	switch kind {
	case "channel":
		if channel, _ := directory.Split(r.SessionKey); channel != name && !audit.Redacted(r.SessionKey) {
			return "its record is of session " + r.SessionKey, nil
		}
	case "agent":
		if agent := who.Agent(name); agent != nil && !isFor(&r, agent) {
			return "its record is of a message for another agent", nil
		}
	case "app":
		if r.AppID != name && !audit.Redacted(r.AppID) {
			return "its record is of app " + r.AppID, nil
		}
	default:
		return "there are no queues of this kind", nil
	}
	if text == nil {
		return "", nil
	}
	other := func(key string) bool { return key != "" && key != r.SessionKey && !audit.Redacted(r.SessionKey) }
	if other(text.SessionKey) || other(d.About.SessionKey) || text.DispatchID != m.DispatchID {
		return "it names another session or message than its record", nil
	}
	if why, err := o.otherText(&r, text); why != "" || err != nil {
		return why, err
	}
	if (kind == "channel" || kind == "agent") && !exact(who, d, &r, text, kind, name) {
		return "it says more than its record let through", nil
	}
	return "", nil
}

// exact reports whether a delivery has nothing but what its record covers, written as
// the daemon writes it: a member that was added would reach the app as well. What is
// said about the message is made anew from what was verified.
func exact(who *directory.Directory, d *Delivery, r *audit.Entry, text *said, kind, name string) bool {
	var again []byte
	strict := json.RejectUnknownMembers(true)
	key := r.SessionKey
	about := api.HookContext{AgentID: name, AuditID: r.ID}
	switch kind {
	case "channel":
		var m api.Message
		if json.Unmarshal(d.Data, &m, strict) != nil || m.ChannelID != name {
			return false
		}
		again = m.Append(nil)
		about.AgentID = ""
		if sender := who.Local(r.AgentID); sender != nil {
			about.AgentID = sender.ID
		}
	case "agent":
		var m api.Inbound
		if json.Unmarshal(d.Data, &m, strict) != nil {
			return false
		}
		again, key = m.Append(nil), m.SessionKey
		if sender := who.Local(r.AgentID); m.ReplyTo != "" && (sender == nil || !strings.HasPrefix(m.ReplyTo, "agent:"+sender.ID+":")) {
			return false
		}
	}
	if audit.Redacted(key) {
		key = d.About.SessionKey
	}
	about.SessionKey, about.ChannelID = key, directory.ChannelOf(key)
	about.AccountID, _ = api.Text(text.Metadata["accountId"])
	d.About = about
	return bytes.Equal(again, d.Data)
}

// isFor reports whether a record let a message through to an agent here.
func isFor(r *audit.Entry, agent *directory.Agent) bool {
	if r.Side == audit.SideReceiver {
		return r.AgentID == agent.InstanceID
	}
	return r.Counterparty.InstanceID == agent.InstanceID || audit.Redacted(r.Counterparty.InstanceID)
}

// said is what a delivery hands over, as its record has the digest of it.
type said struct {
	SessionKey string     `json:"sessionKey"`
	Target     string     `json:"target"`
	Content    string     `json:"content"`
	Metadata   api.Object `json:"metadata"`
	DispatchID string     `json:"dispatchId"`
}

// text returns what a delivery of a kind of queue hands over, nil where it is in the
// daemon's own words alone, and why it can be none.
func (d *Delivery) text(kind string) (text *said, why string) {
	text = new(said)
	raw := []byte(d.Data)
	switch {
	case kind == "app" && d.Name == api.ApprovalEvent:
		// A runtime that delivers by itself is given there what it may send.
		var event struct {
			Data *said `json:"data"`
		}
		if json.Unmarshal(raw, &event) != nil {
			return nil, "it cannot be read"
		}
		if event.Data == nil {
			return nil, ""
		}
		event.Data.Target = event.Data.SessionKey
		return event.Data, ""
	case kind == "channel" && d.Hook == api.MessageSending && d.Name == "":
	case kind == "agent" && d.Hook == api.MessageReceived && d.Name == "":
	default:
		return nil, "it is no message of such a queue"
	}
	if json.Unmarshal(raw, text) != nil {
		return nil, "it cannot be read"
	}
	if kind == "agent" {
		text.Target = text.SessionKey
	}
	return text, ""
}

// otherText returns why what is handed over is not what a record has the digest of.
func (o *Outbox) otherText(r *audit.Entry, text *said) (why string, err error) {
	const other = "it is not what its record let through"
	want, form := r.DeliveredDigest, []byte(text.Content)
	if want == "" {
		// It waits since before records had that: there is the one of its content.
		want = r.ContentDigest
	} else if form, err = audit.DeliveredForm(nil, text.Target, text.Content, text.Metadata.Append(nil)); err != nil {
		return other, nil
	}
	got, err := o.digest(r.TenantID, string(form))
	if err != nil {
		return "", fmt.Errorf("cannot hold a waiting message against its record: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
		return other, nil
	}
	return "", nil
}

// reject takes a row out that no decision let through, with a record of it.
func (o *Outbox) reject(m *store.Message, why string) error {
	o.log.Error("a row of the outbox was not written by a decision: it is not delivered",
		zap.String("queue", m.Queue), zap.Uint64("record", m.RecordSeq), zap.String("reason", why))
	_, err := o.host.Commit(&store.Change{
		Records: []*audit.Record{{
			ID: o.newID(), ActionType: audit.ActionSecurity, Event: "undecided_message", DispatchID: m.DispatchID,
			PolicyResult: string(ocip.Deny), PolicyReason: why, Details: map[string]any{"queue": m.Queue, "decidedBy": m.RecordSeq},
		}},
		Parts:  []store.Part{store.Taken{m.MessageID}},
		Drains: true,
	})
	if err == nil {
		o.given.remove(m.MessageID)
	}
	return err
}
