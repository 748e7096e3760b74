package loop

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Bridges starts bridges as processes, each in a process group of its own, so that an
// agent outlives a loop that is killed.
type Bridges struct {
	// Program is this program, Args what comes behind `acp run`, and Env its environment.
	Program   string
	Args, Env []string
	// Say is told what a bridge says.
	Say func(w Work, line string)
}

// Run runs a bridge to its end. Where the context ends, the bridge is told to end its agent.
func (b *Bridges) Run(ctx context.Context, w Work) error {
	cmd := exec.CommandContext(ctx, b.Program, append([]string{"acp", "run", "--task", w.TaskID}, b.Args...)...)
	// The token stands in no command line, and the loop's own is not handed on.
	cmd.Env = append(without(b.Env, "OCIPD_TOKEN", "OCIPD_TOKEN_FILE"), "OCIPD_TOKEN="+w.Token)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	_ = write.Close() // the bridge has it
	if err != nil {
		return fmt.Errorf("the bridge cannot be started: %w", err)
	}
	last := ""
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		last = strings.TrimSpace(lines.Text())
		b.Say(w, last)
	}
	_, _ = io.Copy(io.Discard, read) // behind a line that is too long
	err = cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return fmt.Errorf("%s", cmp.Or(last, err.Error()))
	}
	return err
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
