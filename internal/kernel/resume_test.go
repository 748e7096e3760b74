package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
)

// process is a peer that can be distinguished from others.
type process struct {
	somebody
	pid int32
}

func (p process) Credentials() (uid, gid uint32, pid int32) { return 1, 1, p.pid }

// comes connects a process, registers an app and has it ready.
func (w *world) comes(p process, m *api.Manifest) *app {
	w.t.Helper()
	l := &link{w: w, arrived: make(chan sent, 100)}
	a := &app{Client: w.Connect(p, l), w: w, link: l}
	r, err := a.Register(w.t.Context(), "", &api.RegisterParams{Manifest: m})
	if err != nil {
		w.t.Fatal(err)
	}
	a.token = r.Token
	if _, err := a.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// goesOn reports whether an app can resume with its token on another connection.
func (w *world) goesOn(p process, a *app) bool {
	w.t.Helper()
	c := w.Connect(p, &link{w: w, arrived: make(chan sent, 100)})
	err := c.Authorize(a.token)
	if refused := (*api.Error)(nil); err != nil && (!errors.As(err, &refused) || refused.Code != api.AppNotRegistered) {
		w.t.Fatal(err)
	}
	return err == nil
}

func plainApp(id string) *api.Manifest {
	return &api.Manifest{ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}}
}

// A process that makes up many apps pushes out its own, and others that speak for no agent. The app
// of an agent can always resume.
func TestKeptAppsAreBounded(t *testing.T) {
	bubble(t, nil, func(w *world) {
		alice, other := process{pid: 1}, process{pid: 2}
		agent, channel := w.comes(alice, plainApp("@acme/alice")), w.comes(other, plainApp("@acme/channel"))
		agent.Gone()
		channel.Gone()
		flood := func(pid int32, apps int) (all []*app) {
			for n := range apps {
				a := w.comes(process{pid: pid}, plainApp(fmt.Sprintf("@flood/p%d-%d", pid, n)))
				a.Gone()
				all = append(all, a)
			}
			return all
		}
		own := flood(3, 40)
		if !w.goesOn(other, channel) {
			t.Error("one process pushed out another's app")
		}
		channel.Gone()
		if w.goesOn(process{pid: 3}, own[0]) || !w.goesOn(process{pid: 3}, own[39]) {
			t.Error("of its own apps the newest are kept")
		}
		for pid := range int32(70) {
			flood(100+pid, 16)
		}
		if !w.goesOn(alice, agent) {
			t.Error("the app of an agent was pushed out")
		}
		values, err := w.store.MetaUnder(w.t.Context(), "app:")
		if err != nil || len(values) > 1024 {
			t.Errorf("%d apps are kept, %v", len(values), err)
		}
	})
}

// An app with a large manifest works, and registers again.
func TestLargeAppIsNotKept(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := plainApp("@acme/large")
		m.Capabilities.Tools.Provides = []string{strings.Repeat("x", 20_000)}
		large := w.comes(process{pid: 1}, m)
		large.request()
		large.Gone()
		if w.goesOn(process{pid: 1}, large) {
			t.Error("it goes on")
		}
		if values, err := w.store.MetaUnder(w.t.Context(), "app:"); err != nil || len(values) > 0 {
			t.Errorf("%d apps are kept, %v", len(values), err)
		}
	})
}

// No message bypasses an interceptor that must answer while it moves to another connection: the old
// or the new connection saw each outgoing one.
func TestInterceptorChangesOver(t *testing.T) {
	bubble(t, nil, func(w *world) {
		ctx := w.t.Context()
		first := w.interceptor("@acme/guard", true)
		alice := w.register("@acme/alice", api.Capabilities{})
		var seen, let atomic.Int64
		// An answer waits, as on a real connection, until the request before it is
		// admitted.
		watch := func(c *app, admitted, done chan struct{}) {
			<-admitted
			for {
				select {
				case s := <-c.link.arrived:
					if s.event != "hook:message_sending" {
						continue
					}
					// The answer of a connection that was replaced does not count.
					if _, err := c.HookResult(context.WithoutCancel(ctx), &api.HookResultParams{EventID: eventID(s), Result: []byte("{}")}); err == nil {
						seen.Add(1)
					}
				case <-done:
					return
				}
			}
		}
		over, at := make(chan struct{}), make(chan struct{})
		close(at)
		go watch(first, at, over)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if _, err := alice.dispatch(ctx, fmt.Sprintf("chat:%d", n)); err == nil {
					let.Add(1)
				}
			}
		}()
		for range 100 {
			l := &link{w: w, arrived: make(chan sent, 100)}
			next := &app{Client: w.Connect(somebody{}, l), w: w, link: l, token: first.token}
			admitted := make(chan struct{})
			go watch(next, admitted, over)
			next.request()
			close(admitted)
		}
		close(over)
		<-sending
		if let.Load() == 0 || let.Load() > seen.Load() {
			t.Errorf("%d messages went out, %d were seen", let.Load(), seen.Load())
		}
	})
}
