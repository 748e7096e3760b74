package kernel

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/lane"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Bring takes a frame of another host from a carrier, which may be anybody: the frame proves itself.
// The tenant wall comes before any key, the host and its keys before the signature, and the
// signature before anything that depends on the message.
func (k *Hosts) Bring(ctx context.Context, p *fleetapi.FleetBringParams) (result fleetapi.FleetBringResult, err error) {
	f := k.rules().member
	if f == nil || f.Self == nil {
		return result, noFleet()
	}
	whole, err := base64.StdEncoding.DecodeString(p.Frame)
	if err != nil {
		err = errors.New("it is not in base64")
	}
	var read *frame.Frame
	if err == nil {
		read, err = frame.Parse(whole)
	}
	if err != nil {
		return result, api.Invalid([]api.FieldError{{Path: "frame", Message: err.Error()}})
	}
	from, body, err := k.proven(f, read)
	if err != nil {
		return result, err
	}
	// Once it is proven, it is decided, even if the carrier is gone.
	ctx = context.WithoutCancel(ctx)
	switch read.Kind {
	case frame.Receipt:
		return result, k.receive(ctx, f, from, read, body)
	case frame.Beat:
		return result, k.takeBeat(ctx, from, read, body)
	case frame.Message, frame.Void:
	}
	return k.takeFrame(ctx, f, from, read, body)
}

// refuseFrame counts a frame as refused, puts that on record at most once a minute, and returns the
// error for its carrier.
func (k *Hosts) refuseFrame(host, event string, code ocip.Code, reason string, h *frame.Header) error {
	if _, err := k.noteRefusal(host, event, code, reason, h); err != nil {
		return err
	}
	failure := api.Errorf(api.Forbidden, "%s", reason)
	if code != "" {
		failure.Details = api.OCIP(code, reason)
	}
	return failure
}

// proven finds the host of a frame and opens it, or refuses it, on record at most once a minute.
func (k *Hosts) proven(f *Fleet, read *frame.Frame) (from *roster.Host, body []byte, err error) {
	refuse := func(host string, event string, code ocip.Code, reason string) error {
		return k.refuseFrame(host, event, code, reason, &read.Header)
	}
	if read.Tenant != f.Roster.Tenant && !mutant.Off("frame-wall") {
		return nil, nil, refuse("", "frame_walled", ocip.CrossEnterpriseBlocked, "the frame is of another tenant than this fleet")
	}
	from = f.Roster.Host(read.From)
	if from == nil || from == f.Self || from.Name == f.Self.Name {
		return nil, nil, refuse("", "frame_refused", "", "the roster has no other host of the name in the frame")
	}
	switch {
	case read.To != f.Self.Name || read.ToEpoch != f.Self.Epoch:
		return nil, nil, refuse(from.Name, "frame_refused", "", fmt.Sprintf("the frame is for host %.64q with keys of epoch %d, and this is %s with keys of epoch %d", read.To, read.ToEpoch, f.Self.Name, f.Self.Epoch))
	case read.FromEpoch != from.Epoch:
		return nil, nil, refuse(from.Name, "frame_refused", "", fmt.Sprintf("the frame is of epoch %d of host %s, whose keys are of epoch %d", read.FromEpoch, from.Name, from.Epoch))
	}
	if body, err = read.Open(from.Sign, f.Open); err != nil {
		return nil, nil, refuse(from.Name, "frame_refused", "", err.Error())
	}
	sender := from
	if read.Kind == frame.Receipt {
		sender = f.Self
	}
	if !frame.IsIDOf(read.ID, sender.Name) {
		return nil, nil, refuse(from.Name, "frame_refused", ocip.SourceMismatch, fmt.Sprintf("%.128q is not the id of a message from host %s", read.ID, sender.Name))
	}
	return from, body, nil
}

// takeFrame takes the next message of a lane, or repeats the receipt for one that was taken.
func (k *Hosts) takeFrame(ctx context.Context, f *Fleet, from *roster.Host, read *frame.Frame, body []byte) (result fleetapi.FleetBringResult, err error) {
	name := f.from(from)
	defer k.lanes.Lock(lane.AllFrom(from.Name))()
	last, err := store.LanesOf(k.store).Last(ctx, name)
	if err != nil {
		return result, err
	}
	known, err := store.LanesOf(k.store).Receipt(ctx, name, from.Name, read.Seq, read.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return result, err
	}
	taken := ""
	if known != nil && known.Lane == name && known.Seq == read.Seq {
		taken = known.DispatchID
	}
	step := lane.Place(last, read.Seq, read.ID, taken)
	if step == lane.Repeat && mutant.Off("fleet-inbox") {
		step, read.Seq, known = lane.Take, last+1, nil
	}
	switch step {
	case lane.Wait:
		return fleetapi.FleetBringResult{Waits: true, Next: last + 1}, nil
	case lane.Behind:
		event, reason := "lane_rolled_back", fmt.Sprintf("number %d of the lane was taken for another message, or is forgotten: the state of host %s was put back from a copy", read.Seq, from.Name)
		if known == nil && !read.Expires.IsZero() && k.now().After(read.Expires.Add(keepReceipts)) {
			// Its receipt is forgotten. Any carrier may have kept it, so it says nothing about its host.
			event, reason = "frame_refused", fmt.Sprintf("the message under number %d of the lane has expired, and so has the receipt of that number", read.Seq)
		}
		seq, err := k.noteRefusal(from.Name, event, frame.RolledBack, reason, &read.Header)
		if err != nil {
			return result, err
		}
		known = &store.LaneTaken{Seq: read.Seq, DispatchID: read.ID, RecordSeq: seq, Result: string(frame.Deny), Code: frame.RolledBack, Reason: reason}
	case lane.Take:
		if known, err = k.takeNext(ctx, from, read, body, name, known); err != nil {
			return result, err
		}
		k.hear(from.Name, k.now())
	case lane.Repeat:
	}
	result.Receipt, err = k.receiptFor(ctx, f, from, read, known)
	return result, err
}

// takeNext takes the next message of a lane. Known is its receipt in an earlier lane of the host.
func (k *Hosts) takeNext(ctx context.Context, from *roster.Host, read *frame.Frame, body []byte, name string, known *store.LaneTaken) (*store.LaneTaken, error) {
	place := &arrivedFrom{LaneTaken: store.LaneTaken{Lane: name, Host: from.Name, Seq: read.Seq, DispatchID: read.ID}}
	if !read.Expires.IsZero() {
		place.ForgetAt = read.Expires.Add(keepReceipts)
	}
	r := &audit.Record{ID: k.newID(), ActionType: audit.ActionDelivery, Side: audit.SideReceiver, AppID: directory.AppOfHost(from.Name), DispatchID: read.ID}
	switch {
	case known != nil:
		place.Result, place.Code, place.Reason = known.Result, known.Code, known.Reason
		r.Event, r.Details = "message_repeated", map[string]any{"takenBy": known.RecordSeq}
	case read.Kind == frame.Void:
		place.Result = string(frame.Voided)
		r.Event, r.Outcome = "message_void", string(frame.Voided)
	case !read.Expires.IsZero() && !k.now().Before(read.Expires):
		place.Result, place.Code = string(frame.Expired), string(ocip.ExchangeExpired)
		r.Event, r.Outcome = "message_expired", string(frame.Expired)
		r.Details = map[string]any{"expiredAt": read.Expires}
	default:
		return k.takeMessage(ctx, from, read, body, place, r)
	}
	return k.takeWith(place, r)
}

// takeWith commits the receipt for a message with the only record of it.
func (k *Hosts) takeWith(place *arrivedFrom, r *audit.Record) (*store.LaneTaken, error) {
	change := &store.Change{Records: []*audit.Record{r}, Drains: true}
	place.settle(change)
	if _, err := k.commit(change); err != nil {
		return nil, err
	}
	return &place.LaneTaken, nil
}

// takeMessage decides a message as one that came in for its agent.
func (k *Hosts) takeMessage(ctx context.Context, from *roster.Host, read *frame.Frame, body []byte, place *arrivedFrom, r *audit.Record) (*store.LaneTaken, error) {
	var in *incoming
	before := *place
	_, err := anew(func() (result api.QueueResult, err error) {
		*place = before
		rules := inbound{k.rules()}
		if in, err = rules.fromHost(from, read, body); err != nil {
			return result, err
		}
		in.lane, in.runID = place, k.newID()
		return rules.bring(ctx, in)
	})
	switch {
	case place.settled:
	case err == nil, !isFinal(err):
		if err == nil {
			err = errors.New("a message of another host was decided without a receipt")
		}
		return nil, err
	default:
		*place = before
		place.Result, place.Code, place.Reason = string(frame.Deny), codeOf(err), frame.Reason(api.AsError(err).Message)
		r.Event, r.PolicyResult, r.Code, r.PolicyReason = "message_refused", string(ocip.Deny), place.Code, place.Reason
		return k.takeWith(place, r)
	}
	if in.deliver != nil {
		in.deliver()
	}
	return &place.LaneTaken, nil
}

// fromHost reads a message of another host: the session key is its receiver's own, and an answer goes to
// the same session of its sender.
func (k inbound) fromHost(from *roster.Host, read *frame.Frame, body []byte) (*incoming, error) {
	var m api.Message
	if err := json.Unmarshal(body, &m, json.RejectUnknownMembers(true)); err != nil || m.ChannelID != directory.AgentChannel || m.DispatchID != read.ID {
		return nil, api.Errorf(api.InvalidParams, "the frame holds no message of an agent under its id")
	}
	in := &incoming{
		appID: directory.AppOfHost(from.Name), key: directory.AgentChannel + ":" + m.Target, content: m.Content, metadata: m.Metadata, dispatchID: read.ID,
	}
	if in.agent = k.directory.LocalAgent(in.key); in.agent == nil {
		return nil, api.Errorf(api.NotFound, "this host has no agent of session %.256q", in.key)
	}
	if envelope, err := ocip.ParseEnvelope(m.Metadata["ocip"]); err == nil {
		if host, id := k.directory.Elsewhere(envelope.SourceAgent.InstanceID); host == from.Name {
			_, rest, _ := strings.Cut(m.Target, ":")
			in.replyTo = directory.AgentChannel + ":" + id + ":" + rest
		}
	}
	return in, nil
}

// receiptFor makes the frame of a receipt.
func (k *Hosts) receiptFor(ctx context.Context, f *Fleet, to *roster.Host, read *frame.Frame, t *store.LaneTaken) (*fleetapi.FleetFrame, error) {
	o := frame.Outcome{Result: frame.Result(t.Result), Code: t.Code, Reason: frame.Reason(t.Reason), Log: k.store.Origin(), Record: t.RecordSeq}
	line, err := k.store.Line(ctx, t.RecordSeq)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		head, err := audit.HeadOf(line)
		if err != nil {
			return nil, err
		}
		o.Hash = head.Hash.String()
	}
	body, err := o.Write()
	if err != nil {
		return nil, err
	}
	return f.seal(f.header(frame.Receipt, to, read.Seq, read.ID), body, to)
}

// receive takes the receipt for a message that this host has sent: its row leaves the outbox, and its
// app is told.
func (k *Hosts) receive(ctx context.Context, f *Fleet, from *roster.Host, read *frame.Frame, body []byte) error {
	said, err := frame.ReadOutcome(body)
	if err != nil {
		return k.refuseFrame(from.Name, "frame_refused", "", "the receipt cannot be used: "+err.Error(), &read.Header)
	}
	name := f.to(from)
	defer k.lanes.Lock(lane.AllTo(from.Name))()
	row, err := store.LanesOf(k.store).Message(ctx, name, read.Seq)
	if errors.Is(err, store.ErrNotFound) {
		return nil // it had its receipt before
	}
	if err != nil {
		return err
	}
	if row.Message.DispatchID == read.ID {
		k.hear(from.Name, k.now())
	} else {
		return api.Errorf(api.Conflict, "the receipt is for another message than number %d of the lane", read.Seq)
	}
	if said.Code == frame.RolledBack {
		_, err := k.noteRefusal(from.Name, "lane_rolled_back", frame.RolledBack,
			"host "+from.Name+" says that the state of this host was put back from a copy; nothing goes there until this host has new keys: ocipd fleet rejoin", &read.Header)
		return err
	}
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionDelivery, Event: "receipt", Side: audit.SideSender, Outcome: string(said.Result), Code: said.Code, DispatchID: read.ID,
		Details: map[string]any{
			"decidedBy": row.Message.RecordSeq, "lane": map[string]any{"host": from.Name, "name": name, "seq": read.Seq, "result": said.Result},
			"peer": map[string]any{"log": said.Log, "record": said.Record, "hash": said.Hash}, "reason": said.Reason,
		},
	}
	change := &store.Change{Records: []*audit.Record{r}, Drains: true}
	id := store.MessageID{Queue: outbox.HostQueue(from.Name), ID: row.Message.ID}
	change.Add(store.LaneEnded{Lane: name, Seq: read.Seq}, store.Taken{id})
	if err := k.tellReceipt(ctx, change, row, from, &said); err != nil {
		return err
	}
	if _, err := k.commit(change); err != nil {
		return err
	}
	outbox.Arrived(k.outbox, id)
	k.ring()
	return nil
}

// tellReceipt enters into the record of a receipt whose message it is for, and tells that app. Without the
// record of the message, which retention may have removed, nobody is told.
func (k *Hosts) tellReceipt(ctx context.Context, change *store.Change, row *store.LaneSent, from *roster.Host, said *frame.Outcome) error {
	decisions, err := k.store.DecisionsOf(ctx, row.Message.RecordSeq, row.Message.DispatchID)
	if err != nil {
		return err
	}
	for i := range decisions {
		sent := &decisions[i].Entry
		if sent.ActionType != audit.ActionExchange || sent.PolicyResult != string(ocip.Allow) || sent.Side != audit.SideSender {
			continue
		}
		r := change.Records[0]
		r.TenantID, r.UserID, r.AgentID, r.AppID, r.SessionKey = sent.TenantID, sent.UserID, sent.AgentID, sent.AppID, sent.SessionKey
		return receiptEvent(k.rules(), change, sent, &fleetapi.MessageReceipt{
			DispatchID: sent.DispatchID, SessionKey: sent.SessionKey, Host: from.Name, Result: string(said.Result), Code: said.Code, Reason: reasonOf(from, said.Result),
			Log: ownForm.FindString(said.Log), Record: said.Record, Hash: said.Hash, Timestamp: k.now().UnixMilli(),
		})
	}
	return nil
}

// ownForm is the form of a log's origin that this daemon gives.
var ownForm = regexp.MustCompile(`^ocipd/[0-9a-f-]{36}$`)

// reasonOf is why a message did not reach its agent, in this daemon's words. The other host's words go
// only into the record: nobody decided that the app may see them.
func reasonOf(from *roster.Host, result frame.Result) string {
	switch result {
	case frame.Deny:
		return "host " + from.Name + " refused the message; the record of its receipt says why"
	case frame.Expired:
		return "the message reached host " + from.Name + " too late"
	case frame.Voided:
		return "the message was withdrawn before host " + from.Name + " took it"
	case frame.Allow:
	}
	return ""
}
