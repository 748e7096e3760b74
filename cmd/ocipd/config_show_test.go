package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// The shown configuration parses as the original, gives the source of each value, and
// counts the entries of the directory file.
func TestConfigShow(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ocipd.yaml")
	for name, text := range map[string]string{
		"ocipd.yaml":     "directory:\n  - {kind: person, user_id: \"Bearer hunter2\", sessions: [\"irc:a\"]}\naccess:\n  apps:\n    \"@acme/tg\": {channels: [telegram]}\ndirectory_file: contacts.jsonl\nlog: {level: debug}\n",
		"contacts.jsonl": "{\"kind\":\"person\",\"sessions\":[\"telegram:1\"]}\n{\"kind\":\"person\",\"sessions\":[\"telegram:2\"]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	show := func(args ...string) []byte {
		t.Helper()
		var out, failed bytes.Buffer
		if code := run(t.Context(), append([]string{"--config", file, "config", "show"}, args...), strings.NewReader(""), &out, &failed, nil); code != cli.ExitDone {
			t.Fatalf("it exits %d: %s", code, failed.String())
		}
		return out.Bytes()
	}
	shown := show()
	again, err := config.Parse("shown", shown)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Directory) != 1 || again.Log.Level != "debug" || len(again.Access.Apps["@acme/tg"].Channels) != 1 || again.DirectoryFile != "contacts.jsonl" {
		t.Errorf("what is shown reads as %+v", again)
	}
	for _, want := range []string{
		fmt.Sprintf("directory_file: contacts.jsonl # %s:6, 2 contacts\n", file),
		fmt.Sprintf("        - telegram # %s:5\n", file),
		fmt.Sprintf("level: debug # %s:7\n", file),
		"Bearer ***",
	} {
		if !bytes.Contains(shown, []byte(want)) {
			t.Errorf("not shown: %s, in\n%s", want, shown)
		}
	}
	var report struct {
		Config  map[string]any    `json:"config"`
		Sources map[string]string `json:"sources"`
		Listed  int               `json:"listed"`
	}
	inJSON := show("--json")
	if err := json.Unmarshal(inJSON, &report); err != nil {
		t.Fatal(err)
	}
	if report.Listed != 2 || report.Sources["directory[0].kind"] != file+":2" || report.Config["directory_file"] != "contacts.jsonl" {
		t.Errorf("in JSON it is %s", inJSON)
	}
	if bytes.Contains(append(inJSON, shown...), []byte("hunter2")) {
		t.Error("a secret in an entry is shown")
	}
}
