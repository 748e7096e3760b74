package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/bridge/a2aproxy"
)

// a2aPeer is an A2A server that records what it gets and answers by the words of a message.
type a2aPeer struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
	// says, if set, is the result of each answer by JSON-RPC.
	says string
	// more goes into the card. The card of one that is webOnly has no JSON-RPC.
	more    string
	webOnly bool
	// hook is the configuration of push notifications that was set last.
	hook string
	// late, if set, is closed to let a slow answer go on.
	late chan struct{}
	// sign, if set, makes the signature of a card.
	sign func(card string) string
}

func newA2APeer(t *testing.T) *a2aPeer {
	p := &a2aPeer{late: make(chan struct{})}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *a2aPeer) card() string {
	card := fmt.Sprintf(`{"name":"Peer","description":"Answers questions.","version":"1","capabilities":{"streaming":true,"pushNotifications":true},"skills":[],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
		"supportedInterfaces":[{"url":"%[1]s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"%[1]s/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},
		{"url":"http://127.0.0.1:9/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"127.0.0.1:9","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`, p.URL)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.webOnly {
		card = strings.Replace(card, "JSONRPC", "GRPC", 1)
	}
	card = strings.TrimSuffix(card, "}") + p.more + "}"
	if p.sign != nil {
		card = strings.TrimSuffix(card, "}") + `,"signatures":[` + p.sign(card) + "]}"
	}
	return card
}

func (p *a2aPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/agent-card.json" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, p.card())
		return
	}
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.got = append(p.got, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	p.mu.Unlock()
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	_ = json.Unmarshal(body, &m)
	rpc := r.URL.Path == "/rpc"
	say := func(result string) string {
		if !rpc {
			return result
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	w.Header().Set("Content-Type", "application/json")
	text := string(body)
	p.mu.Lock()
	says := p.says
	p.mu.Unlock()
	switch {
	case says != "" && rpc:
		fmt.Fprint(w, say(says))
	case strings.Contains(strings.ToLower(m.Method), "pushnotificationconfig"), strings.Contains(r.URL.Path, "/pushNotificationConfigs"):
		fmt.Fprint(w, say(p.configured(r.Method, m.Method, m.Params, body)))
	case strings.Contains(text, "never"):
		select {
		case <-p.late:
		case <-r.Context().Done():
		}
	case strings.Contains(text, "large"):
		fmt.Fprintf(w, `{"x":"`)
		for range 33 << 10 {
			fmt.Fprint(w, strings.Repeat("x", 1024))
		}
	case strings.Contains(text, "elsewhere"):
		http.Redirect(w, r, "http://127.0.0.1:9/", http.StatusTemporaryRedirect)
	case strings.Contains(text, "twice"):
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[]},"Message":{}}}`, m.ID)
	case strings.Contains(text, "other id"):
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":"other","result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}`)
	case strings.Contains(m.Method, "Streaming"), r.URL.Path == "/rest/message:stream":
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(text, "in pieces") {
			for _, piece := range []string{"The key is AKIAIOSF", "ODNN7EXAMPLF"} {
				fmt.Fprintf(w, "data: %s\n\n", say(fmt.Sprintf(`{"artifactUpdate":{"taskId":"t2","contextId":"c1","append":true,"artifact":{"artifactId":"a2","parts":[{"text":%q}]}}}`, piece)))
			}
			return
		}
		if strings.Contains(text, "promise to be") {
			fmt.Fprintf(w, "data: %s\n\n", say(`{"artifactUpdate":{"taskId":"t3","contextId":"c1","artifact":{"artifactId":"a3","parts":[{"text":"I promise to be done on Friday."}]}}}`))
			return
		}
		for _, e := range []string{
			`{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}`,
			`{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"part one"}]},"lastChunk":true}}`,
			`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`,
		} {
			fmt.Fprintf(w, "data: %s\n\n", say(e))
		}
	case m.Method == "message/send":
		fmt.Fprint(w, say(`{"kind":"message","messageId":"m2","role":"agent","parts":[{"kind":"text","text":"an old answer"}]}`))
	case m.Method == "GetTask", strings.HasPrefix(r.URL.Path, "/rest/tasks/"):
		fmt.Fprint(w, say(`{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a1","parts":[{"text":"part one"}]}]}`))
	case strings.Contains(text, "promise to be"):
		fmt.Fprint(w, say(`{"message":{"messageId":"m3","contextId":"c1","role":"ROLE_AGENT","parts":[{"text":"I promise to be done on Friday."}]}}`))
	default:
		fmt.Fprint(w, say(`{"message":{"messageId":"m1","contextId":"c1","role":"ROLE_AGENT","parts":[{"text":"the answer"}],"x":1.50}}`))
	}
}

// configured keeps the configuration of push notifications, and repeats it.
func (p *a2aPeer) configured(verb, method string, params, body []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case strings.HasPrefix(method, "Create"), strings.HasSuffix(method, "/set"):
		p.hook = string(params)
	case method == "" && verb == http.MethodPost:
		p.hook = string(body)
	case strings.HasPrefix(method, "List"):
		return `{"configs":[` + p.hook + `]}`
	case strings.HasPrefix(method, "Delete"):
		return "null"
	}
	return p.hook
}

// hookURL is the address to which the peer would send push notifications.
func (p *a2aPeer) hookURL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, after, _ := strings.Cut(p.hook, `"url":"`)
	url, _, _ := strings.Cut(after, `"`)
	return url
}

func (p *a2aPeer) calls() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.got, "\n")
}

// a2aTrial is a daemon with a proxy in front of such a peer.
type a2aTrial struct {
	*proxyTrial
	peer     *a2aPeer
	card     string
	rpc, web string
	// last is the proxy that was started last.
	last *proxySession
}

func newA2ATrial(t *testing.T, team string, args ...string) *a2aTrial {
	t.Helper()
	a := &a2aTrial{proxyTrial: newProxyTrialOf(t, team), peer: newA2APeer(t)}
	a.begin(append([]string{"--url", a.peer.URL}, args...)...)
	return a
}

// begin starts a proxy, and reads its card.
func (a *a2aTrial) begin(args ...string) {
	a.t.Helper()
	at := a.proxy("ann", a.token, append([]string{"--local", "127.0.0.1:0"}, args...)...)
	a.card = a.get(at)
	a.rpc, a.web = interfacesOf(a.t, a.card)
}

// proxy starts a proxy, and returns the address of its card.
func (a *a2aTrial) proxy(agent, token string, args ...string) string {
	a.t.Helper()
	s := a.open(append([]string{os.Args[0], "a2a-proxy", "--agent", agent, "--token-file", token, "--socket", a.socket}, args...), asProgram+"=1")
	a.last = s
	a.t.Cleanup(func() { _ = s.cmd.Process.Signal(os.Interrupt) })
	line, err := s.out.ReadString('\n')
	if err != nil {
		a.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (a *a2aTrial) get(at string) string {
	a.t.Helper()
	r, err := http.Get(at)
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		a.t.Fatalf("%s: %d %s %v", at, r.StatusCode, body, err)
	}
	return string(body)
}

func interfacesOf(t *testing.T, card string) (rpc, web string) {
	t.Helper()
	var c struct {
		SupportedInterfaces []struct{ URL, ProtocolBinding string }
	}
	if err := json.Unmarshal([]byte(card), &c); err != nil {
		t.Fatal(err)
	}
	for _, i := range c.SupportedInterfaces {
		switch i.ProtocolBinding {
		case "JSONRPC":
			rpc = i.URL
		case "HTTP+JSON":
			web = i.URL
		default:
			t.Errorf("the card has an interface of %s", i.ProtocolBinding)
		}
	}
	return rpc, web
}

func (a *a2aTrial) post(at, body string) string {
	a.t.Helper()
	r, err := http.Post(at, "application/json", strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// rpcSend is a message by JSON-RPC.
func rpcSend(method, id, parts string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":%s}}}`, method, id, parts)
}

func textPart(text string) string { return string(fmt.Appendf(nil, `[{"text":%q}]`, text)) }

// recorded are the lines of the log that hold all texts.
func (a *a2aTrial) recorded(parts ...string) (found []string) {
	a.t.Helper()
	var page api.AuditQueryResult
	a.operator("audit.query", map[string]any{"filter": audit.Filter{}, "limit": 1000}, &page)
	for _, line := range page.Records {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(string(line), part) }) {
			found = append(found, string(line))
		}
	}
	slices.Reverse(found)
	return found
}

// A message of the agent, by JSON-RPC: the peer gets the decided one, with its envelope, and
// the agent gets the decided answer.
func TestA2AProxySends(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	if strings.Contains(a.card, a.peer.URL) || strings.Contains(a.card, "signatures") || strings.Contains(a.card, `"pushNotifications":true`) || !strings.Contains(a.card, "Answers questions.") {
		t.Errorf("the card is %s", a.card)
	}
	got := a.post(a.rpc, rpcSend("SendMessage", "m-1", textPart("Is the build green?")))
	if got != `{"jsonrpc":"2.0","id":7,"result":{"message":{"messageId":"m1","contextId":"c1","role":"ROLE_AGENT","parts":[{"text":"the answer"}],"x":1.50}}}` {
		t.Errorf("the answer is %s", got)
	}
	sent := a.peer.calls()
	for _, part := range []string{"Is the build green?", `\n\nSent by`, `"extensions":["` + a2aproxy.Extension + `"]`, `"ocip":{"version"`, `"messageId":"m-1"`} {
		if strings.Count(sent, part) != 1 {
			t.Errorf("the peer got %s", sent)
		}
	}
	host := strings.TrimPrefix(a.peer.URL, "http://")
	if len(a.recorded(`"sessionKey":"a2a:unverified:`+host)) == 0 {
		t.Errorf("the log has no record of the session")
	}
	got = a.post(a.rpc, rpcSend("SendMessage", "m-2", textPart("The key is AKIAIOSFODNN7EXAMPLF")))
	if !strings.Contains(got, "ocipd: refused (CLASSIFICATION_VIOLATION)") || a.peer.calls() != sent {
		t.Errorf("a secret: %s", got)
	}
}

// Both bindings and both versions, streams and tasks: the client gets what the peer says, and
// the log has it once.
func TestA2AProxyBindings(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	for what, tc := range map[string]struct{ got, want string }{
		"HTTP+JSON":        {a.post(a.web+"/message:send", `{"message":{"messageId":"r-1","role":"ROLE_USER","parts":[{"text":"rest?"}]}}`), `{"message":{"messageId":"m1","contextId":"c1","role":"ROLE_AGENT","parts":[{"text":"the answer"}],"x":1.50}}`},
		"version 0.3":      {a.post(a.rpc, `{"jsonrpc":"2.0","id":"a-1","method":"message/send","params":{"message":{"kind":"message","messageId":"o-1","role":"user","parts":[{"kind":"text","text":"old?"}]}}}`), `{"jsonrpc":"2.0","id":"a-1","result":{"kind":"message","messageId":"m2","role":"agent","parts":[{"kind":"text","text":"an old answer"}]}}`},
		"GetTask":          {a.post(a.rpc, `{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"t1","historyLength":2}}`), `{"jsonrpc":"2.0","id":8,"result":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a1","parts":[{"text":"part one"}]}]}}`},
		"GetTask by route": {a.get(a.web + "/tasks/t1?historyLength=2"), `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a1","parts":[{"text":"part one"}]}]}`},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s", what, tc.got)
		}
	}
	events := []string{
		`{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}`,
		`{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"part one"}]},"lastChunk":true}}`,
		`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`,
	}
	if got, want := a.post(a.rpc, rpcSend("SendStreamingMessage", "s-1", textPart("stream?"))), `data: {"jsonrpc":"2.0","id":7,"result":`+strings.Join(events, "}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":")+"}\n\n"; got != want {
		t.Errorf("the stream is %s", got)
	}
	if got, want := a.post(a.web+"/message:stream", `{"message":{"messageId":"s-2","role":"ROLE_USER","parts":[{"text":"stream again?"}]}}`), "data: "+strings.Join(events, "\n\ndata: ")+"\n\n"; got != want {
		t.Errorf("the stream is %s", got)
	}
	if sent := a.peer.calls(); !strings.Contains(sent, "GET /rest/tasks/t1?historyLength=2 ") || !strings.Contains(sent, "POST /rest/message:send {") {
		t.Errorf("the peer got %s", sent)
	}
	// The artifact came four times, and was decided once.
	if got := a.recorded(`"event":"human_message"`); len(got) != 4 {
		t.Errorf("%d records of what came in: card, two answers, artifact:\n%s", len(got), strings.Join(a.recorded("a2a:"), "\n"))
	}
}

// What can be read in two ways, what the protocol does not have, and what is not decided is
// refused by name. Nothing of it reaches the peer.
func TestA2AProxyRefuses(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	message := `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]`
	for body, want := range map[string]string{
		`[` + rpcSend("SendMessage", "m", textPart("hi")) + `]`:                                                                                                             "no batches",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `},"Message":{}}}`:                                                                "differ in case",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","method":"GetTask","params":{}}`:                                                                                    "duplicate",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `,"Parts":[]}}}`:                                                                  "differ in case",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `,"more":[]}}}`:                                                                   `no member \"message.more\"`,
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}`:                                                                                                       "no message",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/destroy","params":{}}`:                                                                                                     "METHOD_NOT_FOUND",
		`{"jsonrpc":"2.0","id":1.5,"method":"GetTask","params":{"id":"t"}}`:                                                                                                 "the member id",
		`{"jsonrpc":"1.0","id":1,"method":"GetTask","params":{"id":"t"}}`:                                                                                                   "the member jsonrpc",
		`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}`:                                                                                                     "id has the wrong type",
		`{"jsonrpc":"2.0","method":"GetTask","params":{"id":"t"}}`:                                                                                                          "jsonrpc and id",
		`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}} {}`:                                                                                                "something stands behind it",
		`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"AKIAIOSFODNN7EXAMPLF"}}`:                                                                                "CLASSIFICATION_VIOLATION",
		`{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"t","url":"https://x.example/"}}`:                                           "CreateTaskPushNotificationConfig is refused: the proxy takes no push notifications without --webhook",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{}}`:                                                                                  "tasks/pushNotificationConfig/set is refused",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `},"configuration":{"taskPushNotificationConfig":{"url":"https://x.example/"}}}}`: "push notifications are not decided",
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `,"metadata":{"` + a2aproxy.Extension + `":{"ocip":{}}}}}}`:                       "only ocipd writes that",
		rpcSend("SendMessage", "m", `[{"text":"see"},{"data":{"key":"AKIAIOSFODNN7EXAMPLF"}}]`):                                                                             "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", `[{"text":"AKIAIOSF"},{"text":"ODNN7EXAMPLF"}]`):                                                                                        "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", `[{"text":"see A"},{"text":"K"},{"text":"IAIOSFODNN7EXAMPLF"}]`):                                                                        "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", `[{"data":["AKIAIOSF","ODNN7EXAMPLF"]}]`):                                                                                               "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", textPart(strings.Repeat("words ", 60000))):                                                                                              "longer than ipc.max_line_bytes, which is 262144",
		rpcSend("SendMessage", "m", `[{"raw":"VGhlIGtleSBpcyBBS0lBSU9TRk9ETk43RVhBTVBMRg==","filename":"a.txt"}]`):                                                          "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", `[{"kind":"file","file":{"bytes":"VGhlIGtleSBpcyBBS0lBSU9TRk9ETk43RVhBTVBMRg=="}}]`):                                                    "CLASSIFICATION_VIOLATION",
		rpcSend("SendMessage", "m", `[{"url":"file:///etc/passwd","filename":"a"}]`):                                                                                        "MEDIA_REFUSED",
		rpcSend("SendMessage", "AKIAIOSFODNN7EXAMPLF", textPart("hi")):                                                                                                      "CLASSIFICATION_VIOLATION",
	} {
		if got := a.post(a.rpc, body); !strings.Contains(got, "ocipd: refused") || !strings.Contains(got, want) {
			t.Errorf("%s:\n%s, want %s", body, got, want)
		}
	}
	for path, want := range map[string]string{
		"/v1/message:send": "HTTP+JSON of version 0.3 is not decided", "/message:shout": "no route POST", "/message:send?x=1": "the query",
		"/tasks/t/pushNotificationConfigs": "is refused: the proxy takes no push", "/tasks/a%2Fb:cancel": "no route POST",
	} {
		if got := a.post(a.web+path, `{"message":`+message+`}}`); !strings.Contains(got, "ocipd: refused") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := a.peer.calls(); got != "" {
		t.Errorf("the peer got %s", got)
	}
}

// A peer that answers slowly, largely, in two ways or not at all: the client gets a refusal
// that says so, and the proxy goes on.
func TestA2AProxyBadPeers(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam, "--wait", "2s")
	for text, want := range map[string]string{
		"large": "more than 33554432 bytes", "elsewhere": "redirects", "twice": "differ in case", "other id": "to another request", "never": "has not answered within 2s",
	} {
		if got := a.post(a.rpc, rpcSend("SendMessage", "m-"+text[:3], textPart(text+" please"))); !strings.Contains(got, "ocipd: refused (PEER_") || !strings.Contains(got, want) {
			t.Errorf("%s: %.300s", text, got)
		}
	}
	a.peer.Close()
	if got := a.post(a.rpc, rpcSend("SendMessage", "m-9", textPart("are you there?"))); !strings.Contains(got, "the peer cannot be reached") {
		t.Errorf("%s", got)
	}
	a.until("what was not sent is on record", func() bool { return len(a.recorded(`"event":"not_taken"`, "the peer cannot be reached")) == 1 })
}

// A message that a person has to approve keeps its call open; then it is answered HELD, is
// sent once when it is approved, and the same request gets the answer. A later proxy sends
// what was approved while there was none.
func TestA2AProxyHolds(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	promise := rpcSend("SendMessage", "p-1", textPart("I promise to deliver it on Friday."))
	answers := make(chan string, 1)
	go func() { answers <- a.post(a.rpc, promise) }()
	id := a.waiting()
	if got := a.peer.calls(); got != "" {
		t.Errorf("the peer got %s", got)
	}
	a.decide("approve", id)
	if got := <-answers; !strings.Contains(got, "the answer") {
		t.Errorf("approved: %s", got)
	}
	if got := a.peer.calls(); strings.Count(got, "I promise to deliver") != 1 || !strings.Contains(got, `"message_type":"agent-assisted"`) {
		t.Errorf("the peer got %s", got)
	}
	go func() {
		answers <- a.post(a.rpc, rpcSend("SendMessage", "p-2", textPart("I promise to deliver it on Monday.")))
	}()
	a.decide("deny", a.waiting())
	if got := <-answers; !strings.Contains(got, "a person has decided: denied") {
		t.Errorf("denied: %s", got)
	}
	a.begin("--url", a.peer.URL, "--hold", "1ms")
	promise = rpcSend("SendMessage", "p-3", textPart("I promise to deliver it on Tuesday."))
	if got := a.post(a.rpc, promise); !strings.Contains(got, "ocipd: refused (HELD)") {
		t.Errorf("held: %s", got)
	}
	a.decide("approve", a.waiting())
	a.until("it is sent", func() bool { return strings.Contains(a.peer.calls(), "on Tuesday") })
	a.until("the same request has the answer", func() bool { return strings.Contains(a.post(a.rpc, promise), "the answer") })
	if got := a.post(a.rpc, rpcSend("SendMessage", "p-4", textPart("I promise to deliver it on Sunday."))); !strings.Contains(got, "ocipd: refused (HELD)") {
		t.Errorf("held: %s", got)
	}
	if err := a.last.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a.decide("approve", a.waiting())
	a.until("another proxy sends it", func() bool { return strings.Contains(a.peer.calls(), "on Sunday") })
	for _, day := range []string{"Friday", "Tuesday", "Sunday"} {
		if got := a.peer.calls(); strings.Count(got, "on "+day) != 1 {
			t.Errorf("the peer got %s", got)
		}
	}
}
