package kernel_test

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
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// world is a kernel over a real store, in a bubble of its own time. The disk takes no time there,
// so every wait is exact.
type world struct {
	t     *testing.T
	store *store.Store
	*kernel.Kernel
	cfg   kernel.Config
	began time.Time
}

// search finds records without an index.
type search struct{ *store.Store }

func (s search) Query(ctx context.Context, f audit.Filter, before uint64, limit int) ([][]byte, uint64, error) {
	return s.Store.Query(ctx, f, 0, before, limit)
}

// bubble runs a test in a world. If change is set, it changes the world's configuration.
func bubble(t *testing.T, change func(*kernel.Config), run func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), store.Options{
			Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids := 0
		var mu sync.Mutex
		cfg := kernel.Config{
			Directory: directory.Config{Agents: []directory.Agent{{App: "@acme/alice", Agent: ocip.Agent{
				ID: "alice", Identity: ocip.Identity{InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", TenantID: "acme-corp"},
				MaxShared: ocip.Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true,
				Types: []ocip.ExchangeType{ocip.InformationQuery},
			}}}, Entries: []directory.Entry{{Sessions: []string{"telegram:dave"}, Counterparty: ocip.Counterparty{
				Kind: ocip.KindAgent, Accepts: ocip.Internal,
				Identity: ocip.Identity{InstanceID: "agent-dave-1", UserID: "dave", OrgUnit: "engineering", TenantID: "acme-corp"},
			}}}},
			Config: registry.Config{
				HookWait: 250 * time.Millisecond, HookAnswer: 5 * time.Second, HookApps: map[string]registry.HookTimes{},
				UnhealthyAfter: 90 * time.Second, DrainTimeout: 10 * time.Second,
			},
			ActiveWindow: 30 * time.Minute,
			DefaultLevel: ocip.Internal, DefaultType: ocip.InformationQuery, MaxRounds: 3, ExpiresAfter: 24 * time.Hour,
			MaxAnnotation: 4096, Disclosure: ocip.DisclosureSuffix, MaxHeld: 100, HoldFor: 24 * time.Hour, Approvers: 1,
		}
		// With one grant, everything must be granted.
		cfg.Directory.Grants = map[string]directory.Grant{"@acme/telegram": {Channels: []string{"telegram", "chat"}}}
		for _, app := range []string{"dlp", "filter", "guard", "late", "other", "silent", "watcher", "hook0", "hook1", "hook2"} {
			cfg.Directory.Grants["@acme/"+app] = directory.Grant{Intercepts: []string{"*"}, Observes: []string{"*"}}
		}
		cfg.Directory.Grants["@acme/channels"] = directory.Grant{Channels: []string{"telegram", "chat", "irc"}}
		if change != nil {
			change(&cfg)
		}
		k, err := kernel.New(t.Context(), kernel.Options{
			Digest: func(tenant, text string) (string, error) { return "digest:" + tenant + "/" + text, nil },
			Keys: func(tenant, _ string, form func([]byte) ([]byte, error)) (string, error) {
				text, err := form(nil)
				return "digest:" + tenant + "/" + string(text), err
			},
			Terms: kernel.Terms{Config: cfg, Policy: allowAll{}}, Store: s, Search: search{s}, Now: time.Now, Log: zap.NewNop(),
			NewID: func() string {
				mu.Lock()
				defer mu.Unlock()
				ids++
				return fmt.Sprintf("id-%06d", ids)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		run(&world{t: t, store: s, Kernel: k, cfg: cfg, began: time.Now()})
		k.Stop()
		k.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pass lets time pass, and everything that is due happen.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// at returns how long the world has lasted.
func (w *world) at() time.Duration { return time.Since(w.began) }

// allowAll is a policy that allows everything.
type allowAll struct{}

func (allowAll) Lasts() bool { return true }

func (allowAll) Evaluate(context.Context, ocip.PolicyInput) (ocip.PolicyAnswer, string, string, error) {
	return ocip.PolicyAnswer{Allow: true, Reason: "test"}, "test", "1", nil
}

// somebody is a peer of no account.
type somebody struct{}

func (somebody) Credentials() (uid, gid uint32, pid int32) { return 1, 1, 1 }
func (somebody) Executable() (string, error)               { return "", errors.New("none") }
func (somebody) Ancestors() ([]string, error)              { return []string{"1@1"}, nil }
func (somebody) Present() error                            { return nil }
func (somebody) Process() (string, error)                  { return "1@1", nil }

// link keeps the events an app is sent, with their time.
type link struct {
	w *world

	mu     sync.Mutex
	events []sent
	// arrived receives each event.
	arrived chan sent
	closed  bool
}

type sent struct {
	at      time.Duration
	event   string
	payload string
}

func (l *link) Flush() {}

func (l *link) Recall() ([]gate.Recallable, bool) { return nil, false }

func (l *link) Put(e gate.Event, fate gate.Fate) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	s := sent{l.w.at(), e.Name(), string(e.Payload())}
	l.events = append(l.events, s)
	select {
	case l.arrived <- s:
	default:
	}
	if d, ok := fate.(gate.Recallable); ok {
		d.Taken()
	}
	return true
}

func (l *link) Room(context.Context) error { return nil }
func (l *link) Crowded() bool              { return false }
func (l *link) Acknowledges(bool)          {}
func (l *link) Acknowledge(string) bool    { return false }

func (l *link) Close(time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// of lists the times of the events of a name.
func (l *link) of(name string) (times []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.events {
		if s.event == name {
			times = append(times, s.at)
		}
	}
	return times
}

// app is a registered app.
type app struct {
	*kernel.Client
	w     *world
	link  *link
	token string
}

func (w *world) register(id string, c api.Capabilities) *app {
	w.t.Helper()
	l := &link{w: w, arrived: make(chan sent, 100)}
	a := &app{Client: w.Connect(somebody{}, l), w: w, link: l}
	m := &api.Manifest{ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c}
	r, err := a.Register(w.t.Context(), "", &api.RegisterParams{Manifest: m})
	if err != nil {
		w.t.Fatal(err)
	}
	a.token = r.Token
	return a
}

// request is the first step of every request of an app.
func (a *app) request() {
	a.w.t.Helper()
	if err := a.Authorize(a.token); err != nil {
		a.w.t.Fatal(err)
	}
}

// interceptor is a ready app that intercepts outgoing messages.
func (w *world) interceptor(id string, mustAnswer bool) *app {
	w.t.Helper()
	a := w.register(id, api.Capabilities{Hooks: api.HookDeclaration{Intercepts: []string{"message_sending"}}})
	ctx := w.t.Context()
	if mustAnswer {
		r, err := a.RegisterCapability(ctx, &api.CapabilityParams{Type: "hook", Config: map[string]jsontext.Value{
			"event": jsontext.Value(`"message_sending"`), "intercept": jsontext.Value("true"),
		}})
		if err != nil || !r.Granted {
			w.t.Fatal(r, err)
		}
	}
	if _, err := a.Subscribe(ctx, &api.HooksParams{Events: []string{"message_sending"}}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := a.Ready(ctx, &api.ReadyParams{}); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// answers lets an interceptor answer its next event after a time.
func (a *app) answers(after time.Duration, result string) {
	go func() {
		<-time.After(after)
		for s := range a.link.arrived {
			if s.event != "hook:message_sending" {
				continue
			}
			if _, err := a.HookResult(context.Background(), &api.HookResultParams{EventID: eventID(s), Result: jsontext.Value(result)}); err != nil {
				a.w.t.Error(err)
			}
			return
		}
	}()
}

func eventID(s sent) string {
	var e api.HookEvent
	if json.Unmarshal([]byte(s.payload), &e) != nil {
		return ""
	}
	return e.EventID
}

// dispatch sends a message and returns how long that took.
func (a *app) dispatch(ctx context.Context, session string) (time.Duration, error) {
	began := time.Now()
	_, _, err := a.Dispatch(ctx, &api.DispatchParams{SessionKey: session, Content: gate.NewText("hello")})
	return time.Since(began), err
}

// records lists the records that a filter selects, oldest first.
func (w *world) records(f audit.Filter) (entries []audit.Entry) {
	w.t.Helper()
	lines, _, err := w.store.Query(w.t.Context(), f, 0, 1<<40, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range slices.Backward(lines) {
		e, err := audit.Parse(line)
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// life lists the events of an app's life on record.
func (w *world) life(id string) (events []string) {
	w.t.Helper()
	for _, r := range w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, AppID: id}}) {
		events = append(events, r.Event)
	}
	return events
}

// An app is unhealthy after exactly 90 s of silence, and every request counts as a sign of life.
func TestHealth(t *testing.T) {
	const limit = 90 * time.Second
	for _, tc := range []struct {
		name string
		// requests are the times of the app's requests.
		requests []time.Duration
		// unhealthy and healthy are the times of these events, within five minutes.
		unhealthy, healthy []time.Duration
	}{
		{"silent from the beginning", nil, []time.Duration{limit}, nil},
		{"heard once", []time.Duration{60 * time.Second}, []time.Duration{150 * time.Second}, nil},
		{"heard at the last moment", []time.Duration{limit - 1}, []time.Duration{2*limit - 1}, nil},
		{"heard every 30 s", []time.Duration{30e9, 60e9, 90e9, 120e9, 150e9, 180e9, 210e9, 240e9, 270e9}, nil, nil},
		{"heard again", []time.Duration{100 * time.Second}, []time.Duration{limit, 190 * time.Second}, []time.Duration{100 * time.Second}},
		{"heard again twice", []time.Duration{100 * time.Second, 200 * time.Second}, []time.Duration{limit, 190 * time.Second, 290 * time.Second}, []time.Duration{100 * time.Second, 200 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(w *world) {
				watcher, silent := w.register("@acme/watcher", api.Capabilities{}), w.register("@acme/silent", api.Capabilities{})
				requests := tc.requests
				// The watcher makes requests all the time.
				for w.at() < 5*time.Minute-time.Second {
					step := time.Second
					if len(requests) > 0 && requests[0]-w.at() <= step {
						step = requests[0] - w.at()
						requests = requests[1:]
						w.pass(step)
						silent.request()
						continue
					}
					w.pass(step)
					watcher.request()
				}
				if got := watcher.link.of("app:unhealthy"); !slices.Equal(got, tc.unhealthy) {
					t.Errorf("unhealthy at %v, want %v", got, tc.unhealthy)
				}
				if got := watcher.link.of("app:healthy"); !slices.Equal(got, tc.healthy) {
					t.Errorf("healthy at %v, want %v", got, tc.healthy)
				}
				var recorded []time.Duration
				for _, r := range w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, AppID: "@acme/silent"}}) {
					if r.Event == "unhealthy" {
						recorded = append(recorded, r.Time.Sub(w.began).Round(time.Millisecond))
						if ms := fmt.Sprint(r.Details["silentMs"]); ms != "90000" {
							t.Errorf("silent for %s ms", ms)
						}
					}
				}
				if len(recorded) != len(tc.unhealthy) {
					t.Errorf("on record at %v", recorded)
				}
				for i := range recorded {
					if want := tc.unhealthy[i].Round(time.Millisecond); recorded[i] != want {
						t.Errorf("on record at %s, want %s", recorded[i], want)
					}
				}
				watcher.Gone()
				silent.Gone()
			})
		})
	}
}

// A caller without a token gives no sign of life.
func TestHealthIsNotForgedByStrangers(t *testing.T) {
	bubble(t, nil, func(w *world) {
		watcher, silent := w.register("@acme/watcher", api.Capabilities{}), w.register("@acme/silent", api.Capabilities{})
		w.pass(60 * time.Second)
		watcher.request()
		for _, token := range []string{"", "guessed", watcher.token} {
			if err := silent.Authorize(token); api.AsError(err).Code != api.Unauthorized {
				t.Errorf("token %q: %v", token, err)
			}
		}
		w.pass(30 * time.Second)
		if got := watcher.link.of("app:unhealthy"); !slices.Equal(got, []time.Duration{90 * time.Second}) {
			t.Errorf("unhealthy at %v", got)
		}
		watcher.Gone()
		silent.Gone()
		// An app that has left is not missed.
		w.pass(5 * time.Minute)
		if life := w.life("@acme/silent"); len(life) != 3 {
			t.Errorf("its life is %q", life)
		}
	})
}

// How long a message waits for its interceptors, and whether it goes on.
func TestInterceptorWaits(t *testing.T) {
	type hook struct {
		must   bool
		after  time.Duration // zero: never answers
		result string
	}
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		times  registry.HookTimes // of the first interceptor
		hooks  []hook
		takes  time.Duration
		denied api.Code
	}{
		{name: "nobody", takes: 0},
		{name: "one that may stay silent", hooks: []hook{{}}, takes: 250 * ms},
		{name: "two that may stay silent", hooks: []hook{{}, {}}, takes: 500 * ms},
		{name: "one that answers", hooks: []hook{{after: 100 * ms, result: "{}"}}, takes: 100 * ms},
		{name: "one that answers at the last moment", hooks: []hook{{after: 249 * ms, result: "{}"}}, takes: 249 * ms},
		{name: "one that blocks", hooks: []hook{{after: 100 * ms, result: "null"}, {}}, takes: 100 * ms, denied: api.Forbidden},
		{name: "one that must answer and does not", hooks: []hook{{must: true}}, takes: 5 * time.Second, denied: api.Timeout},
		{name: "one that must answer and does, late", hooks: []hook{{must: true, after: 4900 * ms, result: "{}"}}, takes: 4900 * ms},
		{name: "a silent one, then one that must answer and does not", hooks: []hook{{}, {must: true}}, takes: 5250 * ms, denied: api.Timeout},
		{name: "one that must answer and does not, then nobody else is asked", hooks: []hook{{must: true}, {must: true}}, takes: 5 * time.Second, denied: api.Timeout},
		{name: "a time of its own to stay silent", times: registry.HookTimes{Wait: 2 * time.Second}, hooks: []hook{{}, {}}, takes: 2250 * ms},
		{name: "a time of its own to answer", times: registry.HookTimes{Answer: 70 * ms}, hooks: []hook{{must: true}}, takes: 70 * ms, denied: api.Timeout},
		{name: "one that is required", times: registry.HookTimes{Required: true}, hooks: []hook{{}}, takes: 5 * time.Second, denied: api.Timeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(c *kernel.Config) { c.HookApps["@acme/hook0"] = tc.times }, func(w *world) {
				alice := w.register("@acme/alice", api.Capabilities{})
				var hooks []*app
				for i, h := range tc.hooks {
					a := w.interceptor(fmt.Sprintf("@acme/hook%d", i), h.must)
					if h.after > 0 {
						a.answers(h.after, h.result)
					}
					hooks = append(hooks, a)
				}
				took, err := alice.dispatch(w.t.Context(), "chat:1")
				if took != tc.takes {
					t.Errorf("it took %s, want %s", took, tc.takes)
				}
				if err == nil != (tc.denied == "") || err != nil && api.AsError(err).Code != tc.denied {
					t.Errorf("got %v, want %q", err, tc.denied)
				}
				for _, a := range append(hooks, alice) {
					a.Gone()
				}
			})
		})
	}
}

// A late answer does not count, and is no error for the app that gives it.
func TestInterceptorThatIsLate(t *testing.T) {
	bubble(t, nil, func(w *world) {
		alice, late := w.register("@acme/alice", api.Capabilities{}), w.interceptor("@acme/late", false)
		if took, err := alice.dispatch(w.t.Context(), "chat:1"); took != 250*time.Millisecond || err != nil {
			t.Errorf("%s, %v", took, err)
		}
		said, err := late.HookResult(w.t.Context(), &api.HookResultParams{EventID: eventID(<-late.link.arrived), Result: jsontext.Value("{}")})
		if err != nil || said.OK || said.Reason == "" {
			t.Errorf("got %+v, %v", said, err)
		}
		alice.Gone()
		late.Gone()
	})
}

// Messages wait side by side, and a wait ends with its reason.
func TestInterceptorWaitEnds(t *testing.T) {
	bubble(t, nil, func(w *world) {
		alice, dlp := w.register("@acme/alice", api.Capabilities{}), w.interceptor("@acme/dlp", true)
		type outcome struct {
			took time.Duration
			code api.Code
		}
		ctx, hangUp := context.WithCancel(w.t.Context())
		results := make(chan outcome, 3)
		send := func(ctx context.Context, session string) {
			took, err := alice.dispatch(ctx, session)
			results <- outcome{took, api.AsError(err).Code}
		}
		go send(ctx, "chat:1")
		go send(w.t.Context(), "chat:2")
		w.pass(time.Second)
		hangUp()
		if got, want := <-results, (outcome{time.Second, api.ConnectionClosed}); got != want {
			t.Errorf("the sender went: %+v, want %+v", got, want)
		}
		w.pass(time.Second)
		dlp.Gone()
		if got, want := <-results, (outcome{2 * time.Second, api.Timeout}); got != want {
			t.Errorf("the interceptor went: %+v, want %+v", got, want)
		}
		alice.Gone()
	})
}

// A message that nobody fetches waits until its exchange expires, and its end is on record.
func TestWaitingMessageExpires(t *testing.T) {
	bubble(t, func(c *kernel.Config) { c.ExpiresAfter = 10 * time.Minute }, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		if _, err := alice.dispatch(w.t.Context(), "telegram:dave"); err != nil {
			t.Fatal(err)
		}
		waiting := func() (n int) {
			queues, err := w.store.Queues(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range queues {
				n += q.Count
			}
			return n
		}
		expired := func() int {
			n := 0
			for _, r := range w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}) {
				if r.Event == "expired" {
					n++
				}
			}
			return n
		}
		w.pass(10*time.Minute - time.Second)
		if waiting() != 1 || expired() != 0 {
			t.Errorf("before its time %d wait and %d have expired", waiting(), expired())
		}
		w.pass(time.Minute + time.Second)
		if waiting() != 0 || expired() != 1 {
			t.Errorf("after its time %d wait and %d have expired", waiting(), expired())
		}
		alice.Gone()
	})
}

// An exchange that nobody ends expires: within a minute of its time it has that
// outcome and a record of it, and only once.
func TestExchangesExpire(t *testing.T) {
	bubble(t, nil, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		for range 3 {
			if _, _, err := alice.Dispatch(w.t.Context(), &api.DispatchParams{
				SessionKey: "telegram:dave", Content: gate.NewText("hello"), Metadata: api.Object{"exchange": jsontext.Value(`{"new":true}`)},
			}); err != nil {
				w.t.Fatal(err)
			}
		}
		outcomes := func() map[ocip.Outcome]int {
			counts, err := w.store.ExchangeCounts(w.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			return counts
		}
		w.pass(24*time.Hour - time.Minute)
		if got := outcomes(); got[ocip.InProgress] != 3 {
			t.Errorf("before their time: %v", got)
		}
		w.pass(2 * time.Minute)
		if got := outcomes(); got[ocip.Expired] != 3 {
			t.Errorf("after their time: %v", got)
		}
		w.pass(10 * time.Minute)
		expired := 0
		for _, r := range w.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}) {
			if r.Event != "expired" {
				continue
			}
			expired++
			if r.Outcome != "expired" || r.AgentID != "agent-alice-1" || r.TenantID != "acme-corp" || r.Counterparty.InstanceID != "agent-dave-1" || r.Round != 1 {
				t.Errorf("the record says %+v", r.Record)
			}
		}
		if expired != 3 {
			t.Errorf("%d records, want 3", expired)
		}
	})
}

// A message that an agent begins within the window continues the chain that it heard; a later one
// begins a chain.
func TestChainWindow(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration
		hops  int
	}{{time.Hour, 2}, {time.Hour + time.Second, 1}} {
		bubble(t, func(c *kernel.Config) {
			c.ChainWindow = time.Hour
			bob := c.Directory.Agents[0]
			bob.App, bob.ID, bob.InstanceID, bob.UserID = "@acme/bob", "bob", "agent-bob-1", "bob"
			c.Directory.Agents = append(c.Directory.Agents, bob)
		}, func(w *world) {
			alice, bob := w.register("@acme/alice", api.Capabilities{}), w.register("@acme/bob", api.Capabilities{})
			if _, err := alice.dispatch(w.t.Context(), "agent:bob:main"); err != nil {
				w.t.Fatal(err)
			}
			w.pass(tc.after)
			if _, err := bob.dispatch(w.t.Context(), "telegram:dave"); err != nil {
				w.t.Fatal(err)
			}
			r := w.records(audit.Filter{Like: audit.Record{AgentID: "agent-bob-1", Side: audit.SideSender}})
			if len(r) != 1 || r[0].Hops != tc.hops {
				t.Errorf("after %s: %d records, the chain has %d hops, want %d", tc.after, len(r), r[0].Hops, tc.hops)
			}
		})
	}
}
