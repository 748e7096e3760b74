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
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"golang.org/x/sys/unix"
)

const (
	// keptOutput bounds the kept beginning of each output. usualTime bounds a command that
	// sets no limit.
	keptOutput = 64 << 10
	// keptEnd is the minimum kept end of a longer output.
	keptEnd   = 4 << 10
	usualTime = 10 * time.Minute
	// killAfter is the time between SIGTERM and SIGKILL. leftFor bounds the wait for remaining
	// processes after SIGKILL, because it may not be possible to kill another user's process.
	killAfter = 10 * time.Second
	leftFor   = 10 * time.Second
	// outputHeld bounds the wait for the output after all processes have ended, because an
	// unrelated process may hold it open forever.
	outputHeld = 2 * time.Second
	// firstExtra is the first extra file descriptor of a process.
	firstExtra = 3
)

// shimOrder is the order to a shim.
type shimOrder struct {
	taskapi.RunnerOrder
	// Env holds the runner's variables for the command.
	Env map[string]string `json:"env"`
}

// Shim runs one command. It reads its run in the ledger from in, then the order, and writes the
// command's process id to its first extra file. It returns when the result is on disk, or if another
// shim has the run. Without an order, nothing runs and it says so in the ledger. A signal on ended ends the command; no other signal may end the process.
func Shim(in io.Reader, ended <-chan os.Signal, now func() time.Time) error {
	unix.CloseOnExec(firstExtra)
	report := os.NewFile(firstExtra, "report")
	defer report.Close()
	var o shimOrder
	l := new(ledger.Run)
	said := jsontext.NewDecoder(in)
	if err := json.UnmarshalDecode(said, l); err != nil {
		return fmt.Errorf("cannot read which run it is: %w", err)
	}
	if err := json.UnmarshalDecode(said, &o); err != nil {
		// The runner is gone, or the daemon does not let the command begin.
		name, failed := peer.NameOf(os.Getpid())
		if failed == nil {
			failed = l.Put(ledger.WithdrawnFile, &ledger.Withdrawal{Process: name})
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return errors.Join(err, failed)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	claim, err := l.Claim()
	if err != nil {
		return err
	}
	defer claim.Close()
	started := now().UTC()
	r := &result{State: task.EffectFailed, Receipt: receipt{StartedAt: started}}
	c := newClock(ended)
	done := make(chan error, 1)
	go func(r *result) {
		// Pdeathsig applies to the thread that started the command, so this thread stays.
		runtime.LockOSThread()
		done <- run(&o, l, r, report, c, now)
	}(r)
	select {
	case err = <-done:
	case <-c.givenUp:
		// The check may hang forever; it cannot start the command any more.
		err = errors.New("it was given up before what was approved was looked at, and nothing was run")
		r = &result{Receipt: receipt{StartedAt: started}}
	}
	if err != nil {
		r.State, r.Receipt.Error = task.EffectFailed, err.Error()
		r.Receipt.NotBegun = r.Receipt.ExitCode == nil && r.Receipt.Signal == ""
	}
	r.Receipt.TimedOut, r.Receipt.Killed = c.timedOut.Load(), c.killed.Load()
	r.Receipt.EndedAt = now().UTC()
	return l.Put(ledger.ResultFile, r)
}

// clock ends a run after its time limit or on request. If the command has not begun, clock
// keeps it from beginning.
type clock struct {
	timer *time.Timer
	ended <-chan os.Signal
	// decided is set once: when the command begins, or when the run is given up.
	decided          atomic.Bool
	givenUp, over    chan struct{}
	timedOut, killed atomic.Bool
	running          sync.WaitGroup
}

// newClock starts a clock. Checking the approved files has its own time limit.
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

// begins lets the command begin, unless the run was given up.
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

// run starts the command and waits for its end. An error means that nothing ran.
func run(o *shimOrder, l *ledger.Run, r *result, report io.Writer, c *clock, now func() time.Time) error {
	dir, err := folder(o.Bound.Folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	program, err := open(o.Bound.Exe, o.place(), environment(o, l))
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
	// Use the open folder, because its name may lead elsewhere by now.
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	cmd.Env, cmd.Stdin = words(environment(o, l)), strings.NewReader(o.Action.Stdin)
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
	err = prepare(l, &p, report)
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

// prepare stores the identity of the command's process on disk.
func prepare(l *ledger.Run, p *ledger.Process, report io.Writer) (err error) {
	if p.Name, err = peer.NameOf(p.PID); err != nil {
		return err
	}
	if p.Shim, err = peer.NameOf(os.Getpid()); err != nil {
		return err
	}
	if p.Boot, err = peer.Boot(); err != nil {
		return err
	}
	if err := l.Put(ledger.ProcessFile, p); err != nil {
		return err
	}
	fmt.Fprintln(report, p.PID) // the runner may be gone, and the file says it
	return nil
}

// watch waits for the command's end, and then calls endRest to end the processes that it
// has left behind.
func watch(p *ledger.Process, r *result, c *clock, endRest func(context.Context) error) {
	status, err := reap(p.PID)
	c.stop()
	// All its descendants belong to this process now, or will. The run ends even if some of
	// them cannot be ended.
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

// reap waits for a process, and reaps others that end meanwhile.
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

// folder opens the approved folder. It fails if the name now leads elsewhere.
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

// environment is the command's environment: the approved variables, the runner's variables
// that it names, its mark, a PATH, and the user's variables.
func environment(o *shimOrder, l *ledger.Run) map[string]string {
	env := map[string]string{"PATH": commandfiles.Path}
	maps.Copy(env, o.Env)
	maps.Copy(env, o.Action.Env)
	// Set last, so that no other variable replaces the daemon's.
	env["OCIPD_TASK"], env[ledger.MarkName] = o.TaskID, ledger.Mark(o.RunnerRef)
	if len(o.Bound.Inputs) > 0 {
		env["OCIPD_INPUTS"] = filepath.Join(l.Path(ledger.InputsDir), filepath.Clean("/"+o.Workspace))
	}
	return env
}

// words are variables as a process is given them.
func words(env map[string]string) (list []string) {
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// outputs are a command's two outputs.
type outputs struct {
	out, err *kept
	// The command writes to to; the shim reads from.
	to, from []*os.File
	reading  sync.WaitGroup
}

// errHeld says that the output may be incomplete.
var errHeld = errors.New("another process has it open, and what that one writes is left out")

// kept is the beginning of an output, with a digest of all of it. Its file also has the
// end; if nobody is left to report the output, the file is all there is.
type kept struct {
	begin, end []byte
	all        hash.Hash
	bytes      int64
	file       *os.File
	clean      *cleaner
	err        error
}

func capture(o *shimOrder, l *ledger.Run, cmd *exec.Cmd) (*outputs, error) {
	outs := &outputs{}
	one := func(kind string) (*kept, *os.File, error) {
		file, err := os.OpenFile(l.Path(kind), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
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

// close waits for the output after the command's end.
func (o *outputs) close() error {
	for _, p := range o.to {
		p.Close() //nolint:errcheck // the command had it
	}
	late := time.AfterFunc(outputHeld, func() {
		for _, p := range o.from {
			_ = p.SetReadDeadline(time.Unix(1, 0)) // output read to its end needs no deadline
		}
	})
	defer late.Stop()
	o.reading.Wait()
	return errors.Join(o.out.err, o.err.err, o.out.file.Close(), o.err.file.Close())
}

// Write takes text without secrets.
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
			// The second half replaces the first. In between, the file has it twice, so
			// that the file always ends with the end of the output.
			k.end = k.end[:copy(k.end, k.end[keptEnd:])]
			_, _ = k.file.WriteAt(k.end, keptOutput)
			_ = k.file.Truncate(keptOutput + keptEnd)
		}
	}
	return len(b), nil
}

// output is the reported form.
func (k *kept) output() output {
	return output{Text: strings.ToValidUTF8(string(k.begin), "�"), Bytes: k.bytes, Digest: "sha256:" + hex.EncodeToString(k.all.Sum(nil))}
}

// maxReceipt bounds a receipt in its sent form.
const maxReceipt = 160 << 10

// result is the result of a run.
type result struct {
	State   string  `json:"state"`
	Receipt receipt `json:"receipt"`
}

// receipt describes a command's end.
type receipt struct {
	ExitCode  *int      `json:"exit_code,omitempty"`
	Signal    string    `json:"signal,omitzero"`
	TimedOut  bool      `json:"timed_out,omitzero"`
	Killed    bool      `json:"killed,omitzero"`
	Error     string    `json:"error,omitzero"`
	NotBegun  bool      `json:"not_begun,omitzero"`
	Stdout    output    `json:"stdout,omitzero"`
	Stderr    output    `json:"stderr,omitzero"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// output describes a command's output: its beginning, and a digest of all.
type output struct {
	Text   string `json:"text"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
}

// fit shortens texts whose JSON form is too long.
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

// Exec becomes a command when its first extra file says so, and ends if that file is closed
// instead. Args are the program's path and the command's arguments.
func Exec(args, env []string) error {
	gate := os.NewFile(firstExtra, "gate")
	unix.CloseOnExec(firstExtra)
	var begin [2]byte
	if n, err := unix.Pread(firstExtra+1, begin[:], 0); err != nil || args[0] != given || string(begin[:n]) != "#!" {
		// An interpreter opens its script through the descriptor, so only a program closes it.
		unix.CloseOnExec(firstExtra + 1)
	}
	if n, err := gate.Read(make([]byte, 1)); err != nil || n != 1 {
		return errors.New("it is not to be run")
	}
	return fmt.Errorf("cannot run %s: %w", args[1], unix.Exec(args[0], args[1:], env))
}
