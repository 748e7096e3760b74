package examples

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mind is an agent's app at a daemon: it sends messages, and reads those that come.
type mind struct {
	t     *testing.T
	link  net.Conn
	lines *json.Decoder
	token string
	// came are messages that came before an answer.
	came []frame
}

// frame is a line of the protocol, with the members that the tests read.
type frame struct {
	Type    string          `json:"type"`
	Success bool            `json:"success"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
	Event   string          `json:"event"`
	Payload struct {
		Data said `json:"data"`
	} `json:"payload"`
}

// said is a message as the receiving agent gets it.
type said struct {
	Content  string `json:"content"`
	Metadata struct {
		OCIP struct {
			Source struct {
				Instance string `json:"instance_id"`
			} `json:"source_agent"`
			Conversation string `json:"conversation_id"`
			Round        int    `json:"exchange_round"`
		} `json:"ocip"`
		Exchange struct {
			ID string `json:"id"`
		} `json:"exchange"`
	} `json:"metadata"`
}

func (p *place) mind(app string) *mind {
	p.Helper()
	link, err := net.Dial("unix", p.socket)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { link.Close() })
	if err := link.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		p.Fatal(err)
	}
	m := &mind{t: p.T, link: link, lines: json.NewDecoder(link)}
	var registered struct{ Token string }
	m.ask("app.register", map[string]any{"manifest": map[string]any{"id": app, "name": "Agent", "version": "1.0.0", "type": "app", "main": "x",
		"protocol": map[string]any{"version": "1.0"}, "capabilities": map[string]any{}}}, &registered)
	m.token = registered.Token
	m.ask("app.ready", map[string]any{}, nil)
	return m
}

func (m *mind) next() (f frame) {
	m.t.Helper()
	if err := m.lines.Decode(&f); err != nil {
		m.t.Fatal(err)
	}
	return f
}

// ask makes a request that has to succeed.
func (m *mind) ask(method string, params map[string]any, result any) {
	m.t.Helper()
	request := map[string]any{"id": method, "type": "request", "timestamp": 0, "method": method, "params": params}
	if m.token != "" {
		request["token"] = m.token
	}
	if err := json.NewEncoder(m.link).Encode(request); err != nil {
		m.t.Fatal(err)
	}
	f := m.next()
	for ; f.Type == "event"; f = m.next() {
		m.came = append(m.came, f)
	}
	if !f.Success {
		m.t.Fatalf("%s: %s", method, f.Error)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(f.Result, result); err != nil {
		m.t.Fatal(err)
	}
}

// hears waits for a message.
func (m *mind) hears() said {
	m.t.Helper()
	for {
		var f frame
		if len(m.came) > 0 {
			f, m.came = m.came[0], m.came[1:]
		} else {
			f = m.next()
		}
		if f.Event == "hook:message_received" {
			return f.Payload.Data
		}
	}
}

// record is what the log has about a message between agents.
type record struct {
	Action       string `json:"actionType"`
	Side         string `json:"side"`
	Agent        string `json:"agentId"`
	App          string `json:"appId"`
	Exchange     string `json:"exchangeId"`
	Conversation string `json:"conversationId"`
	Round        int    `json:"round"`
	Result       string `json:"policyResult"`
}

func (p *place) exchanged() (list []record) {
	p.Helper()
	for line := range strings.Lines(p.ocipd("audit", "query", "--all", "--json")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			p.Fatal(err)
		}
		if r.Action == "agent_exchange" {
			list = append(list, r)
		}
	}
	return list
}

// serveAgent is the daemon of an agent that the test itself plays. The test asks for its log, too.
func serveAgent(t *testing.T, config string) *place {
	t.Helper()
	return serveBy(t, config, "--set", "ipc.apps_may_operate=true")
}

// carrier runs the carrier until the test ends.
func (p *place) carrier(to *place) *running {
	p.Helper()
	r := p.run(p.T, []string{"python3", "carrier/carrier.py", p.socket, to.socket}, nil)
	p.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait() // it was killed
	})
	r.next("ready")
	return r
}

// TestCarrier has a question of an agent reach the agent of another daemon with its envelope, and the
// answer come back as the second round of the same exchange, on both logs.
func TestCarrier(t *testing.T) {
	needs(t, "python3")
	a, b := serveAgent(t, "carrier/alice.yaml"), serveAgent(t, "carrier/bob.yaml")
	there, back := a.carrier(b), b.carrier(a)
	alice := a.mind("@example/alice")
	alice.ask("message.dispatch", map[string]any{"sessionKey": "link:bob", "content": "How far is the review?"}, nil)
	there.next("bob carried")
	bob := b.mind("@example/bob") // the question waited for it
	asked := bob.hears()
	ocip, exchange := asked.Metadata.OCIP, asked.Metadata.Exchange.ID
	if !strings.HasPrefix(asked.Content, "How far is the review?") || ocip.Source.Instance != "agent-alice-1" || ocip.Round != 1 || exchange == "" {
		t.Errorf("bob got %+v", asked)
	}
	bob.ask("message.dispatch", map[string]any{"sessionKey": "link:alice", "content": "It is half done.",
		"metadata": map[string]any{"exchange": map[string]any{"id": exchange}}}, nil)
	answered := alice.hears()
	back.next("alice carried")
	if got := answered.Metadata; !strings.HasPrefix(answered.Content, "It is half done.") || got.OCIP.Source.Instance != "agent-bob-1" ||
		got.OCIP.Round != 2 || got.OCIP.Conversation != ocip.Conversation || got.Exchange.ID != exchange {
		t.Errorf("alice got %+v", answered)
	}
	for p, want := range map[*place][]record{
		a: {{Side: "receiver", Agent: "agent-alice-1", App: "@example/brings", Round: 2}, {Side: "sender", Agent: "agent-alice-1", App: "@example/alice", Round: 1}},
		b: {{Side: "sender", Agent: "agent-bob-1", App: "@example/bob", Round: 2}, {Side: "receiver", Agent: "agent-bob-1", App: "@example/brings", Round: 1}},
	} {
		got := p.exchanged()
		if len(got) != len(want) {
			t.Errorf("on record are %+v", got)
			continue
		}
		for i, r := range want {
			r.Action, r.Exchange, r.Conversation, r.Result = "agent_exchange", exchange, ocip.Conversation, "allow"
			if got[i] != r {
				t.Errorf("on record is %+v, want %+v", got[i], r)
			}
		}
	}
}

// TestCarrierSaysWhatIsWrong has the carrier say in one line that a socket is not named, that no daemon
// listens, and that another carrier runs.
func TestCarrierSaysWhatIsWrong(t *testing.T) {
	needs(t, "python3")
	a, b := serveAgent(t, "carrier/alice.yaml"), serveAgent(t, "carrier/bob.yaml")
	says := func(want string, args ...string) {
		t.Helper()
		c := a.command("python3", append([]string{"carrier/carrier.py"}, args...)...)
		var said strings.Builder
		c.Stderr = &said
		if err := c.Run(); err == nil || !strings.HasPrefix(said.String(), want) || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%q: %v\n%s", args, err, said.String())
		}
	}
	says("want the kernel sockets of both", a.socket)
	says("ocipd does not answer on /nonexistent/kernel.sock (", a.socket, "/nonexistent/kernel.sock")
	a.carrier(b)
	says("CONFLICT: app @example/takes is connected already", a.socket, b.socket)
}

// TestCarrierWithoutRight has a daemon whose configuration lets nobody carry the sender's envelopes
// refuse the message by its code. The sender's log has that it did not arrive.
func TestCarrierWithoutRight(t *testing.T) {
	needs(t, "python3")
	text, err := os.ReadFile("carrier/bob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "bob.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(string(text), "carries: [agent-alice-1]", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := serveAgent(t, "carrier/alice.yaml"), serveAgent(t, config)
	there, alice := a.carrier(b), a.mind("@example/alice")
	alice.ask("message.dispatch", map[string]any{"sessionKey": "link:bob", "content": "How far is the review?"}, nil)
	there.next("bob refused: ENVELOPE_SOURCE_MISMATCH: app @example/brings may not bring in envelopes of agent agent-alice-1 under the key of agent bob")
	for _, r := range b.exchanged() {
		if r.Result == "allow" {
			t.Errorf("on record is %+v", r)
		}
	}
	if log := a.ocipd("audit", "query", "--all", "--json"); !strings.Contains(log, `"event":"failed"`) {
		t.Errorf("on record is\n%s", log)
	}
	// The failed message has used its round: the sender cannot know that the other side has not.
	if list := a.ocipd("exchanges", "list", "--json"); !strings.Contains(list, `"round":1`) {
		t.Errorf("the exchanges are\n%s", list)
	}
}
