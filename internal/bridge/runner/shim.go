package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"golang.org/x/sys/unix"
)

const (
	// keptOutput is how much of the beginning of each output is kept, and usualTime how long a command may
	// take that does not say.
	keptOutput = 64 << 10
	// keptEnd is how much of the end of an output that is longer is kept at least.
	keptEnd   = 4 << 10
	usualTime = 10 * time.Minute
	// killAfter is how long a command has between being asked to end and being killed, and
	// leftFor how long is waited for what it has left behind and was killed: another user's
	// process may not be.
	killAfter = 10 * time.Second
	leftFor   = 10 * time.Second
	// outputHeld is how long is waited for its output once all of it has ended: a process of
	// somebody else's may have it open too, and never close it.
	outputHeld = 2 * time.Second
	// firstExtra is the first file descriptor that a process is given beside the usual.
	firstExtra = 3
)

// shimOrder is what a shim is told.
type shimOrder struct {
	taskapi.RunnerOrder
	Ledger string `json:"ledger"`
	// Env is what the command's environment has of the runner's.
	Env map[string]string `json:"env"`
}

// Shim runs one command. It reads what to run from in, and says the command's process id
// on its first extra file. It returns once the result is on disk, or where another shim
// has the run. What comes from ended has the command ended; no other signal may end the
// process.
func Shim(in io.Reader, ended <-chan os.Signal, now func() time.Time) error {
	unix.CloseOnExec(firstExtra)
	report := os.NewFile(firstExtra, "report")
	defer report.Close()
	var o shimOrder
	text, err := io.ReadAll(in)
	if err == nil && len(text) == 0 {
		return nil // whoever wanted it is gone
	}
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return fmt.Errorf("cannot read what to run: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	l := ledger.At(o.Ledger)
	claim, err := l.Claim(o.RunnerRef)
	if err != nil {
		return err
	}
	defer claim.Close()
	started := now().UTC()
	r := &result{State: task.EffectFailed, Receipt: receipt{StartedAt: started}}
	c := newClock(ended)
	done := make(chan error, 1)
	go func(r *result) {
		// What the command is told of its parent's death is about the thread that started it.
		runtime.LockOSThread()
		done <- run(&o, l, r, report, c, now)
	}(r)
	select {
	case err = <-done:
	case <-c.givenUp:
		// What looks at it may do so for ever: it begins nothing any more.
		err = errors.New("it was given up before what was approved was looked at, and nothing was run")
		r = &result{Receipt: receipt{StartedAt: started}}
	}
	if err != nil {
		r.State, r.Receipt.Error = task.EffectFailed, err.Error()
	}
	r.Receipt.TimedOut, r.Receipt.Killed = c.timedOut.Load(), c.killed.Load()
	r.Receipt.EndedAt = now().UTC()
	return l.Put(o.RunnerRef, ledger.ResultFile, r)
}

// clock ends a run whose time is over, or that somebody wants ended: one that has not begun
// by beginning nothing any more.
type clock struct {
	timer *time.Timer
	ended <-chan os.Signal
	// decided is set once: by the command's beginning, or by giving it up.
	decided          atomic.Bool
	givenUp, over    chan struct{}
	timedOut, killed atomic.Bool
	running          sync.WaitGroup
}

// newClock is one that runs. Looking at what was approved has a time of its own.
func newClock(ended <-chan os.Signal) *clock {
	c := &clock{timer: time.NewTimer(usualTime), ended: ended, givenUp: make(chan struct{}), over: make(chan struct{})}
	c.running.Go(c.run)
	return c
}

func (c *clock) run() {
	defer c.timer.Stop()
	select {
	case <-c.over:
		return
	case <-c.timer.C:
		c.timedOut.Store(true)
	case <-c.ended:
		c.killed.Store(true)
	}
	if c.decided.CompareAndSwap(false, true) {
		close(c.givenUp)
		return
	}
	peer.TellDescendants(unix.SIGTERM)
	last := time.NewTimer(killAfter)
	defer last.Stop()
	select {
	case <-c.over:
	case <-last.C:
		peer.TellDescendants(unix.SIGKILL)
	}
}

// begins lets the command begin, unless it was given up.
func (c *clock) begins(limit time.Duration) bool {
	if !c.decided.CompareAndSwap(false, true) {
		return false
	}
	c.timer.Reset(limit)
	return true
}

func (c *clock) stop() {
	close(c.over)
	c.running.Wait()
}

// run starts the command and waits for its end. Its error is why nothing was run.
func run(o *shimOrder, l *ledger.Ledger, r *result, report io.Writer, c *clock, now func() time.Time) error {
	dir, err := folder(o.Bound.Folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	program, err := open(o.Bound.Exe)
	if err != nil {
		return err
	}
	defer program.Close()
	argv, err := stage(o, l)
	if err != nil {
		return err
	}
	gateRead, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	cmd := itself(append([]string{"exec", "--", program.path}, argv...)...)
	// By what is open: its name may lead elsewhere by now.
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	cmd.Env, cmd.Stdin = environment(o, l), strings.NewReader(o.Action.Stdin)
	if o.Action.Stdin == "" {
		cmd.Stdin = nil
	}
	outs, err := capture(o, l, cmd)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{gateRead, program.File}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	gateRead.Close() //nolint:errcheck // the command has it
	p := ledger.Process{PID: cmd.Process.Pid, At: now().UTC()}
	err = prepare(o, l, &p, report)
	limit := usualTime
	if o.Action.TimeoutS > 0 {
		limit = time.Duration(o.Action.TimeoutS) * time.Second
	}
	if err == nil && !c.begins(limit) {
		err = errors.New("it was given up")
	}
	if err != nil {
		gate.Close()       //nolint:errcheck // which ends who waits for it
		cmd.Process.Kill() //nolint:errcheck // it has not begun
		_, _ = reap(p.PID) // it has not begun
		return errors.Join(err, outs.close())
	}
	if _, err := gate.Write([]byte{1}); err != nil {
		return err
	}
	gate.Close() //nolint:errcheck // all is said
	watch(&p, r, c, peer.EndAdopted)
	if err := outs.close(); err != nil && r.Receipt.Error == "" {
		r.Receipt.Error = "its output: " + err.Error()
	}
	r.Receipt.Stdout, r.Receipt.Stderr = outs.out.output(), outs.err.output()
	return r.Receipt.fit()
}

// itself is this program as another process of a run. No context ends it.
func itself(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{os.Args[0], "runner"}, args...)}
}

// prepare makes the command's process known for good.
func prepare(o *shimOrder, l *ledger.Ledger, p *ledger.Process, report io.Writer) (err error) {
	if p.Name, err = peer.NameOf(p.PID); err != nil {
		return err
	}
	if p.Shim, err = peer.NameOf(os.Getpid()); err != nil {
		return err
	}
	if p.Boot, err = peer.Boot(); err != nil {
		return err
	}
	if err := l.Put(o.RunnerRef, ledger.ProcessFile, p); err != nil {
		return err
	}
	fmt.Fprintln(report, p.PID) // the runner may be gone, and the file says it
	return nil
}

// watch waits for the command's end, and ends whatever it has left behind, as a function does.
func watch(p *ledger.Process, r *result, c *clock, endRest func(context.Context) error) {
	status, err := reap(p.PID)
	c.stop()
	// All that it has started is this process's by now, or comes to it. The run has ended also
	// where some of that cannot be ended.
	limit, cancel := context.WithTimeout(context.Background(), leftFor)
	defer cancel()
	if endRest(limit) != nil {
		r.Receipt.Error = fmt.Sprintf("processes that it has left behind could not be ended within %s, and go on", leftFor)
	}
	switch {
	case err != nil:
		r.Receipt.Error = err.Error()
	case status.Exited():
		code := status.ExitStatus()
		r.Receipt.ExitCode = &code
		if code == 0 && !c.killed.Load() && !c.timedOut.Load() {
			r.State = task.EffectDone
		}
	default:
		r.Receipt.Signal = unix.SignalName(status.Signal())
	}
}

// reap waits for a process, and for others that come to an end meanwhile.
func reap(pid int) (status unix.WaitStatus, err error) {
	for {
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return status, err
		case got == pid:
			return status, nil
		}
	}
}

// folder opens the folder that was approved, and no other one that its name leads to by now.
func folder(name string) (*os.File, error) {
	if name == "" {
		return nil, errors.New("the workspace is a name and no folder, and the command says no folder")
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the folder %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && found != name {
		err = fmt.Errorf("the folder %s is not the one that was approved: it leads to %s", name, found)
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}

// environment is the command's: what was approved, the variables of the runner's that it
// names, its mark, and where programs and its user's files are.
func environment(o *shimOrder, l *ledger.Ledger) []string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(env, o.Env)
	maps.Copy(env, o.Action.Env)
	// Last, so that nothing else stands under the names of the daemon's.
	env["OCIPD_TASK"], env[ledger.MarkName] = o.TaskID, ledger.Mark(o.RunnerRef)
	if len(o.Bound.Inputs) > 0 {
		env["OCIPD_INPUTS"] = filepath.Join(l.Path(o.RunnerRef, ledger.InputsDir), filepath.Clean("/"+o.Workspace))
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// outputs are a command's two.
type outputs struct {
	out, err *kept
	// to are what the command writes into, and from what is read of it.
	to, from []*os.File
	reading  sync.WaitGroup
}

// errHeld says that what was written into an output may be less than will be.
var errHeld = errors.New("another process has it open, and what that one writes is left out")

// kept is the beginning of an output, and a digest of all. Its file, which is what there is
// where nobody is left to report it, has the end of it too.
type kept struct {
	begin, end []byte
	all        hash.Hash
	bytes      int64
	file       *os.File
	clean      *cleaner
	err        error
}

func capture(o *shimOrder, l *ledger.Ledger, cmd *exec.Cmd) (*outputs, error) {
	outs := &outputs{}
	one := func(kind string) (*kept, *os.File, error) {
		file, err := os.OpenFile(l.Path(o.RunnerRef, kind), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		from, to, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		k := &kept{all: sha256.New(), file: file}
		k.clean = newCleaner(o, k)
		outs.reading.Go(func() {
			_, err := io.Copy(k.clean, from)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = errHeld
			}
			k.err = errors.Join(err, k.clean.Close())
			from.Close() //nolint:errcheck // it was read
		})
		outs.to, outs.from = append(outs.to, to), append(outs.from, from)
		return k, to, nil
	}
	var err error
	var to *os.File
	if outs.out, to, err = one(ledger.StdoutFile); err != nil {
		return nil, err
	}
	cmd.Stdout = to
	if outs.err, to, err = one(ledger.StderrFile); err != nil {
		return nil, err
	}
	cmd.Stderr = to
	return outs, nil
}

// close comes after the command's end, and waits for what it has written.
func (o *outputs) close() error {
	for _, p := range o.to {
		p.Close() //nolint:errcheck // the command had it
	}
	late := time.AfterFunc(outputHeld, func() {
		for _, p := range o.from {
			_ = p.SetReadDeadline(time.Unix(1, 0)) // what is read to its end has none
		}
	})
	defer late.Stop()
	o.reading.Wait()
	return errors.Join(o.out.err, o.err.err, o.out.file.Close(), o.err.file.Close())
}

// Write takes what is clean of secrets.
func (k *kept) Write(b []byte) (int, error) {
	k.all.Write(b)
	k.bytes += int64(len(b))
	n := min(keptOutput-len(k.begin), len(b))
	begin, end := b[:n], b[n:]
	if n > 0 {
		_, _ = k.file.WriteAt(begin, int64(len(k.begin))) // it is for evidence alone
		k.begin = append(k.begin, begin...)
	}
	for len(end) > 0 {
		part := end[:min(len(end), 2*keptEnd-len(k.end))]
		_, _ = k.file.WriteAt(part, int64(keptOutput+len(k.end)))
		k.end, end = append(k.end, part...), end[len(part):]
		if len(k.end) == 2*keptEnd {
			// The last half takes the place of the first. In between the file has it twice, so
			// that it ends with the end of the output at any moment.
			k.end = k.end[:copy(k.end, k.end[keptEnd:])]
			_, _ = k.file.WriteAt(k.end, keptOutput)
			_ = k.file.Truncate(keptOutput + keptEnd)
		}
	}
	return len(b), nil
}

// output is the output as it is reported.
func (k *kept) output() output {
	return output{Text: strings.ToValidUTF8(string(k.begin), "�"), Bytes: k.bytes, Digest: "sha256:" + hex.EncodeToString(k.all.Sum(nil))}
}

// maxReceipt is how long a receipt is at most as it is sent.
const maxReceipt = 160 << 10

// result is how a run ended.
type result struct {
	State   string  `json:"state"`
	Receipt receipt `json:"receipt"`
}

// receipt is what is kept of a command's end.
type receipt struct {
	ExitCode  *int      `json:"exit_code,omitempty"`
	Signal    string    `json:"signal,omitzero"`
	TimedOut  bool      `json:"timed_out,omitzero"`
	Killed    bool      `json:"killed,omitzero"`
	Error     string    `json:"error,omitzero"`
	Stdout    output    `json:"stdout,omitzero"`
	Stderr    output    `json:"stderr,omitzero"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// output is what a command has written: the beginning of it, and a digest of all.
type output struct {
	Text   string `json:"text"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
}

// fit shortens texts that take more room in JSON than they have.
func (r *receipt) fit() error {
	for {
		text, err := json.Marshal(r)
		if err != nil || len(text) <= maxReceipt {
			return err
		}
		for _, o := range []*output{&r.Stdout, &r.Stderr} {
			o.Text = strings.ToValidUTF8(o.Text[:len(o.Text)*3/4], "")
		}
	}
}

// Exec becomes a command once its first extra file says so, and ends where that is
// closed instead. Args are the program's path and the command's arguments.
func Exec(args, env []string) error {
	gate := os.NewFile(firstExtra, "gate")
	unix.CloseOnExec(firstExtra)
	var begin [2]byte
	if n, err := unix.Pread(firstExtra+1, begin[:], 0); err != nil || args[0] != given || string(begin[:n]) != "#!" {
		// An interpreter opens its script by the descriptor.
		unix.CloseOnExec(firstExtra + 1)
	}
	if n, err := gate.Read(make([]byte, 1)); err != nil || n != 1 {
		return errors.New("it is not to be run")
	}
	return fmt.Errorf("cannot run %s: %w", args[1], unix.Exec(args[0], args[1:], env))
}
