package toolgate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api/client"
)

// deaf is a gate without a daemon.
func deaf(without ...string) *Gate {
	o := &Options{Runtime: "codex", Without: without, Log: slog.New(slog.DiscardHandler), Dial: func(context.Context) (*client.Client, error) { return nil, client.ErrNotRunning }}
	return New(o)
}

func said(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }

// A call that cannot be decided is refused, in the format of the hook or as an error.
func TestNothingIsLetGoUndecided(t *testing.T) {
	g := deaf("slack", "user:github")
	for _, tt := range []struct {
		name, arguments, want string
		isError               bool
	}{
		{"a tool of the runtime", `{"event":"PreToolUse","tool":"Bash","input":{"command":"ls"}}`, `"permissionDecision":"deny"`, false},
		{"with its input as a text", `{"event":"PreToolUse","tool":"Bash","input":"{\"command\":\"ls\"}"}`, `"permissionDecision":"deny"`, false},
		{"a request for permission", `{"event":"PermissionRequest","tool":"mcp__web__x","input":{}}`, `"behavior":"deny"`, false},
		{"of a server that the proxy decides about", `{"event":"PreToolUse","tool":"mcp__slack__send","input":{}}`, `{}`, false},
		{"of that server, where no proxy is asked", `{"event":"PermissionRequest","tool":"mcp__slack__send","input":{}}`, `"behavior":"deny"`, false},
		{"of a server in the user's list", `{"event":"PreToolUse","tool":"mcp__github__x","source":"user","input":{}}`, `{}`, false},
		{"of its namesake in a project's list", `{"event":"PreToolUse","tool":"mcp__github__x","source":"project","input":{}}`, `"deny"`, false},
		{"of a server with the name of a list and a server", `{"event":"PreToolUse","tool":"mcp__user:github__x","source":"project","input":{}}`, `"deny"`, false},
		{"of a server without a list", `{"event":"PreToolUse","tool":"mcp__user:github__x","input":{}}`, `"deny"`, false},
		{"of a list with a colon", `{"event":"PreToolUse","tool":"mcp__github__x","source":"x:user","input":{}}`, `"deny"`, false},
		{"of the gate", `{"event":"PreToolUse","tool":"mcp__ocipd-gate__decide","input":{}}`, `for the runtime alone`, false},
		{"of the gate, as Codex writes it", `{"event":"PreToolUse","tool":"mcp__ocipd_gate__decide","input":{}}`, `for the runtime alone`, false},
		{"a canary", `{"event":"PreToolUse","tool":"mcp__ocipd-canary__send","input":{"to":"x","text":"t"}}`, `the canary could not be decided`, false},
		{"a canary to nobody", `{"event":"PreToolUse","tool":"mcp__ocipd-canary__send","input":{}}`, `"permissionDecision":"deny"`, false},
		{"of another event", `{"event":"PostToolUse","tool":"Bash","input":{}}`, "hooks of", true},
		{"of no tool", `{"event":"PreToolUse","tool":"","input":{}}`, "names no tool", true},
		{"with an input that is none", `{"event":"PreToolUse","tool":"Bash","input":"ls"}`, "no JSON object", true},
		{"with a list", `{"event":"PreToolUse","tool":"Bash","input":[]}`, "no JSON object", true},
		{"that says its tool twice", `{"event":"PreToolUse","tool":"Bash","tool":"Read","input":{}}`, "cannot read", true},
		{"no question", `7`, "cannot read", true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		got := g.use(ctx, []byte(tt.arguments))
		cancel()
		if got.IsError != tt.isError || !strings.Contains(said(got), tt.want) {
			t.Errorf("%s: %t, %s", tt.name, got.IsError, said(got))
		}
		if why := Undecided(said(got)); (why != "") != (tt.name == "a canary") || strings.HasSuffix(why, "}") {
			t.Errorf("%s: undecided because of %q", tt.name, why)
		}
	}
}

// A call that was allowed before is not asked about again at its request for permission, once.
func TestAskedOnceForBothHooks(t *testing.T) {
	g := deaf()
	ask := func(input string) *mcp.CallToolResult {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return g.use(ctx, []byte(`{"event":"PermissionRequest","tool":"mcp__web__x","session":"s","cwd":"/w","input":`+input+`}`))
	}
	q, err := read([]byte(`{"event":"PreToolUse","tool":"mcp__web__x","session":"s","cwd":"/w","input":{"a":1,"b":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	g.remember(q.key())
	if got := said(ask(`{"a":1,"b":3}`)); !strings.Contains(got, `"deny"`) {
		t.Errorf("another call: %s", got)
	}
	if got := said(ask(`{"b":2,"a":1}`)); !strings.Contains(got, `"behavior":"allow"`) {
		t.Errorf("the same call: %s", got)
	}
	if got := said(ask(`{"b":2,"a":1}`)); !strings.Contains(got, `"deny"`) {
		t.Errorf("the same call again: %s", got)
	}
	q.Input = []byte(`{"id":9007199254740992}`)
	g.remember(q.key())
	if got := said(ask(`{"id":9007199254740993}`)); !strings.Contains(got, `"deny"`) {
		t.Errorf("a number that a double does not tell from the allowed one: %s", got)
	}
}

// The machine's gate gets the prompts of all servers, and answers only those that were entered for it.
func TestPromptsOfOthersAreTheUsers(t *testing.T) {
	g := deaf()
	g.o.Prompts = []string{"web"}
	for tool, want := range map[string]string{"mcp__web__x": `"behavior":"deny"`, "mcp__mine__x": "{}", "Bash": "{}"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		got := said(g.use(ctx, []byte(`{"event":"PermissionRequest","tool":"`+tool+`","input":{}}`)))
		cancel()
		if !strings.Contains(got, want) || want == "{}" && got != want {
			t.Errorf("%s: %s", tool, got)
		}
	}
}

func TestChangedByAnInterceptor(t *testing.T) {
	for data, want := range map[string]bool{`{"params":{"a":1,"b":2}}`: false, `{"params":{"b":2, "a":1},"x":1}`: false, `{"params":{"a":1}}`: true, `{}`: true, `[]`: true} {
		if got := changed([]byte(data), []byte(`{"a":1,"b":2}`)); got != want {
			t.Errorf("%s: %t", data, got)
		}
	}
	if !changed([]byte(`{"params":{"id":9007199254740992}}`), []byte(`{"id":9007199254740993}`)) {
		t.Error("a number that a double does not tell from the call's counts as unchanged")
	}
	if !errors.Is(deaf().wait(t.Context(), "id", time.Now()), errWaits) {
		t.Error("nobody has decided, and it waits no more")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"event":"PreToolUse","tool":"Bash","input":"{}"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := read(raw)
		if err == nil && (q.Tool == "" || q.Input.Kind() != '{') {
			t.Fatalf("%q was read as %+v", raw, q)
		}
	})
}

// A tool whose name could belong to another server is asked about.
func TestAmbiguousNamesAreAskedAbout(t *testing.T) {
	t.Parallel()
	g := deaf("user:gh", "user:gh__x")
	for tool, asked := range map[string]bool{
		"mcp__gh__push": false, "mcp__gh__push_": false, "mcp__gh__x__push": true,
		// Of a server gh_, gh. or gh!, in the runtimes' spelling.
		"mcp__gh___push": true, "mcp__gh____push": true, "mcp__gh__": true, "mcp____push": true,
	} {
		q := map[string]any{"event": Before, "tool": tool, "input": map[string]any{}, "source": "user"}
		raw, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		got := g.use(ctx, raw)
		cancel()
		if text := got.Content[0].(*mcp.TextContent).Text; strings.Contains(text, "deny") != asked {
			t.Errorf("%s is answered %s", tool, text)
		}
	}
}

// A name that can be of several servers is asked about as a tool of each: a policy for one of them holds.
func TestReadingsOfAName(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string][]reading{
		"Bash":                {{"", "Bash"}},
		"mcp__gh__push":       {{"gh", "push"}},
		"mcp__gh__x__push":    {{"gh", "x__push"}, {"gh__x", "push"}},
		"mcp__gh___push":      {{"gh", "_push"}, {"gh_", "push"}},
		"mcp__gh":             {{"", "mcp__gh"}},
		"mcp____Bash":         {{"", "mcp____Bash"}},
		"mcp__gh__":           {{"gh", ""}},
		"mcp__gh__x__":        {{"gh", "x__"}},
		"mcp__a__b__c__d__e":  {{"a", "b__c__d__e"}, {"a__b", "c__d__e"}, {"a__b__c", "d__e"}, {"a__b__c__d", "e"}},
		"mcp__a_____________": nil,
	} {
		got, err := (&Question{Tool: tool}).readings()
		if (err != nil) != (want == nil) || want != nil && !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", tool, got, err)
		}
	}
	if got, err := (&Question{Tool: "a-b-c", Server: "a", Name: "b-c"}).readings(); err != nil || !slices.Equal(got, []reading{{"a", "b-c"}}) {
		t.Errorf("with a server that the runtime names: %v, %v", got, err)
	}
}

// A tool of an MCP server that takes text counts as unmapped, as behind the proxy: with tools:
// enforce, a person is asked. A tool of the runtime itself does not.
func TestToolsOfServersAreUnmapped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tool, input string
		unmapped    bool
	}{
		{"mcp__slack__slack_post_message", `{"channel_id":"C1","text":"hello"}`, true},
		{"mcp__slack__post", `{"where":"C1","what":"hello there"}`, true},
		{"mcp__slack__post", `{"hello there":1}`, true},
		{"mcp__slack__post", `{"a":{"body":"x"}}`, true},
		{"mcp__slack__post", `{"text":"x","Text":"y"}`, true},
		{"mcp__slack", `{"text":"hello"}`, true},
		{"mcp__slack__list", `{"channel_id":"C1","limit":3}`, false},
		{"Bash", `{"command":"echo hello there"}`, false},
	} {
		q, err := read([]byte(`{"event":"PreToolUse","tool":"` + tt.tool + `","input":` + tt.input + `}`))
		if err != nil {
			t.Fatal(err)
		}
		as, err := q.readings()
		if err != nil || len(as) != 1 {
			t.Fatalf("%s: %v, %v", tt.tool, as, err)
		}
		if got := string(q.data("codex", as[0])["unmapped"]) == "true"; got != tt.unmapped {
			t.Errorf("%s %s: %t", tt.tool, tt.input, got)
		}
	}
}
