package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
)

// TestResult is the result of one Rego test, a rule whose name begins with
// test_.
type TestResult struct {
	Package string // without "data."
	Name    string
	File    string
	Line    int
	// Passed and Skipped are false for a test that failed. A rule whose name
	// begins with todo_test_ is skipped.
	Passed, Skipped bool
	// Detail gives more about a failure, if known: the error, or the cases that failed.
	Detail string
	// Output is the output of the test.
	Output   string
	Duration time.Duration
}

// Test runs the Rego tests of the policy at path, as in [Source], with its _test.rego files, and
// returns their results by file and line. The policy compiles under the rules of [Compile], and
// data.policy is empty unless a test sets it. Each test may take 5 seconds.
//
// Neither a failed test nor an absence of tests is an error: the caller counts. Errors come from
// reading, from compiling, and from ctx.
func Test(ctx context.Context, path string) ([]TestResult, error) {
	files, err := load(path, true)
	if err != nil {
		return nil, err
	}
	modules, err := parse(files)
	if err != nil {
		return nil, err
	}
	done, err := tester.NewRunner().
		SetCompiler(newCompiler().WithEnablePrintStatements(true)).
		RaiseBuiltinErrors(true).
		SetModules(modules).
		RunTests(ctx, nil)
	var list ast.Errors
	switch {
	case errors.As(err, &list):
		return nil, explain(files[0].display, list)
	case err != nil:
		return nil, fmt.Errorf("cannot run policy tests: %w", err)
	}
	var results []TestResult
	for r := range done {
		results = append(results, testResult(r))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot run policy tests: %w", err)
	}
	slices.SortFunc(results, func(a, b TestResult) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Name, b.Name))
	})
	return results, nil
}

func testResult(r *tester.Result) TestResult {
	result := TestResult{
		Package:  strings.TrimPrefix(r.Package, "data."),
		Name:     r.Name,
		Passed:   r.Pass(),
		Skipped:  r.Skip,
		Output:   string(r.Output),
		Duration: r.Duration,
	}
	if r.Location != nil {
		result.File, result.Line = r.Location.File, r.Location.Row
	}
	var failed []string
	for name, sub := range r.SubResults.Iter {
		if sub.Fail && len(sub.SubResults) == 0 {
			failed = append(failed, strings.Join(name, "/"))
		}
	}
	switch {
	case r.Error != nil:
		result.Detail = r.Error.Error()
	case len(failed) > 0:
		result.Detail = "failed: " + strings.Join(failed, ", ")
	}
	return result
}
