package daemon_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/beat"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"golang.org/x/crypto/ssh"
	"golang.org/x/mod/sumdb/note"
)

// company is two daemons of one tenant, each with one agent, under rosters that an operator signs.
type company struct {
	t       *testing.T
	a, b    *harness
	hosts   []roster.Host
	private []*keyring.Fleet
	agents  []roster.Agent
	version int
}

// aliceThere and bobHere are the configurations of the two hosts.
const (
	hostOfAlice = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
`
	hostOfBob = `
agents:
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
`
)

// foundFleet founds a company and starts both daemons. More is added to both configurations.
func foundFleet(t *testing.T, more string) *company {
	t.Helper()
	c := newFleet(t, more)
	c.begin()
	return c
}

// newFleet plots the two hosts of a company.
func newFleet(t *testing.T, more string) *company {
	t.Helper()
	c := &company{t: t, a: plot(t, ""), b: plot(t, "")}
	for i, h := range []*harness{c.a, c.b} {
		name := []string{"host-a", "host-b"}[i]
		h.configure([]string{hostOfAlice, hostOfBob}[i] + more + fmt.Sprintf("fleet: {roster: fleet.jsonl, host: %s, operators: %s}\n", name, h.path("operators")))
		if err := os.WriteFile(h.path("operators"), []byte("olga "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key(t, "olga").PublicKey())))+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// begin gives each host keys and the roster, and starts it.
func (c *company) begin() {
	c.t.Helper()
	for i, h := range []*harness{c.a, c.b} {
		c.hosts = append(c.hosts, c.keys(h, []string{"host-a", "host-b"}[i], 1))
	}
	c.agents = []roster.Agent{
		{ID: "alice", Host: "host-a", InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", Accepts: []string{"public", "internal"}},
		{ID: "bob", Host: "host-b", InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "engineering", Accepts: []string{"public", "internal"}},
	}
	c.publish(c.a, c.b)
	for _, h := range []*harness{c.a, c.b} {
		h.start()
		c.t.Cleanup(h.stop)
	}
}

// waiting is how many messages to a host have no receipt.
func (c *company) waiting(h *harness, host string) int {
	c.t.Helper()
	var s fleetapi.FleetStatus
	h.operator("fleet.status", m{}, &s)
	for i := range s.Hosts {
		if s.Hosts[i].Host == host {
			return s.Hosts[i].Waiting
		}
	}
	c.t.Fatalf("there is no host %s: %+v", host, s)
	return 0
}

// keys makes keys of a host, and returns its line.
func (c *company) keys(h *harness, name string, epoch int) roster.Host {
	c.t.Helper()
	keys, err := keyring.AddFleet(h.path("state/keys"), rand.Reader, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.private = append(c.private, keys)
	sign, seal := keys.Public()
	return roster.Host{Name: name, Epoch: epoch, Sign: sign, Seal: seal}
}

// publish signs the next version of the roster, and gives it to some hosts.
func (c *company) publish(to ...*harness) {
	c.t.Helper()
	c.version++
	for _, h := range to {
		c.write(h, c.roster("acme-corp", c.version, "olga"))
	}
}

func (c *company) roster(tenant string, version int, by string, formers ...string) []byte {
	c.t.Helper()
	lines, err := roster.Write(tenant, version, c.hosts, c.agents, formers...)
	if err != nil {
		c.t.Fatal(err)
	}
	whole, err := roster.Sign(lines, signs(c.t, by, string(lines), roster.Namespace))
	if err != nil {
		c.t.Fatal(err)
	}
	return whole
}

func (c *company) write(h *harness, text []byte) {
	c.t.Helper()
	part := h.path("fleet.jsonl.part")
	if err := errors.Join(os.WriteFile(part, text, 0o600), os.Rename(part, h.path("fleet.jsonl"))); err != nil {
		c.t.Fatal(err)
	}
}

// carrier is a test's own line to one daemon.
type carrier struct {
	t      *testing.T
	c      *client.Client
	stream *client.Stream
}

// carry attaches a carrier to a daemon.
func carry(t *testing.T, h *harness) *carrier {
	t.Helper()
	c, err := client.Dial(t.Context(), h.path("run/operator.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	l := &carrier{t: t, c: c}
	if l.stream, err = c.Stream(t.Context(), "fleet.attach", m{}); err != nil {
		t.Fatal(err)
	}
	return l
}

// next returns the next frame that the daemon offers, beats left out.
func (l *carrier) next() fleetapi.FleetFrame {
	l.t.Helper()
	for {
		if f := l.any(); f.Kind != string(frame.Beat) {
			return f
		}
	}
}

// beat returns the next beat that the daemon offers.
func (l *carrier) beat() fleetapi.FleetFrame {
	l.t.Helper()
	for {
		if f := l.any(); f.Kind == string(frame.Beat) {
			return f
		}
	}
}

func (l *carrier) any() fleetapi.FleetFrame {
	l.t.Helper()
	raw, err := nextOf(l.t, l.stream)
	if err != nil {
		l.t.Fatal("no frame is offered: ", err)
	}
	var f fleetapi.FleetFrame
	if err := json.Unmarshal(raw, &f); err != nil {
		l.t.Fatal(err)
	}
	return f
}

func (l *carrier) tryBring(frame []byte) (r fleetapi.FleetBringResult, err error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	err = l.c.Call(ctx, "fleet.bring", m{"frame": base64.StdEncoding.EncodeToString(frame)}, &r)
	return r, err
}

// bring brings a frame that must be taken.
func (l *carrier) bring(frame []byte) fleetapi.FleetBringResult {
	l.t.Helper()
	r, err := l.tryBring(frame)
	if err != nil {
		l.t.Fatal("the frame is refused: ", err)
	}
	return r
}

// bytesOf returns the frame in a chunk or an answer.
func bytesOf(t *testing.T, f *fleetapi.FleetFrame) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(f.Frame)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pass carries the next frame to another daemon, and the receipt back.
func (l *carrier) pass(to *carrier) {
	l.t.Helper()
	f := l.next()
	r := to.bring(bytesOf(l.t, &f))
	if r.Receipt == nil {
		l.t.Fatalf("there is no receipt: %+v", r)
	}
	l.bring(bytesOf(l.t, r.Receipt))
}

// alice writes to bob, who is on another host, and gets his answer. Both logs have the message under
// one dispatchId, and the record of the receipt names the other log's record.
func TestFleetCarriesAConversation(t *testing.T) {
	c := foundFleet(t, "")
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	lineA, lineB := carry(t, c.a), carry(t, c.b)

	sent := alice.dispatch("agent:bob:main", "When is the review?", m{"exchange": m{"type": "information_query"}})
	lineA.pass(lineB)
	got := bob.message("hook:message_received")
	if !strings.Contains(got.Content, "When is the review?") || got.SessionKey != "agent:bob:main" || got.ReplyTo != "agent:alice:main" || got.DispatchID != sent.DispatchID {
		t.Fatalf("bob got %+v", got)
	}
	var receipt fleetapi.MessageReceipt
	alice.decode(alice.next(fleetapi.ReceiptEvent).Payload, &receipt)
	if receipt.Result != "allow" || receipt.DispatchID != sent.DispatchID || receipt.Host != "host-b" {
		t.Errorf("alice is told %+v", receipt)
	}
	answer := bob.dispatch(got.ReplyTo, "On Monday.", nil)
	lineB.pass(lineA)
	back := alice.message("hook:message_received")
	if !strings.Contains(back.Content, "On Monday.") || back.ReplyTo != "agent:bob:main" || back.DispatchID != answer.DispatchID {
		t.Fatalf("alice got %+v", back)
	}
	if answer.OCIP.ConversationID != sent.OCIP.ConversationID || answer.OCIP.Round != 2 {
		t.Errorf("the answer is round %d of %s, the question of %s", answer.OCIP.Round, answer.OCIP.ConversationID, sent.OCIP.ConversationID)
	}

	there := c.b.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, ActionType: audit.ActionExchange}})
	receipts := c.a.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, Event: "receipt"}})
	if len(there) != 1 || len(receipts) != 1 || there[0].AppID != "@ocipd/host:host-a" || there[0].Details["unconfirmed"] == true {
		t.Fatalf("B has %+v, A has %+v", there, receipts)
	}
	peer := receipts[0].Details["peer"].(map[string]any)
	if peer["record"] != float64(there[0].Seq) || peer["hash"] != there[0].Hash.String() || receipts[0].Outcome != "allow" {
		t.Errorf("the receipt names %+v, B's record is %d with hash %s", peer, there[0].Seq, there[0].Hash)
	}
	for _, h := range []*harness{c.a, c.b} {
		var queue api.QueueListResult
		h.operator("queue.list", m{}, &queue)
		for _, q := range queue.Messages {
			if strings.HasPrefix(q.Queue, "host:") {
				t.Errorf("waiting is %+v", q)
			}
		}
		h.verify()
	}
}

// sealed makes a frame from one host to another, by their numbers.
func (c *company) sealed(from, to int, h frame.Header, body []byte) []byte {
	c.t.Helper()
	a, b := c.hosts[from], c.hosts[to]
	if h.Tenant == "" {
		h.Tenant = "acme-corp"
	}
	if h.Kind == "" {
		h.Kind = frame.Message
	}
	h.From, h.To, h.ToEpoch = a.Name, b.Name, b.Epoch
	if h.FromEpoch == 0 {
		h.FromEpoch = a.Epoch
	}
	if h.Kind != frame.Receipt && !strings.Contains(h.ID, ":") {
		h.ID = frame.IDOf(h.ID, a.Name)
	}
	f, err := frame.Seal(&h, body, c.private[to].Seal.PublicKey(), c.private[from].Sign)
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

// opened opens a frame from one host to another.
func (c *company) opened(from, to int, f []byte) []byte {
	c.t.Helper()
	read, err := frame.Parse(f)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := read.Open(c.hosts[from].Sign, c.private[to].Seal)
	if err != nil {
		c.t.Fatal(err)
	}
	return body
}

// outcome is the content of a receipt from B to A.
func (c *company) outcome(r fleetapi.FleetBringResult) frame.Outcome {
	c.t.Helper()
	if r.Receipt == nil {
		c.t.Fatalf("there is no receipt: %+v", r)
	}
	o, err := frame.ReadOutcome(c.opened(1, 0, bytesOf(c.t, r.Receipt)))
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// A frame that proves nothing is dropped without a receipt, the wall first. Each kind is on record once
// a minute, and counted each time.
func TestFleetDropsWhatProvesNothing(t *testing.T) {
	c := foundFleet(t, "")
	line := carry(t, c.b)
	other, err := keyring.AddFleet(c.a.path("other"), rand.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := c.private[0]
	// The wall comes before the key: a frame of another tenant is refused for that alone.
	c.private[0] = other
	for range 2 {
		_, err := line.tryBring(c.sealed(0, 1, frame.Header{Tenant: "globex-inc", Seq: 1, ID: "x"}, nil))
		var failure *api.Error
		if !errors.As(err, &failure) || failure.Code != api.Forbidden || ocipCode(t, failure) != "CROSS_ENTERPRISE_BLOCKED" {
			t.Fatalf("a frame of another tenant: %v", err)
		}
	}
	refused := func(what, says string, f []byte) {
		t.Helper()
		for range 2 {
			r, err := line.tryBring(f)
			var failure *api.Error
			if !errors.As(err, &failure) || failure.Code != api.Forbidden || !strings.Contains(failure.Message, says) || r.Receipt != nil {
				t.Errorf("%s: %+v, %v", what, r, err)
			}
		}
	}
	refused("another key", "not signed", c.sealed(0, 1, frame.Header{Seq: 1, ID: "x"}, nil))
	c.private[0] = own
	refused("an old epoch", "epoch 7", c.sealed(0, 1, frame.Header{Seq: 1, ID: "x", FromEpoch: 7}, nil))
	name := c.hosts[0].Name
	c.hosts[0].Name = "nobody"
	refused("an unknown host", "no other host", c.sealed(0, 1, frame.Header{Seq: 1, ID: "x"}, nil))
	c.hosts[0].Name = name
	good := c.sealed(0, 1, frame.Header{Seq: 1, ID: "x", Kind: frame.Void}, nil)
	bad := append([]byte(nil), good...)
	bad[len(bad)-80]++
	refused("a changed frame", "not signed", bad)
	for _, f := range [][]byte{nil, good[:40], make([]byte, 513<<10)} {
		_, err := line.tryBring(f)
		var failure *api.Error
		if !errors.As(err, &failure) || failure.Code != api.InvalidParams && failure.Code != api.InvalidRequest {
			t.Errorf("%d bytes: %v", len(f), err)
		}
	}

	if n := len(c.b.records(audit.Filter{Like: audit.Record{Event: "frame_walled"}})); n != 1 {
		t.Errorf("%d records of the wall", n)
	}
	if n := len(c.b.records(audit.Filter{Like: audit.Record{Event: "frame_refused"}})); n != 2 {
		t.Errorf("%d records of refusals: one for the known host, one for unknown ones", n)
	}
	var status fleetapi.FleetStatus
	c.b.operator("fleet.status", m{}, &status)
	if status.Hosts[0].Host != "host-a" || status.Hosts[0].Refused != 6 || !status.Hosts[0].Heard.IsZero() {
		t.Errorf("host-a is shown as %+v", status.Hosts[0])
	}
	if o := c.outcome(line.bring(good)); o.Result != frame.Voided {
		t.Errorf("the frame itself: %+v", o)
	}
}

// Neither a frame of another tenant nor one that comes too early reaches an agent, although the host has
// signed both.
func TestCanaryOfFleet(t *testing.T) {
	c := foundFleet(t, "")
	alice := c.a.agent("@acme/alice")
	c.b.agent("@acme/bob")
	lineA, line := carry(t, c.a), carry(t, c.b)
	sent := alice.dispatch("agent:bob:main", "When is the review?", nil)
	first := lineA.next()
	body := c.opened(0, 1, bytesOf(t, &first))
	reached := func(why string) {
		t.Helper()
		if len(c.b.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, Side: audit.SideReceiver, PolicyResult: audit.ResultAllow}})) > 0 {
			t.Fatalf("noticed: the message of @acme/alice reached @acme/bob: %s", why)
		}
	}
	_, err := line.tryBring(c.sealed(0, 1, frame.Header{Tenant: "globex-inc", Seq: 1, ID: sent.DispatchID}, body))
	reached("its frame is of another tenant")
	if err == nil {
		t.Error("a frame of another tenant is taken")
	}
	early, err := line.tryBring(c.sealed(0, 1, frame.Header{Seq: 2, ID: sent.DispatchID}, body))
	reached("number 1 is missing before it")
	if err != nil || !early.Waits {
		t.Errorf("number 2 before number 1: %+v, %v", early, err)
	}
	c.b.verify()
}

// A lane waits at a gap, repeats a receipt and refuses a number that is given twice. A message ends in a
// receipt whatever becomes of it, and the lane goes on.
func TestFleetLane(t *testing.T) {
	c := foundFleet(t, "")
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	lineA, line := carry(t, c.a), carry(t, c.b)
	sent := alice.dispatch("agent:bob:main", "When is the review?", nil)
	first := lineA.next()
	body := c.opened(0, 1, bytesOf(t, &first))

	second := c.sealed(0, 1, frame.Header{Kind: frame.Void, Seq: 2, ID: "second"}, nil)
	if r := line.bring(second); !r.Waits || r.Next != 1 || r.Receipt != nil {
		t.Fatalf("number 2 before number 1: %+v", r)
	}
	took := line.bring(bytesOf(t, &first))
	once := c.outcome(took)
	if once.Result != frame.Allow {
		t.Fatalf("the message: %+v", once)
	}
	bob.message("hook:message_received")
	if again := c.outcome(line.bring(bytesOf(t, &first))); again != once {
		t.Errorf("the same frame gets %+v, and got %+v", again, once)
	}
	// The carrier is new, and B was restarted, before A has the receipt.
	c.b.stop()
	c.b.start()
	line, lineA = carry(t, c.b), carry(t, c.a)
	repeated := lineA.next()
	took = line.bring(bytesOf(t, &repeated))
	if again := c.outcome(took); again != once {
		t.Errorf("after a restart the message gets %+v, and got %+v", again, once)
	}
	lineA.bring(bytesOf(t, took.Receipt))
	lineA.bring(bytesOf(t, took.Receipt))
	if n := len(c.a.records(audit.Filter{Like: audit.Record{Event: "receipt", DispatchID: sent.DispatchID}})); n != 1 {
		t.Errorf("%d records of the receipt", n)
	}

	if o := c.outcome(line.bring(c.sealed(0, 1, frame.Header{Seq: 1, ID: "other"}, body))); o.Result != frame.Deny || o.Code != "LANE_ROLLED_BACK" {
		t.Errorf("another message under number 1: %+v", o)
	}
	if o := c.outcome(line.bring(second)); o.Result != frame.Voided {
		t.Errorf("a withdrawn message: %+v", o)
	}
	if o := c.outcome(line.bring(c.sealed(0, 1, frame.Header{Seq: 3, ID: "late", Expires: time.Now().Add(-time.Minute)}, body))); o.Result != frame.Expired {
		t.Errorf("a message that came too late: %+v", o)
	}
	other := strings.ReplaceAll(string(body), `"dispatchId":"`+sent.DispatchID, `"dispatchId":"fourth:host-a`)
	for n, tc := range []struct{ what, body, code string }{
		{"an agent that is not here", strings.Replace(other, "bob:main", "dave:main", 1), "NOT_FOUND"},
		{"an agent with a name that is cut in a character", strings.Replace(other, "bob:main", "dave:"+strings.Repeat("😀", 247), 1), "NOT_FOUND"},
		{"no message", "{}", "INVALID_PARAMS"},
		{"a replayed envelope", other, "ENVELOPE_REPLAYED"},
	} {
		seq := uint64(4 + n)
		id := "fourth:host-a"
		if tc.body != other {
			id = fmt.Sprintf("id%d:host-a", n)
			tc.body = strings.ReplaceAll(tc.body, `"fourth:host-a"`, `"`+id+`"`)
		}
		if o := c.outcome(line.bring(c.sealed(0, 1, frame.Header{Seq: seq, ID: id}, []byte(tc.body)))); o.Result != frame.Deny || o.Code != tc.code || o.Hash == "" {
			t.Errorf("%s: %+v", tc.what, o)
		}
	}
	if got := c.b.records(audit.Filter{Like: audit.Record{DispatchID: "fourth:host-a", Code: "ENVELOPE_REPLAYED"}}); len(got) != 1 || got[0].Details["lane"] == nil {
		t.Errorf("on record is %+v", got)
	}
	c.a.verify()
	c.b.verify()
}

// A host that lies in a receipt puts nothing of it into the log of the sender or before its app: the
// receipt is refused, and the message waits for a true one.
func TestFleetReceiptThatLies(t *testing.T) {
	c := foundFleet(t, "")
	alice := c.a.agent("@acme/alice")
	c.b.agent("@acme/bob")
	lineA, line := carry(t, c.a), carry(t, c.b)
	sent := alice.dispatch("agent:bob:main", "When is the review?", nil)
	first := lineA.next()
	took := line.bring(bytesOf(t, &first))
	lies := []frame.Outcome{
		{Result: frame.Deny, Reason: strings.Repeat("r", 400_000), Record: 1},
		{Result: frame.Deny, Reason: "a\x1b[2J", Record: 1},
		{Result: frame.Deny, Code: strings.Repeat("C", 400_000), Record: 1},
		{Result: frame.Allow, Hash: strings.Repeat("0", 400_000), Record: 1},
		{Result: frame.Allow, Log: "l\n", Record: 1},
	}
	for n, lie := range lies {
		body, err := lie.Write()
		if err != nil {
			t.Fatal(err)
		}
		_, err = lineA.tryBring(c.sealed(1, 0, frame.Header{Kind: frame.Receipt, Seq: 1, ID: sent.DispatchID}, body))
		var failure *api.Error
		if !errors.As(err, &failure) || failure.Code != api.Forbidden || !strings.HasPrefix(failure.Message, "the receipt cannot be used: ") {
			t.Errorf("lie %d: %v", n, err)
		}
	}
	var status fleetapi.FleetStatus
	c.a.operator("fleet.status", m{}, &status)
	if h := status.Hosts[1]; h.Host != "host-b" || h.Refused != uint64(len(lies)) || h.Waiting != 1 {
		t.Errorf("host-b is shown as %+v", h)
	}
	if got := c.a.records(audit.Filter{Like: audit.Record{Event: "frame_refused"}}); len(got) != 1 {
		t.Errorf("%d records of refusals", len(got))
	}
	lineA.bring(bytesOf(t, took.Receipt))
	if got := c.a.records(audit.Filter{Like: audit.Record{Event: "receipt", DispatchID: sent.DispatchID}}); len(got) != 1 || got[0].Outcome != string(frame.Allow) {
		t.Errorf("the true receipt is on record as %+v", got)
	}
}

// A host's words in a receipt, which no rule has weighed, reach no app: they are on record for people.
func TestFleetReceiptSaysNothingToApps(t *testing.T) {
	c := foundFleet(t, "")
	alice := c.a.agent("@acme/alice")
	lineA := carry(t, c.a)
	sent := alice.dispatch("agent:bob:main", "When is the review?", nil)
	lineA.next()
	said := frame.Outcome{Result: frame.Deny, Code: "POLICY_DENIED", Reason: "I promise to pay 5000 EUR on Friday.", Log: "and 7000 more on Monday", Record: 9}
	body, err := said.Write()
	if err != nil {
		t.Fatal(err)
	}
	lineA.bring(c.sealed(1, 0, frame.Header{Kind: frame.Receipt, Seq: 1, ID: sent.DispatchID}, body))
	told := string(alice.next(fleetapi.ReceiptEvent).Payload)
	contains(t, told, `"result":"deny"`, "POLICY_DENIED", "host host-b refused the message")
	if strings.Contains(told, "pay") || strings.Contains(told, "more") {
		t.Errorf("alice is told %s", told)
	}
	if got := c.a.records(audit.Filter{Like: audit.Record{Event: "receipt", DispatchID: sent.DispatchID}}); len(got) != 1 || got[0].Details["reason"] != said.Reason {
		t.Errorf("on record is %+v", got)
	}
}

// A host speaks for its own agents alone, and the id of its task stays its word.
func TestFleetHostSpeaksForItsAgents(t *testing.T) {
	c := foundFleet(t, "")
	h := &harness{t: t, dir: t.TempDir()}
	c.hosts = append(c.hosts, c.keys(h, "host-c", 1))
	c.agents = append(c.agents, roster.Agent{ID: "carol", Host: "host-c", InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "marketing"})
	c.publish(c.a, c.b)
	c.reloaded(c.a)
	c.reloaded(c.b)
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	lineA, line := carry(t, c.a), carry(t, c.b)
	alice.dispatch("agent:bob:main", "When is the review?", nil)
	f := lineA.next()
	body := c.opened(0, 1, bytesOf(t, &f))
	read, err := frame.Parse(bytesOf(t, &f))
	if err != nil {
		t.Fatal(err)
	}
	// The id of alice's message is host-a's: under it host-c sends nothing, and the app of bob, which
	// leaves out a second message of an id, gets alice's.
	for range 2 {
		_, err := line.tryBring(c.sealed(2, 1, frame.Header{Seq: 1, ID: read.ID}, body))
		var failure *api.Error
		if !errors.As(err, &failure) || failure.Code != api.Forbidden || ocipCode(t, failure) != "ENVELOPE_SOURCE_MISMATCH" {
			t.Fatalf("a message of host-c under an id of host-a: %v", err)
		}
	}
	if got := c.b.records(audit.Filter{Like: audit.Record{Event: "frame_refused"}}); len(got) != 1 {
		t.Errorf("%d records of the refusals", len(got))
	}
	if got := c.b.records(audit.Filter{Like: audit.Record{DispatchID: read.ID}}); len(got) != 0 {
		t.Errorf("host-c has put %d records under the id of host-a", len(got))
	}
	forgery := strings.ReplaceAll(string(body), read.ID, "forged:host-c")
	forged := line.bring(c.sealed(2, 1, frame.Header{Seq: 1, ID: "forged"}, []byte(forgery)))
	o, err := frame.ReadOutcome(c.opened(1, 2, bytesOf(t, forged.Receipt)))
	if err != nil || o.Result != frame.Deny || o.Code != "ENVELOPE_SOURCE_MISMATCH" {
		t.Fatalf("alice's message from host-c: %+v, %v", o, err)
	}
	if r := line.bring(c.sealed(2, 1, frame.Header{Seq: 2, ID: "next", Kind: frame.Void}, nil)); r.Receipt == nil {
		t.Errorf("the lane of host-c stands: %+v", r)
	}
	const task = "tsk_01a223e6-a5c3-79a0-9ec9-761d48cb205b"
	about := strings.Replace(string(body), `"metadata":{`, `"metadata":{"task":{"id":"`+task+`"},`, 1)
	if o := c.outcome(line.bring(c.sealed(0, 1, frame.Header{Seq: 1, ID: read.ID}, []byte(about)))); o.Result != frame.Allow {
		t.Fatalf("a message about a task of the other host: %+v", o)
	}
	bob.message("hook:message_received")
	if got := c.b.records(audit.Filter{Like: audit.Record{DispatchID: read.ID, TaskID: task}}); len(got) != 1 {
		t.Errorf("the task is on %d records", len(got))
	}
}

// reloaded has a daemon read its files now.
func (c *company) reloaded(h *harness) {
	c.t.Helper()
	h.operates().must("policy.reload", m{}, nil)
}

// A message that has come waits for its agent while its sender leaves the fleet: it is withdrawn, and nobody is
// said to have written to the outbox.
func TestFleetSenderLeaves(t *testing.T) {
	for name, gone := range map[string]func(*company){
		"with its host": func(c *company) { c.hosts, c.agents = c.hosts[1:], c.agents[1:] },
		"alone":         func(c *company) { c.agents = c.agents[1:] },
		"to another host": func(c *company) {
			third := c.keys(c.a, "host-c", 1)
			c.hosts = append(c.hosts, third)
			c.agents[0].Host = third.Name
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := foundFleet(t, "")
			sent := c.a.agent("@acme/alice").dispatch("agent:bob:main", "When is the review?", nil)
			lineA, lineB := carry(t, c.a), carry(t, c.b)
			lineA.pass(lineB)
			gone(c)
			c.publish(c.b)
			c.reloaded(c.b)
			bob := c.b.agent("@acme/bob")
			waitFor(t, "the message leaves its queue", func() bool {
				return len(c.b.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, Event: "withdrawn"}})) == 1
			})
			if n := len(c.b.records(audit.Filter{Like: audit.Record{Event: "undecided_message"}})); n != 0 {
				t.Errorf("%d messages are said to be undecided", n)
			}
			bob.silent("hook:message_received")
			c.b.verify()
		})
	}
}

// A message that does not fit, and one too many, are refused to their sender. One that a person drops
// takes its place as void, and its sender learns it.
func TestFleetSenderIsTold(t *testing.T) {
	c := foundFleet(t, "ipc: {max_line_bytes: 1MiB}\n")
	text, err := os.ReadFile(c.a.path("ocipd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.a.configure(strings.Replace(string(text), "fleet: {", "fleet: {max_queued: 2, ", 1))
	c.reloaded(c.a)
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	if failure := alice.refuse(api.Forbidden, "message.dispatch", m{"sessionKey": "agent:bob:main", "content": strings.Repeat("word ", 110_000)}); ocipCode(t, failure) != "REMOTE_TOO_LARGE" {
		t.Errorf("a message over the limit: %v", failure)
	}
	dropped := alice.dispatch("agent:bob:main", "Please ignore this.", fresh(nil))
	kept := alice.dispatch("agent:bob:main", "When is the review?", fresh(nil))
	if failure := alice.refuse(api.Forbidden, "message.dispatch", m{"sessionKey": "agent:bob:main", "content": "And the next?", "metadata": fresh(nil)}); ocipCode(t, failure) != "REMOTE_QUEUE_FULL" {
		t.Errorf("a third message: %v", failure)
	}
	var drop api.QueueDropResult
	c.a.operator("queue.drop", m{"dispatchIds": []string{dropped.DispatchID}}, &drop)
	if len(drop.Dropped) != 1 || drop.Dropped[0].Queue != "host:host-b" {
		t.Fatalf("dropped: %+v", drop)
	}
	lineA, lineB := carry(t, c.a), carry(t, c.b)
	lineA.pass(lineB)
	lineA.pass(lineB)
	if got := bob.message("hook:message_received"); got.DispatchID != kept.DispatchID {
		t.Errorf("bob got %+v", got)
	}
	for _, want := range []fleetapi.MessageReceipt{{DispatchID: dropped.DispatchID, Result: "void"}, {DispatchID: kept.DispatchID, Result: "allow"}} {
		var receipt fleetapi.MessageReceipt
		alice.decode(alice.next(fleetapi.ReceiptEvent).Payload, &receipt)
		if receipt.DispatchID != want.DispatchID || receipt.Result != want.Result {
			t.Errorf("alice is told %+v, want %+v", receipt, want)
		}
	}
	alice.dispatch("agent:bob:main", "And the next?", fresh(nil))
}

// A roster is refused as a whole, with its line, on record, and the one before it stays in force.
func TestFleetRosterIsRefused(t *testing.T) {
	c := foundFleet(t, "")
	person := c.a.operates()
	good := c.hosts
	refused := func(what, says string, text []byte) {
		t.Helper()
		c.write(c.a, text)
		failure := person.refuse(api.Conflict, "policy.reload", m{})
		contains(t, failure.Message+fmt.Sprint(failure.Details), says)
		var status fleetapi.FleetStatus
		c.a.operator("fleet.status", m{}, &status)
		if status.Version != c.version || !status.Member || len(status.Hosts) != 2 {
			t.Errorf("%s: in force is %+v", what, status)
		}
		if got := c.a.records(audit.Filter{Like: audit.Record{Event: "refused"}}); len(got) == 0 || !strings.Contains(got[len(got)-1].PolicyReason+fmt.Sprint(got[len(got)-1].Details), says) {
			t.Errorf("%s: on record is %+v", what, got)
		}
	}
	next := c.version + 1
	refused("a stranger's signature", "line 6: signature", c.roster("acme-corp", next, "mallory"))
	refused("a version too far", "line 1: version: want 2", c.roster("acme-corp", next+1, "olga"))
	refused("a version made from another one", "line 1: version: want 2", c.roster("acme-corp", next+1, "olga", "sha256:"+strings.Repeat("0", 64)))
	refused("an empty file", "fleet.jsonl:1: the roster has no signature", nil)
	refused("another tenant", "agents[0].tenant_id", c.roster("globex-inc", next, "olga"))
	c.agents[1].ID = "alice2"
	c.agents[1].InstanceID = "agent-alice-1"
	c.agents[0].InstanceID = "agent-bob-1"
	refused("an agent of this host elsewhere", "this host has instance agent-alice-1 itself", c.roster("acme-corp", next, "olga"))
	c.agents[0].InstanceID, c.agents[1].ID, c.agents[1].InstanceID = "agent-alice-1", "bob", "agent-bob-1"
	c.hosts = []roster.Host{good[1], good[0]}
	c.hosts[0].Name, c.hosts[1].Name = "host-a", "host-b"
	refused("another key for this host", "other keys for host host-a", c.roster("acme-corp", next, "olga"))
	c.hosts = good
	c.hosts[0].Name, c.hosts[1].Name = "host-a", "host-b"
	twice := strings.Replace(string(c.roster("acme-corp", next, "olga")), `"epoch":1`, `"epoch":1,"epoch":1`, 1)
	refused("a doubled member", "fleet.jsonl:2: ", []byte(twice))

	c.publish(c.a)
	c.reloaded(c.a)
	var status fleetapi.FleetStatus
	if c.a.operator("fleet.status", m{}, &status); status.Version != 2 {
		t.Errorf("the next version: %+v", status)
	}
	// No start goes back behind it.
	c.a.stop()
	c.write(c.a, c.roster("acme-corp", 1, "olga"))
	err := c.a.tryStart()
	if err == nil {
		t.Fatal("it starts with an older roster")
	}
	contains(t, err.Error(), "line 1: version: version 2")
	// The log has it too: it holds if somebody without a key deletes the row.
	c.a.fillLog()
	c.a.editRows("DELETE FROM meta WHERE key = 'fleet-roster'")
	if err = c.a.tryStart(); err == nil {
		t.Fatal("it starts with an older roster after its row was deleted")
	}
	contains(t, err.Error(), "line 1: version: version 2")
	c.write(c.a, c.roster("acme-corp", 9, "olga"))
	c.a.start()
}

// A daemon that has missed versions of the roster takes one that was made from the version in force.
func TestFleetMissesVersions(t *testing.T) {
	c := foundFleet(t, "")
	for range 2 {
		text, err := os.ReadFile(c.a.path("fleet.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := roster.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		history := r.History()
		for range 3 { // nobody gets the first two
			c.version++
			text = c.roster("acme-corp", c.version, "olga", history...)
			if r, err = roster.Parse(text); err != nil {
				t.Fatal(err)
			}
			history = r.History()
		}
		c.write(c.a, text)
		c.reloaded(c.a)
		var status fleetapi.FleetStatus
		if c.a.operator("fleet.status", m{}, &status); status.Version != c.version {
			t.Errorf("in force is version %d, want %d", status.Version, c.version)
		}
	}
}

// Messages that wait while a host gets new keys go before those that are decided afterwards.
func TestFleetKeepsOrderUnderNewKeys(t *testing.T) {
	c := foundFleet(t, "")
	alice, bob := c.a.agent("@acme/alice"), c.b.agent("@acme/bob")
	var want []string
	for n := range 3 {
		want = append(want, alice.dispatch("agent:bob:main", fmt.Sprintf("Note %d.", n), fresh(nil)).DispatchID)
	}
	c.rejoin(0)
	for n := range 3 {
		want = append(want, alice.dispatch("agent:bob:main", fmt.Sprintf("Note %d.", 3+n), fresh(nil)).DispatchID)
	}
	lineA, lineB := carry(t, c.a), carry(t, c.b)
	for n, id := range want {
		lineA.pass(lineB)
		if got := bob.message("hook:message_received"); got.DispatchID != id {
			t.Errorf("message %d is %s (%s), want %s", n, got.DispatchID, got.Content, id)
		}
	}
	if n := len(c.a.records(audit.Filter{Like: audit.Record{Event: "lane_renewed"}})); n != 3 {
		t.Errorf("%d messages have got new numbers", n)
	}
	c.a.verify()
	c.b.verify()
}

// rejoin gives a host new keys, and both hosts the roster with them.
func (c *company) rejoin(host int) {
	c.t.Helper()
	h := []*harness{c.a, c.b}[host]
	was := c.hosts[host]
	c.hosts[host] = c.keys(h, was.Name, was.Epoch+1)
	c.private[host] = c.private[len(c.private)-1]
	c.publish(c.a, c.b)
	c.reloaded(c.a)
	c.reloaded(c.b)
}

// Each host shows what the others say of themselves, by whichever line brings it. One whose log has
// become smaller is named with both checkpoints, on record once, also by a daemon that has started
// again since.
func TestFleetBeats(t *testing.T) {
	c := foundFleet(t, "")
	lineA, lineB := carry(t, c.a), carry(t, c.b)
	f := lineB.beat()
	if r := lineA.bring(bytesOf(t, &f)); r.Receipt != nil || r.Waits || f.To != "host-a" {
		t.Fatalf("a beat is for %s, and is answered with %+v", f.To, r)
	}
	ofB := func() fleetapi.FleetHost {
		t.Helper()
		var s fleetapi.FleetStatus
		c.a.operator("fleet.status", m{}, &s)
		if own := s.Hosts[0]; own.Beat == nil || own.Silent || own.Beat.Roster != c.version {
			t.Errorf("its own host is %+v", own)
		}
		return s.Hosts[1]
	}
	h := ofB()
	if h.Beat == nil || h.Beat.Roster != c.version || h.Silent || h.BeatAt.IsZero() || h.Shrunk != nil {
		t.Fatalf("host-b is %+v", h)
	}
	again := carry(t, c.b).beat()
	lineA.bring(bytesOf(t, &again))
	if later := ofB(); !later.Beat.Attached.After(h.Beat.Attached) || h.Beat.Attached.IsZero() {
		t.Errorf("carriers of host-b are attached at %s and %s", h.Beat.Attached, later.Beat.Attached)
	}
	at := uint64(time.Now().UnixMilli())
	says := func(note string) {
		t.Helper()
		body, err := beat.Write(&fleetapi.Beat{Version: "1", Checkpoint: note, Waiting: 3, Faults: []string{"disk: refuse"}})
		if err != nil {
			t.Fatal(err)
		}
		at++
		lineA.bring(c.sealed(1, 0, frame.Header{Kind: frame.Beat, Seq: at, ID: "beat"}, body))
	}
	origin, _, _ := strings.Cut(h.Beat.Checkpoint, "\n")
	large, small := checkpoint(t, origin, 1000), checkpoint(t, origin, 999)
	for _, b := range []string{large, ""} {
		if says(b); ofB().Shrunk != nil {
			t.Fatal("a log that grows is named")
		}
	}
	if h := ofB(); h.Beat.Waiting != 3 || len(h.Beat.Faults) != 1 {
		t.Errorf("host-b says %+v", h.Beat)
	}
	c.a.stop()
	c.a.start()
	lineA = carry(t, c.a)
	says(small)
	says(small)
	if h := ofB(); h.Shrunk == nil || h.Shrunk.Before != large || h.Shrunk.After != small {
		t.Errorf("a smaller log is named as %+v", h.Shrunk)
	}
	if got := c.a.records(audit.Filter{Like: audit.Record{Event: "peer_log_shrunk"}}); len(got) != 1 || got[0].Details["before"] != large || got[0].Details["after"] != small {
		t.Errorf("on record is %+v", got)
	}
	// A beat that cannot be used is refused and counted.
	_, err := lineA.tryBring(c.sealed(1, 0, frame.Header{Kind: frame.Beat, Seq: at + 1, ID: "beat"}, []byte("{}x")))
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != api.Forbidden || ofB().Refused != 1 {
		t.Errorf("a beat that is none: %v", err)
	}
	// New keys, which an operator has signed, begin anew.
	c.rejoin(1)
	if h := ofB(); h.Shrunk != nil || h.Beat != nil {
		t.Errorf("with new keys host-b is %+v", h)
	}
	c.a.verify()
}

// checkpoint signs a checkpoint of a log.
func checkpoint(t *testing.T, origin string, size uint64) string {
	t.Helper()
	secret, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&audit.Checkpoint{Origin: origin, Size: size}).Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
