package outbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// app is a receiver and its connection, which reads events at once if takes is set. Otherwise they
// wait, half written if half is set.
type app struct {
	half bool
	// acknowledges is set if it acknowledges messages.
	acknowledges bool
	unread       []gate.Recallable
	mu           sync.Mutex
	crowded      bool
	takes        bool
	got          []string
	roomy        chan struct{}
}

func (*app) ID() string { return "@test/app" }

func (a *app) Line() api.Line { return a }

func (a *app) Acknowledges() bool { return a.acknowledges }

// acknowledge is the app's word about the messages at these places among those that it got.
func (a *app) acknowledge(places ...int) {
	for _, at := range places {
		a.unread[at].Taken()
	}
}

func (a *app) Put(e gate.Event, fate gate.Fate) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := e.Name()
	var data struct {
		Data struct {
			DispatchID string `json:"dispatchId"`
		} `json:"data"`
	}
	if json.Unmarshal(e.Payload(), &data) == nil {
		got += " " + data.Data.DispatchID
	}
	a.got = append(a.got, got)
	if d, ok := fate.(gate.Recallable); ok && a.takes {
		d.Taken()
	} else if ok {
		a.unread = append(a.unread, d)
	}
	return true
}

func (a *app) Recall() (back []gate.Recallable, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.ContainsFunc(a.unread, func(d gate.Recallable) bool { return !d.Stays() }) {
		return nil, false
	}
	back, a.unread = a.unread, nil
	if a.half {
		return nil, true
	}
	a.got = a.got[:len(a.got)-len(back)]
	return back, false
}

// reads takes everything that waits, and what comes later.
func (a *app) reads() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.unread {
		d.Taken()
	}
	a.takes, a.unread = true, nil
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
	fails  int // how many commits fail
	events []string
	clock  time.Time
	// generation and standing are the basis of decisions.
	generation uint64
	standing   error
	// varies is set if the policy's answers hold only for the moment.
	varies bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

// newWorldIn is newWorld with a directory from outside, as a bubble needs.
func newWorldIn(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{t: t, clock: time.Unix(1_700_000_000, 0).UTC()}
	var err error
	if w.dir, err = directory.New(&directory.Config{}); err != nil {
		t.Fatal(err)
	}
	if w.store, err = store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "ocipd.db"), Clock: w.now, Log: zap.NewNop()}); err != nil {
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

// restart begins again over the same store, without any memory.
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
		Search: func(ctx context.Context, f audit.Filter, before uint64, limit int) ([][]byte, uint64, error) {
			return w.store.Query(ctx, f, 0, before, limit)
		},
		Keys:  testKeys,
		NewID: func() string { ids++; return fmt.Sprint("id", ids) },
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

func (w *world) HookEvent(_ []byte, _ Receiver, d *Delivery, about api.HookContext) gate.Event {
	return d.Sealed().Hook(nil, "e", string(d.Hook), about.Append)
}

func (w *world) Generation(string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

func (w *world) Standing(context.Context, *gate.Waited) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.standing
}

func (w *world) Lasts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.varies
}

// AskAnew has a person asked. Here only the record shows it.
func (w *world) AskAnew(_ context.Context, of *gate.Waited, _ *gate.Anew, c *store.Change) (*gate.Withdrawn, error) {
	c.Records = append(c.Records, &audit.Record{ID: "anew", ActionType: audit.ActionExchange, Event: "held", DispatchID: of.Record.DispatchID})
	return nil, nil
}

func (w *world) Withdrawn(approvalID string, why *gate.Withdrawn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, "told "+approvalID+" "+why.Code)
}

// testKeys makes readable digests.
func testKeys(_, _ string, form func([]byte) ([]byte, error)) (string, error) {
	text, err := form(nil)
	return "digest of " + string(text), err
}

func (w *world) Handed(_ Receiver, d *Delivery, _ api.HookContext) {}

func (w *world) Commit(c *store.Change) (store.Receipt, error) {
	w.mu.Lock()
	if w.fails > 0 {
		w.fails--
		w.mu.Unlock()
		return store.Receipt{}, errors.New("no space left")
	}
	for _, r := range c.Records {
		given := ""
		if r.Details["given"] == true {
			given = " given"
		}
		w.events = append(w.events, r.Event+" "+r.DispatchID+given)
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
func (w *world) send(from, id string) { w.sendFor(from, id, time.Hour) }

// sendFor is send for a message that waits so long.
func (w *world) sendFor(from, id string, wait time.Duration) {
	w.t.Helper()
	d := &Delivery{
		Generation: w.Generation(""),
		Message:    store.Message{MessageID: store.MessageID{Queue: ChannelQueue("irc")}, DispatchID: id, ExpiresAt: w.now().Add(wait)},
		Event:      Event{Hook: api.MessageSending, From: from, About: api.HookContext{SessionKey: "irc:bob", ChannelID: "irc", AuditID: "r-" + id}},
	}
	if err := d.Close(testKeys, "", api.Message{ChannelID: "irc", Target: "bob", Content: gate.NewText("hello"), DispatchID: id}); err != nil {
		w.t.Fatal(err)
	}
	change := &store.Change{Records: []*audit.Record{{
		ID: "r-" + id, ActionType: audit.ActionExchange, DispatchID: id, SessionKey: "irc:bob",
		PolicyResult: string(ocip.Allow), DeliveredDigest: d.Digest(),
	}}}
	d.Enter(change)
	change.OnDurable(func(r store.Receipt) { w.out.Open(r, d); w.out.Offer(d) })
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

// drained waits for the outbox's own tasks, so that everything that could be sent was.
func (w *world) drained() { w.out.tasks.Wait() }

const sent = "hook:message_sending "

func TestOrderOfAQueue(t *testing.T) {
	w := newWorld(t)
	// No app is connected: it waits in the store.
	w.send("alice", "1")
	a := &app{takes: true, crowded: true, roomy: make(chan struct{})}
	w.set(func() { w.to = a })
	// The new message is behind the waiting ones, and the connection is full.
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

// Messages that were not read come again to the next connection, also after a restart, which
// compares each row with its record.
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

// A message of an app that acknowledges messages stays until the app has done so, and also while an earlier
// one is not acknowledged. What a pause keeps back stays in any case.
func TestAcknowledgement(t *testing.T) {
	w := newWorld(t)
	first := stuck()
	first.acknowledges = true
	w.set(func() { w.to = first })
	w.send("bob", "1")
	w.drained()
	w.send("bob", "2")
	w.send("bob", "3")
	first.acknowledge(1)
	w.out.Settle()
	w.expect("2 acknowledged", w.waiting(), "1", "2", "3")
	first.acknowledge(0)
	w.out.Settle()
	w.expect("1 and 2 acknowledged", w.waiting(), "3")
	w.set(func() { w.paused = "alice" })
	for _, m := range [][2]string{{"alice", "4"}, {"bob", "5"}, {"bob", "6"}} {
		w.send(m[0], m[1])
	}
	first.acknowledge(2, 4)
	w.drained()
	w.out.Settle()
	w.expect("3 and 6 acknowledged", w.waiting(), "4", "5")
	w.out.Leave(first)
	second := newApp()
	w.set(func() { w.to, w.paused = second, "" })
	w.out.Resume([]string{ChannelQueue("irc")})
	w.drained()
	w.expect("second", second.has(), sent+"4", sent+"5")
	w.expect("left", w.waiting())
}

// An app that acknowledges messages gets so many at most before it does. Half of that brings the next ones,
// in order.
func TestMostUnacknowledged(t *testing.T) {
	w := newWorld(t)
	a := stuck()
	a.acknowledges = true
	w.set(func() { w.to = a })
	var all []string
	for n := range maxUnacknowledged + 100 {
		w.send("bob", fmt.Sprint(n))
		w.drained()
		all = append(all, sent+fmt.Sprint(n))
	}
	w.expect("before", a.has(), all[:maxUnacknowledged]...)
	for n := range maxUnacknowledged / 2 {
		a.acknowledge(n)
	}
	w.drained()
	w.expect("after", a.has(), all...)
	w.send("bob", "last")
	w.expect("at once", a.has()[len(all):], sent+"last")
}

// A pause keeps back only one agent's messages, and they go when it ends.
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

// A policy whose answers hold only for the moment is asked each time that a message is read back.
func TestAnswerThatDoesNotLast(t *testing.T) {
	for varies, want := range map[bool][]string{true: {"withdrawn 1 given", "told  LATE"}, false: nil} {
		w := newWorld(t)
		w.send("alice", "1")
		w.restart()
		w.set(func() { w.varies = varies })
		read := func() int {
			page, err := w.out.Read(t.Context(), ChannelQueue("irc"), "", 10, 1000)
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Messages)
		}
		if read() != 1 {
			t.Error("nothing waits")
		}
		w.set(func() { w.standing = &gate.Withdrawn{Code: "LATE"} })
		if varies != (read() == 0) {
			t.Errorf("whether the answer varies is %v", varies)
		}
		w.expect("records", w.recorded(), want...)
	}
}

// Expired messages, dropped ones, and ones that no decision allowed are removed with a record and
// reach nobody.
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
		Event:   Event{Hook: api.MessageSending},
	}
	if err := forged.Close(testKeys, "", api.Message{ChannelID: "irc", DispatchID: "forged"}); err != nil {
		t.Fatal(err)
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

// If a message of a queue cannot be removed, the queue goes on up to it, and after it once that
// works, without any other event: both for messages of an app and for those that a pause kept back.
func TestDrainIsTriedAgain(t *testing.T) {
	for name, paused := range map[string]bool{"what waits": false, "what was kept back": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newWorldIn(t, dir)
				a := newApp()
				if paused {
					w.set(func() { w.to, w.paused = a, "alice" })
					w.out.Resume([]string{ChannelQueue("irc")})
					w.drained()
				}
				w.send("alice", "1")
				w.sendFor("alice", "late", time.Minute)
				w.send("alice", "2")
				w.set(func() { w.to, w.paused, w.fails, w.clock = a, "", 3, w.clock.Add(2*time.Minute) })
				began := time.Now()
				if w.out.LookBack(); !paused {
					w.out.Resume([]string{ChannelQueue("irc")})
				}
				synctest.Wait()
				w.expect("before it", a.has(), sent+"1")
				w.drained()
				w.expect("behind it", a.has(), sent+"1", sent+"2")
				w.expect("records", w.recorded(), "expired late")
				if took := time.Since(began); took > 8*firstRetry {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// A drain that ends while it waits for its next attempt is done.
func TestDrainEndsWithTheOutbox(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldIn(t, dir)
		w.sendFor("alice", "late", time.Minute)
		a := newApp()
		w.set(func() { w.to, w.fails, w.clock = a, 1000, w.clock.Add(time.Hour) })
		w.out.Resume([]string{ChannelQueue("irc")})
		<-time.After(time.Hour)
		w.stop()
		w.drained()
		if w.fails < 1000-3600/int(lastRetry/time.Second)-10 {
			t.Errorf("it was tried %d times in an hour", 1000-w.fails)
		}
	})
}

// A reader that waits for a paused message is woken at the end of the pause.
func TestReaderIsWokenAfterAPause(t *testing.T) {
	w := newWorld(t)
	came, leave := w.out.Arrival(ChannelQueue("irc"))
	defer leave()
	w.out.LookBack()
	select {
	case <-came:
	default:
		t.Error("nobody woke the reader")
	}
}

// A message that a reader was given is kept while the reader is connected. After that it can be
// dropped, or expire, and its record says that it was given. Passed messages are forgotten.
func TestGiven(t *testing.T) {
	w := newWorld(t)
	queue := ChannelQueue("irc")
	for _, id := range []string{"1", "2", "3", "4"} {
		w.send("alice", id)
	}
	page, err := w.out.Read(t.Context(), queue, "", 3, 1<<20)
	if err != nil || len(page.Messages) != 3 {
		t.Fatalf("%+v, %v", page, err)
	}
	drop := func(ids ...string) *api.QueueDropResult {
		result, err := w.out.Drop(map[string]any{"by": "uid:1"}, &api.QueueDropParams{DispatchIDs: ids})
		if err != nil {
			t.Fatal(err)
		}
		return &result
	}
	if got := drop("1", "4"); len(got.Kept) != 1 || got.Kept[0].DispatchID != "1" || len(got.Dropped) != 1 || got.Dropped[0].Given {
		t.Errorf("while its reader is there: %+v", got)
	}
	list, err := w.out.List(t.Context(), &api.QueueListParams{})
	if err != nil || len(list.Messages) != 3 || !list.Messages[0].Handed {
		t.Errorf("listed: %+v, %v", list, err)
	}
	record := func(d *Delivery) *audit.Record {
		return &audit.Record{ID: "read-" + d.DispatchID, ActionType: audit.ActionDelivery, Event: "read", DispatchID: d.DispatchID}
	}
	if _, err := w.out.Pass(t.Context(), queue, Cursor{Seq: page.Messages[0].RecordSeq, Newest: "1"}, record); err != nil {
		t.Fatal(err)
	}
	w.out.Left(queue)
	if got := drop("2"); len(got.Dropped) != 1 || !got.Dropped[0].Given {
		t.Errorf("after its reader has gone: %+v", got)
	}
	w.set(func() { w.clock = w.clock.Add(2 * time.Hour) })
	if err := w.out.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect("records", w.recorded(), "dropped 4", "read 1", "dropped 2 given", "expired 3 given")
	if len(w.out.given.queues) != 0 {
		t.Errorf("remembered is %v", w.out.given.queues)
	}
}

// A message is never both dropped by a person and given to a reader.
func TestDropAgainstRead(t *testing.T) {
	w := newWorld(t)
	for n := range 50 {
		id := fmt.Sprintf("m%02d", n)
		w.send("alice", id)
		var page Page
		var dropped api.QueueDropResult
		var both sync.WaitGroup
		both.Go(func() { page, _ = w.out.Read(t.Context(), ChannelQueue("irc"), "", 100, 1<<20) })
		both.Go(func() {
			dropped, _ = w.out.Drop(map[string]any{"by": "uid:1"}, &api.QueueDropParams{DispatchIDs: []string{id}})
		})
		both.Wait()
		has := slices.ContainsFunc(page.Messages, func(d *Delivery) bool { return d.DispatchID == id })
		if has && len(dropped.Dropped) > 0 {
			t.Fatalf("%s was given and dropped", id)
		}
	}
}

// FuzzEvent: an event read from a row is encoded to the same row.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"hook":"message_sending","about":{}}`+"\n{}"), "alice")
	f.Add([]byte("{}\n"), "b\n\"")
	f.Add([]byte("no line"), "")
	f.Fuzz(func(t *testing.T, row []byte, from string) {
		d, _, err := read(&store.Message{Body: row})
		if err != nil {
			return
		}
		d.From = from
		written := d.encode(0)
		again, _, err := read(&store.Message{Body: written})
		if err != nil {
			t.Fatalf("%q: %v", written, err)
		}
		if string(again.encode(0)) != string(written) {
			t.Errorf("%q is %q when it is written once more", written, again.encode(0))
		}
	})
}

// FuzzPlace: no place of a page makes a list fail except with an error.
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
