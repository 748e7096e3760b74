package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/config"
)

// A long directory is shown whole, as YAML that reads as what was read, with where
// each entry comes from; and so in JSON.
func TestConfigShowsALongDirectory(t *testing.T) {
	var text strings.Builder
	text.WriteString("directory:\n")
	const entries = 12_000 // more than a megabyte, so that the file is read in pieces
	for n := range entries {
		fmt.Fprintf(&text, "  - instance_id: agent-%d\n    user_id: \"a: #%d\\n\"\n    org_unit: yes-%d\n    tenant_id: \"%d\"\n    sessions: [\"telegram:%d\"]\n", n, n, n, n, n)
	}
	text.WriteString("  - {kind: person, sessions: [\"irc:*\"]}\nlog: {level: debug}\n")
	file := filepath.Join(t.TempDir(), "ocipd.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	show := func(args ...string) []byte {
		t.Helper()
		var out, failed bytes.Buffer
		if code := run(t.Context(), append([]string{"--config", file, "config", "show"}, args...), strings.NewReader(""), &out, &failed, nil); code != exitDone {
			t.Fatalf("it exits %d: %s", code, failed.String())
		}
		return out.Bytes()
	}
	shown := show()
	again, err := config.Parse("shown", shown)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Directory, cfg.Directory) || again.Log.Level != "debug" {
		t.Error("what is shown reads as another configuration")
	}
	for _, n := range []int{0, 1, 6000, entries - 1} {
		want := fmt.Sprintf("  - kind: \"agent\" # %s:%d\n    instance_id: \"agent-%d\"\n", file, 2+5*n, n)
		if !bytes.Contains(shown, []byte(want)) {
			t.Errorf("not shown: %s", want)
		}
		if got, want := cfg.SourceAt(entryPath(n)), fmt.Sprintf("%s:%d", file, 2+5*n); got != want {
			t.Errorf("entry %d comes from %s, want %s", n, got, want)
		}
	}
	var report struct {
		Config struct {
			Directory []struct {
				InstanceID string   `json:"instance_id"`
				Kind       string   `json:"kind"`
				Sessions   []string `json:"sessions"`
			} `json:"directory"`
		} `json:"config"`
		Sources map[string]string `json:"sources"`
	}
	if err := json.Unmarshal(show("--json"), &report); err != nil {
		t.Fatal(err)
	}
	list := report.Config.Directory
	if len(list) != entries+1 || list[7].InstanceID != "agent-7" || list[entries].Kind != "person" || list[entries].Sessions[0] != "irc:*" {
		t.Errorf("JSON has %d entries", len(list))
	}
	secret := config.Contact{Kind: "agent", InstanceID: "Bearer hunter2", Sessions: []string{"irc:a", "irc:https://u:hunter2@h/"}}
	inJSON, err := json.Marshal(showContact(&secret))
	if out := string(appendContact(inJSON, &secret, "")); err != nil || strings.Contains(out, "hunter2") || strings.Count(out, "irc:https://***@h/") != 2 {
		t.Errorf("a secret in an entry is shown as %s, %v", out, err)
	}
	if secret.Sessions[1] != "irc:https://u:hunter2@h/" {
		t.Error("to show an entry changed it")
	}
	if got := report.Sources["directory[7]"]; got != file+":37" {
		t.Errorf("entry 7 comes from %q", got)
	}
}
