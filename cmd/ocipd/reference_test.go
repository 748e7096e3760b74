package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	ocipd "github.com/openclawos/ocipd/cmd/ocipd"
	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
)

// TestReference checks the built program against the OCIP protocol reference, row by row: each
// table of the reference is a group of subtests here and each of its rows one subtest, named
// after it. Agents live in separate daemons, and an app that owns the channel carries messages
// from one installation to the other, so every row is checked where it matters: on the wire at
// the other side, in the sender's answer, and in the audit records of both installations.
func TestReference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, table := range []struct {
		name string
		rows func(*testing.T, *world)
	}{
		{"Envelope Format", envelopeFormat},
		{"Exchange Types", exchangeTypes},
		{"Exchange Outcomes", exchangeOutcomes},
		{"Enforcement Rules", enforcementRules},
		{"Classification", classification},
		{"Loop Prevention", loopPrevention},
		{"Escalation Payload", escalationPayload},
		{"Transcript Tracking", transcriptTracking},
		{"Detection Signals", detectionSignals},
		{"Keywords", keywords},
		{"Commitment Enforcement", commitmentEnforcement},
		{"CommitmentDetectionResult", detectionResult},
		{"Same Org Unit", sameOrgUnit},
		{"Cross-Org", crossOrg},
		{"Cross-Enterprise", crossEnterprise},
		{"Quick Reference", quickReference},
		{"Reply Policies", replyPolicies},
		{"Reply Policy by Exchange Type", replyPolicyByType},
		{"Sender-Side Logging", senderSideLogging},
		{"Receiver-Side Logging", receiverSideLogging},
		{"Data Tracking", dataTracking},
		{"AI Disclosure", aiDisclosure},
		{"Message Flow Diagram", messageFlow},
	} {
		t.Run(table.name, func(t *testing.T) { table.rows(t, w) })
	}
}

// patience bounds every wait of these tests. Only a fault takes that long.
const patience = 20 * time.Second

// world is four daemons and the app that carries messages between them.
//
//	a  the sender's installation, everything enforced, other org units allowed
//	b  the receiver's, the same
//	c  commitments are only recorded, five rounds, the disclosure before the
//	   text, and a cross-org policy that allows all and says what it was asked
//	d  other org units are not allowed, and its exchanges end at once
//
// A row that needs both sides takes an unused pair of agents.
type world struct {
	installations map[string]*installation
	ends          map[string]*end
	// taken counts the pairs in use by kind.
	taken map[string]int
}

// installation is a daemon in a separate process.
type installation struct {
	name, dir string
	// agents, contacts and routes are the lists of its configuration.
	agents, contacts, routes strings.Builder
	log                      daemonLog
	operator, carrier        *client.Client
}

// daemonLog is a daemon's standard error.
type daemonLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready func()
}

func (l *daemonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte(`"ready"`)) {
		l.ready()
	}
	return l.text.Write(p)
}

func (l *daemonLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// cast is a kind of pair: its two agents and their installations.
type cast struct {
	count    int
	from, to role
}

// role is an agent's position in its installation. home is the installation's name, and max
// the agent's highest level to share; rounds are the installation's if zero.
type role struct {
	home, unit, tenant string
	max                string
	rounds             int
}

// The kinds of pairs.
const (
	ordinary          = "ordinary"
	ofTheReference    = "reference"
	toMarketing       = "marketing"
	toGlobex          = "globex"
	toGlobexMarketing = "globex-marketing"
	ofTwoRounds       = "rounds"
	monitored         = "monitored"
	monitoredUnits    = "monitored-marketing"
	monitoredGlobex   = "monitored-globex"
	toStrict          = "strict"
	toStrictMarketing = "strict-marketing"
	brief             = "brief"
	sharing           = "sharing-" // and a level
)

func casts() map[string]cast {
	eng := func(home string, changes ...func(*role)) role {
		r := role{home, "engineering", "acme-corp", "internal", 0}
		for _, change := range changes {
			change(&r)
		}
		return r
	}
	marketing := func(r *role) { r.unit = "marketing" }
	globex := func(r *role) { r.tenant = "globex-inc" }
	all := map[string]cast{
		ordinary:          {100, eng("a"), eng("b")},
		ofTheReference:    {1, eng("a"), eng("b")},
		toMarketing:       {10, eng("a"), eng("b", marketing)},
		toGlobex:          {10, eng("a"), eng("b", globex)},
		toGlobexMarketing: {10, eng("a"), eng("b", globex, marketing)},
		ofTwoRounds:       {5, eng("a", func(r *role) { r.rounds = 2 }), eng("b")},
		monitored:         {20, eng("c"), eng("b")},
		monitoredUnits:    {5, eng("c"), eng("b", marketing)},
		monitoredGlobex:   {5, eng("c"), eng("b", globex)},
		toStrict:          {5, eng("a"), eng("d")},
		toStrictMarketing: {5, eng("a"), eng("d", marketing)},
		brief:             {5, eng("d"), eng("b")},
	}
	for _, level := range levels() {
		all[sharing+level] = cast{10, eng("a", func(r *role) { r.max = level }), eng("b", func(r *role) { r.max = "restricted" })}
	}
	return all
}

// levels are the reference's levels, in order.
func levels() []string { return []string{"public", "internal", "confidential", "restricted"} }

// end is one agent of a pair, with its app.
type end struct {
	*client.Client
	installation *installation
	role
	id, app, instance, user string
	// to is the session key of the other agent.
	to string
	// keep makes the carrier hold the agent's messages instead of delivering them.
	keep atomic.Bool
	// carried are the agent's messages, as they left its daemon.
	carried chan crossing
}

// crossing is one message between the installations: the message to the channel's app, and
// the other daemon's answer.
type crossing struct {
	api.Message
	err    error
	queued sent
}

// pair is two agents that know each other.
type pair struct {
	w          *world
	alice, bob *end
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{installations: make(map[string]*installation), ends: make(map[string]*end), taken: make(map[string]int)}
	for _, name := range []string{"a", "b", "c", "d"} {
		// Socket addresses are limited in length, so the directory's name must be short.
		dir, err := os.MkdirTemp("", "ocipd")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		w.installations[name] = &installation{name: name, dir: dir}
	}
	for kind, c := range casts() {
		for i := range c.count {
			w.settle(kind, i, c)
		}
	}
	// A machine that is busy with other tests may take long over a policy.
	const patient = "timeout: 10s"
	open := "policy: {" + patient + ", data: {cross_org: true, max_classification_shared: restricted}}\n"

	// The sentence of the reference names nobody.
	literal := fmt.Sprintf("disclosure_text: %q", label)
	settings := map[string]string{
		"a": open + "ocip: {" + literal + "}\n",
		"b": open + "ocip: {" + literal + "}\n",
		"c": fmt.Sprintf("policy: {%s, path: %q, data: {max_classification_shared: restricted}}\n", patient, w.installations["c"].echoPolicy(t)) +
			"ocip: {" + literal + ", max_rounds: 5, disclosure: prefix, commitment: {enforcement: monitor}}\n",
		"d": "policy: {" + patient + "}\nocip: {expires_after: 2s}\n",
	}
	var starting sync.WaitGroup
	for name, h := range w.installations {
		cfg := "ipc: {apps_may_operate: true}\nagents:\n" + h.agents.String() + "directory:\n" + h.contacts.String() + "routes:\n" + h.routes.String() + settings[name]
		if strings.Contains(h.agents.String(), "globex-inc") {
			cfg += "access: {apps: {'@acme/carrier': {channels: [link], tenants: ['acme-corp', 'globex-inc'], carries: [agent-abc-123]}}}\n"
		}
		if err := os.WriteFile(h.path("ocipd.yaml"), []byte(cfg), 0o600); err != nil {
			t.Fatal(err)
		}
		starting.Go(func() { h.start(t) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, h := range w.installations {
		h.connect(t)
		go w.carry(t, h)
	}
	return w
}

// settle gives a pair its names, and its places in both installations.
func (w *world) settle(kind string, i int, c cast) {
	var p [2]*end
	for j, r := range []role{c.from, c.to} {
		id := fmt.Sprintf("%s-%d-%s", kind, i, [...]string{"alice", "bob"}[j])
		p[j] = &end{role: r, installation: w.installations[r.home], id: id, app: "@acme/" + id, instance: "agent-" + id, user: id, carried: make(chan crossing, 64)}
	}
	if kind == ofTheReference {
		// The names in the reference's examples.
		p[0].instance, p[1].instance = "agent-alice", "agent-bob"
	}
	p[0].to, p[1].to = "link:"+p[1].id, "link:"+p[0].id
	for j, e := range p {
		w.ends[e.id] = e
		e.installation.enter(e, p[1-j])
	}
}

// enter adds an agent to the installation's configuration, with its counterparty.
func (h *installation) enter(e, other *end) {
	fmt.Fprintf(&h.agents, "  - {id: %s, app: %q, instance_id: %s, user_id: %s, org_unit: %s, tenant_id: %s, max_classification_shared: %s",
		e.id, e.app, e.instance, e.user, e.unit, e.tenant, e.max)
	if e.rounds > 0 {
		fmt.Fprintf(&h.agents, ", max_rounds: %d", e.rounds)
	}
	h.agents.WriteString("}\n")
	accepts := levels()[:slices.Index(levels(), other.max)+1]
	fmt.Fprintf(&h.contacts, "  - {instance_id: %s, user_id: %s, org_unit: %s, tenant_id: %s, accepts: [%s], sessions: [%q]}\n",
		other.instance, other.user, other.unit, other.tenant, strings.Join(accepts, ", "), e.to)
	fmt.Fprintf(&h.routes, "  - {session: %q, agent: %s}\n", e.to, e.id)
}

// echoPolicy writes the built-in policy with a cross-org part that allows everything, and
// whose reason is its input.
func (h *installation) echoPolicy(t *testing.T) (dir string) {
	t.Helper()
	builtIn, err := policies.FS().Open("agent_exchange.rego")
	if err != nil {
		t.Fatal(err)
	}
	defer builtIn.Close()
	text, err := io.ReadAll(builtIn)
	if err != nil {
		t.Fatal(err)
	}
	const echo = `package ocip.cross_org

decision := {
	"allow": true,
	"require_approval": false,
	"reason": sprintf("%s from %s to %s", [input.action, input.source_org_unit, input.target_org_unit]),
	"constraints": {},
}
`
	dir = h.path("policy")
	if err := errors.Join(
		os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "agent_exchange.rego"), text, 0o600),
		os.WriteFile(filepath.Join(dir, "cross_org.rego"), []byte(echo), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (h *installation) path(name string) string { return filepath.Join(h.dir, name) }

// start runs the program. It returns when the daemon answers; at the test's end
// the daemon is stopped, and its log of records verified.
func (h *installation) start(t *testing.T) {
	cmd := exec.Command(os.Args[0], "serve", "--config", h.path("ocipd.yaml"), "--socket", h.path("kernel.sock"))
	// The race detector would have every daemon wait a second at its end.
	cmd.Env = append(os.Environ(), ocipd.AsProgram+"=1", "XDG_STATE_HOME="+h.dir)
	ready := make(chan struct{})
	h.log.ready = sync.OnceFunc(func() { close(ready) })
	cmd.Stderr = &h.log
	if err := cmd.Start(); err != nil {
		t.Errorf("installation %s: %v", h.name, err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("installation %s: %v", h.name, err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("installation %s ends with %v", h.name, err)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("installation %s does not end", h.name)
		}
		h.verify(t)
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Errorf("installation %s does not start: %v\n%s", h.name, err, &h.log)
	case <-time.After(patience):
		t.Errorf("installation %s does not start", h.name)
	}
}

// verify checks the installation's whole log of records.
func (h *installation) verify(t *testing.T) {
	f, err := os.Open(h.path("openclawos/audit.jsonl"))
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	var v audit.Verifier
	if _, err := v.ReadFrom(f); err != nil {
		t.Errorf("installation %s: %v", h.name, err)
	}
}

// connect connects the operator, and the app that owns the channel.
func (h *installation) connect(t *testing.T) {
	t.Helper()
	operator, err := client.Dial(t.Context(), config.OperatorPath(h.path("kernel.sock")))
	if err != nil {
		t.Fatal(err)
	}
	h.operator = operator
	// A process that is already an app's would not be admitted, so the operator comes first.
	must(t, operator, "kernel.status", nil, nil)
	h.carrier = h.register(t, "@acme/carrier", api.Capabilities{Channels: api.Provides{Provides: []string{"link"}}})
	var granted api.CapabilityResult
	must(t, h.carrier, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "link"}}, &granted)
	if !granted.Granted {
		t.Fatalf("the channel is not granted: %s", granted.Reason)
	}
	must(t, h.carrier, "app.ready", nil, nil)
	t.Cleanup(func() { operator.Close() })
}

// register connects an app.
func (h *installation) register(t *testing.T, id string, c api.Capabilities) *client.Client {
	t.Helper()
	app, err := client.Dial(t.Context(), h.path("kernel.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	if _, err := app.Register(t.Context(), &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "dist/index.js", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion}, Capabilities: c,
	}); err != nil {
		t.Fatal(err)
	}
	return app
}

// ask makes a call with a time limit.
func ask(ctx context.Context, c *client.Client, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.Call(ctx, method, params, result)
}

// must makes a call that must succeed.
func must(t *testing.T, c *client.Client, method string, params, result any) {
	t.Helper()
	if err := ask(t.Context(), c, method, params, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// carry carries messages from one installation to the receiver's, under the session key of
// the sender there, until the connection ends.
func (w *world) carry(t *testing.T, h *installation) {
	ctx := context.WithoutCancel(t.Context())
	for {
		in, err := h.carrier.Next(ctx)
		if err != nil {
			return
		}
		if in.Event != "hook:message_sending" {
			continue
		}
		var e api.HookEvent
		var c crossing
		if err := errors.Join(json.Unmarshal(in.Payload, &e), json.Unmarshal(e.Data, &c.Message)); err != nil {
			t.Error(err)
			return
		}
		from, to := w.ends[e.Context.AgentID], w.ends[c.Target]
		if to != nil && !from.keep.Load() {
			c.queued, c.err = bring(ctx, to, from, c.Content.Inspect(), c.Metadata)
		}
		from.carried <- c
	}
}

// bring brings a message to an installation as one of the agent from.
func bring(ctx context.Context, to, from *end, text string, metadata api.Object) (queued sent, err error) {
	err = ask(ctx, to.installation.carrier, "agent.queue", map[string]any{"sessionKey": to.to, "text": text, "metadata": metadata}, &queued)
	return queued, err
}

// pair connects two unused agents.
func (w *world) pair(t *testing.T, kind string) *pair {
	t.Helper()
	i := w.taken[kind]
	w.taken[kind]++
	p := &pair{w: w, alice: w.ends[fmt.Sprintf("%s-%d-alice", kind, i)], bob: w.ends[fmt.Sprintf("%s-%d-bob", kind, i)]}
	if p.alice == nil {
		t.Fatalf("there is no pair %d of kind %s", i, kind)
	}
	for _, e := range []*end{p.alice, p.bob} {
		e.Client = e.installation.register(t, e.app, api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}})
		must(t, e.Client, "app.ready", nil, nil)
	}
	return p
}

// sent is the answer to a message: its delivery, that it is held, or the reason in a refusal's details.
type sent struct {
	DispatchID string   `json:"dispatchId"`
	RunID      string   `json:"runId"`
	Queued     bool     `json:"queued"`
	Held       bool     `json:"held"`
	ApprovalID string   `json:"approvalId"`
	OCIP       judgment `json:"ocip"`
}

type judgment struct {
	Code             string         `json:"code"`
	Reason           string         `json:"reason"`
	Result           string         `json:"result"`
	ExchangeID       string         `json:"exchangeId"`
	ConversationID   string         `json:"conversationId"`
	Round            int            `json:"round"`
	MaxRounds        int            `json:"maxRounds"`
	AuditID          string         `json:"auditId"`
	Classification   string         `json:"classification"`
	Maximum          string         `json:"maximum"`
	Rule             string         `json:"rule"`
	RequiresHuman    *bool          `json:"requiresHuman"`
	DetectedKeywords jsontext.Value `json:"detectedKeywords"`
	Escalation       jsontext.Value `json:"escalation"`
}

// keywords are the keywords in the judgment.
func (j *judgment) keywords(t *testing.T) (words []string) {
	t.Helper()
	if len(j.DetectedKeywords) == 0 {
		return nil
	}
	if err := json.Unmarshal(j.DetectedKeywords, &words); err != nil {
		t.Errorf("detectedKeywords is %s: %v", j.DetectedKeywords, err)
	}
	return words
}

// dispatch sends a message, with the sender's wishes for the exchange.
func (e *end) dispatch(t *testing.T, content string, exchange map[string]any) (answer sent, err error) {
	t.Helper()
	return e.dispatchTo(t, e.to, content, map[string]any{"exchange": exchange})
}

func (e *end) dispatchTo(t *testing.T, session, content string, metadata map[string]any) (answer sent, err error) {
	t.Helper()
	err = ask(t.Context(), e.Client, "message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": metadata}, &answer)
	return answer, err
}

// send sends a message that must leave.
func (e *end) send(t *testing.T, content string, exchange map[string]any) sent {
	t.Helper()
	answer, err := e.dispatch(t, content, exchange)
	if err != nil || answer.Held {
		t.Fatalf("%s sends %q: %v, held %t", e.id, content, err, answer.Held)
	}
	return answer
}

// crossed returns the agent's next message that reached the channel's app.
func (e *end) crossed(t *testing.T) crossing {
	t.Helper()
	select {
	case c := <-e.carried:
		return c
	case <-time.After(patience):
		t.Fatalf("nothing of %s reaches the channel", e.id)
	}
	return crossing{}
}

// received returns the next message that reached the agent's app.
func (e *end) received(t *testing.T) api.Inbound {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		var in wire.Incoming
		in, err := e.Next(ctx)
		if err != nil {
			t.Fatalf("nothing reaches %s: %v", e.id, err)
		}
		if in.Event != "hook:message_received" {
			continue
		}
		var event api.HookEvent
		var m api.Inbound
		if err := errors.Join(json.Unmarshal(in.Payload, &event), json.Unmarshal(event.Data, &m)); err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// passage is one message all the way from one agent to the other.
type passage struct {
	answer  sent
	wire    crossing
	arrived api.Inbound
}

// pass sends a message that must arrive unchanged at the other agent.
func (p *pair) pass(t *testing.T, from *end, content string, exchange map[string]any) passage {
	t.Helper()
	other := p.bob
	if from == p.bob {
		other = p.alice
	}
	m := passage{answer: from.send(t, content, exchange), wire: from.crossed(t)}
	if m.wire.err != nil || m.wire.queued.Held {
		t.Fatalf("%s does not take the message of %s: %v, held %t", other.id, from.id, m.wire.err, m.wire.queued.Held)
	}
	m.arrived = other.received(t)
	if m.wire.DispatchID != m.answer.DispatchID || m.arrived.Content != m.wire.Content || string(m.arrived.Metadata["ocip"]) != string(m.wire.Metadata["ocip"]) {
		t.Errorf("%s sent %s, and %s got\n%+v", from.id, m.wire.Metadata["ocip"], other.id, m.arrived)
	}
	return m
}

// sentNothing checks that no message of an agent has left its installation up to now: the
// channel's next message is the one that it now sends to a person.
func (e *end) sentNothing(t *testing.T) {
	t.Helper()
	fence, err := e.dispatchTo(t, "link:nobody-"+e.id, "Hello.", map[string]any{"exchange": map[string]any{"classification": "public"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := e.crossed(t); c.DispatchID != fence.DispatchID {
		t.Errorf("a message of %s left its installation: %+v", e.id, c)
	}
}

// gotNothing checks that nothing reached an agent up to now.
func (e *end) gotNothing(t *testing.T) {
	t.Helper()
	var fence sent
	must(t, e.Client, "agent.queue", map[string]any{"sessionKey": "agent:" + e.id + ":fence", "text": "Hello."}, &fence)
	if m := e.received(t); m.RunID != fence.RunID {
		t.Errorf("a message reached %s: %+v", e.id, m)
	}
}

// stopped checks that nothing went from one agent to the other.
func (p *pair) stopped(t *testing.T, from, to *end) {
	t.Helper()
	from.sentNothing(t)
	to.gotNothing(t)
	if r := to.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, AgentID: to.instance}}); len(r) != 0 {
		t.Errorf("installation %s has records of it: %+v", to.installation.name, r)
	}
}

// refused checks for a denial with a code, and returns its details.
func refused(t *testing.T, answer sent, err error, code string) judgment {
	t.Helper()
	j := refusal(t, err)
	if answer.Held || j.Code != code || j.Result != "deny" || j.Reason == "" {
		t.Fatalf("got %+v, %v; want a denial with %s", answer, err, code)
	}
	return j
}

// refusal returns details.ocip of a refusal.
func refusal(t *testing.T, err error) judgment {
	t.Helper()
	failure, ok := errors.AsType[*api.Error](err)
	if !ok || failure.Code != api.Forbidden {
		t.Fatalf("got %v, want a refusal", err)
	}
	raw, err := json.Marshal(failure.Details)
	if err != nil {
		t.Fatal(err)
	}
	var details struct {
		OCIP judgment `json:"ocip"`
	}
	if err := json.Unmarshal(raw, &details); err != nil {
		t.Fatal(err)
	}
	return details.OCIP
}

// wantHuman checks that a message does not continue without a person, and returns the
// sender's answer. It is refused or held.
func wantHuman(t *testing.T, answer sent, err error, code string) judgment {
	t.Helper()
	j := answer.OCIP
	if err != nil {
		j = refusal(t, err)
		if j.Result != "require_approval" {
			t.Errorf("the refusal's result is %q: %v", j.Result, err)
		}
	} else if !answer.Held || answer.ApprovalID == "" {
		t.Fatalf("it goes on without a person: %+v", answer)
	}
	if j.Code != code || j.Reason == "" {
		t.Fatalf("got %+v, %v; want %s", answer, err, code)
	}
	return j
}

// records returns the records that a filter selects, oldest first.
func (h *installation) records(t *testing.T, f audit.Filter) []audit.Entry {
	t.Helper()
	var page api.AuditQueryResult
	must(t, h.operator, "audit.query", map[string]any{"filter": f, "limit": api.MaxPage}, &page)
	entries := make([]audit.Entry, len(page.Records))
	for i, line := range page.Records {
		e, err := audit.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		entries[len(entries)-1-i] = e
	}
	return entries
}

// record returns the agent's last record of an exchange.
func (e *end) record(t *testing.T, exchange string) audit.Entry {
	t.Helper()
	r := e.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, AgentID: e.instance, ExchangeID: exchange}})
	if len(r) == 0 {
		t.Fatalf("installation %s has no record of %s in exchange %s", e.installation.name, e.id, exchange)
	}
	return r[len(r)-1]
}

// exchange returns the agent's side of an exchange.
func (e *end) exchange(t *testing.T, id string) api.Exchange {
	t.Helper()
	var got api.ExchangeResult
	must(t, e.Client, "exchange.get", map[string]any{"exchangeId": id}, &got)
	if len(got.Exchanges) != 1 {
		t.Fatalf("%s sees %+v", e.id, got)
	}
	return got.Exchanges[0]
}

// fresh opens a new exchange.
func fresh(kind string) map[string]any { return map[string]any{"new": true, "type": kind} }

// at finds a value in JSON by its dotted path.
func at(t *testing.T, raw jsontext.Value, path string) jsontext.Value {
	t.Helper()
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]jsontext.Value
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		raw = members[name]
		if raw == nil {
			t.Fatalf("there is no %s", path)
		}
	}
	return raw
}

// alter changes a value in JSON, or removes it if the new one is nil.
func alter(t *testing.T, raw jsontext.Value, path string, value any) jsontext.Value {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	inner, name := members, path
	for {
		first, rest, nested := strings.Cut(name, ".")
		if !nested {
			break
		}
		inner, name = inner[first].(map[string]any), rest
	}
	if inner[name] = value; value == nil {
		delete(inner, name)
	}
	changed, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
