package kernel

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/keylock"
	"github.com/openclawos/ocipd/internal/fleet/beat"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/lane"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Fleet is this daemon's place in a fleet: a roster whose signature was checked, the line of this
// host in it, nil if it has none, and that host's private keys.
type Fleet struct {
	Roster *roster.Roster
	Name   string
	Self   *roster.Host
	Sign   ed25519.PrivateKey
	Open   *ecdh.PrivateKey
	// MaxQueued is how many messages to one host may wait for its receipt.
	MaxQueued int
	// Vitals returns the content of the daemon's next beat.
	Vitals func(context.Context) (fleetapi.Beat, error)
}

// to names the lane to another host, and from the lane from it.
func (f *Fleet) to(h *roster.Host) string   { return lane.To(h.Name, h.Epoch, f.Self.Epoch) }
func (f *Fleet) from(h *roster.Host) string { return lane.From(h.Name, h.Epoch, f.Self.Epoch) }

// header begins the header of a frame for another host.
func (f *Fleet) header(kind frame.Kind, to *roster.Host, seq uint64, id string) *frame.Header {
	return &frame.Header{
		Kind: kind, Tenant: f.Roster.Tenant, From: f.Self.Name, FromEpoch: f.Self.Epoch, To: to.Name, ToEpoch: to.Epoch, Seq: seq, ID: id,
	}
}

// names makes an id into that of a message from this host. A daemon in no fleet leaves it as it is.
func (f *Fleet) names(id string) string {
	if f == nil || f.Self == nil {
		return id
	}
	return frame.IDOf(id, f.Self.Name)
}

// seal makes a frame for another host.
func (f *Fleet) seal(h *frame.Header, body []byte, to *roster.Host) (*fleetapi.FleetFrame, error) {
	key, err := ecdh.X25519().NewPublicKey(to.Seal)
	if err != nil {
		return nil, fmt.Errorf("cannot use the key of host %s: %w", to.Name, err)
	}
	sealed, err := frame.Seal(h, body, key, f.Sign)
	if err != nil {
		return nil, err
	}
	return &fleetapi.FleetFrame{To: to.Name, ToEpoch: to.Epoch, Kind: string(h.Kind), Seq: h.Seq, Frame: base64.StdEncoding.EncodeToString(sealed)}, nil
}

// Hosts is the traffic of a kernel with other hosts. Its own state is in memory.
type Hosts struct {
	*Kernel
	// lanes serializes the arrival, the move and the end of messages in all lanes from a host, and in all to it.
	// Under new keys a message moves to another lane, so that a lock of one lane would not be enough.
	lanes keylock.Locks

	mu sync.Mutex
	// news is closed when there may be something to offer. Carriers counts the attached ones.
	news     chan struct{}
	carriers int
	// heard and refused are by host, and noted has the newest record of a kind of refusal.
	heard   map[string]time.Time
	refused map[string]uint64
	noted   map[string]noted
	// beats are by host and epoch, see beatsOf, and since is when the daemon began to hear them.
	beats map[string]*beat.Host
	since time.Time
	// beating serializes this host's beats over all carriers: a later one has no smaller checkpoint.
	beating sync.Mutex
}

type noted struct {
	at  time.Time
	seq uint64
}

// bell returns a channel that is closed at the next ring.
func (k *Hosts) bell() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.news == nil {
		k.news = make(chan struct{})
	}
	return k.news
}

// ring wakes the carriers. It never waits.
func (k *Hosts) ring() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.news != nil {
		close(k.news)
		k.news = nil
	}
}

// hear notes that a host has said something new. A frame that a carrier has repeated is no sign of life.
func (k *Hosts) hear(host string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heard == nil {
		k.heard = make(map[string]time.Time)
	}
	k.heard[host] = at
}

// noteEvery is how often a kind of refusal of one host goes on record.
const noteEvery = time.Minute

// noteRefusal counts a refused frame of a host, and records the refusal unless the last minute has a
// record of it. Host is a name of the roster, or "" for any other. It returns the number of the
// record.
func (k *Hosts) noteRefusal(host, event string, code ocip.Code, reason string, h *frame.Header) (seq uint64, err error) {
	now, kind := k.now(), host+"\x00"+event+"\x00"+string(code)
	defer k.lanes.Lock(kind)()
	k.mu.Lock()
	if k.refused == nil {
		k.refused, k.noted = make(map[string]uint64), make(map[string]noted)
	}
	k.refused[host]++
	last, already := k.noted[kind]
	k.mu.Unlock()
	if already && now.Sub(last.at) < noteEvery {
		return last.seq, nil
	}
	receipt, err := k.record(&audit.Record{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: event, PolicyResult: string(ocip.Deny), Code: string(code), PolicyReason: reason,
		Details: map[string]any{"host": host, "claims": map[string]any{"tenant": h.Tenant, "from": h.From, "epoch": h.FromEpoch, "kind": h.Kind, "seq": h.Seq, "id": h.ID}},
	})
	if err == nil {
		k.mu.Lock()
		k.noted[kind] = noted{now, receipt.Seq}
		k.mu.Unlock()
	}
	return receipt.Seq, err
}

// arrivedFrom is the place in its lane of a message from another host.
type arrivedFrom struct {
	store.LaneTaken
	// settled is set once the receipt is durable.
	settled bool
}

// settle enters the receipt for a message into the change that decides it. It does nothing for a
// message that came another way.
func (a *arrivedFrom) settle(c *store.Change) {
	if a == nil {
		return
	}
	r := c.Records[0]
	if a.Result == "" {
		a.Result = string(frame.Allow)
		if r.PolicyResult != string(ocip.Allow) {
			a.Result, a.Code, a.Reason = string(frame.Deny), r.Code, frame.Reason(r.PolicyReason)
		}
	}
	if r.Details == nil {
		r.Details = make(map[string]any)
	}
	r.Details["lane"] = map[string]any{"host": a.Host, "name": a.Lane, "seq": a.Seq, "result": a.Result}
	c.Add(&a.LaneTaken)
	c.OnDurable(func(store.Receipt) { a.settled = true })
}

// keepReceipts is how long a receipt is kept after the message has expired. Afterwards a repetition
// is refused as expired in any case.
const keepReceipts = 24 * time.Hour

// enters puts a message into its queue, and one to another host into its lane. It returns that host, and
// refuses a message that does not fit into a frame.
func enters(k *ruleset, m *outgoing, d *outbox.Delivery, change *store.Change) (host string, err error) {
	if d == nil {
		return "", nil // its runtime delivers it
	}
	d.Enter(change)
	if host, _ = k.directory.HostOf(m.key); m.local != nil || host == "" {
		return "", nil
	}
	// The directory has agents of other hosts only if the roster has this host.
	to := k.member.Roster.Host(host)
	if !frame.IsIDOf(m.dispatchID, k.member.Self.Name) {
		return "", k.refuseEarly(m, &ocip.Verdict{
			Result: ocip.Deny, Code: ocip.SourceMismatch, Policy: "fleet",
			Reason: "the message was begun before this daemon was host " + k.member.Self.Name + " of the fleet, so that its id does not name that host; send it anew",
		})
	}
	if size := d.Size(); size > frame.MaxBody {
		return "", k.refuseEarly(m, &ocip.Verdict{
			Result: ocip.Deny, Code: frame.TooLarge, Policy: "fleet", Reason: fmt.Sprintf("the message has %d bytes with its metadata, and at most %d go to another host", size, frame.MaxBody),
		})
	}
	// No decision under earlier keys is under way any more: the messages that wait under them come first.
	if err := renew(context.Background(), k, to, func() bool { return true }); err != nil {
		return "", err
	}
	change.Add(&store.LaneSent{Lane: k.member.to(to), Host: host, Message: &d.Message, Most: k.member.MaxQueued})
	return host, nil
}

// laneFull refuses a message if the commit failed because too many wait for its host already.
func laneFull(k *ruleset, m *outgoing, err error) error {
	if !errors.Is(err, store.ErrLaneFull) {
		return err
	}
	host, _ := k.directory.HostOf(m.key)
	return k.refuseEarly(m, &ocip.Verdict{
		Result: ocip.Deny, Code: frame.QueueFull, Policy: "fleet",
		Reason: fmt.Sprintf("%d messages to host %s wait for its receipt already (fleet.max_queued)", k.member.MaxQueued, host),
	})
}

// noFleet is the error of a daemon that is in no fleet.
func noFleet() error {
	return api.Errorf(api.Conflict, "this daemon is in no fleet: fleet.roster names no roster that has this host")
}

// Carries opens the stream of frames for other hosts. Each stream is offered every message that has no
// receipt.
func (k *Hosts) Carries(context.Context, api.Peer, *fleetapi.FleetAttachParams) (feed func(context.Context, api.Stream) error, err error) {
	if f := k.rules().member; f == nil || f.Self == nil {
		return nil, noFleet()
	}
	return func(ctx context.Context, out api.Stream) error {
		k.attach(1)
		defer k.attach(-1)
		c := carrier{Hosts: k, out: out, offers: make(map[string]*offers), since: k.now()}
		for ctx.Err() == nil && k.closing.Err() == nil {
			if err := c.round(ctx); err != nil {
				return err
			}
		}
		return ctx.Err()
	}, nil
}

// attach counts the carriers.
func (k *Hosts) attach(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.carriers += n
}

// round offers what is due, and waits for more.
func (c *carrier) round(ctx context.Context) error {
	news := c.bell()
	came, leave := c.outbox.Arrival(outbox.AnyHost)
	defer leave()
	next, err := c.offer(ctx)
	if err != nil {
		return err
	}
	wait := offerEvery
	if !next.IsZero() {
		wait = min(wait, max(0, next.Sub(c.now())))
	}
	if next, err = c.beat(ctx); err != nil {
		return err
	}
	wait = min(wait, max(0, next.Sub(c.now())))
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-news:
	case <-came:
	case <-over.C:
	case <-ctx.Done():
	case <-c.closing.Done():
	}
	return nil
}

// offerEvery is how often a carrier is offered what nothing else has woken it for, such as a message
// that the sweep has removed.
const offerEvery = time.Minute

// carrier is one attached carrier. Offers are by lane.
type carrier struct {
	*Hosts
	out    api.Stream
	offers map[string]*offers
	// beatAt is when the next beat is due, and since when this carrier is attached.
	beatAt, since time.Time
}

// offers are those of one lane. Attached is when the other host's newest carrier was attached.
type offers struct {
	lane.Offers
	attached time.Time
}

// offer offers every message that is due, and returns when the next one is.
func (c *carrier) offer(ctx context.Context) (next time.Time, err error) {
	k := c.rules()
	if k.member == nil || k.member.Self == nil {
		return next, nil
	}
	hosts, err := store.LanesOf(c.store).Hosts(ctx)
	if err != nil {
		return next, err
	}
	for _, name := range hosts {
		to := k.member.Roster.Host(name)
		if to == nil {
			continue // the host has left: its messages are withdrawn, or expire
		}
		due, err := c.offerTo(ctx, k, to)
		if err != nil {
			return next, err
		}
		if next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	return next, nil
}

// offerTo is offer for one host.
func (c *carrier) offerTo(ctx context.Context, k *ruleset, to *roster.Host) (next time.Time, err error) {
	name := k.member.to(to)
	if err := renew(ctx, k, to, func() bool { return c.rules() == k }); err != nil {
		return next, err
	}
	rows, err := store.LanesOf(c.store).Messages(ctx, name, lane.Window)
	if err != nil {
		return next, err
	}
	made, attached := c.offers[name], c.attachedAt(to)
	if made == nil {
		made = &offers{attached: attached}
		c.offers[name] = made
	}
	if !made.attached.Equal(attached) { // what was offered before then may be lost
		made.Anew()
		made.attached = attached
	}
	open := make([]uint64, 0, len(rows))
	for _, row := range rows {
		open = append(open, row.Seq)
		if !made.Due(row.Seq, c.now()) {
			continue
		}
		f, keptBack, err := c.frameOf(ctx, k.member, row, to)
		if err != nil {
			return next, err
		}
		if keptBack {
			break // nothing overtakes it
		}
		if err := c.out.Send(ctx, *f); err != nil {
			return next, err
		}
		made.Made(row.Seq, c.now(), jitterOf(row.Message.DispatchID))
	}
	return made.Keep(open), nil
}

// jitterOf spreads the repetitions of messages, from 0 to 1.
func jitterOf(id string) float64 {
	n := byte(0)
	for i := range len(id) {
		n = n*31 + id[i]
	}
	return float64(n) / 255
}

// frameOf makes the frame of a message in a lane: the message itself as it may leave now, or the news
// that it was withdrawn.
func (c *carrier) frameOf(ctx context.Context, f *Fleet, row *store.LaneSent, to *roster.Host) (made *fleetapi.FleetFrame, keptBack bool, err error) {
	id := store.MessageID{Queue: outbox.HostQueue(to.Name), ID: row.Message.ID}
	d, keptBack, err := outbox.Waits(ctx, c.outbox, id)
	if err != nil || keptBack {
		return nil, keptBack, err
	}
	h := f.header(frame.Message, to, row.Seq, row.Message.DispatchID)
	h.Expires = row.Message.ExpiresAt
	if d == nil {
		h.Kind = frame.Void
		made, err = f.seal(h, nil, to)
		return made, false, err
	}
	_, err = d.Sealed().Carry(func(data []byte) ([]byte, error) {
		made, err = f.seal(h, data, to)
		return nil, err
	})
	return made, false, err
}

// renew moves the messages of earlier lanes to a host into the present one, after one of the two
// hosts has got new keys. The other host knows a message that it has taken by its id.
func renew(ctx context.Context, k *ruleset, to *roster.Host, inForce func() bool) error {
	name := k.member.to(to)
	defer k.lanes.Lock(lane.AllTo(to.Name))()
	if !inForce() {
		return nil // it would move messages back into an earlier lane
	}
	for {
		rows, err := store.LanesOf(k.store).Stale(ctx, to.Name, name, lane.Window)
		if err != nil || len(rows) == 0 {
			return err
		}
		change := &store.Change{Drains: true}
		for _, row := range rows {
			change.Records = append(change.Records, &audit.Record{
				ID: k.newID(), ActionType: audit.ActionDelivery, Event: "lane_renewed", DispatchID: row.Message.DispatchID,
				Details: map[string]any{"host": to.Name, "was": row.Lane, "lane": name, "decidedBy": row.Message.RecordSeq},
			})
			change.Add(store.LaneEnded{Lane: row.Lane, Seq: row.Seq}, &store.LaneSent{Lane: name, Host: to.Name, Message: row.Message, Most: store.AnyNumber})
		}
		if _, err := k.commit(change); err != nil {
			return err
		}
	}
}

// Status returns this host's view of the fleet.
func (k *Hosts) Status(ctx context.Context, _ *api.Empty) (fleetapi.FleetStatus, error) {
	f := k.rules().member
	if f == nil {
		return fleetapi.FleetStatus{}, noFleet()
	}
	s := fleetapi.FleetStatus{Tenant: f.Roster.Tenant, Host: f.Name, Version: f.Roster.Version, Digest: f.Roster.Digest(), Member: f.Self != nil, Hosts: []fleetapi.FleetHost{}}
	for i := range f.Roster.Hosts {
		h := &f.Roster.Hosts[i]
		one := fleetapi.FleetHost{Host: h.Name, Epoch: h.Epoch, Agents: []string{}, Mailbox: h.Mailbox()}
		for j := range f.Roster.Agents {
			if a := &f.Roster.Agents[j]; a.Host == h.Name {
				one.Agents = append(one.Agents, a.ID)
			}
		}
		var err error
		if one.Waiting, err = store.LanesOf(k.store).Waiting(ctx, h.Name); err != nil {
			return s, err
		}
		if h.Name == f.Name {
			own, err := f.vitals(ctx)
			if err != nil {
				return s, err
			}
			one.Beat = own
		}
		s.Hosts = append(s.Hosts, one)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Lines = k.carriers
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.Heard, h.Refused = k.heard[h.Host], k.refused[h.Host]
		if h.Host == f.Name {
			continue
		}
		known := k.beats[beatsOf(h.Host, h.Epoch)]
		h.Silent = s.Member && known.Silent(k.since, k.now())
		if known != nil {
			h.Beat, h.BeatAt, h.Shrunk = known.Beat, known.Heard, known.Shrunk
		}
	}
	return s, nil
}

// receiptEvent puts the news of a receipt into the queue of the app that sent the message. There is
// none if nobody waits for it: an operator, or an agent without an app.
func receiptEvent(k *ruleset, change *store.Change, sent *audit.Entry, receipt *fleetapi.MessageReceipt) error {
	record := change.Records[0]
	app := sent.AppID
	if app == "" || app == api.OperatorApp || directory.IsAgents(app) || audit.Redacted(app) {
		return nil
	}
	from := ""
	if local := k.directory.Local(sent.AgentID); local != nil {
		from = local.ID
	}
	told := &outbox.Delivery{
		Generation: k.generation(sent.TenantID), Volatile: true,
		Message: store.Message{
			MessageID: store.MessageID{Queue: outbox.AppQueue(app)}, DispatchID: record.DispatchID, ExpiresAt: time.UnixMilli(receipt.Timestamp).Add(outcomeKept),
		},
		Event: outbox.Event{Name: fleetapi.ReceiptEvent, From: from, By: sent.AgentID, Tenant: sent.TenantID, About: api.HookContext{AgentID: from, ChannelID: directory.AgentChannel}},
	}
	return tellApp(k, change, told, receipt)
}

// isFinal reports whether the same message would be refused again, rather than that this daemon
// cannot decide now.
func isFinal(err error) bool {
	failure, ok := errors.AsType[*api.Error](err)
	return ok && !slices.Contains([]api.Code{api.InternalError, api.UnknownError, api.ConnectionClosed, api.Timeout}, failure.Code)
}

// codeOf returns the code of a refusal, for a receipt.
func codeOf(err error) string {
	failure := api.AsError(err)
	return cmp.Or(api.DetailsOf[struct {
		Code string `json:"code"`
	}](err).Code, string(failure.Code))
}
