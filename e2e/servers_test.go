//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// walled is a company whose competitor reads a room of Slack and a repository.
const walled = team + `directory:
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex, accepts: [public], sessions: ["slack:C1", "github:globex/plans*", "email:rival@globex.example"]}
`

// docker writes a stand-in for docker, and returns its path: it runs the program that the variable IN_IMAGE names, and
// none of an image.
func (r *trial) docker() string {
	r.t.Helper()
	if err := os.WriteFile(r.at("docker"), []byte("#!/bin/sh\nexec $IN_IMAGE\n"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	return r.at("docker")
}

// A server has the same map and the same recipients however it is started: by its package, by its
// program, by a file of another name, where it says itself what it is, and in a container. Without
// the daemon none of its tools is called.
func TestServersHaveTheirMaps(t *testing.T) {
	node, err := filepath.Abs("node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	r := beginWith(t, walled, node)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	docker := r.docker()
	// The Gmail server wants to be logged in before it says anything.
	r.write(".gmail-mcp/gcp-oauth.keys.json", `{"installed":{"client_id":"x","client_secret":"y","redirect_uris":["http://localhost:3000/oauth2callback"]}}`)
	r.write(".gmail-mcp/credentials.json", `{"access_token":"a","refresh_token":"b"}`)
	const (
		blocked = "CROSS_ENTERPRISE_BLOCKED"
		unclear = "UNCLEAR"
	)
	use := func(tool, arguments string) string {
		return `"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}`
	}
	servers := []struct {
		name, pkg, program string
		args               []string
		image              string
		env                []string
		// says are the answers to calls, and quiet is a tool that sends nothing.
		says  [][2]string
		quiet string
	}{
		{"slack", "@modelcontextprotocol/server-slack", "mcp-server-slack", nil, "mcp/slack", []string{"SLACK_BOT_TOKEN=x", "SLACK_TEAM_ID=T1"}, [][2]string{
			{use("slack_post_message", `{"channel_id":"C1","text":"Hello"}`), blocked},
			{use("slack_post_message", `{"channel_id":"#general","text":"Hello"}`), unclear},
			{use("slack_post_message", `{"channel_id":"C2","text":"Hello","blocks":[]}`), unclear},
		}, "slack_list_channels"},
		{"github", "@modelcontextprotocol/server-github", "mcp-server-github", nil, "mcp/github", nil, [][2]string{
			{use("create_issue", `{"owner":"Globex","repo":"Plans","title":"Hello","body":"there"}`), blocked},
			{use("update_issue", `{"owner":"globex","repo":"plans","issue_number":1,"labels":["hello"]}`), blocked},
			{use("create_issue", `{"owner":"acme","repo":"p?x=","title":"Hello"}`), unclear},
		}, "search_repositories"},
		{"github", "", "github-mcp-server", []string{"stdio"}, "ghcr.io/github/github-mcp-server", []string{"GITHUB_PERSONAL_ACCESS_TOKEN=x"}, [][2]string{
			{use("issue_write", `{"method":"create","owner":"Globex","repo":"Plans","title":"Hello","body":"there"}`), blocked},
			{use("add_issue_comment", `{"owner":"globex","repo":"plans","issue_number":1,"body":"hello"}`), blocked},
			{use("add_reply_to_pull_request_comment", `{"owner":"globex","repo":"plans","pullNumber":1,"commentId":2,"body":"hello"}`), blocked},
			{use("add_issue_comment", `{"owner":"acme","repo":"plans","issue_number":"1/../2","body":"hello"}`), unclear},
		}, "get_me"},
		{"gmail", "@gongrzhe/server-gmail-autoauth-mcp", "gmail-mcp", nil, "mcp/gmail", nil, [][2]string{
			{use("send_email", `{"to":["dave@acme.example"],"bcc":["Eve <Rival@globex.example>"],"subject":"hi","body":"hello"}`), blocked},
			{use("send_email", `{"to":["dave@acme.example"],"subject":"hi\r\nBcc: rival@globex.example","body":"hello"}`), unclear},
			{use("draft_email", `{"to":["dave@acme.example"],"subject":"hi","body":"hello","inReplyTo":"<1@x>\nBcc: rival@globex.example"}`), unclear},
			{use("send_email", `{"to":["dave@acme.example"],"subject":"hi","body":"hello","attachments":["notes"]}`), unclear},
			{use("create_filter", `{"criteria":{"from":"dave@acme.example"},"action":{"forward":"rival@globex.example"}}`), unclear},
		}, "list_email_labels"},
	}
	proxied := func(env, command []string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), r.ocipd, append([]string{"mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--"}, command...)...)
		cmd.Env, cmd.Dir = env, r.dir
		return cmd
	}
	var without []func()
	for _, tc := range servers {
		var commands [][]string
		program := append([]string{filepath.Join(r.node, tc.program)}, tc.args...)
		commands = append(commands, program, []string{docker, "run", "-i", "--rm", "-e", "X", tc.image})
		if tc.pkg != "" {
			file := filepath.Join(filepath.Dir(r.node), tc.pkg, "dist", "index.js")
			link := r.at(tc.name + "/index.js")
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(file, link); err != nil {
				t.Fatal(err)
			}
			commands = append(commands, []string{"node", file}, []string{"node", link})
		}
		env := append(r.env(append([]string{"HOME=" + r.dir, "IN_IMAGE=" + strings.Join(program, " ")}, tc.env...)...), "GMAIL_OAUTH_PATH=")
		for _, command := range commands {
			var requests []string
			for _, say := range tc.says {
				requests = append(requests, say[0])
			}
			for i, answer := range calls(t, proxied(env, command), requests...) {
				if !strings.Contains(answer, tc.says[i][1]) {
					t.Errorf("%s by %s: %s is answered %s", tc.name, command, requests[i], answer)
				}
			}
			shown := r.must(env, r.ocipd, append([]string{"mcp-proxy", "explain", "--"}, command...)...)
			if !strings.Contains(shown, "# The map "+tc.name+" is in force.") || strings.Contains(shown, "guess") || strings.Contains(shown, "no map") {
				t.Errorf("%s by %s is explained as\n%s", tc.name, command, shown)
			}
		}
		without = append(without, func() {
			for _, answer := range calls(t, proxied(env, commands[1]), tc.says[0][0], use(tc.quiet, "{}")) {
				if !strings.Contains(answer, "NOT_RUNNING") {
					t.Errorf("without the daemon %s by %s answers %s", tc.name, commands[1], answer)
				}
			}
		})
	}
	r.stopped()
	for _, try := range without {
		try()
	}
}

// GitHub's own server over HTTP has its map and its recipients too.
func TestServersOverHTTPHaveTheirMaps(t *testing.T) {
	node, err := filepath.Abs("node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	r := beginWith(t, walled, node)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	url := r.served("/", func(port string) (env, args []string) {
		return r.env(), []string{filepath.Join(r.node, "github-mcp-server"), "http", "--port", port}
	})
	cmd := exec.CommandContext(t.Context(), r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--", r.ocipd, "mcp-connect", "--url", url, "--bearer", "PAT", "hub")
	cmd.Env, cmd.Dir = r.env("PAT=github_pat_"+strings.Repeat("A", 22)+"_"+strings.Repeat("b", 59)), r.dir
	for _, answer := range calls(t, cmd,
		`"method":"tools/call","params":{"name":"add_issue_comment","arguments":{"owner":"globex","repo":"plans","issue_number":1,"body":"hello"}}`,
		`"method":"tools/call","params":{"name":"issue_write","arguments":{"method":"create","owner":"Globex","repo":"Plans","title":"Hello","body":"there"}}`) {
		if !strings.Contains(answer, "CROSS_ENTERPRISE_BLOCKED") {
			t.Errorf("answered %s", answer)
		}
	}
	if log := r.operate("audit", "query", "--json", "--limit", "10"); strings.Count(log, `"map":"github"`) != 2 || !strings.Contains(log, "github:globex/plans#1") {
		t.Errorf("the log:\n%s", log)
	}
}

// A server that no map is for, in a container, sends what a guess finds, and the rest of its calls are
// decided as calls. Without the daemon none is made.
func TestServersWithoutAMap(t *testing.T) {
	r := beginTools(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	docker := r.docker()
	proxied := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--hold", "1ms", "--name", "everything", "--", docker, "run", "-i", "--rm", "mcp/everything")
		cmd.Env, cmd.Dir = r.env("IN_IMAGE="+filepath.Join(r.node, "mcp-server-everything")), r.dir
		return cmd
	}
	use := func(tool, arguments string) string {
		return `"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}`
	}
	requests := []string{use("get-sum", `{"a":1,"b":2}`), use("echo", `{"message":"two words"}`), use("echo", `{"message":"AKIAIOSFODNN7SAMPLED"}`), `"method":"resources/read","params":{"uri":"demo://resource/static/document/features.md"}`}
	answers := calls(t, proxied(), requests...)
	for i, want := range []string{"The sum of 1 and 2 is 3", "HELD", "CLASSIFICATION_VIOLATION", "contents"} {
		if !strings.Contains(answers[i], want) {
			t.Errorf("call %d is answered %s, want %s", i, answers[i], want)
		}
	}
	if log := r.operate("audit", "query", "--json", "--event", "tool_executing"); strings.Count(log, `"map":"none"`) < 4 {
		t.Errorf("the log:\n%s", log)
	}
	r.stopped()
	for i, answer := range calls(t, proxied(), requests...) {
		if !strings.Contains(answer, "NOT_RUNNING") {
			t.Errorf("without the daemon call %d is answered %s", i, answer)
		}
	}
}
