package orchestrator

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

// Bridges starts bridges as processes. Each has its own process group, so that an agent
// survives a loop that is killed.
type Bridges struct {
	// Program is this program, Args the arguments after `acp run`, and Env the environment.
	Program   string
	Args, Env []string
	// Say reports a line of a bridge.
	Say func(w Work, line string)

	leave time.Duration
}

// leave bounds the time in which a bridge, when told to end, cancels and ends its agent and
// informs the daemon.
const leave = 2 * time.Minute

// Run runs a bridge to its end. If the context ends, it tells the bridge to end its agent.
func (b *Bridges) Run(ctx context.Context, w Work) error {
	cmd := &exec.Cmd{Path: b.Program, Args: append([]string{b.Program, "acp", "run", "--task", w.TaskID}, b.Args...)}
	// The token is not in a command line, and the bridge does not inherit the loop's own token.
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

// maxLine bounds a line of a bridge.
const maxLine = 64 << 10

// lines is a writer that reports each line, shortened to its limit.
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
	// The text goes into JSON. An agent can write anything, and the limit may cut within a character.
	l.last = strings.TrimSpace(strings.ToValidUTF8(string(l.line), "�"))
	l.line = l.line[:0]
	l.say(l.last)
}

// end reports a last line that has no line end.
func (l *lines) end() {
	if len(l.line) > 0 {
		l.flush()
	}
}

// without removes variables from an environment.
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
