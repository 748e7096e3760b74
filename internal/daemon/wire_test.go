package daemon_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// seedRegister is the request of the seed's wire example, byte for byte.
const seedRegister = `{"id":"a1b2c3","type":"request","timestamp":1707000000000,"method":"app.register","params":{"manifest":{"id":"@openclawos/telegram","name":"Telegram","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":{"channels":{"provides":["telegram"]}}}}}`

// wire is one raw connection, to test the parts that the Go client hides.
type wire struct {
	t     testing.TB
	conn  net.Conn
	lines *bufio.Reader
	token string
	last  int
	// aside are the messages read during a wait for another one.
	aside []message
}

// message is one line from the daemon.
type message struct {
	line string
	// keys are its members, in their order.
	keys []string

	Type, RequestID, Event string
	Success, Done          bool
	Result, Payload, Chunk jsontext.Value
	Error                  struct {
		Code    api.Code
		Message string
		Details jsontext.Value
	}
}

// dialWire connects to one of the daemon's sockets.
func (h *harness) dialWire(socket string) *wire {
	h.t.Helper()
	unix, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: h.path("run/" + socket), Net: "unix"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { unix.Close() })
	c := patientConn{unix}
	return &wire{t: h.t, conn: c, lines: bufio.NewReaderSize(c, 64<<10)}
}

// patientConn bounds each read and each write, but not the life of the connection.
type patientConn struct{ *net.UnixConn }

func (c patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(2 * patience)); err != nil {
		return 0, err
	}
	return c.UnixConn.Read(b)
}

func (c patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(2 * patience)); err != nil {
		return 0, err
	}
	return c.UnixConn.Write(b)
}

// in lets a subtest fail separately.
func (w *wire) in(t testing.TB) (back func()) {
	before := w.t
	w.t = t
	return func() { w.t = before }
}

// write sends raw bytes.
func (w *wire) write(text string) {
	w.t.Helper()
	if _, err := w.conn.Write([]byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

// read returns the next message.
func (w *wire) read() message {
	w.t.Helper()
	line, err := w.lines.ReadString('\n')
	if err != nil {
		w.t.Fatalf("%q: %v", line, err)
	}
	return parse(w.t, line)
}

func parse(t testing.TB, line string) message {
	t.Helper()
	m := message{line: line, keys: members(t, []byte(line))}
	if err := json.Unmarshal([]byte(line), &m, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return m
}

// members lists an object's members in their order.
func members(t testing.TB, object []byte) (names []string) {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := d.ReadToken(); err != nil {
		t.Fatalf("%q: %v", object, err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err == nil {
			names = append(names, name.String())
			err = d.SkipValue()
		}
		if err != nil {
			t.Fatalf("%q: %v", object, err)
		}
	}
	return names
}

// wait returns the first matching message, and keeps the others for later.
func (w *wire) wait(fits func(*message) bool) message {
	w.t.Helper()
	for i := range w.aside {
		if fits(&w.aside[i]) {
			m := w.aside[i]
			w.aside = slices.Delete(w.aside, i, i+1)
			return m
		}
	}
	for {
		m := w.read()
		if fits(&m) {
			return m
		}
		w.aside = append(w.aside, m)
	}
}

func (w *wire) event(name string) message {
	w.t.Helper()
	return w.wait(func(m *message) bool { return m.Event == name })
}

// request is a line without its end. It includes the token, as in the SDK.
func (w *wire) request(id, method, params string) string {
	token := ""
	if w.token != "" {
		token = `,"token":"` + w.token + `"`
	}
	return `{"id":"` + id + `","type":"request","timestamp":1707000000000,"method":"` + method + `","params":` + params + token + `}`
}

// ask sends a request and returns its answer.
func (w *wire) ask(method, params string) message {
	w.t.Helper()
	w.last++
	id := "q" + strconv.Itoa(w.last)
	w.write(w.request(id, method, params) + "\n")
	return w.wait(func(m *message) bool { return m.RequestID == id })
}

// grant makes a call that must succeed, and checks its answer's members.
func (w *wire) grant(method, params string, want ...string) message {
	w.t.Helper()
	m := w.ask(method, params)
	if !m.Success {
		w.t.Fatalf("%s: %s", method, m.line)
	}
	same(w.t, method, m.keys, "id", "type", "timestamp", "requestId", "success", "result")
	if len(want) > 0 {
		same(w.t, method, members(w.t, m.Result), want...)
	}
	return m
}

// deny makes a call that must fail with a code.
func (w *wire) deny(code api.Code, method, params string) message {
	w.t.Helper()
	m := w.ask(method, params)
	w.failed(m, code)
	return m
}

func (w *wire) failed(m message, code api.Code) {
	w.t.Helper()
	same(w.t, "failure", m.keys, "id", "type", "timestamp", "requestId", "success", "error")
	if m.Type != "response" || m.Success || m.Error.Code != code || m.Error.Message == "" {
		w.t.Fatalf("got %s, want %s", m.line, code)
	}
}

// alive checks that the connection still answers.
func (w *wire) alive() {
	w.t.Helper()
	w.grant("app.heartbeat", "{}", "ok", "serverTime")
}

// ended reads to the end of the connection.
func (w *wire) ended() {
	w.t.Helper()
	for {
		line, err := w.lines.ReadString('\n')
		if err == nil {
			w.aside = append(w.aside, parse(w.t, line))
			continue
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			w.t.Fatal("the connection does not end")
		}
		return
	}
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s has members %q, want %q", what, got, want)
	}
}

// registered connects an app and registers it with capabilities.
func (h *harness) registered(id, capabilities string) *wire {
	h.t.Helper()
	w := h.dialWire("kernel.sock")
	m := w.grant("app.register", wireManifest(id, capabilities))
	var result api.RegisterResult
	if err := json.Unmarshal(m.Result, &result); err != nil {
		h.t.Fatal(err)
	}
	w.token = result.Token
	return w
}

func wireManifest(id, capabilities string) string {
	return `{"manifest":{"id":"` + id + `","name":"` + id + `","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":` + capabilities + `}}`
}

// The seed's wire example, both ways.
func TestWireExample(t *testing.T) {
	h := build(t, acme)
	w := h.dialWire("kernel.sock")
	before := time.Now().UnixMilli()
	w.write(seedRegister + "\n")
	m := w.read()
	same(t, "the response", m.keys, "id", "type", "timestamp", "requestId", "success", "result")
	same(t, "the result", members(t, m.Result), "appId", "token", "protocolVersion")
	var head struct {
		ID        string
		Type      string
		Timestamp int64
		RequestID string `json:"requestId"`
		Result    api.RegisterResult
	}
	if err := json.Unmarshal([]byte(m.line), &head, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if head.Type != "response" || head.RequestID != "a1b2c3" || head.Result.AppID != "@openclawos/telegram" ||
		head.Result.ProtocolVersion != "1.0" || len(head.Result.Token) < 32 {
		t.Errorf("the response is %s", m.line)
	}
	if uuid.Validate(head.ID) != nil || head.Timestamp < before || head.Timestamp > time.Now().UnixMilli() {
		t.Errorf("the response is %s", m.line)
	}

	w.token = head.Result.Token
	w.grant("capability.register", `{"type":"channel","config":{"channelId":"telegram"}}`)
	w.grant("app.ready", "{}")
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:123456", "Hello!", nil)
	m = w.event("hook:message_sending")
	same(t, "the event", m.keys, "id", "type", "timestamp", "event", "payload")
	same(t, "the payload", members(t, m.Payload), "eventId", "hookName", "data", "context")
	var payload struct {
		HookName string
		Data     jsontext.Value
		Context  jsontext.Value
	}
	if err := json.Unmarshal(m.Payload, &payload, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if data := members(t, payload.Data); !slices.Equal(data[:3], []string{"channelId", "target", "content"}) {
		t.Errorf("the data is %s", payload.Data)
	}
	contains(t, string(payload.Data), `"channelId":"telegram","target":"123456","content":"Hello!`)
	contains(t, string(payload.Context), `"timestamp":`)
}

// The connection flow of the seed, step by step.
func TestWireConnectionFlow(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	w := h.registered("@openclawos/telegram", `{"channels":{"provides":["telegram"]},"hooks":{"subscribes":["message_sending"]}}`)
	m := w.grant("capability.register", `{"type":"channel","config":{"channelId":"telegram"}}`, "capabilityId", "granted")
	contains(t, string(m.Result), `"granted":true`)
	m = w.grant("hook.subscribe", `{"events":["message_sending"]}`, "subscribed", "denied")
	if string(m.Result) != `{"subscribed":["message_sending"],"denied":[]}` {
		t.Errorf("subscribed: %s", m.Result)
	}
	if m = w.grant("app.ready", "{}", "ok"); string(m.Result) != `{"ok":true}` {
		t.Errorf("ready: %s", m.Result)
	}
	m = w.grant("agent.queue", `{"sessionKey":"telegram:4711","text":"hi"}`, "runId", "queued")
	contains(t, string(m.Result), `"queued":true`)
	alice.message("hook:message_received")
	alice.dispatch("telegram:4711", "hello yourself", nil)
	w.event("hook:message_sending")
	w.alive()
}

// Every method of the seed with its params, answered with its result members.
func TestWireMethods(t *testing.T) {
	h := build(t, watched+"channels: {telegram: {botToken: x}}\n")
	alice := h.registered("@acme/alice", `{"hooks":{"subscribes":["message_received"]}}`)
	alice.grant("app.ready", "{}")
	dlp := h.registered("@acme/dlp", `{"hooks":{"intercepts":["message_sending"]}}`)
	dlp.grant("hook.subscribe", `{"events":["message_sending"]}`)
	w := h.registered("@openclawos/telegram", `{"channels":{"provides":["telegram"]},"hooks":{"subscribes":["message_sending","message_sent"]}}`)

	w.grant("app.heartbeat", `{"status":{"load":0.5}}`, "ok", "serverTime")
	granted := w.grant("capability.register", `{"type":"channel","config":{"channelId":"telegram","x":1}}`, "capabilityId", "granted")
	w.grant("capability.register", `{"type":"tool","config":{"toolId":"hammer"}}`, "capabilityId", "granted", "reason")
	w.grant("hook.subscribe", `{"events":["message_sending","message_sent"]}`, "subscribed", "denied")
	w.grant("hook.unsubscribe", `{"events":["message_sent"]}`, "unsubscribed")
	w.grant("app.ready", `{"metadata":{"a":1}}`, "ok")
	w.grant("config.get", `{"path":"channels.telegram"}`, "value")
	w.grant("config.get", `{}`, "value")
	w.grant("agent.queue", `{"sessionKey":"telegram:1","text":"hi","metadata":{"accountId":"x"}}`, "runId", "queued")
	w.grant("session.get", `{"key":"telegram:1"}`, "session")
	w.grant("session.list", `{"filter":{"agentId":"alice","channelId":"telegram","accountId":"x","active":true},"limit":10,"offset":0}`, "sessions", "total")

	dlp.grant("app.ready", "{}")
	alice.write(alice.request("d1", "message.dispatch", `{"sessionKey":"telegram:1","content":"hello","metadata":{"a":1}}`) + "\n")
	var asked api.HookEvent
	if err := json.Unmarshal(dlp.event("hook:message_sending").Payload, &asked); err != nil {
		t.Fatal(err)
	}
	dlp.grant("hook.result", `{"eventId":"`+asked.EventID+`","result":{"content":"hello"}}`, "ok")
	m := alice.wait(func(m *message) bool { return m.RequestID == "d1" })
	// Directly after app.ready the message can wait until the channel has been searched for older ones.
	given := slices.DeleteFunc(members(t, m.Result), func(member string) bool { return member == "waiting" })
	same(t, "message.dispatch", given, "dispatchId", "queued", "ocip")

	w.write(w.request("w1", "config.watch", `{"paths":["channels"]}`) + "\n")
	m = w.wait(func(m *message) bool { return m.RequestID == "w1" })
	same(t, "the answer that a watch begins with", m.keys, "id", "type", "timestamp", "requestId", "success", "result", "stream")
	if !m.Success || string(m.Result) != `{"watching":true}` {
		t.Errorf("got %s", m.line)
	}
	w.grant("stream.cancel", `{"requestId":"w1"}`, "ok")
	m = w.wait(func(m *message) bool { return m.RequestID == "w1" })
	same(t, "the chunk", m.keys, "id", "type", "timestamp", "requestId", "chunk", "done")
	if !m.Done || m.Type != "stream" {
		t.Errorf("got %s", m.line)
	}
	var capability api.CapabilityResult
	if err := json.Unmarshal(granted.Result, &capability); err != nil {
		t.Fatal(err)
	}
	w.grant("capability.unregister", `{"capabilityId":"`+capability.CapabilityID+`"}`, "ok")
	w.grant("app.shutdown", `{"reason":"done","timeout":1000}`, "ok")
	w.ended()
}

// Each of the protocol's codes is reached. UNKNOWN_ERROR and a panic's INTERNAL_ERROR need
// a broken kernel, and are tested in internal/ipc.
func TestWireErrorCodes(t *testing.T) {
	h := build(t, watched+"hooks: {answer: 100ms}\n")
	w := h.registered("@openclawos/telegram", `{"channels":{"provides":["telegram"]}}`)
	alice := h.registered("@acme/alice", `{}`)
	reach := map[api.Code]func(t *testing.T){
		api.InvalidRequest: func(*testing.T) {
			w.write("not json\n")
			w.failed(w.read(), api.InvalidRequest)
		},
		api.MethodNotFound: func(*testing.T) { w.deny(api.MethodNotFound, "app.fly", "{}") },
		api.InvalidParams:  func(*testing.T) { w.deny(api.InvalidParams, "session.get", `{"key":7}`) },
		api.Unauthorized: func(*testing.T) {
			w.write(strings.Replace(w.request("u", "app.heartbeat", "{}"), w.token, "forged", 1) + "\n")
			w.failed(w.read(), api.Unauthorized)
		},
		api.Forbidden: func(*testing.T) {
			w.deny(api.Forbidden, "message.dispatch", `{"sessionKey":"telegram:1","content":"I speak for nobody"}`)
		},
		api.NotFound:         func(*testing.T) { w.deny(api.NotFound, "stream.cancel", `{"requestId":"x"}`) },
		api.AppNotRegistered: func(*testing.T) { h.dialWire("kernel.sock").deny(api.AppNotRegistered, "app.heartbeat", "{}") },
		api.CapabilityDenied: func(*testing.T) {
			h.registered("@acme/nobody", `{}`).deny(api.CapabilityDenied, "agent.queue", `{"sessionKey":"telegram:1","text":"not my channel"}`)
		},
		api.HookNotSubscribed: func(*testing.T) { alice.deny(api.HookNotSubscribed, "hook.result", `{"eventId":"x","result":null}`) },
		api.Conflict: func(*testing.T) {
			h.dialWire("kernel.sock").deny(api.Conflict, "app.register", wireManifest("@acme/alice", "{}"))
		},
		api.Timeout: func(t *testing.T) {
			h := &harness{t: t, dir: h.dir, daemon: h.daemon}
			dlp := h.interceptor("@acme/dlp", true)
			defer dlp.Close()
			alice.deny(api.Timeout, "message.dispatch", `{"sessionKey":"telegram:1","content":"nobody answers"}`)
		},
		api.ConnectionClosed: func(t *testing.T) {
			h := &harness{t: t, dir: h.dir, daemon: h.daemon}
			dlp := h.interceptor("@acme/dlp2", true)
			bob := h.registered("@acme/bob", `{}`)
			bob.write(bob.request("d", "message.dispatch", `{"sessionKey":"telegram:1","content":"x"}`) + "\n")
			dlp.message("hook:message_sending")
			// Half closed: no more requests, but the answer is still read.
			if err := bob.conn.(patientConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			bob.failed(bob.read(), api.ConnectionClosed)
			dlp.Close()
		},
		api.InternalError: nil,
		api.UnknownError:  nil,
	}
	for _, code := range api.Codes() {
		f, known := reach[code]
		if !known {
			t.Errorf("no way to %s", code)
		}
		if f != nil {
			t.Run(string(code), f)
		}
	}
}

// An unreadable line gets an answer, and the connection continues.
func TestWireMalformedLines(t *testing.T) {
	h := build(t, acme+"ipc: {max_line_bytes: 5000}\n")
	w := h.registered("@acme/app", `{}`)
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, tc := range []struct{ name, line, id string }{
		{"no JSON", `hello`, ""},
		{"half a line", `{"id":"x1","type":"request","method":"app.heart`, "x1"},
		{"a list", `[{"id":"x1"}]`, ""},
		{"null", `null`, ""},
		{"an empty object", `{}`, ""},
		{"single quotes", `{'id':'x1'}`, ""},
		{"a byte order mark", "\ufeff" + `{"id":"x1"}`, ""},
		{"a zero byte", "{\"id\":\"x1\",\"a\":\x00}", "x1"},
		{"not UTF-8", "{\"id\":\"x1\",\"type\":\"request\",\"method\":\"\xff\"}", "x1"},
		{"a key twice", `{"id":"x1","type":"request","method":"app.heartbeat","method":"app.shutdown"}`, "x1"},
		{"a key twice in params", `{"id":"x1","type":"request","method":"app.heartbeat","params":{"a":1,"a":2}}`, "x1"},
		{"something behind it", `{"id":"x1","type":"request","method":"app.heartbeat"}}`, "x1"},
		{"two on one line", `{"id":"x1","type":"request","method":"a"}{"id":"x2","type":"request","method":"a"}`, "x1"},
		{"a depth bomb", `{"id":"x1","type":"request","method":"app.heartbeat","params":` + deep + `}`, "x1"},
		{"too long", `{"id":"x1","type":"request","method":"app.heartbeat","params":{"x":"` + strings.Repeat("x", 5000) + `"}}`, "x1"},
		{"far too long", `{"id":"x1","params":"` + strings.Repeat("x", 300_000) + `"}`, "x1"},
		{"too long and no JSON", strings.Repeat("x", 100_000), ""},
		{"no id", `{"type":"request","method":"app.heartbeat"}`, ""},
		{"a number for an id", `{"id":5,"type":"request","method":"app.heartbeat"}`, ""},
		{"no type", `{"id":"x1","method":"app.heartbeat"}`, "x1"},
		{"a response", `{"id":"x1","type":"response","requestId":"y","success":true}`, "x1"},
		{"an event", `{"id":"x1","type":"event","event":"hook:message_sending","payload":{}}`, "x1"},
		{"a type nobody knows", `{"id":"x1","type":"telepathy","method":"app.heartbeat"}`, "x1"},
		{"no method", `{"id":"x1","type":"request"}`, "x1"},
		{"a token that is no text", `{"id":"x1","type":"request","method":"app.heartbeat","token":{}}`, "x1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer w.in(t)()
			w.write(tc.line + "\n")
			m := w.read()
			w.failed(m, api.InvalidRequest)
			if m.RequestID != tc.id {
				t.Errorf("requestId is %q, want %q", m.RequestID, tc.id)
			}
			w.alive()
		})
	}
}

// Unusual but valid lines are accepted.
func TestWireUnusualLines(t *testing.T) {
	h := build(t, acme)
	w := h.registered("@acme/app", `{}`)
	beat := w.request("q", "app.heartbeat", "{}")
	for _, tc := range []struct{ name, lines string }{
		{"carriage return", beat + "\r\n"},
		{"empty lines", "\n\r\n \n\t\r\n\n" + beat + "\n\n\r\n"},
		{"white space", " \t" + strings.ReplaceAll(beat, ":", " : ") + " \n"},
		{"unknown fields", strings.Replace(beat, "{", `{"trace":{"id":[1,2]},"priority":null,`, 1) + "\n"},
		{"unknown params", strings.Replace(beat, `"params":{}`, `"params":{"mood":"good"}`, 1) + "\n"},
		{"no params", strings.Replace(beat, `"params":{},`, ``, 1) + "\n"},
		{"null params", strings.Replace(beat, `"params":{}`, `"params":null`, 1) + "\n"},
		{"no timestamp", strings.Replace(beat, `"timestamp":1707000000000,`, ``, 1) + "\n"},
		{"a fraction of a timestamp", strings.Replace(beat, `1707000000000`, `1707000000000.123`, 1) + "\n"},
		{"escapes", strings.Replace(beat, "app.heartbeat", `app\u002eheartbeat`, 1) + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer w.in(t)()
			w.write(tc.lines)
			if m := w.read(); m.RequestID != "q" || !m.Success {
				t.Errorf("got %s", m.line)
			}
		})
	}
}

// A request id without an answer yet cannot be used again.
func TestWireDuplicateID(t *testing.T) {
	h := build(t, watched)
	h.channel("@openclawos/telegram", "telegram")
	dlp := h.interceptor("@acme/dlp", true)
	alice := h.registered("@acme/alice", `{}`)
	dispatch := alice.request("same", "message.dispatch", `{"sessionKey":"telegram:1","content":"x"}`) + "\n"
	alice.write(dispatch)
	m := dlp.message("hook:message_sending")
	for _, line := range []string{dispatch, alice.request("same", "app.heartbeat", "{}") + "\n"} {
		alice.write(line)
		alice.failed(alice.read(), api.Conflict)
	}
	// On another connection it is another id.
	bob := h.registered("@acme/bob", `{}`)
	bob.write(bob.request("same", "app.heartbeat", "{}") + "\n")
	if got := bob.read(); !got.Success {
		t.Error(got.line)
	}
	dlp.answer(m.EventID, map[string]any{})
	if got := alice.read(); got.RequestID != "same" || !got.Success {
		t.Error(got.line)
	}
	alice.write(strings.Replace(dispatch, "message.dispatch", "app.heartbeat", 1))
	if got := alice.read(); !got.Success {
		t.Error(got.line)
	}
}

// Before registration there is no token, and afterwards every request has it.
func TestWireTokens(t *testing.T) {
	h := build(t, acme)
	w := h.dialWire("kernel.sock")
	methods := []struct{ name, params string }{
		{"app.heartbeat", "{}"}, {"app.ready", "{}"}, {"app.shutdown", "{}"},
		{"capability.register", `{"type":"tool","config":{"toolId":"x"}}`}, {"capability.unregister", `{"capabilityId":"x"}`},
		{"hook.subscribe", `{"events":[]}`}, {"hook.unsubscribe", `{"events":[]}`}, {"hook.result", `{"eventId":"x","result":null}`},
		{"config.get", "{}"}, {"config.watch", "{}"}, {"session.get", `{"key":"a:b"}`}, {"session.list", "{}"},
		{"message.dispatch", `{"sessionKey":"a:b","content":"x"}`}, {"agent.queue", `{"sessionKey":"a:b","text":"x"}`},
		{"agent.complete", `{"runId":"x","success":true}`},
	}
	for _, m := range methods {
		w.deny(api.AppNotRegistered, m.name, m.params)
		w.token = "guessed"
		w.deny(api.AppNotRegistered, m.name, m.params)
		w.token = ""
	}
	other := h.registered("@acme/other", `{}`)
	mine := h.registered("@acme/mine", `{}`)
	for _, token := range []string{"", "x", other.token, mine.token[1:], mine.token + "x", strings.ToLower(mine.token) + " "} {
		forged := *mine
		forged.token = token
		for _, m := range methods {
			forged.last += 1000
			forged.deny(api.Unauthorized, m.name, m.params)
		}
	}
	mine.last = 1 << 20
	mine.alive()
	// The caller's rights are checked before the parameters: an unauthorized call reveals nothing.
	h.dialWire("kernel.sock").deny(api.AppNotRegistered, "session.get", `{"key":7}`)
}

// Each socket serves its own callers.
func TestWireSockets(t *testing.T) {
	h := build(t, acme)
	app := h.registered("@acme/app", `{}`)
	operator := h.dialWire("operator.sock")
	for _, method := range []string{"kernel.status", "audit.query", "audit.tail"} {
		app.deny(api.Forbidden, method, "{}")
		h.dialWire("kernel.sock").deny(api.Forbidden, method, "{}")
	}
	for _, method := range []string{"app.register", "app.heartbeat", "message.dispatch", "config.watch", "agent.queue"} {
		operator.deny(api.Forbidden, method, "{}")
	}
	operator.grant("kernel.status", "{}")
	operator.grant("audit.query", "{}", "records", "nextBefore")
	operator.grant("audit.query", `{"filter":{"text":"no reason says so"}}`, "records", "nextBefore")
	operator.grant("audit.stats", "{}", "since", "until", "bucket", "verdicts", "buckets", "agents", "agentCount", "rules", "ruleCount", "codes", "codeCount")
	operator.grant("kernel.describe", "{}", "protocolVersion", "version", "methods")
	operator.write(operator.request("t", "audit.tail", `{"last":1,"follow":true}`) + "\n")
	if m := operator.read(); m.Type != "stream" || m.Done {
		t.Errorf("got %s", m.line)
	}
	operator.grant("stream.cancel", `{"requestId":"t"}`, "ok")
	// A stream is ended only from its own connection.
	h.dialWire("kernel.sock").deny(api.NotFound, "stream.cancel", `{"requestId":"t"}`)
}

// Only a holder of its token can take over an id with a live connection.
func TestWireTakeOver(t *testing.T) {
	h := build(t, acme)
	first := h.registered("@acme/app", `{"channels":{"provides":["chat"]}}`)
	first.grant("capability.register", `{"type":"channel","config":{"channelId":"chat"}}`)
	register := wireManifest("@acme/app", `{"channels":{"provides":["chat"]}}`)
	second := h.dialWire("kernel.sock")
	second.deny(api.Conflict, "app.register", register)
	second.token = "guessed"
	second.deny(api.Conflict, "app.register", register)
	first.alive()
	first.deny(api.Conflict, "app.register", register)

	second.token = first.token
	m := second.grant("app.register", register)
	first.ended()
	old := second.token
	var result api.RegisterResult
	if err := json.Unmarshal(m.Result, &result); err != nil {
		t.Fatal(err)
	}
	if result.Token == old {
		t.Error("the token is the old one")
	}
	second.deny(api.Unauthorized, "app.heartbeat", "{}")
	second.token = result.Token
	second.alive()
	// The former connection's capabilities are free.
	m = second.grant("capability.register", `{"type":"channel","config":{"channelId":"chat"}}`)
	contains(t, string(m.Result), `"granted":true`)

	// A dead connection's id is free, too.
	second.conn.Close()
	third := h.dialWire("kernel.sock")
	for {
		m := third.ask("app.register", register)
		if m.Success {
			break
		}
		third.failed(m, api.Conflict)
	}
}

// A manifest's errors name each field.
func TestWireManifestErrors(t *testing.T) {
	h := build(t, acme)
	w := h.dialWire("kernel.sock")
	good := wireManifest("@acme/app", `{"channels":{"provides":["a"]}}`)
	for _, tc := range []struct {
		name, from, to string
		paths          []string
	}{
		{"no manifest", good, `{}`, []string{"manifest"}},
		{"a manifest that is none", good, `{"manifest":"x"}`, []string{"manifest"}},
		{"params that are none", good, `[1]`, []string{"params"}},
		{"no id", `"id":"@acme/app"`, `"id":""`, []string{"manifest.id"}},
		{"an id that is none", `"id":"@acme/app"`, `"id":"../etc"`, []string{"manifest.id"}},
		{"no version", `"version":"1.0.0",`, ``, []string{"manifest.version"}},
		{"a version that is none", `"version":"1.0.0"`, `"version":"one"`, []string{"manifest.version"}},
		{"a type that is none", `"type":"app"`, `"type":"virus"`, []string{"manifest.type"}},
		{"no main", `"main":"dist/index.js",`, ``, []string{"manifest.main"}},
		{"no protocol", `"protocol":{"version":"1.0"},`, ``, []string{"manifest.protocol.version"}},
		{"a list that is none", `["a"]`, `"a"`, []string{"manifest.capabilities.channels.provides"}},
		{"an empty name in a list", `["a"]`, `["a",""]`, []string{"manifest.capabilities.channels.provides[1]"}},
		{"all at once", good, `{"manifest":{"id":"?","version":"x","type":"app","protocol":{}}}`,
			[]string{"manifest.id", "manifest.name", "manifest.version", "manifest.protocol.version", "manifest.main"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer w.in(t)()
			m := w.deny(api.InvalidParams, "app.register", strings.Replace(good, tc.from, tc.to, 1))
			var details []api.FieldError
			if err := json.Unmarshal(m.Error.Details, &details); err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, d := range details {
				paths = append(paths, d.Path)
			}
			if !slices.Equal(paths, tc.paths) {
				t.Errorf("details are %s, want paths %q", m.Error.Details, tc.paths)
			}
		})
	}
	m := w.deny(api.InvalidParams, "app.register", strings.Replace(good, `"protocol":{"version":"1.0"}`, `"protocol":{"version":"2.0"}`, 1))
	contains(t, m.Error.Message, "2.0", api.ProtocolVersion)
	contains(t, string(m.Error.Details), "manifest.protocol.version")
	// An agent needs no main, and a later minor version is accepted.
	agent := strings.NewReplacer(`"type":"app","main":"dist/index.js"`, `"type":"agent"`, `{"version":"1.0"}`, `{"version":"1.7"}`).Replace(good)
	w.grant("app.register", agent)
}

// A capability is granted if the manifest declares it and nobody else has it. A refusal is
// a result, not an error.
func TestWireCapabilities(t *testing.T) {
	h := build(t, acme)
	all := `{"channels":{"provides":["chat","taken"]},"tools":{"provides":["hammer","taken"]},"providers":{"provides":["llm"]},` +
		`"hooks":{"subscribes":["message_received","before_agent_start"],"intercepts":["tool_executing"]},"gateway":{"methods":["m","taken"],"httpRoutes":["/r"]}}`
	owner := h.registered("@acme/owner", all)
	for _, kind := range []string{`"channel","config":{"id":"taken"}`, `"tool","config":{"name":"taken"}`, `"gateway_method","config":{"method":"taken"}`} {
		m := owner.grant("capability.register", `{"type":`+kind+`}`)
		contains(t, string(m.Result), `"granted":true`)
	}
	w := h.registered("@acme/app", all)
	for _, tc := range []struct{ kind, config, refused string }{
		{"channel", `"channelId":"chat"`, ""},
		{"channel", `"id":"chat"`, ""},
		{"channel", `"channelId":"other"`, "does not declare other under capabilities.channels.provides"},
		{"channel", `"channelId":"hammer"`, "capabilities.channels.provides"},
		{"channel", `"channelId":"taken"`, "channel taken belongs to app @acme/owner"},
		{"tool", `"toolId":"hammer"`, ""},
		{"tool", `"name":"hammer"`, ""},
		{"tool", `"name":"saw"`, "capabilities.tools.provides"},
		{"tool", `"toolId":"taken"`, "tool taken belongs to app @acme/owner"},
		{"provider", `"providerId":"llm"`, ""},
		{"provider", `"id":"llm"`, ""},
		{"provider", `"id":"x"`, "capabilities.providers.provides"},
		{"gateway_method", `"methodName":"m"`, ""},
		{"gateway_method", `"method":"m"`, ""},
		{"gateway_method", `"method":"taken"`, "gateway_method taken belongs to app @acme/owner"},
		{"gateway_method", `"method":"x"`, "capabilities.gateway.methods"},
		{"http_route", `"route":"/r"`, ""},
		{"http_route", `"path":"/r"`, ""},
		{"http_route", `"path":"/x"`, "capabilities.gateway.httpRoutes"},
		{"hook", `"event":"message_received"`, ""},
		{"hook", `"event":"agent_starting"`, ""},
		{"hook", `"event":"before_tool_call","intercept":true`, "may intercept no agent's messages"},
		{"hook", `"event":"message_received","intercept":true`, "can only be observed"},
		{"hook", `"event":"message_sending","intercept":true`, "capabilities.hooks.intercepts"},
		{"hook", `"event":"message_sending"`, "capabilities.hooks.subscribes"},
		{"hook", `"event":"nonesuch"`, "unknown hook"},
	} {
		t.Run(tc.kind+" "+tc.config, func(t *testing.T) {
			defer w.in(t)()
			m := w.ask("capability.register", `{"type":"`+tc.kind+`","config":{`+tc.config+`}}`)
			var result api.CapabilityResult
			if err := json.Unmarshal(m.Result, &result); err != nil || !m.Success {
				t.Fatalf("%s: %v", m.line, err)
			}
			if result.Granted != (tc.refused == "") || !strings.Contains(result.Reason, tc.refused) || result.CapabilityID == "" {
				t.Errorf("got %s, want it refused for %q", m.Result, tc.refused)
			}
		})
	}
	// The capabilities of an app are free when it is gone.
	owner.conn.Close()
	for granted := false; !granted; {
		m := w.grant("capability.register", `{"type":"tool","config":{"toolId":"taken"}}`)
		granted = strings.Contains(string(m.Result), `"granted":true`)
	}
}

func TestWireSessions(t *testing.T) {
	h := build(t, acme+"  - {session: \"chat:*\", agent: bob}\n")
	w := h.registered("@acme/chat", `{"channels":{"provides":["telegram","chat"]}}`)
	for _, channel := range []string{"telegram", "chat"} {
		w.grant("capability.register", `{"type":"channel","config":{"id":"`+channel+`"}}`)
	}
	w.grant("app.ready", "{}")
	for n := range 7 {
		w.grant("agent.queue", fmt.Sprintf(`{"sessionKey":"telegram:%d","text":"hi","metadata":{"accountId":"a%d"}}`, n, n%2))
	}
	w.grant("agent.queue", `{"sessionKey":"chat:main","text":"hi"}`)
	w.grant("agent.queue", `{"sessionKey":"chat:main","text":"hi again"}`)
	if m := w.grant("session.get", `{"key":"telegram:nobody"}`); string(m.Result) != `{"session":null}` {
		t.Errorf("got %s", m.Result)
	}
	m := w.grant("session.get", `{"key":"telegram:3"}`)
	contains(t, string(m.Result), `{"session":{"key":"telegram:3","agentId":"alice","channelId":"telegram","accountId":"a1","createdAt":`, `"messageCount":1}`)
	m = w.grant("session.get", `{"key":"chat:main"}`)
	contains(t, string(m.Result), `"agentId":"bob"`, `"messageCount":2`)
	list := func(params string) (keys []string, total int) {
		t.Helper()
		var r api.SessionListResult
		if err := json.Unmarshal(w.grant("session.list", params, "sessions", "total").Result, &r); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Sessions {
			keys = append(keys, s.Key)
		}
		return keys, r.Total
	}
	for _, tc := range []struct {
		params      string
		page, total int
	}{
		{`{}`, 8, 8},
		{`{"filter":{}}`, 8, 8},
		{`{"filter":{"agentId":"bob"}}`, 1, 1},
		{`{"filter":{"channelId":"telegram"}}`, 7, 7},
		{`{"filter":{"channelId":"telegram","accountId":"a0"}}`, 4, 4},
		{`{"filter":{"agentId":"bob","channelId":"telegram"}}`, 0, 0},
		{`{"filter":{"active":true}}`, 8, 8},
		{`{"filter":{"active":false}}`, 0, 0},
		{`{"filter":{"agentId":"x' OR '1'='1"}}`, 0, 0},
		{`{"limit":3}`, 3, 8},
		{`{"limit":0}`, 0, 8},
		{`{"limit":3,"offset":6}`, 2, 8},
		{`{"offset":100}`, 0, 8},
	} {
		if keys, total := list(tc.params); len(keys) != tc.page || total != tc.total {
			t.Errorf("%s: got %q of %d, want %d of %d", tc.params, keys, total, tc.page, tc.total)
		}
	}
	seen := make(map[string]bool)
	for offset := 0; offset < 8; offset += 3 {
		keys, _ := list(fmt.Sprintf(`{"limit":3,"offset":%d}`, offset))
		for _, key := range keys {
			if seen[key] {
				t.Errorf("%s is on two pages", key)
			}
			seen[key] = true
		}
	}
	if len(seen) != 8 {
		t.Errorf("the pages hold %d sessions", len(seen))
	}
	// Only the apps of their agents and channels see sessions.
	bob := h.agent("@acme/bob")
	var mine api.SessionListResult
	bob.must("session.list", nil, &mine)
	if mine.Total != 1 || len(mine.Sessions) != 1 || mine.Sessions[0].Key != "chat:main" {
		t.Errorf("bob's app is shown %+v", mine)
	}
	var other api.SessionResult
	if bob.must("session.get", map[string]any{"key": "telegram:3"}, &other); other.Session != nil {
		t.Errorf("bob's app is shown alice's session %+v", other.Session)
	}
}

// Apps see their own part of the configuration, and hear when it changes.
func TestWireConfig(t *testing.T) {
	const before = acme + `
channels: {telegram: {botToken: s3cret, Nested: {Key: [1, two]}}, irc: {password: other-s3cret}}
apps: {"@acme/app": {mode: fast}, "@acme/other": {key: foreign-s3cret}}
`
	h := build(t, before)
	w := h.registered("@acme/app", `{"channels":{"provides":["telegram"]}}`)
	get := func(path string) string {
		t.Helper()
		return string(w.grant("config.get", `{"path":"`+path+`"}`, "value").Result)
	}
	for path, want := range map[string]string{
		"channels.telegram.botToken":          `{"value":"s3cret"}`,
		"channels.telegram.Nested.Key":        `{"value":[1,"two"]}`,
		"channels.telegram.Nested.Key[1]":     `{"value":"two"}`,
		"channels.telegram.nested":            `{"value":null}`,
		"$.channels.telegram.botToken":        `{"value":"s3cret"}`,
		`apps['@acme/app']`:                   `{"value":{"mode":"fast"}}`,
		"channels.irc":                        `{"value":null}`,
		"channels.irc.password":               `{"value":null}`,
		`apps['@acme/other'].key`:             `{"value":null}`,
		"agents":                              `{"value":null}`,
		"policy.data":                         `{"value":null}`,
		"store.url":                           `{"value":null}`,
		"channels.telegram.botToken.too.deep": `{"value":null}`,
	} {
		if got := get(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if whole := get(""); strings.Contains(whole, "other-s3cret") || strings.Contains(whole, "foreign-s3cret") || !strings.Contains(whole, "s3cret") {
		t.Errorf("the whole is %s", whole)
	}
	w.deny(api.InvalidParams, "config.get", `{"path":"a..b"}`)
	w.deny(api.InvalidParams, "config.watch", `{"paths":["a[x]"]}`)

	for id, paths := range map[string]string{"all": `[]`, "token": `["channels.telegram.botToken"]`, "foreign": `["channels.irc","apps['@acme/other']"]`} {
		w.write(w.request(id, "config.watch", `{"paths":`+paths+`}`) + "\n")
	}
	w.alive() // the streams are established
	for range 3 {
		w.wait(func(m *message) bool { return m.Type == "response" && m.Success })
	}
	h.configure(strings.NewReplacer("s3cret,", "n3w,", "mode: fast", "mode: slow, added: 1", "foreign-s3cret", "foreign-n3w", "other-s3cret", "other-n3w").Replace(before))
	type change struct {
		Path               string
		OldValue, NewValue jsontext.Value
	}
	chunks := func(id string, n int) (changes []string) {
		t.Helper()
		for range n {
			m := w.wait(func(m *message) bool { return m.RequestID == id })
			same(t, "the chunk", m.keys, "id", "type", "timestamp", "requestId", "chunk", "done")
			same(t, "the change", members(t, m.Chunk), "path", "oldValue", "newValue")
			var c change
			if err := json.Unmarshal(m.Chunk, &c, json.MatchCaseInsensitiveNames(true)); err != nil || m.Done {
				t.Fatalf("%s: %v", m.line, err)
			}
			changes = append(changes, fmt.Sprintf("%s %s %s", c.Path, c.OldValue, c.NewValue))
		}
		return changes
	}
	if got, want := chunks("all", 3), []string{
		`apps["@acme/app"].added null 1`, `apps["@acme/app"].mode "fast" "slow"`, `channels.telegram.botToken "s3cret" "n3w"`,
	}; !slices.Equal(got, want) {
		t.Errorf("all changes are %q, want %q", got, want)
	}
	if got, want := chunks("token", 1), []string{`channels.telegram.botToken "s3cret" "n3w"`}; !slices.Equal(got, want) {
		t.Errorf("the token's changes are %q, want %q", got, want)
	}

	// An invalid file changes nothing, and the next valid one does.
	h.configure("channels: {telegram: {botToken: broken}}\nnonesuch: 1\n")
	h.configure(strings.Replace(before, "botToken: s3cret", "botToken: [", 1))
	w.grant("stream.cancel", `{"requestId":"all"}`, "ok")
	if m := w.wait(func(m *message) bool { return m.RequestID == "all" }); !m.Done || string(m.Chunk) != "null" {
		t.Errorf("got %s", m.line)
	}
	w.deny(api.NotFound, "stream.cancel", `{"requestId":"all"}`)
	h.configure(strings.Replace(before, "botToken: s3cret", "botToken: last", 1))
	if got, want := chunks("token", 1), []string{`channels.telegram.botToken "n3w" "last"`}; !slices.Equal(got, want) {
		t.Errorf("the token's changes are %q, want %q", got, want)
	}
	if got := get("channels.telegram.botToken"); got != `{"value":"last"}` {
		t.Errorf("got %s", got)
	}
	for _, m := range w.aside {
		t.Errorf("nobody asked for %s", m.line)
	}
	w.write(w.request("end", "app.shutdown", "{}") + "\n")
	w.ended()
	done := 0
	for _, m := range w.aside {
		if m.Done {
			done++
		}
	}
	if done != 2 {
		t.Errorf("%d streams of 2 are done at the end", done)
	}
}

// A channel's part is for the app that has the channel: another app that only declares it
// does not see the owner's secrets.
func TestWireConfigOfAnOwnedChannel(t *testing.T) {
	h := build(t, acme+"channels: {telegram: {botToken: s3cret}}\n")
	h.channel("@openclawos/telegram", "telegram")
	w := h.registered("@evil/app", `{"channels":{"provides":["telegram"]}}`)
	if m := w.grant("config.get", "{}"); strings.Contains(string(m.Result), "s3cret") {
		t.Errorf("the config is %s", m.Result)
	}
}

// seedParams holds the params of the seed's methods, as in the seed.
func seedParams(t *testing.T) map[string]string {
	t.Helper()
	var register struct{ Params jsontext.Value }
	if err := json.Unmarshal([]byte(seedRegister), &register, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"app.register":          string(register.Params),
		"app.heartbeat":         `{"status":{"any":"thing"}}`,
		"app.ready":             `{"metadata":{"any":"thing"}}`,
		"app.shutdown":          `{"reason":"because","timeout":5000}`,
		"capability.register":   `{"type":"channel","config":{"channelId":"telegram"}}`,
		"capability.unregister": `{"capabilityId":"x"}`,
		"hook.subscribe":        `{"events":["message_sending"]}`,
		"hook.unsubscribe":      `{"events":["message_sending"]}`,
		"hook.result":           `{"eventId":"evt123","result":{"any":"thing"}}`,
		"config.get":            `{"path":"channels.telegram"}`,
		"config.watch":          `{"paths":["channels.telegram"]}`,
		"session.get":           `{"key":"telegram:123"}`,
		"session.list":          `{"filter":{"agentId":"a","channelId":"c","accountId":"x","active":true},"limit":10,"offset":20}`,
		"message.dispatch":      `{"sessionKey":"telegram:123","content":"Hello!","metadata":{"any":"thing"}}`,
		"agent.queue":           `{"sessionKey":"telegram:123","text":"Hello!","metadata":{"any":"thing"}}`,
	}
}

// The description of a method in kernel.describe fits the seed's params and the kernel's answers.
func TestWireDescribe(t *testing.T) {
	h := build(t, acme)
	w := h.dialWire("kernel.sock")
	m := w.grant("kernel.describe", "{}", "protocolVersion", "version", "methods")
	var d struct {
		Methods []struct {
			Name, Access   string
			Stream         bool
			Params, Result *jsonschema.Schema
		}
	}
	if err := json.Unmarshal(m.Result, &d, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	params := seedParams(t)
	results := map[string]string{
		"app.register":        `{"appId":"@openclawos/telegram","token":"secret123","protocolVersion":"1.0"}`,
		"app.heartbeat":       `{"ok":true,"serverTime":1707000000000}`,
		"capability.register": `{"capabilityId":"x","granted":false,"reason":"y"}`,
		"hook.subscribe":      `{"subscribed":["x"],"denied":[]}`,
		"config.get":          `{"value":null}`,
		"config.watch":        `{"path":"x","oldValue":1,"newValue":null}`,
		"session.get":         `{"session":null}`,
		"session.list":        `{"sessions":[],"total":0}`,
		"message.dispatch":    `{"dispatchId":"x","queued":true}`,
		"agent.queue":         `{"runId":"x","queued":true}`,
	}
	check := func(s *jsonschema.Schema, text string) error {
		resolved, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		var instance any
		if err := json.Unmarshal([]byte(text), &instance); err != nil {
			t.Fatal(err)
		}
		return resolved.Validate(instance)
	}
	for _, method := range d.Methods {
		if text, ok := params[method.Name]; ok {
			if err := check(method.Params, text); err != nil {
				t.Errorf("params of %s: %v", method.Name, err)
			}
			unknown := strings.Replace(text, "{", `{"unknown":1,`, 1)
			if err := check(method.Params, unknown); err != nil {
				t.Errorf("params of %s with an unknown member: %v", method.Name, err)
			}
			delete(params, method.Name)
		}
		if err := check(method.Params, `"text"`); err == nil {
			t.Errorf("the params of %s can be anything", method.Name)
		}
		if text, ok := results[method.Name]; ok {
			if err := check(method.Result, text); err != nil {
				t.Errorf("result of %s: %v", method.Name, err)
			}
		}
		if method.Stream != strings.HasSuffix(method.Name, ".watch") {
			t.Errorf("%s streams: %v", method.Name, method.Stream)
		}
	}
	if len(params) > 0 {
		t.Errorf("not described: %q", slices.Sorted(maps.Keys(params)))
	}
	for name, bad := range map[string]string{
		"app.register":     `{"manifest":{"id":7}}`,
		"message.dispatch": `{"sessionKey":"x"}`,
		"hook.subscribe":   `{"events":"x"}`,
		"session.list":     `{"limit":"x"}`,
	} {
		i := slices.IndexFunc(d.Methods, func(m struct {
			Name, Access   string
			Stream         bool
			Params, Result *jsonschema.Schema
		}) bool {
			return m.Name == name
		})
		if err := check(d.Methods[i].Params, bad); err == nil {
			t.Errorf("the schema of %s takes %s", name, bad)
		}
	}
}

// A refusal to register is recorded if it is a security matter, and the records of an app's
// life name the connection.
func TestWireLifecycleIsOnRecord(t *testing.T) {
	h := build(t, acme)
	w := h.registered("@acme/app", `{}`)
	w.grant("app.shutdown", `{"reason":"enough"}`)
	w.ended()
	var events []string
	for len(events) < 3 {
		events = nil
		for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, AppID: "@acme/app"}}) {
			events = append(events, r.Event)
			if pid := fmt.Sprint(r.Details["pid"]); pid != strconv.Itoa(os.Getpid()) {
				t.Errorf("pid is %s", pid)
			}
		}
	}
	if !slices.Equal(events, []string{"registered", "shutdown", "left"}) {
		t.Errorf("events are %q", events)
	}
}
