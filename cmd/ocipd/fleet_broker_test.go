package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/test/brokertest"
	"golang.org/x/crypto/ssh"
)

// branch is a fleet of some hosts and a broker, each a process of its own.
type branch struct {
	t *testing.T
	// program is the path of ocipd, or of this test, which is ocipd too.
	program string
	dir     string
	broker  *brokertest.Broker
	// address is the broker's, and url the same for a line.
	address, url string
	hosts        []*branchHost
	// a and b are the first two hosts.
	a, b   *branchHost
	keeper *exec.Cmd
}

// branchAgents are the agents of the hosts, of which a branch has as many at most.
var branchAgents = []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"}

// branchHost is one host: its daemon, its line, and the app of its agent.
type branchHost struct {
	*branch
	name, agent, socket string
	daemon, line        *exec.Cmd
	app                 *client.Client
	ended               chan struct{}

	mu      sync.Mutex
	changed chan struct{}
	// sent are the acknowledged messages by receiver and got the first arrivals, in order; receipts has the results.
	sent     map[*branchHost][]string
	got      []string
	receipts map[string]string
}

// openBranch founds a fleet by the commands of the guide, and starts its broker.
func openBranch(t *testing.T, hosts int) *branch {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet") // addresses of sockets are limited in length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &branch{t: t, program: os.Args[0], dir: dir}
	key, public, err := sshsig.GenerateKey("olga")
	if err != nil {
		t.Fatal(err)
	}
	f.write("olga", string(key))
	f.write("operators", "olga "+string(ssh.MarshalAuthorizedKey(public)))
	f.run("", "fleet", "init", f.path("fleet.jsonl"), "--tenant", "acme-corp", "--key", f.path("olga"))
	for _, agent := range branchAgents[:hosts] {
		f.hosts = append(f.hosts, f.host(agent[:1], agent))
	}
	f.a, f.b = f.hosts[0], f.hosts[1]
	address := brokertest.Address(t)
	f.address, f.url = address, "nats://"+address
	f.run("", "fleet", "broker", f.path("broker"), f.path("fleet.jsonl"), "--listen", address, "--operators", f.path("operators"))
	brokertest.Observed(t, f.path("broker", "nats.conf"))
	f.broker = brokertest.Start(t, f.path("broker", "nats.conf"))
	f.keeper = f.start("", "the stream is there", "fleet", "broker", f.path("broker"), f.path("fleet.jsonl"), "--listen", address, "--keep")
	return f
}

func (f *branch) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

func (f *branch) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *branch) command(host string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.t.Context(), f.program, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "XDG_STATE_HOME="+f.path("state-"+host), "OCIPD_FLEET_OPERATORS="+f.path("operators"), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// run runs a command to its end, and returns what it prints.
func (f *branch) run(host string, args ...string) string {
	f.t.Helper()
	cmd := f.command(host, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("%v: %v\n%s%s", args, err, out, &said)
	}
	return string(out)
}

// start starts a command, and returns when it has printed a text.
func (f *branch) start(host, until string, args ...string) *exec.Cmd {
	f.t.Helper()
	cmd := f.command(host, args...)
	out, in, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { kill(cmd) })
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), until) {
			go func() {
				defer out.Close()
				for lines.Scan() {
				}
			}()
			return cmd
		}
	}
	f.t.Fatalf("%v does not start:\n%s", args, strings.Join(said, "\n"))
	return nil
}

// kill ends a process without warning.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// host joins a host to the fleet.
func (f *branch) host(name, agent string) *branchHost {
	f.t.Helper()
	h := &branchHost{branch: f, name: name, agent: agent, socket: f.path(name, "kernel.sock"), changed: make(chan struct{}), sent: map[*branchHost][]string{}, receipts: map[string]string{}}
	// The test is app and operator in one. The agents of many hosts write to each other all the time, which would
	// be one causal chain.
	text := fmt.Sprintf("ipc: {apps_may_operate: true}\nocip: {chain: {enforcement: 'off'}}\nagents:\n  - {id: %[1]s, app: \"@acme/%[1]s\", instance_id: agent-%[1]s-1, user_id: %[1]s, org_unit: sales, tenant_id: acme-corp}\n", agent)
	f.write(name+".yaml", text)
	f.write(name+".jsonl", f.run(name, "--config", f.path(name+".yaml"), "fleet", "join", "host-"+name))
	f.run("", "fleet", "add", f.path("fleet.jsonl"), f.path(name+".jsonl"), "--key", f.path("olga"), "--yes")
	f.write(name+".yaml", text+fmt.Sprintf("fleet: {roster: fleet.jsonl, host: host-%s, operators: %s}\n", name, f.path("operators")))
	return h
}

// up starts the daemon and its agent's app.
func (h *branchHost) up() {
	h.t.Helper()
	h.daemon = h.start(h.name, `"ready"`, "serve", "--config", h.path(h.name+".yaml"), "--socket", h.socket)
	var err error
	if h.app, err = client.Dial(h.t.Context(), h.socket); err != nil {
		h.t.Fatal(err)
	}
	id := "@acme/" + h.agent
	_, err = h.app.Register(h.t.Context(), &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "m", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
		Capabilities: api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}},
	})
	err = errors.Join(err, h.app.Call(h.t.Context(), "hook.subscribe", map[string]any{"events": []string{"message_received"}}, nil), h.app.Call(h.t.Context(), "app.ready", map[string]any{}, nil))
	if err != nil {
		h.t.Fatal(err)
	}
	h.ended = make(chan struct{})
	go h.listen(h.app, h.ended)
}

// listen takes what comes for the app until the connection ends.
func (h *branchHost) listen(app *client.Client, ended chan struct{}) {
	defer close(ended)
	for {
		in, err := app.Next(context.Background())
		if err != nil {
			return
		}
		h.mu.Lock()
		switch in.Event {
		case "hook:message_received":
			var e api.HookEvent
			var m api.Inbound
			if err := errors.Join(json.Unmarshal(in.Payload, &e), json.Unmarshal(e.Data, &m)); err != nil {
				h.t.Error(err)
			} else if !slices.Contains(h.got, m.DispatchID) {
				h.got = append(h.got, m.DispatchID)
			}
		case fleetapi.ReceiptEvent:
			var r fleetapi.MessageReceipt
			if err := json.Unmarshal(in.Payload, &r); err != nil {
				h.t.Error(err)
			}
			h.receipts[r.DispatchID] = r.Result
		}
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

// down kills the daemon.
func (h *branchHost) down() {
	kill(h.daemon)
	_ = h.app.Close()
	<-h.ended
}

// attach starts the line.
func (h *branchHost) attach() {
	h.t.Helper()
	h.line = h.start(h.name, "carries over the broker", "fleet", "run", h.url, "--config", h.path(h.name+".yaml"), "--socket", h.socket)
}

// send sends a message to the other host's agent, in a session of this sender alone: messages that answer
// each other would reach the limit of rounds. It returns its id, "" if the daemon does not answer.
func (h *branchHost) send(to *branchHost, text string) string {
	var result api.DispatchResult
	err := h.app.Call(h.t.Context(), "message.dispatch", map[string]any{
		"sessionKey": "agent:" + to.agent + ":of-" + h.agent, "content": text, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	if err != nil {
		if failure := api.AsError(err); failure.Code != api.ConnectionClosed {
			h.t.Errorf("%s cannot send: %v", h.agent, err)
		}
		return ""
	}
	if result.Held {
		h.t.Errorf("the message of %s is held: %+v", h.agent, result.OCIP)
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[to] = append(h.sent[to], result.DispatchID)
	return result.DispatchID
}

// await waits until something holds of a host's app.
func (h *branchHost) await(what string, holds func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	for {
		h.mu.Lock()
		done, changed := holds(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			h.t.Fatalf("%s: %s (%d receipts, %d got)", h.name, what, len(h.receipts), len(h.got))
		}
	}
}

// settled waits until every message of this host to another has a receipt, and has arrived.
func (h *branchHost) settled(to *branchHost) {
	h.t.Helper()
	h.await("messages have no receipt", func() bool {
		return !slices.ContainsFunc(h.sent[to], func(id string) bool { return h.receipts[id] == "" })
	})
	to.await("messages do not arrive", func() bool { return len(missing(h.sent[to], to.got)) == 0 })
}

// The demo runs to its end, and says how to install a broker where there is none.
func TestFleetDemo(t *testing.T) {
	t.Parallel()
	// Under this name the test's program is the program, and so are those that it starts.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "ocipd")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "fleet", "demo")
	cmd.Env = append(os.Environ(), "PATH=/nowhere")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "install it with: go install github.com/nats-io/nats-server/v2@") {
		t.Errorf("without a broker it says %s (%v)", out, err)
	}
	cmd = exec.CommandContext(t.Context(), program, "fleet", "demo")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(brokertest.Program(t))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "intact") != 2 || strings.Count(string(out), "allow,") != 3 || !strings.Contains(string(out), "tenant \"globex-inc\" is blocked") {
		t.Errorf("the demo says (%v):\n%s", err, out)
	}
}

// Two hosts exchange messages over a broker: directly, then with the broker killed in between, then stored
// while one of them is away, then with the broker's store removed.
func TestFleetOverBroker(t *testing.T) {
	t.Parallel()
	f := openBranch(t, 2)
	a, b := f.a, f.b
	a.up()
	b.up()
	a.attach()
	b.attach()
	a.send(b, "When is the review?")
	a.settled(b)
	b.send(a, "On Monday.")
	b.settled(a)

	f.broker.Kill()
	for n := range 3 {
		a.send(b, fmt.Sprint("while the broker is away ", n))
		b.send(a, fmt.Sprint("while the broker is away ", n))
	}
	f.broker.Again()
	a.settled(b)
	b.settled(a)

	kill(b.line)
	for n := range 100 {
		a.send(b, fmt.Sprint("while bob is away ", n))
	}
	b.attach()
	a.settled(b)

	kill(b.line)
	for n := range 3 {
		a.send(b, fmt.Sprint("for a broker that forgets ", n))
	}
	f.broker.Kill()
	if err := os.RemoveAll(f.path("broker", "store")); err != nil {
		t.Fatal(err)
	}
	f.broker.Again()
	b.attach()
	a.settled(b)

	kill(a.line)
	kill(b.line)
	f.judge()
}
