package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelp reads the help page of every command: it fits a terminal, shows an example, and
// names each flag's value.
func TestHelp(t *testing.T) {
	pages := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && c.Name() != "completion" {
				walk(sub)
			}
		}
		pages++
		path := c.CommandPath()
		var page bytes.Buffer
		cli.WriteHelp(&page, c)
		for line := range strings.SplitSeq(page.String(), "\n") {
			if term.Width(line) > cli.HelpWidth && !strings.HasPrefix(line, "  ocipd") {
				t.Errorf("%s: %d columns: %s", path, term.Width(line), line)
			}
		}
		if !strings.Contains(page.String(), "\nExamples:\n  ocipd ") {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !c.HasSubCommands() && !strings.Contains(line, path) && !strings.Contains(c.Example, path) {
				t.Errorf("%s: the example %q is of another command", path, line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name == "string" || name == "duration" || name == "int" {
				t.Errorf("%s --%s does not name what it takes: %s", path, f.Name, f.Usage)
			}
			// People type -n for it, as with tail.
			if f.Name == "limit" && f.Shorthand != "n" {
				t.Errorf("%s --limit has the short form %q", path, f.Shorthand)
			}
		})
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short description is %q", path, c.Short)
		}
	}
	walk(newRoot(&shell{Process: cli.Process{}}))
	if pages < 50 {
		t.Errorf("%d pages were read", pages)
	}
}

// TestHelpExamples parses every command line in help pages as the program would: the
// command, its flags and its arguments are valid.
func TestHelpExamples(t *testing.T) {
	lines := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			words := commandLine(line)
			if len(words) == 0 || words[0] != "ocipd" {
				continue
			}
			lines++
			cmd, err := readCommand(words[1:])
			if err == nil {
				err = errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
			}
			for _, arg := range cmd.Flags().Args() {
				known := slices.ContainsFunc(cmd.ValidArgs, func(valid string) bool {
					name, _, _ := strings.Cut(valid, "\t")
					return name == arg
				})
				if err == nil && len(cmd.ValidArgs) > 0 && !known {
					err = fmt.Errorf("unknown argument %q", arg)
				}
			}
			if err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	}
	walk(newRoot(&shell{Process: cli.Process{}}))
	if lines < 100 {
		t.Errorf("%d examples were read", lines)
	}
}

// readCommand finds the command in words, and parses its flags.
func readCommand(words []string) (*cobra.Command, error) {
	c, rest, err := newRoot(&shell{Process: cli.Process{}}).Find(words)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil && c.HasSubCommands() && c.Flags().NArg() > 0 && c.ArgsLenAtDash() != 0 {
		err = fmt.Errorf("no command %q", c.Flags().Arg(0))
	}
	return c, err
}

// commandLine returns the words of the first command in a shell line.
func commandLine(line string) (words []string) {
	for line = strings.TrimSpace(line); line != "" && !strings.ContainsAny(line[:1], "|<>&#"); line = strings.TrimLeft(line, " ") {
		var word strings.Builder
		for line != "" && line[0] != ' ' {
			if quote := line[0]; quote == '\'' || quote == '"' {
				quoted, rest, _ := strings.Cut(line[1:], string(quote))
				word.WriteString(quoted)
				line = rest
				continue
			}
			word.WriteByte(line[0])
			line = line[1:]
		}
		words = append(words, word.String())
	}
	return words
}

// TestMistyped checks that wrong usage is answered with the probable intention, and exits 2.
func TestMistyped(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"status --jsno", "did you mean --json?"},
		{"audit query --reslt deny", "did you mean --result?"},
		{"exchanges lst", `did you mean "list"?`},
		{"statsu", `did you mean "status"?`},
		{"help foo", `unknown command "foo"`},
		{"help audit reciept", `did you mean "receipt"?`},
		{"status --zzzzzz", "unknown flag: --zzzzzz (see"},
		{"check --token-file ann.token telegram:1 hello", "an agent's token does not allow checks, which are for operators. Name the agent with --agent ID"},
		{"send --token-file ann.token telegram:1 hello", "to send by the token, use ocipd call --token-file FILE agent.send '{"},
		{"check --jsno telegram:1 hello", "did you mean --json?"},
		{"audit", "a command is missing"},
		{"completion tcsh", `unknown command "tcsh" (see`},
		{"audit query --result nope", "want one of allow, deny, hold"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), strings.NewReader(""), &stdout, &stderr, nil)
		if code != cli.ExitUsage || !strings.Contains(stderr.String(), tc.want) || stdout.Len() > 0 {
			t.Errorf("%s exits %d: %s%s", tc.args, code, &stderr, &stdout)
		}
	}
}
