//go:build linux

package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	commandTimeout = 10 * time.Second
	// pipeDelay bounds the wait for output after the command has ended, because a process
	// that left its group may keep the pipe open.
	pipeDelay = time.Second
	// killDelay bounds the end of a killed command. A process that hangs in the kernel can
	// take longer.
	killDelay = 2 * time.Second
	// maxOutput bounds the output that is logged, in bytes from its end.
	maxOutput = 2048
)

// CommandOptions are the inputs of a [Command].
type CommandOptions struct {
	// Argv is the program, as an absolute path, and its arguments. No shell
	// reads them.
	Argv []string
	// Timeout bounds one run, 0 is 10 s.
	Timeout time.Duration
	// Getenv reads the few variables that the program gets.
	Getenv func(string) string
	Log    *zap.Logger
}

// Command passes notices to a program that the operator chooses.
//
// The program reads the notice as one line of JSON from its standard input,
//
//	{"id":"…","title":"…","body":"…","urgency":"normal","fields":{"agent":"…"}}
//
// and gets the same in OCIPD_NOTICE_ID, _TITLE, _BODY, _URGENCY and, for each field,
// OCIPD_NOTICE_FIELD_ and its key in capitals. Of the daemon's own environment it gets
// HOME, LANG, LOGNAME, PATH, TZ, USER and XDG_RUNTIME_DIR, where they are set. It runs in
// /, in a session of its own and so without a terminal. All limits together keep a notice
// below 32 KiB in either form.
//
// The run is over when the program ends or its time is up. The Command then kills the rest
// of its process group; a process that must live on has to leave the group, as with
// setsid(1). Runs happen one at a time.
//
// The Command logs the exit status, and for a failed run the last 2 KiB of the output, in which the
// words of the notice are masked. A program that encodes them, such as in base64, defeats that.
type Command struct {
	argv    []string
	timeout time.Duration
	env     []string
	log     *zap.Logger

	closing context.Context
	quit    context.CancelFunc
	turn    chan struct{} // full while a run goes on
}

// NewCommand checks the arguments; the program need not exist yet.
func NewCommand(o CommandOptions) (*Command, error) {
	if len(o.Argv) == 0 {
		return nil, errors.New("cannot notify by a command: it has no program")
	}
	if !filepath.IsAbs(o.Argv[0]) {
		return nil, fmt.Errorf("cannot notify by the command %q: want the absolute path of a program", o.Argv[0])
	}
	for i, arg := range o.Argv {
		if strings.ContainsRune(arg, 0) {
			return nil, fmt.Errorf("cannot notify by the command %q: argument %d holds a NUL", o.Argv[0], i)
		}
	}
	c := &Command{argv: slices.Clone(o.Argv), timeout: o.Timeout, log: o.Log, turn: make(chan struct{}, 1)}
	if c.timeout <= 0 {
		c.timeout = commandTimeout
	}
	for _, name := range []string{"HOME", "LANG", "LOGNAME", "PATH", "TZ", "USER", "XDG_RUNTIME_DIR"} {
		if value := o.Getenv(name); value != "" {
			c.env = append(c.env, name+"="+value)
		}
	}
	c.closing, c.quit = context.WithCancel(context.Background())
	return c, nil
}

// Notify runs the program and waits for its end. It returns an error if the program fails,
// takes too long or cannot be started.
func (c *Command) Notify(ctx context.Context, n Notice) error {
	n = n.clean()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return c.skipped(n, context.Cause(ctx))
	}
	if c.closing.Err() != nil {
		return c.skipped(n, ErrClosed)
	}
	if ctx.Err() != nil {
		return c.skipped(n, context.Cause(ctx))
	}
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("still running after %s", c.timeout))
	defer stop()
	return c.failed(c.run(ctx, n))
}

// Close kills a run in progress and waits for its end.
func (c *Command) Close() {
	c.quit()
	c.turn <- struct{}{}
	<-c.turn
}

// skipped logs that a run did not begin.
func (c *Command) skipped(n Notice, err error) error {
	if !errors.Is(err, ErrClosed) {
		c.log.Warn("a notification command was not run", zap.String("command", c.argv[0]), zap.String("notice", n.ID), zap.Error(err))
	}
	return c.failed(err)
}

func (c *Command) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot notify by the command %q: %w", c.argv[0], err)
}

// run runs the program once, and logs the result.
func (c *Command) run(ctx context.Context, n Notice) error {
	log := c.log.With(zap.String("command", c.argv[0]), zap.String("notice", n.ID))
	input, err := encode(n)
	if err != nil {
		return err
	}
	output := &tail{limit: maxOutput}
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(slices.Clip(c.env), variables(n)...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		log.Warn("cannot start a notification command", zap.Error(err))
		return err
	}
	cut := finish(ctx, cmd.Process.Pid)
	if errors.Is(cut, errStuck) {
		log.Error("a notification command does not end though it was killed", zap.Int("pid", cmd.Process.Pid))
		go func() { _ = cmd.Wait() }() // so that it leaves no zombie
		return cut
	}
	err = cmd.Wait()
	if cut != nil {
		err = cut
	} else if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the program has ended well, and somebody else has its pipe
	}
	status := []zap.Field{zap.Int("status", cmd.ProcessState.ExitCode()), zap.Int64("output_bytes", output.total)}
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		status = append(status, zap.Stringer("signal", state.Signal()))
	}
	if err != nil {
		log.Warn("a notification command failed", append(status, zap.Error(err), zap.String("output", mask(output.text(), n)))...)
		return err
	}
	log.Info("a notification command ran", status...)
	return nil
}

// errStuck says that a killed process did not end.
var errStuck = errors.New("it does not end though it was killed")

// finish waits until the first process of a group or the context ends, and kills the rest
// of the group. The process is not reaped yet, so no other group can have its id when the
// signal is sent. The error says why the process was ended early.
func finish(ctx context.Context, pid int) (cut error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		cut = context.Cause(ctx)
	}
	// This never fails, because the unreaped first process still counts.
	_ = unix.Kill(-pid, unix.SIGKILL)
	late := time.NewTimer(killDelay)
	defer late.Stop()
	select {
	case <-ended:
		return cut
	case <-late.C:
		return errStuck
	}
}

// encode formats the notice for standard input.
func encode(n Notice) ([]byte, error) {
	line, err := json.Marshal(struct {
		ID      string            `json:"id"`
		Title   string            `json:"title"`
		Body    string            `json:"body"`
		Urgency string            `json:"urgency"`
		Fields  map[string]string `json:"fields"`
	}{n.ID, n.Title, n.Body, n.Urgency, n.Fields}, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("cannot encode a notice: %w", err)
	}
	return append(line, '\n'), nil
}

// variables formats the notice for the environment.
func variables(n Notice) []string {
	env := []string{
		"OCIPD_NOTICE_ID=" + n.ID, "OCIPD_NOTICE_TITLE=" + n.Title,
		"OCIPD_NOTICE_BODY=" + n.Body, "OCIPD_NOTICE_URGENCY=" + n.Urgency,
	}
	for _, key := range slices.Sorted(maps.Keys(n.Fields)) {
		env = append(env, "OCIPD_NOTICE_FIELD_"+strings.ToUpper(key)+"="+n.Fields[key])
	}
	return env
}
