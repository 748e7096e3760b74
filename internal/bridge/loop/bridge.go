package loop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/child"
)

// Bridges starts bridges as processes, each in a process group of its own, so that an
// agent outlives a loop that is killed.
type Bridges struct {
	// Program is this program, Args what comes behind `acp run`, and Env its environment.
	Program   string
	Args, Env []string
	// Say is told what a bridge says.
	Say func(w Work, line string)

	leave time.Duration
}

// leave is for how long a bridge may go on that was told to end: it asks its agent to cancel,
// ends it, and tells the daemon.
const leave = 2 * time.Minute

// Run runs a bridge to its end. Where the context ends, the bridge is told to end its agent.
func (b *Bridges) Run(ctx context.Context, w Work) error {
	cmd := &exec.Cmd{Path: b.Program, Args: append([]string{b.Program, "acp", "run", "--task", w.TaskID}, b.Args...)}
	// The token stands in no command line, and the loop's own is not handed on.
	cmd.Env = append(without(b.Env, "OCIPD_TOKEN", "OCIPD_TOKEN_FILE"), "OCIPD_TOKEN="+w.Token)
	said := &lines{say: func(line string) { b.Say(w, line) }}
	cmd.Stdout, cmd.Stderr = said, said
	err := child.Run(ctx, cmd, cmp.Or(b.leave, leave))
	if cmd.Process == nil {
		return fmt.Errorf("the bridge cannot be started: %w", err)
	}
	if errors.Is(err, child.ErrStays) {
		return fmt.Errorf("the bridge: %w", err)
	}
	said.end()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return fmt.Errorf("%s", cmp.Or(said.last, err.Error()))
	}
	return err
}

// maxLine is how long a line is at most that a bridge says.
const maxLine = 64 << 10

// lines says what is written into it line by line, the beginning of one that is too long.
type lines struct {
	say  func(string)
	line []byte
	last string
}

func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		l.line = append(l.line, line[:min(len(line), maxLine-len(l.line))]...)
		if !whole {
			return n, nil
		}
		l.flush()
		b = rest
	}
}

func (l *lines) flush() {
	// It goes into JSON: what an agent writes is anything, and may be cut within a character.
	l.last = strings.TrimSpace(strings.ToValidUTF8(string(l.line), "�"))
	l.line = l.line[:0]
	l.say(l.last)
}

// end says a last line that has no end.
func (l *lines) end() {
	if len(l.line) > 0 {
		l.flush()
	}
}

// without leaves variables out of an environment.
func without(env []string, names ...string) (kept []string) {
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		out := false
		for _, n := range names {
			out = out || n == name
		}
		if !out {
			kept = append(kept, pair)
		}
	}
	return kept
}
