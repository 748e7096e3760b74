package mcpproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// withDaemon returns the options of a proxy whose daemon allows tool calls and withholds
// their results until let returns. A nil let withholds them for good.
func withDaemon(t *testing.T, let func(content string)) *Options {
	t.Helper()
	return withAnswers(t, func(r *wire.Request) string { return answerOf(r, let) })
}

// withAnswers returns the options of a proxy whose daemon answers requests as given.
func withAnswers(t *testing.T, answer func(*wire.Request) string) *Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if r, err := wire.ParseRequest(lines.Bytes()); err == nil {
						fmt.Fprintln(conn, answer(&r))
					}
				}
			})
		}
	})
	o := withoutDaemon()
	o.Link.Dial = func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, path, client.WithDropEvents())
	}
	t.Cleanup(o.Link.Close)
	return o
}

func answerOf(r *wire.Request, let func(string)) string {
	result := `{}`
	switch r.Method {
	case "task.attach":
		result = `{"agent":"ann"}`
	case "agent.emit":
		var p struct {
			HookName string
			Data     struct{ Content string }
		}
		if err := json.Unmarshal(r.Params, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
			return err.Error()
		}
		result = `{"allowed":true}`
		if p.HookName == "message_received" {
			if let == nil {
				return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":false,"error":{"code":"FORBIDDEN","message":"no"}}`, r.ID)
			}
			let(p.Data.Content)
			said, _ := json.Marshal(p.Data.Content)
			result = fmt.Sprintf(`{"allowed":true,"data":{"sessionKey":"chat:x","content":%s}}`, said)
		}
	case "agent.watch":
		return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":false,"error":{"code":"NOT_FOUND","message":"none"}}`, r.ID)
	}
	return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":%s}`, r.ID, result)
}

// An answer under decision does not pass when the server repeats it, on the same stream or
// another. After it was let in, only a byte-for-byte repetition passes.
func TestAnswersAreSaidOnce(t *testing.T) {
	t.Parallel()
	const call = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"history","arguments":{"channel":"x"}}}`
	event := func(text string) string {
		return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[{\"type\":\"text\",\"text\":%q}]}}\n\n", text)
	}
	for name, tc := range map[string]struct {
		stream, other string
		want          bool // whether the second stream has it
	}{
		"another text in the same stream": {event("fine") + event("secret"), "", false},
		"another text in another stream":  {event("fine"), event("secret"), false},
		"the same in another stream":      {event("fine"), event("fine"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deciding, decide := make(chan struct{}), make(chan struct{})
			o := withDaemon(t, func(string) {
				close(deciding)
				<-decide
			})
			address := served(t, o, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				if r.Method == http.MethodGet {
					fmt.Fprint(rw, tc.other)
				} else if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "tools/call") {
					fmt.Fprint(rw, tc.stream)
				}
			})
			got := make(chan string)
			go func() { got <- ask(t, http.MethodPost, address, call) }()
			<-deciding
			if tc.other != "" {
				if text := ask(t, http.MethodGet, address, ""); strings.Contains(text, "text") {
					t.Errorf("while it is decided about, another stream has %q", text)
				}
			}
			close(decide)
			if text := <-got; !strings.Contains(text, "fine") || strings.Contains(text, "secret") {
				t.Errorf("answered %q", text)
			}
			if text := ask(t, http.MethodGet, address, ""); strings.Contains(text, "secret") || strings.Contains(text, "fine") != tc.want {
				t.Errorf("afterwards another stream has %q", text)
			}
		})
	}
}

// The map of a server is found by the server's description of itself, however it was
// started: by its name, or by its tools, for which the proxy asks if the client has not.
func TestTheMap(t *testing.T) {
	t.Parallel()
	slack := map[string][]string{"slack_post_message": {"channel_id", "text"}, "slack_get_users": {"cursor"}, "slack_list_channels": nil, "more": nil}
	tool := func(name string, arguments ...string) string {
		members := make([]string, len(arguments))
		for i, a := range arguments {
			members[i] = fmt.Sprintf("%q:{}", a)
		}
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"properties":{%s}}}`, name, strings.Join(members, ","))
	}
	page := func(more string, tools ...string) string {
		return `{"tools":[` + strings.Join(tools, ",") + `]` + more + `}`
	}
	post, users, channels := tool("slack_post_message", "channel_id", "text"), tool("slack_get_users", "cursor"), tool("slack_list_channels")
	for name, tc := range map[string]struct {
		command string
		says    *says
		pages   []string // of its tools, which it is asked for
		want    string
	}{
		"its package":                             {"npx -y @modelcontextprotocol/server-github", &says{}, nil, "github"},
		"its name":                                {"node /x/index.js", &says{name: "Slack MCP Server"}, nil, "slack"},
		"its package, not its name":               {"npx -y @modelcontextprotocol/server-github", &says{name: "Slack MCP Server"}, nil, "github"},
		"its tools":                               {"node /x/index.js", &says{name: "mine", tools: slack, whole: true}, nil, "slack"},
		"too few of its tools":                    {"node /x/index.js", &says{tools: map[string][]string{"slack_post_message": {"channel_id", "text"}}, whole: true}, nil, "mcp-index"},
		"other arguments":                         {"node /x/index.js", &says{tools: map[string][]string{"slack_post_message": {"channel_id", "text", "also_to"}, "slack_get_users": nil, "slack_list_channels": nil}, whole: true}, nil, "mcp-index"},
		"nothing":                                 {"node /x/index.js", &says{name: "mine", whole: true}, nil, "mcp-index"},
		"tools that nobody has asked for":         {"node /x/srv.js", &says{name: "my slack"}, []string{page("", post, users, channels)}, "slack"},
		"tools on three pages":                    {"node /x/srv.js", &says{name: "my slack"}, []string{page(`,"nextCursor":"1"`, post), page(`,"nextCursor":"2"`, users), page("", channels)}, "slack"},
		"tools of which its client asked for one": {"node /x/srv.js", &says{name: "my slack", tools: map[string][]string{"slack_get_users": {"cursor"}}}, []string{page(`,"nextCursor":"1"`, users), page("", post, channels)}, "slack"},
		"its package, not tools":                  {"npx -y @modelcontextprotocol/server-github", &says{name: "my slack"}, nil, "github"},
		"a package, and tools of no map":          {"npx -y @modelcontextprotocol/server-github", &says{name: "mine"}, nil, "github"},
		"no name and no tools":                    {"node /x/srv.js", &says{}, []string{page("")}, "mcp-srv"},
	} {
		m, err := toolmap.Of("", "", strings.Fields(tc.command))
		if err != nil {
			t.Fatal(err)
		}
		o := withoutDaemon()
		o.Map, o.Given = m, false
		p := newProxy(t.Context(), o)
		p.says = tc.says
		p.accounts = func() []string {
			if tc.pages == nil {
				return nil
			}
			return []string{""}
		}
		asked := 0
		p.spare = func(line []byte, o *observer, _ string) error {
			if asked >= len(tc.pages) || asked > 0 != strings.Contains(string(line), fmt.Sprintf(`"cursor":"%d"`, asked)) {
				t.Errorf("%s: it is asked %s", name, line)
			}
			o.seen(&frame{result: []byte(tc.pages[asked])})
			asked++
			return nil
		}
		if got := p.theMap(); got.Name != tc.want || asked != len(tc.pages) {
			t.Errorf("%s: the map is %s after %d questions, want %s after %d", name, got.Name, asked, tc.want, len(tc.pages))
		}
	}
}

// Until a server lists its tools, the proxy guesses.
func TestTheMapIsFoundLater(t *testing.T) {
	t.Parallel()
	m, err := toolmap.Of("", "", []string{"node", "/x/srv.js"})
	if err != nil {
		t.Fatal(err)
	}
	o := withoutDaemon()
	o.Map, o.Given = m, false
	p := newProxy(t.Context(), o)
	p.accounts = func() []string { return nil }
	if got := p.theMap(); got.Name != "mcp-srv" {
		t.Errorf("the map is %s", got.Name)
	}
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	f, err := parse(line)
	if err != nil {
		t.Fatal(err)
	}
	p.listen(line, &f, "").seen(&frame{result: []byte(`{"tools":[{"name":"slack_post_message","inputSchema":{"properties":{"channel_id":{},"text":{}}}},{"name":"slack_get_users"},{"name":"slack_list_channels"}]}`)})
	if got := p.theMap(); got.Name != "slack" {
		t.Errorf("once it has said, the map is %s", got.Name)
	}
}

// A call is decided by what its tool does: one that only shows a text is a message, one that acts too is
// a tool call and then a message, and any other is a tool call, of which the daemon learns whether a
// text can be read by others.
func TestWhatIsAskedAboutACall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ server, tool, arguments, want string }{
		{"github", "merge_pull_request", `{"owner":"a","repo":"b","pullNumber":5,"commit_message":"We accept your offer"}`, "tool_executing message_sending"},
		{"teams", "create_chat", `{"userEmails":["eve@globex.example","dan@acme.example"],"topic":"We accept your offer"}`, "tool_executing message_sending message_sending"},
		{"github", "add_issue_comment", `{"owner":"a","repo":"b","issue_number":5,"body":"We accept your offer"}`, "message_sending"},
		{"github", "create_gist", `{"filename":"a.md","content":"We accept your offer"}`, "tool_executing unmapped"},
		{"github", "tool_of_a_later_version", `{"about":"We accept your offer"}`, "tool_executing unmapped"},
		{"github", "search_code", `{"query":"accept offer"}`, "tool_executing"},
		{"github", "get_file_contents", `{"owner":"a","repo":"b","path":"a b"}`, "tool_executing"},
	} {
		var mu sync.Mutex
		var asked []string
		o := withAnswers(t, func(r *wire.Request) string {
			if r.Method == "agent.emit" {
				var p struct {
					HookName string
					Data     struct {
						SessionKey string
						Content    string
						Metadata   jsontext.Value
						Unmapped   bool
					}
				}
				if err := json.Unmarshal(r.Params, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, p.HookName)
				if p.Data.Unmapped {
					asked = append(asked, "unmapped")
				}
				if p.HookName == "message_sending" {
					data, _ := json.Marshal(map[string]any{"sessionKey": p.Data.SessionKey, "content": p.Data.Content, "metadata": p.Data.Metadata})
					return fmt.Sprintf(`{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":{"allowed":true,"data":%s}}`, r.ID, data)
				}
			}
			return answerOf(r, nil)
		})
		m, err := toolmap.Of(tc.server, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Map, o.Given = m, true
		reached := false
		address := served(t, o, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			reached = strings.Contains(string(body), "tools/call") && strings.Contains(string(body), tc.tool)
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprint(rw, `{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`)
		})
		said := ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"`+tc.tool+`","arguments":`+tc.arguments+`}}`)
		mu.Lock()
		if got := strings.Join(asked, " "); got != tc.want || !reached {
			t.Errorf("%s is asked about as %q, want %q; the server is reached: %t, %s", tc.tool, got, tc.want, reached, said)
		}
		mu.Unlock()
	}
}

// Clients take any result for success, except that of a tool: other requests are refused by an error.
func TestRefusalsAreErrors(t *testing.T) {
	t.Parallel()
	address := served(t, withoutDaemon(), func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), "tools/list") {
			t.Errorf("the server gets %s", body)
		}
	})
	for method, params := range map[string]string{
		"resources/subscribe": `{"uri":"file:///x"}`, "resources/read": `{"uri":"file:///x"}`, "prompts/get": `{"name":"x"}`, "completion/complete": `{}`, "of/another": `7`, "tools/call": `{"name":"x"}`,
	} {
		said := ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":3,"method":"`+method+`","params":`+params+`}`)
		var answer struct {
			ID     int
			Result jsontext.Value
			Error  struct {
				Code    int
				Message string
				Data    struct{ Code string }
			}
		}
		if err := json.Unmarshal([]byte(said), &answer, json.MatchCaseInsensitiveNames(true)); err != nil || answer.ID != 3 {
			t.Fatalf("%s: %s, %v", method, said, err)
		}
		if method == "tools/call" {
			if !strings.Contains(string(answer.Result), `"isError":true`) {
				t.Errorf("%s is refused by %s", method, said)
			}
			continue
		}
		if answer.Result != nil || answer.Error.Code != refusedCode || answer.Error.Data.Code == "" || !strings.Contains(answer.Error.Message, answer.Error.Data.Code+"): ") {
			t.Errorf("%s is refused by %s", method, said)
		}
	}
}
