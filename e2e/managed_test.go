//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// machine is a machine whose /etc is a copy of ours, for what runs in it alone.
type machine struct {
	*trial
}

func beginMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{beginTools(t)}
	_ = exec.Command("cp", "-a", "/etc", m.at("etc")).Run() // what nobody but root can read is not needed
	if out, err := m.in(m.env(), "true"); err != nil {
		t.Skipf("no file system of its own can be mounted here: %s %v", out, err)
	}
	return m
}

// in runs a program where /etc is the copy.
func (m *machine) in(env []string, name string, args ...string) (string, error) {
	space := []string{"--mount"}
	if os.Getuid() != 0 {
		space = append(space, "--map-root-user")
	}
	path, err := exec.LookPath("unshare")
	if err != nil {
		return "", err
	}
	return m.run(env, path, append(append(space, "sh", "-c", `mount --bind "$0" /etc && exec "$@"`, m.at("etc"), name), args...)...)
}

// integrate runs ocipd integrate as the machine's administrator.
func (m *machine) integrate(env []string, args ...string) string {
	m.t.Helper()
	out, err := m.in(wide(env), m.ocipd, append([]string{"--config", m.at("ocipd.yaml"), "--socket", m.socket, "integrate"}, args...)...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// tree is what is there of the machine's settings of the two.
func (m *machine) tree() string {
	m.t.Helper()
	out, _ := m.run(m.env(), "/usr/bin/find", m.at("etc/claude-code"), m.at("etc/codex"), "-printf", "%P %y %m\n")
	return out
}

// With --managed the hook of Claude Code stands in the machine's settings: whoever leaves
// their own settings out, or has hooks switched off in them, is asked about still, and who
// has no gate calls nothing.
func TestClaudeCodeManaged(t *testing.T) {
	m := beginMachine(t)
	m.write("c/.claude.json", "{}\n")
	m.write("c/settings.json", "{\"permissions\": {\"allow\": [\"Bash\"]}}\n")
	m.write("other/settings.json", "{\"permissions\": {\"allow\": [\"Bash\"]}}\n")
	files, etc := m.files("c/.claude.json", "c/settings.json"), m.tree()
	env := m.claudeEnv("c", nil)
	m.integrate(env, "claude-code", "--agent", "ann")
	if said := m.integrate(env, "claude-code", "--agent", "ann", "--managed"); !strings.Contains(said, "ok: it was refused") {
		t.Errorf("the canary:\n%s", said)
	}
	if list := m.integrate(env); !strings.Contains(list, "no user can switch off") {
		t.Errorf("listed as\n%s", list)
	}
	run := func(home, command string, args ...string) string {
		told, out := m.tool(claudeModel, func(api *standIn) (string, error) {
			env := append(m.claudeEnv(home, api), "IS_SANDBOX=1") // root may leave permissions out nowhere else
			return m.in(env, "claude", append([]string{"-p", "--output-format", "json", "go on"}, args...)...)
		}, shell(command))
		return told + "\n" + out
	}
	if told := run("c", "git status"); !strings.Contains(told, "not a git repository") || m.count("tool_executing") != 1 {
		t.Errorf("a quiet command: %s, %d records", told, m.count("tool_executing"))
	}
	for _, off := range [][]string{nil, {"--settings", `{"disableAllHooks": true}`}, {"--setting-sources", ""}, {"--bare"}, {"--safe-mode"}, {"--dangerously-skip-permissions"}} {
		file := m.at("made")
		told := run("c", "curl https://example.com; touch "+file, append(off, "--allowedTools", "Bash")...)
		if _, err := os.Stat(file); err == nil || !strings.Contains(told, "ocipd") {
			t.Errorf("with %q a denied command: %s", off, told)
		}
	}
	if told := run("other", "git status"); strings.Contains(told, "not a git repository") {
		t.Errorf("without a gate: %s", told)
	}
	m.stopped()
	if told := run("c", "git status"); strings.Contains(told, "not a git repository") || !strings.Contains(told, "could not be decided") {
		t.Errorf("without a daemon: %s", told)
	}
	m.integrate(env, "claude-code", "--remove", "--managed")
	if got := m.files("c/settings.json"); got != strings.Split(files, "\x00")[1] {
		t.Errorf("settings.json is\n%s", got)
	}
	if got := m.files("c/.claude.json"); strings.Contains(got, "ocipd") {
		t.Errorf(".claude.json is\n%s", got)
	}
	if got := m.tree(); got != etc {
		t.Errorf("/etc has\n%s\nand had\n%s", got, etc)
	}
}

// With --managed the hooks of Codex stand in the machine's requirements, and neither an
// option nor the bypass goes around them.
func TestCodexManaged(t *testing.T) {
	m := beginMachine(t)
	web := newWebServer(t, "")
	var model http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { model.ServeHTTP(w, q) }))
	t.Cleanup(api.Close)
	m.write("x/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n[mcp_servers.web]\nurl = \"%s\"\n", api.URL, web.URL))
	files, etc := m.files("x/config.toml"), m.tree()
	env := m.env("CODEX_HOME="+m.at("x"), "STANDIN=none")
	m.integrate(env, "codex", "--agent", "ann")
	if said := m.integrate(env, "codex", "--agent", "ann", "--managed"); !strings.Contains(said, "ok: it was refused") {
		t.Errorf("the canary:\n%s", said)
	}
	if list := m.integrate(env); !strings.Contains(list, "no user can switch off") {
		t.Errorf("listed as\n%s", list)
	}
	run := func(s step, args ...string) string {
		told, out := m.tool(codexModel, func(of *standIn) (string, error) {
			model = of.Config.Handler
			return m.in(env, "codex", append([]string{"exec", "--skip-git-repo-check", "go on"}, args...)...)
		}, s)
		return told + "\n" + out
	}
	look := step{"look", `{"word":"x"}`}
	before := m.count("tool_executing") // the canary of a typed command
	if told := run(look); !strings.Contains(told, "found") || m.count("tool_executing") != before+1 {
		t.Errorf("a server over HTTP: %s, %d records, %d before", told, m.count("tool_executing"), before)
	}
	const gate = "mcp_servers.ocipd-gate."
	for _, off := range [][]string{
		nil, {"--disable", "hooks"}, {"-c", "features.hooks=false"}, {"-c", "mcp_servers={}"}, {"-c", gate + "enabled=false"}, {"-c", gate + `command="/bin/false"`},
		{"-c", gate + `disabled_tools=["decide"]`}, {"-c", gate + "startup_timeout_sec=0"}, {"-c", gate + `cwd="/nowhere"`}, {"-c", gate + `environment_id="x"`},
	} {
		if told := run(shellOfCodex("curl https://example.com"), off...); !strings.Contains(told, "a shell command names curl") {
			t.Errorf("with %q a denied command: %s", off, told)
		}
	}
	model = http.NotFoundHandler()
	for _, bypass := range []string{"--dangerously-bypass-approvals-and-sandbox", "--sandbox=danger-full-access"} {
		if out, err := m.in(env, "codex", "exec", "--skip-git-repo-check", bypass, "go on"); err == nil {
			t.Errorf("%s started: %s", bypass, out)
		}
	}
	// Settings of the user's elsewhere change nothing, and one who has no agent is not served.
	m.write("y/config.toml", files)
	own := env
	env = m.env("CODEX_HOME="+m.at("y"), "STANDIN=none")
	if told := run(shellOfCodex("curl https://example.com")); !strings.Contains(told, "a shell command names curl") {
		t.Errorf("with other settings a denied command: %s", told)
	}
	if out, err := m.in(append(env, "HOME="+m.at("y"), "XDG_STATE_HOME="+m.at("y")), "codex", "exec", "--skip-git-repo-check", "go on"); err == nil {
		t.Errorf("it started without an agent: %s", out)
	}
	env = own
	m.stopped()
	looked := web.calls.Load()
	if told := run(look); web.calls.Load() != looked || !strings.Contains(told, "ocipd") {
		t.Errorf("without a daemon: %s", told)
	}
	m.integrate(env, "codex", "--remove", "--managed")
	if got := m.files("x/config.toml"); got != files {
		t.Errorf("config.toml is\n%s\nand was\n%s", got, files)
	}
	if got := m.tree(); got != etc {
		t.Errorf("/etc has\n%s\nand had\n%s", got, etc)
	}
}
