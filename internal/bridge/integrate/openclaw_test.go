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
		if err := o.Fit(); err != nil || !slices.Equal(o.Agents, []string{"alice", "bob"}) || o.Settings != file {
			t.Fatalf("%v, agents %q, settings %s", err, o.Agents, o.Settings)
		}
		files, settings := o.Lacks("/run/k.sock")
		if lacks := i == 0; files != lacks || settings != lacks {
			t.Fatalf("time %d: it lacks files: %t, settings: %t", i, files, settings)
		}
		if gated, why := OpenClawState(t.Context(), p, o.Version, "/run/k.sock"); gated == (i == 0) || why == "" {
			t.Errorf("time %d: gated: %t, %s", i, gated, why)
		}
		if i > 0 {
			if gated, why := OpenClawState(t.Context(), p, o.Version, "/run/other.sock"); gated || !strings.Contains(why, "another socket") {
				t.Errorf("of another daemon: %t, %s", gated, why)
			}
			if _, settings := o.Lacks("/run/other.sock"); !settings {
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
		{"2026.10.1", `{"gateway": {"mode": "remote"}}`, "another machine"},
		{"2026.9.6", `{"gateway": {"mode": "local"}}`, ""},
	} {
		p, _ := openClawPlace(t, tt.settings)
		t.Setenv("PRETENDED_VERSION", tt.version)
		if gated, why := OpenClawState(t.Context(), p, "OpenClaw "+tt.version, "/s"); gated || !strings.Contains(why, tt.want) {
			t.Errorf("%s %s: gated: %t, %s", tt.version, tt.settings, gated, why)
		}
		err := findOpenClaw(t, p).Fit()
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
