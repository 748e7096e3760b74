package configcmd

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/spf13/cobra"
)

// NewPolicy returns the commands about policies.
func NewPolicy(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.Group(&cobra.Command{Use: "policy", Short: "check, test and reload Rego policies"})
	c.AddCommand(newPolicyNew(s), newPolicyCheck(s), newPolicyTest(s), newPolicyReload(s))
	return c
}

// policyPath is the named policy, or else the configuration's.
func (s *command) policyPath(args []string) (path string, data map[string]any, err error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return "", nil, err
	}
	if path = cfg.Policy.Path; len(args) == 1 {
		path = args[0]
	}
	return path, cfg.Policy.Data.Map(), nil
}

func builtIn(path string) string { return cmp.Or(path, "the built-in policy") }

func newPolicyCheck(s *command) *cobra.Command {
	return &cobra.Command{
		Use: "check [PATH]",
		Example: "  ocipd policy check\n" +
			"  ocipd policy check my-policy/",
		Short: "compile a policy and try it as the daemon does",
		Long: `Compile a policy with the policy.data of the configuration, and try it on
samples. Without PATH it is the policy that the configuration names.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, data, err := s.policyPath(args)
			if err != nil {
				return err
			}
			p, err := policy.Compile(cmd.Context(), policy.Source{Path: path, Data: data})
			if err != nil {
				return fmt.Errorf("cannot use %s: %w", builtIn(path), err)
			}
			tasks := "the built-in rules decide about tasks"
			if p.JudgesTasks() {
				tasks = "ocip.task decides about tasks"
			}
			tools := "nothing decides about tool calls"
			if p.JudgesTools() {
				tools = "ocip.tool decides about tool calls, where tools is enforce"
			}
			_, err = fmt.Fprintf(s.Stdout, "ok: %s, %d files, %s\n%s\n%s\n", term.Printable(builtIn(path)), len(p.Files()), p.Revision(), tasks, tools)
			return err
		},
	}
}

func newPolicyNew(s *command) *cobra.Command {
	return &cobra.Command{
		Use:     "new DIR",
		Example: "  ocipd policy new ~/.config/openclawos/policy",
		Short:   "write a policy of your own to begin with",
		Long: `Write a policy of your own to begin with: the built-in one, and my_rules.rego,
my_task_rules.rego and my_tool_rules.rego with example rules and their tests. DIR must not exist, or be empty. Nothing is
put in force: that takes policy.path in the configuration.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[0]
			if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
				return fmt.Errorf("%s has files in it; want a directory that is empty or does not exist", dir)
			}
			starter, err := policies.Starter()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("cannot make the directory: %w", err)
			}
			for _, name := range slices.Sorted(maps.Keys(starter)) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(starter[name]), 0o600); err != nil {
					return fmt.Errorf("cannot write the policy: %w", err)
				}
			}
			full, err := filepath.Abs(dir)
			if err != nil {
				full = dir
			}
			_, err = fmt.Fprintf(s.Stdout, "wrote %s to %s\nnext:\n  edit %s, my_task_rules.rego for tasks and my_tool_rules.rego for tools\n  ocipd policy test %s\n  set policy.path: %s in the configuration, then: ocipd policy reload\n",
				term.Count(len(starter), "file"), term.Printable(dir), term.Printable(filepath.Join(dir, "my_rules.rego")), cli.Argument(dir), term.Printable(full))
			return err
		},
	}
}

func newPolicyTest(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "test [PATH]",
		Example: "  ocipd policy test my-policy/",
		Short:   "run a policy's own tests (rules named test_…, in files named …_test.rego)",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, _, err := s.policyPath(args)
			if err != nil {
				return err
			}
			results, err := policy.Test(cmd.Context(), path)
			if err != nil {
				return fmt.Errorf("cannot test %s: %w", builtIn(path), err)
			}
			return s.reportPolicyTests(path, results, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON line a test")
	return c
}

func newPolicyReload(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "reload",
		Example: "  ocipd policy reload",
		Short:   "reload policy and configuration in the running daemon",
		Long: `Have the running daemon read its configuration and the policy's files again,
compile the policy, try it on samples, and put both in force. A fault is refused
with everything that is wrong, and nothing changes. With policy.watch the daemon
does this by itself when a file changes; "ocipd policy check" and "ocipd config
check --diff" preview it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result api.PolicyReloadResult
			if printed, err := s.tellReload(cmd.Context(), asJSON, &result); err != nil || printed {
				return err
			}
			said := "nothing has changed, " + result.Revision + " stays in force"
			if result.Changed {
				said = term.Count(len(result.Files), "file") + ", " + result.Revision + " is in force"
			}
			if _, err := fmt.Fprintln(s.Stdout, "ok: "+term.Printable(said)); err != nil {
				return err
			}
			return s.printReload(&result.Config)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, a refusal on stderr")
	return c
}

// policyTest is one test in JSON.
type policyTest struct {
	Package string `json:"package"`
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Result  string `json:"result"`
	Detail  string `json:"detail,omitzero"`
	Output  string `json:"output,omitzero"`
}

func (s *command) reportPolicyTests(path string, results []policy.TestResult, asJSON bool) error {
	scr := s.Screen()
	passed, failed := 0, 0
	for _, r := range results {
		outcome, colour := "pass", term.Green
		switch {
		case r.Skipped:
			outcome, colour = "skip", term.Yellow
		case r.Passed:
			passed++
		default:
			outcome, colour = "FAIL", term.Red
			failed++
		}
		if asJSON {
			if err := s.PrintJSON(policyTest{r.Package, r.Name, r.File, r.Line, outcome, r.Detail, r.Output}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(s.Stdout, "%s  %s\n", scr.Colour.Paint(colour, outcome), term.Printable(fmt.Sprintf("%s.%s (%s:%d)", r.Package, r.Name, r.File, r.Line)))
		for line := range strings.Lines(r.Detail + "\n" + r.Output) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintln(s.Stdout, "      "+term.Printable(line))
			}
		}
	}
	if !asJSON {
		fmt.Fprintf(s.Stdout, "%d passed, %d failed\n", passed, failed)
	}
	switch {
	case len(results) == 0:
		return fmt.Errorf("cannot find a test in %s: tests are rules named test_… in files named …_test.rego", builtIn(path))
	case failed > 0:
		return cli.ErrSaid
	}
	return nil
}
