package sdk

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/client"
)

// published runs the daemon's program for one form of the protocol.
func published(t *testing.T, form ...string) []byte {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), filepath.Join(programs, "ocipd"), append([]string{"protocol"}, form...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTypes holds the types of the other SDKs against the published schema.
func TestTypes(t *testing.T) {
	for form, file := range map[string]string{"python": "python/ocipd/protocol.py", "types": "node/protocol.d.ts"} {
		is, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(is) != string(published(t, form)) {
			t.Errorf("%s is not what ocipd protocol %s prints: run make reference", file, form)
		}
	}
}

// TestPythonPackage builds the package as make sdk does, installs it from the built file, and uses
// a class and a type of the installed one.
func TestPythonPackage(t *testing.T) {
	python := ""
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import pip, setuptools, wheel").Run() == nil {
			python = name
			break
		}
	}
	if python == "" {
		t.Skip("no python3 with pip, setuptools and wheel is installed")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "source"), os.DirFS("python")); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), python, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", "built", "./source")
	built, err := filepath.Glob(filepath.Join(dir, "built", "*.whl"))
	if err != nil || len(built) != 1 {
		t.Fatalf("%q was built, %v", built, err)
	}
	run("-m", "pip", "install", "--no-index", "--target", "installed", built[0])
	said := run("-I", "-c", "import sys; sys.path.insert(0, 'installed'); import ocipd, ocipd.protocol as p, typing; "+
		"print(ocipd.__file__, ocipd.Forbidden.code, sorted(typing.get_type_hints(p.QueueResult)))\n"+
		"try: ocipd.App('@x/y', socket='/nonexistent')\nexcept ocipd.NotRunning as e: print(e)")
	for _, want := range []string{"installed/ocipd/__init__.py", "FORBIDDEN ['queued', 'runId']", "ocipd does not answer on /nonexistent ("} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "installed", "ocipd", "py.typed")); err != nil {
		t.Error(err)
	}
}

// TestNodePackage packs the package, and uses the packed one.
func TestNodePackage(t *testing.T) {
	needs(t, "npm")
	needs(t, "node")
	source, err := filepath.Abs("node")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), args[0], args[1:]...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("npm", "pack", "--silent", "--offline", "--pack-destination", dir, source)
	packed, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatalf("%q was packed, %v", packed, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", packed[0])
	said := run("node", "--input-type=module", "--eval", `import { App, NotRunning } from "@openclawos/ocipd";
		await App.connect({ id: "@x/y", socket: "/nonexistent" }).catch((e) => console.log(e instanceof NotRunning, e.message));`)
	if want := "true ocipd does not answer on /nonexistent (ENOENT); start it: ocipd serve"; said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
	for _, file := range []string{"index.d.ts", "protocol.d.ts", "lib/app.js"} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "@openclawos", "ocipd", file)); err != nil {
			t.Error(err)
		}
	}
}

// TestGoTypes holds the types of the Go client against the published schema: each member is one of
// the definition, of its kind.
func TestGoTypes(t *testing.T) {
	var schema struct {
		Defs map[string]struct {
			Enum       []string                   `json:"enum"`
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(published(t, "schema"), &schema); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]reflect.Type{
		"Message": reflect.TypeFor[client.Message](), "Inbound": reflect.TypeFor[client.Inbound](), "HookContext": reflect.TypeFor[client.About](),
		"DispatchResult": reflect.TypeFor[client.Dispatched](), "ExchangeRef": reflect.TypeFor[client.Exchange](), "QueueResult": reflect.TypeFor[client.Queued](),
		"ToolUse": reflect.TypeFor[client.ToolCall](), "ApprovalOutcome": reflect.TypeFor[client.Outcome](), "Grant": reflect.TypeFor[client.Grant](),
		"AgentSent": reflect.TypeFor[client.AgentSent](), "AgentMessage": reflect.TypeFor[client.AgentMessage](), "AgentMessages": reflect.TypeFor[client.Inbox](),
	} {
		def, is := schema.Defs[name]
		if !is {
			t.Errorf("the schema has no %s", name)
		}
		for field := range of.Fields() {
			member, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if member == "-" {
				continue
			}
			text, is := def.Properties[member]
			var has struct {
				Type any `json:"type"`
			}
			_ = json.Unmarshal(text, &has) // a member of any kind has the schema true
			if !is {
				t.Errorf("%s.%s is %q, which %s of the schema has not", of, field.Name, member, name)
			}
			if want := map[reflect.Kind]any{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer"}[field.Type.Kind()]; want != nil && has.Type != want && has.Type != nil {
				t.Errorf("%s.%s is a %s, and %s of the schema is a %v", of, field.Name, field.Type, member, has.Type)
			}
		}
	}
	codes := []client.Code{
		client.UnknownError, client.InvalidRequest, client.MethodNotFound, client.InvalidParams, client.InternalError, client.Unauthorized, client.Forbidden,
		client.NotFound, client.Conflict, client.Timeout, client.AppNotRegistered, client.CapabilityDenied, client.HookNotSubscribed, client.ConnectionClosed,
	}
	for i, code := range schema.Defs["ErrorCode"].Enum {
		if i >= len(codes) || string(codes[i]) != code {
			t.Errorf("the client has no constant for %s", code)
		}
	}
}
