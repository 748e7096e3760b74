package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

func newMeasure(s *shell) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "measure FILE",
		Example: "  ocipd measure texts.jsonl\n" +
			"  ocipd measure texts.jsonl --json",
		Short: "measure detection on labelled texts of your own",
		Long: `Run the configuration's commitment detection over labelled texts, and print how
many it would hold, how many of those rightly (precision), and how many of the
commitments it finds (recall). FILE has one text a line, as JSON
{"text": "…", "commitment": true} or as a label, a tab and the text; - is stdin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			report, err := s.measure(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(report)
			}
			return s.showMeasure(&report)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

func (s *shell) measure(file string) (report commitment.Report, err error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return report, err
	}
	families := make(map[string]commitment.Mode)
	for name, mode := range cfg.OCIP.Commitment.Families {
		families[name] = commitment.Mode(mode)
	}
	detector, err := commitment.New(commitment.Options{Match: commitment.Match(cfg.OCIP.Commitment.Match), Families: families})
	if err != nil {
		return report, fmt.Errorf("cannot use ocip.commitment: %w", err)
	}
	in := s.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return report, fmt.Errorf("cannot read the texts: %w", err)
		}
		defer f.Close()
		in = f
	}
	examples, err := commitment.ReadExamples(in)
	switch {
	case err != nil:
		return report, fmt.Errorf("cannot read the texts of %s: %w", file, err)
	case len(examples) == 0:
		return report, fmt.Errorf("cannot measure on %s: it has no texts", file)
	}
	return detector.Measure(examples), nil
}

func (s *shell) showMeasure(r *commitment.Report) error {
	fmt.Fprintf(s.Stdout, "%d texts, %d of them commitments; %d would be held (%s)\n", r.Examples, r.Commitments, r.Held, percent(r.HoldRate))
	fmt.Fprintf(s.Stdout, "precision %s   recall %s\n", percent(r.Precision), percent(r.Recall))
	if len(r.Parts) == 0 {
		return nil
	}
	t := term.Table{Columns: []term.Column{{Title: "WHAT", Least: 8}, {Title: "TEXTS", Least: 5, Right: true}, {Title: "RIGHT", Least: 5, Right: true}, {Title: "PRECISION", Least: 9, Right: true}}}
	for _, p := range r.Parts {
		t.Add(term.Plain(p.Name), term.Plain(strconv.Itoa(p.Texts)), term.Plain(strconv.Itoa(p.Right)), term.Plain(percent(p.Precision)))
	}
	return t.Write(s.Stdout, s.Screen())
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
