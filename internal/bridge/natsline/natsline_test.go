package natsline

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/test/brokertest"
	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) { buildtest.Isolated(m).Run() }

// patience bounds a wait that only a fault makes long.
const patience = time.Minute

// key is a key of a line, by its first byte.
func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append([]byte{n}, make([]byte, ed25519.SeedSize-1)...))
}

// members is a roster of hosts with the keys 1, 2 and so on.
func members(t *testing.T, tenant string, first byte, names ...string) *roster.Roster {
	t.Helper()
	var hosts []roster.Host
	for i, name := range names {
		n := first + byte(i)
		hosts = append(hosts, roster.Host{Name: name, Epoch: 1, Sign: key(n + 100).Public().(ed25519.PublicKey), Seal: append([]byte{n, 9}, make([]byte, 30)...), Line: key(n).Public().(ed25519.PublicKey)})
	}
	lines, err := roster.Write(tenant, 1, hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := roster.Sign(lines, "SIGNATURE")
	if err != nil {
		t.Fatal(err)
	}
	r, err := roster.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// adminKey is the key of an administrator.
const adminKey = 200

// broker runs a server for two tenants, with the streams of both.
func broker(t *testing.T) (b *brokertest.Broker, url, dir string, tenants []Tenant) {
	t.Helper()
	dir = t.TempDir()
	settings := Broker{Listen: brokertest.Address(t), Store: filepath.Join(dir, "store")}
	tenants = []Tenant{
		{Roster: members(t, "acme-corp", 1, "host-a", "host-b", "host-c"), Admin: key(adminKey)},
		{Roster: members(t, "globex-inc", 11, "host-a"), Admin: key(adminKey + 1)},
	}
	text, err := settings.Configuration(tenants)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, url = brokertest.Start(t, file), "nats://"+settings.Listen
	for i := range tenants {
		provide(t, url, &tenants[i], len(tenants[i].Roster.Hosts))
	}
	return b, url, dir, tenants
}

// provide makes the stream and the consumers of a tenant.
func provide(t *testing.T, url string, tenant *Tenant, want int) {
	t.Helper()
	nc, _, err := connect(url, "", "admin", tenant.Admin, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	a := &admin{nc: nc}
	if made, removed, err := a.provide(t.Context(), tenant.Roster); err != nil || made != want || removed != 0 {
		t.Fatalf("made %d consumers, removed %d, %v; want %d made", made, removed, err, want)
	}
	if made, removed, err := a.provide(t.Context(), tenant.Roster); err != nil || made+removed != 0 {
		t.Fatalf("a second time made %d consumers, removed %d, %v", made, removed, err)
	}
}

// guest is a connection of a host, or of somebody who has its key.
type guest struct {
	t       *testing.T
	nc      *nats.Conn
	own     string
	refused chan error
}

func visit(t *testing.T, url string, n byte) *guest {
	t.Helper()
	g := &guest{t: t, own: (&roster.Host{Line: key(n).Public().(ed25519.PublicKey)}).Mailbox(), refused: make(chan error, 100)}
	var err error
	if g.nc, _, err = connect(url, "", "guest", key(n), func(err error) { g.refused <- err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.nc.Close)
	return g
}

// flush waits until the broker has dealt with everything, and returns the refusals so far.
func (g *guest) flush() (refused []string) {
	g.t.Helper()
	if err := g.nc.FlushTimeout(patience); err != nil {
		g.t.Fatal(err)
	}
	for len(g.refused) > 0 {
		refused = append(refused, (<-g.refused).Error())
	}
	return refused
}

// ask makes a request under the guest's own answers.
func (g *guest) ask(subject string, data []byte) (*nats.Msg, error) {
	g.t.Helper()
	inbox := answers(g.own) + ".test." + nats.NewInbox()[len(nats.InboxPrefix):]
	sub, err := g.nc.SubscribeSync(inbox)
	if err != nil {
		g.t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := g.nc.PublishRequest(subject, inbox, data); err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	answer := make(chan error, 1)
	var m *nats.Msg
	go func() {
		var err error
		m, err = sub.NextMsgWithContext(ctx)
		answer <- err
	}()
	select {
	case err := <-answer:
		return m, err
	case err := <-g.refused:
		cancel()
		<-answer
		return nil, err
	}
}

// keeps puts a frame into a slot and returns the broker's refusal, nil for none.
func (g *guest) keeps(to, slot, text string) error {
	g.t.Helper()
	m, err := g.ask(stored(to, g.own, slot), []byte(text))
	if err != nil {
		return err
	}
	var answer struct {
		Error *refusal `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		g.t.Fatal(err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// A host may use its own mailbox alone. Each right is tried on another's.
func TestRightsOfAHost(t *testing.T) {
	_, url, _, _ := broker(t)
	a, b := visit(t, url, 1), visit(t, url, 2)
	other := visit(t, url, 3).own

	// What it may do.
	served, err := b.nc.Subscribe(direct(b.own, "*"), func(m *nats.Msg) { _ = m.Respond([]byte("receipt")) })
	if err != nil {
		t.Fatal(err)
	}
	if refused := b.flush(); len(refused) > 0 {
		t.Fatal(refused)
	}
	if m, err := a.ask(direct(b.own, a.own), []byte("frame")); err != nil || string(m.Data) != "receipt" {
		t.Fatalf("a direct frame gets %v, %v", m, err)
	}
	if err := served.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	b.flush()
	if _, err := a.ask(direct(b.own, a.own), []byte("frame")); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a direct frame to nobody gets %v", err)
	}
	if err := a.keeps(b.own, "1", "frame"); err != nil {
		t.Fatalf("a frame is not stored: %v", err)
	}
	taken, ok := errors.AsType[*refusal](a.keeps(b.own, "1", "frame again"))
	if !ok || taken.ErrCode != errSlotTaken {
		t.Errorf("a second frame in a slot is %v", taken)
	}
	m, err := b.ask(nextOf(b.own), []byte(`{"batch":1}`))
	if err != nil || string(m.Data) != "frame" || m.Subject != stored(b.own, a.own, "1") {
		t.Fatalf("the stored frame is %v, %v", m, err)
	}
	if _, err := b.ask(m.Reply, []byte("+ACK")); err != nil {
		t.Fatalf("the acknowledgement is refused: %v", err)
	}
	if err := a.keeps(b.own, "1", "frame"); err != nil {
		t.Errorf("after the acknowledgement the slot is not free: %v", err)
	}

	// What it may not do.
	ack := strings.Replace(m.Reply, b.own, other, 1)
	for what, subject := range map[string]string{
		"a frame under another's name": direct(b.own, other), "a stored frame under another's name": stored(b.own, other, "2"),
		"another's mailbox": nextOf(b.own), "another's acknowledgement": ack,
		"an answer out of turn": answers(b.own) + ".d.1", "a purge": "$JS.API.STREAM.PURGE." + stream, "a deletion": "$JS.API.STREAM.MSG.DELETE." + stream,
		"the stream's removal": "$JS.API.STREAM.DELETE." + stream, "a look at a message": "$JS.API.STREAM.MSG.GET." + stream,
		"a direct look": "$JS.API.DIRECT.GET." + stream, "a consumer": createConsumer + "mine",
		"a named consumer":           "$JS.API.CONSUMER.CREATE." + stream + "." + a.own + "." + stored(b.own, "*", "*"),
		"another consumer's removal": deleteConsumer + b.own, "a stream": createStream, "a changed stream": updateStream,
		"names": consumerNames, "the state of a consumer": "$JS.API.CONSUMER.INFO." + stream + "." + a.own, "the account": "$JS.API.INFO",
		"a pause": "$JS.API.CONSUMER.PAUSE." + stream + "." + b.own, "the system": "$SYS.REQ.SERVER.PING",
	} {
		if _, err := a.ask(subject, []byte(`{}`)); err == nil || !strings.Contains(strings.ToLower(err.Error()), "permissions violation for publish") {
			t.Errorf("%s (%s) is %v", what, subject, err)
		}
	}
	for _, subject := range []string{direct(b.own, "*"), direct(a.own, "*") + ".>", "d.>", "m.>", ">", answers(b.own) + ".>", "_I.>", "_INBOX.>", "$JS.>", "$SYS.>"} {
		if _, err := a.nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-a.refused:
			if !strings.Contains(strings.ToLower(err.Error()), "permissions violation for subscription") {
				t.Errorf("a subscription to %s is %v", subject, err)
			}
		case <-time.After(patience):
			t.Errorf("a subscription to %s is not refused", subject)
		}
	}
	// Another tenant's host finds nobody there.
	if _, err := visit(t, url, 11).ask(direct(b.own, visit(t, url, 11).own), []byte("frame")); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("another tenant's frame gets %v", err)
	}
	if _, _, err := connect(url, "", "nobody", key(99), func(error) {}); err == nil || !strings.Contains(err.Error(), "does not know the key of this host") {
		t.Errorf("a key of nobody gets %v", err)
	}
}

// A broker that was killed has the frames and no consumers; one without its store has neither. The keeper
// makes again what is missing, and removes the consumer of a host that has left.
func TestKeeper(t *testing.T) {
	b, url, dir, tenants := broker(t)
	said := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var newest atomic.Pointer[roster.Roster]
	newest.Store(tenants[0].Roster)
	ended := make(chan error, 1)
	go func() {
		ended <- Keep(ctx, &Keeper{URL: url, Key: tenants[0].Admin, Every: time.Hour, Roster: func() (*roster.Roster, error) { return newest.Load(), nil }, Say: func(f string, a ...any) { said <- fmt.Sprintf(f, a...) }})
	}()
	wait := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-said:
				if strings.Contains(got, want) {
					return
				}
			case <-time.After(patience):
				t.Fatalf("it does not say %q", want)
			}
		}
	}
	wait("made the consumers of 0 hosts, removed 0")
	a := visit(t, url, 1)
	if err := a.keeps(visit(t, url, 2).own, "1", "frame"); err != nil {
		t.Fatal(err)
	}
	b.Kill()
	b.Again()
	wait("made the consumers of 3 hosts, removed 0")
	host := visit(t, url, 2)
	if m, err := host.ask(nextOf(host.own), []byte(`{"batch":1}`)); err != nil || string(m.Data) != "frame" {
		t.Errorf("after a kill the frame is %v, %v", m, err)
	}
	b.Kill()
	if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
		t.Fatal(err)
	}
	newest.Store(members(t, "acme-corp", 1, "host-a", "host-b"))
	b.Again()
	wait("made the consumers of 2 hosts, removed 0")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	nc, _, err := connect(url, "", "admin", tenants[0].Admin, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if made, removed, err := (&admin{nc: nc}).provide(t.Context(), members(t, "acme-corp", 1, "host-a")); err != nil || made != 0 || removed != 1 {
		t.Errorf("after a host has left: made %d, removed %d, %v", made, removed, err)
	}
}

// A broker older than 2.12 is refused by its version.
func TestOldBroker(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{"2.9.10": false, "2.11.99": false, "1.4.1": false, "": false, "dev": false, "2.12.0": true, "2.15.2": true, "v2.14.0-RC.1": true, "3.0.0": true} {
		if err := newEnough(version); (err == nil) != ok {
			t.Errorf("version %q: %v", version, err)
		}
	}
	url := "nats://" + brokertest.Pretend(t, "2.9.10")
	err := Keep(t.Context(), &Keeper{URL: url, Key: key(1), Every: time.Hour, Say: t.Logf})
	if err == nil || !strings.Contains(err.Error(), `version "2.9.10": want nats-server 2.12 or newer`) {
		t.Errorf("the keeper says %v", err)
	}
}

// A message, and the news that it is void, share a slot; a receipt has another.
func TestSlots(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]frame.Header{"1": {Kind: frame.Message, Seq: 65}, "r1": {Kind: frame.Receipt, Seq: 1}, "0": {Kind: frame.Void, Seq: 128}, "b": {Kind: frame.Beat, Seq: 129}} {
		if got := slot(f.Kind, f.Seq); got != want {
			t.Errorf("slot of %s %d is %s, want %s", f.Kind, f.Seq, got, want)
		}
	}
}

// Without a daemon the line says so, and tries again.
func TestLineWithoutDaemon(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var said []string
	err := Run(ctx, Options{
		Dial: func(context.Context) (*client.Client, error) { return nil, client.ErrNotRunning }, Key: key(1),
		Say: func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)); cancel() },
	})
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "is it running?") {
		t.Errorf("it says %q, %v", said, err)
	}
}
