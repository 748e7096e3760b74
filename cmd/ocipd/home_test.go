package main

import (
	"os"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
)

// TestHome opens the bare command's screen at a terminal, walks through its panes, makes a
// decision, and quits.
func TestHome(t *testing.T) {
	t.Parallel()
	p := newOperators(t, nil, "")
	p.hold("I promise the lighthouse")
	tty := openTerminal(t, 80, 24, append(p.env, asProgram+"=1", "OPENCLAWOS_KERNEL_SOCKET="+p.socket), os.Args[0])
	tty.want("1 overview", "1 request for a person", "I promise", "newest records", "COMMITMENT", "? help")
	tty.typed("2")
	tty.want("enter decides", "I promise")
	tty.typed("\r")
	tty.want("a approve", "d deny", "What the agent wrote")
	tty.typed("q")
	tty.want("2 requests", "enter decides")
	tty.typed("3")
	tty.want("daemon_started")
	tty.typed("4")
	tty.want("EXCHANGE", "agent-alice-1")
	tty.typed("5")
	tty.want("AGENT", "alice")
	tty.typed("?")
	tty.want("another pane")
	tty.typed("x")
	tty.resize(50, 12)
	tty.typed("1")
	tty.want("for a person")
	p.end()
	tty.want("cannot reach the daemon")
	tty.typed("q")
	if code := tty.wait(); code != cli.ExitDone {
		t.Errorf("exits %d", code)
	}
}
