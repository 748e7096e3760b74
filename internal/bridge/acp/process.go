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
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
	"golang.org/x/sys/unix"
)

const (
	// maxLine is how long a line of the agent is at most, which is the SDK's own limit with
	// the line's end, and keptErrors how much of the end of its standard error is shown. As
	// much again is kept before it, so that a secret is found that the cut is in.
	maxLine    = 10<<20 - 2
	keptErrors = 4 << 10
)

// process is the agent's, with all that it has started.
type process struct {
	cmd   *exec.Cmd
	alone bool
	in    *os.File
	out   *os.File
	// lines is what the SDK reads, and feed what is written into it: it does not end before
	// the bridge is done, so that the last answer is not lost to the end of the process.
	lines  *io.PipeReader
	feed   *io.PipeWriter
	errors tail
	from   *os.File
	// exited is closed once the process has ended, and heard once all was read of it.
	exited, heard chan struct{}
	once          sync.Once
	over          bool
}

// start starts the agent in a process group of its own, in the workspace.
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
	// Should the bridge be killed, so is the agent.
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// What is said of the parent's death is about the thread that started the agent.
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

// state is how the process ended, once it has.
func (p *process) state() string { return p.cmd.ProcessState.String() }

// end ends the process, its group, and what has left it. An agent whose turn is over has a
// moment to end by itself. Nothing is waited for without a limit; it reports false where
// something does not end though it was killed.
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
		// Also what has outlived it.
		p.signal(unix.SIGKILL)
		p.over = p.over || within(t.term, p.exited)
		if p.alone {
			ctx, cancel := context.WithTimeout(context.Background(), t.term)
			defer cancel()
			p.over = peer.EndAdopted(ctx) == nil && p.over
		}
		// What it has said last is taken in before its output is closed.
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

// signal tells the process, its group, and where all that comes to the bridge is the
// agent's, all of that: any of them may have left the others.
func (p *process) signal(s unix.Signal) {
	_ = p.cmd.Process.Signal(s)
	_ = unix.Kill(-p.cmd.Process.Pid, s)
	if p.alone {
		peer.TellDescendants(s)
	}
}

// Adopt has all that the agent starts come to this process once its own parent has ended.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot keep hold of the agent's processes: %w", err)
	}
	return nil
}

// hear hands the agent's lines on to the SDK, and takes what it says of its work itself, as
// the SDK gives up on an agent that says much at once. What is no object is left out.
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

// readLine reads a line, without its end. The last one may have none.
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

// tail keeps the end of what is written into it.
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

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept[max(0, len(t.kept)-t.limit):])
}
