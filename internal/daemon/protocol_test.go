package daemon_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ipc"
)

// published is the schema of the protocol in a program's view: encoded and decoded again.
func published(t *testing.T, apps, operators bool) *jsonschema.Schema {
	t.Helper()
	made, err := daemon.Protocol(apps, operators)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// checkBy returns a checker for a definition of the schema, "" for the whole.
func checkBy(t *testing.T, s *jsonschema.Schema, def string) func(text string) error {
	t.Helper()
	whole := *s
	if def != "" {
		whole.AnyOf, whole.Ref = nil, "#/$defs/"+def
	}
	resolved, err := whole.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return resolved.Validate(value)
	}
}

// Every message in the pages matches the published schema.
func TestPublishedSchemaFitsThePages(t *testing.T) {
	s := published(t, true, true)
	message, failure := checkBy(t, s, ""), checkBy(t, s, "ProtocolError")
	results := map[string]func(string) error{"dispatchId": checkBy(t, s, "DispatchResult"), "revision": checkBy(t, s, "PolicyReloadResult")}
	pages, err := filepath.Glob("../../docs/reference/protocol/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range append(pages, "../../docs/reference/protocol/verdicts.jsonl", "../../docs/reference/protocol/examples.jsonl") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "{\"") {
				continue
			}
			shown++
			var members map[string]jsontext.Value
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				t.Errorf("%s: %q: %v", page, line, err)
				continue
			}
			check := message
			for member, by := range results {
				if members[member] != nil {
					check = by
				}
			}
			if members["code"] != nil {
				check = failure
			}
			if err := check(line); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if shown < 40 {
		t.Errorf("the pages show %d messages", shown)
	}
}

// The accepted parameters of each method match the published schema.
func TestPublishedSchemaFitsTheMethods(t *testing.T) {
	s := published(t, true, true)
	check := checkBy(t, s, "")
	samples := sampleParams()
	maps.Copy(samples, taskSamples())
	tried := 0
	for _, m := range daemon.MethodTable() {
		for _, params := range samples[m.Name].good {
			if params == "" || strings.Contains(params, "null") || m.Access == ipc.AccessTask {
				continue // the daemon accepts null for an omitted member, and the schema does not
			}
			tried++
			if err := check(`{"id":"r1","type":"request","method":"` + m.Name + `","params":` + params + `}`); err != nil {
				t.Errorf("%s %s: %v", m.Name, params, err)
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d parameters were tried", tried)
	}
	for _, line := range []string{
		`{}`, `{"id":"r1","type":"request"}`, `{"id":"r1","type":"request","method":"no.such"}`, `{"id":"","type":"request","method":"app.ready"}`,
		`{"id":"r1","type":"request","method":"message.dispatch"}`, `{"id":"r1","type":"request","method":"message.dispatch","params":{"sessionKey":7}}`,
		`{"id":"r1","type":"request","method":"sending.pause","params":{"foo":1}}`, `{"id":"r1","type":"request","method":"task.get","params":{"task_id":"t","foo":1}}`,
		`{"id":"1","type":"response","timestamp":1,"requestId":"r1","success":true}`, `{"id":"1","type":"response","timestamp":1,"requestId":"r1","success":false,"result":{}}`,
		`{"id":"1","type":"response","timestamp":1,"requestId":"r1","success":false,"error":{"code":"NO_SUCH_CODE","message":"x"}}`,
		`{"id":"1","type":"event","timestamp":1,"event":"app:lost","payload":{}}`, `{"id":"1","type":"event","timestamp":1,"event":"app:found","payload":{}}`,
		`{"id":"1","type":"stream","timestamp":1,"requestId":"r1","done":true}`,
	} {
		if check(line) == nil {
			t.Errorf("the schema takes %s", line)
		}
	}
}

// The schema of a socket has its methods, with the permitted callers of each.
func TestPublishedSchemaOfASocket(t *testing.T) {
	for _, on := range []struct{ apps, operators bool }{{true, false}, {false, true}, {true, true}} {
		said := published(t, on.apps, on.operators).Defs["Methods"].Properties
		want := map[string][]any{}
		for _, m := range daemon.MethodTable() {
			if both := m.Access == ipc.AccessAny || m.Access == ipc.AccessTask; both || m.Access == ipc.AccessOperator && on.operators || m.Access != ipc.AccessOperator && on.apps {
				want[m.Name] = append(want[m.Name], string(m.Access))
			}
		}
		if a, b := slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
			t.Errorf("%+v: the methods are %q, want %q", on, a, b)
		}
		for name, access := range want {
			if got := said[name].Extra["x-access"]; !slices.Equal(got.([]any), access) {
				t.Errorf("%s: access %v, want %v", name, got, access)
			}
		}
	}
}
