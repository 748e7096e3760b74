package mcpproxy

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

func argumentsIn(t testing.TB, object string) []toolmap.Member {
	t.Helper()
	list, err := toolmap.Members([]byte(object), 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// An allowed message becomes the original arguments, with the daemon's additions around the
// texts. Rewritten text is possible only if there is one text.
func FuzzMessage(f *testing.F) {
	f.Add("S", "Hello", "", "\n\nSent by user's OpenClaw assistant")
	f.Add("", "a\n\nb", "Sent by user's OpenClaw assistant\n\n", "")
	f.Add("T", "x", "", "")
	f.Add("\n\n", "\n\n", "", "\n\n")
	m := &toolmap.Map{Channel: "chat"}
	tool := &toolmap.Tool{Title: []string{"subject"}, Text: []string{"body", "html"}, To: []string{"{to}"}, With: []string{"more"}}
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
		said, err := read(m, tool, c)
		if strings.ContainsFunc(subject, toolmap.Steers) {
			if err == nil {
				t.Fatalf("the title %q is no line", subject)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		label := strings.TrimSpace(before + after)
		call, err := encode(&said.call)
		if err != nil {
			t.Fatal(err)
		}
		let := api.EmittedMessage{SessionKey: "chat:dave", Content: gate.NewText(before + said.content + after), Metadata: api.Object{"mcp": call, "aiDisclosure": api.String(label)}}
		d, err := readDecided(let.Append(nil), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := d.arguments(tool)
		if err != nil {
			// The positions of the texts are unclear; the proxy must not guess.
			return
		}
		var is struct{ Subject, Body, To string }
		if err := json.Unmarshal(object(got), &is, json.MatchCaseInsensitiveNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Fatal(err)
		}
		if whole := is.Subject + between + is.Body; len(whole) != let.Content.Len() || is.To != "dave" || !strings.Contains(string(object(got)), `"more":1.50`) {
			t.Errorf("%q became %+v", let.Content, is)
		}
		if before == "" && (after == "" || strings.HasSuffix(let.Content.Inspect(), label)) && label == strings.TrimSpace(after) && is.Subject != subject && after == "" {
			t.Errorf("the subject %q became %q", subject, is.Subject)
		}
	})
}

// A rewritten text replaces the only text, and is refused if there are several.
func TestRewritten(t *testing.T) {
	m := &toolmap.Map{Channel: "chat"}
	for _, tc := range []struct {
		tool      toolmap.Tool
		arguments string
		want      string
	}{
		{toolmap.Tool{Text: []string{"text"}, To: []string{"{to}"}}, `{"to":"a","text":"was"}`, `{"text":"is","to":"a"}`},
		{toolmap.Tool{Text: []string{"text"}, Title: []string{"title"}, To: []string{"{to}"}}, `{"to":"a","text":"was","title":"t"}`, ``},
	} {
		said, err := read(m, &tc.tool, &toolCall{tool: "send", arguments: argumentsIn(t, tc.arguments)})
		if err != nil {
			t.Fatal(err)
		}
		call, err := encode(&said.call)
		if err != nil {
			t.Fatal(err)
		}
		d, err := readDecided(api.EmittedMessage{SessionKey: "chat:a", Content: gate.NewText("is"), Metadata: api.Object{"mcp": call}}.Append(nil), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		values, _, err := d.arguments(&tc.tool)
		got := object(values)
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
	m := &toolmap.Map{Channel: "chat"}
	for arguments, good := range map[string]bool{
		`{"to":"dave","text":"see ../x","id":"12"}`: true, `{"to":"dave","text":"a","id":"1/../../eve"}`: false, `{"to":"dave","text":"a","at":{"x":["\u002e\u002e/eve"]}}`: false,
		`{"to":"dave","text":"a","name":"a..b"}`: true, `{"to":"dave","text":"a","id":"x%2F..%2Fy"}`: false, `{"to":"dave","text":"a","at":{"../x":1}}`: true,
	} {
		_, err := read(m, &toolmap.Tool{Text: []string{"text"}, To: []string{"{to}"}, With: []string{"id", "at", "name"}}, &toolCall{arguments: argumentsIn(t, arguments)})
		if (err == nil) != good {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// The number of a call's recipients is limited, however often it names one.
func TestRecipientsOfOneCall(t *testing.T) {
	t.Parallel()
	m := &toolmap.Map{Channel: "chat"}
	for _, n := range []int{maxRecipients, maxRecipients + 1} {
		var to []string
		for i := range n {
			to = append(to, fmt.Sprintf("%q", fmt.Sprint("d", i)), `"d0"`)
		}
		_, err := read(m, &toolmap.Tool{Text: []string{"text"}, To: []string{"{to}"}}, &toolCall{arguments: argumentsIn(t, `{"to":[`+strings.Join(to, ",")+`],"text":"a"}`)})
		if (err == nil) != (n <= maxRecipients) {
			t.Errorf("%d recipients: %v", n, err)
		}
	}
}

// The sent texts are those that were decided about, regardless of who asked.
func TestTextsAreAmongWhatWasDecided(t *testing.T) {
	t.Parallel()
	tool := &toolmap.Tool{Title: []string{"subject"}, Text: []string{"text"}, To: []string{"{to}"}}
	for call, good := range map[string]bool{
		`{"tool":"send","arguments":{"to":"dave"},"parts":[{"name":"text","bytes":1}],"sum":1}`:               true,
		`{"tool":"send","arguments":{"to":"dave","text":null},"parts":[{"name":"text","bytes":1}],"sum":1}`:   true,
		`{"tool":"send","arguments":{"to":"dave","text":"else"},"parts":[],"sum":1}`:                          false,
		`{"tool":"send","arguments":{"to":"dave","subject":"x"},"parts":[{"name":"text","bytes":1}],"sum":1}`: false,
		`{"tool":"send","arguments":{},"parts":[{"name":"to","bytes":1},{"name":"text","bytes":1}],"sum":1}`:  false,
	} {
		d, err := readDecided([]byte(`{"sessionKey":"chat:dave","content":"a","metadata":{"mcp":`+call+`}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.says(tool); (err == nil) != good {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// builtInMap is a map that comes with the program.
func builtInMap(t testing.TB, name string) *toolmap.Map {
	t.Helper()
	all, err := toolmap.Servers()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := all[name]
	if !ok {
		t.Fatalf("there is no map %s", name)
	}
	return &m
}

// For each built-in map, the arguments of its package lead only to the recipients that were
// decided about. The attacks work against the packages' own code.
func TestBuiltInMaps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ server, tool, arguments, want string }{
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"one\ntwo","htmlBody":"<p>\r\n"}`, "email:dave@x.org"},
		{"gmail", "send_email", `{"to":["dave@x.org"],"cc":["a@x.org"],"bcc":["b@x.org"],"subject":"hi","body":"b","mimeType":"text/html","threadId":"18c0ffee","inReplyTo":"<1@x.org>"}`, "email:a@x.org email:b@x.org email:dave@x.org"},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi\r\nBcc: rival@globex.example","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi\nBcc: rival@globex.example","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi\u2028Bcc: rival@globex.example","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi\u0085Bcc: rival@globex.example","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi\u0000","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","inReplyTo":"<1@x.org>\r\nBcc: rival@globex.example"}`, ""},
		{"gmail", "send_email", `{"to":["Dave\r\n\r\nX <dave@x.org>"],"subject":"hi","body":"b"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","mimeType":"text/plain\r\nBcc: rival@globex.example"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","replyTo":"rival@globex.example"}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","headers":{"Bcc":"rival@globex.example"}}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","attachments":["notes"]}`, ""},
		{"gmail", "send_email", `{"to":["dave@x.org"],"subject":"hi","body":"b","attachments":["/home/ann/notes"]}`, "email:dave@x.org"},
		{"gmail", "draft_email", `{"to":["dave@x.org"],"subject":"hi\r\nBcc: rival@globex.example","body":"b"}`, ""},
		{"resend", "send-email", `{"to":"dave@x.org","subject":"hi","text":"b","from":"ann@x.org","scheduledAt":"in 2 hours"}`, "email:dave@x.org"},
		{"resend", "send-email", `{"to":"dave@x.org","subject":"hi","text":"b","from":"Ann\r\nBcc: rival@globex.example <ann@x.org>"}`, ""},
		{"resend", "send-email", `{"to":"dave@x.org","subject":"hi","text":"b","replyTo":["rival@globex.example"]}`, ""},
		// The second of two names of a channel is not in the directory.
		{"slack", "slack_post_message", `{"channel_id":"C1","text":"a\nb"}`, "slack:C1"},
		{"slack", "slack_post_message", `{"channel_id":"#general","text":"a"}`, ""}, {"slack", "slack_post_message", `{"channel_id":"general","text":"a"}`, ""},
		{"slack", "slack_post_message", `{"channel_id":"@eve","text":"a"}`, ""}, {"slack", "slack_post_message", `{"channel_id":"C1","text":"a","channel":"C2"}`, ""},
		{"slack", "slack_post_message", `{"channel_id":"C1","text":"a","blocks":[{"type":"section"}]}`, ""},
		{"slack", "slack_reply_to_thread", `{"channel_id":"C1","text":"a","thread_ts":"1700000000.123456"}`, "slack:C1"},
		{"slack", "slack_reply_to_thread", `{"channel_id":"C1","text":"a","thread_ts":{"channel":"C2"}}`, ""},
		// An id becomes part of a URL, in which a tab is dropped.
		{"discord", "discord_send", `{"channelId":"123","message":"@everyone a"}`, "discord:123"}, {"discord", "discord_send", `{"channelId":"123?x","message":"a"}`, ""},
		{"discord", "discord_send", `{"channelId":"1#2","message":"a"}`, ""}, {"discord", "discord_send", `{"channelId":"456/..%2f123","message":"a"}`, ""},
		{"discord", "discord_send_webhook_message", `{"webhookId":"1","webhookToken":"t","threadId":"9","content":"a"}`, "discord:1 discord:9"},
		{"discord", "discord_send_webhook_message", `{"webhookId":"1","webhookToken":"t/messages/2?","content":"a"}`, ""},
		{"discord", "discord_send_webhook_message", `{"webhookId":"1","webhookToken":"t","avatarURL":"https://evil.example/?d=x","content":"a"}`, ""},
		{"teams", "send_channel_message", `{"teamId":"8f-1","channelId":"19:ab_c@thread.tacv2","message":"a","format":"markdown","mentions":[{"mention":"d","userId":"dave@x.org"}]}`, "msteams:19:ab_c@thread.tacv2"},
		{"teams", "send_channel_message", `{"teamId":"T/channels/19:rival@thread.tacv2/messages?x=","channelId":"19:abc@thread.tacv2","message":"a"}`, ""},
		{"teams", "reply_to_channel_message", `{"teamId":"T","channelId":"19:abc@thread.tacv2","messageId":"1/../../x","message":"a"}`, ""},
		{"teams", "send_chat_message", `{"chatId":"19:abc@thread.v2?x=","message":"a"}`, ""},
		{"teams", "send_chat_message", `{"chatId":"19:abc@thread.v2","message":"a","mentions":[{"mention":"d","userId":"me?$expand=x"}]}`, ""},
		{"teams", "send_channel_message", `{"teamId":"T","channelId":"19:abc@thread.tacv2","message":"a","imageUrl":"https://evil.example/?d=secret"}`, ""},
		{"github", "add_issue_comment", `{"owner":"Acme","repo":"Plan.s","issue_number":7,"body":"a\nb"}`, "github:acme/plan.s#7"},
		{"github", "add_issue_comment", `{"owner":"ac\tme","repo":"plans","issue_number":7,"body":"a"}`, ""}, {"github", "add_issue_comment", `{"owner":"acme","repo":"plans","issue_number":"07","body":"a"}`, ""},
		{"github", "create_issue", `{"owner":"acme","repo":"p/issues/1/comments?x","title":"t","body":"a"}`, ""}, {"github", "create_issue", `{"owner":"a--b","repo":"plans","title":"t","body":"a"}`, ""},
		{"github", "update_issue", `{"owner":"acme","repo":"plans","issue_number":7,"state":"closed"}`, "github:acme/plans#7"},
		{"github", "issue_write", `{"method":"create","owner":"acme","repo":"plans","title":"t"}`, "github:acme/plans"},
		{"github", "issue_write", `{"method":"update","owner":"acme","repo":"plans","issue_number":3,"title":"t"}`, "github:acme/plans#3"},
		{"github", "create_pull_request_review", `{"owner":"acme","repo":"plans","pull_number":3,"body":"a","event":"COMMENT","comments":[{"path":"x","line":1,"body":"one\ntwo"}]}`, "github:acme/plans#3"},
		{"github", "add_reply_to_pull_request_comment", `{"owner":"acme","repo":"plans","pullNumber":3,"commentId":9,"body":"a"}`, "github:acme/plans"},
		{"github", "add_reply_to_pull_request_comment", `{"owner":"acme","repo":"plans","pullNumber":"3/../4","commentId":9,"body":"a"}`, ""},
		{"github", "discussion_comment_write", `{"method":"reply","owner":"acme","repo":"plans","discussionNumber":3,"body":"a","commentNodeID":"DC_rival"}`, ""},
	} {
		m := builtInMap(t, tc.server)
		if _, ok := m.Tools[tc.tool]; !ok {
			t.Errorf("%s has no tool %s", tc.server, tc.tool)
			continue
		}
		c := &toolCall{tool: tc.tool, arguments: argumentsIn(t, tc.arguments)}
		got := ""
		tool, err := m.ToolOf(c.tool, c.arguments)
		if err == nil {
			var said *message
			if said, err = read(m, tool, c); err == nil {
				got = strings.Join(said.to, " ")
			}
		}
		if got != tc.want {
			t.Errorf("%s %s: to %q, want %q: %v", tc.tool, tc.arguments, got, tc.want, err)
		}
	}
}

// For a guessed tool, the use of its arguments is unknown, so only texts may contain line ends.
func TestGuessedToolsHaveLines(t *testing.T) {
	t.Parallel()
	m := &toolmap.Map{Channel: "mcp-mail"}
	for arguments, good := range map[string]bool{
		`{"to":"dave","subject":"hi","body":"a\nb","more":{"x":["one"]}}`: true, `{"to":"dave","subject":"hi\r\nBcc: eve","body":"a"}`: false,
		`{"to":"dave","body":"a","more":{"x":["one\ntwo"]}}`: false, `{"to":"dave","body":"a","more":{"x\n":1}}`: false, `{"to":"dave\u2029","body":"a"}`: false,
	} {
		c := &toolCall{tool: "send", arguments: argumentsIn(t, arguments)}
		tool, err := m.ToolOf(c.tool, c.arguments)
		if err != nil || tool == nil {
			t.Fatalf("%s is no message: %v", arguments, err)
		}
		if _, err := read(m, tool, c); (err == nil) != good {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// A call without texts is decided as the call that it is, and cannot become another one.
func TestCallsWithoutTexts(t *testing.T) {
	t.Parallel()
	m := builtInMap(t, "github")
	tool := m.Tools["update_issue"]
	said, err := read(m, &tool, &toolCall{tool: "update_issue", arguments: argumentsIn(t, `{"owner":"acme","repo":"plans","issue_number":7,"labels":["late"]}`)})
	if err != nil || !strings.Contains(said.content, `"late"`) {
		t.Fatalf("%+v, %v", said, err)
	}
	call, err := encode(&said.call)
	if err != nil {
		t.Fatal(err)
	}
	for content, good := range map[string]bool{said.content: true, said.content + "\n\nlabel": true, said.content + " and more": false, "another text": false} {
		d, err := readDecided(api.EmittedMessage{SessionKey: "github:acme/plans#7", Content: gate.NewText(content), Metadata: api.Object{"mcp": call, "aiDisclosure": api.String("label")}}.Append(nil), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		values, _, err := d.arguments(&tool)
		if got := object(values); (err == nil) != good || good && string(got) != string(said.call.Arguments) {
			t.Errorf("%q becomes %s, %v", content, got, err)
		}
	}
}

// A whole number that an interceptor changed is noticed, also where a double does not tell the two apart.
func TestNumbersAreComparedByDigits(t *testing.T) {
	t.Parallel()
	c, err := parseCall([]byte(`{"name":"note","arguments":{"id":9007199254740993,"n":1.0}}`), &frame{params: span{0, 59}})
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{
		`{"params":{"n":1,"id":9007199254740993}}`: "", `{"params":{"id":9007199254740992,"n":1}}`: `{"id":9007199254740992,"n":1}`,
	} {
		if now, no := changed(c, jsontext.Value(data)); string(now) != want || no != nil {
			t.Errorf("%s changes the call to %s, %v", data, now, no)
		}
	}
}

// Only a call that comes back as it was asked about is not checked again: each other spelling, and each change of
// a text, is.
func TestChangedCallsAreCheckedAgain(t *testing.T) {
	t.Parallel()
	m := &toolmap.Map{Channel: "chat"}
	tool := &toolmap.Tool{Title: []string{"subject"}, Text: []string{"body"}, To: []string{"{to}"}, With: []string{"more"}}
	said, err := read(m, tool, &toolCall{tool: "send", arguments: argumentsIn(t, `{"subject":"S","body":"B","to":"dave","more": { "a" : "\ud800\u0041" }}`)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"more":{"a":"` + "\ufffd" + `A"},"to":"dave"}`; string(said.call.Arguments) != want {
		t.Errorf("the daemon is asked about %s, want %s", said.call.Arguments, want)
	}
	call, err := encode(&said.call)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		content, call string
		again         bool
	}{
		{said.content, string(call), false}, {said.content + "\n\nlabel", string(call), false}, {said.content, strings.Replace(string(call), "dave", "rival", 1), true},
		{said.content, strings.Replace(string(call), `"a"`, `"b"`, 1), true},
	} {
		let := api.EmittedMessage{SessionKey: "chat:dave", Content: gate.NewText(tc.content), Metadata: api.Object{"mcp": jsontext.Value(tc.call), "aiDisclosure": api.String("label")}}
		d, err := readDecided(let.Append(nil), said, call)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := d.arguments(tool); err != nil || again != tc.again {
			t.Errorf("%s of %s is checked again: %t, %v", tc.content, tc.call, again, err)
		}
	}
	one, err := read(m, &toolmap.Tool{Title: []string{"subject"}, To: []string{"{to}"}}, &toolCall{tool: "send", arguments: argumentsIn(t, `{"subject":"S","to":"dave"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if call, err = encode(&one.call); err != nil {
		t.Fatal(err)
	}
	d, err := readDecided(api.EmittedMessage{SessionKey: "chat:dave", Content: gate.NewText("S\r\nBcc: rival"), Metadata: api.Object{"mcp": call}}.Append(nil), one, call)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := d.arguments(&toolmap.Tool{}); err != nil || !again {
		t.Errorf("a title that was rewritten is checked again: %t, %v", again, err)
	}
}

// A path in a repository is no file of this machine, and the server gets it under its own name. A path that can be
// one of this machine stays one.
func TestPlacesOfTheService(t *testing.T) {
	t.Parallel()
	m, err := toolmap.Of("github", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		tool, arguments string
		file            bool
	}{
		{"add_comment_to_pending_review", `{"body":"Typo","line":3,"owner":"acme","path":"README.md","pullNumber":7,"repo":"plans"}`, false},
		{"add_comment_to_pending_review", `{"body":"Typo","line":3,"owner":"acme","path":".github/workflows/ci.yml","pullNumber":7,"repo":"plans"}`, false},
		{"add_pull_request_review_comment", `{"body":"Typo","line":3,"owner":"acme","path":"/etc/passwd","pullNumber":7,"repo":"plans"}`, true},
		{"create_pull_request_review", `{"body":"Typo","comments":[{"path":"docs/a.md","position":1,"body":"Here"},{"path":"b.go","position":2,"body":"And here"}],"event":"COMMENT","owner":"acme","pull_number":7,"repo":"plans"}`, false},
	} {
		tool := m.Tools[tc.tool]
		said, err := read(m, &tool, &toolCall{tool: tc.tool, arguments: argumentsIn(t, tc.arguments)})
		if err != nil {
			t.Fatal(err)
		}
		call, err := encode(&said.call)
		if err != nil {
			t.Fatal(err)
		}
		if got := media.Mentioned(api.Object{"mcp": call}); got != tc.file {
			t.Errorf("%s names a file: %t", call, got)
		}
		d, err := readDecided(api.EmittedMessage{SessionKey: said.to[0], Content: gate.NewText(said.content), Metadata: api.Object{"mcp": call}}.Append(nil), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		values, _, err := d.arguments(&tool)
		if got := object(values); err != nil || string(got) != tc.arguments {
			t.Errorf("the server gets %s, want %s, %v", got, tc.arguments, err)
		}
	}
	tool := m.Tools["create_pull_request_review"]
	if said, err := read(m, &tool, &toolCall{tool: "x", arguments: argumentsIn(t, `{"owner":"acme","repo":"plans","pull_number":7,"body":"b","comments":[{"path-inService":"a","path":"/b"}]}`)}); err == nil {
		t.Errorf("two members of one name become %s", said.call.Arguments)
	}
}

// A stored call whose parts have impossible lengths is refused.
func TestImpossibleParts(t *testing.T) {
	t.Parallel()
	tool := &toolmap.Tool{Title: []string{"subject"}, Text: []string{"body"}, To: []string{"{to}"}}
	for _, lengths := range [][2]int{{-2, 9}, {9, -2}, {1 << 62, 1 << 62}} {
		d := &decided{call: kept{Tool: "send", Arguments: jsontext.Value(`{"to":"dave"}`), Parts: []part{{Name: "subject", Bytes: lengths[0]}, {Name: "body", Bytes: lengths[1]}}}}
		d.Content = api.Said("abcdefghi")
		d.call.Sum = crc32.ChecksumIEEE([]byte("abcdefghi"))
		if _, _, err := d.arguments(tool); !errors.Is(err, toolmap.ErrUnclear) {
			t.Errorf("%v: %v", lengths, err)
		}
	}
}
