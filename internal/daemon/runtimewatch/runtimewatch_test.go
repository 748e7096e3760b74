package runtimewatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
)

// A process without its plugin raises the alarm once, after its time to connect, and the
// alarm ends when the plugin connects or the process ends.
func TestWatch(t *testing.T) {
	const gateway = "openclaw-gatewa"
	var held map[string][]string
	now, bound := time.Unix(1000, 0), true
	var processes []peer.Listed
	attached := map[Client]bool{}
	plugin := Client{"@openclaw/gateway", 7}
	var said []string
	broken := error(nil)
	w := New(Options{
		Grace: 30 * time.Second, Now: func() time.Time { return now },
		Processes: func() []peer.Listed { return processes }, Attached: func() map[Client]bool { return maps.Clone(attached) }, Held: func() map[string][]string { return held },
		Bound: func(app string) bool { return bound && app == "@openclaw/gateway" },
		Alarm: func(u Ungated) error {
			if broken == nil {
				said = append(said, strings.TrimSpace(fmt.Sprintf("alarm %d %s", u.PID, u.Why)))
			}
			return broken
		},
		Over: func(u Ungated, how End) error {
			said = append(said, fmt.Sprintf("over %d %s", u.PID, how))
			return nil
		},
	})
	steps := []struct {
		name string
		do   func()
		want []string
		now  int
	}{
		{"another process", func() { processes = []peer.Listed{{PID: 1, Name: "node"}} }, nil, 0},
		{"another user's", func() {
			processes = append(processes, peer.Listed{PID: 8, UID: 4, Name: gateway})
			now = now.Add(time.Hour)
		}, nil, 0},
		{"it starts", func() { processes = append(processes, peer.Listed{PID: 7, Name: gateway}) }, nil, 0},
		{"it has its time", func() { now = now.Add(29 * time.Second) }, nil, 0},
		{"the log takes nothing", func() { now, broken = now.Add(time.Second), errors.New("full") }, nil, 0},
		{"its time is over", func() { broken = nil }, []string{"alarm 7"}, 1},
		{"it is told once", func() { now = now.Add(time.Hour) }, nil, 1},
		{"another one's plugin does not count", func() { attached[Client{plugin.App, 1}] = true }, nil, 1},
		{"nor does another app of its process", func() { attached[Client{"@acme/else", 7}] = true }, nil, 1},
		{"the plugin connects", func() { attached[plugin] = true }, []string{"over 7 gated"}, 0},
		{"it is lost", func() { delete(attached, plugin) }, nil, 0},
		{"for long", func() { now = now.Add(time.Minute) }, []string{"alarm 7"}, 1},
		{"a second Gateway beside", func() { processes = append(processes, peer.Listed{PID: 9, Name: gateway}) }, nil, 1},
		{"has no plugin either", func() { now = now.Add(time.Minute) }, []string{"alarm 9"}, 2},
		{"one ends", func() { processes = processes[:3] }, []string{"over 9 gone"}, 1},
		{"no agent speaks by it any more", func() { bound = false }, []string{"over 7 unbound"}, 0},
		{"a runtime that was not put behind the daemon", func() {
			processes = []peer.Listed{{PID: 11, Name: "claude"}, {PID: 12, Name: "codex"}, {PID: 13, UID: 4, Name: "claude"}}
			now = now.Add(time.Hour)
		}, nil, 0},
		{"its gate holds", func() { held = map[string][]string{"claude-code": nil} }, nil, 0},
		{"its files are edited", func() { held["claude-code"] = []string{"settings.json: no hooks", "env"} }, nil, 0},
		{"for long enough", func() { now = now.Add(time.Minute) }, []string{"alarm 11 settings.json: no hooks; env"}, 1},
		{"in another way too", func() { held["claude-code"] = []string{"settings.json: other"} }, nil, 1},
		{"they are mended", func() { held["claude-code"] = nil }, []string{"over 11 gated"}, 0},
		{"the gate of another one is off", func() { held["codex"] = []string{"x"} }, nil, 0},
		{"for long too", func() { now = now.Add(time.Minute) }, []string{"alarm 12 x"}, 1},
		{"it is taken out", func() { delete(held, "codex") }, []string{"over 12 unbound"}, 0},
	}
	for _, s := range steps {
		said = nil
		s.do()
		w.Look(w.Grace)
		if !slices.Equal(said, s.want) || len(w.Ungated()) != s.now {
			t.Errorf("%s: said %q, want %q; %d ungated, want %d", s.name, said, s.want, len(w.Ungated()), s.now)
		}
	}
}
