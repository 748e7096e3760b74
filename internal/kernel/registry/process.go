package registry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Processes remembers the processes of apps and of actors of tasks, also over restarts. They decide nothing on the
// operator socket, even after they have closed their connection. An ended process can be forgotten,
// since its name never returns; a running one is never forgotten.
type Processes struct {
	boot string
	runs func(process string) bool

	mu   sync.Mutex
	apps map[string]appProcess
	// full is the number at which ended processes are removed, and stale are those whose rows the
	// store still has, the next to go first.
	full  int
	stale []store.EndedProcess
	// restored is the daemon that first ran on a restored state in this boot, if nothing is known of
	// the apps that had registered with the state before. It is "" otherwise.
	restored string
	// restorers are the processes from which somebody restored it: that person's terminal, and what started it.
	restorers map[string]bool
	// signs reports whether people sign what they decide: then an app that operates decides nothing.
	signs func() bool
	terms func() *Terms
	now   func() time.Time
	log   *zap.Logger
}

// appProcess is the app of a process, now or earlier, and whether the store has it.
type appProcess struct {
	app     string
	written bool
}

const (
	// someProcesses is the number at which ended processes are first removed, and maxProcesses the
	// limit of running ones.
	someProcesses = 1024
	maxProcesses  = 32768
	// endTogether bounds the ended processes whose rows leave the store with a new one: the record of
	// the new one states each.
	endTogether = 32
)

func (p *Processes) load(ctx context.Context, o *Options) error {
	p.boot, p.runs, p.signs, p.terms, p.now, p.log = o.Boot, o.Runs, o.Signs, o.Terms, o.Now, o.Log
	if p.runs == nil {
		p.runs = func(string) bool { return true }
	}
	p.apps, p.restorers, p.full = make(map[string]appProcess), make(map[string]bool), someProcesses
	rows, err := o.Store.AppProcesses(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Boot == p.boot && row.App == restoration {
			p.restored = row.Name
		} else if row.Boot == p.boot && row.App == store.RestoringSession {
			p.restorers[row.Name] = true
		} else if row.Boot == p.boot && p.runs(row.Name) {
			p.apps[row.Name] = appProcess{row.App, true}
		} else {
			p.stale = append(p.stale, store.EndedProcess{Boot: row.Boot, Name: row.Name})
		}
	}
	return nil
}

// app returns the app of a process, now or earlier.
func (p *Processes) app(process string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.apps[process]
	return found.app, ok
}

// written notes that the store has a process.
func (p *Processes) written(process string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.apps[process]; ok {
		p.apps[process] = appProcess{found.app, true}
	}
}

// gone notes that the store has no ended processes of [Processes.add] any more.
func (p *Processes) gone(ended []store.EndedProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Another change may have ended them too.
	for ; len(ended) > 0 && len(p.stale) > 0 && p.stale[0] == ended[0]; ended = ended[1:] {
		p.stale = p.stale[1:]
	}
}

// add remembers a process. It reports whether the store needs it, which ended ones the store is to
// forget with it, and whether there was room.
func (p *Processes) add(process, app string) (fresh bool, ended []store.EndedProcess, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, known := p.apps[process]; known {
		return !found.written, nil, true
	}
	if len(p.apps) >= p.full {
		for name := range p.apps {
			if !p.runs(name) {
				delete(p.apps, name)
				p.stale = append(p.stale, store.EndedProcess{Boot: p.boot, Name: name})
			}
		}
		p.full = max(someProcesses, 2*len(p.apps))
	}
	if len(p.apps) >= maxProcesses {
		return false, nil, false
	}
	p.apps[process] = appProcess{app: app}
	return true, slices.Clone(p.stale[:min(len(p.stale), endTogether)]), true
}

// restoration is the entry of [Processes.restored]. No app's id has a blank.
const restoration = "the restored state"

// TakeOver remembers the processes that a state had which a restored one replaces, and returns the
// rows of them: the restored state may not know each app that still runs. If all is not set, there
// can be others, and own is the process of this daemon, which none of those started after.
func (p *Processes) TakeOver(former []store.AppProcess, all bool, own string) (rows []store.Part) {
	take := func(name, app string) {
		rows = append(rows, store.AppProcess{Boot: p.boot, Name: name, App: app, At: p.now()})
	}
	for _, one := range former {
		if one.Boot != p.boot {
			continue
		}
		if one.App == restoration {
			p.restored = one.Name
			take(one.Name, one.App)
		} else if one.App == store.RestoringSession {
			p.restorers[one.Name] = true
			take(one.Name, one.App)
		} else if p.runs(one.Name) {
			if fresh, _, ok := p.add(one.Name, one.App); !ok {
				all = false
			} else if fresh {
				take(one.Name, one.App)
			}
		}
	}
	if !all {
		p.restored = own
		take(own, restoration)
	}
	return rows
}

// actorPrefix begins the entry of an actor of tasks. No app's id has a blank.
const actorPrefix = "actor "

// called formats the entry of a process for people.
func called(who string) string {
	if strings.HasPrefix(who, actorPrefix) {
		return who
	}
	return "app " + who
}

// NoteActor remembers that the process of a connection belongs to an actor of tasks, permanently
// with the change, and returns its name. Written is set if the store has it already.
func (p *Processes) NoteActor(actor string, peer api.Peer, c *store.Change) (process string, written bool, err error) {
	before := len(c.Parts)
	process, err = p.note(actorPrefix+actor, peer, c)
	c.OnDurable(func(store.Receipt) { p.written(process) })
	return process, len(c.Parts) == before, err
}

// NoteStarted remembers that a process without a connection belongs to a task, permanently with the
// change. Its name is as [api.Peer.Process] has it.
func (p *Processes) NoteStarted(what, process string, c *store.Change) error {
	if !p.runs(process) {
		return api.Errorf(api.InvalidParams, "process: %.64q does not run", process)
	}
	return p.remember(actorPrefix+what, process, c)
}

// note remembers that the process of a connection belongs to an app or an actor, in memory
// at once and permanently with the change, and returns its name. It refuses a process that has
// ended, and one that is not the process that connected: a process that cannot be recognized again
// could approve its own requests.
func (p *Processes) note(who string, peer api.Peer, c *store.Change) (process string, err error) {
	if err := peer.Present(); err != nil {
		p.log.Warn("somebody registers from a process that is not who connected: refused", zap.String("who", called(who)), zap.Error(err))
		return "", api.Errorf(api.Forbidden, "%s must speak from the process that connected: that one has ended, has become another program, or another process uses its connection", called(who))
	}
	if process, err = peer.Process(); err != nil {
		p.log.Warn("cannot tell which process registers: refused", zap.String("who", called(who)), zap.Error(err))
		return "", api.Errorf(api.Forbidden, "the kernel cannot tell which process %s is", called(who))
	}
	if process == "" {
		// The operator socket cannot identify it either, and refuses it for that.
		return "", nil
	}
	return process, p.remember(who, process, c)
}

// remember enters a process, in memory at once and permanently with the change.
func (p *Processes) remember(who, process string, c *store.Change) error {
	fresh, ended, ok := p.add(process, who)
	if !ok {
		return api.Errorf(api.Forbidden, "the kernel knows its limit of %d processes of apps and actors", maxProcesses)
	}
	if len(ended) > 0 {
		c.Add(store.EndedProcesses(ended))
		c.OnDurable(func(store.Receipt) { p.gone(ended) })
	}
	if fresh {
		c.Add(store.AppProcess{Boot: p.boot, Name: process, App: who, At: p.now()})
	}
	return nil
}

// MayOperate reports whether a process may use the operator socket. It refuses the process of a
// registered app, one that such a process started, and one that uses another's connection. It is
// asked at each request. It does not detect a process that hides. If that is not enough, sign
// decisions, or run the app where it cannot reach the socket.
func (p *Processes) MayOperate(peer api.Peer) error {
	if p.terms().AppsMayOperate {
		return nil
	}
	if err := peer.Present(); err != nil {
		p.log.Warn("somebody operates who did not connect: refused", zap.Error(err))
		return api.Errorf(api.Forbidden, "the process that connected to the operator socket is not who speaks on it, so the kernel cannot tell it from an app")
	}
	line, err := peer.Ancestors()
	if err != nil {
		p.log.Warn("cannot tell where an operator comes from: refused", zap.Error(err))
		return api.Errorf(api.Forbidden, "the kernel cannot tell which process this is, so it cannot tell it from an app")
	}
	return p.MayOperateFrom(line)
}

// MayOperateFrom is [Processes.MayOperate] for a process without a connection. The line names the
// process, its parent and so on.
func (p *Processes) MayOperateFrom(line []string) error {
	if p.terms().AppsMayOperate {
		return nil
	}
	for _, process := range line {
		if app, ok := p.app(process); ok {
			return api.Errorf(api.Forbidden, "this process is %s or was started by it (process %s); apps and actors of tasks do not operate the daemon", called(app), process)
		}
	}
	if p.restored == "" || p.signs() {
		return nil
	}
	// An app that registered before the restoration can still run, and no row names it.
	older, err := peer.OlderThan(line, p.restored)
	if err != nil {
		p.log.Warn("cannot tell since when an operator runs: refused", zap.Error(err))
		return api.Errorf(api.Forbidden, "the kernel cannot tell since when this process runs, so it cannot tell it from an app")
	}
	if older != "" && !p.restorers[older] {
		return api.Errorf(api.Forbidden, "the state was restored, and nothing is known of the apps that registered before, so a session from before that did not restore it does not operate the daemon (process %s): use a new terminal, or set approvals.allowed_signers", older)
	}
	return nil
}
