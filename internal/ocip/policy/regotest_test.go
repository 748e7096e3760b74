package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/configs/policies"
)

// TestDefaultPolicyRego runs the Rego tests of the built-in policy, and checks that every file of
// it has some.
func TestDefaultPolicyRego(t *testing.T) {
	results, err := Test(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, r := range results {
		found[r.File]++
		if !r.Passed {
			t.Errorf("%s:%d: %s: %s\n%s", r.File, r.Line, r.Name, r.Detail, r.Output)
		}
	}
	files, err := load("", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if test := strings.TrimSuffix(f.name, ".rego") + "_test.rego"; found[test] == 0 {
			t.Errorf("%s: no test in %s", f.name, test)
		}
	}
}

// TestDefaultPolicyStrict compiles the built-in policy as strictly as the
// compiler can.
func TestDefaultPolicyStrict(t *testing.T) {
	files, err := load("", true)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	compiler := newCompiler().WithStrict(true)
	if compiler.Compile(modules); compiler.Failed() {
		t.Error(explain("", compiler.Errors))
	}
}

func TestPolicyFilesAreEmbedded(t *testing.T) {
	for _, name := range []string{"agent_exchange.rego", "cross_org.rego"} {
		if _, err := policies.FS().Open(name); err != nil {
			t.Error(err)
		}
	}
}

func TestRegoTestResults(t *testing.T) {
	dir := write(t, map[string]string{
		"a.rego": "package ocip.agent_exchange\n" + allowAll,
		"a_test.rego": `package t
import data.ocip.agent_exchange
test_passes if agent_exchange.decision.allow
test_fails if { print("seen"); not agent_exchange.decision.allow }
todo_test_later if false
test_errs if to_number("x")
test_cases[name] if { some name, n in {"one": 1, "two": 2, "three": 3}; n != 2 }
`,
	})
	results, err := Test(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name            string
		line            int
		passed, skipped bool
		detail, output  string
	}{
		{"test_passes", 3, true, false, "", ""},
		{"test_fails", 4, false, false, "", "seen\n"},
		{"todo_test_later", 5, false, true, "", ""},
		{"test_errs", 6, false, false, "to_number", ""},
		{"test_cases", 7, false, false, "failed: two", ""},
	}
	if len(results) != len(want) {
		t.Fatalf("got %+v", results)
	}
	for i, w := range want {
		r := results[i]
		if r.Package != "t" || r.Name != w.name || r.Line != w.line || r.Passed != w.passed || r.Skipped != w.skipped ||
			!strings.Contains(r.Detail, w.detail) || (w.detail == "" && r.Detail != "") || r.Output != w.output || !strings.HasSuffix(r.File, "a_test.rego") {
			t.Errorf("got %+v, want %+v", r, w)
		}
	}
}

func TestRegoTestErrors(t *testing.T) {
	for name, text := range map[string]string{
		"syntax":    "package t\ntest_x if {",
		"compiling": "package t\ntest_x if y",
		"forbidden": "package t\n" + `test_x if http.send({})`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Test(t.Context(), write(t, map[string]string{"a_test.rego": text}))
			var faults CompileError
			if !errors.As(err, &faults) || faults[0].Line != 2 {
				t.Errorf("got %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Test(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if results, err := Test(t.Context(), write(t, map[string]string{"a.rego": crossOrg})); err != nil || len(results) != 0 {
		t.Errorf("no tests: got %v, %v", results, err)
	}
}
