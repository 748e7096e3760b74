package mcpproxy

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

const leak = "AKIAZ7QWERTYUIOP4321"

// asking is a daemon that refuses a question with the key in it, and keeps the others.
type asking struct {
	mu    sync.Mutex
	asked []string
}

func (a *asking) options(t *testing.T) *Options {
	t.Helper()
	o := withAnswers(t, func(r *wire.Request) string {
		if r.Method != "agent.emit" {
			return answerOf(r, nil)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, string(r.Params))
		if strings.Contains(string(r.Params), leak) {
			return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":false,"error":{"code":"CLASSIFICATION_VIOLATION","message":"a key"}}`, r.ID)
		}
		var p struct {
			HookName string
			Data     jsontext.Value
		}
		if err := json.Unmarshal(r.Params, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
			return err.Error()
		}
		data := ""
		if p.HookName == "message_sending" {
			data = `,"data":` + string(p.Data)
		}
		return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":{"allowed":true%s}}`, r.ID, data)
	})
	m, err := toolmap.Of("slack", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Map = m
	return o
}

// Nothing that nobody has decided about stands around a call, allowed or not, or in a message that needs no decision.
func TestNothingUndecidedAroundACall(t *testing.T) {
	t.Parallel()
	const post = `"name":"slack_post_message","arguments":{"channel_id":"C2","text":"good morning"}`
	for name, tc := range map[string]struct{ says, gets string }{
		"metadata":             {`"id":1,"method":"tools/call","params":{` + post + `,"_meta":{"io.modelcontextprotocol/note":"` + leak + `","claudecode/toolUseId":"toolu_01","progressToken":7,"x":"` + leak + `"}}`, `"_meta":{"progressToken":7}`},
		"a token":              {`"id":1,"method":"tools/call","params":{` + post + `,"_meta":{"progressToken":"` + leak + `"}}`, `"slack_post_message"`},
		"a version":            {`"id":1,"method":"tools/call","params":{` + post + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"2.1.0","description":"` + leak + `"},"io.modelcontextprotocol/clientCapabilities":{"roots":{},"experimental":{"` + leak + `":{}}}}}`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"2.1.0"},"io.modelcontextprotocol/clientCapabilities":{"roots":{},"experimental":{}}}`},
		"a name":               {`"id":1,"method":"tools/call","params":{` + post + `,"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"` + leak + `","version":"1"}}}`, `{"name":"unnamed","version":"1"}`},
		"a state":              {`"id":1,"method":"tools/call","params":{` + post + `,"requestState":"` + leak + `"}`, ""},
		"an id":                {`"id":"` + leak + `","method":"tools/call","params":{` + post + `}`, ""},
		"an id of such":        {`"id":"V1StGXR8_Z5jdHi6B-myT","method":"tools/call","params":{` + post + `}`, `"id":"V1StGXR8_Z5jdHi6B-myT"`},
		"another id":           {`"id":"5f1c22ab-9e0c-4bde-8d6f-0123456789ab","method":"tools/call","params":{` + post + `}`, `"id":"5f1c22ab-9e0c-4bde-8d6f-0123456789ab"`},
		"an id of a tool call": {`"id":"` + leak + `","method":"tools/call","params":{"name":"slack_get_users","arguments":{}}`, ""},
		"a read":               {`"id":1,"method":"resources/read","params":{"uri":"file:///x","_meta":{"x":"` + leak + `","progressToken":2}}`, `"params":{"uri":"file:///x","_meta":{"progressToken":2}}`},
		"a ping":               {`"id":1,"method":"ping","params":{"x":"` + leak + `"}`, `"params":{}`},
		"an id of a ping":      {`"id":"` + leak + `","method":"ping"`, ""},
		"a long number":        {`"id":` + strings.Repeat("65", 40) + `,"method":"ping"`, ""},
		"a cursor":             {`"id":1,"method":"tools/list","params":{"cursor":"` + leak + `"}`, ""},
		"a level":              {`"id":1,"method":"logging/setLevel","params":{"level":"` + leak + `"}`, ""},
		"a level of those":     {`"id":1,"method":"logging/setLevel","params":{"level":"info"}`, `"params":{"level":"info"}`},
		"a task":               {`"id":1,"method":"tasks/result","params":{"taskId":"` + leak + `"}`, ""},
		"an introduction":      {`"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true},"x":"` + leak + `"},"clientInfo":{"name":"codex-mcp-client","title":"Codex","version":"0.50.0"},"y":"` + leak + `"}`, `"params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"codex-mcp-client","title":"Codex","version":"0.50.0"}}`},
		"progress":             {`"method":"notifications/progress","params":{"progressToken":1,"progress":2,"message":"` + leak + `"}`, `"params":{"progressToken":1,"progress":2}`},
		"progress of another":  {`"method":"notifications/progress","params":{"progressToken":"` + leak + `","progress":2}`, ""},
		"a reason":             {`"method":"notifications/cancelled","params":{"requestId":1,"reason":"` + leak + `"}`, `"params":{"requestId":1}`},
		"the id of no request": {`"method":"notifications/cancelled","params":{"requestId":"` + leak + `"}`, ""},
		"a notification":       {`"method":"notifications/` + leak + `","params":{}`, ""},
		"a notification's":     {`"method":"notifications/initialized","params":{"_meta":{"x":"` + leak + `"}}`, `"params":{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := clientSays(t, new(asking).options(t), "{}", `{"jsonrpc":"2.0",`+tc.says+`}`)
			if name == "a state" && !strings.Contains(client, `"error":{"code":-32602,`) {
				t.Errorf("a state of another is refused by %s", client)
			}
			if strings.Contains(server, leak) || strings.Contains(server, "65656565") || !strings.Contains(server, tc.gets) || tc.gets == "" && server != "" {
				t.Errorf("the server gets %q, and the client %s", server, client)
			}
		})
	}
}

// A state and a cursor pass that the server itself has given, in the same session.
func TestWhatTheServerGavePasses(t *testing.T) {
	t.Parallel()
	p := newProxy(t.Context(), withoutDaemon())
	p.requests.opens(key{"s", "3"}, jsontext.Value("3"))
	p.observed("s", false, []byte(`{"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","inputRequests":{},"requestState":"`+leak+`"}}`))
	for session, want := range map[string]bool{"s": true, "other": false} {
		c := &toolCall{named: key{session: session}, members: argumentsIn(t, `{"requestState":"`+leak+`"}`)}
		if no := foreign(p, c); (no == nil) != want {
			t.Errorf("in session %s the state is refused: %v", session, no)
		}
	}
	// A cancellation passes with the id that the server has got, however the client spells it.
	p.requests.opens(key{"s", "7"}, jsontext.Value("7"))
	for id, want := range map[string]string{"7.0": "7", `"7"`: "7", `" _+7___ "`: "7", `"0000000000000000000000000000000000000000000000000000000000000000000000007"`: "7", "8": "8", "\"" + leak + "\"": ""} {
		line := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		f, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		pass, known := around(p, line, &f, "s")
		if known != (want != "") || known && !strings.Contains(string(pass), `"requestId":`+want+`}`) {
			t.Errorf("%s passes: %t, %s", id, known, pass)
		}
	}
	line := []byte(`{"jsonrpc":"2.0","id":4,"method":"resources/list"}`)
	f, err := parse(line)
	if err != nil {
		t.Fatal(err)
	}
	p.listen(line, &f, "s").seen(&frame{result: []byte(`{"nextCursor":"page ` + leak + `","resources":[{"uri":"note://a long name of a note"}]}`)})
	for session, want := range map[string]bool{"s": true, "other": false} {
		line := []byte(`{"jsonrpc":"2.0","id":5,"method":"resources/list","params":{"cursor":"page ` + leak + `"}}`)
		if f, err = parse(line); err != nil {
			t.Fatal(err)
		}
		if pass, known := around(p, line, &f, session); known != want || want && string(pass) != string(line) {
			t.Errorf("in session %s the cursor passes: %t, %s", session, known, pass)
		}
	}
}

// A text of the client's own in any request or answer is one of which no map says what the server does with it.
func TestTextInOtherRequestsIsUnmapped(t *testing.T) {
	t.Parallel()
	p := newProxy(t.Context(), withoutDaemon())
	for _, listed := range []string{`{"resources":[{"uri":"note://The offer of May and its many long appendices, of all departments"}]}`, `{"resourceTemplates":[{"uriTemplate":"issue://{owner}/{+path}"}]}`, `{"prompts":[{"name":"Daily report"}]}`} {
		p.given.lists("s", &frame{result: []byte(listed)})
	}
	folder := (&url.URL{Scheme: "file", Path: t.TempDir()}).String()
	for _, tc := range []struct {
		method, params string
		unmapped       bool
	}{
		{"resources/read", `{"uri":"note://We accept your offer"}`, true}, {"resources/read", `{"uri":"note://We%20accept%20your%20offer"}`, true},
		{"resources/subscribe", `{"uri":"note://` + strings.Repeat("x", 80) + `"}`, true}, {"resources/read", `{"uri":"note://7"}`, false},
		{"resources/read", `{"uri":"note://The offer of May and its many long appendices, of all departments"}`, false},
		{"resources/read", `{"uri":"issue://acme/` + strings.Repeat("x", 60) + `","_meta":{"progressToken":1}}`, false}, {"resources/read", `{"uri":"issue://acme/We%20accept"}`, true},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"Daily report"},"argument":{"name":"to","value":"We accept your offer"}}`, true},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"Daily report"},"argument":{"name":"to","value":"da"}}`, false},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"We accept your offer"},"argument":{"name":"to","value":"da"}}`, true},
		{"prompts/get", `{"name":"Daily report"}`, false}, {"prompts/get", `{"name":"Daily report","arguments":{"to":"We accept your offer"}}`, true},
		{"answer elicitation/create", `{"action":"accept","content":{"room":"We accept your offer"}}`, true}, {"answer elicitation/create", `{"action":"decline"}`, false},
		{"answer sampling/createMessage", `{"role":"assistant","model":"m","content":{"type":"text","text":"hello"}}`, true},
		{"answer roots/list", `{"roots":[{"uri":"` + folder + `"}]}`, false}, {"answer roots/list", `{"roots":[{"uri":"` + folder + `","name":"We accept your offer"}]}`, true},
		{"answer roots/list", `{"roots":[{"uri":"file:///We%20accept%20your%20offer"}]}`, true},
		{"We accept your offer", `{}`, true}, {"notes/read", `{}`, false}, {"notes/read", `{"words":["` + strings.Repeat(`we","`, 40) + `agree"]}`, true},
	} {
		tool, answer := strings.CutPrefix(tc.method, "answer ")
		c := &toolCall{tool: tool, whole: true, via: new(stdio), named: key{session: "s"}, arguments: argumentsIn(t, tc.params)}
		if !answer {
			c.method = tool
		}
		if got := p.question(c, p.o.Map)["unmapped"] != nil; got != tc.unmapped {
			t.Errorf("%s %s is unmapped text: %t", tc.method, tc.params, got)
		}
	}
	for id, unmapped := range map[string]bool{`"We accept your offer"`: true, `"AKIAIOSFODNN7SAMPLED"`: false, `7`: false} {
		c := &toolCall{tool: "note", via: new(stdio), frame: frame{id: []byte(id), method: "tools/call"}}
		if got := p.question(c, p.o.Map)["unmapped"] != nil; got != unmapped {
			t.Errorf("a call with the id %s is unmapped text: %t", id, got)
		}
	}
}

// The server learns of an error of its client by the code.
func TestErrorsOfTheClientHaveNoWords(t *testing.T) {
	t.Parallel()
	const asks = `{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}`
	for said, want := range map[string]string{
		`{"code":-32601,"message":"` + leak + `","data":"` + leak + `"}`: `{"code":-32601,"message":"method not found"}`,
		`{"code":-1,"message":"rejected"}`:                               `{"code":-1,"message":"rejected"}`,
		`{"code":65656565,"message":"x"}`:                                `{"code":-32603,"message":"internal error"}`,
	} {
		server, _ := clientSays(t, withoutDaemon(), asks, `{"jsonrpc":"2.0","id":5,"error":`+said+`}`)
		if server != `{"jsonrpc":"2.0","id":5,"error":`+want+"}\n" {
			t.Errorf("of %s the server gets %s", said, server)
		}
	}
}

// The introductions of real clients pass without a decision.
func TestRealClientsIntroduceThemselves(t *testing.T) {
	t.Parallel()
	p := newProxy(t.Context(), withoutDaemon())
	for said, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","title":"Claude Code","version":"2.1.330","websiteUrl":"https://claude.com/claude-code"},"io.modelcontextprotocol/clientCapabilities":{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}}}}`: `{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","title":"Claude Code","version":"2.1.330"},"io.modelcontextprotocol/clientCapabilities":{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}}}}` + "\n",
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"experimental":{"codex/auth-change":{}},"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"codex-mcp-client","title":"Codex","version":"0.169.0"}}}`:                                                                                                                                                          "",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":0}}}`: "",
		// Its capabilities have as many words as those of any client, and no text.
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}},"tasks":{"requests":{"sampling":{"createMessage":{}}}}}}}`:                  "",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"experimental":{"we will pay":{},"five hundred thousand":{},"euros to Globex tomorrow":{},"as agreed with Eve last night":{"in the long talk":true}},"roots":{}}}}`: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"experimental":{"we will pay":{},"five hundred thousand":{},"euros to Globex tomorrow":{}},"roots":{}}}}` + "\n",
	} {
		f, err := parse([]byte(said))
		if err != nil {
			t.Fatal(err)
		}
		if pass, known := around(p, []byte(said), &f, ""); !known || string(pass) != said && string(pass) != want {
			t.Errorf("of %s passes %s, %t", said, pass, known)
		}
	}
}
