package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
)

// At a terminal, a first configuration takes three answers; what is proposed is
// taken by an empty line, and who gives up leaves no file.
func TestConfigInitAsks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ocipd.yaml")
	env := []string{asProgram + "=1", "USER=carol", "HOME=" + t.TempDir(), "TERM=linux", "GORACE=atexit_sleep_ms=0"}
	ask := func(args ...string) *terminal {
		return openTerminal(t, 100, 20, env, os.Args[0], append([]string{"config", "init", file}, args...)...)
	}

	term := ask()
	term.want("Which app speaks for your agent")
	term.typed("\x04") // the end of the input
	if code := term.wait(); code != exitFailed {
		t.Errorf("without an answer it exits %d", code)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("without an answer there is a file")
	}

	// What cannot be is asked for again at once, and nothing else with it.
	term = ask()
	term.want("Which app speaks for your agent")
	term.typed("carol runtime\n")
	term.want("cannot use the app", "-runtime\nWhich app speaks for your agent")
	term.typed("@acme/carol-runtime\n")
	term.want("Whose agent is it, as user/tenant [carol/carol]:")
	term.typed("@carol\n")
	term.want("cannot use the user", "\nWhose agent is it, as user/tenant [carol/carol]: @carol\n", "\nWhose agent is it, as user/tenant [carol/carol]:\n")
	term.typed("\n")
	term.want("Which channel reaches it")
	term.typed("telegram\n")
	term.want("Which chat there is your own")
	term.typed("4711\n")
	term.want("Folders out of which it may send files")
	term.typed("\n")
	if code := term.wait(); code != exitDone {
		t.Fatalf("it exits %d:\n%s", code, term.screen())
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Agents[0]
	if len(cfg.Agents) != 1 || a.ID != "carol" || a.App != "@acme/carol-runtime" || a.UserID != "carol" || a.TenantID != "carol" || a.InstanceID != "agent-carol-1" ||
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

	if len(cfg.Listed) != 1 || cfg.Listed[0].Kind != "person" || cfg.Listed[0].UserID != "carol" || cfg.Listed[0].Sessions[0] != "telegram:4711" {
		t.Errorf("the owner is listed as %+v", cfg.Listed)
	}

	// Nothing is asked for a file that is there.
	term = ask()
	if code := term.wait(); code != exitFailed || strings.Contains(term.screen(), "Which app") {
		t.Errorf("over a file that is there it exits %d:\n%s", code, term.screen())
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(text) {
		t.Errorf("the file that was there has changed, %v", err)
	}
}

// An app of which nothing shows which it is, is asked for once, and a yes is no app.
func TestConfigMigrateAsks(t *testing.T) {
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
	env := []string{asProgram + "=1", "HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "TERM=linux", "GORACE=atexit_sleep_ms=0"}
	term := openTerminal(t, 160, 40, env, os.Args[0], "config", "migrate", "--config", file)
	for _, wrong := range []string{"y", "my bot"} {
		term.want("Which app is it, by its id?")
		term.typed(wrong + "\n")
		term.want("cannot use the app \"" + wrong + "\": want its id, such as @acme/telegram")
	}
	term.typed("@acme/irc\n")
	if code := term.wait(); code != exitDone {
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

// On an empty home Enter is an answer to everything.
func TestConfigInitByEnter(t *testing.T) {
	home := t.TempDir()
	env := []string{asProgram + "=1", "USER=carol", "HOME=" + home, "TERM=linux", "GORACE=atexit_sleep_ms=0"}
	for _, app := range []string{"", "@acme/carol"} {
		file := filepath.Join(t.TempDir(), "ocipd.yaml")
		term := openTerminal(t, 80, 24, env, os.Args[0], "config", "init", file)
		term.want("Which app speaks for your agent")
		term.typed(app + "\n")
		if app != "" {
			for _, question := range []string{"Whose agent", "Which channel", "Folders"} {
				term.want(question)
				term.typed("\n")
			}
		}
		if code := term.wait(); code != exitDone {
			t.Fatalf("with the app %q it exits %d:\n%s", app, code, term.screen())
		}
		if _, err := config.Load(config.Options{File: file}); err != nil {
			t.Errorf("with the app %q: %v", app, err)
		}
	}
}
