package toolmap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMapOf(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-slack":                              "slack",
		"npx -y @modelcontextprotocol/server-slack@2025.4.25":                    "slack",
		"node /x/node_modules/@modelcontextprotocol/server-github/dist/index.js": "github",
		"npx mcp-discord":                           "discord",
		"npx mcp-discordant":                        "mcp-mcp-discordant",
		"/usr/bin/python3 /opt/chat/Server_1.py -v": "mcp-server-1",
		// A word that another program is given says nothing of that program.
		"python3 server.py github-mcp-server":                                           "mcp-github-mcp-server",
		"node /x/server.js mcp-discord":                                                 "mcp-mcp-discord",
		"docker run -i --rm evil/server mcp/slack":                                      "mcp-slack",
		"docker run -i -e mcp/slack evil/server":                                        "mcp-server",
		"python3 server.py https://api.githubcopilot.com/mcp":                           "mcp-mcp",
		"docker run -i --rm -e SLACK_BOT_TOKEN --name s mcp/slack":                      "slack",
		"sudo /usr/bin/docker run -it --env=A ghcr.io/github/github-mcp-server:1 stdio": "github",
		"env A=b /opt/github-mcp-server stdio":                                          "github",
		"npx -y mcp-remote https://api.githubcopilot.com/mcp":                           "github",
		"ocipd mcp-connect --url https://api.githubcopilot.com/mcp x":                   "github",
		"api.githubcopilot.com":                                                         "github",
		"npm exec -y -- mcp-discord":                                                    "discord",
		"cmd /c npx -y mcp-discord":                                                     "discord",
		"npx -p @modelcontextprotocol/server-slack mcp-server-slack":                    "slack",
		"npx":   "mcp-npx",
		"x":     "mcp-x",
		"--- -": "mcp-server",
	} {
		m, err := Of("", "", strings.Fields(command))
		if err != nil || m.Name != want {
			t.Errorf("%s: %+v, %v", command, m, err)
		}
	}
	for entry, want := range map[string]string{"Team chat": "mcp-team-chat", "gh.corp": "mcp-gh.corp", "mcp-x": "mcp-mcp-x", "日本": "mcp-index", "": "mcp-index"} {
		m, err := Of("", entry, []string{"node", "/x/index.js"})
		if err != nil || m.Name != want || m.Channel != want {
			t.Errorf("an entry named %q: %+v, %v; its channel is not %s", entry, m, err, want)
		}
	}
	if m, err := Of("", "mine", []string{"npx", "mcp-discord"}); err != nil || m.Channel != "discord" {
		t.Errorf("an entry of a mapped server: %+v, %v; its channel is not the map's", m, err)
	}
	if m, err := Of("gmail", "", []string{"x"}); err != nil || m.Channel != "email" {
		t.Errorf("by name: %+v, %v", m, err)
	}
	file := filepath.Join(t.TempDir(), "map.yaml")
	for text, good := range map[string]bool{
		"channel: chat\ntools:\n  send: {text: [text], to: [\"{to}\"]}\n": true, "channel: chat\nunmapped: refuse\n": true, "channel: chat\nunmapped: ask\n": true,
		"channel: chat\ntools: {send: {text: [text]}}\n": false, "channel: chat\ntools: {send: {text: [text], to: [to]}}\n": false, "channel: agent\n": false,
		"channel: Chat\n": false, "tools: {}\n": false, "channel: chat\nunmapped: perhaps\n": false, "channel: chat\nmore: 1\n": false, "channel: a\n---\nchannel: b\n": false,
		"channel: chat\ntools: {send: {text: [text], to: [\"{a}{b\"]}}\n": false, "": false,
		"channel: chat\ntools: {send: {by: how, cases: {a: {to: [\"{to}\"]}}, calls: [b]}}\n": true, "channel: chat\ntools: {send: {by: how, cases: {a: {text: [text]}}}}\n": false,
		"channel: chat\ntools: {send: {by: how}}\n": false, "channel: chat\ntools: {send: {cases: {a: {to: [\"{to}\"]}}}}\n": false,
		"channel: chat\ntools: {send: {text: [text], by: how, cases: {a: {to: [\"{to}\"]}}}}\n": false, "channel: chat\ntools: {send: {by: how, cases: {a: {to: [\"{to}\"]}}, calls: [a]}}\n": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := Of(file, "", []string{"x"}); (err == nil) != good {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
	if _, err := Of(filepath.Join(t.TempDir(), "none"), "", nil); err == nil || !strings.Contains(err.Error(), "slack") {
		t.Errorf("a map that is not there: %v", err)
	}
}

func argumentsIn(t testing.TB, object string) []Member {
	t.Helper()
	list, err := Members([]byte(object), 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRecipients(t *testing.T) {
	mail := &Map{Channel: EmailChannel}
	chat := &Map{Channel: "chat"}
	for _, tc := range []struct {
		m         *Map
		to        []string
		arguments string
		want      string
	}{
		{chat, []string{"{to}"}, `{"to":"dave"}`, "chat:dave"},
		{chat, []string{"{to}"}, `{"to":["b","a","b"]}`, "chat:a chat:b"},
		{chat, []string{"{to}", "{cc}"}, `{"to":7,"cc":null}`, "chat:7"},
		{chat, []string{"{o}/{r}#{n}"}, `{"o":"a","r":"b","n":12}`, "chat:a/b#12"},
		{chat, []string{"{o}/{r}"}, `{"o":"{r}","r":"b"}`, "chat:{r}/b"},
		// A server parses a number in its own way, and builds URLs from its arguments.
		{chat, []string{"{to}"}, `{"to":1e3}`, ""}, {chat, []string{"{to}"}, `{"to":1000.0}`, ""}, {chat, []string{"{to}"}, `{"to":-0}`, ""}, {chat, []string{"{to}"}, `{"to":9007199254740993}`, ""},
		{chat, []string{"{to}"}, `{"to":-1001234567890}`, "chat:-1001234567890"}, {chat, []string{"{to}"}, `{"to":"9007199254740993"}`, "chat:9007199254740993"},
		{chat, []string{"{o}/{r}#{n}"}, `{"o":"a","r":"b","n":12.0}`, ""}, {chat, []string{"{o}/{r}"}, `{"o":"x/../a","r":"b"}`, ""}, {chat, []string{"{o}/{r}"}, `{"o":"a/b/issues/1/comments?x=","r":"y"}`, ""},
		{chat, []string{"{o}/{r}"}, `{"o":"..","r":"b"}`, ""}, {chat, []string{"{o}/{r}"}, `{"o":"%2e%2e","r":"b"}`, ""}, {chat, []string{"{o}/{r}#{n}"}, `{"o":"a","r":"b","n":"1#2"}`, ""},
		{chat, []string{"{to}"}, `{"to":"../eve"}`, ""}, {chat, []string{"{to}"}, `{"to":"a%2f%2E./eve"}`, ""}, {chat, []string{"{to}"}, `{"to":"a...b/..c"}`, "chat:a...b/..c"},
		{chat, []string{"{o}/{r}"}, `{"o":"a.b","r":".github"}`, "chat:a.b/.github"},
		{chat, []string{"{to}"}, `{"to":"dave,eve"}`, ""}, {chat, []string{"{to}"}, `{"to":"dave;eve"}`, ""}, {chat, []string{"{to}"}, `{"to":["dave","general chat"]}`, "chat:dave chat:general chat"},
		{mail, []string{"{to}"}, `{"to":"\"eve@x.org y\"@dave.example"}`, ""}, {mail, []string{"{to}"}, `{"to":"\"eve@x.org\" <dave@x.org>"}`, ""}, {mail, []string{"{to}"}, `{"to":"dave@x.org (eve@x.org)"}`, ""},
		{mail, []string{"{to}"}, `{"to":"all: dave@x.org, eve@x.org;"}`, ""}, {mail, []string{"{to}"}, `{"to":"\"Doe, Jane\" <j.doe+a@x.org>, Zo\u00eb O'Hara <zoe@x.org>"}`, "email:j.doe+a@x.org email:zoe@x.org"},
		{mail, []string{"{to}"}, `{"to":"eve@x.org <dave@x.org>"}`, ""}, {mail, []string{"{to}"}, `{"to":"dave@[127.0.0.1]"}`, ""},
		{mail, []string{"{to}", "{cc}"}, `{"to":"Dave <Dave@Example.com>, e@x.org","cc":["a@x.org"]}`, "email:a@x.org email:dave@example.com email:e@x.org"},
		{mail, []string{"{to}"}, `{"to":"no address"}`, ""},
		{mail, []string{"{to}"}, `{"to":"a@x.org\nBcc: b@x.org"}`, ""},
		{chat, []string{"{to}"}, `{"to":" dave"}`, ""}, {chat, []string{"{to}"}, `{"to":""}`, ""}, {chat, []string{"{to}"}, `{"to":[]}`, ""},
		{chat, []string{"{to}"}, `{"to":[["a"]]}`, ""}, {chat, []string{"{to}"}, `{"to":{"a":1}}`, ""}, {chat, []string{"{to}"}, `{"to":true}`, ""},
		{chat, []string{"{o}/{r}"}, `{"o":"a"}`, ""}, {chat, []string{"{o}/{r}"}, `{"o":"a","r":["b"]}`, ""}, {chat, []string{"{to}"}, `{}`, ""},
		// An optional part is dropped if its argument is missing.
		{chat, []string{"{o}/{r}[#{n}]"}, `{"o":"a","r":"b"}`, "chat:a/b"}, {chat, []string{"{o}/{r}[#{n}]"}, `{"o":"a","r":"b","n":3}`, "chat:a/b#3"},
		{chat, []string{"{o}/{r}[#{n}]"}, `{"o":"a","r":"b","n":null}`, "chat:a/b"}, {chat, []string{"{o}/{r}[#{n}]"}, `{"o":"a","r":"b","n":"1#2"}`, ""},
		// Another mail program reads this name differently.
		{mail, []string{"{to}"}, `{"to":"=?utf-8?q?eve?=@x.org"}`, ""}, {mail, []string{"{to}"}, `{"to":"=?utf-8?q?eve=40globex.example=3E?= <dave@x.org>"}`, ""}, {mail, []string{"{to}"}, `{"to":"a=b?c@x.org"}`, "email:a=b?c@x.org"},
		{mail, []string{"{to}"}, `{"to":"dave@\uff47lobex.example"}`, ""}, {mail, []string{"{to}"}, `{"to":"dave@globex.example."}`, ""}, {mail, []string{"{to}"}, `{"to":"d\u0430ve@x.org"}`, ""},
	} {
		keys, err := tc.m.Recipients(&Tool{To: tc.to}, argumentsIn(t, tc.arguments))
		if got := strings.Join(keys, " "); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%v of %s: %q, %v", tc.to, tc.arguments, got, err)
		}
	}
}

func TestGuess(t *testing.T) {
	for names, want := range map[string]string{
		"text to": "text > {to}", "body channel_id title": "title body > {channel_id}", "Message ChatID": "Message > {ChatID}", "title to": "title > {to}",
		"query to": "", "text query": "", "": "", "path content": "", "owner repo pull_number body": "body > {pull_number}", "recipient_ids message": "message > {recipient_ids}", "subject body html to cc bcc": "subject body html > {bcc} {cc} {to}",
	} {
		got := ""
		if g := Guess(strings.Fields(names)); g != nil {
			got = strings.Join(slices.Concat(g.Title, g.Text), " ") + " > " + strings.Join(g.To, " ")
		}
		if got != want {
			t.Errorf("%q is guessed as %q, want %q", names, got, want)
		}
	}
	for arguments, want := range map[string]bool{
		`{"data":"hello"}`: false, `{"id":"3f2a-11"}`: false, `{"n":12}`: false, `{"data":{"name":"x","list":["a","b"]}}`: false, `{"data":"hello_world"}`: false,
		`{"data":"hello world"}`: true, `{"data":"` + strings.Repeat("x", 65) + `"}`: true, `{"body":"x"}`: true, `{"data":{"text":"x"}}`: true,
		`{"data":"明日までに払います"}`: true, `{"data":["我保证"]}`: true, `{"data":"Überweisung"}`: true, `{"data":"a\u00a0b"}`: true, `{"data":"a\u2028b"}`: true,
		// A list says a text word by word, or in pieces.
		`{"data":["` + strings.Repeat(`we","`, 30) + `pay"]}`: false, `{"data":["` + strings.Repeat(`we","`, 32) + `pay"]}`: true, `{"data":{"` + strings.Join(numbered(33), `":1,"`) + `":1}}`: true,
		`{"ids":["` + strings.Repeat(`18f2ab3cd45e67a8","`, 50) + `1"]}`: false, `{"ids":["` + strings.Repeat(`QUtJQUlPU0ZPRE5ON1NBTVBMRUQ5","`, 40) + `1"]}`: true, `{"` + strings.Join(numbered(33), `":1,"`) + `":1}`: true,
		`{"data":{"I promise it":1}}`: true, `{"data":{"我保证":1}}`: true, `{"I promise it":true}`: true, `{"約束します":1}`: true, `{"data":{"` + strings.Repeat("x", 65) + `":null}}`: true,
	} {
		if got := SaysText(argumentsIn(t, arguments)...); got != want {
			t.Errorf("%s says a text: %t", arguments, got)
		}
	}
}

// numbered returns n different words.
func numbered(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("word%d", i))
	}
	return list
}

// A text can be the name of a tool that nobody has.
func TestNamesOfToolsSayTexts(t *testing.T) {
	m := builtInMap(t, "slack")
	for tool, want := range map[string]bool{"slack_get_users": false, "slack_new_tool": false, "we agree to pay": true, "我保证": true, strings.Repeat("x", 65): true} {
		if got := m.Shows(tool, nil); got != want {
			t.Errorf("a call of %q shows a text: %t", tool, got)
		}
	}
}

// builtInMap is a map that comes with the program.
func builtInMap(t testing.TB, name string) *Map {
	t.Helper()
	all, err := Servers()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := all[name]
	if !ok {
		t.Fatalf("there is no map %s", name)
	}
	return &m
}

// A status update of a project is a message to the project's readers.
func TestProjectsAreRecipients(t *testing.T) {
	t.Parallel()
	m := builtInMap(t, "github")
	arguments := argumentsIn(t, `{"method":"create_project_status_update","owner":"Acme","project_number":7,"body":"Hello"}`)
	tool, err := m.ToolOf("projects_write", arguments)
	if err != nil || tool == nil {
		t.Fatalf("projects_write is %v, %v", tool, err)
	}
	if err := m.Fits(tool, arguments); err != nil {
		t.Error(err)
	}
	if keys, err := m.Recipients(tool, arguments); err != nil || !slices.Equal(keys, []string{"github:acme/#7"}) {
		t.Errorf("recipients are %q, %v", keys, err)
	}
	if _, err := m.Recipients(tool, argumentsIn(t, `{"owner":"acme","project_number":"7/../8"}`)); err == nil {
		t.Error("a project's number can lead elsewhere")
	}
}

// A webhook writes into the channel that it is in, so it is created and moved by a message to that channel.
func TestWebhooksAreMessagesToTheirChannel(t *testing.T) {
	t.Parallel()
	m := builtInMap(t, "discord")
	for name, arguments := range map[string]string{
		"discord_create_webhook": `{"channelId":"200","name":"news"}`,
		"discord_edit_webhook":   `{"webhookId":"900","webhookToken":"t","channelId":"200","name":"news"}`,
	} {
		tool, err := m.ToolOf(name, argumentsIn(t, arguments))
		if err != nil || tool == nil {
			t.Fatalf("%s is %v, %v", name, tool, err)
		}
		if keys, err := m.Recipients(tool, argumentsIn(t, arguments)); err != nil || !slices.Equal(keys, []string{"discord:200"}) {
			t.Errorf("%s: %q, %v", name, keys, err)
		}
		if _, err := m.Recipients(tool, argumentsIn(t, `{"webhookId":"900","name":"news"}`)); err == nil {
			t.Errorf("%s without a channel has a recipient", name)
		}
	}
}

// An argument that redirects a message is refused: the maps give each argument's permitted values.
func TestNever(t *testing.T) {
	t.Parallel()
	m := builtInMap(t, "gmail")
	for arguments, good := range map[string]bool{
		`{"criteria":{"from":"a@x.org"},"action":{"addLabelIds":["L"]}}`: true, `{"criteria":{"from":"a@x.org"},"action":{"forward":"rival@globex.example"}}`: false,
		`{"criteria":{},"action":{"FORWARD":"rival@globex.example"}}`: false,
	} {
		if err := m.Allows(argumentsIn(t, arguments)); (err == nil) != good {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// What a tool does by one of its arguments is decided by that one: arguments that the server ignores
// then are refused, so that they name no recipient.
func TestCases(t *testing.T) {
	t.Parallel()
	m := builtInMap(t, "github")
	const no = "-"
	for _, tc := range []struct{ tool, arguments, want string }{
		{"issue_write", `{"method":"create","owner":"a","repo":"b","title":"x"}`, "github:a/b"},
		{"issue_write", `{"method":"create","owner":"a","repo":"b","issue_number":5,"title":"x"}`, no},
		{"issue_write", `{"method":"create","owner":"a","repo":"b","title":"x","state":"closed"}`, no},
		{"issue_write", `{"method":"update","owner":"a","repo":"b","issue_number":5,"body":"x"}`, "github:a/b#5"},
		{"issue_write", `{"method":"update","owner":"a","repo":"b","body":"x"}`, no},
		{"issue_write", `{"owner":"a","repo":"b","title":"x"}`, no}, {"issue_write", `{"method":"Create","owner":"a","repo":"b"}`, no}, {"issue_write", `{"method":["create"],"owner":"a","repo":"b"}`, no},
		{"pull_request_review_write", `{"method":"create","owner":"a","repo":"b","pullNumber":5,"body":"x","event":"COMMENT"}`, "github:a/b#5"},
		{"pull_request_review_write", `{"method":"create","owner":"a","repo":"b","pullNumber":5,"body":"x","threadId":"T"}`, no},
		{"pull_request_review_write", `{"method":"delete_pending","owner":"a","repo":"b","pullNumber":5}`, "github:a/b#5"},
		{"pull_request_review_write", `{"method":"delete_pending","owner":"a","repo":"b","pullNumber":5,"body":"x"}`, no},
		{"pull_request_review_write", `{"method":"resolve_thread","threadId":"T"}`, ""},
		{"discussion_comment_write", `{"method":"add","owner":"a","repo":"b","discussionNumber":5,"body":"x"}`, "github:a/b#5"},
		{"discussion_comment_write", `{"method":"update","owner":"a","repo":"b","discussionNumber":5,"body":"x"}`, no},
		{"projects_write", `{"method":"create_project_status_update","owner":"a","project_number":5,"body":"x"}`, "github:a/#5"},
		{"projects_write", `{"method":"delete_project_item","owner":"a","project_number":5,"item_id":6,"body":"x"}`, no},
		{"create_pull_request_review", `{"owner":"a","repo":"b","pull_number":5,"body":"x"}`, "github:a/b#5"},
		{"create_pull_request_review", `{"owner":"a","repo":"b","pull_number":5,"pullNumber":6,"body":"x"}`, no},
	} {
		arguments := argumentsIn(t, tc.arguments)
		got := ""
		tool, err := m.ToolOf(tc.tool, arguments)
		if err == nil && tool != nil {
			if err = m.Fits(tool, arguments); err == nil {
				var keys []string
				keys, err = m.Recipients(tool, arguments)
				got = strings.Join(keys, " ")
			}
		}
		if err != nil {
			got = no
		}
		if got != tc.want {
			t.Errorf("%s %s: %q, %v, want %q", tc.tool, tc.arguments, got, err, tc.want)
		}
	}
	// Nobody makes another case of a call that was read as one.
	tool, err := m.ToolOf("issue_write", argumentsIn(t, `{"method":"create","owner":"a","repo":"b","title":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Fits(tool, argumentsIn(t, `{"method":"update","owner":"a","repo":"b","title":"x"}`)) == nil {
		t.Error("a call becomes another case")
	}
}

// A map that only the server itself claims names recipients and forbids, and permits nothing: its messages
// are marked, and a call of any other tool is what it is without the map.
func TestClaimedMapsOnlyTighten(t *testing.T) {
	t.Parallel()
	claim := func(unmapped string) *Map {
		base, err := Of("", "mine", []string{"node", "/x/server.js"})
		if err != nil {
			t.Fatal(err)
		}
		base.Unmapped = unmapped
		return builtInMap(t, "github").Claim(base)
	}
	const comment = `{"owner":"a","repo":"b","issue_number":5,"body":"x"}`
	for _, tc := range []struct{ unmapped, tool, arguments, want string }{
		{"", "add_issue_comment", comment, "github:a/b#5 claimed"}, {UnmappedPass, "add_issue_comment", comment, "github:a/b#5 claimed"},
		{UnmappedAsk, "add_issue_comment", comment, "github:a/b#5 claimed asks"}, {UnmappedRefuse, "add_issue_comment", comment, "refused"},
		{"", "search_code", `{"to":"eve","text":"x"}`, "mcp-mine:eve guessed"}, {UnmappedRefuse, "search_code", `{"to":"eve","text":"x"}`, "refused"},
		{UnmappedAsk, "get_issue", `{"to":"eve","text":"x"}`, "mcp-mine:eve guessed asks"}, {"", "search_code", `{"query":"x"}`, ""}, {"", "another", `{"to":"eve","text":"x"}`, "mcp-mine:eve guessed"},
		{"", "issue_write", `{"method":"create","owner":"a","repo":"b","issue_number":5,"title":"x"}`, "refused"}, {UnmappedPass, "Add_Issue_Comment", comment, "refused"},
	} {
		m := claim(tc.unmapped)
		arguments := argumentsIn(t, tc.arguments)
		tool, err := m.ToolOf(tc.tool, arguments)
		got := ""
		if err == nil && tool != nil {
			if err = m.Fits(tool, arguments); err == nil {
				var keys []string
				keys, err = m.Recipients(tool, arguments)
				got = strings.Join(keys, " ")
				for word, is := range map[string]bool{" claimed": tool.Claimed, " guessed": tool.Guessed} {
					if is {
						got += word
					}
				}
				if tool.Ask {
					got += " asks"
				}
			}
		}
		if err != nil {
			got = "refused"
		}
		if got != tc.want {
			t.Errorf("%s %s, unmapped %q: %q, %v, want %q", tc.tool, tc.arguments, tc.unmapped, got, err, tc.want)
		}
		query := argumentsIn(t, `{"query":"two words"}`)
		if !m.Shows("search_code", query) || builtInMap(t, "github").Shows("search_code", query) || !m.Known() || !m.Claimed() {
			t.Error("the server confirms its own map")
		}
	}
}

// Names of ASCII alone and others are reduced alike: a lenient reader compares one with the other.
func TestBare(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "", "--": "", "Channel_id-2": "CHANNELID2", "chan\u200bnel": "CHANNEL", "Kelvin \u212a": "KELVINK", "\u017fend": "SEND", "azAZ09": "AZAZ09"} {
		if got := Bare(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
