package main

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/bridge/hook"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/evidence/export"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/spf13/cobra"
)

func newProtocol(s *shell) *cobra.Command {
	c := cli.Group(&cobra.Command{
		Use: "protocol", Short: "print the protocol: JSON Schema, types, reference pages",
		Long: "Print the kernel protocol for programs, as this ocipd serves it. No daemon has to run.",
	})
	c.AddCommand(
		newProtocolForm(s, "schema", "print one JSON Schema of the whole protocol",
			"Print a JSON Schema (2020-12) that each line of the protocol meets: request, response,\n"+
				"event and stream chunk. Its definitions hold the parameters and the result of each\n"+
				"method (Methods), the payload of each event (Events) and the codes of errors. Members\n"+
				"that begin with x- say who may call a method, how long it may take, whether it streams\n"+
				"and whether an operator signs it.", func(p *jsonschema.Schema) ([]byte, error) {
				return json.Marshal(p, jsontext.WithIndent("  "), json.Deterministic(true))
			}),
		newProtocolForm(s, "types", "print TypeScript declarations of the protocol",
			"Print TypeScript declarations made from the schema: an interface for each type, and the\n"+
				"maps Methods, from a name to its params and result, and Events, from a name to its\n"+
				"payload.", func(p *jsonschema.Schema) ([]byte, error) { return schema.TypeScript(p), nil }),
		newProtocolForm(s, "python", "print types of the protocol for Python",
			"Print types for Python made from the schema: a TypedDict for each object.",
			func(p *jsonschema.Schema) ([]byte, error) { return schema.Python(p), nil }),
		newProtocolPage(s, "methods", "print the reference page of all methods and events",
			"Print the reference page of all methods as Markdown: the purpose and the callers of each,\n"+
				"its errors, its parameters with their bounds and meanings, and the members of its result.", daemon.Reference),
		newProtocolPage(s, "errors", "print the reference page of error codes and verdicts",
			"Print the reference page of error codes and verdicts as Markdown, with the cause of each.", schema.Errors),
		newProtocolPage(s, "channels", "print the reference page of channels",
			"Print the reference page of the known channels as Markdown: the forms of session keys and\n"+
				"recipients of each.", directory.Reference),
		newProtocolPage(s, "records", "print the reference page of audit records",
			"Print the reference page of audit records as Markdown: each kind of record, and the names\n"+
				"of members in filters and exports.", func() ([]byte, error) { return audit.Reference(), nil }),
		newProtocolPage(s, "export-formats", "print the reference page of export formats",
			"Print the reference page of export formats as Markdown: a record in each format, and the\n"+
				"severities of events.", export.Reference),
		newProtocolRuntimes(s),
		newProtocolPage(s, "configuration", "print the reference page of the configuration",
			"Print the reference page of the configuration as Markdown: every key with its default and\n"+
				"its meaning, and the keys that need a restart.", configcmd.Reference),
		newProtocolPage(s, "commands", "print the reference page of commands",
			"Print the reference page of all commands and exit codes as Markdown.",
			func() ([]byte, error) { return cli.CommandPage(c.Root()), nil }),
	)
	return c
}

// newProtocolPage makes a command that prints a reference page.
func newProtocolPage(s *shell, name, short, long string, page func() ([]byte, error)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: long, Example: "  ocipd protocol " + name, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := page()
			if err != nil {
				return err
			}
			_, err = s.Stdout.Write(text)
			return err
		},
	}
}

// newProtocolRuntimes makes the command that prints the page of all runtimes, or of one.
func newProtocolRuntimes(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "runtimes [NAME]", Short: "print the reference page of runtimes with command hooks",
		Long: "Print the reference page of runtimes with command hooks as Markdown, or the page of one: the\n" +
			"calls that are gated, those that are not, how its hook fails, and how it is switched off.",
		Example: "  ocipd protocol runtimes\n  ocipd protocol runtimes gemini", Args: cobra.MaximumNArgs(1), ValidArgs: hook.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			page := hook.Page()
			if len(args) > 0 {
				row := hook.Find(args[0])
				if row == nil {
					return cli.Usagef("no runtime with command hooks is called %q: want one of %s", args[0], strings.Join(hook.Names(), ", "))
				}
				page = row.Page()
			}
			_, err := s.Stdout.Write(page)
			return err
		},
	}
}

// newProtocolForm makes the command that prints the protocol in one form.
func newProtocolForm(s *shell, name, short, long string, form func(*jsonschema.Schema) ([]byte, error)) *cobra.Command {
	var of string
	c := &cobra.Command{
		Use: name, Short: short, Long: long, Args: cobra.NoArgs,
		Example: "  ocipd protocol " + name + "\n  ocipd protocol " + name + " --for app",
		RunE: func(*cobra.Command, []string) error {
			if of != "app" && of != "operator" && of != "all" {
				return cli.Usagef("cannot print the protocol --for %q: want app, operator or all", of)
			}
			protocol, err := daemon.Protocol(of != "operator", of != "app")
			if err != nil {
				return err
			}
			text, err := form(protocol)
			if err != nil {
				return fmt.Errorf("cannot write the protocol: %w", err)
			}
			if text[len(text)-1] != '\n' {
				text = append(text, '\n')
			}
			_, err = s.Stdout.Write(text)
			return err
		},
	}
	c.Flags().StringVar(&of, "for", "all", "describe the `SOCKET` of apps (app), of operators (operator), or both (all)")
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]cobra.Completion{"app", "operator", "all"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return c
}
