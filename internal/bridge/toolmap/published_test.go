package toolmap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
)

// published returns the tools of each published version of the servers that have a built-in map.
func published(t *testing.T) (all map[string]map[string]map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "published.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := decodeYAML(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Every published tool of a server with a built-in map is in one class of that map.
func TestEveryPublishedToolHasAClass(t *testing.T) {
	t.Parallel()
	servers, err := Servers()
	if err != nil {
		t.Fatal(err)
	}
	all := published(t)
	for name, m := range servers {
		if len(all[name]) == 0 {
			t.Errorf("testdata has no published tools of %s", name)
		}
		for version, tools := range all[name] {
			for tool := range tools {
				if !m.Knows(tool) {
					t.Errorf("%s: the tool %s is in no class of the map %s", version, tool, name)
				}
			}
		}
	}
}

// A text in any argument of any tool is decided as that of a message, is refused, or shows: then a person
// is asked under enforce. The arguments that hold one unseen are those that the maps call private, and
// testdata lists every one.
func TestNoTextOfAPublishedToolPassesUnseen(t *testing.T) {
	t.Parallel()
	servers, err := Servers()
	if err != nil {
		t.Fatal(err)
	}
	const said = "we promise to pay tomorrow"
	var unseen []string
	for name, versions := range published(t) {
		m := servers[name]
		for _, tools := range versions {
			tools["tool_of_a_later_version"] = []string{"about"}
			for tool, names := range tools {
				for _, argument := range append(names, "argument_of_a_later_version") {
					arguments := argumentsIn(t, `{`+string(api.String(argument))+`:`+string(api.String(said))+`}`)
					if sends, err := m.ToolOf(tool, arguments); err == nil && sends == nil && !m.Shows(tool, arguments) {
						unseen = append(unseen, name+" "+tool+" "+argument)
					}
				}
			}
		}
	}
	slices.Sort(unseen)
	unseen = slices.Compact(unseen)
	want, err := os.ReadFile(filepath.Join("testdata", "unseen.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, one := range unseen {
		if !slices.Contains(listed, one) {
			t.Errorf("a text passes unseen in %s", one)
		}
	}
	for _, one := range listed {
		if !slices.Contains(unseen, one) {
			t.Errorf("testdata lists %s, where no text passes unseen", one)
		}
	}
}

// Texts that a room, a repository or a group shows are messages to it, and their tools act too.
func TestShownTextsAreMessagesToTheirPlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server, tool, arguments, want string
		acts                          bool
	}{
		{"teams", "create_chat", `{"userEmails":["eve@globex.example","dan@acme.example"],"topic":"We accept"}`, "msteams:dan@acme.example msteams:eve@globex.example", true},
		{"teams", "create_chat", `{"userEmails":["Eve@globex.example"],"topic":"We accept"}`, "refused", true},
		{"teams", "create_chat", `{"userEmails":["eve@globex.example?x=/../y"],"topic":"We accept"}`, "refused", true},
		{"discord", "discord_create_text_channel", `{"guildId":"100","channelName":"news","topic":"We accept"}`, "discord:100", true},
		{"discord", "discord_create_category", `{"guildId":"100","name":"We accept"}`, "discord:100", true},
		{"discord", "discord_edit_category", `{"categoryId":"101","name":"We accept"}`, "discord:101", true},
		{"github", "merge_pull_request", `{"owner":"A","repo":"b","pullNumber":5,"commit_title":"We accept","commit_message":"x"}`, "github:a/b#5", true},
		{"github", "merge_pull_request", `{"owner":"A","repo":"b","pull_number":5}`, "github:a/b#5", true},
		{"github", "label_write", `{"method":"create","owner":"a","repo":"b","name":"We accept","description":"x"}`, "github:a/b", false},
		{"github", "label_write", `{"method":"update","owner":"a","repo":"b","name":"old","new_name":"We accept"}`, "github:a/b", false},
		{"github", "label_write", `{"method":"rename","owner":"a","repo":"b","name":"old","new_name":"We accept"}`, "refused", false},
		{"github", "assign_copilot_to_issue", `{"owner":"a","repo":"b","issue_number":5,"custom_instructions":"x"}`, "github:a/b#5", true},
		{"github", "update_issue_labels", `{"owner":"a","repo":"b","issue_number":5,"labels":["We accept"]}`, "github:a/b#5", false},
		{"github", "set_issue_fields", `{"owner":"a","repo":"b","issue_number":5,"fields":[{"field_id":"F","text_value":"We accept"}]}`, "github:a/b#5", false},
	} {
		m, arguments := builtInMap(t, tc.server), argumentsIn(t, tc.arguments)
		tool, err := m.ToolOf(tc.tool, arguments)
		got := "none"
		if err == nil && tool != nil {
			var keys []string
			if err = m.Fits(tool, arguments); err == nil {
				keys, err = m.Recipients(tool, arguments)
			}
			got = strings.Join(keys, " ")
			if tool.Acts != tc.acts {
				t.Errorf("%s acts: %t", tc.tool, tool.Acts)
			}
		}
		if err != nil {
			got = "refused"
		}
		if got != tc.want {
			t.Errorf("%s %s is to %q, %v, want %q", tc.tool, tc.arguments, got, err, tc.want)
		}
	}
}

// A result is decided as from the place that it is read of, or from the server itself; that of a tool which
// the server's map does not have is decided too.
func TestResultsThatAreRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ server, tool, arguments, want string }{
		{"teams", "search_messages", `{"query":"x"}`, "msteams:teams"}, {"teams", "get_recent_messages", `{}`, "msteams:teams"}, {"teams", "get_my_mentions", `{}`, "msteams:teams"},
		{"github", "search_issues", `{"query":"x"}`, "github:github"}, {"github", "list_notifications", `{}`, "github:github"},
		{"github", "list_discussions", `{"owner":"A"}`, "github:a"}, {"github", "list_discussions", `{"owner":"A","repo":"b"}`, "github:a/b"},
		{"github", "tool_of_a_later_version", `{}`, "github:github"}, {"github", "get_file_contents", `{}`, ""}, {"github", "add_issue_comment", `{}`, ""},
	} {
		m, got := builtInMap(t, tc.server), ""
		if r := m.ReadOf(tc.tool); r != nil {
			keys, err := m.Senders(r, argumentsIn(t, tc.arguments), "From: nobody")
			if err != nil {
				t.Fatal(err)
			}
			got = strings.Join(keys, " ")
		}
		if got != tc.want {
			t.Errorf("a result of %s %s is from %q, want %q", tc.tool, tc.arguments, got, tc.want)
		}
	}
	without, err := Of("", "mine", []string{"node", "/x/server.js"})
	if err != nil {
		t.Fatal(err)
	}
	if without.ReadOf("any") != nil {
		t.Error("a server without a map has messages of others")
	}
}
