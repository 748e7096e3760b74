package taskcmd

import (
	"fmt"
	"io"
	"os"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/openprose"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewProse returns the commands about programs in OpenProse.
func NewProse(p *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "prose", Short: "check programs in OpenProse"})
	c.AddCommand(newProseCheck(p))
	return c
}

func newProseCheck(s *cli.Process) *cobra.Command {
	var asJSON bool
	var o openprose.Options
	c := &cobra.Command{
		Use: "check FILE...",
		Example: "  ocipd prose check ocip-protocol.prose.md\n" +
			"  ocipd prose check --language-only *.prose.md",
		Short: "check programs by the language and by the protocol's rules",
		Long: `Check programs in OpenProse before a model runs them: contracts (*.prose.md) with
the scripts in them, and standalone scripts (*.prose). What is wrong is named by file,
line and column; errors exit with 1.

Beside the published grammar (skill 0.15.0) these are errors: a loop without max, a
choice on the phase with an option that is no phase, a tool that is used and not
declared, and an agent or function other than the orchestrator that is told of
task_transition, task_open_circuit, task_close_circuit or task_run_effect. An agent's name
begins with its role: orchestrator, executor, spec-reviewer, quality-reviewer or lobster.
A retry on an executor is a warning.

A standalone script declares its tools in a comment: # tools: mcp:ocipd, cli:lobster`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			found, failed := []openprose.Finding{}, false
			for _, file := range args {
				source, err := readProgram(file)
				if err != nil {
					return err
				}
				for _, f := range openprose.Check(file, source, o) {
					found = append(found, f)
					failed = failed || f.Level == openprose.Error
				}
			}
			if asJSON {
				if err := s.PrintJSON(found); err != nil {
					return err
				}
			} else {
				for _, f := range found {
					fmt.Fprintln(s.Stdout, term.OneLine(f.String()))
				}
			}
			if failed {
				return cli.ErrSaid
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.LanguageOnly, "language-only", false, "leave out the protocol's rules")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// readProgram reads a file up to the size limit of programs.
func readProgram(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the program: %w", err)
	}
	defer f.Close()
	source, err := io.ReadAll(io.LimitReader(f, openprose.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the program: %w", err)
	}
	return source, nil
}
