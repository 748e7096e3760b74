// Package demo plays short scenes on its own daemon: the apps' view beside the log's records.
package demo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Options are the inputs of the demo.
type Options struct {
	Stdin  io.Reader
	Stdout io.Writer
	Screen term.Screen
	Getenv func(string) string
	// Pause makes the demo wait for Enter after each scene.
	Pause bool
}

// Run plays the demo in a temporary directory, with this program as the daemon, and removes
// everything afterwards.
func Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "ocipd-demo-")
	if err != nil {
		return err
	}
	d := &demo{Options: o, ctx: ctx, dir: dir, received: make(map[string]bool), counts: make(map[string]int)}
	if o.Pause {
		d.enter = bufio.NewReader(o.Stdin)
	}
	defer d.cleanUp()
	return d.tell()
}

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

// demo is the state of the story: a daemon in its own process, and the apps.
type demo struct {
	Options
	ctx context.Context
	dir string
	// enter gets a person's Enter; nil if the demo does not wait.
	enter *bufio.Reader
	// counts are the numbers of decisions, by result.
	counts map[string]int

	daemon   *exec.Cmd
	operator *client.Client

	telegram, alice, bob, cleo *client.Client

	scene    int
	recorded uint64
	// approval is the last held message.
	approval string
	// received holds the dispatch ids of delivered messages. After a crash, a message can
	// come again, and an app drops a known id.
	received map[string]bool
}

// demoPatience bounds every wait of the demo. Only a fault takes that long.
const demoPatience = 15 * time.Second

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

func (d *demo) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

func (d *demo) tell() error {
	if err := d.prepare(); err != nil {
		return err
	}
	if err := d.startDaemon(); err != nil {
		return err
	}
	if err := d.connectApps(); err != nil {
		return err
	}
	d.printf("%s\n\n", d.Screen.Colour.Paint(term.Bold, "A daemon of its own, four apps over its Unix socket"))
	d.printf("alice, bob and cleo are agents here, in engineering at acme-corp. Over telegram\n")
	d.printf("they reach dave (engineering), carol (marketing), frank (legal), and eve of\nanother company.\n")
	if err := d.skipRecords(); err != nil {
		return err
	}
	for _, scene := range []struct {
		title string
		play  func() ([]term.Cell, error)
	}{
		{"A question to a colleague of the same unit", d.send("telegram:dave", "What is the status of ticket ENG-1234?", nil)},
		{"A colleague in marketing, which the policy opens", d.send("telegram:carol", "When does the campaign start?", nil)},
		{"A colleague in legal, which it does not", d.send("telegram:frank", "Who signed the contract?", nil)},
		{"Somebody at another company: no policy can allow it", d.send("telegram:eve", "Shall we compare notes?", nil)},
		{"More than alice's agent may share", d.send("telegram:dave", "The numbers of the quarter", map[string]any{"classification": "confidential", "new": true})},
		{"A secret in the text, whatever it was declared", d.send("telegram:dave", "Use AKIAIOSFODNN7SAMPLED for now.", map[string]any{"classification": "public", "new": true})},
		{"Data the receiver does not accept stays behind", d.send("telegram:dave", "Here is the state of the ticket.", map[string]any{"new": true, "data": []map[string]any{
			{"source": "jira", "fields": []string{"status"}, "classification": "internal", "description": "the ticket"},
			{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "what its owner earns"},
		}})},
		{"What dave's agent has said once, it cannot say again", d.replay},
		{"A person writes to alice's agent", d.human},
		{"Two agents of this daemon: both sides decide and log", d.pair},
		{"Agents that would go on for ever", d.loop},
		{"Three in a circle, no two of which use up their rounds", d.circle},
		{"Decided as for dave, and addressed to eve", d.mismatch},
		{"A name that only looks like dave's", d.send("telegram:d\u0430ve", "Are you there?", nil)},
		{"A promise to somebody whom nobody knows", d.send("telegram:4711", "Deal, I promise to pay you 500 EUR by Friday.", nil)},
		{"Dave's chat brings what claims to be carol's", d.forged},
		{"The receiver is away, and the daemon is killed meanwhile", d.killed},
		{"A promise that no person has agreed to", d.send("telegram:dave", "Fine, I c\u200bonfirm the deadline.", map[string]any{"new": true})},
		{"The daemon is killed; then the person approves", d.approve},
	} {
		saw, err := scene.play()
		if err != nil {
			return fmt.Errorf("cannot show %q: %w", scene.title, err)
		}
		switch err := d.show(scene.title, saw); {
		case errors.Is(err, errQuit):
			return nil
		case err != nil:
			return err
		}
	}
	return d.verdict()
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.Stdout, format, args...) }

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

func (d *demo) connectApps() (err error) {
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

// send is a scene in which alice's app dispatches a message, which telegram may get.
func (d *demo) send(session, content string, exchange map[string]any) func() ([]term.Cell, error) {
	return func() ([]term.Cell, error) {
		result, saw, err := d.dispatch(d.alice, "alice", session, content, exchange)
		if err != nil || result == nil {
			return saw, err
		}
		got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
		return append(saw, got...), err
	}
}

// dispatch sends a message, and returns the sender's view. A refusal is an answer, not an error.
func (d *demo) dispatch(from *client.Client, name, session, content string, exchange map[string]any) (*api.DispatchResult, []term.Cell, error) {
	ctx, cancel := context.WithTimeout(d.ctx, demoPatience)
	defer cancel()
	saw := []term.Cell{term.Tinted(name+" sends to "+session, term.Bold), term.Plain("  " + content)}
	if level, ok := exchange["classification"]; ok {
		saw = append(saw, term.Plain(fmt.Sprintf("  declared %v", level)))
	}
	params := map[string]any{"sessionKey": session, "content": content}
	if exchange != nil {
		params["metadata"] = map[string]any{"exchange": exchange}
	}
	var result api.DispatchResult
	err := from.Call(ctx, "message.dispatch", params, &result)
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		return nil, append(saw, term.Tinted("  "+string(refused.Code), term.Red), term.Plain("  "+refused.Message)), nil
	case err != nil:
		return nil, saw, err
	case result.Held:
		d.approval = result.ApprovalID
		return nil, append(saw, term.Tinted("  held for a person", term.Yellow), term.Plain("  "+result.OCIP.Reason)), nil
	case result.Waiting:
		saw = append(saw, term.Tinted("  waits: the receiver is away", term.Yellow))
	default:
		saw = append(saw, term.Tinted("  accepted", term.Green))
	}
	return &result, saw, nil
}

// receive returns the view of an app that gets a message.
func (d *demo) receive(app *client.Client, name, event string) ([]term.Cell, error) {
	var message api.Inbound
	for message.DispatchID == "" || d.received[message.DispatchID] {
		payload, err := d.next(app, event)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(payload.Data, &message); err != nil {
			return nil, err
		}
	}
	d.received[message.DispatchID] = true
	saw := []term.Cell{term.Tinted(name+" receives "+event, term.Bold)}
	for line := range strings.Lines(message.Content.Inspect()) {
		if line = strings.TrimSpace(line); line != "" {
			saw = append(saw, term.Plain("  "+line))
		}
	}
	envelope, err := ocip.ParseEnvelope(message.Metadata["ocip"])
	if errors.Is(err, ocip.ErrNoEnvelope) {
		return append(saw, term.Tinted("  no envelope: a human message", term.Dim)), nil
	}
	if err != nil {
		return nil, err
	}
	return append(saw,
		term.Tinted(fmt.Sprintf("  ocip: %s, from %s", envelope.MessageType, envelope.SourceAgent.InstanceID), term.Dim),
		term.Tinted(fmt.Sprintf("  %s, round %d of %d, %s", envelope.Classification, envelope.ExchangeRound, envelope.MaxRounds, envelope.ReplyPolicy), term.Dim),
	), nil
}

// next waits for an event of an app, and skips others.
func (d *demo) next(app *client.Client, event string) (payload api.HookEvent, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, demoPatience)
	defer cancel()
	for {
		in, err := app.Next(ctx)
		if err != nil {
			return payload, err
		}
		if in.Event == event {
			return payload, json.Unmarshal(in.Payload, &payload)
		}
	}
}

// demoEnvelope is an envelope of an agent of acme-corp in another installation.
func demoEnvelope(instance, user, unit string) map[string]any {
	return map[string]any{
		"version": ocip.Version, "message_type": ocip.AgentGenerated, "classification": "internal", "conversation_id": "conv-" + user + "-1",
		"source_agent":   map[string]any{"instance_id": instance, "user_id": user, "org_unit": unit, "tenant_id": "acme-corp"},
		"exchange_round": 1, "max_rounds": 3, "capabilities": map[string]any{"can_commit": false, "can_share": []string{"public", "internal"}},
		"reply_policy": ocip.AgentOK, "requires_commitment": false, "expires_at": "2099-01-01T00:00:00.000Z",
	}
}

// replay brings the same message of another installation twice.
func (d *demo) replay() (saw []term.Cell, err error) {
	params := map[string]any{"sessionKey": "telegram:dave", "text": "How far is the review?", "metadata": map[string]any{"ocip": demoEnvelope("agent-dave-1", "dave", "engineering")}}
	for range 2 {
		saw = append(saw, term.Tinted("telegram brings telegram:dave", term.Bold), term.Plain("  How far is the review? (round 1 of conv-dave-1)"))
		err := d.telegram.Call(d.ctx, "agent.queue", params, nil)
		var refused *api.Error
		switch {
		case errors.As(err, &refused):
			saw = append(saw, term.Tinted("  "+string(refused.Code), term.Red), term.Plain("  "+refused.Message))
		case err != nil:
			return nil, err
		default:
			saw = append(saw, term.Tinted("  accepted", term.Green))
			if _, err := d.next(d.alice, "hook:message_received"); err != nil {
				return nil, err
			}
		}
	}
	return saw, nil
}

// mismatch sends to a target other than the session's. The target in the metadata is the
// one that the channel's app would use.
func (d *demo) mismatch() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("alice sends to telegram:dave", term.Bold), term.Plain("  Between us: it slips by a week."), term.Plain("  metadata.chatId: eve")}
	params := map[string]any{"sessionKey": "telegram:dave", "content": "Between us: it slips by a week.", "metadata": map[string]any{"chatId": "eve"}}
	return d.refused(saw, d.alice.Call(d.ctx, "message.dispatch", params, nil))
}

// forged brings an envelope with a source that does not belong to the session.
func (d *demo) forged() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("telegram brings telegram:dave", term.Bold), term.Plain("  The campaign is yours. (from agent-carol-1)")}
	params := map[string]any{"sessionKey": "telegram:dave", "text": "The campaign is yours.", "metadata": map[string]any{"ocip": demoEnvelope("agent-carol-1", "carol", "marketing")}}
	return d.refused(saw, d.telegram.Call(d.ctx, "agent.queue", params, nil))
}

// refused adds the refusal of a call, which must have failed.
func (d *demo) refused(saw []term.Cell, err error) ([]term.Cell, error) {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		return nil, fmt.Errorf("it was taken: %w", err)
	}
	return append(saw, term.Tinted("  "+string(refused.Code), term.Red), term.Plain("  "+refused.Message)), nil
}

func (d *demo) human() ([]term.Cell, error) {
	saw := []term.Cell{term.Tinted("telegram brings telegram:4711", term.Bold), term.Plain("  Can you look into this?")}
	params := map[string]any{"sessionKey": "telegram:4711", "text": "Can you look into this?"}
	if err := d.telegram.Call(d.ctx, "agent.queue", params, nil); err != nil {
		return nil, err
	}
	got, err := d.receive(d.alice, "alice", "hook:message_received")
	return append(saw, got...), err
}

func (d *demo) pair() ([]term.Cell, error) {
	_, saw, err := d.dispatch(d.alice, "alice", "agent:bob:main", "How far is the review?", nil)
	if err != nil {
		return nil, err
	}
	got, err := d.receive(d.bob, "bob", "hook:message_received")
	return append(saw, got...), err
}

// turn is one message in a conversation of agents.
type turn struct {
	from    *client.Client
	name    string
	session string
	to      *client.Client
	text    string
}

// loop continues the exchange of the previous scene until the daemon stops it.
func (d *demo) loop() ([]term.Cell, error) {
	return d.talk(nil,
		turn{d.bob, "bob", "agent:alice:main", d.alice, "Half way. And yours?"},
		turn{d.alice, "alice", "agent:bob:main", d.bob, "Half way too. And yours?"},
		turn{d.bob, "bob", "agent:alice:main", d.alice, "Still half way. And yours?"},
	)
}

// circle passes a message around; each one opens a new exchange. A person has settled the
// loop of the previous scene.
func (d *demo) circle() ([]term.Cell, error) {
	if err := d.operator.Call(d.ctx, "approval.resolve", api.ApprovalResolveParams{ApprovalID: d.approval, Decision: api.DecideDeny}, nil); err != nil {
		return nil, err
	}
	if err := d.skipRecords(); err != nil {
		return nil, err
	}
	to := func(agent string) string { return "agent:" + agent + ":circle" }
	return d.talk(map[string]any{"new": true},
		turn{d.bob, "bob", to("cleo"), d.cleo, "Can you take this?"},
		turn{d.cleo, "cleo", to("alice"), d.alice, "Can you take this?"},
		turn{d.alice, "alice", to("bob"), d.bob, "Can you take this?"},
		turn{d.bob, "bob", to("cleo"), d.cleo, "It was yours. Can you take it?"},
	)
}

// talk lets agents speak in turn until the daemon stops them.
func (d *demo) talk(exchange map[string]any, turns ...turn) (saw []term.Cell, err error) {
	for _, turn := range turns {
		result, said, err := d.dispatch(turn.from, turn.name, turn.session, turn.text, exchange)
		if err != nil {
			return nil, err
		}
		saw = append(saw, said...)
		if result == nil {
			return saw, nil
		}
		if _, err := d.next(turn.to, "hook:message_received"); err != nil {
			return nil, err
		}
	}
	return saw, nil
}

// killed shows that accepted messages are not lost: the daemon is killed while a message waits.
func (d *demo) killed() ([]term.Cell, error) {
	if err := d.telegram.Call(d.ctx, "app.shutdown", map[string]any{"reason": "out for a walk"}, nil); err != nil {
		return nil, err
	}
	<-d.telegram.Done()
	_, saw, err := d.dispatch(d.alice, "alice", "telegram:dave", "Read this when you are back.", map[string]any{"new": true})
	if err != nil {
		return nil, err
	}
	if err := d.restart(); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("kill -9, then a new daemon", term.Red))
	if err := d.connectApps(); err != nil {
		return nil, err
	}
	got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
	return append(saw, got...), err
}

// approve shows that a held message survives the daemon, and is sent after a person approves it.
func (d *demo) approve() (saw []term.Cell, err error) {
	if err := d.restart(); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("kill -9, then a new daemon", term.Red))
	if err := d.connectApps(); err != nil {
		return nil, err
	}
	var waits api.Approval
	if err := d.operator.Call(d.ctx, "approval.get", api.ApprovalParams{ApprovalID: d.approval}, &waits); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("the person sees what waits", term.Bold),
		term.Plain("  "+waits.AgentID+" → "+waits.To()+": "+waits.Content), term.Plain("  "+waits.Reason), term.Plain("  "+waits.Digest[:23]+"…"))
	params := api.ApprovalResolveParams{ApprovalID: d.approval, Decision: api.DecideApprove, Digest: waits.Digest, Note: "agreed with dave"}
	if err := d.operator.Call(d.ctx, "approval.resolve", params, nil); err != nil {
		return nil, err
	}
	saw = append(saw, term.Tinted("the person approves", term.Green))
	got, err := d.receive(d.telegram, "telegram", "hook:message_sending")
	if err != nil {
		return nil, err
	}
	saw = append(saw, got...)
	var again *api.Error
	if err := d.operator.Call(d.ctx, "approval.resolve", params, nil); !errors.As(err, &again) {
		return nil, fmt.Errorf("a second approval was taken: %w", err)
	}
	return append(saw, term.Tinted("a second approval", term.Bold), term.Tinted("  "+string(again.Code), term.Red), term.Plain("  "+again.Message)), nil
}

// restart kills the daemon and starts another.
func (d *demo) restart() error {
	if err := d.daemon.Process.Kill(); err != nil {
		return err
	}
	_ = d.daemon.Wait()
	return d.startDaemon()
}

// skipRecords notes the end of the log, so that a scene shows only its own records.
func (d *demo) skipRecords() error {
	_, err := d.newRecords()
	return err
}

// newRecords returns the records since the last call.
func (d *demo) newRecords() (entries []audit.Entry, err error) {
	err = d.operator.Each(d.ctx, "audit.tail", api.AuditTailParams{After: &d.recorded}, func(line jsontext.Value) error {
		e, err := audit.Parse(line)
		if err != nil {
			return err
		}
		d.recorded = e.Seq
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// show prints a scene: the apps' view beside the log's records.
func (d *demo) show(title string, saw []term.Cell) error {
	entries, err := d.newRecords()
	if err != nil {
		return err
	}
	d.scene++
	d.printf("\n%s\n", d.Screen.Colour.Paint(term.Bold, fmt.Sprintf("%d. %s", d.scene, title)))
	var recorded []term.Cell
	for i := range entries {
		recorded = append(recorded, d.recordCells(&entries[i])...)
	}
	for i := range entries {
		if e := &entries[i]; e.ActionType == audit.ActionExchange && e.Side == audit.SideSender {
			d.counts[e.PolicyResult]++
		}
	}
	saw = append([]term.Cell{term.Tinted("what the apps saw", term.Dim)}, saw...)
	recorded = append([]term.Cell{term.Tinted("what the log recorded", term.Dim)}, recorded...)
	if d.Screen.Width < sideBySide {
		for _, line := range wrap(append(saw, recorded...), max(20, d.Screen.Width)) {
			d.printf("%s\n", d.Screen.Colour.Paint(line.Colour, line.Text))
		}
		return d.pause()
	}
	width := min(d.Screen.Width, 110) - 3
	left, right := wrap(saw, width/2), wrap(recorded, width-width/2)
	bar := d.Screen.Colour.Paint(term.Dim, "│")
	for i := range max(len(left), len(right)) {
		var l, r term.Cell
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		gap := strings.Repeat(" ", max(0, width/2-term.Width(l.Text)))
		d.printf("%s\n", strings.TrimRight(d.Screen.Colour.Paint(l.Colour, l.Text)+gap+" "+bar+" "+d.Screen.Colour.Paint(r.Colour, r.Text), " "))
	}
	return d.pause()
}

// sideBySide is the minimum width of a terminal for two columns.
const sideBySide = 80

// pause waits until the person has read a scene. At the end of the input it continues.
func (d *demo) pause() error {
	if d.enter == nil {
		return nil
	}
	d.printf("%s", d.Screen.Colour.Paint(term.Dim, "Enter goes on, q quits: "))
	line, err := d.enter.ReadString('\n')
	if err != nil {
		d.enter = nil
		d.printf("\n")
		return nil
	}
	if strings.TrimSpace(line) == "q" {
		return errQuit
	}
	return d.ctx.Err()
}

// errQuit ends the demo early.
var errQuit = errors.New("quit")

// recordCells shows one record.
func (d *demo) recordCells(e *audit.Entry) []term.Cell {
	if e.ActionType == audit.ActionApproval {
		cells := []term.Cell{term.Tinted(fmt.Sprintf("#%d %s %s", e.Seq, e.ActionType, e.Event), term.Green)}
		if by, ok := e.Details["by"].(string); ok {
			cells = append(cells, term.Plain("  by "+by))
		}
		return cells
	}
	if e.ActionType != audit.ActionExchange {
		return []term.Cell{term.Tinted(fmt.Sprintf("#%d %s %s %s", e.Seq, e.ActionType, e.Event, cmp.Or(e.AppID, e.AgentID)), term.Dim)}
	}
	out := logview.Result(e)
	cells := []term.Cell{
		term.Tinted(strings.TrimSpace(fmt.Sprintf("#%d %s %s", e.Seq, out.Text, e.Code)), out.Colour),
		term.Plain("  " + e.Side + ": " + e.AgentID + " " + logview.With(e)),
	}
	if e.MaxRounds > 0 {
		cells = append(cells, term.Plain(fmt.Sprintf("  %s, round %d of %d, %s", e.Classification, e.Round, e.MaxRounds, e.Outcome)))
	}
	for _, found := range e.Detections {
		cells = append(cells, term.Tinted(fmt.Sprintf("  found %s at %d to %d", found.Rule, found.Start, found.End), term.Yellow))
	}
	for _, kept := range e.DataWithheld {
		cells = append(cells, term.Tinted("  withheld "+kept.Description+": "+kept.Reason, term.Yellow))
	}
	return append(cells, term.Tinted("  "+e.PolicyApplied+": "+e.PolicyReason, term.Dim))
}

// wrap breaks lines at spaces to fit a width, with their indentation.
func wrap(lines []term.Cell, width int) (wrapped []term.Cell) {
	for _, line := range lines {
		indent := line.Text[:len(line.Text)-len(strings.TrimLeft(line.Text, " "))]
		text := indent
		for word := range strings.FieldsSeq(line.Text) {
			switch {
			case text == indent:
				text += word
			case term.Width(text)+1+term.Width(word) > width:
				wrapped = append(wrapped, term.Cell{Text: term.Cut(text, width), Colour: line.Colour})
				text = indent + word
			default:
				text += " " + word
			}
		}
		wrapped = append(wrapped, term.Cell{Text: term.Cut(text, width), Colour: line.Colour})
	}
	return wrapped
}

// verdict stops the daemon and verifies its log from the first byte.
func (d *demo) verdict() error {
	if err := d.daemon.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := d.daemon.Wait(); err != nil {
		return err
	}
	d.daemon = nil
	log, err := os.Open(d.path("openclawos", "audit.jsonl"))
	if err != nil {
		return err
	}
	defer log.Close()
	var v audit.Verifier
	if _, err := v.ReadFrom(log); err != nil {
		return err
	}
	head := v.Head()
	d.printf("\n%s %d messages: %d allowed, %d refused, %d held for a person.\nKilled twice, nothing was lost or sent twice.\n",
		d.Screen.Colour.Paint(term.Bold, "In short:"), d.counts[string(ocip.Allow)]+d.counts[string(ocip.Deny)]+d.counts[string(ocip.RequireApproval)],
		d.counts[string(ocip.Allow)], d.counts[string(ocip.Deny)], d.counts[string(ocip.RequireApproval)])
	d.printf("%s %d records, each with the hash of the one before it;\nthe last one's is %s\n",
		d.Screen.Colour.Paint(term.Green, "The log is whole:"), head.Seq, head.Hash.String()[:16])
	d.printf("Next: ocipd config init, or the tour in docs/tour.md.\n")
	return nil
}
