package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// runners passes runs to the process that runs commands, and takes its reports of the
// results. There is one such process at a time.
type runners struct {
	d   *Daemon
	dir string

	mu sync.Mutex
	// peer is the runner's connection, nil while no runner is attached.
	peer  api.Peer
	queue []taskapi.RunnerChunk
	// more is signalled when something is queued.
	more chan struct{}
}

func newRunners(d *Daemon) *runners {
	return &runners{d: d, dir: filepath.Join(filepath.Dir(d.places.database), "runner"), more: make(chan struct{}, 1)}
}

// Attached reports whether there is a runner process.
func (r *runners) Attached() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peer != nil
}

// Start begins a run that is recorded as started. If no runner is attached, the next one gets it.
func (r *runners) Start(o taskservice.RunOrder) { r.tell(taskapi.RunnerChunk{Run: order(&o)}) }

// Kill ends a run's processes. If no runner is attached, the next one gets it.
func (r *runners) Kill(o taskservice.RunOrder) {
	ref := refOf(&o)
	r.tell(taskapi.RunnerChunk{Kill: &ref})
}

// Lives reports whether a process of a run may still be there.
func (r *runners) Lives(o taskservice.RunOrder) bool {
	l, err := r.ledger()
	return err != nil || l.Of(refOf(&o), o.StartedAt).Lives(o.Begun)
}

// ledger opens the runner's ledger.
func (r *runners) ledger() (*ledger.Ledger, error) {
	key, err := keyring.LedgerKey(r.d.places.keys())
	if err != nil {
		return nil, err
	}
	return ledger.Open(r.dir, key, time.Now())
}

func refOf(o *taskservice.RunOrder) taskapi.RunnerRef {
	return taskapi.RunnerRef{TaskID: o.TaskID, EffectID: o.EffectID, Run: o.Run}
}

func order(o *taskservice.RunOrder) *taskapi.RunnerOrder {
	return &taskapi.RunnerOrder{RunnerRef: refOf(o), Workspace: o.Workspace, Action: o.Action, Bound: o.Bound, Compensation: o.Compensation, StartedAt: o.StartedAt, Begun: o.Begun}
}

func (r *runners) tell(c taskapi.RunnerChunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer == nil {
		return
	}
	r.queue = append(r.queue, c)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// attach answers runner.attach. Nothing else tells the runner from another process of the daemon's
// user, so it must run the daemon's own program, which reports nothing but what it has run.
func (r *runners) attach(_ context.Context, p api.Peer, _ *taskapi.RunnerAttachParams) (ipc.Feed, error) {
	if uid, _, _ := p.Credentials(); int64(uid) != int64(os.Geteuid()) {
		return nil, api.Errorf(api.Forbidden, "the runner is the daemon's user's")
	}
	if err := p.Present(); err != nil {
		return nil, api.Errorf(api.Forbidden, "the process that connected is not who speaks")
	}
	l, err := r.ledger()
	if err != nil {
		return nil, err
	}
	exe, program := registry.Program(p)
	if program == "" || program != registry.OwnProgram() {
		refusal := api.Errorf(api.Forbidden, "the runner is `ocipd runner` of the same build as the daemon; after an upgrade restart both")
		return nil, errors.Join(r.note("runner_refused", audit.ResultDeny, p, exe, program), refusal)
	}
	if !r.occupy(p) {
		return nil, api.Errorf(api.Conflict, "a runner is attached already")
	}
	if err := r.note("runner_attached", audit.ResultAllow, p, exe, program); err != nil {
		r.vacate()
		return nil, err
	}
	return func(ctx context.Context, out api.Stream) error { return r.feed(ctx, out, l.Key()) }, nil
}

// occupy makes a connection the runner's, if there is no runner.
func (r *runners) occupy(p api.Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer != nil {
		return false
	}
	r.peer, r.queue = p, nil
	return true
}

// vacate ends the runner's part.
func (r *runners) vacate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peer = nil
}

// note records which program attaches, or tries to attach, as the runner.
func (r *runners) note(event, result string, p api.Peer, exe, program string) error {
	uid, _, _ := p.Credentials()
	process, _ := p.Process() // a process that cannot be seen has no name
	_, err := r.d.store.Commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: r.d.ids.next(), ActionType: audit.ActionSecurity, Event: event, PolicyResult: result,
		Details: map[string]any{"uid": uid, "process": process, "exe": exe, "program": program},
	}}})
	if err != nil {
		err = storeerror.NotRecorded("cannot record which process attaches as the runner", err)
	}
	return err
}

// feed tells the runner what to do, beginning with all runs that are recorded as started.
func (r *runners) feed(ctx context.Context, out api.Stream, key []byte) error {
	defer r.vacate()
	if err := out.Send(ctx, taskapi.RunnerChunk{Directory: r.dir, Key: key}); err != nil {
		return err
	}
	orders, err := r.d.tasks.Load().Orders(ctx)
	if err != nil {
		return err
	}
	// A run that started after the runner attached can be among these and in the queue too.
	listed := map[taskapi.RunnerRef]bool{}
	for i := range orders {
		run := order(&orders[i])
		listed[run.RunnerRef] = true
		if err := out.Send(ctx, taskapi.RunnerChunk{Run: run}); err != nil {
			return err
		}
		if orders[i].KillAsked {
			if err := out.Send(ctx, taskapi.RunnerChunk{Kill: &run.RunnerRef}); err != nil {
				return err
			}
		}
	}
	for {
		r.mu.Lock()
		queue := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, c := range queue {
			if c.Run != nil && listed[c.Run.RunnerRef] {
				continue
			}
			if err := out.Send(ctx, c); err != nil {
				return err
			}
		}
		select {
		case <-r.more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report answers runner.report. Only the runner knows about its runs: a report on another
// connection than that of runner.attach is anybody's.
func (r *runners) report(ctx context.Context, p api.Peer, said *taskapi.RunnerReportParams) (api.OK, error) {
	r.mu.Lock()
	attached := r.peer == p
	r.mu.Unlock()
	if !attached {
		return api.OK{}, api.Errorf(api.Forbidden, "a run is reported on the connection with the stream of runner.attach")
	}
	if err := p.Present(); err != nil {
		return api.OK{}, api.Errorf(api.Forbidden, "the process that connected is not who speaks")
	}
	t := r.d.tasks.Load()
	switch said.Event {
	case taskapi.RunnerWaits:
		if !isStartedBy(p, said.Process) {
			return api.OK{}, api.Errorf(api.Forbidden, "the runner has not started process %.64q", said.Process)
		}
		if err := t.Waiting(ctx, said.TaskID, said.EffectID, said.Run, said.Process); err != nil {
			return api.OK{}, err
		}
		return api.OK{OK: true}, r.waits(said)
	case taskapi.RunnerWithdrawn:
		return api.OK{OK: true}, t.Spawned(ctx, said.TaskID, said.EffectID, said.Run, 0, said.Process)
	case taskapi.RunnerSpawned:
		return api.OK{OK: true}, t.Spawned(ctx, said.TaskID, said.EffectID, said.Run, said.PID, "")
	default:
		return api.OK{OK: true}, t.Finished(ctx, said.TaskID, said.EffectID, said.Run, said.State, said.Evidence, said.Receipt)
	}
}

// isStartedBy reports whether a process of a name comes from a peer's process.
func isStartedBy(p api.Peer, name string) bool {
	_, _, runner := p.Credentials()
	return slices.ContainsFunc(peer.Descendants(int(runner)), func(pid int) bool {
		started, err := peer.NameOf(pid)
		return err == nil && started == name
	})
}

// waits excludes a process that is about to run a command, and its descendants, from the
// operator socket.
func (r *runners) waits(said *taskapi.RunnerReportParams) error {
	change := &store.Change{Drains: true, Records: []*audit.Record{{
		ID: r.d.ids.next(), ActionType: audit.ActionSecurity, Event: "effect_process", TaskID: said.TaskID, PolicyResult: audit.ResultAllow,
		Details: map[string]any{"effect_id": said.EffectID, "run": said.Run, "process": said.Process},
	}}}
	if err := r.d.kernel.Processes.NoteStarted("effect "+said.EffectID, said.Process, change); err != nil {
		return err
	}
	if _, err := r.d.store.Commit(change); err != nil {
		return storeerror.NotRecorded("cannot record which process runs the command, so it is not run", err)
	}
	return nil
}
