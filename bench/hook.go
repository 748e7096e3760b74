package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// hookFigures are the figures of ocipd hook: the time that a runtime waits before each call of a tool.
func hookFigures() []figure {
	return []figure{
		{"hook of a runtime, with the program's start, p50", "ocipd version", "≤ 60 ms", func(b *bench) (result, error) { return hookLatency(b, false, 60*time.Millisecond) }},
		{"hook of a runtime, over the program's start, p50", "ocipd version", "≤ 15 ms", func(b *bench) (result, error) { return hookLatency(b, true, 15*time.Millisecond) }},
	}
}

// hookCalls is how many hooks are measured.
const hookCalls = 100

// hookLatency measures a hook whose call is decided and recorded, beside a start of the program that
// does nothing else.
func hookLatency(b *bench, over bool, goal time.Duration) (result, error) {
	d, err := b.start(fmt.Sprintf("hooked-%t", over), 1)
	if err != nil {
		return result{}, err
	}
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return result{}, err
	}
	defer operator.socket.Close()
	granted, err := operator.call("task.grant", `{"agent":"hooked"}`)
	if err != nil {
		return result{}, err
	}
	token := filepath.Join(d.dir, "token")
	if err := os.WriteFile(token, []byte(member(granted, "token")), 0o600); err != nil {
		return result{}, err
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+d.dir)
	hook := func() error {
		cmd := exec.CommandContext(b.ctx, b.binary, "--socket", d.socket, "hook", "gemini", "--token-file", token)
		cmd.Env = env
		cmd.Stdin = bytes.NewReader([]byte(`{"hook_event_name":"BeforeTool","session_id":"s","cwd":"/","tool_name":"run_shell_command","tool_input":{"command":"git status"}}`))
		out, err := cmd.Output()
		if err == nil && string(bytes.TrimSpace(out)) != "{}" {
			err = fmt.Errorf("the hook has answered %s", out)
		}
		return err
	}
	start := func() error { return exec.CommandContext(b.ctx, b.binary, "version").Run() }
	// The gate that the first hook starts ends soon after its socket is gone.
	defer func() { _ = os.Remove(filepath.Join(d.dir, "openclawos", "hooks.sock")) }()
	t, err := medians(hookCalls, hook, start)
	if err != nil {
		return result{}, err
	}
	ours := t[0]
	if over {
		ours -= t[1]
	}
	return result{ours: ours.Round(10 * time.Microsecond).String(), floor: t[1].Round(10 * time.Microsecond).String(), ratio: fmt.Sprintf("%.2f", float64(t[0])/float64(t[1])), met: ours <= goal}, nil
}
