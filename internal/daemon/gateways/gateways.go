// Package gateways watches the processes of agent runtimes that are gated by a plugin inside of
// them, or by what was entered into their files. Nothing but the plugin's connection tells
// that one with a plugin is gated: where such a process runs and the plugin in it is missing,
// disabled, broken or not connected, its agents send what nobody decides about. So do those of one
// that runs while its files say something else than was entered.
package gateways

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
)

// Kind is a runtime that is watched.
type Kind struct {
	// App is the app of its plugin, or its own name where it is gated by its files, and Title
	// what people call it.
	App, Title string
	// Files is set where it is gated by its files.
	Files bool
	// Process is what its process calls itself, cut to 15 bytes by the system.
	Process string
}

// Kinds are those that are known.
func Kinds() []Kind {
	return []Kind{
		{App: "@openclaw/gateway", Title: "OpenClaw", Process: "openclaw-gatewa"},
		{App: "claude-code", Title: "Claude Code", Process: "claude", Files: true},
		{App: "codex", Title: "Codex", Process: "codex", Files: true},
	}
}

// Ungated is a process whose agents' messages nobody decides about.
type Ungated struct {
	Kind
	PID int
	// Since is when that was first seen.
	Since time.Time
	// Why says what its files say in place of what was entered, "" where it has a plugin.
	Why string
}

// Client is an app that a process has connected.
type Client struct {
	App string
	PID int
}

// Options is what a watch is made from.
type Options struct {
	// Every is how often is looked, and Grace for how long a process may be without its
	// plugin: it starts, or the daemon did.
	Every, Grace time.Duration
	// Processes are those of the machine.
	Processes func() []peer.Listed
	// UID is the user whose processes are looked at: what others run is theirs.
	UID int
	// Bound reports whether agents of the configuration speak by an app, and Attached
	// which apps are connected, and by which process.
	Bound    func(app string) bool
	Attached func() map[Client]bool
	// Held says of each runtime that is gated by its files what does not stand there as it was
	// entered: nothing where all does. One that was not put behind the daemon is not among them.
	Held func() map[string][]string
	// Alarm is told of each process that is found ungated, once, and Over when that has
	// ended, and how. What cannot be told is told at the next look.
	Alarm func(Ungated) error
	Over  func(u Ungated, how End) error
	Now   func() time.Time
}

// End is how it ended that a process was ungated.
type End string

// Its plugin is connected; it is gone; no agent of the configuration speaks by its app any
// more, so that nobody looks.
const (
	Gated   End = "gated"
	Gone    End = "gone"
	Unbound End = "unbound"
)

// Watch looks at processes until its context ends.
type Watch struct {
	Options
	mu sync.Mutex
	// seen are the processes that were found without their plugin, and told those of them
	// that the alarm was raised for.
	seen map[int]Ungated
	told map[int]bool
}

// New makes a watch.
func New(o Options) *Watch {
	return &Watch{Options: o, seen: make(map[int]Ungated), told: make(map[int]bool)}
}

// Run looks again and again.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(w.Every)
	defer ticker.Stop()
	for {
		w.Look(w.Grace)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Ungated are the processes that the alarm is raised for.
func (w *Watch) Ungated() (list []Ungated) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range w.told {
		list = append(list, w.seen[pid])
	}
	slices.SortFunc(list, func(a, b Ungated) int { return cmp.Compare(a.PID, b.PID) })
	return list
}

// Look looks once, and raises the alarm for a process that has had its time. One caller
// looks at a time.
func (w *Watch) Look(grace time.Duration) {
	held := w.Held()
	running := w.running(held)
	var attached map[Client]bool
	if len(running) > 0 {
		attached = w.Attached()
	}
	for pid, kind := range running {
		if kind.Files && len(held[kind.App]) == 0 {
			attached[Client{kind.App, pid}] = true
		}
	}
	for _, s := range w.steps(running, attached, held, grace) {
		// What is told takes as long as the disk does, and nobody who asks waits for it.
		switch {
		case s.alarm:
			if w.Alarm(s.Ungated) == nil {
				w.tell(s.PID)
			}
		case !s.told || w.Over(s.Ungated, s.end) == nil:
			w.forget(s.PID)
		}
	}
}

// step is what has to be done about a process: the alarm is raised, or it is over.
type step struct {
	Ungated
	alarm, told bool
	end         End
}

func (w *Watch) steps(running map[int]Kind, attached map[Client]bool, held map[string][]string, grace time.Duration) (list []step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	for pid, kind := range running {
		if _, known := w.seen[pid]; !known && !attached[Client{kind.App, pid}] {
			w.seen[pid] = Ungated{Kind: kind, PID: pid, Since: now}
		}
		if u, known := w.seen[pid]; known {
			u.Why = strings.Join(held[kind.App], "; ")
			w.seen[pid] = u
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(w.seen)) {
		u := w.seen[pid]
		_, runs := running[pid]
		switch {
		case !w.bound(u.Kind, held):
			list = append(list, step{Ungated: u, told: w.told[pid], end: Unbound})
		case !runs:
			list = append(list, step{Ungated: u, told: w.told[pid], end: Gone})
		case attached[Client{u.App, pid}]:
			list = append(list, step{Ungated: u, told: w.told[pid], end: Gated})
		case !w.told[pid] && now.Sub(u.Since) >= grace:
			list = append(list, step{Ungated: u, alarm: true})
		}
	}
	return list
}

func (w *Watch) tell(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[pid] = true
}

func (w *Watch) forget(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, pid)
	delete(w.told, pid)
}

// bound reports whether processes of a kind are looked at.
func (w *Watch) bound(k Kind, held map[string][]string) bool {
	if k.Files {
		_, ok := held[k.App]
		return ok
	}
	return w.Bound(k.App)
}

// running are the watched processes that run.
func (w *Watch) running(held map[string][]string) map[int]Kind {
	var kinds []Kind
	for _, k := range Kinds() {
		if w.bound(k, held) {
			kinds = append(kinds, k)
		}
	}
	found := make(map[int]Kind)
	if len(kinds) == 0 {
		return found
	}
	for _, p := range w.Processes() {
		if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Process == p.Name && p.UID == w.UID }); i >= 0 {
			found[p.PID] = kinds[i]
		}
	}
	return found
}
