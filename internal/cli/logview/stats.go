package logview

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
)

// verdictKind is one of the numbers of [audit.Verdicts], for display.
type verdictKind struct {
	name   string
	colour term.Colour
	of     func(*audit.Verdicts) int
}

func verdictKinds() []verdictKind {
	return []verdictKind{
		{audit.ResultAllow, term.Green, func(v *audit.Verdicts) int { return v.Allow }},
		{audit.ResultDeny, term.Red, func(v *audit.Verdicts) int { return v.Deny }},
		{Hold, term.Yellow, func(v *audit.Verdicts) int { return v.RequireApproval }},
		{"event", term.Dim, func(v *audit.Verdicts) int { return v.None }},
	}
}

// statsRows is the number of rows in each list for people.
const statsRows = 20

// Stats prints the numbers of records, and charts them over time.
func Stats(out io.Writer, scr term.Screen, stats *audit.Stats) error {
	w := bufio.NewWriter(out)
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
		{"AGENT", stats.Agents, stats.AgentCount}, {"RULE OR EVENT", stats.Rules, stats.RuleCount}, {"CODE", stats.Codes, stats.CodeCount},
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

// drawVerdicts draws a line of bars for each kind of verdict, each to its own scale: the
// highest bar is the peak, which is printed beside it. If there are more buckets than
// columns, several share a bar.
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

// merged adds up groups of share neighbouring buckets.
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

// bars draws numbers as blocks of eight heights; zero is blank.
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

// howLong describes the time of a bar, such as "15 min" or "2 h".
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
