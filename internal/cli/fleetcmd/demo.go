package fleetcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
)

// serverWanted is the command that installs the broker.
const serverWanted = "go install github.com/nats-io/nats-server/v2@v2.15.2"

func newDemo(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "show two daemons exchanging messages over a broker",
		Long: `Start two daemons and a broker on this machine's loopback in a temporary directory.
alice on host A writes to bob on host B: one message is allowed, one a person
approves, one to another company is refused, and one waits while the broker is
away. At the end both logs are verified. Everything is removed afterwards.

The demo needs nats-server 2.12 or newer on the PATH:

  ` + serverWanted,
		Example: "  ocipd fleet demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := exec.LookPath("nats-server")
			if err != nil {
				return fmt.Errorf("cannot find nats-server on the PATH; install it with: %s", serverWanted)
			}
			dir, err := os.MkdirTemp("", "fleet-demo-")
			if err != nil {
				return err
			}
			d := &demo{Process: s, ctx: cmd.Context(), dir: dir, server: server}
			defer d.cleanUp()
			return d.tell()
		},
	}
}

// demo is the state of the demo. Its processes are killed at the end.
type demo struct {
	*cli.Process
	ctx         context.Context
	dir, server string
	// address is the broker's.
	address    string
	processes  []*exec.Cmd
	daemons    map[string]*exec.Cmd
	broker     *exec.Cmd
	alice, bob *client.Client
}

// demoPatience bounds each wait of the demo. Only a fault takes that long.
const demoPatience = 15 * time.Second

func (d *demo) cleanUp() {
	for _, c := range []*client.Client{d.alice, d.bob} {
		if c != nil {
			_ = c.Close()
		}
	}
	for _, p := range d.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	_ = os.RemoveAll(d.dir)
}

func (d *demo) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

// command is this program with arguments, for one of the hosts.
func (d *demo) command(host string, args ...string) *exec.Cmd {
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		self = os.Args[0]
	}
	c := exec.CommandContext(d.ctx, self, args...)
	// The story must not depend on this machine's settings.
	c.Env = []string{"PATH=" + d.Getenv("PATH"), "HOME=" + d.dir, "XDG_STATE_HOME=" + d.path("state-"+host), "OCIPD_FLEET_OPERATORS=" + d.path("operators")}
	return c
}

func (d *demo) run(host string, args ...string) ([]byte, error) {
	var said strings.Builder
	c := d.command(host, args...)
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot run ocipd %s: %w\n%s", strings.Join(args, " "), err, &said)
	}
	return out, nil
}

// start starts a process, and returns the line with a text that it prints.
func (d *demo) start(c *exec.Cmd, until string) (line string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	c.Stdout, c.Stderr = in, in
	if err := errors.Join(c.Start(), in.Close()); err != nil {
		return "", errors.Join(err, out.Close())
	}
	d.processes = append(d.processes, c)
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), until) {
			go func() {
				defer out.Close()
				for lines.Scan() {
				}
			}()
			return lines.Text(), nil
		}
	}
	return "", fmt.Errorf("cannot start %s:\n%s", filepath.Base(c.Path), strings.Join(said, "\n"))
}

// tell plays the demo.
func (d *demo) tell() error {
	for _, step := range []func() error{d.found, d.startBroker, d.startHosts, d.allowed, d.approved, d.walled, d.cut, d.verdict} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// demoHost is the configuration of a host, without the fleet's part.
const demoHost = `# The story's apps and its person are one process.
ipc: {apps_may_operate: true}
approvals: {notify: {desktop: false}}
agents:
  - {id: %[1]s, app: "@demo/%[1]s", instance_id: agent-%[1]s-1, user_id: %[1]s, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public], sessions: ["telegram:eve"]}
`

// found makes an operator and a roster with two hosts.
func (d *demo) found() error {
	key, public, err := sshsig.GenerateKey("olga")
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(d.path("olga"), key, 0o600),
		os.WriteFile(d.path("operators"), append([]byte("olga "), ssh.MarshalAuthorizedKey(public)...), 0o600),
	)
	if err != nil {
		return err
	}
	if _, err := d.run("", "fleet", "init", d.path("fleet.jsonl"), "--tenant", "acme-corp", "--key", d.path("olga")); err != nil {
		return err
	}
	for host, agent := range map[string]string{"a": "alice", "b": "bob"} {
		file, text := d.path(host+".yaml"), fmt.Sprintf(demoHost, agent)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		lines, err := d.run(host, "fleet", "join", "host-"+host, "--config", file)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("fleet: {roster: fleet.jsonl, host: host-%s, operators: %s}\n", host, d.path("operators"))
		if err := errors.Join(os.WriteFile(d.path(host+".jsonl"), lines, 0o600), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return err
		}
		if _, err := d.run("", "fleet", "add", d.path("fleet.jsonl"), d.path(host+".jsonl"), "--key", d.path("olga"), "--yes"); err != nil {
			return err
		}
	}
	d.Say("An operator has signed a roster: host A with alice, host B with bob.")
	return nil
}

// anyPort has the broker choose a port.
const anyPort = "127.0.0.1:-1"

// startBroker writes the broker's configuration, and starts the broker: the first time at a free port,
// and then at the same one.
func (d *demo) startBroker() error {
	listen := d.address
	if listen == "" {
		listen = anyPort
	}
	if _, err := d.run("", "fleet", "broker", d.path("broker"), d.path("fleet.jsonl"), "--listen", listen); err != nil {
		return err
	}
	d.broker = exec.CommandContext(d.ctx, d.server, "--config", d.path("broker", "nats.conf"))
	line, err := d.start(d.broker, "Listening for client connections on ")
	if err != nil || d.address != "" {
		return err
	}
	d.address = line[strings.LastIndexByte(line, ' ')+1:]
	_, err = d.start(d.command("", "fleet", "broker", d.path("broker"), d.path("fleet.jsonl"), "--listen", d.address, "--keep"), "the stream is there")
	return err
}

// startHosts starts the daemons, lines and apps of both hosts.
func (d *demo) startHosts() (err error) {
	d.daemons = map[string]*exec.Cmd{}
	for _, host := range []string{"a", "b"} {
		config, socket := d.path(host+".yaml"), d.path(host, "kernel.sock")
		d.daemons[host] = d.command(host, "serve", "--config", config, "--socket", socket)
		if _, err := d.start(d.daemons[host], `"ready"`); err != nil {
			return err
		}
		if _, err := d.start(d.command(host, "fleet", "run", "nats://"+d.address, "--config", config, "--socket", socket), "carries over the broker"); err != nil {
			return err
		}
	}
	if d.alice, err = d.connect("a", "@demo/alice"); err != nil {
		return err
	}
	if d.bob, err = d.connect("b", "@demo/bob"); err != nil {
		return err
	}
	d.Say("Two daemons and a broker run. Each host has a line to the broker, and no other connection.")
	return nil
}

// connect follows the protocol's connection flow, as an app does.
func (d *demo) connect(host, id string) (*client.Client, error) {
	app, err := client.Dial(d.ctx, d.path(host, "kernel.sock"))
	if err != nil {
		return nil, err
	}
	_, err = app.Register(d.ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "main.js", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
		Capabilities: api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}},
	})
	return app, errors.Join(err, app.Call(d.ctx, "hook.subscribe", map[string]any{"events": []string{"message_received"}}, nil), app.Call(d.ctx, "app.ready", map[string]any{}, nil))
}

// send has alice send a message.
func (d *demo) send(to, text string) (result api.DispatchResult, err error) {
	d.Say("\nalice writes to %s: %s", to, text)
	err = d.alice.Call(d.ctx, "message.dispatch", map[string]any{"sessionKey": to, "content": text, "metadata": map[string]any{"exchange": map[string]any{"new": true}}}, &result)
	return result, err
}

// next waits for an event of an app, and skips others.
func (d *demo) next(app *client.Client, event string, into any) error {
	ctx, cancel := context.WithTimeout(d.ctx, demoPatience)
	defer cancel()
	for {
		in, err := app.Next(ctx)
		if err != nil {
			return fmt.Errorf("cannot wait for %s: %w", event, err)
		}
		if in.Event == event {
			return json.Unmarshal(in.Payload, into)
		}
	}
}

// arrives shows that bob gets a message, and alice its receipt.
func (d *demo) arrives() error {
	var e api.HookEvent
	var m api.Inbound
	var r fleetapi.MessageReceipt
	if err := d.next(d.bob, "hook:message_received", &e); err != nil {
		return err
	}
	if err := errors.Join(json.Unmarshal(e.Data, &m), d.next(d.alice, fleetapi.ReceiptEvent, &r)); err != nil {
		return err
	}
	if m.DispatchID != r.DispatchID {
		return fmt.Errorf("bob got %s, and the receipt is for %s", m.DispatchID, r.DispatchID)
	}
	d.Say("  bob got it on host B. The signed receipt of %s: %s, its record %d.", r.Host, r.Result, r.Record)
	return nil
}

func (d *demo) allowed() error {
	if _, err := d.send("agent:bob:main", "How far is the review?"); err != nil {
		return err
	}
	return d.arrives()
}

func (d *demo) approved() error {
	result, err := d.send("agent:bob:main", "Fine, I confirm the deadline.")
	if err != nil {
		return err
	}
	if !result.Held {
		return errors.New("the promise was not held")
	}
	d.Say("  held for a person on host A: %s", result.OCIP.Reason)
	person, err := client.Dial(d.ctx, config.OperatorPath(d.path("a", "kernel.sock")))
	if err != nil {
		return err
	}
	defer person.Close()
	var waits api.Approval
	if err := person.Call(d.ctx, "approval.get", api.ApprovalParams{ApprovalID: result.ApprovalID}, &waits); err != nil {
		return err
	}
	if err := person.Call(d.ctx, "approval.resolve", api.ApprovalResolveParams{ApprovalID: result.ApprovalID, Decision: api.DecideApprove, Digest: waits.Digest}, nil); err != nil {
		return err
	}
	d.Say("  the person approves")
	return d.arrives()
}

func (d *demo) walled() error {
	_, err := d.send("telegram:eve", "Shall we compare notes?")
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Errorf("a message to another company was taken: %w", err)
	}
	d.Say("  %s: %s", refused.Code, refused.Message)
	return nil
}

// cut kills the broker, and starts it again after a message.
func (d *demo) cut() error {
	if err := d.broker.Process.Kill(); err != nil {
		return err
	}
	_ = d.broker.Wait()
	d.Say("\nThe broker is killed.")
	if _, err := d.send("agent:bob:main", "Read this when the broker is back."); err != nil {
		return err
	}
	d.Say("  it waits on host A")
	if err := d.startBroker(); err != nil {
		return err
	}
	d.Say("  the broker is back")
	return d.arrives()
}

// verdict stops both daemons, and verifies their logs.
func (d *demo) verdict() error {
	d.Say("")
	for _, host := range []string{"a", "b"} {
		if err := d.daemons[host].Process.Signal(os.Interrupt); err != nil {
			return err
		}
		if err := d.daemons[host].Wait(); err != nil {
			return err
		}
		said, err := d.run(host, "audit", "verify", "--config", d.path(host+".yaml"))
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(said), "\n")
		d.Say("The log of host %s: %s", strings.ToUpper(host), first)
	}
	return nil
}
