package natsline

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/openclawos/ocipd/internal/fleet/lane"
	"github.com/openclawos/ocipd/internal/fleet/roster"
)

// lineOf is the line of a host that knows one other host. Nobody empties the queue of that host.
func lineOf(t *testing.T, own, other *guest) (*line, *sender) {
	t.Helper()
	l := &line{
		Options: &Options{Say: t.Logf}, nc: own.nc, own: own.own, session: "S", secret: "P", lost: make(chan error, 1), hosts: map[string]string{"host-a": other.own}, senders: map[string]*sender{}, sent: map[string]*request{}, said: map[string]bool{},
	}
	l.room = sync.NewCond(&l.mu)
	s := &sender{line: l, ctx: t.Context(), queue: make(chan *arrival, queued), early: map[uint64]*arrival{}}
	l.senders[other.own] = s
	return l, s
}

// mailbox is a guest without a broker.
func mailbox(n byte) *guest {
	return &guest{own: (&roster.Host{Line: key(n).Public().(ed25519.PublicKey)}).Mailbox()}
}

// A frame with the header of a status ends no pull: a host could keep all stored frames from another.
func TestStatusOfAHost(t *testing.T) {
	_, url, _, _ := broker(t)
	a, b := visit(t, url, 1), visit(t, url, 2)
	evil := nats.NewMsg(stored(b.own, a.own, "1"))
	evil.Header.Set(statusHeader, statusNobody)
	if err := a.nc.PublishMsg(evil); err != nil {
		t.Fatal(err)
	}
	if err := a.keeps(b.own, "2", "frame"); err != nil {
		t.Fatal(err)
	}
	l, s := lineOf(t, b, a)
	status, err := l.pull(t.Context(), "1", []byte(`{"batch":64,"no_wait":true}`), nil)
	if err != nil || status != "404" || len(s.queue) != 2 {
		t.Errorf("the pull ends with %q, %v, and has brought %d frames", status, err, len(s.queue))
	}
}

// The stream has the slots of a pair of hosts and no others, so that a host fills its own alone.
func TestNoFurtherSlots(t *testing.T) {
	_, url, _, _ := broker(t)
	a, b := visit(t, url, 1), visit(t, url, 2)
	for _, slot := range slots() {
		if err := a.keeps(b.own, slot, "frame"); err != nil {
			t.Fatalf("slot %s: %v", slot, err)
		}
	}
	for _, slot := range []string{"64", "r64", "B", "00", "x"} {
		if err := a.keeps(b.own, slot, "frame"); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("slot %s is there: %v", slot, err)
		}
	}
}

// A host that stores again and again keeps no other from its daemon's frames.
func TestDrainEnds(t *testing.T) {
	_, url, _, _ := broker(t)
	a, b := visit(t, url, 1), visit(t, url, 2)
	l, s := lineOf(t, b, a)
	again := func(slot string) {
		for {
			refused, ok := errors.AsType[*refusal](a.keeps(b.own, slot, slot))
			if !ok || refused.ErrCode != errSlotTaken {
				return
			}
		}
	}
	for n := range uint64(lane.Window) {
		again(fmt.Sprint(n))
		again(fmt.Sprint("r", n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		for {
			select {
			case f := <-s.queue:
				s.leaves(f)
				f.done(nil)
				again(string(f.frame))
				f.tried()
			case <-ctx.Done():
				return
			}
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- l.drain(ctx) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it goes on for as long as the host does")
	}
	cancel()
	over.Wait()
}

// What a broker, or another host, makes up takes a bounded room.
func TestBounds(t *testing.T) {
	t.Parallel()
	l, s := lineOf(t, mailbox(2), mailbox(1))
	said := 0
	l.Say = func(string, ...any) { said++ }
	for n := range 10 * maxSaid {
		l.published(&nats.Msg{Data: fmt.Appendf(nil, `{"error":{"code":1,"err_code":%d,"description":"\u001b[2J"}}`, n)})
	}
	if len(l.said) > maxSaid || said > maxSaid+1 {
		t.Errorf("it says %d texts and remembers %d", said, len(l.said))
	}
	for range queued {
		s.put(&arrival{frame: make([]byte, maxPayload)})
	}
	if n := len(s.queue) * maxPayload; n > maxQueued || n == 0 {
		t.Errorf("%d bytes wait for the daemon", n)
	}
	for n := range 1000 {
		l.hosts[fmt.Sprint(n)] = fmt.Sprint(n)
	}
	for seq := range uint64(lane.Window) {
		s.hold(seq, &arrival{frame: make([]byte, maxPayload)})
	}
	if len(s.early) != 1 {
		t.Errorf("of one host among 1000 %d large frames wait for ones before them", len(s.early))
	}
}

// A host gets answers under its own name alone: with another reply subject it would write in the name
// of the host that answers.
func TestReplySubjects(t *testing.T) {
	t.Parallel()
	a, b, c := mailbox(1), mailbox(2), mailbox(3)
	l, s := lineOf(t, b, a)
	for _, reply := range []string{"", stored(c.own, b.own, "1"), direct(c.own, b.own), "$JS.ACK.MSG." + b.own + ".1.1.1.1.0", answers(c.own) + ".d.S.1", answers(a.own)} {
		l.requested(t.Context(), &nats.Msg{Subject: direct(b.own, a.own), Reply: reply, Data: []byte("frame")})
		if len(s.queue) != 0 {
			t.Fatalf("a request with the reply subject %q is taken", reply)
		}
	}
	if l.requested(t.Context(), &nats.Msg{Subject: direct(b.own, a.own), Reply: answers(a.own) + ".d.S.1", Data: []byte("frame")}); len(s.queue) != 1 {
		t.Error("a request is not taken")
	}
}

// Nobody guesses the reply subject of a request to another host.
func TestRequestsAreUnguessable(t *testing.T) {
	_, url, _, _ := broker(t)
	a, b := visit(t, url, 1), visit(t, url, 2)
	l, _ := lineOf(t, b, a)
	seen := make(chan *nats.Msg, 2)
	if _, err := a.nc.ChanSubscribe(direct(a.own, "*"), seen); err != nil {
		t.Fatal(err)
	}
	a.flush()
	for range 2 {
		if err := l.send(t.Context(), &request{to: a.own, slot: "1", frame: []byte("frame")}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := lastToken((<-seen).Reply), lastToken((<-seen).Reply)
	if first == second || len(first) < 26 || len(second) < 26 {
		t.Errorf("the requests are %s and %s", first, second)
	}
	l.take(first)
	l.take(second)
}

// The key of a line is public. A host with the key of another tenant's host is refused by name.
func TestKeyOfAnotherTenant(t *testing.T) {
	t.Parallel()
	tenants := []Tenant{{Roster: members(t, "acme-corp", 1, "host-a"), Admin: key(adminKey)}, {Roster: members(t, "globex-inc", 1, "thief"), Admin: key(adminKey + 1)}}
	_, err := (&Broker{Listen: "127.0.0.1:1", Store: "/s"}).Configuration(tenants)
	if err == nil || !strings.Contains(err.Error(), "host host-a of acme-corp and host thief of globex-inc log in with the same key") {
		t.Errorf("the configuration is refused with %v", err)
	}
}
