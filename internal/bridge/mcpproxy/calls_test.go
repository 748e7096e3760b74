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
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// withDaemon are the options of a proxy whose daemon lets tools be called, and withholds what they
// bring in unless it is told when to let it in. A nil let withholds.
func withDaemon(t *testing.T, let func(content string)) *Options {
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
						fmt.Fprintln(conn, answerOf(&r, let))
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

// An answer that is being decided about is not passed when it is said again, by the same stream or
// by another, and after it was let in only to the byte.
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

// The map of a server is found by what the server says of itself, however it was started.
func TestTheMap(t *testing.T) {
	t.Parallel()
	slack := map[string][]string{"slack_post_message": {"channel_id", "text"}, "slack_get_users": {"cursor"}, "slack_list_channels": nil, "more": nil}
	for name, tc := range map[string]struct {
		command string
		says    says
		want    string
	}{
		"its package":               {"npx -y @modelcontextprotocol/server-github", says{}, "github"},
		"its name":                  {"node /x/index.js", says{name: "Slack MCP Server"}, "slack"},
		"its name, not its package": {"npx -y @modelcontextprotocol/server-github", says{name: "Slack MCP Server"}, "slack"},
		"its tools":                 {"node /x/index.js", says{name: "mine", tools: slack}, "slack"},
		"too few of its tools":      {"node /x/index.js", says{tools: map[string][]string{"slack_post_message": {"channel_id", "text"}}}, "mcp-index"},
		"other arguments":           {"node /x/index.js", says{tools: map[string][]string{"slack_post_message": {"channel_id", "text", "also_to"}, "slack_get_users": nil, "slack_list_channels": nil}}, "mcp-index"},
		"nothing":                   {"node /x/index.js", says{name: "mine"}, "mcp-index"},
	} {
		m, err := toolmap.Of("", strings.Fields(tc.command))
		if err != nil {
			t.Fatal(err)
		}
		o := withoutDaemon()
		o.Map, o.Given = m, false
		p := newProxy(t.Context(), o)
		p.says = tc.says
		p.accounts = func() []string { return nil }
		if got := p.theMap(); got.Name != tc.want {
			t.Errorf("%s: the map is %s, want %s", name, got.Name, tc.want)
		}
	}
}
