package registry

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// fixture is a registry over a real store, with an outbox that notes its calls.
type fixture struct {
	*testing.T
	*Registry
	store *store.Store
	terms *Terms
	mu    sync.Mutex
	told  []string
}

func (f *fixture) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, fmt.Sprintf(format, args...))
}

func (f *fixture) Resume(a *App)                { f.note("resume %s", a.ID()) }
func (f *fixture) ResumeChannel(channel string) { f.note("resume channel %s", channel) }
func (f *fixture) Leave(a *App)                 { f.note("leave %s", a.ID()) }

func (f *fixture) Acknowledge(a *App, d *Delivery, r Receipt) error {
	f.note("acknowledge %s %s %v", a.ID(), d.DispatchID, r)
	return nil
}

// run runs a test in a bubble of its own time.
func run(t *testing.T, cfg directory.Config, test func(f *fixture)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ocipd.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), store.Options{Path: path, Clock: time.Now, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{T: t, store: s, terms: termsOf(t, cfg)}
		f.terms.Generation = 1
		f.start()
		test(f)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func termsOf(t *testing.T, cfg directory.Config) *Terms {
	t.Helper()
	d, err := directory.New(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &Terms{
		Config:    Config{HookWait: time.Second, HookAnswer: time.Second, UnhealthyAfter: time.Hour},
		Directory: d, Agents: cfg.Agents, Grants: cfg.Grants,
	}
}

// start makes the registry, as at the start of a daemon.
func (f *fixture) start() {
	f.Helper()
	ids := 0
	r, err := New(f.Context(), Options{
		Store: f.store, Outbox: f, Terms: func() *Terms { return f.terms }, Commit: f.store.Commit,
		Now: time.Now, NewID: func() string { ids++; return fmt.Sprintf("id-%d", ids) }, Log: zap.NewNop(),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Registry = r
}

// someone is a process, by its pid.
type someone int32

func (p someone) Credentials() (uid, gid uint32, pid int32) { return 1, 1, int32(p) }
func (p someone) Executable() (string, error)               { return "", errors.New("none") }
func (p someone) Ancestors() ([]string, error)              { return []string{p.name()}, nil }
func (p someone) Present() error                            { return nil }
func (p someone) Process() (string, error)                  { return p.name(), nil }
func (p someone) name() string                              { return fmt.Sprintf("%d@1", int32(p)) }

// mortal is a process that can end while its connection stays open.
type mortal struct {
	someone
	ended bool
}

func (p *mortal) Present() error {
	if p.ended {
		return errors.New("it has ended")
	}
	return nil
}

// wire notes the events an app is sent.
type wire struct {
	events []string
	closed bool
}

func (w *wire) Put(e gate.Event, _ gate.Fate) bool {
	w.events = append(w.events, e.Name()+" "+string(e.Payload()))
	return true
}
func (w *wire) Recall() ([]gate.Recallable, bool) { return nil, false }
func (w *wire) Flush()                            {}
func (w *wire) Room(context.Context) error        { return nil }
func (w *wire) Crowded() bool                     { return false }
func (w *wire) Acknowledges(bool)                 {}
func (w *wire) Acknowledge(string) bool           { return false }
func (w *wire) Close(time.Duration)               { w.closed = true }

func (f *fixture) connects(who api.Peer, m *api.Manifest, token string) (*Client, *wire, string, error) {
	w := new(wire)
	c := f.Connect(who, w)
	r, err := c.Register(f.Context(), token, &api.RegisterParams{Manifest: m})
	if err == nil {
		_, err = c.Ready(f.Context(), &api.ReadyParams{})
	}
	return c, w, r.Token, err
}

func manifest(id string) *api.Manifest {
	return &api.Manifest{ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}}
}

func agentOf(id, app, tenant string) directory.Agent {
	return directory.Agent{App: app, Agent: ocip.Agent{ID: id, Identity: ocip.Identity{InstanceID: "agent-" + id, UserID: id, TenantID: tenant}}}
}

// isCode fails a test if an error is not of a code, "" for none.
func isCode(t *testing.T, what string, err error, want api.Code) {
	t.Helper()
	var got api.Code
	if err != nil {
		got = api.AsError(err).Code
	}
	if got != want {
		t.Errorf("%s: got %q, want %q (%v)", what, got, want, err)
	}
}

// A connection that outlives its process does not block its app's id, and the next app under that
// id has none of its events.
func TestEndedProcessHoldsNoID(t *testing.T) {
	run(t, directory.Config{}, func(f *fixture) {
		first := &mortal{someone: 7}
		c, w, _, err := f.connects(first, manifest("@acme/bot"), "")
		isCode(t, "the first", err, "")
		events := c.App().events
		_, _, _, err = f.connects(someone(8), manifest("@acme/bot"), "")
		isCode(t, "beside it", err, api.Conflict)
		first.ended = true
		next, _, _, err := f.connects(someone(9), manifest("@acme/bot"), "")
		isCode(t, "after its end", err, "")
		if !w.closed || next.App().events == events {
			t.Errorf("the connection of the ended process is closed: %t", w.closed)
		}
	})
}

// An id belongs to its holder: another connection gets it only with the token, and an id that looks
// like it is refused.
func TestRegistration(t *testing.T) {
	run(t, directory.Config{}, func(f *fixture) {
		first, wire, token, err := f.connects(someone(1), manifest("@acme/alice"), "")
		isCode(t, "the first", err, "")
		_, _, _, err = f.connects(someone(2), manifest("@acme/alice"), "")
		isCode(t, "without the token", err, api.Conflict)
		_, _, _, err = f.connects(someone(2), manifest("@acme/alice"), "another")
		isCode(t, "with another token", err, api.Conflict)
		_, _, _, err = f.connects(someone(2), manifest("@acme/a1ice"), "")
		isCode(t, "a look-alike", err, api.Forbidden)
		if wire.closed || f.Connected("@acme/alice") != first.App() {
			t.Error("the holder lost its id")
		}
		second, _, fresh, err := f.connects(someone(1), manifest("@acme/alice"), token)
		isCode(t, "a takeover", err, "")
		if !wire.closed || f.Connected("@acme/alice") != second.App() {
			t.Error("the id was not taken over")
		}
		isCode(t, "the former token", second.Authorize(token), api.Unauthorized)
		isCode(t, "the fresh token", second.Authorize(fresh), "")
		first.Gone()
		if f.Connected("@acme/alice") != second.App() {
			t.Error("the end of a superseded connection ended the app")
		}
	})
}

// An app's state comes back with its token, only for the same process, and also with another
// daemon.
func TestResumption(t *testing.T) {
	run(t, directory.Config{}, func(f *fixture) {
		m := manifest("@acme/chat")
		m.Capabilities.Channels.Provides = []string{"chat"}
		m.Capabilities.Hooks.Subscribes = []string{"message_sending"}
		c, _, token, err := f.connects(someone(1), m, "")
		isCode(t, "registers", err, "")
		if r, err := c.RegisterCapability(f.Context(), &api.CapabilityParams{Type: "channel", Config: map[string]jsontext.Value{"channelId": jsontext.Value(`"chat"`)}}); err != nil || !r.Granted {
			t.Fatal(r, err)
		}
		if r, err := c.Subscribe(f.Context(), &api.HooksParams{Events: []string{"message_sending"}}); err != nil || len(r.Subscribed) != 1 {
			t.Fatal(r, err)
		}
		synctest.Wait() // a channel's queue is resumed beside the answer
		f.start()
		isCode(t, "another process", f.Connect(someone(2), new(wire)).Authorize(token), api.AppNotRegistered)
		again := f.Connect(someone(1), new(wire))
		isCode(t, "resumes", again.Authorize(token), "")
		a := again.App()
		if a == nil || f.Owner(f.terms, "chat") != a || f.ChannelReceiver(f.terms, "chat") != a || !slices.Contains(f.Listeners(api.MessageSending), a) {
			t.Error("it lacks what it had")
		}
		if last := f.told[len(f.told)-1]; last != "resume @acme/chat" {
			t.Errorf("its queues were not resumed: %q", f.told)
		}
		again.Gone()
		if f.Owner(f.terms, "chat") != nil || len(f.Listeners(api.MessageSending)) > 0 || f.Receiver(f.terms, "@acme/chat") != nil {
			t.Error("it has what it had after it is gone")
		}
	})
}

// An answer counts once, in time, and for the app that was asked. A receipt goes to the outbox;
// anything else leaves the event open.
func TestAnswers(t *testing.T) {
	run(t, directory.Config{Agents: []directory.Agent{agentOf("alice", "@acme/alice", "acme")}, Required: []string{"@acme/chat"}}, func(f *fixture) {
		m := manifest("@acme/chat")
		m.Capabilities.Hooks.Intercepts = []string{"message_sending"}
		f.terms.HookApps = map[string]HookTimes{m.ID: {Required: true}}
		c, w, _, err := f.connects(someone(1), m, "")
		isCode(t, "registers", err, "")
		other, _, _, err := f.connects(someone(2), manifest("@acme/other"), "")
		isCode(t, "another registers", err, "")
		isCode(t, "an answer of who listens to nothing", answer(other, "x", `{}`), api.HookNotSubscribed)
		if _, err := c.Subscribe(f.Context(), &api.HooksParams{Events: []string{"message_sending"}}); err != nil {
			t.Fatal(err)
		}
		a := c.App()
		about := api.HookContext{AgentID: "alice"}
		id := idOf(string(f.Deliver(nil, a, api.MessageSending, gate.Fact([]byte("{}")), about, &Delivery{DispatchID: "d1"}).Payload()))
		for _, step := range []struct{ result, reason string }{
			{`null`, "a receipt is"},
			{`{"other":1}`, "a receipt is"},
			{`{"delivered":true}`, ""},
			{`{"delivered":true}`, string(answeredBefore)},
		} {
			if got, err := c.HookResult(f.Context(), &api.HookResultParams{EventID: id, Result: jsontext.Value(step.result)}); err != nil || !strings.Contains(got.Reason, step.reason) || got.OK != (step.reason == "") {
				t.Errorf("%s: %+v, %v", step.result, got, err)
			}
		}
		if last := f.told[len(f.told)-1]; last != "acknowledge @acme/chat d1 {true }" {
			t.Errorf("the outbox was told %q", f.told)
		}
		ask := func() (*ocip.Verdict, error) {
			return f.Ask(f.Context(), f.terms, &Question{
				Hook: api.MessageSending, About: about, Data: func() []byte { return []byte("{}") }, Take: (*App).Denies,
			})
		}
		if v, err := ask(); err != nil || v == nil || v.Code != ocip.InterceptorTimeout {
			t.Errorf("without an answer: %+v, %v", v, err)
		}
		late, err := c.HookResult(f.Context(), &api.HookResultParams{EventID: idOf(w.events[len(w.events)-1]), Result: jsontext.Value("{}")})
		if err != nil || late.Reason != string(answeredLate) {
			t.Errorf("late: %+v, %v", late, err)
		}
		c.Gone()
		if v, err := ask(); err != nil || v == nil || v.Code != ocip.InterceptorBlocked || v.Policy != "interceptor:@acme/chat" {
			t.Errorf("without the app: %+v, %v", v, err)
		}
	})
}

func answer(c *Client, id, result string) error {
	_, err := c.HookResult(context.Background(), &api.HookResultParams{EventID: id, Result: jsontext.Value(result)})
	return err
}

func idOf(payload string) string {
	_, rest, _ := strings.Cut(payload, `"eventId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// If the terms do not allow an app to run, it loses its rights, and later terms that allow it give
// them back; older ones have no effect.
func TestBinding(t *testing.T) {
	cfg := directory.Config{Agents: []directory.Agent{agentOf("alice", "@acme/alice", "acme")}}
	run(t, cfg, func(f *fixture) {
		c, _, token, err := f.connects(someone(1), manifest("@acme/alice"), "")
		isCode(t, "registers", err, "")
		before := f.terms
		uid := uint32(2)
		bound := cfg
		bound.Agents = slices.Clone(cfg.Agents)
		bound.Agents[0].UID = &uid
		f.terms = termsOf(t, bound)
		f.terms.Generation = 2
		isCode(t, "bound to another user", c.Authorize(token), api.Forbidden)
		isCode(t, "under the terms before", c.CheckBinding(before), "")
		if f.Receiver(f.terms, "@acme/alice") != nil {
			t.Error("it is sent messages")
		}
		f.terms = termsOf(t, cfg)
		f.terms.Generation = 3
		isCode(t, "bound to its user again", c.Authorize(token), "")
		if f.Receiver(f.terms, "@acme/alice") != c.App() {
			t.Error("it is sent no messages")
		}
	})
}

// If other parties' apps share the daemon, a process that is refused for a binding learns nothing
// about it: neither the agent nor its user or program. The record has everything.
func TestBindingOfOthers(t *testing.T) {
	uid, strange := uint32(64002), uint32(1)
	alice := agentOf("alice", "@acme/alice", "acme")
	alice.UID = &uid
	bob := agentOf("bob", "@acme/bob", "acme")
	bob.UID, bob.Exe = &strange, "/opt/acme/bob"
	for name, tenant := range map[string]string{"several tenants": "globex", "several users": "acme"} {
		t.Run(name, func(t *testing.T) {
			run(t, directory.Config{Agents: []directory.Agent{alice, bob, agentOf("eve", "@globex/eve", tenant)}}, func(f *fixture) {
				for i, id := range []string{"@acme/alice", "@acme/bob"} {
					_, _, _, err := f.connects(someone(1), manifest(id), "")
					isCode(t, id, err, api.Forbidden)
					said := api.AsError(err).Message
					for _, secret := range []string{"agent alice", "agent bob", "64002", "/opt/acme", "user"} {
						if strings.Contains(said, secret) {
							t.Errorf("who asks for %s is told: %s", id, said)
						}
					}
					rows, _, err := f.store.Query(f.Context(), audit.Filter{Like: audit.Record{Event: "binding_refused", AppID: id}}, 0, 0, 10)
					if want := []string{"agent alice, which is bound to user 64002", "agent bob, which is bound to a program"}[i]; err != nil || len(rows) != 1 || !strings.Contains(string(rows[0]), want) {
						t.Errorf("on record is %s, %v", rows, err)
					}
				}
			})
		})
	}
}

// No process that has registered may operate, even after its app is gone, and an ended process
// gives its place to another.
func TestProcesses(t *testing.T) {
	run(t, directory.Config{}, func(f *fixture) {
		c, _, _, err := f.connects(someone(1), manifest("@acme/alice"), "")
		isCode(t, "registers", err, "")
		c.Gone()
		isCode(t, "an app's process", f.Processes.MayOperate(someone(1)), api.Forbidden)
		isCode(t, "another process", f.Processes.MayOperate(someone(2)), "")
		f.start()
		isCode(t, "after a restart", f.Processes.MayOperate(someone(1)), api.Forbidden)
	})
	ended := map[string]bool{}
	p := Processes{apps: make(map[string]appProcess), full: 2, runs: func(name string) bool { return !ended[name] }}
	p.add("a", "x")
	p.add("b", "x")
	ended["a"] = true
	if fresh, gone, ok := p.add("c", "x"); !fresh || !ok || !slices.Equal(gone, []store.EndedProcess{{Name: "a"}}) {
		t.Error(fresh, gone, ok)
	}
	if fresh, _, ok := p.add("c", "x"); !fresh || !ok {
		t.Error("what the store does not know is told to it again")
	}
	p.written("c")
	if fresh, _, ok := p.add("c", "x"); fresh || !ok {
		t.Error("what the store knows is told to it again")
	}
}

// A message that a required interceptor was not asked about does not go on, even if the interceptor
// connects or disconnects while another one is asked.
func TestRequiredInterceptorLeavesMeanwhile(t *testing.T) {
	const slow, required = "@acme/slow", "@acme/required"
	cfg := directory.Config{
		Agents: []directory.Agent{agentOf("alice", "@acme/alice", "acme")}, Required: []string{required},
		Grants: map[string]directory.Grant{slow: {Intercepts: []string{"*"}}},
	}
	for _, leaves := range []bool{false, true} {
		run(t, cfg, func(f *fixture) {
			f.terms.HookApps = map[string]HookTimes{required: {Required: true}}
			interceptor := func(pid someone, id string) (*Client, *wire) {
				m := manifest(id)
				m.Capabilities.Hooks.Intercepts = []string{"message_sending"}
				c, w, _, err := f.connects(pid, m, "")
				isCode(t, id, err, "")
				if r, err := c.Subscribe(f.Context(), &api.HooksParams{Events: []string{"message_sending"}}); err != nil || len(r.Subscribed) != 1 {
					t.Fatal(r, err)
				}
				return c, w
			}
			first, shown := interceptor(1, slow)
			second, asked := interceptor(2, required)
			var v *ocip.Verdict
			done := make(chan error)
			go func() {
				var err error
				v, err = f.Ask(f.Context(), f.terms, &Question{
					Hook: api.MessageSending, About: api.HookContext{AgentID: "alice"}, Data: func() []byte { return []byte("{}") }, Take: (*App).Denies,
				})
				done <- err
			}()
			synctest.Wait()
			if leaves {
				second.Gone()
			}
			isCode(t, "the first one's answer", answer(first, idOf(shown.events[len(shown.events)-1]), "{}"), "")
			if synctest.Wait(); !leaves {
				isCode(t, "the second one's answer", answer(second, idOf(asked.events[len(asked.events)-1]), "{}"), "")
			}
			switch err := <-done; {
			case err != nil, !leaves && v != nil:
				t.Errorf("with both answers: %+v, %v", v, err)
			case leaves && (v == nil || v.Code != ocip.InterceptorBlocked || v.Policy != "interceptor:"+required):
				t.Errorf("what the required one has not seen is %+v", v)
			}
		})
	}
}
