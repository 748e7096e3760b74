// Package runtimewatch watches the processes of agent runtimes that a plugin inside them or
// entries in their files gate. For a runtime with a plugin, only the plugin's connection
// shows that it is gated: if the plugin is missing, disabled, broken or not connected,
// nobody decides about its agents' messages. The same is true if a runtime's files differ
// from the entries.
package runtimewatch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Kind is a watched runtime.
type Kind struct {
	// App is the app of its plugin, or for a runtime gated by its files the runtime's name.
	// Title is the name for people.
	App, Title string
	// Files is set if its files gate it.
	Files bool
	// Process is the name of its process, cut to 15 bytes by the system.
	Process string
}

// Kinds are the known kinds.
func Kinds() []Kind {
	kinds := []Kind{
		{App: "@openclaw/gateway", Process: "openclaw-gatewa"},
		{App: "claude-code", Process: "claude", Files: true},
		{App: "codex", Process: "codex", Files: true},
		{App: "opencode", Process: "opencode", Files: true},
	}
	for i := range kinds {
		kinds[i].Title = directory.RuntimeOf(kinds[i].App)
	}
	return kinds
}

// Ungated is a process without a gate.
type Ungated struct {
	Kind
	PID int
	// Since is the time of the first observation.
	Since time.Time
	// Why describes the differences in its files; "" for a plugin.
	Why string
}

// Client is an app with the process that has connected it.
type Client struct {
	App string
	PID int
}

// Options are the inputs of a watch.
type Options struct {
	// Every is the interval of checks. Grace is how long a process may be without its
	// plugin, because it or the daemon may be starting.
	Every, Grace time.Duration
	// Processes returns the machine's processes.
	Processes func() []peer.Listed
	// UID is the user whose processes are watched; other users' are their own affair.
	UID int
	// Bound reports whether agents of the configuration are bound to an app. Attached
	// returns the connected apps with their processes.
	Bound    func(app string) bool
	Attached func() map[Client]bool
	// Held returns for each runtime gated by its files the differences from the entries;
	// none if all is well. It omits runtimes that were not integrated.
	Held func() map[string][]string
	// Alarm is called once for each process found ungated, and Over when that has ended. If
	// a call fails, the next check repeats it.
	Alarm func(Ungated) error
	Over  func(u Ungated, how End) error
	Now   func() time.Time
}

// End is how an ungated process ceased to be one.
type End string

// Its plugin has connected; the process is gone; or no agent of the configuration is bound
// to its app any more, so nobody watches it.
const (
	Gated   End = "gated"
	Gone    End = "gone"
	Unbound End = "unbound"
)

// Watch checks processes until its context ends.
type Watch struct {
	Options
	// looking is held during a check: an older list of processes must not undo a newer one.
	looking sync.Mutex
	mu      sync.Mutex
	// seen are the processes found without their plugin, and told those for which the alarm
	// was raised.
	seen map[int]Ungated
	told map[int]bool
}

// New returns a watch.
func New(o Options) *Watch {
	return &Watch{Options: o, seen: make(map[int]Ungated), told: make(map[int]bool)}
}

// Run checks repeatedly.
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

// Ungated returns the processes for which the alarm was raised.
func (w *Watch) Ungated() (list []Ungated) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range w.told {
		list = append(list, w.seen[pid])
	}
	slices.SortFunc(list, func(a, b Ungated) int { return cmp.Compare(a.PID, b.PID) })
	return list
}

// Look checks once, and raises the alarm for a process whose grace is over.
func (w *Watch) Look(grace time.Duration) {
	w.looking.Lock()
	defer w.looking.Unlock()
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
		// A record takes as long as the disk, so callers of Ungated must not wait for it.
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

// step is a pending call of Alarm or Over.
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

// bound reports whether processes of a kind are watched.
func (w *Watch) bound(k Kind, held map[string][]string) bool {
	if k.Files {
		_, ok := held[k.App]
		return ok
	}
	return w.Bound(k.App)
}

// running returns the running processes of watched kinds.
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
