package contentcmd

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/auditcmd"
	"github.com/openclawos/ocipd/internal/cli/measure"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/spf13/cobra"
)

type measureFlags struct {
	compare, since, by     string
	fromLog, every, asJSON bool
}

// NewMeasure returns the command that measures the detectors.
func NewMeasure(p *cli.Process) *cobra.Command {
	s := &command{p}
	var f measureFlags
	c := &cobra.Command{
		Use: "measure {FILE | --from-log}",
		Example: "  ocipd measure texts.jsonl\n" +
			"  ocipd measure texts.jsonl --compare quieter.yaml\n" +
			"  ocipd measure --from-log --since 30d",
		Short: "measure detection on labelled texts, or on what people decided",
		Long: `Run the configuration's detectors over labelled texts, and print how many they
would hold, how many of those rightly (precision), how many of the commitments
they find (recall), each with its bounds at 95 % confidence, the same for each
rule, the commitments that pass and the holds that are useless. FILE has one text
a line, as JSON {"text": "…", "commitment": true} or as a label, a tab and the
text; - is stdin. JSON may have more: "id", "lenient" (it commits, or asks for a
commitment, or promises weakly), "answers" (the id of the message it answers) and
"secrets" and "personal" (names of what secrets and personal data are in it).

The rates of keywords alone, of other rules alone and of both follow, those of each
likelihood, and those of each value of a column of the file: "kind" if it has one, or
the member that --by names, such as a kind of traffic. A useless hold has the
reasons that weighed most below it.

--compare runs another configuration over the same texts, and lists the texts that only
one of the two holds, or to which they give different levels. --from-log reads no file:
it counts people's decisions about the messages that each rule held, from the daemon's
log.`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.fromLog:
				return s.measureLog(cmd.Context(), &f)
			case f.compare != "":
				return s.measureBoth(args[0], &f)
			}
			return s.measureFile(args[0], &f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.compare, "compare", "", "run the detectors of this configuration `FILE` as well, and list the differences")
	flags.BoolVar(&f.fromLog, "from-log", false, "measure what people decided, by the record")
	flags.StringVar(&f.since, "since", "", "with --from-log, from this `TIME` on: RFC 3339, a date, a duration back such as 30d")
	flags.StringVar(&f.by, "by", "", "give the rates by this `COLUMN`, a member of each line (default kind)")
	flags.BoolVar(&f.every, "all", false, "list all texts, not the first of each list")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

// check returns an error if flags contradict each other.
func (f *measureFlags) check(args []string) error {
	switch {
	case f.fromLog && len(args) > 0:
		return cli.Usagef("cannot measure %s and the log at once", args[0])
	case f.fromLog && f.compare != "":
		return cli.Usagef("cannot compare configurations on the log, which has no texts: give a FILE")
	case f.by != "" && (f.fromLog || f.compare != ""):
		return cli.Usagef("cannot use --by with --from-log or --compare")
	case !f.fromLog && f.since != "":
		return cli.Usagef("cannot use --since without --from-log")
	case !f.fromLog && len(args) != 1:
		return cli.Usagef("want one FILE of labelled texts, or --from-log")
	}
	return nil
}

// measured is the output of `ocipd measure FILE --json`.
type measured struct {
	measure.Report
	// By has the rates by the values of a column, if the file has it.
	By []measure.Part `json:"by,omitempty"`
	// Secrets is set if texts have labels for secrets or personal data.
	Secrets *measure.SecretsReport `json:"secrets,omitempty"`
}

func (s *command) measureFile(file string, f *measureFlags) error {
	texts, err := s.readTexts(file)
	if err != nil {
		return err
	}
	seen, err := s.look(s.ConfigFile, texts)
	if err != nil {
		return err
	}
	m := measured{Report: measure.Commitments(seen)}
	switch column := cmp.Or(f.by, "kind"); {
	case measure.HasColumn(texts, column):
		f.by, m.By = column, measure.By(seen, column)
	case f.by != "":
		return fmt.Errorf("cannot give the rates by %q: no line of %s has that member with a text as its value", f.by, file)
	}
	if slices.ContainsFunc(texts, func(t measure.Text) bool { return len(t.Secrets)+len(t.Personal) > 0 }) {
		secrets := measure.Secrets(seen)
		m.Secrets = &secrets
	}
	if f.asJSON {
		return s.PrintJSON(m)
	}
	return s.showMeasured(&m, f)
}

func (s *command) measureBoth(file string, f *measureFlags) error {
	texts, err := s.readTexts(file)
	if err != nil {
		return err
	}
	now, err := s.look(s.ConfigFile, texts)
	if err != nil {
		return err
	}
	other, err := s.look(f.compare, texts)
	if err != nil {
		return err
	}
	c := measure.Compare(now, other)
	if f.asJSON {
		return s.PrintJSON(c)
	}
	return s.showComparison(&c, f)
}

func (s *command) readTexts(file string) ([]measure.Text, error) {
	var in io.Reader = s.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the texts: %w", err)
		}
		defer f.Close()
		in = f
	}
	texts, err := measure.Read(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the texts of %s: %w", file, err)
	case len(texts) == 0:
		return nil, fmt.Errorf("cannot measure on %s: it has no texts", file)
	}
	return texts, nil
}

// look runs the detectors of a configuration over texts.
func (s *command) look(file string, texts []measure.Text) ([]measure.Seen, error) {
	cfg, err := s.LoadFile(file, nil)
	if err != nil {
		return nil, err
	}
	typed, err := kernelconfig.New(cfg)
	if err != nil {
		return nil, err
	}
	rules := measure.Rules{Commitments: typed.Rules.Commitments, Content: typed.Rules.Content, Weigh: typed.Rules.Keywords == commitment.Weigh}
	step, end := s.Progress("texts", len(texts))
	defer end()
	return rules.Look(texts, step), nil
}

func (s *command) showMeasured(m *measured, f *measureFlags) error {
	scr := s.Screen()
	w := bufio.NewWriter(s.Stdout)
	fmt.Fprintf(w, "%s texts, %s of them commitments; in 100, with bounds at 95 %% confidence\n", term.Thousands(m.Texts), term.Thousands(m.Strict.Labelled))
	showMatch(w, &m.Report)
	if err := showParts(w, scr, m, f.by); err != nil {
		return err
	}
	if len(m.Rules) > 0 {
		fmt.Fprintln(w)
		t := term.Table{Columns: []term.Column{
			{Title: "RULE", Least: 8}, {Title: "HELD", Least: 4, Right: true}, {Title: "RIGHT", Least: 5, Right: true},
			{Title: "PRECISION", Least: 14, Right: true}, {Title: "ALONE", Least: 5, Right: true},
		}}
		for i := range m.Rules {
			r := &m.Rules[i]
			name, alone := r.Name, fmt.Sprintf("%d, %d right", r.Alone, r.AloneRight)
			if r.Shadow {
				name, alone = name+" (shadow)", "holds nothing"
			}
			t.Add(term.Plain(name), term.Plain(strconv.Itoa(r.Rate.Part)), term.Plain(strconv.Itoa(r.Strict.Part)), term.Plain(r.Strict.String()), term.Plain(alone))
		}
		if err := t.Write(w, scr); err != nil {
			return err
		}
		fmt.Fprintln(w, "ALONE: what nothing else holds.")
	}
	most := f.most()
	listQuotes(w, scr, "commitments that pass", m.Misses, most)
	for _, group := range byRule(m.Useless) {
		listQuotes(w, scr, "useless holds by "+group.rule, group.quotes, most)
	}
	if m.Secrets != nil {
		fmt.Fprintf(w, "\nsecrets found    %v of %d\nraised falsely   %v of %d\n", m.Secrets.Found, m.Secrets.Found.Whole, m.Secrets.False, m.Secrets.False.Whole)
		for _, kind := range m.Secrets.Personal {
			fmt.Fprintf(w, "personal data    %s: %d of %d\n", term.Printable(kind.Name), kind.Found.Part, kind.Found.Whole)
		}
		listQuotes(w, scr, "secrets not found", m.Secrets.Missed, most)
		listQuotes(w, scr, "raised without a secret", m.Secrets.Useless, most)
	}
	return w.Flush()
}

// showParts prints the rates by the kinds of rules, by likelihood, and by a column of the file.
func showParts(w io.Writer, scr term.Screen, m *measured, column string) error {
	held := func(title string, rows []heldPart) error {
		t := term.Table{Columns: []term.Column{
			{Title: title, Least: 10}, {Title: "HELD", Least: 14, Right: true}, {Title: "PRECISION", Least: 14, Right: true},
		}}
		for _, row := range rows {
			t.Add(term.Plain(row.name), term.Plain(row.Rate.String()), term.Plain(row.Strict.String()))
		}
		fmt.Fprintln(w)
		return t.Write(w, scr)
	}
	if err := held("HELD BY", []heldPart{{"keywords alone", m.ByKeyword}, {"cues alone", m.ByCue}, {"both", m.ByBoth}}); err != nil {
		return err
	}
	var likely []heldPart
	for _, l := range commitment.Likelihoods() {
		likely = append(likely, heldPart{string(l), m.ByLikelihood[l]})
	}
	if err := held("LIKELY", likely); err != nil || len(m.By) == 0 {
		return err
	}
	t := term.Table{Columns: []term.Column{
		{Title: term.Printable(strings.ToUpper(column)), Least: 10}, {Title: "TEXTS", Least: 5, Right: true}, {Title: "HELD", Least: 14, Right: true}, {Title: "KEYWORDS", Least: 4, Right: true},
		{Title: "CUES", Least: 4, Right: true}, {Title: "BOTH", Least: 4, Right: true}, {Title: "PRECISION", Least: 14, Right: true}, {Title: "RECALL", Least: 14, Right: true},
	}}
	for i := range m.By {
		p := &m.By[i]
		t.Add(term.Plain(term.Printable(cmp.Or(p.Value, "(none)"))), term.Plain(term.Thousands(p.Texts)), term.Plain(p.Held.String()), term.Plain(strconv.Itoa(p.Keyword.Part)),
			term.Plain(strconv.Itoa(p.Cue.Part)), term.Plain(strconv.Itoa(p.Both.Part)), term.Plain(p.Strict.Precision.String()), term.Plain(p.Strict.Recall.String()))
	}
	fmt.Fprintln(w)
	return t.Write(w, scr)
}

type heldPart struct {
	name string
	measure.Held
}

func showMatch(w io.Writer, r *measure.Report) {
	leniently := func(of func(*measure.Match) measure.Share) string {
		if r.Lenient == nil {
			return ""
		}
		return fmt.Sprintf("   leniently %v", of(r.Lenient))
	}
	fmt.Fprintf(w, "held       %v\n", r.Held)
	fmt.Fprintf(w, "precision  %v%s\n", r.Strict.Precision, leniently(func(m *measure.Match) measure.Share { return m.Precision }))
	fmt.Fprintf(w, "recall     %v%s\n", r.Strict.Recall, leniently(func(m *measure.Match) measure.Share { return m.Recall }))
}

// fewQuotes is the number of shown texts in a list for people.
const fewQuotes = 5

func (f *measureFlags) most() int {
	if f.every {
		return 1 << 30
	}
	return fewQuotes
}

type ruleQuotes struct {
	rule   string
	quotes []measure.Quote
}

// byRule groups texts by the rules that hold them, the rule with the most texts first. A
// text is listed once, under the first of its rules.
func byRule(quotes []measure.Quote) (groups []ruleQuotes) {
	count := map[string]int{}
	for _, q := range quotes {
		for _, rule := range q.Rules {
			count[rule]++
		}
	}
	more := func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	}
	at := map[string]int{}
	for _, q := range quotes {
		rule := slices.MinFunc(q.Rules, more)
		if _, known := at[rule]; !known {
			at[rule] = len(groups)
			groups = append(groups, ruleQuotes{rule: rule})
		}
		g := &groups[at[rule]]
		g.quotes = append(g.quotes, q)
	}
	slices.SortStableFunc(groups, func(a, b ruleQuotes) int { return more(a.rule, b.rule) })
	return groups
}

// listQuotes prints texts, one a line, and the number of further ones.
func listQuotes(w io.Writer, scr term.Screen, title string, quotes []measure.Quote, most int) {
	if len(quotes) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s\n", title, term.Thousands(len(quotes)))
	for _, q := range quotes[:min(len(quotes), most)] {
		line := "  " + term.Printable(q.ID) + "  "
		if len(q.Rules) > 1 {
			line += "[" + term.Printable(strings.Join(q.Rules, " ")) + "] "
		}
		if len(q.Rules) == 0 && len(q.Shadowed) > 0 {
			line += "(" + term.Printable(strings.Join(q.Shadowed, " ")) + ") "
		}
		fmt.Fprintln(w, term.Cut(line+term.Printable(strings.Join(strings.Fields(q.Text), " ")), scr.RowWidth()))
		if len(q.Reasons) > 0 {
			fmt.Fprintln(w, scr.Colour.Paint(term.Dim, term.Cut("      "+string(q.Likelihood)+": "+term.Printable(commitment.JoinReasons(q.Reasons)), scr.RowWidth())))
		}
	}
	if more := len(quotes) - most; more > 0 {
		fmt.Fprintf(w, "  and %s more (--all)\n", term.Thousands(more))
	}
}

func (s *command) showComparison(c *measure.Comparison, f *measureFlags) error {
	scr := s.Screen()
	w := bufio.NewWriter(s.Stdout)
	fmt.Fprintf(w, "%s texts, %s of them commitments; in 100, with bounds at 95 %% confidence\n\n", term.Thousands(c.Now.Texts), term.Thousands(c.Now.Strict.Labelled))
	t := term.Table{Columns: []term.Column{
		{Title: "", Least: 5}, {Title: "HELD", Least: 14, Right: true}, {Title: "PRECISION", Least: 14, Right: true}, {Title: "RECALL", Least: 14, Right: true},
	}}
	for _, row := range []struct {
		name string
		*measure.Report
	}{{"now", &c.Now}, {term.Printable(f.compare), &c.Other}} {
		t.Add(term.Plain(row.name), term.Plain(row.Held.String()), term.Plain(row.Strict.Precision.String()), term.Plain(row.Strict.Recall.String()))
	}
	if err := t.Write(w, scr); err != nil {
		return err
	}
	for _, d := range []struct {
		title string
		*measure.Difference
	}{{"no longer held", &c.Freed}, {"newly held", &c.Caught}} {
		for _, commits := range []bool{true, false} {
			var quotes []measure.Quote
			for _, q := range d.Quotes {
				if q.Commitment == commits {
					quotes = append(quotes, q.Quote)
				}
			}
			title := d.title + ", no commitments"
			if commits {
				title = d.title + ", commitments"
			}
			listQuotes(w, scr, title, quotes, f.most())
		}
	}
	for _, d := range []struct {
		title string
		*measure.Difference
	}{{"raised to ", &c.Raised}, {"lowered to ", &c.Lowered}} {
		for _, level := range []string{content.Restricted, content.Confidential, content.Internal, content.Public} {
			var quotes []measure.Quote
			for _, q := range d.Quotes {
				if q.Level == level {
					quotes = append(quotes, q.Quote)
				}
			}
			listQuotes(w, scr, d.title+level, quotes, f.most())
		}
	}
	if c.Same() {
		fmt.Fprintln(w, "\nboth treat every text alike")
	}
	return w.Flush()
}

// measureLog counts people's decisions.
func (s *command) measureLog(ctx context.Context, f *measureFlags) error {
	since, err := cli.Moment(f.since, time.Now())
	if err != nil {
		return cli.Usagef("cannot read --since: %v", err)
	}
	history := measure.NewHistory()
	step, end := s.Progress("records", 0)
	read := 0
	err = auditcmd.Entries(ctx, s.Process, func(e *audit.Entry) {
		history.Add(e)
		read++
		step(read)
	}, measure.Filters(since)...)
	if err != nil {
		return err
	}
	end()
	d := history.Decisions()
	if f.asJSON {
		return s.PrintJSON(d)
	}
	return s.showDecisions(&d)
}

func (s *command) showDecisions(d *measure.Decisions) error {
	if d.Held == 0 {
		fmt.Fprintln(s.Stderr, "no message was held for a person")
		return nil
	}
	w := bufio.NewWriter(s.Stdout)
	fmt.Fprintf(w, "%s messages held since %s; %s wait still\n\n", term.Thousands(d.Held), d.Since.Local().Format("2006-01-02 15:04"), term.Thousands(d.Open))
	t := term.Table{Columns: []term.Column{{Title: "RULE", Least: 10}, {Title: "HELD", Least: 4, Right: true}, {Title: "ALONE", Least: 5, Right: true}}}
	for _, title := range []string{"APPROVED", "DENIED", "TAKEN OVER", "RESOLVED", "EXPIRED"} {
		t.Columns = append(t.Columns, term.Column{Title: title, Least: 4, Right: true})
	}
	t.Columns = append(t.Columns, term.Column{Title: "STOPPED", Least: 14, Right: true})
	add := func(name, held, alone string, e *measure.Ends) {
		cells := []term.Cell{term.Plain(name), term.Plain(held), term.Plain(alone)}
		for _, n := range []int{e.Approved, e.Denied, e.TakenOver, e.Resolved, e.Expired} {
			cells = append(cells, term.Plain(strconv.Itoa(n)))
		}
		t.Add(append(cells, term.Plain(e.Stopped.String()))...)
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		add(r.Name, strconv.Itoa(r.Held), strconv.Itoa(r.Alone), &r.Ends)
	}
	add("all", strconv.Itoa(d.Held), "", &d.Ends)
	if err := t.Write(w, s.Screen()); err != nil {
		return err
	}
	fmt.Fprintln(w, "STOPPED: of what people decided, in 100, what did not leave as it was written.")
	if d.Judged > 0 {
		fmt.Fprintf(w, "Your model (ocip.judge) released %s more, which no person decided.\n", term.Thousands(d.Judged))
	}
	if d.Spare.Decided > 0 {
		fmt.Fprintf(w, "With ocip.commitment.keywords: weigh, %s of %s decisions would not have been asked for; of what people stopped, %s would have gone.\n",
			term.Thousands(d.Spare.Decided), term.Thousands(d.Stopped.Whole), term.Thousands(d.Spare.Denied))
	}
	return w.Flush()
}
