package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

func newAuditStats(s *shell) *cobra.Command {
	var since, until string
	var bucket time.Duration
	var asJSON bool
	var database string
	c := &cobra.Command{
		Use: "stats",
		Example: "  ocipd audit stats\n" +
			"  ocipd audit stats --since 7d --bucket 1h",
		Short: "chart decisions over time, by agent and by rule",
		Long: `Chart the number of records over time by decision, and list them by agent, rule
and code. A message between two agents of this daemon has a record on each side.
If no daemon is running, its database is read, or the mirror file if there is no
database.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			from, err := cli.Moment(since, now)
			if err != nil {
				return cli.Usagef("cannot read --since: %v", err)
			}
			to, err := cli.Moment(until, now)
			if err != nil {
				return cli.Usagef("cannot read --until: %v", err)
			}
			if to.IsZero() {
				to = now
			}
			if to.Before(from) {
				return cli.Usagef("cannot count from %s until %s: it ends before it begins", from.Format(time.DateTime), to.Format(time.DateTime))
			}
			if bucket < 0 || bucket%time.Minute != 0 {
				return cli.Usagef("cannot read --bucket %s: want whole minutes", bucket)
			}
			stats, err := s.stats(cmd.Context(), database, from, to, bucket)
			if err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(stats)
			}
			return s.printStats(stats)
		},
	}
	flags := c.Flags()
	flags.StringVar(&since, "since", "24h", "count from this `TIME` on: RFC 3339, a date, a duration back such as 2h or 7d, today, yesterday")
	flags.StringVar(&until, "until", "", "count up to this `TIME`")
	flags.DurationVar(&bucket, "bucket", 0, "`TIME` of a step of the drawing, in whole minutes (chosen by the time counted)")
	flags.StringVar(&database, "database", "", "count the records of this database `FILE`, such as a copy")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// stats asks the daemon, or counts what it left behind where none runs.
func (s *shell) stats(ctx context.Context, database string, since, until time.Time, bucket time.Duration) (*audit.Stats, error) {
	if database != "" {
		left, err := logreader.OpenWhole(ctx, database, s.operatorSocket)
		if err != nil {
			return nil, err
		}
		defer left.Close()
		return countEvidence(ctx, left, since, until, bucket)
	}
	c, err := s.DialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) {
		left, err := s.openEvidence(ctx, err)
		if err != nil {
			return nil, err
		}
		defer left.Close()
		return countEvidence(ctx, left, since, until, bucket)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	var stats audit.Stats
	err = c.Call(ctx, "audit.stats", api.AuditStatsParams{Since: since, Until: until, Bucket: int(bucket / time.Second)}, &stats)
	return &stats, err
}

// errCounted ends a walk where the time that is counted does.
var errCounted = errors.New("the rest is later")

func countEvidence(ctx context.Context, left evidence, since, until time.Time, bucket time.Duration) (*audit.Stats, error) {
	var tally *audit.Tally
	err := left.EachLine(ctx, 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		if err != nil {
			return err
		}
		if tally == nil {
			// Like the daemon, not before the first record.
			if since.Before(e.Time) {
				since = e.Time
			}
			tally = audit.NewTally(since, until, bucket)
		}
		if !e.Time.Before(tally.Until()) {
			return errCounted
		}
		tally.Add(&e)
		return nil
	})
	if err != nil && !errors.Is(err, errCounted) {
		return nil, err
	}
	if tally == nil {
		tally = audit.NewTally(since, until, bucket)
	}
	stats := tally.Stats()
	return &stats, nil
}

// verdictKind is one of the numbers of [audit.Verdicts], as people are shown it.
type verdictKind struct {
	name   string
	colour term.Colour
	of     func(*audit.Verdicts) int
}

func verdictKinds() []verdictKind {
	return []verdictKind{
		{audit.ResultAllow, term.Green, func(v *audit.Verdicts) int { return v.Allow }},
		{audit.ResultDeny, term.Red, func(v *audit.Verdicts) int { return v.Deny }},
		{resultHold, term.Yellow, func(v *audit.Verdicts) int { return v.RequireApproval }},
		{"other", term.Dim, func(v *audit.Verdicts) int { return v.None }},
	}
}

// statsRows is how many rows each list has for people.
const statsRows = 20

func (s *shell) printStats(stats *audit.Stats) error {
	scr := s.Screen()
	w := bufio.NewWriter(s.Stdout)
	total := stats.Verdicts.Total()
	noun := "records"
	if total == 1 {
		noun = "record"
	}
	fmt.Fprintf(w, "%s %s from %s until %s\n", term.Thousands(total), noun,
		stats.Since.Local().Format("2006-01-02 15:04"), stats.Until.Local().Format("2006-01-02 15:04"))
	if total == 0 {
		return w.Flush()
	}
	fmt.Fprintln(w)
	drawVerdicts(w, stats, scr)
	for _, list := range []struct {
		title string
		rows  []audit.StatsRow
		count int
	}{
		{"AGENT", stats.Agents, stats.AgentCount}, {"RULE", stats.Rules, stats.RuleCount}, {"CODE", stats.Codes, stats.CodeCount},
	} {
		if len(list.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := &term.Table{Columns: []term.Column{{Title: list.title, Least: 12}}}
		for _, k := range verdictKinds() {
			t.Columns = append(t.Columns, term.Column{Title: strings.ToUpper(k.name), Least: 5, Right: true})
		}
		t.Columns = append(t.Columns, term.Column{Title: "ALL", Least: 5, Right: true})
		shown := list.rows[:min(len(list.rows), statsRows)]
		for _, row := range shown {
			cells := []term.Cell{term.Plain(row.Name)}
			for _, k := range verdictKinds() {
				c := term.Cell{Text: term.Thousands(k.of(&row.Verdicts)), Colour: k.colour}
				if c.Text == "0" {
					c = term.Cell{Text: "·", Colour: term.Dim}
				}
				cells = append(cells, c)
			}
			t.Add(append(cells, term.Cell{Text: term.Thousands(row.Total())})...)
		}
		if err := t.Write(w, scr); err != nil {
			return err
		}
		if more := list.count - len(shown); more > 0 {
			fmt.Fprintf(w, "and %s more\n", term.Thousands(more))
		}
	}
	return w.Flush()
}

// drawVerdicts draws a line of bars for each verdict there was, each to its own
// scale: the highest bar is the peak that stands beside it. Where there are more
// buckets than columns, some share a bar.
func drawVerdicts(w *bufio.Writer, stats *audit.Stats, scr term.Screen) {
	const label = 6
	number := max(len("ALL"), len("PEAK"), len(term.Thousands(stats.Verdicts.Total())))
	room := max(8, scr.Width-label-2*number-3*len(term.Gap))
	share := (len(stats.Buckets) + room - 1) / room
	steps := merged(stats, share)
	line := func(name string, c term.Colour, bars, all, peak string) {
		fmt.Fprintf(w, "%-*s%s%s%s%*s%s%*s\n", label, name, term.Gap, scr.Colour.Paint(c, bars), term.Gap, number, all, term.Gap, number, peak)
	}
	line("", term.NoColour, strings.Repeat(" ", len(steps)), "ALL", "PEAK")
	for _, k := range verdictKinds() {
		if all := k.of(&stats.Verdicts); all > 0 {
			drawn, peak := bars(steps, k)
			line(k.name, k.colour, drawn, term.Thousands(all), term.Thousands(peak))
		}
	}
	const layout = "01-02 15:04"
	axis := stats.Buckets[0].Start.Local().Format(layout)
	last := stats.Buckets[(len(steps)-1)*share].Start.Local().Format(layout)
	if space := len(steps) - len(axis) - len(last); space > 0 {
		axis += strings.Repeat(" ", space) + last
	}
	step := time.Duration(stats.Bucket*share) * time.Second
	for _, below := range []string{axis, "each bar is " + howLong(step)} {
		fmt.Fprintf(w, "%*s%s%s\n", label, "", term.Gap, scr.Colour.Paint(term.Dim, below))
	}
}

// merged adds up so many neighbouring buckets at a time.
func merged(stats *audit.Stats, share int) []audit.Verdicts {
	steps := make([]audit.Verdicts, (len(stats.Buckets)+share-1)/share)
	for i := range stats.Buckets {
		b, into := &stats.Buckets[i], &steps[i/share]
		into.Allow += b.Allow
		into.Deny += b.Deny
		into.RequireApproval += b.RequireApproval
		into.None += b.None
	}
	return steps
}

// bars draws numbers as blocks of eight heights, and nothing for none.
func bars(steps []audit.Verdicts, k verdictKind) (drawn string, peak int) {
	for i := range steps {
		peak = max(peak, k.of(&steps[i]))
	}
	heights := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for i := range steps {
		n := k.of(&steps[i])
		if n == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(heights[(n*len(heights)-1)/peak])
	}
	return b.String(), peak
}

// howLong says how long a bar is, such as "15 min" or "2 h".
func howLong(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d%day == 0:
		return term.Count(int(d/day), "day")
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}
