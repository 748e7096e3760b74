package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"golang.org/x/sys/unix"
)

// Options are the inputs of a runner.
type Options struct {
	// Dial connects to the operator socket.
	Dial func(context.Context) (*client.Client, error)
	// Env is the environment from which commands may get variables, as os.Environ.
	Env []string
	// Say reports progress to a person.
	Say func(format string, args ...any)
	Now func() time.Time
}

// again is the pause before the runner tries again.
const again = time.Second

// lookAgain is the pause before the runner returns to a run whose ledger it could not use.
const lookAgain = 10 * time.Second

// maxTries bounds the shims started for a run that none of them claims.
const maxTries = 3

type runner struct {
	o   Options
	ctx context.Context
	// running are the runs in the runner's care. lock keeps other runners out.
	mu      sync.Mutex
	running map[taskapi.RunnerRef]*ledger.Run
	ledger  *ledger.Ledger
	lock    *os.File
	// link is the connection, and linked is closed when there is one.
	link   *client.Client
	linked chan struct{}
	wait   sync.WaitGroup
}

// Run runs the daemon's orders until the context ends, even if the daemon restarts.
// Commands continue after it returns.
func Run(ctx context.Context, o Options) error {
	r := &runner{o: o, ctx: ctx, running: make(map[taskapi.RunnerRef]*ledger.Run), linked: make(chan struct{})}
	defer r.wait.Wait()
	said := ""
	for {
		err := r.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if e, ok := errors.AsType[*api.Error](err); ok && (e.Code == api.Forbidden || e.Code == api.InvalidParams || e.Code == api.MethodNotFound) {
			return err
		}
		if why := fmt.Sprint(err); why != said {
			o.Say("the daemon is away: %s", why)
			said = why
		}
		if r.pause(again) != nil {
			return nil
		}
	}
}

// serve uses one connection.
func (r *runner) serve(ctx context.Context) error {
	c, err := r.o.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	// The next connection needs a new link.
	defer r.unlink()
	stream, err := c.Stream(ctx, "runner.attach", &taskapi.RunnerAttachParams{})
	if err != nil {
		return err
	}
	for {
		raw, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		var chunk taskapi.RunnerChunk
		if err := json.Unmarshal(raw, &chunk); err != nil {
			return err
		}
		switch {
		case chunk.Directory != "":
			if err := r.begin(chunk.Directory, chunk.Key); err != nil {
				return err
			}
			r.relink(c)
			r.o.Say("ready: the ledger is %s", chunk.Directory)
		case chunk.Run != nil:
			r.take(chunk.Run)
		case chunk.Kill != nil:
			ref := *chunk.Kill
			r.wait.Go(func() { r.kill(ref) })
		}
	}
}

// begin opens the ledger, which only one runner can use at a time.
func (r *runner) begin(dir string, key []byte) (err error) {
	if r.ledger != nil && r.ledger.Dir() == dir {
		r.ledger = ledger.At(dir, key)
		return nil
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot use the ledger: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close() //nolint:errcheck // nothing was written
		return fmt.Errorf("another runner has the ledger %s: %w", dir, err)
	}
	r.ledger, r.lock = ledger.At(dir, key), lock
	return nil
}

func (r *runner) relink(c *client.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = c
	close(r.linked)
}

func (r *runner) unlink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil {
		r.link, r.linked = nil, make(chan struct{})
	}
}

// refused reports whether the daemon refuses the report. Other errors, such as a full disk,
// may go away.
func refused(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && slices.Contains([]api.Code{api.Forbidden, api.InvalidParams, api.MethodNotFound, api.NotFound, api.Conflict}, e.Code)
}

// report reports to the daemon, and waits until it is there. The error is the daemon's
// refusal, or that the runner ends.
func (r *runner) report(p *taskapi.RunnerReportParams) error {
	for {
		r.mu.Lock()
		c, linked := r.link, r.linked
		r.mu.Unlock()
		if c == nil {
			select {
			case <-r.ctx.Done():
				return r.ctx.Err()
			case <-linked:
				continue
			}
		}
		if err := c.Call(r.ctx, "runner.report", p, nil); err == nil || refused(err) {
			return err
		}
		if err := r.pause(again); err != nil {
			return err
		}
	}
}

// take looks after a run, unless this runner does so already.
func (r *runner) take(o *taskapi.RunnerOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[o.RunnerRef] != nil {
		return
	}
	run := r.ledger.Of(o.RunnerRef, o.StartedAt)
	r.running[o.RunnerRef] = run
	r.wait.Go(func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.running, o.RunnerRef)
		}()
		for {
			other, err := another(run)
			if err == nil && other != nil {
				err = r.report(other)
			} else if err == nil {
				err = r.account(o, run)
			}
			if err == nil || r.ctx.Err() != nil {
				return
			}
			r.o.Say("run %d of %s: %v", o.Run, o.EffectID, err)
			// Nobody else looks after the run while this runner is attached.
			if refused(err) || r.pause(lookAgain) != nil {
				return
			}
		}
	})
}

// account brings a run to its end from any state, and reports it.
func (r *runner) account(o *taskapi.RunnerOrder, run *ledger.Run) error {
	told, ended := false, ""
	for tries := 0; ; {
		h, err := run.Holder()
		if err != nil {
			return err
		}
		var p ledger.Process
		known, err := run.Get(ledger.ProcessFile, &p)
		if errors.Is(err, ledger.ErrUnsealed) || h.Held && h.Shim == 0 {
			return r.finish(run, task.EffectUncertain, "it left no result that counts: the ledger has a process or a claim for it without the runner's seal, of another program or an earlier version", receipt{StartedAt: o.StartedAt})
		}
		if err == nil && known && !told {
			told = true
			err = r.report(&taskapi.RunnerReportParams{RunnerRef: o.RunnerRef, Event: taskapi.RunnerSpawned, PID: p.PID})
		}
		if err != nil {
			return err
		}
		// Without its claim, it is still on record with its shim.
		if h.Held || ledger.Running(o.Begun) {
			if err := r.pause(shimEvery); err != nil {
				return err
			}
			continue
		}
		end, found, err := r.result(run)
		switch {
		case err != nil:
			return err
		case found:
			return r.finish(run, end.State, "", end.Receipt)
		case known:
			return r.finish(run, task.EffectUncertain, evidence(run, &p), receipt{StartedAt: p.At})
		case h.There:
			// Its shim is gone, and it had no process, so it did not run.
			if err := os.Remove(run.Path(ledger.ClaimFile)); err != nil {
				return err
			}
			continue
		}
		since, err := run.Since()
		if err != nil {
			return err
		}
		if o.StartedAt.Before(since) {
			return r.finish(run, task.EffectUncertain, "the runner's ledger is younger than the start, and knows nothing of it: was it restored from a backup?", receipt{StartedAt: o.StartedAt})
		}
		if err := r.withdraw(run, ended); err != nil {
			return err
		}
		if tries++; tries > maxTries {
			return r.finish(run, task.EffectFailed, "", receipt{StartedAt: o.StartedAt, NotBegun: true, Error: "the runner cannot start a process for it"})
		}
		if ended, err = r.start(o, run); err != nil {
			return err
		}
	}
}

// finish reports how a run has ended, and removes its files that say no more.
func (r *runner) finish(run *ledger.Run, state, evidence string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(run.Path(ledger.InputsDir)); err != nil {
		return err
	}
	r.o.Say("run %d of %s is %s", run.Run, run.EffectID, state)
	err = r.report(&taskapi.RunnerReportParams{RunnerRef: run.RunnerRef, Event: taskapi.RunnerFinished, State: state, Evidence: evidence, Receipt: jsontext.Value(text)})
	if err == nil {
		os.Remove(run.Path(ledger.StdoutFile)) //nolint:errcheck // it was reported
		os.Remove(run.Path(ledger.StderrFile)) //nolint:errcheck // it was reported
	}
	return err
}

// result is the result that a run's shim has left. One that somebody else has left is none.
func (r *runner) result(run *ledger.Run) (end result, found bool, err error) {
	found, err = run.Get(ledger.ResultFile, &end)
	if errors.Is(err, ledger.ErrUnsealed) {
		r.o.Say("run %d of %s: a result does not count: %v", run.Run, run.EffectID, err)
		err = nil
	}
	return end, found, err
}

// withdraw tells the daemon that the process that waited for a run's command has ended without it, so
// that another one may begin it. Ended is that process if this runner has seen its end; one that an
// earlier runner has started says so itself.
func (r *runner) withdraw(run *ledger.Run, ended string) error {
	w := ledger.Withdrawal{Process: ended}
	if ended == "" {
		found, err := run.Get(ledger.WithdrawnFile, &w)
		if errors.Is(err, ledger.ErrUnsealed) || err == nil && !found {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return r.report(&taskapi.RunnerReportParams{RunnerRef: run.RunnerRef, Event: taskapi.RunnerWithdrawn, Process: w.Process})
}

// another returns the report of a run whose number an earlier run had: the files of that one say
// nothing about it. It returns nil for any other run.
func another(run *ledger.Run) (*taskapi.RunnerReportParams, error) {
	is, err := run.IsOf()
	if err != nil || is {
		return nil, err
	}
	text, err := json.Marshal(receipt{StartedAt: run.StartedAt})
	return &taskapi.RunnerReportParams{
		RunnerRef: run.RunnerRef, Event: taskapi.RunnerFinished, State: task.EffectUncertain, Receipt: jsontext.Value(text),
		Evidence: "it was not run: the runner's ledger has another run of this number, of before the daemon's state was restored",
	}, err
}

// shimEvery is the interval of checks for the end of a shim that another runner process started.
const shimEvery = 100 * time.Millisecond

func (r *runner) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-timer.C:
		return nil
	}
}

// start has a shim run a command, and returns when the shim has ended. The daemon learns of
// the shim's process before the shim gets its order, so that no process of the run can
// operate the daemon. Ended names the process if it was let begin the command, and did not.
func (r *runner) start(o *taskapi.RunnerOrder, run *ledger.Run) (ended string, err error) {
	own, err := json.Marshal(run)
	text, failed := json.Marshal(&shimOrder{RunnerOrder: *o, Env: r.variables(o)})
	if err := errors.Join(err, failed); err != nil {
		return "", err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer from.Close()
	cmd := itself("shim")
	cmd.ExtraFiles, cmd.SysProcAttr, cmd.Dir = []*os.File{to}, &unix.SysProcAttr{Setsid: true}, "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	to.Close() //nolint:errcheck // the shim has it
	if err != nil {
		return "", err
	}
	name, err := peer.NameOf(cmd.Process.Pid)
	if err == nil {
		_, err = in.Write(own)
	}
	if err == nil {
		err = r.report(&taskapi.RunnerReportParams{RunnerRef: o.RunnerRef, Event: taskapi.RunnerWaits, Process: name})
	}
	begun, spawned := err == nil, false
	if begun {
		_, err = in.Write(text)
	}
	err = errors.Join(err, in.Close())
	done := make(chan struct{})
	// If the runner ends first, nobody waits for the shim.
	go func() {
		// The shim writes its command's process id, before the command begins.
		lines := bufio.NewScanner(from)
		for lines.Scan() {
			spawned = true
			if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
				_ = r.report(&taskapi.RunnerReportParams{RunnerRef: o.RunnerRef, Event: taskapi.RunnerSpawned, PID: pid}) // the end says it too
			}
		}
		_ = cmd.Wait() // the result is in the ledger
		close(done)
	}()
	select {
	case <-done:
	case <-r.ctx.Done():
		return "", r.ctx.Err()
	}
	if begun && !spawned {
		return name, nil
	}
	return "", err
}

// variables are those of the runner that a command gets.
func (r *runner) variables(o *taskapi.RunnerOrder) map[string]string {
	env := make(map[string]string)
	for _, name := range append([]string{"HOME", "USER", "LOGNAME", "LANG", "TZ"}, o.Action.EnvFrom...) {
		for _, v := range r.o.Env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				env[name] = value
			}
		}
	}
	return env
}

// kill tells a run's shim to end its command, as soon as there is a shim. The daemon lets no command
// begin that is to end.
func (r *runner) kill(ref taskapi.RunnerRef) {
	for {
		run := r.runs(ref)
		if run == nil {
			return
		}
		h, err := run.Holder()
		if err == nil && h.Held && h.Shim > 0 {
			err = unix.Kill(h.Shim, unix.SIGTERM)
		} else if err == nil && r.pause(shimEvery) == nil {
			continue
		}
		if err != nil {
			r.o.Say("cannot end run %d of %s: %v", ref.Run, ref.EffectID, err)
		}
		return
	}
}

// runs returns a run that is in the runner's care, or nil.
func (r *runner) runs(ref taskapi.RunnerRef) *ledger.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[ref]
}

// evidence is shown to the person who decides about a run with an unknown outcome.
func evidence(run *ledger.Run, p *ledger.Process) string {
	var b strings.Builder
	fmt.Fprintf(&b, "its command was process %d from %s, and left no result", p.PID, p.At.Format(time.RFC3339))
	boot, err := peer.Boot()
	switch {
	case err == nil && boot != p.Boot:
		b.WriteString("; the system has started anew since")
	case run.Lives(p.Shim):
		b.WriteString("; a process of it is still there")
	default:
		b.WriteString("; no process of it is there any more")
	}
	for _, kind := range []string{ledger.StdoutFile, ledger.StderrFile} {
		if text := tail(run.Path(kind)); text != "" {
			fmt.Fprintf(&b, "\nthe end of what it wrote to std%s:\n%s", kind, text)
		}
	}
	return b.String()
}

// shownTail bounds the end of an output in the evidence.
const shownTail = 2 << 10

func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > shownTail {
		if _, err := f.Seek(-shownTail, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, shownTail))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(text)), "�")
}
