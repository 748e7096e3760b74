package mcpproxy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

func TestMapOf(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-slack":                              "slack",
		"npx -y @modelcontextprotocol/server-slack@2025.4.25":                    "slack",
		"node /x/node_modules/@modelcontextprotocol/server-github/dist/index.js": "github",
		"npx mcp-discord":                           "discord",
		"npx mcp-discordant":                        "mcp-mcp-discordant",
		"/usr/bin/python3 /opt/chat/Server_1.py -v": "mcp-server-1",
		"x":     "mcp-x",
		"--- -": "mcp-server",
	} {
		m, err := MapOf("", strings.Fields(command))
		if err != nil || m.Name != want {
			t.Errorf("%s: %+v, %v", command, m, err)
		}
	}
	if m, err := MapOf("gmail", []string{"x"}); err != nil || m.Channel != "email" {
		t.Errorf("by name: %+v, %v", m, err)
	}
	file := filepath.Join(t.TempDir(), "map.yaml")
	for text, good := range map[string]bool{
		"channel: chat\ntools:\n  send: {text: [text], to: [\"{to}\"]}\n": true, "channel: chat\nunmapped: refuse\n": true, "channel: chat\nunmapped: ask\n": true,
		"channel: chat\ntools: {send: {text: [text]}}\n": false, "channel: chat\ntools: {send: {text: [text], to: [to]}}\n": false, "channel: agent\n": false,
		"channel: Chat\n": false, "tools: {}\n": false, "channel: chat\nunmapped: perhaps\n": false, "channel: chat\nmore: 1\n": false, "channel: a\n---\nchannel: b\n": false,
		"channel: chat\ntools: {send: {text: [text], to: [\"{a}{b\"]}}\n": false, "": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := MapOf(file, []string{"x"}); (err == nil) != good {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
	if _, err := MapOf(filepath.Join(t.TempDir(), "none"), nil); err == nil || !strings.Contains(err.Error(), "slack") {
		t.Errorf("a map that is not there: %v", err)
	}
}

func argumentsIn(t testing.TB, object string) []member {
	t.Helper()
	list, err := members([]byte(object), 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRecipients(t *testing.T) {
	mail := &Map{Channel: emailChannel}
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
		// A server reads a number in its own way, and makes addresses of what it is given.
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
	} {
		keys, err := tc.m.recipients(&Tool{To: tc.to}, argumentsIn(t, tc.arguments))
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
}

// What was let go becomes the arguments that were asked for, with what the daemon wrote
// around the texts; what is another text is the only one, or none.
func FuzzMessage(f *testing.F) {
	f.Add("S", "Hello", "", "\n\nSent by user's OpenClaw assistant")
	f.Add("", "a\n\nb", "Sent by user's OpenClaw assistant\n\n", "")
	f.Add("T", "x", "", "")
	f.Add("\n\n", "\n\n", "", "\n\n")
	m := &Map{Channel: "chat"}
	tool := &Tool{Title: []string{"subject"}, Text: []string{"body", "html"}, To: []string{"{to}"}}
	f.Fuzz(func(t *testing.T, subject, body, before, after string) {
		for _, text := range []string{subject, body, before, after} {
			if !utf8.ValidString(text) {
				return // the daemon's texts are UTF-8
			}
		}
		given := map[string]jsontext.Value{"subject": api.String(subject), "body": api.String(body), "to": api.String("dave"), "more": jsontext.Value(`1.50`)}
		text, err := encode(given)
		if err != nil {
			t.Fatal(err)
		}
		c := &toolCall{tool: "send", arguments: argumentsIn(t, string(text))}
		said, err := m.read(tool, c)
		if err != nil {
			t.Fatal(err)
		}
		label := strings.TrimSpace(before + after)
		call, err := encode(&said.call)
		if err != nil {
			t.Fatal(err)
		}
		let := api.EmittedMessage{SessionKey: "chat:dave", Content: before + said.content + after, Metadata: api.Object{"mcp": call, "aiDisclosure": api.String(label)}}
		d, err := readDecided(let.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.arguments()
		if err != nil {
			// It cannot be told where the texts stand; what goes is never guessed.
			return
		}
		var is struct{ Subject, Body, To string }
		back, err := encode(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &is, json.MatchCaseInsensitiveNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Fatal(err)
		}
		if whole := is.Subject + between + is.Body; len(whole) != len(let.Content) || is.To != "dave" || string(got["more"]) != "1.50" {
			t.Errorf("%q became %+v", let.Content, is)
		}
		if before == "" && (after == "" || strings.HasSuffix(let.Content, label)) && label == strings.TrimSpace(after) && is.Subject != subject && after == "" {
			t.Errorf("the subject %q became %q", subject, is.Subject)
		}
	})
}

// Another text takes the place of the only one, and is refused where there are several.
func TestRewritten(t *testing.T) {
	m := &Map{Channel: "chat"}
	for _, tc := range []struct {
		tool      Tool
		arguments string
		want      string
	}{
		{Tool{Text: []string{"text"}, To: []string{"{to}"}}, `{"to":"a","text":"was"}`, `{"text":"is","to":"a"}`},
		{Tool{Text: []string{"text"}, Title: []string{"title"}, To: []string{"{to}"}}, `{"to":"a","text":"was","title":"t"}`, ``},
	} {
		said, err := m.read(&tc.tool, &toolCall{tool: "send", arguments: argumentsIn(t, tc.arguments)})
		if err != nil {
			t.Fatal(err)
		}
		call, err := encode(&said.call)
		if err != nil {
			t.Fatal(err)
		}
		d, err := readDecided(api.EmittedMessage{SessionKey: "chat:a", Content: "is", Metadata: api.Object{"mcp": call}}.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		values, err := d.arguments()
		got, _ := encode(values)
		if err != nil {
			got = nil
		}
		if string(got) != tc.want {
			t.Errorf("%s becomes %s, %v", tc.arguments, got, err)
		}
	}
}

// An argument beside the recipients leads to nobody else.
func TestArgumentsLeadNowhereElse(t *testing.T) {
	t.Parallel()
	m := &Map{Channel: "chat"}
	for arguments, good := range map[string]bool{
		`{"to":"dave","text":"see ../x","message_id":"12"}`: true, `{"to":"dave","text":"a","message_id":"1/../../eve"}`: false, `{"to":"dave","text":"a","at":{"x":["\u002e\u002e/eve"]}}`: false,
		`{"to":"dave","text":"a","name":"a..b"}`: true, `{"to":"dave","text":"a","id":"x%2F..%2Fy"}`: false, `{"to":"dave","text":"a","../x":1}`: true,
	} {
		_, err := m.read(&Tool{Text: []string{"text"}, To: []string{"{to}"}}, &toolCall{arguments: argumentsIn(t, arguments)})
		if (err == nil) != good {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// A call is to so many and no more, however often it names one.
func TestRecipientsOfOneCall(t *testing.T) {
	t.Parallel()
	m := &Map{Channel: "chat"}
	for _, n := range []int{maxRecipients, maxRecipients + 1} {
		var to []string
		for i := range n {
			to = append(to, fmt.Sprintf("%q", fmt.Sprint("d", i)), `"d0"`)
		}
		_, err := m.read(&Tool{Text: []string{"text"}, To: []string{"{to}"}}, &toolCall{arguments: argumentsIn(t, `{"to":[`+strings.Join(to, ",")+`],"text":"a"}`)})
		if (err == nil) != (n <= maxRecipients) {
			t.Errorf("%d recipients: %v", n, err)
		}
	}
}

// What was decided about is what is said, whoever has asked about it.
func TestTextsAreAmongWhatWasDecided(t *testing.T) {
	t.Parallel()
	tool := &Tool{Title: []string{"subject"}, Text: []string{"text"}, To: []string{"{to}"}}
	for call, good := range map[string]bool{
		`{"tool":"send","arguments":{"to":"dave"},"parts":[{"name":"text","bytes":1}],"sum":1}`:               true,
		`{"tool":"send","arguments":{"to":"dave","text":null},"parts":[{"name":"text","bytes":1}],"sum":1}`:   true,
		`{"tool":"send","arguments":{"to":"dave","text":"else"},"parts":[],"sum":1}`:                          false,
		`{"tool":"send","arguments":{"to":"dave","subject":"x"},"parts":[{"name":"text","bytes":1}],"sum":1}`: false,
		`{"tool":"send","arguments":{"to":"dave"},"parts":[],"sum":1}`:                                        false,
		`{"tool":"send","arguments":{},"parts":[{"name":"to","bytes":1},{"name":"text","bytes":1}],"sum":1}`:  false,
	} {
		d, err := readDecided([]byte(`{"sessionKey":"chat:dave","content":"a","metadata":{"mcp":` + call + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.says(tool); (err == nil) != good {
			t.Errorf("%s: %v", call, err)
		}
	}
}
