package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// CommandPage returns the reference page of all visible commands as Markdown.
func CommandPage(root *cobra.Command) []byte {
	b := new(strings.Builder)
	b.WriteString("# Commands\n\n<!-- Made by \"make reference\" from the tree of commands. Do not edit. -->\n\n" +
		"`ocipd COMMAND --help` and the manual pages have the flags of each command, with examples. Many commands print JSON lines with `--json`.\n" +
		"`--socket` and `--config` choose the daemon.\n")
	for _, g := range root.Groups() {
		fmt.Fprintf(b, "\n## %s\n\n| command | effect |\n| --- | --- |\n", g.ID)
		for _, c := range root.Commands() {
			if c.GroupID == g.ID {
				writeCommands(b, c)
			}
		}
	}
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n")
	for code, meaning := range exits {
		fmt.Fprintf(b, "| %d | %s |\n", code, meaning)
	}
	return []byte(b.String())
}

// alternatives is a part of a usage line, such as {FILE | --from-log}. The page shows the first one.
var alternatives = regexp.MustCompile(`\{([^|}]*) \|[^}]*\}`)

// writeCommands writes the rows of a command and of those below it.
func writeCommands(b *strings.Builder, c *cobra.Command) {
	if !c.IsAvailableCommand() {
		return
	}
	line, _, _ := strings.Cut(alternatives.ReplaceAllString(c.UseLine(), "$1"), " [flags]")
	fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(line, "|", "\\|"), strings.ReplaceAll(c.Short, "|", "\\|"))
	for _, sub := range c.Commands() {
		writeCommands(b, sub)
	}
}
