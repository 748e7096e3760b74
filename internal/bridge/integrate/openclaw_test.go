package integrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/test/buildtest"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMain makes this program OpenClaw's if it has that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == openClawProgram {
		if err := pretend(os.Getenv("OPENCLAW_STATE_DIR"), os.Args[1:]); err != nil {
			fmt.Printf("{\"ok\":false,\"error\":{\"message\":%q}}\n", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(buildtest.Isolated(m).Run())
}

// pretend changes files as OpenClaw's commands do.
func pretend(state string, args []string) error {
	file := filepath.Join(state, "openclaw.json")
	settings := map[string]any{}
	text, err := os.ReadFile(file)
	if err == nil {
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, "//") })
		err = json.Unmarshal([]byte(strings.Join(lines, "\n")), &settings)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	write := func() error {
		settings["meta"] = map[string]any{"touched": len(text)}
		text, err := json.MarshalIndent(settings, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(file, text, 0o600)
	}
	plugin := filepath.Join(state, "extensions", pluginID)
	switch strings.Join(args[:min(2, len(args))], " ") {
	case "--version":
		fmt.Println("OpenClaw " + os.Getenv("PRETENDED_VERSION") + " (eb377ac)")
	case "config file":
		fmt.Println("warning: something [odd]\n" + file)
	case "agents list":
		busy := filepath.Join(state, "busy")
		if os.Remove(busy) == nil {
			return errors.New("another OpenClaw process owns state-lifecycle")
		}
		fmt.Println(`[{"id":"alice"},{"id":"bob"}]`)
	case "config get":
		part, ok := settings[args[2]]
		if !ok {
			return errors.New("Config path is valid but unset: " + args[2])
		}
		return json.NewEncoder(os.Stdout).Encode(part)
	case "config patch":
		var patch map[string]any
		text, err := os.ReadFile(args[3])
		if err == nil {
			err = json.Unmarshal(text, &patch)
		}
		if err != nil {
			return err
		}
		merge(settings, patch)
		return write()
	case "plugins list":
		plugins, _ := settings["plugins"].(map[string]any)
		load, _ := plugins["load"].(map[string]any)
		paths, _ := load["paths"].([]any)
		fmt.Printf("a warning\n{\"plugins\":[{\"id\":\"x\",\"source\":\"/x/index.js\"},{\"id\":%q,\"source\":\"%s/index.js\"}]}\n", pluginID, append(paths, any(plugin))[0])
	case "plugins install":
		if err := os.RemoveAll(plugin); err != nil {
			return err
		}
		if err := os.CopyFS(plugin, os.DirFS(args[2])); err != nil {
			return err
		}
		return write()
	case "plugins uninstall":
		merge(settings, map[string]any{"plugins": map[string]any{"entries": map[string]any{pluginID: map[string]any{"enabled": false}}}})
		return errors.Join(os.RemoveAll(plugin), write())
	default:
		return fmt.Errorf("no such command: %q", args)
	}
	return nil
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, ok := value.(map[string]any)
		old, had := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok && had:
			merge(old, inner)
		case ok:
			fresh := map[string]any{}
			merge(fresh, inner)
			into[key] = fresh
		default:
			into[key] = value
		}
	}
}

// openClawPlace is a home with an OpenClaw and its settings.
func openClawPlace(t *testing.T, settings string) (*Place, string) {
	t.Helper()
	p, file := place(t, ".openclaw/openclaw.json", settings)
	bin := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, openClawProgram))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPENCLAW_STATE_DIR", filepath.Dir(file))
	t.Setenv("PRETENDED_VERSION", "2026.9.6")
	env := map[string]string{"PATH": bin, "OPENCLAW_STATE_DIR": filepath.Dir(file)}
	p.Getenv = func(name string) string { return env[name] }
	return p, file
}

func findOpenClaw(t *testing.T, p *Place) *OpenClaw {
	t.Helper()
	o, err := FindOpenClaw(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const commented = "// mine\n{\"agents\": {\"x\": 1}}\n"

// The plugin goes into OpenClaw once, with the rights that it needs. Removal restores the
// settings, including comments, whatever OpenClaw notes there for itself meanwhile.
func TestOpenClawAndBack(t *testing.T) {
	p, file := openClawPlace(t, commented)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "busy"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		o := findOpenClaw(t, p)
		if err := o.Fit(t.Context()); err != nil || !slices.Equal(o.Agents, []string{"alice", "bob"}) || o.Settings != file {
			t.Fatalf("%v, agents %q, settings %s", err, o.Agents, o.Settings)
		}
		files, settings := o.Lacks("/run/k.sock")
		if lacks := i == 0; files != lacks || len(settings) > 0 != lacks {
			t.Fatalf("time %d: it lacks files: %t, settings: %q", i, files, settings)
		}
		if gated, why := OpenClawState(t.Context(), p, o.Version, "/run/k.sock"); gated == (i == 0) || why == "" {
			t.Errorf("time %d: gated: %t, %s", i, gated, why)
		}
		if i > 0 {
			if gated, why := OpenClawState(t.Context(), p, o.Version, "/run/other.sock"); gated || !strings.Contains(why, file+`: plugins.entries.ocip.config.socket is "/run/k.sock", and "/run/other.sock" was entered`) {
				t.Errorf("of another daemon: %t, %s", gated, why)
			}
			if _, settings := o.Lacks("/run/other.sock"); len(settings) != 1 {
				t.Error("another daemon's socket is no change")
			}
			continue
		}
		if err := errors.Join(o.Note(nil), o.Install(t.Context(), "/run/k.sock")); err != nil {
			t.Fatal(err)
		}
	}
	if !openClaw.Integrated(p) {
		t.Error("it does not count as integrated")
	}
	// A starting Gateway notes its version.
	var all map[string]any
	if err := json.Unmarshal([]byte(read(t, file)), &all); err != nil {
		t.Fatal(err)
	}
	all["meta"] = map[string]any{"lastTouchedVersion": "2026.9.6"}
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := findOpenClaw(t, p)
	if plan, err := o.Planned(); err != nil || len(plan) != 2 || !strings.Contains(plan[1], "byte for byte") {
		t.Errorf("planned: %q, %v", plan, err)
	}
	if _, err := o.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Forget(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); got != commented {
		t.Errorf("the settings are\n%s", got)
	}
	if _, err := os.Stat(o.Plugin); !errors.Is(err, fs.ErrNotExist) || openClaw.Integrated(p) {
		t.Error("something of it stays")
	}
	if plan, err := findOpenClaw(t, p).Planned(); err != nil || len(plan) != 0 {
		t.Errorf("planned once more: %q, %v", plan, err)
	}
}

// openClawEdits are edits of the plugin's settings, each with the expected report; without one the
// edit is an option of the user's.
var openClawEdits = []struct{ patch, says string }{
	{`{"entries": {"ocip": {"hooks": {"timeouts": {"message_sending": 1}}}}}`, "plugins.entries.ocip.hooks.timeouts was not entered"},
	{`{"entries": {"ocip": {"hooks": {"timeoutMs": 1}}}}`, "plugins.entries.ocip.hooks.timeoutMs was not entered"},
	{`{"entries": {"ocip": {"hooks": {"allowConversationAccess": false}}}}`, "plugins.entries.ocip.hooks.allowConversationAccess is false, and true was entered"},
	{`{"entries": {"ocip": {"hooks": null}}}`, "plugins.entries.ocip.hooks is missing"},
	{`{"entries": {"ocip": {"enabled": false}}}`, "plugins.entries.ocip.enabled is false"},
	{`{"entries": {"ocip": {"unknown": {"a": {"b": 1}}}}}`, "plugins.entries.ocip.unknown was not entered"},
	{`{"entries": {"ocip": {"config": {"tools": "off"}}}}`, "plugins.entries.ocip.config.tools was not entered"},
	{`{"entries": {"ocip": {"config": {"appId": "other"}}}}`, "plugins.entries.ocip.config.appId was not entered"},
	{`{"entries": {"ocip": {"config": {"socket": "/x"}}}}`, `plugins.entries.ocip.config.socket is "/x"`},
	{`{"entries": {"ocip": {"config": {"socket": null}}}}`, "plugins.entries.ocip.config.socket is missing"},
	{`{"entries": {"ocip": null}}`, "plugins.entries.ocip is missing"},
	{`{"entries": {"ocip": 7}}`, "plugins.entries.ocip is missing"},
	{`{"allow": ["other"]}`, "plugins.allow does not have ocip"},
	{`{"entries": {"ocip": {"config": {"sendTools": {"mine": {}}, "state": "/s", "tools": "enforce"}}}}`, ""},
	{`{"entries": {"other": {"hooks": {"timeoutMs": 1}}}}`, ""},
}

// Each edit of the plugin's settings is reported with its file, and entering again removes it. The
// user's own options stay.
func TestOpenClawStrays(t *testing.T) {
	for _, tt := range openClawEdits {
		p, file := openClawPlace(t, `{}`)
		p.Socket = "/k"
		enter := func() {
			t.Helper()
			o := findOpenClaw(t, p)
			if err := errors.Join(o.Note(nil), o.Install(t.Context(), p.Socket)); err != nil {
				t.Fatal(err)
			}
			if strays, err := openClaw.Strays(p); err != nil || len(strays) > 0 {
				t.Fatalf("%s: entered: %v, %v", tt.patch, strays, err)
			}
		}
		enter()
		if err := pretend(filepath.Dir(file), []string{"config", "patch", "--file", patchFile(t, `{"plugins": `+tt.patch+`}`)}); err != nil {
			t.Fatal(err)
		}
		edited := read(t, file)
		strays, err := openClaw.Strays(p)
		if err != nil || (len(strays) > 0) != (tt.says != "") || tt.says != "" && !strings.HasPrefix(strays[0].String(), file+": "+tt.says) {
			t.Errorf("%s: %v, %v", tt.patch, strays, err)
		}
		if gated, why := OpenClawState(t.Context(), p, "OpenClaw 2026.9.6", p.Socket); gated != (tt.says == "") || !strings.Contains(why, tt.says) {
			t.Errorf("%s: gated: %t, %s", tt.patch, gated, why)
		}
		if enter(); tt.says == "" && read(t, file) != edited {
			t.Errorf("%s: became %s", tt.patch, read(t, file))
		}
	}
}

// Changes by others stay, and our own entries go.
func TestOpenClawKeepsOthersChanges(t *testing.T) {
	p, file := openClawPlace(t, `{"plugins": {"allow": ["other"], "entries": {"other": {}}}}`)
	o := findOpenClaw(t, p)
	if err := errors.Join(o.Note(nil), o.Install(t.Context(), "/k")); err != nil {
		t.Fatal(err)
	}
	o = findOpenClaw(t, p)
	if !slices.Equal(o.plugins.Allow, []string{"other", pluginID}) {
		t.Errorf("plugins.allow is %q: the plugin would not be loaded", o.plugins.Allow)
	}
	if err := pretend(filepath.Dir(file), []string{"config", "patch", "--file", patchFile(t, `{"mine": 2}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	var now struct {
		Mine    int
		Plugins pluginSettings
	}
	if err := json.Unmarshal([]byte(read(t, file)), &now); err != nil {
		t.Fatal(err)
	}
	if now.Mine != 2 || !slices.Equal(now.Plugins.Allow, []string{"other"}) || !slices.Equal(slices.Collect(maps.Keys(now.Plugins.Entries)), []string{"other"}) {
		t.Errorf("the settings are %s", read(t, file))
	}
}

func patchFile(t *testing.T, text string) string {
	t.Helper()
	_, file := place(t, "patch.json", text)
	return file
}

// If a gate would stay open, that is reported, and nothing is installed.
func TestOpenClawRefused(t *testing.T) {
	for _, tt := range []struct{ version, settings, want string }{
		{"2026.8.31", `{}`, "too old"},
		{"2025.12.1", `{}`, "too old"},
		{"soon", `{}`, "cannot tell which OpenClaw"},
		{"2026.9.0", `{"plugins": {"enabled": false}}`, "loads no plugins"},
		{"2027.1.0", `{"plugins": {"deny": ["ocip"]}}`, "plugins.deny"},
		{"2026.9.6", `{"plugins": {"load": {"paths": ["/other"]}}}`, "takes the plugin ocip from /other"},
		{"2026.10.1", `{"gateway": {"mode": "remote"}}`, "another machine"},
		{"2026.9.6", `{"gateway": {"mode": "local"}}`, ""},
	} {
		p, _ := openClawPlace(t, tt.settings)
		t.Setenv("PRETENDED_VERSION", tt.version)
		if gated, why := OpenClawState(t.Context(), p, "OpenClaw "+tt.version, "/s"); gated || !strings.Contains(why, tt.want) {
			t.Errorf("%s %s: gated: %t, %s", tt.version, tt.settings, gated, why)
		}
		err := findOpenClaw(t, p).Fit(t.Context())
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.version, tt.settings, err, tt.want)
		}
	}
}

// The result of a canary depends only on the log. Without a record, it depends on whether
// the agent has tried.
func TestTry(t *testing.T) {
	for _, tt := range []struct {
		name    string
		sent    error
		records []Record
		want    string
		unknown bool
		ways    int
	}{
		{"refused", nil, []Record{{Seq: 7, Refused: true}}, "", false, 1},
		{"refused, and the turn failed after it", errors.New("model"), []Record{{Seq: 7, Refused: true}}, "", false, 1},
		{"in two ways", nil, []Record{{Seq: 7, Refused: true}, {Seq: 8, Refused: true}}, "", false, 2},
		{"in two ways, of which one let it pass", nil, []Record{{Seq: 7, Refused: true}, {Seq: 8}}, "see record 8", false, 2},
		{"in two ways, of which one failed", errors.New("no daemon"), []Record{{Seq: 7, Refused: true}}, "no daemon", false, 2},
		{"in two ways, of which one asked nobody", nil, []Record{{Seq: 7, Refused: true}}, "the gate is open", false, 2},
		{"let pass", nil, []Record{{Seq: 7}}, "let the canary of Trial pass, see record 7", false, 1},
		{"sent past the gate", nil, nil, "the gate is open", false, 1},
		{"not sent", ErrNotSent, nil, "nothing was tried", true, 1},
		{"a turn that failed", errors.New("no model"), nil, "no model", false, 1},
	} {
		c := NewCanary("id")
		r := &Runtime{Title: "Trial", Canary: func(context.Context, *Runtime, *Place, *Canary) (int, error) { return tt.ways, tt.sent }}
		record, err := r.Try(t.Context(), nil, c, func(_ context.Context, session string) ([]Record, error) {
			if session != c.Session {
				t.Errorf("%s: looked for %q", tt.name, session)
			}
			return tt.records, nil
		})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrNotSent) != tt.unknown || err == nil && record.Seq != 7 {
			t.Errorf("%s: %v, %v", tt.name, record, err)
		}
	}
}
