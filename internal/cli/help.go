package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// HelpWidth is the width of a help page in columns, that of the smallest common terminal.
const HelpWidth = 80

// ShowHelp makes the whole command tree print its help pages folded to [HelpWidth], and
// suggest the likely flag for a misspelt one.
func ShowHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { WriteHelp(c.OutOrStdout(), c) })
	root.SetUsageFunc(func(c *cobra.Command) error { return nil })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if near := nearestFlag(c, err); near != "" {
			return Usagef("%v: did you mean --%s?", err, near)
		}
		return err
	})
	root.SetHelpCommand(&cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "print the help page of a command",
		Example: "  ocipd help audit query",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && c.HasSubCommands() {
				err = unknownCommand(c, rest[0])
			}
			if err != nil {
				return err
			}
			return c.Help()
		},
	})
}

// unknownCommand reports an unknown command, and suggests the likely one.
func unknownCommand(c *cobra.Command, name string) error {
	message := fmt.Sprintf("unknown command %q", name)
	if near := nearestCommand(c, name); near != "" {
		message += fmt.Sprintf(": did you mean %q?", near)
	}
	return Usagef("%s", message)
}

// nearestCommand is the command below c that begins with a name or resembles it, or "".
func nearestCommand(c *cobra.Command, name string) string {
	var names []string
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if strings.HasPrefix(sub.Name(), name) {
			return sub.Name()
		}
		names = append(names, sub.Name())
	}
	return text.Nearest(name, names, text.Near(name))
}

// nearestFlag is the flag of c that resembles the unknown one in err, or "".
func nearestFlag(c *cobra.Command, err error) string {
	_, wrong, found := strings.Cut(err.Error(), "unknown flag: --")
	if !found {
		return ""
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return text.Nearest(wrong, names, text.Near(wrong))
}

// WriteHelp writes the help page of a command: description, usage, flags and examples.
func WriteHelp(w io.Writer, c *cobra.Command) {
	about := cmp.Or(c.Long, sentence(c.Short))
	fmt.Fprintf(w, "%s\n\nUsage:\n", foldParagraphs(about))
	if c.Runnable() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	}
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(w, "\n%s:\n%s\n", title, strings.TrimRight(text, "\n"))
		}
	}
	titles := map[string]string{"": "Commands"}
	order := []string{}
	for _, g := range c.Groups() {
		titles[g.ID], order = g.ID, append(order, g.ID)
	}
	for _, id := range append(order, "") {
		section(titles[id], commandRows(c, id))
	}
	section("Flags", c.LocalFlags().FlagUsagesWrapped(HelpWidth))
	section("Flags of every command", c.InheritedFlags().FlagUsagesWrapped(HelpWidth))
	section("Examples", example(c))
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" says more about a command.\n", c.CommandPath())
	}
}

// mostExamples is how many examples a group takes from its commands.
const mostExamples = 3

// example returns a command's examples. A group without any has its commands' first ones.
func example(c *cobra.Command) string {
	if c.Example != "" {
		return c.Example
	}
	var lines []string
	for _, sub := range c.Commands() {
		if first, _, _ := strings.Cut(example(sub), "\n"); sub.IsAvailableCommand() && first != "" && len(lines) < mostExamples {
			lines = append(lines, first)
		}
	}
	return strings.Join(lines, "\n")
}

// commandRows lists the commands of a group below c, a row each.
func commandRows(c *cobra.Command, group string) string {
	subs := slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() || sub.GroupID != group
	})
	var b strings.Builder
	for _, sub := range subs {
		name := fmt.Sprintf("  %-*s  ", sub.NamePadding(), sub.Name())
		lines := term.FoldAtBlanks(sub.Short, HelpWidth-len(name))
		b.WriteString(name + strings.Join(lines, "\n"+strings.Repeat(" ", len(name))) + "\n")
	}
	return b.String()
}

// foldParagraphs folds each paragraph of a text; indented lines stay as they are.
func foldParagraphs(text string) string {
	var out, paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, term.FoldAtBlanks(strings.Join(paragraph, " "), HelpWidth)...)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		out = append(out, line)
	}
	flush()
	return strings.Join(out, "\n")
}

// sentence turns a command's short description into a sentence.
func sentence(short string) string {
	if short == "" {
		return ""
	}
	return strings.ToUpper(short[:1]) + short[1:] + "."
}

// Group makes a command that only holds others. Calling it alone is a usage error.
func Group(c *cobra.Command) *cobra.Command {
	return GroupAround(c, nil)
}

// GroupAround makes a command that holds others. Alone, it runs usual, with its flags.
func GroupAround(c, usual *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	if usual != nil {
		c.Flags().AddFlagSet(usual.Flags())
		c.AddCommand(usual)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case usual != nil:
			return usual.RunE(cmd, nil)
		}
		WriteHelp(cmd.ErrOrStderr(), cmd)
		return Usagef("a command is missing")
	}
	return c
}
