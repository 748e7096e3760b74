package demo

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
)

// The demo's world. Its policy permits marketing and nothing else, so that a cross-org
// decision can go either way.
const (
	demoConfig = `
# The story's apps and its person are one process.
ipc: {apps_may_operate: true}
ocip: {chain: {max_hops: 3}}
approvals: {notify: {desktop: false}}
agents:
  - {id: alice, app: "@demo/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@demo/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
  - {id: cleo, app: "@demo/cleo", instance_id: agent-cleo-1, user_id: cleo, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {instance_id: agent-carol-1, user_id: carol, org_unit: marketing, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:carol"]}
  - {instance_id: agent-frank-1, user_id: frank, org_unit: legal, tenant_id: acme-corp, accepts: [public], sessions: ["telegram:frank"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public], sessions: ["telegram:eve"]}
routes:
  - {session: "telegram:*", agent: alice}
policy:
  path: %q
  data: {open_units: [marketing]}
`
	demoPolicy = `package ocip.cross_org

decision := {"allow": allow, "require_approval": false, "reason": reason, "constraints": {}}

default allow := false

allow if input.target_org_unit in data.policy.open_units

reason := sprintf("%s is open to other units", [input.target_org_unit]) if allow

else := sprintf("%s is not in policy.data.open_units", [input.target_org_unit])
`
)

func (d *demo) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

// prepare writes the demo's configuration and policy.
func (d *demo) prepare() error {
	if err := os.Mkdir(d.path("policy"), 0o700); err != nil {
		return err
	}
	builtIn, err := fs.ReadFile(policies.FS(), "agent_exchange.rego")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(d.path("policy", "agent_exchange.rego"), builtIn, 0o600),
		os.WriteFile(d.path("policy", "cross_org.rego"), []byte(demoPolicy), 0o600),
		os.WriteFile(d.path("ocipd.yaml"), fmt.Appendf(nil, demoConfig, d.path("policy")), 0o600),
	)
}

// startDaemon runs this program as a daemon and waits until it answers.
func (d *demo) startDaemon() error {
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	d.daemon = exec.CommandContext(d.ctx, self, "serve", "--config", d.path("ocipd.yaml"), "--socket", d.path("run", "kernel.sock"))
	// The story must not depend on this machine's settings.
	d.daemon.Env = []string{"PATH=" + d.Getenv("PATH"), "HOME=" + d.dir, "XDG_STATE_HOME=" + d.dir}
	log, err := d.daemon.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.daemon.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"ready"`) {
			go func() {
				for lines.Scan() {
				}
			}()
			d.operator, err = client.Dial(d.ctx, config.OperatorPath(d.path("run", "kernel.sock")))
			return err
		}
	}
	return errors.Join(errors.New("cannot start the demo's daemon"), d.daemon.Wait())
}

// start starts a daemon and connects the apps to it.
func (d *demo) start() (err error) {
	if err := d.startDaemon(); err != nil {
		return err
	}
	if d.telegram, err = d.connect("@demo/telegram", api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending"}},
	}); err != nil {
		return err
	}
	hooks := api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}}
	if d.alice, err = d.connect("@demo/alice", hooks); err != nil {
		return err
	}
	if d.bob, err = d.connect("@demo/bob", hooks); err != nil {
		return err
	}
	d.cleo, err = d.connect("@demo/cleo", hooks)
	return err
}

// connect follows the protocol's connection flow, as an app does.
func (d *demo) connect(id string, c api.Capabilities) (*client.Client, error) {
	app, err := client.Dial(d.ctx, d.path("run", "kernel.sock"))
	if err != nil {
		return nil, err
	}
	_, err = app.Register(d.ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "main.js", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion}, Capabilities: c,
	})
	if err != nil {
		return nil, err
	}
	for _, channel := range c.Channels.Provides {
		params := map[string]any{"type": "channel", "config": map[string]any{"channelId": channel}}
		if err := app.Call(d.ctx, "capability.register", params, nil); err != nil {
			return nil, err
		}
	}
	if err := app.Call(d.ctx, "hook.subscribe", map[string]any{"events": c.Hooks.Subscribes}, nil); err != nil {
		return nil, err
	}
	return app, app.Call(d.ctx, "app.ready", map[string]any{}, nil)
}

// restart kills the daemon, starts another, and connects the apps to it. It adds a line to the apps' view.
func (d *demo) restart(saw []term.Cell) ([]term.Cell, error) {
	if err := d.daemon.Process.Kill(); err != nil {
		return nil, err
	}
	_ = d.daemon.Wait()
	return append(saw, term.Tinted("kill -9, then a new daemon", term.Red)), d.start()
}

func (d *demo) cleanUp() {
	for _, c := range []*client.Client{d.operator, d.telegram, d.alice, d.bob, d.cleo} {
		if c != nil {
			_ = c.Close()
		}
	}
	if d.daemon != nil && d.daemon.Process != nil {
		_ = d.daemon.Process.Kill()
		_ = d.daemon.Wait()
	}
	_ = os.RemoveAll(d.dir)
}
