package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// serverWord makes the test binary an MCP server that records its input in a file.
const serverWord = "play-an-mcp-server"

// scriptedServer answers according to the names of its tools, line by line.
func scriptedServer(log string) {
	kept, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"OCIPD_TOKEN", "OCIPD_TOKEN_FILE"} {
		if os.Getenv(name) != "" {
			fmt.Fprintln(kept, "token")
		}
	}
	r := bufio.NewReader(os.Stdin)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(kept, line)
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal([]byte(line), &m) != nil || m.ID == nil || m.Method == "" {
			continue
		}
		switch {
		case m.Method == "initialize":
			fmt.Printf(`{"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"experimental":{"x":{"y":1.50}}},"serverInfo":{"name":"chat","version":"1"}},"id":%s,"jsonrpc":"2.0"}`+"\n", m.ID)
		case m.Method == "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"send_message","inputSchema":{"type":"object","properties":{"to":{"type":"string"},"text":{"type":"string"}}}},{"name":"search","inputSchema":{"type":"object","properties":{"query":{}}}},{"name":"post","inputSchema":{"type":"object","properties":{"channel_id":{},"body":{},"title":{}}}}]}}`+"\n", m.ID)
		case m.Params.Name == "big":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
			for range 20 << 10 {
				fmt.Print(strings.Repeat("x", 1024))
			}
			fmt.Print(`"}]}}` + "\r\n")
		case m.Params.Name == "die":
			os.Exit(3)
		case strings.Contains(line, `"as":"error"`):
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Dave says no","data":[1.0]}}`+"\n", m.ID)
		case strings.Contains(line, `"as":"nobody"`):
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"_meta":{"note":"nothing is there"}}}`+"\n", m.ID)
		case m.Params.Name == "history" || m.Params.Name == "inbox":
			// An answer with another spelling of its id is still the answer.
			fmt.Printf(`{"jsonrpc":"2.0","id":%s.0,"result":{"content":[{"type":"text","text":"From: Dave <dave@example.com>\nIs it done?\nfrom:%s"}]}}`+"\n", m.ID, m.Params.Name)
		case strings.Contains(line, "fails"):
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":true}}`+"\n", m.ID)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`+"\n"+`{"id":7,"method":"sampling/createMessage","jsonrpc":"2.0","params":{"x":"\ud83d"}}`+"\n"+`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}], "_meta":{"n":1.0}}}`+"\n", m.ID)
		}
	}
}

const chatMap = `
channel: chat
tools:
  send_message: {text: [text], to: ["{to}"], with: [thread, file]}
  mail: {title: [subject], text: [body], to: ["{to}", "{cc}"]}
  comment: {text: [body], to: ["{owner}/{repo}#{number}"]}
reads:
  history: {from: ["{channel}"]}
  inbox: {lines: ["From:"]}
calls: [search, big]
`

const proxyTeam = `
ipc: {apps_may_operate: true}
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme, max_classification_shared: internal}
directory:
  - {kind: person, user_id: dave, org_unit: engineering, tenant_id: acme, accepts: [public, internal], sessions: ["chat:dave", "chat:erin"]}
  - {instance_id: agent-fred-1, user_id: fred, org_unit: engineering, tenant_id: acme, accepts: [public, internal], sessions: ["chat:fred"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex, accepts: [public], sessions: ["chat:eve"]}
`

// enforcing is proxyTeam with a policy that refuses all tools of the server gh and asks a person about
// one of another.
func enforcing(t *testing.T) string {
	t.Helper()
	return ruled(t, map[string]string{"my_own.rego": "package ocip.tool\n\ndenials contains \"no GitHub here\" if input.tool.server == \"gh\"\n\nquestions contains \"a person looks\" if input.tool.name == \"deploy\"\n"})
}

// ruled is proxyTeam with additional rules beside the starter policy.
func ruled(t *testing.T, rules map[string]string) string {
	t.Helper()
	files, err := policies.Starter()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	maps.Copy(files, rules)
	for name, text := range files {
		if strings.HasSuffix(name, "_test.rego") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proxyTeam + "tools: enforce\npolicy: {path: " + dir + "}\n"
}

// proxyTrial is a daemon, and clients that talk to a server through the proxy.
type proxyTrial struct {
	*mcpTrial
	log, token string
}

func newProxyTrial(t *testing.T) *proxyTrial {
	t.Helper()
	return newProxyTrialOf(t, proxyTeam)
}

func newProxyTrialOf(t *testing.T, team string) *proxyTrial {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &proxyTrial{mcpTrial: newMCPTrial(t, team)}
	p.log, p.token = filepath.Join(p.dir, "server.log"), filepath.Join(p.dir, "ann.token")
	var granted taskapi.Granted
	p.operator("task.grant", map[string]any{"agent": "ann"}, &granted)
	for name, text := range map[string]string{p.token: granted.Token, filepath.Join(p.dir, "chat.yaml"): chatMap, p.log: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// proxySession is one client's session, over lines.
type proxySession struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *proxyTrial) open(command []string, env ...string) *proxySession {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+p.dir, "GORACE=atexit_sleep_ms=0"), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &proxySession{p.t, cmd, in, bufio.NewReader(out)}
}

func (p *proxyTrial) server() []string { return []string{os.Args[0], serverWord, p.log} }

func (p *proxyTrial) proxied(args ...string) *proxySession {
	p.t.Helper()
	command := append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--config", filepath.Join(p.dir, "ocipd.yaml"), "--map", filepath.Join(p.dir, "chat.yaml")}, args...)
	return p.open(append(append(command, "--"), p.server()...), asProgram+"=1", "OCIPD_TOKEN_FILE="+p.token)
}

func (s *proxySession) say(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line); err != nil {
		s.t.Fatal(err)
	}
}

// answer reads up to the answer with an id, and returns the tool's text.
func (s *proxySession) answer(id string) (text string, isError bool) {
	s.t.Helper()
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("no answer to %s: %v", id, err)
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Error  struct{ Message string }
			Result struct {
				IsError bool
				Content []struct{ Text string }
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		if m.Method != "" || strings.TrimSuffix(string(m.ID), ".0") != id {
			continue
		}
		if m.Error.Message != "" {
			return m.Error.Message, true
		}
		if len(m.Result.Content) > 0 {
			text = m.Result.Content[0].Text
		}
		return text, m.Result.IsError
	}
}

func call(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":%d}}}`+"\n", id, tool, arguments, id)
}

// calls are the tool calls that the server got.
func (p *proxyTrial) calls() (got []string) {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "tools/call") {
			got = append(got, line)
		}
	}
	return got
}

func (p *proxyTrial) decide(decision, id string) {
	p.t.Helper()
	var saw api.Approval
	p.operator("approval.get", map[string]any{"approvalId": id}, &saw)
	p.operator("approval.resolve", map[string]any{"approvalId": id, "decision": decision, "digest": saw.Digest}, nil)
}

// waiting is the only pending approval request.
func (p *proxyTrial) waiting() string {
	p.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for over := time.Now().Add(time.Minute); time.Now().Before(over); <-again.C {
		var list api.ApprovalListResult
		p.operator("approval.list", map[string]any{}, &list)
		if len(list.Approvals) == 1 {
			var a api.ApprovalSummary
			if err := json.Unmarshal(list.Approvals[0], &a); err != nil {
				p.t.Fatal(err)
			}
			return a.ApprovalID
		}
	}
	p.t.Fatal("nothing waits")
	return ""
}

// records are the matching records, the oldest first.
func (p *proxyTrial) records(like audit.Record) (found []*audit.Record) {
	p.t.Helper()
	var page api.AuditQueryResult
	p.operator("audit.query", map[string]any{"filter": audit.Filter{Like: like}}, &page)
	for _, line := range slices.Backward(page.Records) {
		e, err := audit.Parse(line)
		if err != nil {
			p.t.Fatal(err)
		}
		found = append(found, &e.Record)
	}
	return found
}

func (p *proxyTrial) events(like audit.Record) (events []string) {
	p.t.Helper()
	for _, r := range p.records(like) {
		events = append(events, r.Event)
	}
	return events
}

func (p *proxyTrial) until(what string, is func() bool) {
	p.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for over := time.Now().Add(3 * time.Minute); !is(); <-again.C {
		if time.Now().After(over) {
			p.t.Fatalf("not in time: %s", what)
		}
	}
}

// Messages other than tool calls pass unchanged, in both directions, including long results.
func TestProxyPassesTheRest(t *testing.T) {
	p := newProxyTrial(t)
	said := []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"tasks":{},"sampling":{}},"clientInfo":{"name":"t","version":"1"}}}` + "\n",
		`{ "jsonrpc" : "2.0", "method":"notifications\/initialized" }` + "\r\n", "\n",
		`{"jsonrpc":"2.0","id":"server/1","method":"server/discover","params":{ "_meta" : {"progressToken":"p\u0031"}}}` + "\n",
		`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/list"}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}` + "\n",
		`{"jsonrpc":"2.0","id":4,"method":"resources/list","params":{"cursor":null}}` + "\n",
		`{"jsonrpc":"2.0","id":7,"result":{"role":"assistant","content":{"type":"text","text":"half"}}}` + "\n",
	}
	through := func(command []string, env ...string) (answered, got []byte) {
		if err := os.Truncate(p.log, 0); err != nil {
			t.Fatal(err)
		}
		s := p.open(command, env...)
		answers := make(chan struct{})
		go func() {
			for i, line := range said {
				if i == len(said)-1 {
					<-answers // it answers what the server asks
				}
				if _, err := io.WriteString(s.in, line); err != nil {
					return
				}
			}
			s.in.Close()
		}()
		for {
			line, err := s.out.ReadBytes('\n')
			if answered = append(answered, line...); bytes.Contains(line, []byte(`"id":4,`)) {
				close(answers)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if got, err = os.ReadFile(p.log); err != nil {
			t.Fatal(err)
		}
		return answered, got
	}
	want, wanted := through(p.server())
	command := append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--socket", p.socket, "--map", filepath.Join(p.dir, "chat.yaml"), "--"}, p.server()...)
	is, got := through(command, asProgram+"=1", "OCIPD_TOKEN_FILE="+p.token)
	if !bytes.Equal(want, is) {
		t.Errorf("the client was answered %d bytes and not %d: %.2000s", len(is), len(want), is)
	}
	if !bytes.Equal(wanted, got) {
		t.Errorf("the server got\n%s, want\n%s", got, wanted)
	}
	s := p.proxied()
	s.say(call(1, "big", `{}`))
	if text, isError := s.answer("1"); isError || len(text) != 20<<20 {
		t.Errorf("of the result come %d bytes", len(text))
	}
}

// A message of a tool is decided first: it is sent with its disclosure, or not at all.
func TestProxyGates(t *testing.T) {
	p := newProxyTrial(t)
	s := p.proxied()
	s.say(call(1, "send_message", `{"to":"dave","text":"Is it h\u00e9re?","thread":12345678901234567890}`))
	if text, isError := s.answer("1"); text != "done" || isError {
		t.Fatalf("answered %q", text)
	}
	want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message","arguments":{"text":"Is it hére?\n\nSent by ann's assistant","thread":12345678901234567890,"to":"dave"},"_meta":{"progressToken":1}}}` + "\n"
	if got := p.calls(); len(got) != 1 || got[0] != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	for i, tc := range []struct{ line, says string }{
		{call(2, "send_message", `{"to":"eve","text":"Hello"}`), "CROSS_ENTERPRISE_BLOCKED"},
		{call(3, "send_message", `{"to":"dave","text":"The key is AKIAIOSFODNN7SAMPLED and wJalrXUtnFEMI/K7MDENG/bPxRfiCYSAMPLEDKEY"}`), "CLASSIFICATION_VIOLATION"},
		{call(4, "mail", `{"to":["dave","eve"],"subject":"s","body":"Hello"}`), "CROSS_ENTERPRISE_BLOCKED"},
		{call(5, "send_message", `{"to":"dave","text":"a","Text":"b"}`), "differ in case"},
		{call(6, "send_message", `{"TO":"dave","text":"a"}`), "is not"},
		{call(7, "send_message", `{"to":"dave","text":["a"]}`), "is no text"},
		{call(8, "send_message", `{"text":"a"}`), "names no recipient"},
		{call(9, "send_message", `{"to":{"a":1},"text":"a"}`), "neither a text nor a number"},
		{call(10, "comment", `{"owner":"a","repo":"b","body":"x"}`), "missing"},
		{call(11, "send_message", `{"to":"dave","text":"a","file":"/etc/passwd"}`), "MEDIA_REFUSED"},
		{call(12, "notify", `{"channel_id":"eve","message":"Hello"}`), "CROSS_ENTERPRISE_BLOCKED"},
		{call(13, "send_message", `{"to":"dave","text":"`+strings.Repeat("x", 300<<10)+`"}`), "longer than"},
		{`[` + strings.TrimSpace(call(14, "send_message", `{}`)) + "]\n", ""},
		{strings.Replace(call(15, "send_message", `{"to":"eve","text":"a"}`), `"name":`, `"Name":"search","name":`, 1), "is not"},
		{strings.Replace(call(16, "send_message", `{"to":"eve","text":"a"}`), `"method":`, `"Method":"ping","method":`, 1), ""},
		{strings.Replace(call(17, "send_message", `{"to":"eve","text":"a"}`), `tools/call`, `tools\/call`, 1), "CROSS_ENTERPRISE"},
		{strings.Replace(call(18, "send_message", `{"to":"dave","text":"a"}`), `"id":18,`, ``, 1), ""},
		{call(19, "notify", `{"channel_id":{"id":"eve"},"message":"Hello"}`), "neither a text nor a number"},
		{call(20, "notify", `{"channel_id":"eve","message":{"body":"Hello"}}`), "is no text"},
		{strings.Replace(call(21, "send_message", `{"to":"eve","text":"a"}`), `tools/call`, `Tools/Call`, 1), ""},
	} {
		s.say(tc.line)
		id := fmt.Sprint(i + 2)
		if tc.says == "" {
			id = "null"
		}
		text, isError := s.answer(id)
		if !isError || !strings.Contains(text, tc.says) {
			t.Errorf("%.80s is answered %q", tc.line, text)
		}
	}
	if got := p.calls(); len(got) != 1 {
		t.Errorf("the server got %s", got[1:])
	}
	// Of the two recipients, the permitted one was allowed and got nothing.
	if got := p.events(audit.Record{Event: "not_taken"}); len(got) != 1 {
		t.Errorf("on record is %v", got)
	}
	s.say(call(30, "mail", `{"to":"dave","cc":["erin"],"subject":"Today","body":"Hello"}`))
	if text, isError := s.answer("30"); isError {
		t.Errorf("answered %q", text)
	}
	if got := p.calls(); !strings.Contains(got[len(got)-1], `{"body":"Hello\n\nSent by ann's assistant","cc":["erin"],"subject":"Today","to":"dave"}`) {
		t.Errorf("the server got %s", got[len(got)-1])
	}
	s.say(call(31, "send_message", `{"to":"dave","text":"it fails"}`))
	if _, isError := s.answer("31"); !isError {
		t.Error("the failure of a tool is not told")
	}
	p.until("the record", func() bool { return len(p.events(audit.Record{Event: "outcome_unknown"})) == 1 })
	text, err := os.ReadFile(p.log)
	if err != nil || bytes.Contains(text, []byte("token\n")) {
		t.Errorf("the server was given the token: %v", err)
	}
}

var approvalID = regexp.MustCompile(`HELD ([0-9a-f-]+)`)

// A held message keeps its call open, and is sent once: by the call, by the session after
// the call was answered, or by the next session.
func TestProxyHolds(t *testing.T) {
	const promise = `{"to":"dave","text":"I promise to do it by Friday"}`
	sent := func(t *testing.T, p *proxyTrial, n int) {
		t.Helper()
		began := time.Now()
		p.until("the message is sent", func() bool { return len(p.calls()) == n })
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it left after %s, so the daemon's word was not heard", took)
		}
		if got := p.calls()[n-1]; !strings.Contains(got, `"text":"I promise to do it by Friday\n\nSent by ann's assistant"`) || !strings.Contains(got, `"name":"send_message"`) {
			t.Errorf("the server got %s", got)
		}
		p.until("the record", func() bool { return len(p.events(audit.Record{Event: "delivered"})) == n })
	}
	t.Run("open", func(t *testing.T) {
		t.Parallel()
		p := newProxyTrial(t)
		s := p.proxied()
		s.say(call(1, "send_message", promise))
		id := p.waiting()
		if line, err := s.out.ReadString('\n'); err != nil || !strings.Contains(line, `"progressToken":1,`) {
			t.Errorf("news are %s, %v", line, err)
		}
		p.decide("approve", id)
		if text, isError := s.answer("1"); text != "done" || isError {
			t.Errorf("answered %q", text)
		}
		sent(t, p, 1)
		s.say(call(2, "send_message", promise))
		p.decide("deny", p.waiting())
		if text, isError := s.answer("2"); !isError || !strings.Contains(text, "a person has decided: denied") {
			t.Errorf("answered %q", text)
		}
		s.say(call(3, "send_message", promise))
		p.waiting()
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}` + "\n")
		p.until("it is taken back", func() bool { return len(p.events(audit.Record{Event: "revoked"})) == 1 })
		s.say(call(4, "mail", `{"to":["dave","erin"],"subject":"s","body":"I promise to do it by Friday"}`))
		p.until("both wait", func() bool {
			var list api.ApprovalListResult
			p.operator("approval.list", map[string]any{}, &list)
			if len(list.Approvals) < 2 {
				return false
			}
			for _, raw := range list.Approvals {
				var a api.ApprovalSummary
				if err := json.Unmarshal(raw, &a); err != nil {
					t.Fatal(err)
				}
				p.decide("approve", a.ApprovalID)
			}
			return true
		})
		if text, isError := s.answer("4"); isError {
			t.Errorf("answered %q", text)
		}
		if got := p.calls(); len(got) != 2 {
			t.Errorf("the server got %s", got)
		}
	})
	t.Run("answered", func(t *testing.T) {
		t.Parallel()
		p := newProxyTrial(t)
		s := p.proxied("--hold", "1s")
		s.say(call(1, "send_message", promise))
		text, _ := s.answer("1")
		id := approvalID.FindStringSubmatch(text)
		if id == nil {
			t.Fatalf("answered %q", text)
		}
		p.decide("approve", id[1])
		sent(t, p, 1)
		s.say(call(2, "search", `{}`))
		if text, _ := s.answer("2"); text != "done" {
			t.Errorf("answered %q", text)
		}
	})
	t.Run("unmapped", func(t *testing.T) {
		t.Parallel()
		p := newProxyTrial(t)
		s := p.proxied("--unmapped", "ask")
		s.say(call(1, "notify", `{"channel_id":"dave","message":"Hello"}`))
		p.decide("approve", p.waiting())
		if text, isError := s.answer("1"); isError {
			t.Errorf("answered %q", text)
		}
		s.say(call(2, "send_message", `{"to":"dave","text":"Hello"}`))
		if text, isError := s.answer("2"); isError {
			t.Errorf("answered %q", text)
		}
		if got := p.calls(); len(got) != 2 || !strings.Contains(got[0], `"message":"Hello\n\nSent by`) {
			t.Errorf("the server got %s", got)
		}
	})
	t.Run("next", func(t *testing.T) {
		t.Parallel()
		p := newProxyTrial(t)
		s := p.proxied()
		s.say(call(1, "send_message", promise))
		id := p.waiting()
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.decide("approve", id)
		p.kill()
		s = p.proxied()
		s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
		sent(t, p, 1)
	})
}

// Other people's content in a tool's result is decided as an incoming message, before the
// client gets it.
func TestProxyReads(t *testing.T) {
	t.Parallel()
	p := newProxyTrial(t)
	s := p.proxied()
	const said = "From: Dave <dave@example.com>\nIs it done?\nfrom:history"
	for id, tc := range []struct {
		tool, arguments, says string
		withheld              bool
	}{
		{"history", `{"channel":"dave"}`, said, false},
		{"history", `{"channel":"eve"}`, "withheld (CROSS_ENTERPRISE_BLOCKED)", true},
		{"history", `{}`, "withheld (UNCLEAR)", true},
		{"inbox", `{}`, "From: Dave", false},
		{"History", `{"channel":"eve"}`, "UNCLEAR", true},
		{"history", `{"channel":"dave","as":"error"}`, "Dave says no", true},
		{"history", `{"channel":"eve","as":"error"}`, "withheld (CROSS_ENTERPRISE_BLOCKED)", true},
		{"history", `{"channel":"eve","as":"nobody"}`, "withheld (CROSS_ENTERPRISE_BLOCKED)", true},
		{"inbox", `{"as":"nobody"}`, "", false},
		{"history", `{"channel":"dave"},"task":{"ttl":1}`, "withheld (UNCLEAR)", true},
		{"search", `{"channel":"eve"}`, "done", false},
	} {
		s.say(call(id+1, tc.tool, tc.arguments))
		text, isError := s.answer(fmt.Sprint(id + 1))
		if isError != tc.withheld || !strings.Contains(text, tc.says) {
			t.Errorf("%s %s is answered %q, %v", tc.tool, tc.arguments, text, isError)
		}
	}
	if got := p.events(audit.Record{Event: "human_message", Side: audit.SideReceiver}); len(got) != 4 {
		t.Errorf("on record are %v", got)
	}
	if err := p.daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.daemon.Wait()
	s.say(call(99, "history", `{"channel":"dave"}`))
	if text, isError := s.answer("99"); !isError || !refusedWithoutDaemon(text) {
		t.Errorf("without a daemon it is answered %q", text)
	}
	p.daemon = p.start(t)
}

// refusedWithoutDaemon reports whether an answer says that the daemon is gone: the proxy
// may find that out on its open connection, or when it connects again.
func refusedWithoutDaemon(text string) bool {
	return strings.Contains(text, "NOT_RUNNING") || strings.Contains(text, "CONNECTION_CLOSED")
}

// Without the daemon no tool is called.
func TestProxyWithoutDaemon(t *testing.T) {
	p := newProxyTrial(t)
	s := p.proxied()
	s.say(call(1, "send_message", `{"to":"dave","text":"Hello"}`))
	if text, isError := s.answer("1"); isError {
		t.Fatalf("answered %q", text)
	}
	if err := p.daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.daemon.Wait()
	for id, tool := range map[int]string{2: "send_message", 3: "send_message"} {
		s.say(call(id, tool, `{"to":"dave","text":"Hello"}`))
		if text, isError := s.answer(fmt.Sprint(id)); !isError || !strings.Contains(text, "Nothing was sent") {
			t.Errorf("answered %q", text)
		}
	}
	s.say(call(4, "search", `{}`))
	if text, isError := s.answer("4"); !isError || !refusedWithoutDaemon(text) {
		t.Errorf("answered %q", text)
	}
	p.daemon = p.start(t)
	s.say(call(5, "send_message", `{"to":"dave","text":"Hello"}`))
	if text, isError := s.answer("5"); isError {
		t.Errorf("answered %q", text)
	}
	if got := p.calls(); len(got) != 2 {
		t.Errorf("the server got %s", got)
	}
}

// The known tools of a server can be listed, and turned into an own map.
func TestProxyExplains(t *testing.T) {
	p := newProxyTrial(t)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(append([]string{"mcp-proxy", "explain"}, args...), append([]string{"--"}, p.server()...)...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	shown := run()
	for _, want := range []string{
		"# No map is for this server", "# post          decided about as a message, by a guess", "# search        decided about as a call, in no map", "channel: mcp-server",
		"send_message:\n    text: [text]\n    to: ['{to}']", "post:\n    title: [title]\n    text: [body]\n    to: ['{channel_id}']", "calls: [search]",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("not shown: %s\n%s", want, shown)
		}
	}
	file := filepath.Join(p.dir, "own.yaml")
	if err := os.WriteFile(file, []byte(shown), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := run("--map", file); strings.NewReplacer("No map is for this server: what its tools send is guessed.", "The map mcp-server is in force.", "by a guess", "by the map", "in no map", "by the map").Replace(shown) != again {
		t.Errorf("as a map it is\n%s", again)
	}
}

// While tool calls are neither recorded nor observed, the proxy passes them unasked. A
// change to that applies from the first call after its confirmation.
func TestProxyPassesUnasked(t *testing.T) {
	const listens = "access: {apps: {\"@acme/watcher\": {observes: [ann]}, \"@acme/chat\": {channels: [chat]}}}\n"
	const off = proxyTeam + "tools: off\n" + listens
	p := newProxyTrialOf(t, off)
	config := filepath.Join(p.dir, "ocipd.yaml")
	var granted taskapi.Granted
	p.operator("task.grant", map[string]any{"agent": "ann"}, &granted)
	if err := os.WriteFile(p.token, []byte(granted.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.proxied("--name", "gh")
	n := 0
	search := func() (text string, isError bool) {
		t.Helper()
		n++
		s.say(call(n, "search", `{"q":"x"}`))
		return s.answer(fmt.Sprint(n))
	}
	signal := func(what os.Signal) {
		t.Helper()
		if err := p.daemon.Process.Signal(what); err != nil {
			t.Fatal(err)
		}
	}
	// A stopped daemon answers nobody: a call that passes was not asked about.
	unasked := func() {
		t.Helper()
		if text, isError := search(); isError {
			t.Fatalf("a call is answered %q", text)
		}
		signal(syscall.SIGSTOP)
		text, isError := search()
		signal(syscall.SIGCONT)
		if isError || text != "done" {
			t.Fatalf("a call that nobody needs to be asked about is answered %q", text)
		}
	}
	reload := func(team string) func() {
		return func() {
			if err := os.WriteFile(config, []byte(team), 0o600); err != nil {
				t.Fatal(err)
			}
			p.operator("policy.reload", map[string]any{}, nil)
		}
	}
	recorded := func() int { return len(p.records(audit.Record{Event: "tool_executing"})) }
	var watcher *client.Client
	for _, tc := range []struct {
		name         string
		change, back func()
		refusal      string // "" if it is recorded
	}{
		{"a reload from off to enforce", reload(enforcing(t)), reload(off), "no GitHub here"},
		{"a reload from off to record", reload(proxyTeam + "tools: record\n"), reload(off), ""},
		{"a subscriber", func() {
			var err error
			if watcher, err = p.app(t.Context(), "@acme/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"tool_executing"}}}); err != nil {
				t.Fatal(err)
			}
			var got api.SubscribeResult
			if err := watcher.Call(t.Context(), "hook.subscribe", map[string]any{"events": []string{"tool_executing"}}, &got); err != nil || len(got.Subscribed) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
		}, func() {
			if err := watcher.Call(t.Context(), "hook.unsubscribe", map[string]any{"events": []string{"tool_executing"}}, nil); err != nil {
				t.Fatal(err)
			}
			watcher.Close()
		}, ""},
		{"a pause", func() { p.operator("sending.pause", map[string]any{"agent": "ann"}, nil) }, func() { p.operator("sending.resume", map[string]any{"agent": "ann"}, nil) }, "PAUSED"},
		{"a daemon that is gone", func() {
			if err := p.daemon.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = p.daemon.Wait()
		}, func() { p.daemon = p.start(t) }, "NOT_RUNNING"},
		{"a grant that is revoked", func() { p.operator("task.revoke_grant", map[string]any{"grant_id": granted.GrantID}, nil) }, func() {}, "UNAUTHORIZED"},
	} {
		unasked()
		before := 0
		if tc.refusal == "" {
			before = recorded()
		}
		tc.change()
		text, isError := search()
		switch {
		case tc.refusal == "NOT_RUNNING" && isError && refusedWithoutDaemon(text):
		case isError != (tc.refusal != "") || !strings.Contains(text, tc.refusal):
			t.Errorf("after %s, a call is answered %q", tc.name, text)
		case tc.refusal == "" && recorded() != before+1:
			t.Errorf("after %s, a call is on record %d times", tc.name, recorded()-before)
		}
		tc.back()
	}
}

// Each call of a tool that sends no message, and each request that reads, is decided: by
// the policy, for secrets, and for an unmapped tool by a person. Each has one record.
func TestProxyDecidesEveryCall(t *testing.T) {
	p := newProxyTrialOf(t, enforcing(t))
	const key = `AKIAIOSFODNN7SAMPLED`
	refused := p.proxied("--name", "gh")
	asked := p.proxied("--name", "chat")
	for i, tc := range []struct {
		s          *proxySession
		line       string
		says       string
		code, like string
	}{
		{refused, call(1, "create_or_update_file", `{"path":"x","content":"`+key+`"}`), "CLASSIFICATION_VIOLATION", "CLASSIFICATION_VIOLATION", "create_or_update_file"},
		{refused, call(2, "search", `{"q":"x"}`), "no GitHub here", "POLICY_DENIED", "search"},
		{refused, call(3, "history", `{"channel":"dave"}`), "no GitHub here", "POLICY_DENIED", "history"},
		{refused, `{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"x:y"}}` + "\n", "no GitHub here", "POLICY_DENIED", "resources/read"},
		{refused, `{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"p"}}` + "\n", "no GitHub here", "POLICY_DENIED", "prompts/get"},
		{refused, `{"jsonrpc":"2.0","id":6,"method":"message/send","params":{"message":"` + key + `"}}` + "\n", "CLASSIFICATION_VIOLATION", "CLASSIFICATION_VIOLATION", "message/send"},
		{asked, call(7, "search", `{"q":"x"}`), "done", "", "search"},
		{asked, call(8, "history", `{"channel":"dave"}`), "From: Dave", "", "history"},
		{asked, `{"jsonrpc":"2.0","id":9,"method":"completion/complete","params":{"argument":{"name":"a","value":"b"}}}` + "\n", "done", "", "completion/complete"},
	} {
		tc.s.say(tc.line)
		text, isError := tc.s.answer(fmt.Sprint(i + 1))
		if isError != (tc.code != "") || !strings.Contains(text, tc.says) {
			t.Errorf("%s is answered %q", tc.like, text)
		}
		found := p.records(audit.Record{Event: "tool_executing"})
		if len(found) != i+1 {
			t.Fatalf("%s: %d records", tc.like, len(found))
		}
		if r := found[i]; r.Code != tc.code || r.Details["tool"] != tc.like || r.Details["map"] != "mcp-mcp-server" && r.Details["map"] == nil || r.AgentID != "agent-ann-1" {
			t.Errorf("on record is %+v", r)
		}
	}
	for _, line := range p.calls() {
		if strings.Contains(line, key) {
			t.Errorf("the server got %s", line)
		}
	}
	if got, err := os.ReadFile(p.log); err != nil || bytes.Contains(got, []byte("x:y")) || !bytes.Contains(got, []byte("completion/complete")) {
		t.Errorf("the server got %s, %v", got, err)
	}
	// A person decides if the policy says so, and about a text whose use no map describes,
	// as about a guessed message.
	for i, line := range []string{call(20, "deploy", `{}`), call(21, "write_file", `{"path":"x","content":"two words"}`), call(22, "post", `{"channel_id":"dave","body":"Hello"}`)} {
		before := len(p.calls())
		asked.say(line)
		p.decide("approve", p.waiting())
		if text, isError := asked.answer(fmt.Sprint(20 + i)); isError || text != "done" || len(p.calls()) != before+1 {
			t.Errorf("once approved, %s is answered %q", line, text)
		}
	}
	asked.say(call(30, "deploy", `{}`))
	p.decide("deny", p.waiting())
	if text, isError := asked.answer("30"); !isError || !strings.Contains(text, "a person has denied") {
		t.Errorf("once denied, it is answered %q", text)
	}
	asked.say(call(31, "deploy", `{}`))
	p.waiting()
	asked.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":31}}` + "\n")
	p.until("it is taken back", func() bool { return len(p.events(audit.Record{Event: "revoked"})) == 1 })
	guessed := p.records(audit.Record{ActionType: audit.ActionExchange})
	if r := guessed[len(guessed)-1]; r.Details["map"] != "guess" {
		t.Errorf("the guess is on record as %+v", r)
	}
}

// A message approved for one server is not sent by another, whatever its tools and its
// program: not by one with another name, another token, or another folder.
func TestProxySendsForItsOwnServer(t *testing.T) {
	p := newProxyTrial(t)
	script := filepath.Join(p.dir, "chat.sh") // as two projects have it: by a relative path
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$SERVER\" "+serverWord+" \"$LOGS/$TERM_PROGRAM.log\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := os.Link(script, filepath.Join(elsewhere, "chat.sh")); err != nil {
		t.Fatal(err)
	}
	// The terminal names the log: it alone does not distinguish servers.
	serve := func(terminal, name, folder, account string) *proxySession {
		t.Helper()
		command := []string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, folder, os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--map", filepath.Join(p.dir, "chat.yaml"), "--name", name, "--hold", "1ms", "--", "./chat.sh"}
		return p.open(command, asProgram+"=1", "SERVER="+os.Args[0], "LOGS="+p.dir, "SLACK_BOT_TOKEN="+account, "TERM_PROGRAM="+terminal)
	}
	one := serve("server", "one", p.dir, "xoxb-1")
	one.say(call(1, "send_message", `{"to":"dave","text":"I promise to do it by Friday"}`))
	if text, _ := one.answer("1"); !strings.Contains(text, "HELD") {
		t.Fatalf("answered %q", text)
	}
	one.in.Close()
	_ = one.cmd.Wait()
	others := map[string]*proxySession{"name": serve("name", "two", p.dir, "xoxb-1"), "token": serve("token", "one", p.dir, "xoxb-2"), "folder": serve("folder", "one", elsewhere, "xoxb-1")}
	for what, other := range others {
		other.say(call(1, "send_message", `{"to":"dave","text":"Hello"}`))
		if text, isError := other.answer("1"); isError {
			t.Fatalf("the server with another %s is not called: %s", what, text)
		}
	}
	p.decide("approve", p.waiting())
	own := serve("server", "one", p.dir, "xoxb-1")
	own.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	p.until("it is sent", func() bool { return len(p.calls()) == 1 })
	for what := range others {
		if got, err := os.ReadFile(filepath.Join(p.dir, what+".log")); err != nil || bytes.Contains(got, []byte("promise")) || !bytes.Contains(got, []byte("Hello")) {
			t.Errorf("the server with another %s got %s, %v", what, got, err)
		}
	}
	p.until("the record", func() bool { return len(p.events(audit.Record{Event: "delivered"})) == 1 })
	if got := p.records(audit.Record{Event: "redeemed"}); len(got) != 1 {
		t.Errorf("on record is %+v", got)
	}
}

// The channel of a server without a map is named after the server in the client's list.
func TestProxyNamesTheChannel(t *testing.T) {
	p := newProxyTrial(t)
	s := p.open(append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--name", "Team chat", "--"}, p.server()...), asProgram+"=1")
	s.say(call(1, "send_message", `{"to":"dave","text":"Hello"}`))
	text, isError := s.answer("1")
	list := p.records(audit.Record{ActionType: "agent_exchange"})
	if isError || len(list) != 1 || list[0].SessionKey != "mcp-team-chat:dave" || list[0].Address.Channel != "mcp-team-chat" {
		t.Errorf("answered %q, and on record is %+v", text, list)
	}
}

// A line end in an argument that becomes a mail header adds a recipient without a decision:
// the call is refused, and so is one with an argument that is not in the map.
func TestProxyMailHeaders(t *testing.T) {
	p := newProxyTrial(t)
	s := p.open(append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--map", "gmail", "--"}, p.server()...), asProgram+"=1")
	for i, more := range []string{
		`"subject":"hi\r\nBcc: eve@globex.example"`, `"subject":"hi","inReplyTo":"<1@x>\r\nBcc: eve@globex.example"`, `"subject":"hi","headers":"Bcc: eve@globex.example"`,
		`"subject":"hi\u0085Bcc: eve@globex.example"`, `"subject":"hi","attachments":["notes"]`,
	} {
		s.say(call(i+1, "send_email", `{"to":["dave@example.com"],"body":"Hello",`+more+`}`))
		if text, isError := s.answer(fmt.Sprint(i + 1)); !isError || !strings.Contains(text, "UNCLEAR") {
			t.Errorf("%s is answered %q", more, text)
		}
	}
	if got := p.calls(); len(got) != 0 {
		t.Errorf("the server got %s", got)
	}
	s.say(call(9, "send_email", `{"to":["dave@example.com"],"body":"one\ntwo","subject":"hi"}`))
	if text, isError := s.answer("9"); isError || len(p.calls()) != 1 {
		t.Errorf("answered %q", text)
	}
}

// The daemon can decide about the recipients of all maps, and their texts are those that people read.
func TestProxyMapsOfServers(t *testing.T) {
	p := newProxyTrial(t)
	for name, tc := range map[string]struct{ tool, arguments, text, want string }{
		"slack":    {"slack_post_message", `{"channel_id":"C0123ABCD","text":"Hello"}`, "text", `"channel_id":"C0123ABCD"`},
		"slack 2":  {"slack_reply_to_thread", `{"channel_id":"D0123ABCD","thread_ts":"1700000000.000100","text":"Hello"}`, "text", `"thread_ts":"1700000000.000100"`},
		"github":   {"add_issue_comment", `{"owner":"acme","repo":"widgets","issue_number":12,"body":"Hello"}`, "body", `"issue_number":12`},
		"github 2": {"create_issue", `{"owner":"acme","repo":"widgets","title":"T","body":"Hello"}`, "body", `"title":"T"`},
		"discord":  {"discord_send", `{"channelId":"123456789012345678","message":"Hello"}`, "message", `"channelId":"123456789012345678"`},
		"teams":    {"send_channel_message", `{"teamId":"9d1","channelId":"19:abc@thread.tacv2","message":"Hello"}`, "message", `"teamId":"9d1"`},
		"teams 2":  {"send_chat_message", `{"chatId":"19:abc@thread.v2","message":"Hello"}`, "message", `"chatId":"19:abc@thread.v2"`},
		"gmail":    {"send_email", `{"to":["Dave <dave@example.com>"],"subject":"S","body":"Hello","htmlBody":"<p>Hello</p>","mimeType":"text/plain"}`, "body", `"htmlBody":"<p>Hello</p>\n\nSent by`},
		"resend":   {"send-email", `{"to":"dave@example.com","subject":"S","text":"Hello"}`, "text", `"subject":"S"`},
	} {
		t.Run(name, func(t *testing.T) {
			given, _, _ := strings.Cut(name, " ")
			command := []string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--map", given, "--"}
			s := p.open(append(command, p.server()...), asProgram+"=1")
			before := len(p.calls())
			s.say(call(1, tc.tool, tc.arguments))
			if text, isError := s.answer("1"); isError {
				t.Fatalf("answered %q", text)
			}
			got := p.calls()[before]
			if !strings.Contains(got, fmt.Sprintf(`%q:"Hello\n\nSent by ann's assistant"`, tc.text)) || !strings.Contains(got, tc.want) {
				t.Errorf("the server got %s", got)
			}
		})
	}
}
