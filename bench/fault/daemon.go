package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// configuration is that of every daemon here: one agent, one it talks to, and
// nothing that would start other programs.
const configuration = `
agents:
  - {id: alice, app: "@fault/alice", instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme}
directory:
  - {instance_id: agent-bob-1, user_id: bob, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: ["chat:bob"]}
approvals: {notify: {desktop: false}}
ipc: {apps_may_operate: true}
policy: {watch: false}
tasks:
  self_review: true
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
drain_timeout: 2s
`

// place is a daemon's directory.
type place struct{ dir, binary string }

func (p place) socket() string   { return filepath.Join(p.dir, "run", "kernel.sock") }
func (p place) state() string    { return filepath.Join(p.dir, "openclawos") }
func (p place) database() string { return filepath.Join(p.state(), "ocipd.db") }
func (p place) config() string   { return filepath.Join(p.dir, "ocipd.yaml") }
func (p place) environ() []string {
	return append(os.Environ(), "XDG_STATE_HOME="+p.dir, "XDG_RUNTIME_DIR=")
}
func (p place) received() string  { return filepath.Join(p.dir, "received.log") }
func (p place) daemonLog() string { return filepath.Join(p.dir, "daemon.log") }
func (p place) serving() []string {
	return []string{p.binary, "serve", "--config", p.config(), "--socket", p.socket()}
}
func (p place) configure() error { return os.WriteFile(p.config(), []byte(configuration), 0o600) }
func (p place) exists(f string) bool {
	_, err := os.Stat(f)
	return err == nil
}

// process is a running daemon.
type process struct {
	cmd *exec.Cmd
	pid int
	// orders and events are the tracer's, nil without one.
	orders *os.File
	events chan string
	ready  chan struct{}
	ended  chan struct{}
	code   int
}

// start runs the daemon, under the tracer where traced is set; a first aim is
// armed before the daemon begins. It does not wait until the daemon is ready.
func (p place) start(ctx context.Context, traced bool, first *aim) (*process, error) {
	command := p.serving()
	d := &process{ready: make(chan struct{}), ended: make(chan struct{}), events: make(chan string, 64)}
	var theirs []*os.File
	if traced {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		args := []string{"-trace", p.dir}
		if first != nil {
			args = append(args, "-aim", first.String())
		}
		command = append(append([]string{self}, args...), append([]string{"--"}, command...)...)
		ordersRead, ordersWrite, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		eventsRead, eventsWrite, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		d.orders = ordersWrite
		theirs = []*os.File{ordersRead, eventsWrite}
		go func() {
			defer close(d.events)
			defer eventsRead.Close()
			for lines := bufio.NewScanner(eventsRead); lines.Scan(); {
				d.events <- lines.Text()
			}
		}()
	}
	d.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	d.cmd.Env, d.cmd.ExtraFiles = p.environ(), theirs
	said, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	err = d.cmd.Start()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return nil, err
	}
	d.pid = d.cmd.Process.Pid
	go p.follow(d, said)
	if traced {
		line, ok := <-d.events
		if _, err := fmt.Sscanf(line, "pid %d", &d.pid); !ok || err != nil {
			<-d.ended
			return nil, fmt.Errorf("the tracer does not start: %s", p.lastWords())
		}
	}
	return d, nil
}

// follow keeps what the daemon says until it ends.
func (p place) follow(d *process, said io.Reader) {
	defer close(d.ended)
	log, err := os.OpenFile(p.daemonLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		defer log.Close()
		ready := false
		for lines := bufio.NewScanner(said); lines.Scan(); {
			fmt.Fprintln(log, lines.Text())
			if !ready && strings.Contains(lines.Text(), `"ready"`) {
				ready = true
				close(d.ready)
			}
		}
	}
	err = d.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		d.code = exit.ExitCode()
	case err != nil:
		d.code = -1
	}
	if d.orders != nil {
		_ = d.orders.Close()
	}
}

// lastWords are the last lines of the daemon's log.
func (p place) lastWords() string {
	text, err := os.ReadFile(p.daemonLog())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-2):], "\n")
}

// await returns whether the daemon is ready, or has ended.
func (d *process) await(ctx context.Context) (ready bool, err error) {
	select {
	case <-d.ready:
		return true, nil
	case <-d.ended:
		return false, nil
	case <-ctx.Done():
		return false, errors.New("the daemon neither starts nor ends")
	}
}

// order tells the tracer something and waits for its answer.
func (d *process) order(text string, o *outcome) {
	// A tracer that is gone answers nothing.
	_, _ = fmt.Fprintln(d.orders, text)
	for line := range d.events {
		if o.hear(line) {
			return
		}
	}
}

// stop ends the daemon in peace and reports whether it had to be killed.
func (d *process) stop() (killed bool) {
	_ = syscall.Kill(d.pid, syscall.SIGTERM)
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case <-d.ended:
		return false
	case <-late.C:
	}
	d.kill()
	return true
}

func (d *process) kill() {
	_ = syscall.Kill(d.pid, syscall.SIGKILL)
	<-d.ended
}
