package acp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/peer"
	"golang.org/x/sys/unix"
)

const (
	// maxLine bounds a line of the agent; it is the SDK's own limit with the line's
	// end. keptErrors is how much of the end of standard error is shown. As much again
	// is kept before it, so that a secret across the cut is recognized.
	maxLine    = 10<<20 - 2
	keptErrors = 4 << 10
)

// process is the agent's process with all its descendants.
type process struct {
	cmd   *exec.Cmd
	alone bool
	in    *os.File
	out   *os.File
	// The SDK reads lines; the bridge writes to feed. This pipe stays open until the
	// bridge is done, so that the end of the process does not lose the last answer.
	lines  *io.PipeReader
	feed   *io.PipeWriter
	errors tail
	from   *os.File
	// exited is closed when the process has ended, and heard when all its output was read.
	exited, heard chan struct{}
	once          sync.Once
	over          bool
}

// start starts the agent in its own process group, in the workspace.
func start(b *bridge) (*process, error) {
	places := strings.NewReplacer("{workspace}", b.dir, "{socket}", b.o.Socket, "{ocipd}", b.o.Server[0])
	var argv []string
	for _, word := range b.agent.Wrap {
		argv = append(argv, places.Replace(word))
	}
	argv = append(argv, b.agent.Command...)
	p := &process{cmd: &exec.Cmd{Path: argv[0], Args: argv, Dir: b.dir, Env: b.environment()}, alone: b.o.Alone, exited: make(chan struct{}), heard: make(chan struct{})}
	p.errors.limit = 2 * keptErrors
	p.lines, p.feed = io.Pipe()
	var theirs [3]*os.File
	for i, own := range []**os.File{&p.in, &p.out, &p.from} {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if theirs[i], *own = write, read; i == 0 {
			theirs[i], *own = read, write
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	// If the bridge is killed, the kernel kills the agent too.
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig applies to the thread that started the agent, so this thread stays.
		runtime.LockOSThread()
		err := p.cmd.Start()
		for _, f := range theirs {
			_ = f.Close() // the agent has it
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its state says how it ended
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		p.close()
		return nil, err
	}
	go func() { _, _ = io.Copy(&p.errors, p.from) }() // it ends with the process, or is closed
	return p, nil
}

func (p *process) close() {
	for _, f := range []*os.File{p.in, p.out, p.from} {
		if f != nil {
			_ = f.Close() // nothing is read or written any more
		}
	}
	_ = p.feed.Close() // a pipe in memory
	_ = p.lines.Close()
}

// state describes how the process ended.
func (p *process) state() string { return p.cmd.ProcessState.String() }

// end ends the process, its group, and descendants that left the group. An agent whose
// turn is over may first end by itself. Every wait has a limit. end returns false if a
// process survives SIGKILL.
func (p *process) end(t *times) bool {
	if p == nil {
		return true
	}
	p.once.Do(func() {
		_ = p.in.Close() // which tells it that nothing more comes
		p.over = within(t.leave, p.exited)
		if !p.over {
			p.signal(unix.SIGTERM)
			p.over = within(t.term, p.exited)
		}
		// Kill surviving members of the group too.
		p.signal(unix.SIGKILL)
		p.over = p.over || within(t.term, p.exited)
		if p.alone {
			ctx, cancel := context.WithTimeout(context.Background(), t.term)
			defer cancel()
			p.over = peer.EndAdopted(ctx) == nil && p.over
		}
		// Read the last output before closing it.
		within(t.settle, p.heard)
		p.close()
	})
	return p.over
}

func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// signal signals the process and its group, which the process may have left. With
// alone, it also signals all descendants of the bridge.
func (p *process) signal(s unix.Signal) {
	_ = p.cmd.Process.Signal(s)
	_ = unix.Kill(-p.cmd.Process.Pid, s)
	if p.alone {
		peer.TellDescendants(s)
	}
}

// Adopt makes this process the new parent of the agent's orphaned processes.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot keep hold of the agent's processes: %w", err)
	}
	return nil
}

// hear passes the agent's lines to the SDK. It handles progress notifications itself, because
// the SDK gives up on an agent that sends many at once. It skips lines that are not objects.
func (b *bridge) hear() error {
	defer close(b.process.heard)
	r := bufio.NewReaderSize(b.process.out, 64<<10)
	for {
		line, err := readLine(r)
		if errors.Is(err, errLong) {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.told.spoke(b.o.Now())
			switch {
			case line[0] != '{':
				b.o.Say("the agent wrote what is no message: %.200q", line)
			case b.told.update(line):
			default:
				if _, err := b.process.feed.Write(append(line, '\n')); err != nil {
					return nil // the bridge is done
				}
			}
		}
		if err != nil {
			return nil // its output has ended
		}
	}
}

var errLong = errors.New("the agent wrote a line of more than 10 MiB")

// readLine reads a line without its line end, which the last line may lack.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine+1 {
			return nil, errLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

// tail is a writer that keeps the end of the text.
type tail struct {
	limit int
	mu    sync.Mutex
	kept  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept = append(t.kept, b...); len(t.kept) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	return len(b), nil
}

// String returns the kept text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept[max(0, len(t.kept)-t.limit):])
}

// checkProgram refuses a program that other users can replace.
func (b *bridge) checkProgram() error {
	for _, command := range [][]string{b.agent.Command, b.agent.Wrap} {
		if len(command) == 0 {
			continue
		}
		if !filepath.IsAbs(command[0]) {
			return fmt.Errorf("the agent's program %q is no absolute path", command[0])
		}
		open, err := fileowner.Exposed(command[0])
		if err != nil {
			return fmt.Errorf("cannot look at the agent's program: %w", err)
		}
		if len(open) > 0 {
			return fmt.Errorf("others can replace the agent's program: %s %s", open[0].Path, open[0].String())
		}
	}
	if len(b.agent.Command) == 0 {
		return fmt.Errorf("the configuration does not say how %s is started: set acp.command of it in tasks.actors", b.o.Attached.Actor)
	}
	return nil
}

// environment is the agent's environment: the variables that its actor names, and the
// mode in the form that some agents expect.
func (b *bridge) environment() []string {
	env := []string{}
	for _, name := range b.agent.Env {
		if value, ok := b.o.Lookup(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if b.agent.Mode != "" {
		env = append(env, "INITIAL_AGENT_MODE="+b.agent.Mode)
	}
	return env
}

// Lookup finds variables in a list in the form of os.Environ.
func Lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range slices.Backward(env) {
			if key, value, ok := strings.Cut(pair, "="); ok && key == name {
				return value, true
			}
		}
		return "", false
	}
}

// Itself returns the path of this program.
func Itself() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot tell where this program is: %w", err)
	}
	return path, nil
}
