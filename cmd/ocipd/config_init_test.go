package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// At a terminal, a first configuration takes a few answers; a wrong one is asked for again
// at once, an empty line accepts the proposal, and giving up leaves no file.
func TestConfigInitAsks(t *testing.T) {
	t.Parallel()
	home, file := t.TempDir(), filepath.Join(t.TempDir(), "ocipd.yaml")
	for name, mode := range map[string]os.FileMode{"claude": 0o700, "openclaw": 0o600} { // the other cannot be run
		if err := os.WriteFile(filepath.Join(home, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{asProgram + "=1", "USER=carol", "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "PATH=" + home, "TERM=linux"}
	ask := func(args ...string) *terminal {
		return openTerminal(t, 110, 40, env, os.Args[0], append([]string{"config", "init", file}, args...)...)
	}

	term := ask()
	term.want("Found here: 1 Claude Code. Which program runs your agent?")
	term.typed("\x04") // the end of the input
	if code := term.wait(); code != cli.ExitFailed {
		t.Errorf("without an answer it exits %d", code)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("without an answer there is a file")
	}

	term = ask()
	for _, step := range []struct{ question, wrong, said, right string }{
		{"Which program runs your agent?", "carol runtime", "cannot use the app", "1"},
		{"Whose agent is it? Your name [carol]:", "@carol", "cannot use the user", ""},
		{"Your company or household?", "a/b", "cannot use the tenant", "home"},
		{"Where does it write to people", "te le", "cannot use the channel", "telegram"},
		{"Your own chat there", "4*", "cannot use the chat", "4711"},
		{"Whom else may it write to there?", "dave, e*", "cannot use the chat", "telegram:dave, 12"},
		{"May it write first to anybody else?", "perhaps", "want yes, ask or no", ""},
		{"Folders that it may send files from", "pictures", "want an absolute path", ""},
	} {
		term.want(step.question)
		term.typed(step.wrong + "\n")
		term.want(step.said)
		for strings.Count(term.screen(), step.question) < 2 {
			term.want(step.question)
		}
		term.typed(step.right + "\n")
	}
	term.want("next:", "ocipd serve --config "+file, "ocipd doctor", "ocipd check telegram:dave ", "ocipd send telegram:4711 ")
	if code := term.wait(); code != cli.ExitDone {
		t.Fatalf("it exits %d:\n%s", code, term.screen())
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Agents[0]
	if len(cfg.Agents) != 1 || a.ID != "carol" || a.App != "" || a.UserID != "carol" || a.TenantID != "home" || cfg.OCIP.Unknown.FirstContact != "hold" || cfg.OCIP.Person.FirstContact != "allow" || a.InstanceID != "agent-carol-1" ||
		cfg.DefaultAgent != "carol" || len(cfg.Routes) != 1 || cfg.Routes[0] != (config.Route{Session: "telegram:*", Agent: "carol"}) || cfg.Channels["telegram"] == nil {
		t.Errorf("the configuration is %+v", cfg)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if comments := strings.Count(string(text), "#"); comments < 50 {
		t.Errorf("it has %d comments", comments)
	}

	if cfg.Listed.Len() != 3 || cfg.Listed.At(1).Sessions[0] != "telegram:dave" || cfg.Listed.At(2).Sessions[0] != "telegram:12" || cfg.Listed.At(0).Kind != "person" || cfg.Listed.At(0).UserID != "carol" || cfg.Listed.At(0).Sessions[0] != "telegram:4711" {
		t.Errorf("the owner is listed as %+v", cfg.Listed)
	}

	// There are no questions if the file exists.
	term = ask()
	if code := term.wait(); code != cli.ExitFailed || strings.Contains(term.screen(), "Which program") {
		t.Errorf("over a file that is there it exits %d:\n%s", code, term.screen())
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(text) {
		t.Errorf("the file that was there has changed, %v", err)
	}
}

// An unknown app is asked for once, and a yes is no app.
func TestConfigMigrateAsks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ocipd.yaml")
	text := `agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: o, tenant_id: acme}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: o, tenant_id: globex}
routes:
  - {session: "irc:*", agent: alice}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := []string{asProgram + "=1", "HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "TERM=linux"}
	term := openTerminal(t, 160, 40, env, os.Args[0], "config", "migrate", "--config", file)
	for _, wrong := range []string{"y", "my bot"} {
		term.want("Which app is it, by its id?")
		term.typed(wrong + "\n")
		term.want("cannot use the app \"" + wrong + "\": want its id, such as @acme/telegram")
	}
	term.typed("@acme/irc\n")
	if code := term.wait(); code != cli.ExitDone {
		t.Fatalf("it exits %d:\n%s", code, term.screen())
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	grant := cfg.Access.Apps["@acme/irc"]
	if len(cfg.Access.Apps) != 1 || !slices.Equal(grant.Channels, []string{"irc"}) || !slices.Equal(grant.Tenants, []string{"acme"}) {
		t.Errorf("it grants %+v", cfg.Access.Apps)
	}
	if seen := term.screen(); strings.Count(seen, "Which app is it") != 3 || !strings.Contains(seen, "wrote 2 lines") {
		t.Errorf("seen\n%s", seen)
	}
}

// On an empty home Enter answers every question.
func TestConfigInitByEnter(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := []string{asProgram + "=1", "USER=carol", "HOME=" + home, "TERM=linux"}
	for _, app := range []string{"", "@acme/carol"} {
		file := filepath.Join(t.TempDir(), "ocipd.yaml")
		term := openTerminal(t, 80, 24, env, os.Args[0], "config", "init", file)
		term.want("Which program runs your agent?")
		term.typed(app + "\n")
		if app != "" {
			for _, question := range []string{"Whose agent", "Your company", "Where does it write", "May it write first", "Folders"} {
				term.want(question)
				term.typed("\n")
			}
		}
		if code := term.wait(); code != cli.ExitDone {
			t.Fatalf("with the app %q it exits %d:\n%s", app, code, term.screen())
		}
		if _, err := config.Load(config.Options{File: file}); err != nil {
			t.Errorf("with the app %q: %v", app, err)
		}
	}
}

// If the daemon already runs, a first message is sent at the end.
func TestConfigInitSends(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.serve()
	term := openTerminal(t, 80, 24, append(c.env, asProgram+"=1", "TERM=linux"), os.Args[0],
		"config", "init", "--app", "mybot", "--user", "carol", "--tenant", "home", "--channel", "telegram", "--chat", "4711", "--knows", "12", "--strangers", "no")
	term.want("Folders")
	term.typed("\n")
	term.want("the running daemon has taken it", "Send a first message to telegram:4711 now:", "yes or no [yes]:")
	term.typed("\n")
	term.want("sent: it waits for its app to take it", "next:")
	if code := term.wait(); code != cli.ExitDone {
		t.Fatalf("it exits %d:\n%s", code, term.screen())
	}
	if seen := term.screen(); strings.Contains(seen, "ocipd serve") {
		t.Errorf("it says to start a daemon that runs:\n%s", seen)
	}
}

// integrate offers to add the agent that a runtime needs, and add-agent asks for what it does not know.
func TestAgentsAreOffered(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "ocipd.yaml")
	if err := os.WriteFile(file, []byte("agents:\n  - {id: bot, app: \"@a/bot\", instance_id: agent-bot-1, user_id: carol, org_unit: general, tenant_id: home}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{asProgram + "=1", "USER=carol", "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "PATH=" + home, "TERM=linux"}
	run := func(args ...string) *terminal {
		return openTerminal(t, 110, 40, env, os.Args[0], append([]string{"--config", file}, args...)...)
	}
	term := run("integrate", "claude-code", "--servers-only")
	term.want("no agent is configured that speaks by a token", "Add an agent for Claude Code? Its id, or no [claude-code]:")
	term.typed("no\n")
	if code := term.wait(); code != cli.ExitFailed {
		t.Errorf("without an agent it exits %d", code)
	}
	term = run("integrate", "claude-code", "--servers-only")
	term.want("Its id, or no [claude-code]:")
	term.typed("\n")
	term.want("wrote agent claude-code of carol to", "Claude Code: nothing to change")
	term.wait()
	term = run("config", "add-agent", "helper")
	term.want("Which app speaks for it, by its id?")
	term.typed("@a/helper\n")
	term.want("Whose agent is it? A name [carol]:")
	term.typed("dave\n")
	term.want("Of which company or household?")
	term.typed("\n")
	term.want("next: have the app register as @a/helper")
	if code := term.wait(); code != cli.ExitDone {
		t.Errorf("it exits %d:\n%s", code, term.screen())
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	is := map[string]config.Agent{}
	for _, a := range cfg.Agents {
		is[a.ID] = a
	}
	if a, b := is["claude-code"], is["helper"]; len(is) != 3 || a.App != "" || a.UserID != "carol" || a.TenantID != "home" || b.App != "@a/helper" || b.UserID != "dave" || b.TenantID != "home" || b.OrgUnit != "general" {
		t.Errorf("the agents are %+v", cfg.Agents)
	}
}
