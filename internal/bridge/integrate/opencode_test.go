package integrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Servers in the settings of the project in which the user works are listed: opencode starts them, also in
// the place of a server behind the proxy. A file that cannot be read hides no other.
func TestOpenCodeProjects(t *testing.T) {
	t.Parallel()
	p := asking(t, map[string]string{
		".config/opencode/opencode.json":  `{"mcp":{"chat":{"type":"local","command":["npx"]}}}`,
		"w/opencode.jsonc":                `{"mcp":{"chat":{"type":"local","command":["mine"],},"far":{"type":"remote","url":"https://x"}}}`,
		"w/sub/.opencode/opencode.json":   `{"mcp":`,
		"elsewhere/.opencode/config.json": `{"mcp":{"none":{"type":"local","command":["x"]}}}`,
	})
	p.Folder = filepath.Join(p.Home, "w", "sub")
	plan, err := openCode.Behind(p, "alice")
	apply(t, plan, err)
	rest, err := openCode.Elsewhere(p)
	var names []string
	for i := range rest {
		if s := &rest[i]; !s.Gated() {
			names = append(names, strings.TrimPrefix(s.Scope, p.Home)+" "+s.Name)
		}
	}
	if want := []string{"/w/sub all of a file that cannot be read", "/w chat", "/w far"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("servers of projects: %v, %v, want %v", names, err, want)
	}
	if p.Folder = ""; err == nil {
		rest, err = openCode.Elsewhere(p)
	}
	if err != nil || len(rest) > 0 {
		t.Errorf("in no folder: %v, %v", rest, err)
	}
}

// A variable with which opencode loads no plugin is a stray.
func TestOpenCodePure(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": true, "0": true, "false": true, "1": false, "true": false} {
		p := asking(t, map[string]string{})
		plan, err := openCode.Behind(p, "alice")
		apply(t, plan, err)
		p.Getenv = func(name string) string { return map[string]string{openCodePure: value}[name] }
		if asks, why, _, err := openCode.Tools(p); err != nil || asks != want || !asks && !strings.Contains(why, openCodePure) {
			t.Errorf("%q: it asks: %t, %s, %v", value, asks, why, err)
		}
	}
}

// The canary finds a plugin that opencode does not load, and one that is not ocipd's.
func TestOpenCodeLoadsThePlugin(t *testing.T) {
	t.Parallel()
	p := asking(t, map[string]string{})
	bin := filepath.Join(p.Home, "bin")
	p.Getenv = func(name string) string { return map[string]string{"PATH": bin}[name] }
	canary := func() string {
		_, err := openCode.Canary(t.Context(), openCode, p, NewCanary("id"))
		if err == nil {
			t.Fatal("a canary of no gate has passed")
		}
		return err.Error()
	}
	if got := canary(); got != ErrNoGate.Error() {
		t.Errorf("without a plugin: %s", got)
	}
	plan, err := openCode.Behind(p, "alice")
	apply(t, plan, err)
	if got := canary(); !strings.Contains(got, "not on your PATH") {
		t.Errorf("without opencode: %s", got)
	}
	for says, want := range map[string]string{
		"external plugins disabled (--pure)":                                     "does not load",
		"- file://" + filepath.Join(p.Home, "x/ocipd.js"):                        "does not load",
		"- file://" + filepath.Join(bin, "../.config/opencode/plugins/ocipd.js"): "/usr/bin/ocipd",
	} {
		write(t, filepath.Join(bin, "opencode"), "#!/bin/sh\necho 'plugins:'\necho '"+says+"'\n")
		if err := os.Chmod(filepath.Join(bin, "opencode"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := canary(); !strings.Contains(got, want) {
			t.Errorf("it says %q: %s", says, got)
		}
	}
	write(t, openCodePlugin(p), "export const mine = 1\n")
	if got := canary(); !strings.Contains(got, "not the plugin of ocipd") {
		t.Errorf("another plugin: %s", got)
	}
}
