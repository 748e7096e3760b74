package mcpproxy

import (
	"slices"
	"strings"
	"testing"
)

// Servers with one name and command are distinguished by their environment and working folder,
// neither of which appears in clear. Sessions in different terminals are not distinguished.
func TestOrigin(t *testing.T) {
	t.Parallel()
	base := func() *Source {
		return &Source{Name: "slack", Shown: "slack", Command: []string{"npx", "slack"}, Env: []string{"SLACK_BOT_TOKEN=xoxb-1", "HOME=/home/ann", "TERM=xterm"}, Folder: "/a"}
	}
	own := base().Origin("key")
	if !strings.HasPrefix(own, "slack #") || strings.Contains(own, "xoxb") {
		t.Errorf("the origin is %s", own)
	}
	for name, tc := range map[string]struct {
		change func(*Source)
		key    string
		same   bool
	}{
		"the same":                             {func(*Source) {}, "key", true},
		"another order of variables":           {func(s *Source) { slices.Reverse(s.Env) }, "key", true},
		"another terminal":                     {func(s *Source) { s.Env = append(s.Env[:2], "TERM=dumb", "SSH_TTY=/dev/pts/1", "TMUX_PANE=%1") }, "key", true},
		"another token":                        {func(s *Source) { s.Env[0] = "SLACK_BOT_TOKEN=xoxb-2" }, "key", false},
		"one more variable":                    {func(s *Source) { s.Env = append(s.Env, "PROFILE=work") }, "key", false},
		"one variable less":                    {func(s *Source) { s.Env = s.Env[1:] }, "key", false},
		"an account in npm's configuration":    {func(s *Source) { s.Env = append(s.Env, "npm_config_account=work") }, "key", false},
		"an account by a name of npm":          {func(s *Source) { s.Env = append(s.Env, "npm_account=work") }, "key", false},
		"an account by a name of the editor":   {func(s *Source) { s.Env = append(s.Env, "VSCODE_ACCOUNT=work") }, "key", false},
		"an account by a name of a terminal":   {func(s *Source) { s.Env = append(s.Env, "WT_ACCOUNT=work", "TERM_TOKEN=x", "TMUX_USER=x") }, "key", false},
		"an account by a name of the watchdog": {func(s *Source) { s.Env = append(s.Env, "WATCHDOG_ACCOUNT=work") }, "key", false},
		"an account by a name of the runtime":  {func(s *Source) { s.Env = append(s.Env, "CLAUDE_CODE_OAUTH_TOKEN=x", "CODEX_SANDBOX_USER=x") }, "key", false},
		"another home":                         {func(s *Source) { s.Env[1] = "HOME=/home/bob" }, "key", false},
		"another folder":                       {func(s *Source) { s.Folder = "/b" }, "key", false},
		"another name":                         {func(s *Source) { s.Name = "chat" }, "key", false},
		"another argument":                     {func(s *Source) { s.Command[1] = "chat" }, "key", false},
		"an argument that is two":              {func(s *Source) { s.Command = []string{"npx slack"} }, "key", false},
		"an argument and no variable":          {func(s *Source) { s.Command, s.Env = append(s.Command, s.Env[0]), s.Env[1:] }, "key", false},
		"an address":                           {func(s *Source) { s.Address = "https://mcp.example.com/" }, "key", false},
		"another key, for who guesses":         {func(*Source) {}, "other", false},
	} {
		s := base()
		tc.change(s)
		if got := s.Origin(tc.key); (got == own) != tc.same {
			t.Errorf("%s: the origin is %s, and was %s", name, got, own)
		}
	}
}
