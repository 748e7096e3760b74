package outbox

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// app is a receiver and its connection, which takes what it is sent at once where
// takes is set.
type app struct {
	mu      sync.Mutex
	crowded bool
	takes   bool
	got     []string
	roomy   chan struct{}
}

func (a *app) Link() api.Link { return a }

func (a *app) Send(event string, payload []byte, taken func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, event+" "+string(payload))
	if a.takes && taken != nil {
		taken()
	}
	return true
}

func (*app) Flush() {}

func (a *app) Room(ctx context.Context) error {
	select {
	case <-a.roomy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *app) Crowded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.crowded
}

func (*app) Close(time.Duration) {}

func (a *app) roomAgain() {
	a.mu.Lock()
	a.crowded = false
	a.mu.Unlock()
	close(a.roomy)
}

func (a *app) has() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

// world is a host with one queue's receiver.
type world struct {
	t     *testing.T
	store *store.Store
	dir   *directory.Directory
	out   *Outbox
	stop  context.CancelFunc

	mu     sync.Mutex
	to     *app
	paused string
	events []string
	clock  time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: time.Unix(1_700_000_000, 0).UTC()}
	var err error
	if w.dir, err = directory.New(&directory.Config{}); err != nil {
		t.Fatal(err)
	}
	if w.store, err = store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: w.now, Log: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	t.Cleanup(func() {
		w.stop()
		w.out.Wait()
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// restart begins anew over the same store, knowing nothing of before.
func (w *world) restart() {
	if w.out != nil {
		w.stop()
		w.out.Wait()
	}
	ids := 0
	var closing context.Context
	closing, w.stop = context.WithCancel(w.t.Context())
	w.out = New(closing, &Options{
		Host: w, Store: w.store, Now: w.now, Log: zap.NewNop(),
		Digest: func(tenant, text string) (string, error) { return "digest of " + text, nil },
		NewID:  func() string { ids++; return fmt.Sprint("id", ids) },
	})
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) Receiver(string) Receiver {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == nil {
		return nil
	}
	return w.to
}

func (w *world) Directory() *directory.Directory { return w.dir }

func (w *world) PausedBy(channel, from, to string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused != "" && w.paused == from {
		return "agent:" + from
	}
	return ""
}

func (w *world) HookEvent(_ []byte, _ Receiver, d *Delivery, _ api.HookContext) (name string, payload []byte) {
	return "hook:" + string(d.Hook), []byte(d.DispatchID)
}

func (w *world) Handed(_ Receiver, d *Delivery, _ api.HookContext) {}

func (w *world) Commit(c *store.Change) (store.Receipt, error) {
	w.mu.Lock()
	for _, r := range c.Records {
		w.events = append(w.events, r.Event+" "+r.DispatchID)
	}
	w.mu.Unlock()
	return w.store.Commit(c)
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// send decides a message of an agent through the channel irc and offers it.
func (w *world) send(from, id string) {
	w.t.Helper()
	data := api.Message{ChannelID: "irc", Target: "bob", Content: "hello", DispatchID: id}.Append(nil)
	d := &Delivery{
		Message: store.Message{MessageID: store.MessageID{Queue: ChannelQueue("irc")}, DispatchID: id, ExpiresAt: w.now().Add(time.Hour)},
		Event:   Event{Hook: api.MessageSending, From: from, About: api.HookContext{SessionKey: "irc:bob", ChannelID: "irc", AuditID: "r-" + id}, Data: data},
	}
	form, err := audit.DeliveredForm(nil, "bob", "hello", api.Object(nil).Append(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	change := &store.Change{Records: []*audit.Record{{
		ID: "r-" + id, ActionType: audit.ActionExchange, DispatchID: id, SessionKey: "irc:bob",
		PolicyResult: string(ocip.Allow), DeliveredDigest: "digest of " + string(form),
	}}}
	d.Enter(change)
	change.OnDurable(func(store.Receipt) { w.out.Offer(d) })
	if _, err := w.store.Commit(change); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) expect(what string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// waiting lists the dispatch ids that operators see.
func (w *world) waiting() (ids []string) {
	w.t.Helper()
	page, err := w.out.List(w.t.Context(), &api.QueueListParams{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range page.Messages {
		ids = append(ids, m.DispatchID)
	}
	return ids
}

func newApp() *app {
	a := &app{takes: true, roomy: make(chan struct{})}
	close(a.roomy)
	return a
}

// drained ends the outbox's own tasks, so that all that could be sent was.
func (w *world) drained() { w.out.tasks.Wait() }

const sent = "hook:message_sending "

func TestOrderOfAQueue(t *testing.T) {
	w := newWorld(t)
	// Nobody is there: it waits in the store.
	w.send("alice", "1")
	a := &app{takes: true, crowded: true, roomy: make(chan struct{})}
	w.set(func() { w.to = a })
	// What comes now is behind what waits, and the connection is full.
	w.send("alice", "2")
	w.send("alice", "3")
	w.expect("at a full connection", a.has())
	a.roomAgain()
	w.drained()
	w.expect("in the order of the decisions", a.has(), sent+"1", sent+"2", sent+"3")
	w.send("alice", "4")
	w.expect("at once", a.has()[3:], sent+"4")
	w.expect("taken", w.waiting())
	w.expect("records", w.recorded())
}

// What was not taken comes again to the next connection, after a restart too, where
// each row is held against its record.
func TestComesAgainUntilItIsTaken(t *testing.T) {
	w := newWorld(t)
	first := newApp()
	first.takes = false
	w.set(func() { w.to = first })
	w.send("alice", "1")
	w.drained()
	w.expect("first", first.has()[:1], sent+"1")
	w.out.Leave(first)
	w.restart()
	second := newApp()
	w.set(func() { w.to = second })
	w.out.Resume([]string{ChannelQueue("irc")})
	w.drained()
	w.expect("second", second.has(), sent+"1")
	w.expect("left", w.waiting())
	w.expect("records", w.recorded())
}

// A pause keeps back what an agent sent and nothing else, and what it kept back goes
// when it ends.
func TestPauseKeepsBack(t *testing.T) {
	w := newWorld(t)
	a := newApp()
	w.set(func() { w.to = a })
	w.out.Resume([]string{ChannelQueue("irc")})
	w.drained()
	w.set(func() { w.paused = "alice" })
	w.send("alice", "1")
	w.send("bob", "2")
	w.drained()
	w.expect("paused", a.has(), sent+"2")
	w.expect("kept back", w.waiting(), "1")
	w.set(func() { w.paused = "" })
	w.out.LookBack()
	w.drained()
	w.expect("resumed", a.has(), sent+"2", sent+"1")
	w.expect("left", w.waiting())
}

// What waits too long, what a person takes out, and what no decision let through is
// taken out with a record and reaches nobody.
func TestTakenOut(t *testing.T) {
	w := newWorld(t)
	w.send("alice", "late")
	w.set(func() { w.clock = w.clock.Add(2 * time.Hour) })
	if err := w.out.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.send("alice", "dropped")
	result, err := w.out.Drop(map[string]any{"by": "uid:1"}, &api.QueueDropParams{DispatchIDs: []string{"dropped", "unknown"}})
	if err != nil || len(result.Dropped) != 1 || len(result.Kept) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	forged := &Delivery{
		Message: store.Message{MessageID: store.MessageID{Queue: ChannelQueue("irc")}, DispatchID: "forged"},
		Event:   Event{Hook: api.MessageSending, Data: []byte(`{}`)},
	}
	change := &store.Change{Records: []*audit.Record{{ID: "other", ActionType: audit.ActionExchange, DispatchID: "other"}}}
	forged.Enter(change)
	if _, err := w.store.Commit(change); err != nil {
		t.Fatal(err)
	}
	a := newApp()
	w.set(func() { w.to = a })
	w.out.Resume([]string{ChannelQueue("irc")})
	w.drained()
	w.expect("reached", a.has())
	w.expect("records", w.recorded(), "expired late", "dropped dropped", "undecided_message forged")
	w.expect("left", w.waiting())
}

// FuzzEvent: what is read back of a row is what would be written for it.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"hook":"message_sending","about":{}}`+"\n{}"), "alice")
	f.Add([]byte("{}\n"), "b\n\"")
	f.Add([]byte("no line"), "")
	f.Fuzz(func(t *testing.T, row []byte, from string) {
		var e Event
		if e.decode(row) != nil {
			return
		}
		e.From = from
		var again Event
		written := e.encode(0)
		if err := again.decode(written); err != nil {
			t.Fatalf("%q: %v", written, err)
		}
		if string(again.encode(0)) != string(written) {
			t.Errorf("%q is %q when it is written once more", written, again.encode(0))
		}
	})
}

// FuzzPlace: no place of a page makes a list fail otherwise than with an error.
func FuzzPlace(f *testing.F) {
	f.Add("channel:irc#7")
	f.Add("#")
	f.Add("channel:a#b#-1")
	f.Fuzz(func(t *testing.T, place string) {
		queue, after, err := parseQueuePlace(place)
		if err == nil && place != "" && fmt.Sprintf("%s#", queue) != place[:len(queue)+1] {
			t.Errorf("%q is %q after %d", place, queue, after)
		}
	})
}
