package outbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// List returns a page of allowed messages that have not reached their receivers.
func (o *Outbox) List(ctx context.Context, p *api.QueueListParams) (api.QueueListResult, error) {
	result := api.QueueListResult{Messages: []api.QueuedMessage{}}
	from, after, err := parseQueuePlace(p.After)
	if err != nil {
		return result, err
	}
	// Do not list messages that receivers have by now.
	o.Settle()
	err = o.eachQueue(ctx, p.Queue, from, func(queue string) (bool, error) {
		start := int64(0)
		if queue == from {
			start = after
		}
		return o.eachMessage(ctx, queue, start, func(m *store.Message, d *Delivery) (bool, error) {
			q := o.queued(m, d)
			if p.Agent != "" && q.Sender != p.Agent && q.Receiver != p.Agent || p.Channel != "" && q.Channel != p.Channel {
				return true, nil
			}
			if len(result.Messages) == p.Page() {
				last := result.Messages[len(result.Messages)-1]
				result.Next = last.Queue + "#" + strconv.FormatInt(after, 10)
				return false, nil
			}
			result.Messages = append(result.Messages, q)
			after = m.ID
			return true, nil
		})
	})
	return result, err
}

// Waiting returns the dispatch ids of an agent's messages that were handed neither to its app nor
// to a reader.
func (o *Outbox) Waiting(ctx context.Context, agent string) (map[string]bool, error) {
	waiting, queue := make(map[string]bool), AgentQueue(agent)
	for after := int64(0); ; {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return waiting, err
		}
		for _, m := range page {
			if after = m.ID; !o.handed(m.MessageID) && !o.given.has(m.MessageID) {
				waiting[m.DispatchID] = true
			}
		}
	}
}

// parseQueuePlace parses the position of the next page: a queue and the last message in it.
func parseQueuePlace(place string) (queue string, after int64, err error) {
	if place == "" {
		return "", 0, nil
	}
	i := strings.LastIndexByte(place, '#')
	if i >= 0 {
		after, err = strconv.ParseInt(place[i+1:], 10, 64)
	}
	if i < 0 || err != nil {
		return "", 0, api.Invalid([]api.FieldError{{Path: "after", Message: "not the next of a page"}})
	}
	return place[:i], after, nil
}

// eachQueue visits the queues that are not empty, beginning with one, or a single one.
func (o *Outbox) eachQueue(ctx context.Context, only, from string, visit func(queue string) (more bool, err error)) error {
	if only != "" {
		_, err := visit(only)
		return err
	}
	queue := from
	for first := from != ""; ; first = false {
		if !first {
			var err error
			if queue, err = o.store.NextQueue(ctx, queue); err != nil || queue == "" {
				return err
			}
		}
		if more, err := visit(queue); err != nil || !more {
			return err
		}
	}
}

// eachMessage visits the messages of a queue after one. It skips messages that cannot be decoded;
// their delivery logs that.
func (o *Outbox) eachMessage(ctx context.Context, queue string, after int64, visit func(*store.Message, *Delivery) (more bool, err error)) (more bool, err error) {
	for {
		page, err := o.store.Messages(ctx, queue, after, drainPage)
		if err != nil || len(page) == 0 {
			return true, err
		}
		for _, m := range page {
			after = m.ID
			d, data, err := read(m)
			if err != nil || m.Altered {
				continue
			}
			_, w, err := o.evidence(ctx, d, m.Body[data:])
			_, not := errors.AsType[undecided](err)
			_, gone := errors.AsType[*gate.Withdrawn](err)
			if err != nil && !not && !gone {
				return false, err
			}
			d.waited = w
			if more, err := visit(m, d); err != nil || !more {
				return false, err
			}
		}
	}
}

// queued returns a waiting message for people.
func (o *Outbox) queued(m *store.Message, d *Delivery) api.QueuedMessage {
	kind, name := directory.Split(m.Queue)
	q := api.QueuedMessage{
		Queue: m.Queue, DispatchID: m.DispatchID, AuditSeq: m.RecordSeq, Event: "hook:" + string(d.Hook), Sender: d.From,
		Channel: d.About.ChannelID, SessionKey: d.About.SessionKey, Bytes: d.letter.Size(), ExpiresAt: m.ExpiresAt, Paused: d.pausedBy(o.host),
	}
	switch {
	case d.Name != "":
		q.Event, q.Sender = d.Name, cmp.Or(d.From, d.About.AgentID)
	case kind == "agent":
		q.Receiver = name
	case q.Sender == "":
		// In old rows without a sender, the context names the sender.
		q.Sender = d.About.AgentID
	}
	if d.waited != nil {
		_, said := d.waited.Form.Write(nil)
		var known struct {
			Label string `json:"aiDisclosure"`
		}
		// Metadata without a readable label has none.
		_ = json.Unmarshal(said.Metadata, &known)
		q.Summary = ocip.Summarize(said.Content.Inspect(), known.Label)
	}
	q.Handed = o.handed(m.MessageID) || o.given.held(m.MessageID) || mayArrive(o, m)
	return q
}

// Drop removes messages that have not reached their receivers, on record. By describes the person
// for the records.
func (o *Outbox) Drop(by map[string]any, p *api.QueueDropParams) (api.QueueDropResult, error) {
	result := api.QueueDropResult{Dropped: []api.DroppedMessage{}, Kept: []api.KeptMessage{}}
	// Finish the work even if the caller disconnects.
	ctx := context.Background()
	o.Settle()
	found := make(map[string]bool)
	err := o.eachQueue(ctx, p.Queue, "", func(queue string) (bool, error) {
		return o.eachMessage(ctx, queue, 0, func(m *store.Message, d *Delivery) (bool, error) {
			if !slices.Contains(p.DispatchIDs, m.DispatchID) {
				return true, nil
			}
			found[m.DispatchID] = true
			details := maps.Clone(by)
			seq, kept, err := o.drop(details, m, d)
			switch {
			case err != nil:
				return false, err
			case kept != "":
				result.Kept = append(result.Kept, api.KeptMessage{DispatchID: m.DispatchID, Reason: kept})
			default:
				result.Dropped = append(result.Dropped, api.DroppedMessage{DispatchID: m.DispatchID, Queue: m.Queue, AuditSeq: seq, Given: details["given"] == true})
			}
			return true, nil
		})
	})
	for _, id := range p.DispatchIDs {
		if err == nil && !found[id] {
			found[id] = true
			result.Kept = append(result.Kept, api.KeptMessage{DispatchID: id, Reason: "nothing waits under this id: it has reached its receiver, was taken out, or never was"})
		}
	}
	return result, err
}

// drop removes one message, or says why it is kept: its app or its reader has it already. If its
// reader is gone, the message is removed, so that it does not come again.
func (o *Outbox) drop(details map[string]any, m *store.Message, d *Delivery) (seq uint64, kept string, err error) {
	// Mark it first: from now on nobody hands it over, and an earlier handover shows below.
	o.dropped.add(m.MessageID, o.now())
	defer func() {
		if kept != "" || err != nil {
			o.dropped.remove(m.MessageID)
			o.LookBack()
		}
	}()
	if l := o.known(m.Queue); l != nil && o.handed(m.MessageID) {
		o.Recall(l.to.Line())
	}
	switch {
	case o.handed(m.MessageID):
		kept = "it is on its way to its app already"
	case mayArrive(o, m):
		kept = "a carrier may have it already, and its host has sent no receipt: it may arrive"
	case o.given.held(m.MessageID):
		kept = "its reader has it already, and has not passed it yet"
	}
	if kept != "" {
		return 0, kept, nil
	}
	details["sessionKey"], details["agent"] = d.About.SessionKey, d.About.AgentID
	seq, err = o.takeOutWith(&store.Change{Drains: true}, m, "dropped", details)
	return seq, "", err
}

// dropped lists messages that a person removes. A page that was read before may still be under way,
// so they are remembered for longer than that takes.
type dropped struct {
	mu   sync.Mutex
	when map[store.MessageID]time.Time
}

// droppedKept is how long a dropped message is remembered.
const droppedKept = 10 * time.Minute

func (d *dropped) add(id store.MessageID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.when == nil {
		d.when = make(map[store.MessageID]time.Time)
	}
	d.when[id] = now
}

func (d *dropped) remove(id store.MessageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.when, id)
}

func (d *dropped) has(id store.MessageID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.when[id]
	return ok
}

// sweep forgets old entries.
func (d *dropped) sweep(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, at := range d.when {
		if now.Sub(at) > droppedKept {
			delete(d.when, id)
		}
	}
}
