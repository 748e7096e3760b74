package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
)

// configuration is the daemon's. The agents send in pairs, so that no chain of
// messages gets long enough for a person; each reload changes how long an app may
// be silent.
const configuration = `
agents:
  - {id: a1, app: "@soak/a1", instance_id: agent-a1, user_id: a1, org_unit: eng, tenant_id: acme}
  - {id: a2, app: "@soak/a2", instance_id: agent-a2, user_id: a2, org_unit: eng, tenant_id: acme}
  - {id: a3, app: "@soak/a3", instance_id: agent-a3, user_id: a3, org_unit: eng, tenant_id: acme}
  - {id: a4, app: "@soak/a4", instance_id: agent-a4, user_id: a4, org_unit: eng, tenant_id: acme}
  - {id: flood, app: "@soak/flood", instance_id: agent-f, user_id: f, org_unit: eng, tenant_id: acme}
  - {id: visitor, app: "@soak/visitor", instance_id: agent-v, user_id: v, org_unit: eng, tenant_id: acme}
directory:
  - {instance_id: agent-bob, user_id: bob, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: ["chat:bob"]}
  - {instance_id: agent-dan, user_id: dan, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: ["mail:dan"]}
  - {instance_id: agent-eve, user_id: eve, org_unit: eng, tenant_id: globex, accepts: [internal], sessions: ["chat:eve"]}
  - {instance_id: agent-dora, user_id: dora, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: ["sink:dora"]}
  - {kind: person, user_id: pat, sessions: ["chat:pat"]}
routes:
  - {session: "chat:*", agent: a1}
access:
  apps:
    "@soak/chat": {channels: [chat]}
    "@soak/mail": {channels: [mail]}
    "@soak/sink": {channels: [sink]}
%sapprovals: {notify: {desktop: false}}
tasks:
  self_review: true
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
audit: {rotate: {bytes: 1048576}}
ipc: {apps_may_operate: true}
channels: {big: {text: %q}}
health: {unhealthy_after: %ds}
`

// largeAnswer is the size of the answer that a neighbour which reads nothing asks for again
// and again.
const largeAnswer = 100 << 10

// place is the daemon's directory.
type place struct{ dir, binary string }

func (p place) socket() string           { return filepath.Join(p.dir, "run", "kernel.sock") }
func (p place) state(name string) string { return filepath.Join(p.dir, "openclawos", name) }
func (p place) config() string           { return filepath.Join(p.dir, "ocipd.yaml") }

// configure writes the configuration in one go, the n-th of them.
func (p place) configure(n int) error {
	var granted strings.Builder
	for i := range observers {
		fmt.Fprintf(&granted, "    %q: {observes: [\"*\"], channels: [big]}\n", observer(i))
	}
	text := fmt.Sprintf(configuration, granted.String(), strings.Repeat("x", largeAnswer), 90+n%2)
	if err := os.WriteFile(p.config()+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(p.config()+".new", p.config())
}

func (p place) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binary, append(args, "--config", p.config(), "--socket", p.socket())...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+p.dir, "XDG_RUNTIME_DIR=")
	return cmd
}

// verify has the verifier read the whole log, and returns what it says of it.
func (p place) verify(ctx context.Context) (string, error) {
	said, err := p.command(ctx, "audit", "verify").CombinedOutput()
	text := strings.TrimSpace(string(said))
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	verdict, _, _ := strings.Cut(text, "\n")
	if _, after, found := strings.Cut(verdict, "): "); found {
		verdict = after
	}
	return "log: " + verdict, nil
}

// process is the running daemon.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error
}

const (
	startTime = 30 * time.Second
	stopTime  = 30 * time.Second
)

// start runs the daemon and waits until it answers.
func (p place) start(ctx context.Context) (*process, error) {
	// Not ended with the context: it is stopped in peace, and verified.
	cmd := p.command(context.WithoutCancel(ctx), "serve")
	d := &process{cmd: cmd, log: filepath.Join(p.dir, "daemon.log"), ended: make(chan struct{})}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(d.ended)
		d.err = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := client.Dial(ctx, config.OperatorPath(p.socket()))
		if err == nil {
			return d, c.Close()
		}
		select {
		case <-again.C:
		case <-d.ended:
			return nil, fmt.Errorf("the daemon does not start: %s", d.lastWords())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the daemon does not answer: %w", err), d.stop())
		}
	}
}

// lastWords are the last lines of the daemon's log.
func (d *process) lastWords() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}

// stop ends the daemon as its manager would.
func (d *process) stop() error {
	// An error means that it has ended already, which is seen below.
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-d.ended:
		if d.err != nil {
			return fmt.Errorf("the daemon ended with a fault: %w: %s", d.err, d.lastWords())
		}
		return nil
	case <-late.C:
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("the daemon does not stop within %s", stopTime)
	}
}
