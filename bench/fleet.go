package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"golang.org/x/crypto/ssh"
)

// fleetFigures are about daemons and lines of several hosts on this machine, with a real broker. Each host
// has a daemon and a line of its own.
func fleetFigures() []figure {
	return []figure{
		{"fleet, A to B, p50", "local dispatch", "≤ 5 ms", fleetArrival},
		{"fleet, receipt at A, p50", "local dispatch", "≤ 10 ms", fleetReceipt},
		{"fleet, resident memory of a line at rest", "—", "≤ 40 MB", fleetMemory},
		{"fleet, -hosts × 2/s, lag p99", "p50", "≤ 50 ms", fleetLag},
		{"fleet, what the line adds to the binary", "without it", "≤ 2 MB", fleetSize},
	}
}

const (
	fleetSamples = 400
	fleetEvery   = 500 * time.Millisecond
	fleetFor     = 10 * time.Second
	fleetPatient = 30 * time.Second
	// fleetRest is how long a line rests until it has returned the memory of its work.
	fleetRest = 12 * time.Second
)

// fleet has hosts with a broker between them.
type fleet struct {
	*bench
	dir, broker string
	hosts       []*fleetHost
}

// fleetHost is the daemon, the line and the app of one host. Arrived and receipts get the time of each
// message that comes, by its number, and of each receipt.
type fleetHost struct {
	name, socket string
	line         *process
	app          *client.Client
	arrived      chan arrival
	receipts     chan time.Time
}

type arrival struct {
	number int
	at     time.Time
}

// fleet starts hosts of one fleet.
func (b *bench) fleet(hosts int) (*fleet, error) {
	// Each row has a fleet of its own.
	dir, err := os.MkdirTemp(b.dir, "fleet")
	if err != nil {
		return nil, err
	}
	f := &fleet{bench: b, dir: dir}
	if err := f.operator(); err != nil {
		return nil, err
	}
	if err := f.run("", "fleet", "init", f.path("fleet.jsonl"), "--tenant", "acme", "--key", f.path("olga")); err != nil {
		return nil, err
	}
	for n := range hosts {
		h := &fleetHost{name: fmt.Sprint("h", n), arrived: make(chan arrival, 1<<16), receipts: make(chan time.Time, 1<<16)}
		h.socket = f.path(h.name, "kernel.sock")
		if err := f.join(h); err != nil {
			return nil, err
		}
		f.hosts = append(f.hosts, h)
	}
	if err := f.serveBroker(); err != nil {
		return nil, err
	}
	for _, h := range f.hosts {
		if err := f.begin(h); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

// operator makes the key that signs the roster.
func (f *fleet) operator() error {
	key, public, err := sshsig.GenerateKey("olga")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(f.path("olga"), key, 0o600),
		os.WriteFile(f.path("operators"), append([]byte("olga "), ssh.MarshalAuthorizedKey(public)...), 0o600))
}

// command is a command of a host, "" for the operator's.
func (f *fleet) command(host string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.ctx, f.binary, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+f.path("state"+host), "OCIPD_FLEET_OPERATORS="+f.path("operators"))
	return cmd
}

func (f *fleet) run(host string, args ...string) error {
	if said, err := f.command(host, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ocipd %v: %w: %s", args, err, said)
	}
	return nil
}

// join adds a host to the roster.
func (f *fleet) join(h *fleetHost) error {
	file, lines := f.path(h.name+".yaml"), f.path(h.name+".jsonl")
	text := fmt.Sprintf("ipc: {apps_may_operate: true}\nocip: {chain: {enforcement: 'off'}}\n"+
		"agents:\n  - {id: %[1]s, app: \"@bench/%[1]s\", instance_id: agent-%[1]s, user_id: %[1]s, org_unit: engineering, tenant_id: acme}\n"+
		"directory:\n  - {instance_id: agent-near-%[1]s, user_id: near-%[1]s, org_unit: engineering, tenant_id: acme, accepts: [public, internal], sessions: [\"chat:near\"]}\n", h.name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	printed, err := f.command(h.name, "--config", file, "fleet", "join", h.name).Output()
	if err != nil {
		return err
	}
	text += fmt.Sprintf("fleet: {roster: fleet.jsonl, host: %s, operators: %s}\n", h.name, f.path("operators"))
	if err := errors.Join(os.WriteFile(lines, printed, 0o600), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		return err
	}
	return f.run("", "fleet", "add", f.path("fleet.jsonl"), lines, "--key", f.path("olga"), "--yes")
}

// serveBroker starts a broker, from the PATH or else from the module of the tools, and makes its stream.
func (f *fleet) serveBroker() error {
	program, err := exec.LookPath("nats-server")
	if err != nil {
		program = f.path("nats-server")
		build := exec.CommandContext(f.ctx, "go", "build", "-C", "packaging/tools", "-buildvcs=false", "-o", program, "github.com/nats-io/nats-server/v2")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("there is no nats-server on the PATH, and it cannot be built: %w: %s", err, said)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.broker = free.Addr().String()
	if err := free.Close(); err != nil {
		return err
	}
	if err := f.run("", "fleet", "broker", f.path("broker"), f.path("fleet.jsonl"), "--listen", f.broker); err != nil {
		return err
	}
	if _, err := f.until(exec.CommandContext(f.ctx, program, "--config", f.path("broker", "nats.conf")), "Server is ready"); err != nil {
		return err
	}
	_, err = f.until(f.command("", "fleet", "broker", f.path("broker"), f.path("fleet.jsonl"), "--listen", f.broker, "--keep"), "the stream is there")
	return err
}

// until starts a server, and returns when it has printed a text.
func (f *fleet) until(cmd *exec.Cmd, text string) (*process, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	*f.running = append(*f.running, p)
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), text) {
			go discard(out)
			return p, nil
		}
	}
	return nil, fmt.Errorf("%v does not start: %s", cmd.Args, strings.Join(said, "; "))
}

// begin starts the daemon of a host, its app and its line.
func (f *fleet) begin(h *fleetHost) error {
	file := f.path(h.name + ".yaml")
	if _, err := f.launch(f.command(h.name, "serve", "--config", file, "--socket", h.socket), h.socket); err != nil {
		return err
	}
	var err error
	if h.app, err = client.Dial(f.ctx, h.socket); err != nil {
		return err
	}
	id := "@bench/" + h.name
	if _, err = h.app.Register(f.ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "m", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
		Capabilities: api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}},
	}); err != nil {
		return err
	}
	err = errors.Join(h.app.Call(f.ctx, "hook.subscribe", map[string]any{"events": []string{"message_received"}}, nil), h.app.Call(f.ctx, "app.ready", map[string]any{}, nil))
	if err != nil {
		return err
	}
	go h.listen(f.ctx)
	h.line, err = f.until(f.command(h.name, "fleet", "run", "nats://"+f.broker, "--config", file, "--socket", h.socket), "carries over the broker")
	return err
}

// listen takes what comes for the app until the connection ends.
func (h *fleetHost) listen(ctx context.Context) {
	for {
		in, err := h.app.Next(ctx)
		if err != nil {
			return
		}
		now := time.Now()
		switch in.Event {
		case "hook:message_received":
			// The number ends the content.
			_, rest, _ := bytes.Cut(in.Payload, []byte("Note number "))
			number, err := strconv.Atoi(string(rest[:max(0, bytes.IndexByte(rest, '.'))]))
			if err == nil {
				h.arrived <- arrival{number, now}
			}
		case fleetapi.ReceiptEvent:
			h.receipts <- now
		}
	}
}

// send sends a message with a number, to another host or to somebody near.
func (h *fleetHost) send(ctx context.Context, session string, number int) error {
	var sent api.DispatchResult
	err := h.app.Call(ctx, "message.dispatch", map[string]any{
		"sessionKey": session, "content": fmt.Sprintf("Note number %d.", number), "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &sent)
	if err == nil && sent.Held {
		err = fmt.Errorf("the message is held: %+v", sent.OCIP)
	}
	return err
}

// to is a session of another host's agent with this one's.
func (h *fleetHost) to(other *fleetHost) string { return "agent:" + other.name + ":of-" + h.name }

// errLate means that a message or a receipt does not come.
var errLate = errors.New("a message or its receipt does not come")

// pair measures messages of one host to another, one at a time, in turns with messages that stay on the host.
func (b *bench) pair() (local, arrived, receipts []time.Duration, err error) {
	f, err := b.fleet(2)
	if err != nil {
		return nil, nil, nil, err
	}
	from, to := f.hosts[0], f.hosts[1]
	for n := range fleetSamples {
		begin := time.Now()
		if err := from.send(b.ctx, "chat:near", n); err != nil {
			return nil, nil, nil, err
		}
		local = append(local, time.Since(begin))
		begin = time.Now()
		if err := from.send(b.ctx, from.to(to), n); err != nil {
			return nil, nil, nil, err
		}
		late := time.After(fleetPatient)
		select {
		case a := <-to.arrived:
			arrived = append(arrived, a.at.Sub(begin))
		case <-late:
			return nil, nil, nil, errLate
		}
		select {
		case at := <-from.receipts:
			receipts = append(receipts, at.Sub(begin))
		case <-late:
			return nil, nil, nil, errLate
		}
	}
	return local, arrived, receipts, nil
}

// within is a duration beside its floor, which has a goal of its own.
func within(ours, floor, goal time.Duration) result {
	r := times(ours, floor, 0)
	r.met = ours <= goal
	return r
}

func fleetArrival(b *bench) (result, error) {
	local, arrived, _, err := b.pair()
	if err != nil {
		return result{}, err
	}
	return within(p50(arrived), p50(local), 5*time.Millisecond), nil
}

func fleetReceipt(b *bench) (result, error) {
	local, _, receipts, err := b.pair()
	if err != nil {
		return result{}, err
	}
	return within(p50(receipts), p50(local), 10*time.Millisecond), nil
}

func fleetMemory(b *bench) (result, error) {
	f, err := b.fleet(2)
	if err != nil {
		return result{}, err
	}
	from, to := f.hosts[0], f.hosts[1]
	for n := range fleetSamples {
		if err := from.send(b.ctx, from.to(to), n); err != nil {
			return result{}, err
		}
	}
	late := time.After(fleetPatient)
	for range fleetSamples {
		select {
		case <-from.receipts:
		case <-late:
			return result{}, errLate
		}
	}
	<-time.After(fleetRest)
	most := 0
	for _, h := range f.hosts {
		kb, err := h.line.resident()
		if err != nil {
			return result{}, err
		}
		most = max(most, kb)
	}
	return result{fmt.Sprintf("%.1f MB", float64(most)/1024), "—", "—", most <= 40<<10}, nil
}

// fleetLag has every host send to others twice a second. Each daemon watches its files, and Linux has a bound
// for that: sysctl fs.inotify.max_user_instances has to be 512 for 50 hosts.
func fleetLag(b *bench) (result, error) {
	hosts := b.hosts
	f, err := b.fleet(hosts)
	if err != nil {
		return result{}, err
	}
	each := int(fleetFor / fleetEvery)
	sent := make([]time.Time, hosts*each)
	failures := make([]error, hosts)
	began := time.Now()
	var all sync.WaitGroup
	for i, h := range f.hosts {
		all.Go(func() {
			for n := range each {
				<-time.After(time.Until(began.Add(fleetEvery*time.Duration(n) + fleetEvery*time.Duration(i)/time.Duration(hosts))))
				number := i*each + n
				sent[number] = time.Now()
				if failures[i] = h.send(b.ctx, h.to(f.hosts[(i+1+n%(hosts-1))%hosts]), number); failures[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return result{}, err
	}
	late := time.After(fleetPatient)
	var lags []time.Duration
	for n := range f.hosts {
		for range each { // each host is written to as often as it writes
			select {
			case a := <-f.hosts[n].arrived:
				lags = append(lags, a.at.Sub(sent[a.number]))
			case <-late:
				return result{}, fmt.Errorf("%d of %d messages have come: %w", len(lags), len(sent), errLate)
			}
		}
	}
	median := p50(lags)
	return within(lags[len(lags)*99/100], median, 50*time.Millisecond), nil
}

// withoutClient is the package of the line without the client of the broker.
const withoutClient = `package natsline

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/fleet/roster"
)

type Options struct {
	Dial       func(context.Context) (*client.Client, error)
	Broker, CA string
	Key        ed25519.PrivateKey
	Say        func(format string, args ...any)
}

func Run(context.Context, Options) error { return nil }

type Tenant struct {
	Roster *roster.Roster
	Admin  ed25519.PrivateKey
}

type Broker struct{ Listen, Store, Cert, Key string }

func (*Broker) Configuration([]Tenant) (string, error) { return "", nil }

type Keeper struct {
	URL, CA string
	Key     ed25519.PrivateKey
	Roster  func() (*roster.Roster, error)
	Every   time.Duration
	Say     func(format string, args ...any)
}

func Keep(context.Context, *Keeper) error { return nil }
`

// fleetSize builds the program with the line and without it, and compares the sizes.
func fleetSize(b *bench) (result, error) {
	files, err := filepath.Glob("internal/bridge/natsline/*.go")
	if err != nil || len(files) == 0 {
		return result{}, errors.Join(errors.New("run it in the repository"), err)
	}
	stub, overlay := filepath.Join(b.dir, "stub.go"), filepath.Join(b.dir, "overlay.json")
	replaced := map[string]string{}
	for _, file := range files { // a file replaced by nothing is not there
		whole, err := filepath.Abs(file)
		if err != nil {
			return result{}, err
		}
		replaced[whole] = ""
		if filepath.Base(file) == "natsline.go" {
			replaced[whole] = stub
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return result{}, err
	}
	if err := errors.Join(os.WriteFile(stub, []byte(withoutClient), 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return result{}, err
	}
	var sizes [2]float64
	for i, more := range [][]string{nil, {"-overlay", overlay}} {
		file := filepath.Join(b.dir, "sized")
		build := exec.CommandContext(b.ctx, "go", append(append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file}, more...), "./cmd/ocipd")...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return result{}, fmt.Errorf("cannot build it: %w: %s", err, said)
		}
		info, err := os.Stat(file)
		if err != nil {
			return result{}, err
		}
		sizes[i] = float64(info.Size()) / 1e6
	}
	adds := sizes[0] - sizes[1]
	return result{fmt.Sprintf("%.2f MB", adds), fmt.Sprintf("%.1f MB", sizes[1]), fmt.Sprintf("%.2f×", sizes[0]/sizes[1]), adds <= 2}, nil
}
