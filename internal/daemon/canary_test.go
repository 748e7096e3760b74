package daemon_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/test/buildtest"
)

// The canary: apps of two tenants, and one without any grant, put a marked text into every
// string of every method, and listen to everything they can. Every byte that reaches
// another app is searched for marks. A mark that arrives must be in a message that was
// decided, is recorded as it was delivered, and is between two parties that the
// configuration permits; only the id of an app of the same tenant may be elsewhere.

// declaredTenants declares the rights of every app. Limits on the flow of allowed messages are off,
// because the canary sends thousands. Only an agent's own entry bounds its levels, not the policy too.
const declaredTenants = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: sales, tenant_id: globex-inc, max_classification_shared: internal}
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gus, instance_id: agent-gus-1, user_id: gus, org_unit: sales, tenant_id: globex-inc, max_classification_shared: internal}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public, internal], sessions: ["chat:eve"]}
  - {kind: person, user_id: alice, sessions: ["telegram:owner"]}
  - {kind: person, user_id: gina, sessions: ["chat:owner"]}
routes:
  - {session: "telegram:*", agent: alice}
  - {session: "chat:*", agent: gina}
access:
  apps:
    "@acme/telegram": {channels: [telegram], tenants: [acme-corp]}
    "@globex/chat": {channels: [chat], tenants: [globex-inc]}
    "@acme/watcher": {observes: [alice, bob]}
    "@acme/filter": {intercepts: [alice, bob]}
    "@globex/filter": {intercepts: [gina], observes: [gina]}
    "@nobody/stranger": {}
    "@acme/late": {}
    "@nobody/late": {}
channels: {telegram: {token: t}, chat: {token: c}, junk: {token: j}}
` + noBounds

// nothingDeclared is the configuration of one person, without declarations.
const nothingDeclared = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {kind: person, user_id: alice, sessions: ["telegram:owner"]}
routes: [{session: "telegram:*", agent: alice}]
channels: {telegram: {token: t}, junk: {token: j}}
` + noBounds

const noBounds = `
ocip: {max_rounds: 1000, chain: {enforcement: "off"}}
hooks: {wait: 20s, answer: 20s}
approvals: {max_open: 10000}
policy: {data: {max_classification_shared: confidential}}
`

// standing is an app's position in the configuration: its tenant, the agent it speaks for,
// those it may observe and intercept, and the channel it owns.
type standing struct {
	id, tenant, speaks   string
	owns                 []string
	observes, intercepts []string
}

// scout is one app on the raw socket, which keeps everything that it hears.
type scout struct {
	standing
	t testing.TB

	said    *said
	conn    net.Conn
	token   string
	ended   chan struct{}
	writing sync.Mutex

	mu      sync.Mutex
	lines   []string
	asked   map[string]string // request id to method
	answers map[string]chan string
	last    int
	// runs are the runs that the app got and has not ended.
	runs []string
	// rejoin, if set, is the app's answer to the next question of an interceptor or the
	// next delivery, instead of agreeing.
	rejoin []string
}

// line holds the relevant members of a line from the daemon.
type line struct {
	Type, RequestID, Event string
	Success                bool
	Result, Payload        jsontext.Value
	Error                  jsontext.Value
}

// dialScout connects an app.
func (h *harness) dialScout(like standing) *scout {
	h.t.Helper()
	s := &scout{standing: like, said: h.said}
	conn, err := net.Dial("unix", h.path("run/kernel.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	s.t, s.conn, s.ended = h.t, conn, make(chan struct{})
	s.asked, s.answers = make(map[string]string), make(map[string]chan string)
	go s.listen()
	return s
}

// listen keeps every line, passes answers to waiting calls, and answers hooks.
func (s *scout) listen() {
	defer close(s.ended)
	lines := bufio.NewReaderSize(s.conn, 64<<10)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)); err != nil {
			s.t.Errorf("%s is sent %q: %v", s.id, text, err)
			return
		}
		s.mu.Lock()
		s.lines = append(s.lines, text)
		answer := s.answers[l.RequestID]
		if answer != nil && l.Type == "response" {
			delete(s.answers, l.RequestID)
		}
		s.mu.Unlock()
		switch {
		case answer != nil && l.Type == "response":
			answer <- text
		case strings.HasPrefix(l.Event, "hook:"):
			s.react(&l)
		}
	}
}

// react answers a hook: a message stays unchanged, unless the test says otherwise.
func (s *scout) react(l *line) {
	var p struct {
		EventID  string `json:"eventId"`
		HookName string `json:"hookName"`
		Data     jsontext.Value
	}
	if err := json.Unmarshal(l.Payload, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
		s.t.Errorf("%s is told %s: %v", s.id, l.Payload, err)
		return
	}
	hook, _ := api.ParseHook(p.HookName)
	if hook == api.MessageReceived && s.speaks != "" {
		var run struct {
			RunID string `json:"runId"`
		}
		if json.Unmarshal(p.Data, &run) == nil && run.RunID != "" {
			s.mu.Lock()
			s.runs = append(s.runs, run.RunID)
			s.mu.Unlock()
		}
	}
	if !hook.Interceptable() && hook != api.MessageReceived {
		return
	}
	result := string(p.Data)
	s.mu.Lock()
	if len(s.rejoin) > 0 {
		result, s.rejoin = s.rejoin[0], s.rejoin[1:]
	}
	s.mu.Unlock()
	s.ask("hook.result", `{"eventId":"`+p.EventID+`","result":`+result+`}`)
}

// ask sends a request, and returns a channel for its answer.
func (s *scout) ask(method, params string) <-chan string {
	s.said.call(method, []byte(params))
	s.mu.Lock()
	s.last++
	id := s.id + " " + strconv.Itoa(s.last)
	answer := make(chan string, 1)
	s.asked[id], s.answers[id] = method, answer
	token := ""
	if s.token != "" {
		token = `,"token":"` + s.token + `"`
	}
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.conn.Write([]byte(`{"id":"` + id + `","type":"request","timestamp":1,"method":"` + method + `","params":` + params + token + "}\n")); err != nil {
		answer <- ""
	}
	return answer
}

// done waits for an answer, "" if the connection ended before.
func (s *scout) done(answer <-chan string) string {
	s.t.Helper()
	select {
	case text := <-answer:
		return text
	case <-s.ended:
		return ""
	case <-time.After(patience):
		s.t.Fatalf("%s gets no answer", s.id)
		return ""
	}
}

// get makes a call that must succeed.
func (s *scout) get(method, params string) jsontext.Value {
	s.t.Helper()
	text := s.done(s.ask(method, params))
	var l line
	if err := json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)); err != nil || !l.Success {
		s.t.Fatalf("%s by %s: %s %v", method, s.id, text, err)
	}
	return l.Result
}

// everyHook are all names of hooks.
const everyHook = `["message_received","message_sending","message_sent","agent_starting","agent_completed","tool_executing","tool_completed",
"session_start","session_end","before_agent_start","agent_end","before_tool_call","after_tool_call"]`

var oneLine = strings.NewReplacer("\n", "")

// wants is a manifest that asks for everything.
func wants(id string) string {
	return oneLine.Replace(`{"manifest":{"id":"` + id + `","name":"` + id + `","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":{
"channels":{"provides":["telegram","chat","junk"]},"tools":{"provides":["search"]},"providers":{"provides":["model"]},
"hooks":{"subscribes":` + everyHook + `,"intercepts":` + everyHook + `},"gateway":{"methods":["lookup"],"httpRoutes":["/x"]}}}}`)
}

// enlist registers an app that takes everything it can get.
func (s *scout) enlist() {
	s.t.Helper()
	var registered api.RegisterResult
	if err := json.Unmarshal(s.get("app.register", wants(s.id)), &registered); err != nil {
		s.t.Fatal(err)
	}
	s.token = registered.Token
	for _, channel := range s.owns {
		s.get("capability.register", `{"type":"channel","config":{"channelId":"`+channel+`"}}`)
	}
	s.get("hook.subscribe", oneLine.Replace(`{"events":`+everyHook+`}`))
	s.get("config.watch", `{}`)
	s.get("app.ready", `{}`)
}

// grabs are requests with which an app may try to learn others' messages.
var grabs = []struct{ method, params string }{
	{"capability.register", `{"type":"tool","config":{"toolId":"search"}}`},
	{"capability.register", `{"type":"gateway_method","config":{"methodName":"lookup"}}`},
	{"capability.register", `{"type":"channel","config":{"channelId":"telegram"}}`},
	{"capability.register", `{"type":"channel","config":{"channelId":"chat"}}`},
	{"capability.register", `{"type":"channel","config":{"channelId":"junk"}}`},
	{"capability.register", `{"type":"http_route","config":{"route":"/x"}}`},
	{"capability.register", `{"type":"provider","config":{"providerId":"model"}}`},
	{"capability.register", `{"type":"hook","config":{"event":"message_sending","intercept":true}}`},
	{"session.list", `{"limit":1000}`},
	{"exchange.list", `{"limit":1000}`},
	{"exchange.list", `{"agent":"agent-alice-1","limit":1000}`},
	{"exchange.list", `{"agent":"agent-gina-1","limit":1000}`},
	{"config.get", `{}`},
	{"kernel.describe", `{}`},
}

// mark is a text that one app has sent in one place.
type mark struct {
	by   *scout
	at   string
	text string
	// never, if set, is why the text may reach no other app, except interceptors that are
	// asked about it.
	never string
}

// canary is the harness, its apps, and their marks.
type canary struct {
	*harness
	// late are apps that came and went; they may have grants.
	apps, late []*scout
	mu         sync.Mutex
	marks      []*mark
	// lately is a cache of the marks in recently searched texts.
	lately map[string]map[*mark]bool
	// single is set if nothing is declared, so that all are of one tenant.
	single bool
	ids    int
}

// mark makes a unique text.
func (c *canary) mark(by *scout, at string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := fmt.Sprintf("mk%06dx", len(c.marks))
	c.marks = append(c.marks, &mark{by: by, at: at, text: text})
	return text
}

// never makes a text that may reach no other app.
func (c *canary) never(by *scout, at, why string) string {
	text := c.mark(by, at)
	c.marks[len(c.marks)-1].never = why
	return text
}

// A base is the parameters of a call as a tree. Its strings are those that the call needs
// to have an effect; each is marked separately. Free texts are marked in every call.
type (
	object = map[string]any
	list   = []any
	free   string
)

// anything is the content of free-form objects: texts at several depths, also in names.
func anything() object {
	return object{"note": free("a note"), "deep": list{object{"er": list{free("x"), object{"still": free("é y")}}}}, "≠name": free("name"), "n": 12}
}

// plus adds members to an object.
func plus(o object, more object) object {
	o = maps.Clone(o)
	maps.Copy(o, more)
	return o
}

func (c *canary) envelope(of string) object {
	tenant := map[string]string{"alice": "acme-corp", "bob": "acme-corp", "dave": "acme-corp", "eve": "globex-inc", "gina": "globex-inc"}[of]
	unit := map[string]string{"eve": "sales", "gina": "sales"}[of]
	if unit == "" {
		unit = "engineering"
	}
	return object{
		"version": "1.0", "message_type": "agent-generated", "classification": "internal", "conversation_id": "conv-" + of + c.unused("c"),
		"source_agent":   object{"instance_id": "agent-" + of + "-1", "user_id": of, "org_unit": unit, "tenant_id": tenant},
		"exchange_round": 1, "max_rounds": 1000, "capabilities": object{"can_commit": false, "can_share": list{"public", "internal"}},
		"reply_policy": "agent-ok", "requires_commitment": false, "expires_at": "2099-03-14T10:00:00.000Z",
	}
}

// unused makes an unused suffix of an id.
func (c *canary) unused(prefix string) string {
	c.ids++
	return "-" + prefix + strconv.Itoa(c.ids)
}

// wishMarked is metadata.exchange with all members that callers may set.
func wishMarked(id string) object {
	return object{
		"id": "exchange" + id, "conversationId": "conversation" + id, "new": true, "type": "information_query", "classification": "internal",
		"messageType": "agent-generated", "replyPolicy": "agent-ok", "summary": free("summary"),
		"data": list{
			object{"source": free("jira"), "fields": list{free("status")}, "classification": "internal", "description": free("states")},
			object{"source": free("hr"), "fields": list{free("pay")}, "classification": "restricted", "description": free("what is withheld")},
		},
	}
}

// brief marks a base with only its free texts marked: its other strings are those of a base
// that is tried in full.
const brief = "≡"

// bases are effective calls of a method, for its permitted callers.
func (c *canary) bases(method string, s *scout) (calls []object) {
	targets := []string{"telegram:dave", "telegram:owner", "telegram:12", "agent:alice:main", "agent:bob:main", "agent:gina:main", "chat:eve", "chat:7", "junk:1", "agent:ann:main"}
	switch method {
	case "app.heartbeat":
		return []object{{"status": anything()}}
	case "app.ready":
		return []object{{"metadata": anything()}}
	case "capability.register":
		for kind, name := range map[string]string{"channel": "channelId", "tool": "toolId", "hook": "event", "gateway_method": "methodName", "http_route": "route", "provider": "providerId"} {
			calls = append(calls, object{"type": kind, "config": plus(anything(), object{name: "search", "id": free("id"), "path": free("p"), "hookName": free("h"), "method": free("m"), "name": free("n")})})
		}
	case "app.acknowledge":
		return []object{{"id": "none"}}
	case "capability.unregister":
		return []object{{"capabilityId": "none"}}
	case "hook.subscribe", "hook.unsubscribe":
		return []object{{"events": list{"nonesuch", free("x")}}}
	case "hook.result":
		return []object{{"eventId": "none", "result": anything()}}
	case "config.get":
		return []object{{"path": "apps.x"}}
	case "config.watch":
		return []object{{"paths": list{"apps.x", "channels.telegram"}}}
	case "session.get":
		return []object{{"key": "telegram:dave"}}
	case "session.list":
		return []object{{"filter": object{"agentId": "alice", "channelId": "telegram", "accountId": "a"}}}
	case "message.dispatch":
		for i, target := range targets {
			calls = append(calls, object{brief: i%4 != 0, "sessionKey": target, "content": free("hello"), "metadata": plus(anything(), object{
				"accountId": "main", "exchange": wishMarked(c.unused("d")), "mediaUrls": list{"https://example.com/"}, "ocip": anything(), "ocipChain": anything(),
				"dispatchId": free("d"), "aiDisclosure": free("none"), "threadId": free("t"), "ocipUntrusted": free("u"),
			})}, object{"sessionKey": target, "content": free("again"), "metadata": object{"agentId": s.speaks, "exchange": object{"new": true}}})
		}
	case "agent.queue":
		for i, target := range targets {
			calls = append(calls, object{"sessionKey": target, "text": free("hi"), "metadata": plus(anything(), object{"accountId": "main", "chatId": free("c"), "senderName": free("s")})})
			for j, of := range []string{"dave", "eve", "bob"} {
				calls = append(calls, object{brief: (i+j+1)%3 != 0, "sessionKey": target, "text": free("hi"), "metadata": plus(anything(), object{
					"ocip": plus(c.envelope(of), object{"more": anything()}), "exchange": plus(wishMarked(c.unused("q")), object{"dataShared": list{object{"source": free("s"), "fields": list{free("f")}}}, "dataWithheld": list{object{"reason": free("r"), "description": free("d")}}}),
					"ocipChain": object{"id": "chain" + c.unused("n"), "hops": 1, "path": list{"agent-" + of + "-1", "agent-alice-1"}, "startedAt": time.Now().UTC().Format(time.RFC3339)},
				})})
			}
		}
	case "agent.complete":
		s.mu.Lock()
		run := "none"
		if len(s.runs) > 0 {
			run, s.runs = s.runs[len(s.runs)-1], s.runs[:len(s.runs)-1]
		}
		s.mu.Unlock()
		return []object{{"runId": run, "success": false, "error": free("it failed")}}
	case "hook.emit":
		context := object{"agentId": s.speaks, "sessionKey": "agent:" + s.speaks + ":main", "channelId": "telegram", "accountId": "main", "auditId": "a"}
		for _, hook := range []string{"agent_starting", "before_agent_start", "agent_completed", "tool_executing", "tool_completed", "session_start", "session_end", "message_sent"} {
			calls = append(calls, object{"hookName": hook, "data": plus(anything(), object{"toolName": free("tool"), "params": anything(), "result": anything(), "sessionKey": free("s")}), "context": context})
		}
		for i, target := range targets {
			for j, hook := range []string{"message_sending", "message_received"} {
				calls = append(calls, object{brief: (i+j)%4 != 0, "hookName": hook, "context": object{"agentId": s.speaks}, "data": plus(anything(), object{
					"sessionKey": target, "content": free("by itself"), "metadata": plus(anything(), object{"accountId": "main", "exchange": wishMarked(c.unused("e"))}),
				})})
			}
		}
	case "exchange.get":
		return []object{{"exchangeId": "none"}}
	case "exchange.list":
		return []object{{"agent": "agent-" + s.speaks + "-1", "counterparty": "agent-dave-1", "outcome": "in_progress", "before": "x"}}
	case "exchange.resolve":
		id := "none"
		var held api.ExchangeResult
		if s.speaks != "" && !s.byGrant() && json.Unmarshal(s.get("exchange.list", `{"outcome":"in_progress","limit":1}`), &held) == nil && len(held.Exchanges) > 0 {
			id = held.Exchanges[0].ExchangeID
		}
		return []object{{"exchangeId": id, "agent": "agent-" + s.speaks + "-1", "outcome": "resolved", "note": free("a note"), "state": free("st"), "signature": free("sig")}}
	case "approval.get":
		return []object{{"approvalId": "none"}}
	case "approval.redeem", "agent.redeem":
		return []object{{"approvalId": "none", "requestKey": free("k")}}
	case "approval.confirm", "agent.confirm":
		return []object{{"claim": free("c"), "outcome": "sent", "note": free("n")}, {"dispatchId": free("d"), "outcome": "not_sent", "note": free("n")}, {"requestKey": free("k"), "outcome": "not_sent"}}
	case "approval.redeemable", "agent.redeemable", "agent.watch":
		return []object{{"more": free("m")}}
	case "approval.withdraw", "agent.withdraw":
		return []object{{"approvalId": "none", "note": free("n")}}
	case "agent.emit":
		for i, target := range targets {
			calls = append(calls, object{brief: i%4 != 0, "hookName": "message_sending", "requestKey": free("k"), "context": object{"agentId": s.speaks, "sessionKey": target, "channelId": "telegram", "accountId": "main", "auditId": "a"}, "data": plus(anything(), object{
				"sessionKey": target, "content": free("by itself"), "metadata": plus(anything(), object{"accountId": "main", "exchange": wishMarked(c.unused("e"))}),
			})})
		}
	case "stream.cancel":
		return []object{{"requestId": "none"}}
	case "kernel.describe":
		return []object{anything()}
	case "app.register":
		// Done by separate apps; here the connection has one.
		return []object{{"manifest": manifestBase("@acme/other")}}
	case "app.shutdown":
		return []object{{"reason": free("enough"), "timeout": 1000}}
	default:
		if calls = c.agentBases(method, s); calls == nil {
			calls = taskBases(method)
		}
	}
	return calls
}

func manifestBase(id string) object {
	provides := func(names ...any) object { return object{"provides": append(list{free("mine")}, names...)} }
	return object{
		"id": id, "name": free("name"), "version": "1.0.0", "type": "app", "main": free("main.js"), "model": free("model"), "protocol": object{"version": "1.0"}, "more": anything(),
		"capabilities": object{
			"channels": provides("junk"), "tools": provides("search"), "providers": provides("model"),
			"hooks":   object{"subscribes": list{"message_sending", free("s")}, "intercepts": list{"message_sending", free("i")}},
			"gateway": object{"methods": list{"lookup", free("m")}, "httpRoutes": list{"/x", free("r")}},
		},
	}
}

// calls are made from a base: the base itself, and one for each of its strings in each way
// of marking it. All free texts are marked in each. Under the race detector the apps divide
// the strings among them.
func (c *canary) calls(s *scout, method string, base object) (params []string) {
	strict := 0
	short, _ := base[brief].(bool)
	base = maps.Clone(base)
	delete(base, brief)
	if !short {
		c.render(s, method, "", base, -1, nil, &strict)
	}
	mine := slices.Index(c.apps, s)
	for at := -1; at < strict; at++ {
		if buildtest.Raced && at >= 0 && (at+mine)%3 != 0 {
			continue
		}
		for _, spoil := range spoils[:1+min(at+1, 1)*(len(spoils)-1)] {
			params = append(params, string(c.render(s, method, "", base, at, spoil, new(int))))
		}
	}
	return params
}

// spoils are the ways to mark a meaningful string.
var spoils = []func(was, mark string) string{
	func(_, mark string) string { return mark },
	func(was, mark string) string { return was + mark },
}

// render writes a tree as JSON. It counts the strict strings, spoils the one at a position,
// and marks every free text unless nothing is to be spoiled.
func (c *canary) render(s *scout, method, path string, v any, at int, spoil func(was, mark string) string, strict *int) jsontext.Value {
	var walk func(path string, v any) any
	walk = func(path string, v any) any {
		switch v := v.(type) {
		case object:
			o := make(object, len(v))
			for _, name := range slices.Sorted(maps.Keys(v)) {
				as := name
				if spoil != nil && strings.HasPrefix(name, "≠") {
					as = c.mark(s, method+" "+path+" name")
				}
				o[as] = walk(strings.TrimPrefix(path+"."+name, "."), v[name])
			}
			return o
		case list:
			l := make(list, len(v))
			for i := range v {
				l[i] = walk(path+"[]", v[i])
			}
			return l
		case free:
			if spoil == nil {
				return string(v)
			}
			return string(v) + " " + c.mark(s, method+" "+path)
		case string:
			if *strict++; *strict-1 == at {
				return spoil(v, c.mark(s, method+" "+path))
			}
			return v
		default:
			return v
		}
	}
	encoded, err := json.Marshal(walk(path, v), json.Deterministic(true))
	if err != nil {
		s.t.Fatal(err)
	}
	return encoded
}

func newCanary(t *testing.T, yaml string, single bool, apps ...standing) *canary {
	t.Helper()
	h := plot(t, yaml)
	h.said = new(said)
	h.said.call("", []byte(`"a text that was said"`))
	h.start()
	t.Cleanup(h.stop)
	c := &canary{harness: h, single: single, lately: make(map[string]map[*mark]bool)}
	for _, like := range apps {
		s := c.dialScout(like)
		if s.byGrant() {
			c.attach(s)
		} else {
			s.enlist()
		}
		c.apps = append(c.apps, s)
	}
	return c
}

func TestCanaryOfTwoTenants(t *testing.T) {
	both := []string{"alice", "bob"}
	c := newCanary(t, declaredTenants, false,
		standing{id: "@acme/telegram", tenant: "acme-corp", owns: []string{"telegram"}},
		standing{id: "@globex/chat", tenant: "globex-inc", owns: []string{"chat"}},
		standing{id: "@acme/filter", tenant: "acme-corp", intercepts: both},
		standing{id: "@globex/filter", tenant: "globex-inc", intercepts: []string{"gina"}, observes: []string{"gina"}},
		standing{id: "@acme/watcher", tenant: "acme-corp", observes: both},
		standing{id: "@acme/alice", tenant: "acme-corp", speaks: "alice"},
		standing{id: "@acme/bob", tenant: "acme-corp", speaks: "bob"},
		standing{id: "@globex/gina", tenant: "globex-inc", speaks: "gina"},
		standing{id: "@ocipd/agent:ann", tenant: "acme-corp", speaks: "ann"},
		standing{id: "@ocipd/agent:gus", tenant: "globex-inc", speaks: "gus"},
		standing{id: "@nobody/stranger"},
	)
	c.sing()
	c.wouldFail()
	c.listens(
		"message.dispatch content", "message.dispatch metadata.note", "message.dispatch metadata.exchange.data[].source", "message.dispatch metadata name",
		"agent.queue text", "agent.queue metadata.deep[].er[]", "hook.emit data.params.note", "agent.complete error", "hook.result content", "hook.result metadata.note",
		"agent.send text",
	)
}

func TestCanaryOfOneTenant(t *testing.T) {
	c := newCanary(t, nothingDeclared, true,
		standing{id: "@acme/telegram", tenant: "acme-corp", owns: []string{"telegram"}},
		standing{id: "@acme/alice", tenant: "acme-corp", speaks: "alice"},
		standing{id: "@acme/bob", tenant: "acme-corp", speaks: "bob"},
		standing{id: "@nobody/stranger", tenant: "acme-corp"},
	)
	c.sing()
	c.listens("message.dispatch content", "agent.queue text", "app.register manifest.id")
}

// sing has every app say everything, and judges the results.
func (c *canary) sing() {
	methods := c.described()
	for _, s := range c.apps {
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			// No app registers here on a connection of an agent with a grant.
			if method != "app.shutdown" && (method != "app.register" || !s.byGrant()) {
				c.say(s, method)
			}
		}
		c.interject(s)
		c.comeAndGo(s)
	}
	c.operatorsOnly()
	c.decideHeld()
	c.seizeHeld()
	c.sayForbidden()
	for _, s := range c.apps {
		c.grab(s)
	}
	// The reason of a shutdown comes at the end.
	for _, s := range c.apps {
		if s.speaks == "" && s.owns == nil {
			c.say(s, "app.shutdown")
			break
		}
	}
	c.settle()
	c.everyMemberIsMarked(methods)
	c.judge()
	c.plain(c.said)
}

// say has an app make every call of a method.
func (c *canary) say(s *scout, method string) {
	var answers []<-chan string
	bases := c.bases(method, s)
	if len(bases) == 0 {
		c.t.Errorf("method %s is not tried: add parameters for it", method)
	}
	for _, base := range bases {
		for _, params := range c.calls(s, method, base) {
			answers = append(answers, s.ask(method, params))
			if len(answers) == 64 {
				c.await(s, answers)
				answers = answers[:0]
			}
			if method == "config.watch" || method == "agent.watch" {
				s.mu.Lock()
				id := s.id + " " + strconv.Itoa(s.last)
				s.mu.Unlock()
				s.done(answers[len(answers)-1])
				answers = answers[:len(answers)-1]
				s.done(s.ask("stream.cancel", `{"requestId":"`+id+`"}`))
			}
		}
	}
	c.await(s, answers)
}

func (c *canary) await(s *scout, answers []<-chan string) {
	for _, answer := range answers {
		s.done(answer)
	}
}

// interject has an app put marks into its answers: as an interceptor, and as the receiver
// of a delivery.
func (c *canary) interject(s *scout) {
	if s.intercepts == nil && s.owns == nil && s.speaks == "" {
		return
	}
	answersOf := []object{
		{"content": free("changed"), "metadata": plus(anything(), object{"exchange": object{"new": true, "summary": free("s"), "data": list{object{"source": free("crm"), "fields": list{free("f")}, "classification": "internal", "description": free("d")}}}})},
		{"block": true, "reason": free("no"), "more": anything()},
		{"content": free("x"), "target": "elsewhere"},
		{"content": free("x"), "metadata": object{"target": "elsewhere", "chatId": "elsewhere", "recipient": "elsewhere"}},
		{"content": free("x"), "metadata": object{"exchange": wishMarked(c.unused("i"))}},
		{"delivered": false, "error": free("not delivered"), "more": anything()},
		{"delivered": "perhaps", "error": "no string", "toolName": free("t"), "params": anything()},
	}
	agents := s.intercepts
	if agents == nil {
		agents = []string{"alice", "gina"}
	}
	for _, agent := range agents {
		sender := c.speaker(agent)
		if sender == nil {
			continue
		}
		session := map[string]string{"alice": "telegram:dave", "bob": "telegram:34", "gina": "chat:eve"}[agent]
		if s.speaks != "" {
			session = map[string]string{"alice": "agent:alice:main", "bob": "agent:bob:main"}[s.speaks]
			if s.speaks == "alice" {
				sender = c.speaker("bob")
			}
			if session == "" {
				continue
			}
		}
		for _, base := range answersOf {
			for _, text := range c.calls(s, "hook.result", object{"eventId": "none", "result": base}) {
				var p api.HookResultParams
				if err := json.Unmarshal([]byte(text), &p); err != nil {
					c.t.Fatal(err)
				}
				for _, call := range []struct{ method, params string }{
					{"message.dispatch", `{"sessionKey":"` + session + `","content":"plain","metadata":{"exchange":{"new":true}}}`},
					{"hook.emit", `{"hookName":"tool_executing","data":{"toolName":"shell"},"context":{"agentId":"` + sender.speaks + `"}}`},
				} {
					s.mu.Lock()
					s.rejoin = []string{string(p.Result)}
					s.mu.Unlock()
					sender.done(sender.ask(call.method, call.params))
				}
			}
		}
	}
	s.mu.Lock()
	s.rejoin = nil
	s.mu.Unlock()
}

func (c *canary) speaker(agent string) *scout {
	for _, s := range c.apps {
		if s.speaks == agent {
			return s
		}
	}
	return nil
}

// comeAndGo registers fully marked apps that take everything they can, and end.
func (c *canary) comeAndGo(s *scout) {
	if s.id != "@acme/alice" {
		return // the next one is another app anyway
	}
	for _, like := range []standing{{id: "@acme/late"}, {id: "@nobody/late"}} {
		if c.single {
			like.tenant = "acme-corp"
		}
		placeholder := &scout{standing: like, t: c.t}
		for i, params := range c.calls(placeholder, "app.register", object{"manifest": manifestBase(like.id)}) {
			late := c.dialScout(like)
			c.late = append(c.late, late)
			var l line
			var registered api.RegisterResult
			if json.Unmarshal([]byte(late.done(late.ask("app.register", params))), &l, json.MatchCaseInsensitiveNames(true)) != nil || !l.Success {
				late.conn.Close()
				continue
			}
			if err := json.Unmarshal(l.Result, &registered); err != nil {
				c.t.Fatal(err)
			}
			late.token = registered.Token
			c.grab(late)
			late.get("hook.subscribe", `{"events":["message_sending"]}`)
			late.get("app.ready", `{}`)
			for _, other := range c.apps {
				other.done(other.ask("capability.register", `{"type":"tool","config":{"toolId":"search"}}`))
				other.done(other.ask("capability.register", `{"type":"gateway_method","config":{"methodName":"lookup"}}`))
				other.done(other.ask("capability.register", `{"type":"channel","config":{"channelId":"junk"}}`))
			}
			if i%2 == 0 {
				late.done(late.ask("app.shutdown", `{"reason":"`+c.mark(placeholder, "app.shutdown reason")+`"}`))
			}
			late.conn.Close()
			<-late.ended
		}
	}
}

// operatorsOnly has apps call operators' methods.
func (c *canary) operatorsOnly() {
	for _, s := range c.apps[:2] {
		for _, method := range append(daemon.MethodNames(), "no.such.method", c.mark(s, "method")) {
			if c.bases(method, s) == nil {
				s.done(s.ask(method, `{"approvalId":"`+c.mark(s, method)+`","note":"`+c.mark(s, method)+`","agent":"`+c.mark(s, method)+`"}`))
			}
		}
	}
}

// decideHeld has a person approve held messages with marked promises.
func (c *canary) decideHeld() {
	for _, s := range c.apps {
		for _, target := range []string{"telegram:dave", "telegram:99", "agent:bob:main", "agent:alice:main", "agent:gina:main", "chat:eve"} {
			for _, params := range c.calls(s, "message.dispatch", object{"sessionKey": target, "content": free("I promise to approve it."), "metadata": plus(anything(), object{"exchange": wishMarked(c.unused("h"))})})[:1] {
				s.done(s.ask("message.dispatch", params))
			}
		}
	}
	var page struct {
		Approvals []api.ApprovalSummary `json:"approvals"`
	}
	c.operator("approval.list", map[string]any{"limit": 1000}, &page)
	if len(page.Approvals) == 0 {
		c.t.Error("nothing was held")
	}
	for i := range page.Approvals {
		if a := &page.Approvals[i]; a.Approvable && (i%10 == 0 || strings.Contains(a.Summary, "promise")) {
			c.decides(api.DecideApprove, a.ApprovalID)
		}
	}
}

// grab has an app ask for everything that others may have left.
func (c *canary) grab(s *scout) {
	for _, grab := range grabs {
		answer := s.done(s.ask(grab.method, grab.params))
		var channel struct {
			Config struct {
				ChannelID string `json:"channelId"`
			}
		}
		if json.Unmarshal([]byte(grab.params), &channel, json.MatchCaseInsensitiveNames(true)) == nil && channel.Config.ChannelID != "" && strings.Contains(answer, `"granted":true`) {
			if !c.single && !slices.Contains(s.owns, channel.Config.ChannelID) {
				c.t.Errorf("noticed: %s is granted channel %s", s.id, channel.Config.ChannelID)
			}
			s.owns = append(s.owns, channel.Config.ChannelID)
		}
	}
	var page api.SessionListResult
	if err := json.Unmarshal(c.apps[0].get("session.list", `{"limit":1000}`), &page); err != nil {
		c.t.Fatal(err)
	}
	for i := range page.Sessions[:min(len(page.Sessions), 50)] {
		s.done(s.ask("session.get", `{"key":`+string(api.String(page.Sessions[i].Key))+`}`))
	}
}

// settle waits until nothing is on its way: all queues are empty, and each app's connection
// has answered a later request.
func (c *canary) settle() {
	deadline, was := time.Now().Add(patience), ""
	for {
		c.readAll()
		var waiting api.QueueListResult
		c.operator("queue.list", map[string]any{"limit": 1000}, &waiting)
		left := slices.DeleteFunc(waiting.Messages, func(m api.QueuedMessage) bool {
			return !slices.ContainsFunc(c.apps, func(s *scout) bool {
				select {
				case <-s.ended:
					return false
				default:
				}
				return slices.Contains(s.owns, strings.TrimPrefix(m.Queue, "channel:")) || s.speaks != "" && m.Queue == "agent:"+s.speaks
			})
		})
		if len(left) == 0 {
			break
		}
		if is := fmt.Sprint(len(left), left[0].DispatchID); is != was {
			deadline, was = time.Now().Add(patience), is
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%d messages are not delivered, the first is %+v", len(left), left[0])
		}
		for _, s := range c.apps {
			s.done(s.ask("app.heartbeat", `{}`))
		}
	}
	for range 2 {
		for _, s := range c.apps {
			s.done(s.ask("app.heartbeat", `{}`))
		}
	}
}

// described are the parameters' schemas of the methods that apps may call.
func (c *canary) described() map[string]*jsonschema.Schema {
	var d struct {
		Methods []struct {
			Name, Access string
			Params       *jsonschema.Schema
		}
	}
	if err := json.Unmarshal(c.apps[0].get("kernel.describe", `{}`), &d, json.MatchCaseInsensitiveNames(true)); err != nil {
		c.t.Fatal(err)
	}
	methods := make(map[string]*jsonschema.Schema)
	for _, m := range d.Methods {
		if m.Access != "operator" {
			methods[m.Name] = m.Params
		}
	}
	return methods
}

// everyMemberIsMarked reports members of methods that no call contained.
func (c *canary) everyMemberIsMarked(methods map[string]*jsonschema.Schema) {
	marked := make(map[string]bool)
	for _, m := range c.marks {
		marked[m.at] = true
	}
	for method, params := range methods {
		for _, path := range textMembers(params, "") {
			at := method + " " + path
			if !slices.ContainsFunc(slices.Collect(maps.Keys(marked)), func(m string) bool { return m == at || strings.HasPrefix(m, at+".") || strings.HasPrefix(m, at+"[") }) {
				c.t.Errorf("member %s of %s was never marked", path, method)
			}
		}
	}
}

// textMembers lists the members of a schema that can hold a text.
func textMembers(s *jsonschema.Schema, path string) (paths []string) {
	if len(s.Properties) > 0 {
		for name, member := range s.Properties {
			paths = append(paths, textMembers(member, strings.TrimPrefix(path+"."+name, "."))...)
		}
		return paths
	}
	kinds := append(slices.Clone(s.Types), s.Type)
	if slices.Contains(kinds, "array") && s.Items != nil {
		return textMembers(s.Items, path+"[]")
	}
	plain := func(kind string) bool { return slices.Contains(kinds, kind) }
	if path == "" || plain("integer") || plain("number") || plain("boolean") {
		return nil
	}
	return []string{path}
}

// evidence is the content of the log, by the identifiers in lines to apps.
type evidence struct {
	digests                        *keyring.Digests
	id                             map[string]*audit.Entry
	dispatch, run, session, traded map[string][]*audit.Entry
	digested                       map[string][]*audit.Entry
}

// digests are the tenants' digest keys.
func (h *harness) digests() *keyring.Digests {
	h.t.Helper()
	digests, err := keyring.OpenDigests(h.path("state/keys"), rand.Reader, time.Now)
	if err != nil {
		h.t.Fatal(err)
	}
	return digests
}

func (c *canary) evidence() *evidence {
	e := &evidence{
		digests: c.digests(), id: make(map[string]*audit.Entry), dispatch: make(map[string][]*audit.Entry), run: make(map[string][]*audit.Entry),
		session: make(map[string][]*audit.Entry), traded: make(map[string][]*audit.Entry), digested: make(map[string][]*audit.Entry),
	}
	for before := uint64(0); ; {
		var page api.AuditQueryResult
		c.operator("audit.query", map[string]any{"limit": 1000, "before": before}, &page)
		for _, text := range page.Records {
			r, err := audit.Parse(text)
			if err != nil {
				c.t.Fatal(err)
			}
			e.id[r.ID] = &r
			for into, key := range map[*map[string][]*audit.Entry]string{&e.dispatch: r.DispatchID, &e.run: r.RunID, &e.session: r.SessionKey, &e.traded: r.ExchangeID, &e.digested: r.ContentDigest} {
				if key != "" {
					(*into)[key] = append((*into)[key], &r)
				}
			}
		}
		if before = page.NextBefore; before == 0 {
			return e
		}
	}
}

// judge checks every mark that reached another app than its own.
func (c *canary) judge() {
	e := c.evidence()
	faults := make(map[string]int)
	for _, at := range slices.Concat(c.apps, c.late) {
		for _, text := range at.heard() {
			event := eventIn(text)
			if event != "" && !slices.Contains(api.Events(), event) {
				c.t.Errorf("event %s is not among those of the protocol: %s", event, text)
			}
			if about := c.appIn(event, text); about != nil && about.id != at.id && about.tenant != at.tenant {
				c.t.Errorf("noticed: %s is told of app %s, with which it has nothing to do: %s", at.id, about.id, text)
			}
			forbids := e.forbids(c, at, text)
			for m := range c.found(text) {
				if m.by.id == at.id {
					continue
				}
				why := forbids(m)
				if why == "" {
					continue
				}
				fault := fmt.Sprintf("%s of %s reached %s: %s", m.at, m.by.id, at.id, why)
				if faults[fault]++; faults[fault] == 1 {
					where := max(strings.Index(text, m.text), 0)
					c.t.Errorf("noticed: %s\n%s … %s", fault, text[:min(len(text), 300)], text[max(where-300, 0):min(where+300, len(text))])
				}
			}
		}
	}

	c.t.Logf("%d marks", len(c.marks))
}

// appIn returns the app that an event is about, or nil.
func (c *canary) appIn(event, text string) *scout {
	var told struct {
		Payload struct {
			AppID string `json:"appId"`
		} `json:"payload"`
	}
	if !strings.HasPrefix(event, "app:") || json.Unmarshal([]byte(text), &told) != nil {
		return nil
	}
	for _, s := range slices.Concat(c.apps, c.late) {
		if s.id == told.Payload.AppID {
			return s
		}
	}
	return nil
}

// eventIn returns the name of a line's event, for a hook the canonical one.
func eventIn(text string) string {
	var l line
	if json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)) != nil {
		return ""
	}
	if name, isHook := strings.CutPrefix(l.Event, "hook:"); isHook {
		hook, _ := api.ParseHook(name)
		return "hook:" + string(hook)
	}
	return l.Event
}

// found returns the marks in a text, in any encoding.
func (c *canary) found(text string) map[*mark]bool {
	if marks, known := c.lately[text]; known {
		return marks
	}
	if len(c.lately) > 10_000 {
		clear(c.lately)
	}
	marks := make(map[*mark]bool)
	c.lately[text] = marks
	for {
		for _, head := range []string{"mk", "MK", "Mk", "mK"} {
			for _, rest, more := strings.Cut(text, head); more; _, rest, more = strings.Cut(rest, head) {
				if len(rest) < 7 || rest[6] != 'x' && rest[6] != 'X' {
					continue
				}
				if i, err := strconv.ParseUint(rest[:6], 10, 32); err == nil && i < uint64(len(c.marks)) {
					marks[c.marks[i]] = true
				}
			}
		}
		if !strings.Contains(text, `\u`) {
			return marks
		}
		plain := escapes.ReplaceAllStringFunc(text, func(escape string) string {
			n, err := strconv.ParseUint(escape[len(escape)-4:], 16, 16)
			if err != nil {
				return escape
			}
			return string(rune(n))
		})
		if plain == text {
			return marks
		}
		text = plain
	}
}

// heard returns everything that an app was sent.
func (s *scout) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

var escapes = regexp.MustCompile(`\\+u[0-9a-fA-F]{4}`)

// judgement says why a mark should not have reached an app, or returns "".
type judgement func(m *mark) string

func always(why string) judgement { return func(*mark) string { return why } }

// forbids judges the marks in a line.
func (e *evidence) forbids(c *canary, at *scout, text string) judgement {
	inside := sync.OnceValue(func() judgement { return e.inside(c, at, text) })
	return func(m *mark) string {
		if m.by.tenant == "" || at.tenant == "" || m.by.tenant != at.tenant {
			return "they have nothing to do with each other"
		}
		if why := inside()(m); why != "" || m.never == "" || isQuestion(text) {
			return why
		}
		return m.never
	}
}

// isQuestion reports whether a line asks an interceptor about an undecided message.
func isQuestion(text string) bool {
	var l line
	var p struct {
		HookName string
		Context  api.HookContext
	}
	if json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)) != nil || json.Unmarshal(l.Payload, &p, json.MatchCaseInsensitiveNames(true)) != nil {
		return false
	}
	hook, _ := api.ParseHook(p.HookName)
	return strings.HasPrefix(l.Event, "hook:") && p.Context.AuditID == "" && hook.Interceptable()
}

// inside judges the marks of apps of the same tenant.
func (e *evidence) inside(c *canary, at *scout, text string) judgement {
	var l line
	if err := json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)); err != nil {
		return always(err.Error())
	}
	switch {
	case strings.HasPrefix(l.Event, "hook:"):
		return e.hook(c, at, &l)
	case strings.HasPrefix(l.Event, "app:"):
		return func(m *mark) string {
			if strings.HasSuffix(m.at, "manifest.id") && len(c.found(string(without(l.Payload, "appId")))) == 0 {
				return ""
			}
			return "an event about an app says more than its id"
		}
	case l.Event == api.ApprovalEvent:
		return always("it is told of another's message")
	case l.Type == "response" && l.Success:
		return e.answered(c, at, &l)
	case l.Type == "response":
		return always("it is in an error")
	}
	return always("it is in " + l.Type + " " + l.Event)
}

// without returns an object without one of its members.
func without(object jsontext.Value, member string) jsontext.Value {
	var o api.Object
	if json.Unmarshal(object, &o) != nil {
		return object
	}
	delete(o, member)
	return o.Append(nil)
}

// withoutLine returns a message without the causal chain in its metadata.
func withoutLine(message jsontext.Value) jsontext.Value {
	var o api.Object
	if json.Unmarshal(message, &o) != nil || o["metadata"] == nil {
		return message
	}
	o["metadata"] = without(o["metadata"], "ocipChain")
	return o.Append(nil)
}

// hook judges an event about an agent's action.
func (e *evidence) hook(c *canary, at *scout, l *line) judgement {
	var p struct {
		HookName string
		Data     jsontext.Value
		Context  api.HookContext
	}
	var d struct {
		RunID, DispatchID, SessionKey, Target, Content string
		Metadata                                       jsontext.Value
	}
	if json.Unmarshal(l.Payload, &p, json.MatchCaseInsensitiveNames(true)) != nil {
		return always("the event cannot be read")
	}
	_ = json.Unmarshal(p.Data, &d, json.MatchCaseInsensitiveNames(true))
	hook, _ := api.ParseHook(p.HookName)
	var r []*audit.Entry
	switch entry := e.id[p.Context.AuditID]; {
	case entry != nil:
		r = []*audit.Entry{entry}
		if entry.DispatchID != "" {
			r = append(r, e.dispatch[entry.DispatchID]...)
		}
		if entry.RunID != "" { // the beginner of the run named its session
			r = append(r, e.run[entry.RunID]...)
		}
	case d.DispatchID != "" && hook != api.ToolExecuting:
		r = e.dispatch[d.DispatchID]
	case d.RunID != "":
		r = e.run[d.RunID]
	case hook == api.SessionStart:
		r = e.session[d.SessionKey]
	case hook == api.ToolExecuting:
		// Asked before the decision.
		for _, tenant := range e.digests.Tenants() {
			if digest, err := e.digests.Digest(tenant, string(p.Data)); err == nil {
				r = append(r, e.digested[digest]...)
			}
		}
	}
	if len(r) == 0 {
		return always("nothing is on record of it")
	}
	// The causal chain passes from message to message: its names, including those that the
	// first sender chose, come from earlier ones.
	message, around := c.found(string(withoutLine(p.Data))), c.found(string(without(l.Payload, "data")))
	question := p.Context.AuditID == "" && hook.Interceptable()
	asRecorded := make([]func() bool, len(r))
	for i, r := range r {
		asRecorded[i] = sync.OnceValue(func() bool {
			return r.DeliveredDigest == "" || question || d.Content == "" || len(d.Metadata) == 0 ||
				slices.ContainsFunc([]string{d.Target, d.SessionKey, p.Context.SessionKey}, func(target string) bool {
					form, err := audit.DeliveredForm(nil, target, d.Content, d.Metadata)
					if err != nil {
						return false
					}
					digest, err := e.digests.DigestForm(r.TenantID, audit.LabelDelivered, func(b []byte) ([]byte, error) { return append(b, form...), nil })
					return err == nil && digest == r.DeliveredDigest
				})
		})
	}
	return func(m *mark) string {
		inLine := !message[m] && !around[m]
		why := "nobody decided that"
		for i, r := range r {
			switch {
			case r.PolicyResult != string(ocip.Allow) && !question && r.Event != "run_completed":
			case !inLine && !c.party(r, m.by, true):
				why = "the record names another app"
			case !c.party(r, at, false):
				why = "it may not hear of agent " + r.AgentID
			case asRecorded[i]():
				return ""
			default:
				why = "what was handed over is not what is on record"
			}
		}
		return why
	}
}

// party reports whether a record permits an app to say something in it, or to hear of it.
func (c *canary) party(r *audit.Entry, s *scout, says bool) bool {
	agent := strings.TrimSuffix(strings.TrimPrefix(r.AgentID, "agent-"), "-1")
	other := strings.TrimSuffix(strings.TrimPrefix(r.Counterparty.InstanceID, "agent-"), "-1")
	if says {
		changed, _ := r.Details["changedBy"].([]any)
		return r.AppID == s.id || s.speaks != "" && (s.speaks == agent || s.speaks == other) || slices.Contains(changed, any(s.id)) ||
			slices.Contains(s.intercepts, agent) || slices.Contains(s.owns, channelIn(r.SessionKey))
	}
	return s.speaks == agent || slices.Contains(s.observes, agent) || slices.Contains(s.intercepts, agent) ||
		slices.Contains(s.owns, channelIn(r.SessionKey))
}

func channelIn(session string) string {
	channel, _, _ := strings.Cut(session, ":")
	return channel
}

// answered judges an answer to an app's own request.
func (e *evidence) answered(c *canary, at *scout, l *line) judgement {
	at.mu.Lock()
	method := at.asked[l.RequestID]
	at.mu.Unlock()
	var result struct {
		Session   *api.SessionEntry
		Sessions  []api.SessionEntry
		Exchanges []jsontext.Value
		Data      jsontext.Value
		Reason    string
	}
	_ = json.Unmarshal(l.Result, &result, json.MatchCaseInsensitiveNames(true))
	decided := func(records []*audit.Entry) bool {
		return slices.ContainsFunc(records, func(r *audit.Entry) bool { return r.PolicyResult == string(ocip.Allow) })
	}
	// undecided are the marks in content without a record.
	undecided := make(map[*mark]bool)
	look := func(text string, recorded bool) {
		if !recorded {
			maps.Copy(undecided, c.found(text))
		}
	}
	where := "session"
	switch method {
	case "agent.read":
		return func(m *mark) string { return e.readBy(c, m, at, l.Result) }
	case "agent.contacts":
		var list api.AgentContacts
		_ = json.Unmarshal(l.Result, &list)
		for _, one := range list.Contacts {
			look(one.Session, decided(e.session[one.Session]))
		}
	case "session.get", "session.list":
		if result.Session != nil {
			result.Sessions = append(result.Sessions, *result.Session)
		}
		for _, s := range result.Sessions {
			entry, err := json.Marshal(s)
			if err != nil {
				return always(err.Error())
			}
			look(string(entry), decided(e.session[s.Key]))
		}
	case "exchange.get", "exchange.list", "agent.exchange":
		where = "exchange"
		for _, x := range result.Exchanges {
			var exchange api.Exchange
			if err := json.Unmarshal(x, &exchange); err != nil {
				return always(err.Error())
			}
			look(string(x), slices.ContainsFunc(e.traded[exchange.ExchangeID], func(r *audit.Entry) bool {
				return r.PolicyResult == string(ocip.Allow) && c.party(r, at, false)
			}))
		}
	case "hook.emit", "agent.emit":
		message, records := c.found(string(withoutLine(result.Data))), at.records(e, l)
		return func(m *mark) string {
			if slices.ContainsFunc(records, func(r *audit.Entry) bool { return (!message[m] || c.party(r, m.by, true)) && c.party(r, at, false) }) && result.Reason == "" {
				return ""
			}
			return "the answer is not on record"
		}
	default:
		return func(m *mark) string {
			if method == "capability.register" && strings.HasSuffix(m.at, "manifest.id") {
				return ""
			}
			return "it is in the answer to " + method
		}
	}
	return func(m *mark) string {
		if undecided[m] {
			return "nothing is on record in the " + where
		}
		return ""
	}
}

// records are the records of actions permitted to a runtime.
func (s *scout) records(e *evidence, l *line) (r []*audit.Entry) {
	var result struct {
		OCIP struct {
			AuditID string `json:"auditId"`
		} `json:"ocip"`
		Data jsontext.Value `json:"data"`
	}
	if json.Unmarshal(l.Result, &result) != nil {
		return nil
	}
	if entry := e.id[result.OCIP.AuditID]; entry != nil {
		r = append(r, entry)
	}
	for _, tenant := range e.digests.Tenants() {
		if digest, err := e.digests.Digest(tenant, string(result.Data)); err == nil {
			r = append(r, e.digested[digest]...)
		}
	}
	return r
}

// listens checks that the search finds marks at all: those that may arrive.
func (c *canary) listens(places ...string) {
	arrived := make(map[string]bool)
	for _, at := range c.apps {
		for _, text := range at.heard() {
			for m := range c.found(text) {
				if m.by.id != at.id {
					arrived[strings.Replace(m.at, "result.", "", 1)] = true
				}
			}
		}
	}
	for _, place := range places {
		if !arrived[place] {
			c.t.Errorf("no mark of %s arrived anywhere: the test sees nothing, or nothing is let through", place)
		}
	}
}

// wouldFail checks that leaks are found: an observer's event in others' hands, and with an
// unrecorded word.
func (c *canary) wouldFail() {
	e := c.evidence()
	watcher := c.apps[slices.IndexFunc(c.apps, func(s *scout) bool { return s.id == "@acme/watcher" })]
	for _, text := range watcher.heard() {
		var m *mark
		for m = range c.found(text) {
			break
		}
		if m == nil || m.by != c.speaker("alice") || m.at != "message.dispatch content" || !strings.Contains(text, `"auditId"`) {
			continue
		}
		for what, leak := range map[string]struct {
			at   *scout
			text string
			want bool
		}{
			"as it is":            {watcher, text, false},
			"to another tenant":   {c.speaker("gina"), text, true},
			"to whom it is not":   {&scout{standing: standing{id: "@acme/other", tenant: "acme-corp"}}, text, true},
			"changed":             {watcher, strings.Replace(text, "Sent by alice", "Sent by nobody", 1), true},
			"without a record":    {watcher, strings.ReplaceAll(strings.ReplaceAll(text, `"auditId":`, `"id":`), "01a", "02a"), true},
			"under another event": {watcher, strings.Replace(text, `"event":"hook:message_`, `"event":"app:message_`, 1), true},
		} {
			if why := e.forbids(c, leak.at, leak.text)(m); (why != "") != leak.want {
				c.t.Errorf("a message %s: %q\n%s", what, why, leak.text)
			}
		}
		return
	}
	c.t.Error("the observer was told of no message of alice's")
}
