package integrate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The hooks of installed plugins are reported with their files, wherever a plugin defines them, and
// their servers are listed. A plugin that is switched off does not count.
func TestClaudePlugins(t *testing.T) {
	t.Parallel()
	const hook = `{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}`
	const server = `{"chat":{"command":"x"}}`
	for _, tt := range []struct {
		name, file, text, says, server string
	}{
		{"in the usual file", "hooks/hooks.json", `{"hooks":` + hook + `}`, "hooks.PreToolUse[0] can change a call", ""},
		{"without a member for them", "hooks/hooks.json", hook, "hooks.PreToolUse[0] can change a call", ""},
		{"as a module", "hooks/hooks.json", `{"modules":[{"type":"x"}]}`, "modules can change a call", ""},
		{"in a file that nobody can read", "hooks/hooks.json", `{`, "cannot be read", ""},
		{"in the manifest", ".claude-plugin/plugin.json", `{"name":"p","hooks":` + hook + `}`, "hooks.PreToolUse[0] can change a call", ""},
		{"in a list in the manifest", ".claude-plugin/plugin.json", `{"hooks":["./none.json",` + hook + `]}`, "hooks.PreToolUse[0] can change a call", ""},
		{"in a file that the manifest names", "more.json", `{"hooks":` + hook + `}`, "hooks.PreToolUse[0] can change a call", ""},
		{"of a skill", "skills/s/SKILL.md", "---\nhooks: " + hook + "\n---\n", "hooks.PreToolUse[0] can change a call", ""},
		{"of another event", "hooks/hooks.json", `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]}}`, "", ""},
		{"a server", ".mcp.json", `{"mcpServers":` + server + `}`, "", "plugin:p:chat"},
		{"a server without a member for it", ".mcp.json", server, "", "plugin:p:chat"},
		{"a server in the manifest", ".claude-plugin/plugin.json", `{"mcpServers":` + server + `}`, "", "plugin:p:chat"},
		{"a server in a file that nobody can read", ".mcp.json", `{`, "", "all of a file that cannot be read"},
		{"a manifest that nobody can read", ".claude-plugin/plugin.json", `{`, "cannot be read", "all of a file that cannot be read"},
	} {
		for form, list := range map[string]string{
			"on": `{"version":2,"plugins":{"p@m":[{"scope":"user","installPath":%q}]}}`, "of an earlier version": `{"plugins":{"p@m":{"installPath":%q}}}`,
			"in a project": `{"plugins":{"p@m":[{"installPath":%q,"projectPath":"/w"}]}}`, "off": `{"plugins":{"p@m":[{"installPath":%q}]}}`,
		} {
			p := asking(t, strayFiles["claude-code"])
			plan, err := claudeCode.Behind(p, "alice")
			apply(t, plan, err)
			dir := filepath.Join(p.Home, "cache", "p")
			write(t, filepath.Join(dir, tt.file), tt.text)
			if tt.file == "more.json" {
				write(t, filepath.Join(dir, ".claude-plugin", "plugin.json"), `{"hooks":"./more.json"}`)
			}
			write(t, filepath.Join(p.Home, ".claude", "plugins", "installed_plugins.json"), fmt.Sprintf(list, dir))
			tt := tt
			if form == "off" {
				write(t, claudeSettings(p), strings.Replace(read(t, claudeSettings(p)), "{", `{"enabledPlugins":{"p@m":false},`, 1))
				tt.says, tt.server = "", ""
			}
			strays, err := claudeCode.Strays(p)
			if err != nil || tt.says == "" && len(strays) > 0 || tt.says != "" && (len(strays) != 1 || !strays[0].Hook || !strings.HasPrefix(strays[0].String(), dir) || !strings.Contains(strays[0].What, tt.says)) {
				t.Errorf("%s, %s: strays are %v, %v", tt.name, form, strays, err)
			}
			servers, err := claudeCode.Elsewhere(p)
			if err != nil || tt.server == "" && len(servers) > 0 || tt.server != "" && (len(servers) != 1 || servers[0].Gated() || servers[0].Name != tt.server || !strings.HasPrefix(servers[0].File, dir)) {
				t.Errorf("%s, %s: servers are %v, %v", tt.name, form, servers, err)
			}
		}
	}
}

// With the machine's hooks alone, hooks of others count only in the machine's settings, and in the
// plugins that these switch on. Links to skills are followed, also in a circle.
func TestForeignHooksBesideTheMachines(t *testing.T) {
	t.Parallel()
	const hook = `{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}`
	p := asking(t, strayFiles["claude-code"])
	p.Managed = true
	plan, err := claudeCode.Behind(p, "alice")
	apply(t, plan, err)
	write(t, filepath.Join(p.Home, "elsewhere", "s", "SKILL.md"), "---\nhooks: "+hook+"\n---\n")
	for from, to := range map[string]string{filepath.Join(p.Home, ".claude", "skills"): "elsewhere", filepath.Join(p.Home, "elsewhere", "s", "again"): "elsewhere"} {
		if err := os.Symlink(filepath.Join(p.Home, to), from); err != nil {
			t.Fatal(err)
		}
	}
	count := func(want bool) {
		t.Helper()
		if asks, why, _, err := claudeCode.Tools(p); err != nil || asks == want || want && !strings.Contains(why, "hooks.PreToolUse[0] can change a call") {
			t.Errorf("%t, %s, %v", asks, why, err)
		}
	}
	count(true)
	machine := filepath.Join(p.Etc, "claude-code", "managed-settings.json")
	write(t, machine, `{"allowManagedHooksOnly":true}`)
	count(false)
	dir := filepath.Join(p.Home, "cache")
	write(t, filepath.Join(dir, "hooks", "hooks.json"), hook)
	write(t, filepath.Join(p.Home, ".claude", "plugins", "installed_plugins.json"), fmt.Sprintf(`{"plugins":{"p@m":[{"installPath":%q}]}}`, dir))
	count(false)
	write(t, machine, `{"allowManagedHooksOnly":true,"enabledPlugins":{"p@m":true}}`)
	count(true)
}
