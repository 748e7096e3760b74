package runner

import (
	"bytes"
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
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/peer"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/taskapi"
	"golang.org/x/sys/unix"
)

const (
	// keptOutput is how much of each output is kept, and usualTime how long a command may
	// take that does not say.
	keptOutput = 64 << 10
	usualTime  = 10 * time.Minute
	// killAfter is how long a command has between being asked to end and being killed.
	killAfter = 10 * time.Second
	// firstExtra is the first file descriptor that a process is given beside the usual.
	firstExtra = 3
	// leastSecret is how long a variable's value is at least that is taken out of outputs.
	leastSecret = 4
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
	// What the command is told of its parent's death is about the thread that started it.
	runtime.LockOSThread()
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
	l := &Ledger{dir: o.Ledger}
	claim, err := l.claim(o.RunnerRef)
	if err != nil {
		return err
	}
	defer claim.Close()
	r := &result{State: task.EffectFailed, Receipt: receipt{StartedAt: now().UTC()}}
	if err := run(&o, l, r, report, ended, now); err != nil {
		r.State, r.Receipt.Error = task.EffectFailed, err.Error()
	}
	r.Receipt.EndedAt = now().UTC()
	return l.put(o.RunnerRef, resultFile, r)
}

// run starts the command and waits for its end. Its error is why nothing was run.
func run(o *shimOrder, l *Ledger, r *result, report io.Writer, ended <-chan os.Signal, now func() time.Time) error {
	var dir string
	switch {
	case filepath.IsAbs(o.Action.Cwd):
		dir = o.Action.Cwd
	case filepath.IsAbs(o.Workspace):
		dir = filepath.Join(o.Workspace, o.Action.Cwd)
	default:
		return errors.New("the workspace is a name and no folder, and the command says no folder")
	}
	program, script, err := open(o.Bound.Exe)
	if err != nil {
		return err
	}
	defer program.Close()
	gateRead, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	path := o.Bound.Exe.Path
	if !script {
		path = fmt.Sprintf("/proc/self/fd/%d", firstExtra+1)
	}
	cmd := itself(append([]string{"exec", "--", path}, o.Action.Argv...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, environment(o), strings.NewReader(o.Action.Stdin)
	if o.Action.Stdin == "" {
		cmd.Stdin = nil
	}
	outs, err := capture(o, l, cmd)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{gateRead, program}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	gateRead.Close() //nolint:errcheck // the command has it
	p := process{PID: cmd.Process.Pid, At: now().UTC()}
	if err := prepare(o, l, &p, report); err != nil {
		gate.Close()       //nolint:errcheck // which ends who waits for it
		cmd.Process.Kill() //nolint:errcheck // it has not begun
		_, _ = reap(p.PID) // it has not begun
		return errors.Join(err, outs.close())
	}
	if _, err := gate.Write([]byte{1}); err != nil {
		return err
	}
	gate.Close() //nolint:errcheck // all is said
	watch(o, &p, r, ended)
	if err := outs.close(); err != nil {
		r.Receipt.Error = "its output: " + err.Error()
	}
	r.Receipt.Stdout, r.Receipt.Stderr = outs.out.kept(o), outs.err.kept(o)
	return r.Receipt.fit()
}

// itself is this program as another process of a run. No context ends it.
func itself(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{os.Args[0], "runner"}, args...)}
}

// prepare makes the command's process known for good, and looks whether what would run is
// what was approved.
func prepare(o *shimOrder, l *Ledger, p *process, report io.Writer) (err error) {
	if p.Name, err = peer.NameOf(p.PID); err != nil {
		return err
	}
	if p.Shim, err = peer.NameOf(os.Getpid()); err != nil {
		return err
	}
	if p.Boot, err = peer.Boot(); err != nil {
		return err
	}
	if err := l.put(o.RunnerRef, pidFile, p); err != nil {
		return err
	}
	fmt.Fprintln(report, p.PID) // the runner may be gone, and the file says it
	return inputs(o)
}

// watch waits for the command's end, and ends whatever it has left behind.
func watch(o *shimOrder, p *process, r *result, ended <-chan os.Signal) {
	limit := usualTime
	if o.Action.TimeoutS > 0 {
		limit = time.Duration(o.Action.TimeoutS) * time.Second
	}
	over := make(chan struct{})
	var asked sync.WaitGroup
	var mu sync.Mutex
	asked.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-over:
			return
		case <-timer.C:
			mu.Lock()
			r.Receipt.TimedOut = true
			mu.Unlock()
		case <-ended:
			mu.Lock()
			r.Receipt.Killed = true
			mu.Unlock()
		}
		tell(peer.Descendants(os.Getpid()), unix.SIGTERM)
		last := time.NewTimer(killAfter)
		defer last.Stop()
		select {
		case <-over:
		case <-last.C:
			tell(peer.Descendants(os.Getpid()), unix.SIGKILL)
		}
	})
	status, err := reap(p.PID)
	close(over)
	asked.Wait()
	// All that it has started is this process's by now, or comes to it.
	for {
		tell(peer.Descendants(os.Getpid()), unix.SIGKILL)
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case err != nil:
		r.Receipt.Error = err.Error()
	case status.Exited():
		code := status.ExitStatus()
		r.Receipt.ExitCode = &code
		if code == 0 && !r.Receipt.Killed && !r.Receipt.TimedOut {
			r.State = task.EffectDone
		}
	default:
		r.Receipt.Signal = unix.SignalName(status.Signal())
	}
}

func tell(pids []int, sig unix.Signal) {
	for _, pid := range pids {
		_ = unix.Kill(pid, sig) // it may have ended
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

// open opens a program, and refuses one that is not what was approved. What is a script
// has to be run by its name.
func open(p task.Program) (f *os.File, script bool, err error) {
	if f, err = os.Open(p.Path); err != nil {
		return nil, false, fmt.Errorf("the program: %w", err)
	}
	h := sha256.New()
	if _, err = io.Copy(h, f); err == nil && hex.EncodeToString(h.Sum(nil)) != p.SHA256 {
		err = fmt.Errorf("the program %s is not the one that was approved", p.Path)
	}
	var begin [2]byte
	if _, readErr := f.ReadAt(begin[:], 0); err == nil {
		script, err = string(begin[:]) == "#!", readErr
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, false, err
	}
	return f, script, nil
}

// inputs refuses to run on what is not as it was approved.
func inputs(o *shimOrder) error {
	for _, in := range o.Bound.Inputs {
		name := strings.TrimPrefix(in.URI, "file://")
		if !filepath.IsAbs(name) {
			if !filepath.IsAbs(o.Workspace) {
				return fmt.Errorf("the input %s is of a workspace that is a name and no folder", in.URI)
			}
			name = filepath.Join(o.Workspace, name)
		}
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("the input %s cannot be looked at: %w", in.URI, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close() //nolint:errcheck // nothing was written
		if err != nil {
			return fmt.Errorf("the input %s cannot be looked at: %w", in.URI, err)
		}
		if "sha256:"+hex.EncodeToString(h.Sum(nil)) != in.Digest {
			return fmt.Errorf("the input %s is not what was approved", in.URI)
		}
	}
	return nil
}

// environment is the command's: what was approved, the variables of the runner's that it
// names, its mark, and where programs and its user's files are.
func environment(o *shimOrder) []string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(env, o.Env)
	maps.Copy(env, o.Action.Env)
	env["OCIPD_TASK"] = o.TaskID
	list := []string{marker(o.RunnerRef)}
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// outputs are a command's two.
type outputs struct {
	out, err *kept
	pipes    []*os.File
	reading  sync.WaitGroup
}

// kept is the beginning of an output, and a digest of all.
type kept struct {
	begin bytes.Buffer
	all   hash.Hash
	bytes int64
	file  *os.File
	err   error
}

func capture(o *shimOrder, l *Ledger, cmd *exec.Cmd) (*outputs, error) {
	outs := &outputs{}
	one := func(kind string) (*kept, *os.File, error) {
		file, err := os.OpenFile(l.path(o.RunnerRef, kind), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		from, to, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		k := &kept{all: sha256.New(), file: file}
		outs.reading.Go(func() { _, k.err = io.Copy(k, from); from.Close() }) //nolint:errcheck // it was read
		outs.pipes = append(outs.pipes, to)
		return k, to, nil
	}
	var err error
	var to *os.File
	if outs.out, to, err = one(outFile); err != nil {
		return nil, err
	}
	cmd.Stdout = to
	if outs.err, to, err = one(errFile); err != nil {
		return nil, err
	}
	cmd.Stderr = to
	return outs, nil
}

// close comes after the command's end, and waits for what it has written.
func (o *outputs) close() error {
	for _, p := range o.pipes {
		p.Close() //nolint:errcheck // the command had it
	}
	o.reading.Wait()
	return errors.Join(o.out.err, o.err.err, o.out.file.Close(), o.err.file.Close())
}

func (k *kept) Write(b []byte) (int, error) {
	k.all.Write(b)
	k.bytes += int64(len(b))
	if room := keptOutput - k.begin.Len(); room > 0 {
		part := b[:min(room, len(b))]
		k.begin.Write(part)
		_, _ = k.file.Write(part) // it is for evidence alone
	}
	return len(b), nil
}

// kept is the output as it is reported: without what the runner's variables say.
func (k *kept) kept(o *shimOrder) output {
	return output{Text: withoutSecrets(strings.ToValidUTF8(k.begin.String(), "�"), o), Bytes: k.bytes, Digest: "sha256:" + hex.EncodeToString(k.all.Sum(nil))}
}

// maxReceipt is how long a receipt is at most as it is sent.
const maxReceipt = 160 << 10

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

func withoutSecrets(text string, o *shimOrder) string {
	for _, name := range o.Action.EnvFrom {
		if value := o.Env[name]; len(value) >= leastSecret {
			text = strings.ReplaceAll(text, value, "["+name+"]")
		}
	}
	return text
}

// Exec becomes a command once its first extra file says so, and ends where that is
// closed instead. Args are the program's path and the command's arguments.
func Exec(args, env []string) error {
	gate := os.NewFile(firstExtra, "gate")
	unix.CloseOnExec(firstExtra)
	unix.CloseOnExec(firstExtra + 1)
	if n, err := gate.Read(make([]byte, 1)); err != nil || n != 1 {
		return errors.New("it is not to be run")
	}
	return fmt.Errorf("cannot run %s: %w", args[1], unix.Exec(args[0], args[1:], env))
}
