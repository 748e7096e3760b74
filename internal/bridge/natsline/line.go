package natsline

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/carrier"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"golang.org/x/sync/errgroup"
)

// Options are the inputs of a line.
type Options struct {
	// Dial makes a new connection to the operator socket of the daemon.
	Dial func(context.Context) (*client.Client, error)
	// Broker is the URL of the broker, such as nats://host:4222 or tls://host:4222, and CA a file of the
	// authorities that vouch for it, "" for those of the system.
	Broker, CA string
	// Key logs in to the broker.
	Key ed25519.PrivateKey
	// Say tells a person of a change.
	Say func(format string, args ...any)
}

// Run carries frames until the context ends, even if the daemon or the broker restarts. The error is
// that of a broker that is too old.
func Run(ctx context.Context, o Options) error {
	return carrier.Repeat(ctx, "nothing is carried", errOld, o.Say, func() (bool, error) { return carry(ctx, &o) })
}

// line is one connection to the daemon and one to the broker.
type line struct {
	*Options
	// daemon takes the calls. The frames come on a connection of their own, on which nothing waits for
	// an answer.
	daemon *client.Client
	frames *client.Stream
	nc     *nats.Conn
	ended  <-chan struct{}
	own    string
	// session is in the reply subjects of requests, and secret in those that no other host gets to know.
	session, secret string
	// lost takes the first error that ends the connection.
	lost chan error

	mu sync.Mutex
	// hosts are the mailboxes of the other hosts by name, and senders the queues by mailbox.
	hosts   map[string]string
	senders map[string]*sender
	// sent are the requests without an answer, by names that nobody else can guess, and bytes is the size of their frames.
	sent  map[string]*request
	room  *sync.Cond
	bytes int
	said  map[string]bool
}

// maxSent bounds the frames that wait for an answer, maxHeld those that wait for frames before them, and
// maxQueued those that wait for the daemon, in bytes. Of the last two each host has an equal share.
const (
	maxSent   = 16 << 20
	maxHeld   = 16 << 20
	maxQueued = 16 << 20
)

// maxPending bounds, in bytes, what the client of a subscription keeps of a broker that sends too much.
const maxPending = 16 << 20

var errLost = errors.New("the connection to the broker was lost")

// carry carries frames until one connection ends. Carried is set once all are open.
func carry(ctx context.Context, o *Options) (carried bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &line{
		Options: o, own: (&roster.Host{Line: o.Key.Public().(ed25519.PublicKey)}).Mailbox(), session: rand.Text(), secret: rand.Text(), lost: make(chan error, 1), hosts: map[string]string{}, senders: map[string]*sender{}, sent: map[string]*request{}, said: map[string]bool{},
	}
	l.room = sync.NewCond(&l.mu)
	if l.daemon, err = o.Dial(ctx); err != nil {
		return false, err
	}
	defer l.daemon.Close()
	if err := l.learn(ctx); err != nil {
		return false, err
	}
	attached, err := o.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer attached.Close()
	nc, ended, err := connect(o.Broker, o.CA, "ocipd fleet run", o.Key, func(err error) { l.say("the broker: %s", err) })
	if err != nil {
		return false, err
	}
	l.nc, l.ended = nc, ended
	defer nc.Close()
	group, ctx := errgroup.WithContext(ctx)
	// Whoever waits for room wakes up.
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	})()
	if err := l.listen(ctx); err != nil {
		return false, err
	}
	if l.frames, err = attached.Stream(ctx, "fleet.attach", &fleetapi.FleetAttachParams{}); err != nil {
		return false, err
	}
	o.Say("carries over the broker at %s, of version %.64s", o.Broker, nc.ConnectedServerVersion())
	group.Go(func() error { return l.pump(ctx) })
	group.Go(func() error { return l.pulls(ctx) })
	group.Go(func() error { return l.keepLearning(ctx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-l.lost:
			return err
		case <-ended:
			return errLost
		}
	})
	return true, group.Wait()
}

// listen subscribes at the broker, and takes what is stored for this host.
func (l *line) listen(ctx context.Context) error {
	for subject, handle := range map[string]nats.MsgHandler{
		direct(l.own, "*"):                          func(m *nats.Msg) { l.requested(ctx, m) },
		answers(l.own) + ".d." + l.session + ".*.*": func(m *nats.Msg) { l.answered(ctx, m) },
		answers(l.own) + ".p." + l.secret + ".*":    l.published,
	} {
		sub, err := l.nc.Subscribe(subject, handle)
		if err == nil {
			err = sub.SetPendingLimits(-1, maxPending)
		}
		if err != nil {
			return fmt.Errorf("cannot subscribe at the broker: %w", err)
		}
	}
	// Only what was subscribed to before the daemon's first frame gets an answer.
	if err := l.nc.FlushTimeout(connectWait); err != nil {
		return fmt.Errorf("cannot subscribe at the broker: %w", err)
	}
	return l.drain(ctx)
}

// say tells a person something once for each connection.
func (l *line) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	n := len(l.said)
	say := n < maxSaid && !l.said[text]
	if say {
		l.said[text] = true
	}
	l.mu.Unlock()
	if !say {
		return
	}
	l.Say("%.*s", maxText, text)
	if n == maxSaid-1 {
		l.Say("nothing more is said about this connection to the broker")
	}
}

// maxSaid and maxText bound what is said in one connection: a broker, or another host, makes texts up.
const (
	maxSaid = 100
	maxText = 1000
)

// end ends the connection with an error.
func (l *line) end(err error) {
	select {
	case l.lost <- err:
	default:
	}
}

// learnEvery is how often the daemon is asked for the hosts of the roster.
const learnEvery = 10 * time.Second

func (l *line) keepLearning(ctx context.Context) error {
	every := time.NewTicker(learnEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
			if err := l.learn(ctx); err != nil {
				return err
			}
		}
	}
}

// learn asks the daemon for the mailboxes of the hosts.
func (l *line) learn(ctx context.Context) error {
	var status fleetapi.FleetStatus
	if err := l.daemon.Call(ctx, "fleet.status", &api.Empty{}, &status); err != nil {
		return err
	}
	hosts := map[string]string{}
	for i := range status.Hosts {
		h := &status.Hosts[i]
		switch {
		case h.Host != status.Host && h.Mailbox != "":
			hosts[h.Host] = h.Mailbox
		case h.Host == status.Host && h.Mailbox != l.own:
			return fmt.Errorf("the roster has another key, or none, for the line of host %s: `ocipd fleet join` prints the line with this one", h.Host)
		}
	}
	if !status.Member {
		return fmt.Errorf("the roster does not have this host, %s", status.Host)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = hosts
	return nil
}

// mailbox returns the mailbox of a host, "" for none.
func (l *line) mailbox(ctx context.Context, host string) (string, error) {
	l.mu.Lock()
	box := l.hosts[host]
	l.mu.Unlock()
	if box != "" {
		return box, nil
	}
	if err := l.learn(ctx); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hosts[host], nil
}

// pump sends the frames that the daemon offers.
func (l *line) pump(ctx context.Context) error {
	for {
		raw, err := l.frames.Next(ctx)
		if err != nil {
			return err
		}
		var f fleetapi.FleetFrame
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("cannot read a frame of the daemon: %w", err)
		}
		if err := l.offer(ctx, &f); err != nil {
			return err
		}
	}
}

// offer sends a frame of the daemon to the host that it is for.
func (l *line) offer(ctx context.Context, f *fleetapi.FleetFrame) error {
	to, err := l.mailbox(ctx, f.To)
	if err != nil {
		return err
	}
	if to == "" {
		l.say("host %s has no key of its line in the roster, so that this broker cannot reach it", f.To)
		return nil
	}
	bytes, err := base64.StdEncoding.DecodeString(f.Frame)
	if err != nil {
		return fmt.Errorf("cannot read a frame of the daemon: %w", err)
	}
	return l.send(ctx, &request{to: to, slot: slot(frame.Kind(f.Kind), f.Seq), frame: bytes})
}

// request is a frame that was sent directly and has no answer yet.
type request struct {
	to, slot string
	frame    []byte
	silence  *time.Timer
}

// silent is how long a host may take to answer before its frame goes into the stream as well.
const silent = 2 * time.Second

// send sends a frame directly. It waits while too much has no answer.
func (l *line) send(ctx context.Context, r *request) error {
	l.mu.Lock()
	for l.bytes > maxSent && ctx.Err() == nil {
		l.room.Wait()
	}
	// A host that has had a request knows the session. It could answer in another's place with a number.
	id := rand.Text()
	l.sent[id] = r
	l.bytes += len(r.frame)
	r.silence = time.AfterFunc(silent, func() { l.store(l.take(id)) })
	l.mu.Unlock()
	return l.nc.PublishRequest(direct(r.to, l.own), answers(l.own)+".d."+l.session+"."+r.to+"."+id, r.frame)
}

// take takes a request out of those without an answer, nil if it is not there any more.
func (l *line) take(id string) *request {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.sent[id]
	if r != nil {
		r.silence.Stop()
		delete(l.sent, id)
		l.bytes -= len(r.frame)
		l.room.Broadcast()
	}
	return r
}

// answered takes the answer to a request: a receipt, nothing, or the broker's word that the host is not
// there. A receipt goes to the daemon even if nothing waits for it any more.
func (l *line) answered(ctx context.Context, m *nats.Msg) {
	r := l.take(lastToken(m.Subject))
	from := lastToken(strings.TrimSuffix(m.Subject, "."+lastToken(m.Subject)))
	switch {
	case m.Header.Get(statusHeader) == statusNobody:
		l.store(r)
	case len(m.Data) > 0 && l.knows(from):
		l.queue(ctx, "receipts of "+from).put(&arrival{frame: m.Data, done: func(*fleetapi.FleetFrame) {}})
	}
}

// store puts a frame into its slot of the stream. It does nothing for nil.
func (l *line) store(r *request) {
	if r == nil {
		return
	}
	if err := l.nc.PublishRequest(stored(r.to, l.own, r.slot), answers(l.own)+".p."+l.secret+"."+r.slot, r.frame); err != nil {
		l.end(fmt.Errorf("cannot store at the broker: %w", err))
	}
}

// errSlotTaken is the broker's refusal of a second frame in a slot.
const errSlotTaken = 10077

// published takes the broker's word about a frame for the stream. It changes nothing: the daemon keeps
// the message until its receipt. A frame still in the slot is the usual case of a repetition.
func (l *line) published(m *nats.Msg) {
	if m.Header.Get(statusHeader) == statusNobody {
		l.say("the broker stores nothing, because it has no stream: ocipd fleet broker makes it")
		return
	}
	var answer struct {
		Error *refusal `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error == nil || answer.Error.ErrCode == errSlotTaken {
		return
	}
	l.say("%s", answer.Error)
}

// requested takes a frame that another host has sent directly.
func (l *line) requested(ctx context.Context, m *nats.Msg) {
	from := lastToken(m.Subject)
	// A host may have its own answers alone: with another reply subject it would write there by this host.
	if !strings.HasPrefix(m.Reply, answers(from)+".") || !l.knows(from) {
		return
	}
	l.queue(ctx, from).put(&arrival{frame: m.Data, done: func(receipt *fleetapi.FleetFrame) {
		var answer []byte
		if receipt != nil {
			answer, _ = base64.StdEncoding.DecodeString(receipt.Frame)
		}
		if err := l.nc.Publish(m.Reply, answer); err != nil {
			l.end(fmt.Errorf("cannot answer over the broker: %w", err))
		}
	}})
}

// knows reports whether a mailbox is that of another host.
func (l *line) knows(mailbox string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, known := range l.hosts {
		if known == mailbox {
			return true
		}
	}
	return false
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
