package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/service"
)

// A service whose configuration lacks required lines continues with the former program,
// before anything is touched. A daemon started by hand reports the error, and so does one
// whose former program refuses the configuration as well.
func TestServiceGoesOnWithTheFormerProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("ocipd", string(program), 0o700)
	const agents = "agents:\n" +
		"  - {id: alice, app: \"@acme/alice\", instance_id: a-1, user_id: alice, org_unit: o, tenant_id: acme}\n" +
		"  - {id: gina, app: \"@globex/gina\", instance_id: g-1, user_id: gina, org_unit: o, tenant_id: globex}\n" +
		"routes: [{session: \"telegram:*\", agent: alice}]\n"
	put("ocipd.yaml", agents, 0o600)
	serve := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ocipd"), "serve", "--config", filepath.Join(dir, "ocipd.yaml"), "--socket", filepath.Join(dir, "k.sock"))
		cmd.Env = append([]string{asProgram + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GORACE=" + os.Getenv("GORACE")}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const asService, refused = "NOTIFY_SOCKET=/nowhere", "nothing says which app may have channel telegram"
	if out, err := serve(asService); err == nil || !strings.Contains(out, refused) {
		t.Errorf("without a former program: %v\n%s", err, out)
	}
	put("ocipd.former", "#!/bin/sh\necho \"former $FORMER_OCIPD: $*\"\n", 0o700)
	out, err := serve(asService)
	if err != nil || !strings.Contains(out, "the configuration lacks 2 lines of access.apps, so the former program ") ||
		!strings.Contains(out, "\nformer 1: serve --config "+filepath.Join(dir, "ocipd.yaml")) {
		t.Errorf("with one: %v\n%s", err, out)
	}
	for _, env := range [][]string{nil, {asService, service.FormerMark + "=1"}} {
		if out, err := serve(env...); err == nil || !strings.Contains(out, refused) || strings.Contains(out, "former 1") {
			t.Errorf("with %q: %v\n%s", env, err, out)
		}
	}
	put("ocipd.former", "#!/bin/sh\necho too old; exit 1\n", 0o700)
	if out, err := serve(asService); err == nil || !strings.Contains(out, refused) || !strings.Contains(out, "does not take the configuration either: too old") {
		t.Errorf("with one that refuses too: %v\n%s", err, out)
	}
	if cli.Exists(filepath.Join(dir, ".local")) || cli.Exists(filepath.Join(dir, "k.sock")) {
		t.Error("something was touched")
	}
}
