// Package contentcmd has the commands that show and measure the detectors.
package contentcmd

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/spf13/cobra"
)

// New returns the commands about the detectors.
func New(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.Group(&cobra.Command{Use: "content", Short: "explain what raises the level of a text"})
	c.AddCommand(newContentExplain(s), newContentRules(s))
	return c
}

// maxExplained bounds the text, in bytes. Messages are shorter.
const maxExplained = 16 << 20

// explained is the output of `ocipd content explain --json`.
type explained struct {
	// Level is the level to which the findings raise the text.
	Level    string    `json:"level"`
	Findings []finding `json:"findings"`
}

// finding is one finding, without any of the text.
type finding struct {
	Rule   string `json:"rule"`
	Source string `json:"source"`
	Level  string `json:"level"`
	// Shadow is set if the finding is recorded but does not raise the level.
	Shadow bool `json:"shadow,omitzero"`
	// Start and End are byte offsets in the text. Line and Column give its start for
	// people, in characters, both from 1.
	Start  int `json:"start"`
	End    int `json:"end"`
	Line   int `json:"line"`
	Column int `json:"column"`
}

func newContentExplain(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "explain FILE",
		Example: "  ocipd content explain reply.txt\n" +
			"  ocipd content explain - --json < reply.txt",
		Short: "list what is found in a text: rule, source, place and level",
		Long: `Check a text as the daemon checks a message, with the configuration's patterns and
personal data, and list each finding: the rule, its source, the place and the
level. Shadow rules are listed too, but raise no level. The words themselves are
not printed. FILE is - for stdin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := s.explain(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(e)
			}
			return s.showExplained(&e)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (s *command) explain(file string) (e explained, err error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return e, err
	}
	typed, err := kernelconfig.New(cfg)
	if err != nil {
		return e, err
	}
	var in io.Reader = s.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return e, fmt.Errorf("cannot read the text: %w", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxExplained+1))
	switch {
	case err != nil:
		return e, fmt.Errorf("cannot read the text of %s: %w", file, err)
	case len(raw) > maxExplained:
		return e, fmt.Errorf("cannot explain %s: it is longer than %d MiB", file, maxExplained>>20)
	}
	known := map[string]string{}
	for _, r := range content.Rules() {
		known[r.ID] = r.Source
	}
	said := string(raw)
	found := typed.Rules.Content.Scan([]text.Passage{{Text: said}}, text.Renderings()...)
	e.Level, e.Findings = content.Highest(found), make([]finding, 0, len(found))
	for _, f := range found {
		source, ok := known[f.Rule]
		if !ok {
			source = "ocip.content.patterns of the configuration"
		}
		before := said[:f.Start]
		e.Findings = append(e.Findings, finding{
			Rule: f.Rule, Source: source, Level: f.Level, Shadow: f.Shadow, Start: f.Start, End: f.End,
			Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]),
		})
	}
	return e, nil
}

func (s *command) showExplained(e *explained) error {
	if len(e.Findings) == 0 {
		_, err := fmt.Fprintln(s.Stdout, "nothing is found: the text stays at the level that its sender gives it")
		return err
	}
	t := term.Table{Columns: []term.Column{{Title: "RULE", Least: 12}, {Title: "LEVEL", Least: 6}, {Title: "LINE", Least: 4, Right: true}, {Title: "BYTES", Least: 5}, {Title: "SOURCE", Least: 8}}}
	for _, f := range e.Findings {
		level := f.Level
		if f.Shadow {
			level = content.Shadow
		}
		t.Add(term.Plain(f.Rule), term.Plain(level), term.Plain(strconv.Itoa(f.Line)+":"+strconv.Itoa(f.Column)),
			term.Plain(strconv.Itoa(f.Start)+"-"+strconv.Itoa(f.End)), term.Plain(f.Source))
	}
	if err := t.Write(s.Stdout, s.Screen()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.Stdout, "the text is %s\n", e.Level)
	return err
}

// rule is a row of `ocipd content rules --json`.
type rule struct {
	Rule   string `json:"rule"`
	Level  string `json:"level"`
	Source string `json:"source"`
}

func newContentRules(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rules",
		Example: "  ocipd content rules\n" +
			"  ocipd content rules --json",
		Short: "list the built-in rules, their levels and sources",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var rules []rule
			for _, r := range content.Rules() {
				rules = append(rules, rule{r.ID, r.Level, r.Source})
			}
			if asJSON {
				return s.PrintJSON(rules)
			}
			t := term.Table{Columns: []term.Column{{Title: "RULE", Least: 12}, {Title: "LEVEL", Least: 6}, {Title: "SOURCE", Least: 8}}}
			for _, r := range rules {
				t.Add(term.Plain(r.Rule), term.Plain(r.Level), term.Plain(r.Source))
			}
			return t.Write(s.Stdout, s.Screen())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
