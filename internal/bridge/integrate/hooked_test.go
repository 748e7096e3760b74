package integrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A setting that can switch the hook off is found in every form, in the user's settings and in the
// project's, and integrate takes the user's out.
func TestHookSwitches(t *testing.T) {
	t.Parallel()
	r := hooked("gemini")
	for text, off := range map[string]bool{
		``: false, `{}`: false, `{"hooksConfig":{}}`: false,
		`{"hooksConfig":{"enabled":true}}`:            false,
		`{"hooksConfig":{"enabled":false}}`:           true,
		`{"hooksConfig":{"enabled":"false"}}`:         true,
		`{"hooksConfig":{"enabled":0}}`:               true,
		`{"hooksConfig":{"enabled":"$X"}}`:            true,
		`{"hooks\u0043onfig":{"ena\u0062led":false}}`: true,
		`{"hooksConfig":{"disabled":[]}}`:             false,
		`{"hooksConfig":{"disabled":["another"]}}`:    false,
		`{"hooksConfig":{"disabled":["a","ocipd"]}}`:  true,
		`{"hooksConfig":{"disabled":["ocip\u0064"]}}`: true,
		`{"hooksConfig":{"disabled":["${X}"]}}`:       true,
		`{"hooksConfig":{"disabled":"ocipd"}}`:        true,
	} {
		home := t.TempDir()
		file := filepath.Join(home, ".gemini", "settings.json")
		write := func(text []byte) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write([]byte(text))
		p := &Place{Home: home, Getenv: func(string) string { return "" }}
		list, err := hookSwitches(r, p, false)
		if err != nil || len(list) > 0 != off {
			t.Errorf("%s: %v, %v", text, list, err)
		}
		for _, one := range list {
			without, err := one.out.Strip([]byte(text))
			if write(without); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if list, err := hookSwitches(r, p, false); err != nil || len(list) > 0 {
				t.Errorf("%s: after it was taken out there is %s: %v, %v", text, without, list, err)
			}
		}
		write([]byte(text))
		there := &Place{Home: t.TempDir(), Folder: home, Getenv: p.Getenv}
		if list, err := hookSwitches(r, there, false); err != nil || len(list) > 0 != off || len(list) > 0 && list[0].out != nil {
			t.Errorf("%s in a project: %v, %v", text, list, err)
		}
		there.Home = home
		if list, err := hookSwitches(r, there, false); err != nil || len(list) > 1 {
			t.Errorf("%s in the home: %v, %v", text, list, err)
		}
	}
}

// A server of ocipd whose last words name another daemon is none of this daemon's.
func TestServerOfAnotherDaemon(t *testing.T) {
	t.Parallel()
	p := &Place{Home: t.TempDir(), Self: "/bin/ocipd", Socket: "/s", Options: []string{"--socket", "/s"}, Getenv: func(string) string { return "" }}
	for _, tc := range []struct {
		more []string
		own  bool
	}{{nil, true}, {[]string{"--token-file", "/t"}, true}, {[]string{"--socket", "/x"}, false}, {[]string{"--token-file", "/t", "--config=/x"}, false}} {
		s := &Server{Command: p.Self, Args: append([]string{"--socket", "/s", serveCommand}, tc.more...)}
		if _, own, _ := p.behind(s); own != tc.own {
			t.Errorf("%v: %t", s.Args, own)
		}
	}
}

// Every file that loosens or disables a gate is named: of the user, of the project and of the folders
// above it, and of the machine. Files of others are not changed.
func TestHookFilesOfOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ runtime, file, text, want string }{
		{"gemini", "home/.gemini/settings.json", `{"hooks":{"BeforeTool":[{"hooks":[{"command":"x"}]}]}}`, "hooks.BeforeTool[0] can change a call"},
		{"gemini", "home/.gemini/settings.json", `{"hooks":{"BeforeTool":[{"hooks":[]}],"AfterTool":[{"hooks":[{"command":"x"}]}]}}`, ""},
		{"gemini", "home/.gemini/extensions/e/hooks/hooks.json", `{"hooks":{"BeforeTool":[{"hooks":[{"command":"x"}]}]}}`, "hooks.BeforeTool[0] can change a call"},
		{"gemini", "work/.gemini/settings.json", `{"hooks":{"BeforeTool":"x"}}`, "hooks.BeforeTool[0] can change a call"},
		{"gemini", "work/.gemini/settings.json", `{"hooksConfig":{"enabled":false}}`, "hooksConfig.enabled is false"},
		{"gemini", "etc/gemini-cli/settings.json", `{"hooksConfig":{"enabled":false}}`, "hooksConfig.enabled is false"},
		{"gemini", "etc/gemini-cli/system-defaults.json", `{"hooksConfig":{"disabled":["ocipd"]}}`, "hooksConfig.disabled is"},
		{"gemini", "etc/gemini-cli/settings.json", `{"hooks":[]}`, "hooks is []"},
		{"gemini", "work/.gemini/settings.json", `{"hooks":null}`, "hooks is null"},
		{"gemini", "work/.gemini/settings.json", `{"hooks":{}}`, ""},
		{"gemini", "named/settings.json", `{"hooksConfig":{"enabled":false}}`, "hooksConfig.enabled is false"},
		{"gemini", "named/system-defaults.json", `{"hooksConfig":{"enabled":false}}`, "hooksConfig.enabled is false"},
		{"copilot", "home/.copilot/settings.json", `{"disableAllHooks":true}`, "disableAllHooks is true"},
		{"copilot", "home/.copilot/settings.json", `{"disabledHooks":["ab12"]}`, "disabledHooks is"},
		{"copilot", "home/.copilot/settings.json", `{"disabledHooks":[],"disableAllHooks":false}`, ""},
		{"copilot", "home/.copilot/hooks/other.json", `{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"x"}]}}`, "hooks.preToolUse[0] can change a call"},
		{"copilot", "work/.github/copilot/settings.local.json", `{"disableAllHooks":true}`, "disableAllHooks is true"},
		{"copilot", "work/.claude/settings.json", `{"disableAllHooks":true}`, "disableAllHooks is true"},
		{"copilot", "work/.claude/settings.local.json", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "hooks.PreToolUse[0] can change a call"},
		{"copilot", "work/.github/hooks/a.json", `{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"x"}]}}`, "hooks.preToolUse[0] can change a call"},
		{"copilot", "work/.github/hooks/a.json", `{"version":1,`, "it cannot be read"},
		{"copilot", "work/.github/hooks/a.json", `{"version":1,"hooks":{"postToolUse":[{"type":"command","bash":"x"}]}}`, ""},
		{"cursor", "home/.cursor/hooks.json", `{"version":1,"hooks":{"preToolUse":[{"command":"x"}]}}`, "hooks.preToolUse[0] can change a call"},
		{"cursor", "work/.cursor/hooks.json", "{\n// mine\n\"hooks\":{\"preToolUse\":[{\"command\":\"x\"}]}}", "hooks.preToolUse[0] can change a call"},
		{"goose", "home/.config/goose/settings.json", `{"disabledPlugins":["ocipd"]}`, "disabledPlugins is"},
		{"goose", "work/.config/goose/settings.json", `{"disabledPlugins":["ocipd"]}`, "disabledPlugins is"},
		{"goose", "work/.config/goose/settings.json", `{"disabledPlugins":["another"]}`, ""},
	} {
		root := t.TempDir()
		file := filepath.Join(root, filepath.FromSlash(tc.file))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &Place{Home: filepath.Join(root, "home"), Folder: filepath.Join(root, "work", "inside"), Etc: filepath.Join(root, "etc"), Getenv: func(string) string { return "" }}
		if strings.HasPrefix(tc.file, "named/") {
			p.Getenv = func(name string) string {
				return map[string]string{geminiSystemNamed: filepath.Join(root, "named", "settings.json")}[name]
			}
		}
		list, err := hookSwitches(hooked(tc.runtime), p, false)
		if err != nil || len(list) > 1 || (tc.want != "") != (len(list) == 1) {
			t.Errorf("%s, %s: %v, %v", tc.file, tc.text, list, err)
			continue
		}
		if len(list) == 0 {
			continue
		}
		one := list[0]
		foreign := !strings.HasPrefix(tc.file, "home/")
		if one.File != file || !strings.Contains(one.What, tc.want) || foreign && one.out != nil || strings.HasPrefix(tc.file, "work/") != (one.Scope != "") {
			t.Errorf("%s, %s: %+v", tc.file, tc.text, one)
		}
	}
}

// A server that the machine's settings of Gemini CLI put in the place of one behind the proxy is a stray, and
// the hook asks about its calls once it is entered again.
func TestMachinesServerTakesThePlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, p := hooked("gemini"), &Place{Home: dir, Etc: dir, Self: "/bin/ocipd", Token: "/t", Getenv: func(string) string { return "" }}
	for name, text := range map[string]string{
		".gemini/settings.json":    `{"mcpServers":{"chat":{"command":"chat"},"mail":{"command":"mail"}}}`,
		"gemini-cli/settings.json": `{"mcpServers":{"chat":{"command":"other"}}} // the machine's`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	strays, err := r.strayServers(p, []string{"chat", "mail"})
	if err != nil || !slices.ContainsFunc(strays, func(s Stray) bool { return strings.Contains(s.File, "gemini-cli") }) {
		t.Errorf("strays: %v, %v", strays, err)
	}
	edits, err := hookGates(r, p)
	if err != nil || len(edits) == 0 {
		t.Fatal(err)
	}
	if said := strings.Join(edits[0].Lines(), " "); strings.Contains(said, "--without chat") || !strings.Contains(said, "--without mail") {
		t.Errorf("the hook is %s", said)
	}
}
