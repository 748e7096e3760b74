package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// argumentSamples are values of arguments; each argument of a built-in map accepts one.
var argumentSamples = []string{"12", "acme", "C0123ABCD", "1700000000.000100", "19:abc@thread.tacv2", "dave@example.com", "x"}

// argumentsFor are arguments with which the map permits a tool call.
func argumentsFor(t *testing.T, m *toolmap.Map, names ...string) string {
	t.Helper()
	members := make(map[string]string)
	for _, name := range names {
		form := regexp.MustCompile("^(?:" + m.Forms[name] + ")$")
		i := slices.IndexFunc(argumentSamples, func(v string) bool {
			return m.Forms[name] != "" && form.MatchString(v) || m.Forms[name] == "" && v == map[bool]string{true: "dave@example.com", false: "acme"}[m.Channel == toolmap.EmailChannel]
		})
		if i < 0 {
			t.Fatalf("no sample is for the argument %s of %s", name, m.Name)
		}
		members[name] = fmt.Sprintf("%q:%q", name, argumentSamples[i])
	}
	return "{" + strings.Join(slices.Sorted(maps.Values(members)), ",") + "}"
}

var inBraces, optionalPart = regexp.MustCompile(`\{([^{}]+)\}`), regexp.MustCompile(`\[[^\[\]]*\]`)

// namesIn are the mandatory arguments of templates.
func namesIn(templates []string) (names []string) {
	for _, of := range inBraces.FindAllStringSubmatch(optionalPart.ReplaceAllString(strings.Join(templates, " "), ""), -1) {
		names = append(names, of[1])
	}
	return names
}

// If the policy denies everything, no tool of any built-in map is called, whether it sends,
// reads or does neither, and no other request reaches the server.
func TestProxyDeniesEveryToolOfEveryMap(t *testing.T) {
	p := newProxyTrialOf(t, ruled(t, map[string]string{
		"my_own.rego":      "package ocip.tool\n\ndenials contains \"nothing is called\"\n",
		"my_messages.rego": "package ocip.agent_exchange\n\ndenials contains \"nothing is sent\"\n",
	}))
	servers, err := toolmap.Servers()
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		m := servers[name]
		calls := make(map[string]string)
		for tool, of := range m.Tools {
			if of.By != "" {
				// Each value of the argument that chooses is another tool.
				for value, one := range of.Cases {
					given := argumentsFor(t, &m, slices.Concat(one.Text, one.Title, namesIn(one.To))...)
					calls[tool+" "+value] = fmt.Sprintf(`{%q:%q,%s`, of.By, value, given[1:])
				}
				for _, value := range of.Calls {
					calls[tool+" "+value] = fmt.Sprintf(`{%q:%q}`, of.By, value)
				}
				continue
			}
			calls[tool] = argumentsFor(t, &m, slices.Concat(of.Text, of.Title, namesIn(of.To))...)
		}
		for tool, of := range m.Reads {
			calls[tool] = argumentsFor(t, &m, namesIn(of.From)...)
		}
		for _, tool := range m.Calls {
			calls[tool] = "{}"
		}
		s := p.open(append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--map", name, "--"}, p.server()...), asProgram+"=1")
		id := 0
		refuses := func(what, line string) {
			t.Helper()
			s.say(line)
			if text, isError := s.answer(fmt.Sprint(id)); !isError || !strings.Contains(text, "POLICY_DENIED") {
				t.Errorf("%s: %s is answered %q", name, what, text)
			}
			refused++
		}
		for _, tool := range slices.Sorted(maps.Keys(calls)) {
			id++
			name, _, _ := strings.Cut(tool, " ")
			refuses(tool+" "+calls[tool], call(id, name, calls[tool]))
		}
		for _, method := range []string{"resources/read", "resources/subscribe", "prompts/get", "completion/complete", "x/y"} {
			id++
			refuses(method, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"uri":"x:y"}}`+"\n", id, method))
		}
	}
	if got, err := os.ReadFile(p.log); err != nil || len(bytes.TrimSpace(got)) > 0 {
		t.Errorf("the server got %s, %v", got, err)
	}
	var page api.AuditQueryResult
	p.operator("audit.query", map[string]any{"filter": audit.Filter{Like: audit.Record{Code: "POLICY_DENIED"}}, "limit": api.MaxPage}, &page)
	if n := len(page.Records); n != refused || refused < 100 {
		t.Errorf("%d requests were refused, and %d are on record", refused, n)
	}
}

// A server that says it is another one is asked about as if it had said nothing, unless the operator says
// so too.
func TestProxyAsksAboutClaimedMaps(t *testing.T) {
	p := newProxyTrialOf(t, enforcing(t))
	server := newWebServer(t)
	server.info = `,"protocolVersion":"2025-06-18","serverInfo":{"name":"github-mcp-server","version":"1"}`
	const begin = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	lines := []string{call(1, "add_issue_comment", `{"owner":"acme","repo":"widgets","issue_number":12,"body":"Hello"}`), call(2, "search_code", `{"query":"two words"}`), call(3, "search_code", `{"to":"eve","text":"Hello"}`)}
	for name, tc := range map[string]struct {
		args []string
		says []string
		sent int
	}{
		"its own word":               {nil, []string{"HELD", "HELD", "HELD"}, 0},
		"its own word, and no guess": {[]string{"--unmapped", "refuse"}, []string{"UNCLEAR", "HELD", "UNCLEAR"}, 0},
		"the operator's word":        {[]string{"--map", "github"}, []string{"done", "done", "HELD"}, 2},
	} {
		before := len(server.calls())
		command := append([]string{os.Args[0], "mcp-proxy", "--agent", "ann", "--token-file", p.token, "--socket", p.socket, "--hold", "1ms"}, tc.args...)
		s := p.open(append(command, "--listen", "127.0.0.1:0", "--url", server.URL+"/mcp"), asProgram+"=1")
		t.Cleanup(func() { _ = s.cmd.Process.Signal(os.Interrupt) })
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		w := &webTrial{proxyTrial: p, server: server, at: strings.TrimSpace(line)}
		w.post(begin)
		for i, line := range lines {
			if text := w.post(line); !strings.Contains(text, tc.says[i]) {
				t.Errorf("by %s, %s is answered %q", name, line, text)
			}
		}
		if n := len(server.calls()) - before; n != tc.sent {
			t.Errorf("by %s, the server got %d calls", name, n)
		}
	}
	if found := p.records(audit.Record{ActionType: audit.ActionExchange, SessionKey: "github:acme/widgets#12"}); len(found) == 0 || found[0].Details["map"] != "github" {
		t.Errorf("on record are %+v", found)
	}
}
