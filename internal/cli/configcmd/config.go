// Package configcmd has the commands about the configuration and the policy.
package configcmd

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/doctor"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/spf13/cobra"
)

// New returns the commands about the configuration.
func New(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.Group(&cobra.Command{Use: "config", Short: "check, show, create, migrate or reload the configuration"})
	c.AddCommand(newConfigCheck(s), newConfigShow(s), newConfigInit(s), newConfigMigrate(s), newConfigReload(s), newAddAgent(s))
	return c
}

// checkReport is the output of `ocipd config check --json`.
type checkReport struct {
	File   string          `json:"file"`
	OK     bool            `json:"ok"`
	Errors []configProblem `json:"errors"`
}

type configProblem struct {
	File    string `json:"file,omitzero"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Key     string `json:"key,omitzero"`
	Message string `json:"message"`
	Nearest string `json:"nearest,omitzero"`
}

func newConfigCheck(s *command) *cobra.Command {
	var asJSON, diff bool
	var set []string
	c := &cobra.Command{
		Use: "check [FILE]",
		Example: "  ocipd config check\n" +
			"  ocipd config check new.yaml\n" +
			"  ocipd config check --diff",
		Short: "check the configuration and print every fault",
		Long: `Check the configuration and print every fault: first keys and values, then what
they name, as the daemon does at its start (the policy compiles; signers and
certificates can be read).

With --diff, the running daemon checks its own file, under its own environment
and flags, and prints what a reload would change and what needs a restart.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if diff {
				if len(args) > 0 || len(set) > 0 {
					return cli.Usagef("--diff is about the file of the running daemon, so it goes with no FILE and no --set")
				}
				return s.configDiff(cmd.Context(), asJSON)
			}
			file, err := s.configArg(args)
			if err != nil {
				return err
			}
			flags, err := cli.KeyValues(set)
			if err != nil {
				return err
			}
			cfg, err := s.LoadFile(file, flags)
			if err == nil {
				err = daemon.Check(cmd.Context(), cfg)
			}
			if asJSON {
				return s.reportCheck(file, cfg, err)
			}
			switch {
			case err != nil:
				cli.Complain(s.Stderr, err)
				if cfg != nil {
					s.printLacking(cfg)
				}
				return cli.ErrSaid
			case cfg.File == "":
				_, err = fmt.Fprintln(s.Stdout, "ok: no configuration file; using defaults")
			default:
				_, err = fmt.Fprintf(s.Stdout, "ok: %s\n", term.Printable(cfg.File))
			}
			return cmp.Or(err, s.noteUngranted(cfg))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&diff, "diff", false, "say what a reload would change in the running daemon")
	cli.SetFlag(c, &set)
	return c
}

// noteUngranted says that apps have no rights, if all rights must be declared and none is.
func (s *command) noteUngranted(cfg *config.Config) error {
	if declared, err := kernelconfig.Declared(cfg); err != nil || !declared || len(cfg.Access.Apps) > 0 {
		return err
	}
	_, err := fmt.Fprintln(s.Stderr, "note: with agents of several tenants, or apps of several users, apps have only what access.apps gives them, which is nothing yet")
	return err
}

// printLacking prints the mandatory lines that a configuration lacks, as one block to add.
func (s *command) printLacking(cfg *config.Config) {
	lacks, err := kernelconfig.Undeclared(cfg, nil)
	if err != nil || len(lacks) == 0 {
		return
	}
	fmt.Fprintln(s.Stderr, "add, with the ids of your apps:")
	for line := range strings.Lines(kernelconfig.Lines(lacks)) {
		fmt.Fprintln(s.Stderr, "  "+term.Printable(strings.TrimRight(line, "\n")))
	}
}

func (s *command) reportCheck(file string, cfg *config.Config, failure error) error {
	report := checkReport{File: file, OK: failure == nil, Errors: []configProblem{}}
	var problems config.Errors
	switch {
	case failure == nil:
		report.File = cfg.File
	case errors.As(failure, &problems):
		for _, p := range problems {
			report.Errors = append(report.Errors, configProblem{
				File: p.File, Line: p.Line, Column: p.Column, Key: p.Key, Message: p.Message, Nearest: p.Nearest,
			})
		}
	default:
		return failure
	}
	if err := s.PrintJSON(report); err != nil {
		return err
	}
	return failure
}

// configArg is the configuration file of a command.
func (s *command) configArg(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return s.ConfigFile, nil
	case s.ConfigFile != "":
		return "", cli.Usagef("a file is named twice: %s and --config %s", args[0], s.ConfigFile)
	}
	return args[0], nil
}

func newConfigShow(s *command) *cobra.Command {
	var asJSON bool
	var set []string
	c := &cobra.Command{
		Use:     "show",
		Example: "  ocipd config show",
		Short:   "show the configuration in force, secrets masked",
		Long: `Show the configuration that results from file, environment and flags, with
secrets masked. A comment names the source of each value; a value without one is
the default. Entries of directory_file are only counted; "ocipd contacts list"
shows them.

While a daemon runs with another file, that file is shown and named, unless
--config names one. Environment and flags are those of this command.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags, err := cli.KeyValues(set)
			if err != nil {
				return err
			}
			note, theirs := doctor.New(cmd.Context(), s.Process).AnotherFile()
			if note != "" {
				fmt.Fprintln(s.Stderr, "note: "+term.Printable(note))
			}
			file := cmp.Or(s.ConfigFile, theirs)
			cfg, err := s.LoadFile(file, flags)
			if err != nil {
				return err
			}
			return s.showConfig(cfg, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.SetFlag(c, &set)
	return c
}
